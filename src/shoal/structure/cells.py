"""Cells: the column of a leaf whose values have no fixed size, one cell for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

WORDS = 3  # of a row: offset and size of its region, length of its value


class Heap(Protocol):
    """Where the bytes of the values are."""

    def allocate(self, nbytes: int) -> tuple[int, int]:
        """Returns offset and size of a new region of at least so many bytes."""

    def write(self, offset: int, payload: bytes) -> None:
        """Writes into a region."""

    def read(self, offset: int, nbytes: int) -> bytes:
        """Returns a copy of a part of a region."""


class Cells:
    """The values of one ragged leaf, as bytes.

    Looks like an array where arrays are handled without regard to what they hold: values are always copied
    when they are read, so there is nothing to copy before.

    Attributes:
        nbytes: 0, which is what is worth lending.
    """

    nbytes = 0

    def __init__(self, words: np.ndarray, heaps: Sequence[Heap]) -> None:
        """Takes the words `[B, 3]`, int64, and for each row the heap of whoever writes it."""
        self._words = words
        self._heaps = heaps

    def write(self, row: int, payload: bytes) -> None:
        """Stores the value of one row; a value that has outgrown its region gets a new one."""
        offset, size, _ = self._words[row].tolist()
        heap = self._heaps[row]
        if len(payload) > size:
            offset, size = heap.allocate(len(payload))
        heap.write(offset, payload)
        self._words[row] = offset, size, len(payload)

    def read(self, row: int) -> bytes:
        """Returns a copy of the value of one row; empty if none was written yet."""
        offset, _, length = self._words[row].tolist()
        return self._heaps[row].read(offset, length) if length else b""

    def copy(self) -> Cells:
        """Returns itself."""
        return self

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self._words)


class LooseCells:
    """The values of one ragged leaf, in this process alone: what is being packed into another value."""

    def __init__(self, payloads: list[bytes]) -> None:
        """Takes the value of each row."""
        self.payloads = payloads

    def write(self, row: int, payload: bytes) -> None:
        """Keeps the value of one row."""
        self.payloads[row] = payload

    def read(self, row: int) -> bytes:
        """Returns the value of one row."""
        return self.payloads[row]

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.payloads)
