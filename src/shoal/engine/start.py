"""Starts the workers of a batch and has them build its envs; all of them, or none is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.backends import Backend
from shoal.engine.exchange import Exchange
from shoal.engine.options import Options
from shoal.errors import ArgumentError, StartTimeoutError, StepTimeoutError
from shoal.worker import Build, DriverFactory
from shoal.worker.failures import raise_failures
from shoal.worker.messages import Built


def build(
    backend: Backend,
    exchange: Exchange,
    env_fns: list[Callable[[], Any]],
    rows: Sequence[tuple[int, int]],
    driver_factory: DriverFactory,
    setups: Sequence[Callable[[], Any]],
    options: Options,
) -> list[Any]:
    """Starts every worker, builds every env, and returns each env's facts in the order of rows.

    Raises:
        StartTimeoutError: Not everything was built in time.
        StartError: A worker could not be started.
        WorkerDiedError: A worker died over it.
        ArgumentError: Two constructors have returned the same env.
        Exception: Whatever a constructor raised.
    """
    functions = backend.check_functions(env_fns)
    deadline = None if options.start_timeout is None else time.monotonic() + options.start_timeout
    if options.worker_init is not None:
        setups = [*setups, options.worker_init]

    def request(worker: int) -> Build:
        first, last = rows[worker]
        return Build(0, first, functions[first:last], driver_factory, setups, options.autoreset, options.infos)

    built: list[Built] = []
    workers = range(len(rows))
    # Processes get ready beside each other in any case; it is envs that are constructed one after another.
    for worker in workers:
        backend.start(worker, deadline)
    for group in [[worker] for worker in workers] if options.start_serially else [list(workers)]:
        # One request a worker, so that the first failure is heard while the others are still at it.
        pending = exchange.prepare("constructor", workers=group)
        exchange.submit(pending, {worker: request(worker) for worker in group})
        try:
            replies = exchange.wait(pending, _remaining(deadline), stop_at_failure=True)
        except StepTimeoutError as error:
            raise StartTimeoutError(
                f"not all envs were built within start_timeout={options.start_timeout} seconds. No answer from "
                f"{error.late}. Give them more time with start_timeout=, or None for no limit."
            ) from None
        failures = [failure for reply in replies for failure in reply.failures]
        if failures:
            raise_failures(failures)
        for reply in replies:
            built += reply.values
    _refuse_shared_envs(built)
    return [own.facts for own in built]


def _refuse_shared_envs(built: list[Built]) -> None:
    """Raises if two constructors have returned the same env object, which cannot be two rows at once."""
    first_row: dict[tuple[int, int], int] = {}
    for row, own in enumerate(built):
        other = first_row.setdefault(own.identity, row)
        if other != row:
            raise ArgumentError(
                f"env_fns[{other}] and env_fns[{row}] return the same env object; each must construct an env of its "
                "own: [lambda: make_env() for _ in range(n)]"
            )


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
