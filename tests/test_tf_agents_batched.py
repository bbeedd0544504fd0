"""`BatchedPyEnvironment`: envs that are there already, stepped as one in this process."""

from __future__ import annotations

import gc
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_agents_envs import (
    Counter,
    Faulty,
    Marked,
    Meeting,
    Stochastic,
    Talkative,
    marked,
    observed,
)

from shoal.adapters.tf_agents import (
    ArraySpec,
    BatchedPyEnvironment,
    PyEnvironment,
    restart,
)
from shoal.testing import wait_until
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)

PROMPT_S = 5.0

both_threadings = pytest.mark.parametrize("multithreading", [True, False])


@both_threadings
def test_batched_steps_envs_that_are_there(multithreading):
    """Instances, in this very process."""
    envs = [Counter(index, length=2) for index in range(3)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        assert isinstance(batch, PyEnvironment)
        assert (batch.batched, batch.batch_size) == (True, 3)
        assert list(batch.envs) == envs
        assert batch.action_spec() == envs[0].action_spec()
        assert batch.time_step_spec() == envs[0].time_step_spec()
        with pytest.raises(ValueError, match="Current timestep not initialized"):
            batch.current_time_step()
        assert_same(batch.step(np.array([1, 1, 1], np.int32)), restart(np.array([[0.0], [100], [200]]), batch_size=3))
        assert observed(batch.step(np.array([1, 2, 3], np.int32))) == [1, 101, 201]
        assert [env.last_action for env in envs] == [1, 2, 3]
        assert batch.step(np.zeros(3, np.int32)).is_last().all()
        assert not batch.should_reset(batch.current_time_step())
        assert batch.step(np.zeros(3, np.int32)).is_first().all()


@pytest.mark.parametrize(
    "envs",
    [None, 3, {}, (Counter() for _ in range(2)), Counter()],
    ids=["none", "number", "dict", "generator", "env"],
)
def test_batched_takes_a_list_or_tuple(envs):
    """As TF-Agents says it."""
    with pytest.raises(ValueError, match="must be a list or tuple"):
        BatchedPyEnvironment(envs)


@both_threadings
def test_batched_refuses_what_cannot_be_one_batch(multithreading):
    """Nothing, batches, envs that differ, one env twice, and what is no env."""
    make = partial(BatchedPyEnvironment, multithreading=multithreading)
    with pytest.raises(ValueError, match="envs is empty"):
        make([])
    with make([Counter()]) as inner, pytest.raises(ValueError, match="already batched"):
        make([Counter(), inner])
    with pytest.raises(ValueError, match="same action spec"):
        make([Counter(), Counter(action_spec=ArraySpec((), np.int64))])
    with pytest.raises(ValueError, match="same time_step_spec"):
        make((Counter(), Stochastic()))
    env = Counter()
    with pytest.raises(ValueError, match="same env object"):
        make([env, env])
    with pytest.raises(TypeError, match="PyEnvironment"):
        make([Counter(), 5])


@both_threadings
@pytest.mark.parametrize("count", [0, 1, 3])
def test_batched_refuses_actions_for_another_number_of_envs(multithreading, count):
    """Nothing is stepped, and the next step is the right one."""
    envs = [Counter(index) for index in range(2)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        with pytest.raises(ValueError, match="action"):
            batch.step(np.zeros(count, np.int32))
        assert [env.t for env in envs] == [0, 0]
        assert observed(batch.step(np.zeros(2, np.int32))) == [1, 101]


@both_threadings
def test_batched_calls(multithreading):
    """One seed for all, frames and infos stacked, states as lists."""
    envs = [Talkative(index=index) for index in range(2)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        batch.step(np.zeros(2, np.int32))
        assert batch.seed(5) == ["seed 5 in env 0", "seed 5 in env 1"]
        assert batch.render()[:, 0, 0, 0].tolist() == [1, 11]
        assert_same(batch.get_info()["where"][0], np.array([[0, 1], [1, 1]], np.int16))
        state = batch.get_state()
        assert isinstance(state, list) and len(state) == 2
        batch.step(np.zeros(2, np.int32))
        batch.set_state(state)
        assert [env.t for env in envs] == [1, 1]
        assert observed(batch.current_time_step()) == [1, 101]
        assert observed(batch.step(np.zeros(2, np.int32))) == [2, 102]


@both_threadings
def test_batched_errors_and_end(tmp_path, multithreading):
    """An env's error is itself; closing closes the envs, once; afterwards all is an `OSError`."""
    envs = [Marked(tmp_path), Faulty("step", index=1)]
    with BatchedPyEnvironment(envs, multithreading) as batch:
        batch.reset()
        with pytest.raises(ValueError, match="bad apple"):
            batch.step(np.zeros(2, np.int32))
        assert observed(batch.reset()) == [0, 100]
        assert observed(batch.step(np.zeros(2, np.int32))) == [1, 101]
        batch.close()
        assert marked(tmp_path, "closed") == [0]
        batch.close()
        for use in (batch.reset, partial(batch.step, np.zeros(2, np.int32)), batch.get_info):
            with pytest.raises(OSError, match="close"):
                use()


@both_threadings
def test_batched_that_is_dropped_leaves_the_envs_as_they_are(tmp_path, multithreading):
    """They were there before, and are the caller's: only `close` closes them."""
    envs = [Marked(tmp_path)]
    batch = BatchedPyEnvironment(envs, multithreading)
    batch.reset()
    del batch
    gc.collect()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("shoal")], PROMPT_S)
    assert marked(tmp_path, "closed") == []


def test_batched_steps_at_the_same_time(tmp_path: Path):
    """With threads; envs that release the GIL gain by it."""
    envs = [Meeting(tmp_path, "step", 3, index=index) for index in range(3)]
    with BatchedPyEnvironment(envs) as batch:
        batch.reset()
        assert observed(batch.step(np.zeros(3, np.int32))) == [1, 101, 201]


def test_batched_without_threads_works_in_the_callers():
    """Envs that belong to one thread, a window say, need it."""
    threads: list[threading.Thread] = []

    class Noting(Counter):
        def _step(self, action: Any) -> Any:
            threads.append(threading.current_thread())
            return super()._step(action)

    with BatchedPyEnvironment([Noting(), Noting(1)], multithreading=False) as batch:
        batch.reset()
        batch.step(np.zeros(2, np.int32))
    assert threads == [threading.current_thread()] * 2
