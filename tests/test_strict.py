"""`strict=True`: observations and actions must lie in their spaces, bounds and all; what does cost no false alarm."""

from __future__ import annotations

import datetime
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import HealthCheck, given, settings
from vectors import every_backend, readable, vector

from shoal import MisfitError
from shoal.testing import Counter, Scripted
from shoal.testing.equality import assert_same
from shoal.testing.spaces import DISCRETE_HAS_DTYPE, Days, all_spaces

NAN, INF = np.nan, np.inf
UNIT = Box(0, 1, (2,), np.float32)
DAYS = Days(datetime.date(2026, 1, 1), 365)
GRAPH = Graph(UNIT, Discrete(4))


def unit(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def graph(links: Any, nodes: Any = None, edges: Any = (3,)) -> GraphInstance:
    """Returns a graph of two nodes and one edge."""
    return GraphInstance(np.zeros((2, 2), np.float32) if nodes is None else nodes, np.array(edges), np.array(links))


# A space, a value in it, one that is not but has the right form, and what the error says behind `env i: what`.
OUTSIDE = [
    (UNIT, unit(0, 1), unit(0, 1.5), r": expected 0.0 to 1.0 at \[1\], found 1.5"),
    (UNIT, unit(0, 1), unit(-0.5, 1), r": expected 0.0 to 1.0 at \[0\], found -0.5"),
    (UNIT, unit(0, 1), unit(0, NAN), r": expected numbers, found NaN at \[?\(?1"),
    (UNIT, unit(0, 1), unit(0, INF), r": expected 0.0 to 1.0 at \[1\], found inf"),
    (Box(0, 9, (2,), np.uint8), [0, 9], [0, 10], r": expected 0 to 9 at \[1\], found 10"),
    (Box(-1, 1, (), np.float32), 0.5, 1.5, ": expected -1.0 to 1.0, found 1.5"),
    (Box(-INF, INF, (), np.float32), 0.5, NAN, ": expected numbers, found NaN"),
    (Discrete(3), 2, 3, ": expected 0 to 2, found 3"),
    (Discrete(3), 2, -1, ": expected 0 to 2, found -1"),
    (Discrete(3, start=-1), -1, 2, ": expected -1 to 1, found 2"),
    (MultiDiscrete([3, 5]), [2, 4], [2, 5], r": expected 0 to 4 at \[1\], found 5"),
    (
        MultiDiscrete(np.array([3, 5]), start=np.array([10, 0])),
        [12, 4],
        [9, 4],
        r": expected 10 to 12 at \[0\], found 9",
    ),
    (MultiBinary(3), [0, 1, 1], [0, 1, 2], r": expected 0 to 1 at \[2\], found 2"),
    (
        Dict(x=UNIT, n=Discrete(3)),
        {"x": [0, 1], "n": 1},
        {"x": [0, 2], "n": 1},
        r"\['x'\]: expected 0.0 to 1.0 at \[1\]",
    ),
    (
        Dict(x=UNIT),
        {"x": [0, 1]},
        {"x": [0, 1], "y": [0, 0]},
        r": expected exactly the keys \['x'\], found",
    ),
    (Tuple((Discrete(2), Dict(x=UNIT))), (1, {"x": [0, 1]}), (1, {"x": [0, 2]}), r"\[1\]\['x'\]: expected 0.0 to 1.0"),
    (Dict(d=Dict(x=UNIT)), {"d": {"x": [0, 1]}}, {"d": {"x": [0, 1], "z": 0}}, r"\['d'\]: expected exactly the keys"),
    (Text(3, min_length=2), "ab", "a", ": expected .*found 'a'"),
    (OneOf([UNIT, Text(2)]), (0, unit(0, 1)), (0, unit(0, 2)), r"\[0\]: expected 0.0 to 1.0 at \[1\], found 2"),
    (OneOf([UNIT, Text(2)]), (0, unit(0, 1)), (1, ""), r"\[1\]: expected .*found ''"),
    (Sequence(UNIT), (unit(0, 1),), (unit(0, 1), unit(0, 2)), r"\[1\]: expected 0.0 to 1.0 at \[1\], found 2"),
    (Sequence(UNIT), (unit(0, 1),), (unit(0, 1), unit(0, NAN)), r"\[1\]: expected numbers, found NaN"),
    (Sequence(Dict(n=Discrete(3))), ({"n": 1},), ({"n": 1}, {"n": 5}), r"\[1\]\['n'\]: expected 0 to 2, found 5"),
    (Sequence(Dict(n=Discrete(3))), ({"n": 1},), ({"n": 1}, {"n": 1, "z": 1}), r"\[1\]: expected exactly the keys"),
    (Sequence(Sequence(Discrete(3))), ((1,),), ((1,), (1, 5)), r"\[1\]\[1\]: expected 0 to 2, found 5"),
    (
        Sequence(UNIT, stack=True),
        unit(0, 1)[None],
        np.stack([unit(0, 1), unit(0, 2)]),
        ".*: expected 0.0 to 1.0.*found 2",
    ),
    (
        Sequence(Dict(n=Discrete(3)), stack=True),
        {"n": [1]},
        {"n": np.array([1, 5])},
        r".*\['n'\].*: expected 0 to 2.*found 5",
    ),
    (GRAPH, graph([[0, 1]]), graph([[0, 2]]), r"\.edge_links.*: expected .*0 to 1.*found 2"),
    (GRAPH, graph([[0, 1]]), graph([[0, -1]]), r"\.edge_links.*: expected .*0 to 1.*found -1"),
    (GRAPH, graph([[0, 1]]), graph([[0, 1], [1, 1]]), r"\.edge_links: expected .*1.*found 2"),
    (GRAPH, graph([[0, 1]]), GraphInstance(np.zeros((2, 2), np.float32), np.array([3]), None), r".*: expected"),
    (GRAPH, graph([[0, 1]]), graph([[0, 1]], edges=[4]), r"\.edges.*: expected 0 to 3.*found 4"),
    (GRAPH, graph([[0, 1]]), graph([[0, 1]], nodes=np.full((2, 2), 2, np.float32)), r"\.nodes.*: expected 0.0 to 1.0"),
    (
        DAYS,
        DAYS.first,
        datetime.date(2025, 12, 31),
        r": expected a value of .*found datetime.date\(2025",
    ),
]
every_kind = pytest.mark.parametrize(
    "space, inside, outside, message",
    OUTSIDE,
    ids=[f"{type(space).__name__}-{index}" for index, (space, *_) in enumerate(OUTSIDE)],
)


def observed(space: Any, *values: Any, backend: str = "serial", **options: Any) -> Any:
    """Returns the batch of a reset; each env observes one of the values."""
    with vector([partial(Scripted, space, [value]) for value in values], backend, **options) as envs:
        return envs.reset()[0]


@every_kind
def test_observation_outside_its_space_is_refused_when_asked_for(space, inside, outside, message):
    """It names the env and the place; otherwise the value passes as it is, since bounds are often careless."""
    with pytest.raises(MisfitError, match=f"(?s)^env 1: observation{message}"):
        observed(space, inside, outside, strict=True)
    observed(space, inside, inside, strict=True)
    observed(space, inside, outside)


@every_kind
def test_action_outside_its_space_is_refused_when_asked_for(space, inside, outside, message):
    """Before any env steps: a policy that has gone wild is found where it has."""
    for strict in (True, False):
        env_fns = [partial(Counter, index, action_space=space) for index in range(2)]
        with vector(env_fns, strict=strict) as envs:
            envs.reset()
            if strict:
                with pytest.raises(MisfitError, match=f"(?s)^env 1: action{message}"):
                    envs.step([inside, outside])
            else:
                envs.step([inside, outside])
            assert envs.get_attr("t") == (int(not strict),) * 2
            envs.step([inside, inside])


@every_backend
def test_strict_checks_are_the_same_in_every_backend(backend):
    """At a reset and at a step; the env must be reset, and the others lose nothing."""
    space = Dict(x=UNIT, t=Discrete(9))
    env_fns = [
        partial(Scripted, space, [{"x": [0, 2 if row == t == 1 else 0.5], "t": t} for t in range(3)])
        for row in range(3)
    ]
    with vector(env_fns, backend, num_workers=2, strict=True) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=r"^env 1: observation\['x'\]: expected 0.0 to 1.0 at \[1\], found 2"):
            envs.step([0] * 3)
        observations, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
        assert_same(observations, {"x": np.full((3, 2), [0, 0.5], np.float32), "t": np.array([1, 0, 1])})
    bad = {"x": [0, NAN], "t": 0}
    with (
        vector([partial(Scripted, space, [bad])], backend, strict=True) as envs,
        pytest.raises(MisfitError, match=r"^env 0: observation\['x'\]: expected numbers, found NaN"),
    ):
        envs.reset()


def test_last_observation_of_an_episode_is_checked_too():
    """With same-step autoreset it travels beside the first of the next."""
    env_fn = partial(Scripted, UNIT, [[0, 0.5], [0, 2]], 0.0, [False, True])
    with vector([env_fn], autoreset_mode="SameStep", strict=True) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=r"^env 0: final observation: expected 0.0 to 1.0 at \[1\], found 2"):
            envs.step([0])


NESTED = Dict(b=Discrete(9), a=Tuple((UNIT, Discrete(9))))
GOOD = {"b": 1, "a": ([0, 1], 2)}


@pytest.mark.parametrize(
    "actions, message",
    [
        ({"b": [1, 1], "a": ([[0, 1]] * 2, [2, 2]), "c": [0, 0]}, r"action: expected exactly the keys"),
        ([GOOD, {**GOOD, "c": 0}], r"env 1: action: expected exactly the keys"),
        ({"b": [1, 1], "a": ([[0, 1], [0, 2]], [2, 2])}, r"env 1: action\['a'\]\[0\]: expected 0.0 to 1.0 at \[1\]"),
        ({"b": [1, 10], "a": ([[0, 1]] * 2, [2, 2])}, r"env 1: action\['b'\]: expected 0 to 8, found 10"),
    ],
    ids=["extra", "extra-of-one", "bound", "number"],
)
def test_keys_and_bounds_of_nested_actions_are_checked(actions, message):
    """A key that nobody reads is mostly one that was misspelt; without `strict` it is left out."""
    env_fns = [partial(Counter, index, action_space=NESTED) for index in range(2)]
    with vector(env_fns, strict=True) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=f"^{message}"):
            envs.step(actions)
        assert envs.get_attr("t") == (0, 0)
        envs.step([GOOD, GOOD])
    with vector(env_fns) as envs:
        envs.reset()
        envs.step(actions)


@pytest.mark.parametrize("strict", [True, False])
def test_missing_key_is_refused_always(strict):
    """There is nothing that could stand in its place."""
    with pytest.raises(MisfitError, match=r"^env 1: observation: .*'y'"):
        observed(Dict(x=UNIT, y=UNIT), {"x": [0, 1], "y": [0, 1]}, {"x": [0, 1]}, strict=strict)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "space, value",
    [
        (Box(0, 255, (2,), np.uint8), [0, 300.7]),
        (Box(0, 255, (2,), np.uint8), [0, 300]),
        (Box(0, 255, (2,), np.uint8), [0, -1]),
        (Box(0, 255, (2,), np.uint8), [0.0, 3.0]),
        (Box(0, 255, (2,), np.uint8), [0, NAN]),
        (Box(0, 1, (2,), np.float32), [0, 1e39]),
        (Box(-(2**62), 2**62, (2,), np.int64), np.array([0, 2**63], np.uint64)),
        (MultiBinary(2), [0, 200]),
        (Discrete(3), 1.0),
    ],
    ids=readable,
)
def test_numbers_that_the_type_cannot_hold_are_refused_always(strict, space, value):
    """Nothing wraps around, is cut or becomes infinite, whether or not anyone looks at the bounds."""
    for each, own in ((space, value), (Sequence(space), (value,)), (OneOf([space]), (0, value))):
        with pytest.raises(MisfitError, match=r"^env 0: observation(\[0\])?: "):
            observed(each, own, strict=strict)
        with vector([partial(Counter, action_space=each)], strict=strict) as envs:
            envs.reset()
            with pytest.raises(MisfitError, match="action"):
                envs.step([own])


@pytest.mark.parametrize(
    "space, value",
    [
        (UNIT, [0, 1, 0]),
        (UNIT, [[0], [0, 1]]),
        (UNIT, "ab"),
        (UNIT, None),
        (Box(0, 1, ()), "a"),
        (Box(0, 1, ()), None),
        (Discrete(3), None),
        (Discrete(3), "1"),
        (Discrete(3), [1]),
        (Discrete(3), {}),
        (MultiDiscrete([3, 3, 3]), [1, 2]),
        (MultiDiscrete([3, 3]), None),
        (MultiBinary(2), "ab"),
        (MultiBinary(2), [0, 1, 1]),
        (Dict(a=UNIT), ["a"]),
        (Dict(a=UNIT), "a"),
        (Dict(a=UNIT), None),
        (Tuple((UNIT,)), None),
        (Tuple((UNIT,)), 5),
        (Tuple((UNIT,)), {0: [0, 1]}),
        (Tuple((UNIT,)), "a"),
        (Text(3), 5),
        (OneOf([UNIT]), 5),
        (OneOf([UNIT]), (5, 5)),
        (Sequence(UNIT), 5),
        (Sequence(UNIT, stack=True), 5),
        (Sequence(UNIT, stack=True), np.zeros((2, 3), np.float32)),
        (Sequence(Dict(a=UNIT), stack=True), {}),
        (GRAPH, 5),
        (GRAPH, GraphInstance(5, None, None)),
        (GRAPH, graph([[0.5, 1]])),
    ],
    ids=readable,
)
def test_values_of_another_form_are_the_same_error_with_and_without(space, value):
    """Looking closer must not turn a message that names env and place into one of NumPy's."""
    for strict in (False, True):
        with pytest.raises(MisfitError, match=r"^env 1: observation\['o'\]"):
            right = Dict(o=space)
            right.seed(0)
            observed(right, right.sample(), {"o": value}, strict=strict)


# No false alarms.


@pytest.mark.parametrize("backend", ["serial", "thread"])
@given(space=all_spaces())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_samples_of_any_space_always_pass(backend, space):
    """As observations and as actions, at any depth; and nobody is warned."""
    space.seed(5)
    values = [space.sample() for _ in range(4)]

    class Spoken(Scripted):
        def __init__(self, *own):
            super().__init__(space, list(own), action_space=space)

    with vector([partial(Spoken, *values[:2]), partial(Spoken, *values[2:])], backend, strict=True) as envs:
        envs.reset()
        envs.step(concatenate(space, values[1:3], create_empty_array(space, 2)))
        envs.step(values[2:])


@pytest.mark.parametrize(
    "space, value",
    [
        # In float32 the high bound is a little below 0.7, and so is the observation that arrives.
        (Box(0, 0.7, (1,), np.float32), [0.7]),
        (Box(-0.1, 0.7, (2,), np.float16), np.array([-0.1, 0.7])),
        (Box(-INF, INF, (2,), np.float32), [INF, -INF]),
        (Box(0, 1, (), np.float32), 1),
        (Box(0, 1, (2,), np.float32), np.array([0.0, 0.5])),
        (Box(0, 1, (2,), np.bool_), [True, False]),
        (Box(0, 2**63 - 1, (1,), np.uint64), [2**62]),
        (Discrete(3), np.uint8(2)),
        (Discrete(3), np.array(2)),
        (Text(3), np.str_("abc")),
        (Tuple((Discrete(2), UNIT)), (1, [0, 1])),
        (Dict(b=Discrete(2), a=UNIT), {"a": (0, 1), "b": True}),
        (OneOf([Discrete(2), UNIT]), (np.int32(1), np.array([0.0, 0.5]))),
        (Sequence(UNIT), (np.array([0.0, 0.5]), [0, 1])),
        (Sequence(UNIT), [[0, 1]]),
        (Sequence(UNIT), ()),
        (Sequence(UNIT, stack=True), np.array([[0.0, 0.5]])),
        (Sequence(UNIT, stack=True), np.zeros((0, 2), np.float32)),
        (Sequence(Box(0, 1, (), np.float32)), (np.float32(0.5), np.array(0.5), 0.5)),
        (Sequence(Box(0, 9, (), np.int32)), (np.int32(5), 5)),
        (OneOf([Box(0, 9, (), np.int32)]), (0, np.int32(5))),
        (GRAPH, GraphInstance(np.array([[0.0, 0.5]]), None, None)),
        (GRAPH, GraphInstance([[0, 0.5]], [3], [[0, 0]])),
        (GRAPH, GraphInstance(np.zeros((2, 2), np.float32), np.zeros(0, int), np.zeros((0, 2), int))),
        (DAYS, DAYS.first),
    ],
    ids=readable,
)
def test_values_that_fit_without_pass_if_they_lie_in_the_space(space, value):
    """Lists, wider types and Python's numbers are taken without `strict`, and it is about bounds, not types."""
    assert_same(observed(space, value, value, strict=True), observed(space, value, value))
    with vector([partial(Counter, action_space=space)] * 2, strict=True) as envs:
        envs.reset()
        envs.step([value, value])


@pytest.mark.skipif(not DISCRETE_HAS_DTYPE, reason="all Discretes are int64 here")
def test_discrete_may_reach_to_the_end_of_its_type():
    """One more than its last number does not fit into the type any more."""
    space = Discrete(56, start=200, dtype=np.uint8)
    assert_same(observed(space, 200, 255, strict=True), np.array([200, 255], np.uint8))
    with pytest.raises(MisfitError, match=r"^env 1: observation: expected 200 to 255, found 199"):
        observed(space, 200, 199, strict=True)


@every_backend
def test_each_env_is_held_to_its_own_bounds(backend):
    """With `observation_mode="different"` each row of the batched space has bounds of its own."""
    env_fns = [partial(Scripted, Box(0, high, (1,), np.float32), [[high]]) for high in (1, 5)]
    with vector(env_fns, backend, strict=True, observation_mode="different") as envs:
        observations, _ = envs.reset()
        assert_same(observations, np.array([[1], [5]], np.float32))
        assert envs.observation_space.contains(observations)
    env_fns = [partial(Scripted, Box(0, high, (1,), np.float32), [[4]]) for high in (5, 1)]
    with (
        vector(env_fns, backend, strict=True, observation_mode="different") as envs,
        pytest.raises(MisfitError, match=r"^env 1: observation: expected 0.0 to 1.0 at \[0\], found 4"),
    ):
        envs.reset()


def test_message_stays_readable_however_large_the_value_is():
    """The space and the value are both printed, and both may be large."""
    many = tuple(unit(0, 1) for _ in range(5000))
    cases = [
        (Sequence(UNIT), (*many, unit(0, 2))),
        (Box(0, 1, (100, 100), np.float32), np.full((100, 100), 2, np.float32)),
        (Text(100_000, min_length=60_000), "a" * 50_000),
        (MultiDiscrete([3] * 5000), [4] * 5000),
    ]
    for space, value in cases:
        with pytest.raises(MisfitError, match=r"^env 0: observation") as caught:
            observed(space, value, strict=True)
        assert len(str(caught.value)) < 1000
