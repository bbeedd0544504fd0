"""Requests to a host and its replies, the same for every backend.

Rows count within the whole batch. Every request has a sequence number, its reply has the same, and
nothing else tells which reply belongs to what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.memory import Heap, Layout, Segment
from shoal.worker.autoreset import Autoreset
from shoal.worker.columns import InfoLayout
from shoal.worker.driver import Description, DriverFactory
from shoal.worker.failures import Failure
from shoal.worker.infos import Columns

# Stands among the numbers of workers for the engine, which writes actions.
ACTIONS = -1


@dataclass(slots=True)
class Build:
    """Construct the envs of rows `first_row` and on; the reply has a `Built` for each.

    Attributes:
        env_fns: Constructors, one for each row.
        driver_factory: Makes a driver from a constructor by calling it.
        setups: Called in turn before the first constructor.
        autoreset: What to do when an episode ends.
        infos: Which keys of infos to keep, None for all.
    """

    sequence: int
    first_row: int
    env_fns: Sequence[Callable[[], Any]]
    driver_factory: DriverFactory
    setups: Sequence[Callable[[], Any]]
    autoreset: Autoreset
    infos: Sequence[str] | None = None


@dataclass(slots=True)
class Built:
    """What a worker says of one env that it has built.

    Attributes:
        facts: The driver's, for the face.
        identity: Tells this env object from all others of the batch.
    """

    facts: Any
    identity: tuple[int, int]


@dataclass(slots=True)
class Attach:
    """Use this memory from now on.

    Attributes:
        description: How the values of the batch travel.
        results: Layout of one result block.
        actions: Layout of the actions, which lie in front of the blocks.
        num_blocks: How many result blocks follow.
        segment: The memory; backends replace it by a descriptor where they must.
        heaps: Where ragged values are: under `ACTIONS` those of the engine, and under its number those of
            each worker. Empty if there are none; backends replace them as they do the segment.
    """

    sequence: int
    description: Description
    results: Layout
    actions: Layout
    num_blocks: int
    segment: Segment | None
    heaps: Mapping[int, Heap] = field(default_factory=dict)

    def files(self, worker: int) -> list[int]:
        """Returns the descriptors of what a worker needs of the memory: the segment's, then its heaps'."""
        assert self.segment is not None
        return [self.segment.fileno(), *(heap.fileno() for heap in self.heaps_of(worker))]

    def without_files(self) -> Attach:
        """Returns the request as it travels beside its descriptors."""
        return replace(self, segment=None, heaps={})

    def with_files(self, descriptors: Sequence[int], worker: int) -> Attach:
        """Returns the request as a worker gets it."""
        fd, *heap_fds = descriptors
        heaps = dict(zip((ACTIONS, worker), map(Heap, heap_fds), strict=False))
        return replace(self, segment=Segment.of(fd), heaps=heaps)

    def heaps_of(self, worker: int) -> list[Heap]:
        """Returns the heaps that a worker needs, the one with actions and its own; none if there are none."""
        return [self.heaps[ACTIONS], self.heaps[worker]] if self.heaps else []


@dataclass(slots=True)
class ShareInfos:
    """Write infos that fit into these columns from now on.

    Attributes:
        layout: Where the columns are.
        segment: The memory; backends replace it by a descriptor where they must.
    """

    sequence: int
    layout: InfoLayout
    segment: Segment | None

    def files(self, _worker: int) -> list[int]:
        """Returns the descriptor of the memory."""
        assert self.segment is not None
        return [self.segment.fileno()]

    def without_files(self) -> ShareInfos:
        """Returns the request as it travels beside its descriptor."""
        return replace(self, segment=None)

    def with_files(self, descriptors: Sequence[int], _worker: int) -> ShareInfos:
        """Returns the request as a worker gets it."""
        return replace(self, segment=Segment.of(descriptors[0]))


@dataclass(slots=True)
class Step:
    """Step rows with the actions in memory, and write the results into a block.

    Attributes:
        rows: First and last row, exclusive; None for all rows of the worker.
    """

    sequence: int
    block: int
    rows: tuple[int, int] | None = None


@dataclass(slots=True)
class Reset:
    """Reset the chosen ones of the worker's rows, and write the observations of all of them into a block.

    Attributes:
        seeds: One for each row of the batch.
        options: One for each row of the batch.
        chosen: For each row of the batch whether to reset it.
    """

    sequence: int
    block: int
    seeds: Sequence[int | None]
    options: Sequence[Any]
    chosen: Sequence[bool]


@dataclass(slots=True)
class Call:
    """Have a function do something with envs, such as calling a method; the reply has what it returns for each.

    Attributes:
        doing: What errors call it.
        function: Takes an env's slot, then the arguments; see `shoal.worker.calls`.
        args: For all envs alike.
        each: Further arguments for each of the rows, None for none.
        rows: Which of the worker's rows, in any order; None for all.
    """

    sequence: int
    doing: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    each: Sequence[tuple[Any, ...]] | None = None
    rows: Sequence[int] | None = None


@dataclass(slots=True)
class Close:
    """Close every env; the last request."""

    sequence: int


Request = Build | Attach | ShareInfos | Step | Reset | Call | Close


@dataclass(slots=True)
class Reply:
    """The answer to the request of the same number.

    Attributes:
        worker: Who answers.
        sequence: Number of the request.
        values: For each of the rows what the request asked for; empty where it writes to memory.
        infos: Columns of the infos of its rows, None if there were none.
        failures: Which rows failed, and how; the others did what was asked.
        rows: Row of each value, None for all rows of the worker.
    """

    worker: int
    sequence: int
    values: Sequence[Any] = ()
    infos: Columns | None = None
    failures: Sequence[Failure] = ()
    rows: Sequence[int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as its fields alone."""
        return Reply, (self.worker, self.sequence, self.values, self.infos, self.failures, self.rows)
