"""The driver: one env as the host sees it, whatever framework it belongs to.

Adapters bring drivers; the host knows nothing else about an env.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shoal.structure import Codec

StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]


@dataclass(frozen=True)
class Description:
    """What the host needs to know of the values of every env in a batch.

    Attributes:
        observation: How an observation travels.
        action: How an action travels.
    """

    observation: Codec
    action: Codec


class Driver(Protocol):
    """Steps one env.

    Attributes:
        env: The env that calls are for.
        step: Takes an action and returns `(observation, reward, terminated, truncated, info)`; an
            attribute, so that it can be the env's own bound method.
        identity: The innermost env, to tell whether two drivers share one.
    """

    env: Any
    step: Callable[[Any], StepResult]
    identity: object

    def facts(self) -> Any:
        """Returns what the adapter's face wants to know: spaces, metadata; must be picklable."""

    def reset(self, seed: int | None, options: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and returns `(observation, info)`."""

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method, or reads an attribute that is not callable."""

    def has_attribute(self, name: str) -> bool:
        """Tells whether the env or one of its wrappers has an attribute."""

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets an attribute where the env, under its wrappers, has it."""

    def close(self) -> None:
        """Releases what the env holds."""


DriverFactory = Callable[[Callable[[], Any]], Driver]
