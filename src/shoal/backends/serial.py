"""The serial backend: hosts in the caller's own thread, called as requests are collected."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shoal.backends.backend import Death, Incoming, WorkerStart
from shoal.worker import Close, EnvHost, Reply, Request


class SerialBackend:
    """Answers a request when its reply is asked for.

    Attributes:
        pids: This process's id, once for each worker.
    """

    def __init__(self, start: WorkerStart) -> None:
        """Makes the hosts."""
        self.pids = [os.getpid()] * start.num_workers
        self._hosts = [EnvHost(worker) for worker in range(start.num_workers)]
        self._requests: deque[tuple[int, Request]] = deque()
        self._replies: deque[Reply] = deque()
        self._is_open = True

    def start(self, worker: int, deadline: float | None) -> None:
        """Does nothing: a host needs no starting."""

    def check_functions(self, functions: list[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Returns them as they are: they are called here."""
        return functions

    def submit(self, worker: int, request: Request) -> None:
        """Keeps the request until it is collected."""
        self._requests.append((worker, request))

    def broadcast(self, request: Request) -> None:
        """Sends the request to every worker."""
        for worker in range(len(self.pids)):
            self.submit(worker, request)

    def all_done(self, sequence: int) -> bool:
        """Leaves it to `collect`, which costs next to nothing here."""
        return False

    def take_done(self) -> None:
        """Does nothing: `all_done` finds nothing."""

    def collect(
        self, count: int, deadline: float | None, file: Callable[[Reply], None], bury: Callable[[Death], None]
    ) -> bool:
        """Answers requests in order; a deadline cannot interrupt the env that is being called."""
        filed = 0
        while (self._replies or self._requests) and filed < count:
            if not self._replies:
                worker, request = self._requests.popleft()
                # By way of `map`, so that no interrupt comes between an answer and its place.
                self._replies.extend(map(self._hosts[worker].handle, (request,)))
            file(self._replies[0])
            self._replies.popleft()
            filed += 1
        return filed > 0 or bool(self._requests)

    def current_row(self, worker: int) -> int | None:
        """Returns None: nothing goes on while the caller looks."""
        return None

    def abandon(self) -> None:
        """Does nothing: what a copy of an env should let go of is not known."""

    def interrupt(self, error: BaseException) -> None:
        """Does nothing: the env that is being called cannot be interrupted."""

    def close(self, timeout: float, *, ask: bool) -> Incoming:
        """Closes the envs."""
        if not self._is_open:
            return Incoming()
        self._is_open = False
        self._requests.clear()
        return Incoming([host.handle(Close(0)) for host in self._hosts])
