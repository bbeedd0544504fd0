"""Gymnasium and dm_env envs inside a `ParallelPyEnvironment`: their values in TF-Agents' conventions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from tf_agents_envs import Counter, DmCounter, counters, parallel
from vectors import every_backend

import shoal
from shoal.adapters.tf_agents import ArraySpec, BoundedArraySpec, ParallelPyEnvironment, TimeStep
from shoal.testing import Echo, Scripted, toys
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)

CART_POLES = [partial(gym.make, "CartPole-v1", max_episode_steps=5) for _ in range(2)]
NO_ACTIONS = np.zeros(2, np.int64)


# --- Gymnasium ---


def test_specs_of_cart_pole():
    """As tf-agents' `GymWrapper` gives them."""
    with parallel(CART_POLES, backend="serial") as env:
        observation, action = env.observation_spec(), env.action_spec()
        assert action == BoundedArraySpec((), np.int64, 0, 1)
        assert (observation.shape, observation.dtype) == ((4,), np.float32)
        assert np.isclose(observation.maximum, [4.8, np.finfo(np.float32).max, 0.41887903, np.finfo(np.float32).max])[
            [0, 2]
        ].all()
        assert env.reward_spec() == ArraySpec((), np.float32)
        assert env.discount_spec() == BoundedArraySpec((), np.float32, 0, 1)


@every_backend
def test_cart_pole_is_stepped_as_by_hand(backend):
    """Every observation, bit for bit, with the seeds given by `seed`."""
    alone = [gym.make("CartPole-v1") for _ in range(2)]
    with parallel([partial(gym.make, "CartPole-v1")] * 2, backend=backend) as env:
        assert env.seed([3, 4]) == [3, 4]
        observations = [own.reset(seed=seed)[0] for own, seed in zip(alone, (3, 4), strict=True)]
        assert_same(env.reset().observation, np.stack(observations))
        for action in (0, 1, 1, 0, 1):
            results = [own.step(action) for own in alone]
            step = env.step(np.full(2, action))
            assert_same(step.observation, np.stack([result[0] for result in results]))
            assert step.is_mid().all()
            assert_same(step.reward, np.ones(2, np.float32))
            assert_same(step.discount, np.ones(2, np.float32))
    for own in alone:
        own.close()


@every_backend
def test_truncation_is_a_last_step_with_discount_one(backend):
    """The only way for a learner to tell that the episode could have gone on; then FIRST, without its action."""
    with parallel(CART_POLES, backend=backend) as env:
        env.seed([0, 0])
        env.reset()
        steps = [env.step(np.full(2, t % 2)) for t in range(6)]
        assert [step.step_type.tolist() for step in steps] == [[1, 1]] * 4 + [[2, 2], [0, 0]]
        assert_same(steps[4].discount, np.ones(2, np.float32))
        assert_same(steps[4].reward, np.ones(2, np.float32))
        assert_same(steps[5].reward, np.zeros(2, np.float32))
        assert (np.abs(steps[5].observation) <= 0.05).all()


def test_seed_of_gymnasium_envs_is_for_the_next_reset():
    """And no longer: episodes that follow are not all the same. None is no seed."""
    with parallel(CART_POLES, backend="serial") as env:
        env.seed([1, 1])
        first, second = env.reset().observation, env.reset().observation
        assert_same(first[0], first[1])
        assert first[0].tolist() != second[0].tolist()
        assert env.seed([1, None]) == [1, None]
        assert_same(env.reset().observation[0], first[0])


def test_termination_is_a_last_step_with_discount_zero():
    """Also when the episode is truncated at that very step."""
    env_fns = [
        partial(Scripted, Box(-1, 9, (1,), np.float32), np.zeros(1), 2.0, terminated=True),
        partial(Scripted, Box(-1, 9, (1,), np.float32), np.zeros(1), 2.0, terminated=True, truncated=True),
    ]
    with parallel(env_fns, backend="serial") as env:
        env.reset()
        step = env.step(NO_ACTIONS)
        assert_same(step, TimeStep(np.full(2, 2, np.int32), np.full(2, 2, np.float32), np.zeros(2, np.float32),
                                   np.zeros((2, 1), np.float32)))  # fmt: skip
        assert env.step(NO_ACTIONS).is_first().all()


SPACES: dict[str, tuple[gym.Space[Any], Any, Any]] = {
    "discrete": (Discrete(3, start=-1), BoundedArraySpec((), np.int64, -1, 1), np.array([-1, 1])),
    "multi-discrete": (
        MultiDiscrete([2, 3]),
        BoundedArraySpec((2,), np.int32, 0, [1, 2]),
        np.array([[0, 2], [1, 0]], np.int32),
    ),
    "multi-binary": (MultiBinary(2), BoundedArraySpec((2,), np.int32, 0, 1), np.array([[0, 1], [1, 0]], np.int32)),
    "box": (
        Box(-1, np.array([1, 2]), (2,), np.float64),
        BoundedArraySpec((2,), np.float64, -1, [1, 2]),
        np.array([[0, 1.5], [-1, 2]]),
    ),
    "image": (
        Box(0, 255, (2, 1), np.uint8),
        BoundedArraySpec((2, 1), np.uint8, 0, 255),
        np.array([[[0], [1]], [[2], [255]]], np.uint8),
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces_become_specs_both_ways(name):
    """Actions reach the env as its space has them, and observations come back as the spec has them."""
    space, spec, batch = SPACES[name]
    with parallel([partial(Echo, space)] * 2) as env:
        assert env.action_spec() == env.observation_spec() == spec
        env.reset()
        assert_same(env.step(batch).observation, batch)
        assert [handle.get_info()["contains"] for handle in env.envs] == [True, True]


@pytest.mark.parametrize("flatten", [False, True])
def test_nested_spaces_become_nested_specs(flatten):
    """Dict becomes an `OrderedDict`, Tuple a tuple, in actions as in observations."""
    space = Tuple([Dict({name: own for name, (own, _, _) in SPACES.items()}), Discrete(2)])
    spec = (
        OrderedDict((name, own) for name, (_, own, _) in sorted(SPACES.items())),
        BoundedArraySpec((), np.int64, 0, 1),
    )
    batch = (OrderedDict((name, own) for name, (_, _, own) in sorted(SPACES.items())), np.array([0, 1]))
    with parallel([partial(Echo, space)] * 2, flatten=flatten) as env:
        assert env.action_spec() == spec
        assert type(env.action_spec()[0]) is OrderedDict
        env.reset()
        observation = env.step(batch).observation
        assert type(observation) is tuple and type(observation[0]) is OrderedDict
        assert_same(observation, batch)
        assert [handle.get_info()["contains"] for handle in env.envs] == [True, True]


@pytest.mark.parametrize(
    "space", [Text(3), Sequence(Discrete(2)), Graph(Discrete(2), None), Dict(a=Text(3))], ids=lambda s: type(s).__name__
)
def test_space_without_a_fixed_shape_is_refused(space):
    """There is no spec for it; which env has it, and what would do."""
    with pytest.raises(ValueError, match=r"the observation space .* cannot be a spec") as caught:
        ParallelPyEnvironment([partial(Scripted, Discrete(2), 0), partial(Scripted, space, None)], backend="serial")
    assert any(note.startswith("env 1 raised in constructor") for note in caught.value.__notes__)


def test_attributes_of_gymnasium_envs_are_reached_through_their_wrappers():
    """Handles show the env, and not what it is wrapped in."""
    with parallel(CART_POLES) as env:
        assert env.envs[1].gravity == pytest.approx(9.8)
        assert not hasattr(env.envs[1], "no_such_thing")
        assert env.envs[0].access("_max_episode_steps") == 5


def test_infos_of_gymnasium_envs():
    """They are what `get_info` gives: an empty dictionary, here, or the same keys for all."""
    with parallel(CART_POLES, backend="serial") as env:
        env.reset()
        assert env.get_info() == {}
    with parallel([partial(Echo, Discrete(2))] * 2, backend="serial") as env:
        env.reset()
        env.step(NO_ACTIONS)
        assert env.get_info()["contains"].tolist() == [True, True]


def test_render_of_gymnasium_envs():
    """The mode is chosen where the env is made, and the error says so."""
    with parallel([partial(toys.Counter, render_mode="rgb_array")] * 2, backend="serial") as env:
        env.reset()
        assert env.render().shape == (2, 4, 6, 3)
    with (
        parallel([toys.Counter] * 2, backend="serial") as env,
        pytest.raises(NotImplementedError, match="render_mode='rgb_array'"),
    ):
        env.render()


def test_observation_that_does_not_fit_its_space_is_named():
    """A Gymnasium env that breaks its own word."""
    env_fns = [partial(Scripted, Box(0, 1, (2,), np.float32), [[0, 0], row]) for row in ([1, 1], [1, 1, 1])]
    with parallel(env_fns, backend="serial") as env:
        env.reset()
        with pytest.raises(shoal.MisfitError, match=r"observation: .*\(3,\)") as caught:
            env.step(NO_ACTIONS)
        assert any(note.startswith("env 1 raised in step") for note in caught.value.__notes__)


def test_gymnasium_and_tf_agents_envs_may_be_mixed():
    """If their specs agree, it is nobody's business how they are made."""
    space = Box(-np.inf, np.inf, (1,), np.float64)

    class Unbounded(Counter):
        def observation_spec(self) -> Any:
            return BoundedArraySpec((1,), np.float64)

    action_spec = BoundedArraySpec((), np.int64, 0, 4)
    with parallel([partial(Unbounded, action_spec=action_spec), partial(Scripted, space, np.array([5.0]))]) as env:
        env.reset()
        assert env.step(NO_ACTIONS).observation.tolist() == [[1], [5]]


# --- dm_env ---


def check_dm_counters(env: ParallelPyEnvironment) -> None:
    """Checks three `DmCounter`s that end after 1, 2 and 3 steps."""
    assert env.reward_spec() == ArraySpec((), np.float32)
    assert env.discount_spec().dtype == np.float32
    assert env.observation_spec() == {"t": ArraySpec((1,), np.int16)}
    actions = np.array([0, 1, 2], np.int32)
    steps = [env.reset(), *(env.step(actions) for _ in range(4))]
    assert all(isinstance(step, TimeStep) for step in steps)
    assert [step.step_type.tolist() for step in steps] == [[0, 0, 0], [2, 1, 1], [0, 2, 1], [2, 0, 2], [0, 1, 0]]
    assert_same(
        [step.reward for step in steps],
        [np.float32(row) for row in ([0.0, 0, 0], [0.5, 1.5, 2.5], [0, 1.5, 2.5], [0.5, 0, 2.5], [0, 1.5, 0])],
    )
    assert_same(
        [step.discount for step in steps],
        [np.float32(r) for r in ([1.0, 1, 1], [0.25, 0.75, 0.75], [1, 0.25, 0.75], [0.25, 1, 0.25], [1, 0.75, 1])],
    )
    assert_same(
        [step.observation["t"] for step in steps],
        [np.array(row, np.int16)[:, None] for row in ([0, 10, 20], [1, 11, 21], [0, 12, 22], [1, 10, 23], [0, 11, 20])],
    )
    assert env.should_reset(steps[1]) is False


@every_backend
def test_dm_envs_first_step_has_reward_zero_and_discount_one(backend):
    """dm_env gives None for both, which no batch can hold; the rest is as the env gave it, its LAST discount too."""
    with parallel([partial(DmCounter, index, index + 1) for index in range(3)], backend=backend) as env:
        check_dm_counters(env)


def test_handle_on_a_dm_env():
    """Attributes are the dm_env environment's, and the first step is filled there, too."""
    with parallel(counters(2, DmCounter, length=1)) as env:
        assert env.envs[1].index == 1
        first = env.envs[1].reset()
        assert_same(
            first,
            TimeStep(np.array(0, np.int32), np.array(0, "f4"), np.array(1, "f4"), {"t": np.array([10], np.int16)}),
        )
        last = env.envs[1].step(2)
        assert_same(
            last,
            TimeStep(np.array(2, np.int32), np.array(2.5, "f4"), np.array(0.25, "f4"), {"t": np.array([11], np.int16)}),
        )
        assert env.envs[1].step(2).is_first()


def test_state_of_dm_envs():
    """By all that the environment is made of."""
    with parallel([partial(DmCounter, index, index + 1) for index in range(3)]) as env:
        state = env.get_state()
        check_dm_counters(env)
        env.set_state(state)
        check_dm_counters(env)


class NestedReward(DmCounter):
    def reward_spec(self) -> Any:
        return {"a": ArraySpec((2,), np.float32), "b": ArraySpec((), np.int64)}

    def discount_spec(self) -> Any:
        return ArraySpec((2,), np.float32)

    def step(self, action: Any) -> Any:
        given = super().step(action)
        if given.reward is None:
            return given
        return given._replace(reward={"a": np.ones(2), "b": 3}, discount=np.array([0.5, 0.25]))


def test_first_step_is_filled_in_the_shape_of_the_specs():
    """Rewards of dm_env may be nested, and discounts arrays."""
    with parallel([NestedReward] * 2) as env:
        first = env.reset()
        assert_same(first.reward, {"a": np.zeros((2, 2), np.float32), "b": np.zeros(2, np.int64)})
        assert_same(first.discount, np.ones((2, 2), np.float32))
        second = env.step(np.zeros(2, np.int32))
        assert_same(second.reward, {"a": np.ones((2, 2), np.float32), "b": np.full(2, 3)})
        assert_same(second.discount, np.array([[0.5, 0.25]] * 2, np.float32))


class NeverClosed:
    """Has no more than what makes it a dm_env environment."""

    def __init__(self) -> None:
        env = DmCounter()
        self.reset, self.step = env.reset, env.step
        self.observation_spec, self.action_spec = env.observation_spec, env.action_spec
        self.reward_spec, self.discount_spec = env.reward_spec, env.discount_spec


def test_environment_without_close_is_closed_without_complaint(caplog):
    """It looks like dm_env's in all that is asked of it, and there is nothing to be done about it."""
    with caplog.at_level(logging.WARNING, "shoal"), parallel([NeverClosed] * 2) as env:
        env.reset()
    assert caplog.records == []


def real_dm_counter(index: int, length: int) -> Any:
    """Returns a `DmCounter` that is an environment of the real dm_env."""
    import dm_env

    def spec(shape: Any, dtype: Any, name: str) -> Any:
        return dm_env.specs.Array(shape, dtype, name)

    class Real(DmCounter, dm_env.Environment):
        def discount_spec(self) -> Any:
            return dm_env.Environment.discount_spec(self)

        def reward_spec(self) -> Any:
            return dm_env.Environment.reward_spec(self)

        def action_spec(self) -> Any:
            return dm_env.specs.DiscreteArray(3, np.int32)

    def time_step(step_type: int, reward: Any, discount: Any, observation: Any) -> Any:
        return dm_env.TimeStep(dm_env.StepType(step_type), reward, discount, observation)

    return Real(index, length, time_step, spec)


@every_backend
def test_environments_of_the_real_dm_env(backend):
    """Their specs, step types and time steps are classes of their own."""
    pytest.importorskip("dm_env")
    with parallel([partial(real_dm_counter, index, index + 1) for index in range(3)], backend=backend) as env:
        assert env.action_spec() == BoundedArraySpec((), np.int32, 0, 2)
        assert (env.discount_spec().minimum, env.discount_spec().maximum) == (0, 1)
        check_dm_counters(env)
