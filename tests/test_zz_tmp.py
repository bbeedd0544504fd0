"""`shoal.AsyncVectorEnv` gives what Gymnasium's `SyncVectorEnv` gives, bit for bit and type for type.

Compared after every call are observations, rewards, flags and infos, final ones among them: values, dtypes, shapes
and containers. Two things differ on purpose, and are compared as NumPy sees them: a final observation that an env
gave as a Python number is a NumPy scalar of the space's dtype, and which key of an info comes first.

Numbers of envs are 1, 3 and 8, of workers 1 to 3. CartPole is stepped 2,000 times in all modes on all backends, each
time with another number of workers, and 150 times in all combinations. HalfCheetah and Pong take longer: they are
stepped 2,000 times in worker processes, with each number of envs, of workers and each mode once, and for two episodes
elsewhere. Random spaces are stepped a few times each, mostly without processes. How worker processes start changes
nothing of what they send; it is compared in the last test, with a plain loop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import cache, partial
from typing import Any

import gymnasium
import numpy as np
import optree
import pytest
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.testing.contract import plain_loop
from shoal.testing.equality import assert_same
from shoal.testing.spaces import nested_spaces
from shoal.testing.toys import Echo, EverySpace, Stochastic

BACKENDS = ("serial", "thread", "process")
MODES = ("NextStep", "SameStep", "Disabled")
ACTIONS = np.random.default_rng(25).integers(0, 5, (100, 6))

EnvFn = Callable[[], gymnasium.Env]


def check_parity(env_fns: list[EnvFn], mode: str, batches: list[dict[str, Any]], steps: int) -> int:
    """Compares some batches with Gymnasium's, all stepped side by side; returns how many episodes ended."""
    with ExitStack() as stack:
        theirs = stack.enter_context(closing(SyncVectorEnv(env_fns, autoreset_mode=mode)))
        all_ours = [
            (f"{options}", stack.enter_context(closing(shoal.AsyncVectorEnv(env_fns, autoreset_mode=mode, **options))))
            for options in batches
        ]

        def compare(ask: Callable[[Any], Any], what: str) -> Any:
            expected = ask(theirs)
            for name, ours in all_ours:
                assert_same(comparable(ask(ours)), comparable(expected), f"{name}: {what}")
            return expected

        for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
            compare(lambda vec, name=name: getattr(vec, name), name)
        for name in ("num_envs", "metadata", "render_mode", "autoreset_mode", "spec"):
            compare(lambda vec, name=name: getattr(vec, name), name)
        compare(lambda vec: vec.reset(seed=7, options={}), "reset")
        compare(lambda vec: vec.np_random_seed, "seeds")
        compare(lambda vec: vec.action_space.seed(11), "seed of the action space")
        ends = 0
        for step in range(steps):
            actions = compare(lambda vec: vec.action_space.sample(), "sampled actions")
            outcome = compare(lambda vec, actions=actions: vec.step(actions), f"step {step}")
            ended = outcome[2] | outcome[3]
            ends += int(ended.sum())
            if mode == "Disabled" and ended.any():
                # A dictionary for each: Gymnasium takes the mask out of it.
                compare(
                    lambda vec, ended=ended: vec.reset(options={"reset_mask": ended.copy()}),
                    f"reset after step {step}",
                )
        return ends


def comparable(result: Any) -> Any:
    """Returns results of which final observations are arrays, so that a Python number may stand for NumPy's."""
    match result:
        case (*outcome, {"final_obs": finals} as infos):
            finals = [optree.tree_map(np.asarray, final) for final in finals]
            return (*outcome, {**infos, "final_obs": finals})
    return result


def all_batches(num_envs: int) -> list[dict[str, Any]]:
    """Returns the options of batches on each backend with each number of workers."""
    numbers = range(1, min(3, num_envs) + 1)
    return [{"backend": backend, "num_workers": number} for backend in BACKENDS for number in numbers]


def some_batches(num_envs: int, mode: str) -> list[dict[str, Any]]:
    """Returns the options of one batch on each backend; over the modes, each has each number of workers."""
    numbers = [1 + (first + MODES.index(mode)) % min(3, num_envs) for first in range(3)]
    return [{"backend": backend, "num_workers": number} for backend, number in zip(BACKENDS, numbers, strict=True)]


def make_cheetah() -> gymnasium.Env:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=40)


def make_pong(max_episode_steps: int = 100) -> gymnasium.Env:
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.make("ALE/Pong-v5", frameskip=1, max_episode_steps=max_episode_steps)


def make_short_pong() -> gymnasium.Env:
    return make_pong(12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_cart_poles_for_long(num_envs, mode):
    """A pole falls after some twenty steps, and each at another time."""
    env_fns = [partial(gymnasium.make, "CartPole-v1")] * num_envs
    assert check_parity(env_fns, mode, some_batches(num_envs, mode), steps=2000) > 50 * num_envs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_cart_poles(num_envs, mode):
    """Every combination of backend, envs, workers and mode."""
    env_fns = [partial(gymnasium.make, "CartPole-v1")] * num_envs
    assert check_parity(env_fns, mode, all_batches(num_envs), steps=150) > 3 * num_envs


# Each number of envs, each of workers, and each mode.
LONG = pytest.mark.parametrize(
    ("num_envs", "num_workers", "mode"), [(1, 1, "Disabled"), (3, 2, "SameStep"), (8, 3, "NextStep")]
)


@LONG
def test_cheetahs_for_long(num_envs, num_workers, mode):
    """Physics in float64, in which the last bit of an action shows up in all that follows."""
    pytest.importorskip("mujoco")
    batches = [{"backend": "process", "num_workers": num_workers}]
    assert check_parity([make_cheetah] * num_envs, mode, batches, steps=2000) >= 48 * num_envs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_cheetahs(num_envs, mode):
    """In all modes on all backends, until each has ended twice."""
    pytest.importorskip("mujoco")
    assert check_parity([make_cheetah] * num_envs, mode, some_batches(num_envs, mode), steps=85) == 2 * num_envs


@LONG
def test_pongs_for_long(num_envs, num_workers, mode):
    """Images large enough to be lent instead of copied."""
    pytest.importorskip("ale_py")
    batches = [{"backend": "process", "num_workers": num_workers}]
    assert check_parity([make_pong] * num_envs, mode, batches, steps=2000) >= 19 * num_envs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_pongs(num_envs, mode):
    """In all modes on all backends, until each has ended twice."""
    pytest.importorskip("ale_py")
    assert check_parity([make_short_pong] * num_envs, mode, some_batches(num_envs, mode), steps=26) == 2 * num_envs


def every_space(space: Any, action_space: Any) -> EnvFn:
    return partial(EverySpace, space, length=5, end_p=0.1, action_space=action_space)


def echo(space: Any, action_space: Any) -> EnvFn:
    return partial(Echo, action_space, length=3)


def random_envs(*backends: str) -> Callable[[Any], Any]:
    """Gives a test random spaces, numbers of envs and workers, and these backends."""
    return given(
        space=nested_spaces(),
        action_space=nested_spaces(),
        num_envs=st.sampled_from((1, 3, 8)),
        num_workers=st.integers(1, 3),
        backend=st.sampled_from(backends),
    )


def check_random_envs(toy, mode, space, action_space, num_envs, num_workers, backend):
    batches = [{"backend": backend, "num_workers": min(num_workers, num_envs)}]
    check_parity([toy(space, action_space)] * num_envs, mode, batches, steps=12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("toy", [every_space, echo])
@random_envs("serial", "thread")
@settings(max_examples=700)
def test_any_space(toy, mode, **example):
    """Whatever Dicts and Tuples are made of, as observations and as actions, with infos of many kinds."""
    check_random_envs(toy, mode, **example)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("toy", [every_space, echo])
@random_envs("process")
@settings(max_examples=60)
def test_any_space_in_processes(toy, mode, **example):
    """The same with fewer examples, as each starts its workers."""
    check_random_envs(toy, mode, **example)


@cache
def expected_of_stochastic_envs() -> list[tuple[Any, ...]]:
    return list(plain_loop([Stochastic] * 6, 3, ACTIONS))


@pytest.mark.parametrize("num_workers", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "serial"},
        {"backend": "thread"},
        {"start_method": "fork"},
        {"start_method": "spawn"},
        {"start_method": "forkserver"},
        {"shared_memory": False},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_nothing_depends_on_who_does_the_work(options, num_workers):
    """Six random envs give what six single ones give, however they are shared out and workers start."""
    first, *outcomes = expected_of_stochastic_envs()
    assert sum(int(terminations.sum()) for _, _, terminations, _ in outcomes) > 12
    with closing(shoal.AsyncVectorEnv([Stochastic] * 6, num_workers=num_workers, **options)) as vec:
        assert_same(vec.reset(seed=3), (first[0], {}))
        for step, (actions, outcome) in enumerate(zip(ACTIONS, outcomes, strict=True)):
            assert_same(vec.step(actions), (*outcome, {}), f"step {step}")
