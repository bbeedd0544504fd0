"""Starts worker processes from the user's process, by a fork server or by forking it.

There is one fork server for the whole program. It is started with the first batch that needs it and
ends with the last one, unless `preload` asked to keep it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence

from shoal.backends import entry
from shoal.backends.fork_server import ForkServer
from shoal.backends.server import open_pidfd
from shoal.backends.worker_process import WorkerProcess
from shoal.worker.channel import Channel

START_METHODS = ("forkserver", "spawn", "fork")
# By name, because this layer knows no framework; a module that is not there is passed over.
DEFAULT_PRELOAD = ("shoal.adapters.gymnasium.driver",)


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
            _shared.server.close()
            _shared.server = None
        if _shared.server is None:
            _shared.server = ForkServer(preload)
        _shared.server.preload(preload)
        _shared.users += 1
        return _shared.server


def release(server: ForkServer) -> None:
    """Gives the fork server back; the last one ends it."""
    with _shared.lock:
        if _shared.owner != os.getpid():
            return
        _shared.users -= 1
        if server is not _shared.server:
            # It had died and been replaced; this was one of its last users.
            server.close()
        if _shared.server is not None and _shared.users <= 0 and not _shared.keeps:
            _shared.server.close()
            _shared.server = None


@contextlib.contextmanager
def getting_ready() -> Iterator[None]:
    """Has the fork server start while the caller finds out what else its workers need."""
    server = acquire(DEFAULT_PRELOAD)
    try:
        yield
    finally:
        release(server)


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
        release(acquire([*DEFAULT_PRELOAD, *modules]))


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
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        # None in a program that was started without.
        with contextlib.suppress(ValueError, OSError):
            if stream is not None:
                stream.flush()
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
        # Out of the way of the standard streams, which this process may be without.
        own = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in descriptors]
        code = entry.enter(order, own, parent_fd)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        entry.leave(code, parent)
    raise AssertionError("unreachable")
