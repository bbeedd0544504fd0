"""A segment: anonymous memory that processes share by passing its descriptor.

Nothing is ever named in `/dev/shm`, so nothing can be left there, and a container's limit on it does
not apply. Linux has `memfd_create` for this; elsewhere it is a temporary file without a name.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable

from shoal.errors import SharedMemoryError


def create_memfd() -> int:
    """Returns the descriptor of a new anonymous file in memory (Linux)."""
    return os.memfd_create("shoal", os.MFD_CLOEXEC)


def create_unlinked_file() -> int:
    """Returns the descriptor of a new temporary file that has no name any more (everywhere)."""
    with tempfile.TemporaryFile(prefix="shoal-") as file:
        return os.dup(file.fileno())


create_anonymous_file: Callable[[], int] = create_memfd if hasattr(os, "memfd_create") else create_unlinked_file


class Segment:
    """Shared memory of a fixed size, reserved at creation.

    Attributes:
        nbytes: Size in bytes.
        buffer: The mapping; arrays made on it keep it alive by themselves.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        """Maps an existing segment and owns its descriptor."""
        self.nbytes = nbytes
        self._fd = fd
        self.buffer = mmap.mmap(fd, nbytes)

    @classmethod
    def create(cls, nbytes: int, create_file: Callable[[], int] | None = None) -> Segment:
        """Returns a new segment, zero-filled, its pages already reserved.

        Raises:
            SharedMemoryError: There is not that much memory.
        """
        # Here because workers, which create no segment, would otherwise take time to import it.
        import psutil

        nbytes = max(nbytes, mmap.PAGESIZE)
        available = psutil.virtual_memory().available
        if nbytes > available:
            raise SharedMemoryError(_shortage(nbytes, f"only {_size(available)} of memory are free"))
        fd = (create_file or create_anonymous_file)()
        try:
            os.ftruncate(fd, nbytes)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, nbytes)
            return cls(fd, nbytes)
        except (OSError, OverflowError) as error:
            os.close(fd)
            raise SharedMemoryError(_shortage(nbytes, str(error))) from error

    @classmethod
    def of(cls, fd: int) -> Segment:
        """Returns an existing segment, whose descriptor it owns."""
        return cls(fd, os.fstat(fd).st_size)

    def fileno(self) -> int:
        """Returns the descriptor to pass to another process."""
        return self._fd

    def __del__(self) -> None:
        """Closes a descriptor that nobody has closed."""
        if hasattr(self, "_fd"):
            self.close()

    def close(self) -> None:
        """Closes the descriptor; the mapping lasts as long as an array on it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _shortage(nbytes: int, reason: str) -> str:
    return (
        f"a batch needs {_size(nbytes)} of shared memory, but {reason}; "
        "use fewer envs, smaller observations, or a machine with more memory"
    )


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
