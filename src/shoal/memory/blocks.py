"""Result blocks and their leases: arrays that never change under the user, mostly without a copy.

A block holds one batch of results. What the user gets are arrays made on the block, and the block is
not written again while one of them, or a view of one, is alive: each array has a weak reference here,
and a view keeps its array alive. When every block is held the results go to a block that is never
lent, and are copied out of it. Small arrays are always copied: that is cheaper than keeping track.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from shoal.memory.heap import Heap
from shoal.memory.layout import Layout
from shoal.memory.segment import Segment

# Copying 16 KiB costs about what lending costs: one array, one weak reference, one look at it later.
SMALLEST_LOAN = 16 * 1024  # bytes
LENDABLE_BLOCKS = 3
# A batch so large that spare blocks would cost more than the copies they save.
LARGE_BATCH = 256 * 2**20  # bytes


class Block:
    """One batch of results.

    Attributes:
        index: Its number in the segment, as workers are told it.
        views: For each group of the layout its leaves `[B, ...]`, overwritten by later steps.
        writers: Workers that may still be writing to it: those that a request is still awaiting.
    """

    def __init__(
        self, index: int, layout: Layout, segment: Segment, start: int, can_lend: bool, heaps: Sequence[Heap] = ()
    ) -> None:
        """Lies at `start` bytes in the segment; ragged values in the heaps, one for each row."""
        self.index = index
        self.views = layout.views(segment.buffer, start, heaps)
        self.writers: Collection[int] = ()
        # For each group its leaves, with the place of those that are lent.
        self._leaves = {
            group: [
                (place if can_lend and view.nbytes >= SMALLEST_LOAN else None, view)
                for place, view in zip(places, self.views[group], strict=True)
            ]
            for group, places in layout.groups.items()
        }
        self._buffer = segment.buffer
        self._start = start
        self._loans: list[weakref.ref[np.ndarray]] = []

    def is_free(self) -> bool:
        """Tells whether nobody holds an array of it and no worker writes to it."""
        if self.writers:
            return False
        for loan in self._loans:
            if loan() is not None:
                return False
        self._loans.clear()
        return True

    def lends(self, group: str) -> bool:
        """Tells whether any of the group's leaves is lent rather than copied."""
        return any(place is not None for place, _ in self._leaves[group])

    def take(self, group: str) -> list[np.ndarray]:
        """Returns a group's leaves `[B, ...]` as arrays that nobody else will write to."""
        taken = []
        for place, view in self._leaves[group]:
            if place is None:
                array = view.copy()
            else:
                array = place.view(self._buffer, self._start)
                self._loans.append(weakref.ref(array))
            taken.append(array)
        return taken


class Blocks:
    """All result blocks of a batch, in one stretch of the segment."""

    def __init__(self, layout: Layout, segment: Segment, start: int, count: int, heaps: Sequence[Heap] = ()) -> None:
        """The last of the `count` blocks is never lent, so that there always is one to write to."""
        self._blocks = [
            Block(index, layout, segment, start + index * layout.nbytes, can_lend=index < count - 1, heaps=heaps)
            for index in range(count)
        ]

    @staticmethod
    def count_for(layout: Layout) -> int:
        """Returns how many blocks are worth their memory: one that is never lent, and some to lend."""
        if not any(place_nbytes >= SMALLEST_LOAN for place_nbytes in _sizes(layout)):
            return 2
        return 2 if layout.nbytes >= LARGE_BATCH else LENDABLE_BLOCKS + 1

    def __getitem__(self, index: int) -> Block:
        """Returns the block of that number."""
        return self._blocks[index]

    def __iter__(self) -> Iterator[Block]:
        """Yields all blocks."""
        return iter(self._blocks)

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._blocks)

    def acquire(self) -> Block | None:
        """Returns a block that may be overwritten, the most recently used ones first, None if there is none."""
        for block in self._blocks:
            if block.is_free():
                return block
        return None


def _sizes(layout: Layout) -> list[int]:
    return [
        int(np.prod(place.shape, dtype=np.int64)) * place.dtype.itemsize
        for places in layout.groups.values()
        for place in places
    ]
