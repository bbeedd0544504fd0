"""A worker process: takes submissions from its ring, has the host answer them, and dies with its parent."""

from __future__ import annotations

import pickle
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.memory import Bell, ControlMemory, Patience, watch
from shoal.memory.bell import give_up_cpu
from shoal.worker.channel import Channel, ChannelClosedError
from shoal.worker.failures import Failure
from shoal.worker.host import EnvHost, Terminated
from shoal.worker.messages import Attach, Close, Reply, Request, ShareInfos, Step
from shoal.worker.pickling import dumps_reply
from shoal.worker.placement import Placement

# Operations in a submission ring.
STEP = 1
MESSAGE = 2  # the request itself waits in the socket
# Statuses in a completion ring.
DONE = 0
WITH_MESSAGE = 1  # a reply with more than a status follows in the socket

# What a worker exits with when it was told to end, as a shell reports SIGTERM.
TERMINATED = 128 + signal.SIGTERM
# And when nobody was left to work for, as it reports SIGHUP.
ORPHANED = 128 + signal.SIGHUP


@dataclass(frozen=True)
class Connection:
    """What a worker is given to reach its engine.

    Attributes:
        worker: Number of this worker.
        control: The rings.
        submitted: Rung by the engine.
        completed: Rung by all workers.
        channel: This end of the control plane.
        longest_watch_ns: How long to watch at most before sleeping.
        entropy: Seeds the global random generators.
    """

    worker: int
    control: ControlMemory
    submitted: Bell
    completed: Bell
    channel: Channel
    longest_watch_ns: int
    entropy: Sequence[int]


class ParentGoneError(Exception):
    """Nobody is left to work for."""


def run(connection: Connection) -> int:
    """Serves requests until closed or orphaned, closes the envs whatever happens, and returns the exit code."""
    control = connection.control
    host = EnvHost(connection.worker, control.words, control.progress(connection.worker))
    try:
        try:
            _end_on_sigterm()
            _seed_global_generators(connection.entropy)
            _serve(connection, host)
        except (ParentGoneError, ChannelClosedError):
            # Whoever ends orphans sends SIGTERM too; it must not cut short the envs' own closing.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return ORPHANED
        return 0
    except Terminated:
        return TERMINATED
    except BaseException:
        # A fault of ours, not of an env: those are part of replies.
        traceback.print_exc()
        return 1
    finally:
        for failure in host.close():
            print(f"shoal: {failure.summary}\n{failure.text}", file=sys.stderr)


def _serve(connection: Connection, host: EnvHost) -> None:
    submissions = connection.control.submissions(connection.worker)
    completions = connection.control.completions(connection.worker)
    completed, channel = connection.completed, connection.channel
    waiting = _Waiting(connection, submissions.words, submissions.counter)
    is_open = True
    while is_open:
        # As many as the bell has announced; a ring too many, after an interrupted call, announces nothing.
        for _ in range(min(waiting.wait(submissions.position + 1), submissions.unread())):
            operation, first_row, last_row, block_or_number, sequence = submissions.pop()
            if operation == STEP:
                rows = (first_row, last_row) if last_row else None
                reply = host.handle(Step(sequence, block_or_number, rows))
            else:
                payload, descriptors = _receive(channel, block_or_number)
                try:
                    request = _loads_request(payload, descriptors, connection.worker)
                except Exception as error:
                    failure = Failure.of(host.first_row, "receiving a request", error)
                    reply = Reply(connection.worker, sequence, failures=[failure])
                else:
                    is_open = not isinstance(request, Close)
                    reply = host.handle(request)
            if reply.values or reply.infos or reply.failures:
                payload = dumps_reply(reply, host.first_row)
                number = channel.post(payload)
                # What the socket has no room for is sent once it is announced: then the engine empties it.
                channel.flush(waits=False)
                completions.push(WITH_MESSAGE, host.first_row, last_row, number, sequence)
                completed.ring()
                channel.flush()
            else:
                completions.push(DONE, first_row, last_row, block_or_number, sequence)
                completed.ring()


class _Waiting:
    """Waits for submissions: watches the hint for a while, then sleeps on bell and socket."""

    def __init__(self, connection: Connection, words: memoryview, counter: int) -> None:
        self._bell = connection.submitted
        self._words = words
        self._counter = counter
        self._patience = Patience(connection.longest_watch_ns)
        self._placement = Placement(connection.worker)
        self._waited_ns = 0
        self._poller = select.poll()
        self._poller.register(self._bell.fileno(), select.POLLIN)
        # Only its end matters here; messages are announced in the ring.
        self._poller.register(connection.channel.fileno(), getattr(select, "POLLRDHUP", 0))
        self._channel_fd = connection.channel.fileno()

    def wait(self, target: int) -> int:
        """Returns, once the ring holds the submission of that number, how many the bell has announced."""
        # The engine may have been waiting for this very CPU.
        give_up_cpu()
        # What is to be learnt from the last wait is learnt now, when nobody waits for this worker.
        self._patience.learn(self._waited_ns)
        self._placement.keep()
        start = time.monotonic_ns()
        watch(self._words, self._counter, target, start + self._patience.budget_ns())
        while not (count := self._bell.take()):
            for fd, _ in self._poller.poll():
                if fd == self._channel_fd:
                    raise ParentGoneError
        self._waited_ns = time.monotonic_ns() - start
        return count


def _receive(channel: Channel, number: int) -> tuple[bytes, list[int]]:
    try:
        return channel.take(number)
    except ChannelClosedError:
        raise ParentGoneError from None


def _loads_request(payload: bytes, descriptors: list[int], worker: int) -> Request:
    request: Request = pickle.loads(payload)
    return request.with_files(descriptors, worker) if isinstance(request, (Attach, ShareInfos)) else request


def _end_on_sigterm() -> None:
    def end(_signal: int, _frame: Any) -> None:
        # Once is enough: the envs are being closed from now on.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, end)


def _seed_global_generators(entropy: Sequence[int]) -> None:
    """Gives this worker's global generators a start of their own; forked siblings would share one."""
    seeds = np.random.SeedSequence(list(entropy)).generate_state(4)
    random.seed(int.from_bytes(seeds.tobytes(), "little"))
    np.random.seed(seeds)
