"""`shoal bench`: env-steps per second, side by side with other ways to step the same envs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from shoal.cli import options
from shoal.cli.compare import Comparison, ContenderError, compare
from shoal.cli.constructor import EnvConstructor, UnknownEnvError, check_env_id
from shoal.cli.contenders import Cell, Contender
from shoal.cli.measure import Timing
from shoal.cli.plot import draw_plot
from shoal.cli.progress import progress_bar
from shoal.cli.report import to_json, write_report
from shoal.cli.streams import folded_output, reserved_stdout
from shoal.cli.surroundings import Surroundings

_FAILED = 1
_SUMMARY_WIDTH = 200


@click.command()
@click.argument("env_ids", metavar="ENV_ID...", nargs=-1, required=True)
@click.option(
    "--num-envs",
    multiple=True,
    default=("8",),
    show_default=True,
    metavar="N[,N...]",
    callback=options.parse_counts,
    help="Batch sizes; repeat, or separate by commas.",
)
@click.option(
    "--num-workers",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="one per CPU",
    help="Workers of shoal.",
)
@click.option(
    "--backend",
    type=click.Choice(["process", "thread", "serial"]),
    default="process",
    show_default=True,
    help="Backend of shoal.",
)
@click.option(
    "--seconds",
    type=float,
    default=2.0,
    show_default=True,
    metavar="S",
    callback=options.parse_seconds,
    help="Time per contender and round.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Interleaved rounds, of which the median counts.",
)
@click.option(
    "--compare",
    "contenders",
    multiple=True,
    default=("gymnasium-sync", "gymnasium-async"),
    show_default=True,
    metavar="NAME[,NAME...]",
    callback=options.parse_contenders,
    help=f"What to measure beside shoal: {', '.join(options.OTHERS)}, or '' for nothing.",
)
@click.option(
    "--env-kwargs",
    default="{}",
    metavar="JSON",
    callback=options.parse_kwargs,
    help="Keyword arguments of the env.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of envs and actions.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    callback=options.parse_plot,
    help="Draw the figures in a file such as out.png.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Write JSON to standard output, everything else to standard error.",
)
def bench(
    *,
    env_ids: tuple[str, ...],
    num_envs: list[int],
    num_workers: int | None,
    backend: str,
    seconds: float,
    rounds: int,
    contenders: list[Contender],
    env_kwargs: dict[str, Any],
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure env-steps per second of ENV_IDs, side by side with other ways to step them.

    An id is one of Gymnasium's registry, or module:Name-v0 to import the module that registers it.
    The ideal, measured along, is one plain loop per CPU, all at once, exchanging nothing.
    """
    if num_workers is not None and num_workers > min(num_envs):
        raise click.BadParameter(
            f"{num_workers} workers are more than {min(num_envs)} envs; every worker needs one.",
            click.get_current_context(),
            param_hint="'--num-workers'",
        )
    with _modules_of_current_directory(), reserved_stdout() as stdout:
        timing = Timing.of(seconds)
        try:
            with folded_output() as messages:
                for env_id in env_ids:
                    _check_env_id(env_id)
                cells = [
                    Cell(EnvConstructor(env_id, env_kwargs), count, num_workers, backend, seed)
                    for env_id in env_ids
                    for count in num_envs
                ]
                surroundings = Surroundings.now()
                comparisons = _compare_all(cells, contenders, timing, rounds, messages)
        except ContenderError as error:
            _show_failure(error)
            sys.exit(_FAILED)
        write_report(comparisons, surroundings, timing, sys.stderr if as_json else stdout)
        if as_json:
            json.dump(to_json(comparisons, surroundings, timing), stdout, indent=2)
            stdout.write("\n")
        if plot is not None:
            draw_plot(comparisons, plot)


@contextlib.contextmanager
def _modules_of_current_directory() -> Iterator[None]:
    """Finds modules there too, as `python -m` does, but last."""
    here = os.getcwd()
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _check_env_id(env_id: str) -> None:
    try:
        check_env_id(env_id)
    except UnknownEnvError as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="'ENV_ID'") from error


def _compare_all(
    cells: Sequence[Cell], contenders: Sequence[Contender], timing: Timing, rounds: int, messages: TextIO
) -> list[Comparison]:
    # The ideal takes part as well.
    total = len(cells) * rounds * (len(contenders) + 1)
    with progress_bar(total, messages) as start:

        def compare_one(cell: Cell) -> Comparison:
            def announce(round_index: int, name: str) -> None:
                start(f"{cell.describe()}, round {round_index + 1}: {name}")

            return compare(cell, contenders, timing, rounds, announce)

        return [compare_one(cell) for cell in cells]


def _show_failure(failure: ContenderError) -> None:
    cause = failure.__cause__
    assert cause is not None
    traceback.print_exception(cause)
    summary = textwrap.shorten(f"{type(cause).__name__}: {cause}", _SUMMARY_WIDTH)
    click.echo(f"shoal bench: error: {failure}: {summary}", err=True)
