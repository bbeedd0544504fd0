"""Infos as columns: what envs say beside their observations, by key instead of by env.

A worker turns its envs' dictionaries into one column a key, and the engine joins the workers' columns;
neither sends nor merges anything env by env. The result equals what Gymnasium's vector envs build: an
array `[B, ...]` under each key and a mask `[B]` under `_key`, nested dictionaries likewise. Where
Gymnasium cuts (a float into the integer column of the env before it) or fails (arrays of unequal shape,
a string after a number), types are promoted, to an array of objects if nothing less will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_PYTHON_NUMBERS = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64)}


@dataclass
class Column:
    """One key's values in some rows.

    Attributes:
        rows: Which envs gave a value, in order.
        values: Their values: an array where all are numbers or arrays of one type and shape,
            columns where all are dictionaries, otherwise a list.
        item_type: The type that each value had, where `values` is an array.
    """

    rows: Sequence[int]
    values: np.ndarray | dict[str, Column] | list[Any]
    item_type: type = object

    def items(self) -> Iterable[Any]:
        """Returns the values one by one, as they were given."""
        if isinstance(self.values, dict):
            return scatter(self.values, self.rows)
        if isinstance(self.values, np.ndarray) and self.item_type in _PYTHON_NUMBERS:
            items: list[Any] = self.values.tolist()
            return items
        if self.item_type is np.ndarray:
            # Indexing without `...` would turn arrays of shape `()` into numbers.
            return [self.values[index, ...] for index in range(len(self.rows))]  # type: ignore[call-overload]
        return list(self.values)


Columns = dict[str, Column]


def snapshot(info: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of an info that its env cannot change any more: dictionaries and arrays are new."""
    return {key: _copied(value) for key, value in info.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return snapshot(value)
    return value.copy() if isinstance(value, np.ndarray) else value


def gather(infos: Sequence[tuple[int, dict[str, Any]]]) -> Columns:
    """Returns the columns of some envs' infos, given as `(row, info)` in the order of rows."""
    first = infos[0][1] if infos else {}
    if all([type(info) is dict and len(info) == len(first) for _, info in infos]):
        # Mostly all envs say the same things, and then there is no need to ask which says what.
        rows = _compact([row for row, _ in infos])
        try:
            return {key: _pack(rows, [info[key] for _, info in infos]) for key in first}
        except KeyError:
            pass
    rows_of: dict[str, list[int]] = {}
    values_of: dict[str, list[Any]] = {}
    for row, info in infos:
        for key, value in info.items():
            rows_of.setdefault(key, []).append(row)
            values_of.setdefault(key, []).append(value)
    return {key: _pack(_compact(rows), values_of[key]) for key, rows in rows_of.items()}


def scatter(columns: Columns, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Returns one dictionary for each of the rows: the inverse of `gather`."""
    infos: dict[int, dict[str, Any]] = {row: {} for row in rows}
    for key, column in columns.items():
        for row, value in zip(column.rows, column.items(), strict=True):
            infos[row][key] = value
    return list(infos.values())


def merge(parts: Sequence[Columns], num_envs: int) -> dict[str, Any]:
    """Returns the infos of a batch: for each key an array `[B, ...]` and, under `_key`, a mask `[B]`.

    Args:
        parts: The workers' columns, in the order of rows.
        num_envs: `B`.
    """
    by_key: dict[str, list[Column]] = {}
    for part in parts:
        for key, column in part.items():
            by_key.setdefault(key, []).append(column)
    infos: dict[str, Any] = {}
    for key, columns in by_key.items():
        is_complete = sum([len(column.rows) for column in columns]) == num_envs
        mask = np.full(num_envs, is_complete)
        if not is_complete:
            for column in columns:
                mask[_index(column.rows)] = True
        infos[key] = _join(columns, num_envs)
        infos[f"_{key}"] = mask
    return infos


def _compact(rows: list[int]) -> Sequence[int]:
    """Returns rows as a range if they follow each other, which is shorter to send and faster to index with."""
    if rows and rows[-1] - rows[0] + 1 == len(rows):
        return range(rows[0], rows[-1] + 1)
    return rows


def _index(rows: Sequence[int]) -> slice | Sequence[int]:
    """Returns what to index an array with to get these rows."""
    return slice(rows.start, rows.stop) if isinstance(rows, range) else rows


def _pack(rows: Sequence[int], values: list[Any]) -> Column:
    """Returns the column in the most compact form that loses nothing."""
    types = set(map(type, values))
    if len(types) != 1:
        return Column(rows, _kept(values))
    (item_type,) = types
    if issubclass(item_type, dict):
        return Column(rows, gather(list(zip(rows, values, strict=True))))
    if item_type in _PYTHON_NUMBERS:
        try:
            return Column(rows, np.array(values, _PYTHON_NUMBERS[item_type]), item_type)
        except OverflowError:
            return Column(rows, values)
    if issubclass(item_type, np.number):
        return Column(rows, np.array(values, np.dtype(item_type)), item_type)
    if item_type is np.ndarray and len({(value.shape, value.dtype) for value in values}) == 1:
        return Column(rows, np.stack(values), item_type)
    return Column(rows, _kept(values))


def _kept(values: list[Any]) -> list[Any]:
    """Returns the values with copies of arrays, which an env may be about to overwrite."""
    return [value.copy() if isinstance(value, np.ndarray) else value for value in values]


def _join(columns: list[Column], num_envs: int) -> Any:
    """Returns one key's array, or the infos of a nested dictionary."""
    nested = [column.values for column in columns if isinstance(column.values, dict)]
    if len(nested) == len(columns):
        return merge(nested, num_envs)
    arrays = [column.values for column in columns if isinstance(column.values, np.ndarray)]
    if len(arrays) == len(columns) and len({(array.shape[1:], array.dtype) for array in arrays}) == 1:
        if sum(map(len, arrays)) == num_envs:
            # Every env has given one, in order.
            return np.concatenate(arrays)
        joined = np.zeros((num_envs, *arrays[0].shape[1:]), arrays[0].dtype)
        for column, array in zip(columns, arrays, strict=True):
            joined[_index(column.rows)] = array
        return joined
    rows = [row for column in columns for row in column.rows]
    values = [value for column in columns for value in column.items()]
    return _promote(rows, values, num_envs)


def _promote(rows: list[int], values: list[Any], num_envs: int) -> Any:
    """Returns an array of the smallest type that holds values of several types, or of objects."""
    if all(isinstance(value, dict) for value in values):
        return merge([gather(list(zip(rows, values, strict=True)))], num_envs)
    form = _common_form(values)
    if form is None:
        joined = np.full(num_envs, None, dtype=object)
        for row, value in zip(rows, values, strict=True):
            joined[row] = value
        return joined
    shape, dtype = form
    joined = np.zeros((num_envs, *shape), dtype)
    for row, value in zip(rows, values, strict=True):
        joined[row] = value
    return joined


def _common_form(values: list[Any]) -> tuple[tuple[int, ...], np.dtype] | None:
    """Returns the shape and dtype that hold all values unchanged, None if there are none."""
    # As in Gymnasium a first value that is no number makes a column of objects; NumPy's bool counts as none.
    if not isinstance(values[0], (bool, int, float, np.number, np.ndarray)):
        return None
    forms = [_form(value) for value in values]
    if any(form is None for form in forms):
        return None
    shapes = {form[0] for form in forms if form}
    dtypes = {form[1] for form in forms if form}
    if len(shapes) != 1:
        return None
    try:
        dtype = np.result_type(*dtypes)
    except TypeError:
        return None
    # NumPy promotes int64 with uint64 to float64, which holds neither.
    if dtype.kind == "f" and all(each.kind in "iub" for each in dtypes):
        return None
    # Nor does a float have room for the last digits of a large integer beside it.
    if dtype.kind in "fc" and not all(_fits_mantissa(value, dtype) for value in values):
        return None
    return shapes.pop(), dtype


def _form(value: Any) -> tuple[tuple[int, ...], np.dtype] | None:
    if type(value) in _PYTHON_NUMBERS:
        if type(value) is int and not -(2**63) <= value < 2**63:
            return None
        return (), _PYTHON_NUMBERS[type(value)]
    if isinstance(value, (np.ndarray, np.number, np.bool_)):
        return value.shape, value.dtype
    return None


def _fits_mantissa(value: Any, dtype: np.dtype) -> bool:
    """Tells whether a float type holds a value exactly if that is an integer or an array of them."""
    array = np.asarray(value)
    limit = 2 ** (int(np.finfo(dtype).nmant) + 1)
    return array.dtype.kind not in "iu" or bool(np.all((array <= limit) & (array >= -limit)))
