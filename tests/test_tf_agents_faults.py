"""An env of a `ParallelPyEnvironment` or its worker goes wrong, or the program forgets to close it."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import programs
import pytest
from tf_agents_envs import Counter, Faulty, Marked, Talkative, counters, marked, observed, parallel

import shoal
from shoal.adapters.tf_agents import ParallelPyEnvironment
from shoal.testing import Fault, faults, process_gone, wait_until
from shoal.testing.faults import commit

pytestmark = pytest.mark.timeout(60)

PROMPT_S = 5.0
NO_ACTIONS = np.zeros(3, np.int32)

ASKED: dict[str, Callable[[Any], Any]] = {
    "reset": lambda env: env.reset(),
    "step": lambda env: env.step(NO_ACTIONS),
    "render": lambda env: env.render(),
    "seed": lambda env: env.seed([1, 2, 3]),
    "get_info": lambda env: env.get_info(),
}


@contextmanager
def promptly(limit_s: float = PROMPT_S) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < limit_s


def with_fault_in_env_1(stage: str, fault: Fault = Fault.RAISE, **faulty: Any) -> list[Callable[[], Any]]:
    """Returns constructors of three envs, the second of which goes wrong."""
    return [Talkative, partial(Faulty, stage, fault, index=1, **faulty), partial(Talkative, index=2)]


# --- An env raises ---


@pytest.mark.parametrize("backend, num_workers", [("serial", 1), ("thread", 3), ("process", 3), ("process", 1)])
@pytest.mark.parametrize("stage", ASKED)
def test_exception_reaches_the_caller_as_itself(stage, backend, num_workers):
    """TF-Agents raises a plain `Exception` of text, and the worker is gone."""
    with parallel(with_fault_in_env_1(stage), backend=backend, num_workers=num_workers) as env:
        pids = env.worker_pids
        if stage != "reset":
            env.reset()
        with promptly(), pytest.raises(ValueError, match="bad apple") as caught:
            ASKED[stage](env)
        assert type(caught.value) is ValueError
        assert f"env 1 raised in {stage}: ValueError: bad apple" in caught.value.__notes__
        assert 'faults.py", line ' in str(caught.value.__cause__)
        assert observed(env.reset()) == [0, 100, 200]
        assert observed(env.step(NO_ACTIONS)) == [1, 101, 201]
        assert env.worker_pids == pids


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("backend, num_workers", [("serial", 1), ("thread", 3), ("process", 3), ("process", 2)])
def test_error_in_one_env_leaves_no_stale_steps(backend, num_workers, blocking):
    """In TF-Agents the next call gets the other envs' replies to the step that failed."""
    env_fns = with_fault_in_env_1("step", at=2)
    with parallel(env_fns, backend=backend, num_workers=num_workers, blocking=blocking) as env:
        env.reset()
        good = env.step(NO_ACTIONS)
        with pytest.raises(ValueError, match="bad apple"):
            env.step(NO_ACTIONS)
        assert env.current_time_step() is good, "as in TF-Agents: the step that failed gave none"
        assert [handle.t for handle in env.envs] == [2, 1, 2], "the others have stepped"
        with pytest.raises(shoal.StateError, match=r"env 1 .* raised ValueError; reset it first"):
            env.step(NO_ACTIONS)
        assert [handle.t for handle in env.envs] == [2, 1, 2]
        assert env.seed([1, 2, 3]) == ["seed 1 in env 0", "seed 2 in env 1", "seed 3 in env 2"]
        assert observed(env.reset()) == [0, 100, 200]
        assert observed(env.step(NO_ACTIONS)) == [1, 101, 201]


def test_failed_env_may_be_reset_by_its_handle():
    """The error says "reset it first", and its handle is the way to reset one env."""
    with parallel(with_fault_in_env_1("step"), backend="serial") as env:
        env.reset()
        with pytest.raises(ValueError, match="bad apple"):
            env.step(NO_ACTIONS)
        assert env.envs[1].reset().is_first()
        assert observed(env.step(NO_ACTIONS)) == [2, 101, 202]


@pytest.mark.parametrize("fault", [Fault.RAISE_UNPICKLABLE, Fault.RAISE_MULTI_ARG])
def test_exception_that_cannot_be_rebuilt_is_told(fault):
    """Its type, text and traceback are what counts."""
    with parallel(with_fault_in_env_1("step", fault)) as env:
        env.reset()
        with pytest.raises(shoal.EnvError, match="bad apple"):
            env.step(NO_ACTIONS)
        assert observed(env.reset()) == [0, 100, 200]


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize("start_serially", [True, False])
def test_constructor_error_arrives_as_itself(tmp_path, backend, start_serially):
    """TF-Agents asserts that there was none; here the others are closed, and nothing is left."""
    env_fns = [
        partial(Marked, tmp_path),
        partial(Marked, tmp_path, index=1),
        partial(commit, Fault.RAISE),
        partial(Marked, tmp_path, index=3),
    ]
    with promptly(), pytest.raises(ValueError, match="bad apple") as caught:
        ParallelPyEnvironment(env_fns, start_serially=start_serially, backend=backend, num_workers=2)
    assert "env 2 raised in constructor: ValueError: bad apple" in caught.value.__notes__
    assert marked(tmp_path, "closed") == marked(tmp_path, "built")


def test_start_that_fails_can_be_repeated(tmp_path):
    """As when a server has to come up first."""

    def construct() -> Counter:
        if not (tmp_path / "up").exists():
            raise ConnectionError("nobody there")
        return Counter()

    (tmp_path / "up").touch()
    with parallel([construct]) as env:
        (tmp_path / "up").unlink()
        with pytest.raises(ConnectionError, match="nobody there"):
            env.start()
        with pytest.raises(OSError, match="close"):
            env.reset()
        (tmp_path / "up").touch()
        env.start()
        assert observed(env.reset()) == [0]


@pytest.mark.parametrize("thing", [None, 5, lambda: Counter(), [Counter()]], ids=["none", "number", "function", "list"])
def test_constructor_that_returns_no_env_is_named(thing):
    """A forgotten `return` is found by the number of its env."""
    with pytest.raises(TypeError, match="must return a PyEnvironment") as caught:
        ParallelPyEnvironment([Counter, lambda: thing], backend="serial")
    assert any(note.startswith("env 1 raised in constructor") for note in caught.value.__notes__)


def test_batch_in_a_batch_is_refused(tmp_path):
    """The specs have no batch axis, so nobody could know what comes."""

    def construct() -> Any:
        return ParallelPyEnvironment([Counter], backend="serial")

    with pytest.raises(TypeError, match="batched already"):
        ParallelPyEnvironment([construct], backend="serial")


def test_missing_attribute_is_an_attribute_error_and_the_worker_lives():
    """`hasattr` kills TF-Agents' workers."""
    with parallel(counters(3)) as env:
        env.reset()
        pids = env.worker_pids
        assert not hasattr(env.envs[1], "no_such_thing")
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = env.envs[1].no_such_thing
        with pytest.raises(AttributeError, match="no_such_thing"):
            env.envs[1].call("no_such_thing")()
        assert observed(env.step(NO_ACTIONS)) == [1, 101, 201]
        assert env.worker_pids == pids


def test_exception_in_close_is_logged(caplog):
    """`close` ends everything and does not raise."""
    with caplog.at_level(logging.WARNING, "shoal"), parallel(with_fault_in_env_1("close")):
        pass
    (record,) = caplog.records
    assert "env 1 raised in close: ValueError: bad apple" in record.getMessage()


# --- A worker dies ---


@pytest.mark.parametrize("fault, text", [(Fault.EXIT, "exit code 3"), (Fault.SEGFAULT, "SIGSEGV")])
@pytest.mark.parametrize("stage", ["reset", "step", "get_info"])
def test_death_of_a_worker_is_told(stage, fault, text):
    """`EOFError`, as in TF-Agents, but with the env and how it ended."""
    with parallel(with_fault_in_env_1(stage, fault)) as env:
        if stage != "reset":
            env.reset()
        with promptly(), pytest.raises(shoal.WorkerDiedError, match=f"env 1.*{text}") as caught:
            ASKED[stage](env)
        assert isinstance(caught.value, EOFError)
        assert caught.value.env_indices == (1,)
        with promptly(), pytest.raises(EOFError, match="env 1"):
            env.reset()
        pids = env.worker_pids
        with promptly():
            env.close()
        assert all(map(process_gone, pids))


@pytest.mark.parametrize("stage", ASKED)
def test_worker_killed_while_idle_is_found_by_the_next_call(stage):
    """Whichever it is; and the others can be closed."""
    with parallel(counters(3, Talkative)) as env:
        env.reset()
        faults.kill(env, 1)
        with promptly(), pytest.raises(shoal.WorkerDiedError, match=r"env 1.*SIGKILL") as caught:
            ASKED[stage](env)
        assert caught.value.exit_code == -signal.SIGKILL


def test_start_replaces_a_dead_worker():
    """`start` is the way back that a long run has."""
    with parallel(counters(3)) as env:
        env.reset()
        faults.kill(env, 1)
        with pytest.raises(EOFError):
            env.step(NO_ACTIONS)
        env.start()
        assert observed(env.reset()) == [0, 100, 200]


# --- An env hangs ---


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_IN_C])
def test_hung_env_does_not_survive_close(fault):
    """TF-Agents gives up after five seconds, leaves it running, and the interpreter cannot exit."""
    with parallel(with_fault_in_env_1("step", fault), step_timeout=0.3, close_timeout=0.3) as env:
        env.reset()
        pids = env.worker_pids
        with promptly(), pytest.raises(TimeoutError, match="env 1"):
            env.step(NO_ACTIONS)
        with promptly():
            env.close()
        assert all(map(process_gone, pids))


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_IN_C])
def test_env_that_hangs_in_close_does_not_survive_it(fault):
    """`close_timeout` is for all of them together."""
    with parallel(with_fault_in_env_1("close", fault), close_timeout=0.3) as env:
        pids = env.worker_pids
        with promptly():
            env.close()
        assert all(map(process_gone, pids))


def test_late_step_is_given_up_by_a_reset():
    """A late answer is never taken for the answer to something else."""
    with parallel(with_fault_in_env_1("step", Fault.HANG, hang_s=1.0), step_timeout=0.2) as env:
        env.reset()
        with pytest.raises(TimeoutError, match="env 1"):
            env.step(NO_ACTIONS)
        with pytest.raises((shoal.StateError, TimeoutError)):
            env.step(NO_ACTIONS)
        first = reset_when_it_answers(env)
        assert observed(first) == [0, 100, 200]
        assert observed(env.step(NO_ACTIONS)) == [1, 101, 201]


def test_timeout_names_only_methods_that_there_are():
    """Advice that cannot be followed is worse than none."""
    with parallel(with_fault_in_env_1("step", Fault.HANG), step_timeout=0.2, close_timeout=0.3) as env:
        env.reset()
        for _ in range(2):
            with pytest.raises((TimeoutError, shoal.StateError)) as caught:
                env.step(NO_ACTIONS)
            named = re.findall(r"`(\w+)`", str(caught.value))
            assert [name for name in named if not hasattr(env, name)] == []


def reset_when_it_answers(env: ParallelPyEnvironment) -> Any:
    deadline = time.monotonic() + 10
    while True:
        try:
            return env.reset()
        except TimeoutError:
            assert time.monotonic() < deadline


def test_constructor_that_hangs_ends_with_start_timeout():
    """And with it all the others."""
    with promptly(1.0 + PROMPT_S), pytest.raises(shoal.StartTimeoutError, match="env 1"):
        ParallelPyEnvironment(
            [Counter, partial(commit, Fault.HANG)], start_timeout=1.0, close_timeout=0.3, start_serially=False
        )


# --- The end ---


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_close_twice_and_use_after_close(tmp_path, backend):
    """The second close does nothing; all else is an `OSError`, as in TF-Agents, that says what has happened."""
    with parallel(counters(3, partial(Marked, tmp_path)), backend=backend) as env:
        last = env.reset()
        env.close()
        assert marked(tmp_path, "closed") == [0, 1, 2]
        env.close()
        uses = [
            env.reset,
            partial(env.step, NO_ACTIONS),
            partial(env.seed, [1, 2, 3]),
            env.render,
            env.get_info,
            env.get_state,
            partial(env.set_state, [None] * 3),
            env.envs[0].reset,
            partial(env.envs[0].step, NO_ACTIONS[0]),
            lambda: env.envs[0].t,
            lambda: env.envs[0].call("get_t")(),
        ]
        for use in uses:
            with pytest.raises(OSError, match="close") as caught:
                use()
            assert isinstance(caught.value, shoal.ClosedError)
        env.envs[0].close()
        assert (env.batch_size, env.batched, env.current_time_step()) == (3, True, last)
        assert env.action_spec() == Counter().action_spec()
        assert "ParallelPyEnvironment" in repr(env)


def test_with_statement_closes_and_swallows_nothing(tmp_path):
    """Also when what is inside fails."""
    with pytest.raises(ZeroDivisionError), ParallelPyEnvironment([partial(Marked, tmp_path)]) as env:
        assert isinstance(env, ParallelPyEnvironment)
        _ = 1 / 0
    assert marked(tmp_path, "closed") == [0]
    with pytest.raises(OSError, match="close"):
        env.reset()


@pytest.mark.parametrize("stage", ["new", "reset", "stepped", "pending", "failed"])
def test_garbage_collection_without_close(tmp_path, stage):
    """TF-Agents keeps every env until exit."""
    env = ParallelPyEnvironment(counters(2, partial(Marked, tmp_path)), num_workers=2)
    pids = env.worker_pids
    if stage != "new":
        env.reset()
    if stage == "stepped":
        env.step(NO_ACTIONS[:2])
    if stage == "pending":
        promise = env.envs[1].step(0, blocking=False)
        del promise
    if stage == "failed":
        with pytest.raises(shoal.MisfitError):
            env.step(NO_ACTIONS)
    del env
    gc.collect()
    wait_until(lambda: all(map(process_gone, pids)), PROMPT_S)
    assert marked(tmp_path, "closed") == [0, 1]


def test_handles_keep_their_batch():
    """Whoever has a handle has an env."""
    (handle,) = ParallelPyEnvironment([Counter]).envs
    gc.collect()
    assert handle.reset().observation.tolist() == [0]
    with pytest.raises(AttributeError, match="worker_pids"):
        _ = handle.worker_pids
    del handle
    gc.collect()


PROGRAM = """
    import numpy as np
    from shoal.adapters.tf_agents import *

    with open("runs.txt", "a") as file:
        file.write("run;")

    class Mine(PyEnvironment):
        def __init__(self, index):
            super().__init__()
            self.index = index

        def observation_spec(self):
            return ArraySpec((), np.float32)

        def action_spec(self):
            return BoundedArraySpec((), np.int32, 0, 4)

        def _reset(self):
            return restart(np.float32(self.index))

        def _step(self, action):
            return transition(np.float32(self.index + scale * action), 1.0)

    scale = 10
    env = ParallelPyEnvironment([lambda i=i: Mine(i) for i in range(3)])
    assert env.reset().observation.tolist() == [0, 1, 2]
    assert env.step(np.array([0, 1, 2], np.int32)).observation.tolist() == [0, 11, 22]
    assert env.envs[2].index == 2
    if CLOSES:
        env.close()
    print("done")
"""


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "not closed"])
@pytest.mark.parametrize("how", programs.HOW)
def test_program_without_main_guard(tmp_path, how, closes):
    """TF-Agents needs `handle_main` around it; a worker here never runs the program again, and none outlives it."""
    assert programs.check(PROGRAM.replace("CLOSES", str(closes)), tmp_path, how=how) == "done\n"
    assert (tmp_path / "runs.txt").read_text() == "run;"


def test_program_that_hangs_in_an_env_can_be_killed(tmp_path):
    """Workers go with a program that is killed; TF-Agents' forked ones stay for ever."""
    program = programs.Program(
        """
        import sys
        from functools import partial
        import numpy as np
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from tf_agents_envs import Faulty, Counter
        from shoal.adapters.tf_agents import ParallelPyEnvironment

        env = ParallelPyEnvironment([Counter, partial(Faulty, "step", "hang")], num_workers=2)
        env.reset()
        Path("ready").touch()
        env.step(np.zeros(2, np.int32))
        """,
        tmp_path,
        [os.path.dirname(os.path.abspath(__file__))],
    )
    try:
        program.wait_for(tmp_path / "ready")
        program.kill()
        wait_until(lambda: not list(program.pids()), PROMPT_S, "all processes of the program are gone")
    finally:
        programs.end(program)
