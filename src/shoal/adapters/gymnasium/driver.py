"""The driver that steps one Gymnasium env beside the host."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymnasium import Env, spaces

from shoal.errors import ArgumentTypeError

# Calls by name that would step the env behind the host's back.
_RESERVED = ("reset", "step", "close")


@dataclass(frozen=True)
class Facts:
    """What the face wants to know of one env.

    Attributes:
        observation_space: The env's.
        action_space: The env's.
        metadata: A copy of the env's.
        render_mode: The env's.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None


class GymnasiumDriver:
    """Steps one `gymnasium.Env`.

    Attributes:
        env: The env, under all its wrappers.
        step: The env's own.
        identity: The innermost env.
    """

    def __init__(self, env_fn: Callable[[], Any]) -> None:
        """Constructs the env.

        Raises:
            ArgumentTypeError: The function returns something else.
        """
        env = env_fn()
        if not isinstance(env, Env):
            raise ArgumentTypeError(
                f"the function must return a gymnasium.Env, but it returned {env!r} of type {type(env).__name__}"
            )
        self.env: Env[Any, Any] = env
        self.step: Callable[[Any], Any] = env.step
        self.identity: object = env.unwrapped

    def facts(self) -> Facts:
        """Returns spaces, metadata and render mode."""
        env = self.env
        # Copies, as they would be in another process: drawing from one must not change what the other draws.
        observation_space, action_space = copy.deepcopy((env.observation_space, env.action_space))
        return Facts(observation_space, action_space, dict(env.metadata), env.render_mode)

    def reset(self, seed: int | None, options: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the env."""
        return self.env.reset(seed=seed, options=options)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls what the env or one of its wrappers has under this name, or returns it if it is not callable."""
        if name in _RESERVED:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        attribute = self.env.get_wrapper_attr(name)
        return attribute(*args, **kwargs) if callable(attribute) else attribute

    def has_attribute(self, name: str) -> bool:
        """Tells whether the env or one of its wrappers has an attribute."""
        return self.env.has_wrapper_attr(name)

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets the attribute on whichever wrapper has it, or else on the outermost."""
        self.env.set_wrapper_attr(name, value)

    def close(self) -> None:
        """Closes the env."""
        self.env.close()
