"""The engine: a batch of envs in workers, stepped as one. Faces are thin views of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shoal.backends import WorkerStart, make_backend
from shoal.engine.division import divide, in_order
from shoal.engine.exchange import Exchange, Pending
from shoal.engine.info_memory import InfoMemory
from shoal.engine.lifetime import Lifetime
from shoal.engine.memory import BatchMemory
from shoal.engine.options import Options, StateErrors, split
from shoal.engine.promise import Promise
from shoal.engine.readiness import Readiness
from shoal.engine.shutdown import close_backend
from shoal.engine.start import build
from shoal.engine.step_batch import StepBatch
from shoal.errors import ArgumentError, WorkerDiedError
from shoal.memory import Block
from shoal.worker import Autoreset, Call, Description, DriverFactory, Reply, Reset, Step
from shoal.worker.failures import raise_failures

Resolve = Callable[[list[Any]], Description]


class Engine(Lifetime):
    """Owns the workers, the memory and the state of one batch.

    Attributes:
        num_envs: `B`.
        num_workers: How many workers share them.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        driver_factory: DriverFactory,
        resolve: Resolve,
        options: Options,
        *,
        setups: Sequence[Callable[[], Any]] = (),
        preload: Sequence[str] = (),
        name: str = "Engine",
        state_errors: StateErrors | None = None,
    ) -> None:
        """Starts the workers and builds the envs; nothing is left running if that fails.

        Args:
            env_fns: Constructors of envs.
            driver_factory: Makes a driver from a constructor, beside the env.
            resolve: Takes every env's facts, raises if they cannot be one batch, and returns how their
                values travel.
            options: How to work.
            setups: Called in each worker before its envs are constructed.
            preload: Modules worth importing before workers are forked.
            name: What error messages call the batch.
            state_errors: Classes to raise for calls at the wrong moment.
        """
        self.num_envs = len(env_fns)
        if not self.num_envs:
            raise ArgumentError("env_fns is empty; give at least one function that constructs an env")
        self.num_workers = options.workers_for(self.num_envs)
        self._options = options
        self._rows = split(self.num_envs, self.num_workers)
        self._must_reset_ended = options.autoreset is Autoreset.DISABLED
        self._pending: Pending | None = None
        self._readiness = Readiness(self.num_envs)
        start = WorkerStart(
            num_workers=self.num_workers,
            start_method=options.start_method,
            num_threads=options.worker_threads,
            entropy=tuple(secrets.randbits(32) for _ in range(4)),
            preload=preload,
        )
        backend = make_backend(options.backend, start)
        super().__init__(name, state_errors or StateErrors(), backend, options.close_timeout)
        files = self._files
        try:
            self._exchange = Exchange(backend, self._rows, self._errors)
            self._submit = (
                partial(self._exchange.one_by_one, timeout=options.step_timeout)
                if options.blocking
                else self._exchange.broadcast
            )
            facts = build(backend, self._exchange, list(env_fns), self._rows, driver_factory, setups, options)
            self._description = resolve(facts)
            self._memory = BatchMemory(self._description, self._rows, options)
            files.extend(self._memory.files)
            self._infos = InfoMemory(self._rows, self._memory.num_blocks)
            files.append(self._infos)
            attached = self._exchange.prepare("attach")
            self._exchange.broadcast(attached, self._memory.attach())
            self._check(self._exchange.wait(attached, options.start_timeout))
        except BaseException:
            close_backend(backend, files, min(1.0, options.close_timeout))
            raise
        self._live()

    @property
    def worker_pids(self) -> list[int]:
        """Process id of each worker; this process's own where workers are no processes."""
        return list(self._backend.pids)

    def reset_async(
        self, seeds: Sequence[int | None], options: Sequence[Any], chosen: Sequence[bool] | np.ndarray | None = None
    ) -> None:
        """Starts resetting the envs.

        Args:
            seeds: One for each env.
            options: One for each env, handed to its `reset`; every env gets a copy.
            chosen: Which envs to reset, None for all; the others keep their last observation.

        Raises:
            StateError: Another call is pending, or an env that is left alone has nothing to show yet.
        """
        with self._lock:
            self._require_idle("reset")
            flags = [True] * self.num_envs if chosen is None else [bool(each) for each in chosen]
            self._readiness.check_reset(flags)
            block = self._memory.acquire() or self._wait_for_block()
            self._send("reset", Reset(0, block.index, seeds, options, flags), block)
            self._readiness.grant(row for row, is_chosen in enumerate(flags) if is_chosen)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Returns `(observations, infos)` of the reset that was started."""
        with self._lock:
            block, infos = self._finish_block("reset", timeout)
            observations, _ = self._memory.take_observations(block)
            return observations, infos

    def reset(
        self, seeds: Sequence[int | None], options: Sequence[Any], chosen: Sequence[bool] | np.ndarray | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the envs and waits for the results; see `reset_async`."""
        with self._lock:
            before = self._pending
            try:
                self.reset_async(seeds, options, chosen)
                return self.reset_wait()
            except BaseException:
                self._interrupted(before)
                raise

    def step_async(self, actions: Any) -> None:
        """Starts stepping every env.

        Args:
            actions: A batch of actions, `[B, ...]` each leaf; copied before this returns.

        Raises:
            MisfitError: The actions do not fit; nothing was sent.
            StateError: Another call is pending, or an env must be reset first.
        """
        with self._lock:
            self._start_step(actions)

    def step_wait(self, timeout: float | None = None) -> StepBatch:
        """Returns the results of the step that was started.

        Args:
            timeout: Seconds; None for the engine's `step_timeout`.

        Raises:
            StepTimeoutError: Not all envs have answered; wait again, or reset to give the step up.
            WorkerDiedError: A worker died.
            Exception: Whatever an env raised; the other envs have stepped.
        """
        with self._lock:
            return self._end_step(timeout)

    def step(self, actions: Any) -> StepBatch:
        """Steps every env and waits for the results."""
        with self._lock:
            before = self._pending
            try:
                self._start_step(actions)
                return self._end_step(None)
            except BaseException:
                self._interrupted(before)
                raise

    def call_async(
        self,
        call: Call,
        each: Sequence[tuple[Any, ...]] | None = None,
        *,
        rows: Sequence[int] | None = None,
        kind: str = "call",
    ) -> None:
        """Starts having something done with envs.

        Args:
            call: What, for all of them alike.
            each: Further arguments, one tuple for each of them.
            rows: Which envs, in any order; None for all. Only the workers that have them get a message.
            kind: What errors call the pending call.
        """
        with self._lock:
            self._require_idle(kind)
            if each is None and rows is None:
                self._send(kind, call)
            else:
                self._send(kind, divide(call, each, rows, self._rows), submit=self._exchange.submit, rows=rows)

    def call_wait(self, timeout: float | None = None, *, kind: str = "call") -> tuple[Any, ...]:
        """Returns the results, in the order of the rows that were asked for."""
        with self._lock:
            pending = self._pending
            _, replies = self._finish(kind, timeout)
            return in_order(replies, pending.rows if pending is not None else None, self._rows)

    def call(
        self,
        call: Call,
        each: Sequence[tuple[Any, ...]] | None = None,
        *,
        rows: Sequence[int] | None = None,
        kind: str = "call",
    ) -> tuple[Any, ...]:
        """Has something done with envs and returns the results; see `call_async`."""
        with self._lock:
            before = self._pending
            try:
                self.call_async(call, each, rows=rows, kind=kind)
                return self.call_wait(kind=kind)
            except BaseException:
                self._interrupted(before)
                raise

    def call_one(self, row: int, call: Call, timeout: float | None = None) -> Promise:
        """Starts having something done with one env, beside whatever else is pending; it takes its turn."""
        limit = self._options.step_timeout if timeout is None else timeout
        with self._lock:
            self.check_open()
            worker = next(worker for worker, (first, last) in enumerate(self._rows) if first <= row < last)
            pending = self._exchange.ask("call", worker, replace(call, rows=(row,)), limit)
        return Promise(self._wait_for, self._exchange.forget, pending)

    def _wait_for(self, pending: Pending, timeout: float | None) -> Any:
        with self._lock:
            self.check_open()
            (reply,) = self._exchange.wait(pending, self._options.step_timeout if timeout is None else timeout)
        if reply.failures:
            raise_failures(reply.failures)
        return reply.values[0]

    def make_ready(self, rows: Iterable[int]) -> None:
        """Lets envs be stepped: a call brings them into a state from which they can go on."""
        self._readiness.grant(rows)

    def _forget(self) -> None:
        self._pending = None

    def _start_step(self, actions: Any) -> None:
        if self._pending is not None or self._is_closed:
            self._require_idle("step")
        self._readiness.check_step()
        if self._infos.is_outgrown:
            self._infos.share(self._exchange)
        block = self._memory.acquire() or self._wait_for_block()
        self._memory.encode_actions(actions)
        self._send("step", Step(0, block.index), block)

    def _send(
        self,
        kind: str,
        request: Any,
        block: Block | None = None,
        submit: Callable[..., None] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Sends a request to all workers; one that Ctrl-C cut short stays pending until a reset gives it up."""
        workers = request if isinstance(request, dict) else None
        pending = self._pending = self._exchange.prepare(kind, block, workers)
        pending.rows = rows
        try:
            (submit or self._submit)(pending, request)
        except BaseException as error:
            if self._options.blocking and block is not None:
                self._readiness.refuse(range(self.num_envs), f"the last {kind} was not completed")
            if isinstance(error, Exception) or pending.is_abandoned:
                self._pending = None
            raise

    def _interrupted(self, before: Pending | None) -> None:
        """Lets the next reset give up what a call has begun: its halves were one, and its caller will not wait."""
        if self._pending is not None and self._pending is not before:
            self._pending.is_late = True

    def _end_step(self, timeout: float | None) -> StepBatch:
        pending = self._pending
        if pending is not None and pending.kind == "step" and self._exchange.all_done(pending):
            self._pending = None
            assert pending.block is not None
            return self._results(pending.block, self._infos.take(pending.block, pending.sequence))
        return self._results(*self._finish_block("step", timeout))

    def _results(self, block: Block, infos: dict[str, Any]) -> StepBatch:
        rewards, terminations, truncations = self._memory.take_scalars(block)
        if self._must_reset_ended:
            self._readiness.refuse_ended(terminations, truncations)
        observations, finals = self._memory.take_observations(block)
        return StepBatch(observations, rewards, terminations, truncations, infos, finals)

    def _require_idle(self, kind: str) -> None:
        self.check_open()
        pending = self._pending
        if pending is None:
            return
        if not (pending.is_late and kind == "reset"):
            method = kind if kind == "set_attr" or not self._errors.has_halves else f"{kind}_async"
            hint = f" {self._errors.way_out(pending.kind)}." if pending.is_late else ""
            raise self._errors.pending(
                f"Calling `{method}` while waiting for a pending call to `{pending.kind}` to complete.{hint}",
                pending.kind,
            )
        # Its deadline has passed and the caller asks for a new start, so its results are given up.
        self._exchange.abandon(pending)
        self._pending = None
        for worker in pending.awaiting:
            self._readiness.refuse(range(*self._rows[worker]), f"its last {pending.kind} was not waited for")

    def _finish_block(self, kind: str, timeout: float | None) -> tuple[Block, dict[str, Any]]:
        """Waits for the pending call of this kind, and returns its block and infos."""
        sequence = -1 if self._pending is None else self._pending.sequence
        block, replies = self._finish(kind, timeout)
        return block, self._infos.merge(block, sequence, replies)

    def _wait_for_block(self) -> Block:
        """Returns a block that a late worker has done with at last."""
        while (block := self._memory.acquire()) is None:
            self._exchange.settle(self._options.step_timeout)
        return block

    def _finish(self, kind: str, timeout: float | None) -> tuple[Block, list[Reply]]:
        """Waits for the pending call of this kind."""
        pending = self._pending
        if pending is None or pending.kind != kind:
            self.check_open()
            raise self._errors.no_pending(f"Calling `{kind}_wait` without any prior call to `{kind}_async`.", kind)
        try:
            replies = self._exchange.wait(pending, self._options.step_timeout if timeout is None else timeout)
        except WorkerDiedError:
            self._pending = None
            raise
        except BaseException:
            # Out of time or interrupted: it may be waited for again, or be given up by the next call.
            pending.is_late = True
            raise
        self._pending = None
        self._check(replies, pending)
        return pending.block, replies  # type: ignore[return-value]

    def _check(self, replies: list[Reply], pending: Pending | None = None) -> None:
        """Raises what went wrong beside an env, and notes which envs must be reset after it."""
        failures = [failure for reply in replies for failure in reply.failures]
        if not failures:
            return
        if self._must_reset_ended and pending is not None and pending.kind == "step" and pending.block is not None:
            # The caller will not see that other episodes have ended.
            self._readiness.refuse_ended(*self._memory.take_scalars(pending.block)[1:])
        if pending is not None and pending.kind in ("reset", "step"):
            for failure in failures:
                reason = f"its last {failure.doing} raised {type(failure.error).__name__}"
                self._readiness.refuse([failure.row], reason)
        raise_failures(failures)
