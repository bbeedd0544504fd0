"""Leaves, casts, codecs and nests, by themselves: no workers, no shared memory."""

from __future__ import annotations

import pickle
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import gymnasium as gym
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.adapters.gymnasium.codecs import codec_of
from shoal.errors import MisfitError
from shoal.structure import ArrayCodec, Leaf, Nest
from shoal.structure.cast import cast, fit
from shoal.structure.leaf import describe_path
from shoal.testing import spaces
from shoal.testing.equality import assert_same

DTYPES = [np.dtype(dtype) for dtype in spaces.BOX_DTYPES]
ROWS = 3


def views_of(codec: Any, rows: int = ROWS) -> list[np.ndarray]:
    """Returns zeroed memory for a batch."""
    return [np.zeros((rows, *leaf.shape), leaf.dtype) for leaf in codec.leaves]


def samples(space: gym.Space[Any], count: int = ROWS) -> list[Any]:
    space.seed(7)
    return [space.sample() for _ in range(count)]


# Leaves.


def test_leaf_says_its_size_and_form():
    """Layouts are computed from `nbytes`, and error messages print a leaf."""
    leaf = Leaf(("camera", 0), (3, 84), np.dtype(np.float32))
    assert leaf.nbytes == 3 * 84 * 4
    assert str(leaf) == "float32 (3, 84)"
    assert Leaf((), (), np.dtype(np.uint8)).nbytes == 1
    assert Leaf((), (0, 5), np.dtype(np.uint8)).nbytes == 0


def test_path_is_written_as_python_reads_it():
    """Whoever reads an error can paste the path behind a variable's name."""
    assert describe_path(("camera", 0, "a'b")) == "['camera'][0][\"a'b\"]"
    assert describe_path(()) == ""


# Casts.


def is_rounded(value: Any, result: np.floating[Any]) -> bool:
    """Tells whether `result` is `value` but for rounding to its type."""
    if not np.isfinite(value):
        return np.isnan(result) if np.isnan(value) else bool(result == value)
    if not np.isfinite(result):
        return False
    exact = Fraction(int(value)) if isinstance(value, np.integer | np.bool_) else Fraction(float(value))
    return abs(Fraction(float(result)) - exact) <= Fraction(float(np.spacing(np.abs(result))))


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, (2,))), st.sampled_from(DTYPES))
@settings(max_examples=300)
def test_cast_keeps_every_value_or_refuses(array, dtype):
    """A wrapped, cut or overflown number trains an agent on nonsense, and nobody notices."""
    try:
        result = cast(array, dtype, "here")
    except MisfitError as error:
        assert str(array.dtype) in str(error) and str(dtype) in str(error)
        return
    assert result.dtype == dtype and result.shape == array.shape
    if dtype.kind == "f":
        assert all(map(is_rounded, array, result))
    else:
        assert array.dtype.kind != "f"
        assert [int(value) for value in result] == [int(value) for value in array]


@given(
    st.sampled_from([d for d in DTYPES if d.kind in "iub"]),
    st.sampled_from([d for d in DTYPES if d.kind in "iub"]),
    st.data(),
)
def test_cast_accepts_integers_that_fit(source, target, data):
    """Envs return NumPy's default integer for everything; refusing a 3 for a uint8 would refuse most of them."""
    bounds = [(0, 1) if d.kind == "b" else (int(np.iinfo(d).min), int(np.iinfo(d).max)) for d in (source, target)]
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    array = np.array(data.draw(st.lists(st.integers(low, high), max_size=4)), source)
    assert cast(array, target, "here").tolist() == array.astype(target).tolist()


@pytest.mark.parametrize(
    "value, dtype, found",
    [
        (np.array([5, 300]), "u1", "300"),
        (np.array([-1, 5]), "u1", "-1"),
        (np.array([128]), "i1", "128"),
        (np.array([-1]), "u8", "-1"),
        (np.array([2**64 - 1], "u8"), "i8", "18446744073709551615"),
        (np.array([2**63], "u8"), "i8", "9223372036854775808"),
        (np.array([2]), "?", "2"),
        (np.array([1e300]), "f4", r"1e\+300"),
        (np.array([70000]), "f2", "70000"),
        # NumPy writes float32 numbers of this size one way or the other.
        (np.array([1e10], "f4"), "f2", r"1e\+10|10000000000"),
        (np.array([0.0]), "i8", "float64"),
        (np.array([np.nan]), "i4", "float64"),
        (np.array([1.0]), "?", "float64"),
    ],
)
def test_cast_names_what_it_refuses(value, dtype, found):
    """The number that does not fit is what the author of an env looks for."""
    with pytest.raises(MisfitError, match=found) as caught:
        cast(value, np.dtype(dtype), "env 3: observation")
    assert caught.value.where == "env 3: observation"
    assert str(caught.value).startswith("env 3: observation: expected ")


def test_cast_and_fit_do_not_copy_what_already_fits():
    """The right array is the common case, and is copied once only, into shared memory."""
    array = np.arange(3, dtype=np.float32)
    assert cast(array, np.dtype(np.float32), "here") is array
    assert np.shares_memory(fit(array, (3,), np.dtype(np.float32), "here"), array)


@pytest.mark.parametrize(
    "value, shape, dtype, result",
    [
        ([1, 2], (2,), "f4", [1.0, 2.0]),
        ((3, 4.5), (2,), "f4", [3.0, 4.5]),
        (7, (), "i8", 7),
        (True, (), "i8", 1),
        (0.25, (), "f4", 0.25),
        (np.float64(0.25), (), "f4", 0.25),
        (np.array(0.25), (), "f4", 0.25),
        (np.array(3, ">i4"), (), "i8", 3),
        ([[1], [0]], (2, 1), "?", [[True], [False]]),
        ([], (0,), "i4", []),
        (np.zeros((2, 0), np.float32), (2, 0), "f4", [[], []]),
        ([np.inf, np.nan], (2,), "f2", [np.inf, np.nan]),
        (range(3), (3,), "u1", [0, 1, 2]),
    ],
)
def test_fit_takes_whatever_means_the_same_numbers(value, shape, dtype, result):
    """Envs return lists, Python numbers and arrays of other types where the space says an array."""
    fitted = fit(value, shape, np.dtype(dtype), "here")
    assert_same(np.asarray(fitted), np.array(result, dtype).reshape(shape))


class NoArray:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("not mine")


@pytest.mark.parametrize(
    "value, shape, found",
    [
        (1.0, (3,), r"float64 of shape \(\)"),
        ([1.0], (3,), r"float64 of shape \(1,\)"),
        (np.zeros((3, 1)), (3,), r"float64 of shape \(3, 1\)"),
        (np.zeros((1, 3)), (3,), r"float64 of shape \(1, 3\)"),
        (np.zeros(1), (), r"float64 of shape \(1,\)"),
        ([], (3,), r"float32 of shape \(0,\)"),
        ([[1.0], [1.0, 2.0]], (2, 2), "list"),
        (None, (), "NoneType None"),
        ("0.5", (), "str '0.5'"),
        (["1", "2", "3"], (3,), "list"),
        ({"a": 1}, (), "dict"),
        ([None, 1, 2], (3,), "list"),
        (np.zeros(3, complex), (3,), "no array of numbers"),
        (np.zeros(3, "datetime64[s]"), (3,), "no array of numbers"),
        (np.zeros(3, object), (3,), "no array of numbers"),
        (NoArray(), (), "not mine"),
        ("x" * 10_000, (), r"str 'x+\.\.\. *"),
    ],
)
def test_fit_refuses_what_it_would_have_to_change(value, shape, found):
    """Nothing is broadcast, reshaped or parsed: a shape that is wrong today is a bug found tomorrow."""
    with pytest.raises(MisfitError, match=found) as caught:
        fit(value, shape, np.dtype(np.float32), "here")
    assert "expected float32" in caught.value.problem
    assert len(str(caught.value)) < 300


def test_misfit_error_grows_from_the_inside_out_and_survives_pickling():
    """The codec knows the path, the host the env; and the error has to travel to the user's process."""
    inner = MisfitError("observation['camera']", "expected this, found that")
    outer = pickle.loads(pickle.dumps(inner.inside("env 3: ")))
    assert str(outer) == "env 3: observation['camera']: expected this, found that"
    assert outer.where == "env 3: observation['camera']" and outer.problem == inner.problem


# One array.


@pytest.mark.parametrize("dtype", [*DTYPES, np.dtype(">f4"), np.dtype(">i2")], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (1,)], ids=str)
def test_array_is_written_to_its_row_alone(shape, dtype):
    """Rows belong to different envs, and to different processes."""
    codec = ArrayCodec(shape, dtype)
    views = views_of(codec)
    value = np.ones(shape, dtype)
    codec.writer(views, "value")(1, value)
    expected = np.zeros((ROWS, *shape), dtype)
    expected[1] = 1
    assert_same(codec.batch(views), expected)
    before, written, after = codec.reader(views)(0, ROWS)
    # NumPy's scalars have no byte order.
    assert np.array_equal(written, value) and written.dtype in (dtype, dtype.newbyteorder("="))
    assert not np.any(before) and not np.any(after)


def test_refused_value_leaves_its_row_as_it_was():
    """After an error the user still sees the last good value, never half of a bad one."""
    codec = ArrayCodec((2,), np.uint8)
    views = views_of(codec)
    write = codec.writer(views, "value")
    write(0, [1, 2])
    for bad in ([1, 300], [1], 1, [[1, 2]], None):
        with pytest.raises(MisfitError):
            write(0, bad)
    assert views[0][0].tolist() == [1, 2]


def test_written_array_may_be_reused_at_once():
    """Many envs return one buffer for ever."""
    codec = ArrayCodec((2,), np.float32)
    views, buffer = views_of(codec), np.ones(2, np.float32)
    codec.writer(views, "value")(0, buffer)
    buffer[:] = 9
    assert views[0][0].tolist() == [1, 1]


def test_read_values_are_copies_and_batches_are_views():
    """An env may keep its action; the user's batch must cost nothing."""
    codec = ArrayCodec((2,), np.float32)
    views = views_of(codec)
    values, batch = codec.reader(views)(0, ROWS), codec.batch(views)
    views[0][:] = 5
    assert [value.tolist() for value in values] == [[0, 0]] * ROWS
    assert batch is views[0]


def test_read_scalars_are_numpy_scalars_of_the_dtype():
    """`Discrete` actions arrive as Gymnasium gives them: `np.int64`, neither `int` nor an array."""
    codec = ArrayCodec((), np.int64)
    assert all(type(value) is np.int64 for value in codec.reader(views_of(codec))(0, ROWS))


@pytest.mark.parametrize(
    "batch, problem",
    [
        (np.zeros((2, 2), np.float32), "expected 3, one for each env, found 2$"),
        (np.zeros((5, 2), np.float32), "expected 3, one for each env, found 5"),
        ([], "expected 3, one for each env, found 0"),
        (0.5, "expected one for each of 3 envs"),
        (np.zeros((3, 1)), r"expected float32 of shape \(3, 2\), found float64 of shape \(3, 1\)"),
        (np.zeros(3), r"expected float32 of shape \(3, 2\), found float64 of shape \(3,\)"),
        ([[1, 2], [3], [4, 5]], "no array"),
        (None, "NoneType"),
    ],
)
def test_batch_of_another_form_is_refused(batch, problem):
    """The most frequent mistake is a batch for another number of envs; both counts belong into the message."""
    codec = ArrayCodec((2,), np.float32)
    with pytest.raises(MisfitError, match=problem):
        codec.encode(views_of(codec), batch, "action")


# Nests.


@given(spaces.nested_spaces(), st.integers(1, 4))
@settings(max_examples=100)
def test_values_written_are_the_values_read(space, rows):
    """What an env observes is what the user gets, for spaces of any shape, type and depth."""
    nest = codec_of(space)
    views, values = views_of(nest, rows), samples(space, rows)
    write = nest.writer(views, "value")
    for row, value in enumerate(values):
        write(row, value)
    read = nest.reader(views)
    assert_same(as_arrays(read(0, rows)), as_arrays(values))
    assert_same(as_arrays(read(1, rows)), as_arrays(values[1:]))


def as_arrays(value: Any) -> Any:
    """Returns the nest with plain dicts and with arrays for NumPy scalars, as which some leaves are sampled."""
    if isinstance(value, Mapping):
        return {key: as_arrays(item) for key, item in value.items()}
    return type(value)(map(as_arrays, value)) if isinstance(value, list | tuple) else np.asarray(value)


@given(spaces.nested_spaces(), st.integers(1, 4))
@settings(max_examples=100)
def test_batch_is_what_gymnasium_builds(space, rows):
    """Containers, order of keys, dtypes and shapes: programs written for Gymnasium look at all of them."""
    nest = codec_of(space)
    views, values = views_of(nest, rows), samples(space, rows)
    write = nest.writer(views, "value")
    for row, value in enumerate(values):
        write(row, value)
    expected = concatenate(space, values, create_empty_array(space, rows))
    assert_same(nest.batch(views), expected)
    assert keys(nest.batch(views)) == keys(expected)
    assert batch_space(space, rows).contains(nest.batch(views))


def keys(value: Any) -> Any:
    """Returns the keys of all dicts in a nest, in their order."""
    if isinstance(value, dict):
        return [(key, keys(item)) for key, item in value.items()]
    return list(map(keys, value)) if isinstance(value, tuple) else None


@given(spaces.nested_spaces(), st.integers(1, 4))
@settings(max_examples=100)
def test_batch_of_actions_is_split_as_gymnasium_splits_it(space, rows):
    """Each env gets the action in its own row, with the type that Gymnasium gives it."""
    nest, batched = codec_of(space), batch_space(space, rows)
    batched.seed(3)
    actions = batched.sample()
    views = views_of(nest, rows)
    nest.encode(views, actions, "action")
    assert_same(as_arrays(nest.reader(views)(0, rows)), as_arrays(list(iterate(batched, actions))))


@given(spaces.nested_spaces().filter(lambda space: not isinstance(space, gym.spaces.Tuple)))
@settings(max_examples=100)
def test_list_of_one_action_for_each_env_is_the_same_batch(space):
    """People write `[policy(o) for o in ...]`; it must not matter whether they then stack it."""
    nest = codec_of(space)
    values = samples(space)
    batch = concatenate(space, values, create_empty_array(space, ROWS))
    left, right = views_of(nest), views_of(nest)
    nest.encode(left, values, "action")
    nest.encode(right, batch, "action")
    assert_same(left, right)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_list_of_one_tuple_for_each_env_is_never_transposed(rows):
    """With as many envs as parts, envs and parts look alike; each env must get its own tuple nevertheless."""
    nest = codec_of(gym.spaces.Tuple((gym.spaces.Discrete(10), gym.spaces.Discrete(10))))
    views = views_of(nest, rows)
    tuples = [(2 * row, 2 * row + 1) for row in range(rows)]
    nest.encode(views, tuples, "action")
    assert nest.reader(views)(0, rows) == tuples


def test_tuple_of_batches_may_be_a_list():
    """Gymnasium takes one, too."""
    nest = codec_of(gym.spaces.Tuple((gym.spaces.Discrete(10), gym.spaces.Discrete(10))))
    views = views_of(nest, 2)
    nest.encode(views, [np.array([0, 2]), np.array([1, 3])], "action")
    assert nest.reader(views)(0, 2) == [(0, 1), (2, 3)]


Pair = namedtuple("Pair", ["x", "y"])
NESTED = Nest({"b": ArrayCodec((), np.int64), "a": (ArrayCodec((2,), np.float32), {"c": ArrayCodec((), np.uint8)})})
VALUE: dict[str, Any] = {"a": (np.array([1, 2], np.float32), {"c": np.uint8(3)}), "b": np.int64(4)}


@pytest.mark.parametrize(
    "value",
    [
        {"b": 4, "a": ([1, 2], {"c": 3})},
        {"a": ([1, 2], {"c": 3}), "b": 4},
        OrderedDict(b=4, a=([1, 2], OrderedDict(c=3))),
        OrderedDict(a=([1, 2], UserDict(c=3)), b=4),
        {"a": [[1, 2], {"c": 3}], "b": 4},
        {"a": Pair([1, 2], {"c": 3}), "b": 4},
        {"a": np.array([np.array([1, 2]), {"c": 3}], dtype=object), "b": 4},
        {"z": "more", "b": 4, "a": ([1, 2], {"0": None, "c": 3}), "c": 5},
    ],
)
def test_containers_match_by_key_and_position_not_by_type(value):
    """Values go by name: never by the order in which an env happens to write its dictionary."""
    views = views_of(NESTED)
    NESTED.writer(views, "value")(1, value)
    assert_same(NESTED.reader(views)(1, 2), [VALUE])


@pytest.mark.parametrize(
    "value, where, problem",
    [
        ({"a": VALUE["a"]}, "value", "key 'b' is missing; expected ['b', 'a'], found ['a']"),
        ({**VALUE, "a": (VALUE["a"][0], {})}, "value['a'][1]", "key 'c' is missing; expected ['c'], found []"),
        ({**VALUE, "a": VALUE["a"][:1]}, "value['a']", "expected a tuple of 2, found 1 items"),
        ({**VALUE, "a": (*VALUE["a"], 0)}, "value['a']", "expected a tuple of 2, found 3 items"),
        ({**VALUE, "a": 5}, "value['a']", "expected a tuple of 2, found a int"),
        ({**VALUE, "a": "xy"}, "value['a']", "expected a tuple of 2, found a str"),
        ({**VALUE, "a": None}, "value['a']", "expected a tuple of 2, found a NoneType"),
        ({**VALUE, "a": np.array(1)}, "value['a']", "expected a tuple of 2, found an array of shape ()"),
        ({**VALUE, "a": ([1, 2, 3], {"c": 3})}, "value['a'][0]", "expected float32 of shape (2,), found int64"),
        ({**VALUE, "a": ([1, 2], {"c": 256})}, "value['a'][1]['c']", "expected uint8, found int64 256, which uint8"),
        ({**VALUE, "b": 1.5}, "value['b']", "expected int64, found float64"),
        ({**VALUE, "b": {}}, "value['b']", "expected int64, found dict {}"),
        (np.zeros(3), "value", "expected a dict with keys ['b', 'a'], found an array of shape (3,)"),
        (None, "value", "expected a dict with keys ['b', 'a'], found a NoneType"),
    ],
)
def test_misfit_inside_a_nest_is_named_by_its_path(value, where, problem):
    """In a nested observation "expected float32" alone would leave a long search."""
    with pytest.raises(MisfitError) as caught:
        NESTED.writer(views_of(NESTED), "value")(0, value)
    assert caught.value.where == where
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    "batch, where, problem",
    [
        ({"a": ([[1, 2]] * 3, {"c": [3] * 3})}, "action", "key 'b' is missing"),
        ({"a": ([[1, 2]] * 3, {"c": [3] * 3}), "b": [4] * 2}, "action['b']", "expected 3, one for each env, found 2"),
        ({"a": ([[1, 2]] * 4, {"c": [3] * 3}), "b": [4] * 3}, "action['a'][0]", "expected 3, one for each env, found"),
        ([VALUE] * 2, "action", "expected 3, one for each env, found 2"),
        ([VALUE] * 4, "action", "expected 3, one for each env, found 4"),
        ([VALUE, {**VALUE, "b": 0.5}, VALUE], "env 1: action['b']", "expected int64"),
        ([VALUE, VALUE, {"b": 4}], "env 2: action", "key 'a' is missing"),
        (VALUE, "action['a'][0]", "expected 3, one for each env"),
        ([1, 2, 3], "action", "expected a dict with keys"),
        (5, "action", "expected a dict with keys"),
    ],
)
def test_misfit_inside_a_batch_is_named_by_path_and_env(batch, where, problem):
    """A wrong action is the caller's mistake; which part of it is wrong is what they need to know."""
    with pytest.raises(MisfitError) as caught:
        NESTED.encode(views_of(NESTED), batch, "action")
    row = "" if caught.value.row is None else f"env {caught.value.row}: "
    assert row + caught.value.where == where
    assert caught.value.problem.startswith(problem)


def test_batch_keeps_the_order_of_keys():
    """Gymnasium's batches keep it, and whoever iterates over a batch sees it."""
    assert list(NESTED.batch(views_of(NESTED))) == ["b", "a"]


def test_nest_survives_pickling():
    """It is sent to every worker."""
    twin = pickle.loads(pickle.dumps(NESTED))
    assert twin.leaves == NESTED.leaves
    views = views_of(twin)
    twin.writer(views, "value")(0, VALUE)
    assert_same(NESTED.reader(views)(0, 1), [VALUE])


@pytest.mark.parametrize("tree", [{}, (), {"a": {}, "b": ()}, ({}, ())], ids=str)
def test_nest_without_leaves_is_a_nest(tree):
    """A Dict without entries is a legal space, e.g. of the actions of an env that only runs."""
    nest = Nest(tree)
    assert nest.leaves == () and nest.batch([]) == tree
    nest.writer([], "value")(0, tree)
    assert nest.reader([])(0, 2) == [tree, tree]
    nest.encode([], tree, "action")


def test_leaves_are_in_the_order_of_views_with_their_paths():
    """Memory is laid out from the leaves, and the views come back in the same order."""
    assert [(leaf.path, leaf.shape, leaf.dtype.name) for leaf in NESTED.leaves] == [
        (("a", 0), (2,), "float32"),
        (("a", 1, "c"), (), "uint8"),
        (("b",), (), "int64"),
    ]
