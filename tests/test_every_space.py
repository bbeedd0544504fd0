"""Values of every space travel: bit for bit, in every backend, at any depth, whether or not they have a fixed size.

Batches are compared with what Gymnasium's `concatenate` builds of the values. One thing differs on purpose and is
compared as NumPy sees it: a single number inside a value may be a NumPy scalar or an array of shape `()`.
"""

from __future__ import annotations

import datetime
import inspect
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from contextlib import closing
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, GraphInstance, MultiBinary, OneOf, Sequence, Text, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectors import every_backend, readable, vector

import shoal
from shoal import ArgumentTypeError, MisfitError, StateError
from shoal.structure import ArrayCodec
from shoal.testing import Counter, EverySpace, Scripted, wait_until
from shoal.testing.equality import assert_same
from shoal.testing.spaces import Days, all_spaces

INF = np.inf
LETTERS = Text(20, min_length=0, charset="abcdefghijklmnopqrstuvwxyz ")
POINT = Box(-INF, INF, (2,), np.float32)
DAYS = Days(datetime.date(2026, 1, 1), 365)
CHOICE = OneOf([Discrete(9), Dict(p=POINT, t=LETTERS)])

# Large examples are what these tests are about.
every_example = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def make_parrot() -> Any:
    """Returns a class of envs that observe the action they got, and at a reset what the options tell.

    It has no module that a worker could import, which is much slower than sending it.
    """

    class Parrot(gym.Env):
        def __init__(self, space: Any) -> None:
            self.observation_space, self.action_space = deepcopy(space), deepcopy(space)
            self.heard: Any = None

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return options["say"], {}

        def step(self, action):
            self.heard = action
            return deepcopy(action), 0.0, False, False, {}

    return Parrot


def samples(space: gym.Space[Any], count: int) -> list[Any]:
    space.seed(7)
    return [space.sample() for _ in range(count)]


def batch_of(space: gym.Space[Any], values: list[Any]) -> Any:
    """Returns the batch that Gymnasium builds."""
    return concatenate(space, values, create_empty_array(space, len(values)))


def comparable(value: Any) -> Any:
    """Returns the value with plain dicts, and arrays for NumPy's scalars; all other containers stay what they are."""
    match value:
        case Mapping():
            return {key: comparable(item) for key, item in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*map(comparable, value))
        case tuple() | list():
            return type(value)(map(comparable, value))
        case np.generic():
            return np.asarray(value)
    return value


def same(actual: Any, expected: Any) -> None:
    """Raises unless two values are the same in all but the kind of single numbers."""
    assert_same(comparable(actual), comparable(expected))


def check_round_trips(space: gym.Space[Any], rows: int, **options: Any) -> None:
    """Has envs observe samples at a reset, take others as actions, and observe those."""
    values = samples(space, 3 * rows)
    said, first, second = values[:rows], values[rows : 2 * rows], values[2 * rows :]
    with vector([partial(make_parrot(), space)] * rows, **options) as envs:
        observations, _ = envs.reset(options=[{"say": value} for value in said])
        seen = [observations]
        for actions in (batch_of(space, first), batch_of(space, second)):
            seen.append(envs.step(actions)[0])
        same(envs.get_attr("heard"), tuple(second))
        # The same as one action for each env.
        seen.append(envs.step(list(first))[0])
        same(envs.get_attr("heard"), tuple(first))
    for batch, own in zip(seen, (said, first, second, first), strict=True):
        same(batch, batch_of(space, own))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("backend", ["serial", "thread"])
@given(space=all_spaces())
@settings(every_example, max_examples=40)
def test_values_of_any_space_arrive_as_they_were_sent(backend, rows, space):
    """Observations, actions and containers, whatever is nested in whatever."""
    check_round_trips(space, rows, backend=backend, num_workers=rows)


@pytest.mark.parametrize("backend", ["serial", "thread"])
@given(space=all_spaces(), num_workers=st.integers(1, 5))
@settings(every_example, max_examples=8)
def test_values_of_any_space_arrive_in_their_own_row(backend, space, num_workers):
    """Seventeen envs, which no number of workers divides."""
    check_round_trips(space, 17, backend=backend, num_workers=num_workers)


@pytest.mark.parametrize("rows", [1, 2, 17])
@given(parts=st.lists(all_spaces(3), min_size=6, max_size=12))
@settings(every_example, max_examples=2)
def test_values_of_any_space_arrive_from_other_processes(rows, parts):
    """Many spaces in one Tuple, since each example starts its workers."""
    check_round_trips(Tuple(tuple(parts)), rows, backend="process", num_workers=min(rows, 3))


def check_same_step(space: gym.Space[Any], **options: Any) -> None:
    first, last = samples(space, 2)
    scripts = [[first, last], [last, first], [first, first, last]]
    env_fns = [partial(Scripted, space, own, 0.0, [False] * (len(own) - 1) + [True]) for own in scripts]
    with vector(env_fns, autoreset_mode="SameStep", **options) as envs:
        envs.reset()
        observations, _, terminations, _, infos = envs.step([0, 0, 0])
        assert terminations.tolist() == [True, True, False]
        same(observations, batch_of(space, [first, last, first]))
        assert infos["_final_obs"].tolist() == [True, True, False]
        same(tuple(infos["final_obs"]), (last, first, None))
        same(tuple(envs.step([0, 0, 0])[4]["final_obs"]), (last, first, last))
        # They are the caller's, and did not change by the step after.
        same(tuple(infos["final_obs"]), (last, first, None))


@given(space=all_spaces())
@settings(every_example, max_examples=40)
def test_final_observations_of_any_space_are_those_of_the_episode(space):
    """They lie beside the next episode's first observation, in another cell."""
    check_same_step(space)


@pytest.mark.parametrize("num_workers", [1, 3])
@given(parts=st.lists(all_spaces(3), min_size=6, max_size=12))
@settings(every_example, max_examples=2)
def test_final_observations_arrive_from_other_processes(num_workers, parts):
    """Many spaces at once."""
    check_same_step(Tuple(tuple(parts)), backend="process", num_workers=num_workers)


ALL_KINDS = Dict(
    OrderedDict(
        word=LETTERS,
        choice=CHOICE,
        points=Sequence(POINT),
        stacked=Sequence(Dict(p=POINT, n=Discrete(3)), stack=True),
        deep=Tuple((Sequence(Sequence(OneOf([LETTERS, MultiBinary(2)]))), Discrete(2))),
        graph=Graph(POINT, Discrete(4)),
        image=Box(0, 255, (4, 4, 3), np.uint8),
    )
)


@pytest.mark.parametrize(
    "backend, mode", [("serial", "NextStep"), ("thread", "SameStep"), ("process", "NextStep"), ("process", "SameStep")]
)
def test_observations_that_change_at_every_step_are_those_of_gymnasium(backend, mode):
    """Texts and lists get longer and shorter all the time; nothing of an earlier one may be left."""
    env_fns = [partial(EverySpace, ALL_KINDS, length=7, infos=False)] * 3
    if "autoreset_mode" not in inspect.signature(gym.vector.AsyncVectorEnv).parameters:
        pytest.skip("Gymnasium has no modes here")
    options: dict[str, Any] = {"autoreset_mode": mode}
    with (
        closing(gym.vector.AsyncVectorEnv(env_fns, shared_memory=False, **options)) as theirs,
        vector(env_fns, backend, num_workers=2, **options) as ours,
    ):
        same(ours.reset(seed=3), theirs.reset(seed=3))
        ends = 0
        for _ in range(40):
            expected = theirs.step([0, 0, 0])
            outcome = ours.step([0, 0, 0])
            final_infos = [dict(each[4]) for each in (outcome, expected)]
            finals = [tuple(infos.pop("final_obs", ())) for infos in final_infos]
            same((*outcome[:4], final_infos[0], finals[0]), (*expected[:4], final_infos[1], finals[1]))
            ends += int((expected[2] | expected[3]).sum())
        assert ends > 9


@every_backend
def test_missions_of_different_length_are_swapped(backend):
    """The tail of a longer text is the classic fault of texts in shared memory."""
    space = Dict(img=Box(0, 255, (2, 2), np.uint8), mission=LETTERS)
    image = np.zeros((2, 2), np.uint8)
    scripts = [["go to red", "x", "", "go to red"], ["x", "go to red", "a" * 20, ""]]
    env_fns = [partial(Scripted, space, [{"img": image, "mission": text} for text in own]) for own in scripts]
    with vector(env_fns, backend) as envs:
        missions = [envs.reset()[0]["mission"], *(envs.step([0, 0])[0]["mission"] for _ in range(3))]
    assert_same(missions, list(zip(*scripts, strict=True)))


# Values that grow.


def count_to(length: int) -> Any:
    return np.arange(2 * length, dtype=np.float32).reshape(length, 2)


@every_backend
@pytest.mark.parametrize("stack", [False, True], ids=["listed", "stacked"])
def test_sequence_grows_from_nothing_to_ten_thousand_and_back(backend, stack):
    """Each cell gets a larger place when its value has outgrown it, beside all the others."""
    lengths = [[0, 1, 10_000, 5, 0, 10_000], [3, 0, 0, 10_000, 1, 0], [0, 0, 7, 0, 300, 2]]
    as_value = count_to if stack else lambda length: tuple(count_to(length))
    env_fns = [partial(Scripted, Sequence(POINT, stack=stack), [as_value(n) for n in own]) for own in lengths]
    with vector(env_fns, backend, num_workers=2) as envs:
        kept = [envs.reset()[0], *(envs.step([0] * 3)[0] for _ in range(5))]
    for batch, own in zip(kept, zip(*lengths, strict=True), strict=True):
        assert_same(batch, tuple(as_value(n) for n in own))


@every_backend
def test_actions_grow_too(backend):
    """They lie in a heap that one process writes and all workers read, each through a mapping of its own."""
    space = Dict(path=Sequence(POINT, stack=True), note=LETTERS)
    with vector([partial(make_parrot(), space)] * 3, backend, num_workers=3) as envs:
        say = {"path": count_to(2), "note": ""}
        envs.reset(options=[{"say": say}] * 3)
        for lengths in ([0, 0, 0], [1, 0, 10_000], [100_000, 5, 0], [0, 200_000, 1], [0, 0, 0], [2, 2, 2]):
            actions = {"path": tuple(map(count_to, lengths)), "note": tuple("a" * (n % 20) for n in lengths)}
            assert_same(envs.step(actions)[0], actions)


@every_backend
def test_values_of_a_few_mebibytes_arrive_whole(backend):
    """Beyond any pipe, page or first size of a heap, for each way in which a value can be large."""
    rng = np.random.default_rng(0)
    value = {
        "points": rng.normal(size=(300_000, 2)).astype(np.float32),
        "text": "aé中\U0001d11e" * 75_000,
        "graph": GraphInstance(
            rng.normal(size=(90_000, 2)).astype(np.float32),
            rng.integers(0, 4, 200_000),
            rng.integers(0, 90_000, (200_000, 2), np.int32),
        ),
        "blob": rng.bytes(5 * 2**20),
    }
    space = Dict(
        points=Sequence(POINT, stack=True),
        text=Text(400_000, charset="aé中\U0001d11e"),
        graph=Graph(POINT, Discrete(4)),
        blob=make_blobs(),
    )
    small = {
        "points": count_to(0),
        "text": "a",
        "graph": GraphInstance(count_to(1), None, None),
        "blob": b"",
    }
    with vector([partial(Scripted, space, own) for own in ([small, value], [value, small, value])], backend) as envs:
        batches = [envs.reset()[0], envs.step([0, 0])[0], envs.step([0, 0])[0]]
    for batch, own in zip(batches, ((small, value), (value, small), (value, value)), strict=True):
        assert_same(batch, {key: tuple(each[key] for each in own) for key in space})


def make_blobs() -> Any:
    """Returns a custom space of bytes, of a class that only the test knows."""

    class Blobs(gym.Space):
        def __init__(self):
            super().__init__(None, None)

        def sample(self, mask=None, probability=None):
            return self.np_random.bytes(3)

        def contains(self, x):
            return isinstance(x, bytes)

    return Blobs()


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_growth_is_seen_by_who_reads_late(backend, tmp_path):
    """The worker has long gone on when the engine looks; it must map what was not there before."""
    done = tmp_path / "done"

    class Last(Counter):
        def step(self, action):
            done.touch()
            return super().step(action)

    class First(Scripted, Counter):
        """Sits in the same worker, a row before, so that its observation is stored before the other's step."""

    def make_last():
        env = Last()
        env.observation_space = Sequence(POINT, stack=True)
        env._observation = lambda: count_to(env.t)
        return env

    sizes = [0, 10, 50_000, 3, 400_000]
    first = partial(Scripted, Sequence(POINT, stack=True), [count_to(n) for n in sizes])
    with vector([first, make_last], backend, num_workers=1) as envs:
        kept = [envs.reset()[0]]
        for _ in sizes[1:]:
            done.unlink(missing_ok=True)
            envs.step_async([0, 0])
            wait_until(done.exists)
            kept.append(envs.step_wait()[0])
    for t, (batch, n) in enumerate(zip(kept, sizes, strict=True)):
        assert_same(batch, (count_to(n), count_to(t)))


# Whose values they are.


@every_backend
def test_batches_never_change_once_they_are_given(backend):
    """Cells are written over and over; what was read from them is the caller's."""
    env_fns = [partial(EverySpace, ALL_KINDS, infos=False)] * 2
    with vector(env_fns, backend) as envs:
        kept = [envs.reset(seed=0)[0], *(envs.step([0, 0])[0] for _ in range(15))]
        then = deepcopy(kept)
        for _ in range(15):
            envs.step([0, 0])
    assert_same(kept, then)


@every_backend
def test_without_copies_only_what_has_a_fixed_size_is_overwritten(backend):
    """A list cannot be a view of anything, so it is new at each step, and the arrays beside it are one buffer."""
    space = Dict(x=POINT, path=Sequence(POINT), note=LETTERS, choice=CHOICE)
    scripts = [
        [
            {"x": [t, row], "path": tuple(count_to(t + row)), "note": "a" * t, "choice": (np.int64(0), np.int64(t))}
            for t in range(5)
        ]
        for row in range(2)
    ]
    with vector([partial(Scripted, space, own) for own in scripts], backend, copy=False) as envs:
        kept = [envs.reset()[0], *(envs.step([0, 0])[0] for _ in range(4))]
    for t, batch in enumerate(kept):
        assert np.shares_memory(batch["x"], kept[0]["x"])
        assert_same(batch["x"], np.array([[4, 0], [4, 1]], np.float32))
        own = [script[t] for script in scripts]
        same({**batch, "x": None}, {**batch_of(space, own), "x": None})


@every_backend
def test_received_values_may_be_changed(backend):
    """Programs normalise in place; what they get must be writable and nobody else's."""
    space = Dict(path=Sequence(POINT, stack=True), items=Sequence(POINT), graph=Graph(POINT, POINT))
    links = np.array([[0, 1]], np.int32)
    value = {
        "path": count_to(2),
        "items": tuple(count_to(2)),
        "graph": GraphInstance(count_to(2), count_to(1), links),
    }
    with vector([partial(Scripted, space, value)] * 2, backend) as envs:
        observations, _ = envs.reset()
        for row in range(2):
            for array in (observations["path"][row], *observations["items"][row], *observations["graph"][row]):
                array += 1
        assert_same(envs.step([0, 0])[0], {key: (value[key],) * 2 for key in space})


@every_backend
def test_one_buffer_for_ever_may_stand_in_a_sequence(backend):
    """The value is taken when it is given, as with arrays."""

    class Reuser(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = Sequence(POINT)
            self.buffer = np.zeros(2, np.float32)

        def _observation(self):
            self.buffer.fill(self.t)
            return (self.buffer,) * 2

    with vector([Reuser] * 2, backend) as envs:
        kept = [envs.reset()[0], *(envs.step([0, 0])[0] for _ in range(3))]
    for t, batch in enumerate(kept):
        assert_same(batch, ((np.full(2, t, np.float32),) * 2,) * 2)


# Forms of values.


def observed(space: gym.Space[Any], *values: Any, backend: str = "serial", **options: Any) -> Any:
    """Returns the batch of a reset; each env observes one of the values."""
    with vector([partial(Scripted, space, [value]) for value in values], backend, **options) as envs:
        return envs.reset()[0]


ODD_TEXTS = {
    "bmp": "é中ß",
    "astral": "\U0001d11e\U0010ffff\U0001f600",
    "surrogates": "\ud800\udfff\udbff",
    "pair-of-halves": "\ud834\udd1e\ud834",
    "nul": "\0\0\0",
    "nul-inside": "a\0b",
    "combining": "e\u0301\u200d",
}


@every_backend
def test_every_character_arrives_at_the_length_limit(backend):
    """The limit counts characters, not bytes; a NUL is a character, and half of a pair is one, too."""
    for name, text in ODD_TEXTS.items():
        space = Text(3, min_length=0, charset=frozenset(text))
        assert observed(space, text, text[:1], "", backend=backend) == (text, text[:1], ""), name
        with vector([partial(make_parrot(), space)] * 2, backend) as envs:
            envs.reset(options={"say": ""})
            assert envs.step((text, text[1:]))[0] == (text, text[1:]), name
    assert observed(Text(3), np.str_("abc"), backend=backend) == ("abc",)


@pytest.mark.parametrize(
    "graph",
    [
        GraphInstance(count_to(3), None, None),
        GraphInstance(count_to(1), None, None),
        GraphInstance(count_to(0), None, None),
        GraphInstance(count_to(2), count_to(0), np.zeros((0, 2), np.int32)),
        GraphInstance(count_to(2), count_to(1), np.array([[1, 1]], np.int64)),
        GraphInstance(count_to(2), count_to(2), np.array([[1, 0], [0, 1]], np.uint8)),
        GraphInstance(count_to(2), count_to(2), np.array([[1, 0], [0, 1]], ">i4")),
    ],
    ids=["no-edges", "one-node", "no-nodes", "zero-edges", "int64", "uint8", "big-endian"],
)
def test_graph_arrives_with_and_without_edges(graph):
    """`None` and no edges at all are two things; the links keep the type that they have."""
    assert_same(observed(Graph(POINT, POINT), graph, graph), (graph, graph))


def test_graph_of_a_space_without_edges_arrives():
    """Its samples have no edges."""
    graph = GraphInstance(np.array([1, 0, 2]), None, None)
    assert_same(observed(Graph(Discrete(3), None), graph), (graph,))


def test_links_of_a_graph_may_be_a_strided_view():
    """Edges are often filtered or transposed before they are returned."""
    links = np.arange(12, dtype=np.int32).reshape(2, 6).T[::2]
    (graph,) = observed(Graph(POINT, POINT), GraphInstance(count_to(12), count_to(6)[::2], links))
    assert_same(graph, GraphInstance(count_to(12), count_to(6)[::2].copy(), np.ascontiguousarray(links)))


@every_backend
@pytest.mark.parametrize("dtype", [np.float16, np.dtype(">f4"), np.dtype(">i2")], ids=str)
def test_boxes_of_rare_types_travel(backend, dtype):
    """Whatever NumPy calls a dtype is one, alone and in a Sequence."""
    space = Box(-100, 100, (3,), dtype)
    value = np.array([-1, 0.5, 99], dtype)
    for each, own in ((space, value), (Sequence(space), (value, value)), (OneOf([space]), (np.int64(0), value))):
        assert_same(observed(each, own, own, backend=backend), batch_of(each, [own, own]))


def test_arrays_of_other_byte_order_or_stride_are_taken_as_the_numbers_they_are():
    """Simulators hand out views of their own memory; a byte order or stride that is not heeded gives garbage."""
    grid = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (grid[1, :4:2].astype(">f4"), grid[::2, 1][:2], grid.T[2, ::-2], grid[1, :2].astype(">f8")):
        right = np.array(array.tolist(), np.float32)
        for space, value, expected in (
            (POINT, array, right),
            (Sequence(POINT), (array,), (right,)),
            (Sequence(POINT, stack=True), array[None], right[None]),
            (Dict(a=OneOf([POINT])), {"a": (0, array)}, {"a": (np.int64(0), right)}),
            (Graph(POINT, None), GraphInstance(array[None], None, None), GraphInstance(right[None], None, None)),
        ):
            same(observed(space, value), batch_of(space, [expected]))
    fortran = np.asfortranarray(np.arange(6, dtype=np.float64).reshape(3, 2))
    (stack,) = observed(Sequence(POINT, stack=True), fortran)
    assert_same(stack, np.arange(6, dtype=np.float32).reshape(3, 2))


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize("wrap", ["plain", "sequence", "one-of"])
def test_containers_of_other_types_are_taken_for_what_they_hold(wrap):
    """A dict in another order of keys, a namedtuple or a list for a Tuple: inside the new kinds of space as well."""
    inner = Dict(OrderedDict(b=Tuple((Discrete(9), LETTERS)), a=Discrete(9)))
    right = {"b": (np.int64(1), "x"), "a": np.int64(2)}
    for value in (
        {"a": 2, "b": (1, "x")},
        OrderedDict(a=2, b=Pair(1, "x")),
        {"a": 2, "z": None, "b": [1, "x"]},
        {"b": Pair(first=1, second="x"), "a": np.uint8(2)},
    ):
        space, own, expected = {
            "plain": (inner, value, right),
            "sequence": (Sequence(inner), [value, value], (right, right)),
            "one-of": (OneOf([LETTERS, inner]), [1, value], (np.int64(1), right)),
        }[wrap]
        (batch,) = [observed(space, own, own)]
        same(batch, batch_of(space, [expected, expected]))
    if wrap != "plain":
        assert list(batch[0][1]) == list(inner.spaces)


@every_backend
def test_subclasses_of_known_spaces_are_those_spaces(backend):
    """Projects subclass to add a description; nobody registers that."""

    class Mission(Text):
        pass

    class Path(Sequence):
        pass

    class Either(OneOf):
        pass

    class Molecule(Graph):
        pass

    space = Dict(a=Mission(5), b=Path(Mission(5)), c=Either([Mission(5), POINT]), d=Molecule(POINT, None))
    value = {"a": "ab", "b": ("c", "de"), "c": (np.int64(0), "f"), "d": GraphInstance(count_to(2), None, None)}
    same(observed(space, value, value, backend=backend), batch_of(space, [value, value]))


# Custom spaces.


@every_backend
def test_values_of_an_unknown_space_arrive_unchanged(backend):
    """Pickled, which is slower, but no reason to refuse the env."""
    space, days = Dict(day=DAYS, blob=make_blobs()), [DAYS.first + datetime.timedelta(days=row) for row in range(2)]
    values = [{"day": day, "blob": bytes(row)} for row, day in enumerate(days)]
    assert_same(observed(space, *values, backend=backend), {"day": tuple(days), "blob": (b"", b"\0")})


@every_backend
def test_value_that_cannot_be_pickled_is_named(backend):
    """Which env, and which part of its observation: the class of space says little of what is in it."""

    class Locks(Counter):
        def __init__(self, blob):
            super().__init__()
            self.observation_space = Dict(n=Discrete(3), blob=blob)
            self.lock = threading.Lock()

        def _observation(self):
            return {"n": 1, "blob": self.lock if self.t else b"fine"}

    blobs = make_blobs()
    with vector([partial(Locks, blobs)] * 2, backend, num_workers=1) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=r"^env 0: observation\['blob'\]: .*lock.* cannot be pickled"):
            envs.step([0, 0])
        assert envs.reset()[0]["blob"] == (b"fine", b"fine")


@every_backend
def test_action_that_cannot_be_pickled_is_refused_before_any_env_steps(backend):
    """It is the caller's mistake, and the batch is as good as before."""
    with vector([partial(Counter, index, action_space=DAYS) for index in range(2)], backend) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=r"^env 1: action: .*lock.* cannot be pickled"):
            envs.step([DAYS.first, threading.Lock()])
        assert envs.get_attr("t") == (0, 0)
        envs.step([DAYS.first] * 2)
        assert envs.get_attr("last_action") == (DAYS.first,) * 2


WRAPPED = pytest.mark.parametrize(
    "wrap",
    [lambda part: part, lambda part: Dict(a=Tuple((part,))), lambda part: OneOf([Sequence(part)])],
    ids=["alone", "in-a-dict", "in-a-sequence"],
)


LABELS = type(make_blobs())


def labelled(wrap: Any, **attributes: Any) -> Any:
    """Returns what makes an env whose space has these attributes."""

    space = LABELS()
    vars(space).update(attributes)
    return partial(Scripted, wrap(space), None)


@WRAPPED
def test_unknown_spaces_are_one_if_their_attributes_are_equal(wrap):
    """Each env brings an object of its own, and hardly any such class has an `==`."""
    attributes = {"x": 1, "names": ["a", "b"], "grid": np.arange(3)}
    first = labelled(wrap, **attributes)
    with vector([first, labelled(wrap, **deepcopy(attributes))]):
        pass
    for change in ({"x": 2}, {"names": ["a", "c"]}, {"grid": np.arange(1, 4)}, {"more": None}):
        with pytest.raises(shoal.SpecMismatchError, match="env 1 has the observation space"):
            shoal.AsyncVectorEnv([first, labelled(wrap, **{**attributes, **change})], backend="serial")


@WRAPPED
def test_order_within_a_set_or_dict_makes_no_space_another(wrap):
    """Equal sets may be iterated over in the order in which they were made, and differ so between processes."""
    assert list({0, 8}) != list({8, 0})
    one = labelled(wrap, allowed=frozenset({0, 8}), costs={"a": 1, "b": 2})
    other = labelled(wrap, allowed=frozenset({8, 0}), costs={"b": 2, "a": 1})
    with vector([one, other]):
        pass


@pytest.mark.skipif(not hasattr(Graph(POINT, None), "batch_node_space"), reason="only of Boxes and Discretes here")
def test_graphs_may_be_of_any_spaces():
    """Newer versions of Gymnasium allow it, for nodes as for edges."""
    space = Graph(Dict(name=LETTERS, at=POINT), Tuple((Discrete(3), DAYS)))
    graph = GraphInstance(
        {"name": ("a", "bc"), "at": count_to(2)}, (np.array([2]), (DAYS.first,)), np.array([[0, 1]], np.int32)
    )
    assert_same(observed(space, graph, graph), (graph, graph))


@every_backend
def test_registered_codec_makes_arrays_of_a_custom_space(backend):
    """Whoever knows what the values are gets batches `[B, ...]` of them; workers need no registration."""

    class Colours(type(make_blobs())):
        pass

    class Paints(Colours):
        pass

    shoal.register_codec(Colours, lambda space: ArrayCodec((3,), np.uint8))
    space = Dict(colour=Paints(), colours=Sequence(Colours()))
    value = {"colour": [1, 2, 3], "colours": ((4, 5, 6),)}
    expected = np.array([1, 2, 3], np.uint8)
    batch = observed(space, value, value, backend=backend, num_workers=2)
    assert_same(batch, {"colour": np.stack([expected] * 2), "colours": ((expected + 3,), (expected + 3,))})
    with pytest.raises(MisfitError, match=r"^env 1: observation\['colour'\]: expected uint8 of shape \(3,\)"):
        observed(space, value, {**value, "colour": [1, 2]}, backend=backend)


def test_registered_codec_may_have_parts():
    """A dict or tuple of codecs is a codec for a dict or tuple of values."""

    class Poses(type(make_blobs())):
        pass

    shoal.register_codec(Poses, lambda space: {"at": ArrayCodec((2,), np.float32), "on": ArrayCodec((), np.bool_)})
    value = {"at": [1, 2], "on": True}
    point = np.array([1, 2], np.float32)
    assert_same(observed(Poses(), value, value), {"at": np.stack([point] * 2), "on": np.array([True, True])})
    with vector([partial(Counter, action_space=Poses())] * 2) as envs:
        envs.reset()
        envs.step([value, value])
        assert_same(envs.get_attr("last_action"), ({"at": point, "on": np.bool_(True)},) * 2)


def test_codec_of_a_subclass_goes_before_that_of_its_base():
    """A class derived from Box may travel in another way, and Box as before."""

    class Shorts(Box):
        pass

    shoal.register_codec(Shorts, lambda space: ArrayCodec(space.shape, np.int16))
    assert observed(Shorts(-9, 9, (2,), np.float32), [1, 2]).dtype == np.int16
    assert observed(POINT, [1, 2]).dtype == np.float32


@pytest.mark.parametrize("space_class", [5, None, int, "Box", POINT], ids=readable)
def test_codec_is_registered_for_a_class_of_spaces(space_class):
    """Anything else would never be looked up."""
    with pytest.raises(ArgumentTypeError, match="must be a class of spaces, found"):
        shoal.register_codec(space_class, lambda space: ArrayCodec((), np.int64))


# Misfits.

POINTS, WORDS = Sequence(POINT), Sequence(Text(2))
GRAPH, ZERO = Graph(POINT, Discrete(4)), np.zeros(2, np.float32)
LINKS, ONE_EDGE = np.array([[0, 1]], np.int32), np.array([3])


def stacked(space: gym.Space[Any]) -> Any:
    return Sequence(space, stack=True)


# A space, a value that fits, one that does not, and what the error says behind `env i: what`.
MISFITS = [
    (Text(3), "ab", 5, ": expected a str, found 5 of type int"),
    (Text(3), "ab", b"ab", ": expected a str, found b'ab' of type bytes"),
    (Text(3), "ab", None, ": expected a str, found None"),
    (Text(3), "ab", "abcd", ": expected at most 3 characters, found 4: 'abcd'"),
    (Text(3), "ab", "a!b", ": expected characters of the space, found '!' in 'a!b'"),
    (OneOf([POINT, Text(2)]), (1, "a"), "1a", r": expected a pair \(index, value\), found '1a'"),
    (OneOf([POINT, Text(2)]), (1, "a"), 1, r": expected a pair \(index, value\), found 1"),
    (OneOf([POINT, Text(2)]), (1, "a"), (1, "a", 0), ": expected a pair"),
    (OneOf([POINT, Text(2)]), (1, "a"), (2, "a"), ": expected an index from 0 to 1 in front, found 2"),
    (OneOf([POINT, Text(2)]), (1, "a"), (-1, "a"), ": expected an index from 0 to 1 in front, found -1"),
    (OneOf([POINT, Text(2)]), (1, "a"), (1.0, "a"), ": expected an index from 0 to 1 in front, found 1.0"),
    (OneOf([POINT, Text(2)]), (1, "a"), (True, "a"), ": expected an index from 0 to 1 in front, found True"),
    (OneOf([POINT, Text(2)]), (1, "a"), (None, "a"), ": expected an index from 0 to 1 in front, found None"),
    (OneOf([POINT, Text(2)]), (1, "a"), (0, "a"), r"\[0\]: expected float32"),
    (OneOf([POINT, Text(2)]), (1, "a"), (1, "abc"), r"\[1\]: expected at most 2 characters, found 3"),
    (POINTS, (ZERO,), 5, ": expected a tuple of values, found 5 of type int"),
    (POINTS, (ZERO,), None, ": expected a tuple of values, found None"),
    (POINTS, (ZERO,), "ab", ": expected a tuple of values, found 'ab'"),
    (POINTS, (ZERO,), {"a": ZERO}, ": expected a tuple of values, found {"),
    (POINTS, (ZERO,), iter([ZERO]), ": expected a tuple of values, found <"),
    (POINTS, (ZERO,), np.array(1.0), ": expected a tuple of values, found "),
    (POINTS, (ZERO,), (ZERO, ZERO, [1, 2, 3]), r"\[2\]: expected float32 of shape \(2,\), found int64 of shape \(3,\)"),
    (POINTS, (ZERO,), np.zeros((2, 3)), r"\[0\]: expected float32 of shape \(2,\), found float64 of shape \(3,\)"),
    (WORDS, ("a",), ("a", "b", "abc", "d"), r"\[2\]: expected at most 2 characters, found 3"),
    (WORDS, ("a",), ("a", 5), r"\[1\]: expected a str, found 5"),
    (Sequence(Dict(w=Text(2))), ({"w": "a"},), ({"w": "a"}, {"w": "abc"}), r"\[1\]\['w'\]: expected at most 2"),
    (Sequence(Dict(w=Text(2))), ({"w": "a"},), ({"w": "a"}, {}), r"\[1\]: key 'w' is missing"),
    (Sequence(WORDS), (("a",),), (("a",), ("b", "c", "abc")), r"\[1\]\[2\]: expected at most 2 characters"),
    (Sequence(OneOf([WORDS])), ((0, ("a",)),), ((0, ("a", "abc")),), r"\[0\]\[0\]\[1\]: expected at most 2"),
    (stacked(POINT), np.zeros((1, 2)), 5, ": expected a batch of values, found 5"),
    (stacked(POINT), np.zeros((1, 2)), np.array(5.0), ": expected "),
    (stacked(POINT), np.zeros((1, 2)), np.zeros((2, 3)), r": expected float32 of shape \(2, 2\), found float64"),
    (stacked(Discrete(3)), [0, 1], [0.5], ": expected int64, found float64"),
    (stacked(Text(2)), ("a",), ("a", "abc"), r"\[1\]: expected at most 2 characters"),
    (stacked(Text(2)), ("a",), "ab", ": expected "),
    (stacked(OneOf([POINT])), ((0, ZERO),), ((0, ZERO), (1, ZERO)), r"\[1\]: expected an index from 0 to 0"),
    (stacked(WORDS), (("a",),), (("a",), ("b", "abc")), r"\[1\]\[1\]: expected at most 2 characters"),
    (
        stacked(Dict(a=POINT, b=Discrete(2))),
        {"a": np.zeros((1, 2)), "b": [0]},
        {"a": np.zeros((2, 2)), "b": [0, 1, 1]},
        r"\['b'\]: expected 2(?!, one for each env), found 3",
    ),
    (stacked(Dict(a=POINT)), {"a": np.zeros((1, 2))}, {}, ": key 'a' is missing"),
    (stacked(Dict(a=POINT)), {"a": np.zeros((1, 2))}, {"a": np.array(1.0)}, r"(\['a'\])?: expected "),
    (GRAPH, GraphInstance([ZERO], None, None), [ZERO], ": expected a GraphInstance, found"),
    (GRAPH, GraphInstance([ZERO], None, None), None, ": expected a GraphInstance, found None"),
    (GRAPH, GraphInstance([ZERO], None, None), GraphInstance(None, None, None), r"\.nodes: expected"),
    (
        GRAPH,
        GraphInstance([ZERO], None, None),
        GraphInstance(np.zeros((2, 3)), None, None),
        r"\.nodes: expected float32 of shape \(2, 2\), found float64 of shape \(2, 3\)",
    ),
    (
        GRAPH,
        GraphInstance([ZERO], None, None),
        GraphInstance(np.zeros((2, 2)), ["x"], LINKS),
        r"\.edges: expected int64",
    ),
    (
        Graph(POINT, None),
        GraphInstance([ZERO], None, None),
        GraphInstance(np.zeros((2, 2)), ONE_EDGE, LINKS),
        r"\.edges: expected None, since the space has no edges",
    ),
    (
        GRAPH,
        GraphInstance([ZERO], None, None),
        GraphInstance(np.zeros((2, 2)), ONE_EDGE, LINKS.astype(float)),
        r"\.edge_links: expected integers of shape \(E, 2\), found float64 of shape \(1, 2\)",
    ),
    (
        GRAPH,
        GraphInstance([ZERO], None, None),
        GraphInstance(np.zeros((2, 2)), ONE_EDGE, LINKS.T),
        r"\.edge_links: expected integers of shape \(E, 2\), found int32 of shape \(2, 1\)",
    ),
    (
        GRAPH,
        GraphInstance([ZERO], None, None),
        GraphInstance(np.zeros((2, 2)), ONE_EDGE, np.array(5)),
        r"\.edge_links: expected integers of shape \(E, 2\)",
    ),
]
every_misfit = pytest.mark.parametrize(
    "space, good, bad, message",
    MISFITS,
    ids=[f"{type(space).__name__}-{index}" for index, (space, *_) in enumerate(MISFITS)],
)


def check_misfit(space: Any, good: Any, bad: Any, message: str, backend: str = "serial") -> None:
    """Has the middle one of three envs give a value that does not fit; the others count on."""
    nested = Dict(t=Discrete(9), x=space)
    env_fns = [
        partial(Scripted, nested, [{"t": t, "x": bad if row == 1 and t == 1 else good} for t in range(4)])
        for row in range(3)
    ]
    with vector(env_fns, backend, num_workers=2 if backend == "process" else 1) as envs:
        before, _ = envs.reset()
        then = deepcopy(before)
        with pytest.raises(MisfitError, match=rf"^env 1: observation\['x'\]{message}"):
            envs.step([0] * 3)
        with pytest.raises(StateError, match="env 1"):
            envs.step([0] * 3)
        times = envs.get_attr("t")
        observations, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
        assert observations["t"].tolist() == [times[0], 0, times[2]]
        same(observations["x"], before["x"])
        assert_same(before, then)


@every_misfit
def test_observation_that_does_not_fit_is_named(space, good, bad, message):
    """Which env, which part of the observation, what was expected and what came; and the others lose nothing."""
    check_misfit(space, good, bad, message)


@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.parametrize("index", [3, 9, 22, 25, 33, 44])
def test_observation_that_does_not_fit_is_named_from_afar(backend, index):
    """The error travels with all that it says, also errors that were given more on their way."""
    check_misfit(*MISFITS[index], backend)


@every_misfit
def test_action_that_does_not_fit_is_refused_before_any_env_steps(space, good, bad, message):
    """It names the env that the action was for."""
    with vector([partial(Counter, index, action_space=space) for index in range(2)]) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=f"^env 1: action{message}"):
            envs.step([good, bad])
        assert envs.get_attr("t") == (0, 0)
        envs.step([good, good])
        assert envs.get_attr("t") == (1, 1)


@pytest.mark.parametrize(
    "space, good", [(Text(3), "ab"), (CHOICE, (0, 1)), (POINTS, (ZERO,)), (GRAPH, GraphInstance([ZERO], None, None))]
)
def test_wrong_number_of_actions_is_refused_with_both_counts(space, good):
    """As for arrays: two actions for three envs leave one without, and one for all is not written out."""
    with vector([partial(Counter, index, action_space=space) for index in range(3)]) as envs:
        envs.reset()
        for count in (0, 2, 4):
            with pytest.raises(MisfitError, match=f"^action: expected 3, one for each env, found {count}"):
                envs.step([good] * count)
        for nothing in (None, 5, np.array(1.0), {"a": 1}, iter([good] * 3)):
            with pytest.raises(MisfitError, match=r"^action: expected .*3"):
                envs.step(nothing)
        assert envs.get_attr("t") == (0, 0, 0)


@pytest.mark.parametrize(
    "space, bad",
    [
        (Text(3), "a" * 100_000),
        (Text(10**6, charset="b"), "a" * 100_000),
        (POINTS, "a" * 100_000),
        (POINTS, {number: ZERO for number in range(10_000)}),
        (OneOf([POINT]), tuple(range(10_000))),
        (GRAPH, tuple(range(10_000))),
        (DAYS, [threading.Lock(), "a" * 100_000]),
        (stacked(Text(3)), ("a" * 100_000,)),
    ],
    ids=["text", "character", "sequence", "dict", "one-of", "graph", "custom", "stack"],
)
def test_message_stays_readable_however_large_the_value_is(space, bad):
    """An error of a megabyte hides what it says, and fills logs."""
    with vector([partial(Scripted, space, [bad])]) as envs, pytest.raises(MisfitError) as caught:
        envs.reset()
    assert len(str(caught.value)) < 1000


def test_texts_with_charsets_of_their_own_are_no_batch():
    """Nor are they to Gymnasium: it would take the characters of one env for those of another."""
    env_fns = [partial(Scripted, Text(3, charset=charset), charset) for charset in ("ab", "cd")]
    for make in (gym.vector.SyncVectorEnv, partial(shoal.AsyncVectorEnv, backend="serial")):
        for mode in ("same", "different"):
            with pytest.raises((RuntimeError, AssertionError), match=r"observation.space"):
                make(env_fns, observation_mode=mode)
