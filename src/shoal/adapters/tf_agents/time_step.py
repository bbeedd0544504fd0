"""What an env returns each step, as `tf_agents.trajectories.time_step` has it, for NumPy and without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pprint import pformat
from typing import Any, NamedTuple

import numpy as np

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.array_spec import ArraySpec, BoundedArraySpec
from shoal.errors import ArgumentError, ArgumentTypeError

DEFAULT_DISCOUNT_SPEC = BoundedArraySpec((), np.float32, 0.0, 1.0, "discount")

# Numbers that NumPy itself makes float32 by way of a Python float; by hand it takes a third of the time.
_NUMBERS = frozenset({int, float, np.float32, np.float64})


class StepType:
    """Where a step stands in its episode: one of three 0-d int32 arrays, not an enum."""

    FIRST = np.array(0, np.int32)
    MID = np.array(1, np.int32)
    LAST = np.array(2, np.int32)

    def __new__(cls, value: Any) -> np.ndarray:  # type: ignore[misc]
        """Returns the constant that equals a value.

        Raises:
            ValueError: None does.
        """
        for constant in (cls.FIRST, cls.MID, cls.LAST):
            if value == constant:
                return constant
        raise ArgumentError(f"No known conversion for `{value!r}` into a StepType; there are 0, 1 and 2.")


class TimeStep(NamedTuple):
    """One step, or a batch of steps `[B, ...]`.

    Attributes:
        step_type: 0 for the first step of an episode, 2 for the last, 1 between; int32.
        reward: What the step earned; 0 in the first.
        discount: What later rewards are multiplied by, in [0, 1]; 0 if the episode has terminated.
        observation: A nest of arrays.
    """

    step_type: Any
    reward: Any
    discount: Any
    observation: Any

    def is_first(self) -> Any:
        """Tells, for each step, whether it is the first of its episode."""
        return np.equal(self.step_type, StepType.FIRST)

    def is_mid(self) -> Any:
        """Tells, for each step, whether it is neither the first nor the last of its episode."""
        return np.equal(self.step_type, StepType.MID)

    def is_last(self) -> Any:
        """Tells, for each step, whether it is the last of its episode."""
        return np.equal(self.step_type, StepType.LAST)

    def __hash__(self) -> int:
        """Hashes the leaves, which fails if one is an array."""
        return hash(tuple(nests.flatten(self)))

    def __repr__(self) -> str:
        return f"TimeStep(\n{pformat(self._asdict(), sort_dicts=False)})"


def restart(observation: Any, batch_size: int | Sequence[int] | None = None, reward_spec: Any = None) -> TimeStep:
    """Returns the first step of an episode, or of a batch of episodes: reward 0, discount 1, in float32.

    Args:
        observation: A nest of arrays, taken as it is.
        batch_size: Number of envs; None for one env without a batch axis.
        reward_spec: A nest of specs for the reward, instead of float32 scalars.
    """
    if batch_size is None:
        # New arrays, for a user may well add up rewards in place, beginning with this one.
        reward = np.array(0.0, np.float32) if reward_spec is None else _zeros((), reward_spec)
        return TimeStep(StepType.FIRST, reward, np.array(1.0, np.float32), observation)
    reward = np.zeros(batch_size, np.float32) if reward_spec is None else _zeros((batch_size,), reward_spec)
    return TimeStep(np.zeros(batch_size, np.int32), reward, np.ones(batch_size, np.float32), observation)


def transition(
    observation: Any, reward: Any, discount: Any = 1.0, outer_dims: int | Sequence[int] | None = None
) -> TimeStep:
    """Returns a step within an episode; its step types have the shape of the reward.

    Args:
        observation: A nest of arrays, taken as it is.
        reward: A number, an array or a nest, made float32.
        discount: A number or an array, made float32 but not broadcast.
        outer_dims: Shape of the step types if it is not that of the reward, which is then taken as it is.

    Raises:
        ValueError: There is a NaN, or a None, in the reward or in the discount.
    """
    if outer_dims is not None:
        return TimeStep(_filled(outer_dims, StepType.MID), reward, _to_float32(discount), observation)
    reward, shape = _to_rewards(reward)
    step_type = _filled(shape, StepType.MID) if shape else StepType.MID
    return TimeStep(step_type, reward, _to_float32(discount), observation)


def termination(observation: Any, reward: Any, outer_dims: int | Sequence[int] | None = None) -> TimeStep:
    """Returns the last step of an episode that is over: discount 0.

    Step types and discounts have the first axis of the reward, which is the batch. For the rest see `transition`.
    """
    if outer_dims is not None:
        step_type, discount = _filled(outer_dims, StepType.LAST), np.zeros(outer_dims, np.float32)
        return TimeStep(step_type, reward, discount, observation)
    reward, shape = _to_rewards(reward)
    if not shape:
        return TimeStep(StepType.LAST, reward, np.array(0.0, np.float32), observation)
    return TimeStep(_filled(shape[0], StepType.LAST), reward, np.zeros(shape[0], np.float32), observation)


def truncation(
    observation: Any, reward: Any, discount: Any = 1.0, outer_dims: int | Sequence[int] | None = None
) -> TimeStep:
    """Returns the last step of an episode that could have gone on: the discount stays. See `transition`."""
    if outer_dims is not None:
        return TimeStep(_filled(outer_dims, StepType.LAST), reward, _to_float32(discount), observation)
    reward, shape = _to_rewards(reward)
    step_type = _filled(shape, StepType.LAST) if shape else StepType.LAST
    return TimeStep(step_type, reward, _to_float32(discount), observation)


def time_step_spec(observation_spec: Any = None, reward_spec: Any = None) -> TimeStep:
    """Returns the specs of a time step without a batch axis; for no observation, four empty tuples.

    Args:
        observation_spec: A nest of array specs.
        reward_spec: A nest of array specs; None for a scalar float32.

    Raises:
        TypeError: There are specs of tensors.
    """
    if observation_spec is None:
        return TimeStep((), (), (), ())
    if any(_is_of_tensor(spec) for spec in nests.flatten((observation_spec, reward_spec))):
        raise ArgumentTypeError(
            "Expected observation and reward specs to both be array specs, "
            f"but saw spec values {observation_spec} and {reward_spec}; specs of tensors need TF-Agents itself."
        )
    return TimeStep(
        step_type=ArraySpec((), np.int32, "step_type"),
        reward=ArraySpec((), np.float32, "reward") if reward_spec is None else reward_spec,
        discount=DEFAULT_DISCOUNT_SPEC,
        observation=observation_spec,
    )


def _is_of_tensor(spec: Any) -> bool:
    # The one attribute that TensorFlow's dtypes have and NumPy's have not.
    return hasattr(getattr(spec, "dtype", None), "as_numpy_dtype")


def _filled(shape: int | Sequence[int], step_type: np.ndarray) -> np.ndarray:
    return np.full(shape, step_type, np.int32)


def _zeros(outer_dims: tuple[Any, ...], reward_spec: Any) -> Any:
    return nests.map_nest(lambda spec: np.zeros((*outer_dims, *spec.shape), spec.dtype), reward_spec)


def _to_rewards(reward: Any) -> tuple[Any, tuple[int, ...]]:
    """Returns a nest of rewards as float32 arrays, and the shape of the first."""
    if type(reward) in _NUMBERS or isinstance(reward, np.ndarray):
        array = _to_float32(reward)
        return array, array.shape
    arrays = nests.map_nest(_to_float32, reward)
    return arrays, nests.flatten(arrays)[0].shape


def _to_float32(value: Any) -> np.ndarray:
    if type(value) in _NUMBERS:
        is_nan = value != value
        array = np.array(float(value), np.float32)
    else:
        array = np.asarray(value, np.float32)
        is_nan = np.isnan(array).any() if array.shape else np.isnan(array)
    if is_nan:
        raise ArgumentError(
            f"Received a time_step input that converted to a nan array: {value!r}; "
            "rewards and discounts are numbers, neither NaN nor None."
        )
    return array
