"""What the user is told when a worker dies or does not answer."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from shoal.backends import Death
from shoal.errors import WorkerDiedError

_LIKELY_CAUSES = {
    signal.SIGKILL: "killed from outside, by hand or by the system because memory ran out",
    signal.SIGSEGV: "a crash in native code of the env or a library it uses",
    signal.SIGBUS: "a crash in native code, or shared memory that could not be had",
    signal.SIGABRT: "native code of the env or a library it uses gave up",
    signal.SIGFPE: "an arithmetic fault in native code of the env or a library it uses",
    signal.SIGILL: "a library that was built for another processor",
    signal.SIGTERM: "told to end from outside",
}


def describe_exit(code: int | None) -> str:
    """Returns how a process ended, and what usually does that."""
    if code is None:
        return "its exit code could not be learnt"
    if code >= 0:
        return f"exit code {code}; the env or a library it uses has ended the process"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"killed by signal {-code}"
    return f"{number.name}; {_LIKELY_CAUSES.get(number, 'a signal from outside')}"


def worker_died(death: Death, rows: tuple[int, int], doing: str) -> WorkerDiedError:
    """Returns the error for a dead worker.

    Args:
        death: What is known.
        rows: The worker's rows, last exclusive.
        doing: The request it was working on, or `""` for none.
    """
    first, last = rows
    envs = f"env {first}" if last - first == 1 else f"envs {first} to {last - 1}"
    at = f" in {doing} of env {death.row}" if doing and death.row is not None else f" in {doing}" if doing else ""
    return WorkerDiedError(
        f"worker {death.worker} ({envs}, pid {death.pid}) died{at}: {describe_exit(death.exit_code)}. "
        "Its envs are lost; close the batch and make a new one.",
        worker=death.worker,
        env_indices=range(first, last),
        pid=death.pid,
        exit_code=death.exit_code,
    )


def describe_late(workers: Sequence[tuple[int, tuple[int, int], int | None]]) -> str:
    """Returns which envs have not answered.

    Args:
        workers: For each late worker its number, its rows, and the row it is at, None if at none.
    """
    late = []
    for worker, (first, last), row in workers:
        rows = f"env {first}" if last - first == 1 else f"envs {first} to {last - 1}"
        late.append(f"env {row} (worker {worker})" if row is not None else f"worker {worker} ({rows})")
    return ", ".join(late)
