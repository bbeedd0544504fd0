"""Ends a batch: on `close`, on garbage collection, at interpreter exit."""

from __future__ import annotations

import logging

from shoal.backends import Backend
from shoal.engine.supervision import describe_exit
from shoal.memory import Segment

_log = logging.getLogger("shoal")


def close_backend(backend: Backend, segments: list[Segment], timeout: float, ask: bool = True) -> None:
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
        while segments:
            segments.pop().close()
