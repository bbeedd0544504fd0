"""Seeds: the same ones give the same run, different ones different runs, and each env has its own."""

from __future__ import annotations

import random
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given
from hypothesis import strategies as st
from vectors import every_backend, vector

from shoal import ArgumentError, ArgumentTypeError, AsyncVectorEnv
from shoal.engine.seeding import seeds_for
from shoal.testing import Counter, Stochastic
from shoal.testing.equality import assert_same

COUNTERS = [partial(Counter, index) for index in range(3)]


@every_backend
@pytest.mark.parametrize("num_workers", [1, 2])
def test_every_form_of_seed_reaches_its_env(backend, num_workers):
    """One number means a different one for each env, as in Gymnasium; None among seeds means none."""
    with vector(COUNTERS, backend, num_workers=num_workers) as envs:
        for seed, expected in (
            (5, (5, 6, 7)),
            (np.int64(5), (5, 6, 7)),
            (np.uint8(254), (254, 255, 256)),
            (0, (0, 1, 2)),
            ([5, 6, 7], (5, 6, 7)),
            ((5, None, 7), (5, None, 7)),
            (range(3), (0, 1, 2)),
            (np.array([5, 6, 7]), (5, 6, 7)),
            (np.array([5, 6, 7], np.uint32), (5, 6, 7)),
            ([np.int32(9), np.uint8(9), 9], (9, 9, 9)),
            ([2**40, 2**64, 2**70], (2**40, 2**64, 2**70)),
            (np.array(5), (5, 6, 7)),
            (None, (None, None, None)),
            ([None, None, None], (None, None, None)),
        ):
            envs.reset(seed=seed)
            assert_same(envs.get_attr("last_seed"), expected)


WRONG_SEEDS: list[tuple[Any, type[Exception]]] = [
    ([1, 2], ArgumentError),
    ([1, 2, 3, 4], ArgumentError),
    ([], ArgumentError),
    (np.array([1, 2]), ArgumentError),
    (-1, ArgumentError),
    (np.int64(-1), ArgumentError),
    ([1, -1, 1], ArgumentError),
    (2.5, ArgumentTypeError),
    (2.0, ArgumentTypeError),
    (np.array([1.0, 2.0, 3.0]), ArgumentTypeError),
    ([1, 2.5, 3], ArgumentTypeError),
    ([1, "2", 3], ArgumentTypeError),
    ("123", ArgumentTypeError),
    (b"123", ArgumentTypeError),
    (True, ArgumentTypeError),
    ({1, 2, 3}, ArgumentTypeError),
    ({0: 1, 1: 2, 2: 3}, ArgumentTypeError),
    (np.array([[1], [2], [3]]), ArgumentTypeError),
]


def test_wrong_seed_is_refused_before_anything_is_sent():
    """A run that was meant to be repeatable must not start with other seeds, nor end the batch."""
    with vector(COUNTERS) as envs:
        envs.reset(seed=1)
        for seed, error in WRONG_SEEDS:
            for start in (envs.reset, envs.reset_async):
                with pytest.raises(error) as caught:
                    start(seed=seed)
                assert isinstance(caught.value, ValueError if error is ArgumentError else TypeError)
        assert envs.get_attr("num_resets") == (1, 1, 1)
        assert envs.get_attr("last_seed") == (1, 2, 3)


def test_wrong_number_of_seeds_is_told_in_gymnasiums_words():
    """Programs match the text, and people need both counts."""
    with vector(COUNTERS) as envs:
        text = "^If seeds are passed as a list the length must match num_envs=3 but got length=2"
        with pytest.raises(ValueError, match=text):
            envs.reset(seed=[1, 2])


def trajectory(envs: Any, seed: Any) -> list[Any]:
    actions = np.random.default_rng(0).integers(0, 5, (20, envs.num_envs))
    return [envs.reset(seed=seed), *(envs.step(row) for row in actions)]


@every_backend
def test_a_number_and_its_list_give_the_same_run(backend):
    """`seed=5` is `seed=[5, 6, 7]`, again and again, whatever happened in between."""
    with vector([Stochastic] * 3, backend, num_workers=2) as envs:
        run = trajectory(envs, 5)
        assert_same(trajectory(envs, [5, 6, 7]), run)
        assert_same(trajectory(envs, np.array([5, 6, 7])), run)
        rows = run[0][0]
        assert not np.array_equal(rows[0], rows[1]) and not np.array_equal(rows[1], rows[2])
        with pytest.raises(AssertionError):
            assert_same(trajectory(envs, 6), run)


@every_backend
def test_unseeded_envs_differ_from_each_other_and_from_run_to_run(backend):
    """Without a seed nothing may be the same by accident, e.g. because workers are copies of one process."""
    firsts = []
    for _ in range(2):
        with vector([Stochastic] * 4, backend, num_workers=2) as envs:
            firsts += [row.tobytes() for row in envs.reset()[0]]
    assert len(set(firsts)) == 8


@every_backend
def test_seed_without_effect_on_the_next_reset(backend):
    """A reset without a seed goes on with the generators that are there, as Gymnasium's does."""
    with vector([Stochastic] * 2, backend) as envs:
        first, second = (envs.reset(seed=3)[0], envs.reset()[0])
        assert not np.array_equal(first, second)
        assert_same((envs.reset(seed=3)[0], envs.reset()[0]), (first, second))


@every_backend
def test_np_random_seed_tells_what_every_env_was_seeded_with(backend):
    """Logs record it to make a run repeatable."""
    with vector([Stochastic] * 3, backend) as envs:
        envs.reset(seed=7)
        assert envs.np_random_seed == (7, 8, 9)
        assert len(envs.np_random) == 3
        assert all(isinstance(generator, np.random.Generator) for generator in envs.np_random)


# Independent seeds from one.


@every_backend
def test_spawned_seeds_are_the_same_for_every_backend(backend):
    """They are a function of the seed and the number of envs, and of nothing else."""
    with vector(COUNTERS, backend, seeding="spawn", num_workers=2) as envs:
        envs.reset(seed=5)
        assert envs.get_attr("last_seed") == tuple(seeds_for(5, 3, "spawn"))
        envs.reset(seed=[1, None, 2])
        assert envs.get_attr("last_seed") == (1, None, 2)
        envs.reset()
        assert envs.get_attr("last_seed") == (None, None, None)


@given(st.integers(0, 2**64), st.integers(1, 40))
def test_spawned_seeds_are_distinct_repeatable_and_a_prefix_of_more(seed, num_envs):
    """A batch that grows keeps the runs it had, and no two envs share one."""
    seeds = seeds_for(seed, num_envs, "spawn")
    assert len(set(seeds)) == num_envs
    assert all(type(each) is int and 0 <= each < 2**32 for each in seeds)
    assert seeds_for(seed, num_envs, "spawn") == seeds
    assert seeds_for(seed, num_envs + 3, "spawn")[:num_envs] == seeds


def test_spawned_seeds_of_neighbouring_numbers_have_nothing_in_common():
    """With Gymnasium's rule seeds 0 and 1 share all envs but one, so "five seeds" are hardly more than one."""
    spawned = list(chain.from_iterable(seeds_for(seed, 64, "spawn") for seed in range(5)))
    assert len(set(spawned)) == len(spawned)
    incremented = list(chain.from_iterable(seeds_for(seed, 64, "increment") for seed in range(5)))
    assert len(set(incremented)) == 68


def test_unknown_seeding_is_refused():
    """A misspelt rule must not fall back to another."""
    with pytest.raises(ArgumentError, match="seeding='spwan' is unknown; use one of 'increment', 'spawn'"):
        AsyncVectorEnv(COUNTERS, seeding="spwan")


# The generators of Python and NumPy.


@pytest.mark.parametrize("start_method", ["forkserver", "fork", "spawn"])
def test_global_generators_differ_between_workers(start_method):
    """Forked workers inherit one state and would all roll the same; nor may two batches, nor the parent."""

    class Dice(Counter):
        def roll(self):
            return random.random(), float(np.random.random())

    here = random.getstate(), np.random.get_state()
    rolls = [(random.random(), float(np.random.random()))]
    for _ in range(1 if start_method == "spawn" else 2):
        with vector([Dice] * 3, "process", num_workers=3, start_method=start_method) as envs:
            rolls += envs.call("roll")
    random.setstate(here[0]), np.random.set_state(here[1])
    for kind in zip(*rolls, strict=True):
        assert len(set(kind)) == len(rolls)


@every_backend
def test_global_generators_of_the_program_are_left_alone(backend):
    """The learner's own draws must not depend on whether a batch was made, stepped or closed."""
    random.seed(1), np.random.seed(1)
    before = random.getstate(), np.random.get_state()
    with vector([Stochastic] * 2, backend, seeding="spawn") as envs:
        envs.reset(seed=1)
        envs.step([0, 0])
    after = random.getstate(), np.random.get_state()
    assert before[0] == after[0]
    assert_same(before[1], after[1])


# Sampling actions.


@every_backend
def test_seeded_action_space_repeats_its_samples(backend):
    """The batched space is one object, not a fresh copy at each access, so that seeding it lasts."""
    space = Dict(gear=Discrete(100), move=Box(-1, 1, (2,), np.float32))
    samples = []
    for _ in range(2):
        with vector([partial(Counter, action_space=space)] * 3, backend) as envs:
            assert envs.action_space is envs.action_space
            assert envs.single_action_space is envs.single_action_space
            for _ in range(2):
                envs.action_space.seed(1)
                samples.append([envs.action_space.sample() for _ in range(5)])
                envs.reset(seed=5)
    for other in samples[1:]:
        assert_same(other, samples[0])
    assert all(len({row.tobytes() for row in sample["move"]}) == 3 for sample in samples[0])
    assert len({sample["gear"].tobytes() for sample in samples[0]}) == 5


@every_backend
def test_spaces_of_the_batch_are_apart_from_those_of_its_envs(backend):
    """An env may draw from its own spaces; the program's samples must not change what it draws."""

    class Sampler(Counter):
        def seed_and_draw(self):
            self.action_space.seed(3), self.observation_space.seed(3)
            return self.draw()

        def draw(self):
            return int(self.action_space.sample()), float(self.observation_space.sample()[0])

    with vector([Sampler] * 3, backend, num_workers=2) as envs:
        assert len(set(envs.call("seed_and_draw"))) == 1
        for space in (envs.single_action_space, envs.single_observation_space, envs.action_space):
            space.sample(), space.seed(9)
        assert len(set(envs.call("draw"))) == 1
