"""Which envs a user means: one index, several, or a mask."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shoal.errors import ArgumentError, ArgumentTypeError


def rows_of(indices: Any, num_envs: int, name: str = "indices") -> list[int] | None:
    """Returns the rows that are meant, in the order given; None for all.

    Args:
        indices: None, one index, several, or a bool array `[B]`; a negative one counts from the end.
        num_envs: `B`.
        name: What errors call the argument.

    Raises:
        ArgumentError: There is no such env, or a mask has another length.
        ArgumentTypeError: It is something else.
    """
    if indices is None:
        return None
    if isinstance(indices, np.ndarray) and indices.dtype == np.bool_:
        return np.flatnonzero(checked_mask(indices, num_envs, name)).tolist()
    if isinstance(indices, (str, bytes, dict)):
        raise _no_indices(indices, name)
    several = indices if isinstance(indices, Iterable) and np.ndim(indices) else [indices]  # type: ignore[arg-type]
    return [_row(index, num_envs, name) for index in several]


def checked_mask(mask: Any, num_envs: int, name: str) -> np.ndarray:
    """Returns a bool mask `[B]` as it is; raises `ArgumentError` for another shape, `ArgumentTypeError` for others."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise ArgumentTypeError(f"{name} must be a mask of bools, one for each env, found {mask!r}")
    if array.shape != (num_envs,):
        raise ArgumentError(f"{name} must have one bool for each of {num_envs} envs, found shape {array.shape}")
    return array


def spread(values: Any, rows: Sequence[int], num_envs: int, name: str) -> list[Any]:
    """Returns a list `[B]` with one value for each chosen row, and None for the others.

    Raises:
        ArgumentError: There are not as many values as rows.
    """
    if len(values) != len(rows):
        raise ArgumentError(f"{name} has {len(values)} entries for {len(rows)} chosen envs; give one for each")
    full: list[Any] = [None] * num_envs
    for row, value in zip(rows, values, strict=True):
        full[row] = value
    return full


def _row(index: Any, num_envs: int, name: str) -> int:
    if isinstance(index, (bool, np.bool_)):
        raise _no_indices(index, name)
    try:
        row = operator.index(index)
    except TypeError:
        raise _no_indices(index, name) from None
    if not -num_envs <= row < num_envs:
        raise ArgumentError(f"{name} names env {row}, but there are {num_envs} envs, 0 to {num_envs - 1}")
    return row % num_envs


def _no_indices(found: Any, name: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{name} must be the index of an env, a list of them, or a bool array; found {found!r}")
