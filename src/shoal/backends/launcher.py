"""Starts worker processes from the user's process, by a fork server or by forking it.

There is one fork server for the whole program. It is started with the first batch that needs it and
ends with the last one, unless `preload` asked to keep it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

from shoal.backends import entry
from shoal.backends.server import has_ended, interpreter, kill_group, open_pidfd, with_path
from shoal.errors import StartError
from shoal.worker.channel import Channel, ChannelClosedError, channel_pair
from shoal.worker.threads import cap

START_METHODS = ("forkserver", "spawn", "fork")
# Starting the server means importing NumPy and Gymnasium; a loaded machine may take its time.
_SERVER_TIMEOUT = 120.0  # seconds


class WorkerProcess:
    """One worker process, and how to learn what becomes of it.

    Attributes:
        pid: Its process id.
        pidfd: A descriptor that is readable once it has ended, -1 where there is no such thing; owned.
    """

    def __init__(self, pid: int, pidfd: int, server: ForkServer | None) -> None:
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


class ForkServer:
    """The user's end of the fork server."""

    def __init__(self, preload: Sequence[str]) -> None:
        """Starts it; it goes on importing while the caller goes on."""
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        self._channel, theirs = channel_pair()
        environ = dict(os.environ)
        cap(environ, None)
        code = f"from shoal.backends.server import serve; serve({theirs.fileno()}, {os.getpid()}, {list(preload)!r})"
        try:
            self._process = subprocess.Popen(
                [*interpreter(), "-c", with_path(code)],
                env=environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            self._channel.close()
            raise StartError(f"the process that starts workers cannot be started: {error}") from error
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tells whether it can still be used."""
        return self._process.poll() is None

    def start(
        self, method: str, order: entry.Order, descriptors: Sequence[int], deadline: float | None
    ) -> WorkerProcess:
        """Starts a worker; the descriptors stay open here.

        Raises:
            StartError: The system refuses, or the server is gone.
        """
        limit = time.monotonic() + _SERVER_TIMEOUT
        limit = limit if deadline is None else min(limit, deadline)
        with self._lock:
            try:
                self._channel.send(pickle.dumps((method, order)), descriptors, limit)
                while True:
                    message, received = self._receive(limit)
                    if message[0] == "started":
                        return WorkerProcess(message[1], received[0] if received else -1, self)
                    if message[0] == "failed":
                        raise StartError(f"worker {order.worker} cannot be started: {message[1]}")
            except ChannelClosedError:
                self._process.wait()
                raise StartError(
                    f"the process that starts workers has ended with exit code {self._process.returncode}; "
                    "its error output says why"
                ) from None
            except TimeoutError:
                raise StartError("the process that starts workers does not answer") from None

    def has_ended(self, pid: int) -> bool:
        """Tells whether a worker is known to have ended."""
        with self._lock:
            self._drain(0.0, pid)
            return pid in self._ended or not self.is_alive()

    def exit_code(self, pid: int, timeout: float) -> int | None:
        """Returns a worker's exit code, None if the server does not say in time."""
        with self._lock:
            self._drain(timeout, pid)
            return self._ended.get(pid)

    def close(self) -> None:
        """Ends the server, and with it whatever worker is left."""
        self._channel.close()
        try:
            self._process.wait(entry.ORPHAN_GRACE + 2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """Lets go of it in a forked child, whose parent goes on using it."""
        self._channel.close()
        self._process.returncode = 0

    def _drain(self, timeout: float, pid: int) -> None:
        limit = time.monotonic() + timeout
        with contextlib.suppress(TimeoutError, ChannelClosedError):
            while pid not in self._ended:
                self._receive(limit)

    def _receive(self, deadline: float) -> tuple[tuple[Any, ...], list[int]]:
        payload, received = self._channel.receive(deadline)
        message = pickle.loads(payload)
        if message[0] == "ended":
            self._ended[message[1]] = message[2]
        return message, received


class _Shared:
    """The one fork server of this process, counted by its users."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.server: ForkServer | None = None
        self.users = 0
        self.keeps = False
        self.owner = os.getpid()


_shared = _Shared()


def acquire(preload: Sequence[str]) -> ForkServer:
    """Returns the fork server, started if need be; each call needs a `release` by the same process."""
    with _shared.lock:
        _forget_parents_server()
        if _shared.server is not None and not _shared.server.is_alive():
            _shared.server = None
        if _shared.server is None:
            _shared.server = ForkServer(preload)
        _shared.users += 1
        return _shared.server


def release(server: ForkServer) -> None:
    """Gives the fork server back; the last one ends it."""
    with _shared.lock:
        if _shared.owner != os.getpid():
            return
        _shared.users -= 1
        if _shared.server is not server:
            # It had died and been replaced; this was one of its last users.
            server.close()
        elif _shared.users <= 0 and not _shared.keeps:
            _shared.server = None
            server.close()


def preload(*modules: str) -> None:
    """Starts the fork server now and keeps it until the program ends.

    Programs that open and close many batches save a start of about half a second each time, and workers
    save the import of the modules.

    Args:
        *modules: Names of modules to import in it, in addition to NumPy, Gymnasium and shoal. They must
            not start threads, and nothing must be imported that uses a GPU.
    """
    with _shared.lock:
        if not _shared.keeps:
            atexit.register(_stop_keeping)
        _shared.keeps = True
        if _shared.server is None:
            release(acquire([*DEFAULT_PRELOAD, *modules]))


# By name, because this layer knows no framework; a module that is not there is passed over.
DEFAULT_PRELOAD = ("shoal.adapters.gymnasium.driver",)


def launcher_pid() -> int | None:
    """Returns the process id of the fork server, None while there is none."""
    server = _shared.server
    return server.pid if server is not None and _shared.owner == os.getpid() else None


def _stop_keeping() -> None:
    with _shared.lock:
        _shared.keeps = False
        if _shared.server is not None and _shared.users <= 0 and _shared.owner == os.getpid():
            _shared.server.close()
            _shared.server = None


def _forget_parents_server() -> None:
    """Starts afresh in a process that was forked from one with a fork server."""
    if _shared.owner != os.getpid():
        if _shared.server is not None:
            _shared.server.abandon()
        _shared.server, _shared.users, _shared.keeps, _shared.owner = None, 0, False, os.getpid()


def fork(order: entry.Order, descriptors: Sequence[int], channels: Sequence[Channel]) -> WorkerProcess:
    """Starts a worker as a fork of this very process.

    Args:
        order: What it has to be like.
        descriptors: What it connects with; they stay open here.
        channels: Ends that belong to this process alone, closed in the child.
    """
    if threading.active_count() > 1:
        warnings.warn(
            "start_method='fork' copies a process that has other threads; a lock that one of them holds is "
            "held for ever in the worker. Use the default, 'forkserver'.",
            RuntimeWarning,
            stacklevel=2,
        )
    parent_fd = open_pidfd(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python's own word on the same matter.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        if parent_fd >= 0:
            os.close(parent_fd)
        return WorkerProcess(pid, open_pidfd(pid), None)
    code = 1
    try:
        # The parent's exit handlers are the parent's.
        atexit._clear()
        # While a copy of the parent's end is open here, no other process would learn of its death.
        for channel in channels:
            channel.close()
        _forget_parents_server()
        own = [os.dup(fd) for fd in descriptors]
        watched = parent_fd if parent_fd >= 0 else own[0]
        code = entry.enter(order, own, watched)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        entry.leave(code)
    raise AssertionError("unreachable")
