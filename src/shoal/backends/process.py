"""The process backend: requests through rings and sockets to worker processes, replies back the same way."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from shoal.backends import launcher
from shoal.backends.backend import Death, Incoming, WorkerStart
from shoal.backends.connect import connect
from shoal.backends.fork_server import ForkServer
from shoal.backends.link import LIVENESS, Link
from shoal.backends.wiring import Wiring
from shoal.backends.worker_process import end_all
from shoal.errors import ClosedError, StartError, StateError, WorkerDiedError
from shoal.memory import Patience, watch
from shoal.memory.ring import CAPACITY
from shoal.worker import Attach, Close, Reply, Request, ShareInfos, Step, by_value
from shoal.worker.cpus import available_cpus
from shoal.worker.main import DONE, MESSAGE, STEP, WITH_MESSAGE
from shoal.worker.pickling import loads_reply, pickle_functions

_TERM_GRACE = 1.0  # seconds
# With more workers than this for each CPU, one that watches only keeps the others from working.
_WATCHERS_PER_CPU = 2
# Number of the last request, which does not come from the engine.
CLOSING = -1
_open_backends: weakref.WeakSet[ProcessBackend] = weakref.WeakSet()


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
        longest_ns = Patience.LONGEST_NS if start.longest_watch_ns is None else start.longest_watch_ns
        can_watch = start.num_workers <= _WATCHERS_PER_CPU * available_cpus()
        self._worker_watch_ns, self._patience = longest_ns if can_watch else 0, Patience(longest_ns)
        self._server: ForkServer | None = None
        try:
            self._wiring = Wiring(start.num_workers)
        except OSError as error:
            raise StartError(f"{start.num_workers} workers cannot be started: {error}") from error
        self._control, self._completed = self._wiring.control, self._wiring.completed
        try:
            if start.start_method != "fork":
                self._server = launcher.acquire([*launcher.DEFAULT_PRELOAD, *start.preload])
        except BaseException:
            self._wiring.close()
            raise
        # Completions announced by the bell and not yet read.
        self._announced = self._wait_began = 0
        self._workers: list[Link] = []
        # Requests that live workers have not answered.
        self._due = 0
        # False from before a change of these numbers until after it: an interrupt may come between two of them.
        self._is_certain = True
        # Whether an interrupt has left a part of a message unsent.
        self._has_rest = False
        # Whether a death is known that has not been told.
        self._has_news = False
        self._by_fd: dict[int, Link] = {}
        self._poller = self._make_poller()
        self._hears_of_deaths = self._is_open = True
        # What every wait raises that is not part of closing.
        self._interruption: BaseException | None = None
        _open_backends.add(self)

    def start(self, worker: int, deadline: float | None) -> None:
        """Starts one worker process.

        Raises:
            StartError: The system refuses.
        """
        siblings = [own.channel for backend in _open_backends for own in backend._workers]
        own = connect(worker, self._start, self._wiring, self._server, self._worker_watch_ns, siblings, deadline)
        self._workers.append(own)
        self.pids.append(own.process.pid)
        self._by_fd[own.death_fd] = own
        self._poller = self._make_poller()
        self._hears_of_deaths &= own.process.pidfd >= 0

    def check_functions(self, functions: list[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Returns the constructors pickled; raises `ArgumentTypeError` for one that cannot be."""
        return pickle_functions(functions)

    def submit(self, worker: int, request: Request) -> None:
        """Writes the request to the worker's ring, and to its socket if it does not fit into the ring."""
        self._submit([self._workers[worker]], request)

    def broadcast(self, request: Request) -> None:
        """Sends one request to every worker."""
        self._submit(self._workers, request)

    def _submit(self, workers: list[Link], request: Request) -> None:
        for own in workers:
            if own.is_dead:
                raise WorkerDiedError(f"worker {own.index} (pid {own.process.pid}) has died", worker=own.index)
            if own.due >= CAPACITY:
                raise StateError(f"worker {own.index} has not answered its last {CAPACITY} requests; close the batch")
        if not self._is_certain:
            self._recount()
        if type(request) is Step:
            first, last = request.rows or (0, 0)
            self._is_certain = False
            self._due += len(workers)
            for own in workers:
                own.announce(STEP, first, last, request.block, request.sequence)
            self._is_certain = True
            return
        files: dict[int, list[int]] = {}
        if isinstance(request, (Attach, ShareInfos)):
            files = {own.index: request.files(own.index) for own in workers}
            request = request.without_files()
        payload = by_value.dumps(request)
        for own in workers:
            self._send(own, payload, request.sequence, files.get(own.index, ()))

    def _send(
        self, own: Link, payload: bytes, sequence: int, descriptors: Sequence[int] = (), deadline: float | None = None
    ) -> None:
        """Announces a message and sends it."""
        self._is_certain = False
        self._due += 1
        if not own.send(MESSAGE, sequence, payload, descriptors, deadline):
            self._mark_dead(own)
        self._is_certain = True

    def all_done(self, sequence: int) -> bool:
        """Watches for a plain completion by every worker; shorter than the general way over replies."""
        self._wait_began = time.monotonic_ns()
        budget = self._patience.budget_ns()
        if not budget or not self._is_certain or not self._watch(self._wait_began + budget):
            return False
        self._is_certain = False
        self._announced += self._completed.take()
        self._is_certain = True
        workers = self._workers
        if not self._announced == self._due == len(workers):
            return False
        return all(own.completions.peek() == (DONE, sequence) for own in workers)

    def take_done(self) -> None:
        """Takes one completion off every worker."""
        self._is_certain = False
        for own in self._workers:
            own.completions.position += 1
            own.due = 0
        self._announced = self._due = 0
        self._patience.learn(time.monotonic_ns() - self._wait_began)
        self._wait_began = 0
        self._is_certain = True

    def _recount(self) -> None:
        """Finds out from the rings where things stand, after Ctrl-C or the like came between two numbers."""
        for own in self._workers:
            if own.is_dead:
                own.due = own.completions.unread()
            else:
                # A submission that was not announced counts for nothing; one that was may lack its ring or message.
                own.submissions.resume()
                own.due = own.submissions.position - own.completions.position
                own.submitted.ring()
        self._flush_rest()
        self._due = sum(own.due for own in self._workers)
        # What will be rung for once more by a worker that is about to, is announced twice: no harm.
        self._announced = self._visible()
        self._has_news = any(own.is_dead and not own.is_buried for own in self._workers)
        self._poller = self._make_poller()
        self._wait_began = 0
        self._is_certain = True

    def collect(
        self,
        count: int,
        deadline: float | None,
        file: Callable[[Reply], None],
        bury: Callable[[Death], None],
        *,
        closing: bool = False,
    ) -> bool:
        """Waits until `count` replies are there, a worker dies, or the deadline has passed.

        While `closing` another thread's interruption is not heeded.
        """
        if not self._is_certain:
            self._recount()
        self._is_certain = False
        count = min(count, self._due)
        self._announced += self._completed.take()
        if self._announced < count:
            self._sleep(count, deadline, closing)
        if self._wait_began:
            # The wait that `all_done` began ends here.
            self._patience.learn(time.monotonic_ns() - self._wait_began)
            self._wait_began = 0
        is_any = self._read(file, deadline)
        if self._has_news:
            is_any = True
            self._tell_deaths(bury)
        self._is_certain = True
        return is_any or self._due > 0

    def current_row(self, worker: int) -> int | None:
        """Returns the row that a worker is working on, None if it is at none."""
        row = self._control.words[self._control.progress(worker)] - 1
        return row if row >= 0 else None

    def abandon(self) -> None:
        """Closes this process's copies of the descriptors; the workers are not its own."""
        if self._is_open:
            self._is_open = False
            self._drop()

    def interrupt(self, error: BaseException) -> None:
        """Has the thread that waits in `collect` raise the error, since another is about to close."""
        self._interruption = error
        self._completed.ring()

    def close(self, timeout: float, *, ask: bool) -> Incoming:
        """Ends all workers: asks them, then SIGTERM, then SIGKILL to their groups."""
        if not self._is_open:
            return Incoming()
        self._is_open = False
        last = Incoming()
        # A signal handler may close the batch in the middle of a wait, which then has this poller in use.
        self._poller = self._make_poller()
        self._interruption = self._interruption or ClosedError("the batch was closed while it was waited for")
        try:
            if ask:
                last = self._ask_to_close(time.monotonic() + timeout)
            end_all([own.process for own in self._workers], signal.SIGTERM, _TERM_GRACE)
        finally:
            end_all([own.process for own in self._workers], signal.SIGKILL, _TERM_GRACE)
            self._drop()
            if self._server is not None:
                launcher.release(self._server)
        return last

    def _watch(self, until_ns: int) -> bool:
        """Watches until all workers have answered everything, or the time is up; returns whether they have."""
        words = self._control.words
        for own in self._workers:
            ring = own.completions
            if own.due and not watch(words, ring.counter, ring.position + own.due, until_ns):
                return False
        return True

    def _sleep(self, count: int, deadline: float | None, closing: bool) -> None:
        """Sleeps until the bell has announced `count` completions, a worker dies, or the deadline has passed."""
        while self._announced < count and not self._has_news:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            # What an env has started may hold the socket whose end tells of a death where nothing else does.
            looks_on = not self._hears_of_deaths or self._has_rest
            look = left if not looks_on else LIVENESS if left is None else min(left, LIVENESS)
            ready = self._poller.poll(None if look is None else look * 1000)
            if self._interruption is not None and not closing:
                raise self._interruption
            self._announced += self._completed.take()
            self._note_deaths(ready)
            if self._has_rest:
                self._flush_rest()
            if not ready:
                if look == left:
                    return
                self._look_for_deaths()

    def _read(self, file: Callable[[Reply], None], deadline: float | None) -> bool:
        """Reads the completions that the bell has announced, all that are written if one of the writers is dead.

        Returns:
            Whether there were any.
        """
        # When all that is due has been announced there is nothing to compare.
        while not self._has_news and self._announced < self._due and self._visible() > self._announced:
            # One is written but not rung for yet: not to be read before it is. A dead worker never will.
            if deadline is not None and time.monotonic() >= deadline:
                return False
            ready = self._poller.poll(LIVENESS * 1000)
            self._announced += self._completed.take()
            self._note_deaths(ready)
        # A ring that comes late from a worker whose completion was trusted announces nothing new.
        self._announced = 0
        is_any = False
        for own in self._workers:
            completions = own.completions
            for _ in range(completions.unread()):
                status, first_row, _last, number, sequence = completions.look()
                if status == WITH_MESSAGE:
                    try:
                        payload = own.receive(number, deadline)
                    except TimeoutError:
                        # It is still being sent; what has come is kept, and the completion stays to be read.
                        self._announced = self._visible()
                        return is_any
                    if payload is None:
                        self._mark_dead(own)
                    else:
                        file(loads_reply(payload, own.index, sequence, first_row))
                else:
                    file(Reply(own.index, sequence))
                # Only now is it taken off.
                completions.position += 1
                own.due -= 1
                self._due -= 1
                is_any = True
        return is_any

    def _visible(self) -> int:
        return sum(own.completions.unread() for own in self._workers)

    def _flush_rest(self) -> None:
        """Sends what an interrupt has left unsent, as much of it as there is room for."""
        for own in self._workers:
            if not own.is_dead and not own.flush(waits=False):
                self._mark_dead(own)
        self._has_rest = any(own.channel.has_unsent() for own in self._workers if not own.is_dead)

    def _note_deaths(self, ready: list[tuple[int, int]]) -> None:
        """Takes note of the workers whose death is among what the poller has found."""
        for fd, _ in ready:
            if fd in self._by_fd:
                self._mark_dead(self._by_fd[fd])

    def _make_poller(self) -> select.poll:
        """Returns what wakes this process: the bell, and the deaths of workers."""
        poller = select.poll()
        poller.register(self._completed.fileno(), select.POLLIN)
        for fd, own in self._by_fd.items():
            if not own.is_dead:
                poller.register(fd, own.death_events)
        return poller

    def _look_for_deaths(self) -> None:
        for own in self._workers:
            if own.due and own.process.has_ended():
                self._mark_dead(own)

    def _mark_dead(self, own: Link) -> None:
        if own.is_dead:
            return
        self._has_news = own.is_dead = True
        # Nothing more will come; what has come is still read.
        self._due -= own.due - own.completions.unread()
        own.due = own.completions.unread()
        with contextlib.suppress(KeyError):
            self._poller.unregister(own.death_fd)

    def _tell_deaths(self, bury: Callable[[Death], None]) -> None:
        for own in self._workers:
            if own.is_dead and not own.is_buried:
                code = own.process.exit_code(2.0)
                bury(Death(own.index, own.process.pid, code, self.current_row(own.index)))
                own.is_buried = True
        self._has_news = False

    def _ask_to_close(self, deadline: float) -> Incoming:
        """Has every worker close its envs and end by itself."""
        last = Incoming()
        for own in self._workers:
            if own.is_dead:
                continue
            with contextlib.suppress(TimeoutError):
                self._send(own, by_value.dumps(Close(CLOSING)), CLOSING, deadline=deadline)

        def file(reply: Reply) -> None:
            if reply.sequence == CLOSING:
                last.replies.append(reply)

        while self._due and time.monotonic() < deadline:
            self.collect(len(self._workers), deadline, file, last.deaths.append, closing=True)
        # Whoever has answered goes by itself.
        answered = {reply.worker for reply in last.replies}
        last.deaths = [death for death in last.deaths if death.worker not in answered]
        while any(not own.process.has_ended() for own in self._workers) and time.monotonic() < deadline:
            time.sleep(0.001)
        return last

    def _drop(self) -> None:
        """Closes every descriptor of this process."""
        for own in self._workers:
            if os.getpid() == self._owner:
                own.process.exit_code(0.5)
            own.close()
        self._wiring.close()
        _open_backends.discard(self)
