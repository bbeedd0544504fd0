"""Whose a batch is and until when: closed at last by its owner, by the garbage collector or at the program's end."""

from __future__ import annotations

import os
import threading
import weakref

from shoal.backends import Backend
from shoal.engine.options import StateErrors
from shoal.engine.shutdown import Closeable, close_backend, end_batch, take_lock
from shoal.errors import StateError


class Lifetime:
    """What of an engine ends.

    Attributes:
        name: What error messages call the batch.
        close_timeout: Seconds that envs may take to close.
    """

    def __init__(self, name: str, errors: StateErrors, backend: Backend, close_timeout: float) -> None:
        """Belongs to this process from now on, and lives from `_live` on."""
        self.name = name
        self.close_timeout = close_timeout
        self._errors = errors
        self._backend = backend
        # What is to be closed after the backend.
        self._files: list[Closeable] = []
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._is_closed = False

    def _live(self) -> None:
        """Is closed from now on whatever becomes of it."""
        self._finalizer = weakref.finalize(self, end_batch, self._backend, self._files, self._lock, self.close_timeout)
        _living.add(self)

    def _forget(self) -> None:
        """Lets go of what was going on; to be overridden."""

    @property
    def is_closed(self) -> bool:
        """Tells whether `close` has been called."""
        return self._is_closed

    def close(self, timeout: float | None = None, *, ask: bool = True) -> None:
        """Closes the envs and ends the workers; idempotent, bounded, never raises for what an env does.

        Args:
            timeout: Seconds that envs may take to close; None for the engine's `close_timeout`.
            ask: Whether to let the envs finish and close at all before their workers are told to end.
        """
        if self._finalizer.detach() is None:
            return
        # The next call of another thread finds it closed; the one that it is in gets as long as the envs.
        self._is_closed = True
        limit = self.close_timeout if timeout is None else timeout
        is_mine = take_lock(self._lock, self._backend, limit, self._closed_error())
        try:
            close_backend(self._backend, self._files, limit, ask=ask)
            self._forget()
        finally:
            if is_mine:
                self._lock.release()

    def check_open(self) -> None:
        """Raises the closed error if the batch is closed, and `StateError` in a process forked from its own."""
        if os.getpid() != self._owner:
            raise StateError(
                f"`{self.name}` was made by process {self._owner}, which goes on using its workers; "
                "make a new one in this process"
            )
        if self._is_closed:
            raise self._closed_error()

    def disown(self) -> None:
        """Refuses all calls from now on, in a process that was forked from the batch's own."""
        self._is_closed = True
        self._forget()
        # Its copy may be held by a thread that does not exist here.
        self._lock = threading.RLock()
        self._finalizer.detach()
        self._backend.abandon()

    def _closed_error(self) -> Exception:
        return self._errors.closed(f"Trying to operate on `{self.name}`, after a call to `close()`.")


_living: weakref.WeakSet[Lifetime] = weakref.WeakSet()


def _disown_all() -> None:
    for batch in list(_living):
        batch.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
