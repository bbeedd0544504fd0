"""The thread backend: each host in a thread of this process; for envs that release the GIL."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shoal.backends.backend import Death, Incoming, WorkerStart
from shoal.worker import Close, EnvHost, Reply, Request


class _Sign:
    """Comes back as it is."""


class ThreadBackend:
    """Hands requests to threads over queues.

    A thread cannot be ended from outside: one that hangs in an env outlives `close`, as a daemon.

    Attributes:
        pids: This process's id, once for each worker.
    """

    def __init__(self, start: WorkerStart) -> None:
        """Makes hosts and queues; `start` starts the threads."""
        self.pids = [os.getpid()] * start.num_workers
        self._rows = [0] * start.num_workers
        self._requests: list[queue.SimpleQueue[Request | _Sign]] = [queue.SimpleQueue() for _ in self.pids]
        self._replies: queue.SimpleQueue[Reply | BaseException | _Sign] = queue.SimpleQueue()
        self._arrived: deque[Reply | BaseException | _Sign] = deque()
        # How many replies are due, and whether an interrupt has left that count in doubt.
        self._due = 0
        self._is_certain = True
        self._threads: list[threading.Thread] = []

    def start(self, worker: int, deadline: float | None) -> None:
        """Starts one thread."""
        thread = threading.Thread(
            target=_serve,
            args=(worker, self._rows, self._requests[worker], self._replies),
            name=f"shoal-worker-{worker}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def check_functions(self, functions: list[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Returns them as they are: they are called in this process."""
        return functions

    def submit(self, worker: int, request: Request) -> None:
        """Queues the request."""
        self._submit([worker], request)

    def broadcast(self, request: Request) -> None:
        """Sends the request to every worker."""
        self._submit(range(len(self.pids)), request)

    def _submit(self, workers: Sequence[int], request: Request) -> None:
        was_certain, self._is_certain = self._is_certain, False
        for worker in workers:
            self._requests[worker].put(request)
            self._due += 1
        self._is_certain = was_certain

    def all_done(self, sequence: int) -> bool:
        """Leaves it to `collect`, which costs next to nothing here."""
        return False

    def take_done(self) -> None:
        """Does nothing: `all_done` finds nothing."""

    def collect(
        self, count: int, deadline: float | None, file: Callable[[Reply], None], bury: Callable[[Death], None]
    ) -> bool:
        """Waits for `count` replies, or for the deadline."""
        filed = 0
        signs = None if self._is_certain else self._ask_for_signs()
        self._is_certain = False
        while signs if signs is not None else (filed < count and self._due > 0):
            if not self._arrived:
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    # By way of `map`, so that no interrupt comes between a reply and its place.
                    self._arrived.extend(map(self._replies.get, (True,), (timeout,)))
                except queue.Empty:
                    break
            arrived = self._arrived[0]
            if isinstance(arrived, Reply):
                file(arrived)
                filed += 1
                self._due -= 1
            elif signs is not None:
                signs.discard(arrived)
            self._arrived.popleft()
            if isinstance(arrived, BaseException):
                raise arrived
        if not signs:
            # All signs are there, and so all replies are that were due before.
            self._due = 0 if signs is not None else self._due
            self._is_certain = True
        return filed > 0 or self._due > 0 or not self._is_certain

    def _ask_for_signs(self) -> set[Any]:
        """Has every worker give a sign once it has answered all that it was asked before."""
        signs = [_Sign() for _ in self.pids]
        for requests, sign in zip(self._requests, signs, strict=True):
            requests.put(sign)
        return set(signs)

    def current_row(self, worker: int) -> int | None:
        """Returns the row that the worker's thread is at."""
        row = self._rows[worker] - 1
        return row if row >= 0 else None

    def abandon(self) -> None:
        """Does nothing: what a copy of an env should let go of is not known."""

    def interrupt(self, error: BaseException) -> None:
        """Has the thread that waits for replies raise the error."""
        self._replies.put(error)

    def close(self, timeout: float, *, ask: bool) -> Incoming:
        """Has every thread close its envs and end; one that does not is left behind as a daemon."""
        threads, self._threads = self._threads, []
        for requests in self._requests[: len(threads)]:
            requests.put(Close(-1))
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        replies: list[Any] = []
        while not self._replies.empty():
            replies.append(self._replies.get())
        return Incoming([reply for reply in replies if isinstance(reply, Reply) and reply.sequence == -1])


def _serve(
    worker: int,
    rows: list[int],
    requests: queue.SimpleQueue[Request | _Sign],
    replies: queue.SimpleQueue[Reply | BaseException | _Sign],
) -> None:
    """Answers requests until `Close`; holds nothing that would keep the batch alive."""
    host = EnvHost(worker, rows, worker)
    while True:
        request = requests.get()
        replies.put(request if isinstance(request, _Sign) else host.handle(request))
        if isinstance(request, Close):
            return
