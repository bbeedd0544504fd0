"""The user's end of the fork server: asks it to start workers, and hears from it how they ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from shoal.backends import entry
from shoal.backends.server import PRELOAD, interpreter, is_gone, with_path
from shoal.backends.worker_process import WorkerProcess
from shoal.errors import StartError, StartTimeoutError
from shoal.worker.channel import ChannelClosedError, channel_pair
from shoal.worker.threads import cap

# Starting the server means importing NumPy and Gymnasium; a loaded machine may take its time.
_SERVER_TIMEOUT = 120.0  # seconds


class ForkServer:
    """The user's end of the fork server."""

    def __init__(self, preload: Sequence[str]) -> None:
        """Starts it; it goes on importing while the caller goes on."""
        # Reentrant: a batch may be collected as garbage, and so closed, in the middle of another's start.
        self._lock = threading.RLock()
        self._is_talking = False
        self._modules = set(preload)
        self._ended: dict[int, int] = {}
        # How many workers were asked for: the number of the last request.
        self._asked = 0
        self._channel, theirs = channel_pair(takes_descriptors=True)
        # Out of the way of the server's standard streams, whose numbers are free in a program that has none.
        theirs_fd = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
        theirs.close()
        environ = dict(os.environ)
        cap(environ, None)
        # Garbage is looked for once all is imported; on the way it would take a tenth of the time.
        imports = "import gc; gc.disable(); from shoal.backends.server import serve"
        code = f"{imports}; serve({theirs_fd}, {os.getpid()}, {list(preload)!r})"
        try:
            self._process = subprocess.Popen(
                [*interpreter(), "-c", with_path(code)],
                env=environ,
                pass_fds=[theirs_fd],
                stdin=subprocess.DEVNULL,
                # Where the program has no such stream, another file may have got its number.
                stdout=None if sys.__stdout__ else subprocess.DEVNULL,
                stderr=None if sys.__stderr__ else subprocess.DEVNULL,
                close_fds=True,
            )
        except OSError as error:
            self._channel.close()
            raise StartError(f"the process that starts workers cannot be started: {error}") from error
        finally:
            os.close(theirs_fd)

    def preload(self, modules: Sequence[str]) -> None:
        """Has it import what it has not yet been told to, before it starts the next worker."""
        with self._lock:
            missing = [module for module in modules if module not in self._modules]
            self._modules.update(missing)
            if missing:
                with contextlib.suppress(ChannelClosedError):
                    # Whoever asks for a worker will hear that it has gone.
                    self._channel.send(pickle.dumps((0, PRELOAD, missing)))

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
            StartTimeoutError: The deadline has passed.
            StartError: The system refuses, or the server is gone.
        """
        limit = time.monotonic() + _SERVER_TIMEOUT
        limit = limit if deadline is None else min(limit, deadline)
        with self._lock:
            self._asked += 1
            self._is_talking = True
            try:
                self._channel.send(pickle.dumps((self._asked, method, order)), descriptors, limit)
                while True:
                    answer = self._receive(limit, self._asked)
                    if isinstance(answer, WorkerProcess):
                        return answer
                    if answer is not None:
                        raise StartError(f"worker {order.worker} cannot be started: {answer}")
            except ChannelClosedError:
                self._process.wait()
                raise StartError(
                    f"the process that starts workers has ended with exit code {self._process.returncode}; "
                    "its error output says why"
                ) from None
            except TimeoutError:
                if limit == deadline:
                    raise StartTimeoutError(
                        f"worker {order.worker} was not started within start_timeout. Give it more time with "
                        "start_timeout=, or start the process that starts workers beforehand with shoal.preload()."
                    ) from None
                raise StartError("the process that starts workers does not answer") from None
            finally:
                self._is_talking = False

    def has_ended(self, pid: int) -> bool:
        """Tells whether a worker is known to have ended."""
        with self._lock:
            self._drain(0.0, pid)
            # Nobody reports the end of a worker that has outlived the server.
            return pid in self._ended or (not self.is_alive() and is_gone(pid))

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
        if self._is_talking:
            # The same thread, further up, has the channel in use.
            return
        limit = time.monotonic() + timeout
        self._is_talking = True
        try:
            with contextlib.suppress(TimeoutError, ChannelClosedError):
                while pid not in self._ended:
                    self._receive(limit)
        finally:
            self._is_talking = False

    def _receive(self, deadline: float, number: int = 0) -> WorkerProcess | str | None:
        """Takes in one message; returns the worker or the reason for none if it answers the request of that number."""
        payload, received = self._channel.take(deadline=deadline)
        match pickle.loads(payload):
            case ("ended", pid, code):
                self._ended[pid] = code
            case ("started", answered, pid) if answered == number:
                return WorkerProcess(pid, received[0] if received else -1, self)
            case ("failed", answered, reason) if answered == number:
                return str(reason)
            case _:
                # For somebody who has not waited; a worker that nobody is connected to ends by itself.
                for fd in received:
                    os.close(fd)
        return None
