"""One worker process as its starter sees it: signals, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Protocol

from shoal.backends.server import has_ended, kill_group


class Parent(Protocol):
    """The process that is a worker's parent where this one is not."""

    def has_ended(self, pid: int) -> bool:
        """Tells whether a worker is known to have ended."""

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """Returns a worker's exit code, None if it cannot be learnt in time."""


class WorkerProcess:
    """One worker process, and how to learn what becomes of it.

    Attributes:
        pid: Its process id.
        pidfd: A descriptor that is readable once it has ended, -1 where there is no such thing; owned.
    """

    def __init__(self, pid: int, pidfd: int, server: Parent | None) -> None:
        """Takes what the starter knows; `server` is its parent if this process is not."""
        self.pid = pid
        self.pidfd = pidfd
        self._server = server
        self._exit_code: int | None = None
        self._is_reaped = False

    def exit_code(self, timeout: float) -> int | None:
        """Returns the code of a process that is known to have ended; None if it cannot be learnt in time."""
        if self._is_reaped:
            return self._exit_code
        if self._server is not None:
            self._exit_code = self._server.exit_code(self.pid, timeout)
            self._is_reaped = self._exit_code is not None
            return self._exit_code
        deadline = time.monotonic() + timeout
        while not self.has_ended():
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.002)
        kill_group(self.pid)
        with contextlib.suppress(ChildProcessError):
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._is_reaped = True
        return self._exit_code

    def has_ended(self) -> bool:
        """Tells whether it has ended."""
        if self._is_reaped:
            return True
        if self.pidfd >= 0:
            poller = select.poll()
            poller.register(self.pidfd, select.POLLIN)
            return bool(poller.poll(0))
        if self._server is not None:
            return self._server.has_ended(self.pid)
        try:
            return has_ended(self.pid)
        except ChildProcessError:
            # Somebody else in this process has waited for it.
            return True

    def signal(self, number: int) -> None:
        """Sends a signal to it, and SIGKILL also to what it has started."""
        if self.has_ended():
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                kill_group(self.pid)
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.pid, number)

    def close(self) -> None:
        """Closes the descriptor."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def end_all(processes: Sequence[WorkerProcess], number: int, grace: float) -> None:
    """Signals every process that is left, and waits a while for it to go.

    Args:
        processes: Some may have ended.
        number: The signal.
        grace: Seconds.
    """
    left = [process for process in processes if not process.has_ended()]
    for process in left:
        process.signal(number)
    deadline = time.monotonic() + grace
    while any(not process.has_ended() for process in left) and time.monotonic() < deadline:
        time.sleep(0.001)
