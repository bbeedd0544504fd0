"""The engine's options, checked where they come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from shoal.backends.launcher import START_METHODS
from shoal.errors import ArgumentError, ArgumentTypeError, ClosedError, NoPendingCallError, PendingCallError
from shoal.worker import Autoreset
from shoal.worker.cpus import available_cpus

SEEDINGS = ("increment", "spawn")


@dataclass(frozen=True)
class StateErrors:
    """The classes to raise for calls at the wrong moment; a face may put its framework's in.

    Attributes:
        pending: Takes a message and the name of the pending call.
        no_pending: Takes a message and the name of the call that is missing.
        closed: Takes a message.
        has_halves: Whether the face has `step_async`, `step_wait` and their like, for messages to name.
    """

    pending: Callable[[str, str], Exception] = PendingCallError
    no_pending: Callable[[str, str], Exception] = NoPendingCallError
    closed: Callable[[str], Exception] = ClosedError
    has_halves: bool = True

    def waiting(self, kind: str) -> str:
        """Returns what the user calls to wait for a call."""
        return f"{kind}_wait" if self.has_halves else kind

    def way_out(self, kind: str) -> str:
        """Returns what to do about a call that is late."""
        wait = f"Wait for it again with `{kind}_wait`, or give it up with `reset`" if self.has_halves else ""
        return wait or "Give it up with `reset`"


@dataclass(frozen=True)
class Options:
    """How an engine works, the same for every face.

    Attributes:
        num_workers: How many workers share the envs; None for one a CPU, at most one an env.
        backend: `"process"`, `"thread"` or `"serial"`.
        start_method: How worker processes start: `"forkserver"`, `"spawn"` or `"fork"`.
        autoreset: When an env whose episode ended is reset.
        copy: Whether results are the caller's to keep; False for one buffer that every call overwrites.
        step_timeout: Seconds to wait for a reset, step or call; None to wait as long as the workers live. The
            serial backend cannot interrupt an env and does not heed it.
        start_timeout: Seconds that building all envs may take.
        close_timeout: Seconds that envs may take to close before their workers are killed.
        start_serially: Whether to construct the envs of one worker after those of the other.
        blocking: Whether workers reset and step one after the other, too.
        seeding: What one integer seed means: `"increment"` gives env `i` the seed plus `i`, as Gymnasium
            does; `"spawn"` gives it a seed of its own from NumPy's `SeedSequence`.
        infos: Which keys of the envs' infos to keep; None for all, an empty sequence for none.
        worker_init: Called in each worker before its envs are constructed.
        worker_threads: Threads that numerical libraries may use in a worker; None for one, or what the
            user's environment variables say.
    """

    num_workers: int | None = None
    backend: str = "process"
    start_method: str = "forkserver"
    autoreset: Autoreset = Autoreset.NEXT_STEP
    copy: bool = True
    step_timeout: float | None = None
    start_timeout: float | None = 300.0
    close_timeout: float = 5.0
    start_serially: bool = False
    blocking: bool = False
    seeding: str = "increment"
    infos: Sequence[str] | None = None
    worker_init: Callable[[], Any] | None = None
    worker_threads: int | None = None

    def __post_init__(self) -> None:
        """Raises `ArgumentError` or `ArgumentTypeError` for what makes no sense."""
        _check_choice("start_method", self.start_method, START_METHODS)
        _check_choice("seeding", self.seeding, SEEDINGS)
        _check_count("num_workers", self.num_workers)
        _check_count("worker_threads", self.worker_threads)
        _check_seconds("step_timeout", self.step_timeout)
        _check_seconds("start_timeout", self.start_timeout)
        _check_seconds("close_timeout", self.close_timeout)
        if self.close_timeout is None:
            raise ArgumentTypeError("close_timeout must be a number of seconds, found None")
        if self.worker_init is not None and not callable(self.worker_init):
            raise ArgumentTypeError(f"worker_init must be a function without arguments, found {self.worker_init!r}")

    def workers_for(self, num_envs: int) -> int:
        """Returns how many workers `num_envs` envs get.

        Raises:
            ArgumentError: More were asked for than there are envs.
        """
        if self.num_workers is None:
            return min(available_cpus(), num_envs)
        if self.num_workers > num_envs:
            raise ArgumentError(
                f"num_workers={self.num_workers} is more than the {num_envs} envs; use at most {num_envs}, "
                "or leave it out for one worker a CPU"
            )
        return self.num_workers


def split(num_envs: int, num_workers: int) -> list[tuple[int, int]]:
    """Returns each worker's rows `(first, last)`, last exclusive; the first workers have one more if it is uneven."""
    share, extra = divmod(num_envs, num_workers)
    sizes = [share + (worker < extra) for worker in range(num_workers)]
    starts = [sum(sizes[:worker]) for worker in range(num_workers)]
    return [(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name}={value!r} is unknown; use one of {', '.join(map(repr, choices))}")


def _check_count(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(f"{name} must be a whole number, found {value!r}")
    if value < 1:
        raise ArgumentError(f"{name} must be at least 1, found {value}")


def _check_seconds(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(f"{name} must be a number of seconds, found {value!r}")
    if not float(value) >= 0:
        raise ArgumentError(f"{name} must not be negative, found {value}")
