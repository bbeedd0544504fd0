"""How episodes begin and end: resets, seeds, options, and what the autoreset modes do."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box

from shoal import StateError
from shoal.testing.contract.makers import NUM_ENVS, Make, counted, counters, plain_loop
from shoal.testing.equality import assert_same
from shoal.testing.toys import Counter, Scripted, Stochastic

NOTHING = [0] * NUM_ENVS  # Actions that say nothing.

# Episodes of these lengths, the last without an end; the second one is truncated, the others terminate.
LENGTHS = (1, 2, 3, None)
TRUNCATED = np.array([False, True, False, False])


class Table(NamedTuple):
    """What nine steps look like, one string for each env of `LENGTHS`."""

    times: tuple[str, ...]
    ends: tuple[str, ...]
    rewards: tuple[str, ...] = ("111111111",) * 4


TABLES = {
    # The step after an end resets: its action goes nowhere, its reward is 0.
    "NextStep": Table(
        times=("101010101", "120120120", "123012301", "123456789"),
        ends=("101010101", "010010010", "001000100", "000000000"),
        rewards=("101010101", "110110110", "111011101", "111111111"),
    ),
    # The step that ends an episode shows the beginning of the next.
    "SameStep": Table(
        times=("000000000", "101010101", "120120120", "123456789"),
        ends=("111111111", "010101010", "001001001", "000000000"),
    ),
    # The caller resets what has ended after each step.
    "Disabled": Table(
        times=("111111111", "121212121", "123123123", "123456789"),
        ends=("111111111", "010101010", "001001001", "000000000"),
    ),
}

# What may be given, and what three envs get then.
SEEDS: list[tuple[Any, tuple[int | None, ...]]] = [
    (5, (5, 6, 7)),
    (np.int64(5), (5, 6, 7)),
    ([5, 6, 7], (5, 6, 7)),
    (np.array([5, 6, 7]), (5, 6, 7)),
    ((5, None, 7), (5, None, 7)),
    (None, (None, None, None)),
]
WRONG_MASKS: list[tuple[Any, type[Exception]]] = [
    (np.array([True, False]), ValueError),
    (np.array([[True], [False], [True]]), ValueError),
    (np.array([False, False, False]), ValueError),
    (np.array([1, 0, 1]), TypeError),
    ([True, False, True], TypeError),
]


class Greedy(Counter):
    """Takes everything out of its options; `taken` is what it found at each reset."""

    taken: tuple[Any, ...] = ()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Empties the options."""
        self.taken = (*self.taken, dict(options) if options is not None else None)
        if options:
            options.clear()
        return super().reset(seed=seed, options=options)


def column(rows: tuple[str, ...], step: int) -> Any:
    """Returns what a table has in one step: `[B]`."""
    return np.array([int(row[step]) for row in rows])


def finals(mode: str, ended: Any) -> dict[str, Any]:
    """Returns the infos of a step of counters of which some have ended."""
    if mode != "SameStep" or not ended.any():
        return {}
    observations = np.full(len(ended), None, object)
    for row in np.flatnonzero(ended):
        observations[row] = np.array([100.0 * row + (LENGTHS[row] or 0)])
    return {"final_obs": observations, "_final_obs": ended, "final_info": {}, "_final_info": ended}


class EpisodesContract:
    """Every episode starts as it was asked to, and ends in its own row at its own time."""

    @pytest.mark.parametrize("mode", TABLES)
    def test_episodes_follow_the_table_of_their_mode(self, make_vec: Make, mode: str) -> None:
        """Learners bootstrap from these rows: one step to the side is a wrong value, and no error."""
        envs = [partial(Counter, i, length, bool(TRUNCATED[i])) for i, length in enumerate(LENGTHS)]
        vec = make_vec(envs, autoreset_mode=mode)
        vec.reset()
        for step in range(9):
            actions = (step + np.arange(4)) % 5
            observations, rewards, terminations, truncations, infos = vec.step(actions)
            times, ended = column(TABLES[mode].times, step), column(TABLES[mode].ends, step).astype(bool)
            assert_same(observations, counted(times, 4))
            assert_same(rewards, column(TABLES[mode].rewards, step).astype(float))
            assert_same((terminations, truncations), (ended & ~TRUNCATED, ended & TRUNCATED))
            assert_same(infos, finals(mode, ended))
            reached = tuple(None if t == 0 else action for t, action in zip(times, actions, strict=True))
            assert vec.get_attr("last_action") == reached, "actions go to steps, not to resets"
            if mode == "Disabled" and ended.any():
                vec.reset(options={"reset_mask": ended})

    def test_final_infos_stay_apart_from_first_infos(self, make_vec: Make) -> None:
        """Same-step autoreset has two infos for one row, and a mask says where."""
        space, observations = Box(0, 9, (1,), np.float32), [np.array([t], np.float32) for t in range(4)]
        infos: list[dict[str, Any]] = [{"t": t, "deep": {"t": float(t)}} for t in range(4)]
        envs = [
            partial(Scripted, space, observations, 1.0, [t >= length for t in range(4)], infos=infos)
            for length in (2, 3, 9)
        ]
        vec = make_vec(envs, autoreset_mode="SameStep")
        vec.reset()
        assert_same(vec.step([0, 0, 0])[4]["t"], np.array([1, 1, 1]))
        for times, row, length in (([0, 2, 2], 0, 2), ([1, 0, 3], 1, 3)):
            found = vec.step([0, 0, 0])[4]
            mask = np.arange(3) == row
            assert_same(found["t"], np.array(times))
            assert_same(found["deep"]["t"], np.array(times, float))
            for key in ("_final_obs", "_final_info"):
                assert_same(found[key], mask)
            for key in ("_t", "_deep"):
                assert_same(found["final_info"][key], mask)
            assert_same(found["final_obs"][row], observations[length])
            assert (found["final_info"]["t"][row], found["final_info"]["deep"]["t"][row]) == (length, length)

    def test_an_ended_env_is_not_stepped_without_autoreset(self, make_vec: Make) -> None:
        """An episode that goes on after its end would be learnt from; nobody else is stepped, either."""
        vec = make_vec([Counter, partial(Counter, 1, length=1), partial(Counter, 2)], autoreset_mode="Disabled")
        vec.reset()
        vec.step([0, 0, 0])
        for _ in range(2):
            with pytest.raises(StateError, match="env 1"):
                vec.step([0, 0, 0])
        with pytest.raises(StateError, match="env 1"):
            vec.reset(options={"reset_mask": np.array([True, False, False])})
            vec.step([0, 0, 0])
        assert vec.get_attr("t") == (0, 1, 1)
        vec.reset(options={"reset_mask": np.array([False, True, False])})
        assert_same(vec.step([0, 0, 0])[0], counted([1, 1, 2], 3))

    @pytest.mark.parametrize("mode", TABLES)
    def test_a_masked_reset_leaves_the_others_alone(self, make_vec: Make, mode: str) -> None:
        """Row by row the batch shows the new episode or the last observation; the caller's dict is not touched."""
        vec = make_vec(counters(3), autoreset_mode=mode)
        vec.reset(seed=8, options={"lvl": 1})
        vec.step([1, 2, 3])
        options = {"reset_mask": np.array([True, False, True]), "lvl": 4}
        for _ in range(2):
            assert_same(vec.reset(seed=[1, 2, 3], options=options), (counted([0, 1, 0], 3), {}))
        assert options.keys() == {"reset_mask", "lvl"}
        assert_same(options["reset_mask"], np.array([True, False, True]))
        assert vec.get_attr("last_options") == ({"lvl": 4}, {"lvl": 1}, {"lvl": 4})
        assert vec.get_attr("last_seed") == (1, 9, 3)
        assert vec.get_attr("last_action") == (None, 2, None)
        assert_same(vec.step([0, 0, 0])[0], counted([1, 2, 1], 3))

    def test_a_masked_reset_keeps_the_autoreset_that_is_due(self, make_vec: Make) -> None:
        """An env that has ended and is left out starts anew in the next step, as if nothing had been."""
        vec = make_vec([partial(Counter, i, length=2) for i in range(2)])
        vec.reset()
        vec.step([0, 0])
        vec.step([0, 0])
        assert_same(vec.reset(options={"reset_mask": np.array([True, False])})[0], counted([0, 2], 2))
        observations, rewards, terminations, *_ = vec.step([0, 0])
        assert_same((observations, rewards), (counted([1, 0], 2), np.array([1.0, 0.0])))
        assert not terminations.any()
        assert_same(vec.step([0, 0])[2], np.array([True, False]))

    def test_a_wrong_mask_resets_nothing(self, make_vec: Make) -> None:
        """A mask that was meant otherwise must not be guessed at."""
        vec = make_vec(counters(3))
        vec.reset()
        for mask, error in WRONG_MASKS:
            with pytest.raises(error, match="reset_mask"):
                vec.reset(options={"reset_mask": mask})
        assert vec.get_attr("num_resets") == (1, 1, 1)
        assert_same(vec.step([0, 0, 0])[0], counted(1, 3))

    def test_every_env_has_its_own_options(self, make_vec: Make) -> None:
        """An env that takes something out takes it from nobody else, and an autoreset has no options."""
        vec = make_vec([partial(Greedy, i, length=1) for i in range(3)])
        options = {"k": [1]}
        vec.reset(options=options)
        vec.step([0, 0, 0])
        vec.step([0, 0, 0])
        assert options == {"k": [1]}
        assert vec.get_attr("taken") == (({"k": [1]}, None),) * 3

    def test_options_may_be_given_one_by_one(self, make_vec: Make) -> None:
        """Levels differ by env; a list of another length says nothing about the last ones."""
        vec = make_vec(counters(3))
        vec.reset(options=[{"k": 0}, {}, {"k": 2}])
        assert vec.get_attr("last_options") == ({"k": 0}, {}, {"k": 2})
        with pytest.raises(ValueError, match="3"):
            vec.reset(options=[{"k": 0}, {}])
        assert vec.get_attr("num_resets") == (1, 1, 1)

    def test_seeds_reach_their_envs(self, make_vec: Make) -> None:
        """One number means a different one for each env; a seed is not used again at an autoreset."""
        vec = make_vec(counters(3, length=1))
        for seed, expected in SEEDS:
            vec.reset(seed=seed)
            assert_same(vec.get_attr("last_seed"), expected)
            vec.step([0, 0, 0])
            vec.step([0, 0, 0])
            assert vec.get_attr("last_seed") == (None, None, None)

    def test_a_wrong_seed_resets_nothing(self, make_vec: Make) -> None:
        """A run that was meant to be repeatable must not start otherwise."""
        vec = make_vec(counters(3))
        vec.reset()
        for seed in ([1, 2], [1, 2, 3, 4], [], -1, [1, -2, 3], 2.5, [1, 2.5, 3], "abc"):
            with pytest.raises((ValueError, TypeError), match="seed"):
                vec.reset(seed=seed)
        assert vec.get_attr("num_resets") == (1, 1, 1)
        assert_same(vec.step([0, 0, 0])[0], counted(1, 3))

    def test_same_seed_same_trajectory_as_a_plain_loop(self, make_vec: Make) -> None:
        """In a second run of the same batch, too: nothing of the first may linger."""
        envs = [partial(Stochastic, 0.2)] * NUM_ENVS
        actions = np.random.default_rng(0).integers(0, 5, (40, NUM_ENVS))
        vec = make_vec(envs)
        for _ in range(2):
            first, *expected = plain_loop(envs, 3, actions)
            assert_same(vec.reset(seed=3), (first[0], {}))
            for own, outcome in zip(actions, expected, strict=True):
                assert_same(vec.step(own), (*outcome, {}))
