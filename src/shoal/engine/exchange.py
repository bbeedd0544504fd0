"""Requests on their way and the replies that are due, told apart by number and by nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.backends import Backend, Death
from shoal.engine.options import StateErrors
from shoal.engine.supervision import describe_late, worker_died
from shoal.errors import StateError, StepTimeoutError, WorkerDiedError
from shoal.memory import Block
from shoal.worker import Reply, Request

# How long the other workers may take to finish once one has died, so that the news is not held back.
_SIBLING_GRACE = 0.5  # seconds
# How many requests of `ask` may be on their way to one worker.
_MOST_ASKED = 32


@dataclass(slots=True)
class Pending:
    """One request to some or all workers that has not been answered by all.

    Attributes:
        kind: `"reset"`, `"step"`, `"call"`, ...
        sequence: Its number.
        awaiting: Workers whose replies are due; never another set, since its block has it too.
        block: Where its results go, None if they come with the replies.
        replies: Those that are there, by worker.
        died: The deaths of workers that will not reply any more, by worker.
        is_late: Whether a wait for it has timed out, or it was interrupted, so that it may be given up.
        is_abandoned: Whether nobody waits for it any more.
        is_broken: Whether an interrupt has kept it from some workers, so that they will not reply.
        rows: Which envs it is about, in the order of the caller; None for all.
    """

    kind: str
    sequence: int
    awaiting: set[int]
    block: Block | None = None
    replies: dict[int, Reply] = field(default_factory=dict)
    died: dict[int, WorkerDiedError] = field(default_factory=dict)
    is_late: bool = False
    is_abandoned: bool = False
    is_broken: bool = False
    rows: Sequence[int] | None = None

    @property
    def is_settled(self) -> bool:
        """Tells whether no reply is due any more."""
        return not self.awaiting


class Exchange:
    """Carries the engine's requests to the workers of a backend, and sorts what comes back.

    Attributes:
        dead: Workers that have died, with the error that says how.
    """

    def __init__(self, backend: Backend, rows: Sequence[tuple[int, int]], wording: StateErrors) -> None:
        """Takes each worker's rows, last exclusive, and what the face calls things."""
        self.dead: dict[int, WorkerDiedError] = {}
        self._backend = backend
        self._rows = rows
        self._wording = wording
        self._everyone = range(len(rows))
        self._sequence = 0
        # All requests that have not been answered by all, or whose replies nobody has taken yet, by number.
        self._sent: dict[int, Pending] = {}

    def prepare(self, kind: str, block: Block | None = None, workers: Iterable[int] | None = None) -> Pending:
        """Numbers a request that is about to be sent, so that the caller has it whatever interrupts the sending.

        Args:
            kind: What to call it.
            block: Where the workers will write, None if nowhere.
            workers: Who is to get it, None for all.
        """
        self._sequence += 1
        # Late until it has been sent: an interrupt may keep it from some.
        awaiting = set(self._everyone if workers is None else workers)
        return Pending(kind, self._sequence, awaiting, block, is_late=True)

    def submit(self, pending: Pending, requests: Mapping[int, Request]) -> None:
        """Sends requests, all alike, one to each of some workers.

        Raises:
            WorkerDiedError: One of them is known to be dead; nothing was sent.
        """
        for worker in self.dead.keys() & requests.keys():
            raise self.dead[worker]
        self._sent[pending.sequence] = pending
        try:
            for worker, request in requests.items():
                request.sequence = pending.sequence
                self._backend.submit(worker, request)
        except BaseException:
            # Whoever has it will answer; nobody waits for that.
            self.abandon(pending)
            raise
        pending.is_late = False

    def ask(self, kind: str, worker: int, request: Request, timeout: float | None) -> Pending:
        """Sends a request to one worker, to be waited for some time, whatever else is sent before.

        Raises:
            StepTimeoutError: The worker has many to answer, and has not answered one in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while len(asked := [each for each in list(self._sent.values()) if worker in each.awaiting]) >= _MOST_ASKED:
            self._collect(1, deadline)
            if deadline is not None and time.monotonic() >= deadline:
                raise self._lateness(asked[0], timeout)
        pending = self.prepare(kind, workers=(worker,))
        self.submit(pending, {worker: request})
        return pending

    def forget(self, pending: Pending) -> None:
        """Stops keeping what comes in reply to a request that was asked."""
        pending.is_abandoned = True
        if pending.is_settled:
            self._sent.pop(pending.sequence, None)

    def broadcast(self, pending: Pending, request: Request) -> None:
        """Sends a request to all workers.

        Raises:
            WorkerDiedError: One of them is known to be dead; nothing was sent.
            Exception: It cannot be sent at all. What is no `Exception`, such as Ctrl-C, may come when some workers
                have it: then it is as if it had timed out.
        """
        self._begin(pending, request)
        try:
            self._backend.broadcast(request)
        except Exception:
            pending.awaiting.clear()
            self._sent.pop(pending.sequence, None)
            raise
        pending.is_late = False

    def one_by_one(self, pending: Pending, request: Request, *, timeout: float | None = None) -> None:
        """Sends a request to one worker after another, each once the one before it has replied.

        Raises:
            StepTimeoutError, WorkerDiedError: As `wait` does. The request is given up, and the workers that
                come after have not been asked.
        """
        pending.awaiting.clear()
        self._begin(pending, request)
        try:
            for worker in self._everyone:
                pending.awaiting.add(worker)
                self._backend.submit(worker, request)
                self._gather(pending, timeout)
        except BaseException:
            self.abandon(pending)
            raise
        pending.is_late = False

    def _begin(self, pending: Pending, request: Request) -> None:
        if self.dead:
            raise next(iter(self.dead.values()))
        request.sequence = pending.sequence
        self._sent[pending.sequence] = pending
        if pending.block is not None:
            pending.block.writers = pending.awaiting

    def all_done(self, pending: Pending) -> bool:
        """Waits a moment for all workers to have done what they were asked without a word; returns whether so."""
        if len(pending.awaiting) < len(self._everyone) or not self._backend.all_done(pending.sequence):
            return False
        # Noted first and then taken, so that an interrupt leaves at most replies that nobody waits for.
        pending.awaiting.clear()
        self._sent.pop(pending.sequence, None)
        for worker in self._everyone if self._sent else ():
            self._settle_before(pending.sequence, worker)
        self._backend.take_done()
        return True

    def wait(self, pending: Pending, timeout: float | None, *, stop_at_failure: bool = False) -> list[Reply]:
        """Waits for all replies, or for the first with a failure, and returns them in the order of workers.

        Raises:
            StepTimeoutError: Some are still due; the request stays pending.
            WorkerDiedError: A worker has died over it; replies that are still due will be dropped.
        """
        self._gather(pending, timeout, stop_at_failure=stop_at_failure)
        self._sent.pop(pending.sequence, None)
        return [reply for _, reply in sorted(pending.replies.items())]

    def _gather(self, pending: Pending, timeout: float | None, *, stop_at_failure: bool = False) -> None:
        """Waits until no reply is due; raises as `wait` does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        awaiting = pending.awaiting
        while awaiting:
            known = len(pending.died)
            self._collect(1 if stop_at_failure else len(awaiting), deadline)
            if stop_at_failure and any(reply.failures for reply in pending.replies.values()):
                return
            if len(pending.died) > known:
                grace = time.monotonic() + _SIBLING_GRACE
                deadline = grace if deadline is None else min(deadline, grace)
            if awaiting and deadline is not None and time.monotonic() >= deadline:
                if pending.died:
                    break
                pending.is_late = True
                raise self._lateness(pending, timeout)
        if pending.died:
            self.abandon(pending)
            first, *others = pending.died.values()
            if others:
                first.args = ("\n".join(str(error) for error in pending.died.values()),)
            raise first
        if pending.is_broken:
            self.abandon(pending)
            raise StateError(
                f"the call to `{pending.kind}` was interrupted before all workers had it, so it cannot be completed. "
                "Reset all envs."
            )

    def abandon(self, pending: Pending) -> None:
        """Stops waiting for a request; late replies to it will be recognised and dropped."""
        pending.is_abandoned = True
        if not pending.awaiting:
            self._sent.pop(pending.sequence, None)

    def settle(self, timeout: float | None) -> None:
        """Waits for a late reply to a request that nobody waits for; raises `StepTimeoutError`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        late = next((each for each in self._sent.values() if each.awaiting and each.block is not None), None)
        assert late is not None, "no worker writes to a block, and none is free"
        self._collect(1, deadline)
        if late.awaiting and deadline is not None and time.monotonic() >= deadline:
            raise self._lateness(late, timeout)

    def _collect(self, count: int, deadline: float | None) -> None:
        """Waits for so many replies or a death, and puts each where it belongs."""
        if not self._backend.collect(count, deadline, self._file, self._bury):
            # Whoever is still awaited has never been asked.
            for pending in list(self._sent.values()):
                for worker in list(pending.awaiting):
                    self._break(pending, worker)

    def _file(self, reply: Reply) -> None:
        """Puts a reply to the request that it answers, which need not be the one that is being waited for.

        The second time, after an interrupt, nothing happens.
        """
        if len(self._sent) > 1:
            self._settle_before(reply.sequence, reply.worker)
        pending = self._sent.get(reply.sequence)
        if pending is not None and reply.worker in pending.awaiting:
            if not pending.is_abandoned:
                pending.replies[reply.worker] = reply
            self._release(pending, reply.worker)

    def _settle_before(self, sequence: int, worker: int) -> None:
        """Takes note that a worker, which answers in order, will answer nothing any more that it was asked earlier."""
        for other in list(self._sent.values()):
            if other.sequence < sequence and worker in other.awaiting:
                self._break(other, worker)

    def _break(self, pending: Pending, worker: int) -> None:
        """Takes note that a worker has never got a request: the interrupt came before."""
        pending.is_broken = True
        self._release(pending, worker)

    def _release(self, pending: Pending, worker: int) -> None:
        """Takes note that a worker has done with a request."""
        pending.awaiting.discard(worker)
        if pending.is_abandoned and not pending.awaiting:
            self._sent.pop(pending.sequence, None)

    def _bury(self, death: Death) -> None:
        """Takes note of a death, and of the requests that the worker will not answer any more."""
        asked = [each for each in list(self._sent.values()) if death.worker in each.awaiting]
        doing = next((each.kind for each in asked if not each.is_abandoned), "")
        error = self.dead.setdefault(death.worker, worker_died(death, self._rows[death.worker], doing))
        for pending in asked:
            pending.died[death.worker] = error
            self._release(pending, death.worker)

    def _lateness(self, pending: Pending, timeout: float | None) -> StepTimeoutError:
        rows = [(worker, self._rows[worker], self._backend.current_row(worker)) for worker in sorted(pending.awaiting)]
        late, wording = describe_late(rows), self._wording
        return StepTimeoutError(
            f"The call to `{wording.waiting(pending.kind)}` has timed out after {timeout} second(s). No answer from "
            f"{late}. {wording.way_out(pending.kind)}; an env that never returns ends only with `close`.",
            late,
        )
