"""Contenders: the ways to step a batch of envs that a bench compares.

To add one, write a function that makes its vector env from a `Cell` and enter it in `CONTENDERS`.
Import the library inside the function: only who asks for a contender needs to have it installed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium

import shoal
from shoal.cli.constructor import EnvConstructor
from shoal.cli.measure import ACTION_RING, Sample, Timing, measure_steps

# The contender that the others are compared with.
SHOAL = "shoal"


class Steppable(Protocol):
    """The part of a vector env that is measured."""

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of a batch of actions."""

    def reset(self, *, seed: int) -> object:
        """Starts an episode in every env."""

    def step(self, actions: Any, /) -> object:
        """Steps every env."""

    def close(self) -> None:
        """Ends all envs."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is stepped, the same for every contender.

    Attributes:
        make_env: Constructor of one env.
        num_envs: Size of the batch.
        num_workers: Workers of shoal; None leaves it to shoal.
        backend: Backend of shoal.
        seed: Seed of the envs' first episode and of the actions.
    """

    make_env: EnvConstructor
    num_envs: int
    num_workers: int | None = None
    backend: str = "process"
    seed: int = 0

    def describe(self) -> str:
        """Returns env id and batch size, in words."""
        return f"{self.make_env.env_id}, {self.num_envs} env{'s' * (self.num_envs != 1)}"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to step a batch.

    Attributes:
        name: As on the command line.
        make: Makes the vector env.
        abort: Ends it and everything it started after an error, also in mid-step.
    """

    name: str
    make: Callable[[Cell], Steppable]
    abort: Callable[[Any], None] = lambda env: env.close()


def measure_contender(contender: Contender, cell: Cell, timing: Timing) -> Sample:
    """Makes a contender's vector env, measures it and closes it."""
    env = contender.make(cell)
    try:
        env.action_space.seed(cell.seed)
        actions = [env.action_space.sample() for _ in range(ACTION_RING)]
        env.reset(seed=cell.seed)
        sample = measure_steps(env.step, actions, cell.num_envs, timing)
    except BaseException:
        # What went wrong first is what is reported.
        with contextlib.suppress(Exception):
            contender.abort(env)
        raise
    env.close()
    return sample


def _make_shoal(cell: Cell) -> Steppable:
    return _make_shoal_on(cell.backend, cell)


def _make_shoal_serial(cell: Cell) -> Steppable:
    return _make_shoal_on("serial", cell)


def _make_shoal_thread(cell: Cell) -> Steppable:
    return _make_shoal_on("thread", cell)


def _make_shoal_on(backend: str, cell: Cell) -> Steppable:
    env: Steppable = shoal.make(cell.make_env, cell.num_envs, num_workers=cell.num_workers, backend=backend)
    return env


def _make_gymnasium_sync(cell: Cell) -> Steppable:
    return gymnasium.vector.SyncVectorEnv([cell.make_env] * cell.num_envs)


def _make_gymnasium_async(cell: Cell) -> Steppable:
    make_env = _DeafToInterrupts(cell.make_env, os.getpid())
    return gymnasium.vector.AsyncVectorEnv([make_env] * cell.num_envs)


def _make_gymnasium_pipe(cell: Cell) -> Steppable:
    make_env = _DeafToInterrupts(cell.make_env, os.getpid())
    return gymnasium.vector.AsyncVectorEnv([make_env] * cell.num_envs, shared_memory=False)


@dataclass(frozen=True, slots=True)
class _DeafToInterrupts:
    """A constructor that leaves Ctrl-C to the parent: workers would each print a traceback."""

    make_env: EnvConstructor
    parent_pid: int

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if os.getpid() != self.parent_pid:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.make_env()


def _abort_gymnasium_async(env: gymnasium.vector.AsyncVectorEnv) -> None:
    # Its `close` would wait for the reply to a step that was interrupted, or raise a worker's error again.
    for process in env.processes:
        process.kill()
        process.join()
    env.closed = True


CONTENDERS: Mapping[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender(SHOAL, _make_shoal),
        Contender("shoal-serial", _make_shoal_serial),
        Contender("shoal-thread", _make_shoal_thread),
        Contender("gymnasium-sync", _make_gymnasium_sync),
        Contender("gymnasium-async", _make_gymnasium_async, _abort_gymnasium_async),
        # For spaces that its shared memory does not take.
        Contender("gymnasium-pipe", _make_gymnasium_pipe, _abort_gymnasium_async),
    )
}
