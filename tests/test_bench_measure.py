"""How the bench measures: in turn, with the same envs for everyone, against a bound that is a bound."""

from __future__ import annotations

import io
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest

from shoal.cli.compare import Comparison, ContenderError, compare
from shoal.cli.constructor import EnvConstructor
from shoal.cli.contenders import CONTENDERS, SHOAL, Cell, Contender, measure_contender
from shoal.cli.fold import END, fold
from shoal.cli.ideal import IDEAL, LoopError, add_up, measure_ideal
from shoal.cli.loop import Finished, plan_turns, spin
from shoal.cli.measure import Sample, Timing, measure_steps, ratio_by_round, run_rounds, summarize
from shoal.cli.report import SCHEMA, to_json, write_report
from shoal.cli.surroundings import Surroundings

TARGETS = Path(__file__).parents[1] / "benchmarks" / "targets.py"
BRIEF = Timing(0.02, 0.01)


class Diary(gymnasium.Env):
    """Terminates each third step and writes what happens to it into a folder, in a file for each env.

    Args:
        folder: Where.
        fault: None, or what happens at the fifth step: "raise", "exit" or "hang".
    """

    observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder, fault=None):
        self.action_space = gymnasium.spaces.Discrete(1000)
        self.folder, self.fault, self.steps, self.seed = folder, fault, 0, None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seed = seed
            threads = os.environ["OMP_NUM_THREADS"]
            (self.folder / f"env{seed}").write_text(f"{os.getpid()} {threads}")
        return 0, {}

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            match self.fault:
                case "raise":
                    raise ValueError("out of paint")
                case "exit":
                    os._exit(7)
                case "hang":
                    print("hanging", flush=True)
                    while True:
                        pass
        return 0, 1.0, self.steps % 3 == 0, False, {}

    def close(self):
        (self.folder / f"closed{self.seed}").touch()


class FakeVectorEnv:
    """Something with `step` that notes what is done to it."""

    def __init__(self, events, name="fake", fails=False):
        self.action_space = gymnasium.spaces.MultiDiscrete([5, 5])
        self.events, self.name, self.fails = events, name, fails
        events.append(f"make {name}")

    def reset(self, *, seed):
        self.events.append(f"reset {self.name} {seed}")

    def step(self, actions):
        if self.fails:
            raise RuntimeError("lost a wheel")

    def close(self):
        self.events.append(f"close {self.name}")


@pytest.fixture
def cell():
    return Cell(EnvConstructor("CartPole-v1"), num_envs=2, seed=7)


def samples_of(*rates):
    return [Sample(round(rate), 1.0) for rate in rates]


def test_rounds_are_interleaved():
    """Whatever the machine does in one minute, it does to all contenders."""
    taken, announced = [], []

    def take(name):
        taken.append(name)
        return Sample(len(taken), 1.0)

    samples = run_rounds(
        {name: partial(take, name) for name in "ABC"}, 3, lambda index, name: announced.append((index, name))
    )
    assert taken == list("ABCABCABC")
    assert announced == list(itertools.product(range(3), "ABC"))
    assert [sample.env_steps for sample in samples["B"]] == [2, 5, 8]


def test_a_contender_is_gone_before_the_next_is_made(cell):
    """Nothing idle lies beside what is measured."""
    events = []
    contenders = [Contender(name, lambda cell, name=name: FakeVectorEnv(events, name)) for name in ("x", "y")]
    run_rounds({c.name: partial(measure_contender, c, cell, BRIEF) for c in contenders}, 2)
    assert events == ["make x", "reset x 7", "close x", "make y", "reset y 7", "close y"] * 2


def test_steps_are_counted_and_actions_cycled():
    """The figure is what was stepped in the timed part, and in nothing else."""
    seen = []
    sample = measure_steps(seen.append, ["a", "b", "c"], 4, Timing(0.01, 0.005))
    assert sample.env_steps % 4 == 0
    assert 4 <= sample.env_steps < 4 * len(seen)
    assert sample.seconds >= 0.01
    assert sample.rate == sample.env_steps / sample.seconds
    timed = seen[-sample.env_steps // 4 :]
    assert timed[:4] == ["a", "b", "c", "a"][: len(timed)]


def test_even_the_slowest_env_makes_a_step():
    """A batch that takes longer than the time asked for still has a rate."""
    assert measure_steps(lambda _: None, [None], 3, Timing(1e-9, 0.0)).env_steps == 3


def test_all_contenders_get_the_same_actions(cell):
    """An env's speed may depend on what it is told to do."""
    rings, timing = {}, Timing(0.02, warmup_s=0.0)

    class Recording(FakeVectorEnv):
        def step(self, actions):
            rings.setdefault(self.name, []).append(actions.tolist())

    for name in ("x", "y"):
        measure_contender(Contender(name, lambda cell, name=name: Recording([], name)), cell, timing)
    length = min(map(len, rings.values()))
    assert rings["x"][:length] == rings["y"][:length]
    assert len({*map(tuple, rings["x"])}) > 1


def test_an_error_aborts_the_contender_and_comes_through(cell):
    """What the env said is what the user reads, even if the clean-up fails as well."""
    events = []

    def abort(env):
        events.append("abort")
        raise OSError("cannot stop")

    contender = Contender("fake", lambda cell: FakeVectorEnv(events, fails=True), abort)
    with pytest.raises(RuntimeError, match="lost a wheel"):
        measure_contender(contender, cell, BRIEF)
    assert events == ["make fake", "reset fake 7", "abort"]


def test_a_failure_names_contender_and_cell(cell):
    """With four contenders and three envs, "RuntimeError" alone is no help."""
    contender = Contender("fake", lambda cell: FakeVectorEnv([], fails=True))
    with pytest.raises(ContenderError, match="fake failed on CartPole-v1, 2 envs") as caught:
        compare(cell, [contender], BRIEF, 3)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_summaries_are_medians_and_extremes():
    """One slow round moves the spread, not the figure."""
    summary = summarize([5.0, 1.0, 6.0])
    assert (summary.median, summary.low, summary.high) == (5.0, 1.0, 6.0)
    assert summary.spread == 1.0
    assert summarize([1.0, 2.0]).median == 1.5
    with pytest.raises(statistics.StatisticsError):
        summarize([])


def test_ratios_are_taken_round_by_round():
    """A machine that slows down to a tenth between rounds changes no ratio."""
    ratio = ratio_by_round(samples_of(200, 20, 60), samples_of(100, 10, 20))
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="shorter"):
        ratio_by_round(samples_of(1, 2), samples_of(1))


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_runs(name, cell):
    """Each name that `--compare` offers is one that can be measured."""
    assert measure_contender(CONTENDERS[name], cell, BRIEF).rate > 0


def test_the_loop_counts_steps_and_resets(tmp_path):
    """A reset between episodes is a step, here as in a vector env; nothing is counted twice."""
    env = Diary(tmp_path)
    turn = (env.step, env.reset, 0)
    finished = spin([[turn] * 7], 0.0)
    assert env.steps == 7
    assert finished.env_steps == 7 + 2
    assert finished.seconds > 0


def test_the_loop_goes_round_its_envs(tmp_path):
    """Every env gets as many steps as the others, each with actions of its own."""
    envs = [Diary(tmp_path) for _ in range(3)]
    chunks = plan_turns(envs, seed=5)
    turns = list(itertools.chain(*chunks))
    owners = [turn[0].__self__ for turn in turns]
    assert owners == envs * 64
    assert all(len(chunk) % 3 == 0 for chunk in chunks)
    actions = np.array([turn[2] for turn in turns]).reshape(64, 3)
    assert len({*map(tuple, actions.T)}) == 3
    assert [turn[2] for turn in itertools.chain(*plan_turns(envs, seed=5))] == actions.ravel().tolist()


def test_rates_of_loops_add_up():
    """Loops that ran at the same time give the sum of their speeds, not of their times."""
    sample = add_up([Finished(100, 1.0), Finished(300, 2.0)])
    assert sample.env_steps == 400
    assert sample.rate == pytest.approx(250.0)


def test_the_ideal_is_several_processes_at_once(tmp_path):
    """Loops in one process would be no bound for workers in several."""
    timing = Timing(0.2, 0.05)
    sample = measure_ideal(partial(Diary, tmp_path), 5, timing, seed=10, num_loops=2)
    notes = [(tmp_path / f"env{seed}").read_text().split() for seed in range(10, 15)]
    shares = Counter(pid for pid, _ in notes)
    assert sorted(shares.values()) == [2, 3]
    assert str(os.getpid()) not in shares
    assert {threads for _, threads in notes} == {os.environ.get("OMP_NUM_THREADS", "1")}
    assert all((tmp_path / f"closed{seed}").exists() for seed in range(10, 15))
    assert sample.env_steps > 1000
    assert sample.seconds < 10 * timing.seconds


def test_the_ideal_has_no_more_loops_than_envs(tmp_path):
    """A loop without an env would divide by nothing."""
    measure_ideal(partial(Diary, tmp_path), 1, BRIEF, num_loops=4)
    assert (tmp_path / "env0").exists()


@pytest.mark.parametrize(
    ("fault", "said"), [("raise", r"out of paint"), ("exit", r"plain loop \d died: exit status 7")]
)
def test_a_failing_loop_is_an_error(tmp_path, fault, said):
    """Neither an exception nor a death in a loop leaves the bench waiting, nor another loop running."""
    with pytest.raises(LoopError, match=said):
        measure_ideal(partial(Diary, tmp_path, fault), 2, Timing(60.0, 0.1), num_loops=2)


def test_loops_end_with_the_bench(tmp_path):
    """A bench that is killed leaves no loop behind, not even one whose env hangs."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from functools import partial; from pathlib import Path\n"
        "from shoal.cli.ideal import measure_ideal; from shoal.cli.measure import Timing\n"
        "from test_bench_measure import Diary\n"
        f"measure_ideal(partial(Diary, Path({str(tmp_path)!r}), 'hang'), 1, Timing(1.0, 0.1))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        assert "hanging\n" in iter(bench.stderr.readline, "")
        loop = psutil.Process(int((tmp_path / "env0").read_text().split()[0]))
        bench.kill()
        loop.wait(timeout=30)


@pytest.fixture
def comparison(cell):
    rates = {SHOAL: (80, 100, 90), "gymnasium-sync": (45, 44, 46), IDEAL: (100, 100, 100)}
    return Comparison(cell, {name: samples_of(*values) for name, values in rates.items()})


def test_the_json_has_every_sample(comparison):
    """A program can redo every figure of the table, and more."""
    content = json.loads(json.dumps(to_json([comparison], Surroundings.now(), BRIEF)))
    assert content.keys() == {"schema", "surroundings", "seconds", "warmup_seconds", "results"}
    assert content["schema"] == SCHEMA
    assert content["surroundings"].keys() >= {"cpus", "load", "python", "numpy", "gymnasium", "shoal"}
    shoal, sync, ideal = content["results"]
    assert shoal == {
        "env_id": "CartPole-v1",
        "env_kwargs": {},
        "num_envs": 2,
        "num_workers": None,
        "backend": "process",
        "seed": 7,
        "contender": "shoal",
        "env_steps_per_second": {"median": 90, "min": 80, "max": 100},
        "vs_shoal": 1.0,
        "of_ideal": 0.9,
        "samples": [{"env_steps": rate, "seconds": 1.0} for rate in (80, 100, 90)],
    }
    assert (sync["vs_shoal"], sync["of_ideal"]) == (0.5, 0.45)
    assert ideal["contender"] == "ideal"


def test_the_table_has_the_figures_and_their_spread(comparison):
    """A figure without its spread is a guess."""
    out = io.StringIO()
    write_report([comparison], Surroundings.now(), BRIEF, out)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["shoal", "90", "80", "-", "100", "1.00", "90%"] in lines
    assert ["gymnasium-sync", "45", "44", "-", "46", "0.50", "45%"] in lines
    assert "CartPole-v1, 2 envs" in out.getvalue()
    assert f"NumPy {np.__version__}" in out.getvalue()


def test_repeated_lines_are_left_out_and_counted():
    """Sixteen envs that warn of the same thing are one warning."""
    out = io.BytesIO()
    fold(io.BytesIO(b"a\nb\na\n" + b"b\n" * 5 + b"c" + END + b"late\n"), out)
    assert out.getvalue() == b"a\nb\nc(6 more lines, all like some above)\n"
    long_line = b"x" * 200_000 + b"\n"
    fold(io.BytesIO(b"\xff\n" + long_line), out := io.BytesIO())
    assert out.getvalue().startswith(b"\xff\nxxx")


def test_the_promises_are_measured_and_missed_ones_are_no_failure(tmp_path):
    """`make bench` reports; whether a figure is good enough for the machine is for people to say."""
    command = [sys.executable, str(TARGETS), "--quick", "--only", "latency", "--json", "out.json"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 0
    assert "latency" in done.stdout
    latency = json.loads((tmp_path / "out.json").read_text())["targets"]["latency"]
    assert latency["samples"].keys() == {SHOAL, "gymnasium-async", IDEAL}
    assert {len(rounds) for rounds in latency["samples"].values()} == {3}
    [figure] = latency["figures"]
    assert figure["met"] == (figure["rounds"]["median"] <= figure["bound"] == 0.25)
