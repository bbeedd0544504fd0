"""The ideal: one plain loop per CPU, all at once, exchanging nothing.

It is measured in the same rounds as the contenders, with the same envs from the same constructor,
and shows how much of what the machine can do is lost to batching.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import cloudpickle
import gymnasium

import shoal
from shoal.cli.loop import Failed, Finished, LoopRequest, Ready
from shoal.cli.measure import Sample, Timing
from shoal.worker import threads

# The name the ideal goes by in tables, next to the contenders' names.
IDEAL = "ideal"

_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from shoal.cli.loop import serve; serve(int(sys.argv[1]))"

# From the last loop's readiness to the common start: more than it takes to tell them all.
_START_DELAY_S = 0.05
_CLOSE_TIMEOUT_S = 10.0


class LoopError(RuntimeError):
    """An env failed in one of the ideal's loops, or its process died."""


def measure_ideal(
    make_env: Callable[[], gymnasium.Env[Any, Any]],
    num_envs: int,
    timing: Timing,
    *,
    seed: int = 0,
    num_loops: int | None = None,
) -> Sample:
    """Returns what plain loops reach together, their env-steps per second added up.

    Args:
        make_env: Constructor of one env; runs in the loops' processes.
        num_envs: Envs, shared out as evenly as can be.
        timing: How long every loop warms up and runs; all are warm before the first starts.
        seed: Seed of the first env's first episode and actions; the next env's is one higher.
        num_loops: How many; by default one per CPU. Never more than envs.

    Raises:
        LoopError: An env raised, or a loop's process died.
    """
    num_loops = min(num_loops or shoal.available_cpus(), num_envs)
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(_start_loop(index)) for index in range(num_loops)]
        first = 0
        for index, loop in enumerate(loops):
            share = num_envs // num_loops + (index < num_envs % num_loops)
            loop.send(LoopRequest(make_env, share, seed + first, timing))
            first += share
        for loop in loops:
            loop.receive(Ready)
        start = time.monotonic() + _START_DELAY_S
        for loop in loops:
            loop.send(start)
        return add_up([loop.receive(Finished) for loop in loops])


def add_up(results: list[Finished]) -> Sample:
    """Returns one sample whose rate is the sum of the rates of loops that ran at the same time."""
    env_steps = sum(result.env_steps for result in results)
    rate = sum(result.env_steps / result.seconds for result in results)
    return Sample(env_steps, env_steps / rate)


_Reply = TypeVar("_Reply", Ready, Finished)


@dataclass(frozen=True, slots=True)
class _Loop:
    index: int
    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]

    def send(self, message: LoopRequest | float) -> None:
        # A loop that is gone is noticed, and named, when its reply is awaited.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send_bytes(cloudpickle.dumps(message))

    def receive(self, expected: type[_Reply]) -> _Reply:
        try:
            reply: object = self.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            status = self.process.wait()
            raise LoopError(f"plain loop {self.index} died: {_describe_exit(status)}") from error
        if isinstance(reply, Failed):
            raise LoopError(f"an env failed in plain loop {self.index}:\n{reply.report}")
        assert isinstance(reply, expected)
        return reply


@contextlib.contextmanager
def _start_loop(index: int) -> Iterator[_Loop]:
    """Starts the process of a loop, and ends it: kindly if the context ends well, else at once."""
    # A loop has one CPU, as a worker has, and so do the libraries in it.
    environ = dict(os.environ)
    threads.cap(environ, None)
    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                env=environ,
                # Ctrl-C is for the command, which ends the loops.
                start_new_session=True,
            )
        try:
            yield _Loop(index, process, ours)
            # It closes its envs first, and takes the end of the connection for our death.
            process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
