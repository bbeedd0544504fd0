"""A Gymnasium env as a `PyEnvironment`.

The conventions are those of tf-agents' `GymWrapper`; what is new in Gymnasium since is added: an episode that
is truncated ends with the discount that an ordinary step has, and not with 0.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from shoal.adapters.tf_agents import time_step
from shoal.adapters.tf_agents.array_spec import ArraySpec, BoundedArraySpec
from shoal.adapters.tf_agents.py_environment import PyEnvironment
from shoal.errors import ArgumentError, MisfitError
from shoal.structure.cast import fit


class GymnasiumEnvironment(PyEnvironment):
    """Steps one `gymnasium.Env`.

    Other attributes are the Gymnasium env's.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], discount: float = 1.0) -> None:
        """Takes an env, and the discount of every step but the one that terminates an episode.

        Raises:
            ArgumentError: A space has values of no fixed shape.
        """
        super().__init__()
        self._env = env
        self._discount = np.float32(discount)
        self._observation_spec = spec_of(env.observation_space, "observation")
        self._action_spec = spec_of(env.action_space, "action")
        self._info: Any = None
        self._seed: int | None = None
        self._has_ended = True

    @staticmethod
    def wraps(env: Any) -> bool:
        """Tells whether it is such an env."""
        return isinstance(env, gymnasium.Env)

    def __getattr__(self, name: str) -> Any:
        """Returns a public attribute of the Gymnasium env or of one of its wrappers."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.find(name)

    def find(self, name: str) -> Any:
        """Returns an attribute of the Gymnasium env or of one of its wrappers, a private one, too."""
        return self._env.get_wrapper_attr(name)

    def observation_spec(self) -> Any:
        """Returns the observation space as specs."""
        return self._observation_spec

    def action_spec(self) -> Any:
        """Returns the action space as specs."""
        return self._action_spec

    def _reset(self) -> time_step.TimeStep:
        seed, self._seed = self._seed, None
        observation, self._info = self._env.reset(seed=seed)
        self._has_ended = False
        return time_step.restart(self._to_observation(observation))

    def _step(self, action: Any) -> time_step.TimeStep:
        if self._has_ended:
            return self._reset()
        observation, reward, terminated, truncated, self._info = self._env.step(
            _to_space(self._env.action_space, action)
        )
        self._has_ended = bool(terminated or truncated)
        observation = self._to_observation(observation)
        if terminated:
            return time_step.termination(observation, reward)
        if truncated:
            return time_step.truncation(observation, reward, self._discount)
        return time_step.transition(observation, reward, self._discount)

    def _to_observation(self, observation: Any) -> Any:
        if isinstance(self._observation_spec, ArraySpec):
            spec = self._observation_spec
            return fit(observation, spec.shape, spec.dtype, "observation")
        return _to_specs(self._observation_spec, observation, "observation")

    def get_info(self) -> Any:
        """Returns what the last reset or step said beside the observation; None before."""
        return self._info

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the env's frame, if its render mode is the one that is asked for."""
        if mode != self._env.render_mode:
            raise NotImplementedError(
                f"the env was made with render_mode={self._env.render_mode!r}, which cannot render {mode!r}; "
                f"make it with render_mode={mode!r}"
            )
        return self._env.render()

    def seed(self, seed: int | None) -> int | None:
        """Seeds the next reset, and returns the seed; None for none."""
        self._seed = None if seed is None else int(seed)
        return self._seed

    def get_state(self) -> Any:
        """Returns the state, if the env has a `get_state` of its own."""
        return self._own("get_state")(), self._info, self._seed, self._has_ended

    def set_state(self, state: Any) -> None:
        """Brings the env into a state of `get_state`."""
        own, self._info, self._seed, self._has_ended = state
        self._own("set_state")(own)

    def _own(self, name: str) -> Any:
        try:
            return self.find(name)
        except AttributeError:
            raise NotImplementedError(f"{self._env} has no {name}") from None

    def close(self) -> None:
        """Closes the env."""
        self._env.close()


def spec_of(space: spaces.Space[Any], name: str) -> Any:
    """Returns a space as a nest of specs.

    Discrete is a bounded int64, MultiDiscrete and MultiBinary are bounded int32, Box keeps its dtype, Dict
    becomes an `OrderedDict` and Tuple a tuple.

    Raises:
        ArgumentError: The space, or one in it, is of another kind.
    """
    match space:
        case spaces.Discrete():
            first = int(space.start)
            return BoundedArraySpec((), np.int64, first, first + int(space.n) - 1, name)
        case spaces.MultiDiscrete():
            last = space.start + space.nvec - 1
            return BoundedArraySpec(space.shape, np.int32, space.start, last, name)
        case spaces.MultiBinary():
            return BoundedArraySpec(space.shape, np.int32, 0, 1, name)
        case spaces.Box():
            return BoundedArraySpec(space.shape, space.dtype, _simplified(space.low), _simplified(space.high), name)
        case spaces.Dict():
            return OrderedDict((key, spec_of(part, f"{name}/{key}")) for key, part in space.spaces.items())
        case spaces.Tuple():
            return tuple(spec_of(part, f"{name}/{index}") for index, part in enumerate(space.spaces))
    root, _, place = name.partition("/")
    at = f" at {place!r}" if place else ""
    raise ArgumentError(
        f"the {root} space {space}{at} cannot be a spec; use Box, Discrete, MultiDiscrete, MultiBinary, or Dict and "
        "Tuple of them"
    )


def _simplified(bound: np.ndarray) -> Any:
    """Returns one number for a bound that is the same everywhere."""
    return bound.flat[0] if bound.size and np.all(bound == bound.flat[0]) else bound


def _to_specs(specs: Any, value: Any, where: str) -> Any:
    """Returns a nested observation in the containers and types of its specs."""
    if isinstance(specs, ArraySpec):
        return fit(value, specs.shape, specs.dtype, where)
    if isinstance(specs, dict):
        missing = [key for key in specs if key not in value]
        if missing:
            raise MisfitError(where, f"key {missing[0]!r} is missing; expected {list(specs)}, found {list(value)}")
        return OrderedDict((key, _to_specs(part, value[key], f"{where}[{key!r}]")) for key, part in specs.items())
    if len(value) != len(specs):
        raise MisfitError(where, f"expected a tuple of {len(specs)}, found {len(value)} items")
    return tuple(
        _to_specs(part, item, f"{where}[{index}]") for index, (part, item) in enumerate(zip(specs, value, strict=True))
    )


def _to_space(space: spaces.Space[Any], action: Any) -> Any:
    """Returns an action as the env's own space has it."""
    match space:
        case spaces.Discrete():
            return int(action)
        case spaces.Dict():
            return {key: _to_space(part, action[key]) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_to_space(part, item) for part, item in zip(space.spaces, action, strict=True))
    return np.asarray(action, space.dtype)
