"""A thousand steps beside TF-Agents' own classes, bit for bit.

Both are given the same constructors, seeds and actions. What must agree is all that a training loop can see of a
time step: values, dtypes, shapes, and the containers with the order of their keys.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gym
import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from tf_agents.environments import (
    batched_py_environment,
    py_environment,
    random_py_environment,
    suite_gym,
    test_envs,
    wrappers,
)
from tf_agents.environments.examples import tic_tac_toe_environment
from tf_agents.specs import ArraySpec, BoundedArraySpec, array_spec
from tf_agents.trajectories import time_step as ts

import shoal
from shoal.adapters.tf_agents import BatchedPyEnvironment

STEPS = 1000

pytestmark = [
    # Gym tells at every `make` that it has a successor.
    pytest.mark.filterwarnings("ignore:.*[Gg]ym"),
    # TF-Agents casts infinity to an integer, and takes one end of float64 from the other.
    pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered in (cast|subtract):RuntimeWarning"),
]


class Arm(NamedTuple):
    angles: Any
    grip: Any


def nested_specs() -> tuple[Any, Any]:
    """Returns specs of observations and actions with all containers there are, keys out of order."""
    observation = {
        "camera": BoundedArraySpec((3, 4, 3), np.uint8, 0, 255),
        "arms": [
            Arm(ArraySpec((2,), np.float64), BoundedArraySpec((), np.int8, -1, 1)),
            Arm(ArraySpec((0,), np.float32), ArraySpec((), np.int64)),
        ],
        "a clock": OrderedDict(
            seconds=BoundedArraySpec((), np.float32, 0, 60),
            hours=(ArraySpec((1, 1), np.uint16), ArraySpec((), np.bool_)),
        ),
    }
    action = {
        "push": (BoundedArraySpec((2,), np.float32, -1, 1), [BoundedArraySpec((), np.int32, 0, 3)]),
        "jump": OrderedDict(
            when=BoundedArraySpec((1,), np.float64, 0, 9), how=Arm(BoundedArraySpec((), np.int64, 0, 4), ())
        ),
    }
    return observation, action


class Nested(py_environment.PyEnvironment):
    """Observes whatever bytes come, NaN and negative zeros among them."""

    def __init__(self, seed: int) -> None:
        super().__init__(handle_auto_reset=True)
        self._observation_spec, self._action_spec = nested_specs()
        self._rng = np.random.RandomState(seed)

    def observation_spec(self) -> Any:
        return self._observation_spec

    def action_spec(self) -> Any:
        return self._action_spec

    def _observation(self) -> Any:
        random = self._rng.bytes
        return {
            "camera": np.frombuffer(random(36), np.uint8).reshape(3, 4, 3),
            "arms": [
                Arm(np.frombuffer(random(16), np.float64), np.frombuffer(random(1), np.int8)[0]),
                Arm(np.zeros(0, np.float32), np.frombuffer(random(8), np.int64)[0]),
            ],
            "a clock": OrderedDict(
                seconds=np.frombuffer(random(4), np.float32)[0],
                hours=(np.frombuffer(random(2), np.uint16).reshape(1, 1), np.array(self._rng.rand() < 0.5)),
            ),
        }

    def _reset(self) -> Any:
        return ts.restart(self._observation())

    def _step(self, action: Any) -> Any:
        # Of all leaves of the action, so that none can be mistaken for another.
        reward = (
            action["push"][0].sum()
            + 10 * action["push"][1][0]
            + 100 * action["jump"]["when"][0]
            + 1000 * action["jump"]["how"].angles
        )
        if self._rng.rand() < 0.1:
            return ts.termination(self._observation(), reward)
        if self._rng.rand() < 0.1:
            return ts.truncation(self._observation(), reward, 0.95)
        return ts.transition(self._observation(), reward, self._rng.rand())


class CliffWalking(py_environment.PyEnvironment):
    """A walk along a cliff: falling off terminates, and 40 steps truncate.

    Its time steps are made by hand, of Python's and NumPy's numbers; its reward is a vector.
    """

    def __init__(self, width: int) -> None:
        super().__init__(handle_auto_reset=True)
        self._width = width
        self._place = np.zeros(2, np.int16)
        self._steps = 0

    def observation_spec(self) -> Any:
        return (BoundedArraySpec((2,), np.int16, -1, 20), {"on edge": ArraySpec((), np.bool_)})

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 3)

    def reward_spec(self) -> Any:
        return ArraySpec((2,), np.float32, "reward")

    def _observation(self) -> Any:
        # The same array at each step, which changes.
        return (self._place, {"on edge": np.array(self._place[1] == 0)})

    def _reset(self) -> Any:
        self._place[:] = 0, 1
        self._steps = 0
        return ts.restart(self._observation(), reward_spec=self.reward_spec())

    def _step(self, action: Any) -> Any:
        self._steps += 1
        self._place += [(1, 0), (-1, 0), (0, 1), (0, -1)][int(action)]
        np.clip(self._place, [0, -1], [self._width, 9], out=self._place)
        reward = np.array([-1, self._place[0] / 3], np.float32)
        has_fallen, is_home = self._place[1] < 0, self._place[0] == self._width
        if has_fallen or is_home:
            return ts.termination(self._observation(), reward, outer_dims=())
        if self._steps == 40:
            return ts.truncation(self._observation(), reward, 0.9, outer_dims=())
        return ts.transition(self._observation(), reward, 0.9, outer_dims=())


class CartPole(py_environment.PyEnvironment):
    """Gymnasium's CartPole as one would write it for TF-Agents by hand."""

    def __init__(self) -> None:
        super().__init__(handle_auto_reset=True)
        self._env = gymnasium.make("CartPole-v1", max_episode_steps=30)
        self._seed: int | None = None

    def seed(self, seed: int) -> int:
        self._seed = seed
        return seed

    def observation_spec(self) -> Any:
        space = self._env.observation_space
        return BoundedArraySpec(space.shape, space.dtype, space.low, space.high, "observation")

    def action_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 1, "action")

    def _reset(self) -> Any:
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None
        return ts.restart(observation)

    def _step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = self._env.step(int(action))
        if terminated:
            return ts.termination(observation, reward)
        return ts.truncation(observation, reward) if truncated else ts.transition(observation, reward)

    def close(self) -> None:
        self._env.close()


def nested(index: int) -> Any:
    return Nested(index)


def random_nested(index: int) -> Any:
    observation = {"b": [BoundedArraySpec((2,), np.float64, -1, 1)], "a": Arm(ArraySpec((), np.int64), ())}
    action = (BoundedArraySpec((), np.int32, 0, 3), {"x": BoundedArraySpec((1,), np.float32, -1, 1)})

    def reward(step_type: Any, action: Any, observation: Any) -> Any:
        return np.asarray(action[0] + action[1]["x"][0] + step_type, np.float32)

    return random_py_environment.RandomPyEnvironment(
        observation, action, 0.1, discount=0.95, reward_fn=reward, seed=index
    )


def counting(index: int) -> Any:
    return test_envs.NestedCountingEnv(steps_per_episode=3 + index, nested_action=True)


def cliff(index: int) -> Any:
    return CliffWalking(width=6 + index)


def tic_tac_toe(index: int) -> Any:
    return tic_tac_toe_environment.TicTacToeEnvironment(np.random.RandomState(index), discount=0.5)


def gym_cart_pole(index: int) -> Any:
    env = gym.make("CartPole-v1")
    env.reset(seed=index)
    # Its own limit is TF-Agents' wrapper, whose time steps are truncated by hand.
    return suite_gym.wrap_env(env.unwrapped, max_episode_steps=25)


def wrapped(index: int) -> Any:
    return wrappers.ActionRepeat(wrappers.TimeLimit(counting(6), 7 + index), 2)


def cart_pole_by_hand(_index: int) -> Any:
    return CartPole()


def gymnasium_cart_pole(_index: int) -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


@dataclass(frozen=True)
class Kind:
    """How TF-Agents' class and shoal's get their envs.

    Attributes:
        theirs: Takes an env's index and constructs it.
        ours: The same, unless it is the same env as another framework has it.
        seeded: Whether the batch is seeded before its first reset.
    """

    theirs: Callable[[int], Any]
    ours: Callable[[int], Any]
    seeded: bool = False


KINDS: Mapping[str, Kind] = {
    "nested": Kind(nested, nested),
    "random nested": Kind(random_nested, random_nested, seeded=True),
    "counting": Kind(counting, counting),
    "cliff": Kind(cliff, cliff),
    "tic-tac-toe": Kind(tic_tac_toe, tic_tac_toe),
    "gym": Kind(gym_cart_pole, gym_cart_pole),
    "wrapped": Kind(wrapped, wrapped),
    "gymnasium": Kind(cart_pole_by_hand, gymnasium_cart_pole, seeded=True),
}


@dataclass(frozen=True)
class Setup:
    """How many envs there are, and how the batch is asked to step them."""

    num_envs: int
    num_workers: int
    flatten: bool
    blocking: bool

    def __str__(self) -> str:
        flags = [name for name in ("flatten", "blocking") if getattr(self, name)]
        return "-".join([f"{self.num_envs} in {self.num_workers}", *flags])


SETUPS = [
    Setup(1, 1, False, True),
    Setup(3, 2, True, False),
    Setup(5, 3, False, False),
]
# All ways to ask three envs, which share workers in three ways, and the rest of the pairs.
MORE_SETUPS = [
    Setup(1, 1, True, False),
    Setup(3, 1, True, False),
    Setup(3, 3, True, False),
    Setup(3, 2, False, False),
    Setup(3, 2, False, True),
    Setup(3, 2, True, True),
    Setup(5, 2, True, True),
]

Trace = list[Any]


def trace(env: Any, actions: Sequence[Any], seeded: bool, keep: Callable[[Any], Any] = lambda own: own) -> Trace:
    """Returns what a batch returns for its first reset, for each action, and for a reset in between.

    Args:
        env: The batch.
        actions: Batches of actions.
        seeded: Whether to seed it before the first reset.
        keep: Applied to each time step at once; only afterwards are two traces compared.
    """
    if seeded:
        env.seed([11 * index for index in range(env.batch_size)])
    first = keep(env.reset())
    halfway = len(actions) // 2
    return [
        first,
        *(keep(env.step(action)) for action in actions[:halfway]),
        keep(env.reset()),
        *(keep(env.step(action)) for action in actions[halfway:]),
    ]


def actions_for(kind: Kind, num_envs: int) -> list[Any]:
    """Returns a thousand batches of actions, the same ones each time."""
    rng = np.random.RandomState(num_envs)
    env = kind.theirs(0)
    spec = env.action_spec()
    env.close()
    actions = array_spec.sample_spec_nest(spec, rng, (STEPS, num_envs))
    return [tf.nest.map_structure(lambda leaf: leaf[step], actions) for step in range(STEPS)]  # noqa: B023


@pytest.fixture(scope="module")
def known_traces() -> dict[Any, Trace]:
    """Returns TF-Agents' traces, which serve for any number of shoal's workers."""
    return {}


@pytest.fixture
def their_trace(their_parallel: Callable[..., Any], known_traces: dict[Any, Trace]) -> Callable[..., Trace]:
    def get(name: str, setup: Setup) -> Trace:
        key = name, setup.num_envs, setup.flatten, setup.blocking
        if key not in known_traces:
            kind = KINDS[name]
            theirs = their_parallel(
                constructors(kind.theirs, setup.num_envs), flatten=setup.flatten, blocking=setup.blocking
            )
            known_traces[key] = trace(theirs, actions_for(kind, setup.num_envs), kind.seeded)
        return known_traces[key]

    return get


def constructors(construct: Callable[[int], Any], num_envs: int) -> list[Callable[[], Any]]:
    return [lambda index=index: construct(index) for index in range(num_envs)]


def check_same(ours: Any, theirs: Any, where: str) -> None:
    """Passes if two nests are alike in all that can be seen of them."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
    if isinstance(theirs, Mapping):
        assert list(ours) == list(theirs), where
        for key in theirs:
            check_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs), where
        for index, (own, their) in enumerate(zip(ours, theirs, strict=True)):
            check_same(own, their, f"{where}[{index}]")
    else:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        # Bytes, as the sign of a zero and the bits of a NaN count.
        assert ours.tobytes() == theirs.tobytes(), f"{where}: {ours} is not {theirs}"


def check_same_traces(ours: Trace, theirs: Trace) -> None:
    assert len(ours) == len(theirs)
    for step, (own, their) in enumerate(zip(ours, theirs, strict=True)):
        check_same(own, their, f"time step {step}")


CASES = [
    pytest.param(name, setup, id=f"{name}, {setup}")
    for name in KINDS
    for setup in [*SETUPS, *(MORE_SETUPS if name == "nested" else ())]
]


@pytest.mark.parametrize(("name", "setup"), CASES)
def test_time_steps_are_those_of_their_parallel_environment(
    their_trace: Callable[..., Trace], name: str, setup: Setup
) -> None:
    """A training run that changes its import must not change its results, not even in the last bit."""
    kind = KINDS[name]
    theirs = their_trace(name, setup)
    with shoal.ParallelPyEnvironment(
        constructors(kind.ours, setup.num_envs),
        flatten=setup.flatten,
        blocking=setup.blocking,
        num_workers=setup.num_workers,
    ) as env:
        ours = trace(env, actions_for(kind, setup.num_envs), kind.seeded)
    check_same_traces(ours, theirs)


@pytest.mark.parametrize("backend", ["serial", "thread"])
@pytest.mark.parametrize("name", KINDS)
def test_time_steps_are_theirs_without_processes_too(
    their_trace: Callable[..., Trace], name: str, backend: str
) -> None:
    """Whoever debugs in one process must see what the processes did."""
    kind, setup = KINDS[name], Setup(3, 2, True, False)
    theirs = their_trace(name, setup)
    with shoal.ParallelPyEnvironment(
        constructors(kind.ours, 3), flatten=True, backend=backend, num_workers=None if backend == "serial" else 2
    ) as env:
        ours = trace(env, actions_for(kind, 3), kind.seeded)
    check_same_traces(ours, theirs)


@pytest.mark.parametrize(("num_envs", "multithreading"), [(1, False), (3, True), (5, False)])
@pytest.mark.parametrize("name", [name for name in KINDS if name != "gymnasium"])
def test_time_steps_are_those_of_their_batched_environment(name: str, num_envs: int, multithreading: bool) -> None:
    """The batch of envs that exist already is the other half of what TF-Agents offers.

    It cannot be seeded there, so an env that draws its seed itself is left out.
    """
    kind = KINDS[name]
    actions = actions_for(kind, num_envs)
    theirs = batched_py_environment.BatchedPyEnvironment(
        [kind.theirs(index) for index in range(num_envs)], multithreading
    )
    ours = BatchedPyEnvironment([kind.ours(index) for index in range(num_envs)], multithreading)
    try:
        # Theirs hands a lone env's own arrays on, which change as it steps.
        check_same_traces(trace(ours, actions, False), trace(theirs, actions, False, keep=copy.deepcopy))
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("name", KINDS)
def test_specs_are_those_of_their_parallel_environment(their_parallel: Callable[..., Any], name: str) -> None:
    """Networks and replay buffers are built from the specs before the first step."""
    kind = KINDS[name]
    theirs = their_parallel(constructors(kind.theirs, 1))
    with shoal.ParallelPyEnvironment(constructors(kind.ours, 1)) as ours:
        for method in ("action_spec", "observation_spec", "time_step_spec"):
            own, their = getattr(ours, method)(), getattr(theirs, method)()
            assert own == their
            check_same_containers(own, their)


def check_same_containers(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, Mapping):
        assert list(ours) == list(theirs)
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, tuple | list):
        for own, their in zip(ours, theirs, strict=True):
            check_same_containers(own, their)


def test_short_batches_of_actions_are_an_error_that_theirs_overlooks(their_parallel: Callable[..., Any]) -> None:
    """TF-Agents' class steps the first envs only, and returns a smaller batch; here nothing is stepped."""
    theirs = their_parallel(constructors(cliff, 2))
    theirs.reset()
    assert theirs.step(np.zeros(1, np.int64)).step_type.shape == (1,)
    with shoal.ParallelPyEnvironment(constructors(cliff, 2)) as ours:
        first = ours.reset()
        with pytest.raises(ValueError, match="2"):
            ours.step(np.zeros(1, np.int64))
        assert ours.current_time_step() is first


def test_time_steps_stay_as_they_were_returned() -> None:
    """A driver keeps the last time step while it takes the next: neither class may write into it."""
    with shoal.ParallelPyEnvironment(constructors(tic_tac_toe, 2), num_workers=1) as env:
        kept = [env.reset()]
        copies = copy.deepcopy(kept)
        for action in actions_for(KINDS["tic-tac-toe"], 2)[:50]:
            kept.append(env.step(action))
            copies.append(copy.deepcopy(kept[-1]))
    check_same_traces(kept, copies)
