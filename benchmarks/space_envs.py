"""Envs whose observations are anything but one small array, to be measured: `space_envs:Mixed-v0` and others."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

EPISODE = 200  # steps
WORDS = ("reach", "the", "green", "door", "before", "lights", "go", "out")


class _Endless(gymnasium.Env[Any, Any]):
    """An env that is nothing but its observations."""

    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._count = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        return self._observe(), 1.0, self._count == EPISODE, False, {}

    def _observe(self) -> Any:
        raise NotImplementedError


class Mixed(_Endless):
    """Four stacked camera frames, 32 numbers, and a nested tuple."""

    observation_space = spaces.Dict(
        frames=spaces.Box(0, 255, (84, 84, 4), np.uint8),
        numbers=spaces.Box(-np.inf, np.inf, (32,), np.float32),
        rest=spaces.Tuple((spaces.Discrete(10), spaces.Tuple((spaces.MultiBinary(4), spaces.Box(0, 1, (2, 2)))))),
    )

    def __init__(self) -> None:
        super().__init__()
        self._frames = np.zeros((84, 84, 4), np.uint8)

    def _observe(self) -> Any:
        frames = self._frames.copy()
        frames[..., :3] = self._frames[..., 1:]
        frames[..., 3] = self.np_random.integers(0, 256, (84, 84), np.uint8)
        self._frames = frames
        rest = (self._count % 10, (np.ones(4, np.int8), np.full((2, 2), 0.5, np.float32)))
        return {"frames": frames, "numbers": self.np_random.standard_normal(32, np.float32), "rest": rest}


class Mission(_Endless):
    """A sentence."""

    observation_space = spaces.Text(80, charset=frozenset("abcdefghijklmnopqrstuvwxyz "))

    def _observe(self) -> Any:
        return " ".join(self.np_random.choice(WORDS, 5))


class Objects(_Endless):
    """As many objects as there happen to be."""

    observation_space = spaces.Sequence(spaces.Box(-10, 10, (4,)), stack=True)

    def _observe(self) -> Any:
        return self.np_random.uniform(-10, 10, (self.np_random.integers(0, 30), 4)).astype(np.float32)


for _class in (Mixed, Mission, Objects):
    gymnasium.register(f"{_class.__name__}-v0", entry_point=f"space_envs:{_class.__name__}", disable_env_checker=True)
