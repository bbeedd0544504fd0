"""The driver that steps one `PyEnvironment`, tf-agents' or shoal's, beside the host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from shoal.adapters.tf_agents.dm_environment import DmEnvironment
from shoal.adapters.tf_agents.errors import TfAgentsClosedError
from shoal.adapters.tf_agents.facts import Facts
from shoal.adapters.tf_agents.gymnasium_env import GymnasiumEnvironment
from shoal.adapters.tf_agents.py_environment import PyEnvironment
from shoal.errors import ArgumentTypeError, ClosedError

_NOTHING: dict[str, Any] = {}


class PyEnvironmentDriver:
    """Steps one env; its observation is the whole time step.

    Attributes:
        env: The `PyEnvironment`; one that wraps the env if that is a Gymnasium or dm_env one.
        step: Takes an action; the host never hears that an episode has ended, since such an env resets itself.
        identity: The env that was constructed.
    """

    def __init__(self, env_constructor: Callable[[], Any]) -> None:
        """Constructs the env.

        Raises:
            ArgumentTypeError: The constructor returns something else.
        """
        constructed = env_constructor()
        self.identity: object = constructed
        self.env = as_py_environment(constructed)
        if self.env.batched:
            raise ArgumentTypeError(f"{constructed!r} is batched already; give envs that step one at a time")
        self._is_closed = False
        step_env = self.env.step

        def step(action: Any) -> Any:
            time_step = step_env(action)
            if not isinstance(time_step, tuple) or len(time_step) != 4:
                raise _no_time_step("step", time_step)
            return time_step, 0.0, False, False, _NOTHING

        self.step: Callable[[Any], Any] = step

    def facts(self) -> Facts:
        """Returns the specs."""
        return Facts.of(self.env)

    def reset(self, _seed: int | None = None, _options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets the env; seeds come by `seed`, which is a method of its own here."""
        if self._is_closed:
            raise _closed()
        time_step = self.env.reset()
        if not isinstance(time_step, tuple) or len(time_step) != 4:
            raise _no_time_step("reset", time_step)
        return time_step, _NOTHING

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method of the env, or reads an attribute that is not callable."""
        attribute = find_attribute(self.env, name)
        return attribute(*args, **kwargs) if callable(attribute) else attribute

    def has_attribute(self, name: str) -> bool:
        """Tells whether the env has an attribute."""
        try:
            find_attribute(self.env, name)
        except AttributeError:
            return False
        return True

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets an attribute of the env."""
        setattr(self.env, name, value)

    def close(self) -> None:
        """Closes the env, once."""
        if self._is_closed:
            return
        self._is_closed = True

        def step(_action: Any) -> Any:
            raise _closed()

        self.step = step
        self.env.close()


class LeavingDriver(PyEnvironmentDriver):
    """Steps an env that belongs to somebody else, and does not close it."""

    def close(self) -> None:
        """Leaves the env as it is."""


def as_py_environment(env: Any) -> Any:
    """Returns the env if it is a `PyEnvironment`, or one that wraps it.

    Raises:
        ArgumentTypeError: It is nothing that can be one.
    """
    if isinstance(env, PyEnvironment) or _is_theirs(env):
        return env
    if GymnasiumEnvironment.wraps(env):
        return GymnasiumEnvironment(env)
    if DmEnvironment.wraps(env):
        return DmEnvironment(env)
    raise ArgumentTypeError(
        "the constructor must return a PyEnvironment, a gymnasium.Env or a dm_env.Environment, but it returned "
        f"{env!r} of type {type(env).__name__}"
    )


def _is_theirs(env: Any) -> bool:
    """Tells whether it is tf-agents' `PyEnvironment`; nobody has one who has not imported that."""
    module = sys.modules.get("tf_agents.environments.py_environment")
    return module is not None and isinstance(env, module.PyEnvironment)


def _no_time_step(method: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{method} must return a TimeStep, but it returned {value!r} of type {type(value).__name__}"
    )


def _closed() -> ClosedError:
    return TfAgentsClosedError("the env was closed")


def find_attribute(env: Any, name: str) -> Any:
    """Returns an attribute of the env or, with a Gymnasium or dm_env env, of that; private ones too."""
    try:
        return getattr(env, name)
    except AttributeError:
        if not isinstance(env, (GymnasiumEnvironment, DmEnvironment)):
            raise
        return env.find(name)
