"""TF-Agents' specs, time steps, nests and base class of envs, in the words of its contract and without TF-Agents.

That they do what the original does is tested beside the original, in `tests/with_tf_agents`.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.array_spec import (
    ArraySpec,
    BoundedArraySpec,
    add_outer_dims_nest,
    assert_arrays_spec_nest,
    check_arrays_nest,
    is_bounded,
    is_continuous,
    is_discrete,
    sample_bounded_spec,
    sample_spec_nest,
)
from shoal.adapters.tf_agents.py_environment import PyEnvironment
from shoal.adapters.tf_agents.time_step import (
    StepType,
    TimeStep,
    restart,
    termination,
    time_step_spec,
    transition,
    truncation,
)
from shoal.errors import ShoalError
from shoal.testing.equality import assert_same

Point = namedtuple("Point", "y x")
DTYPES = [np.dtype(dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]


# Nests.


@pytest.mark.parametrize("container", [dict, OrderedDict, UserDict, lambda items: defaultdict(list, items)])
def test_mappings_are_flattened_by_sorted_keys(container):
    """Two processes agree on the order of leaves, in whatever order their dictionaries were filled."""
    nest = container({"b": 1, "a": (2, None), "c": []})
    assert nests.flatten(nest) == [2, None, 1]
    packed = nests.pack(nest, [10, 20, 30])
    assert type(packed) is type(nest)
    assert list(packed.items()) == [("b", 30), ("a", (10, 20)), ("c", [])]


def test_named_tuples_keep_their_class():
    """A time step comes back as a time step."""
    nest = TimeStep(1, [2], Point(3, 4), {"b": 5, "a": 6})
    assert nests.flatten(nest) == [1, 2, 3, 4, 6, 5]
    assert nests.map_nest(lambda leaf: -leaf, nest) == TimeStep(-1, [-2], Point(-3, -4), {"b": -5, "a": -6})
    assert type(nests.map_nest(str, nest)) is TimeStep


@pytest.mark.parametrize(
    "leaf", [None, 1, "text", b"bytes", np.zeros(2), ArraySpec((), "f4"), deque([1]), {1}, range(2)]
)
def test_all_else_is_a_leaf(leaf):
    """Specs, arrays and `None` are what nests are made of."""
    assert nests.flatten(leaf) == [leaf]
    assert nests.map_nest(lambda found: [found], leaf) == [leaf]


def test_packing_says_how_many_leaves_were_expected():
    """A lost leaf would shift all that follow."""
    with pytest.raises(ValueError, match=r"expected 2 leaves.*found 3"):
        nests.pack({"a": 1, "b": [2]}, [1, 2, 3])


def test_keys_have_to_be_sortable():
    """There is no order in which this could travel."""
    with pytest.raises(TypeError, match="sortable"):
        nests.flatten({1: 1, "a": 2})


def test_functions_get_the_leaves_of_all_nests():
    """Values are checked against their specs in this way."""
    found = nests.map_nest(lambda a, b: a + b, OrderedDict(b=1, a=[2]), {"a": [20], "b": 10})
    assert_same(found, OrderedDict(b=11, a=[22]))
    with pytest.raises(ValueError, match="at least one"):
        nests.map_nest(str)


@pytest.mark.parametrize(
    "a, b, error, said",
    [
        ([1, 2], (1, 2), TypeError, "expected a list, found a tuple"),
        ([1, [2]], [1, 2], ValueError, r"expected a list at \[1\], found a leaf"),
        ({"a": 1}, {"b": 1}, ValueError, r"expected keys \['a'\], found keys \['b'\]"),
        ({"a": [1]}, {"a": [1, 2]}, ValueError, r"expected 1 items at \['a'\], found 2 items"),
        (Point(1, [2]), Point(1, (2,)), TypeError, r"at \['x'\]"),
        (Point(1, 2), (1, 2), TypeError, "expected a Point, found a tuple"),
        (Point(1, 2), namedtuple("Other", "y x")(1, 2), TypeError, "expected a Point, found a Other"),
        ({}, [], TypeError, "expected a dict, found a list"),
        (None, [], ValueError, "expected a leaf"),
    ],
)
def test_structures_that_differ_say_where(a, b, error, said):
    """A wrong action is found by reading the message."""
    with pytest.raises(error, match=said) as info:
        nests.assert_same_structure(a, b)
    assert isinstance(info.value, ShoalError)


def test_structures_are_the_same_whatever_the_mapping():
    """Gymnasium gives an OrderedDict where an agent gives a dict; TimeStep may be another module's."""
    nests.assert_same_structure(OrderedDict(b=1, a=2), {"a": 1, "b": 2})
    nests.assert_same_structure(UserDict(a=1), {"a": 1})
    nests.assert_same_structure(Point(1, 2), namedtuple("Point", "y x")(1, 2))


STACKABLE = st.one_of(
    st.floats(),
    st.booleans(),
    st.integers(-9, 9),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0))
    ),
    st.sampled_from([np.float32(1), np.int64(2), np.bool_(True), "text"]),
)


@given(STACKABLE, st.sampled_from(DTYPES), st.integers(1, 3))
def test_leaves_are_stacked_as_numpy_stacks(leaf, dtype, count):
    """Nothing but a new first axis: types are what the envs returned, mixed ones as NumPy mixes them."""
    items = [leaf] * count
    stacked = nests.stack([{"b": [item], "a": item} for item in items])
    assert_same(stacked, {"b": [np.stack(items)], "a": np.stack(items)})
    assert not np.shares_memory(stacked["a"], leaf)
    if not isinstance(leaf, str):
        mixed = [leaf, np.zeros(np.shape(leaf), dtype)]
        assert_same(nests.stack(mixed), np.stack(mixed))


@pytest.mark.parametrize("container", [dict, OrderedDict, UserDict])
def test_items_are_stacked_in_the_containers_of_the_first(container):
    """A batch looks like one of its items; mappings may differ in order and kind."""
    first = container({"b": np.arange(2), "a": Point(1.0, None)})
    stacked = nests.stack([first, {"a": Point(2.0, None), "b": np.arange(2)}])
    assert type(stacked) is type(first)
    assert list(stacked) == ["b", "a"]
    assert type(stacked["a"]) is Point
    assert_same(stacked["b"], np.array([[0, 1], [0, 1]]))
    assert_same(stacked["a"].y, np.array([1.0, 2.0]))
    assert stacked["a"].x.tolist() == [None, None]


@pytest.mark.parametrize("container", [dict, OrderedDict, UserDict])
@pytest.mark.parametrize(
    "other, said",
    [
        ({"b": np.zeros(3), "a": 1}, r"item 2 has shape \(3,\) at \['b'\], but item 0 has \(2,\)"),
        ({"b": np.zeros(2), "a": [1]}, r"item 2 .*expected a leaf \(int\) at \['a'\], found a list"),
        ({"b": [0.0, 0.0], "a": 1}, r"item 2 .*expected a leaf \(ndarray\) at \['b'\], found a list"),
        ({"b": np.zeros(2), "a": {}}, r"item 2 .*found a dict"),
        ({"b": np.zeros(2)}, r"item 2 .*expected keys \['b', 'a'\], found keys \['b'\]"),
        ({"b": np.zeros(2), "a": 1, "c": 1}, r"item 2 .*keys"),
        ((np.zeros(2), 1), r"item 2 .*found a tuple"),
        (np.zeros(2), r"item 2 .*found a leaf"),
    ],
)
def test_what_cannot_be_stacked_is_named(container, other, said):
    """One of many envs is broken, and the message says which and how."""
    item = {"b": np.zeros(2), "a": 1}
    with pytest.raises(ValueError, match=said):
        nests.stack([container(item), item, container(other) if isinstance(other, dict) else other])


def test_nothing_cannot_be_stacked():
    """There is no structure to stack in."""
    with pytest.raises(ValueError, match="nothing to stack"):
        nests.stack([])


def test_rows_are_what_was_stacked():
    """An action for each env, in the containers of the batch; arrays are views."""
    batch = {"b": np.arange(6).reshape(3, 2), "a": Point(np.arange(3), np.zeros((3, 0)))}
    items = nests.rows(batch, 3)
    assert_same(items[2], {"b": np.array([4, 5]), "a": Point(np.int64(2), np.zeros(0))})
    assert np.shares_memory(items[0]["b"], batch["b"])
    assert_same(nests.stack(items), batch)
    assert_same(nests.rows(np.arange(3), 3), [np.int64(0), np.int64(1), np.int64(2)])
    assert nests.rows((), 2) == [(), ()]
    assert nests.rows(np.zeros((0, 2)), 0) == []


@pytest.mark.parametrize(
    "batch, said",
    [
        (np.zeros(3), r"a batch of 2, found an array of shape \(3,\)"),
        ({"a": np.zeros(2), "b": [np.zeros(1)]}, r"a batch of 2 at \['b'\]\[0\], found an array of shape \(1,\)"),
        (5, r"shape \(\)"),
    ],
)
def test_rows_need_a_batch_of_the_right_length(batch, said):
    """Too few actions would leave envs unstepped in silence."""
    with pytest.raises(ValueError, match=said):
        nests.rows(batch, 2)


# Specs.


@pytest.mark.parametrize("shape, dtype", [(3, "f4"), (None, "f4"), ((), "no such"), ((), object())])
def test_shapes_are_iterable_and_dtypes_exist(shape, dtype):
    """Both are wrong types."""
    for spec in (ArraySpec, BoundedArraySpec):
        with pytest.raises(TypeError):
            spec(shape, dtype)


def test_specs_are_equal_by_shape_and_dtype():
    """Names are ignored; a bounded spec equals none without bounds, and none with others."""
    assert ArraySpec((2,), "f4", "one") == ArraySpec([2], np.float32, "other")
    assert ArraySpec((2,), "f4") != ArraySpec((2,), "f8")
    assert ArraySpec((2,), "f4") != ArraySpec((3,), "f4")
    assert ArraySpec((), "f4") != 1
    bounded = BoundedArraySpec((2,), "i4", 0, 1, "one")
    assert bounded == BoundedArraySpec((2,), "i4", [0, 0], [1, 1], "other")
    assert bounded != BoundedArraySpec((2,), "i4", 0, [1, 2])
    assert bounded != ArraySpec((2,), "i4")
    assert ArraySpec((2,), "i4") != bounded


@pytest.mark.parametrize("spec", [ArraySpec((2,), "f4", "name"), BoundedArraySpec((2,), "f4", 0, [1, 2], "name")])
def test_specs_are_values(spec):
    """They travel by pickle, have no hash, no attributes of a user's, and derive others."""
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec and copy.name == "name" and type(copy) is type(spec)
    assert repr(copy) == repr(spec)
    with pytest.raises(TypeError, match="unhashable"):
        hash(spec)
    with pytest.raises(AttributeError):
        spec.extra = 1
    assert spec.replace() == spec
    assert spec.replace(dtype="f8").dtype == np.float64
    assert spec.replace(name="new").name == "new"
    assert is_bounded(spec.replace()) == is_bounded(spec)


@pytest.mark.parametrize(
    "spec, value, conforms",
    [
        (ArraySpec((2,), "f4"), np.zeros(2, "f4"), True),
        (ArraySpec((2,), "f4"), np.zeros(2, "f8"), False),
        (ArraySpec((2,), "f4"), np.zeros((1, 2), "f4"), False),
        (ArraySpec((2,), "f4"), [0.0, 0.0], False),
        (ArraySpec((), "f8"), 0.5, True),
        (ArraySpec((), "f4"), 0.5, False),
        (ArraySpec((), "f4"), np.float32(0.5), True),
        (ArraySpec((), "i8"), 1, True),
        (ArraySpec((), "?"), True, True),
        (ArraySpec((), "?"), np.bool_(True), False),
        (ArraySpec((1,), "f8"), 0.5, False),
        (BoundedArraySpec((2,), "i4", 0, [1, 2]), np.array([1, 2], "i4"), True),
        (BoundedArraySpec((2,), "i4", 0, [1, 2]), np.array([2, 2], "i4"), False),
        (BoundedArraySpec((2,), "i4", 0, [1, 2]), np.array([-1, 2], "i4"), False),
        (BoundedArraySpec((), "f8", 0, 1), np.nan, False),
        (BoundedArraySpec((), "f8", 0, 1), 1.0, True),
    ],
)
def test_arrays_conform_to_specs(spec, value, conforms):
    """Exactly: nothing is cast, and a Python number has the dtype NumPy gives its type."""
    assert spec.check_array(value) is conforms
    assert check_arrays_nest({"a": value} if not isinstance(value, list) else value, {"a": spec}) is conforms


def test_specs_come_from_arrays_numbers_and_specs():
    """Whatever an env returns can be described."""
    assert ArraySpec.from_array(np.zeros((2, 3), "u1"), "name") == ArraySpec((2, 3), "u1")
    assert ArraySpec.from_array(0.5) == ArraySpec((), "f8")
    for value in ([0.5], (1, 2), "text", np.bool_(True)):
        with pytest.raises(ValueError, match="Array must be"):
            ArraySpec.from_array(value)
    bounded = BoundedArraySpec((), "i4", 0, 9, "name")
    assert ArraySpec.from_spec(bounded) == ArraySpec((), "i4")
    assert BoundedArraySpec.from_spec(bounded, "new") == bounded
    assert BoundedArraySpec.from_spec(bounded, "new").name == "new"
    assert BoundedArraySpec.from_spec(ArraySpec((), "u1")) == BoundedArraySpec((), "u1", 0, 255)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bounds", [(None, None), (-np.inf, np.inf), ([-np.inf, 0], [1, np.inf])])
def test_bounds_are_finite(dtype, bounds):
    """None, and infinity for floats, mean the dtype's own limits."""
    limits = np.iinfo(dtype) if dtype.kind != "f" else np.finfo(dtype)
    if dtype.kind != "f" and bounds[0] is not None:
        with pytest.raises(ValueError, match="Spec bounds"):
            BoundedArraySpec((2,), dtype, *bounds)
        return
    spec = BoundedArraySpec((2,), dtype, *bounds)
    assert spec.minimum.dtype == spec.maximum.dtype == dtype
    assert spec.minimum.flat[0] == limits.min and spec.maximum.flat[-1] == limits.max
    with pytest.raises(ValueError, match="read-only"):
        spec.minimum[...] = 0


@pytest.mark.parametrize(
    "shape, dtype, minimum, maximum, error, said",
    [
        ((2,), "f4", [0, 0, 0], 1, ValueError, "minimum is not compatible with shape"),
        ((2,), "f4", 0, [1, 1, 1], ValueError, "maximum is not compatible with shape"),
        ((), "f4", [0], 1, ValueError, "minimum is not compatible with shape"),
        ((2,), "f4", 0, [1, -1], ValueError, "Spec bounds min has values greater than max"),
        ((), "u1", 0, 256, ValueError, "Spec bounds"),
        ((), "u1", -1, 5, ValueError, "Spec bounds"),
        ((), "i8", 0, 2**63, ValueError, "Spec bounds"),
        ((), "f2", 0, 1e5, ValueError, "Spec bounds"),
        ((), "?", 0, 1, TypeError, "Cannot find minimum"),
        ((), "c8", 0, 1, TypeError, "Cannot find minimum"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(shape, dtype, minimum, maximum, error, said):
    """A spec that no array satisfies is a mistake of its author."""
    with pytest.raises(error, match=said) as info:
        BoundedArraySpec(shape, dtype, minimum, maximum)
    assert isinstance(info.value, ShoalError)


@pytest.mark.parametrize(
    "spec, count",
    [
        (BoundedArraySpec((), "i4", 0, 3), 4),
        (BoundedArraySpec((2,), "i8", 0, [1, 2]), [2, 3]),
        (BoundedArraySpec((2,), "i4", -1, 1), [3, 3]),
        (BoundedArraySpec((), "u1"), 256),
        (BoundedArraySpec((2,), "i4"), [2**32, 2**32]),
        (BoundedArraySpec((), "u8", 1), 2**64 - 1),
        (BoundedArraySpec((), "i8"), 0),
    ],
)
def test_values_are_counted(spec, count):
    """An agent has one output for each value, and no type is too small to count its own."""
    assert np.array_equal(spec.num_values, count)
    assert np.shape(spec.num_values) == spec.shape


def test_kinds_of_specs():
    """Discrete are integers, continuous are floats; booleans are neither."""
    assert BoundedArraySpec((), "f4").num_values is None
    kinds = {"i4": (True, False), "u1": (True, False), "f4": (False, True), "?": (False, False)}
    for dtype, (discrete, continuous) in kinds.items():
        for described in (ArraySpec((), dtype), np.dtype(dtype)):
            assert is_discrete(described) is discrete
            assert is_continuous(described) is continuous
    assert is_bounded(BoundedArraySpec((), "f4")) and not is_bounded(ArraySpec((), "f4"))


@st.composite
def bounded_specs(draw: Any) -> BoundedArraySpec:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    elements: Any = hnp.from_dtype(dtype, allow_nan=False)
    one, other = (
        draw(hnp.arrays(dtype, draw(st.sampled_from([(), shape[-1:], shape])), elements=elements)) for _ in range(2)
    )
    return BoundedArraySpec(shape, dtype, np.minimum(one, other), np.maximum(one, other))


@given(bounded_specs(), st.integers(0, 2**32 - 1))
def test_samples_conform(spec, seed):
    """Whatever the bounds, by element or not, to the ends of the dtype, and without a warning."""
    value = sample_bounded_spec(spec, np.random.RandomState(seed))
    assert spec.check_array(value)
    again = sample_bounded_spec(spec, np.random.RandomState(seed))
    assert_same(np.asarray(value), np.asarray(again))


@pytest.mark.parametrize("dtype", ["i8", "f8"])
def test_a_wide_range_leaves_other_elements_alone(dtype):
    """Ranges too wide for 64 bit are halved, each by itself."""
    whole = BoundedArraySpec((), dtype)
    spec = BoundedArraySpec((2,), dtype, [whole.minimum, 10], [whole.maximum, 20])
    rng = np.random.RandomState(0)
    assert all(spec.check_array(sample_bounded_spec(spec, rng)) for _ in range(20))


def test_samples_reach_both_bounds():
    """Bounds are inclusive, at the end of a dtype as well."""
    rng = np.random.RandomState(0)
    for spec in (BoundedArraySpec((99,), "u1", 254), BoundedArraySpec((2,), "u1", [3, 254], [4, 255])):
        values = np.stack([sample_bounded_spec(spec, rng) for _ in range(50)])
        assert np.array_equal(np.unique(values[..., -1]), [254, 255])


def test_nests_of_specs_are_sampled_and_checked():
    """Random agents and tests of envs work on the nest as a whole."""
    specs = {"b": BoundedArraySpec((2,), "i4", 0, [1, 2]), "a": [ArraySpec((), "f4")]}
    single = sample_spec_nest(specs, np.random.RandomState(0))
    batch = sample_spec_nest(specs, np.random.RandomState(0), outer_dims=(3,))
    assert list(single) == ["b", "a"] and batch["b"].shape == (3, 2)
    assert_arrays_spec_nest(single, specs)
    assert_arrays_spec_nest(batch, add_outer_dims_nest(specs, (3,)))
    assert check_arrays_nest(single, specs) and not check_arrays_nest(batch, specs)
    for wrong, error, said in [
        ({**single, "b": np.array([0, 3], "i4")}, ValueError, "does not match spec"),
        ({"b": single["b"]}, ValueError, "nested structure"),
        ({**single, "a": tuple(single["a"])}, TypeError, "nested structure"),
    ]:
        with pytest.raises(error, match=said):
            assert_arrays_spec_nest(wrong, specs)
        assert not check_arrays_nest(wrong, specs)
    with pytest.raises(TypeError, match="not an ArraySpec"):
        assert_arrays_spec_nest(1.0, "no spec")


def test_outer_dims_keep_bounds_and_names():
    """The specs of a batch are those of one env, with one more axis."""
    specs = add_outer_dims_nest([BoundedArraySpec((2,), "i4", 0, [1, 2], "b"), ArraySpec((), "f4", "a")], [3])
    assert specs == [BoundedArraySpec((3, 2), "i4", 0, [1, 2]), ArraySpec((3,), "f4")]
    assert [spec.name for spec in specs] == ["b", "a"]


# Time steps.


def test_step_types_are_arrays():
    """They are stacked and compared like all else; a number becomes the constant."""
    for number, constant in enumerate([StepType.FIRST, StepType.MID, StepType.LAST]):
        assert_same(constant, np.array(number, np.int32))
        assert StepType(number) is constant
        assert StepType(np.int64(number)) is constant
    with pytest.raises(ValueError, match="No known conversion"):
        StepType(3)


def test_time_steps_are_named_tuples():
    """They unpack, replace and travel as such, and tell where they stand, each step of a batch for itself."""
    step = transition([1, 2], 1.0)
    step_type, _, _, observation = step
    assert step_type is StepType.MID and observation == [1, 2]
    assert (step.is_first(), step.is_mid(), step.is_last()) == (False, True, False)
    batch = step._replace(step_type=np.array([0, 1, 2], np.int32))
    assert batch.is_first().tolist() == [True, False, False]
    assert batch.is_mid().tolist() == [False, True, False]
    assert batch.is_last().tolist() == [False, False, True]
    assert TimeStep.__slots__ == ()
    with pytest.raises(AttributeError):
        step.extra = 1
    assert_same(pickle.loads(pickle.dumps(step)), step)
    assert repr(step).startswith("TimeStep(\n{'step_type': array(1, dtype=int32)")


def test_time_steps_hash_by_their_leaves():
    """So only those without arrays have a hash."""
    assert hash(TimeStep(0, 0.0, 1.0, {"a": [1]})) == hash((0, 0.0, 1.0, 1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(restart(np.zeros(2)))


def test_restart():
    """Reward 0 and discount 1 in float32, for one env, for many, and for rewards of a spec's form."""
    observation = {"a": np.zeros(2)}
    single = restart(observation)
    assert_same(single[:3], (np.array(0, "i4"), np.array(0, "f4"), np.array(1, "f4")))
    assert single.step_type is StepType.FIRST
    assert single.observation is observation
    assert_same(restart(observation, 2)[:3], (np.zeros(2, "i4"), np.zeros(2, "f4"), np.ones(2, "f4")))
    spec = {"a": ArraySpec((3,), "f8"), "b": ArraySpec((), "i4")}
    assert_same(restart(observation, reward_spec=spec).reward, {"a": np.zeros(3), "b": np.zeros((), "i4")})
    assert_same(restart(observation, 2, spec).reward, {"a": np.zeros((2, 3)), "b": np.zeros(2, "i4")})


@pytest.mark.parametrize("reward", [2, 2.0, np.float64(2), np.float32(2), np.int8(2), np.array(2), np.array(2, "f4")])
def test_steps_of_one_env(reward):
    """Rewards and discounts are float32 arrays, whatever the env computes in."""
    kinds = [
        (transition(1, reward), StepType.MID, 1),
        (transition(1, reward, 0.5), StepType.MID, 0.5),
        (termination(1, reward), StepType.LAST, 0),
        (truncation(1, reward), StepType.LAST, 1),
        (truncation(1, reward, np.array(0.5)), StepType.LAST, 0.5),
    ]
    for step, step_type, discount in kinds:
        assert step.step_type is step_type
        assert_same(step[1:], (np.array(2, "f4"), np.array(discount, "f4"), 1))


def test_steps_of_a_batch():
    """Step types have the reward's shape; a discount is not broadcast, but a termination's has the batch's length."""
    reward = np.zeros((2, 3))
    for make, number in ((transition, 1), (truncation, 2)):
        step = make(None, reward, 0.5)
        assert_same(step[:3], (np.full((2, 3), number, "i4"), reward.astype("f4"), np.array(0.5, "f4")))
    step = termination(None, reward)
    assert_same(step[:3], (np.full(2, 2, "i4"), reward.astype("f4"), np.zeros(2, "f4")))


def test_outer_dims_stand_for_the_shape_of_the_reward():
    """A vector may be the reward of one env; it is then taken as it is."""
    reward = np.array([1.0, np.nan])
    for make, number in ((transition, 1), (termination, 2), (truncation, 2)):
        step = make(None, reward, outer_dims=())
        assert step.reward is reward
        assert_same(step.step_type, np.array(number, "i4"))
        assert_same(make(None, reward, outer_dims=(2,)).step_type, np.full(2, number, "i4"))


def test_rewards_may_be_nested():
    """Each leaf is made float32; the first one's shape is the batch's."""
    step = transition(None, {"b": 1, "a": np.zeros(2)})
    assert_same(step.reward, {"b": np.array(1, "f4"), "a": np.zeros(2, "f4")})
    assert_same(step.step_type, np.ones(2, "i4"))


@pytest.mark.parametrize("value", [np.nan, None, np.float32(np.nan), np.array(np.nan), np.array([0, np.nan])])
def test_nan_is_refused(value):
    """A reward that was forgotten is None, and would train an agent on nothing."""
    for make in (transition, termination, truncation):
        with pytest.raises(ValueError, match="nan array"):
            make(1, value)
    for make in (transition, truncation):
        with pytest.raises(ValueError, match="nan array"):
            make(1, 0.0, value)
        with pytest.raises(ValueError, match="nan array"):
            make(1, 0.0, value, ())
        with pytest.raises(ValueError, match="nan array"):
            make(1, {"a": value})


def test_rewards_can_be_added_up_in_place():
    """Tutorials do so, and must not change the rewards of later steps."""
    for make in (restart, lambda observation: transition(observation, 1.0), lambda o: termination(o, 1.0)):
        before = make(0)
        step = make(0)
        total, discount = step.reward, step.discount
        total += 5
        discount *= 0.5
        assert_same(make(0), before)


def test_time_step_specs():
    """One spec for each part; of an env's own, its reward spec is kept."""
    assert time_step_spec() == TimeStep((), (), (), ())
    observation = {"a": ArraySpec((2,), "u1")}
    spec = time_step_spec(observation)
    assert spec.observation is observation
    assert spec[:2] == (ArraySpec((), "i4"), ArraySpec((), "f4"))
    assert spec.discount == BoundedArraySpec((), "f4", 0, 1)
    assert [part.name for part in spec[:3]] == ["step_type", "reward", "discount"]
    reward = ArraySpec((2,), "f8")
    assert time_step_spec(observation, reward).reward is reward


def test_specs_of_tensors_are_refused():
    """They are TensorFlow's; without it there are arrays only."""

    class DType:
        as_numpy_dtype = np.float32

    class TensorSpec:
        dtype = DType()

    for specs in [(TensorSpec(), None), (ArraySpec((), "f4"), TensorSpec()), ([TensorSpec()], ArraySpec((), "f4"))]:
        with pytest.raises(TypeError, match="array specs"):
            time_step_spec(*specs)


# The base class.


class Counting(PyEnvironment):
    """Counts to two; an action of None raises."""

    def observation_spec(self) -> Any:
        return ArraySpec((), "i4")

    def action_spec(self) -> Any:
        return BoundedArraySpec((), "i4", 0, 9)

    def _reset(self) -> TimeStep:
        self.count = 0
        return restart(self.count)

    def _step(self, action: Any) -> TimeStep:
        if action is None:
            raise KeyError("told so")
        self.count += 1
        return termination(self.count, action) if self.count == 2 else transition(self.count, action)


def test_the_first_step_is_a_reset():
    """Its action is ignored."""
    env = Counting()
    with pytest.raises(ValueError, match="Current timestep not initialized"):
        env.current_time_step()
    assert env.step(None).is_first()
    assert env.step(7).reward == 7


def test_the_last_time_step_is_remembered():
    """The same object, and the old one if a step fails."""
    env = Counting()
    assert env.current_time_step.__self__ is env
    for step in (env.reset(), env.step(1)):
        last = step
    assert env.current_time_step() is last
    with pytest.raises(KeyError):
        env.step(None)
    assert env.current_time_step() is last


def test_resetting_may_be_left_to_the_base_class():
    """After the last step comes a reset, whose action is ignored; otherwise it is the env's own affair."""
    env = Counting(handle_auto_reset=True)
    types = [int(env.step(1).step_type) for _ in range(7)]
    assert types == [0, 1, 2, 0, 1, 2, 0]
    env = Counting()
    assert [int(env.step(1).step_type) for _ in range(4)] == [0, 1, 2, 1]


def test_a_batch_is_reset_when_all_of_it_is_over():
    """The base class can only reset it as a whole."""
    env = Counting(handle_auto_reset=True)
    for types, due in [([2, 2], True), ([2, 1], False), (2, True), (1, False)]:
        step = TimeStep(np.array(types, "i4"), 0, 0, 0)
        assert env.should_reset(step) == due
        assert not Counting().should_reset(step)


def test_the_flag_has_a_default():
    """Envs that do not call the base class's `__init__` can be asked whether they should reset."""

    class Careless(Counting):
        def __init__(self) -> None:
            pass

    env = Careless()
    assert env.should_reset(termination(0, 0.0)) is False
    with pytest.raises(AttributeError, match="_current_time_step"):
        env.step(0)


@pytest.mark.parametrize("name", ["reset", "step"])
def test_step_and_reset_belong_to_the_base_class(name):
    """What they remember would be lost; but a class that inherits an override is left alone."""
    overriding = type("Overriding", (Counting,), {name: lambda self, *args: "mine"})
    with pytest.raises(ValueError, match=f"cannot override {name}.*define _{name}"):
        overriding()
    assert getattr(type("Below", (overriding,), {})(), name)(*([0] if name == "step" else [])) == "mine"


def test_specs_and_methods_are_abstract():
    """An env without them is none."""
    for name in ("observation_spec", "action_spec", "_reset", "_step"):
        with pytest.raises(TypeError, match=name):
            type("Lacking", (Counting,), {name: getattr(PyEnvironment, name)})()


def test_defaults_of_the_base_class():
    """What an env need not say."""
    env = Counting()
    assert env.batched is False and env.batch_size is None
    assert env.reward_spec() == ArraySpec((), "f4") and env.reward_spec().name == "reward"
    assert env.discount_spec() == BoundedArraySpec((), "f4", 0, 1) and env.discount_spec().name == "discount"
    assert env.time_step_spec() == time_step_spec(env.observation_spec())
    assert env.close() is None
    for call, said in [
        (env.render, "No rendering support"),
        (lambda: env.render(mode="human"), "No rendering support"),
        (lambda: env.seed(1), "No seed support"),
        (env.get_info, "No support of get_info"),
        (env.get_state, "has not implemented `get_state"),
        (lambda: env.set_state(1), "has not implemented `set_state"),
    ]:
        with pytest.raises(NotImplementedError, match=said):
            call()


def test_a_batched_env_has_to_say_how_large_it_is():
    """None would be taken for "not batched"."""
    env = type("Batched", (Counting,), {"batched": True})()
    with pytest.raises(RuntimeError, match="did not override the batch_size"):
        _ = env.batch_size


def test_the_time_step_spec_is_made_of_the_others():
    """Also of a discount spec of the env's own, which the original forgets."""
    own = {"reward_spec": ArraySpec((2,), "f8"), "discount_spec": ArraySpec((2,), "f4")}
    env = type("Own", (Counting,), {name: lambda self, spec=spec: spec for name, spec in own.items()})()
    spec = env.time_step_spec()
    assert spec.reward is own["reward_spec"] and spec.discount is own["discount_spec"]
    assert spec.observation == env.observation_spec()


def test_an_env_is_closed_at_the_end_of_its_block():
    """And errors leave the block as they are."""
    calls = []
    env = type("Closing", (Counting,), {"close": lambda self: calls.append("closed")})()
    with env as inner:
        assert inner is env
    with pytest.raises(KeyError), env:
        raise KeyError
    assert calls == ["closed", "closed"]
