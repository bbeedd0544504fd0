"""Observations, rewards and flags: every value arrives as the env gave it and its space says, in its own row."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import FrameStackObservation
from vectors import every_backend, readable, vector

from shoal import MisfitError
from shoal.testing import Counter, Echo, Pixels, ReusedBuffer, Scripted
from shoal.testing.equality import assert_same
from shoal.testing.spaces import BOX_DTYPES

INF = np.inf


def observed(space: gym.Space[Any], observations: list[list[Any]], backend: str = "serial") -> list[Any]:
    """Returns the batches of a reset and of steps; env `i` observes `observations[i]`, one after the other."""
    with vector([partial(Scripted, space, own) for own in observations], backend) as envs:
        batches = [envs.reset()[0]]
        batches += [envs.step([0] * len(observations))[0] for _ in observations[0][1:]]
        assert all(envs.observation_space.contains(batch) for batch in batches)
        return batches


# Values of another type or container than the space says.


@every_backend
def test_wider_floats_are_rounded_to_the_dtype_of_the_space(backend):
    """Most envs compute in float64 and declare float32; its bytes must not be read as float32's."""
    wide = np.array([0.1, 1e10, -3.5])
    for batch in observed(Box(-INF, INF, (3,), np.float32), [[wide, wide]] * 2, backend):
        assert_same(batch, np.array([wide, wide], np.float32))


@every_backend
def test_scalar_box_gives_one_number_for_each_env(backend):
    """Shape `()` plus a batch axis is `(B,)`, alone and in a Dict, whatever kind of number the env returns."""
    scalar = Box(-1, 1, (), np.float32)
    numbers = [[np.float32(0.25 * i), 0.25 * i, np.array(0.25 * i)] for i in range(3)]
    expected = np.array([0, 0.25, 0.5], np.float32)
    for batch in observed(scalar, numbers, backend):
        assert_same(batch, expected)
    inside = [[{"x": number, "y": 1} for number in own] for own in numbers]
    for batch in observed(Dict(x=scalar, y=Discrete(3)), inside, backend):
        assert_same(batch, {"x": expected, "y": np.array([1, 1, 1])})


def extremes(dtype: str) -> tuple[Box, np.ndarray]:
    """Returns a Box over the whole range of a type, and both ends of it."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        low, high = 0, 1
    else:
        limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        low, high = limits.min, limits.max
    return Box(low, high, (3,), kind.type), np.array([low, high, 1], kind)


@pytest.mark.parametrize("dtype", BOX_DTYPES)
def test_every_dtype_keeps_its_extreme_values(dtype):
    """A type that is missing from a table, or goes through float64, shows at its ends."""
    space, value = extremes(dtype)
    assert_same(observed(space, [[value]] * 2), [np.array([value, value])])


@every_backend
def test_dtypes_side_by_side_keep_their_extreme_values(backend):
    """Each leaf has its own place and size in memory; a wrong one would show in its neighbour."""
    space = Dict({dtype: extremes(dtype)[0] for dtype in BOX_DTYPES}, bits=MultiBinary(3), big=Box(0, 2**62, (), int))
    value = {dtype: extremes(dtype)[1] for dtype in BOX_DTYPES}
    value |= {"bits": np.array([1, 0, 1], np.int8), "big": np.int64(2**53 + 1)}
    (batch,) = observed(space, [[value]] * 2, backend)
    assert_same(batch, {key: np.array([item, item]) for key, item in value.items()})


@every_backend
def test_lists_and_python_numbers_are_arrays(backend):
    """Toy envs return `[1, 2]`; it takes no guess to know what is meant."""
    batches = observed(Box(0, 9, (2,), np.float32), [[[1, 2], (3, 4.5)]], backend)
    assert_same(batches, [np.array([[1, 2]], np.float32), np.array([[3, 4.5]], np.float32)])
    (batch,) = observed(Dict(a=Box(0, 9, (1,), np.int32)), [[{"a": [7]}]], backend)
    assert_same(batch, {"a": np.array([[7]], np.int32)})


@every_backend
def test_number_for_a_box_with_an_axis_is_refused(backend):
    """A 7 where `(1,)` is declared would need a guess, and the same guess everywhere."""
    match = r"^env 0: observation\['a'\]: expected int32 of shape \(1,\), found"
    env_fn = partial(Scripted, Dict(a=Box(0, 9, (1,), np.int32)), {"a": 7})
    with vector([env_fn], backend) as envs, pytest.raises(MisfitError, match=match):
        envs.reset()


@every_backend
def test_discrete_takes_every_kind_of_whole_number(backend):
    """Envs compute a category in all kinds of integer; the batch has the dtype of the space."""
    guises = [3, np.int32(3), np.array(3), np.uint8(3)]
    assert_same(observed(Discrete(5), [[guise] for guise in guises], backend), [np.full(4, 3)])


@pytest.mark.parametrize("wrong", [np.array([3]), 3.0, "3", None], ids=readable)
def test_discrete_takes_nothing_but_whole_numbers(wrong):
    """An array of one number would give the batch an axis too many."""
    match = r"^env 1: observation: expected int64"
    env_fns = [partial(Scripted, Discrete(5), each) for each in (3, wrong)]
    with vector(env_fns) as envs, pytest.raises(MisfitError, match=match):
        envs.reset()


@every_backend
def test_numbers_outside_their_space_arrive_unchanged(backend):
    """Bounds are often careless; what the type can hold is the env's business."""
    space = Dict(x=Box(0, 1, (2,), np.float32), n=Discrete(3))
    value = {"x": np.array([-5, np.nan], np.float32), "n": -7}
    with vector([partial(Scripted, space, value)], backend) as envs:
        assert_same(envs.reset()[0], {"x": value["x"][None], "n": np.array([-7])})


# Containers.


@every_backend
def test_dict_goes_by_key_not_by_position(backend):
    """Two envs that write their dictionary in another order must not swap their values."""
    space = Dict({"b": Box(0, 9, (1,)), "a": Box(0, 9, (1,))})
    orders = [[{"a": [1], "b": [2]}], [{"b": [2], "a": [1]}], [{"c": [3], "a": [1], "0": 4, "b": [2]}]]
    (batch,) = observed(space, orders, backend)
    assert_same(batch, {"a": np.full((3, 1), 1, np.float32), "b": np.full((3, 1), 2, np.float32)})


@every_backend
@pytest.mark.parametrize("shared_memory", [True, False])
def test_tuple_may_come_as_a_list_and_is_batched_inside(backend, shared_memory):
    """A tuple of batches, never one entry for each env; the same at any depth."""
    pair = Tuple((Box(0, 9, (2,), np.float32), Discrete(4)))
    nested = Dict(outer=Dict(inner=pair))
    expected = (np.ones((3, 2), np.float32), np.full(3, 3))
    for space, value, batch in (
        (pair, [np.ones(2), 3], expected),
        (nested, {"outer": {"inner": [np.ones(2), 3]}}, {"outer": {"inner": expected}}),
    ):
        with vector([partial(Scripted, space, [value])] * 3, backend, shared_memory=shared_memory) as envs:
            observations, _ = envs.reset()
            assert_same(observations, batch)
            assert envs.observation_space.contains(observations)


@every_backend
def test_empty_dict_is_a_space(backend):
    """An env that only runs has no actions; it must not stop the observation from working."""
    with vector([partial(Counter, index, action_space=Dict()) for index in range(2)], backend) as envs:
        envs.reset()
        assert_same(envs.step({})[0], np.array([[1.0], [101.0]]))
        assert envs.get_attr("last_action") == ({}, {})


# Spaces.


@every_backend
def test_discrete_keeps_its_start(backend):
    """`Discrete(3, start=-1)` has -1, 0 and 1: an offset that is lost shifts every action by one."""
    space = Discrete(3, start=-1)
    with vector([partial(Echo, space)] * 3, backend) as envs:
        envs.reset(seed=0)
        observations, *_, infos = envs.step([-1, 0, 1])
        assert_same(observations, np.array([-1, 0, 1]))
        assert infos["contains"].all() and envs.action_space.contains(np.array([-1, 0, 1]))
        envs.action_space.seed(0)
        assert {int(n) for _ in range(200) for n in envs.action_space.sample()} == {-1, 0, 1}


@every_backend
def test_multi_discrete_keeps_its_axes_and_starts(backend):
    """`nvec` may have any shape, and each element a start of its own."""
    space = MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 10], [0, 0]]))
    with vector([partial(Echo, space)] * 3, backend) as envs:
        assert envs.reset(seed=0)[0].shape == (3, 2, 2)
        envs.action_space.seed(0)
        actions = envs.action_space.sample()
        observations, *_, infos = envs.step(actions)
        assert_same(observations, actions)
        assert observations.dtype == space.dtype and infos["contains"].all()


@every_backend
def test_subclass_of_a_known_space_is_that_space(backend):
    """Projects subclass Box to add a description."""

    class MyBox(Box):
        pass

    with vector([partial(Echo, MyBox(-1, 1, (2,), np.float32))] * 2, backend) as envs:
        envs.reset(seed=0)
        actions = np.array([[0, 1], [-1, 0.5]], np.float32)
        assert_same(envs.step(actions)[0], actions)


# Rewards and flags.


@every_backend
@pytest.mark.parametrize("num_workers", [1, 4])
def test_rewards_of_any_form_are_float64(backend, num_workers):
    """One dtype at every step: also where some envs give an array, and where some only reset."""
    forms = [1, True, np.float32(1), np.array([1.0], np.float32)]
    space, nothing = Box(0, 1, (1,)), np.zeros(1, np.float32)
    env_fns = [
        partial(Scripted, space, nothing, form, [False] * length + [True]) for length, form in enumerate(forms, 2)
    ]
    with vector(env_fns, backend, num_workers=num_workers) as envs:
        envs.reset()
        for t in range(12):
            _, rewards, terminations, truncations, _ = envs.step([0] * 4)
            # With an episode of `length` steps every `length + 1`st call resets.
            resets = [t % (length + 1) == length for length in range(2, 6)]
            assert_same(rewards, np.array([0.0 if reset else 1.0 for reset in resets]))
            assert_same(terminations, np.array([t % (length + 1) == length - 1 for length in range(2, 6)]))
            assert_same(truncations, np.zeros(4, bool))


@every_backend
def test_rewards_are_not_rounded_or_cut(backend):
    """Rewards are the signal; those of unusual size are so for a reason."""
    rewards = [2**40, -1e300, np.inf, np.nan, np.int8(-3), np.float16(0.1), np.array(2.5), np.array([[0.5]])]
    env_fns = [partial(Scripted, Box(0, 1, (1,)), np.zeros(1), reward) for reward in rewards]
    with vector(env_fns, backend, num_workers=3) as envs:
        envs.reset()
        assert_same(envs.step([0] * 8)[1], np.array([np.asarray(reward).item() for reward in rewards], float))


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("reward", [None, np.array([1.0, 2.0]), [1.0, 2.0], "1", {}, 1j], ids=readable)
def test_reward_that_is_no_number_is_refused(reward, num_workers):
    """A forgotten reward must not become NaN, nor an array of rewards its first one."""
    env_fns = [partial(Scripted, Box(0, 1, (1,)), np.zeros(1), [each]) for each in (1.0, reward, 1.0)]
    with vector(env_fns, num_workers=num_workers) as envs:
        envs.reset()
        with pytest.raises(MisfitError, match=r"^env 1: reward: expected float64"):
            envs.step([0, 0, 0])
        envs.reset()


@every_backend
def test_flags_of_any_form_are_bools(backend):
    """Both flags may be set at once; that is one end of an episode, and one reset."""
    flags = [(np.bool_(True), 0), (1, np.bool_(False)), (np.array(True), False), (np.array([True]), 0), (True, True)]
    space, nothing = Box(0, 1, (1,)), np.zeros(1, np.float32)
    env_fns = [partial(Scripted, space, nothing, 1.0, terminated, truncated) for terminated, truncated in flags]
    with vector(env_fns, backend, num_workers=2) as envs:
        envs.reset()
        for _ in range(2):
            _, rewards, terminations, truncations, _ = envs.step([0] * 5)
            assert_same(terminations, np.array([True] * 5))
            assert_same(truncations, np.array([False] * 4 + [True]))
            assert_same(rewards, np.ones(5))
            _, rewards, terminations, truncations, _ = envs.step([0] * 5)
            assert_same((terminations, truncations), (np.zeros(5, bool), np.zeros(5, bool)))
            assert_same(rewards, np.zeros(5))
        assert envs.get_attr("num_resets") == (3,) * 5


@every_backend
def test_flag_of_several_truth_values_is_refused(backend):
    """The env of a batch inside a batch has several; which one ends the episode cannot be guessed."""
    flags = [False, np.array([True, False])]
    env_fns = [partial(Scripted, Box(0, 1, (1,)), np.zeros(1), 1.0, flag) for flag in flags]
    with vector(env_fns, backend) as envs:
        envs.reset()
        with pytest.raises(ValueError) as caught:
            envs.step([0, 0])
        assert any("env 1 raised in step" in note for note in caught.value.__notes__)


# Whose memory it is.


@every_backend
def test_wrapper_that_keeps_frames_sees_what_it_sees_unbatched(backend):
    """Frame stacks hold on to past observations inside the worker."""

    def make():
        return FrameStackObservation(ReusedBuffer(), 3)

    env = make()
    expected = [env.reset()[0].copy(), *(env.step(0)[0].copy() for _ in range(4))]
    with vector([make] * 2, backend) as envs:
        batches = [envs.reset()[0], *(envs.step([0, 0])[0] for _ in range(4))]
    assert_same(batches, [np.stack([stack, stack]) for stack in expected])


@every_backend
@pytest.mark.parametrize("shape", [(2,), (64, 64, 4)], ids=["small", "large"])
def test_batches_of_different_steps_share_no_memory(backend, shape):
    """Small ones are copied and large ones lent; neither may be seen to change."""
    with vector([partial(ReusedBuffer, shape)] * 2, backend) as envs:
        kept = [envs.reset()[0], *(envs.step([0, 0])[0] for _ in range(8))]
    for t, batch in enumerate(kept):
        assert_same(batch, np.full((2, *shape), t, np.float32))
        assert not any(np.shares_memory(batch, other) for other in kept[:t])


LARGE = (64, 64, 4)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@every_backend
def test_large_batches_are_lent_from_few_blocks(backend):
    """A batch that was let go is overwritten: memory does not grow with the number of steps, and nothing is copied."""
    with vector([partial(Pixels, LARGE, index=index) for index in range(2)], backend) as envs:
        envs.reset()
        places = {address(envs.step([0, 0])[0]) for _ in range(20)}
        assert len(places) <= 3


@pytest.mark.parametrize("view", ["row", "reshaped", "other-dtype", "transposed", "memoryview"])
def test_block_is_not_reused_while_a_view_of_it_lives(view):
    """Only a view may be left of a batch, e.g. in a replay buffer; it is as good as the batch."""
    views = {
        "row": lambda batch: batch[1],
        "reshaped": lambda batch: batch.reshape(-1),
        "other-dtype": lambda batch: batch.view(np.uint32),
        "transposed": lambda batch: batch.T[::2],
        "memoryview": lambda batch: np.asarray(memoryview(batch))[1:],
    }
    with vector([partial(Pixels, LARGE, index=index) for index in range(2)]) as envs:
        envs.reset()
        kept, then = [], []
        for _ in range(12):
            kept.append(views[view](envs.step([0, 0])[0]))
            then.append(kept[-1].copy())
        assert all(map(np.array_equal, kept, then))


def test_block_is_lent_again_once_its_views_are_gone():
    """After hoarding, a program that stops hoarding pays for copies no longer."""
    with vector([partial(Pixels, LARGE, index=index) for index in range(2)]) as envs:
        envs.reset()
        hoard = [envs.step([0, 0])[0] for _ in range(10)]
        lent = {address(batch) for batch in hoard[:3]}
        del hoard
        envs.observations = None
        assert {address(envs.step([0, 0])[0]) for _ in range(6)} <= lent


@every_backend
def test_leaves_of_one_batch_may_be_kept_apart(backend):
    """Keeping the small part of an observation must keep it right after the large one is let go."""
    space = Dict(image=Box(0, 255, LARGE, np.uint8), flat=Box(0, 255, (LARGE[0] ** 2,), np.float32))

    class Both(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = space

        def _observation(self):
            return {key: np.full(part.shape, self.t, part.dtype) for key, part in space.items()}

    with vector([Both] * 2, backend) as envs:
        envs.reset()
        kept = [envs.step([0, 0])[0]["flat"] for _ in range(12)]
    for t, batch in enumerate(kept, 1):
        assert_same(batch, np.full((2, LARGE[0] ** 2), t, np.float32))


@every_backend
def test_final_observations_are_the_callers_to_keep(backend):
    """With same-step autoreset the last observation lies in the same block as the next episode's first."""
    env_fns = [partial(Pixels, LARGE, index=index, length=2) for index in range(2)]
    with vector(env_fns, backend, autoreset_mode="SameStep") as envs:
        envs.reset()
        kept = [envs.step([0, 0])[4] for _ in range(12)][1::2]
        for infos in kept:
            assert_same(list(infos["final_obs"]), [Pixels.frame(index, 2, LARGE) for index in range(2)])
            assert_same(infos["_final_obs"], np.array([True, True]))


def test_large_observations_arrive_whole():
    """Every byte of the first and of the last env, beyond any pipe's or offset's small limits."""
    shape = (1024, 1024, 3)
    env_fns = [partial(Scripted, Box(0, 255, shape, np.uint8), np.full(shape, index, np.uint8)) for index in range(4)]
    with vector(env_fns, "process", num_workers=2) as envs:
        batches = [envs.reset()[0], envs.step([0] * 4)[0]]
    for batch in batches:
        assert batch.shape == (4, *shape) and batch.dtype == np.uint8
        assert all((batch[index] == index).all() for index in range(4))


@every_backend
def test_differing_bounds_are_kept_when_asked_for(backend):
    """Each env of a curriculum may have limits of its own; the batched space has a row for each."""
    spaces = [Box(0, high, (2,), np.float32) for high in (1, 5)]
    env_fns = [partial(Scripted, space, np.full(2, space.high[0])) for space in spaces]
    with vector(env_fns, backend, observation_mode="different") as envs:
        assert_same(envs.observation_space.high, np.array([[1, 1], [5, 5]], np.float32))
        observations, _ = envs.reset()
        assert_same(observations, np.array([[1, 1], [5, 5]], np.float32))
        assert envs.observation_space.contains(observations)


@every_backend
def test_spaces_may_be_given_instead_of_compared(backend):
    """A program may know better which space its batch has."""
    single, batched = Box(0, 9, (2,), np.float32), Box(-9, 99, (2, 2), np.float32)
    env_fns = [partial(Scripted, Box(0, high, (2,), np.float32), np.ones(2)) for high in (1, 5)]
    with vector(env_fns, backend, observation_mode=(batched, single)) as envs:
        assert envs.single_observation_space == single and envs.observation_space == batched
        assert envs.action_space == batch_space(Discrete(5), 2)
        assert_same(envs.reset()[0], np.ones((2, 2), np.float32))
