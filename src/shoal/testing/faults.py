"""Environments that go wrong at a chosen moment, and ways to hurt a worker from outside.

Most faults take the whole process with them: under a serial or a thread backend that is the caller's own.
"""

from __future__ import annotations

import ctypes
import enum
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn, Protocol, get_args

import psutil

from shoal.testing.toys import Counter, Infos, Outcome

Stage = Literal["constructor", "reset", "step", "close", "render", "call"]


class Fault(str, enum.Enum):
    """What goes wrong; each member is also the string that names it."""

    RAISE = "raise"
    RAISE_UNPICKLABLE = "raise-unpicklable"
    RAISE_MULTI_ARG = "raise-multi-arg"
    MEMORY_ERROR = "memory-error"
    KEYBOARD_INTERRUPT = "keyboard-interrupt"
    SYS_EXIT = "sys-exit"
    EXIT = "exit"
    ABORT = "abort"
    SEGFAULT = "segfault"
    SIGKILL = "sigkill"
    HANG = "hang"
    HANG_IN_C = "hang-in-c"
    RETURN_NONE = "return-none"


RAISING = (
    Fault.RAISE,
    Fault.RAISE_UNPICKLABLE,
    Fault.RAISE_MULTI_ARG,
    Fault.MEMORY_ERROR,
    Fault.KEYBOARD_INTERRUPT,
    Fault.SYS_EXIT,
)
DEADLY = (Fault.EXIT, Fault.ABORT, Fault.SEGFAULT, Fault.SIGKILL)
HANGING = (Fault.HANG, Fault.HANG_IN_C)


class TwoArgumentError(Exception):
    """An error that pickles, but cannot be rebuilt: pickle passes the one argument in `args`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")


def commit(fault: Fault | str, hang_s: float = 1000.0) -> None:
    """Lets the fault happen here and now; returns only after a hang.

    Args:
        fault: What goes wrong. `"raise"`, `"raise-unpicklable"` and `"raise-multi-arg"` say "bad apple".
        hang_s: How long a hang lasts, in seconds.
    """
    match Fault(fault):
        case Fault.RAISE:
            raise ValueError("bad apple")
        case Fault.RAISE_UNPICKLABLE:
            _raise_unpicklable()
        case Fault.RAISE_MULTI_ARG:
            raise TwoArgumentError(7, "bad apple")
        case Fault.MEMORY_ERROR:
            raise MemoryError
        case Fault.KEYBOARD_INTERRUPT:
            raise KeyboardInterrupt
        case Fault.SYS_EXIT:
            raise SystemExit(5)
        case Fault.EXIT:
            os._exit(3)
        case Fault.ABORT:
            os.abort()
        case Fault.SEGFAULT:
            ctypes.string_at(0)
        case Fault.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.HANG:
            time.sleep(hang_s)
        case Fault.HANG_IN_C:
            _hang_in_c(hang_s)
        case Fault.RETURN_NONE:
            raise ValueError("only a constructor can return None: `make_none`")


def _raise_unpicklable() -> NoReturn:
    class Local(Exception):
        lock: Any

    error = Local("bad apple")
    error.lock = threading.Lock()
    raise error


def _hang_in_c(hang_s: float) -> None:
    class Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    # `PyDLL` keeps the GIL. Locking a mutex twice, unlike `sleep`, also outlasts signals with a handler: the
    # handler is Python and cannot run.
    libc = ctypes.PyDLL(None)
    if hasattr(libc, "pthread_mutex_timedlock"):
        mutex = ctypes.create_string_buffer(256)
        until = time.time() + hang_s
        deadline = Timespec(int(until), int(until % 1 * 1e9))
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_timedlock(mutex, ctypes.byref(deadline))
    else:
        libc.sleep(ctypes.c_uint(int(hang_s) + 1))


class Faulty(Counter):
    """A `Counter` with a fault in one stage of its life.

    Args:
        stage: Where; `"call"` is the method `poke`.
        fault: What goes wrong: see `Fault`.
        at: In which call of that stage, from 1. It happens once; after a hang the call goes on in health.
        index: Tells one env from another, as in `Counter`.
        tally: A file in which to count the calls instead, if the count is to outlive the env: the env that
            replaces it goes on counting, so that a fault happens once in all.
        delay_s: How long the call waits before the fault, in seconds.
        hang_s: How long a hang lasts, in seconds.
        **counter: Further arguments of `Counter`.
    """

    def __init__(
        self,
        stage: Stage,
        fault: Fault | str = Fault.RAISE,
        at: int = 1,
        index: int = 0,
        *,
        tally: str | os.PathLike[str] | None = None,
        delay_s: float = 0.0,
        hang_s: float = 1000.0,
        **counter: Any,
    ) -> None:
        super().__init__(index, **counter)
        if stage not in get_args(Stage):
            raise ValueError(f"stage is {stage!r}, but must be one of {get_args(Stage)}")
        if fault == Fault.RETURN_NONE:
            raise ValueError("no object can return None for itself; use the constructor `make_none`")
        self.stage, self.fault, self.at = stage, Fault(fault), at
        self.tally, self.delay_s, self.hang_s = tally, delay_s, hang_s
        self._calls = 0
        self._enter("constructor")

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        """Starts an episode; stage `"reset"`."""
        self._enter("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Outcome:
        """Counts on; stage `"step"`."""
        self._enter("step")
        return super().step(action)

    def render(self) -> Any:
        """Renders as `Counter` does; stage `"render"`."""
        self._enter("render")
        return super().render()

    def close(self) -> None:
        """Does nothing; stage `"close"`."""
        self._enter("close")

    def poke(self, value: Any = None) -> Any:
        """Returns its argument; stage `"call"`."""
        self._enter("call")
        return value

    def _enter(self, stage: Stage) -> None:
        if stage == self.stage and self._count() == self.at:
            time.sleep(self.delay_s)
            commit(self.fault, self.hang_s)

    def _count(self) -> int:
        if self.tally is None:
            self._calls += 1
            return self._calls
        with open(self.tally, "ab") as file:
            file.write(b".")
            file.flush()
            return file.tell()


def make_none(*_arguments: Any, **_keywords: Any) -> None:
    """Returns None: a constructor whose author forgot to return the env."""


class HasWorkerPids(Protocol):
    """A running batch of envs with one process id for each worker."""

    @property
    def worker_pids(self) -> Sequence[int]:
        """Process ids in order of workers."""
        ...


def kill(envs: HasWorkerPids, worker: int) -> None:
    """Kills a worker with SIGKILL; returns when it is gone."""
    pid = envs.worker_pids[worker]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_gone(pid), description=f"worker {worker} (pid {pid}) is gone")


def stop(envs: HasWorkerPids, worker: int) -> None:
    """Freezes a worker with SIGSTOP; returns when it stands still."""
    pid = envs.worker_pids[worker]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _status(pid) == psutil.STATUS_STOPPED, description=f"worker {worker} (pid {pid}) stopped")


def resume(envs: HasWorkerPids, worker: int) -> None:
    """Lets a worker go on that `stop` has frozen; returns when it runs."""
    pid = envs.worker_pids[worker]
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: _status(pid) != psutil.STATUS_STOPPED, description=f"worker {worker} (pid {pid}) goes on")


def process_gone(pid: int) -> bool:
    """Tells whether the process has ended; a zombie that its parent has not collected yet has."""
    return _status(pid) in (None, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def _status(pid: int) -> str | None:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return None


def wait_until(predicate: Callable[[], Any], timeout_s: float = 10.0, description: str = "") -> None:
    """Returns as soon as the predicate holds; it is asked every few milliseconds.

    Args:
        predicate: What is to become true.
        timeout_s: How long to wait, in seconds.
        description: The predicate in words, for the error.

    Raises:
        AssertionError: If it does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {description or predicate}")
        time.sleep(0.005)
