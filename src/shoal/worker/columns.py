"""Infos in shared memory: a column `[B, ...]` and a mask `[B]` for each key whose values have one type and shape.

The first infos of a batch travel as messages. From them the engine learns which keys there are and what their
values are like, and lays out columns; from then on workers write there. Infos that do not fit what is laid out (a
new key, another type, an object) travel as a message again, all that a worker has to say at that step, and the
engine lays out anew if there is something new to lay out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.memory import Layout, Segment
from shoal.structure import Leaf
from shoal.worker.infos import Column, Columns

_BOOL, _STAMP = np.dtype(np.bool_), np.dtype(np.int64)
_TYPE_CODES = {int: "q", float: "d"}
# Whoever puts more than this into an info does not mean columns.
MOST_COLUMNS = 256


@dataclass(frozen=True)
class Form:
    """What the values under one key are like.

    Attributes:
        item_type: The type that each of them has.
        dtype: Type of one element.
        shape: `[...]`, of one value.
    """

    item_type: type
    dtype: np.dtype
    shape: tuple[int, ...]


# By key a form, a schema for nested dictionaries, or None for values that have no one form.
Schema = dict[str, Any]


def learn(schema: Schema, columns: Columns, room: list[int]) -> bool:
    """Adds to a schema what infos that came as a message show.

    Args:
        schema: Changed.
        columns: The infos.
        room: How many keys may still be added, in a list of one; counted down.

    Returns:
        Whether there is something new to lay out.
    """
    is_new = False
    for key, column in columns.items():
        if type(key) is not str or (key not in schema and room[0] <= 0):
            continue
        if isinstance(column.values, dict):
            if key not in schema:
                schema[key], is_new = {}, True
                room[0] -= 1
            if isinstance(schema[key], dict):
                is_new |= learn(schema[key], column.values, room)
            else:
                schema[key] = None
            continue
        form = None
        if isinstance(column.values, np.ndarray) and column.values.dtype.kind in "biufc":
            form = Form(column.item_type, column.values.dtype, column.values.shape[1:])
        if key not in schema:
            schema[key] = form
            room[0] -= 1
            is_new |= form is not None
        elif schema[key] != form:
            # It has been given up: such a key goes by message from now on.
            schema[key] = None
    return is_new


def count(schema: Schema) -> int:
    """Returns how many keys a schema has, those of nested dictionaries among them."""
    return sum(1 + (count(part) if isinstance(part, dict) else 0) for part in schema.values())


def _entries(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields each key that is laid out with its form, None for a nested dictionary, which comes before its keys."""
    for key, part in schema.items():
        if isinstance(part, dict):
            yield (*path, key), None
            yield from _entries(part, (*path, key))
        elif part is not None:
            yield (*path, key), part


class InfoLayout:
    """Where the columns of one schema are, for a number of blocks."""

    def __init__(self, schema: Schema, rows: int, num_workers: int, num_blocks: int) -> None:
        """Lays out columns and masks `[B, ...]`, and for each worker the number of the request that it has filled."""
        self._schema = schema
        entries = list(_entries(schema))
        self._layout = Layout.of(
            rows,
            {
                "mask": [Leaf(path, (), _BOOL) for path, _ in entries],
                "column": [Leaf(path, form.shape, form.dtype) for path, form in entries if form is not None],
            },
        )
        self._stamps = Layout.of(num_workers, {"stamp": [Leaf((), (), _STAMP)]})
        self._num_blocks = num_blocks

    @property
    def nbytes(self) -> int:
        """Size of all blocks, in bytes."""
        return self._num_blocks * (self._layout.nbytes + self._stamps.nbytes)

    def blocks(self, segment: Segment) -> list[InfoBlock]:
        """Returns the blocks in a segment."""
        size = self._layout.nbytes + self._stamps.nbytes
        return [self._block(segment, index * size) for index in range(self._num_blocks)]

    def _block(self, segment: Segment, start: int) -> InfoBlock:
        views = self._layout.views(segment.buffer, start)
        (stamps,) = self._stamps.views(segment.buffer, start + self._layout.nbytes)["stamp"]
        masks, columns = iter(views["mask"]), iter(views["column"])
        return InfoBlock(_branch(self._schema, masks, columns), stamps)


def _branch(schema: Schema, masks: Iterator[np.ndarray], columns: Iterator[np.ndarray]) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for key, part in schema.items():
        if part is None:
            continue
        mask = next(masks)
        nodes[key] = Node(mask, _branch(part, masks, columns) if isinstance(part, dict) else Slot(part, next(columns)))
    return nodes


@dataclass
class Slot:
    """A column in memory.

    Attributes:
        form: What its values are like.
        column: `[B, ...]`.
    """

    form: Form
    column: np.ndarray

    def write(self, first: int, values: Sequence[Any]) -> bool:
        """Stores the values of rows `first` and on; returns False if one is of another type or shape."""
        form, column = self.form, self.column
        if set(map(type, values)) != {form.item_type}:
            return False
        last = first + len(values)
        code = _TYPE_CODES.get(form.item_type)
        if code is not None:
            try:
                # Through a typed array: twice as fast as NumPy takes a list of numbers.
                column[first:last] = array(code, values)
            except OverflowError:
                return False
            return True
        if form.item_type is np.ndarray:
            dtype, shape = form.dtype, form.shape
            if any(value.dtype != dtype or value.shape != shape for value in values):
                return False
        column[first:last] = values
        return True


@dataclass
class Node:
    """One key in memory.

    Attributes:
        mask: `[B]`, which envs have given it.
        content: Its column, or the keys of a nested dictionary.
    """

    mask: np.ndarray
    content: Slot | dict[str, Node]

    def clear(self, first: int, last: int) -> None:
        """Takes the rows back."""
        if not self.mask[first:last].any():
            return
        self.mask[first:last] = False
        if isinstance(self.content, Slot):
            self.content.column[first:last] = 0
        else:
            for node in self.content.values():
                node.clear(first, last)


class InfoBlock:
    """The columns that go with one result block."""

    def __init__(self, nodes: dict[str, Node], stamps: np.ndarray) -> None:
        """Takes the keys, and for each worker the number of the request that it has filled its rows for."""
        self._nodes = nodes
        self._stamps = stamps

    def write(
        self, worker: int, sequence: int, first: int, last: int, infos: Sequence[tuple[int, dict[str, Any]]]
    ) -> bool:
        """Stores infos of some of a worker's rows `first` to `last`; returns False if they do not fit."""
        if not _write(self._nodes, first, last, infos):
            return False
        self._stamps[worker] = sequence
        return True

    def is_filled(self, worker: int, sequence: int) -> bool:
        """Tells whether a worker has stored infos here for the request of that number."""
        return bool(self._stamps[worker] == sequence)

    def filled(self, sequence: int) -> list[bool]:
        """Tells the same of every worker."""
        flags: list[bool] = (self._stamps == sequence).tolist()
        return flags

    def take(self) -> dict[str, Any]:
        """Returns the infos of a batch whose workers have all stored theirs; arrays are copies."""
        return _take(self._nodes)

    def columns_of(self, first: int, last: int) -> Columns:
        """Returns what a worker with these rows has stored, as if it had come as a message."""
        return _columns(self._nodes, first, last)


def _write(nodes: dict[str, Node], first: int, last: int, infos: Sequence[tuple[int, dict[str, Any]]]) -> bool:
    if any([key not in nodes for key in infos[0][1]] if infos else ()):
        return False
    found = 0
    is_complete = len(infos) == last - first
    for key, node in nodes.items():
        try:
            # Mostly all envs give all keys.
            values = [info[key] for _, info in infos] if is_complete else None
        except KeyError:
            values = None
        if values is not None:
            # Before the values: what does not fit after all is then cleared at the next step.
            node.mask[first:last] = True
            if not _write_rows(node, first, last, infos, values):
                return False
            found += len(values)
            continue
        node.clear(first, last)
        for row, info in infos:
            if key in info:
                node.mask[row] = True
                if not _write_rows(node, row, row + 1, [(row, info)], [info[key]]):
                    return False
                found += 1
    # Nobody has given a key that is not laid out.
    return found == sum([len(info) for _, info in infos])


def _write_rows(node: Node, first: int, last: int, infos: Sequence[tuple[int, Any]], values: list[Any]) -> bool:
    if isinstance(node.content, Slot):
        return node.content.write(first, values)
    if not all([type(value) is dict for value in values]):
        return False
    return _write(node.content, first, last, [(row, value) for (row, _), value in zip(infos, values, strict=True)])


def _take(nodes: dict[str, Node]) -> dict[str, Any]:
    infos: dict[str, Any] = {}
    for key, node in nodes.items():
        if node.mask.any():
            content = node.content
            infos[key] = content.column.copy() if isinstance(content, Slot) else _take(content)
            infos[f"_{key}"] = node.mask.copy()
    return infos


def _columns(nodes: dict[str, Node], first: int, last: int) -> Columns:
    columns: Columns = {}
    for key, node in nodes.items():
        rows = (np.flatnonzero(node.mask[first:last]) + first).tolist()
        if not rows:
            continue
        content = node.content
        if isinstance(content, Slot):
            columns[key] = Column(rows, content.column[rows], content.form.item_type)
        else:
            columns[key] = Column(rows, _columns(content, first, last))
    return columns
