"""Extra outputs: declared with a space, they come beside the observation, from the info or from a method."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, OneOf, Sequence, Text, Tuple
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from vectors import every_backend, readable, vector

from shoal import ArgumentTypeError, AsyncVectorEnv, MisfitError, StateError
from shoal.testing import Counter
from shoal.testing.equality import assert_same

MASK = MultiBinary(5)
POINT = Box(-1e9, 1e9, (2,), np.float32)
EXTRAS: dict[str, Any] = {"mask": MASK, "power": Box(0, 1e9, (), np.float64), "rank": (Discrete(1000), "rank")}
every_mode = pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])


class Masked(Counter):
    """Says by `t` and `index` which actions are allowed, in its info and through methods; `length` is 3 + `index`."""

    def __init__(self, index: int = 0, **base: Any) -> None:
        super().__init__(index, length=3 + index, **base)
        self.info: dict[str, Any] = {}

    @staticmethod
    def mask(index: int, t: int) -> np.ndarray:
        return np.array([(t + index) >> bit & 1 for bit in range(5)], np.int8)

    def action_masks(self) -> np.ndarray:
        return self.mask(self.index, self.t)

    def rank(self) -> int:
        return 100 * self.index + self.t

    def _outcome(self) -> Any:
        *outcome, _ = super()._outcome()
        # One dictionary and one array in it for ever, as careless envs have them.
        self.info.update(mask=self.action_masks(), power=0.5 * self.t, note=f"at {self.t}")
        return (*outcome, self.info)


def envs_of(num_envs: int) -> list[Any]:
    return [partial(Masked, index) for index in range(num_envs)]


def expected_times(mode: str, length: int, steps: int) -> list[tuple[int, int | None]]:
    """Returns for a reset and each step the time an env is at, and the last time of an episode that ended there."""
    t, times = 0, [(0, None)]
    for _ in range(steps):
        if mode != "SameStep" and t == length:
            t = 0
            times.append((0, None))
            continue
        t += 1
        if mode == "SameStep" and t == length:
            times.append((0, length))
            t = 0
        else:
            times.append((t, None))
    return times


def rollout(envs: Any, mode: str, steps: int) -> list[tuple[Any, dict[str, Any]]]:
    """Returns observations and infos; with autoreset disabled an env that ended is reset in the place of its step."""
    seen = [envs.reset()]
    ended = np.zeros(envs.num_envs, bool)
    for _ in range(steps):
        if mode == "Disabled" and ended.any():
            seen.append(envs.reset(options={"reset_mask": ended.copy()}))
            ended[:] = False
            continue
        observations, _, terminations, _, infos = envs.step([0] * envs.num_envs)
        ended = terminations
        seen.append((observations, infos))
    return seen


@every_backend
@every_mode
def test_extras_belong_to_the_observation_of_their_row(backend, mode):
    """After an autoreset they are the new episode's; the last ones of the old are in the final infos."""
    steps, num_envs = 12, 1 if mode == "Disabled" else 3
    columns = [expected_times(mode, 3 + index, steps) for index in range(num_envs)]
    options: dict[str, Any] = {"autoreset_mode": mode, "num_workers": min(2, num_envs), "extras": EXTRAS}
    with vector(envs_of(num_envs), backend, **options) as envs:
        seen = rollout(envs, mode, steps)
    everyone = np.ones(num_envs, bool)
    for (observations, infos), times in zip(seen, zip(*columns, strict=True), strict=True):
        now = [(index, t) for index, (t, _) in enumerate(times)]
        assert_same(observations, np.array([[100.0 * index + t] for index, t in now]))
        assert_same(infos["mask"], np.array([Masked.mask(index, t) for index, t in now]))
        assert_same(infos["power"], np.array([0.5 * t for _, t in now]))
        assert_same(infos["rank"], np.array([100 * index + t for index, t in now]))
        assert all((infos[f"_{name}"] == everyone).all() for name in EXTRAS)
        ends = {index: last for index, (_, last) in enumerate(times) if last is not None}
        assert ("final_info" in infos) == bool(ends)
        if ends:
            final = infos["final_info"]
            over = np.array([index in ends for index in range(num_envs)])
            for name in (*EXTRAS, "note"):
                assert_same(final[f"_{name}"], over, name)
            for index, last in ends.items():
                assert_same(final["mask"][index], Masked.mask(index, last))
                assert final["power"][index] == 0.5 * last and final["rank"][index] == 100 * index + last
                assert final["note"][index] == f"at {last}"
                assert_same(infos["final_obs"][index], np.array([100.0 * index + last]))


@every_backend
@every_mode
def test_extras_are_the_infos_that_come_without(backend, mode):
    """Declaring them makes them faster and changes nothing: values, types, masks and what is final."""
    declared = {name: space for name, space in EXTRAS.items() if name != "rank"}
    num_envs = 1 if mode == "Disabled" else 3
    options: dict[str, Any] = {"autoreset_mode": mode}
    with (
        vector(envs_of(num_envs), backend, **options) as plain,
        vector(envs_of(num_envs), backend, extras=declared, **options) as extra,
    ):
        for expected, own in zip(rollout(plain, mode, 12), rollout(extra, mode, 12), strict=True):
            observations, infos = (list(part) if isinstance(part, tuple) else part for part in own)
            assert_same(observations, expected[0])
            finals = [dict(each).pop("final_obs", ()) for each in (infos, expected[1])]
            assert_same(list(finals[0]), list(finals[1]))
            assert_same({**infos, "final_obs": 0}, {**expected[1], "final_obs": 0})


class Told(Counter):
    """Gives the values that it was told, at time `t` those at place `t`, in its info; ends at the last."""

    def __init__(self, told: list[dict[str, Any]]) -> None:
        super().__init__(length=len(told) - 1)
        self.told = told

    def _outcome(self) -> Any:
        *outcome, _ = super()._outcome()
        return (*outcome, self.told[self.t])


@pytest.mark.parametrize(
    "space, values, expected",
    [
        (MASK, [[0, 1, 0, 1, 1]] * 2, np.array([[0, 1, 0, 1, 1]] * 2, np.int8)),
        (Box(0, 1, (5,), np.bool_), [[True] * 5] * 2, np.ones((2, 5), bool)),
        (Box(0, 255, (), np.uint8), [3, 4], np.array([3, 4], np.uint8)),
        (Box(-9, 9, (), np.float32), [0.5, 1], np.array([0.5, 1], np.float32)),
        (Box(0, 1, (), np.bool_), [True, False], np.array([True, False])),
        (Box(-9, 9, (2, 1), np.float16), [[[1], [2]]] * 2, np.array([[[1], [2]]] * 2, np.float16)),
        (Box(-9, 9, (0,), np.float32), [[]] * 2, np.zeros((2, 0), np.float32)),
        (Discrete(9), [3, np.uint8(4)], np.array([3, 4])),
        (Text(9), ["ab", "abc"], ("ab", "abc")),
        (Sequence(POINT), [(), ([1, 2],)], ((), (np.array([1, 2], np.float32),))),
        (Sequence(Discrete(9), stack=True), [[], [1, 2]], (np.array([], np.int64), np.array([1, 2]))),
        (OneOf([Text(2), Discrete(9)]), [(0, "a"), (1, 5)], ((np.int64(0), "a"), (np.int64(1), np.int64(5)))),
        (Dict(b=Discrete(9), a=POINT), [{"b": 1, "a": [0, 1]}] * 2, None),
        (Tuple((Discrete(9), Text(2))), [(1, "a"), (2, "b")], (np.array([1, 2]), ("a", "b"))),
    ],
    ids=readable,
)
def test_extras_have_the_type_that_was_declared(space, values, expected):
    """As observations do: lists and Python's numbers become what the space says, and only if nothing is lost."""
    if expected is None:
        expected = {"b": np.array([1, 1]), "a": np.array([[0, 1], [0, 1]], np.float32)}
    env_fns = [partial(Told, [{"x": value}] * 2) for value in values]
    with vector(env_fns, autoreset_mode="SameStep", extras={"x": space}) as envs:
        for infos in (envs.reset()[1], envs.step([0, 0])[4]):
            assert_same(infos["x"], expected)
            assert_same(infos["_x"], np.array([True, True]))
        assert infos["_final_info"].tolist() == [True, True]
        final = infos["final_info"]["x"]
    if isinstance(expected, np.ndarray):
        assert_same(final, expected)
    elif isinstance(expected, tuple) and not isinstance(space, Tuple):
        assert_same(tuple(final), expected)


@every_backend
def test_extras_of_changing_length_arrive_whole(backend):
    """Legal moves of a game, say, of which there may be any number."""
    moves = [[np.arange(n), np.arange(2 * n), np.arange(n // 2)] for n in (0, 5, 10_000)]
    told = [[{"moves": own, "word": "x" * (len(own) % 7)} for own in each] for each in moves]
    extras = {"moves": Sequence(Discrete(99_999), stack=True), "word": Text(9, min_length=0)}
    with vector([partial(Told, each) for each in told], backend, num_workers=2, extras=extras) as envs:
        kept = [envs.reset()[1], *(envs.step([0] * 3)[4] for _ in range(2))]
    for t, infos in enumerate(kept):
        assert_same(infos["moves"], tuple(each[t]["moves"] for each in told))
        assert_same(infos["word"], tuple(each[t]["word"] for each in told))


@every_backend
def test_method_is_found_under_wrappers(backend):
    """Where a program would call it; and it is called after the env has been reset or stepped."""

    def make(index):
        return TimeLimit(OrderEnforcing(Masked(index)), 2)

    env_fns = [partial(make, index) for index in range(2)]
    with vector(env_fns, backend, extras={"masks": (MASK, "action_masks")}) as envs:
        batches = [envs.reset()[1], *(envs.step([0, 0])[4] for _ in range(4))]
    for infos, t in zip(batches, (0, 1, 2, 0, 1), strict=True):
        assert_same(infos["masks"], np.array([Masked.mask(index, t) for index in range(2)]))


@every_backend
def test_missing_extra_is_named(backend):
    """At a reset as at a step: which env, and which key; afterwards that env must be reset."""
    fine, missing = {"mask": [0] * 5, "more": 1}, {"more": 1}
    with (
        vector([partial(Told, told) for told in ([fine], [missing])], backend, extras={"mask": MASK}) as envs,
        pytest.raises(MisfitError, match=r"^env 1: info\['mask'\]: is missing"),
    ):
        envs.reset()
    env_fns = [partial(Told, told) for told in ([fine] * 4, [fine, missing, fine])]
    with vector(env_fns, backend, extras={"mask": MASK}) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=r"^env 1: info\['mask'\]: is missing"):
            envs.step([0, 0])
        with pytest.raises(StateError, match="env 1"):
            envs.step([0, 0])
        _, infos = envs.reset(options={"reset_mask": np.array([False, True])})
        assert_same(infos["mask"], np.zeros((2, 5), np.int8))


@every_backend
def test_extra_that_does_not_fit_is_named(backend):
    """By its own name: it is no part of the observation."""
    for bad, problem in (([0] * 4, "expected int8 of shape"), (None, "expected int8"), ([300] * 5, "cannot hold")):
        env_fns = [partial(Told, [{"mask": mask}]) for mask in ([0] * 5, bad)]
        with (
            vector(env_fns, backend, extras={"mask": MASK}) as envs,
            pytest.raises(MisfitError, match=rf"^env 1: extras\['mask'\]: .*{problem}"),
        ):
            envs.reset()


def test_extras_are_checked_strictly_when_that_is_asked_for():
    """They have a space as observations have."""
    env_fns = [partial(Told, [{"mask": [0, 1, 0, 1, 2]}])]
    with vector(env_fns, extras={"mask": MASK}) as envs:
        envs.reset()
    with (
        vector(env_fns, extras={"mask": MASK}, strict=True) as envs,
        pytest.raises(MisfitError, match=r"^env 0: extras\['mask'\]: expected 0 to 1 at \[4\], found 2"),
    ):
        envs.reset()


@every_backend
def test_error_of_a_method_reaches_the_caller(backend):
    """As any other of the env's own, and a name that no env has is an AttributeError."""

    class Moody(Masked):
        def rank(self):
            if self.index == 1:
                raise ZeroDivisionError("no rank today")
            return 0

    with vector([partial(Moody, index) for index in range(2)], backend, extras=EXTRAS) as envs:
        with pytest.raises(ZeroDivisionError, match="no rank today") as caught:
            envs.reset()
        assert any("env 1 raised in reset" in note for note in caught.value.__notes__)
    with (
        vector(envs_of(2), backend, extras={"x": (MASK, "no_such_method")}) as envs,
        pytest.raises(AttributeError, match="no_such_method"),
    ):
        envs.reset()


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_infos_of_the_env_are_not_changed(backend):
    """Wrappers and envs go on using their dictionary, from which nothing may have been taken."""
    kept: list[Masked] = []

    def make():
        kept.append(Masked())
        return kept[-1]

    with vector([make], backend, extras=EXTRAS) as envs:
        envs.reset()
        for _ in range(3):
            envs.step([0])
            assert sorted(kept[0].info) == ["mask", "note", "power"]


@every_backend
def test_received_extras_never_change(backend):
    """The env rewrites one dictionary and one array for ever."""

    class Reuser(Masked):
        def _outcome(self):
            *outcome, info = super()._outcome()
            self.buffer = getattr(self, "buffer", np.zeros(2, np.float32))
            self.buffer.fill(self.t)
            info.update(point=self.buffer, points=(self.buffer,))
            return (*outcome, info)

    extras = {"point": POINT, "points": Sequence(POINT)}
    with vector([partial(Reuser, 9)] * 2, backend, extras=extras) as envs:
        kept = [envs.reset()[1], *(envs.step([0, 0])[4] for _ in range(8))]
        then = deepcopy(kept)
        for _ in range(2):
            envs.step([0, 0])
    assert_same(kept, then)
    for t, infos in enumerate(kept):
        assert_same(infos["point"], np.full((2, 2), t, np.float32))
        assert_same(infos["points"], ((np.full(2, t, np.float32),),) * 2)


@every_backend
def test_extras_come_without_copies_too(backend):
    """With `copy=False` they are views of one buffer, as observations are, and right until the next call."""
    with vector(envs_of(2), backend, copy=False, extras=EXTRAS) as envs:
        first = envs.reset()[1]["mask"]
        for t in range(1, 4):
            observations, *_, infos = envs.step([0, 0])
            assert_same(observations, np.array([[t], [100.0 + t]]))
            assert_same(infos["mask"], np.array([Masked.mask(index, t) for index in range(2)]))
            assert np.shares_memory(first, infos["mask"])


def test_env_with_extras_may_have_any_observation():
    """A Tuple observation is not mixed up with the tuple in which the extras travel."""
    space = Tuple((Discrete(9), Dict(x=POINT)))

    class Nested(Told):
        def __init__(self, told):
            super().__init__(told)
            self.observation_space = space

        def _observation(self):
            return self.t, {"x": [self.t, 1]}

    with vector([partial(Nested, [{"mask": [1] * 5}] * 3)] * 2, extras={"mask": MASK, "extra": (MASK, "m")}) as envs:
        Nested.m = lambda self: [0] * 5
        observations, infos = envs.reset()
        assert_same(observations, (np.zeros(2, int), {"x": np.array([[0, 1]] * 2, np.float32)}))
        assert_same(infos["extra"], np.zeros((2, 5), np.int8))
        assert envs.observation_space.contains(observations)
        assert envs.observations is observations


@pytest.mark.parametrize("nothing", [None, {}], ids=str)
def test_no_extras_leave_infos_alone(nothing):
    """The default."""
    with vector(envs_of(1), extras=nothing) as envs:
        assert sorted(envs.reset()[1]) == ["_mask", "_note", "_power", "mask", "note", "power"]


@pytest.mark.parametrize(
    "extras",
    [
        5,
        "mask",
        ["mask"],
        [MASK],
        MASK,
        {"mask": None},
        {"mask": "action_masks"},
        {"mask": MultiBinary},
        {"mask": ()},
        {"mask": (MASK,)},
        {"mask": (MASK, 3)},
        {"mask": ("action_masks", MASK)},
        {"mask": (MASK, "action_masks", 1)},
        {"mask": np.zeros(5)},
        {"fine": MASK, "mask": 5},
    ],
    ids=readable,
)
def test_declaration_of_another_form_is_refused(extras):
    """Before any worker is started; the text says what is right."""
    with pytest.raises(ArgumentTypeError, match=r"extras.* must be .*space"):
        AsyncVectorEnv(envs_of(1), extras=extras)
