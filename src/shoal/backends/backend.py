"""What every backend offers the engine; a backend only carries requests and replies."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from shoal.errors import ArgumentError
from shoal.worker.messages import Reply, Request


@dataclass(frozen=True)
class WorkerStart:
    """How the engine wants its workers started.

    Attributes:
        num_workers: How many.
        start_method: `"forkserver"`, `"spawn"` or `"fork"`; only processes have one.
        num_threads: Cap on library threads in a worker; None for one unless the user's environment says more.
        entropy: Seeds the workers' global random generators, each differently.
        preload: Modules that the process which forks workers imports beforehand.
        longest_watch_ns: How long a waiting process watches at most before it sleeps; None to choose.
    """

    num_workers: int
    start_method: str = "forkserver"
    num_threads: int | None = None
    entropy: Sequence[int] = (0,)
    preload: Sequence[str] = ()
    longest_watch_ns: int | None = None


@dataclass(frozen=True)
class Death:
    """A worker is gone.

    Attributes:
        worker: Which.
        pid: Its process id.
        exit_code: As `subprocess` gives it: negative for a signal, None if unknown.
        row: The row it was at, None if it was at none.
    """

    worker: int
    pid: int
    exit_code: int | None
    row: int | None


@dataclass(slots=True)
class Incoming:
    """What the workers have sent last, and who is gone.

    Attributes:
        replies: In the order they came.
        deaths: Workers that are gone.
    """

    replies: list[Reply] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)


class Backend(Protocol):
    """Reaches the workers of one batch.

    Attributes:
        pids: Process id of each worker.
    """

    pids: list[int]

    def start(self, worker: int, deadline: float | None) -> None:
        """Starts one worker; raises `StartError`."""

    def check_functions(self, functions: list[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Returns the constructors as this backend sends them; raises `ArgumentTypeError` where it cannot."""

    def submit(self, worker: int, request: Request) -> None:
        """Sends one request to a worker; does not wait for the reply."""

    def broadcast(self, request: Request) -> None:
        """Sends one request to every worker."""

    def all_done(self, sequence: int) -> bool:
        """Waits a moment for the usual outcome of a step: every worker has done it and has nothing to say.

        Returns:
            Whether that is so; then `take_done` takes it off. Otherwise `collect` is to be called.
        """

    def take_done(self) -> None:
        """Takes off the replies that `all_done` has found."""

    def collect(
        self, count: int, deadline: float | None, file: Callable[[Reply], None], bury: Callable[[Death], None]
    ) -> bool:
        """Waits until `count` replies are there, a worker dies, or the deadline (`time.monotonic`) has passed.

        Args:
            count: How many replies to wait for.
            deadline: When to give up, None for never.
            file: Takes each reply in the order of a worker's requests, before it is taken off: after an interrupt
                the same one may come again, and none is lost.
            bury: Takes each death, and may get it again, too.

        Returns:
            False if nothing has come because no worker has anything to answer.
        """

    def current_row(self, worker: int) -> int | None:
        """Returns the row that a worker is working on, None if it is at none."""

    def abandon(self) -> None:
        """Lets go of this process's copies of everything, in a process that was forked from the batch's own."""

    def interrupt(self, error: BaseException) -> None:
        """Has the thread that waits in `collect` raise the error, since another is about to close."""

    def close(self, timeout: float, *, ask: bool) -> Incoming:
        """Ends all workers within about the timeout, politely first if `ask`; idempotent.

        Returns:
            The workers' last replies, and who died over closing.
        """


BACKENDS = {
    "serial": "shoal.backends.serial:SerialBackend",
    "thread": "shoal.backends.thread:ThreadBackend",
    "process": "shoal.backends.process:ProcessBackend",
}


def make_backend(name: str, start: WorkerStart) -> Backend:
    """Returns a new backend of that name.

    Raises:
        ArgumentError: There is none.
    """
    if name not in BACKENDS:
        raise ArgumentError(f"backend={name!r} is unknown; use one of {', '.join(map(repr, BACKENDS))}")
    module, _, attribute = BACKENDS[name].partition(":")
    return cast("Backend", getattr(importlib.import_module(module), attribute)(start))
