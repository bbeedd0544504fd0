"""Strict checks: whether a value lies in its space, bounds and all, and if not, where it does not.

A value is written first, so its form is known to be right: what is left is bounds, NaN, keys and lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.adapters.gymnasium.codecs import codec_of
from shoal.adapters.gymnasium.dispatch import SpaceFunction
from shoal.errors import MisfitError
from shoal.structure import Codec, Leaf, Nest, Reader, Views, Writer
from shoal.structure.cast import brief, fit
from shoal.structure.ragged import empty_views


def _other(space: Any, value: Any, where: str) -> None:
    """Raises `MisfitError` if a value of the right form is not in the space; the text says what keeps it out."""
    if not space.contains(value):
        raise MisfitError(where, f"expected a value of {str(space)[:200]}, found {brief(value)}")


def _no_space(space: Any, _value: Any, where: str) -> None:
    raise MisfitError(where, f"{space!r} is no space")


check_contains = SpaceFunction("check_contains", _other, _no_space)


@check_contains.provide(spaces.Box)
def _box(space: Any, value: Any, where: str) -> None:
    array = fit(value, space.shape, space.dtype, where)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise MisfitError(where, f"expected numbers, found NaN{_at(_place(np.isnan(array)))}")
    _check_bounds(array, space.low, space.high, where)


@check_contains.provide(spaces.Discrete)
def _discrete(space: Any, value: Any, where: str) -> None:
    # As Python's integers: the last value may be the largest that the type holds.
    start = int(getattr(space, "start", 0))
    _check_bounds(fit(value, (), np.dtype(space.dtype), where), start, start + int(space.n) - 1, where)


@check_contains.provide(spaces.MultiDiscrete)
def _multi_discrete(space: Any, value: Any, where: str) -> None:
    start = getattr(space, "start", 0)
    _check_bounds(fit(value, space.shape, space.dtype, where), start, start + (space.nvec - 1), where)


@check_contains.provide(spaces.MultiBinary)
def _multi_binary(space: Any, value: Any, where: str) -> None:
    _check_bounds(fit(value, space.shape, space.dtype, where), 0, 1, where)


@check_contains.provide(spaces.Text)
def _text(space: Any, value: Any, where: str) -> None:
    if len(value) < space.min_length:
        raise MisfitError(where, f"expected at least {space.min_length} characters, found {brief(value)}")


@check_contains.provide(spaces.Dict)
def _dict(space: Any, value: Any, where: str) -> None:
    _check_keys(space, value, where)
    for key, part in space.spaces.items():
        check_contains(part, value[key], f"{where}[{key!r}]")


@check_contains.provide(spaces.Tuple)
def _tuple(space: Any, value: Any, where: str) -> None:
    for index, part in enumerate(space.spaces):
        check_contains(part, value[index], f"{where}[{index}]")


@check_contains.provide(spaces.OneOf)
def _one_of(space: Any, value: Any, where: str) -> None:
    index, content = value
    check_contains(space.spaces[index], content, f"{where}[{index}]")


@check_contains.provide(spaces.Sequence)
def _sequence(space: Any, value: Any, where: str) -> None:
    if space.stack:
        _check_stack(space.feature_space, value, where)
    else:
        for index, item in enumerate(value):
            check_contains(space.feature_space, item, f"{where}[{index}]")


@check_contains.provide(spaces.Graph)
def _graph(space: Any, value: Any, where: str) -> None:
    num_nodes = _check_stack(space.node_space, value.nodes, f"{where}.nodes")
    if (value.edges is None) is not (value.edge_links is None):
        raise MisfitError(where, "expected edges and edge_links, or neither")
    if value.edges is None:
        return
    num_edges = _check_stack(space.edge_space, value.edges, f"{where}.edges")
    links = np.asarray(value.edge_links)
    if len(links) != num_edges:
        raise MisfitError(f"{where}.edge_links", f"expected {num_edges}, one for each edge, found {len(links)}")
    _check_bounds(links, 0, num_nodes - 1, f"{where}.edge_links")


def _check_stack(space: Any, batch: Any, where: str) -> int:
    """Checks the values of a batch, and returns how many there are."""
    _check_batch_keys(space, batch, where)
    codec = codec_of(space)
    part = codec.first_part(batch, where) if isinstance(codec, Nest) else batch
    views = empty_views(codec, len(part))
    codec.encode(views, batch, where)
    for index, item in enumerate(codec.reader(views)(0, len(part))):
        check_contains(space, item, f"{where}[{index}]")
    return len(part)


def _check_keys(space: Any, value: Any, where: str) -> None:
    if set(value) != set(space.spaces):
        raise MisfitError(where, f"expected exactly the keys {list(space.spaces)}, found {list(value)}")


def _check_batch_keys(space: Any, batch: Any, where: str) -> None:
    """Checks the keys of a batch, which is a nest of batches or a sequence of values."""
    if isinstance(space, spaces.Dict):
        if isinstance(batch, Mapping):
            _check_keys(space, batch, where)
            for key, part in space.spaces.items():
                _check_batch_keys(part, batch[key], f"{where}[{key!r}]")
        else:
            for row, value in enumerate(batch):
                _check_nested_keys(space, value, f"env {row}: {where}")
    elif isinstance(space, spaces.Tuple):
        if isinstance(batch, list) and all(isinstance(item, tuple) for item in batch):
            for row, value in enumerate(batch):
                _check_nested_keys(space, value, f"env {row}: {where}")
        elif len(batch) == len(space.spaces):
            for index, part in enumerate(space.spaces):
                _check_batch_keys(part, batch[index], f"{where}[{index}]")
    elif isinstance(space, (spaces.Sequence, spaces.OneOf)):
        for row, value in enumerate(batch):
            _check_nested_keys(space, value, f"env {row}: {where}")


def _check_nested_keys(space: Any, value: Any, where: str) -> None:
    """Checks the keys of one value, however deep they are."""
    if isinstance(space, spaces.Dict):
        _check_keys(space, value, where)
        for key, part in space.spaces.items():
            _check_nested_keys(part, value[key], f"{where}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            _check_nested_keys(part, value[index], f"{where}[{index}]")
    elif isinstance(space, spaces.OneOf):
        index, content = value
        _check_nested_keys(space.spaces[index], content, f"{where}[{index}]")
    elif isinstance(space, spaces.Sequence):
        if space.stack:
            _check_batch_keys(space.feature_space, value, where)
        else:
            for index, item in enumerate(value):
                _check_nested_keys(space.feature_space, item, f"{where}[{index}]")


def _check_bounds(array: np.ndarray, low: Any, high: Any, where: str) -> None:
    outside = (array < low) | (array > high)
    if np.any(outside):
        place = _place(outside)
        lowest, highest = (np.broadcast_to(bound, array.shape)[place] for bound in (low, high))
        raise MisfitError(where, f"expected {lowest} to {highest}{_at(place)}, found {array[place]}")


def _place(mask: np.ndarray) -> tuple[int, ...]:
    """Returns the index of the first element that is true."""
    return tuple(int(each) for each in np.argwhere(mask)[0]) if np.ndim(mask) else ()


def _at(place: tuple[int, ...]) -> str:
    return f" at {list(place)}" if place else ""


class StrictCodec:
    """A codec that also refuses what does not lie in the space."""

    def __init__(self, codec: Codec, own: Sequence[Any]) -> None:
        """Takes the codec of the values, and each env's space: one for all, or one for each row."""
        self._codec = codec
        self._own = list(own)

    @classmethod
    def of(cls, space: Any) -> StrictCodec:
        """Returns the strict codec of one space."""
        return cls(codec_of(space), [space])

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The codec's."""
        return self._codec.leaves

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one value in one row; one that is refused may have been stored."""
        own, write_value = self._own, self._codec.writer(views, where)

        def write(row: int, value: Any) -> None:
            write_value(row, value)
            check_contains(own[row % len(own)], value, where)

        return write

    def reader(self, views: Views) -> Reader:
        """Returns the codec's."""
        return self._codec.reader(views)

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a batch, if each of its values lies in the space; what is refused may have been stored."""
        self._codec.encode(views, batch, where)
        _check_batch_keys(self._own[0], batch, where)
        for row, value in enumerate(self._codec.reader(views)(0, len(views[0]) if views else 0)):
            check_contains(self._own[row % len(self._own)], value, f"env {row}: {where}")

    def batch(self, views: Views) -> Any:
        """Returns the codec's."""
        return self._codec.batch(views)
