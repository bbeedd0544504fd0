"""The thread backend: each host in a thread of this process; for envs that release the GIL."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.backends.backend import Incoming, WorkerStart
from shoal.worker import Close, EnvHost, Reply, Request


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
        self._requests: list[queue.SimpleQueue[Request]] = [queue.SimpleQueue() for _ in self.pids]
        self._replies: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
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
        self._requests[worker].put(request)

    def broadcast(self, request: Request) -> None:
        """Sends the request to every worker."""
        for worker in range(len(self.pids)):
            self.submit(worker, request)

    def all_done(self, sequence: int) -> bool:
        """Leaves it to `collect`, which costs next to nothing here."""
        return False

    def collect(self, count: int, deadline: float | None) -> Incoming:
        """Waits for `count` replies, or for the deadline."""
        replies: list[Reply] = []
        while len(replies) < count:
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                reply = self._replies.get(timeout=timeout)
            except queue.Empty:
                break
            if isinstance(reply, BaseException):
                raise reply
            replies.append(reply)
        return Incoming(replies)

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
        replies: list[Reply | BaseException] = []
        while not self._replies.empty():
            replies.append(self._replies.get())
        return Incoming([reply for reply in replies if isinstance(reply, Reply) and reply.sequence == -1])


def _serve(
    worker: int,
    rows: list[int],
    requests: queue.SimpleQueue[Request],
    replies: queue.SimpleQueue[Reply | BaseException],
) -> None:
    """Answers requests until `Close`; holds nothing that would keep the batch alive."""
    host = EnvHost(worker, rows, worker)
    while True:
        request = requests.get()
        replies.put(host.handle(request))
        if isinstance(request, Close):
            return
