"""Several values side by side, each with a name that errors call it by."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from shoal.structure.codec import Codec, Reader, Views, Writer
from shoal.structure.leaf import Leaf


class PartsCodec:
    """A tuple of values that have nothing to do with each other.

    Attributes:
        names: What each is called.
        leaves: All leaves; paths start with the part's name.
    """

    def __init__(self, names: Sequence[str], codecs: Sequence[Codec]) -> None:
        """Takes a name and a codec for each part."""
        self.names = tuple(names)
        self._codecs = list(codecs)
        self._spans = list(pairwise(accumulate((len(codec.leaves) for codec in self._codecs), initial=0)))
        self.leaves: tuple[Leaf, ...] = tuple(
            Leaf((name, *leaf.path), leaf.shape, leaf.dtype, leaf.is_ragged)
            for name, codec in zip(self.names, self._codecs, strict=True)
            for leaf in codec.leaves
        )

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one tuple in one row; errors name the part, not `where`."""
        writers = [
            codec.writer(own, name)
            for name, codec, own in zip(self.names, self._codecs, self._split(views), strict=True)
        ]

        def write(row: int, parts: Any) -> None:
            for write_part, part in zip(writers, parts, strict=True):
                write_part(row, part)

        return write

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate tuples."""
        readers = [codec.reader(own) for codec, own in zip(self._codecs, self._split(views), strict=True)]

        def read(first: int, last: int) -> list[Any]:
            return list(zip(*(read_part(first, last) for read_part in readers), strict=True))

        return read

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a tuple of batches; errors name the part, not `where`."""
        for name, codec, own, part in zip(self.names, self._codecs, self._split(views), batch, strict=True):
            codec.encode(own, part, name)

    def batch(self, views: Views) -> tuple[Any, ...]:
        """Returns a tuple of batches."""
        return tuple([codec.batch(own) for codec, own in zip(self._codecs, self._split(views), strict=True)])

    def _split(self, views: Views) -> list[Views]:
        return [views[start:stop] for start, stop in self._spans]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as names and codecs alone."""
        return type(self), (self.names, self._codecs)

    def __repr__(self) -> str:
        """Returns what was given."""
        return f"PartsCodec({dict(zip(self.names, self._codecs, strict=True))})"
