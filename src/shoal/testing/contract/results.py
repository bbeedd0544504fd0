"""What comes back from a step: its form, its rows, its infos, and whose it is from then on."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import optree
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space

from shoal.testing.contract.makers import NUM_ENVS, Make, counted, counters
from shoal.testing.equality import assert_same
from shoal.testing.toys import Counter, Echo, EverySpace, Pixels, ReusedBuffer, Scripted

SPACES = {
    "box": Box(-1, 1, (2, 3), np.float32),
    "discrete": Discrete(3, start=-1),
    "nested": Dict(
        b=Box(0, 255, (4, 3), np.uint8),
        a=Tuple((Discrete(4), Tuple((Box(-1, 1, (), np.float64), MultiBinary(2))))),
        multi=MultiDiscrete(np.array([[2, 3], [4, 5]])),
        empty=Box(-1, 1, (0,), np.float32),
    ),
}
# Batches of a few bytes may be handed out in another way than batches of many.
SMALL, LARGE = (4, 3), (84, 84, 4)
NOTHING = [0] * NUM_ENVS  # Actions that say nothing.


def frames(t: int, shape: tuple[int, ...]) -> Any:
    """Returns what `Pixels` envs observe at time `t`."""
    return np.stack([Pixels.frame(index, t, shape) for index in range(NUM_ENVS)])


def make_pixels(make_vec: Make, shape: tuple[int, ...], **options: Any) -> Any:
    """Returns a batch of `Pixels`."""
    return make_vec([partial(Pixels, shape, index=index) for index in range(NUM_ENVS)], **options)


def make_informers(make_vec: Make, *infos: list[dict[str, Any]]) -> Any:
    """Returns a batch in which env `i` gives the infos `infos[i]`, one a step, and none at the reset."""
    space, observation = Box(0, 1, (1,)), np.zeros(1, np.float32)
    vec = make_vec([partial(Scripted, space, observation, infos=[{}, *own]) for own in infos])
    assert_same(vec.reset()[1], {})
    return vec


class Remembering(Counter):
    """Keeps the objects that it got as actions."""

    def __init__(self, **base: Any) -> None:
        super().__init__(action_space=SPACES["nested"], **base)
        self.actions: list[Any] = []

    def step(self, action: Any) -> Any:
        """Counts on."""
        self.actions.append(action)
        return super().step(action)


class ResultsContract:
    """Values arrive unchanged, in their own row, in their own step, and stay as they are."""

    @pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
    def test_batches_are_as_their_spaces_say(self, make_vec: Make, space: Any) -> None:
        """A network that is built from the spaces must be able to read every batch."""
        vec = make_vec([partial(Echo, space, index=index) for index in range(NUM_ENVS)])
        assert vec.num_envs == NUM_ENVS
        assert vec.single_observation_space == vec.single_action_space == space
        assert vec.observation_space == vec.action_space == batch_space(space, NUM_ENVS)
        vec.action_space.seed(3)
        actions = vec.action_space.sample()
        observations, _ = vec.reset(seed=0)
        assert vec.observation_space.contains(observations)
        assert_same(optree.tree_map(_form, observations), optree.tree_map(_form, actions))
        observations, *flags, infos = vec.step(actions)
        assert_same(observations, actions, "observations that echo the actions")
        assert_same([_form(array) for array in flags], [_form(np.zeros(NUM_ENVS, kind)) for kind in "d??"])
        assert infos["contains"].all()

    @pytest.mark.parametrize("num_envs", [1, 2, NUM_ENVS, 7])
    def test_rows_are_in_the_order_of_the_functions(self, make_vec: Make, num_envs: int) -> None:
        """However the envs are split over workers; one env keeps the batch axis."""
        vec = make_vec(counters(num_envs))
        actions = np.arange(num_envs) * 3 % 5
        assert_same(vec.reset(), (counted(0, num_envs), {}))
        for t in range(1, 4):
            observations, rewards, terminations, truncations, infos = vec.step(actions)
            assert_same(observations, counted(t, num_envs))
            assert_same(rewards, np.ones(num_envs))
            assert_same((terminations, truncations), (np.zeros(num_envs, bool), np.zeros(num_envs, bool)))
            assert_same(infos, {})
        assert vec.get_attr("last_action") == tuple(actions)

    def test_infos_are_columns_with_masks(self, make_vec: Make) -> None:
        """Whoever reads an info must see which envs gave it, nested or not, and nothing of the step before."""
        first: dict[str, Any] = {"a": 1, "n": {"x": 2.5, "y": None}}
        third: dict[str, Any] = {"a": None, "s": "txt", "f": np.bool_(True), "n": {"x": 7}}
        vec = make_informers(make_vec, [first, {}], [{}, {"a": 9}], [third, {}])
        infos = vec.step([0, 0, 0])[4]
        assert infos.keys() == {"a", "_a", "n", "_n", "s", "_s", "f", "_f"}
        assert infos["n"].keys() == {"x", "_x", "y", "_y"}
        for mask in (infos["_a"], infos["_n"], infos["n"]["_x"]):
            assert_same(mask, np.array([True, False, True]))
        assert_same(infos["n"]["_y"], np.array([True, False, False]))
        assert_same(infos["_s"], np.array([False, False, True]))
        assert (infos["a"][0], infos["a"][2], infos["s"][2], infos["f"][2]) == (1, None, "txt", True)
        assert (infos["n"]["x"][0], infos["n"]["x"][2], infos["n"]["y"][0]) == (2.5, 7, None)
        expected = {"a": np.array([0, 9, 0]), "_a": np.array([False, True, False])}
        assert_same(vec.step([0, 0, 0])[4], expected)

    def test_infos_of_unequal_form_are_kept_whole(self, make_vec: Make) -> None:
        """Lengths that differ, and a float after an int, are no reason to cut a value or to fail."""
        paths = [[np.arange(n, dtype=np.int16) for n in lengths] for lengths in ((1, 3), (2, 3), (4, 1))]
        numbers: list[Any] = [1, 2.5, True]
        scripts = [[{"path": path, "v": v} for path in own] for own, v in zip(paths, numbers, strict=True)]
        vec = make_informers(make_vec, *scripts)
        for step in range(2):
            infos = vec.step([0, 0, 0])[4]
            assert list(infos["v"]) == numbers
            for row, own in enumerate(paths):
                assert_same(infos["path"][row], own[step])

    @pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
    def test_hoarded_results_never_change(self, make_vec: Make, mode: str) -> None:
        """A replay buffer keeps what it got: observations, rewards, flags and infos alike."""
        space = Dict(image=Box(0, 255, LARGE, np.uint8), state=Box(-1, 1, SMALL, np.float32))
        vec = make_vec([partial(EverySpace, space, index=i) for i in range(NUM_ENVS)], autoreset_mode=mode)
        hoard = [vec.reset(seed=1)]
        then = [copy.deepcopy(hoard[0])]
        for _ in range(20):
            hoard.append(vec.step(NOTHING))
            then.append(copy.deepcopy(hoard[-1]))
        assert_same(hoard, then)

    @pytest.mark.parametrize("shape", [SMALL, LARGE])
    def test_many_held_batches_are_right_and_so_are_those_after(self, make_vec: Make, shape: tuple[int, ...]) -> None:
        """Running out of memory to lend, and getting it back, must not show."""
        vec = make_pixels(make_vec, shape)
        t = 0
        for held in (20, 3, 20):
            hoard = [vec.reset()[0], *(vec.step(NOTHING)[0] for _ in range(held))]
            for t, observations in enumerate(hoard):
                assert_same(observations, frames(t, shape))

    @pytest.mark.parametrize("shape", [SMALL, LARGE])
    def test_views_of_results_never_change(self, make_vec: Make, shape: tuple[int, ...]) -> None:
        """The array itself may be gone while a view of a view, or a memoryview, is still in use."""
        vec = make_pixels(make_vec, shape)
        vec.reset()
        views = [vec.step(NOTHING)[0][1:][:, ::2].T for _ in range(6)]
        buffers = [memoryview(vec.step(NOTHING)[0])[2:] for _ in range(6)]
        for t, view in enumerate(views, 1):
            assert_same(view.copy(), frames(t, shape)[1:, ::2].T.copy())
        for t, buffer in enumerate(buffers, 7):
            assert buffer.tobytes() == frames(t, shape)[2:].tobytes()

    @pytest.mark.parametrize("shape", [SMALL, LARGE])
    def test_writing_into_results_harms_nothing(self, make_vec: Make, shape: tuple[int, ...]) -> None:
        """What the caller got is the caller's: augmenting images in place must not reach later steps."""
        vec = make_pixels(make_vec, shape)
        vec.reset()[0].fill(77)
        for t in range(1, 8):
            observations, rewards, terminations, truncations, _ = vec.step(NOTHING)
            assert_same(observations, frames(t, shape))
            assert_same((rewards, terminations | truncations), (np.ones(NUM_ENVS), np.zeros(NUM_ENVS, bool)))
            for array in (observations, rewards, terminations, truncations):
                array.fill(77)
        mask = np.arange(NUM_ENVS) == 0
        observations, _ = vec.reset(options={"reset_mask": mask})
        assert_same(observations[0], Pixels.frame(0, 0, shape))
        assert_same(observations[1:], frames(7, shape)[1:], "rows that were left alone")

    def test_an_env_may_rewrite_its_own_array(self, make_vec: Make) -> None:
        """Many envs observe one buffer for ever; the caller must not see it change."""
        vec = make_vec([ReusedBuffer] * NUM_ENVS)
        kept = [vec.reset()[0], *(vec.step(NOTHING)[0] for _ in range(3))]
        for t, observations in enumerate(kept):
            assert_same(observations, np.full((NUM_ENVS, 2), t, np.float32))

    def test_actions_are_taken_when_a_step_starts(self, make_vec: Make) -> None:
        """The caller may reuse the array of actions while the envs are at work."""
        vec = make_vec(counters())
        vec.reset()
        actions = np.array([4, 3, 2, 1, 0])
        vec.step_async(actions)
        actions.fill(0)
        vec.step_wait()
        assert vec.get_attr("last_action") == (4, 3, 2, 1, 0)

    def test_an_env_may_keep_its_actions(self, make_vec: Make) -> None:
        """Frame stacks and logs do; what they keep must not become the next action."""
        vec = make_vec([Remembering] * NUM_ENVS)
        vec.reset()
        vec.action_space.seed(5)
        batches = [vec.action_space.sample() for _ in range(3)]
        for actions in batches:
            vec.step(actions)
        for row, kept in enumerate(vec.get_attr("actions")):
            assert_same(kept, [optree.tree_map(lambda leaf, row=row: leaf[row], actions) for actions in batches])

    @pytest.mark.parametrize("shape", [SMALL, LARGE])
    def test_without_copies_one_buffer_is_used_again(self, make_vec: Make, shape: tuple[int, ...]) -> None:
        """`copy=False` is for those who read a batch before they ask for the next."""
        vec = make_pixels(make_vec, shape, copy=False)
        first = vec.reset()[0]
        for t in range(1, 4):
            assert np.shares_memory(first, vec.step(NOTHING)[0])
            assert_same(first, frames(t, shape))


def _form(array: Any) -> Any:
    """Returns the array's type, dtype and shape."""
    return type(array), array.dtype, array.shape
