"""The engine's side of one worker process: its rings, its bell, its socket, and what tells of its death."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from shoal.backends.worker_process import WorkerProcess
from shoal.memory import Bell, ControlMemory, Ring
from shoal.worker.channel import Channel, ChannelClosedError

# Between looks at whether a worker that is expected to send something is still there.
LIVENESS = 0.2  # seconds


class Link:
    """Reaches one worker process.

    Attributes:
        index: Number of the worker.
        due: How many requests it has not answered.
        is_dead: Whether it is known to have ended.
        is_buried: Whether its death has been told.
        death_fd: A descriptor that tells of its end: its pidfd or, where there is none, the socket, unless
            something that the env has started holds the socket's other end.
        death_events: What to poll that descriptor for.
    """

    def __init__(
        self, index: int, control: ControlMemory, submitted: Bell, process: WorkerProcess, channel: Channel
    ) -> None:
        """Owns process handle and channel."""
        self.index = index
        self.process = process
        self.channel = channel
        self.submitted = submitted
        self.submissions: Ring = control.submissions(index)
        self.completions: Ring = control.completions(index)
        self.due = 0
        self.is_dead = self.is_buried = False
        has_pidfd = process.pidfd >= 0
        self.death_fd = process.pidfd if has_pidfd else channel.fileno()
        self.death_events = select.POLLIN if has_pidfd else 0

    def announce(self, operation: int, first: int, last: int, block: int, sequence: int) -> None:
        """Writes one submission and rings for it."""
        self.due += 1
        self.submissions.push(operation, first, last, block, sequence)
        self.submitted.ring()

    def send(
        self, operation: int, sequence: int, payload: bytes, descriptors: Sequence[int], deadline: float | None
    ) -> bool:
        """Announces a message and sends it; returns False if the worker has died over it."""
        number = self.channel.post(payload, descriptors)
        self.announce(operation, 0, 0, number, sequence)
        return self.flush(deadline)

    def flush(self, deadline: float | None = None, *, waits: bool = True) -> bool:
        """Sends the rest of what has been announced; returns False if the worker has died over it.

        Raises:
            TimeoutError: The deadline has passed.
        """
        try:
            self.channel.flush(deadline, waits=waits)
        except ChannelClosedError:
            return False
        return True

    def receive(self, number: int, deadline: float | None) -> bytes | None:
        """Returns the message of that number, which a completion has announced, None if the worker has died over it.

        It is kept until the next one is asked for.

        Raises:
            TimeoutError: The deadline has passed.
        """
        while True:
            try:
                return self.channel.look(number, time.monotonic() + LIVENESS)
            except ChannelClosedError:
                return None
            except TimeoutError:
                if self.process.has_ended():
                    return None
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    def close(self) -> None:
        """Closes this side's descriptors."""
        self.channel.close()
        self.process.close()
