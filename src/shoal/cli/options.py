"""Options of the bench: from what was typed to values, or an error that says what to type."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from shoal.cli.contenders import CONTENDERS, SHOAL, Contender
from shoal.cli.plot import PlotError, check_plot

# What `--compare` may name: shoal itself always takes part.
OTHERS = tuple(name for name in CONTENDERS if name != SHOAL)


def _split(values: Sequence[str]) -> list[str]:
    """Returns the items of repeated, comma-separated values, each once."""
    items = itertools.chain.from_iterable(value.split(",") for value in values)
    return list(dict.fromkeys(item.strip() for item in items if item.strip()))


def parse_counts(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[int]:
    """Returns batch sizes, at least one, each at least 1."""
    counts = []
    for item in _split(values):
        try:
            count = int(item)
        except ValueError:
            raise click.BadParameter(f"{item!r} is not a number of envs.") from None
        if count < 1:
            raise click.BadParameter(f"a batch has at least 1 env, not {count}.")
        counts.append(count)
    if not counts:
        raise click.BadParameter("no number of envs given.")
    return counts


def parse_seconds(_context: click.Context, _option: click.Parameter, seconds: float) -> float:
    """Returns a time that passes and ends."""
    if not 0 < seconds < math.inf:
        raise click.BadParameter(f"a measurement takes more than 0 seconds, and not {seconds:g}.")
    return seconds


def parse_contenders(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[Contender]:
    """Returns shoal, and those named beside it."""
    names = _split(values)
    for name in names:
        if name not in OTHERS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(OTHERS)}.")
    return [CONTENDERS[name] for name in (SHOAL, *names)]


def parse_kwargs(_context: click.Context, _option: click.Parameter, text: str) -> dict[str, Any]:
    """Returns the keyword arguments in a JSON object."""
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"not valid JSON: {error}.") from None
    if not isinstance(kwargs, dict):
        raise click.BadParameter("""not a JSON object such as '{"frameskip": 4}'.""")
    return kwargs


def parse_plot(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Returns the path, if a plot can be drawn and written there."""
    if path is not None:
        try:
            check_plot(path)
        except PlotError as error:
            raise click.BadParameter(str(error)) from error
    return path
