"""A dm_env environment as a `PyEnvironment`; dm_env itself is not needed.

dm_env's first time step of an episode has neither reward nor discount: here they are 0 and 1, in the shape of
their specs. All other steps keep what the environment gave.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.array_spec import ArraySpec, BoundedArraySpec
from shoal.adapters.tf_agents.facts import to_own_specs
from shoal.adapters.tf_agents.known_specs import KnownSpecs
from shoal.adapters.tf_agents.time_step import StepType, TimeStep


class DmEnvironment(KnownSpecs):
    """Steps one `dm_env.Environment`.

    Other attributes are the dm_env environment's.
    """

    def __init__(self, env: Any) -> None:
        """Takes an environment."""
        super().__init__()
        self._env = env
        self._observation_spec = to_own_specs(env.observation_spec(), "observation_spec")
        self._action_spec = to_own_specs(env.action_spec(), "action_spec")
        self._reward_spec = _as_float32(to_own_specs(env.reward_spec(), "reward_spec"))
        self._discount_spec = _as_float32(to_own_specs(env.discount_spec(), "discount_spec"))

    @staticmethod
    def wraps(env: Any) -> bool:
        """Tells whether it is such an environment, or looks exactly like one."""
        module = sys.modules.get("dm_env")
        if module is not None and isinstance(env, module.Environment):
            return True
        methods = ("reset", "step", "observation_spec", "action_spec", "reward_spec", "discount_spec")
        return all(callable(getattr(env, name, None)) for name in methods)

    def __getattr__(self, name: str) -> Any:
        """Returns a public attribute of the environment."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.find(name)

    def find(self, name: str) -> Any:
        """Returns an attribute of the environment, a private one, too."""
        return getattr(self._env, name)

    def _reset(self) -> TimeStep:
        return self._converted(self._env.reset())

    def _step(self, action: Any) -> TimeStep:
        return self._converted(self._env.step(action))

    def _converted(self, given: Any) -> TimeStep:
        return TimeStep(
            StepType(int(given.step_type)),
            _filled(self._reward_spec, 0) if given.reward is None else given.reward,
            _filled(self._discount_spec, 1) if given.discount is None else given.discount,
            given.observation,
        )

    def get_state(self) -> Any:
        """Returns the environment's own state, if it has a `get_state`."""
        return self._own("get_state")()

    def set_state(self, state: Any) -> None:
        """Brings the environment into a state of `get_state`."""
        self._own("set_state")(state)

    def _own(self, name: str) -> Any:
        method = getattr(self._env, name, None)
        if method is None:
            raise NotImplementedError(f"{self._env} has no {name}")
        return method

    def close(self) -> None:
        """Closes the environment, if it can be closed."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()


def _as_float32(specs: Any) -> Any:
    """Returns specs of rewards or discounts as TF-Agents has them; dm_env's are float64 by default."""

    def convert(spec: ArraySpec) -> ArraySpec:
        if spec.dtype != np.float64:
            return spec
        if isinstance(spec, BoundedArraySpec):
            return BoundedArraySpec(spec.shape, np.float32, spec.minimum, spec.maximum, spec.name)
        return ArraySpec(spec.shape, np.float32, spec.name)

    return nests.map_nest(convert, specs)


def _filled(specs: Any, value: float) -> Any:
    """Returns arrays of the specs' shapes and types that hold one number everywhere."""

    def fill(spec: ArraySpec) -> np.ndarray:
        return np.full(spec.shape, value, spec.dtype)

    return nests.map_nest(fill, specs)
