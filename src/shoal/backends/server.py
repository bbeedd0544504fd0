"""The fork server: one clean process that starts workers, and ends them when the user's process is gone.

It has imported what every worker needs and nothing else: not the user's main script, no CUDA, no
threads. So forking it is fast and safe. It is the parent of all workers, collects their exit codes,
and outlives the user's process just long enough to see that they close their envs and go.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from shoal.backends import entry
from shoal.worker.channel import Channel, ChannelClosedError

# Stands for a start method in a message that asks for no worker but for imports.
PRELOAD = "preload"
# Descriptors a spawned worker finds its order and its connections by.
_SPAWNED = "from shoal.backends.server import spawned; spawned({order_fd}, {descriptors})"


def serve(channel_fd: int, parent_pid: int, preload: Sequence[str]) -> None:
    """Starts workers as asked over the channel until its other end is closed."""
    # A group of its own, so that Ctrl-C passes it by, but not a session of its own: where Linux shares out CPU
    # time by session, giving up the CPU (see `memory.bell`) helps only processes of the same one.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import(preload)
    _Server(Channel(socket.socket(fileno=channel_fd), takes_descriptors=True), parent_pid).run()
    os._exit(0)


def _import(modules: Sequence[str]) -> None:
    gc.disable()
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    # Objects that exist now are never looked at by a collector again, so their pages stay shared. Not even once
    # before: that takes longer than importing Gymnasium, and there is next to no garbage.
    gc.freeze()
    gc.enable()


class _Server:
    def __init__(self, channel: Channel, parent_pid: int) -> None:
        self._channel = channel
        self._pids: set[int] = set()
        self._deaths_fd, self._noted_fd = os.pipe()
        os.set_blocking(self._deaths_fd, False)
        os.set_blocking(self._noted_fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._noted_fd, warn_on_full_buffer=False)
        self._poller = select.poll()
        self._poller.register(self._deaths_fd, select.POLLIN)
        self._poller.register(channel.fileno(), select.POLLIN)
        self._parent_fd = open_pidfd(parent_pid)
        if self._parent_fd >= 0:
            # Another process that the user has forked may keep the channel open for ever.
            self._poller.register(self._parent_fd, select.POLLIN)

    def run(self) -> None:
        """Serves until the user's process is gone, then ends what is left."""
        try:
            while True:
                ready = {fd for fd, _ in self._poller.poll()}
                if self._parent_fd in ready:
                    break
                if self._deaths_fd in ready:
                    self._reap()
                while self._channel.fileno() in ready:
                    payload, descriptors = self._channel.take()
                    self._start(payload, descriptors)
                    if not self._channel.has_message():
                        break
        except ChannelClosedError:
            pass
        self._end_workers()

    def _start(self, payload: bytes, descriptors: list[int]) -> None:
        number, method, order = pickle.loads(payload)
        if method == PRELOAD:
            _import(order)
            return
        try:
            pid = self._fork(order, descriptors) if method == "forkserver" else self._spawn(order, descriptors)
        except OSError as error:
            self._channel.send(pickle.dumps(("failed", number, str(error))))
            return
        finally:
            for fd in descriptors:
                os.close(fd)
        self._pids.add(pid)
        # Opened before the worker can be reaped, so the number cannot have passed to another process.
        pidfd = open_pidfd(pid)
        self._channel.send(pickle.dumps(("started", number, pid)), () if pidfd < 0 else (pidfd,))
        if pidfd >= 0:
            os.close(pidfd)

    def _fork(self, order: entry.Order, descriptors: list[int]) -> int:
        server = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (self._deaths_fd, self._noted_fd, self._parent_fd):
                if fd >= 0:
                    os.close(fd)
            self._channel.close()
            code = entry.enter(order, descriptors, None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            entry.leave(code, server)
        raise AssertionError("unreachable")

    def _spawn(self, order: entry.Order, descriptors: list[int]) -> int:
        order_fd, write_fd = os.pipe()
        code = _SPAWNED.format(order_fd=order_fd, descriptors=descriptors)
        try:
            process = subprocess.Popen(
                [*interpreter(), "-c", with_path(code)],
                env=dict(order.environ),
                pass_fds=[order_fd, *descriptors],
                stdin=subprocess.DEVNULL,
                close_fds=True,
            )
            with open(write_fd, "wb") as pipe:
                write_fd = -1
                pickle.dump(order, pipe)
        finally:
            os.close(order_fd)
            if write_fd >= 0:
                os.close(write_fd)
        # Reaped with the others; Popen must neither wait for it nor complain.
        process.returncode = 0
        return process.pid

    def _reap(self) -> None:
        """Reports every worker that has ended, after ending what it left behind."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._deaths_fd, 4096):
                pass
        for pid in list(self._pids):
            if not has_ended(pid):
                continue
            # While it has not been waited for its number, which is its group's too, belongs to nobody else.
            kill_group(pid)
            _, status = os.waitpid(pid, 0)
            self._pids.discard(pid)
            self._channel.send(pickle.dumps(("ended", pid, os.waitstatus_to_exitcode(status))))

    def _end_workers(self) -> None:
        """Gives workers a moment to close their envs, and then no more."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + entry.ORPHAN_GRACE
        while any(not has_ended(pid) for pid in self._pids) and time.monotonic() < deadline:
            select.select([self._deaths_fd], [], [], 0.05)
            with contextlib.suppress(BlockingIOError):
                os.read(self._deaths_fd, 4096)
        for pid in self._pids:
            kill_group(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def spawned(order_fd: int, descriptors: list[int]) -> None:
    """Runs a worker in a fresh interpreter; the counterpart of `_Server._spawn`."""
    server = os.getppid()
    with open(order_fd, "rb") as pipe:
        order = pickle.load(pipe)
    for fd in descriptors:
        os.set_inheritable(fd, False)
    code = 1
    try:
        code = entry.enter(order, descriptors, None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        entry.leave(code, server)


def interpreter() -> list[str]:
    """Returns the command that starts a Python like this one."""
    return [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]


def with_path(code: str) -> str:
    """Returns the code preceded by what makes it import from where this process does."""
    path = [entry for entry in sys.path if isinstance(entry, str)]
    return f"import sys; sys.path[:] = {path!r}; {code}"


def open_pidfd(pid: int) -> int:
    """Returns a descriptor that is readable once the process has ended, -1 where there is no such thing."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def has_ended(pid: int) -> bool:
    """Tells whether a child has ended, without reaping it where the system allows."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return is_gone(pid)


def is_gone(pid: int) -> bool:
    """Tells whether there is no such process any more, or only a zombie; it need not be a child."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def kill_group(pid: int) -> None:
    """Kills the process group that a worker led, with whatever its envs have started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
