"""Small environments whose every value a test can predict.

Each is a `Counter` that shows something else (`**base` stands for `Counter`'s own arguments). They draw on
`self.np_random` alone, so `reset(seed=...)` fixes all that follows, and constructors can be pickled:
`functools.partial(Counter, index=3)`.
"""

from __future__ import annotations

import copy
import logging
import os
import struct
import subprocess
import sys
import time
import warnings
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import optree
from gymnasium.spaces import Box, Discrete, Space

Infos: TypeAlias = dict[str, Any]
Outcome: TypeAlias = tuple[Any, Any, Any, Any, Infos]  # What `step` returns.


class Counter(gym.Env[Any, Any]):
    """Observes `100 * index + t` as `(1,)` float64, where `t` counts steps; the reward is 1, infos are empty.

    It remembers `last_action` (the object itself; None after a reset), `num_resets`, and `last_seed` and
    `last_options` of the last reset.

    Args:
        index: Tells one env from another.
        length: The episode terminates (`truncates`: is truncated) when `t` gets here; None for never.
        step_s: How long each step sleeps, in seconds.
        render_mode: `"rgb_array"` gives a frame `(4, 6 + index, 3)` filled with `t`, `"rgb_array_list"` a
            list of one such frame, `"ansi"` a line of text.
        action_space: `Discrete(5)` unless given.
    """

    metadata = {"render_modes": ["rgb_array", "rgb_array_list", "ansi"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        index: int = 0,
        length: int | None = None,
        truncates: bool = False,
        step_s: float = 0.0,
        render_mode: str | None = None,
        action_space: Space[Any] | None = None,
    ) -> None:
        self.index, self.length, self.truncates = index, length, truncates
        self.step_s, self.render_mode = step_s, render_mode
        self.observation_space: Space[Any] = Box(-1e9, 1e9, (1,), np.float64)
        self.action_space = Discrete(5) if action_space is None else copy.deepcopy(action_space)
        self.t, self.num_resets = 0, 0
        self.last_action: Any = None
        self.last_seed: int | None = None
        self.last_options: Infos | None = None

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        """Starts an episode at `t == 0`."""
        super().reset(seed=seed)
        self.t, self.num_resets = 0, self.num_resets + 1
        self.last_action, self.last_seed, self.last_options = None, seed, options
        # So that samples of the space follow from the seed, too.
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self._outcome()[::4]

    def step(self, action: Any) -> Outcome:
        """Moves time on by one."""
        if self.step_s:
            time.sleep(self.step_s)
        self.t, self.last_action = self.t + 1, action
        return self._outcome()

    def render(self) -> Any:
        """Returns what `render_mode` asks for; None without a mode."""
        frame = np.full((4, 6 + self.index, 3), self.t % 256, np.uint8)
        text = f"env {self.index} at {self.t}"
        return {"rgb_array": frame, "rgb_array_list": [frame], "ansi": text}.get(self.render_mode or "")

    def _outcome(self) -> Outcome:
        over = self.length is not None and self.t >= self.length
        return self._observation(), 1.0, over and not self.truncates, over and self.truncates, {}

    def _observation(self) -> Any:
        return np.array([100.0 * self.index + self.t])


class Echo(Counter):
    """Observes a deep copy of the action it got; a reset observes a sample of the space.

    After a step, `info["type"]` names the action's class and `info["contains"]` tells whether it fits.
    """

    def __init__(self, space: Space[Any], **base: Any) -> None:
        super().__init__(action_space=space, **base)
        self.observation_space = copy.deepcopy(space)

    def _outcome(self) -> Outcome:
        *_, over, late, info = super()._outcome()
        if not self.t:
            return self.observation_space.sample(), 0.0, over, late, info
        action = copy.deepcopy(self.last_action)
        # `Box.contains` wants arrays, but a row of a batch of scalars is a NumPy scalar.
        rows = optree.tree_map(lambda x: np.asarray(x) if isinstance(x, np.number | np.bool_) else x, action)
        info = {"type": type(action).__name__, "contains": bool(self.action_space.contains(rows))}
        return action, 1.0, over, late, info


class EverySpace(Counter):
    """Random samples of any space, random rewards, random ends and, if `infos`, infos of many kinds.

    Each step terminates and truncates the episode with a chance of `end_p` each; at `length` it is truncated.
    A key of the infos keeps its type and shape, but is often missing. Actions and `infos` change no draw.
    """

    def __init__(
        self, space: Space[Any], length: int | None = 20, end_p: float = 0.05, infos: bool = True, **base: Any
    ) -> None:
        super().__init__(length=length, **base)
        self.observation_space = copy.deepcopy(space)
        self.end_p, self.infos = end_p, infos

    def _outcome(self) -> Outcome:
        rng, late = self.np_random, self.length is not None and self.t >= self.length
        observation = self.observation_space.sample()
        terminated, truncated = (bool(by_chance) for by_chance in rng.random(2) < self.end_p)
        infos = _random_infos(rng)
        return observation, float(rng.normal()), terminated, truncated or late, infos if self.infos else {}


def _random_infos(rng: np.random.Generator) -> Infos:
    def some(**infos: Any) -> Infos:
        return {key: value for key, value in infos.items() if rng.random() < 0.7}

    deep = some(y=rng.normal(size=1), flag=bool(rng.random() < 0.5))
    return some(
        count=int(rng.integers(-1000, 1000)),
        loss=float(rng.normal()),
        speed=np.float32(rng.normal()),
        position=rng.normal(size=2),
        cells=rng.integers(0, 256, (2, 3), dtype=np.uint8),
        word=("", "go", "naïve café", "longer than the others")[rng.integers(4)],
        nested=some(x=int(rng.integers(100)), name=rng.bytes(2).hex(), deep=deep),
    )


class ReusedBuffer(Counter):
    """Observes `t` in every element of one array, `buffer`, which it rewrites in place for ever."""

    def __init__(self, shape: tuple[int, ...] = (2,), dtype: Any = np.float32, **base: Any) -> None:
        super().__init__(**base)
        self.buffer: npt.NDArray[Any] = np.zeros(shape, dtype)
        low, high = (-np.inf, np.inf) if self.buffer.dtype.kind == "f" else (0, 127)
        self.observation_space = Box(low, high, shape, self.buffer.dtype.type)

    def _observation(self) -> Any:
        self.buffer.fill(self.t)
        return self.buffer


class Scripted(Counter):
    """Returns the values it was given, neither checked nor copied (but each info in a new dict).

    An argument is one value for ever or a `list` of values, where entry `t` belongs to time `t`: entry 0 to
    the reset (which has no reward and no flags, so theirs is not used), entry 1 to the first step; the last
    entry stays. To give a list *as* a value, put it into a list.
    """

    def __init__(
        self,
        space: Space[Any],
        observations: Any,
        rewards: Any = 0.0,
        terminated: Any = False,
        truncated: Any = False,
        infos: Any = None,
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.observation_space = copy.deepcopy(space)
        self.scripts = (observations, rewards, terminated, truncated, infos)

    def _outcome(self) -> Outcome:
        *outcome, info = (s[min(self.t, len(s) - 1)] if isinstance(s, list) else s for s in self.scripts)
        return (*outcome, dict(info or {}))


class Stochastic(Counter):
    """Observes noise plus the sum of its actions, `(3,)` float32; a step terminates with `length_p`."""

    def __init__(self, length_p: float = 0.1) -> None:
        super().__init__()
        self.length_p, self.state = length_p, np.float32(0)
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)

    def _outcome(self) -> Outcome:
        rng = self.np_random
        self.state = self.state + np.float32(self.last_action) if self.t else np.float32(0)
        observation = self.state + rng.standard_normal(3, np.float32)
        return observation, float(rng.normal()), bool(rng.random() < self.length_p), False, {}


class Sleeper(Counter):
    """Sleeps in its constructor, in each reset and in each step, in seconds."""

    def __init__(self, step_s: float, reset_s: float = 0.0, init_s: float = 0.0, **base: Any) -> None:
        time.sleep(init_s)
        super().__init__(step_s=step_s, **base)
        self.reset_s = reset_s

    def _outcome(self) -> Outcome:
        time.sleep(0.0 if self.t else self.reset_s)
        return super()._outcome()


class Pixels(Counter):
    """Observes a uint8 image in which every byte follows from `index` and `t`: see `frame`."""

    def __init__(self, shape: tuple[int, ...] = (84, 84, 4), **base: Any) -> None:
        super().__init__(**base)
        self.observation_space = Box(0, 255, shape, np.uint8)

    @staticmethod
    def frame(index: int, t: int, shape: tuple[int, ...] = (84, 84, 4)) -> npt.NDArray[np.uint8]:
        """Returns the image of env `index` at `t`.

        The bytes of both numbers, lowest first and in turn, are repeated, the k-th time with k added to each:
        images of other envs, images of other times and shifted images all differ.
        """
        word = np.frombuffer(struct.pack("<II", index, t), np.uint8).reshape(2, 4).T.ravel()
        size = int(np.prod(shape))
        repetition = np.arange(-(-size // 8)).astype(np.uint8)
        return np.ravel(repetition[:, None] + word)[:size].reshape(shape)

    def _observation(self) -> Any:
        return self.frame(self.index, self.t, self.observation_space.shape or ())


class Chatty(Counter):
    """Warns when built; each reset and step prints `bytes_per_step`, writes to descriptor 1 and logs."""

    def __init__(self, bytes_per_step: int = 200_000, **base: Any) -> None:
        super().__init__(**base)
        self.bytes_per_step = bytes_per_step
        warnings.warn("a chatty env was built", UserWarning, stacklevel=2)

    def _outcome(self) -> Outcome:
        print("x" * (self.bytes_per_step - 1))
        os.write(1, b"straight to descriptor 1\n")
        logging.getLogger(__name__).warning("env %d is at %d", self.index, self.t)
        return super()._outcome()


class Parental(Counter):
    """Has a child process, `child_pid`, which sleeps until `close` ends it."""

    def __init__(self, **base: Any) -> None:
        super().__init__(**base)
        command, no = [sys.executable, "-c", "import time; time.sleep(600)"], subprocess.DEVNULL
        self._child = subprocess.Popen(command, stdin=no, stdout=no, stderr=no)
        self.child_pid = self._child.pid

    def close(self) -> None:
        """Ends the child and waits for it."""
        self._child.kill()
        self._child.wait()


class Attributed(Counter):
    """Has attributes and methods of many kinds; `goal` is the reward if it is a number."""

    goal: Any = 0
    w: Any = None
    _private = "private"
    fn = staticmethod(lambda value: value)

    @property
    def broken(self) -> Any:
        """Always raises a RuntimeError."""
        raise RuntimeError("this property is broken")

    def f(self, x: Any, name: Any = None) -> tuple[Any, Any]:
        """Returns its arguments."""
        return x, name

    def add(self, a: Any, b: Any) -> Any:
        """Returns the sum."""
        return a + b

    def _outcome(self) -> Outcome:
        observation, _, *rest = super()._outcome()
        return (observation, float(self.goal) if isinstance(self.goal, (int, float)) else 0.0, *rest)
