"""A promise: the result of a call that may not be there yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.engine.exchange import Pending


class Promise:
    """Gives the result of one call when it is called, and again each time after that."""

    def __init__(
        self,
        wait: Callable[[Pending, float | None], Any],
        forget: Callable[[Pending], None],
        pending: Pending,
    ) -> None:
        """Takes how to wait for the call, what to tell if nobody does, and the call."""
        self._wait = wait
        self._forget = forget
        self._pending: Pending | None = pending
        self._value: Any = None
        self._error: BaseException | None = None

    def __call__(self, timeout: float | None = None) -> Any:
        """Waits and returns the result.

        Args:
            timeout: Seconds; None for the engine's `step_timeout`.

        Raises:
            StepTimeoutError: It is not there yet; it may be asked for again.
            Exception: What was raised beside the env.
        """
        if self._pending is not None:
            try:
                self._value = self._wait(self._pending, timeout)
            except Exception as error:
                if not self._pending.is_settled:
                    raise
                self._error = error
            self._pending = None
        if self._error is not None:
            raise self._error
        return self._value

    def __del__(self) -> None:
        """Lets the result be dropped when it comes."""
        pending = getattr(self, "_pending", None)
        if pending is not None:
            self._forget(pending)
