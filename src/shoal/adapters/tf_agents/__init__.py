"""TF-Agents' interface, with or without TF-Agents: its envs inside workers, its `PyEnvironment` outside."""

from shoal.adapters.tf_agents.array_spec import ArraySpec, BoundedArraySpec
from shoal.adapters.tf_agents.batched import BatchedPyEnvironment
from shoal.adapters.tf_agents.handles import ProcessPyEnvironment
from shoal.adapters.tf_agents.parallel import ParallelPyEnvironment
from shoal.adapters.tf_agents.py_environment import PyEnvironment
from shoal.adapters.tf_agents.time_step import (
    StepType,
    TimeStep,
    restart,
    termination,
    time_step_spec,
    transition,
    truncation,
)

__all__ = [
    "ArraySpec",
    "BatchedPyEnvironment",
    "BoundedArraySpec",
    "ParallelPyEnvironment",
    "ProcessPyEnvironment",
    "PyEnvironment",
    "StepType",
    "TimeStep",
    "restart",
    "termination",
    "time_step_spec",
    "transition",
    "truncation",
]
