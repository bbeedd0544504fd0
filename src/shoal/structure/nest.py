"""A nest: codecs inside dictionaries, tuples and lists of any depth, used as one codec.

Containers are optree's; a value may come in any mapping or sequence of the right keys or length.
Keys that the structure does not know are left out, as Gymnasium does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import optree

from shoal.errors import MisfitError
from shoal.structure.codec import Codec, Reader, Views, Writer, encode_each
from shoal.structure.leaf import Leaf, Path, describe_path


class Nest:
    """A structure of codecs, itself a codec.

    Attributes:
        leaves: All leaves, with their paths from the root.
    """

    def __init__(self, tree: Any) -> None:
        """Takes codecs in nested dicts, tuples, named tuples and lists, or one codec."""
        self._tree = tree
        self._codecs: list[Codec]
        self._codecs, self._treespec = optree.tree_flatten(tree)
        self._paths: list[Path] = list(self._treespec.paths())
        # An empty container is one node, too, but no codec.
        self._is_plain = self._treespec.is_leaf()
        stops = list(accumulate(len(codec.leaves) for codec in self._codecs))
        self._spans = list(zip([0, *stops], stops, strict=False))
        self.leaves: tuple[Leaf, ...] = tuple(
            Leaf((*path, *leaf.path), leaf.shape, leaf.dtype, leaf.is_ragged)
            for path, codec in zip(self._paths, self._codecs, strict=True)
            for leaf in codec.leaves
        )

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one nested value in one row."""
        writers = [
            codec.writer(own, where + describe_path(path))
            for (codec, own), path in zip(self._with(views), self._paths, strict=True)
        ]
        if self._is_plain:
            return writers[0]
        flatten, write_parts = self._flatten, _part_writer(self._tree, iter(writers))

        def write(row: int, value: Any) -> None:
            try:
                write_parts(row, value)
                return
            except (_UnlikeError, KeyError):
                # Made of other containers, or a misfit that is to be told.
                pass
            for write_leaf, item in zip(writers, flatten(value, where), strict=True):
                write_leaf(row, item)

        return write

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate nested values."""
        readers = [codec.reader(own) for codec, own in self._with(views)]
        if self._is_plain:
            return readers[0]
        unflatten = self._treespec.unflatten
        if not readers:
            return lambda first, last: [unflatten(()) for _ in range(last - first)]

        def read(first: int, last: int) -> list[Any]:
            columns = [read_leaf(first, last) for read_leaf in readers]
            return [unflatten(items) for items in zip(*columns, strict=True)]

        return read

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a batch, given as a nest of batches or as a sequence with one value for each env.

        For a structure that is a tuple at its root a list of tuples has one value for each env; a tuple, or a
        list of anything else, has one batch for each part.
        """
        if self._is_plain:
            self._codecs[0].encode(views, batch, where)
        elif isinstance(self._tree, tuple) and _is_list_of_tuples(batch):
            encode_each(self, views, batch, where)
        else:
            try:
                parts = self._flatten(batch, where)
            except MisfitError:
                if not _is_one_per_env(batch, self._tree):
                    raise
                encode_each(self, views, batch, where)
                return
            for (codec, own), path, part in zip(self._with(views), self._paths, parts, strict=True):
                codec.encode(own, part, where + describe_path(path))

    def first_part(self, batch: Any, where: str) -> Any:
        """Returns what a batch holds for the first codec, `()` if there is none."""
        parts = self._flatten(batch, where)
        return parts[0] if parts else ()

    def batch(self, views: Views) -> Any:
        """Returns the nest of batches; containers are new, arrays are the views."""
        if self._is_plain:
            return self._codecs[0].batch(views)
        return self._treespec.unflatten([codec.batch(own) for codec, own in self._with(views)])

    def _with(self, views: Views) -> Iterator[tuple[Codec, Views]]:
        """Yields each codec with its own part of the flat list of views."""
        for codec, (start, stop) in zip(self._codecs, self._spans, strict=True):
            yield codec, views[start:stop]

    def _flatten(self, value: Any, where: str) -> list[Any]:
        """Returns one item for each codec, whatever mappings and sequences the value is made of."""
        try:
            return self._treespec.flatten_up_to(value)
        except ValueError:
            # Rare: other containers than ours, another key order, more keys, or a real misfit.
            items: list[Any] = []
            _flatten_loosely(self._tree, value, where, items)
            return items

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as the tree alone."""
        return Nest, (self._tree,)

    def __repr__(self) -> str:
        """Returns the tree."""
        return f"Nest({self._tree})"


class _UnlikeError(Exception):
    """A value is not made of the usual containers."""


def _part_writer(tree: Any, writers: Iterator[Writer]) -> Writer:
    """Returns what stores a value that is made of plain dictionaries and tuples, without making a list of its leaves.

    Args:
        tree: Codecs in containers.
        writers: For each codec, in optree's order, what stores a value of it.
    """
    if isinstance(tree, dict):
        containers: tuple[Any, ...] = (dict,)
        keys: Iterable[Any] = optree.tree_structure(tree).entries()  # type: ignore[arg-type]
    elif isinstance(tree, (tuple, list)):
        containers, keys = (tuple, list), range(len(tree))
    else:
        return next(writers)
    node: Any = tree
    parts = [(key, _part_writer(node[key], writers)) for key in keys]
    size = len(parts)

    def write(row: int, value: Any) -> None:
        if not isinstance(value, containers) or len(value) != size:
            raise _UnlikeError
        for key, write_part in parts:
            write_part(row, value[key])

    return write


def _flatten_loosely(tree: Any, value: Any, where: str, items: list[Any]) -> None:
    match tree:
        case dict():
            if not isinstance(value, Mapping):
                raise MisfitError(where, f"expected a dict with keys {list(tree)}, found {_kind(value)}")
            missing = [key for key in tree if key not in value]
            if missing:
                raise MisfitError(where, f"key {missing[0]!r} is missing; expected {list(tree)}, found {list(value)}")
            # optree's order, which is not always the dictionary's.
            for key in optree.tree_structure(tree).entries():  # type: ignore[arg-type]
                _flatten_loosely(tree[key], value[key], f"{where}[{key!r}]", items)
        case tuple() | list():
            if not is_sequence(value):
                raise MisfitError(where, f"expected a tuple of {len(tree)}, found {_kind(value)}")
            if len(value) != len(tree):
                raise MisfitError(where, f"expected a tuple of {len(tree)}, found {len(value)} items")
            for position, (subtree, item) in enumerate(zip(tree, value, strict=True)):
                _flatten_loosely(subtree, item, f"{where}[{position}]", items)
        case _:
            items.append(value)


def is_sequence(value: Any) -> bool:
    """Tells whether a value may stand for a tuple."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_list_of_tuples(batch: Any) -> bool:
    return type(batch) is list and all(isinstance(item, tuple) for item in batch)


def _is_one_per_env(batch: Any, tree: Any) -> bool:
    """Tells whether a batch is a sequence of single values rather than a nest of batches."""
    if not is_sequence(batch):
        return False
    container = Mapping if isinstance(tree, dict) else Sequence
    return all(isinstance(item, container) and not isinstance(item, str) for item in batch)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a {type(value).__name__}"
