"""TF-Agents' interface, with or without TF-Agents: its envs inside workers, its `PyEnvironment` outside.

Names are loaded when they are first used: workers need only the inside.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "ArraySpec": "array_spec",
    "BatchedPyEnvironment": "batched",
    "BoundedArraySpec": "array_spec",
    "ParallelPyEnvironment": "parallel",
    "ProcessPyEnvironment": "handles",
    "PyEnvironment": "py_environment",
    "StepType": "time_step",
    "TimeStep": "time_step",
    "restart": "time_step",
    "termination": "time_step",
    "time_step_spec": "time_step",
    "transition": "time_step",
    "truncation": "time_step",
}

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


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
