"""Batches reinforcement-learning environments: N of them in worker processes, stepped as one.

Names are loaded when they are first used; importing shoal loads no framework.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.adapters.gymnasium import AsyncVectorEnv, make
    from shoal.adapters.tf_agents import ParallelPyEnvironment, ProcessPyEnvironment
    from shoal.backends import preload
    from shoal.errors import (
        ArgumentError,
        ArgumentTypeError,
        ClosedError,
        EnvError,
        MisfitError,
        NoPendingCallError,
        PendingCallError,
        RemoteTraceback,
        SharedMemoryError,
        ShoalError,
        SpecMismatchError,
        StartError,
        StartTimeoutError,
        StateError,
        StepTimeoutError,
        WorkerDiedError,
    )
    from shoal.worker.cpus import available_cpus

__version__ = "0.1.0"

_HOMES = {
    "AsyncVectorEnv": "shoal.adapters.gymnasium",
    "make": "shoal.adapters.gymnasium",
    "ParallelPyEnvironment": "shoal.adapters.tf_agents",
    "ProcessPyEnvironment": "shoal.adapters.tf_agents",
    "preload": "shoal.backends",
    "available_cpus": "shoal.worker.cpus",
}

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AsyncVectorEnv",
    "ClosedError",
    "EnvError",
    "MisfitError",
    "NoPendingCallError",
    "ParallelPyEnvironment",
    "PendingCallError",
    "ProcessPyEnvironment",
    "RemoteTraceback",
    "SharedMemoryError",
    "ShoalError",
    "SpecMismatchError",
    "StartError",
    "StartTimeoutError",
    "StateError",
    "StepTimeoutError",
    "WorkerDiedError",
    "available_cpus",
    "make",
    "preload",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(_import_module(_HOMES.get(name, "shoal.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
