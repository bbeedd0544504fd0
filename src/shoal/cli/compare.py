"""Comparing: every contender and the ideal, in interleaved rounds, on the same envs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.cli.contenders import SHOAL, Cell, Contender, measure_contender
from shoal.cli.ideal import IDEAL, measure_ideal
from shoal.cli.measure import Sample, Summary, Timing, run_rounds, summarize_rates


class ContenderError(Exception):
    """A contender failed while it was measured; the env's or library's own error is the cause.

    Attributes:
        contender: Its name.
        cell: What it stepped.
    """

    def __init__(self, contender: str, cell: Cell) -> None:
        super().__init__(f"{contender} failed on {cell.describe()}")
        self.contender = contender
        self.cell = cell


@dataclass(frozen=True, slots=True)
class Comparison:
    """The samples of all contenders on one cell.

    Attributes:
        cell: What was stepped.
        samples: By contender, the ideal last; one sample per round.
    """

    cell: Cell
    samples: dict[str, list[Sample]]

    def rates(self, name: str) -> Summary:
        """Returns a contender's env-steps per second."""
        return summarize_rates(self.samples[name])

    def vs_shoal(self, name: str) -> float:
        """Returns a contender's median as a multiple of shoal's."""
        return self.rates(name).median / self.rates(SHOAL).median

    def of_ideal(self, name: str) -> float:
        """Returns a contender's median as a share of the ideal's."""
        return self.rates(name).median / self.rates(IDEAL).median


def compare(
    cell: Cell,
    contenders: Sequence[Contender],
    timing: Timing,
    rounds: int,
    on_start: Callable[[int, str], None] = lambda _round, _name: None,
) -> Comparison:
    """Measures contenders and the ideal on one cell.

    Args:
        cell: What they step.
        contenders: In the order of a round; the ideal comes last.
        timing: Of each measurement.
        rounds: How many, interleaved.
        on_start: Called with round (from 0) and name before each measurement.

    Raises:
        ContenderError: One of them failed.
    """
    measurements: dict[str, Callable[[], Sample]] = {
        contender.name: functools.partial(measure_contender, contender, cell, timing) for contender in contenders
    }
    measurements[IDEAL] = functools.partial(measure_ideal, cell.make_env, cell.num_envs, timing, seed=cell.seed)
    return Comparison(
        cell,
        run_rounds({name: _named(name, cell, take) for name, take in measurements.items()}, rounds, on_start),
    )


def _named(name: str, cell: Cell, take: Callable[[], Sample]) -> Callable[[], Sample]:
    def take_or_name() -> Sample:
        try:
            return take()
        except Exception as error:
            raise ContenderError(name, cell) from error

    return take_or_name
