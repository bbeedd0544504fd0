"""The helpers beside those of the old Gym, with Gym's own spaces; runs only where Gym is installed.

The signatures are those of Gym 0.23, with the space in front. Where Gym's is an accident that shoal mends, the test
says so, and shows the accident.
"""

from __future__ import annotations

import multiprocessing
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gymnasium_spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.adapters.gymnasium import vector_utils
from shoal.testing.equality import assert_same
from shoal.testing.spaces import nested_spaces

gym = pytest.importorskip("gym", reason="the original to compare with is not installed")
spaces = pytest.importorskip("gym.spaces")
theirs = pytest.importorskip("gym.vector.utils")
their_iteration = pytest.importorskip("gym.vector.utils.spaces")

# Gym is older than the NumPy it runs on, and its logger warns of bounds.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Box bound"),
]

ROWS = st.integers(1, 4)
SEEDS = st.integers(0, 2**31 - 1)


def to_gym(space: Any) -> Any:
    """Returns Gym's space of the same name: with int64 wherever it has no choice of types."""
    match space:
        case gymnasium_spaces.Box():
            return spaces.Box(space.low, space.high, space.shape, space.dtype)
        case gymnasium_spaces.Discrete():
            return spaces.Discrete(int(space.n), start=int(space.start))
        case gymnasium_spaces.MultiDiscrete():
            return spaces.MultiDiscrete(space.nvec)
        case gymnasium_spaces.MultiBinary():
            return spaces.MultiBinary(space.n)
        case gymnasium_spaces.Dict():
            return spaces.Dict(OrderedDict((key, to_gym(part)) for key, part in space.spaces.items()))
        case gymnasium_spaces.Tuple():
            return spaces.Tuple(tuple(map(to_gym, space.spaces)))
    raise AssertionError(space)


def has_float16(space: Any) -> bool:
    """Tells whether there is a part that Gym has no memory for."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(map(has_float16, parts))
    return space.dtype == np.float16


# A space of Gym's, and one of Gymnasium's with the same values: Gym's own samplers fail on some.
PAIRS = nested_spaces().map(lambda space: (to_gym(space), space))


def samples(space: Any, count: int, seed: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def assert_alike(ours: Any, theirs: Any) -> None:
    """Raises unless two nests are the same; that may be a dict which is an `OrderedDict` in Gym."""
    assert_same(plain(ours), plain(theirs))
    assert keys(ours) == keys(theirs)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def keys(value: Any) -> Any:
    """Returns the keys of all dicts in a nest, in their order."""
    if isinstance(value, dict):
        return [(key, keys(part)) for key, part in value.items()]
    return list(map(keys, value)) if isinstance(value, tuple) else None


class Custom(spaces.Space):
    """A space of Gym's that nobody has registered."""


class Camera(spaces.Box):
    """A space that a project derives from one of Gym's."""


SINGLE = spaces.Dict(
    OrderedDict(
        z=spaces.Box(0, 255, (2, 2), np.uint8),
        a=spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2))),
        m=spaces.Dict(turn=spaces.MultiDiscrete([3, 4])),
    )
)
VALUE = {
    "z": np.array([[1, 2], [3, 4]], np.uint8),
    "a": (3, np.array([1, 0], np.int8)),
    "m": {"turn": np.array([2, 3])},
}


# Memory.


@given(PAIRS, ROWS, SEEDS)
@settings(max_examples=100)
def test_what_is_read_after_writing_is_what_gym_reads(pair, rows, seed):
    """Programs move from one to the other by an import, and must see the same containers, types and bits."""
    space, sampled = pair
    memory = shoal.create_shared_memory(space, rows)
    values = samples(sampled, rows, seed)
    for index, value in enumerate(values):
        shoal.write_to_shared_memory(space, index, value, memory)
    batch = shoal.read_from_shared_memory(space, memory, rows)
    if has_float16(space):
        with pytest.raises(TypeError):
            theirs.create_shared_memory(space, rows)
        return
    reference = theirs.create_shared_memory(space, rows)
    for index, value in enumerate(values):
        theirs.write_to_shared_memory(space, index, value, reference)
    expected = theirs.read_from_shared_memory(space, reference, rows)
    assert_same(batch, expected)
    assert keys(batch) == keys(expected)


@given(PAIRS, ROWS, SEEDS)
@settings(max_examples=100)
def test_memory_is_that_of_gym(pair, rows, seed):
    """Arrays lie in both memories in the same way: one may write what the other reads, in a mixed program."""
    space, sampled = pair
    memory = shoal.create_shared_memory(space, rows)
    if has_float16(space):
        return
    reference = theirs.create_shared_memory(space, rows)
    for index, value in enumerate(samples(sampled, rows, seed)):
        theirs.write_to_shared_memory(space, index, value, memory)
        shoal.write_to_shared_memory(space, index, value, reference)
    expected = theirs.read_from_shared_memory(space, memory, rows)
    assert_same(shoal.read_from_shared_memory(space, memory, rows), expected)
    assert_same(theirs.read_from_shared_memory(space, reference, rows), expected)


def test_arguments_may_be_in_the_order_of_gym_0_21():
    """There the space came last, also for Gym's own spaces."""
    memory = shoal.create_shared_memory(SINGLE, 2, multiprocessing)
    shoal.write_to_shared_memory(1, VALUE, memory, SINGLE)
    reference = theirs.create_shared_memory(SINGLE, 2)
    theirs.write_to_shared_memory(SINGLE, 1, VALUE, reference)
    expected = theirs.read_from_shared_memory(SINGLE, reference, 2)
    assert_same(shoal.read_from_shared_memory(memory, SINGLE, 2), expected)
    assert_same(shoal.read_from_shared_memory(memory, space=SINGLE, n=2), expected)
    assert list(memory) == list(reference) == ["z", "a", "m"]
    assert type(memory) is type(reference) is OrderedDict


@pytest.mark.parametrize(
    "change, path", [({"z": [[1, 2], [3, 300]]}, "value['z']"), ({"a": (1.5, [1, 0])}, "value['a'][0]")]
)
def test_value_that_would_be_changed_is_refused(change, path):
    """Gym stores something else in silence."""
    reference = theirs.create_shared_memory(SINGLE, 1)
    theirs.write_to_shared_memory(SINGLE, 0, {**VALUE, "a": (1.5, [1, 0])}, reference)
    assert reference["a"][0][0] == 1
    with pytest.raises(shoal.MisfitError) as caught:
        shoal.write_to_shared_memory(SINGLE, 0, {**VALUE, **change}, shoal.create_shared_memory(SINGLE, 1))
    assert caught.value.where == path


def test_row_that_is_not_there_is_refused():
    """Gym writes row 0 for index -2 of 2."""
    space = spaces.Discrete(9)
    reference = theirs.create_shared_memory(space, 2)
    theirs.write_to_shared_memory(space, -2, 7, reference)
    assert reference[:] == [7, 0]
    for index in (-1, -2, 2):
        with pytest.raises(ValueError, match="out of range"):
            shoal.write_to_shared_memory(space, index, 7, shoal.create_shared_memory(space, 2))


def test_strict_looks_at_the_bounds_of_gyms_spaces():
    """Strictness is shoal's, and works for the spaces of either."""
    memory = shoal.create_shared_memory(SINGLE, 1)
    shoal.write_to_shared_memory(SINGLE, 0, VALUE, memory, strict=True)
    with pytest.raises(shoal.MisfitError, match=r"value\['m'\]\['turn'\].*found 4"):
        shoal.write_to_shared_memory(SINGLE, 0, {**VALUE, "m": {"turn": [2, 4]}}, memory, strict=True)


@pytest.mark.parametrize("around", [lambda space: space, lambda space: spaces.Dict(a=spaces.Tuple((space,)))])
def test_custom_space_of_gyms_is_refused(around):
    """Alone and inside; and so it is by Gym."""
    space, memory = around(Custom((), np.int64)), shoal.create_shared_memory(around(spaces.Discrete(2)), 1)
    value = 0 if isinstance(space, Custom) else {"a": (0,)}
    for module, error in ((theirs, gym.error.CustomSpaceError), (vector_utils, shoal.CustomSpaceError)):
        with pytest.raises(error, match="Cannot create a shared memory for space with type"):
            module.create_shared_memory(space, 1)
        with pytest.raises(error, match="Cannot read from a shared memory for space with type"):
            module.read_from_shared_memory(space, memory, 1)
        with pytest.raises(error, match="Cannot write to a shared memory for space with type"):
            module.write_to_shared_memory(space, 0, value, memory)


def test_functions_for_a_custom_space_of_gyms_can_be_registered():
    """With the lines that registered them with Gym."""

    class Whole(spaces.Space):
        pass

    for module in (theirs, vector_utils):
        module.create_shared_memory.register(Whole, lambda space, n=1, ctx=None: [0] * n)
        module.read_from_shared_memory.register(Whole, lambda space, shared_memory, n=1: tuple(shared_memory))
        module.write_to_shared_memory.register(
            Whole, lambda space, index, value, shared_memory: shared_memory.__setitem__(index, value)
        )
        space = spaces.Dict(a=Whole())
        memory = module.create_shared_memory(space, n=2)
        module.write_to_shared_memory(space, 1, {"a": 5}, memory)
        assert module.read_from_shared_memory(space, memory, n=2) == OrderedDict(a=(0, 5))


def test_subclass_of_a_space_of_gyms_is_treated_like_it():
    """Projects add methods to spaces; their values remain the same."""
    space = Camera(0, 255, (2,), np.uint8)
    for module in (theirs, vector_utils):
        memory = module.create_shared_memory(space, 1)
        module.write_to_shared_memory(space, 0, [1, 2], memory)
        assert_same(module.read_from_shared_memory(space, memory, 1), np.array([[1, 2]], np.uint8))
        assert list(module.iterate(Camera(0, 9, (2,), np.uint8), [1, 2])) == [1, 2]


# Batches.


@given(PAIRS, ROWS, SEEDS)
@settings(max_examples=100)
def test_rows_of_a_batch_are_those_gym_iterates_over(pair, rows, seed):
    """Each env must get the same action, in the same containers."""
    space, sampled = pair
    batched = theirs.batch_space(space, rows)
    batch = theirs.concatenate(space, samples(sampled, rows, seed), create_untyped(space, rows))
    ours, reference = list(shoal.iterate(batched, batch)), list(theirs.iterate(batched, batch))
    assert len(ours) == len(reference) == rows
    assert_alike(tuple(ours), tuple(reference))


def create_untyped(space: Any, rows: int) -> Any:
    """Returns nested None: `concatenate` then makes arrays of the values' own type, which Gym's may differ from."""
    if isinstance(space, spaces.Dict):
        return {key: create_untyped(part, rows) for key, part in space.spaces.items()}
    return [create_untyped(part, rows) for part in space.spaces] if isinstance(space, spaces.Tuple) else None


@given(PAIRS, ROWS, SEEDS)
@settings(max_examples=100)
def test_batch_is_what_gym_concatenates(pair, rows, seed):
    """Batches built here go to code that expects Gym's."""
    space, sampled = pair
    values = samples(sampled, rows, seed)
    assert_alike(shoal.create_empty_array(space, rows), theirs.create_empty_array(space, rows))
    expected = theirs.concatenate(space, values, theirs.create_empty_array(space, rows))
    assert_alike(shoal.concatenate(space, values, shoal.create_empty_array(space, rows)), expected)
    # The order of Gym 0.21.
    assert_alike(shoal.concatenate(values, shoal.create_empty_array(space, rows), space), expected)


@given(PAIRS, ROWS)
@settings(max_examples=100)
def test_space_of_a_batch_takes_the_values_gyms_takes(pair, rows):
    """For Gym's spaces it must be one of Gym's, with the same bounds, shapes and types."""
    space, _ = pair
    ours, reference = shoal.batch_space(space, rows), theirs.batch_space(space, rows)
    assert type(ours) is type(reference)
    assert ours == reference


@pytest.mark.parametrize(
    "build",
    [lambda module: module.create_empty_array(SINGLE, 2), lambda module: single_batch(module)],
    ids=["empty", "full"],
)
def test_batch_of_a_dict_is_an_ordered_dict(build):
    """As in Gym: programs call `move_to_end` on it, or look at the type."""
    for module in (theirs, vector_utils):
        batch = build(module)
        assert isinstance(batch, OrderedDict) and isinstance(batch["m"], OrderedDict)
        assert list(batch) == ["z", "a", "m"]


def single_batch(module: Any) -> Any:
    return module.concatenate(SINGLE, [VALUE, VALUE], module.create_empty_array(SINGLE, 2))


def test_empty_array_of_no_batch_is_a_single_value():
    """`n=None` is in Gym's documentation."""
    for module in (theirs, vector_utils):
        empty = module.create_empty_array(SINGLE, n=None)
        assert empty["z"].shape == (2, 2) and empty["a"][0].shape == ()


@pytest.mark.parametrize(
    "space, items, error, words",
    [
        (spaces.Discrete(3), [1], TypeError, "Unable to iterate over a space of type `Discrete`"),
        (spaces.Box(0, 9, (2,), np.int64), 5, TypeError, "Unable to iterate over the following elements: 5"),
        (spaces.MultiDiscrete([3, 3]), np.array(1), TypeError, "Unable to iterate over the following elements: 1"),
        (spaces.Dict({}), {}, ValueError, None),
        (5, [1], ValueError, "is not a valid `gym.Space` instance"),
    ],
)
def test_iterate_refuses_with_gyms_error(space, items, error, words):
    """Programs catch it, and people search for its words."""
    for module in (theirs, vector_utils):
        with pytest.raises(error, match=words):
            next(iter(module.iterate(space, items)))


def test_custom_space_of_gyms_cannot_be_iterated_over_unless_it_is_a_batch():
    """A Tuple of custom spaces alone is a batch of them."""
    space = Custom()
    words = "Unable to iterate over .*, since .* is a custom `gym.Space` instance"
    for iterating, error in (
        (theirs.iterate, gym.error.CustomSpaceError),
        (their_iteration._iterate_custom, gym.error.CustomSpaceError),
        (vector_utils.iterate, shoal.CustomSpaceError),
        (vector_utils._iterate_custom, shoal.CustomSpaceError),
    ):
        with pytest.raises(error, match=words):
            iterating(space, ["x"])
    for module in (theirs, vector_utils):
        assert list(module.iterate(spaces.Tuple((space, space)), ("x", "y"))) == ["x", "y"]
        assert list(module.iterate(module.batch_space(space, 2), ("x", "y"))) == ["x", "y"]
        assert module.concatenate(space, ["x", "y"], None) == ("x", "y")
        assert module.create_empty_array(space, 2) is None


def test_parts_of_unequal_length_are_an_error():
    """Gym stops at the shortest, and an env goes without an action."""
    space, items = spaces.Tuple((spaces.MultiDiscrete([3] * 3), spaces.MultiDiscrete([3] * 3))), ([1, 2, 0], [1, 2])
    assert len(list(theirs.iterate(space, items))) == 2
    with pytest.raises(ValueError):
        list(shoal.iterate(space, items))


@pytest.mark.parametrize("build", ["batch_space", "create_empty_array"])
def test_building_from_what_is_no_space_is_gyms_value_error(build):
    """Programs catch it."""
    for module in (theirs, vector_utils):
        with pytest.raises(ValueError):
            getattr(module, build)(5, 2)


# The module.


@pytest.mark.parametrize("name", sorted(theirs.__all__))
def test_module_has_every_name_of_the_one_it_replaces(name):
    """An import that fails ends the migration at its first line."""
    assert hasattr(vector_utils, name)
