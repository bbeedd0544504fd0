"""Small `PyEnvironment`s whose every value a test can predict, and batches of them."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.adapters.tf_agents import (
    ArraySpec,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    restart,
    termination,
    transition,
    truncation,
)
from shoal.testing import faults
from shoal.testing.faults import Fault

SCALAR = ArraySpec((), np.float32)


class Point(NamedTuple):
    x: Any
    y: Any


# Every kind of container, and keys that are not in order.
NESTED = {
    "turn": BoundedArraySpec((), np.int64, 0, 9),
    "move": (ArraySpec((2,), np.float32), [ArraySpec((), np.int32), ArraySpec((1, 2), np.uint8)]),
    "at": Point(ArraySpec((), np.float64), {"z": ArraySpec((2,), np.bool_), "a": ArraySpec((), np.int8)}),
}


def nested_actions(*seeds: int) -> Any:
    """Returns a batch of actions of `NESTED`, a row for each number."""
    t = np.array(seeds)
    return {
        "move": (
            np.stack([t, t + 0.5], 1).astype(np.float32),
            [t.astype(np.int32), np.stack([t, t + 1], 1).astype(np.uint8)[:, None]],
        ),
        "turn": t % 10,
        "at": Point(t / 4, {"a": -t.astype(np.int8), "z": np.stack([t % 2 == 0, t % 2 == 1], 1)}),
    }


class Counter(PyEnvironment):
    """Observes `100 * index + t` as `(1,)` float64; the reward is 1 and the discount 0.5, 0 when it terminates.

    It remembers its `last_action` (the object itself) and `num_resets`.

    Args:
        index: Tells one env from another.
        length: The episode terminates (`truncates`: is truncated) when `t` gets here; None for never.
        action_spec: Whatever it is, actions change nothing.
        observation_name: Name of the observation's spec.
    """

    def __init__(
        self,
        index: int = 0,
        length: int | None = None,
        truncates: bool = False,
        action_spec: Any = None,
        observation_name: str = "observation",
    ) -> None:
        super().__init__(handle_auto_reset=True)
        self.index, self.length, self.truncates = index, length, truncates
        self.t, self.num_resets = 0, 0
        self.last_action: Any = None
        self._secret = f"secret of {index}"
        self._own_action_spec = BoundedArraySpec((), np.int32, 0, 4, "action") if action_spec is None else action_spec
        self._observation_name = observation_name

    def observation_spec(self) -> Any:
        return ArraySpec((1,), np.float64, self._observation_name)

    def action_spec(self) -> Any:
        return self._own_action_spec

    def _reset(self) -> Any:
        self.t, self.num_resets, self.last_action = 0, self.num_resets + 1, None
        return restart(self._observation())

    def _step(self, action: Any) -> Any:
        self.t, self.last_action = self.t + 1, action
        if self.length is None or self.t < self.length:
            return transition(self._observation(), 1.0, 0.5)
        if self.truncates:
            return truncation(self._observation(), 1.0, 0.5)
        return termination(self._observation(), 1.0)

    def _observation(self) -> Any:
        return np.array([100.0 * self.index + self.t])

    def add(self, a: Any, b: Any = 0) -> Any:
        """Returns the sum."""
        return a + b

    def get_t(self) -> int:
        return self.t


class Echo(Counter):
    """Observes the action that it got; zeros after a reset. Specs are any nest."""

    def __init__(self, specs: Any = None, **counter: Any) -> None:
        super().__init__(action_spec=NESTED if specs is None else specs, **counter)

    def observation_spec(self) -> Any:
        return self._own_action_spec

    def _observation(self) -> Any:
        return _zeros(self._own_action_spec) if self.last_action is None else copy.deepcopy(self.last_action)

    def last_types(self) -> str:
        """Returns the containers of the last action, and the types and dtypes of its leaves."""
        return describe(self.last_action)


def describe(nest: Any) -> str:
    """Returns containers, keys and dtypes of a nest."""
    if isinstance(nest, dict):
        inside = ", ".join(f"{key}: {describe(nest[key])}" for key in sorted(nest))
    elif isinstance(nest, (tuple, list)):
        inside = ", ".join(map(describe, nest))
    else:
        return str(np.asarray(nest).dtype)
    return f"{type(nest).__name__}({inside})"


def _zeros(specs: Any) -> Any:
    if isinstance(specs, dict):
        return {key: _zeros(part) for key, part in specs.items()}
    if isinstance(specs, Point):
        return Point(*map(_zeros, specs))
    if isinstance(specs, (tuple, list)):
        return type(specs)(map(_zeros, specs))
    return np.zeros(specs.shape, specs.dtype)


class Scripted(Counter):
    """Returns steps with the observation, reward and discount it was given, neither checked nor copied.

    Args:
        observations: One for each `t`; the last one stays. Entry 0 is the reset's, also of the others.
        rewards: Likewise.
        discounts: Likewise.
        specs: For observation, reward and discount; scalars of float32 unless given.
    """

    def __init__(
        self,
        observations: Sequence[Any] = (np.float32(0),),
        rewards: Sequence[Any] = (np.float32(0),),
        discounts: Sequence[Any] = (np.float32(1),),
        specs: tuple[Any, Any, Any] = (SCALAR, SCALAR, SCALAR),
        **counter: Any,
    ) -> None:
        super().__init__(**counter)
        self.scripts, self.specs = (observations, rewards, discounts), specs

    def observation_spec(self) -> Any:
        return self.specs[0]

    def reward_spec(self) -> Any:
        return self.specs[1]

    def discount_spec(self) -> Any:
        return self.specs[2]

    def _reset(self) -> Any:
        return self._scripted(super()._reset())

    def _step(self, action: Any) -> Any:
        return self._scripted(super()._step(action))

    def _scripted(self, time_step: Any) -> Any:
        observation, reward, discount = (script[min(self.t, len(script) - 1)] for script in self.scripts)
        return time_step._replace(observation=observation, reward=reward, discount=discount)


class Reused(Counter):
    """Observes `t` in one array that it rewrites in place for ever; so are reward and discount."""

    def __init__(self, **counter: Any) -> None:
        super().__init__(**counter)
        self.buffers = np.zeros(1), np.zeros((), np.float32), np.zeros((), np.float32)

    def _reset(self) -> Any:
        return self._filled(super()._reset())

    def _step(self, action: Any) -> Any:
        return self._filled(super()._step(action))

    def _filled(self, time_step: Any) -> Any:
        observation, reward, discount = self.buffers
        observation[...], reward[...], discount[...] = self.t, self.t, 1 / (1 + self.t)
        return time_step._replace(observation=observation, reward=reward, discount=discount)


class Talkative(Counter):
    """Renders, takes seeds and has infos; `frame_rows` makes the frames of envs differ in shape."""

    def __init__(self, frame_rows: int = 4, **counter: Any) -> None:
        super().__init__(**counter)
        self.frame_rows = frame_rows

    def render(self, mode: str = "rgb_array") -> Any:
        if mode != "rgb_array":
            raise NotImplementedError(f"no mode {mode!r} here")
        return np.full((self.frame_rows, 6, 3), 10 * self.index + self.t, np.uint8)

    def seed(self, seed: Any) -> Any:
        return f"seed {seed} in env {self.index}"

    def get_info(self) -> Any:
        return {"t": self.t, "where": (np.array([self.index, self.t], np.int16), [float(self.index)])}


class Faulty(Talkative):
    """Goes wrong in one stage of its life, a method of this class, in the `at`-th call of it."""

    def __init__(
        self, stage: str, fault: Fault | str = Fault.RAISE, at: int = 1, hang_s: float = 1000.0, **talkative: Any
    ) -> None:
        super().__init__(**talkative)
        self.stage, self.fault, self.at, self.hang_s = stage, fault, at, hang_s
        self._enter("constructor")

    def _reset(self) -> Any:
        self._enter("reset")
        return super()._reset()

    def _step(self, action: Any) -> Any:
        self._enter("step")
        return super()._step(action)

    def render(self, mode: str = "rgb_array") -> Any:
        self._enter("render")
        return super().render(mode)

    def seed(self, seed: Any) -> Any:
        self._enter("seed")
        return super().seed(seed)

    def get_info(self) -> Any:
        self._enter("get_info")
        return super().get_info()

    def close(self) -> None:
        self._enter("close")

    def _enter(self, stage: str) -> None:
        if stage == self.stage:
            self.at -= 1
            if self.at == 0:
                faults.commit(self.fault, self.hang_s)


class Stochastic(Counter):
    """Observes noise plus the sum of its actions, `(3,)` float32; each step terminates with a chance of `end_p`."""

    def __init__(self, end_p: float = 0.2, **counter: Any) -> None:
        super().__init__(**counter)
        self.rng, self.end_p, self.total = np.random.default_rng(self.index), end_p, np.float32(0)

    def observation_spec(self) -> Any:
        return ArraySpec((3,), np.float32, "noise")

    def _reset(self) -> Any:
        self.total = np.float32(0)
        return super()._reset()

    def _step(self, action: Any) -> Any:
        self.total += np.float32(action)
        time_step = super()._step(action)
        reward = np.array(self.rng.normal(), np.float32)
        if time_step.is_last() or self.rng.random() < self.end_p:
            return termination(time_step.observation, reward)
        return time_step._replace(reward=reward)

    def _observation(self) -> Any:
        return self.total + self.rng.standard_normal(3, np.float32)


class OwnState(Stochastic):
    """Has state methods of its own, and a part that cannot be pickled; the state is the env's own dictionary."""

    def __init__(self, **stochastic: Any) -> None:
        super().__init__(**stochastic)
        self.generator = (n for n in range(3))
        self.state: dict[str, Any] = {}

    def get_state(self) -> Any:
        # The same object each time, changed in place: whoever keeps it needs a copy.
        self.state.update(rng=self.rng.bit_generator.state, t=self.t, total=self.total, num_resets=self.num_resets)
        return self.state

    def set_state(self, state: Any) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.t, self.total, self.num_resets = state["t"], state["total"], state["num_resets"]


class Timed(Counter):
    """Writes when its constructor, each reset and each step began and ended, in seconds, to `{stage}-{index}`."""

    def __init__(self, folder: Path, takes_s: float = 0.05, **counter: Any) -> None:
        self.folder, self.takes_s = folder, takes_s
        start = time.monotonic()
        super().__init__(**counter)
        self._note("constructor", start)

    def _reset(self) -> Any:
        start = time.monotonic()
        self._note("reset", start)
        return super()._reset()

    def _step(self, action: Any) -> Any:
        start = time.monotonic()
        self._note("step", start)
        return super()._step(action)

    def _note(self, stage: str, start: float) -> None:
        # Long enough that two at once would be seen.
        time.sleep(self.takes_s)
        (self.folder / f"{stage}-{self.index}").write_text(f"{start} {time.monotonic()}", encoding="utf-8")


def are_one_after_another(folder: Path, stage: str) -> bool:
    """Tells whether three `Timed` envs did something in order, none before the one before it had ended."""
    spans = [tuple(map(float, (folder / f"{stage}-{index}").read_text(encoding="utf-8").split())) for index in range(3)]
    return all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


class Meeting(Counter):
    """In one stage waits until all envs of the batch have come there, as they only can side by side."""

    def __init__(self, folder: Path, stage: str, total: int, **counter: Any) -> None:
        super().__init__(**counter)
        self.folder, self.stage, self.total = folder, stage, total
        self._meet("constructor")

    def _reset(self) -> Any:
        self._meet("reset")
        return super()._reset()

    def _step(self, action: Any) -> Any:
        self._meet("step")
        return super()._step(action)

    def _meet(self, stage: str) -> None:
        if stage == self.stage:
            (self.folder / f"{stage}-{self.index}").touch()
            faults.wait_until(lambda: len(list(self.folder.glob(f"{stage}-*"))) == self.total)


class Marked(Counter):
    """Leaves a file `built-{index}` or `closed-{index}` behind when it is built or closed."""

    def __init__(self, folder: Path, **counter: Any) -> None:
        super().__init__(**counter)
        self.folder = folder
        (folder / f"built-{self.index}").touch()

    def close(self) -> None:
        (self.folder / f"closed-{self.index}").touch()


def marked(folder: Path, what: str) -> list[int]:
    """Returns the indices of the `Marked` envs that are `"built"` or `"closed"`."""
    return sorted(int(path.name.partition("-")[2]) for path in folder.glob(f"{what}-*"))


class DmCounter:
    """Has the methods of a dm_env environment: observes `t`; the first step has neither reward nor discount."""

    def __init__(self, index: int = 0, length: int = 3, time_step: Any = None, spec: Any = ArraySpec) -> None:
        self.index, self.length, self.t = index, length, None
        self.time_step_class = DmTimeStep if time_step is None else time_step
        self.spec = spec

    def reset(self) -> Any:
        self.t = 0
        return self.time_step_class(0, None, None, self._observation())

    def step(self, action: Any) -> Any:
        if self.t is None or self.t >= self.length:
            return self.reset()
        self.t += 1
        is_last = self.t == self.length
        return self.time_step_class(1 + is_last, 0.5 + float(action), 0.25 if is_last else 0.75, self._observation())

    def _observation(self) -> Any:
        return {"t": np.array([10 * self.index + self.t], np.int16)}

    def observation_spec(self) -> Any:
        return {"t": self.spec((1,), np.int16, "t")}

    def action_spec(self) -> Any:
        return self.spec((), np.int32, "action")

    def reward_spec(self) -> Any:
        return self.spec((), np.float64, "reward")

    def discount_spec(self) -> Any:
        return self.spec((), np.float64, "discount")

    def close(self) -> None:
        pass


class DmTimeStep(NamedTuple):
    step_type: Any
    reward: Any
    discount: Any
    observation: Any


def counters(num_envs: int = 3, make: Callable[..., Any] = Counter, **arguments: Any) -> list[Callable[[], Any]]:
    """Returns constructors of envs that differ in their index."""
    return [partial(make, index=index, **arguments) for index in range(num_envs)]


@contextmanager
def parallel(env_constructors: Any, **options: Any) -> Iterator[ParallelPyEnvironment]:
    """Gives a batch with a worker for each env, unless told otherwise, and closes it."""
    env_constructors = list(env_constructors)
    env = ParallelPyEnvironment(
        env_constructors, **{"num_workers": len(env_constructors), "start_serially": False, **options}
    )
    try:
        yield env
    finally:
        env.close()


def observed(time_step: Any) -> list[float]:
    """Returns what a batch of counters observes."""
    return np.ravel(time_step.observation).tolist()
