"""The first steps of a worker process, however it was started, and its last one."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.memory import ControlMemory, Segment, make_bell
from shoal.worker import main, threads
from shoal.worker.channel import Channel

# How long an orphan may take to close its envs.
ORPHAN_GRACE = 1.3  # seconds
# Between looks at whether the parent is still there, beside being told.
_PARENT_CHECK = 0.25  # seconds
_PR_SET_PDEATHSIG = 1
# Set once the watching thread knows that the parent is gone.
_is_orphan = threading.Event()


@dataclass(frozen=True)
class Order:
    """Everything a worker process has to be like; picklable.

    The surroundings are those of the user's process at this moment, so that what it could import, read
    and find, its workers can too.
    """

    worker: int
    num_workers: int
    bell_size: int
    longest_watch_ns: int
    entropy: tuple[int, ...]
    environ: Mapping[str, str]
    directory: str | None
    path: Sequence[str]
    argv: Sequence[str]

    @classmethod
    def here(
        cls,
        *,
        worker: int,
        num_workers: int,
        bell_size: int,
        longest_watch_ns: int,
        entropy: tuple[int, ...],
        num_threads: int | None,
    ) -> Order:
        """Returns the order for a worker with the surroundings of this process."""
        environ = dict(os.environ)
        threads.cap(environ, num_threads)
        try:
            directory: str | None = os.getcwd()
        except FileNotFoundError:
            directory = None
        path = [entry if entry else (directory or "") for entry in sys.path if isinstance(entry, str)]
        argv = list(getattr(sys, "argv", []))
        return cls(worker, num_workers, bell_size, longest_watch_ns, entropy, environ, directory, path, argv)


def output_descriptor(stream: Any, fd: int) -> int:
    """Returns a copy of a standard output, or of nothing where the program has closed it."""
    with contextlib.suppress(OSError):
        # Where the program was started without it, another file may have got its number.
        if stream is not None:
            return os.dup(fd)
    return os.open(os.devnull, os.O_WRONLY)


def enter(order: Order, descriptors: Sequence[int], parent_fd: int | None) -> int:
    """Becomes the worker that the order describes, and returns its exit code when it is done.

    Args:
        order: What to be like.
        descriptors: Channel, control memory, the two bells, standard output and error; owned from now on.
        parent_fd: A descriptor that becomes readable when the parent dies, to be watched by a thread, -1 where
            there is no such thing; None where the system or the parent's own parent sends a signal.
    """
    os.setpgid(0, 0)
    # A copy of the descriptor that wakes the event loop of the process that was forked.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel_fd, control_fd, *bells, output_fd, error_fd = descriptors
    _replace_standard_streams(output_fd, error_fd)
    os.environ.clear()
    os.environ.update(order.environ)
    if order.directory is not None:
        with contextlib.suppress(OSError):
            os.chdir(order.directory)
    sys.path[:] = order.path
    sys.argv[:] = order.argv
    threads.cap_loaded_libraries()
    if parent_fd is None:
        die_with_parent()
    else:
        watched = (parent_fd, select.POLLIN) if parent_fd >= 0 else (channel_fd, 0)
        threading.Thread(target=_watch_parent, args=watched, name="shoal-parent-watch", daemon=True).start()
    segment = Segment(control_fd, os.fstat(control_fd).st_size)
    return main.run(
        main.Connection(
            worker=order.worker,
            control=ControlMemory(segment, order.num_workers),
            submitted=make_bell(*bells[: order.bell_size]),
            completed=make_bell(*bells[order.bell_size :]),
            channel=Channel(socket.socket(fileno=channel_fd), takes_descriptors=True),
            longest_watch_ns=order.longest_watch_ns,
            entropy=order.entropy,
        )
    )


def leave(code: int, parent: int) -> None:
    """Ends the process: exit handlers of the envs' libraries run, those of the forked parent do not.

    Args:
        code: The exit code.
        parent: Id of the process that ends what the envs have started; without it they are ended here.
    """
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    # The end of a socket comes a moment before a dead parent is replaced.
    if code == main.ORPHANED or _is_orphan.is_set() or os.getppid() != parent:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(code)


def die_with_parent() -> None:
    """Asks Linux to send SIGTERM when the thread that started this process ends; elsewhere does nothing."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # The parent may have gone before the request was made.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _watch_parent(fd: int, events: int) -> None:
    """Ends this process when the parent is gone: the portable form of a parent-death signal."""
    parent = os.getppid()
    poller = select.poll()
    poller.register(fd, events)
    # Where the descriptor is a socket, a child of the parent may keep its other end open.
    while not poller.poll(_PARENT_CHECK * 1000) and os.getppid() == parent:
        pass
    _is_orphan.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE)
    os.killpg(os.getpid(), signal.SIGKILL)


def _replace_standard_streams(output_fd: int, error_fd: int) -> None:
    """Points the standard streams at nothing, and at what the user's process had for them."""
    null_fd = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null_fd, 0), (output_fd, 1), (error_fd, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream: Any = open(fd, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
