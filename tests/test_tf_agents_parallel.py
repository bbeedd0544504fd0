"""`ParallelPyEnvironment` member by member: what TF-Agents' class of this name does, without its accidents."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tf_agents_envs as envs_for_tests
from tf_agents_envs import Counter, Echo, Marked, Talkative, counters, observed, parallel
from vectors import every_backend, worker_processes

import shoal
from shoal.adapters.tf_agents import (
    ArraySpec,
    BoundedArraySpec,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    PyEnvironment,
    TimeStep,
    nests,
    restart,
    time_step_spec,
)
from shoal.testing import process_gone
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)

both = pytest.mark.parametrize("flag", [False, True], ids=["off", "on"])


# --- Construction ---


@pytest.mark.parametrize(
    "constructors, index",
    [([Counter()], 0), ([Counter, Counter()], 1), ([Counter, None], 1), (["CartPole-v1"], 0), ((Counter, 5), 1)],
    ids=["env", "one env", "none", "id", "number"],
)
def test_what_is_no_constructor_is_a_type_error(constructors, index):
    """The most frequent mistake; before any process starts, and with the place of the wrong one."""
    before = worker_processes()
    with pytest.raises(TypeError, match=rf"non-callable.*\[{index}\]") as caught:
        ParallelPyEnvironment(constructors)
    assert isinstance(caught.value, shoal.ShoalError)
    assert worker_processes() <= before


@pytest.mark.parametrize("constructors", [None, 3, Counter(), Counter], ids=["none", "number", "env", "class"])
def test_what_is_no_list_is_a_type_error(constructors):
    """A lone constructor, most of all: it must be said that a list is wanted."""
    with pytest.raises(TypeError, match="env_constructors must be a list of functions"):
        ParallelPyEnvironment(constructors)


@pytest.mark.parametrize("error", [ValueError, IndexError])
def test_no_constructors_are_refused(error):
    """TF-Agents fails by accident, with an `IndexError`; whoever catches that still does."""
    with pytest.raises(error, match="env_constructors is empty"):
        ParallelPyEnvironment([])


@every_backend
def test_generator_of_constructors_is_read_once(backend):
    """TF-Agents checks a generator to its end, and has none left to start."""
    with ParallelPyEnvironment((partial(Counter, index) for index in range(3)), backend=backend) as env:
        assert observed(env.reset()) == [0, 100, 200]


MISMATCHES = {
    "action": (partial(Counter, 2, action_spec=BoundedArraySpec((), np.int32, 0, 5)), "same action spec"),
    "action dtype": (partial(Counter, 2, action_spec=BoundedArraySpec((), np.int64, 0, 4)), "same action spec"),
    "action nest": (partial(Counter, 2, action_spec=[ArraySpec((), np.int32)]), "same action spec"),
    "observation": (partial(envs_for_tests.Stochastic, index=2), "same time_step_spec"),
    "reward": (
        partial(
            envs_for_tests.Scripted,
            specs=(ArraySpec((1,), np.float64), ArraySpec((2,), np.float32), ArraySpec((), np.float32)),
        ),
        "same time_step_spec",
    ),
}


@pytest.mark.parametrize("start_serially", [True, False])
@pytest.mark.parametrize("name", MISMATCHES)
def test_spec_that_differs_is_named_and_nothing_is_left(name, start_serially):
    """TF-Agents says neither which env nor how, and leaves its processes running."""
    other, match = MISMATCHES[name]
    before = worker_processes()
    with pytest.raises(ValueError, match=rf"(?s)All environments must have the {match}\. Env 2 has .*, but env 0 has"):
        ParallelPyEnvironment([Counter, Counter, other, Counter], start_serially=start_serially)
    assert worker_processes() <= before


def test_names_of_specs_may_differ():
    """A name says nothing about what a value looks like."""
    others = [partial(Counter, observation_name="first"), partial(Counter, 1, observation_name="second")]
    with parallel(others) as env:
        assert env.observation_spec().name == "first"
        assert observed(env.reset()) == [0, 100]


@both
def test_start_serially_is_one_constructor_after_another(tmp_path, flag):
    """Simulators that take a licence or a port one by one rely on it; all others want to start at once."""
    if not flag:
        with parallel(counters(make=partial(envs_for_tests.Meeting, tmp_path, "constructor", 3))):
            return
    with parallel(counters(make=partial(envs_for_tests.Timed, tmp_path)), start_serially=True):
        assert envs_for_tests.are_one_after_another(tmp_path, "constructor")


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_each_constructor_is_called_once(tmp_path, num_workers):
    """An env may be dear, or take a port."""

    def construct(index: int) -> Any:
        with (tmp_path / f"calls-{index}").open("a") as file:
            file.write("x")
        return Counter(index)

    with parallel([partial(construct, index) for index in range(3)], num_workers=num_workers) as env:
        env.step(env.reset().observation[:, 0].astype(np.int32))
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["x"] * 3


@every_backend
def test_start_twice_closes_the_first_generation(tmp_path, backend):
    """TF-Agents leaks every process of it."""
    with parallel(counters(2, partial(Marked, tmp_path)), backend=backend) as env:
        env.reset()
        pids, old = env.worker_pids, env.envs[0]
        env.start()
        assert envs_for_tests.marked(tmp_path, "closed") == [0, 1]
        if backend == "process":
            assert all(map(process_gone, pids))
        with pytest.raises(OSError, match="close"):
            old.reset()
        with pytest.raises(ValueError, match="Current timestep not initialized"):
            env.current_time_step()
        assert observed(env.step(np.zeros(2, np.int32))) == [0, 100]


def test_start_again_after_close():
    """`start()` is public, so it may well come after `close()`."""
    with parallel(counters(2)) as env:
        env.close()
        env.start()
        assert observed(env.reset()) == [0, 100]


# --- Members ---


@every_backend
def test_members_of_a_batch(backend):
    """What TF-Agents' drivers, policies and `TFPyEnvironment` ask for."""
    with parallel(counters(3), backend=backend) as env:
        assert isinstance(env, PyEnvironment)
        assert (env.batched, env.batch_size, env._num_envs) == (True, 3, 3)
        assert env._parallel_execution is True
        assert (env._blocking, env._flatten) == (False, False)
        assert env.envs is env._envs and isinstance(env.envs, list)
        assert [type(each) for each in env.envs] == [ProcessPyEnvironment] * 3


def test_specs_are_those_of_one_env():
    """Without a batch axis, of every part, and always the same."""
    alone = Echo()
    with parallel(counters(2, Echo)) as env:
        for name in ("observation_spec", "action_spec", "reward_spec", "discount_spec", "time_step_spec"):
            spec, expected = getattr(env, name)(), getattr(alone, name)()
            assert spec == expected, name
            assert envs_for_tests.describe(nests.map_nest(lambda _: 0, spec)) == envs_for_tests.describe(
                nests.map_nest(lambda _: 0, expected)
            )
        assert env.time_step_spec() == time_step_spec(alone.observation_spec())
        assert isinstance(env.time_step_spec(), TimeStep)
        assert env.action_spec()["turn"].maximum == 9


def test_reward_and_discount_specs_are_the_envs():
    """TF-Agents answers with the base class's, which contradicts the time step spec beside it."""
    reward = {"b": ArraySpec((2,), np.float32, "b"), "a": ArraySpec((), np.float64, "a")}
    specs = (ArraySpec((), np.float32), reward, BoundedArraySpec((2,), np.float32, 0, 1))
    with parallel(counters(2, envs_for_tests.Scripted, specs=specs), backend="serial") as env:
        assert env.reward_spec() == env.time_step_spec().reward == reward
        assert env.discount_spec() == env.time_step_spec().discount == specs[2]


@every_backend
def test_reset_and_step(backend):
    """The types that TF-Agents' replay buffers and drivers are built on."""
    with parallel(counters(2), backend=backend) as env:
        first = env.reset()
        assert isinstance(first, TimeStep)
        expected = restart(np.array([[0.0], [100.0]]), batch_size=2)
        assert_same(first, expected)
        second = env.step(np.array([1, 2], np.int32))
        ones, halves = np.ones(2, np.float32), np.full(2, 0.5, np.float32)
        assert_same(second, TimeStep(np.ones(2, np.int32), ones, halves, np.array([[1.0], [101.0]])))
        assert observed(env.reset()) == [0, 100]


@every_backend
@pytest.mark.parametrize("actions", [np.ones(2, np.int32), np.ones(7), None, "nonsense"], ids=repr)
def test_first_step_is_a_reset_without_the_actions(backend, actions):
    """TF-Agents' base class resets when there is no current time step, whatever the actions are."""
    with parallel(counters(2), backend=backend) as env:
        assert_same(env.step(actions), restart(np.array([[0.0], [100.0]]), batch_size=2))
        assert [handle.last_action for handle in env.envs] == [None, None]
        assert observed(env.step(np.ones(2, np.int32))) == [1, 101]


def test_current_time_step_is_the_object_returned_last():
    """Drivers compare and pass it on."""
    with parallel(counters(2)) as env:
        with pytest.raises(ValueError, match="Current timestep not initialized"):
            env.current_time_step()
        first = env.reset()
        assert env.current_time_step() is first is env.current_time_step()
        second = env.step(np.zeros(2, np.int32))
        assert second is not first and env.current_time_step() is second


@every_backend
def test_each_env_resets_itself(backend):
    """LAST, with the last observation and the real reward; then FIRST, whose action is ignored."""
    lengths = [partial(Counter, 0, 2), partial(Counter, 1, 3), partial(Counter, 2, 1, truncates=True)]
    with parallel(lengths, backend=backend) as env:
        seen = [env.reset(), *(env.step(np.full(3, action, np.int32)) for action in range(1, 4))]
        assert [step.step_type.tolist() for step in seen] == [[0, 0, 0], [1, 1, 2], [2, 1, 0], [0, 2, 2]]
        assert [step.reward.tolist() for step in seen] == [[0, 0, 0], [1, 1, 1], [1, 1, 0], [0, 1, 1]]
        assert [step.discount.tolist() for step in seen] == [[1, 1, 1], [0.5] * 3, [0, 0.5, 1], [1, 0, 0.5]]
        assert [observed(step) for step in seen] == [[0, 100, 200], [1, 101, 201], [2, 102, 200], [0, 103, 201]]
        assert [handle.last_action for handle in env.envs] == [None, 3, 3]


def test_should_reset_is_false():
    """Each env resets itself, so the batch never is; also when all episodes have ended."""
    with parallel(counters(2, length=1)) as env:
        assert not env.should_reset(env.reset())
        last = env.step(np.zeros(2, np.int32))
        assert last.is_last().tolist() == [True, True]
        assert not env.should_reset(last)


# --- Calls ---


@every_backend
def test_seed_gives_each_env_its_own(backend):
    """And returns what each env says to it."""
    with parallel(counters(3, Talkative), backend=backend) as env:
        assert env.seed([7, 8, 9]) == ["seed 7 in env 0", "seed 8 in env 1", "seed 9 in env 2"]
        for seeds in ([], [1, 2], [1, 2, 3, 4]):
            with pytest.raises(ValueError, match="Number of seeds should match the number of parallel_envs"):
                env.seed(seeds)


@every_backend
def test_render_stacks_frames(backend):
    """`[B, H, W, 3]`, what videos are made of."""
    with parallel(counters(2, Talkative), backend=backend) as env:
        env.reset()
        env.step(np.zeros(2, np.int32))
        frames = env.render()
        assert (frames.shape, frames.dtype) == ((2, 4, 6, 3), np.uint8)
        assert_same(frames, env.render("rgb_array"))
        assert frames[:, 0, 0, 0].tolist() == [1, 11]
        with pytest.raises(NotImplementedError, match=r"Only rgb_array rendering mode is supported\. Got human"):
            env.render("human")


class RendersPlainly(Counter):
    def render(self) -> Any:  # type: ignore[override]
        return np.full((2, 2, 3), self.index, np.uint8)


def test_render_without_a_mode_of_the_env():
    """TF-Agents passes no mode on, so an env whose `render` takes none works there."""
    with parallel(counters(2, RendersPlainly), backend="serial") as env:
        assert env.render()[:, 0, 0, 0].tolist() == [0, 1]


def test_frames_of_unequal_shape_are_named():
    """NumPy's error says neither which env nor what to do."""
    with (
        parallel([Talkative, partial(Talkative, index=1, frame_rows=5)], backend="serial") as env,
        pytest.raises(ValueError, match=r"env 1 .*\(5, 6, 3\).*env 0 .*\(4, 6, 3\)"),
    ):
        env.render()


@every_backend
def test_get_info_is_stacked(backend):
    """TF-Agents lists it in its documentation, and has not written it."""
    with parallel(counters(2, Talkative), backend=backend) as env:
        env.reset()
        env.step(np.zeros(2, np.int32))
        expected = {
            "t": np.array([1, 1]),
            "where": (np.array([[0, 1], [1, 1]], np.int16), [np.array([0.0, 1.0])]),
        }
        assert_same(env.get_info(), expected)


def test_infos_that_differ_are_named():
    """Infos have no spec, so they may differ."""

    class Odd(Talkative):
        def get_info(self) -> Any:
            return {"t": 0, "other": 1}

    with (
        parallel([Talkative, Odd], backend="serial") as env,
        pytest.raises(ValueError, match=r"item 1 .*keys \['t', 'where'\], found keys \['t', 'other'\]"),
    ):
        env.get_info()


@every_backend
@pytest.mark.parametrize("name", ["seed", "render", "get_info"])
def test_what_the_envs_cannot_do_is_said_and_changes_nothing(backend, name):
    """In TF-Agents the worker ends with it."""
    ask = {"seed": lambda env: env.seed([1, 2]), "render": lambda env: env.render(), "get_info": lambda e: e.get_info()}
    with parallel(counters(2), backend=backend) as env:
        env.reset()
        pids = env.worker_pids
        with pytest.raises(NotImplementedError):
            ask[name](env)
        assert observed(env.step(np.zeros(2, np.int32))) == [1, 101]
        assert env.worker_pids == pids
