"""Ends a batch: on `close`, on garbage collection, at interpreter exit."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from shoal.backends import Backend
from shoal.engine.supervision import describe_exit


class Closeable(Protocol):
    """Something that holds memory."""

    def close(self) -> None:
        """Lets go of it."""


_log = logging.getLogger("shoal")
# How long a thread that is interrupted may take to notice.
_LET_GO = 1.0  # seconds


def end_batch(backend: Backend, files: list[Closeable], lock: threading.RLock, timeout: float) -> None:
    """Closes a batch that nobody has closed: one that was dropped, or that is there when the program ends."""
    # Not given back: a daemon thread that goes on stepping stops at it, without a word.
    take_lock(lock, backend, timeout, SystemExit())
    close_backend(backend, files, timeout)


def take_lock(lock: threading.RLock, backend: Backend, timeout: float, interruption: BaseException) -> bool:
    """Takes the lock that a thread holds during a call, and returns whether it could be had.

    Args:
        lock: The engine's.
        backend: Where the thread waits that has it.
        timeout: Seconds which that thread has to finish its call.
        interruption: What it raises if it does not.
    """
    if lock.acquire(timeout=timeout):
        return True
    backend.interrupt(interruption)
    return lock.acquire(timeout=_LET_GO)


def close_backend(backend: Backend, files: list[Closeable], timeout: float, ask: bool = True) -> None:
    """Ends all workers and lets go of the memory; what went wrong in an env's `close` is logged.

    Knows nothing of the engine, which may be gone.
    """
    try:
        last = backend.close(timeout, ask=ask)
        for reply in last.replies:
            for failure in reply.failures:
                _log.warning("%s\n%s", failure.summary, failure.text)
        for death in last.deaths:
            env = "" if death.row is None else f" over env {death.row}"
            _log.warning("worker %d died while closing%s: %s", death.worker, env, describe_exit(death.exit_code))
    finally:
        while files:
            files.pop().close()
