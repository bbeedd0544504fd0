"""`BatchedPyEnvironment`: TF-Agents' interface to a batch of envs that exist already, in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from shoal.adapters.tf_agents import calls
from shoal.adapters.tf_agents.batch import EngineEnvironment
from shoal.adapters.tf_agents.driver import LeavingDriver
from shoal.engine import Options
from shoal.errors import ArgumentError
from shoal.worker import Call
from shoal.worker.calls import method_call

_log = logging.getLogger("shoal")


class BatchedPyEnvironment(EngineEnvironment):
    """Steps envs in threads of this process, or in the caller's; stands in for TF-Agents' class of this name."""

    def __init__(self, envs: Sequence[Any], multithreading: bool = True) -> None:
        """Takes the envs.

        Args:
            envs: A list or tuple of envs that step one at a time.
            multithreading: Whether each env gets a thread of its own; otherwise the caller steps them in turn.

        Raises:
            ArgumentError: `envs` is no list or tuple, is empty, or one of them is batched.
            SpecMismatchError: The envs' specs differ.
        """
        if not isinstance(envs, (list, tuple)):
            raise ArgumentError(f"envs must be a list or tuple.  Got: {envs}")
        if not envs:
            raise ArgumentError("envs is empty; give at least one env")
        batched = [(index, env) for index, env in enumerate(envs) if getattr(env, "batched", False)]
        if batched:
            raise ArgumentError(f"Some of the envs are already batched: {batched}")
        self._parallel_execution = multithreading
        self._envs = envs
        options = Options(
            backend="thread" if multithreading else "serial",
            num_workers=len(envs) if multithreading else 1,
        )
        super().__init__([_Given(env) for env in envs], options, driver_factory=LeavingDriver)

    @property
    def envs(self) -> Sequence[Any]:
        """The envs that were given."""
        return self._envs

    def seed(self, seed: Any) -> list[Any]:
        """Seeds every env with the same seed, and returns what their `seed` methods return."""
        return list(self._engine.call(method_call("seed", (seed,))))

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns every env's frame, `[B, ...]`."""
        return self._render(mode)

    def close(self) -> None:
        """Closes the envs and ends the threads; idempotent. A batch that is dropped leaves the envs as they are."""
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.is_closed:
            limit = engine.close_timeout
            deadline = time.monotonic() + limit
            call = Call(0, "close", calls.close_env)
            promises = [engine.call_one(row, call, limit) for row in range(self._num_envs)]
            for row, promise in enumerate(promises):
                try:
                    promise(max(0.0, deadline - time.monotonic()))
                except Exception as error:
                    _log.warning("env %d raised in close: %s: %s", row, type(error).__name__, error)
        super().close()


class _Given:
    """Stands for the constructor of an env that is there."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __call__(self) -> Any:
        return self._env
