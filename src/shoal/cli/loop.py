"""One plain loop over envs, in a process of its own: what the ideal is made of.

Nothing in here knows about batches, shared memory or other loops. It is the least a Python program
can do to step an env, and so the bound that no way of stepping in Python gets past.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import gymnasium

from shoal.cli.measure import ACTION_RING, Timing

# Steps between two looks at the clock, at least.
_CHUNK = 64

# A step, a reset and an action of one env.
Turn: TypeAlias = tuple[Callable[[Any], tuple[Any, Any, bool, bool, Any]], Callable[[], object], Any]


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """What one loop steps, and how long.

    Attributes:
        make_env: Constructor of one env.
        num_envs: This loop's share of the envs.
        seed: Seed of its first env's episode and actions; the next env's is one higher.
        timing: How long to warm up and to measure.
    """

    make_env: Callable[[], gymnasium.Env[Any, Any]]
    num_envs: int
    seed: int
    timing: Timing


@dataclass(frozen=True, slots=True)
class Ready:
    """The loop is warm and waits for its start."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The loop has run: so many env-steps in so many seconds."""

    env_steps: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An env raised; `report` is the traceback."""

    report: str


def spin(chunks: Sequence[Sequence[Turn]], seconds: float) -> Finished:
    """Steps through the chunks, over and over, until the time is up.

    A finished episode is followed by a reset, which counts as a step, as it does in a vector env
    that resets on the next step.

    Args:
        chunks: At least one. The clock is looked at after each.
        seconds: How long; at least one chunk is stepped.
    """
    clock = time.perf_counter
    env_steps = 0
    begin = now = clock()
    deadline = begin + seconds
    for chunk in itertools.cycle(chunks):
        for step, reset, action in chunk:
            _observation, _reward, terminated, truncated, _info = step(action)
            if terminated or truncated:
                reset()
                env_steps += 1
        env_steps += len(chunk)
        now = clock()
        if now >= deadline:
            break
    return Finished(env_steps, now - begin)


def plan_turns(envs: Sequence[gymnasium.Env[Any, Any]], seed: int) -> list[list[Turn]]:
    """Returns turns that step all envs round-robin with sampled actions, in chunks of whole rounds."""
    for index, env in enumerate(envs):
        env.action_space.seed(seed + index)
    rounds = [[(env.step, env.reset, env.action_space.sample()) for env in envs] for _ in range(ACTION_RING)]
    per_chunk = max(1, _CHUNK // len(envs))
    return [
        list(itertools.chain.from_iterable(rounds[first : first + per_chunk]))
        for first in range(0, ACTION_RING, per_chunk)
    ]


def serve(descriptor: int) -> None:
    """Runs one request that comes over a connection, then returns.

    Sends `Ready`, waits for the moment to start on the system-wide monotonic clock, sends
    `Finished`; or `Failed`, at any time.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    threading.Thread(target=_exit_with_parent, args=(descriptor,), daemon=True).start()
    try:
        _run(connection.recv(), connection)
    except EOFError:
        # Nobody waits for the result any more.
        pass
    except Exception:
        connection.send(Failed(traceback.format_exc()))


def _run(request: LoopRequest, connection: Connection) -> None:
    envs: list[gymnasium.Env[Any, Any]] = []
    try:
        for index in range(request.num_envs):
            envs.append(request.make_env())
            envs[-1].reset(seed=request.seed + index)
        chunks = plan_turns(envs, request.seed)
        spin(chunks, request.timing.warmup_s)
        connection.send(Ready())
        start: float = connection.recv()
        time.sleep(max(0.0, start - time.monotonic()))
        connection.send(spin(chunks, request.timing.seconds))
    finally:
        for env in envs:
            env.close()


def _exit_with_parent(descriptor: int) -> None:
    """Ends the process when the other side is gone, also while an env hangs."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)
