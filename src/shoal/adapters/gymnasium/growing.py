"""Memory for values of no fixed size that processes share without an engine between them."""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

import numpy as np

from shoal.errors import ArgumentError
from shoal.memory import Heap
from shoal.structure.cells import WORDS, Cells


class GrowingArray:
    """Cells for `n` values; like a `multiprocessing.Array` it is handed to a process while that is started."""

    def __init__(self, n: int, ctx: Any) -> None:
        """Makes empty cells."""
        self._heap = Heap.create()
        # Its lock serves the heap, too: one process at a time writes.
        self._words = ctx.Array("q", n * WORDS)

    def get_obj(self) -> Any:
        """Returns the array of words that say where each value is."""
        return self._words.get_obj()

    def get_lock(self) -> Any:
        """Returns the lock that writers take."""
        return self._words.get_lock()

    def __len__(self) -> int:
        """Returns how many values there are."""
        return len(self._words) // WORDS

    def cells(self, n: int) -> Cells:
        """Returns all cells, for reading."""
        if n != len(self):
            raise ArgumentError(f"the memory holds {len(self)} values, not {n}")
        return Cells(self._all_words(), [self._heap] * n)

    def cell(self, index: int) -> Any:
        """Returns one cell, for writing."""
        if not 0 <= index < len(self):
            raise ArgumentError(f"index {index} is out of range: the memory holds {len(self)} values")
        return _LockedCell(Cells(self._all_words()[index : index + 1], [self._heap]), self.get_lock())

    def _all_words(self) -> np.ndarray:
        if not len(self):
            return np.empty((0, WORDS), np.int64)
        return np.frombuffer(self.get_obj(), np.int64).reshape(-1, WORDS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as the descriptor of its heap and the array of words."""
        return _rebuild, (reduction.DupFd(self._heap.fileno()), self._words)


class _LockedCell:
    """One cell, written under a lock."""

    def __init__(self, cells: Cells, lock: Any) -> None:
        self._cells = cells
        self._lock = lock

    def write(self, row: int, payload: bytes) -> None:
        with self._lock:
            self._cells.write(row, payload)

    def __len__(self) -> int:
        return 1


def _rebuild(fd: Any, words: Any) -> GrowingArray:
    array = GrowingArray.__new__(GrowingArray)
    array._heap = Heap(fd.detach())
    array._words = words
    return array
