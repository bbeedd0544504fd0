"""The host owns a worker's envs and answers requests about them, the same way in every backend."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

import numpy as np

from shoal.errors import StateError
from shoal.memory import Heap
from shoal.structure.cast import fit
from shoal.worker.autoreset import AUTORESET, Autoreset, EpisodeEnd
from shoal.worker.chosen_infos import ChosenInfos
from shoal.worker.columns import InfoBlock
from shoal.worker.driver import Driver
from shoal.worker.failures import Failure
from shoal.worker.infos import Columns, gather
from shoal.worker.messages import Attach, Build, Built, Call, Close, Reply, Request, Reset, ShareInfos, Step
from shoal.worker.record import Record

_REWARD = np.dtype(np.float64)
_FLAG = np.dtype(np.bool_)


class Terminated(BaseException):
    """The worker has been told to end now; not for an env to catch."""


class EnvSlot:
    """One env's place: its driver, and what its next step does.

    Attributes:
        row: Its row in the batch.
        step: What the host calls to step it; modes and failures replace it.
        last_observation: What it observed last, for a reset that leaves it alone.
    """

    __slots__ = ("driver", "host", "last_observation", "row", "step")

    def __init__(self, host: EnvHost, row: int, driver: Driver) -> None:
        """An env that was not reset yet."""
        self.host = host
        self.row = row
        self.driver = driver
        self.last_observation: Any = None
        self.refuse("it has not been reset yet")

    def refuse(self, reason: str) -> None:
        """Makes stepping an error until the next reset."""

        def step(_action: Any) -> Any:
            raise StateError(f"env {self.row} cannot be stepped: {reason}; reset it first")

        self.step: Callable[[Any], Any] = step

    def restart(self, seed: int | None = None, options: Any = None) -> EpisodeEnd:
        """Resets the env, and makes its next step an ordinary one."""
        observation, info = self.driver.reset(seed, options)
        self.resume()
        return observation, info

    def resume(self) -> None:
        """Makes the env's next step an ordinary one, whatever it was to be."""
        self.step = self.driver.step

    def keep_final(self, observation: Any) -> None:
        """Stores the last observation of the episode that has just ended."""
        self.host.record.keep_final(self.row, observation)


class EnvHost:
    """Owns consecutive rows of a batch.

    Attributes:
        worker: Number of this worker.
        first_row: Row of its first env.
        record: The block that is being written.
    """

    record: Record

    def __init__(self, worker: int, marks: MutableSequence[int] | memoryview | None = None, mark: int = 0) -> None:
        """Starts without envs.

        Args:
            worker: Number of this worker.
            marks: Where to note what is being worked on, for others to see; None for nowhere.
            mark: Which of the marks is this worker's: set to the row plus one, and to 0 in between.
        """
        self.worker = worker
        self._marks = [0] if marks is None else marks
        self._mark = mark
        self.first_row = 0
        self._slots: list[EnvSlot] = []
        self._records: list[Record] = []
        self._heaps: list[Heap] = []
        self._info_blocks: list[InfoBlock] = []
        self._read_actions: Callable[[int, int], list[Any]] = lambda first, last: []
        self._end_episode = AUTORESET[Autoreset.NEXT_STEP]

    def handle(self, request: Request) -> Reply:
        """Returns the reply; an exception of an env is part of it and never raised."""
        try:
            return self._answer(request)
        except Terminated:
            raise
        except BaseException as error:
            # Past what is asked of each env apart: an info that nobody can handle, or a fault of ours.
            doing = type(request).__name__.lower()
            return Reply(self.worker, request.sequence, failures=[Failure.of(self.first_row, doing, error)])

    def _answer(self, request: Request) -> Reply:
        match request:
            case Step():
                return self._step(request)
            case Reset():
                return self._reset(request)
            case Call():
                return self._call(request)
            case Build():
                return self._build(request)
            case Attach():
                return self._attach(request)
            case ShareInfos():
                return self._share_infos(request)
            case Close(sequence):
                return Reply(self.worker, sequence, failures=self.close())

    def close(self) -> list[Failure]:
        """Closes every env, whatever the others do, and returns what went wrong."""
        slots, self._slots = self._slots, []
        failures = []
        for slot in slots:
            self._note(slot.row + 1)
            try:
                slot.driver.close()
            except Terminated:
                # Told to hurry, but the other envs have a right to be closed too.
                continue
            except BaseException as error:
                failures.append(Failure.of(slot.row, "close", error))
        self._note(0)
        self._records, self._info_blocks = [], []
        while self._heaps:
            self._heaps.pop().close()
        return failures

    def _step(self, request: Step) -> Reply:
        slots = self._slots_of(request.rows)
        first, last = request.rows or (self.first_row, self.first_row + len(slots))
        record = self.record = self._records[request.block]
        write, end_episode = record.write_observation, self._end_episode
        marks, mark = self._marks, self._mark
        rewards: list[Any] = []
        terminations: list[Any] = []
        truncations: list[Any] = []
        infos: list[tuple[int, dict[str, Any]]] = []
        failures: list[Failure] = []
        row = first
        for slot, action in zip(slots, self._read_actions(first, last), strict=True):
            row += 1
            marks[mark] = row
            try:
                observation, reward, terminated, truncated, info = slot.step(action)
                if terminated or truncated:
                    observation, info = end_episode(slot, observation, info)
                write(row - 1, observation)
                slot.last_observation = observation
                if info:
                    # A copy: envs may share one dictionary, and each fills it in its turn.
                    infos.append((row - 1, dict(info)))
            except Terminated:
                raise
            except BaseException as error:
                self._fail(slot, "step", error, failures)
                reward, terminated, truncated = 0.0, False, False
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
        marks[mark] = 0
        try:
            record.write_scalars(first, last, rewards, terminations, truncations)
        except Exception:
            self._write_scalars_apart(slots, record, rewards, terminations, truncations, failures)
        return Reply(self.worker, request.sequence, (), self._deliver(request, infos) if infos else None, failures)

    def _write_scalars_apart(
        self,
        slots: Sequence[EnvSlot],
        record: Record,
        rewards: list[Any],
        terminations: list[Any],
        truncations: list[Any],
        failures: list[Failure],
    ) -> None:
        """Writes rewards and flags that are not all plain numbers, or says whose is none."""
        for slot, reward, terminated, truncated in zip(slots, rewards, terminations, truncations, strict=True):
            try:
                values = (
                    [float(_scalar(reward, _REWARD, "reward"))],
                    [bool(_scalar(terminated, _FLAG, "terminated"))],
                    [bool(_scalar(truncated, _FLAG, "truncated"))],
                )
                record.write_scalars(slot.row, slot.row + 1, *values)
            except Exception as error:
                self._fail(slot, "step", error, failures)

    def _reset(self, request: Reset) -> Reply:
        record = self.record = self._records[request.block]
        infos: list[tuple[int, dict[str, Any]]] = []
        failures: list[Failure] = []
        record.clear_final(self.first_row, self.first_row + len(self._slots))
        for slot in self._slots:
            row = slot.row
            self._note(row + 1)
            try:
                if request.chosen[row]:
                    # Its own copy: an env that takes something out of its options takes it from nobody else.
                    observation, info = slot.restart(request.seeds[row], copy.deepcopy(request.options[row]))
                    record.write_observation(row, observation)
                    slot.last_observation = observation
                    if info:
                        infos.append((row, dict(info)))
                elif slot.last_observation is None:
                    raise StateError(f"env {row} has no observation to keep: it was never reset; reset it, too")
                else:
                    # Not from the block that it is in: that may have been lent, and the caller may have changed it.
                    record.write_observation(row, slot.last_observation)
            except Terminated:
                raise
            except BaseException as error:
                self._fail(slot, "reset", error, failures)
        self._note(0)
        return Reply(self.worker, request.sequence, (), self._deliver(request, infos) if infos else None, failures)

    def _deliver(self, request: Step | Reset, infos: list[tuple[int, dict[str, Any]]]) -> Columns | None:
        """Stores infos where they are laid out, or else returns them as the columns of a message."""
        if self._info_blocks:
            first, last = self.first_row, self.first_row + len(self._slots)
            if self._info_blocks[request.block].write(self.worker, request.sequence, first, last, infos):
                return None
        return gather(infos)

    def _share_infos(self, request: ShareInfos) -> Reply:
        assert request.segment is not None
        # Without columns infos go by message, which is right whatever comes of this.
        self._info_blocks = []
        self._info_blocks = request.layout.blocks(request.segment)
        return Reply(self.worker, request.sequence)

    def _call(self, request: Call) -> Reply:
        rows, each = request.rows, request.each
        slots = self._slots if rows is None else [self._slots[row - self.first_row] for row in rows]
        values: list[Any] = []
        failures: list[Failure] = []
        for slot, own in zip(slots, [()] * len(slots) if each is None else each, strict=True):
            self._note(slot.row + 1)
            value = None
            try:
                value = request.function(slot, *request.args, *own)
            except Terminated:
                raise
            except BaseException as error:
                failures.append(Failure.of(slot.row, request.doing, error))
            values.append(value)
        self._note(0)
        return Reply(self.worker, request.sequence, values, failures=failures, rows=rows)

    def _slots_of(self, rows: tuple[int, int] | None) -> Sequence[EnvSlot]:
        if rows is None:
            return self._slots
        return self._slots[rows[0] - self.first_row : rows[1] - self.first_row]

    def _build(self, request: Build) -> Reply:
        self.first_row = request.first_row
        self._end_episode = AUTORESET[request.autoreset]
        built: list[Built] = []
        row = request.first_row
        self._note(row + 1)
        try:
            for setup in request.setups:
                setup()
            for row, env_fn in enumerate(request.env_fns, request.first_row):
                self._note(row + 1)
                driver = request.driver_factory(env_fn)
                if request.infos is not None:
                    driver = ChosenInfos(driver, request.infos)
                self._slots.append(EnvSlot(self, row, driver))
                built.append(Built(driver.facts(), (os.getpid(), id(driver.identity))))
        except Terminated:
            raise
        except BaseException as error:
            return Reply(self.worker, request.sequence, failures=[Failure.of(row, "constructor", error)])
        self._note(0)
        return Reply(self.worker, request.sequence, built)

    def _attach(self, request: Attach) -> Reply:
        assert request.segment is not None
        buffer, rows = request.segment.buffer, request.actions.rows
        description, first, last = request.description, self.first_row, self.first_row + len(self._slots)
        # A mapping of its own for each, since a heap is mapped anew as it grows.
        self._heaps = [heap.reopened() for heap in request.heaps_of(self.worker)]
        taken, given = ([self._heaps[0]] * rows, [self._heaps[1]] * rows) if self._heaps else ((), ())
        action_views = request.actions.views(buffer, 0, taken)["action"]
        self._read_actions = description.action.reader(action_views)
        self._records = [
            Record(description, request.results.views(buffer, start, given), first, last)
            for start in (
                request.actions.nbytes + index * request.results.nbytes for index in range(request.num_blocks)
            )
        ]
        return Reply(self.worker, request.sequence)

    def _note(self, row: int) -> None:
        self._marks[self._mark] = row

    def _fail(self, slot: EnvSlot, doing: str, error: BaseException, failures: list[Failure]) -> None:
        failures.append(Failure.of(slot.row, doing, error))
        slot.refuse(f"its last {doing} raised {type(error).__name__}")


def _scalar(value: Any, dtype: np.dtype, name: str) -> Any:
    """Returns the one number that a reward or flag holds, also if it comes as an array of one."""
    array = np.asarray(value)
    if array.size == 1:
        array = array.reshape(())
    if dtype.kind == "b" and array.dtype.kind in "iub":
        return array != 0
    return fit(array, (), dtype, name)
