"""Every backend, start method and number of workers keeps the contract of a vector env."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.testing.contract import EpisodesContract, Make, VectorEnvContract, closing_all
from shoal.testing.contract.conduct import WRONG_ACTIONS
from shoal.testing.equality import assert_same


def making(num_workers: int, **options: Any) -> Any:
    """Gives a maker of batches with so many workers, or with one for each env where there are fewer envs."""

    def make(env_fns, **more):
        return shoal.AsyncVectorEnv(env_fns, num_workers=min(num_workers, len(env_fns)), **options, **more)

    return closing_all(make)


class TestSerial(VectorEnvContract):
    """The envs are in this thread; the split over hosts is the same as over workers."""

    @pytest.fixture(params=[1, 3])
    def make_vec(self, request: pytest.FixtureRequest) -> Iterator[Make]:
        with making(request.param, backend="serial") as make_vec:
            yield make_vec


class TestThread(VectorEnvContract):
    """The workers are threads."""

    @pytest.fixture(params=[2])
    def make_vec(self, request: pytest.FixtureRequest) -> Iterator[Make]:
        with making(request.param, backend="thread") as make_vec:
            yield make_vec


class TestForkserver(VectorEnvContract):
    """The workers are processes, forked by a clean one: the default."""

    @pytest.fixture(params=[1, 2, 3])
    def make_vec(self, request: pytest.FixtureRequest) -> Iterator[Make]:
        with making(request.param, start_method="forkserver") as make_vec:
            yield make_vec


class TestFork(VectorEnvContract):
    """The workers are forks of this process."""

    @pytest.fixture
    def make_vec(self) -> Iterator[Make]:
        with making(2, start_method="fork") as make_vec:
            yield make_vec


class TestSpawn(EpisodesContract):
    """The workers are new interpreters: a part is enough, as it takes them long to start and they work the same."""

    @pytest.fixture
    def make_vec(self) -> Iterator[Make]:
        with making(2, start_method="spawn") as make_vec:
            yield make_vec


class Swapping(shoal.AsyncVectorEnv):
    """Mixes up two rows."""

    def step_wait(self, timeout=None):
        observations, *rest = super().step_wait(timeout)
        return observations[[1, 0, *range(2, self.num_envs)]], *rest

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()


class Lending(shoal.AsyncVectorEnv):
    """Hands out the buffer that the next step overwrites."""

    def __init__(self, env_fns, **options):
        super().__init__(env_fns, **{**options, "copy": False})


class Rounding(shoal.AsyncVectorEnv):
    """Has rewards of another type."""

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, rewards.astype(np.float32), *rest


class Unmasked(shoal.AsyncVectorEnv):
    """Says of no row that its episode has ended."""

    def step(self, actions):
        *outcome, infos = super().step(actions)
        return *outcome, {key: value & False if key == "_final_obs" else value for key, value in infos.items()}


class OneSeed(shoal.AsyncVectorEnv):
    """Gives all envs the same seed."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=[seed] * self.num_envs if isinstance(seed, int) else seed, options=options)


class Careless(shoal.AsyncVectorEnv):
    """Takes too many actions for enough, and the mask out of the options."""

    def step(self, actions):
        return super().step(actions[: self.num_envs] if np.ndim(actions) else actions)

    def reset(self, *, seed=None, options=None):
        mask = options.pop("reset_mask", None) if isinstance(options, dict) else None
        return super().reset(seed=seed, options=options if mask is None else {**options, "reset_mask": mask})


class Immortal(shoal.AsyncVectorEnv):
    """Works on after its end, but for that its envs are gone."""

    def step(self, actions):
        return (None,) * 5 if self.closed else super().step(actions)


@pytest.mark.parametrize(
    ("broken", "promise", "arguments"),
    [
        (Swapping, "rows_are_in_the_order_of_the_functions", [7]),
        (Swapping, "views_of_results_never_change", [(4, 3)]),
        (Lending, "hoarded_results_never_change", ["NextStep"]),
        (Lending, "an_env_may_rewrite_its_own_array", []),
        (Rounding, "episodes_follow_the_table_of_their_mode", ["SameStep"]),
        (Unmasked, "episodes_follow_the_table_of_their_mode", ["SameStep"]),
        (Unmasked, "final_infos_stay_apart_from_first_infos", []),
        (OneSeed, "seeds_reach_their_envs", []),
        (OneSeed, "same_seed_same_trajectory_as_a_plain_loop", []),
        (Careless, "wrong_actions_are_refused_before_any_env_steps", WRONG_ACTIONS["discrete"]),
        (Careless, "a_masked_reset_leaves_the_others_alone", ["NextStep"]),
        (Immortal, "closing_ends_it_for_good", [None]),
    ],
)
def test_the_contract_notices(broken, promise, arguments):
    """A suite that everything passes promises nothing."""
    test = getattr(VectorEnvContract(), f"test_{promise}")
    failure = pytest.raises((AssertionError, pytest.fail.Exception))
    with closing_all(partial(broken, backend="serial")) as make_vec, failure:
        test(make_vec, *arguments)


ZEROS = np.zeros(3, np.float32)


def objects(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        (1, 1.0, "value: found int 1, expected float 1.0"),
        (True, np.True_, "value: found bool True"),
        ([1], (1,), "value: found list"),
        ((1, 2), (1,), "value: found 2 items, expected 1"),
        ({"a": 1}, {"b": 1}, r"value: found keys \['a'\], expected \['b'\]"),
        ({"a": (1, 2)}, {"a": (1, 3)}, r"value\['a'\]\[1\]: found 2, expected 3"),
        (ZEROS, ZEROS.astype(float), r"value: found float32 \(3,\), expected float64 \(3,\)"),
        (ZEROS, ZEROS[:2], r"value: found float32 \(3,\), expected float32 \(2,\)"),
        (ZEROS, np.array([0, -0.0, 0], np.float32), r"value\[1\]: found .*0\.0\)?, expected .*-0\.0"),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [0, 4]]), r"value\[1, 0\]: found .*3\)?, expected .*0"),
        (objects(None, ZEROS), objects(None, ZEROS + 1), r"value\[1\]\[0\]"),
    ],
)
def test_unequal_values_are_told_apart(actual, expected, said):
    """Parity and contract say "the same" and mean it; the text leads to the place."""
    with pytest.raises(AssertionError, match=said):
        assert_same(actual, expected)


@pytest.mark.parametrize(
    "value", [None, 1, "a", (), {}, np.array([np.nan, -0.0]), np.zeros((0, 2)), objects(None, ZEROS)]
)
def test_a_value_is_the_same_as_its_copy(value):
    """NaN is no reason to differ, nor that there is nothing to compare."""
    assert_same(copy.deepcopy(value), value)
