"""Infos on the wire: the usual columns as nothing but tuples, numbers and bytes.

Most infos are a few numbers an env, the same ones every step. Pickling them as the objects they are means
looking up classes and calling constructors; as bare bytes they take a third of the time at both ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.worker.infos import Column, Columns

# What stands for the type that the values had, where NumPy's type does not say it.
_TO_CODE: dict[type, str] = {bool: "bool", int: "int", float: "float", np.ndarray: "array"}
_FROM_CODE = {code: item_type for item_type, code in _TO_CODE.items()}

Wire = list[tuple[Any, ...]]


def to_wire(columns: Columns) -> Wire | None:
    """Returns the columns in plain form, None if they hold anything but numbers of consecutive envs."""
    wire: Wire = []
    for key, column in columns.items():
        rows, values = column.rows, column.values
        if type(key) is not str or not isinstance(rows, range):
            return None
        if isinstance(values, dict):
            nested = to_wire(values)
            if nested is None:
                return None
            wire.append((key, rows.start, rows.stop, nested))
        elif isinstance(values, np.ndarray) and values.dtype.kind in "biufc" and values.dtype.isnative:
            code = _TO_CODE.get(column.item_type, "")
            wire.append((key, rows.start, rows.stop, code, values.dtype.char, values.shape, values.tobytes()))
        else:
            return None
    return wire


def from_wire(wire: Wire) -> Columns:
    """Returns the columns; their arrays are read-only."""
    columns: Columns = {}
    for key, start, stop, *content in wire:
        if len(content) == 1:
            columns[key] = Column(range(start, stop), from_wire(content[0]))
        else:
            code, char, shape, values = content
            dtype = np.dtype(char)
            item_type = _FROM_CODE.get(code, dtype.type)
            columns[key] = Column(range(start, stop), np.frombuffer(values, dtype).reshape(shape), item_type)
    return columns
