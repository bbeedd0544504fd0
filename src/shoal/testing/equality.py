"""Equality bit for bit: containers, types, shapes and every value, named by place where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(actual: Any, expected: Any, where: str = "value") -> None:
    """Raises unless two values are equal in all that a program could notice.

    Containers must be of one type; dictionaries have the same keys, in any order; arrays and NumPy scalars one
    dtype, shape and the same bits, so that NaN equals itself and `-0.0` is not `0.0`.

    Args:
        actual: What came.
        expected: What should have come.
        where: What to call the value in the error.

    Raises:
        AssertionError: They differ; the text says where and how.
    """
    if type(actual) is not type(expected):
        _differ(where, f"{type(actual).__name__} {actual!r}", f"{type(expected).__name__} {expected!r}")
    match expected:
        case dict():
            if actual.keys() != expected.keys():
                _differ(where, f"keys {sorted(actual, key=str)}", f"{sorted(expected, key=str)}")
            for key in expected:
                assert_same(actual[key], expected[key], f"{where}[{key!r}]")
        case tuple() | list():
            if len(actual) != len(expected):
                _differ(where, f"{len(actual)} items", f"{len(expected)}")
            for position, (own, other) in enumerate(zip(actual, expected, strict=True)):
                assert_same(own, other, f"{where}[{position}]")
        case np.ndarray() | np.generic():
            _assert_same_array(actual, expected, where)
        case _:
            if actual != expected:
                _differ(where, repr(actual), repr(expected))


def _assert_same_array(actual: Any, expected: Any, where: str) -> None:
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        _differ(where, f"{actual.dtype} {actual.shape}", f"{expected.dtype} {expected.shape}")
    if expected.dtype.hasobject:
        assert_same(list(actual.flat), list(expected.flat), where)
        return
    if actual.tobytes() != expected.tobytes():
        differs = (_bits(actual) != _bits(expected)).any(axis=1)
        index = tuple(int(axis) for axis in np.unravel_index(np.flatnonzero(differs)[0], actual.shape))
        _differ(f"{where}{list(index)}", repr(actual[index]), repr(expected[index]))


def _bits(array: Any) -> Any:
    """Returns the bytes of each element, `[number of elements, bytes of one]`."""
    return np.ascontiguousarray(array).reshape(array.size, 1).view(np.uint8)


def _differ(where: str, actual: str, expected: str) -> None:
    raise AssertionError(f"{where}: found {actual}, expected {expected}")
