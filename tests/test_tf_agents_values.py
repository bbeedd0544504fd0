"""What envs return arrives in the types of their specs, whatever form it has; what does not fit is named."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tf_agents_envs import SCALAR, Counter, Scripted, counters, observed, parallel
from vectors import every_backend

import shoal
from shoal.adapters.tf_agents import ArraySpec, BoundedArraySpec, TimeStep
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)

NO_ACTIONS = np.zeros(3, np.int32)


@every_backend
def test_values_follow_the_specs(backend):
    """TF-Agents lets a Python float become float64, which the first replay buffer refuses."""
    specs = (ArraySpec((2,), np.float32), ArraySpec((), np.float32), BoundedArraySpec((), np.float32, 0, 1))
    observations = [np.array([0.5, 1.5]), [2, 3], (4.0, np.float64(5))]
    rewards, discounts = [np.float64(0), 1, np.array(2.5)], [1.0, np.float64(0.25), np.array([0.5])[0]]
    env_fns = counters(3, Scripted, observations=observations, rewards=rewards, discounts=discounts, specs=specs)
    with parallel(env_fns, backend=backend) as env:
        seen = [env.reset(), env.step(NO_ACTIONS), env.step(NO_ACTIONS)]
    for step, observation, reward, discount in zip(seen, observations, rewards, discounts, strict=True):
        assert step.step_type.dtype == np.int32
        assert_same(step.observation, np.array([observation] * 3, np.float32))
        assert_same(step.reward, np.array([reward] * 3, np.float32))
        assert_same(step.discount, np.array([discount] * 3, np.float32))


@every_backend
def test_rewards_and_discounts_may_be_arrays(backend):
    """Several objectives, or several players: `[B, ...]`, each in its own type."""
    specs = (SCALAR, ArraySpec((2, 2), np.float64), BoundedArraySpec((3,), np.float32, 0, 1))
    rewards = [np.zeros((2, 2)), np.array([[1, 2], [3, 1e300]])]
    discounts = [np.ones(3, np.float32), np.array([0.25, 0.5, 1], np.float32)]
    with parallel(counters(3, Scripted, rewards=rewards, discounts=discounts, specs=specs), backend=backend) as env:
        for step, reward, discount in zip((env.reset(), env.step(NO_ACTIONS)), rewards, discounts, strict=True):
            assert_same(step.reward, np.stack([reward] * 3))
            assert_same(step.discount, np.stack([discount] * 3))


@every_backend
def test_rewards_may_be_nested(backend):
    """`reward_spec` may be any nest."""
    specs = (SCALAR, {"b": (ArraySpec((), np.float32), [ArraySpec((2,), np.int64)]), "a": SCALAR}, SCALAR)
    rewards = [{"a": 0, "b": (0, [[0, 0]])}, {"b": (1.5, [np.array([2, 3])]), "a": np.float64(4)}]
    with parallel(counters(3, Scripted, rewards=rewards, specs=specs), backend=backend) as env:
        env.reset()
        reward = env.step(NO_ACTIONS).reward
        assert list(reward) == ["b", "a"]
        ones = np.ones(3, np.float32)
        assert_same(reward, {"b": (1.5 * ones, [np.array([[2, 3]] * 3)]), "a": 4 * ones})


def test_observations_may_be_of_any_fixed_type():
    """Every kind of number at its extremes, text of a fixed length, and nothing at all."""
    values = {
        "bool": np.array([True, False]),
        "int8": np.array(-128, np.int8),
        "uint64": np.array([2**64 - 1], np.uint64),
        "int64": np.array([[-(2**63)]], np.int64),
        "float16": np.array([np.nan, np.inf, -0.0], np.float16),
        "float64": np.array(1e308),
        "complex64": np.array([1 + 2j], np.complex64),
        "text": np.array(["naïve", "café"], "<U7"),
        "empty": np.zeros((0, 3), np.float32),
    }
    specs = ({key: ArraySpec(value.shape, value.dtype) for key, value in values.items()}, SCALAR, SCALAR)
    with parallel(counters(3, Scripted, observations=[values], specs=specs)) as env:
        assert_same(env.reset().observation, {key: np.stack([value] * 3) for key, value in values.items()})


def test_observation_may_be_nothing():
    """An empty nest is a nest: bandits have no observation."""
    with parallel(counters(3, Scripted, observations=[()], specs=((), SCALAR, SCALAR))) as env:
        assert env.reset().observation == ()
        assert env.step(NO_ACTIONS).observation == ()


PLAIN = (ArraySpec((), np.int32), SCALAR, SCALAR)
DICT = ({"b": [ArraySpec((2,), np.uint8)], "a": SCALAR}, SCALAR, SCALAR)
NESTED_REWARD = (SCALAR, {"fun": SCALAR}, SCALAR)
# What env 2 returns in its first step: argument, values, specs, where the error says it is, and what it says.
MISFITS: dict[str, tuple[str, list[Any], Any, str, str]] = {
    "float for an int": ("observations", [1, 1.5], PLAIN, "observation", "float64"),
    "int too large": ("observations", [1, 2**31], PLAIN, "observation", "2147483648"),
    "shape": ("observations", [1, [1]], PLAIN, "observation", r"\(1,\)"),
    "no number": ("observations", [1, "one"], PLAIN, "observation", "one"),
    "none": ("observations", [1, None], PLAIN, "observation", "None"),
    "leaf": (
        "observations",
        [{"a": 0, "b": [[0, 0]]}, {"a": 0, "b": [[0, 256]]}],
        DICT,
        r"observation\['b'\]\[0\]",
        "256",
    ),
    "missing key": ("observations", [{"a": 0, "b": [[0, 0]]}, {"a": 0}], DICT, "observation", "'b'"),
    "reward": ("rewards", [0, [1, 2]], PLAIN, "reward", r"\(2,\)"),
    "reward overflows": ("rewards", [0, 1e300], PLAIN, "reward", "overflows"),
    "no reward": ("rewards", [0, None], PLAIN, "reward", "None"),
    "nested reward": ("rewards", [{"fun": 0}, {"fun": [1]}], NESTED_REWARD, r"reward\['fun'\]", r"\(1,\)"),
    "discount": ("discounts", [1, "all"], PLAIN, "discount", "all"),
}


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize("name", MISFITS)
def test_value_that_does_not_fit_is_named(backend, name):
    """Which env, which leaf, what was expected and what came; the others have stepped, and a reset mends it."""
    argument, values, specs, where, problem = MISFITS[name]
    script = {"observations": [0], argument: values}
    good = {key: own[:1] for key, own in script.items()}
    make = [lambda own=own: Scripted(specs=specs, **own) for own in (good, good, script)]
    with parallel(make, backend=backend, num_workers=2) as env:
        env.reset()
        with pytest.raises(shoal.MisfitError, match=problem) as caught:
            env.step(NO_ACTIONS)
        assert any(note.startswith("env 2 raised in step") for note in caught.value.__notes__)
        assert re.match(rf"env 2: {where}: ", str(caught.value))
        assert [handle.t for handle in env.envs] == [1, 1, 1]
        assert env.reset().is_first().all()


def test_error_text_begins_with_the_env():
    """As the text is what users see first, and what they search for."""
    with parallel(counters(3, Scripted, rewards=[0, [1, 2]]), backend="serial") as env:
        env.reset()
        with pytest.raises(shoal.MisfitError, match=r"^env 0: reward: expected float32 of shape \(\), found"):
            env.step(NO_ACTIONS)


class ReturnsNothing(Counter):
    def _step(self, action: Any) -> Any:
        self.t += 1


class ReturnsGymTuple(Counter):
    def _reset(self) -> Any:
        super()._reset()
        return np.zeros(1), {}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_is_no_time_step_is_refused(backend):
    """A forgotten `return` in `_step`, or the habits of another interface."""
    with parallel([Counter, ReturnsNothing], backend=backend) as env:
        env.reset()
        with pytest.raises(TypeError, match="step must return a TimeStep, but it returned None of type NoneType"):
            env.step(NO_ACTIONS[:2])
    with parallel([Counter, ReturnsGymTuple], backend=backend) as env:
        with pytest.raises((TypeError, ValueError), match=r"TimeStep|time step") as caught:
            env.reset()
        assert any(note.startswith("env 1 raised in reset") for note in caught.value.__notes__)


def test_other_classes_of_time_steps_will_do():
    """tf-agents' own, dm_env's and plain tuples of four parts: TF-Agents only ever looks at the parts."""

    class Plain(Counter):
        def _reset(self) -> Any:
            return tuple(super()._reset())

        def should_reset(self, current_time_step: Any) -> bool:
            return False

    with parallel([Plain, lambda: Counter(1)]) as env:
        first = env.reset()
        assert isinstance(first, TimeStep)
        assert observed(first) == [0, 100]
