"""Values of no fixed size: each is packed into bytes, which lie in a cell.

A packer says how. Those here serve lists of values that travel by any codec, and objects that are pickled; so
values may be nested at will, and are checked like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from shoal.errors import MisfitError
from shoal.structure.cast import brief
from shoal.structure.cells import WORDS, LooseCells
from shoal.structure.codec import Codec, Reader, Views, Writer, encode_each, is_sized
from shoal.structure.leaf import Leaf
from shoal.structure.nest import Nest

_LENGTH = np.dtype("<i8")


class Packer(Protocol):
    """How one kind of value becomes bytes and back."""

    def pack(self, value: Any, where: str) -> bytes:
        """Returns the value as bytes; raises `MisfitError`, named by `where`."""

    def unpack(self, payload: bytes) -> Any:
        """Returns the value, a new one. No bytes at all are what was never written: the empty value."""


class RaggedCodec:
    """A value that a packer makes bytes of."""

    def __init__(self, packer: Packer) -> None:
        """Takes the packer."""
        self._packer = packer

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The one leaf: where the bytes are."""
        return (Leaf((), (WORDS,), np.dtype(np.int64), is_ragged=True),)

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one value in one row."""
        (cells,) = views
        pack = self._packer.pack

        def write(row: int, value: Any) -> None:
            cells.write(row, pack(value, where))

        return write

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate values, new ones."""
        (cells,) = views
        unpack = self._packer.unpack

        def read(first: int, last: int) -> list[Any]:
            return [unpack(cells.read(row)) for row in range(first, last)]

        return read

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a sequence with one value for each env."""
        encode_each(self, views, batch, where)

    def batch(self, views: Views) -> tuple[Any, ...]:
        """Returns a tuple with one value for each env, new ones."""
        return tuple(self.reader(views)(0, len(views[0])))

    def __repr__(self) -> str:
        """Returns the packer."""
        return f"RaggedCodec({self._packer})"


class ListPacker:
    """Any number of values of one kind, as a tuple."""

    def __init__(self, item: Codec) -> None:
        """Takes how one of the values travels."""
        self._item = item

    def pack(self, value: Any, where: str) -> bytes:
        """Returns the values as bytes."""
        if not is_sized(value):
            raise MisfitError(where, f"expected a tuple of values, found {brief(value)} of type {type(value).__name__}")
        views = empty_views(self._item, len(value))
        write = self._item.writer(views, where)
        for position, item in enumerate(value):
            try:
                write(position, item)
            except MisfitError as misfit:
                misfit.where = f"{where}[{position}]{misfit.where.removeprefix(where)}"
                raise
        return pack_views(len(value), views)

    def unpack(self, payload: bytes) -> tuple[Any, ...]:
        """Returns the values."""
        length, views = unpack_views(self._item, payload)
        return tuple(self._item.reader(views)(0, length))


class StackPacker:
    """Any number of values of one kind, as one batch of them."""

    def __init__(self, item: Codec) -> None:
        """Takes how one of the values travels."""
        self._item = item

    def pack(self, value: Any, where: str) -> bytes:
        """Returns the batch as bytes."""
        part = self._item.first_part(value, where) if isinstance(self._item, Nest) else value
        if not is_sized(part):
            raise MisfitError(where, f"expected a batch of values, found {brief(value)}")
        length = len(part)
        views = empty_views(self._item, length)
        try:
            self._item.encode(views, value, where)
        except MisfitError as misfit:
            if misfit.row is not None:
                misfit.where, misfit.row = f"{where}[{misfit.row}]{misfit.where.removeprefix(where)}", None
            # There are no envs in here.
            misfit.problem = misfit.problem.replace(", one for each env", "")
            raise
        return pack_views(length, views)

    def unpack(self, payload: bytes) -> Any:
        """Returns the batch."""
        _, views = unpack_views(self._item, payload)
        return self._item.batch(views)


class PicklePacker:
    """Any object that can be pickled."""

    def __init__(self, dumps: Callable[[Any], bytes], loads: Callable[[bytes], Any]) -> None:
        """Takes how to pickle and how to unpickle."""
        self._dumps = dumps
        self._loads = loads

    def pack(self, value: Any, where: str) -> bytes:
        """Returns the pickled object."""
        try:
            return self._dumps(value)
        except Exception as error:
            raise MisfitError(where, f"{brief(value)} cannot be pickled ({type(error).__name__}: {error})") from error

    def unpack(self, payload: bytes) -> Any:
        """Returns the object, None if none was ever written."""
        return self._loads(payload) if payload else None


def empty_views(codec: Codec, rows: int) -> list[Any]:
    """Returns room for so many values, in this process alone."""
    return [
        LooseCells([b""] * rows) if leaf.is_ragged else np.zeros((rows, *leaf.shape), leaf.dtype)
        for leaf in codec.leaves
    ]


def pack_views(rows: int, views: Sequence[Any]) -> bytes:
    """Returns views as bytes: the number of rows, then each leaf."""
    parts = [np.array([rows], _LENGTH).tobytes()]
    for view in views:
        if isinstance(view, LooseCells):
            parts.append(np.array([len(payload) for payload in view.payloads], _LENGTH).tobytes())
            parts += view.payloads
        else:
            parts.append(view.tobytes())
    return b"".join(parts)


def unpack_views(codec: Codec, payload: bytes) -> tuple[int, list[Any]]:
    """Returns the number of rows and the views, new arrays."""
    if not payload:
        return 0, empty_views(codec, 0)
    rows = int(np.frombuffer(payload, _LENGTH, 1)[0])
    at = _LENGTH.itemsize
    views: list[Any] = []
    for leaf in codec.leaves:
        if leaf.is_ragged:
            lengths = np.frombuffer(payload, _LENGTH, rows, at).tolist()
            at += rows * _LENGTH.itemsize
            payloads = []
            for length in lengths:
                payloads.append(payload[at : at + length])
                at += length
            views.append(LooseCells(payloads))
        else:
            array = np.zeros((rows, *leaf.shape), leaf.dtype)
            if array.size:
                array[...] = np.frombuffer(payload, leaf.dtype, array.size, at).reshape(array.shape)
            views.append(array)
            at += array.nbytes
    return rows, views
