"""The bell: a counter that one side rings and the other waits on, and how to wait for it.

Whoever waits first *watches* a hint word in shared memory, giving up the CPU at each look, and sleeps
only if nothing comes for a while. Waking a sleeping process takes some 50 microseconds on a virtual
machine; noticing a changed word takes one or two. The hint is only a hint: the waiter always takes the
bell before it reads anything else, so the kernel orders memory and no wake-up can be lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol


class Bell(Protocol):
    """A counter that processes share by passing its descriptors."""

    def ring(self) -> None:
        """Adds one."""

    def take(self) -> int:
        """Returns how often it was rung since it was last taken, at once, also if that is 0."""

    def fileno(self) -> int:
        """Returns the descriptor that is readable while the counter is not 0."""

    def descriptors(self) -> tuple[int, ...]:
        """Returns what another process needs to make the same bell."""

    def close(self) -> None:
        """Closes the descriptors of this process."""


class EventBell:
    """A bell made of an eventfd (Linux)."""

    def __init__(self, fd: int | None = None) -> None:
        """Makes a new bell, or one from the descriptor of another process's."""
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if fd is None else fd

    def ring(self) -> None:
        """Adds one."""
        os.eventfd_write(self._fd, 1)

    def take(self) -> int:
        """Returns the count and sets it to 0."""
        try:
            return os.eventfd_read(self._fd)
        except BlockingIOError:
            return 0

    def fileno(self) -> int:
        """Returns the eventfd."""
        return self._fd

    def descriptors(self) -> tuple[int, ...]:
        """Returns the one descriptor."""
        return (self._fd,)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._fd)


class PipeBell:
    """A bell made of a pipe, a byte for each ring (everywhere)."""

    def __init__(self, read_fd: int | None = None, write_fd: int | None = None) -> None:
        """Makes a new bell, or one from the descriptors of another process's."""
        if read_fd is None or write_fd is None:
            read_fd, write_fd = os.pipe()
        self._read_fd, self._write_fd = read_fd, write_fd
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def ring(self) -> None:
        """Writes one byte; there are never more rings outstanding than a pipe holds."""
        os.write(self._write_fd, b"!")

    def take(self) -> int:
        """Returns how many bytes there were."""
        try:
            return len(os.read(self._read_fd, 65536))
        except BlockingIOError:
            return 0

    def fileno(self) -> int:
        """Returns the end to wait on."""
        return self._read_fd

    def descriptors(self) -> tuple[int, ...]:
        """Returns both ends."""
        return (self._read_fd, self._write_fd)

    def close(self) -> None:
        """Closes both ends."""
        os.close(self._read_fd)
        os.close(self._write_fd)


give_up_cpu: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))

make_bell: type[EventBell] | type[PipeBell] = EventBell if hasattr(os, "eventfd") else PipeBell


def watch(words: memoryview, index: int, target: int, until_ns: int) -> bool:
    """Looks at a counter until it reaches the target or the time is up, giving up the CPU at each look.

    Args:
        words: The shared words.
        index: Which of them to watch.
        target: The count to wait for.
        until_ns: When to stop, on `time.monotonic_ns`.
    """
    pause, now = give_up_cpu, time.monotonic_ns
    while words[index] < target:
        if now() >= until_ns:
            return False
        pause()
    return True


class Patience:
    """Whether to watch before sleeping, and for how long, learnt from recent waits.

    Which of the two brings the news sooner depends on what else runs: on a CPU of one's own watching
    saves the wake-up, on one that others keep busy every look costs a turn. So both are tried: the one
    that has been the quicker most of the time, the other now and then. Where the news mostly comes late
    a wake-up does not matter, and the CPU is left to others.
    """

    # A wait this long makes the 50 us of a wake-up a matter of a percent.
    LONGEST_NS = 4_000_000
    _WEIGHT = 1 / 16
    _PERIOD = 256  # waits
    _TRIAL = 5  # waits of a period that try the other way
    # How much longer waits may take with watching before it is given up: means of few waits are rough.
    _ALLOWANCE = 1.2

    def __init__(self, longest_ns: int = LONGEST_NS) -> None:
        """Never watches longer than `longest_ns`; 0 switches watching off."""
        self._longest_ns = longest_ns
        self._watched_ns = 0.0
        self._slept_ns = 0.0
        self._prefers_watching = True
        self._watches = True
        self._count = 0

    def budget_ns(self) -> int:
        """Returns how long to watch this time."""
        self._count += 1
        is_trial = self._count % self._PERIOD < self._TRIAL
        self._watches = self._prefers_watching is not is_trial
        return self._longest_ns if self._watches else 0

    def learn(self, waited_ns: int) -> None:
        """Takes note of how long a wait took, from its start to the news."""
        # A rare long wait (a reset, an evaluation) must not outweigh many short ones.
        waited = min(waited_ns, 4 * self._longest_ns)
        if self._watches:
            self._watched_ns += (waited - self._watched_ns) * self._WEIGHT
        else:
            self._slept_ns += (waited - self._slept_ns) * self._WEIGHT
        self._prefers_watching = self._watched_ns < self._longest_ns and (
            not self._slept_ns or self._watched_ns <= self._slept_ns * self._ALLOWANCE
        )
