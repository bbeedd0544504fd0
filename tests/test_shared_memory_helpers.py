"""Gym's shared-memory helpers: what is created, what is read, and which arguments they take, in either order.

What they refuse, spaces of no fixed size, custom spaces and other processes are in the files beside this one.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, OneOf, Text
from vectors import readable

import shoal
from shoal import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from shoal.testing.equality import assert_same
from shoal.testing.spaces import standard_spaces

N = 3
START_METHODS = ("fork", "forkserver", "spawn")
PAIR = gym_spaces.Tuple((Box(-1, 1, (2,), np.float32), Discrete(4)))
NESTED = gym_spaces.Dict(OrderedDict(z=Box(0, 255, (2,), np.uint8), a=PAIR, m=gym_spaces.Dict(on=MultiBinary(2))))
VALUE = {"z": np.array([7, 8], np.uint8), "a": (np.array([0.5, -1], np.float32), 3), "m": {"on": [1, 0]}}


def stored(space: gym.Space[Any], *values: Any, **options: Any) -> Any:
    """Returns what is read from memory into which each value was written."""
    memory = create_shared_memory(space, len(values))
    for index, value in enumerate(values):
        write_to_shared_memory(space, index, value, memory, **options)
    return read_from_shared_memory(space, memory, len(values))


def arrays(nest: Any) -> Iterator[Any]:
    """Yields the leaves of nested dicts and tuples."""
    if not isinstance(nest, (dict, tuple)):
        yield nest
        return
    for part in nest.values() if isinstance(nest, dict) else nest:
        yield from arrays(part)


def row(batch: Any, index: int) -> Any:
    """Returns one value of a batch of nested arrays, in plain dicts."""
    if isinstance(batch, dict):
        return {key: row(part, index) for key, part in batch.items()}
    return tuple(row(part, index) for part in batch) if isinstance(batch, tuple) else batch[index]


# Both generations of arguments.

READERS: dict[str, Callable[[Any, Any, int], Any]] = {
    "new": lambda space, memory, n: read_from_shared_memory(space, memory, n),
    "new, n named": lambda space, memory, n: read_from_shared_memory(space, memory, n=n),
    "old": lambda space, memory, n: read_from_shared_memory(memory, space, n),
    "old, n named": lambda space, memory, n: read_from_shared_memory(memory, space, n=n),
    "space named": lambda space, memory, n: read_from_shared_memory(memory, space=space, n=n),
    "memory named": lambda space, memory, n: read_from_shared_memory(space, shared_memory=memory, n=n),
    "all named": lambda space, memory, n: read_from_shared_memory(n=n, shared_memory=memory, space=space),
}
WRITERS: dict[str, Callable[[Any, int, Any, Any], None]] = {
    "new": lambda space, index, value, memory: write_to_shared_memory(space, index, value, memory),
    "old": lambda space, index, value, memory: write_to_shared_memory(index, value, memory, space),
    "old, space named": lambda space, index, value, memory: write_to_shared_memory(index, value, memory, space=space),
    "memory named": lambda space, index, value, memory: write_to_shared_memory(
        space, index, value, shared_memory=memory
    ),
    "old, last two named": lambda space, index, value, memory: write_to_shared_memory(
        index, value, space=space, shared_memory=memory
    ),
    "all named": lambda space, index, value, memory: write_to_shared_memory(
        shared_memory=memory, value=value, index=index, space=space
    ),
}
MEMORIES: dict[str, Callable[[Any, int], Any]] = {
    "in order": lambda space, n: create_shared_memory(space, n),
    "with context": lambda space, n: create_shared_memory(space, n, multiprocessing),
    "n named": lambda space, n: create_shared_memory(space, n=n),
    "all named": lambda space, n: create_shared_memory(ctx=multiprocessing, n=n, space=space),
}
ORDERED_SPACES = [Box(0, 9, (2,), np.int32), Discrete(9), NESTED, PAIR, Text(3), OneOf((Discrete(3), Box(0, 1, (2,))))]


@pytest.mark.parametrize("space", ORDERED_SPACES, ids=readable)
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_order_of_arguments_means_the_same(space, write):
    """Gym moved the space from the end to the front, and programs of both kinds change nothing but an import."""
    space.seed(5)
    values = [space.sample() for _ in range(N)]
    memory = create_shared_memory(space, N)
    for index in (2, 0, 1):
        write(space, index, values[index], memory)
    for name, read in READERS.items():
        assert_same(read(space, memory, N), stored(space, *values), name)


@pytest.mark.parametrize("create", MEMORIES.values(), ids=MEMORIES)
def test_create_takes_its_arguments_by_place_and_by_name(create):
    """Its arguments never moved, and both ways are in use."""
    memory = create(PAIR, N)
    assert [len(array) for array in memory] == [2 * N, N]


def test_one_value_is_the_default():
    """Gym's signatures have `n=1`."""
    memory = create_shared_memory(PAIR)
    write_to_shared_memory(PAIR, 0, ([1, -1], 2), memory)
    assert_same(read_from_shared_memory(PAIR, memory), (np.array([[1, -1]], np.float32), np.array([2])))


@pytest.mark.parametrize("function", [create_shared_memory, read_from_shared_memory, write_to_shared_memory])
def test_call_without_arguments_says_which_function_misses_what(function):
    """An error that names an inner helper would send the reader to the wrong place."""
    name = next(name for name in shoal.__all__ if getattr(shoal, name) is function)
    assert function.__name__ == name
    with pytest.raises(TypeError, match=f"{name}.*space"):
        function()


# What create returns.


@pytest.mark.parametrize(
    "space, element, size",
    [
        (Box(0, 255, (2, 3), np.uint8), ctypes.c_uint8, 6),
        (Box(-9, 9, (2,), np.int8), ctypes.c_int8, 2),
        (Box(-9, 9, (2,), np.int16), ctypes.c_int16, 2),
        (Box(-9, 9, (2,), np.int32), ctypes.c_int32, 2),
        (Box(0, 9, (2,), np.uint64), ctypes.c_uint64, 2),
        (Box(-1, 1, (4,), np.float32), ctypes.c_float, 4),
        (Box(-1, 1, (), np.float64), ctypes.c_double, 1),
        (Box(0, 1, (5,), np.bool_), ctypes.c_bool, 5),
        (Discrete(5), ctypes.c_int64, 1),
        (MultiDiscrete([2, 3]), ctypes.c_int64, 2),
        (MultiBinary((2, 2)), ctypes.c_int8, 4),
        (Text(7), ctypes.c_int32, 7),
    ],
    ids=readable,
)
def test_leaf_becomes_a_zero_filled_array_of_its_type(space, element, size):
    """Programs look into the array themselves, through `get_obj()`, and expect Gym's element type and length."""
    memory = create_shared_memory(space, N)
    assert memory.get_obj()._type_ is element
    assert len(memory) == N * size
    assert not any(memory[:])
    with memory.get_lock():
        memory.get_obj()[0] = 1


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, ">f4", ">i2"], ids=str)
def test_type_that_ctypes_does_not_know_is_stored_as_well(dtype):
    """Gym fails with "this type has no size" on float16, which policies do observe."""
    dtype = np.dtype(dtype)
    space = Box(np.zeros(2, dtype), np.full(2, 100, dtype), dtype=dtype)
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, np.array([3, 99], dtype), memory)
    batch = read_from_shared_memory(space, memory, 2)
    # Not bit for bit: a longdouble has bytes that mean nothing.
    assert batch.dtype == dtype and batch.tolist() == [[0, 0], [3, 99]]
    batch[0] = 5
    assert read_from_shared_memory(space, memory, 2).tolist() == [[5, 5], [3, 99]]


def test_longdouble_keeps_its_last_bit():
    """Memory that went through float64 would look right and be wrong."""
    value = np.nextafter(np.longdouble(1), np.longdouble(2))
    space = Box(np.full(1, 0, np.longdouble), np.full(1, 2, np.longdouble), dtype=np.longdouble)
    assert stored(space, np.array([value]))[0, 0] == value != 1


@pytest.mark.parametrize("make", [create_shared_memory, lambda space: stored(space, VALUE)], ids=["memory", "batch"])
def test_containers_are_those_of_every_version(make):
    """Gym returns an `OrderedDict`, Gymnasium a dict: this one is both, with the keys in the space's order."""
    made = make(NESTED)
    for part, keys in ((made, ["z", "a", "m"]), (made["m"], ["on"])):
        assert isinstance(part, dict) and isinstance(part, OrderedDict)
        assert list(part) == keys
        assert part == OrderedDict((key, part[key]) for key in keys)
        assert part == {key: part[key] for key in keys}
    assert type(made["a"]) is tuple


@pytest.mark.parametrize("space", [gym_spaces.Dict({}), gym_spaces.Tuple(())], ids=readable)
def test_empty_container_stays_one(space):
    """An env without observations is a legal one."""
    empty = {} if isinstance(space, gym_spaces.Dict) else ()
    memory = create_shared_memory(space, N)
    write_to_shared_memory(space, 1, empty, memory)
    assert memory == empty and read_from_shared_memory(space, memory, N) == empty


@pytest.mark.parametrize("context", [multiprocessing, None, *map(multiprocessing.get_context, START_METHODS)])
def test_every_context_makes_memory(context):
    """The context decides which processes can be handed the memory; None is the module's."""
    spaces = {"array": Box(0, 9, (2,)), "list": gym_spaces.Sequence(Discrete(9)), "kind": OneOf((Discrete(9), Text(2)))}
    space = gym_spaces.Dict(spaces)
    memory = create_shared_memory(space, 2, context)
    write_to_shared_memory(space, 1, {"array": [1, 2], "list": (3, 4), "kind": (1, "ab")}, memory)
    batch = read_from_shared_memory(space, memory, 2)
    assert batch["array"].tolist() == [[0, 0], [1, 2]]
    assert batch["list"] == ((), (3, 4)) and batch["kind"] == ((0, 0), (1, "ab"))


def test_raw_arrays_serve_as_memory():
    """A program that takes no locks makes its own memory with `RawArray`, which has no `get_obj()`."""
    memory = OrderedDict(a=multiprocessing.RawArray("f", 4), b=(multiprocessing.RawArray("q", 2),))
    space = gym_spaces.Dict(a=Box(-1, 1, (2,)), b=gym_spaces.Tuple((Discrete(3),)))
    write_to_shared_memory(space, 1, {"a": [0.5, 1], "b": (2,)}, memory)
    assert memory["a"][:] == [0, 0, 0.5, 1] and memory["b"][0][:] == [0, 2]
    assert_same(row(read_from_shared_memory(space, memory, 2), 1)["a"], np.array([0.5, 1], np.float32))


def test_memory_of_multiprocessing_serves_as_memory():
    """Who has made the arrays does not matter, only their size."""
    memory = multiprocessing.Array("l", 2 * N)
    space = MultiDiscrete([5, 6])
    write_to_shared_memory(space, 2, [4, 5], memory)
    assert memory[:] == [0, 0, 0, 0, 4, 5]
    assert_same(read_from_shared_memory(space, memory, N), np.array([[0, 0], [0, 0], [4, 5]]))


# Views and copies.


@pytest.mark.parametrize("name, space", standard_spaces())
def test_batch_is_a_writable_view_of_the_memory(name, space):
    """A program reads once, and sees every later write through the same arrays; and what it writes there counts."""
    memory = create_shared_memory(space, N)
    first, second = (read_from_shared_memory(space, memory, N) for _ in range(2))
    space.seed(3)
    write_to_shared_memory(space, 1, space.sample(), memory)
    assert_same(first, second)
    for view, other in zip(arrays(first), arrays(second), strict=True):
        assert view.flags.writeable and not view.flags.owndata
        assert view.shape[0] == N
        view[2] = 1
        assert np.all(other[2] == 1)


@pytest.mark.parametrize("name, space", standard_spaces())
def test_value_is_written_to_its_row_alone(name, space):
    """Rows belong to different envs, and are written from different processes."""
    space.seed(4)
    values = [space.sample() for _ in range(2)]
    batch = stored(space, *values)
    zeros = read_from_shared_memory(space, create_shared_memory(space, 2), 2)
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, values[1], memory)
    read = read_from_shared_memory(space, memory, 2)
    assert_same(row(read, 0), row(zeros, 0))
    assert_same(row(read, 1), row(batch, 1))


def test_value_may_be_reused_at_once():
    """Many envs return one buffer for ever."""
    buffer = np.ones(2, np.float32)
    memory = create_shared_memory(Box(0, 9, (2,)), 1)
    write_to_shared_memory(Box(0, 9, (2,)), 0, buffer, memory)
    buffer[:] = 9
    assert memory[:] == [1, 1]


# Sizes.


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)], ids=str)
def test_array_without_elements_is_read_with_its_shape(shape):
    """A robot without joints has an empty vector, and stacked ones still have their axes."""
    space = Box(-1, 1, shape, np.float32)
    assert_same(stored(space, np.zeros(shape, np.float32), []), np.zeros((2, *shape), np.float32))


@pytest.mark.parametrize("space", [*(space for _, space in standard_spaces())], ids=readable)
def test_memory_for_no_values_has_empty_arrays(space):
    """`n` may be what is left after others were taken."""
    batch = read_from_shared_memory(space, create_shared_memory(space, 0), 0)
    assert all(len(array) == 0 for array in arrays(batch))


@pytest.mark.parametrize("space", [Text(3), OneOf((Discrete(2), Text(2))), gym_spaces.Sequence(Discrete(3))])
def test_memory_for_no_values_of_other_kinds_reads_as_an_empty_tuple(space):
    """Of these a batch is a tuple."""
    assert read_from_shared_memory(space, create_shared_memory(space, 0), 0) == ()


@pytest.mark.parametrize("other", [0, 1, 2, 4, 6])
@pytest.mark.parametrize(
    "space",
    [
        Box(0, 1, (2,)),
        Discrete(3),
        NESTED,
        Text(3),
        OneOf((Discrete(3), Box(0, 1, (2,)))),
        gym_spaces.Sequence(Discrete(3)),
        gym_spaces.Graph(Discrete(3), None),
    ],
    ids=readable,
)
def test_reading_another_number_of_values_is_refused(space, other):
    """Fewer would hide envs, and more would be other envs' values."""
    memory = create_shared_memory(space, N)
    with pytest.raises(ValueError, match=rf"\b{other}\b"):
        read_from_shared_memory(space, memory, other)


# Beside and around known spaces.


class Camera(Box):
    """A space that a project derives from a known one."""


class Crate(gym_spaces.Dict):
    """A container that a project derives from a known one."""


def test_subclass_of_a_known_space_is_treated_like_it():
    """Projects add methods to spaces; their values remain the same."""
    space = Crate(eye=Camera(0, 255, (2,), np.uint8), gear=Discrete(3))
    batch = stored(space, {"eye": [1, 2], "gear": 2})
    assert_same(row(batch, 0), {"eye": np.array([1, 2], np.uint8), "gear": np.int64(2)})


def test_values_are_taken_by_key_and_further_keys_are_ignored():
    """Envs write their dictionaries in any order, and some put in more than they promise."""
    value = {"extra": None, **dict(reversed(VALUE.items()))}
    batch = stored(NESTED, value, VALUE)
    assert_same(row(batch, 0), row(batch, 1))
