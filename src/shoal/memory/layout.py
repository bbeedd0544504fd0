"""A layout: where the leaves of a batch lie inside one stretch of a segment."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.memory.heap import Heap
from shoal.structure import Leaf
from shoal.structure.cells import Cells

ALIGNMENT = 64  # bytes: a cache line, so that two leaves never share one


@dataclass(frozen=True)
class Place:
    """One leaf of a batch in memory.

    Attributes:
        shape: `[B, ...]`, batch axis first.
        dtype: Type of one element.
        offset: Distance from the start of the stretch, in bytes.
        is_ragged: Whether it only says where values are in a heap.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int
    is_ragged: bool = False

    def view(self, buffer: mmap.mmap, start: int) -> np.ndarray:
        """Returns the leaf `[B, ...]` as a view, made directly on the mapping.

        An array whose base is another array hands that base on to its own views, which would then
        outlive it unseen; with the mapping as base every view keeps this very array alive.
        """
        return np.ndarray(self.shape, self.dtype, buffer, start + self.offset)


@dataclass(frozen=True)
class Layout:
    """Named groups of leaves for a number of rows, one after the other.

    Attributes:
        rows: Length of the batch axis.
        groups: For each name its leaves' places.
        nbytes: Size of the stretch, a multiple of the alignment.
    """

    rows: int
    groups: Mapping[str, tuple[Place, ...]]
    nbytes: int

    @classmethod
    def of(cls, rows: int, groups: Mapping[str, Sequence[Leaf]]) -> Layout:
        """Returns the layout that places each group's leaves in the order given."""
        offset = 0
        placed: dict[str, tuple[Place, ...]] = {}
        for name, leaves in groups.items():
            places = []
            for leaf in leaves:
                places.append(Place((rows, *leaf.shape), leaf.dtype, offset, leaf.is_ragged))
                offset += _aligned(rows * leaf.nbytes)
            placed[name] = tuple(places)
        return cls(rows, placed, offset)

    def views(self, buffer: mmap.mmap, start: int, heaps: Sequence[Heap] = ()) -> dict[str, list[Any]]:
        """Returns every group's leaves as views `[B, ...]` of the stretch that begins at `start`.

        Args:
            buffer: The mapping.
            start: In bytes.
            heaps: For each row the heap of whoever writes it; needed if a leaf is ragged.
        """

        def view(place: Place) -> Any:
            array = place.view(buffer, start)
            return Cells(array, heaps) if place.is_ragged else array

        return {name: [view(place) for place in places] for name, places in self.groups.items()}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
