"""Infos as columns: the same as Gymnasium's where Gymnasium keeps what an env said, and whole where it does not."""

from __future__ import annotations

import enum
import math
import pickle
from fractions import Fraction
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors import every_backend, readable, vector

from shoal import AsyncVectorEnv
from shoal.testing import Counter, Scripted
from shoal.testing.equality import assert_same
from shoal.worker.infos import gather, merge, scatter

NUM_ENVS = 5


def batched(infos: list[dict[str, Any]], cuts: tuple[int, ...] = ()) -> dict[str, Any]:
    """Returns the infos of a batch, gathered by workers whose rows begin at 0 and at each of the cuts."""
    bounds = [0, *sorted(cuts), len(infos)]
    rows = list(enumerate(infos))
    # They reach the engine pickled.
    parts = [pickle.loads(pickle.dumps(gather(rows[first:last]))) for first, last in pairwise(bounds)]
    return merge(parts, len(infos))


def gymnasium_batched(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what Gymnasium's vector envs make of the same infos."""
    envs: VectorEnv = VectorEnv()
    envs.num_envs = len(infos)
    result: dict[str, Any] = {}
    for index, info in enumerate(infos):
        result = envs._add_info(result, info, index)
    return result


cuts = st.lists(st.integers(0, NUM_ENVS), max_size=3).map(tuple)

NUMBER_TYPES = [np.bool_, *(np.dtype(code).type for code in "bBhHiIlLefdFD")]


def uniform_values() -> st.SearchStrategy[st.SearchStrategy[Any]]:
    """Returns strategies for values of one type and shape, as an env gives them under one key."""
    arrays = st.tuples(
        st.sampled_from(NUMBER_TYPES).map(np.dtype), hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
    ).map(lambda form: hnp.arrays(*form))
    scalars = st.sampled_from(NUMBER_TYPES).map(lambda kind: hnp.from_dtype(np.dtype(kind)).map(kind))
    others = st.sampled_from(
        [
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.booleans(),
            st.text(max_size=5),
            st.none(),
            st.lists(st.integers(), max_size=3),
            st.tuples(st.integers(), st.text(max_size=2)),
        ]
    )
    return st.one_of(arrays, scalars, others)


KEYS = ("a", "b", "low", "x y", "", "ключ")


def uniform_infos(depth: int = 2) -> st.SearchStrategy[st.SearchStrategy[dict[str, Any]]]:
    """Returns strategies for infos in which a key, if it is there, always has the same type and shape."""
    values = st.one_of(uniform_values(), uniform_infos(depth - 1)) if depth else uniform_values()
    return st.dictionaries(st.sampled_from(KEYS), values, max_size=3).map(
        lambda items: st.fixed_dictionaries({}, optional=items)
    )


@given(uniform_infos().flatmap(lambda infos: st.lists(infos, min_size=NUM_ENVS, max_size=NUM_ENVS)), cuts)
@settings(max_examples=200)
def test_infos_are_what_gymnasium_builds(infos, cuts):
    """Programs that read Gymnasium's infos must find the same keys, masks, dtypes and fill values."""
    assert_same(batched(infos, cuts), gymnasium_batched(infos))


mixed_values = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.sampled_from(NUMBER_TYPES).flatmap(lambda kind: hnp.from_dtype(np.dtype(kind)).map(kind)),
    hnp.arrays(st.sampled_from(NUMBER_TYPES).map(np.dtype), hnp.array_shapes(min_dims=0, max_dims=2, max_side=2)),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9), max_size=2),
)
mixed_infos = st.dictionaries(st.sampled_from(KEYS[:3]), mixed_values, max_size=3)


def says_the_same(found: Any, given: Any) -> bool:
    """Tells whether a value reads as it was given; a number may have become another type of number."""
    if isinstance(given, np.ndarray):
        found = np.asarray(found)
        return found.shape == given.shape and all(map(says_the_same, found.flat, given.flat))
    numbers = (bool, int, float, complex, np.generic)
    if isinstance(given, numbers) and isinstance(found, numbers):
        return exact(found) == exact(given)
    return type(found) is type(given) and found == given


def exact(number: Any) -> tuple[Any, Any]:
    """Returns real and imaginary part as Python compares them without rounding, which NumPy does not."""
    number = number.item() if isinstance(number, np.generic) else number
    return tuple(Fraction(part) if math.isfinite(part) else str(part) for part in (number.real, number.imag))


def read(infos: dict[str, Any], key: str, row: int) -> Any:
    """Returns what a batch of infos says of one env under a key, which may be a dictionary."""
    value = infos[key]
    if not isinstance(value, dict):
        return value[row]
    return {inner: read(value, inner, row) for inner in value if f"_{inner}" in value and value[f"_{inner}"][row]}


@given(st.lists(mixed_infos, min_size=NUM_ENVS, max_size=NUM_ENVS), cuts)
@settings(max_examples=300)
def test_infos_of_any_kind_read_as_they_were_given(infos, cuts):
    """A log that silently says 2 where the env said 2.7 is worse than none."""
    result = batched(infos, cuts)
    given_keys = {key for info in infos for key in info}
    assert set(result) == given_keys | {f"_{key}" for key in given_keys}
    for key in given_keys:
        assert result[f"_{key}"].tolist() == [key in info for info in infos]
        for row, info in enumerate(infos):
            if key in info:
                assert says_the_same(read(result, key, row), info[key]), (key, row, result[key])


@given(st.lists(mixed_infos, min_size=NUM_ENVS, max_size=NUM_ENVS))
@settings(max_examples=200)
def test_scatter_undoes_gather(infos):
    """Whoever wants one dictionary for each env gets those the envs gave, types included."""
    columns = pickle.loads(pickle.dumps(gather(list(enumerate(infos)))))
    assert_same(scatter(columns, range(NUM_ENVS)), infos)


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "values, expected",
    [
        ([1, 2.5], np.array([1.0, 2.5])),
        ([2.5, 1], np.array([2.5, 1.0])),
        ([True, 7], np.array([1, 7])),
        ([np.uint8(200), np.int8(-1)], np.array([200, -1], np.int16)),
        ([np.float32(0.5), 1e300], np.array([0.5, 1e300])),
        ([np.float32(0.5), np.float64(0.1)], np.array([0.5, 0.1])),
        ([1, None], np.array([1, None], object)),
        ([None, 1], np.array([None, 1], object)),
        ([1.5, "no"], np.array([1.5, "no"], object)),
        (["no", 1.5], np.array(["no", 1.5], object)),
        ([np.uint64(2**64 - 1), np.int64(-1)], np.array([np.uint64(2**64 - 1), np.int64(-1)], object)),
        ([2**70, 1], np.array([2**70, 1], object)),
        ([1, 2**70], np.array([1, 2**70], object)),
        ([Colour.RED, Colour.RED], np.array([Colour.RED, Colour.RED], object)),
        ([np.array([1, 2]), np.array([0.5, 1.5])], np.array([[1, 2], [0.5, 1.5]])),
        ([np.array(["a"]), np.array(["longer"])], np.array([["a"], ["longer"]])),
    ],
    ids=readable,
)
@pytest.mark.parametrize("cuts", [(), (1,)], ids=["one-worker", "two-workers"])
def test_types_are_promoted_instead_of_cut(values, expected, cuts):
    """Gymnasium takes the first env's type for all: a float becomes an integer, a word an error."""
    infos = batched([{"v": value} for value in values], cuts)
    assert_same(infos["v"], expected)


def test_integers_that_a_float_cannot_hold_stay_what_they_are():
    """A step counter or a hash next to a float must not lose its last digits."""
    infos = batched([{"v": 2**53 + 1}, {"v": 0.5}])
    assert infos["v"][0] == 2**53 + 1
    assert infos["v"][1] == 0.5


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2)], ids=str)
def test_arrays_of_unequal_shape_or_type_come_back_one_by_one(cuts):
    """Paths and point clouds change their length all the time; Gymnasium raises."""
    paths = [np.arange(row + 1, dtype=dtype) for row, dtype in enumerate((np.int16, np.float32, np.uint8))]
    infos = batched([{"path": path} for path in paths], cuts)
    assert infos["path"].dtype == object
    assert_same(list(infos["path"]), paths)


def test_missing_rows_of_objects_are_none():
    """As in Gymnasium; the mask tells a None that was given from one that was not."""
    infos = batched([{}, {"s": "txt"}, {"s": None}])
    assert_same(infos["s"], np.array([None, "txt", None], object))
    assert_same(infos["_s"], np.array([False, True, True]))


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2)], ids=str)
def test_dictionaries_beside_other_values_are_kept_whole(cuts):
    """There is no column for both, so each env's own value is."""
    given = [{"n": {"x": 1, "y": {"z": 2.5}}}, {"n": 5}, {"n": {"x": 2}}]
    infos = batched(given, cuts)
    assert_same(list(infos["n"]), [info["n"] for info in given])


@pytest.mark.parametrize("cuts", [(), (1,)], ids=str)
def test_nested_dictionaries_become_nested_columns(cuts):
    """Also where workers know different parts, at any depth, and where a dictionary is empty."""
    infos = batched([{"n": {"x": 1, "d": {"y": 1.5}}}, {"n": {"d": {"y": 2, "z": "s"}, "e": {}}}], cuts)
    assert_same(infos, gymnasium_batched([{"n": {"x": 1, "d": {"y": 1.5}}}, {"n": {"d": {"y": 2, "z": "s"}, "e": {}}}]))


def test_infos_share_nothing_with_their_env():
    """An env that keeps one array for its info, and fills it anew each step, must not rewrite the past."""
    ragged, even = np.arange(2), np.arange(3)
    infos = batched_here([{"even": even, "ragged": ragged}, {"even": even, "ragged": np.arange(3)}])
    ragged[:], even[:] = 9, 9
    assert_same(infos["even"], np.array([[0, 1, 2], [0, 1, 2]]))
    assert_same(infos["ragged"][0], np.array([0, 1]))


def batched_here(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the infos of a batch whose worker is in this process."""
    return merge([gather(list(enumerate(infos)))], len(infos))


def test_unknown_objects_come_back_as_they_are():
    """Some envs put whole simulators into their infos, and some programs read them."""
    thing = SimpleNamespace(a=1)
    infos = batched([{"o": thing}, {"o": thing}])
    assert infos["o"].dtype == object and infos["o"][1] == thing


def informers(*scripts: list[dict[str, Any]]) -> list[partial[Scripted]]:
    """Returns constructors of envs that give one of these infos in each step."""
    return [partial(Scripted, Box(0, 1, (1,)), np.zeros(1, np.float32), infos=[{}, *script]) for script in scripts]


@every_backend
@pytest.mark.parametrize("num_workers", [1, 2])
def test_infos_of_a_batch_are_the_merged_infos_of_its_envs(backend, num_workers):
    """What holds for columns must hold for what `step` returns, whatever carries them."""
    steps = [
        [{"a": 1, "n": {"x": 2.5, "y": None}}, {}, {"a": None, "s": "txt", "f": np.bool_(True), "n": {"x": 7}}],
        [{}, {"a": 9}, {}],
        [{"path": np.arange(1)}, {"path": np.arange(2.0)}, {"path": np.arange(3, dtype=np.int8)}],
        [{"path": np.arange(3)}, {"path": "lost"}, {}],
        [{}, {}, {}],
        [{"v": 1, "w": np.ones(2)}, {"v": 2.5}, {"v": True, "w": np.zeros(2)}],
    ]
    with vector(informers(*zip(*steps, strict=True)), backend, num_workers=num_workers) as envs:
        assert envs.reset()[1] == {}
        for infos in steps:
            assert_same(envs.step([0, 0, 0])[4], batched(infos))


@every_backend
def test_infos_of_a_reset_are_those_of_the_envs_that_were_reset(backend):
    """A partial reset says nothing of the envs that it left alone."""

    class Labelled(Counter):
        def reset(self, **options):
            observation, _ = super().reset(**options)
            return observation, {"resets": self.num_resets}

    with vector([Labelled] * 3, backend, num_workers=2, autoreset_mode="Disabled") as envs:
        assert_same(envs.reset()[1], {"resets": np.array([1, 1, 1]), "_resets": np.array([True] * 3)})
        mask = np.array([False, True, False])
        infos = envs.reset(options={"reset_mask": mask})[1]
        assert_same(infos, {"resets": np.array([0, 2, 0]), "_resets": mask})


@every_backend
def test_info_that_cannot_be_sent_does_not_stop_the_run(backend):
    """A generator left in an info is no reason to lose hours of training; it arrives, or its description does."""

    class Odd(Counter):
        def step(self, action):
            *outcome, _ = super().step(action)
            return (*outcome, {"odd": (number for number in range(3)), "good": self.t})

    with vector([Odd] * 2, backend) as envs:
        envs.reset()
        observations, *_, infos = envs.step([0, 0])
        assert_same(observations, np.ones((2, 1)))
        assert_same(infos["good"], np.array([1, 1]))
        assert "generator" in str(infos["odd"][0]) and infos["_odd"].all()
        assert envs.step([0, 0])[0].tolist() == [[2], [2]]


class Talkative(gym.Env):
    """Says a number, an array, a nested number and, if `odd`, something new at every third step."""

    observation_space = action_space = Discrete(2)

    def __init__(self, index: int, odd: bool = False) -> None:
        self.index, self.odd, self.t = index, odd, 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return 0, {"t": 0}

    def step(self, action):
        self.t += 1
        info = {"t": self.t, "x": np.full(2, self.t + self.index, np.float32), "deep": {"y": self.index + 0.5}}
        if self.odd and self.index == 1 and self.t % 3 == 0:
            info["t"], info["note"] = 2.5, f"note {self.t}"
        return 0, 0.0, False, False, info


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_infos_are_the_same_in_columns_and_in_messages(backend, odd):
    """The first steps go by message, the next through shared memory, and odd ones in between by message again."""
    env_fns = [partial(Talkative, index, odd) for index in range(4)]
    with AsyncVectorEnv(env_fns, backend=backend, num_workers=3) as ours:
        theirs = gym.vector.SyncVectorEnv(env_fns)
        assert_same(ours.reset()[1], theirs.reset()[1])
        for _ in range(3):
            for _ in range(8):
                found, expected = ours.step(np.zeros(4, int))[4], theirs.step(np.zeros(4, int))[4]
                if odd and "note" in expected:
                    # Gymnasium cuts the float into the column of integers.
                    expected["t"] = np.where(np.arange(4) == 1, 2.5, expected["t"])
                assert_same(found, expected)
            mask = np.array([True, False, False, True])
            found, expected = (each.reset(options={"reset_mask": mask})[1] for each in (ours, theirs))
            assert_same(found, expected)


def test_infos_that_the_caller_keeps_do_not_change():
    """They are copies of the columns, which the next step overwrites."""
    with AsyncVectorEnv([partial(Talkative, index) for index in range(3)], num_workers=2) as envs:
        envs.reset()
        kept = [envs.step(np.zeros(3, int))[4] for _ in range(6)]
    assert [info["t"].tolist() for info in kept] == [[t] * 3 for t in range(1, 7)]
    assert all(info["x"].flags.writeable for info in kept)


@pytest.mark.parametrize("backend", ["serial", "process"])
@pytest.mark.parametrize(
    "infos, keys", [("all", {"t", "x", "deep"}), (["x", "absent"], {"x"}), ((), set()), (None, set())]
)
def test_only_chosen_infos_are_delivered(backend, infos, keys):
    """Whoever reads one key of fifty need not pay for the others."""
    with AsyncVectorEnv([partial(Talkative, index) for index in range(3)], backend=backend, infos=infos) as envs:
        envs.reset()
        for _ in range(3):
            found = envs.step(np.zeros(3, int))[4]
            assert set(found) == keys | {f"_{key}" for key in keys}


@pytest.mark.parametrize("infos", ["t", 5, [1]])
def test_infos_argument_says_what_it_takes(infos):
    """One key as a str would else be taken for its letters."""
    with pytest.raises(TypeError, match="infos must be 'all', a list of keys, or None for none"):
        AsyncVectorEnv([partial(Talkative, 0)], infos=infos)
