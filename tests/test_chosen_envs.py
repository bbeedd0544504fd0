"""Calls, attributes and resets of some envs: which ones, in which order, and that the others are left alone."""

from __future__ import annotations

import threading
from functools import partial

import gymnasium
import numpy as np
import pytest

from shoal import AsyncVectorEnv
from shoal.errors import ArgumentError, ArgumentTypeError
from shoal.testing.toys import Counter


class Player(Counter):
    """Remembers how it was called and reset."""

    goal = 0

    def __init__(self, index):
        super().__init__(index)
        self.index, self.calls, self.resets = index, [], []

    def reset(self, *, seed=None, options=None):
        self.resets.append((seed, options))
        return super().reset(seed=seed, options=options)

    def lock(self):
        return threading.Lock() if self.index == 1 else None

    def shift(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        if args and args[0] == "break":
            raise LookupError(f"env {self.index} is broken")
        return self.index, args, kwargs


class Wrapped(gymnasium.Wrapper):
    """Has an attribute of its own in front of the env's."""

    mark = "wrapper"


@pytest.fixture(params=["serial", "thread", "process"])
def envs(request):
    """Five envs in two workers, 3 and 2, under a wrapper each."""
    env_fns = [partial(make, index) for index in range(5)]
    with AsyncVectorEnv(env_fns, num_workers=2, backend=request.param, step_timeout=30) as envs:
        envs.reset()
        yield envs


def make(index):
    return Wrapped(Player(index))


@pytest.mark.parametrize(
    "indices, rows",
    [
        (None, [0, 1, 2, 3, 4]),
        (3, [3]),
        (-1, [4]),
        (np.int64(2), [2]),
        ([4, 0, 3], [4, 0, 3]),
        ((1, 1, 4, 1), [1, 1, 4, 1]),
        (range(1, 5, 2), [1, 3]),
        (np.array([2, 0]), [2, 0]),
        (np.array([True, False, False, True, True]), [0, 3, 4]),
        ([], []),
        (np.zeros(5, bool), []),
    ],
)
def test_results_come_in_the_order_of_the_indices(envs, indices, rows):
    """However they are given, and whichever worker has the env; the others are not called."""
    assert envs.call("shift", 7, indices=indices, name="z") == tuple((row, (7,), {"name": "z"}) for row in rows)
    assert envs.get_attr("index", indices) == tuple(rows)
    counts = envs.get_attr("calls")
    assert [len(calls) for calls in counts] == [rows.count(row) for row in range(5)]


@pytest.mark.parametrize("bad", ["0", b"0", {0: 1}, 1.5, [1.5], [[0]], True, [True, False], [None], object()])
def test_what_is_no_index_is_refused(envs, bad):
    """A list of bools is no mask, since it might as well be a list of 0 and 1."""
    with pytest.raises(ArgumentTypeError, match=r"^indices must be the index of an env"):
        envs.get_attr("index", bad)
    with pytest.raises(ArgumentTypeError, match=r"^indices"):
        envs.reset(indices=bad)
    assert envs.get_attr("calls") == ([],) * 5


@pytest.mark.parametrize("bad", [5, -6, [0, 5], np.ones(4, bool), np.ones((5, 1), bool)])
def test_env_that_is_not_there_is_refused(envs, bad):
    """The message says how many there are."""
    with pytest.raises(ArgumentError, match="5 envs"):
        envs.call("shift", indices=bad)
    with pytest.raises(ArgumentError, match="5 envs"):
        envs.set_attr("goal", 1, bad)
    with pytest.raises(ArgumentError, match="5 envs"):
        envs.has_attr("goal", bad)
    assert envs.get_attr("calls") == ([],) * 5


def test_each_env_gets_arguments_of_its_own(envs):
    """Behind those for all."""
    assert envs.call("shift", "all", each=[(row, row * 2) for row in range(5)], key=1) == tuple(
        (row, ("all", row, row * 2), {"key": 1}) for row in range(5)
    )
    assert envs.call("shift", indices=[3, 1], each=[("c",), ("a",)]) == ((3, ("c",), {}), (1, ("a",), {}))
    for wrong in ([], [(1,)], [(1,)] * 6):
        with pytest.raises(ArgumentError, match=rf"each has {len(wrong)} entries for 5 envs"):
            envs.call("shift", each=wrong)


def test_halves_of_a_call(envs):
    """`call_async` takes the same."""
    envs.call_async("shift", indices=[4, 2], each=[(1,), (2,)])
    assert envs.call_wait() == ((4, (1,), {}), (2, (2,), {}))


def test_exception_of_one_env_harms_no_other(envs):
    """It names the env; those after it have been called, and all go on."""
    with pytest.raises(LookupError, match="env 3 is broken"):
        envs.call("shift", indices=[0, 3, 4], each=[("go",), ("break",), ("go",)])
    assert [len(calls) for calls in envs.get_attr("calls")] == [1, 0, 0, 1, 1]
    envs.step([0] * 5)


def test_attributes_of_chosen_envs(envs):
    """One value for all of them or one for each; the others keep theirs."""
    envs.set_attr("goal", 5, [1, 4])
    assert envs.get_attr("goal") == (0, 5, 0, 0, 5)
    envs.set_attr("goal", [8, 9], indices=[4, 0])
    assert envs.get_attr("goal") == (9, 5, 0, 0, 8)
    envs.set_attr("goal", np.arange(2), 3)
    assert envs.get_attr("goal", 3)[0].tolist() == [0, 1]
    with pytest.raises(ArgumentError, match=r"Got `3` values for 2 chosen environments"):
        envs.set_attr("goal", [1, 2, 3], [0, 1])


def test_has_attr(envs):
    """As of every one of them; on the env or on a wrapper, and nothing is called for it."""
    assert envs.has_attr("goal")
    assert envs.has_attr("mark")
    assert envs.has_attr("shift", 2)
    assert not envs.has_attr("nope")
    envs.set_attr("late", 1, 2)
    assert not envs.has_attr("late")
    assert envs.has_attr("late", [2])
    assert not envs.has_attr("late", [2, 3])
    assert envs.get_attr("calls") == ([],) * 5


def test_reset_of_chosen_envs(envs):
    """The others keep their last observation and are not touched."""
    for _ in range(3):
        envs.step([0] * 5)
    for chosen in (
        {"indices": [3, 0]},
        {"mask": [True, False, False, True, False]},
        {"indices": np.arange(5) % 3 == 0},
    ):
        assert envs.reset(**chosen)[0].ravel().tolist() == [0, 103, 203, 300, 403]
    assert [len(resets) for resets in envs.get_attr("resets")] == [4, 1, 1, 4, 1]
    assert envs.step([0] * 5)[0].ravel().tolist() == [1, 104, 204, 301, 404]


def test_seeds_and_options_of_chosen_envs(envs):
    """One for each in the order of the indices; one integer means to each env what it means in a whole reset."""
    envs.reset(seed=[7, 8], options=[{"a": 1}, None], indices=[4, 1])
    assert [resets[-1] for resets in envs.get_attr("resets")] == [
        (None, None),
        (8, None),
        (None, None),
        (None, None),
        (7, {"a": 1}),
    ]
    envs.reset(seed=10, options={"b": 2}, indices=[2])
    assert envs.get_attr("resets", 2)[0][-1] == (12, {"b": 2})
    envs.reset_async(seed=[3], mask=np.arange(5) == 3)
    envs.reset_wait()
    assert envs.get_attr("resets", 3)[0][-1] == (3, None)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"indices": [0], "mask": np.ones(5, bool)}, "both say which"),
        ({"indices": [0], "options": {"reset_mask": np.ones(5, bool)}}, "both say which"),
        ({"mask": np.ones(5, bool), "options": {"reset_mask": np.ones(5, bool)}}, "both say which"),
        ({"indices": []}, "no env is to be reset"),
        ({"mask": np.zeros(5, bool)}, "no env is to be reset"),
        ({"indices": [1, 1]}, "twice"),
        ({"indices": [1, -4]}, "twice"),
        ({"indices": [1, 2], "seed": [1, 2, 3, 4, 5]}, "seed has 5 entries for 2 chosen envs"),
        ({"indices": [1, 2], "options": [None] * 5}, "options has 5 entries for 2 chosen envs"),
        ({"mask": np.ones(4, bool)}, "5 envs"),
    ],
)
def test_contradiction_is_refused_before_anything_is_reset(envs, arguments, message):
    """With a word on what it is."""
    with pytest.raises(ArgumentError, match=message):
        envs.reset(**arguments)
    assert [len(resets) for resets in envs.get_attr("resets")] == [1] * 5


@pytest.mark.parametrize("mask", [[0, 1, 0, 1, 0], "mask", 3])
def test_mask_of_anything_but_bools_is_refused(envs, mask):
    """Zeros and ones might be indices."""
    with pytest.raises(ArgumentTypeError, match=r"^mask must be a mask of bools"):
        envs.reset(mask=mask)


def test_result_that_cannot_be_sent_names_its_env():
    """Also where the rows are not in order."""
    with AsyncVectorEnv([partial(make, index) for index in range(4)], num_workers=1) as envs:
        envs.reset()
        with pytest.raises(TypeError, match=r"env 1.*cannot be pickled") as caught:
            envs.call("lock", indices=[3, 1])
        assert "env 3" not in str(caught.value)
