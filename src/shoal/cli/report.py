"""What a bench says: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.compare import Comparison
from shoal.cli.contenders import SHOAL
from shoal.cli.measure import Timing
from shoal.cli.surroundings import Surroundings

# Raised when a key changes its meaning or goes away.
SCHEMA = 1

# A spread, as a share of the median, from which the rounds disagree too much to be trusted.
_WIDE = 0.25
_FEW_ROUNDS = 3
_MIN_WIDTH = 80


def to_json(comparisons: Sequence[Comparison], surroundings: Surroundings, timing: Timing) -> dict[str, Any]:
    """Returns everything that was measured, ready for `json.dumps`.

    `results` has an entry for every contender on every cell: `env_id`, `env_kwargs`, `num_envs`,
    `num_workers` (null: left to shoal), `backend`, `seed`, `contender`, `env_steps_per_second`
    (`median`, `min`, `max`), `vs_shoal`, `of_ideal` and `samples` (`env_steps`, `seconds`; one per
    round).
    """
    return {
        "schema": SCHEMA,
        "surroundings": surroundings.to_json(),
        "seconds": timing.seconds,
        "warmup_seconds": timing.warmup_s,
        "results": [_entry(comparison, contender) for comparison in comparisons for contender in comparison.samples],
    }


def _entry(comparison: Comparison, contender: str) -> dict[str, Any]:
    cell, rates = comparison.cell, comparison.rates(contender)
    return {
        "env_id": cell.make_env.env_id,
        "env_kwargs": dict(cell.make_env.kwargs),
        "num_envs": cell.num_envs,
        "num_workers": cell.num_workers,
        "backend": cell.backend,
        "seed": cell.seed,
        "contender": contender,
        "env_steps_per_second": {"median": rates.median, "min": rates.low, "max": rates.high},
        "vs_shoal": comparison.vs_shoal(contender),
        "of_ideal": comparison.of_ideal(contender),
        "samples": [
            {"env_steps": sample.env_steps, "seconds": sample.seconds} for sample in comparison.samples[contender]
        ],
    }


def write_report(comparisons: Sequence[Comparison], surroundings: Surroundings, timing: Timing, file: TextIO) -> None:
    """Writes a table for every cell, and notes for whoever wants to judge the figures."""
    console = console_for(file)
    for comparison in comparisons:
        console.print(to_table(comparison))
    for note in _notes(comparisons, surroundings, timing):
        console.print(Text(note, style="dim"), soft_wrap=not console.is_terminal)


def console_for(file: TextIO) -> Console:
    """Returns a console that does not fold tables when the output is no terminal."""
    console = Console(file=file, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _MIN_WIDTH)
    return console


def to_table(comparison: Comparison) -> Table:
    """Returns one row per contender: rate, lowest and highest round, and the two ratios."""
    table = Table(title=comparison.cell.describe(), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for header in ("env-steps/s", "min - max", "x vs shoal", "of ideal"):
        table.add_column(header, justify="right", no_wrap=True)
    for name in comparison.samples:
        rates = comparison.rates(name)
        table.add_row(
            name,
            f"{rates.median:,.0f}",
            f"{rates.low:,.0f} - {rates.high:,.0f}",
            f"{comparison.vs_shoal(name):.2f}",
            f"{comparison.of_ideal(name):.0%}",
            style="bold" if name == SHOAL else None,
        )
    return table


def _notes(comparisons: Sequence[Comparison], surroundings: Surroundings, timing: Timing) -> Iterator[str]:
    rounds = len(next(iter(comparisons[0].samples.values())))
    yield (
        f"Median of {rounds} interleaved round{'s' * (rounds != 1)} of {timing.seconds:g} s; a reset between "
        "episodes counts as a step. ideal: one plain loop per CPU, all at once, exchanging nothing."
    )
    yield from surroundings.notes()
    if rounds < _FEW_ROUNDS:
        yield f"Fewer than {_FEW_ROUNDS} rounds: the spread says little."
    for comparison in comparisons:
        wide = [name for name in comparison.samples if comparison.rates(name).spread > _WIDE]
        if wide:
            yield (
                f"{comparison.cell.describe()}: the rounds of {', '.join(wide)} differ by more than "
                f"{_WIDE:.0%}; close other programs, or raise --seconds or --rounds."
            )
