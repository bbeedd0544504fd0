"""A heap: shared memory that grows, for values that have no fixed size.

Rows of a block cannot grow, so a ragged value lies in a heap, and its row says where. A heap is an anonymous
file like a segment, and every process maps what it needs of it: whoever writes makes the file longer, whoever reads
past the end of its mapping maps it anew. Nothing is sent, and no one has to be told.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable

from shoal.errors import SharedMemoryError
from shoal.memory.segment import create_anonymous_file

# The first word of the file: where the free space begins.
_HEADER = 64  # bytes
_SMALLEST = 64  # bytes: a cache line, so that two rows never share one


class Heap:
    """Memory handed out in regions that are never given back; one process at a time allocates."""

    def __init__(self, fd: int) -> None:
        """Maps an existing heap and owns its descriptor."""
        self._fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)

    @classmethod
    def create(cls, create_file: Callable[[], int] | None = None) -> Heap:
        """Returns a new, empty heap.

        Raises:
            SharedMemoryError: There is no memory.
        """
        fd = (create_file or create_anonymous_file)()
        try:
            _extend(fd, 0, mmap.PAGESIZE)
            heap = cls(fd)
        except BaseException:
            os.close(fd)
            raise
        heap._map[:8] = _HEADER.to_bytes(8, "little")
        return heap

    def allocate(self, nbytes: int) -> tuple[int, int]:
        """Returns offset and size of a new region of at least `nbytes`: with room to grow, since it is never freed.

        Raises:
            SharedMemoryError: There is not that much memory.
        """
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length()) if nbytes else _SMALLEST
        offset = int.from_bytes(self._map[:8], "little")
        end = offset + size
        length = os.fstat(self._fd).st_size
        if end > length:
            _extend(self._fd, length, max(end, 2 * length))
        self._reach(end)
        self._map[:8] = end.to_bytes(8, "little")
        return offset, size

    def write(self, offset: int, payload: bytes | bytearray | memoryview) -> None:
        """Writes into a region."""
        end = offset + len(payload)
        self._reach(end)
        self._map[offset:end] = payload

    def read(self, offset: int, nbytes: int) -> bytes:
        """Returns a copy of a part of a region."""
        self._reach(offset + nbytes)
        return self._map[offset : offset + nbytes]

    def reopened(self) -> Heap:
        """Returns the same heap with a descriptor and a mapping of its own."""
        return Heap(os.dup(self._fd))

    def fileno(self) -> int:
        """Returns the descriptor to pass to another process."""
        return self._fd

    def close(self) -> None:
        """Closes descriptor and mapping."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._map.close()

    def __del__(self) -> None:
        """Closes what nobody has closed."""
        if hasattr(self, "_map"):
            self.close()

    def _reach(self, end: int) -> None:
        """Maps the file anew if it has grown past what is mapped."""
        if end > len(self._map):
            self._map.close()
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)


def _extend(fd: int, length: int, nbytes: int) -> None:
    """Makes the file longer, its pages reserved."""
    try:
        os.ftruncate(fd, nbytes)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, length, nbytes - length)
    except (OSError, OverflowError) as error:
        # What is not reserved must not be taken for reserved at the next try.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, length)
        raise SharedMemoryError(f"a value needs more shared memory than there is: {error}") from error
