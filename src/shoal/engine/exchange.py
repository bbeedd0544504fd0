"""Requests on their way and the replies that are due, told apart by number and by nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal.backends import Backend, Death
from shoal.engine.options import StateErrors
from shoal.engine.supervision import describe_late, worker_died
from shoal.errors import StepTimeoutError, WorkerDiedError
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
        awaiting: Workers whose replies are due.
        block: Where its results go, None if they come with the replies.
        replies: Those that are there.
        died: The deaths of workers that will not reply any more.
        is_late: Whether a wait for it has timed out.
        is_abandoned: Whether nobody waits for it any more.
    """

    kind: str
    sequence: int
    awaiting: set[int]
    block: Block | None = None
    replies: list[Reply] = field(default_factory=list)
    died: list[WorkerDiedError] = field(default_factory=list)
    is_late: bool = False
    is_abandoned: bool = False

    @property
    def is_settled(self) -> bool:
        """Tells whether no reply is due any more."""
        return not self.awaiting


class Exchange:
    """Carries the engine's requests to the workers of a backend, and sorts what comes back.

    Attributes:
        dead: Workers that have died, with the error that says how.
        interrupted: A request that was being sent when Ctrl-C or the like came.
    """

    def __init__(self, backend: Backend, rows: Sequence[tuple[int, int]], wording: StateErrors) -> None:
        """Takes each worker's rows, last exclusive, and what the face calls things."""
        self.dead: dict[int, WorkerDiedError] = {}
        self.interrupted: Pending | None = None
        self._backend = backend
        self._rows = rows
        self._wording = wording
        self._everyone = range(len(rows))
        self._sequence = 0
        # All requests that have not been answered by all, or whose replies nobody has taken yet, by number.
        self._sent: dict[int, Pending] = {}

    def submit(self, kind: str, requests: Mapping[int, Request]) -> Pending:
        """Numbers the requests, all alike, and sends one to each of some workers.

        Raises:
            WorkerDiedError: One of them is known to be dead; nothing was sent.
        """
        for worker in self.dead.keys() & requests.keys():
            raise self.dead[worker]
        self._sequence += 1
        pending = self._sent[self._sequence] = Pending(kind, self._sequence, set(requests))
        try:
            for worker, request in requests.items():
                request.sequence = self._sequence
                self._backend.submit(worker, request)
        except BaseException:
            # Whoever has it will answer; nobody waits for that.
            self.abandon(pending)
            raise
        return pending

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
        return self.submit(kind, {worker: request})

    def forget(self, pending: Pending) -> None:
        """Stops keeping what comes in reply to a request that was asked."""
        pending.is_abandoned = True
        if pending.is_settled:
            self._sent.pop(pending.sequence, None)

    def broadcast(self, kind: str, request: Request, block: Block | None = None) -> Pending:
        """Numbers a request and sends it to all workers.

        Args:
            kind: What to call it.
            request: The request.
            block: Where the workers will write, None if nowhere.

        Raises:
            WorkerDiedError: One of them is known to be dead; nothing was sent.
        """
        if self.dead:
            raise next(iter(self.dead.values()))
        self._sequence += 1
        request.sequence = self._sequence
        pending = self._sent[self._sequence] = Pending(kind, self._sequence, set(self._everyone), block)
        if block is not None:
            # Not free until `wait` or `abandon` has seen to it.
            block.writers = len(self._rows)
        try:
            self._backend.broadcast(request)
        except Exception:
            # It could not be sent at all.
            self._sent.pop(pending.sequence, None)
            if block is not None:
                block.writers = 0
            raise
        except BaseException:
            # Interrupted, when some workers may have it: it is as if it had timed out.
            pending.is_late = True
            self.interrupted = pending
            raise
        return pending

    def one_by_one(
        self, kind: str, request: Request, block: Block | None = None, *, timeout: float | None = None
    ) -> Pending:
        """Sends a request to one worker after another, each once the one before it has replied.

        Raises:
            StepTimeoutError, WorkerDiedError: As `wait` does. The request is given up, and the workers that
                come after have not been asked.
        """
        if self.dead:
            raise next(iter(self.dead.values()))
        self._sequence += 1
        request.sequence = self._sequence
        pending = self._sent[self._sequence] = Pending(kind, self._sequence, set(), block)
        try:
            for worker in self._everyone:
                pending.awaiting.add(worker)
                self._backend.submit(worker, request)
                self._gather(pending, timeout)
        except BaseException:
            self.abandon(pending)
            raise
        return pending

    def all_done(self, pending: Pending) -> bool:
        """Waits a moment for all workers to have done what they were asked without a word; returns whether so."""
        if len(pending.awaiting) < len(self._everyone) or not self._backend.all_done(pending.sequence):
            return False
        self._sent.pop(pending.sequence, None)
        for worker in pending.awaiting if self._sent else ():
            self._settle_before(pending.sequence, worker)
        pending.awaiting.clear()
        if pending.block is not None:
            pending.block.writers = 0
        return True

    def wait(self, pending: Pending, timeout: float | None, *, stop_at_failure: bool = False) -> list[Reply]:
        """Waits for all replies, or for the first with a failure, and returns them in the order of workers.

        Raises:
            StepTimeoutError: Some are still due; the request stays pending.
            WorkerDiedError: A worker has died over it; replies that are still due will be dropped.
        """
        self._gather(pending, timeout, stop_at_failure=stop_at_failure)
        self._sent.pop(pending.sequence, None)
        if pending.block is not None:
            pending.block.writers = 0
        pending.replies.sort(key=_worker_of)
        return pending.replies

    def _gather(self, pending: Pending, timeout: float | None, *, stop_at_failure: bool = False) -> None:
        """Waits until no reply is due; raises as `wait` does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        awaiting = pending.awaiting
        while awaiting:
            known = len(pending.died)
            self._collect(1 if stop_at_failure else len(awaiting), deadline)
            if stop_at_failure and any(reply.failures for reply in pending.replies):
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
            first, *others = pending.died
            if others:
                first.args = ("\n".join(str(error) for error in pending.died),)
            raise first

    def abandon(self, pending: Pending) -> None:
        """Stops waiting for a request; late replies to it will be recognised and dropped."""
        pending.is_abandoned = True
        if pending.block is not None:
            pending.block.writers = len(pending.awaiting)
        if not pending.awaiting:
            self._sent.pop(pending.sequence, None)

    def settle(self, timeout: float | None) -> None:
        """Waits for a late reply to a request that nobody waits for; raises `StepTimeoutError`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        late = next(each for each in self._sent.values() if each.is_abandoned)
        self._collect(1, deadline)
        if late.awaiting and deadline is not None and time.monotonic() >= deadline:
            raise self._lateness(late, timeout)

    def _collect(self, count: int, deadline: float | None) -> None:
        """Waits for so many replies or a death, and puts each where it belongs."""
        incoming = self._backend.collect(count, deadline)
        for reply in incoming.replies:
            self._file(reply)
        for death in incoming.deaths:
            self._bury(death)

    def _file(self, reply: Reply) -> None:
        """Puts a reply to the request that it answers, which need not be the one that is being waited for."""
        if len(self._sent) > 1:
            self._settle_before(reply.sequence, reply.worker)
        pending = self._sent.get(reply.sequence)
        if pending is not None:
            if not pending.is_abandoned:
                pending.replies.append(reply)
            self._release(pending, reply.worker)

    def _settle_before(self, sequence: int, worker: int) -> None:
        """Takes note that a worker, which answers in order, has done with all that it was asked earlier."""
        for other in list(self._sent.values()):
            if other.sequence < sequence:
                self._release(other, worker)

    def _release(self, pending: Pending, worker: int) -> None:
        """Takes note that a worker has done with a request."""
        if worker not in pending.awaiting:
            return
        pending.awaiting.discard(worker)
        if pending.is_abandoned:
            if pending.block is not None:
                pending.block.writers -= 1
            if not pending.awaiting:
                self._sent.pop(pending.sequence, None)

    def _bury(self, death: Death) -> None:
        """Takes note of a death, and of the requests that the worker will not answer any more."""
        asked = [each for each in list(self._sent.values()) if death.worker in each.awaiting]
        doing = next((each.kind for each in asked if not each.is_abandoned), "")
        error = worker_died(death, self._rows[death.worker], doing)
        self.dead[death.worker] = error
        for pending in asked:
            pending.died.append(error)
            self._release(pending, death.worker)

    def _lateness(self, pending: Pending, timeout: float | None) -> StepTimeoutError:
        rows = [(worker, self._rows[worker], self._backend.current_row(worker)) for worker in sorted(pending.awaiting)]
        late, wording = describe_late(rows), self._wording
        return StepTimeoutError(
            f"The call to `{wording.waiting(pending.kind)}` has timed out after {timeout} second(s). No answer from "
            f"{late}. {wording.way_out(pending.kind)}; an env that never returns ends only with `close`.",
            late,
        )


def _worker_of(reply: Reply) -> int:
    return reply.worker
