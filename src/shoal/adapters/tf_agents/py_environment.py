"""The base class of envs, as `tf_agents.environments.py_environment` has it, without TensorFlow."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from shoal.adapters.tf_agents.array_spec import ArraySpec
from shoal.adapters.tf_agents.time_step import DEFAULT_DISCOUNT_SPEC, time_step_spec
from shoal.errors import ArgumentError

Env = TypeVar("Env", bound="PyEnvironment")


class PyEnvironment(ABC):
    """An env that returns time steps; a subclass has `_reset`, `_step` and the specs.

    `reset` and `step` remember the time step they return, so a subclass must not define them. After the last
    time step of an episode `_step` starts the next one and ignores its action, unless `handle_auto_reset` leaves
    this to `step`.
    """

    # For subclasses that do not call `__init__`.
    _handle_auto_reset = False

    def __init__(self, handle_auto_reset: bool = False) -> None:
        """Takes whether `step` resets after the last time step of an episode.

        Raises:
            ValueError: The class itself defines `reset` or `step`.
        """
        _pass_for_theirs()
        self._handle_auto_reset = handle_auto_reset
        self._current_time_step: Any = None
        # Only the class itself: a class between may do it knowingly, as wrappers do.
        own = [name for name in ("reset", "step") if name in type(self).__dict__]
        if own and type(self) is not PyEnvironment:
            raise ArgumentError(
                f"Subclasses of PyEnvironment cannot override {' and '.join(own)}, but {type(self).__name__} does; "
                f"define {' and '.join(f'_{name}' for name in own)} instead."
            )

    @property
    def batched(self) -> bool:
        """Whether actions and time steps have a batch axis, which the specs never have."""
        return False

    @property
    def batch_size(self) -> int | None:
        """Number of envs in a batch; None if there is no batch axis.

        Raises:
            RuntimeError: A subclass says that it is batched, but not how large a batch is.
        """
        if self.batched:
            raise RuntimeError(
                f"Environment {type(self)} marked itself as batched but did not override the batch_size property."
            )
        return None

    def should_reset(self, current_time_step: Any) -> Any:
        """Tells whether the next `step` is a reset: each step is the last of its episode, and this class handles it."""
        if not self._handle_auto_reset:
            return False
        is_last = current_time_step.is_last()
        # `np.all` takes 4 us to find a single bool true or false.
        return is_last if isinstance(is_last, np.bool_) else np.all(is_last)

    @abstractmethod
    def observation_spec(self) -> Any:
        """Returns a nest of array specs: what is observed in one env."""

    @abstractmethod
    def action_spec(self) -> Any:
        """Returns a nest of array specs: what `step` takes for one env."""

    def reward_spec(self) -> Any:
        """Returns a nest of array specs for the reward of one env, a float32 scalar unless overridden."""
        return ArraySpec((), np.float32, "reward")

    def discount_spec(self) -> Any:
        """Returns the array spec of one env's discount, a float32 scalar in [0, 1] unless overridden."""
        return DEFAULT_DISCOUNT_SPEC

    def time_step_spec(self) -> Any:
        """Returns a `TimeStep` of array specs, from the specs of observation, reward and discount."""
        spec = time_step_spec(self.observation_spec(), self.reward_spec())
        return spec._replace(discount=self.discount_spec())

    def current_time_step(self) -> Any:
        """Returns what `reset` or `step` returned last, the same object.

        Raises:
            ValueError: Neither has been called.
        """
        if self._current_time_step is None:
            raise ValueError("Current timestep not initialized; call reset() first.")
        return self._current_time_step

    def reset(self) -> Any:
        """Starts a new episode and returns its first time step."""
        self._current_time_step = self._reset()
        return self._current_time_step

    def step(self, action: Any) -> Any:
        """Takes a step and returns its time step; resets instead, without the action, if that is what is due.

        It is due in a new env, and when `should_reset` says so. If `_step` raises, the current time step stays.
        """
        current = self._current_time_step
        if current is None or self.should_reset(current):
            return self.reset()
        self._current_time_step = time_step = self._step(action)
        return time_step

    def close(self) -> None:  # noqa: B027
        """Frees what the env holds; nothing, unless overridden."""

    def __enter__(self: Env) -> Env:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a picture, `[height, width, 3]`, or shows one in mode `"human"`.

        Raises:
            NotImplementedError: The env draws nothing.
        """
        raise NotImplementedError("No rendering support.")

    def seed(self, seed: Any) -> Any:
        """Seeds the env.

        Raises:
            NotImplementedError: The env cannot be seeded.
        """
        raise NotImplementedError("No seed support for this environment.")

    def get_info(self) -> Any:
        """Returns what else the env has to say about the last step.

        Raises:
            NotImplementedError: It says nothing.
        """
        raise NotImplementedError("No support of get_info for this environment.")

    def get_state(self) -> Any:
        """Returns all that `set_state` needs to bring the env back to where it is; not changed by later steps.

        Raises:
            NotImplementedError: The env cannot do this.
        """
        raise NotImplementedError("This environment has not implemented `get_state()`.")

    def set_state(self, state: Any) -> None:
        """Brings the env back to where it was when `get_state` returned this state.

        Raises:
            NotImplementedError: The env cannot do this.
        """
        raise NotImplementedError("This environment has not implemented `set_state()`.")

    @abstractmethod
    def _reset(self) -> Any:
        """Starts a new episode and returns its first time step."""

    @abstractmethod
    def _step(self, action: Any) -> Any:
        """Takes a step and returns its time step."""


def _pass_for_theirs() -> None:
    """Makes shoal's class one of tf-agents', where that is in use, for whoever asks with `isinstance`."""
    theirs = getattr(sys.modules.get("tf_agents.environments.py_environment"), "PyEnvironment", None)
    if theirs is not None and not issubclass(PyEnvironment, theirs):
        theirs.register(PyEnvironment)
