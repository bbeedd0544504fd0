"""Actions: each env gets its own, as its space has it; what does not fit is refused before any env steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from vectors import every_backend, readable, vector

from shoal import MisfitError, ShoalError
from shoal.testing import Counter, Echo
from shoal.testing.equality import assert_same

VECTOR = Box(-1, 1, (2,), np.float32)
NESTED = Dict(fire=Discrete(2), move=VECTOR, t=Tuple((Discrete(3), MultiBinary(2))))


def counters(num_envs: int, space: Any = None) -> list[partial[Counter]]:
    return [partial(Counter, index, action_space=space) for index in range(num_envs)]


def refuses(envs: Any, actions: Any, match: str) -> None:
    """Checks that actions are refused, that no env was stepped, and that right ones work right after."""
    times = envs.get_attr("t")
    for start in (envs.step, envs.step_async):
        with pytest.raises(MisfitError, match=match) as caught:
            start(actions)
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, ShoalError)
    assert envs.get_attr("t") == times
    envs.action_space.seed(0)
    right = envs.action_space.sample()
    envs.step(right)
    assert envs.get_attr("t") == tuple(t + 1 for t in times)


@every_backend
def test_wrong_number_of_actions_is_refused_with_both_counts(backend):
    """Two actions for four envs leave two envs waiting for ever, or step them with old actions."""
    with vector(counters(4), backend, num_workers=2) as envs:
        envs.reset()
        refuses(envs, np.zeros(2, int), "^action: expected 4, one for each env, found 2$")
        refuses(envs, np.zeros(5, int), "^action: expected 4, one for each env, found 5$")
        refuses(envs, [], "^action: expected 4, one for each env, found 0$")
        refuses(envs, 0, r"^action: expected one for each of 4 envs, shape \(4,\), found a single int64")
        refuses(envs, np.int64(3), r"^action: expected one for each of 4 envs")


@pytest.mark.parametrize(
    "actions",
    [
        [0, 1, 4],
        (0, 1, 4),
        range(0, 6, 2),
        np.array([0, 1, 4]),
        np.array([0, 1, 4], np.int32),
        np.array([0, 1, 4], np.uint8),
        np.array([0, 1, 4], ">i2"),
        np.array([[0, 9], [1, 9], [4, 9]])[:, 0],
        np.array([False, True, True]),
        [np.int64(0), np.array(1), True],
    ],
    ids=readable,
)
def test_whole_numbers_of_any_form_are_discrete_actions(actions):
    """Policies return lists, and arrays of many types; each env gets a scalar that its space contains."""
    with vector(counters(3)) as envs:
        envs.reset()
        envs.step(actions)
        received = envs.get_attr("last_action")
        assert_same(received, tuple(np.int64(int(action)) for action in actions))
        assert all(map(envs.single_action_space.contains, received))


@pytest.mark.parametrize(
    "actions, match",
    [
        (np.array([0.0, 1.0, 4.0]), "expected int64, found float64; convert it"),
        ([0, 1, 4.0], "expected int64, found float64; convert it"),
        (np.zeros((3, 1), int), r"expected int64 of shape \(3,\), found int64 of shape \(3, 1\)"),
        (np.zeros((1, 3), int), "expected 3, one for each env, found 1"),
        (["0", "1", "4"], "no array of numbers"),
        ([0, None, 4], "no array of numbers"),
        ([0, [1], 4], "no array"),
        (None, "found NoneType None"),
        ("014", "found str '014'"),
        ({0: 0, 1: 1, 2: 4}, "found dict"),
        (np.array([0, 1, 2**63], np.uint64), "found uint64 9223372036854775808, which int64 cannot hold"),
        ([0, 1, 2**64], "no array of numbers|cannot hold|which is no array"),
    ],
    ids=readable,
)
def test_what_is_no_batch_of_whole_numbers_is_refused(actions, match):
    """A float may be a probability, an extra axis the output of another layer: better to say so than to guess."""
    with vector(counters(3)) as envs:
        envs.reset()
        refuses(envs, actions, f"^action: .*({match})")


@every_backend
def test_numbers_out_of_range_reach_the_env_as_they_are(backend):
    """Whether 300 is an action is for the env to say; that it never becomes 44 or 4 is for the batch."""
    with vector(counters(3), backend) as envs:
        envs.reset()
        envs.step([300, -1, 5])
        assert_same(envs.get_attr("last_action"), (np.int64(300), np.int64(-1), np.int64(5)))


@pytest.mark.parametrize(
    "space, action, found",
    [
        (MultiDiscrete([3, 3], dtype=np.uint8), [300, 0], "int64 300, which uint8 cannot hold"),
        (MultiDiscrete([3, 3], dtype=np.uint8), [-1, 0], "int64 -1, which uint8 cannot hold"),
        (MultiBinary(2), [200, 0], "int64 200, which int8 cannot hold"),
        (VECTOR, [1e39, 0], r"float64 1e\+39, which overflows float32"),
        (Box(0, 255, (2,), np.uint8), [256, 0], "int64 256, which uint8 cannot hold"),
        (Box(0, 255, (2,), np.uint8), [0.5, 0], "float64; convert it"),
    ],
    ids=readable,
)
def test_numbers_that_would_wrap_or_overflow_are_refused(space, action, found):
    """A silent 44 for a 300 is a bug that nobody finds."""
    with vector(counters(2, space)) as envs:
        envs.reset()
        refuses(envs, [[0, 0], action], f"^action: expected .*, found .*{found}")


@every_backend
def test_vectors_of_any_float_type_are_box_actions(backend):
    """Policies compute in float64 or return lists; out of bounds is for the env to say."""
    with vector(counters(3, VECTOR), backend) as envs:
        envs.reset()
        expected = [np.array([i, -i], np.float32) * np.float32(0.7) for i in range(3)]
        wide = np.array([[i, -i] for i in range(3)]) * 0.7
        for actions in (wide, wide.astype(np.float32), wide.tolist(), tuple(map(tuple, wide)), list(wide)):
            envs.step(actions)
            assert_same(envs.get_attr("last_action"), tuple(expected))


@pytest.mark.parametrize("shape", [(2, 3), (3,), (3, 1), (3, 2, 1), (1, 3, 2), (6,)], ids=str)
def test_box_actions_of_another_shape_are_refused(shape):
    """Nothing is transposed, reshaped or broadcast: one action for all must be written out."""
    with vector(counters(3, VECTOR)) as envs:
        envs.reset()
        refuses(envs, np.zeros(shape, np.float32), "^action: expected")


@pytest.mark.parametrize("shape, space", [((3,), Box(-1, 1, ())), ((3, 0), Box(-1, 1, (0,)))], ids=str)
def test_scalar_and_empty_box_actions(shape, space):
    """The batch axis is all there is of them."""
    with vector(counters(3, space)) as envs:
        envs.reset()
        envs.step(np.full(shape, 0.5))
        received = envs.get_attr("last_action")
        assert all(action.shape == shape[1:] and action.dtype == np.float32 for action in received)
        assert np.array_equal(np.stack(received), np.full(shape, 0.5))


@every_backend
@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_nested_actions_reach_their_own_env(backend, num_envs):
    """Every leaf is split along its own first axis; a list with one action for each env is the same."""
    with vector([partial(Echo, NESTED)] * num_envs, backend) as envs:
        envs.reset(seed=0)
        envs.action_space.seed(4)
        batch = envs.action_space.sample()
        observations, *_, infos = envs.step(batch)
        assert_same(observations, batch)
        assert infos["contains"].all()
        received = envs.get_attr("last_action")
        assert all(map(envs.single_action_space.contains, received))
        for row, action in enumerate(received):
            assert action["fire"] == batch["fire"][row] and np.array_equal(action["move"], batch["move"][row])
            assert action["t"][0] == batch["t"][0][row] and np.array_equal(action["t"][1], batch["t"][1][row])
        for one_each in (list(received), received):
            assert_same(envs.step(one_each)[0], batch)


@every_backend
def test_nested_action_that_does_not_fit_is_named_before_anything_is_sent(backend):
    """With a key missing or one part too short, no env may step on half of an action."""
    with vector(counters(2, NESTED), backend) as envs:
        envs.reset()
        envs.action_space.seed(4)
        batch = envs.action_space.sample()
        one_each = list(envs.step(batch) and envs.get_attr("last_action"))
        refuses(envs, {"fire": batch["fire"], "t": batch["t"]}, "^action: key 'move' is missing; expected")
        refuses(envs, {**batch, "move": batch["move"][:1]}, r"^action\['move'\]: expected 2, one for each env, found 1")
        refuses(envs, {**batch, "t": batch["t"][:1]}, r"^action\['t'\]: expected a tuple of 2, found 1 items")
        refuses(envs, {**batch, "t": (batch["t"][0], [[0, 1], [0, 300]])}, r"^action\['t'\]\[1\]: expected int8")
        refuses(envs, batch["move"], "^action: expected a dict with keys .*, found an array of shape")
        refuses(envs, one_each[:1], "^action: expected 2, one for each env, found 1")
        refuses(envs, [one_each[0], {"fire": 1, "move": [0, 0]}], "^env 1: action: key 't' is missing")
        refuses(envs, [one_each[0], {**one_each[1], "fire": 0.5}], r"^env 1: action\['fire'\]: expected int64")


@every_backend
def test_extra_keys_of_an_action_are_left_out(backend):
    """As in Gymnasium; they move no other value."""
    with vector(counters(2, Dict(b=Discrete(5), a=Discrete(5))), backend) as envs:
        envs.reset()
        envs.step({"0": [9, 9], "b": [1, 2], "c": 5, "a": [3, 4]})
        assert envs.get_attr("last_action") == ({"b": 1, "a": 3}, {"b": 2, "a": 4})


@every_backend
def test_env_may_keep_and_change_its_actions(backend):
    """Wrappers record actions, and some scale them in place; neither may reach another step or env."""

    class Recorder(Counter):
        def __init__(self):
            super().__init__(action_space=Dict(move=VECTOR))
            self.seen = []

        def step(self, action):
            self.seen.append(action["move"].copy())
            action["move"] *= 100
            self.seen.append(action["move"])
            return super().step(action)

    with vector([Recorder] * 3, backend, num_workers=2) as envs:
        envs.reset()
        sent = [np.arange(6, dtype=np.float32).reshape(3, 2) + step for step in range(3)]
        for move in sent:
            mine = move.copy()
            envs.step({"move": mine})
            assert_same(mine, move)
        for row, seen in enumerate(envs.get_attr("seen")):
            assert_same(seen[::2], [move[row] for move in sent])
            assert_same(seen[1::2], [move[row] * 100 for move in sent])


@every_backend
def test_actions_may_be_overwritten_once_a_step_has_started(backend):
    """Policies reuse their output buffer while the envs are at work."""
    with vector(counters(3, NESTED), backend) as envs:
        envs.reset()
        envs.action_space.seed(4)
        batch = envs.action_space.sample()
        moves = batch["move"].copy()
        envs.step_async(batch)
        batch["move"].fill(9)
        envs.step_wait()
        assert np.array_equal([action["move"] for action in envs.get_attr("last_action")], moves)
