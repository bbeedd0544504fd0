"""Gym's shared-memory helpers: arrays that processes share, one for each leaf of a space.

Names, arguments and what comes back are those of `gym.vector.utils.shared_memory` and its successor in Gymnasium;
both orders of arguments work. Values are checked as everywhere in shoal: nothing is wrapped, cut or broadcast.
Spaces without a fixed size work, too: their memory grows.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import wraps
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.adapters.gymnasium.codecs import codec_of, custom_space_error, is_custom
from shoal.adapters.gymnasium.dispatch import SpaceFunction
from shoal.adapters.gymnasium.growing import GrowingArray
from shoal.adapters.gymnasium.strict import StrictCodec
from shoal.errors import ArgumentError, MisfitError
from shoal.structure import ArrayCodec, Codec, Leaf
from shoal.structure.cast import to_array
from shoal.structure.nest import is_sequence
from shoal.structure.one_of import check_pair
from shoal.structure.ragged import empty_views

# NumPy's letters for types that `multiprocessing.Array` knows; memory for others is made of bytes.
_TYPE_CODES = frozenset("bBhHiIlLqQfd")


def _function(
    name: str, doing: str, leaves: Callable[..., Any], adapt: Callable[[Any], Any] = lambda f: f
) -> SpaceFunction:
    """Returns a function of spaces: of codecs' leaves where a class has a codec, and an error where it has none."""

    def other(space: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_custom(space):
            return leaves(space, *args, **kwargs)
        raise custom_space_error(
            f"Cannot {doing} a shared memory for space with type `{type(space)}`. Space of type `{type(space)}` "
            f"doesn't have an registered `{name}` function: shared memory only supports default Gym spaces "
            "(e.g. `Box`, `Tuple`, `Dict`, etc...), and custom spaces whose class was registered."
        )

    def no_space(value: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        raise custom_space_error(
            f"Cannot {doing} a shared memory for space with type `{type(value)}`: {value!r} is no space"
        )

    return SpaceFunction(name, other, no_space, adapt)


def _create_leaves(space: Any, n: int = 1, ctx: Any = multiprocessing) -> Any:
    arrays = [_create_array(leaf, n, ctx or multiprocessing) for leaf in codec_of(space).leaves]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _read_leaves(space: Any, shared_memory: Any, n: int = 1) -> Any:
    codec = codec_of(space)
    return codec.batch([_view(leaf, memory, n) for leaf, memory in _pairs(codec, shared_memory)])


def _write_leaves(space: Any, index: int, value: Any, shared_memory: Any, *, strict: bool = False) -> None:
    codec = codec_of(space)
    if strict:
        _check_strictly(space, value)
    elif isinstance(codec, ArrayCodec):
        value = _with_shape(value, codec)
    views = [_row(leaf, memory, index) for leaf, memory in _pairs(codec, shared_memory)]
    codec.writer(views, "value")(0, value)


def _pairs(codec: Codec, shared_memory: Any) -> list[tuple[Leaf, Any]]:
    leaves = codec.leaves
    memories = (shared_memory,) if len(leaves) == 1 else shared_memory
    return list(zip(leaves, memories, strict=True))


def _check_strictly(space: Any, value: Any) -> None:
    """Raises `MisfitError` if a value does not lie in the space; nothing is stored."""
    codec = StrictCodec.of(space)
    codec.writer(empty_views(codec, 1), "value")(0, value)


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a user's function, which knows nothing of `strict`, with that check before it."""

    @wraps(function)
    def write(space: Any, index: int, value: Any, shared_memory: Any, *, strict: bool = False) -> Any:
        if strict:
            _check_strictly(space, value)
        return function(space, index, value, shared_memory)

    return write


create_shared_memory = _function("create_shared_memory", "create", _create_leaves)
create_shared_memory.__doc__ = """Returns memory for `n` values of a space, to be shared by processes.

Args:
    space: The space.
    n: How many.
    ctx: The `multiprocessing` module or one of its contexts; None for the module.

Returns:
    A `multiprocessing.Array` for each leaf, zero-filled, in an `OrderedDict` for a Dict space and a tuple for a
    Tuple or OneOf space. It is handed to a process while that is started.

Raises:
    CustomSpaceError: It is no space, or one of a class that nobody has registered.
"""
read_from_shared_memory = _function("read_from_shared_memory", "read from", _read_leaves)
read_from_shared_memory.__doc__ = """Returns the `n` values of a space in shared memory as a batch.

Arrays are writable views `[n, ...]` of the memory. Text, OneOf, Sequence and Graph give tuples of new values.

Args:
    space: The space.
    shared_memory: What `create_shared_memory` returned.
    n: How many, the same as then.
"""
write_to_shared_memory = _function("write_to_shared_memory", "write to", _write_leaves, _checking)
write_to_shared_memory.__doc__ = """Stores one value of a space in shared memory.

Args:
    space: The space.
    index: Which of the `n` values.
    value: It must have as many elements as the space, and survive the cast to its type.
    shared_memory: What `create_shared_memory` returned.
    strict: Whether it must also have the very shape, lie within the bounds and have no other keys.

Raises:
    MisfitError: It does not fit.
    ArgumentError: The index is out of range.
"""


@create_shared_memory.provide(spaces.Dict)
def _create_dict(space: Any, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return OrderedDict((key, create_shared_memory(part, n, ctx)) for key, part in space.spaces.items())


@create_shared_memory.provide(spaces.Tuple)
def _create_tuple(space: Any, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return tuple(create_shared_memory(part, n, ctx) for part in space.spaces)


@create_shared_memory.provide(spaces.OneOf)
def _create_one_of(space: Any, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ((ctx or multiprocessing).Array("l", n), *(create_shared_memory(part, n, ctx) for part in space.spaces))


@read_from_shared_memory.provide(spaces.Dict)
def _read_dict(space: Any, shared_memory: Any, n: int = 1) -> Any:
    return OrderedDict(
        (key, read_from_shared_memory(part, shared_memory[key], n)) for key, part in space.spaces.items()
    )


@read_from_shared_memory.provide(spaces.Tuple)
def _read_tuple(space: Any, shared_memory: Any, n: int = 1) -> Any:
    return tuple(
        read_from_shared_memory(part, memory, n) for part, memory in zip(space.spaces, shared_memory, strict=True)
    )


@read_from_shared_memory.provide(spaces.OneOf)
def _read_one_of(space: Any, shared_memory: Any, n: int = 1) -> Any:
    tags = np.frombuffer(_buffer(shared_memory[0]), np.int64)[:n].copy() if n else ()
    parts = [
        read_from_shared_memory(part, memory, n) for part, memory in zip(space.spaces, shared_memory[1:], strict=True)
    ]
    return tuple((tag, _row_of(space.spaces[tag], parts[tag], row)) for row, tag in enumerate(tags))


@write_to_shared_memory.provide(spaces.Dict)
def _write_dict(space: Any, index: int, value: Any, shared_memory: Any, *, strict: bool = False) -> None:
    if not isinstance(value, Mapping):
        raise MisfitError("value", f"expected a dict with keys {list(space.spaces)}, found {value!r}")
    if strict:
        _check_strictly(space, value)
    for key, part in space.spaces.items():
        if key not in value:
            raise MissingKeyError(
                "value", f"key {key!r} is missing; expected {list(space.spaces)}, found {list(value)}"
            )
        _write_part(part, index, value[key], shared_memory[key], f"[{key!r}]", strict)


@write_to_shared_memory.provide(spaces.Tuple)
def _write_tuple(space: Any, index: int, value: Any, shared_memory: Any, *, strict: bool = False) -> None:
    if not is_sequence(value):
        raise MisfitError("value", f"expected a tuple of {len(space.spaces)}, found {value!r}")
    if len(value) != len(space.spaces):
        raise MisfitError("value", f"expected a tuple of {len(space.spaces)}, found {len(value)} items")
    for position, (part, item, memory) in enumerate(zip(space.spaces, value, shared_memory, strict=True)):
        _write_part(part, index, item, memory, f"[{position}]", strict)


@write_to_shared_memory.provide(spaces.OneOf)
def _write_one_of(space: Any, index: int, value: Any, shared_memory: Any, *, strict: bool = False) -> None:
    tag, item = check_pair(value, len(space.spaces), "value")
    tags = np.frombuffer(_buffer(shared_memory[0]), np.int64) if len(shared_memory[0]) else np.empty(0, np.int64)
    if not 0 <= index < len(tags):
        raise ArgumentError(f"index {index} is out of range: the memory holds {len(tags)} values")
    _write_part(space.spaces[tag], index, item, shared_memory[1 + tag], f"[{tag}]", strict)
    tags[index] = tag


class MissingKeyError(MisfitError, KeyError):
    """A value has no entry for a key of its space."""


def _write_part(space: Any, index: int, value: Any, memory: Any, place: str, strict: bool) -> None:
    try:
        write_to_shared_memory(space, index, value, memory, strict=strict)
    except MisfitError as misfit:
        raise type(misfit)(f"value{place}{misfit.where.removeprefix('value')}", misfit.problem) from None


def _row_of(space: Any, batch: Any, row: int) -> Any:
    """Returns one value of a batch; arrays are views."""
    if hasattr(space, "spaces") and isinstance(batch, dict):
        return type(batch)((key, _row_of(part, batch[key], row)) for key, part in space.spaces.items())
    if create_shared_memory.dispatch(type(space)) is _create_tuple:
        return tuple(_row_of(part, items, row) for part, items in zip(space.spaces, batch, strict=True))
    return batch[row]


def _with_shape(value: Any, codec: ArrayCodec) -> Any:
    """Returns an array in the codec's shape if it has as many elements, as Gym does."""
    array = to_array(value, codec.dtype, "value")
    if array.shape != codec.shape and array.size == prod(codec.shape):
        return array.reshape(codec.shape)
    return array


def _create_array(leaf: Leaf, n: int, ctx: Any) -> Any:
    if leaf.is_ragged:
        return GrowingArray(n, ctx)
    size = n * prod(leaf.shape)
    if leaf.dtype == np.bool_:
        return ctx.Array(ctypes.c_bool, size)
    if leaf.dtype.char in _TYPE_CODES and leaf.dtype.isnative:
        return ctx.Array(leaf.dtype.char, size)
    return ctx.Array("B", size * leaf.dtype.itemsize)


def _buffer(memory: Any) -> Any:
    """Returns what a `multiprocessing.Array` wraps, or a raw array itself."""
    return memory.get_obj() if hasattr(memory, "get_obj") else memory


def _flat(leaf: Leaf, memory: Any) -> np.ndarray:
    buffer = _buffer(memory)
    return np.frombuffer(buffer, leaf.dtype) if len(buffer) else np.empty(0, leaf.dtype)


def _view(leaf: Leaf, memory: Any, n: int) -> Any:
    if leaf.is_ragged:
        return memory.cells(n)
    flat = _flat(leaf, memory)
    if flat.size != n * prod(leaf.shape):
        raise ArgumentError(f"the memory holds {flat.size} elements, which are not {n} values of shape {leaf.shape}")
    return flat.reshape((n, *leaf.shape))


def _row(leaf: Leaf, memory: Any, index: int) -> Any:
    if leaf.is_ragged:
        return memory.cell(index)
    flat, size = _flat(leaf, memory), prod(leaf.shape)
    if index < 0 or (size and not (index + 1) * size <= flat.size):
        raise ArgumentError(
            f"index {index} is out of range: the memory holds {flat.size // size if size else 0} values"
        )
    return flat[index * size : (index + 1) * size].reshape((1, *leaf.shape))
