"""One of several kinds of value, with the number of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from shoal.errors import MisfitError
from shoal.structure.cast import brief
from shoal.structure.codec import Codec, Reader, Views, Writer, encode_each
from shoal.structure.leaf import Leaf

_TAG = np.dtype(np.int64)


class OneOfCodec:
    """A pair `(index, value)`: which of the kinds it is, and a value of that kind.

    Attributes:
        leaves: The index, then the leaves of every kind.
    """

    def __init__(self, options: Sequence[Codec]) -> None:
        """Takes how values of each kind travel."""
        self._options = list(options)
        stops = list(accumulate((len(codec.leaves) for codec in self._options), initial=1))
        self._spans = list(pairwise(stops))
        self.leaves: tuple[Leaf, ...] = (
            Leaf((), (), _TAG),
            *(
                Leaf((index, *leaf.path), leaf.shape, leaf.dtype, leaf.is_ragged)
                for index, codec in enumerate(self._options)
                for leaf in codec.leaves
            ),
        )

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one pair in one row."""
        tags = views[0]
        writers = [
            codec.writer(views[start:stop], f"{where}[{index}]")
            for index, (codec, (start, stop)) in enumerate(zip(self._options, self._spans, strict=True))
        ]

        def write(row: int, value: Any) -> None:
            index, content = check_pair(value, len(writers), where)
            writers[index](row, content)
            tags[row] = index

        return write

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate pairs; the index is an int64."""
        tags = views[0]
        readers = [
            codec.reader(views[start:stop]) for codec, (start, stop) in zip(self._options, self._spans, strict=True)
        ]

        def read(first: int, last: int) -> list[Any]:
            return [(tag, readers[tag](row, row + 1)[0]) for row, tag in enumerate(tags[first:last].copy(), first)]

        return read

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a sequence with one pair for each env."""
        encode_each(self, views, batch, where)

    def batch(self, views: Views) -> tuple[Any, ...]:
        """Returns a tuple with one pair for each env."""
        return tuple(self.reader(views)(0, len(views[0])))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as the options alone."""
        return OneOfCodec, (self._options,)

    def __repr__(self) -> str:
        """Returns the options."""
        return f"OneOfCodec({self._options})"


def check_pair(value: Any, count: int, where: str) -> tuple[int, Any]:
    """Returns index and value of a pair; raises `MisfitError` if it is none, or of an index that there is not."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise MisfitError(where, f"expected a pair (index, value), found {brief(value)}")
    index, content = value
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)) or not 0 <= index < count:
        raise MisfitError(where, f"expected an index from 0 to {count - 1} in front, found {index!r}")
    return int(index), content
