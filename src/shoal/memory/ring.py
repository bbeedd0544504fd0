"""Rings: short queues of fixed entries in shared memory, one writer and one reader each.

After Linux' io_uring: a worker has a submission ring, written by the engine, and a completion ring,
written by the worker. An entry is five machine words; a counter beside it says how many have been
written ever. The counter doubles as the *hint* that the other side may watch: it must not read the
entries before it has taken the bell, which is what orders memory between the two.
"""

from __future__ import annotations

from shoal.memory.segment import Segment

CAPACITY = 64  # entries
WORDS = 5  # operation or status, first row, last row, block, sequence
_STRIDE = 8  # words: an entry fills one cache line
_RING_WORDS = (CAPACITY + 1) * _STRIDE
_PROGRESS_WORDS = _STRIDE
_WORKER_WORDS = 2 * _RING_WORDS + _PROGRESS_WORDS

Entry = tuple[int, int, int, int, int]


class Ring:
    """One queue; the same class writes on one side and reads on the other.

    Attributes:
        words: All words of the control memory.
        counter: Index of the word that counts entries written.
        position: How many this side has written or read.
    """

    def __init__(self, words: memoryview, base: int) -> None:
        """Lies at word `base`."""
        self.words = words
        self.counter = base
        self._entries = base + _STRIDE
        self.position = 0

    def push(self, operation: int, first: int, last: int, block: int, sequence: int) -> None:
        """Writes one entry; the caller keeps fewer than `CAPACITY` unread ones, and rings the bell."""
        words, position = self.words, self.position
        at = self._entries + position % CAPACITY * _STRIDE
        words[at] = operation
        words[at + 1] = first
        words[at + 2] = last
        words[at + 3] = block
        words[at + 4] = sequence
        self.position = position + 1
        words[self.counter] = position + 1

    def resume(self) -> None:
        """Goes on writing behind the last entry that was announced, after `push` has been interrupted."""
        self.position = self.words[self.counter]

    def pop(self) -> Entry:
        """Reads the next entry; the caller knows that there is one and has taken the bell."""
        words, position = self.words, self.position
        at = self._entries + position % CAPACITY * _STRIDE
        self.position = position + 1
        return words[at], words[at + 1], words[at + 2], words[at + 3], words[at + 4]

    def look(self) -> Entry:
        """Reads the next entry and leaves it unread."""
        words, at = self.words, self._entries + self.position % CAPACITY * _STRIDE
        return words[at], words[at + 1], words[at + 2], words[at + 3], words[at + 4]

    def peek(self) -> tuple[int, int]:
        """Returns status and sequence of the next entry, and leaves it unread."""
        at = self._entries + self.position % CAPACITY * _STRIDE
        return self.words[at], self.words[at + 4]

    def unread(self) -> int:
        """Returns how many entries this reader has not taken; a hint until the bell is taken."""
        return self.words[self.counter] - self.position


class ControlMemory:
    """The rings of all workers, and a word for each that says which row it is working on."""

    def __init__(self, segment: Segment, num_workers: int) -> None:
        """Lies at the start of the segment."""
        self.segment = segment
        self.num_workers = num_workers
        self.words = memoryview(segment.buffer).cast("B").cast("q")

    @classmethod
    def create(cls, num_workers: int) -> ControlMemory:
        """Returns fresh control memory in a segment of its own."""
        return cls(Segment.create(cls.nbytes(num_workers)), num_workers)

    @staticmethod
    def nbytes(num_workers: int) -> int:
        """Returns the size needed, in bytes."""
        return num_workers * _WORKER_WORDS * 8

    def submissions(self, worker: int) -> Ring:
        """Returns the ring that the engine writes and the worker reads."""
        return Ring(self.words, worker * _WORKER_WORDS)

    def completions(self, worker: int) -> Ring:
        """Returns the ring that the worker writes and the engine reads."""
        return Ring(self.words, worker * _WORKER_WORDS + _RING_WORDS)

    def progress(self, worker: int) -> int:
        """Returns the index of the word that holds the row the worker is at, plus one; 0 while it is at none."""
        return worker * _WORKER_WORDS + 2 * _RING_WORDS
