"""Specs, time steps, nests and the base class beside TF-Agents' own; runs only where TF-Agents is installed.

Where theirs is an accident that ours mends, the test says so, and shows the accident.
"""

from __future__ import annotations

import builtins
import inspect
import pickle
import warnings
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.adapters.tf_agents import array_spec as our_specs
from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents import py_environment as our_environment
from shoal.adapters.tf_agents import time_step as our_steps

pytest.importorskip("tf_agents", reason="the original to compare with is not installed")
tf = pytest.importorskip("tensorflow")
their_specs = pytest.importorskip("tf_agents.specs.array_spec")
their_steps = pytest.importorskip("tf_agents.trajectories.time_step")
their_environment = pytest.importorskip("tf_agents.environments.py_environment")

# Theirs warns of casts and overflows that ours avoids; that ours does not warn is tested beside it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = [np.dtype(dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
INTEGERS = [dtype for dtype in DTYPES if dtype.kind != "f"]
FLOATS = [dtype for dtype in DTYPES if dtype.kind == "f"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


def plain(value: Any) -> Any:
    """Returns what a value consists of, so that ours and theirs compare, types and bits included."""
    if isinstance(value, our_specs.BoundedArraySpec | their_specs.BoundedArraySpec):
        return ("bounded", value.shape, value.dtype, value.name, plain(value.minimum), plain(value.maximum))
    if isinstance(value, our_specs.ArraySpec | their_specs.ArraySpec):
        return ("spec", value.shape, value.dtype, value.name)
    if isinstance(value, np.ndarray | np.generic):
        return (type(value).__name__, value.dtype, value.shape, value.tobytes())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value).__name__, value._fields, [plain(item) for item in value])
    if isinstance(value, list | tuple):
        return (type(value), [plain(item) for item in value])
    if isinstance(value, dict | UserDict):
        return (type(value), [(key, plain(item)) for key, item in value.items()])
    return (type(value), value)


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Returns a call's result, or its error."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain(function(*args, **kwargs)), None
    except Exception as error:
        return None, error


def assert_same_outcome(ours: tuple[Any, Any], theirs: tuple[Any, Any], words: int = 2) -> None:
    """Passes if both gave the same, or raised the same built-in error with the same first words."""
    if theirs[1] is None:
        assert ours[1] is None, f"ours raised {ours[1]!r}"
        assert ours[0] == theirs[0]
        return
    # Theirs may be of a class that gin derives from the built-in one.
    kind = next(kind for kind in type(theirs[1]).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    assert isinstance(ours[1], kind), f"theirs raised {theirs[1]!r}, ours gave {ours}"
    assert str(ours[1]).split()[:words] == str(theirs[1]).split()[:words]


def assert_same_call(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    assert_same_outcome(outcome(ours, *args, **kwargs), outcome(theirs, *args, **kwargs))


@pytest.mark.parametrize(
    "ours, theirs, names",
    [
        (our_specs, their_specs, ["ArraySpec", "BoundedArraySpec", "sample_bounded_spec", "sample_spec_nest"]),
        (our_specs, their_specs, ["assert_arrays_spec_nest", "add_outer_dims_nest"]),
        (our_specs, their_specs, ["is_bounded", "is_discrete", "is_continuous"]),
        (our_specs.ArraySpec, their_specs.ArraySpec, ["check_array", "replace", "from_array", "from_spec"]),
        (our_specs.BoundedArraySpec, their_specs.BoundedArraySpec, ["check_array", "replace", "from_spec"]),
        (our_steps, their_steps, ["restart", "transition", "termination", "truncation", "time_step_spec"]),
        (
            our_environment.PyEnvironment,
            their_environment.PyEnvironment,
            ["step", "reset", "current_time_step", "should_reset", "render", "seed", "get_info", "set_state"],
        ),
    ],
)
def test_arguments_have_the_same_names_and_order(ours, theirs, names):
    """Code that calls the original by keyword, or by position, calls ours."""
    for name in names:
        mine = inspect.signature(getattr(ours, name)).parameters.values()
        other = inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.default) for p in mine] == [(p.name, p.default) for p in other], name


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (our_specs.ArraySpec, their_specs.ArraySpec),
        (our_specs.BoundedArraySpec, their_specs.BoundedArraySpec),
        (our_environment.PyEnvironment, their_environment.PyEnvironment),
        (our_steps.TimeStep, their_steps.TimeStep),
        (our_steps.StepType, their_steps.StepType),
    ],
)
def test_no_public_member_is_missing(ours, theirs):
    """Whatever a user has found there is here."""
    assert {name for name in dir(theirs) if not name.startswith("_")} <= set(dir(ours))


# Specs.


@pytest.mark.parametrize("shape", [(), (2, 3), [4], range(2), np.array([1, 2]), 3, None, "ab"])
@pytest.mark.parametrize("dtype", [np.float32, "int32", np.dtype("u1"), bool, str, "no such", object(), ">i4", "M8[s]"])
def test_array_specs_are_made_of_the_same(shape, dtype):
    """What is refused there is refused here."""
    assert_same_call(our_specs.ArraySpec, their_specs.ArraySpec, shape, dtype, "name")


@st.composite
def bounds_of(draw: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Draws a bound, often a wrong one: None, numbers, lists or arrays that may not fit shape or dtype."""
    numbers: Any = st.integers(-(2**64), 2**64) if dtype.kind != "f" else st.floats(width=64)
    elements: Any = hnp.from_dtype(dtype)
    shapes = st.one_of(st.just(shape), st.just(shape[-1:]), SHAPES)
    return draw(
        st.one_of(
            st.none(),
            numbers,
            st.sampled_from([0, 1, -1, 255, 0.5, np.inf, -np.inf]),
            shapes.flatmap(lambda inner: hnp.arrays(dtype, inner, elements=elements)),
            hnp.arrays(dtype, shape, elements=elements).map(lambda array: array.tolist()),
        )
    )


@given(st.data())
def test_bounded_specs_are_made_of_the_same(data):
    """Bounds are filled in, made finite, cast and refused as there."""
    dtype, shape = data.draw(st.sampled_from(DTYPES)), data.draw(SHAPES)
    low, high = data.draw(bounds_of(dtype, shape)), data.draw(bounds_of(dtype, shape))
    args = (shape, dtype, low, high, data.draw(st.sampled_from([None, "name"])))
    assert_same_call(our_specs.BoundedArraySpec, their_specs.BoundedArraySpec, *args)
    assert_same_call(
        lambda *args: repr(our_specs.BoundedArraySpec(*args)),
        lambda *args: repr(their_specs.BoundedArraySpec(*args)),
        *args,
    )


@pytest.mark.parametrize("dtype", ["?", "c8", "c16", "S3", "U3", "O", "M8[s]", "g"])
def test_bounded_specs_refuse_the_same_dtypes(dtype):
    """A boolean has no bounds there."""
    ours = outcome(our_specs.BoundedArraySpec, (), dtype, 0, 1)
    theirs = outcome(their_specs.BoundedArraySpec, (), dtype, 0, 1)
    # Types that TensorFlow does not know fail elsewhere there, with other words.
    assert_same_outcome(ours, theirs, words=0 if np.dtype(dtype).kind in "Mf" else 2)


def many_specs(module: Any) -> list[Any]:
    specs = [
        module.ArraySpec(shape, dtype, name) for shape in [(), (2,), (1,)] for dtype in ("i4", "f4") for name in "ab"
    ]
    for shape in [(), (2,), (1, 2)]:
        specs += [
            module.BoundedArraySpec(shape, dtype, *bounds) for dtype in ("i4", "f4") for bounds in [(0, 1), (0, 2)]
        ]
        specs.append(module.BoundedArraySpec(shape, "i4", np.zeros(shape), 1, "named"))
        specs.append(module.BoundedArraySpec(shape, "f8"))
    return specs


VALUES = [
    *(0, 1, 2, -1, 0.5, 1.0, np.nan, True, 1j, None, "a", [0], (0, 1), [0, 1], {}),
    *(dtype.type(1) for dtype in DTYPES),
    *(np.array(1, dtype) for dtype in DTYPES),
    *(np.zeros(shape, dtype) for shape in [(2,), (1,), (1, 2), (0,)] for dtype in ("i4", "i8", "f4", "f8", "?")),
    *(np.bool_(True), np.array([0, 3], "i4"), np.array([0, np.nan], "f4"), np.array([0.5, np.inf], "f4")),
]


def test_equality_is_the_same():
    """Envs of one batch are compared by their specs."""
    ours, theirs = many_specs(our_specs), many_specs(their_specs)
    for i in range(len(ours)):
        for j in range(len(ours)):
            assert (ours[i] == ours[j]) == bool(theirs[i] == theirs[j]), (ours[i], ours[j])
            assert (ours[i] != ours[j]) == bool(theirs[i] != theirs[j]), (ours[i], ours[j])


def test_the_same_arrays_conform():
    """Values are checked against specs, by type, shape and bounds."""
    for our_spec, their_spec in zip(many_specs(our_specs), many_specs(their_specs), strict=True):
        for value in VALUES:
            assert our_spec.check_array(value) == bool(their_spec.check_array(value)), (our_spec, value)


@pytest.mark.parametrize("number", range(len(many_specs(our_specs))))
def test_specs_are_derived_alike(number):
    """`replace`, `from_spec`, pickle and `repr` of plain and of bounded specs."""
    ours, theirs = many_specs(our_specs)[number], many_specs(their_specs)[number]
    changes: list[dict[str, Any]] = [{}, {"shape": (3, 2)}, {"dtype": "f8"}, {"dtype": "u1"}, {"name": "new"}]
    changes += [{"minimum": -1}, {"maximum": 9}, {"minimum": 5}]
    for change in changes:
        if set(change) <= {"shape", "dtype", "name"} or our_specs.is_bounded(ours):
            assert_same_call(ours.replace, theirs.replace, **change)
    assert_same_outcome(outcome(our_specs.ArraySpec.from_spec, ours), outcome(their_specs.ArraySpec.from_spec, theirs))
    assert_same_outcome(
        outcome(our_specs.BoundedArraySpec.from_spec, ours, "x"),
        outcome(their_specs.BoundedArraySpec.from_spec, theirs, "x"),
    )
    assert plain(pickle.loads(pickle.dumps(ours))) == plain(pickle.loads(pickle.dumps(theirs)))
    assert repr(ours) == repr(theirs)
    for name in ("is_bounded", "is_discrete", "is_continuous"):
        assert getattr(our_specs, name)(ours) == getattr(their_specs, name)(theirs)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_specs_are_made_of_the_same_arrays(value):
    """`from_array` takes arrays and numbers, nothing else."""
    if isinstance(value, tuple):
        # Theirs fails while it formats its own message.
        with pytest.raises(ValueError, match="Array must be"):
            our_specs.ArraySpec.from_array(value, "name")
        return
    assert_same_call(our_specs.ArraySpec.from_array, their_specs.ArraySpec.from_array, value, "name")


@st.composite
def valid_bounds(draw: Any, dtypes: list[np.dtype]) -> tuple[Any, ...]:
    """Draws shape, dtype and bounds that belong together."""
    dtype, shape = draw(st.sampled_from(dtypes)), draw(SHAPES)
    inner = draw(st.sampled_from([(), shape]))
    elements: Any = hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False)
    one, other = (draw(hnp.arrays(dtype, inner, elements=elements)) for _ in range(2))
    return shape, dtype, np.minimum(one, other), np.maximum(one, other)


@given(valid_bounds(INTEGERS))
def test_values_are_counted_alike(args):
    """Agents size their outputs by `num_values`; theirs wraps around in small types, ours never."""
    shape, dtype, low, high = args
    ours, theirs = our_specs.BoundedArraySpec(*args).num_values, their_specs.BoundedArraySpec(*args).num_values
    exact = np.vectorize(lambda low, high: int(high) - int(low) + 1, otypes=[object])(
        np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    )
    assert np.shape(ours) == np.shape(theirs) == shape
    fits = exact <= int(np.iinfo(dtype).max)
    assert np.array_equal(np.asarray(ours)[fits], np.asarray(theirs)[fits])
    assert all(int(mine) == count or count > 2**63 - 1 for mine, count in zip(np.ravel(ours), exact.flat, strict=True))


def test_floats_are_not_counted():
    """There is no number of floats, here or there."""
    assert our_specs.BoundedArraySpec((), "f4").num_values is their_specs.BoundedArraySpec((), "f4").num_values is None


def samples(module: Any, args: tuple[Any, ...], seed: int) -> tuple[Any, Any]:
    rng = np.random.RandomState(seed)

    def sample() -> Any:
        spec = module.BoundedArraySpec(*args)
        return [np.asarray(module.sample_bounded_spec(spec, rng)) for _ in range(3)]

    return outcome(sample)


@given(valid_bounds(FLOATS), st.integers(0, 2**32 - 1))
def test_the_same_seed_samples_the_same_floats(args, seed):
    """A test that was written with samples of the original finds the same ones.

    If the range of one element is too wide for a float64, theirs halves the bounds of all; ours only that one's.
    """
    _, dtype, low, high = args
    is_too_wide = [float(high) - float(low) == np.inf for low, high in zip(low.flat, high.flat, strict=True)]
    assume(dtype != np.float64 or all(is_too_wide) or not any(is_too_wide))
    assert_same_outcome(samples(our_specs, args, seed), samples(their_specs, args, seed))


@given(valid_bounds(INTEGERS), st.integers(0, 2**32 - 1))
def test_the_same_seed_samples_the_same_integers(args, seed):
    """As for floats, but where theirs never gives the greatest integer or fails; see below."""
    shape, dtype, low, high = args
    assume(not np.any(high == np.iinfo(dtype).max) or (dtype.itemsize < 8 and np.all(high == np.iinfo(dtype).max)))
    is_too_wide = [int(high) - int(low) >= 2**63 for low, high in zip(low.flat, high.flat, strict=True)]
    assume(dtype != np.int64 or all(is_too_wide) or not any(is_too_wide))
    # Of no elements theirs makes float64.
    assume(0 not in shape or low.shape == ())
    assert_same_outcome(samples(our_specs, args, seed), samples(their_specs, args, seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_the_same_seed_samples_the_same_of_a_whole_dtype(dtype, shape):
    """Random actions for specs without bounds; theirs cannot sample uint64."""
    args = (shape, dtype)
    if dtype == np.uint64:
        assert isinstance(samples(their_specs, args, 7)[1], ValueError)
        assert samples(our_specs, args, 7)[1] is None
    else:
        assert_same_outcome(samples(our_specs, args, 7), samples(their_specs, args, 7))


@pytest.mark.parametrize(
    "args",
    [
        ((2,), "i8", 0, np.iinfo("i8").max),
        ((3,), "i4", 0, [1, 2, 3]),
        ((2, 3), "i4", [0, 0, 0], [1, 2, 3]),
        ((2,), "u1", [0, 255], [9, 255]),
    ],
)
def test_ours_samples_what_theirs_cannot(args):
    """Mended: bounds that the spec itself accepts can be sampled."""
    assert isinstance(samples(their_specs, args, 7)[1], ValueError)
    spec = our_specs.BoundedArraySpec(*args)
    rng = np.random.RandomState(7)
    assert all(spec.check_array(our_specs.sample_bounded_spec(spec, rng)) for _ in range(20))


@pytest.mark.parametrize("dtype", ["i8", "f8"])
def test_ours_samples_within_the_bounds(dtype):
    """Mended: one element's wide range does not move another's."""
    whole = our_specs.BoundedArraySpec((), dtype)
    args = ((2,), dtype, [whole.minimum, 10], [whole.maximum, 20])
    theirs, ours = their_specs.BoundedArraySpec(*args), our_specs.BoundedArraySpec(*args)
    rng = np.random.RandomState(7)
    with np.errstate(all="ignore"):
        assert not all(theirs.check_array(their_specs.sample_bounded_spec(theirs, rng)) for _ in range(20))
    assert all(ours.check_array(our_specs.sample_bounded_spec(ours, rng)) for _ in range(20))


def nested_specs(module: Any) -> Any:
    return OrderedDict(
        z=module.BoundedArraySpec((2,), "i4", 0, 9, "z"),
        a=[module.ArraySpec((), "f4", "a"), (module.BoundedArraySpec((3,), "u1", [0, 1, 2], [3, 4, 5]),)],
        m={"y": module.BoundedArraySpec((), "f8", -1, 1), "b": module.ArraySpec((1,), "i8")},
    )


def test_nests_are_sampled_alike():
    """The order of sampling is that of `tf.nest`, so the same seed gives the same nest."""
    for outer_dims in [(), (2,), [3]]:
        ours, theirs = nested_specs(our_specs), nested_specs(their_specs)
        if outer_dims:
            # Theirs cannot add dimensions in front of bounds that differ by element.
            ours["a"].pop(), theirs["a"].pop()
        results = [
            outcome(module.sample_spec_nest, specs, np.random.RandomState(3), outer_dims)
            for module, specs in ((our_specs, ours), (their_specs, theirs))
        ]
        assert_same_outcome(*results)


def test_outer_dims_are_added_alike():
    """Batched specs are made of unbatched ones."""
    for outer_dims in [(), (2,), (2, 3), 2]:
        assert_same_outcome(
            outcome(our_specs.add_outer_dims_nest, nested_specs(our_specs), outer_dims),
            outcome(their_specs.add_outer_dims_nest, nested_specs(their_specs), outer_dims),
            words=0,
        )


def test_nests_of_arrays_conform_alike():
    """Right ones pass; wrong shapes, types, bounds, structures and specs raise the same."""
    right = our_specs.sample_spec_nest(nested_specs(our_specs), np.random.RandomState(3))
    wrong: list[Any] = [right, {}, [], 3, None, list(right.values()), {**right, "z": np.zeros(2, "i8")}, dict(right)]
    wrong += [{**right, "z": np.full(2, 10, "i4")}, {**right, "extra": 1}, {**right, "a": tuple(right["a"])}]
    for value in wrong:
        args = [(value, nested_specs(module)) for module in (our_specs, their_specs)]
        ours = outcome(our_specs.assert_arrays_spec_nest, *args[0])
        theirs = outcome(their_specs.assert_arrays_spec_nest, *args[1])
        assert_same_outcome(ours, theirs)
        assert our_specs.check_arrays_nest(*args[0]) == their_specs.check_arrays_nest(*args[1])
    assert_same_call(our_specs.assert_arrays_spec_nest, their_specs.assert_arrays_spec_nest, 1.0, "no spec")


def test_specs_of_theirs_are_specs():
    """An env may still be written with TF-Agents' own specs."""
    theirs = nested_specs(their_specs)
    arrays = our_specs.sample_spec_nest(theirs, np.random.RandomState(3))
    our_specs.assert_arrays_spec_nest(arrays, theirs)
    assert plain(our_specs.add_outer_dims_nest(theirs, (2,))) == plain(their_specs.add_outer_dims_nest(theirs, (2,)))


# Nests.

Point = namedtuple("Point", "y x")


def same_name() -> Any:
    return namedtuple("Point", "y x")


class Listing(list):
    pass


LEAVES = st.one_of(st.none(), st.integers(0, 99), st.sampled_from(["a", 1.5, np.float32(2)]))
DICTS = (dict, lambda items: OrderedDict(reversed(items.items())))


def nests_of(mappings: Any) -> st.SearchStrategy[Any]:
    """Returns nests of lists, tuples, named tuples, a list of a class of its own, and these mappings."""
    return st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.lists(inner, max_size=3).map(Listing),
            st.builds(Point, inner, inner),
            st.builds(same_name(), inner, inner),
            *(st.dictionaries(st.sampled_from("abcd"), inner, max_size=3).map(mapping) for mapping in mappings),
        ),
        max_leaves=10,
    )


NESTS = nests_of((*DICTS, UserDict, lambda items: defaultdict(list, items)))


@given(NESTS)
def test_nests_flatten_and_pack_as_in_tensorflow(nest):
    """The order of leaves is what travels between processes; containers, and the order of keys, come back."""
    flat = nests.flatten(nest)
    assert plain(flat) == plain(tf.nest.flatten(nest))
    numbers = list(range(len(flat)))
    assert plain(nests.pack(nest, numbers)) == plain(tf.nest.pack_sequence_as(nest, numbers))
    assert plain(nests.map_nest(str, nest)) == plain(tf.nest.map_structure(str, nest))
    assert plain(nests.map_nest(lambda a, b: [a, b], nest, nest)) == plain(
        tf.nest.map_structure(lambda a, b: [a, b], nest, nest)
    )


@given(nests_of(DICTS), nests_of(DICTS))
def test_structures_compare_as_in_tensorflow(a, b):
    """What is one structure there is one here, and what is not raises the same.

    Of mappings that are no dictionaries it compares no keys, and so puts missing ones into a defaultdict.
    """
    assert_same_call(nests.assert_same_structure, tf.nest.assert_same_structure, a, b)


@given(NESTS, st.lists(st.integers(), max_size=4))
def test_packing_the_wrong_number_fails_as_in_tensorflow(nest, flat):
    """A lost leaf is not filled up."""
    ours, theirs = outcome(nests.pack, nest, flat), outcome(tf.nest.pack_sequence_as, nest, flat)
    assert_same_outcome(ours, theirs, words=0)


def test_keys_that_cannot_be_sorted_fail_as_in_tensorflow():
    """There is no order in which such a mapping could travel."""
    assert_same_outcome(outcome(nests.flatten, {1: 1, "a": 2}), outcome(tf.nest.flatten, {1: 1, "a": 2}), words=0)


# Time steps.

OBSERVATIONS = [np.zeros(3, "f4"), {"b": np.zeros(2), "a": [1, (2.0,)]}, 5]
REWARDS = [
    *(0, 1, -2.5, 16777217, 2**60, 2**53 + 1, 1e-50, True, np.nan, None, np.inf, -np.inf, "1.5", "word"),
    *(dtype.type(3) for dtype in DTYPES),
    *(np.array(3, dtype) for dtype in DTYPES),
    *(np.float64(1e30 / 3), np.float32(np.nan), np.float64(np.nan), np.array(np.nan), np.array([1, np.nan])),
    *(np.zeros(4, "f4"), np.zeros(4, "f8"), np.arange(6).reshape(2, 3), np.zeros(0), np.zeros((2, 0))),
    *([1.0, 2.0], (np.zeros(2), np.zeros((2, 3))), {"b": np.ones(2), "a": 1.0}, [1.0, None], [np.float64(1)]),
]
DISCOUNTS = [1.0, 0.0, 0.97, 1, True, np.float32(0.5), np.array(0.5), np.array([0.5, 1.0]), [0.5, 1.0], None, np.nan]
OUTER_DIMS = [None, (), [], 2, (2,), [2, 3], np.array([2])]


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
@pytest.mark.parametrize("name", ["transition", "truncation"])
def test_steps_are_made_alike(name, reward):
    """Types, shapes and bits of all fields, and what is refused."""
    ours, theirs = getattr(our_steps, name), getattr(their_steps, name)
    for outer_dims in OUTER_DIMS:
        for discount in DISCOUNTS:
            assert_same_call(ours, theirs, OBSERVATIONS[1], reward, discount, outer_dims)
        assert_same_call(ours, theirs, OBSERVATIONS[0], reward, outer_dims=outer_dims)


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_terminations_are_made_alike(reward):
    """Types, shapes and bits of all fields, and what is refused."""
    for outer_dims in OUTER_DIMS:
        assert_same_call(our_steps.termination, their_steps.termination, OBSERVATIONS[0], reward, outer_dims)


@given(st.one_of(st.integers(-(2**70), 2**70), st.floats(width=64), st.floats(width=64).map(np.float64)))
def test_rewards_are_rounded_alike(reward):
    """The quick way for numbers gives the same float32."""
    assert_same_call(our_steps.transition, their_steps.transition, OBSERVATIONS[0], reward)


@pytest.mark.parametrize("batch_size", [None, 0, 1, 3, np.int64(2)])
def test_restarts_are_made_alike(batch_size):
    """Types, shapes and bits of all fields."""
    for observation in OBSERVATIONS:
        assert_same_call(our_steps.restart, their_steps.restart, observation, batch_size)
        results = []
        for steps, specs in ((our_steps, our_specs), (their_steps, their_specs)):
            reward_spec = {"b": specs.ArraySpec((2,), "f8"), "a": specs.ArraySpec((), "i4")}
            results.append(outcome(steps.restart, observation, batch_size, reward_spec))
        assert_same_outcome(*results)


def test_time_step_specs_are_made_alike():
    """Names of the specs included."""
    assert_same_call(our_steps.time_step_spec, their_steps.time_step_spec)
    results = [
        outcome(steps.time_step_spec, nested_specs(specs), reward)
        for steps, specs in ((our_steps, our_specs), (their_steps, their_specs))
        for reward in (None, specs.ArraySpec((2,), "f8", "own"))
    ]
    assert_same_outcome(results[0], results[2])
    assert_same_outcome(results[1], results[3])
    assert_same_outcome(
        outcome(our_steps.time_step_spec, tf.TensorSpec((2,)), our_specs.ArraySpec((), "f4")),
        outcome(their_steps.time_step_spec, tf.TensorSpec((2,)), their_specs.ArraySpec((), "f4")),
    )


@pytest.mark.parametrize(
    "value", [0, 1, 2, 3, -1, 1.0, 1.5, np.int64(2), np.array(1), np.array([1]), np.array([1, 2]), "a"]
)
def test_step_types_convert_alike(value):
    """Numbers become the constants."""
    assert_same_call(our_steps.StepType, their_steps.StepType, value)


def test_time_steps_are_the_same_tuples():
    """Questions, text, hash and pickle of single and of batched steps."""
    for args in [(OBSERVATIONS[0], 1.0), (OBSERVATIONS[1], np.zeros(3, "f4")), (5, [1.0])]:
        for name in ("transition", "termination", "truncation"):
            ours, theirs = getattr(our_steps, name)(*args), getattr(their_steps, name)(*args)
            for question in ("is_first", "is_mid", "is_last"):
                assert plain(getattr(ours, question)()) == plain(getattr(theirs, question)())
            assert repr(ours) == repr(theirs)
            assert plain(pickle.loads(pickle.dumps(ours))) == plain(theirs)
            assert_same_call(hash, hash, ours)
            assert isinstance(outcome(hash, ours)[1], type(outcome(hash, theirs)[1]))
            tf.nest.assert_same_structure(ours, theirs)
    numbers = (0, 1.0, 1.0, (2, {"a": 3}))
    assert hash(our_steps.TimeStep(*numbers)) == hash(their_steps.TimeStep(*numbers))


# The base class.


def make_env(base: Any, steps: Any, specs: Any, **members: Any) -> type:
    class Counter(base):
        """Counts to three, and restarts by itself or raises, as told."""

        def observation_spec(self) -> Any:
            return specs.ArraySpec((), "i4")

        def action_spec(self) -> Any:
            return specs.BoundedArraySpec((), "i4", 0, 9)

        def _reset(self) -> Any:
            self.count = 0
            return steps.restart(np.int32(0))

        def _step(self, action: Any) -> Any:
            if action == "raise":
                raise KeyError("told so")
            self.count += 1
            if self.count == 3:
                return steps.termination(np.int32(3), float(action))
            return steps.transition(np.int32(self.count), float(action), 0.9)

    return type("Env", (Counter,), members)


SIDES = [
    (our_environment.PyEnvironment, our_steps, our_specs),
    (their_environment.PyEnvironment, their_steps, their_specs),
]


@pytest.mark.parametrize("handle_auto_reset", [False, True])
def test_the_base_class_steps_alike(handle_auto_reset):
    """First steps, ends of episodes, errors, and what is remembered between them."""
    ours, theirs = (make_env(*side)(handle_auto_reset) for side in SIDES)
    assert_same_call(ours.current_time_step, theirs.current_time_step)
    for action in [1, 2, "raise", 3, 4, 5, 6, 7, "raise", 8]:
        assert_same_call(ours.step, theirs.step, action)
        assert_same_call(ours.current_time_step, theirs.current_time_step)
        assert_same_outcome(
            outcome(ours.should_reset, ours.current_time_step()),
            outcome(theirs.should_reset, theirs.current_time_step()),
        )
    assert_same_call(ours.reset, theirs.reset)
    with ours as inner:
        assert inner is ours


def test_batches_reset_alike():
    """A batch is over when every step of it is a last one."""
    ours, theirs = (make_env(*side)(True) for side in SIDES)
    for types in ([2, 2], [2, 1], [0, 0], []):
        steps = [module.TimeStep(np.array(types, "i4"), 0, 0, 0) for _, module, _ in SIDES]
        assert_same_outcome(outcome(ours.should_reset, steps[0]), outcome(theirs.should_reset, steps[1]))


@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.observation_spec(),
        lambda env: env.action_spec(),
        lambda env: env.reward_spec(),
        lambda env: env.discount_spec(),
        lambda env: env.time_step_spec(),
        lambda env: env.batched,
        lambda env: env.batch_size,
        lambda env: env.close(),
        lambda env: env.render(),
        lambda env: env.render("human"),
        lambda env: env.seed(1),
        lambda env: env.get_info(),
        lambda env: env.get_state(),
        lambda env: env.set_state(1),
        lambda env: env.__exit__(None, None, None),
    ],
)
def test_the_base_class_answers_alike(call):
    """What a subclass need not define."""
    ours, theirs = (make_env(*side)() for side in SIDES)
    assert_same_call(lambda: call(ours), lambda: call(theirs))


def test_subclasses_are_refused_alike():
    """`reset` and `step` belong to the base class; one without its specs is abstract."""
    for name in ("step", "reset", "close", "batched"):
        classes = [make_env(*side, **{name: lambda self: 1}) for side in SIDES]
        ours, theirs = (outcome(lambda env=env: bool(env())) for env in classes)
        assert_same_outcome(ours, theirs)
    # Only the class itself is looked at.
    for base, *modules in SIDES:
        between = make_env(base, *modules, step=lambda self, action: "mine")
        assert type("Below", (between,), {})().step(0) == "mine"
        with pytest.raises(TypeError, match="abstract"):
            base()
    ours, theirs = (make_env(*side, batched=True)() for side in SIDES)
    assert_same_call(lambda: ours.batch_size, lambda: theirs.batch_size)


def test_time_step_spec_has_the_discount_spec():
    """Mended: theirs leaves out a discount spec that is overridden, and so contradicts itself."""
    ours, theirs = (
        make_env(*side, discount_spec=lambda self, specs=side[2]: specs.ArraySpec((2,), "f4", "own"))()
        for side in SIDES
    )
    assert ours.time_step_spec().discount == ours.discount_spec()
    assert theirs.time_step_spec().discount != theirs.discount_spec()
