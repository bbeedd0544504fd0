"""Batches of envs as tests make them, over every backend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from shoal import AsyncVectorEnv
from shoal.backends import launcher_pid
from shoal.testing import process_gone

every_backend = pytest.mark.parametrize("backend", ["serial", "thread", "process"])


@contextmanager
def vector(env_fns: Sequence[Callable[[], Any]], backend: str = "serial", **options: Any) -> Iterator[AsyncVectorEnv]:
    """Gives a batch of envs and closes it."""
    envs = AsyncVectorEnv(env_fns, backend=backend, **options)
    try:
        yield envs
    finally:
        envs.close()


def worker_processes() -> set[int]:
    """Returns the ids of all living processes below this one, the launcher left out."""
    pids = {process.pid for process in psutil.Process().children(recursive=True)}
    return {pid for pid in pids - {launcher_pid()} if not process_gone(pid)}


def readable(value):
    """Returns a parameter's `repr` without addresses, which differ between the processes that run the tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
