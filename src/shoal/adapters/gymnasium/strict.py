"""Strict checks: whether a value lies in its space, bounds and all, and if not, why."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.adapters.gymnasium.codecs import codec_of
from shoal.adapters.gymnasium.dispatch import SpaceFunction
from shoal.errors import MisfitError
from shoal.structure import Codec, Leaf, Reader, Views, Writer


def _other(space: Any, value: Any, where: str) -> None:
    """Raises `MisfitError` if the value is not in the space; the text says what keeps it out."""
    if not space.contains(value):
        raise MisfitError(where, f"expected a value of {space}, found {value!r}")


def _no_space(space: Any, _value: Any, where: str) -> None:
    raise MisfitError(where, f"{space!r} is no space")


check_contains = SpaceFunction(_other, _no_space)


@check_contains.register(spaces.Box)
def _box(space: Any, value: Any, where: str) -> None:
    array = np.asarray(value)
    if array.shape != space.shape:
        raise MisfitError(where, f"expected shape {space.shape}, found {array.shape}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise MisfitError(where, f"expected numbers, found NaN at {_place(np.isnan(array))}")
    _check_bounds(array, space.low, space.high, where)


@check_contains.register(spaces.Discrete)
def _discrete(space: Any, value: Any, where: str) -> None:
    start = getattr(space, "start", 0)
    _check_bounds(np.asarray(value), start, start + space.n - 1, where)


@check_contains.register(spaces.MultiDiscrete)
def _multi_discrete(space: Any, value: Any, where: str) -> None:
    start = getattr(space, "start", 0)
    _check_bounds(np.asarray(value), start, start + space.nvec - 1, where)


@check_contains.register(spaces.MultiBinary)
def _multi_binary(_space: Any, value: Any, where: str) -> None:
    _check_bounds(np.asarray(value), 0, 1, where)


@check_contains.register(spaces.Dict)
def _dict(space: Any, value: Any, where: str) -> None:
    try:
        keys = set(value)
    except TypeError:
        raise MisfitError(where, f"expected a dict with keys {list(space.spaces)}, found {value!r}") from None
    if keys != set(space.spaces):
        raise MisfitError(where, f"expected exactly the keys {list(space.spaces)}, found {list(value)}")
    for key, part in space.spaces.items():
        check_contains(part, value[key], f"{where}[{key!r}]")


@check_contains.register(spaces.Tuple)
def _tuple(space: Any, value: Any, where: str) -> None:
    if len(value) != len(space.spaces):
        raise MisfitError(where, f"expected {len(space.spaces)} items, found {len(value)}")
    for index, part in enumerate(space.spaces):
        check_contains(part, value[index], f"{where}[{index}]")


def _check_bounds(array: np.ndarray, low: Any, high: Any, where: str) -> None:
    outside = (array < low) | (array > high)
    if np.any(outside):
        place = _place(outside)
        lowest, highest = (np.broadcast_to(bound, array.shape)[place] for bound in (low, high))
        at = f" at {list(map(int, place))}" if place else ""
        raise MisfitError(where, f"expected {lowest} to {highest}{at}, found {array[place]}")


def _place(mask: np.ndarray) -> tuple[int, ...]:
    """Returns the index of the first element that is true."""
    return tuple(int(each) for each in np.argwhere(mask)[0]) if np.ndim(mask) else ()


class StrictCodec:
    """A codec that also refuses what does not lie in the space."""

    def __init__(self, space: Any, codec: Codec) -> None:
        """Takes the space and the codec of its values."""
        self._space = space
        self._codec = codec

    @classmethod
    def of(cls, space: Any) -> StrictCodec:
        """Returns the strict codec of a space."""
        return cls(space, codec_of(space))

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The codec's."""
        return self._codec.leaves

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one value in one row, if it lies in the space."""
        space, write_value = self._space, self._codec.writer(views, where)

        def write(row: int, value: Any) -> None:
            check_contains(space, value, where)
            write_value(row, value)

        return write

    def reader(self, views: Views) -> Reader:
        """Returns the codec's."""
        return self._codec.reader(views)

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a batch, if each of its values lies in the space; what is refused may have been stored."""
        self._codec.encode(views, batch, where)
        for row, value in enumerate(self._codec.reader(views)(0, len(views[0]) if views else 0)):
            check_contains(self._space, value, f"env {row}: {where}")

    def batch(self, views: Views) -> Any:
        """Returns the codec's."""
        return self._codec.batch(views)
