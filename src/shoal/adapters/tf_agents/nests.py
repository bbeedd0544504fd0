"""Nests in the order of `tf.nest`, without TensorFlow: mappings by their sorted keys, `None` as a leaf.

A nest is a leaf, or a mapping, a list, a tuple or a named tuple of nests. All else is a leaf: specs, arrays,
numbers, strings. optree keeps an `OrderedDict` in its own order and takes a deque for a container; so it is only
asked to match values against a structure whose mappings have been made plain dictionaries, which it sorts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import optree

from shoal.errors import ArgumentError, ArgumentTypeError
from shoal.structure.leaf import Path, describe_path

Nest = Any


def flatten(nest: Nest) -> list[Any]:
    """Returns the leaves: mappings by sorted keys, sequences in their order.

    Raises:
        TypeError: The keys of a mapping cannot be sorted.
    """
    leaves: list[Any] = []
    _collect(nest, leaves)
    return leaves


def pack(structure: Nest, flat: Iterable[Any]) -> Nest:
    """Returns leaves in the containers of a structure, each mapping in that structure's own key order.

    Raises:
        ValueError: There are more or fewer leaves than the structure has.
    """
    leaves = list(flat)
    expected = len(flatten(structure))
    if len(leaves) != expected:
        raise ArgumentError(
            f"Could not pack sequence: expected {expected} leaves, as the structure has, found {len(leaves)}."
        )
    return _build(structure, iter(leaves))


def map_nest(function: Callable[..., Any], *nests: Nest) -> Nest:
    """Returns what the function gives for the leaves of all nests at each place, in the first one's containers.

    Raises:
        ValueError, TypeError: The nests differ, see `assert_same_structure`.
    """
    if not nests:
        raise ArgumentError("map_nest needs at least one nest.")
    for nest in nests[1:]:
        assert_same_structure(nests[0], nest)
    columns = [flatten(nest) for nest in nests]
    return _build(nests[0], map(function, *columns))


def assert_same_structure(a: Nest, b: Nest) -> None:
    """Passes if two nests have the same containers.

    Two mappings of the same keys are the same, so are two lists, and two named tuples of the same name and fields,
    whichever classes they are of.

    Raises:
        ValueError: They differ in length, in keys, or in what is a leaf.
        TypeError: They differ in the type of a sequence.
    """
    _match(a, b, ())


def stack(nests: Sequence[Nest]) -> Nest:
    """Returns one nest, in the containers of the first, whose leaves are `[len(nests), ...]`, always copies.

    Raises:
        ValueError: An item differs from the first in structure or in a leaf's shape; the text says which and how.
    """
    if not nests:
        raise ArgumentError("There is nothing to stack; at least one nest is needed.")
    structure = nests[0]
    # Matching a value against a known structure takes optree a fifth of the time that `flatten` needs.
    leaves_of = optree.tree_structure(_to_plain(structure), none_is_leaf=True).flatten_up_to
    try:
        columns = list(zip(*map(leaves_of, nests), strict=True))
    except ValueError:
        columns = []
    if not columns or any(map(_has_container, columns)):
        # Other containers than optree's, which is fine, or a real difference, which is then explained.
        _check_alike(nests)
        columns = list(zip(*map(flatten, nests), strict=True))
    try:
        # This stacks as `np.stack` does: 16 numbers in 1.5 us instead of 15, small arrays in a third of the time.
        stacked = [np.array(column) for column in columns]
    except ValueError:
        _check_alike(nests)
        raise
    return _build(structure, iter(stacked))


def rows(nest: Nest, batch_size: int) -> list[Nest]:
    """Returns the items of a nest of batches `[B, ...]` as `B` separate nests; arrays are views.

    Raises:
        ValueError: A leaf has no batch axis, or one of another length.
    """
    leaves = [np.asarray(leaf) for leaf in flatten(nest)]
    for position, leaf in enumerate(leaves):
        if leaf.ndim == 0 or len(leaf) != batch_size:
            place = describe_path(_paths(nest)[position])
            raise ArgumentError(
                f"expected a batch of {batch_size}{place and f' at {place}'}, found an array of shape {leaf.shape}."
            )
    if not _is_container(nest):
        return list(leaves[0])
    if not leaves:
        return [_build(nest, iter(())) for _ in range(batch_size)]
    return [_build(nest, iter(items)) for items in zip(*leaves, strict=True)]


def _is_container(nest: Nest) -> bool:
    return isinstance(nest, (tuple, list, Mapping))


def _has_container(items: Iterable[Any]) -> bool:
    return any(issubclass(kind, (tuple, list, Mapping)) for kind in set(map(type, items)))


def _is_namedtuple(nest: Nest) -> bool:
    return isinstance(nest, tuple) and hasattr(nest, "_fields")


def _sorted_keys(mapping: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError as error:
        raise ArgumentTypeError(f"a nest's keys must be sortable, found {list(mapping)}: {error}") from None


def _collect(nest: Nest, leaves: list[Any]) -> None:
    if isinstance(nest, (tuple, list)):
        for item in nest:
            _collect(item, leaves)
    elif isinstance(nest, Mapping):
        for key in _sorted_keys(nest):
            _collect(nest[key], leaves)
    else:
        leaves.append(nest)


def _build(structure: Nest, leaves: Iterator[Any]) -> Nest:
    """Returns the next leaves in the containers of a structure."""
    if isinstance(structure, (tuple, list)):
        items = [_build(item, leaves) for item in structure]
        if _is_namedtuple(structure):
            return type(structure)(*items)
        return items if type(structure) is list else type(structure)(items)
    if isinstance(structure, Mapping):
        found = {key: _build(structure[key], leaves) for key in _sorted_keys(structure)}
        ordered = {key: found[key] for key in structure}
        if type(structure) is dict:
            return ordered
        if isinstance(structure, defaultdict):
            return type(structure)(structure.default_factory, ordered)
        return type(structure)(ordered)  # type: ignore[call-arg]
    return next(leaves)


def _to_plain(nest: Nest) -> Nest:
    """Returns the structure with plain dictionaries for all mappings, and `None` for each leaf."""
    if isinstance(nest, Mapping):
        return {key: _to_plain(item) for key, item in nest.items()}
    if isinstance(nest, (tuple, list)):
        items = [_to_plain(item) for item in nest]
        if _is_namedtuple(nest):
            return type(nest)(*items)
        return items if isinstance(nest, list) else tuple(items)
    return None


def _match(a: Nest, b: Nest, path: Path) -> None:
    if not _is_container(a) and not _is_container(b):
        return
    if not _is_container(a) or not _is_container(b):
        raise ArgumentError(_difference(path, _kind(a), _kind(b)))
    if not _is_same_type(a, b):
        raise ArgumentTypeError(_difference(path, _kind(a), _kind(b)))
    if isinstance(a, Mapping) and a.keys() != b.keys():
        raise ArgumentError(_difference(path, f"keys {list(a)}", f"keys {list(b)}"))
    # The length comes last: what is wrong inside is found first, as in `tf.nest`.
    for (key, left), (_, right) in zip(_items(a), _items(b), strict=False):
        _match(left, right, (*path, key))
    if len(a) != len(b):
        raise ArgumentError(_difference(path, f"{len(a)} items", f"{len(b)} items"))


def _is_same_type(a: Nest, b: Nest) -> bool:
    if _is_namedtuple(a) and _is_namedtuple(b):
        return type(a).__name__ == type(b).__name__ and a._fields == b._fields
    return type(a) is type(b) or any(isinstance(a, kind) and isinstance(b, kind) for kind in (Mapping, list))


def _difference(path: Path, expected: str, found: str) -> str:
    place = f" at {describe_path(path)}" if path else ""
    return f"The two structures don't have the same nested structure: expected {expected}{place}, found {found}."


def _kind(nest: Nest) -> str:
    return f"a {type(nest).__name__}" if _is_container(nest) else f"a leaf ({type(nest).__name__})"


def _check_alike(nests: Sequence[Nest]) -> None:
    """Raises an error that names the first nest whose structure or shapes are not those of nest 0."""
    paths = _paths(nests[0])
    shapes = [np.shape(leaf) for leaf in flatten(nests[0])]
    for index, nest in enumerate(nests):
        try:
            assert_same_structure(nests[0], nest)
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"item {index} cannot be stacked with item 0. {error}") from None
        for path, expected, leaf in zip(paths, shapes, flatten(nest), strict=True):
            if np.shape(leaf) != expected:
                place = f" at {describe_path(path)}" if path else ""
                raise ArgumentError(
                    f"item {index} has shape {np.shape(leaf)}{place}, but item 0 has {expected}; "
                    "all items of a batch have one shape."
                )


def _items(nest: Nest) -> list[tuple[Any, Nest]]:
    """Returns a container's keys and items in the order of `flatten`; keys of named tuples are their fields."""
    if isinstance(nest, Mapping):
        return [(key, nest[key]) for key in _sorted_keys(nest)]
    return list(zip(nest._fields, nest, strict=True) if _is_namedtuple(nest) else enumerate(nest))


def _paths(nest: Nest, path: Path = ()) -> list[Path]:
    """Returns where each leaf is, in the order of `flatten`."""
    if not _is_container(nest):
        return [path]
    return [found for key, item in _items(nest) for found in _paths(item, (*path, key))]
