"""Text of a limited length, as the numbers of its characters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from shoal.errors import MisfitError
from shoal.structure.cast import brief
from shoal.structure.codec import Reader, Views, Writer, encode_each
from shoal.structure.leaf import Leaf

_DTYPE = np.dtype(np.int32)


class TooLongError(MisfitError, IndexError):
    """A text has more characters than its space allows."""


class UnknownCharacterError(MisfitError, KeyError):
    """A text has a character that its space does not know."""


class TextCodec:
    """A `str` of at most so many characters.

    A row holds each character's number plus one, and a 0 behind the last; so a row that was never written
    is the empty text.

    Attributes:
        max_length: In characters.
    """

    def __init__(self, max_length: int, characters: Collection[str] | None = None) -> None:
        """Takes the longest length, and the characters that are allowed; None for all."""
        self.max_length = int(max_length)
        self._characters = None if characters is None else frozenset(characters)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The one leaf."""
        return (Leaf((), (self.max_length,), _DTYPE),)

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one text in one row."""
        (view,) = views
        max_length, characters = self.max_length, self._characters

        def write(row: int, value: Any) -> None:
            if not isinstance(value, str):
                raise MisfitError(where, f"expected a str, found {brief(value)} of type {type(value).__name__}")
            length = len(value)
            if length > max_length:
                raise TooLongError(where, f"expected at most {max_length} characters, found {length}: {brief(value)}")
            if characters is not None and not characters.issuperset(value):
                strange = next(character for character in value if character not in characters)
                raise UnknownCharacterError(
                    where, f"expected characters of the space, found {strange!r} in {brief(value)}"
                )
            view[row, :length] = np.frombuffer(value.encode("utf-32-le", "surrogatepass"), _DTYPE)
            view[row, :length] += 1
            if length < max_length:
                view[row, length] = 0

        return write

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate texts."""
        (view,) = views

        def read(first: int, last: int) -> list[str]:
            return _to_texts(view[first:last])

        return read

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a sequence with one text for each env."""
        encode_each(self, views, batch, where)

    def batch(self, views: Views) -> tuple[str, ...]:
        """Returns a tuple with one text for each env."""
        return tuple(self.reader(views)(0, len(views[0])))

    def __repr__(self) -> str:
        """Returns what was given."""
        return f"TextCodec({self.max_length})"


def _to_texts(rows: np.ndarray) -> list[str]:
    """Returns the text of each row; all characters are decoded at once."""
    count, width = rows.shape
    if not count or not width:
        return [""] * count
    is_end = rows == 0
    lengths = np.where(is_end.any(axis=1), is_end.argmax(axis=1), width)
    characters = np.maximum(rows - 1, 0).astype("<i4").tobytes().decode("utf-32-le", "surrogatepass")
    starts = range(0, count * width, width)
    return [characters[start : start + length] for start, length in zip(starts, lengths.tolist(), strict=True)]
