"""Gymnasium's vector wrappers over `shoal.AsyncVectorEnv` do what they do over `SyncVectorEnv`, value for value.

Those that resize, record or make tensors are exercised where the packages that they need are installed; those of JAX
and the one that opens a window are not.
"""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import shoal
from shoal.testing.equality import assert_same

NUM_ENVS = 4


class Camera(gymnasium.Env[Any, Any]):
    """Small pictures with an episode's length of its own, and infos that come and go."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space = spaces.Box(0, 255, (12, 16, 3), np.uint8)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, index: int, render_mode: str | None = "rgb_array") -> None:
        self.index, self.render_mode = index, render_mode
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self._picture(), {"started": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        info: dict[str, Any] = {"sum": float(np.sum(action))}
        if self.count % 3 == 0:
            info["third"] = np.full(2, self.count)
        ends = self.count == 5 + self.index
        return self._picture(), float(self.np_random.normal()), ends, self.count == 9, info

    def render(self) -> np.ndarray:
        return np.full((12, 16, 3), self.count, np.uint8)

    def _picture(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (12, 16, 3), np.uint8)


class Pair(Camera):
    """A picture and numbers."""

    observation_space = spaces.Dict(picture=Camera.observation_space, numbers=spaces.Box(-9, 9, (3,), np.float32))

    def _picture(self) -> Any:
        numbers = self.np_random.uniform(-9, 9, 3).astype(np.float32)
        return {"picture": super()._picture(), "numbers": numbers}


def cart_pole(index: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", render_mode="rgb_array")


def pendulum(index: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", max_episode_steps=7 + index)


def halved(observations: np.ndarray) -> np.ndarray:
    return observations / 2


CASES = {
    "RecordEpisodeStatistics": (cart_pole, wrappers.RecordEpisodeStatistics),
    "RecordEpisodeStatistics, key": (pendulum, partial(wrappers.RecordEpisodeStatistics, stats_key="stats")),
    "DictInfoToList": (Camera, wrappers.DictInfoToList),
    "DictInfoToList over statistics": (
        Camera,
        lambda envs: wrappers.DictInfoToList(wrappers.RecordEpisodeStatistics(envs)),
    ),
    "NormalizeObservation": (cart_pole, wrappers.NormalizeObservation),
    "NormalizeReward": (pendulum, wrappers.NormalizeReward),
    "TransformObservation": (cart_pole, lambda envs: wrappers.TransformObservation(envs, halved)),
    "FilterObservation": (Pair, partial(wrappers.FilterObservation, filter_keys=["numbers"])),
    "FlattenObservation": (Camera, wrappers.FlattenObservation),
    "FlattenObservation of a Dict": (Pair, wrappers.FlattenObservation),
    "GrayscaleObservation": (Camera, wrappers.GrayscaleObservation),
    "GrayscaleObservation, kept": (Camera, partial(wrappers.GrayscaleObservation, keep_dim=True)),
    "ResizeObservation": (Camera, partial(wrappers.ResizeObservation, shape=(6, 8))),
    "ReshapeObservation": (Camera, partial(wrappers.ReshapeObservation, shape=(12, 48))),
    "RescaleObservation": (Camera, partial(wrappers.RescaleObservation, min_obs=0, max_obs=100)),
    "DtypeObservation": (Camera, partial(wrappers.DtypeObservation, dtype=np.float32)),
    "TransformAction": (pendulum, lambda envs: wrappers.TransformAction(envs, halved)),
    "ClipAction": (pendulum, wrappers.ClipAction),
    "RescaleAction": (
        pendulum,
        partial(wrappers.RescaleAction, min_action=np.zeros(1, np.float32), max_action=np.ones(1, np.float32)),
    ),
    "TransformReward": (cart_pole, partial(wrappers.TransformReward, func=lambda rewards: rewards * 3)),
    "ClipReward": (pendulum, partial(wrappers.ClipReward, min_reward=-1.0, max_reward=0.0)),
    "VectorizeTransformObservation": (
        Camera,
        partial(
            wrappers.VectorizeTransformObservation,
            wrapper=gymnasium.wrappers.TransformObservation,
            func=halved,
            observation_space=spaces.Box(0, 128, (12, 16, 3), np.float64),
        ),
    ),
    "VectorizeTransformAction": (
        pendulum,
        partial(
            wrappers.VectorizeTransformAction,
            wrapper=gymnasium.wrappers.TransformAction,
            func=halved,
            action_space=spaces.Box(-4, 4, (1,), np.float32),
        ),
    ),
    "VectorizeTransformReward": (
        pendulum,
        partial(
            wrappers.VectorizeTransformReward,
            wrapper=gymnasium.wrappers.TransformReward,
            func=lambda reward: reward - 1,
        ),
    ),
    "several": (
        cart_pole,
        lambda envs: wrappers.NormalizeReward(wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(envs))),
    ),
}
# What they need beside Gymnasium.
PACKAGES = {"ResizeObservation": "cv2"}
# Tested by themselves below, or not at all.
OTHERS = {
    "ArrayConversion", "JaxToNumpy", "JaxToTorch", "NumpyToTorch", "HumanRendering", "RecordVideo",
}  # fmt: skip


def without_times(infos: Any) -> Any:
    """Returns infos without how long episodes took, which is nobody's to repeat."""
    if isinstance(infos, list):
        return [without_times(info) for info in infos]
    if not isinstance(infos, dict):
        return infos
    return {key: without_times(value) for key, value in infos.items() if key not in ("t", "_t")}


def test_every_wrapper_of_this_gymnasium_is_exercised():
    """One that is new there is not forgotten here."""
    tried = {name.partition(",")[0].partition(" ")[0] for name in CASES} - {"several"}
    assert tried | OTHERS >= set(wrappers.__all__)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", CASES)
def test_wrapper_does_the_same_over_both(name, mode):
    """Spaces, results and infos of 40 steps; and it closes what it is around."""
    if package := PACKAGES.get(name.partition(",")[0]):
        pytest.importorskip(package)
    env_fn, wrap = CASES[name]
    env_fns = [partial(env_fn, index) for index in range(NUM_ENVS)]
    try:
        theirs = wrap(SyncVectorEnv(env_fns, autoreset_mode=mode))
    except ValueError as refusal:
        # Wrappers of observations do not see the last ones of a same-step autoreset.
        assert mode == "SameStep"
        with (
            closing(shoal.AsyncVectorEnv(env_fns, autoreset_mode=mode)) as envs,
            pytest.raises(ValueError, match=re.escape(str(refusal))),
        ):
            wrap(envs)
        return
    with closing(theirs), closing(wrap(shoal.AsyncVectorEnv(env_fns, num_workers=2, autoreset_mode=mode))) as ours:
        for attribute in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
            assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
        assert ours.num_envs == NUM_ENVS
        assert type(ours.unwrapped) is shoal.AsyncVectorEnv
        expected, actual = theirs.reset(seed=3), ours.reset(seed=3)
        assert_same(without_times(list(actual)), without_times(list(expected)), "reset")
        theirs.action_space.seed(5)
        for step in range(40):
            actions = theirs.action_space.sample()
            expected, actual = theirs.step(actions), ours.step(actions)
            assert_same(without_times(list(actual)), without_times(list(expected)), f"step {step}")
        worker_pids = ours.unwrapped.worker_pids
    assert ours.unwrapped.closed
    assert len(set(worker_pids)) == 2


def test_statistics_are_those_of_the_episodes():
    """Not only the same as elsewhere: the sum of the rewards that were seen, and their number."""
    with closing(shoal.AsyncVectorEnv([partial(cart_pole, index) for index in range(NUM_ENVS)])) as envs:
        recorded = wrappers.RecordEpisodeStatistics(envs)
        recorded.reset(seed=1)
        ended = 0
        lengths = np.zeros(NUM_ENVS, int)
        starts = np.zeros(NUM_ENVS, bool)
        for _ in range(100):
            *_, terminations, truncations, infos = recorded.step(np.zeros(NUM_ENVS, int))
            lengths = np.where(starts, 0, lengths + 1)
            starts = terminations | truncations
            for row in np.flatnonzero(starts):
                assert infos["episode"]["l"][row] == infos["episode"]["r"][row] == lengths[row]
                ended += 1
        assert ended > 10


def test_tensors():
    """The wrapper that trainers in torch use."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    env_fns = [partial(cart_pole, index) for index in range(NUM_ENVS)]
    with closing(wrappers.NumpyToTorch(shoal.AsyncVectorEnv(env_fns))) as ours:
        observations, _ = ours.reset(seed=3)
        assert observations.shape == (NUM_ENVS, 4)
        _, rewards, terminations, *_ = ours.step(torch.zeros(NUM_ENVS, dtype=torch.int64))
        assert rewards.tolist() == [1.0] * NUM_ENVS
        assert terminations.dtype is torch.bool


def test_video(tmp_path):
    """Gymnasium's recorder takes the frames that `render` gives."""
    pytest.importorskip("moviepy")
    env_fns = [partial(Camera, index) for index in range(NUM_ENVS)]
    envs = shoal.AsyncVectorEnv(env_fns)
    with closing(
        wrappers.RecordVideo(envs, str(tmp_path / "videos"), episode_trigger=lambda episode: episode == 0)
    ) as ours:
        ours.reset(seed=3)
        for _ in range(12):
            ours.step(ours.action_space.sample())
    assert [path.suffix for path in (tmp_path / "videos").iterdir() if path.suffix == ".mp4"]
