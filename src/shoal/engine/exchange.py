"""Requests on their way and the replies that are due, told apart by number and by nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal.backends import Backend, Death
from shoal.engine.supervision import describe_late, worker_died
from shoal.errors import StepTimeoutError, WorkerDiedError
from shoal.memory import Block
from shoal.worker import Reply, Request

# How long the other workers may take to finish once one has died, so that the news is not held back.
_SIBLING_GRACE = 0.5  # seconds


@dataclass(slots=True)
class Pending:
    """One request to all workers that has not been answered by all.

    Attributes:
        kind: `"reset"`, `"step"`, `"call"`, ...
        sequence: Its number.
        awaiting: Workers whose replies are due.
        block: Where its results go, None if they come with the replies.
        replies: Those that are there.
        is_late: Whether a wait for it has timed out.
    """

    kind: str
    sequence: int
    awaiting: set[int]
    block: Block | None = None
    replies: list[Reply] = field(default_factory=list)
    is_late: bool = False


class Exchange:
    """Carries the engine's requests to the workers of a backend, and sorts what comes back.

    Attributes:
        dead: Workers that have died, with the error that says how.
        interrupted: A request that was being sent when Ctrl-C or the like came.
    """

    def __init__(self, backend: Backend, rows: Sequence[tuple[int, int]]) -> None:
        """Takes each worker's rows, last exclusive."""
        self.dead: dict[int, WorkerDiedError] = {}
        self.interrupted: Pending | None = None
        self._backend = backend
        self._rows = rows
        self._everyone = range(len(rows))
        self._sequence = 0
        # Requests that nobody waits for any more; their replies must still be told apart from others'.
        self._stragglers: dict[int, Pending] = {}

    def submit(self, kind: str, requests: Mapping[int, Request]) -> Pending:
        """Numbers the requests, all alike, and sends one to each of some workers.

        Raises:
            WorkerDiedError: One of them is known to be dead; nothing was sent.
        """
        for worker in self.dead.keys() & requests.keys():
            raise self.dead[worker]
        self._sequence += 1
        for worker, request in requests.items():
            request.sequence = self._sequence
            self._backend.submit(worker, request)
        return Pending(kind, self._sequence, set(requests))

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
        pending = Pending(kind, self._sequence, set(self._everyone), block)
        if block is not None:
            # Not free until `wait` or `abandon` has seen to it.
            block.writers = len(self._rows)
        try:
            self._backend.broadcast(request)
        except Exception:
            # It could not be sent at all.
            if block is not None:
                block.writers = 0
            raise
        except BaseException:
            # Interrupted, when some workers may have it: it is as if it had timed out.
            pending.is_late = True
            self.interrupted = pending
            raise
        return pending

    def all_done(self, pending: Pending) -> bool:
        """Waits a moment for all workers to have done what they were asked without a word; returns whether so."""
        if len(pending.awaiting) < len(self._everyone) or not self._backend.all_done(pending.sequence):
            return False
        for worker in pending.awaiting if self._stragglers else ():
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
        deadline = None if timeout is None else time.monotonic() + timeout
        died: list[WorkerDiedError] = []
        awaiting, replies = pending.awaiting, pending.replies
        while awaiting:
            incoming = self._backend.collect(1 if stop_at_failure else len(awaiting), deadline)
            for reply in incoming.replies:
                if self._stragglers:
                    self._settle_before(reply.sequence, reply.worker)
                if reply.sequence == pending.sequence:
                    awaiting.discard(reply.worker)
                    replies.append(reply)
                else:
                    self._drop(reply)
            if stop_at_failure and any(reply.failures for reply in replies):
                break
            for death in incoming.deaths:
                error = self._bury(death, pending)
                if death.worker in awaiting:
                    died.append(error)
                    awaiting.discard(death.worker)
                    grace = time.monotonic() + _SIBLING_GRACE
                    deadline = grace if deadline is None else min(deadline, grace)
            if awaiting and deadline is not None and time.monotonic() >= deadline:
                if died:
                    break
                pending.is_late = True
                raise StepTimeoutError(self._lateness(pending, timeout))
        if died:
            self.abandon(pending)
            first, *others = died
            if others:
                first.args = ("\n".join(str(error) for error in died),)
            raise first
        if pending.block is not None:
            pending.block.writers = 0
        replies.sort(key=_worker_of)
        return replies

    def abandon(self, pending: Pending) -> None:
        """Stops waiting for a request; late replies to it will be recognised and dropped."""
        if pending.block is not None:
            pending.block.writers = len(pending.awaiting)
        if pending.awaiting:
            self._stragglers[pending.sequence] = pending

    def settle(self, timeout: float | None) -> None:
        """Waits for a late reply to a request that nobody waits for; raises `StepTimeoutError`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        late = next(iter(self._stragglers.values()))
        incoming = self._backend.collect(1, deadline)
        for reply in incoming.replies:
            self._drop(reply)
        for death in incoming.deaths:
            self._bury(death, late)
        if late.awaiting and deadline is not None and time.monotonic() >= deadline:
            raise StepTimeoutError(self._lateness(late, timeout))

    def _drop(self, reply: Reply) -> None:
        """Takes note that a reply has come which nobody waits for."""
        pending = self._stragglers.get(reply.sequence)
        if pending is not None:
            self._release(pending, reply.worker)

    def _settle_before(self, sequence: int, worker: int) -> None:
        """Takes note that a worker, which answers in order, has done with all that it was asked earlier."""
        for straggler in list(self._stragglers.values()):
            if straggler.sequence < sequence:
                self._release(straggler, worker)

    def _release(self, straggler: Pending, worker: int) -> None:
        """Takes note that a worker has done with a request that nobody waits for."""
        if worker in straggler.awaiting:
            straggler.awaiting.discard(worker)
            if straggler.block is not None:
                straggler.block.writers -= 1
            if not straggler.awaiting:
                del self._stragglers[straggler.sequence]

    def _bury(self, death: Death, current: Pending) -> WorkerDiedError:
        was_busy = death.worker in current.awaiting
        error = worker_died(death, self._rows[death.worker], current.kind if was_busy else "")
        self.dead[death.worker] = error
        for straggler in list(self._stragglers.values()):
            self._release(straggler, death.worker)
        return error

    def _lateness(self, pending: Pending, timeout: float | None) -> str:
        late = [(worker, self._rows[worker], self._backend.current_row(worker)) for worker in sorted(pending.awaiting)]
        return (
            f"The call to `{pending.kind}_wait` has timed out after {timeout} second(s). "
            f"No answer from {describe_late(late)}. Wait for it again with `{pending.kind}_wait`, or give it up with "
            "`reset`; an env that never returns ends only with `close`."
        )


def _worker_of(reply: Reply) -> int:
    return reply.worker
