"""Segments, layouts, blocks, rings and bells, each by itself."""

from __future__ import annotations

import errno
import gc
import itertools
import mmap
import os
import select
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from memory_files import FILES

import shoal
from shoal.memory import Block, Blocks, ControlMemory, Layout, Patience, Ring, Segment, bell, blocks, watch
from shoal.memory.layout import ALIGNMENT
from shoal.memory.ring import CAPACITY
from shoal.memory.segment import create_anonymous_file
from shoal.structure import Leaf

pytestmark = pytest.mark.timeout(60)

BELLS = pytest.mark.parametrize(
    "make_bell",
    [
        pytest.param(
            bell.EventBell, marks=pytest.mark.skipif(not hasattr(os, "eventfd"), reason="this system has none")
        ),
        bell.PipeBell,
    ],
)


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = Segment.create(1 << 20)
    yield segment
    segment.close()


# --- Segments ---


@FILES
def test_segment_is_shared_by_its_descriptor(create_file):
    """All that a worker gets is the descriptor."""
    ours = Segment.create(10_000, create_file)
    theirs = Segment(os.dup(ours.fileno()), ours.nbytes)
    assert bytes(theirs.buffer[:]) == bytes(10_000)
    ours.buffer[9_999] = 7
    assert theirs.buffer[9_999] == 7
    theirs.buffer[0] = 5
    assert ours.buffer[0] == 5
    ours.close()
    theirs.close()


@FILES
def test_segment_has_no_name_and_is_not_inherited(create_file):
    """What has no name cannot be left behind; what is not inherited is not held by an env's child."""
    segment = Segment.create(10_000, create_file)
    assert os.fstat(segment.fileno()).st_nlink == 0
    assert not os.get_inheritable(segment.fileno())
    # Reserved, not promised: a page that cannot be had later would be a SIGBUS.
    assert os.fstat(segment.fileno()).st_blocks * 512 >= 10_000
    segment.close()


def test_memory_lasts_as_long_as_an_array_on_it():
    """A program may close its batch and go on with the observations."""
    segment = Segment.create(4096)
    array = np.ndarray((4,), np.int64, segment.buffer)
    array[:] = [1, 2, 3, 4]
    fd = segment.fileno()
    segment.close()
    segment.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    del segment
    gc.collect()
    assert array.tolist() == [1, 2, 3, 4]


def test_empty_segment():
    """A mapping of nothing is not possible, a batch of nothing is."""
    segment = Segment.create(0)
    assert segment.nbytes == len(segment.buffer) == mmap.PAGESIZE
    segment.close()


def test_shortage_is_foreseen(monkeypatch):
    """Reserving more than there is would make the system kill somebody."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=3 * 2**20))
    with pytest.raises(shoal.SharedMemoryError, match=r"needs 4 GiB of .*, but only 3 MiB .* free") as caught:
        Segment.create(4 * 2**30)
    assert isinstance(caught.value, MemoryError)
    assert "fewer envs" in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="nothing is reserved on this system")
def test_shortage_is_told(monkeypatch):
    """What a container allows is known only when it is asked for; a descriptor must not be lost over it."""
    made: list[int] = []

    def create_file() -> int:
        made.append(create_anonymous_file())
        return made[-1]

    def refuse(*_arguments: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(shoal.SharedMemoryError, match=r"needs 1\.5 MiB .* No space left on device.*fewer envs"):
        Segment.create(3 * 2**19, create_file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])


def test_absurd_size_is_told():
    """A space with a typing error in its shape."""
    with pytest.raises(shoal.SharedMemoryError, match=r"needs 1.* TiB of shared memory"):
        Segment.create(2**60)


# --- Layouts ---


def leaf(shape: tuple[int, ...], dtype: str) -> Leaf:
    return Leaf((), shape, np.dtype(dtype))


def test_layout_keeps_leaves_apart(segment):
    """Two leaves in one cache line would have two workers fight over it."""
    leaves = [leaf((), "?"), leaf((3,), "f4"), leaf((0,), "f8"), leaf((5, 7), "u1"), leaf((1,), "i8")]
    layout = Layout.of(3, {"first": leaves, "none": [], "second": leaves[::-1]})
    places = [place for group in layout.groups.values() for place in group]
    assert [place.shape for place in layout.groups["first"]] == [(3,), (3, 3), (3, 0), (3, 5, 7), (3, 1)]
    assert all(place.offset % ALIGNMENT == 0 for place in places)
    assert layout.nbytes % ALIGNMENT == 0
    views = layout.views(segment.buffer, 2 * ALIGNMENT)
    assert views["none"] == []
    flat = [*views["first"], *views["second"]]
    for number, view in enumerate(flat):
        view[...] = number % 2 if view.dtype == bool else number
    for number, view in enumerate(flat):
        assert (view == (number % 2 if view.dtype == bool else number)).all()
        assert view.flags.c_contiguous
        assert view.flags.writeable
        assert view.ctypes.data % ALIGNMENT == 0 or not view.size
    last = max(place.offset + int(np.prod(place.shape)) * place.dtype.itemsize for place in places)
    assert last <= layout.nbytes
    # Nothing outside of the stretch was touched.
    assert not any(segment.buffer[: 2 * ALIGNMENT])
    assert not any(segment.buffer[2 * ALIGNMENT + layout.nbytes :])


def test_layout_of_large_batches():
    """Sizes in bytes do not fit into 32 bits."""
    layout = Layout.of(1000, {"big": [leaf((3000, 3000), "u1"), leaf((), "f8")]})
    assert layout.groups["big"][1].offset == 9_000_000_000
    assert layout.nbytes == 9_000_000_000 + 8000


# --- Blocks and their leases ---

LARGE = blocks.SMALLEST_LOAN // 8


@pytest.fixture
def batch(segment: Segment) -> Blocks:
    """Three blocks, two of which are lent, with one large and one small leaf."""
    layout = Layout.of(2, {"observation": [leaf((LARGE,), "f8"), leaf((), "f8")]})
    return Blocks(layout, segment, 64, 3)


def acquired(batch: Blocks) -> Block:
    block = batch.acquire()
    assert block is not None
    return block


def test_block_is_lent_until_its_array_is_gone(batch):
    """What the caller holds must never change."""
    first = acquired(batch)
    first.views["observation"][0][:] = 1
    large, small = first.take("observation")
    assert np.shares_memory(large, first.views["observation"][0])
    second = acquired(batch)
    assert second.index != first.index
    assert acquired(batch).index == second.index
    del large
    assert acquired(batch).index == first.index
    assert small.tolist() == [0, 0]


def test_small_arrays_are_copied(batch):
    """Keeping track of a loan costs more than copying a few bytes."""
    block = acquired(batch)
    _, small = block.take("observation")
    block.views["observation"][1][:] = 9
    assert small.tolist() == [0, 0]
    assert small.flags.owndata


@pytest.mark.parametrize(
    "derive",
    [
        lambda array: array[0],
        lambda array: array[:, 1:3][0],
        lambda array: array.reshape(-1)[::2],
        lambda array: array.T,
        lambda array: memoryview(array),
        lambda array: np.asarray(memoryview(array)),
        lambda array: np.lib.stride_tricks.sliding_window_view(array, 3, axis=1),
        lambda array: [array],
        lambda array: iter(array),
        lambda array: np.frombuffer(array, np.uint8),
        lambda array: array.view(np.int64),
    ],
)
def test_any_view_keeps_the_loan(batch, derive):
    """Users keep rows, slices and views of views, and not always the array they were given."""
    block = acquired(batch)
    block.views["observation"][0][:] = 4
    derived = derive(block.take("observation")[0])
    gc.collect()
    assert not block.is_free()
    del derived
    gc.collect()
    assert block.is_free()


def test_all_blocks_held(batch):
    """Then the last block is used over and over, and what is given out are copies of it."""
    held = []
    for t in range(5):
        block = acquired(batch)
        block.views["observation"][0][:] = t
        held.append(block.take("observation")[0])
    assert [array[0, 0] for array in held] == [0, 1, 2, 3, 4]
    assert [bool(np.shares_memory(one, two)) for one, two in itertools.pairwise(held)] == [False] * 4
    assert [array.flags.owndata for array in held] == [False, False, True, True, True]
    block = acquired(batch)
    del held[0]
    assert acquired(batch).index == 0 != block.index


def test_block_is_not_free_while_written(batch):
    """A worker that is late may still write to a block that nobody waits for any more."""
    for block in (batch[0], batch[1]):
        block.writers = 1
    assert acquired(batch).index == 2
    batch[2].writers = 2
    assert batch.acquire() is None
    batch[1].writers -= 1
    assert acquired(batch).index == 1


def test_latest_free_block_is_used_first(batch):
    """It is the one that is still in the cache."""
    assert [acquired(batch).index for _ in range(4)] == [0] * 4


def test_how_many_blocks_are_worth_their_memory():
    """Spare blocks only where something is lent, and not where they would take gigabytes."""

    def count(*shapes: tuple[int, ...]) -> int:
        return Blocks.count_for(Layout.of(4, {"observation": [leaf(shape, "u1") for shape in shapes]}))

    small = blocks.SMALLEST_LOAN // 4
    assert count((small - 1,), (small - 1,)) == 2
    assert count((small,)) == blocks.LENDABLE_BLOCKS + 1
    assert count((blocks.LARGE_BATCH // 4,)) == 2
    assert count() == 2
    assert count((0,)) == 2


# --- Rings ---


def ring_pair(num_workers: int = 2, worker: int = 1) -> tuple[ControlMemory, Ring, Ring]:
    control = ControlMemory.create(num_workers)
    return control, control.submissions(worker), control.submissions(worker)


def test_ring_wraps_around():
    """Entry by entry, in order, however often it has been filled."""
    control, writer, reader = ring_pair()
    number = 0
    for length in (1, CAPACITY, 3, CAPACITY - 1, CAPACITY, 2):
        for position in range(length):
            writer.push(number + position, 2, 3, 4, -number - position)
        assert reader.unread() == length
        for _ in range(length):
            assert reader.pop() == (number, 2, 3, 4, -number)
            number += 1
        assert reader.unread() == 0
    control.segment.close()


def test_rings_of_workers_do_not_touch():
    """Nor do the two of one worker, nor the word that says which row it is at."""
    control = ControlMemory.create(3)
    rings = [ring for worker in range(3) for ring in (control.submissions(worker), control.completions(worker))]
    readers = [ring for worker in range(3) for ring in (control.submissions(worker), control.completions(worker))]
    for worker in range(3):
        control.words[control.progress(worker)] = 1000 + worker
    for number, ring in enumerate(rings):
        for position in range(CAPACITY):
            ring.push(number, position, number, position, number)
    for number, reader in enumerate(readers):
        for position in range(CAPACITY):
            assert reader.pop() == (number, position, number, position, number)
    assert [control.words[control.progress(worker)] for worker in range(3)] == [1000, 1001, 1002]
    assert len(control.words) * 8 == control.segment.nbytes
    control.segment.close()


def test_ring_holds_large_numbers():
    """Sequence numbers only grow."""
    control, writer, reader = ring_pair()
    writer.push(1, 2**31, 2**40, -1, 2**62)
    assert reader.pop() == (1, 2**31, 2**40, -1, 2**62)
    control.segment.close()


# --- Bells ---


@BELLS
def test_bell_counts(make_bell):
    """Rings add up, and taking takes them all."""
    rung = make_bell()
    assert rung.take() == 0
    for _ in range(3):
        rung.ring()
    assert rung.take() == 3
    assert rung.take() == 0
    # More than there are workers, and than a ring has entries.
    for _ in range(5000):
        rung.ring()
    assert rung.take() == 5000
    rung.close()


@BELLS
def test_bell_is_waited_for(make_bell):
    """Its descriptor is readable while it has been rung."""
    rung = make_bell()
    poller = select.poll()
    poller.register(rung.fileno(), select.POLLIN)
    assert poller.poll(0) == []
    rung.ring()
    assert poller.poll(0) == [(rung.fileno(), select.POLLIN)]
    assert rung.take() == 1
    assert poller.poll(0) == []
    thread = threading.Thread(target=rung.ring)
    thread.start()
    assert poller.poll(10_000)
    thread.join()
    rung.close()


@BELLS
def test_bell_is_shared_by_its_descriptors(make_bell):
    """A worker makes its end from what it has been sent, and no child of an env inherits it."""
    ours = make_bell()
    assert not any(os.get_inheritable(fd) for fd in ours.descriptors())
    theirs = make_bell(*[os.dup(fd) for fd in ours.descriptors()])
    ours.ring()
    theirs.ring()
    assert theirs.take() == 2
    assert ours.take() == 0
    theirs.close()
    ours.ring()
    assert ours.take() == 1
    ours.close()


def test_bell_of_this_system():
    """The better one is used where there is one."""
    assert bell.make_bell is (bell.EventBell if hasattr(os, "eventfd") else bell.PipeBell)


# --- Watching ---


def words(*values: int) -> memoryview:
    return memoryview(np.array(values, np.int64)).cast("B").cast("q")


def test_watch_sees_at_once_what_is_there():
    """Also when the time is up already."""
    assert watch(words(0, 5), 1, 5, until_ns=0)
    assert watch(words(0, 6), 1, 5, until_ns=0)


def test_watch_gives_up_in_time():
    """It is there to save time."""
    start = time.monotonic_ns()
    assert not watch(words(4), 0, 5, start + 2_000_000)
    assert 2_000_000 <= time.monotonic_ns() - start < 1_000_000_000


def test_watch_gives_up_the_cpu(monkeypatch):
    """Whoever watches without yielding may keep from running whom it waits for."""
    counter = words(0)

    def others_run() -> None:
        counter[0] += 1

    monkeypatch.setattr(bell, "give_up_cpu", others_run)
    assert watch(counter, 0, 3, time.monotonic_ns() + 10_000_000_000)
    assert counter[0] == 3


def share_watched(patience: Patience, watched_ns: int, slept_ns: int, count: int = 1000) -> float:
    """Lets it wait often, where either way takes its own time, and returns how much of the last half it watched."""
    watched = []
    for _ in range(count):
        watched.append(patience.budget_ns() > 0)
        patience.learn(watched_ns if watched[-1] else slept_ns)
    return sum(watched[count // 2 :]) / (count - count // 2)


def test_patience_has_a_limit():
    """Watching takes a CPU."""
    for patience, longest_ns in ((Patience(), Patience.LONGEST_NS), (Patience(5_000), 5_000)):
        budgets = set()
        for _ in range(1000):
            budgets.add(patience.budget_ns())
            patience.learn(1_000)
        assert budgets <= {0, longest_ns}
    assert Patience.LONGEST_NS <= 10_000_000


def test_patience_watches_as_long_as_it_pays():
    """Short waits are watched, long ones slept through, and it changes its mind both ways."""
    patience = Patience()
    assert share_watched(patience, 10_000, 60_000) > 0.9
    assert share_watched(patience, 50_000_000, 50_000_000) < 0.1
    assert share_watched(patience, 10_000, 60_000, 30_000) > 0.9


def test_patience_survives_a_long_wait():
    """An evaluation between two epochs must not make all later steps slow."""
    patience = Patience()
    share_watched(patience, 20_000, 70_000)
    patience.budget_ns()
    patience.learn(3_600_000_000_000)
    assert share_watched(patience, 20_000, 70_000, 30_000) > 0.9


def test_patience_can_be_switched_off():
    """Where there are more workers than CPUs watching only keeps others from working."""
    assert share_watched(Patience(0), 10_000, 60_000) == 0
