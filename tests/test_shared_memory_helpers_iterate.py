"""`iterate`, the helpers that build batches, and the module that stands in for Gym's."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Iterator

import gymnasium as gym
import gymnasium.error
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Text, Tuple
from gymnasium.vector import utils as theirs
from vectors import readable

import shoal
from shoal import CustomSpaceError, batch_space, concatenate, create_empty_array, iterate
from shoal.adapters.gymnasium import vector_utils
from shoal.testing.equality import assert_same

N = 3
IMAGES = Box(0, 255, (N, 2), np.uint8)
GEARS = MultiDiscrete([4] * N)


class Custom(gym.Space):
    """A space that nobody has registered."""

    def sample(self, mask=None, probability=None):
        return "anything"

    def contains(self, x):
        return isinstance(x, str)


# Arrays.


@pytest.mark.parametrize(
    "space, items",
    [
        (IMAGES, np.arange(6, dtype=np.uint8).reshape(N, 2)),
        (GEARS, np.array([1, 2, 3])),
        (MultiBinary(N), np.array([0, 1, 0], np.int8)),
        (Box(0, 1, (N, 0)), np.zeros((N, 0), np.float32)),
    ],
    ids=readable,
)
def test_array_is_iterated_by_rows(space, items):
    """The first axis is the env."""
    assert_same(list(iterate(space, items)), list(items))


def test_rows_are_views():
    """Iterating must not cost a copy of the batch."""
    items = np.zeros((N, 2), np.uint8)
    for row in iterate(IMAGES, items):
        assert row.base is items
        row[0] = 5
    assert items[:, 0].tolist() == [5] * N


@pytest.mark.parametrize("arguments", [{"space": IMAGES, "items": [1, 2]}, {"items": [1, 2], "space": IMAGES}], ids=str)
def test_iterate_takes_its_arguments_by_name(arguments):
    """Gym's names are `space` and `items`."""
    assert list(iterate(**arguments)) == [1, 2]
    assert list(iterate(IMAGES, items=[1, 2])) == [1, 2]
    assert list(iterate([1, 2], IMAGES)) == [1, 2]


@pytest.mark.parametrize("items", [[[1, 2], [3, 4]], ((1, 2), (3, 4)), iter([[1, 2], [3, 4]])], ids=readable)
def test_whatever_can_be_iterated_over_is_taken_as_it_is(items):
    """Gym takes lists and generators: of rows, not of numbers, so nothing is converted."""
    assert [list(row) for row in iterate(Box(0, 9, (2, 2)), items)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("space", [IMAGES, GEARS, MultiBinary(N)], ids=readable)
@pytest.mark.parametrize("items", [5, None, np.array(5), np.float32(1)], ids=readable)
def test_what_cannot_be_iterated_over_is_a_type_error(space, items):
    """At once, with Gym's words."""
    with pytest.raises(TypeError, match="Unable to iterate over the following elements: ") as caught:
        iterate(space, items)
    assert isinstance(caught.value, shoal.ShoalError)


def test_discrete_is_no_batch():
    """Its batch is a MultiDiscrete; who passes the single space has confused the two."""
    with pytest.raises(TypeError, match="Unable to iterate over a space of type `Discrete`"):
        iterate(Discrete(5), [1, 2])


# Dicts.


def test_dict_is_iterated_by_envs_not_by_keys():
    """Each env gets one dictionary, in the space's order of keys, equal to Gym's `OrderedDict` and to a dict."""
    space = Dict(OrderedDict(z=IMAGES, a=GEARS))
    rows = list(iterate(space, {"a": [1, 2, 3], "z": np.arange(6).reshape(N, 2), "extra": 0}))
    assert [list(row) for row in rows] == [["z", "a"]] * N
    assert [(row["a"], row["z"].tolist()) for row in rows] == [(1, [0, 1]), (2, [2, 3]), (3, [4, 5])]
    gears = list(iterate(Dict(a=GEARS), {"a": [1, 2, 3]}))
    assert gears == [OrderedDict(a=1), OrderedDict(a=2), OrderedDict(a=3)] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert all(isinstance(row, dict) for row in rows)


def test_dicts_of_envs_are_ordered_dicts():
    """Gym yields them, and programs call `move_to_end` or look at the type."""
    batch = {"a": {"b": [1, 2, 3]}}
    for row in iterate(Dict(a=Dict(b=GEARS)), batch):
        assert isinstance(row, OrderedDict) and isinstance(row["a"], OrderedDict)


def test_dict_is_iterated_lazily():
    """It is a generator in Gym: what the second env gets is not looked up before the first has its own."""
    rows = iterate(Dict(a=GEARS), {"a": iter([1, 2])})
    assert isinstance(rows, Iterator)
    assert next(rows) == {"a": 1}


@pytest.mark.parametrize(
    "space, items, error",
    [
        (Dict({}), {}, ValueError),
        (Dict(a=IMAGES, b=GEARS), {"a": [1]}, KeyError),
        (Dict(a=IMAGES, b=GEARS), {"a": [1, 2, 3], "b": [1, 2]}, ValueError),
        (Dict(a=IMAGES, b=GEARS), {"a": [1, 2], "b": [1, 2, 3]}, ValueError),
        (Dict(a=Dict(b=IMAGES, c=GEARS)), {"a": {"b": [1], "c": [1, 2]}}, ValueError),
        (Dict(a=Discrete(3)), {"a": [1]}, TypeError),
        (Dict(a=IMAGES), {"a": 5}, TypeError),
        (Dict(a=IMAGES, b=Custom()), {"a": [1], "b": ["x"]}, CustomSpaceError),
        (Dict(a=IMAGES, b=Text(3)), {"a": [1], "b": ["x"]}, CustomSpaceError),
    ],
    ids=readable,
)
def test_batch_of_a_dict_that_is_none_is_an_error(space, items, error):
    """Old Gym stops at the shortest part, and envs go without an action."""
    with pytest.raises(error):
        list(iterate(space, items))


# Tuples.


def test_tuple_is_iterated_by_envs_not_by_parts():
    """Each env gets one tuple."""
    rows = list(iterate(Tuple((IMAGES, Tuple((GEARS,)))), (np.arange(6).reshape(N, 2), ([1, 2, 3],))))
    assert [(row[0].tolist(), row[1]) for row in rows] == [([0, 1], (1,)), ([2, 3], (2,)), ([4, 5], (3,))]


def test_tuple_of_subclasses_is_iterated_by_envs():
    """Gymnasium looks for the exact class here, and hands the parts to the envs instead."""

    class Camera(Box):
        pass

    assert list(iterate(Tuple((Camera(0, 9, (2,)), GEARS)), ([1, 2], [3, 4]))) == [(1, 3), (2, 4)]


@pytest.mark.parametrize("lengths", [(3, 2), (2, 3), (0, 1)], ids=str)
def test_parts_of_unequal_length_are_an_error(lengths):
    """Old Gym stops at the shortest part, and envs go without an action."""
    with pytest.raises(ValueError):
        list(iterate(Tuple((IMAGES, GEARS)), tuple([0] * length for length in lengths)))


@pytest.mark.parametrize("items", [([1, 2],), ([1, 2], [1, 2], [1, 2])], ids=str)
def test_another_number_of_parts_is_an_error(items):
    """A part too many would be dropped in silence."""
    with pytest.raises(ValueError):
        list(iterate(Tuple((IMAGES, GEARS)), items))


@pytest.mark.parametrize(
    "space, values",
    [
        (Custom(), ["x", "y", "z"]),
        (Text(3), ["x", "y", "z"]),
        (OneOf((Discrete(3), Text(3))), [(0, 1), (1, "a"), (0, 2)]),
        (Sequence(Discrete(3)), [(), (1,), (1, 2)]),
        (Graph(Discrete(3), None), ["graphs"] * 3),
    ],
    ids=readable,
)
def test_batch_of_values_that_are_no_arrays_is_iterated_as_it_is(space, values):
    """Its space is a Tuple with one space for each env, and the batch is a tuple of their values."""
    assert list(iterate(batch_space(space, N), tuple(values))) == values
    nested = batch_space(Dict(a=Tuple((space, Discrete(4)))), N)
    rows = list(iterate(nested, {"a": (tuple(values), np.array([1, 2, 3]))}))
    assert rows == [{"a": (value, gear)} for value, gear in zip(values, (1, 2, 3), strict=True)]


def test_mixed_tuple_is_refused():
    """In Gymnasium a Box beside a custom space has the parts handed out as if they were the envs' values."""
    with pytest.raises(CustomSpaceError):
        list(iterate(Tuple((IMAGES, Custom())), (np.zeros((N, 2)), ["x", "y", "z"])))
    with pytest.raises(CustomSpaceError):
        list(iterate(Tuple((Text(3), IMAGES)), (["x", "y", "z"], np.zeros((N, 2)))))


def test_empty_tuple_has_no_envs():
    """Gym's iterates over nothing, and raises nothing."""
    assert list(iterate(Tuple(()), ())) == []


# Other spaces.


@pytest.mark.parametrize("space", [Custom(), Text(3), OneOf((Discrete(2),)), Sequence(Discrete(2))], ids=readable)
@pytest.mark.parametrize("iterating", [iterate, vector_utils._iterate_custom], ids=["iterate", "_iterate_custom"])
def test_space_that_is_no_batch_is_refused_with_every_versions_error(space, iterating):
    """Both texts are in it: what a batch of such a space is cannot be known."""
    with pytest.raises(CustomSpaceError, match="doesn't have an registered `iterate` function"):
        iterating(space=space, items=["x"])
    with pytest.raises(
        CustomSpaceError, match=r"Unable to iterate over \['x'\], since .* is a custom `gym.Space` instance"
    ) as caught:
        iterating(space, ["x"])
    assert isinstance(caught.value, gymnasium.error.CustomSpaceError) and isinstance(caught.value, TypeError)


@pytest.mark.parametrize("thing", [5, None, "Box", {}, [IMAGES], IMAGES.low, Box], ids=readable)
def test_what_is_no_space_is_refused_with_every_versions_error(thing):
    """Gym raises a ValueError, Gymnasium a TypeError."""
    for call in (
        lambda: iterate(thing, [1, 2]),
        lambda: batch_space(thing, 2),
        lambda: create_empty_array(thing, 2),
        lambda: concatenate(thing, [], None),
    ):
        with pytest.raises(CustomSpaceError) as caught:
            call()
        for error in (gymnasium.error.CustomSpaceError, TypeError, ValueError):
            assert isinstance(caught.value, error)


@pytest.mark.parametrize("function", [batch_space, create_empty_array, concatenate, iterate], ids=lambda _: "")
def test_helper_is_called_what_it_is(function):
    """The name is in errors and tracebacks."""
    assert getattr(shoal, function.__name__) is function


def test_registered_iterate_is_called():
    """As in Gym, by which custom batches are split: alone, and as a part of a Tuple or Dict."""

    class Words(gym.Space):
        pass

    @iterate.register(Words)
    def iterate_words(space, items):
        return iter(items.split())

    assert list(iterate(Words(), "a b c")) == ["a", "b", "c"]
    assert list(iterate(Dict(a=Words(), b=GEARS), {"a": "a b", "b": [1, 2]})) == [
        {"a": "a", "b": 1},
        {"a": "b", "b": 2},
    ]
    assert list(iterate(Tuple((GEARS, Words())), ([1, 2], "a b"))) == [(1, "a"), (2, "b")]
    assert list(iterate(Tuple((Words(), Words())), ("a b", "c d"))) == [("a", "c"), ("b", "d")]


# Building batches.

SINGLE = Dict(a=Box(-1, 1, (2,), np.float32), b=Tuple((Discrete(4), MultiBinary(2))), c=Text(3))


def test_batch_space_takes_either_order():
    """The space moved to the front in Gym 0.22; names stayed."""
    expected = theirs.batch_space(SINGLE, 4)
    for batched in (
        batch_space(SINGLE, 4),
        batch_space(SINGLE, n=4),
        batch_space(space=SINGLE, n=4),
        batch_space(4, SINGLE),
    ):
        assert batched == expected
    assert batch_space(SINGLE) == theirs.batch_space(SINGLE, 1)


@pytest.mark.parametrize(
    "space, batched",
    [
        (Discrete(4), MultiDiscrete([4, 4])),
        (Discrete(4, start=-1), MultiDiscrete(np.array([4, 4]), start=np.array([-1, -1]))),
        (MultiDiscrete([3, 4]), Box(0, np.array([[2, 3], [2, 3]]), dtype=np.int64)),
        (MultiBinary(3), Box(0, 1, (2, 3), np.int8)),
        (Box(-1, 1, (3,)), Box(-1, 1, (2, 3))),
        (Tuple((Discrete(4),)), Tuple((MultiDiscrete([4, 4]),))),
        (Text(3), Tuple((Text(3), Text(3)))),
    ],
    ids=readable,
)
def test_batch_space_is_gymnasiums(space, batched):
    """The batch's space says what `reset` and `step` return."""
    assert batch_space(space, 2) == batched


def test_batch_of_a_custom_space_has_copies_with_seeds_of_their_own():
    """Shared, all envs would draw from one stream."""
    first, second = batch_space(Custom(seed=3), 2)
    assert first is not second
    assert first.np_random.integers(2**60) != second.np_random.integers(2**60)


def test_concatenate_takes_either_order():
    """Until 0.21 the space was the last argument."""
    SINGLE.seed(1)
    items = [SINGLE.sample() for _ in range(N)]
    expected = theirs.concatenate(SINGLE, items, theirs.create_empty_array(SINGLE, N))
    for number, batch in enumerate(
        (
            concatenate(SINGLE, items, create_empty_array(SINGLE, N)),
            concatenate(items, create_empty_array(SINGLE, N), SINGLE),
            concatenate(items, create_empty_array(SINGLE, N), space=SINGLE),
            concatenate(out=create_empty_array(SINGLE, N), items=items, space=SINGLE),
        )
    ):
        assert_same(dict(batch), dict(expected), f"call {number}")


def test_concatenate_fills_what_it_is_given():
    """Programs concatenate into the same arrays every step."""
    out = np.zeros((2, 2), np.float32)
    assert concatenate(Box(0, 9, (2,)), [np.ones(2, np.float32), np.full(2, 2, np.float32)], out) is out
    assert out.tolist() == [[1, 1], [2, 2]]
    assert concatenate(Custom(), ["x", "y"], None) == ("x", "y")


@pytest.mark.parametrize("fn, value", [(np.zeros, 0), (np.ones, 1)])
def test_create_empty_array_fills_with_the_callers_function(fn, value):
    """`np.empty` saves time, and a fill of ones shows what was never written."""
    for batch in (
        create_empty_array(SINGLE, N, fn),
        create_empty_array(SINGLE, n=N, fn=fn),
        create_empty_array(N, SINGLE, fn=fn),
        create_empty_array(fn=fn, n=N, space=SINGLE),
    ):
        assert_same(dict(batch), dict(theirs.create_empty_array(SINGLE, N, fn)))
        assert np.all(batch["a"] == value)
    assert create_empty_array(Custom(), N) is None


# The module.


@pytest.mark.parametrize("name", sorted({*theirs.__all__, "_iterate_custom", "CustomSpaceError"}))
def test_module_has_every_name_of_the_one_it_replaces(name):
    """An import that fails ends the migration at its first line."""
    assert callable(getattr(vector_utils, name))


def test_top_level_names_are_the_modules():
    """Two objects would have two registries."""
    names = set(theirs.__all__) & set(shoal.__all__)
    assert {"iterate", "create_shared_memory", "batch_space", "CloudpickleWrapper"} <= names
    for name in {*names, "CustomSpaceError"}:
        assert getattr(shoal, name) is getattr(vector_utils, name)


def test_cloudpickle_wrapper_carries_what_pickle_cannot():
    """Env constructors are lambdas and closures."""
    number = 7
    wrapped = pickle.loads(pickle.dumps(shoal.CloudpickleWrapper(lambda: number)))
    assert wrapped() == 7 and wrapped.fn() == 7


def test_mpi_variables_are_gone_inside_and_back_afterwards(monkeypatch):
    """Workers that import mpi4py would take themselves for ranks of the parent's job."""
    monkeypatch.setenv("OMPI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("OTHER_MPI", "3")
    with shoal.clear_mpi_env_vars():
        assert not {"OMPI_RANK", "PMI_SIZE"} & set(os.environ)
        assert os.environ["OTHER_MPI"] == "3"
    assert (os.environ["OMPI_RANK"], os.environ["PMI_SIZE"]) == ("1", "2")
