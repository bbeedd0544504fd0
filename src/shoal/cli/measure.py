"""Measuring: how fast something steps, in turn with others, and what the samples say.

The rules are the same for everything measured. A contender is warmed up, then timed with actions
sampled beforehand. The rounds are interleaved (first round A B C, second round A B C, ...), so
that a machine that slows down or gets busy does so for everyone. What is measured exists only
while it is measured: nothing idle lies beside it, and every round is a new start with memory and
processes placed anew, so the spread over rounds tells how much of a difference is luck. The
garbage collector stays on, as in a training run, and is run before each measurement, so that
nobody pays for somebody else's garbage.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Batches of actions sampled before the clock starts, and cycled through.
ACTION_RING = 64


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one measurement takes.

    Attributes:
        seconds: Timed part.
        warmup_s: Untimed part before it.
    """

    seconds: float
    warmup_s: float

    @classmethod
    def of(cls, seconds: float) -> Timing:
        """Returns a timing with a warm-up of a quarter of `seconds`, at most one second."""
        return cls(seconds, min(1.0, seconds / 4))


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes:
        env_steps: Steps of single envs; a reset between episodes counts as one.
        seconds: The time they took.
    """

    env_steps: int
    seconds: float

    @property
    def rate(self) -> float:
        """Env-steps per second."""
        return self.env_steps / self.seconds


@dataclass(frozen=True, slots=True)
class Summary:
    """What the rounds say together, in env-steps per second (or whatever was summarized)."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Distance from the lowest to the highest round, as a share of the median."""
        return (self.high - self.low) / self.median


def summarize(values: Iterable[float]) -> Summary:
    """Returns median and extremes of one value per round.

    Raises:
        statistics.StatisticsError: There are no values.
    """
    values = list(values)
    return Summary(statistics.median(values), min(values), max(values))


def summarize_rates(samples: Iterable[Sample]) -> Summary:
    """Returns median and extremes of the samples' env-steps per second."""
    return summarize(sample.rate for sample in samples)


def ratio_by_round(samples: Iterable[Sample], reference: Iterable[Sample]) -> Summary:
    """Returns how many times as fast as `reference` the samples are, taken round by round.

    Both of a pair were measured within seconds of each other, so what the machine did to both
    cancels out.
    """
    return summarize(one.rate / other.rate for one, other in zip(samples, reference, strict=True))


def measure_steps(step: Callable[[Any], object], actions: Sequence[Any], num_envs: int, timing: Timing) -> Sample:
    """Returns how often `step` runs in the given time.

    Args:
        step: Steps a batch of `num_envs` envs.
        actions: Batches of actions, cycled through; at least one.
        num_envs: Env-steps in one call of `step`.
        timing: How long to warm up and to measure; both take at least one step.
    """
    _step_for(step, actions, timing.warmup_s)
    batches, seconds = _step_for(step, actions, timing.seconds)
    return Sample(batches * num_envs, seconds)


def _step_for(step: Callable[[Any], object], actions: Sequence[Any], seconds: float) -> tuple[int, float]:
    clock = time.perf_counter
    batches = 0
    begin = now = clock()
    deadline = begin + seconds
    for action in itertools.cycle(actions):
        step(action)
        batches += 1
        now = clock()
        if now >= deadline:
            break
    return batches, now - begin


def run_rounds(
    measurements: Mapping[str, Callable[[], Sample]],
    rounds: int,
    on_start: Callable[[int, str], None] = lambda _round, _name: None,
) -> dict[str, list[Sample]]:
    """Takes all measurements `rounds` times, interleaved.

    Args:
        measurements: By name, in the order of a round. Each sets up what it measures and takes
            it down again.
        rounds: How often each is taken.
        on_start: Called with round (from 0) and name before each measurement.

    Returns:
        The samples of each name, one per round.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in measurements}
    for round_index in range(rounds):
        for name, take in measurements.items():
            on_start(round_index, name)
            gc.collect()
            samples[name].append(take())
    return samples
