"""Keeps workers apart: each prefers one CPU, without being tied to it.

A process that watches keeps its CPU busy in the scheduler's eyes. With as many workers as CPUs the scheduler
may then leave two of them on one CPU and the watching parent alone on the other, since two here and one there
is as even as one here and two there. A worker that finds itself away from its own CPU moves back, and leaves the
scheduler free to move it again: nothing that an env starts is bound to a single CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable

# Often enough to undo an unlucky placement, too seldom to fight the scheduler over a busy CPU.
_PERIOD_NS = 50_000_000


class Placement:
    """One process's preferred CPU."""

    def __init__(self, index: int) -> None:
        """Prefers the `index`th of the CPUs that this process may use, counted round and round."""
        self._current_cpu = _find_current_cpu()
        self._next_ns = 0
        self._home = -1
        if self._current_cpu is not None:
            allowed = sorted(os.sched_getaffinity(0))
            self._home = allowed[index % len(allowed)]

    def keep(self) -> None:
        """Moves home if need be; cheap enough for every step."""
        if self._current_cpu is None or self._current_cpu() == self._home:
            return
        now = time.monotonic_ns()
        if now >= self._next_ns:
            self._next_ns = now + _PERIOD_NS
            with contextlib.suppress(OSError):
                allowed = os.sched_getaffinity(0)
                if self._home in allowed:
                    os.sched_setaffinity(0, {self._home})
                    os.sched_setaffinity(0, allowed)


def _find_current_cpu() -> Callable[[], int] | None:
    """Returns libc's `sched_getcpu`, None where there is none."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        function = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = [], ctypes.c_int
    call: Callable[[], int] = function
    return call
