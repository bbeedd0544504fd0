"""Keeps only chosen keys of an env's infos, beside the env: what nobody reads is not even copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.worker.driver import Driver, StepResult


class ChosenInfos:
    """A driver whose infos have chosen keys only; for the rest it is another driver."""

    def __init__(self, driver: Driver, keys: Sequence[str]) -> None:
        """Takes the driver, and the keys to keep where an info has them."""
        self._driver = driver
        self._keys = tuple(keys)
        self.env = driver.env
        self.identity = driver.identity
        step_env, choose = driver.step, self._choose

        def step(action: Any) -> StepResult:
            observation, reward, terminated, truncated, info = step_env(action)
            return observation, reward, terminated, truncated, choose(info)

        self.step: Callable[[Any], StepResult] = step

    def facts(self) -> Any:
        """Returns the other driver's."""
        return self._driver.facts()

    def reset(self, seed: int | None, options: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        observation, info = self._driver.reset(seed, options)
        return observation, self._choose(info)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method, or reads an attribute."""
        return self._driver.call(name, args, kwargs)

    def has_attribute(self, name: str) -> bool:
        """Tells whether there is such an attribute."""
        return self._driver.has_attribute(name)

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets an attribute."""
        self._driver.set_attribute(name, value)

    def close(self) -> None:
        """Closes the env."""
        self._driver.close()

    def _choose(self, info: dict[str, Any]) -> dict[str, Any]:
        return {key: info[key] for key in self._keys if key in info}
