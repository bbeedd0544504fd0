"""shoal's envs inside the real TF-Agents: its `TFPyEnvironment`, drivers, replay buffers, wrappers and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool as Pool
from pathlib import Path
from typing import Any

import gin
import gymnasium
import numpy as np
import programs
import pytest
import tensorflow as tf
from tf_agents.drivers import dynamic_step_driver, py_driver
from tf_agents.environments import (
    batched_py_environment,
    py_environment,
    test_envs,
    tf_py_environment,
    utils,
    wrappers,
)
from tf_agents.metrics import tf_metrics
from tf_agents.policies import random_py_policy, random_tf_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import array_spec, tensor_spec
from tf_agents.system import system_multiprocessing as their_system
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

import shoal
from shoal.adapters import tf_agents as face
from shoal.adapters.tf_agents import system_multiprocessing as our_system

# TF-Agents' bounded specs cast infinity to integers before they look which dtype it is.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")

# Set by a state saver in the workers; here it stays as it is.
LEVEL = {"now": 0}


class Level(py_environment.PyEnvironment):
    """Observes `LEVEL`."""

    def observation_spec(self) -> Any:
        return array_spec.ArraySpec((), np.int64)

    def action_spec(self) -> Any:
        return array_spec.BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> Any:
        return ts.restart(np.int64(LEVEL["now"]))

    def _step(self, action: Any) -> Any:
        return ts.transition(np.int64(LEVEL["now"]), 0.0)


class LevelSaver(their_system.StateSaver, our_system.StateSaver):
    """Puts 7 in the place of `LEVEL`."""

    def collect_state(self) -> Any:
        return 7

    def restore_state(self, state: Any) -> None:
        LEVEL["now"] = state


class Ours(face.PyEnvironment):
    """Counts to `length`, of shoal's own base class, specs and time steps."""

    def __init__(self, length: int = 4) -> None:
        super().__init__(handle_auto_reset=True)
        self._length = length
        self._count = 0

    def observation_spec(self) -> Any:
        return {"count": face.BoundedArraySpec((1,), np.float32, 0, 100), "even": (face.ArraySpec((), np.int32),)}

    def action_spec(self) -> Any:
        return face.BoundedArraySpec((), np.int32, 0, 1, "action")

    def _observation(self) -> Any:
        return {"count": np.array([self._count], np.float32), "even": (np.array(self._count % 2, np.int32),)}

    def _reset(self) -> Any:
        self._count = 0
        return face.restart(self._observation())

    def _step(self, action: Any) -> Any:
        self._count += 1
        if self._count == self._length:
            return face.termination(self._observation(), float(action))
        return face.transition(self._observation(), float(action), 0.5)


class Theirs(py_environment.PyEnvironment):
    """The same, of TF-Agents' classes."""

    def __init__(self, length: int = 4) -> None:
        super().__init__(handle_auto_reset=True)
        self._length = length
        self._count = 0

    def observation_spec(self) -> Any:
        return {
            "count": array_spec.BoundedArraySpec((1,), np.float32, 0, 100),
            "even": (array_spec.ArraySpec((), np.int32),),
        }

    def action_spec(self) -> Any:
        return array_spec.BoundedArraySpec((), np.int32, 0, 1, "action")

    def _observation(self) -> Any:
        return {"count": np.array([self._count], np.float32), "even": (np.array(self._count % 2, np.int32),)}

    def _reset(self) -> Any:
        self._count = 0
        return ts.restart(self._observation())

    def _step(self, action: Any) -> Any:
        self._count += 1
        if self._count == self._length:
            return ts.termination(self._observation(), float(action))
        return ts.transition(self._observation(), float(action), 0.5)


def counting(index: int) -> Any:
    return test_envs.NestedCountingEnv(steps_per_episode=3 + index, nested_action=True)


def constructors(construct: Callable[[int], Any], num_envs: int) -> list[Callable[[], Any]]:
    return [lambda index=index: construct(index) for index in range(num_envs)]


def check_equal(ours: Any, theirs: Any) -> None:
    tf.nest.assert_same_structure(ours, theirs)
    for own, their in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        assert own.dtype == their.dtype
        np.testing.assert_array_equal(own, their)


@pytest.fixture
def run_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Returns a function that runs a program and returns its output; TensorFlow takes its time to import."""
    monkeypatch.setattr(programs, "PATIENCE_S", 100.0)

    def run(source: str) -> str:
        finished = programs.run(source, tmp_path)
        assert finished.returncode == 0, finished.stderr[-3000:]
        return finished.stdout

    return run


@pytest.fixture
def parallel() -> Iterator[Any]:
    with shoal.ParallelPyEnvironment(constructors(counting, 3), num_workers=2) as env:
        yield env


# --- Classes ---


def test_batch_is_an_instance_of_their_base_class(parallel: Any) -> None:
    """`TFPyEnvironment` and the drivers refuse everything else."""
    assert isinstance(parallel, py_environment.PyEnvironment)
    with face.BatchedPyEnvironment([Theirs()], multithreading=False) as batch:
        assert isinstance(batch, py_environment.PyEnvironment)


def test_specs_are_of_their_classes(parallel: Any) -> None:
    """Their conversion to tensor specs asks for the class, and takes no look-alike."""
    assert type(parallel.time_step_spec()) is ts.TimeStep
    for spec in (parallel.action_spec(), parallel.observation_spec(), parallel.time_step_spec()):
        for leaf in tf.nest.flatten(spec):
            assert type(leaf) in (array_spec.ArraySpec, array_spec.BoundedArraySpec)
    assert type(parallel.discount_spec()) is array_spec.BoundedArraySpec
    assert type(parallel.reward_spec()) is array_spec.ArraySpec


def test_time_steps_are_of_their_class(parallel: Any) -> None:
    """`tf.nest` compares the types of named tuples; policies map over a spec and a time step at once."""
    assert type(parallel.reset()) is ts.TimeStep
    action = {"foo": np.zeros(3, np.int32), "bar": np.zeros(3, np.int32)}
    assert type(parallel.step(action)) is ts.TimeStep
    assert type(parallel.current_time_step()) is ts.TimeStep
    one = parallel.envs[1]
    assert type(one.time_step_spec()) is ts.TimeStep
    assert type(one.reset()) is ts.TimeStep


def test_time_steps_of_shoals_own_envs_are_of_their_class() -> None:
    """An env may be written without TF-Agents and still be trained with it."""
    with shoal.ParallelPyEnvironment([Ours, Ours], num_workers=1) as env:
        assert type(env.reset()) is ts.TimeStep
        assert type(tf.nest.flatten(env.action_spec())[0]) is array_spec.BoundedArraySpec


def test_their_own_check_passes_a_batch() -> None:
    """`validate_py_environment` is how TF-Agents tells whether an env keeps to its specs."""
    with shoal.ParallelPyEnvironment(constructors(counting, 3), num_workers=2) as env:
        utils.validate_py_environment(env, episodes=4)


def test_their_own_check_passes_a_gymnasium_batch() -> None:
    """Whatever is converted must keep to the specs that it was given."""
    with shoal.ParallelPyEnvironment([lambda: gymnasium.make("CartPole-v1")] * 2) as env:
        utils.validate_py_environment(env, episodes=4)


# --- Order of imports, and no ceremony ---


def test_scripts_need_no_handle_main_and_may_import_shoal_first(run_program: Callable[[str], str]) -> None:
    """Their class refuses to start a process outside of `handle_main`, and a guard is easily forgotten."""
    output = run_program(
        """
        import shoal

        Parallel = shoal.ParallelPyEnvironment

        import numpy as np
        from tf_agents.environments import py_environment, tf_py_environment
        from tf_agents.specs import array_spec
        from tf_agents.trajectories import time_step as ts


        class Env(py_environment.PyEnvironment):
            def observation_spec(self):
                return array_spec.ArraySpec((), np.int64)

            def action_spec(self):
                return array_spec.BoundedArraySpec((), np.int64, 0, 9)

            def _reset(self):
                return ts.restart(np.int64(0))

            def _step(self, action):
                return ts.transition(np.int64(action), 1.0)


        with Parallel([Env, Env]) as env:
            assert isinstance(env, py_environment.PyEnvironment)
            tf_env = tf_py_environment.TFPyEnvironment(env)
            tf_env.reset()
            print(tf_env.step(np.array([3, 4])).observation.numpy())
        """
    )
    assert output == "[3 4]\n"


def test_shoals_own_envs_are_theirs_before_any_batch_is_made(run_program: Callable[[str], str]) -> None:
    """A lone env goes into `TFPyEnvironment` or a wrapper of theirs, and shoal hears nothing of it."""
    output = run_program(
        """
        import numpy as np
        from shoal.adapters.tf_agents import ArraySpec, BoundedArraySpec, PyEnvironment, restart, transition
        from tf_agents.environments import py_environment


        class Env(PyEnvironment):
            def observation_spec(self):
                return ArraySpec((), np.int64)

            def action_spec(self):
                return BoundedArraySpec((), np.int64, 0, 9)

            def _reset(self):
                return restart(np.int64(0))

            def _step(self, action):
                return transition(np.int64(action), 1.0)


        print(isinstance(Env(), py_environment.PyEnvironment))
        """
    )
    assert output == "True\n"


# --- TFPyEnvironment ---


def test_tf_py_environment_gives_what_it_gives_for_their_batch(parallel: Any) -> None:
    """Tensors, graph mode and control dependencies come between; nothing may get lost there."""
    theirs = tf_py_environment.TFPyEnvironment(
        batched_py_environment.BatchedPyEnvironment([counting(index) for index in range(3)], multithreading=False)
    )
    ours = tf_py_environment.TFPyEnvironment(parallel)
    assert ours.batch_size == theirs.batch_size == 3
    assert ours.time_step_spec() == theirs.time_step_spec()
    assert ours.action_spec() == theirs.action_spec()
    check_equal(ours.current_time_step(), theirs.current_time_step())
    for number in range(20):
        action = {"foo": tf.fill([3], number % 2), "bar": tf.constant([0, 1, 0])}
        check_equal(ours.step(action), theirs.step(action))
    check_equal(ours.reset(), theirs.reset())


def test_tf_py_environment_takes_shoals_batch_of_envs_in_this_process() -> None:
    """Its other batch must be accepted as well, in threads and in turn."""
    for multithreading in (False, True):
        batch = face.BatchedPyEnvironment([Theirs(3), Theirs(4)], multithreading)
        env = tf_py_environment.TFPyEnvironment(batch)
        env.reset()
        time_steps = [env.step(tf.constant([1, 0])) for _ in range(5)]
        assert [list(each.step_type.numpy()) for each in time_steps] == [[1, 1], [1, 1], [2, 1], [0, 2], [1, 0]]
        assert list(time_steps[0].reward.numpy()) == [1.0, 0.0]
        batch.close()


def test_isolation_runs_a_batch_in_a_thread_of_its_own(parallel: Any) -> None:
    """It is made in one thread and stepped in another, as in their graph mode."""
    with Pool(1) as pool:
        env = tf_py_environment.TFPyEnvironment(parallel, isolation=pool)
        env.reset()
        action = {"foo": tf.zeros(3, tf.int32), "bar": tf.zeros(3, tf.int32)}
        assert list(env.step(action).observation["total_steps"].numpy()) == [1, 1, 1]


def test_shoals_own_env_steps_in_tf_py_environment_by_shoals_batch_of_one() -> None:
    """The way with a batch of shoal's in between, which hands out specs of TF-Agents' classes."""
    with face.BatchedPyEnvironment([Ours()], multithreading=False) as batch, Pool(1) as pool:
        ours = tf_py_environment.TFPyEnvironment(batch)
        theirs = tf_py_environment.TFPyEnvironment(Theirs(), isolation=pool)
        check_same_steps(ours, theirs)


def check_same_steps(ours: Any, theirs: Any) -> None:
    check_equal(ours.reset(), theirs.reset())
    for number in range(12):
        action = tf.constant([number % 2])
        check_equal(ours.step(action), theirs.step(action))


# --- Drivers and replay buffers ---


def drive_dynamic(py_env: Any, num_steps: int) -> tuple[Any, dict[str, float]]:
    """Returns what a `DynamicStepDriver` has put into a replay buffer, in graph mode, and what it has counted."""
    env = tf_py_environment.TFPyEnvironment(py_env)
    policy = random_tf_policy.RandomTFPolicy(env.time_step_spec(), env.action_spec())
    buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
        policy.trajectory_spec, batch_size=env.batch_size, max_length=200
    )
    steps, episodes = tf_metrics.EnvironmentSteps(), tf_metrics.NumberOfEpisodes()
    mean = tf_metrics.AverageReturnMetric(batch_size=env.batch_size)
    driver = dynamic_step_driver.DynamicStepDriver(
        env, policy, observers=[buffer.add_batch, steps, episodes, mean], num_steps=num_steps
    )
    try:
        common.function(driver.run)()
    finally:
        # TensorFlow keeps graphs, and they would keep the batch: closed, but with its memory mapped.
        env._env = None
    counts = {
        "steps": int(steps.result()),
        "episodes": int(episodes.result()),
        "frames": int(buffer.num_frames()),
        "average return": float(mean.result()),
    }
    return everything_in(buffer), counts


def everything_in(buffer: Any) -> Any:
    dataset = buffer.as_dataset(single_deterministic_pass=True)
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), item) for item, _ in dataset]


def test_dynamic_step_driver_counts_steps_and_not_boundaries() -> None:
    """The step that resets is no step of the env: a run of 60 with episodes of 10 has one boundary in each env."""
    with shoal.ParallelPyEnvironment(
        constructors(lambda _: test_envs.CountingEnv(steps_per_episode=10), 3), num_workers=2
    ) as env:
        _, counts = drive_dynamic(env, num_steps=60)
    assert counts == {"steps": 60, "episodes": 6, "frames": 63, "average return": 1}


def test_replay_buffer_holds_what_it_holds_for_their_batch(parallel: Any) -> None:
    """What an agent learns from is this buffer; episodes of three lengths end at different times in it."""
    theirs = batched_py_environment.BatchedPyEnvironment([counting(index) for index in range(3)], multithreading=False)
    our_items, our_counts = drive_dynamic(parallel, num_steps=100)
    their_items, their_counts = drive_dynamic(theirs, num_steps=100)
    assert our_counts == their_counts
    assert len(our_items) == len(their_items)
    for own, their in zip(our_items, their_items, strict=True):
        # The policy draws actions anew in each graph; these envs do not heed them.
        check_equal(own._replace(action=()), their._replace(action=()))


def test_py_driver_fills_a_replay_buffer() -> None:
    """The Python side of TF-Agents takes the batch as it is, without `TFPyEnvironment`."""

    def drive(env: Any) -> tuple[Any, Any]:
        policy = random_py_policy.RandomPyPolicy(env.time_step_spec(), env.action_spec(), seed=3, outer_dims=(3,))
        buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
            tensor_spec.from_spec(policy.trajectory_spec), batch_size=3, max_length=100
        )

        def add(trajectory: Any) -> None:
            buffer.add_batch(tf.nest.map_structure(tf.convert_to_tensor, trajectory))

        driver = py_driver.PyDriver(env, policy, [add], max_steps=60)
        last, _ = driver.run(env.reset())
        return last, everything_in(buffer)

    theirs = batched_py_environment.BatchedPyEnvironment([Theirs(10) for _ in range(3)], multithreading=False)
    with shoal.ParallelPyEnvironment([lambda: Theirs(10)] * 3, num_workers=2) as ours:
        our_last, our_items = drive(ours)
    their_last, their_items = drive(theirs)
    check_equal(our_last, their_last)
    assert len(our_items) == 63
    for own, their in zip(our_items, their_items, strict=True):
        check_equal(own, their)


# --- Wrappers ---


@pytest.mark.parametrize("construct", [Ours, Theirs])
def test_their_time_limit_wraps_an_env(construct: Callable[..., Any]) -> None:
    """Their wrappers sit between an env and its batch; one of shoal's own classes must stand for theirs."""
    with shoal.ParallelPyEnvironment([lambda: wrappers.TimeLimit(construct(100), 3)] * 2, num_workers=1) as env:
        env.reset()
        kinds = [env.step(np.zeros(2, np.int32)).step_type.tolist() for _ in range(5)]
        assert kinds == [[1, 1], [1, 1], [2, 2], [0, 0], [1, 1]]
        assert env.current_time_step().discount.tolist() == [0.5, 0.5]


def test_their_time_limit_steps_shoals_own_env_as_theirs() -> None:
    """Without a batch as well, value for value."""
    ours, theirs = wrappers.TimeLimit(Ours(9), 4), wrappers.TimeLimit(Theirs(9), 4)
    for number in range(12):
        # The one's time steps are shoal's, the other's are TF-Agents'.
        own, their = ours.step(np.int32(number % 2)), theirs.step(np.int32(number % 2))
        check_equal(tuple(own), tuple(their))


def test_their_wrapper_wraps_a_batch(parallel: Any) -> None:
    """A wrapper asks the env whether it is batched, and forwards everything else."""
    wrapped = wrappers.PyEnvironmentBaseWrapper(parallel)
    assert wrapped.batched
    assert wrapped.batch_size == 3
    env = tf_py_environment.TFPyEnvironment(wrapped)
    assert env.reset().step_type.shape == (3,)


# --- System multiprocessing ---


@pytest.fixture
def no_other_savers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes back what a test adds to the savers of either module."""
    monkeypatch.setattr(our_system, "_state_savers", [])
    theirs = their_system._STATE_SAVERS
    before, was_initialized = list(theirs), their_system.multiprocessing_core._INITIALIZED[0]
    yield
    theirs[:] = before
    their_system.multiprocessing_core._INITIALIZED[0] = was_initialized


def levels() -> list[int]:
    with shoal.ParallelPyEnvironment([Level, Level], num_workers=2) as env:
        return env.reset().observation.tolist()


@pytest.mark.parametrize("system", [our_system, their_system], ids=["shoal's", "tf-agents'"])
def test_handle_test_main_brings_state_into_workers(system: Any, no_other_savers: None) -> None:
    """A program that registers its savers with TF-Agents must not find its state missing after it has switched."""
    assert levels() == [0, 0]
    assert system.handle_test_main(levels, extra_state_savers=[LevelSaver()]) == [7, 7]
    assert LEVEL["now"] == 0


@pytest.mark.parametrize("system", [our_system, their_system], ids=["shoal's", "tf-agents'"])
def test_enable_interactive_mode_brings_state_into_workers(system: Any, no_other_savers: None) -> None:
    """The way for notebooks to say the same."""
    their_system.multiprocessing_core._INITIALIZED[0] = False
    system.enable_interactive_mode([LevelSaver()])
    assert levels() == [7, 7]


def test_gin_bindings_reach_the_workers() -> None:
    """TF-Agents configures by gin, and its class carries the bindings over; its suites are bound that way."""
    gin.bind_parameter("CountingEnv.steps_per_episode", 3)
    try:
        with shoal.ParallelPyEnvironment([lambda: test_envs.CountingEnv()] * 2, num_workers=1) as env:
            env.reset()
            kinds = [env.step(np.zeros(2, np.int32)).step_type[0] for _ in range(3)]
    finally:
        gin.clear_config()
    assert kinds == [1, 1, 2]


@pytest.mark.parametrize("system", ["shoal.adapters.tf_agents", "tf_agents.system"])
def test_handle_main_runs_a_program(system: str, run_program: Callable[[str], str]) -> None:
    """A program written for TF-Agents ends in this call, and keeps it whichever of the two it imports."""
    output = run_program(
        f"""
        import gymnasium
        import shoal
        from {system} import system_multiprocessing


        def main(argv):
            with shoal.ParallelPyEnvironment([lambda: gymnasium.make("CartPole-v1")] * 2) as env:
                print(len(argv), env.reset().observation.shape)


        if __name__ == "__main__":
            system_multiprocessing.handle_main(main)
        """
    )
    assert output == "1 (2, 4)\n"


# --- dm_env ---


def dm_env_of(length: int, reward_dtype: Any = np.float64) -> Any:
    """Returns `Theirs` as a dm_env environment; float64 is what dm_env's reward is unless one says otherwise."""
    dm_env = pytest.importorskip("dm_env", reason="dm_env is not installed")

    class Environment(dm_env.Environment):
        def __init__(self) -> None:
            self._count = 0

        def observation_spec(self) -> Any:
            return {
                "count": dm_env.specs.BoundedArray((1,), np.float32, 0, 100),
                "even": (dm_env.specs.Array((), np.int32),),
            }

        def action_spec(self) -> Any:
            return dm_env.specs.BoundedArray((), np.int32, 0, 1, "action")

        def reward_spec(self) -> Any:
            return dm_env.specs.Array((), reward_dtype, "reward")

        def discount_spec(self) -> Any:
            return dm_env.specs.BoundedArray((), np.float32, 0, 1, "discount")

        def _observation(self) -> Any:
            return {"count": np.array([self._count], np.float32), "even": (np.array(self._count % 2, np.int32),)}

        def reset(self) -> Any:
            self._count = 0
            return dm_env.restart(self._observation())

        def step(self, action: Any) -> Any:
            if self._count == length:
                return self.reset()
            self._count += 1
            if self._count == length:
                return dm_env.termination(float(action), self._observation())
            return dm_env.transition(float(action), self._observation(), 0.5)

    return Environment()


def test_dm_env_environments_step_as_the_same_env_of_theirs() -> None:
    """The first step of an episode lacks reward and discount there, and has both here."""
    theirs = batched_py_environment.BatchedPyEnvironment([Theirs(3), Theirs(4)], multithreading=False)
    dm_env_of(3, np.float32)
    with shoal.ParallelPyEnvironment(
        [lambda: dm_env_of(3, np.float32), lambda: dm_env_of(4, np.float32)], num_workers=2
    ) as ours:
        assert ours.time_step_spec() == theirs.time_step_spec()
        check_equal(ours.reset(), theirs.reset())
        for number in range(20):
            action = np.array([number % 2, 1], np.int32)
            check_equal(ours.step(action), theirs.step(action))


def test_dm_env_environments_of_default_specs_go_into_drivers_and_metrics() -> None:
    """dm_env's rewards are float64 by default; TF-Agents' metrics and losses take float32 only."""
    dm_env_of(3)
    with shoal.ParallelPyEnvironment([lambda: dm_env_of(10)] * 3, num_workers=2) as env:
        _, counts = drive_dynamic(env, num_steps=60)
    assert counts["steps"] == 60
    assert 0 < counts["average return"] < 10
