"""How a worker is reached: called directly, in a thread, or in a process of its own."""

from shoal.backends.backend import BACKENDS, Backend, Death, WorkerStart, make_backend
from shoal.backends.launcher import getting_ready, launcher_pid, preload

__all__ = ["BACKENDS", "Backend", "Death", "WorkerStart", "getting_ready", "launcher_pid", "make_backend", "preload"]
