"""What the shared-memory helpers refuse: values that would be changed, rows that are not there; and strictness.

Gym wraps, cuts and broadcasts in silence. Here only safe casts and those of the same kind are done, and a refusal
names the path of what is wrong.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.spaces import Box, Discrete, GraphInstance, MultiBinary, MultiDiscrete, OneOf, Text
from vectors import readable

from shoal import MisfitError, create_shared_memory, read_from_shared_memory, write_to_shared_memory
from shoal.testing.equality import assert_same

IMAGE = Box(0, 255, (3,), np.uint8)
VECTOR = Box(-1, 1, (3,), np.float32)
TEXTS = gym_spaces.Tuple((Text(3), Text(3)))
KINDS = OneOf((Discrete(3), Box(0, 1, (2,), np.float32)))
NESTED = gym_spaces.Dict(a=gym_spaces.Tuple((Discrete(5), gym_spaces.Dict(b=IMAGE))), c=KINDS, d=Text(3))
FINE: dict[str, Any] = {"a": (1, {"b": [1, 2, 3]}), "c": (1, np.array([0, 1], np.float32)), "d": "abc"}


def written(space: gym.Space[Any], value: Any, **options: Any) -> Any:
    """Returns the one value in memory after it was written."""
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, value, memory, **options)
    return read_from_shared_memory(space, memory, 1)


# Casts and shapes.


@pytest.mark.parametrize(
    "space, value, result",
    [
        (IMAGE, [1, 2, 255], [1, 2, 255]),
        (IMAGE, np.array([1, 2, 255], np.int64), [1, 2, 255]),
        (IMAGE, [True, False, True], [1, 0, 1]),
        (VECTOR, [1, 0, -1], [1, 0, -1]),
        (VECTOR, np.array([0.1, 0.2, 0.3], np.float64), np.float32([0.1, 0.2, 0.3])),
        (VECTOR, [np.inf, -np.inf, 0], [np.inf, -np.inf, 0]),
        (Discrete(5), np.uint8(4), 4),
        (Discrete(5), True, 1),
        (MultiBinary(2), np.array([True, False]), [1, 0]),
        (MultiBinary(2), np.array([1, 0], np.int64), [1, 0]),
        (Box(0, 1, (2,), np.bool_), [1, 0], [True, False]),
        (Box(-9, 9, (2,), np.int32), np.array([2, -3], ">i8"), [2, -3]),
    ],
    ids=readable,
)
def test_cast_that_keeps_the_value_is_done(space, value, result):
    """Envs return lists, Python numbers and arrays of other types where the space says an array."""
    assert_same(written(space, value), np.array([result], space.dtype))


@pytest.mark.parametrize(
    "space, value, found",
    [
        (IMAGE, [300.7, 0, 0], "float64"),
        (IMAGE, [1.0, 2.0, 3.0], "float64"),
        (IMAGE, [0, 0, 300], "300"),
        (IMAGE, [0, -1, 0], "-1"),
        (IMAGE, np.array([0, 256, 0], np.int16), "256"),
        (Discrete(5), 3.0, "float64"),
        (Discrete(5), np.nan, "float64"),
        (Discrete(5), np.uint64(2**63), "9223372036854775808"),
        (MultiDiscrete([3, 4]), [0.5, 1], "float64"),
        (MultiBinary(2), [0, 128], "128"),
        (Box(0, 1, (2,), np.bool_), [2, 0], "2"),
        (VECTOR, [1e39, 0, 0], "overflow"),
        (Box(-1, 1, (1,), np.float16), [70000], "overflow"),
        (VECTOR, [1j, 0, 0], "no array of numbers"),
        (VECTOR, "abc", "no array of numbers"),
        (VECTOR, ["1", "2", "3"], "no array of numbers"),
        (VECTOR, None, "None"),
        (VECTOR, {"a": 1}, "dict"),
        (VECTOR, [[1], [1, 2]], "no array"),
        (IMAGE, np.array([1, 2, 3], object), "no array of numbers"),
    ],
    ids=readable,
)
def test_cast_that_would_change_the_value_is_refused(space, value, found):
    """Gym stores 300.7 in a uint8 as 44, and the policy learns from it."""
    with pytest.raises(MisfitError, match=f"^value: .*{found}"):
        written(space, value)


@pytest.mark.parametrize(
    "space, value",
    [
        (VECTOR, [[1], [0], [-1]]),
        (VECTOR, np.array([[1, 0, -1]], np.float32)),
        (Box(-1, 1, (3, 1), np.float32), [1, 0, -1]),
        (MultiDiscrete([3, 4, 5]), np.array([[2], [1], [0]])),
        (MultiBinary([3, 1]), [1, 0, 1]),
    ],
    ids=readable,
)
def test_as_many_elements_in_another_shape_are_taken_in_order(space, value):
    """Gym flattens, and column vectors for flat spaces are common."""
    assert_same(written(space, value), np.array(value, space.dtype).reshape(1, *space.shape))


@pytest.mark.parametrize(
    "space, value",
    [(Discrete(5), np.array([3])), (Discrete(5), [[3]]), (Box(0, 9, ()), [3.0])],
    ids=readable,
)
def test_array_of_one_element_is_taken_for_a_number(space, value):
    """Policies return actions of shape (1,) for a Discrete."""
    assert_same(written(space, value), np.array([3], space.dtype))


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.array(3.0)], ids=readable)
def test_number_is_taken_for_an_array_of_one_element(value):
    """It has as many elements, and Gym takes it: an env with a Box of shape (1,) may return a float."""
    assert_same(written(Box(0, 9, (1,)), value), np.array([[3]], np.float32))


@pytest.mark.parametrize(
    "value", [1, 1.0, np.array(1.0), [1], [[1]], [1, 0], [1, 0, 1, 0], [], np.zeros((2, 2))], ids=str
)
def test_other_number_of_elements_is_refused(value):
    """Gym fills the row with a single number, which hides that an env returns too little."""
    with pytest.raises(MisfitError, match=r"^value: expected float32 of shape"):
        written(VECTOR, value)


@pytest.mark.parametrize("value", [1.0, [1.0]], ids=str)
def test_number_does_not_vanish_in_an_array_without_elements(value):
    """NumPy would broadcast it to nothing."""
    with pytest.raises(MisfitError, match=r"^value"):
        written(Box(0, 1, (0,)), value)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("bad", [[1, 300, 3], [1, 2], 1, None])
def test_refused_value_leaves_its_row_as_it_was(bad, strict):
    """After an error the last good value is there, never half of a bad one."""
    memory = create_shared_memory(IMAGE, 2)
    write_to_shared_memory(IMAGE, 1, [1, 2, 3], memory)
    with pytest.raises(MisfitError):
        write_to_shared_memory(IMAGE, 1, bad, memory, strict=strict)
    assert memory[:] == [0, 0, 0, 1, 2, 3]


def test_refused_value_of_a_kind_leaves_the_kind_as_it_was():
    """A changed index in front of an old value would be a pair that nobody wrote."""
    memory = create_shared_memory(KINDS, 1)
    write_to_shared_memory(KINDS, 0, (0, 2), memory)
    with pytest.raises(MisfitError):
        write_to_shared_memory(KINDS, 0, (1, [0, 1, 2]), memory)
    assert read_from_shared_memory(KINDS, memory, 1) == ((0, 2),)


# Where it is.


@pytest.mark.parametrize(
    "change, path, error",
    [
        ({"a": (1.5, {"b": [1, 2, 3]})}, "value['a'][0]", MisfitError),
        ({"a": (1, {"b": [1, 2, 300]})}, "value['a'][1]['b']", MisfitError),
        ({"a": (1, {"b": 1})}, "value['a'][1]['b']", MisfitError),
        ({"a": (1, {})}, "value['a'][1]", KeyError),
        ({"a": (1,)}, "value['a']", MisfitError),
        ({"a": (1, {"b": [1, 2, 3]}, 2)}, "value['a']", MisfitError),
        ({"a": ()}, "value['a']", MisfitError),
        ({"a": 5}, "value['a']", MisfitError),
        ({"a": None}, "value['a']", MisfitError),
        ({"a": {"x": 1, "y": 2}}, "value['a']", MisfitError),
        ({"a": (1, 5)}, "value['a'][1]", MisfitError),
        ({"a": (1, [1, 2, 3])}, "value['a'][1]", MisfitError),
        ({"c": (2, 0)}, "value['c']", MisfitError),
        ({"c": (-1, [0, 1])}, "value['c']", MisfitError),
        ({"c": (1.0, [0, 1])}, "value['c']", MisfitError),
        ({"c": ("1", [0, 1])}, "value['c']", MisfitError),
        ({"c": (1,)}, "value['c']", MisfitError),
        ({"c": 1}, "value['c']", MisfitError),
        ({"c": None}, "value['c']", MisfitError),
        ({"d": "abcd"}, "value['d']", IndexError),
        ({"d": "a b"}, "value['d']", KeyError),
        ({"d": 5}, "value['d']", MisfitError),
    ],
    ids=readable,
)
def test_refusal_names_the_path(change, path, error):
    """In a nested observation "expected uint8" alone would leave a long search."""
    value = {**FINE, **change}
    with pytest.raises(MisfitError) as caught:
        written(NESTED, value)
    with pytest.raises(MisfitError) as strictly:
        written(NESTED, value, strict=True)
    for misfit in (caught.value, strictly.value):
        assert misfit.where == path
        assert str(misfit).startswith(f"{path}: ")
    # What Gym raises; strict checks are ours alone.
    assert isinstance(caught.value, error)


def test_refusal_inside_a_kind_names_the_kind():
    """Its number says which of the spaces in `OneOf` the value was measured by."""
    with pytest.raises(MisfitError) as caught:
        written(NESTED, {**FINE, "c": (1, [0, 1, 2])})
    assert caught.value.where == "value['c'][1]"


@pytest.mark.parametrize("value", [5, None, [1, 2], "ab", np.zeros(2)], ids=readable)
def test_value_that_is_no_dict_is_refused_for_a_dict(value):
    """A TypeError about subscripts says nothing of the space."""
    for strict in (False, True):
        with pytest.raises(MisfitError, match=r"^value: "):
            written(gym_spaces.Dict(a=Discrete(2), b=Discrete(2)), value, strict=strict)


@pytest.mark.parametrize("value", [5, None, "ab", {"a": "x", "b": "y"}, ("a",), ("a", "b", "c")], ids=readable)
def test_value_that_is_no_tuple_is_refused_for_a_tuple(value):
    """A text has characters and a dict has keys, which would be stored as if they were the parts."""
    for strict in (False, True):
        with pytest.raises(MisfitError, match=r"^value: "):
            written(TEXTS, value, strict=strict)


def test_missing_key_is_a_key_error():
    """Gym's is one, and programs catch it."""
    with pytest.raises(KeyError, match="'b' is missing"):
        written(gym_spaces.Dict(a=Discrete(2), b=Discrete(2)), {"a": 1})


# Which row.


@pytest.mark.parametrize("index", [-1, -2, 2, 100])
@pytest.mark.parametrize(
    "space, value",
    [
        (Discrete(3), 1),
        (IMAGE, [1, 2, 3]),
        (Text(3), "abc"),
        (KINDS, (1, [0, 1])),
        (gym_spaces.Sequence(Discrete(3)), (1, 2)),
        (gym_spaces.Graph(Discrete(3), None), GraphInstance(np.array([1]), None, None)),
        (NESTED, FINE),
        (OneOf((gym_spaces.Tuple(()), Discrete(2))), (0, ())),
    ],
    ids=readable,
)
def test_row_that_is_not_there_is_refused(space, value, index):
    """Gym writes row 0 for index -2 of 2: the observation of another env."""
    memory = create_shared_memory(space, 2)
    before = read_from_shared_memory(space, memory, 2)
    for strict in (False, True):
        with pytest.raises(ValueError, match=rf"index {index} .*out of range"):
            write_to_shared_memory(space, index, value, memory, strict=strict)
    assert str(read_from_shared_memory(space, memory, 2)) == str(before)


def test_negative_row_is_refused_for_an_array_without_elements():
    """There is nothing to overwrite, but the caller counts wrong."""
    space = Box(0, 1, (0,))
    with pytest.raises(ValueError, match="index -1 is out of range"):
        write_to_shared_memory(space, -1, [], create_shared_memory(space, 2))


# Strict.


@pytest.mark.parametrize(
    "space, value, problem",
    [
        (IMAGE, [[1], [2], [3]], r"shape \(3,\)"),
        (IMAGE, [1.0, 2.0, 3.0], "uint8"),
        (IMAGE, [1, 2, 256], "256"),
        (VECTOR, [0, 0.5, 1.5], r"-1.0 to 1.0 at \[2\], found 1.5"),
        (VECTOR, [0, np.nan, 0], "NaN"),
        (VECTOR, 0.5, "shape"),
        (VECTOR, None, "expected"),
        (VECTOR, ["a", "b", "c"], "expected"),
        (VECTOR, [[1], [1, 2]], "expected"),
        (Box(0, 1, ()), None, "expected"),
        (Box(0, 1, ()), [0.5], "shape"),
        (Discrete(3), 3, "0 to 2, found 3"),
        (Discrete(3, start=-1), -2, "-1 to 1, found -2"),
        (Discrete(3), 1.0, "expected"),
        (Discrete(3), "a", "expected"),
        (Discrete(3), None, "expected"),
        (Discrete(3), [1], "shape"),
        (MultiDiscrete([3, 4]), [2, 4], "found 4"),
        (MultiDiscrete([3, 4]), [1, 2, 3], "shape"),
        (MultiDiscrete([3, 4]), [[1], [2]], "shape"),
        (MultiDiscrete([3, 4]), "ab", "expected"),
        (MultiBinary(2), [2, 0], "0 to 1"),
        (MultiBinary(2), [[1], [0]], "shape"),
        (gym_spaces.Dict(a=Discrete(2)), {"a": 1, "b": 2}, "keys"),
        (gym_spaces.Dict(a=Discrete(2)), {}, "key 'a' is missing"),
        (gym_spaces.Tuple((Discrete(2),)), (1, 1), "found 2"),
        (Text(3, min_length=2), "a", "expected"),
        (Text(3), "abcd", "expected"),
        (gym_spaces.Sequence(Discrete(3)), (1, 3), "expected"),
        (gym_spaces.Graph(Discrete(3), None), GraphInstance(np.array([3]), None, None), "expected"),
    ],
    ids=readable,
)
def test_strict_refuses_what_does_not_lie_in_the_space(space, value, problem):
    """An env that breaks its own promise is found where it does so, instead of by a policy that learns nothing."""
    with pytest.raises(MisfitError, match=f"^value.*: .*{problem}"):
        written(space, value, strict=True)


@pytest.mark.parametrize(
    "space, value",
    [
        (IMAGE, np.array([0, 128, 255], np.uint8)),
        (VECTOR, [-1, 0, 1]),
        (Discrete(3, start=-1), -1),
        (MultiDiscrete([3, 4]), [2, 3]),
        (MultiBinary(2), [1, 0]),
        (gym_spaces.Tuple((Discrete(2), Text(3))), (1, "ab")),
        (gym_spaces.Sequence(Discrete(3)), (1, 2)),
        (KINDS, (1, np.array([0, 1], np.float32))),
    ],
    ids=readable,
)
def test_strict_stores_what_lies_in_the_space(space, value):
    """It adds checks and changes nothing else."""
    assert str(written(space, value, strict=True)) == str(written(space, value))


@pytest.mark.parametrize("value, space", [(9, Discrete(3)), ([2, 9], MultiBinary(2)), ([5, -5, np.nan], VECTOR)])
def test_without_strict_bounds_are_not_looked_at(space, value):
    """Gym does not, and many envs overstep their bounds a little."""
    assert_same(written(space, value), np.array([value], space.dtype))
