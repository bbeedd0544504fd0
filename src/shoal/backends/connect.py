"""Starts one worker process and connects to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from shoal.backends import launcher
from shoal.backends.backend import WorkerStart
from shoal.backends.entry import Order, output_descriptor
from shoal.backends.fork_server import ForkServer
from shoal.backends.link import Link
from shoal.backends.wiring import Wiring
from shoal.errors import ShoalError, StartError
from shoal.worker.channel import Channel, channel_pair


def connect(
    worker: int,
    start: WorkerStart,
    wiring: Wiring,
    server: ForkServer | None,
    watch_ns: int,
    siblings: Sequence[Channel],
    deadline: float | None,
) -> Link:
    """Returns a new worker.

    Args:
        worker: Its number.
        start: What all workers have in common.
        wiring: Rings and bells of the batch.
        server: Who starts it; None to fork this very process.
        watch_ns: How long it may watch before it sleeps.
        siblings: This process's ends to workers that are there, which a fork of it must not keep.
        deadline: When to give up.

    Raises:
        StartError: The system refuses.
    """
    submitted = wiring.submitted[worker].descriptors()
    order = Order.here(
        worker=worker,
        num_workers=start.num_workers,
        bell_size=len(submitted),
        longest_watch_ns=watch_ns,
        entropy=(*start.entropy, worker),
        num_threads=start.num_threads,
    )
    channel, theirs = channel_pair(takes_descriptors=False)
    streams = [output_descriptor(sys.__stdout__, 1), output_descriptor(sys.__stderr__, 2)]
    descriptors = [
        theirs.fileno(),
        wiring.control.segment.fileno(),
        *submitted,
        *wiring.completed.descriptors(),
        *streams,
    ]
    try:
        if server is None:
            process = launcher.fork(order, descriptors, [channel, *siblings])
        else:
            process = server.start(start.start_method, order, descriptors, deadline)
    except BaseException as error:
        channel.close()
        if isinstance(error, OSError) and not isinstance(error, ShoalError):
            raise StartError(f"worker {worker} cannot be started: {error}") from error
        raise
    finally:
        theirs.close()
        for fd in streams:
            os.close(fd)
    return Link(worker, wiring.control, wiring.submitted[worker], process, channel)
