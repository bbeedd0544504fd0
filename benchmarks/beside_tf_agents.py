"""What is promised to users of TF-Agents, measured beside TF-Agents itself: `make bench-tf-agents`.

Both step the same env, a small `PyEnvironment` around Gymnasium's CartPole. It is shoal's `PyEnvironment`, which
TF-Agents' class takes as well, so that no worker needs TensorFlow. Rounds are interleaved. A figure that misses
its bound is reported and is no failure: timing depends on the machine.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table
from tf_agents.environments import parallel_py_environment
from tf_agents.system import system_multiprocessing

import shoal
from shoal.adapters.tf_agents import ArraySpec, BoundedArraySpec, PyEnvironment, restart, termination, transition
from shoal.cli.measure import Sample, Summary, Timing, measure_steps, ratio_by_round, run_rounds, summarize

NUM_ENVS = 64
OURS, THEIRS = "shoal", "tf-agents"
# How many times as fast, at least.
STEP_BOUND, START_BOUND = 8.0, 5.0


class CartPole(PyEnvironment):
    """Gymnasium's CartPole, by hand."""

    def __init__(self) -> None:
        super().__init__()
        self._env = gymnasium.make("CartPole-v1")
        self._has_ended = True

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((4,), np.float32, "observation")

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1, "action")

    def _reset(self) -> Any:
        self._has_ended = False
        return restart(self._env.reset()[0])

    def _step(self, action: Any) -> Any:
        if self._has_ended:
            return self.reset()
        observation, reward, terminated, truncated, _ = self._env.step(int(action))
        self._has_ended = terminated or truncated
        return (termination if terminated else transition)(observation, np.float32(reward))

    def close(self) -> None:
        self._env.close()


MAKERS: dict[str, Callable[[], Any]] = {
    OURS: lambda: shoal.ParallelPyEnvironment([CartPole] * NUM_ENVS, flatten=True),
    THEIRS: lambda: parallel_py_environment.ParallelPyEnvironment([CartPole] * NUM_ENVS, flatten=True),
}


def measure_stepping(make: Callable[[], Any], timing: Timing) -> Sample:
    """Returns how fast a batch is stepped."""
    envs = make()
    try:
        envs.reset()
        rng = np.random.default_rng(0)
        actions = [rng.integers(0, 2, NUM_ENVS) for _ in range(64)]
        return measure_steps(envs.step, actions, NUM_ENVS, timing)
    finally:
        envs.close()


def measure_start(make: Callable[[], Any]) -> Sample:
    """Returns how fast envs are constructed, up to the first time step."""
    begin = time.perf_counter()
    envs = make()
    try:
        envs.reset()
        return Sample(NUM_ENVS, time.perf_counter() - begin)
    finally:
        envs.close()


def row(name: str, unit: str, samples: dict[str, list[Sample]], value: Callable[[Sample], float], bound: float) -> list:
    """Returns a line of the table."""
    ours, theirs = (summarize(map(value, samples[who])) for who in (OURS, THEIRS))
    ratio: Summary = ratio_by_round(samples[OURS], samples[THEIRS])
    return [
        name,
        f"{ours.median:,.4g} {unit}",
        f"{theirs.median:,.4g} {unit}",
        f"{ratio.median:.1f}x",
        f"{ratio.low:.1f} - {ratio.high:.1f}",
        f"at least {bound:.0f}x",
        "[green]met[/]" if ratio.median >= bound else "[red]missed[/]",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: 3)")
    options = parser.parse_args(arguments)
    logging.disable(logging.INFO)
    system_multiprocessing.enable_interactive_mode()
    timing = Timing.of(options.seconds)
    starts = run_rounds({name: lambda make=make: measure_start(make) for name, make in MAKERS.items()}, options.rounds)
    steps = run_rounds(
        {name: lambda make=make: measure_stepping(make, timing) for name, make in MAKERS.items()}, options.rounds
    )
    table = Table(f"CartPole, {NUM_ENVS} envs", OURS, THEIRS, "ratio", "min - max", "promised", "")
    table.add_row(*row("start and reset", "s", starts, lambda sample: sample.seconds, START_BOUND))
    table.add_row(*row("step", "env-steps/s", steps, lambda sample: sample.rate, STEP_BOUND))
    console = Console(highlight=False, width=120)
    console.print(table)
    console.print(f"Medians of {options.rounds} interleaved rounds, {os.cpu_count()} CPUs.")


if __name__ == "__main__":
    main()
