"""tf-agents' own classes where it is installed, shoal's where it is not: what the faces hand out.

Only faces ask, in the user's process. Beside an env shoal's own classes are used, which need no
TensorFlow; an env that uses tf-agents brings it along by itself.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

from shoal.adapters.tf_agents import array_spec, nests
from shoal.adapters.tf_agents.py_environment import PyEnvironment
from shoal.adapters.tf_agents.time_step import TimeStep


@dataclass(frozen=True)
class Framework:
    """The classes of one of the two.

    Attributes:
        TimeStep: Takes step type, reward, discount and observation.
        ArraySpec: Takes shape, dtype and name.
        BoundedArraySpec: Takes shape, dtype, minimum, maximum and name.
    """

    TimeStep: Any
    ArraySpec: Any
    BoundedArraySpec: Any

    def specs(self, nest: Any) -> Any:
        """Returns a nest of shoal's specs as this framework's, a new one."""
        specs = nests.map_nest(self._spec, nest)
        return self.TimeStep(*specs) if isinstance(specs, TimeStep) else specs

    def _spec(self, spec: array_spec.ArraySpec) -> Any:
        if isinstance(spec, array_spec.BoundedArraySpec):
            return self.BoundedArraySpec(spec.shape, spec.dtype, spec.minimum, spec.maximum, spec.name)
        return self.ArraySpec(spec.shape, spec.dtype, spec.name)


OURS = Framework(TimeStep, array_spec.ArraySpec, array_spec.BoundedArraySpec)


@cache
def framework() -> Framework:
    """Returns tf-agents' classes if it can be imported, and makes shoal's envs pass for its `PyEnvironment`."""
    spec = importlib.util.find_spec("tf_agents")
    if spec is None or spec.origin is None:
        # Any folder of that name on the path would be a package without a file.
        return OURS
    try:
        from tf_agents.environments import py_environment
        from tf_agents.specs import array_spec as their_specs
        from tf_agents.trajectories import time_step as their_time_steps
    except Exception as error:
        warnings.warn(
            f"tf-agents is installed, but cannot be imported ({type(error).__name__}: {error}); "
            "shoal's own specs and time steps are used",
            RuntimeWarning,
            stacklevel=2,
        )
        return OURS
    py_environment.PyEnvironment.register(PyEnvironment)
    return Framework(their_time_steps.TimeStep, their_specs.ArraySpec, their_specs.BoundedArraySpec)
