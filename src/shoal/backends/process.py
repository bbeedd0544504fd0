"""The process backend: requests through rings and sockets to worker processes, replies back the same way."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle

from shoal.backends import launcher
from shoal.backends.backend import Death, Incoming, WorkerStart
from shoal.backends.entry import Order
from shoal.errors import StartError, WorkerDiedError
from shoal.memory import ControlMemory, Patience, Ring, make_bell, watch
from shoal.worker import Attach, Close, Reply, Request, Step
from shoal.worker.channel import Channel, ChannelClosedError, channel_pair
from shoal.worker.cpus import available_cpus
from shoal.worker.main import MESSAGE, STEP, WITH_MESSAGE
from shoal.worker.pickling import pickle_functions

# Between looks at whether a worker that is expected to send something is still there.
_LIVENESS = 0.2  # seconds
_TERM_GRACE = 1.0  # seconds
# With more workers than this for each CPU, one that watches only keeps the others from working.
_WATCHERS_PER_CPU = 2
# Number of the last request, which does not come from the engine.
CLOSING = -1
_open_backends: weakref.WeakSet[ProcessBackend] = weakref.WeakSet()


class _Worker:
    """This side of one worker process.

    Attributes:
        outstanding: How many requests it has not answered.
    """

    def __init__(self, index: int, control: ControlMemory, process: launcher.WorkerProcess, channel: Channel) -> None:
        self.index = index
        self.process = process
        self.channel = channel
        self.submissions: Ring = control.submissions(index)
        self.completions: Ring = control.completions(index)
        self.outstanding = 0
        self.is_dead = False


class ProcessBackend:
    """Reaches workers that are processes of their own.

    Attributes:
        pids: Process id of each worker.
    """

    def __init__(self, start: WorkerStart) -> None:
        """Makes rings and bells; `start` starts the processes."""
        self.pids: list[int] = []
        self._start = start
        self._owner = os.getpid()
        can_watch = start.num_workers <= _WATCHERS_PER_CPU * available_cpus()
        self._worker_watch_ns = Patience.LONGEST_NS if can_watch else 0
        self._patience = Patience()
        if start.longest_watch_ns is not None:
            self._worker_watch_ns = start.longest_watch_ns
            self._patience = Patience(start.longest_watch_ns)
        self._server = (
            None if start.start_method == "fork" else launcher.acquire([*launcher.DEFAULT_PRELOAD, *start.preload])
        )
        self._control = ControlMemory.create(start.num_workers)
        self._submitted = [make_bell() for _ in range(start.num_workers)]
        self._completed = make_bell()
        # Completions announced by the bell and not yet read.
        self._announced = 0
        self._workers: list[_Worker] = []
        self._unreported: list[Death] = []
        self._poller = select.poll()
        self._poller.register(self._completed.fileno(), select.POLLIN)
        self._by_fd: dict[int, _Worker] = {}
        self._is_open = True
        _open_backends.add(self)

    def start(self, worker: int, deadline: float | None) -> None:
        """Starts one worker process.

        Raises:
            StartError: The system refuses.
        """
        submitted = self._submitted[worker].descriptors()
        order = Order.here(
            worker=worker,
            num_workers=self._start.num_workers,
            bell_size=len(submitted),
            longest_watch_ns=self._worker_watch_ns,
            entropy=(*self._start.entropy, worker),
            num_threads=self._start.num_threads,
        )
        channel, theirs = channel_pair()
        streams = [_output_descriptor(1), _output_descriptor(2)]
        descriptors = [
            theirs.fileno(),
            self._control.segment.fileno(),
            *submitted,
            *self._completed.descriptors(),
            *streams,
        ]
        try:
            if self._server is None:
                channels = [channel, *(own.channel for backend in _open_backends for own in backend._workers)]
                process = launcher.fork(order, descriptors, channels)
            else:
                process = self._server.start(self._start.start_method, order, descriptors, deadline)
        except OSError as error:
            channel.close()
            raise StartError(f"worker {worker} cannot be started: {error}") from error
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
            for fd in streams:
                os.close(fd)
        own = _Worker(worker, self._control, process, channel)
        self._workers.append(own)
        self.pids.append(process.pid)
        # Without a pidfd the end of the socket tells of a death, unless something the env started holds it.
        fd, events = (process.pidfd, select.POLLIN) if process.pidfd >= 0 else (channel.fileno(), 0)
        self._poller.register(fd, events)
        self._by_fd[fd] = own

    def check_functions(self, functions: list[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Returns the constructors pickled; raises `ArgumentTypeError` for one that cannot be."""
        return pickle_functions(functions)

    def submit(self, worker: int, request: Request) -> None:
        """Writes the request to the worker's ring, and to its socket if it does not fit into the ring."""
        own = self._workers[worker]
        if own.is_dead:
            raise WorkerDiedError(f"worker {worker} (pid {own.process.pid}) has died", worker=worker)
        own.outstanding += 1
        if type(request) is Step:
            own.submissions.push(STEP, request.first_row, request.last_row, request.block, request.sequence)
            self._submitted[worker].ring()
            return
        descriptors = []
        if isinstance(request, Attach) and request.segment is not None:
            descriptors = [request.segment.fileno()]
            request = replace(request, segment=None)
        payload = cloudpickle.dumps(request)
        own.submissions.push(MESSAGE, 0, 0, 0, request.sequence)
        self._submitted[worker].ring()
        self._send(own, payload, descriptors)

    def collect(self, count: int, deadline: float | None) -> Incoming:
        """Waits until `count` replies are there, a worker dies, or the deadline has passed."""
        start = time.monotonic_ns()
        busy = [own for own in self._workers if own.outstanding and not own.is_dead]
        count = min(count, sum(own.outstanding for own in busy))
        self._watch(busy, count, start)
        bell, poller = self._completed, self._poller
        self._announced += bell.take()
        while self._announced < count and not self._unreported:
            timeout_ms = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
            ready = poller.poll(timeout_ms)
            if not ready:
                break
            self._announced += bell.take()
            for fd, _ in ready:
                if fd in self._by_fd:
                    self._note_death(fd)
        self._patience.learn(time.monotonic_ns() - start)
        deaths, self._unreported = self._unreported, []
        return Incoming(self._read(busy, trust_all=bool(deaths), deadline=deadline), deaths + self._take_deaths())

    def current_row(self, worker: int) -> int | None:
        """Returns the row that a worker is working on, None if it is at none."""
        row = self._control.words[self._control.progress(worker)] - 1
        return row if row >= 0 else None

    def close(self, timeout: float, *, ask: bool) -> Incoming:
        """Ends all workers: asks them, then SIGTERM, then SIGKILL to their groups."""
        if not self._is_open:
            return Incoming()
        self._is_open = False
        if os.getpid() != self._owner:
            # A fork of the user's process drops its copies; the workers are not its own.
            self._drop()
            return Incoming()
        last = Incoming()
        try:
            if ask:
                last = self._ask_to_close(time.monotonic() + timeout)
            self._end(signal.SIGTERM, _TERM_GRACE)
        finally:
            self._end(signal.SIGKILL, _TERM_GRACE)
            self._drop()
            if self._server is not None:
                launcher.release(self._server)
        return last

    def _watch(self, busy: list[_Worker], count: int, start_ns: int) -> None:
        """Watches for completions as long as that seems worth while."""
        budget = self._patience.budget_ns()
        if not budget or count < sum(own.outstanding for own in busy):
            return
        words, until = self._control.words, start_ns + budget
        for own in busy:
            ring = own.completions
            if not watch(words, ring.counter, ring.next - 1 + own.outstanding, until):
                return

    def _read(self, busy: list[_Worker], *, trust_all: bool, deadline: float | None) -> list[Reply]:
        """Reads the completions that the bell has announced."""
        while True:
            waiting = [(own, own.completions.unread()) for own in busy if own.outstanding]
            visible = sum(unread for _, unread in waiting)
            if visible <= self._announced or trust_all:
                break
            # One is written but not rung for yet: not to be read before it is.
            fds = [fd for fd, _ in self._poller.poll(_LIVENESS * 1000)]
            self._announced += self._completed.take()
            for fd in fds:
                if fd in self._by_fd:
                    # What a dead worker has not rung for it never will.
                    self._note_death(fd)
                    trust_all = True
        # A ring that comes late from a worker whose completion was trusted announces nothing new.
        self._announced = 0
        replies = []
        for own, unread in waiting:
            for _ in range(unread):
                status, _first, _last, _block, sequence = own.completions.pop()
                own.outstanding -= 1
                if status == WITH_MESSAGE:
                    reply = self._receive(own, deadline)
                    if reply is not None:
                        replies.append(reply)
                else:
                    replies.append(Reply(own.index, sequence))
        return replies

    def _receive(self, own: _Worker, deadline: float | None) -> Reply | None:
        """Returns the message that a completion has announced, None if the worker dies over it."""
        while True:
            try:
                payload, _ = own.channel.receive(time.monotonic() + _LIVENESS)
                reply: Reply = pickle.loads(payload)
                return reply
            except ChannelClosedError:
                self._mark_dead(own)
                return None
            except TimeoutError:
                if own.process.has_ended():
                    self._mark_dead(own)
                    return None

    def _send(self, own: _Worker, payload: bytes, descriptors: Sequence[int], deadline: float | None = None) -> None:
        try:
            own.channel.send(payload, descriptors, deadline)
        except ChannelClosedError:
            self._mark_dead(own)

    def _note_death(self, fd: int) -> None:
        self._mark_dead(self._by_fd[fd])

    def _mark_dead(self, own: _Worker) -> None:
        if own.is_dead:
            return
        own.is_dead = True
        fd = own.process.pidfd if own.process.pidfd >= 0 else own.channel.fileno()
        with contextlib.suppress(KeyError):
            self._poller.unregister(fd)
        code = own.process.exit_code(2.0)
        self._unreported.append(Death(own.index, own.process.pid, code, self.current_row(own.index)))

    def _take_deaths(self) -> list[Death]:
        deaths, self._unreported = self._unreported, []
        return deaths

    def _ask_to_close(self, deadline: float) -> Incoming:
        """Has every worker close its envs and end by itself."""
        last = Incoming()
        for own in self._workers:
            if own.is_dead:
                continue
            own.outstanding += 1
            own.submissions.push(MESSAGE, 0, 0, 0, CLOSING)
            self._submitted[own.index].ring()
            with contextlib.suppress(TimeoutError):
                self._send(own, cloudpickle.dumps(Close(CLOSING)), (), deadline)
        while any(own.outstanding for own in self._workers if not own.is_dead) and time.monotonic() < deadline:
            incoming = self.collect(len(self._workers), deadline)
            last.replies += [reply for reply in incoming.replies if reply.sequence == CLOSING]
            last.deaths += incoming.deaths
        # Whoever has answered goes by itself.
        answered = {reply.worker for reply in last.replies}
        last.deaths = [death for death in last.deaths if death.worker not in answered]
        while any(not own.process.has_ended() for own in self._workers) and time.monotonic() < deadline:
            time.sleep(0.001)
        return last

    def _end(self, number: int, grace: float) -> None:
        """Signals every worker that is left, and waits for it to go."""
        left = [own for own in self._workers if not own.process.has_ended()]
        for own in left:
            own.process.signal(number)
        deadline = time.monotonic() + grace
        while any(not own.process.has_ended() for own in left) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _drop(self) -> None:
        """Closes every descriptor of this process."""
        for own in self._workers:
            if os.getpid() == self._owner:
                own.process.exit_code(0.5)
            own.channel.close()
            own.process.close()
        for bell in (*self._submitted, self._completed):
            bell.close()
        self._control.segment.close()
        _open_backends.discard(self)


def _output_descriptor(fd: int) -> int:
    """Returns a copy of a standard output, or of nothing where the program has closed it."""
    try:
        return os.dup(fd)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
