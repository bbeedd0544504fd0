"""Fits a value to a leaf: exact shape, and only casts that keep what the value says.

Integers may become other integers if every value survives; anything real may become a float,
rounded but never overflown; nothing becomes an integer that was a float. Nothing is wrapped, cut or
broadcast. The rule is NumPy's "same kind" without its silent wrap-around.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import MisfitError


def fit(value: Any, shape: tuple[int, ...], dtype: np.dtype, where: str) -> np.ndarray:
    """Returns the value as an array of exactly this shape and dtype, a view if it is one already.

    Raises:
        MisfitError: The value has another shape, or would be changed by the cast.
    """
    array = to_array(value, dtype, where)
    if array.shape != shape:
        raise MisfitError(where, f"expected {dtype} of shape {shape}, found {array.dtype} of shape {array.shape}")
    return cast(array, dtype, where)


def to_array(value: Any, dtype: np.dtype, where: str) -> np.ndarray:
    """Returns any array-like as an array of numbers of its own natural type."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise MisfitError(where, f"expected {dtype}, found {_kind(value)}, which is no array: {error}") from None
    if array.dtype.kind not in "biuf" and array.dtype != dtype:
        if array.size == 0 and isinstance(value, (list, tuple)):
            return array.astype(dtype)
        raise MisfitError(where, f"expected {dtype}, found {_kind(value)}, which is no array of numbers")
    # An empty list says nothing about its type, and NumPy takes it for float64.
    if array.size == 0 and isinstance(value, (list, tuple)):
        return array.astype(dtype)
    return array


def cast(array: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    """Returns the array in another dtype, or itself if it has that dtype.

    Raises:
        MisfitError: The cast would change a value by more than rounding.
    """
    if array.dtype == dtype:
        return array
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    if dtype.kind in "iub" and array.dtype.kind in "iub":
        result = array.astype(dtype)
        # Comparing signed with unsigned 64 bit would go through float64, so signs are compared apart.
        same = (
            (result == array) & ((result < 0) == (array < 0))
            if dtype.kind != "b"
            else result.astype(array.dtype) == array
        )
        if not np.all(same):
            raise MisfitError(
                where, f"expected {dtype}, found {array.dtype} {_offender(array, same)}, which {dtype} cannot hold"
            )
        return result
    if dtype.kind == "f" and array.dtype.kind in "iubf":
        with np.errstate(over="ignore"):
            result = array.astype(dtype)
        same = np.isfinite(result) | ~np.isfinite(array)
        if not np.all(same):
            raise MisfitError(
                where, f"expected {dtype}, found {array.dtype} {_offender(array, same)}, which overflows {dtype}"
            )
        return result
    raise MisfitError(where, f"expected {dtype}, found {array.dtype}; convert it where it is made")


def _offender(array: np.ndarray, same: Any) -> str:
    return str(array[~np.asarray(same)].flat[0])


def brief(value: Any) -> str:
    """Returns a value as Python writes it, or the beginning of that, for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {brief(value)}"
