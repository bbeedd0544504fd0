"""What the library promises about speed, measured: `make bench`.

Every promise is a figure, taken as the median of interleaved rounds, and a bound. Ratios are taken
round by round, between measurements seconds apart. The promises hold for two CPUs, so that is what
is used where there are more. A figure that misses its bound is reported and is no failure: timing
depends on the machine, and only a person can judge it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

import shoal
from shoal.cli.compare import compare
from shoal.cli.constructor import EnvConstructor
from shoal.cli.contenders import CONTENDERS, SHOAL, Cell
from shoal.cli.ideal import IDEAL
from shoal.cli.measure import Sample, Summary, Timing, ratio_by_round, summarize
from shoal.cli.progress import progress_bar
from shoal.cli.streams import folded_output
from shoal.cli.surroundings import Surroundings

CPUS = 2
GIB = 2**30
SYNC, ASYNC, PIPE = "gymnasium-sync", "gymnasium-async", "gymnasium-pipe"


@dataclass(frozen=True)
class Figure:
    """One number of the result.

    Attributes:
        name: What it is.
        rounds: Its value, over the rounds.
        bound: What it is held to.
        at_least: Whether the bound is a lower one.
        unit: As it is printed.
    """

    name: str
    rounds: Summary
    bound: float
    at_least: bool = True
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the median keeps to the bound."""
        return self.rounds.median >= self.bound if self.at_least else self.rounds.median <= self.bound


@dataclass(frozen=True)
class Speed:
    """Envs stepped by shoal and others, and at least how many times as fast as each of them shoal is."""

    env_id: str
    num_envs: int
    bounds: Mapping[str, float]

    @property
    def num_measurements(self) -> int:
        """Measurements in a round: shoal, the others, and always the ideal."""
        return 1 + len({*self.bounds, IDEAL})

    def measure(self, timing: Timing, rounds: int, announce: Callable[[str], None]) -> dict[str, list[Sample]]:
        """Takes all samples."""
        others = [name for name in self.bounds if name != IDEAL]
        cell = Cell(EnvConstructor(self.env_id), self.num_envs, num_workers=min(CPUS, self.num_envs))
        return compare(
            cell,
            [CONTENDERS[name] for name in (SHOAL, *others)],
            timing,
            rounds,
            lambda index, name: announce(f"{cell.describe()}, round {index + 1}: {name}"),
        ).samples

    def figures(self, samples: Mapping[str, Sequence[Any]]) -> list[Figure]:
        """Returns shoal's rate as a multiple of the others'."""
        return [
            Figure(_multiple_of(name), ratio_by_round(samples[SHOAL], samples[name]), bound)
            for name, bound in self.bounds.items()
        ]


@dataclass(frozen=True)
class Latency(Speed):
    """The time of a step of quick envs, and at most which share of the others' it is."""

    def figures(self, samples: Mapping[str, Sequence[Any]]) -> list[Figure]:
        """Returns the time of a step, as a share of the others'."""
        return [
            Figure(
                f"{self._step_us(samples[SHOAL]):.0f} us a step, {name} {self._step_us(samples[name]):.0f} us",
                ratio_by_round(samples[name], samples[SHOAL]),
                bound,
                at_least=False,
            )
            for name, bound in self.bounds.items()
        ]

    def _step_us(self, samples: Sequence[Sample]) -> float:
        return summarize(1e6 * self.num_envs / sample.rate for sample in samples).median


@dataclass(frozen=True)
class StartUp:
    """Many workers of one env each: how soon they are there, and what they take."""

    env_id: str
    num_envs: int
    max_seconds: float
    max_gib: float
    num_measurements: int = 1

    def measure(self, timing: Timing, rounds: int, announce: Callable[[str], None]) -> dict[str, list[float]]:
        """Starts the workers once a round, up to the first observation; `timing` has no say."""
        seconds, gib = [], []
        for index in range(rounds):
            announce(f"{self.num_envs} workers, round {index + 1}: start")
            begin = time.perf_counter()
            envs = shoal.make(EnvConstructor(self.env_id), self.num_envs, num_workers=self.num_envs)
            try:
                envs.reset(seed=0)
                seconds.append(time.perf_counter() - begin)
                gib.append(_proportional_set_size(envs.worker_pids) / GIB)
            finally:
                envs.close()
        return {"seconds": seconds, "gib": gib}

    def figures(self, samples: Mapping[str, Sequence[Any]]) -> list[Figure]:
        """Returns time and memory."""
        return [
            Figure("start", summarize(samples["seconds"]), self.max_seconds, False, " s"),
            Figure("proportional set size", summarize(samples["gib"]), self.max_gib, False, " GiB"),
        ]


TARGETS: Mapping[str, Speed | StartUp] = {
    "cartpole-8": Speed("CartPole-v1", 8, {SYNC: 1.0}),
    "cartpole-64": Speed("CartPole-v1", 64, {ASYNC: 8.0, IDEAL: 0.75}),
    "cartpole-256": Speed("CartPole-v1", 256, {IDEAL: 0.80}),
    "pong-16": Speed("ALE/Pong-v5", 16, {IDEAL: 0.90}),
    "halfcheetah-64": Speed("HalfCheetah-v5", 64, {SYNC: 1.3, ASYNC: 2.5}),
    "latency": Latency("CartPole-v1", 2, {ASYNC: 0.25}),
    "mixed-64": Speed("space_envs:Mixed-v0", 64, {ASYNC: 3.0, IDEAL: 0.85}),
    "text-64": Speed("space_envs:Mission-v0", 64, {PIPE: 2.0}),
    "sequence-64": Speed("space_envs:Objects-v0", 64, {PIPE: 2.0}),
    "start-up": StartUp("CartPole-v1", 64, max_seconds=5.0, max_gib=2.0),
}


def _multiple_of(name: str) -> str:
    return "of the ideal" if name == IDEAL else f"times {name}"


def _proportional_set_size(worker_pids: Sequence[int]) -> int:
    """Returns the bytes of the workers and of the process that started them, shared pages divided."""
    processes = {process.pid: process for process in psutil.Process().children(recursive=True)}
    for pid in worker_pids:
        processes.setdefault(pid, psutil.Process(pid))
    return sum(process.memory_full_info().pss for process in processes.values())


def _use_cpus(count: int) -> None:
    """Keeps this process, and all that it starts, to so many CPUs."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def _table(name: str, figures: Sequence[Figure], table: Table) -> None:
    for figure in figures:
        unit, rounds = figure.unit, figure.rounds
        table.add_row(
            name,
            figure.name,
            f"{rounds.median:.2f}{unit}",
            f"{rounds.low:.2f} - {rounds.high:.2f}",
            f"{'at least' if figure.at_least else 'at most'} {figure.bound:.2f}{unit}",
            "[green]met[/]" if figure.met else "[red]missed[/]",
        )


def _to_json(samples: Mapping[str, Sequence[Any]], figures: Sequence[Figure]) -> dict[str, Any]:
    return {
        "samples": {
            name: [asdict(one) if isinstance(one, Sample) else one for one in rounds]
            for name, rounds in samples.items()
        },
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short measurements, for a first look")
    parser.add_argument("--only", action="append", choices=TARGETS, metavar="NAME", help=", ".join(TARGETS))
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, at least 3 (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    options = parser.parse_args(arguments)
    if options.rounds < 3:
        parser.error("--rounds must be at least 3: fewer have no median to speak of")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the promises and prints what became of them."""
    options = _parse(arguments)
    names = options.only or list(TARGETS)
    timing, rounds = (Timing.of(0.3), 3) if options.quick else (Timing.of(3.0), options.rounds)
    _use_cpus(CPUS)
    surroundings = Surroundings.now()
    table = Table("target", "figure")
    for header in ("median", "min - max", "promised", ""):
        table.add_column(header, justify="right", no_wrap=True)
    results = {}
    total = sum(rounds * TARGETS[name].num_measurements for name in names)
    with folded_output() as messages, progress_bar(total, messages) as announce:
        for name in names:
            target = TARGETS[name]
            samples = target.measure(timing, rounds, announce)
            figures = target.figures(samples)
            _table(name, figures, table)
            results[name] = _to_json(samples, figures)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(f"Medians of {rounds} interleaved rounds of {timing.seconds:g} s.")
    for note in surroundings.notes():
        console.print(note)
    if options.json is not None:
        content = {"surroundings": surroundings.to_json(), "targets": results}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
