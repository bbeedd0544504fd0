"""Batches reinforcement-learning environments: N of them in worker processes, stepped as one.

Names are loaded when they are first used; importing shoal loads no framework.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.adapters.gymnasium import AsyncVectorEnv, make, register_codec
    from shoal.adapters.gymnasium.vector_utils import (
        CloudpickleWrapper,
        CustomSpaceError,
        batch_space,
        clear_mpi_env_vars,
        concatenate,
        create_empty_array,
        create_shared_memory,
        iterate,
        read_from_shared_memory,
        write_to_shared_memory,
    )
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
    "register_codec": "shoal.adapters.gymnasium",
    "ParallelPyEnvironment": "shoal.adapters.tf_agents",
    "ProcessPyEnvironment": "shoal.adapters.tf_agents",
    "preload": "shoal.backends",
    "CloudpickleWrapper": "shoal.adapters.gymnasium.vector_utils",
    "CustomSpaceError": "shoal.adapters.gymnasium.vector_utils",
    "batch_space": "shoal.adapters.gymnasium.vector_utils",
    "clear_mpi_env_vars": "shoal.adapters.gymnasium.vector_utils",
    "concatenate": "shoal.adapters.gymnasium.vector_utils",
    "create_empty_array": "shoal.adapters.gymnasium.vector_utils",
    "create_shared_memory": "shoal.adapters.gymnasium.vector_utils",
    "iterate": "shoal.adapters.gymnasium.vector_utils",
    "read_from_shared_memory": "shoal.adapters.gymnasium.vector_utils",
    "write_to_shared_memory": "shoal.adapters.gymnasium.vector_utils",
    "available_cpus": "shoal.worker.cpus",
}

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "AsyncVectorEnv",
    "ClosedError",
    "CloudpickleWrapper",
    "CustomSpaceError",
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
    "batch_space",
    "clear_mpi_env_vars",
    "concatenate",
    "create_empty_array",
    "create_shared_memory",
    "iterate",
    "make",
    "preload",
    "read_from_shared_memory",
    "register_codec",
    "write_to_shared_memory",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(_import_module(_HOMES.get(name, "shoal.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
