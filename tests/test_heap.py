"""Heaps and the cells in them, each by itself: no envs, no engine."""

from __future__ import annotations

import errno
import gc
import itertools
import mmap
import multiprocessing
import os
import random
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from gymnasium.spaces import Box, Sequence
from memory_files import FILES

import shoal
from shoal.memory import Heap
from shoal.memory.segment import create_anonymous_file
from shoal.structure.cells import WORDS, Cells, LooseCells
from shoal.testing import Scripted

pytestmark = pytest.mark.timeout(60)

RESERVES = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="nothing is reserved on this system")


@pytest.fixture
def heap() -> Iterator[Heap]:
    heap = Heap.create()
    yield heap
    heap.close()


def cells_in(*heaps: Heap) -> Cells:
    """Returns new cells, one for each heap given."""
    return Cells(np.zeros((len(heaps), WORDS), np.int64), heaps)


def size_of(heap: Heap) -> int:
    return os.fstat(heap.fileno()).st_size


# --- Heaps ---


@FILES
def test_heap_is_shared_by_its_descriptor(create_file):
    """All that a worker gets is the descriptor, and it finds what was written before and after."""
    ours = Heap.create(create_file)
    offset, _ = ours.allocate(5)
    ours.write(offset, b"early")
    theirs = Heap(os.dup(ours.fileno()))
    assert theirs.read(offset, 5) == b"early"
    ours.write(offset, b"later")
    assert theirs.read(offset, 5) == b"later"
    theirs.write(offset, b"other")
    assert ours.read(offset, 5) == b"other"
    ours.close()
    theirs.close()


@FILES
def test_heap_has_no_name_and_is_not_inherited(create_file):
    """What has no name cannot be left behind; what is not inherited is not held by an env's child."""
    heap = Heap.create(create_file)
    assert os.fstat(heap.fileno()).st_nlink == 0
    assert not os.get_inheritable(heap.fileno())
    heap.close()


def test_regions_do_not_overlap(heap):
    """Whatever sizes they have, and however often the heap grows in between."""
    rng = random.Random(0)
    written = {}
    for number in range(300):
        nbytes = rng.choice([0, 1, 63, 64, 65, 1000, 4096, 70_000])
        offset, size = heap.allocate(nbytes)
        assert size >= nbytes
        assert offset % 64 == 0, "rows of two workers in one cache line"
        payload = bytes([number % 256]) * size
        heap.write(offset, payload)
        written[offset] = payload
    assert all(heap.read(offset, len(payload)) == payload for offset, payload in written.items())
    ends = sorted((offset, offset + len(payload)) for offset, payload in written.items())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 2**20, 2**20 + 1])
def test_region_has_room_to_grow_but_not_much_more(heap, nbytes):
    """It is never freed, so the next one must be much larger; twice is enough."""
    _, size = heap.allocate(nbytes)
    assert nbytes <= size <= max(64, 2 * nbytes)


def test_growth_is_seen_by_who_looks_later(heap):
    """A reader has mapped what was there when it came, and nobody tells it that there is more."""
    reader = heap.reopened()
    for nbytes in (10, 5000, 100_000, 3 * 2**20):
        offset, _ = heap.allocate(nbytes)
        payload = os.urandom(nbytes)
        heap.write(offset, payload)
        assert reader.read(offset, nbytes) == payload
    assert size_of(heap) < 4 * 3 * 2**20
    reader.close()


def test_writers_who_take_turns_get_regions_of_their_own(heap):
    """Where free space begins is in the heap itself."""
    writers = [heap, heap.reopened(), heap.reopened()]
    regions = []
    for number in range(30):
        writer = writers[number % 3]
        offset, size = writer.allocate(3000)
        writer.write(offset, bytes([number]) * size)
        regions.append((offset, bytes([number]) * size))
    for reader in writers:
        assert all(reader.read(offset, len(payload)) == payload for offset, payload in regions)
    for writer in writers[1:]:
        writer.close()


def test_other_process_writes_and_grows():
    """As a worker does, while the engine reads."""
    heap = Heap.create()
    reader, writer = multiprocessing.get_context("fork").Pipe(duplex=False)

    def write() -> None:
        own = heap.reopened()
        offset, _ = own.allocate(2**20)
        own.write(offset, b"\7" * 2**20)
        writer.send(offset)

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    assert reader.poll(30)
    offset = reader.recv()
    process.join()
    process.close()
    assert heap.read(offset, 2**20) == b"\7" * 2**20
    after, _ = heap.allocate(1)
    assert after >= offset + 2**20
    for end in (reader, writer, heap):
        end.close()


def test_what_was_read_is_a_copy(heap):
    """The region is written again at the next step."""
    offset, _ = heap.allocate(3)
    heap.write(offset, b"abc")
    kept = heap.read(offset, 3)
    heap.write(offset, b"xyz")
    assert kept == b"abc"


@RESERVES
def test_pages_are_reserved():
    """A page that cannot be had later would be a SIGBUS in the middle of a step."""
    heap = Heap.create()
    heap.allocate(3 * 2**20)
    assert os.fstat(heap.fileno()).st_blocks * 512 >= 3 * 2**20
    heap.close()


# --- Closing ---


def test_no_descriptor_is_left():
    """Closing closes, closing twice closes nothing else, and what nobody closes goes with its heap."""

    def is_open(fd: int) -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return False
        return True

    heap = Heap.create()
    twin = heap.reopened()
    fds = [heap.fileno(), twin.fileno()]
    assert fds[0] != fds[1]
    heap.close()
    assert [is_open(fd) for fd in fds] == [False, True]
    assert heap.fileno() == -1
    (reused,) = [os.open(os.devnull, os.O_RDONLY)]
    heap.close()
    assert is_open(reused)
    os.close(reused)
    offset, _ = twin.allocate(2**20)
    twin.write(offset, b"still there")
    del twin
    gc.collect()
    assert [is_open(fd) for fd in fds] == [False, False]


def test_memory_is_given_back():
    """Mappings hold memory as descriptors do; growing leaves none of the old ones."""
    heap = Heap.create()
    for power in range(10, 22):
        heap.allocate(1 << power)

    def mappings() -> int:
        inode = os.fstat(heap.fileno()).st_ino
        with open("/proc/self/maps") as maps:
            return sum(f" {inode} " in f"{line} " and "shoal" in line for line in maps)

    if os.path.exists("/proc/self/maps"):
        assert mappings() == 1
    heap.close()


# --- Shortage ---


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Lets no more memory be reserved while the list that it gives holds something."""
    reserve = os.posix_fallocate
    shortage: list[int] = []

    def refuse(fd: int, offset: int, length: int) -> None:
        if shortage:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    yield shortage


@RESERVES
def test_shortage_at_the_start_is_told(full):
    """And the descriptor is not lost over it."""
    made: list[int] = []

    def create_file() -> int:
        made.append(create_anonymous_file())
        return made[-1]

    full.append(1)
    with pytest.raises(shoal.SharedMemoryError, match="No space left on device") as caught:
        Heap.create(create_file)
    assert isinstance(caught.value, MemoryError)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])


@RESERVES
def test_shortage_is_told_each_time_and_what_is_there_stays(heap, full):
    """A second try must not get pages that were promised and not reserved: writing to those is a SIGBUS."""
    offset, _ = heap.allocate(100)
    heap.write(offset, b"a" * 100)
    full.append(1)
    for _ in range(3):
        with pytest.raises(shoal.SharedMemoryError, match=r"needs more .*memory.*No space left on device"):
            heap.allocate(2**20)
    assert heap.read(offset, 100) == b"a" * 100
    heap.write(offset, b"b" * 100)
    # What is left of the first page needs nothing more.
    second, _ = heap.allocate(100)
    assert offset + 100 <= second < mmap.PAGESIZE
    full.clear()
    third, _ = heap.allocate(2**20)
    heap.write(third, b"c" * 2**20)
    assert os.fstat(heap.fileno()).st_blocks * 512 >= 2**20
    assert heap.read(offset, 100) == b"b" * 100


def test_absurd_size_is_told(heap):
    """A length that was computed wrong."""
    with pytest.raises(shoal.SharedMemoryError, match="needs more shared memory"):
        heap.allocate(2**63)
    heap.allocate(10)


@RESERVES
def test_shortage_leaves_a_cell_as_it_was(heap, full):
    """After the error the last good value is still what is read."""
    cells = cells_in(heap)
    cells.write(0, b"good")
    full.append(1)
    with pytest.raises(shoal.SharedMemoryError):
        cells.write(0, b"x" * 2**20)
    assert cells.read(0) == b"good"
    cells.write(0, b"next")
    assert cells.read(0) == b"next"


@RESERVES
def test_shortage_in_a_worker_reaches_the_caller(full):
    """As the error it is, with the env that asked for so much; the batch can go on with less."""
    space = Sequence(Box(0, 1, (1024,), np.float32), stack=True)
    small, large = np.zeros((1, 1024), np.float32), np.zeros((1000, 1024), np.float32)
    env_fns = [partial(Scripted, space, own) for own in ([small, small], [small, large])]
    with shoal.AsyncVectorEnv(env_fns, backend="serial") as envs:
        envs.reset()
        full.append(1)
        for _ in range(2):
            with pytest.raises(shoal.SharedMemoryError, match="No space left on device") as caught:
                envs.step([0, 0])
            assert any("env 1 raised in step" in note for note in caught.value.__notes__)
            observations, _ = envs.reset()
            assert [len(each) for each in observations] == [1, 1]
        full.clear()
        assert [len(each) for each in envs.step([0, 0])[0]] == [1, 1000]


# --- Cells ---


def test_cell_holds_what_was_written_last(heap):
    """Longer, shorter, empty, and longer than ever; the others stay."""
    cells = cells_in(heap, heap, heap)
    assert [cells.read(row) for row in range(len(cells))] == [b""] * 3
    cells.write(0, b"first")
    cells.write(2, b"third")
    for nbytes in (1, 64, 65, 0, 10, 5000, 5000, 1, 2**20, 0, 3):
        payload = os.urandom(nbytes)
        cells.write(1, payload)
        assert cells.read(1) == payload
        assert (cells.read(0), cells.read(2)) == (b"first", b"third")


def test_rows_of_several_writers_lie_in_their_own_heaps():
    """Workers write at the same time, and none of them asks another where there is room."""
    heaps = [Heap.create(), Heap.create()]
    cells = cells_in(heaps[0], heaps[0], heaps[1])
    payloads = [b"a" * 100, b"b" * 100_000, b"c" * 50]
    for row, payload in enumerate(payloads):
        cells.write(row, payload)
    assert [cells.read(row) for row in range(3)] == payloads
    assert size_of(heaps[0]) > 100_000
    assert size_of(heaps[1]) == mmap.PAGESIZE
    for heap in heaps:
        heap.close()


def test_reader_follows_a_cell_to_its_new_place(heap):
    """The words are in shared memory, too, so all sides see where a value is."""
    words = np.zeros((2, WORDS), np.int64)
    twin = heap.reopened()
    writer, reader = Cells(words, [heap] * 2), Cells(words, [twin] * 2)
    for nbytes in (3, 300, 30_000, 3_000_000, 3):
        writer.write(1, b"x" * nbytes)
        assert reader.read(1) == b"x" * nbytes
        assert reader.read(0) == b""
    twin.close()


def test_memory_does_not_grow_with_the_number_of_steps(heap):
    """A value of any length up to the largest so far finds room where the last one was."""
    cells = cells_in(heap, heap)
    rng = random.Random(1)
    for row in range(2):
        cells.write(row, b"x" * 10_000)
    before = size_of(heap)
    for number in range(2000):
        cells.write(number % 2, b"y" * rng.randrange(10_000))
    assert size_of(heap) == before
    # Growing byte by byte, all places that were left behind are no more than the last one.
    for nbytes in range(0, 200_000, 997):
        cells.write(0, b"z" * nbytes)
    assert size_of(heap) < 4 * 2 * 200_000


def test_cells_are_handled_as_arrays_are(heap):
    """Blocks copy and lend arrays; cells need neither, since what is read from them is new."""
    cells = cells_in(heap)
    assert cells.copy() is cells
    assert cells.nbytes == 0
    assert len(cells) == 1


def test_loose_cells_keep_what_is_written():
    """Values inside of values are packed in this process alone."""
    cells = LooseCells([b""] * 2)
    cells.write(1, b"abc")
    assert [cells.read(row) for row in range(len(cells))] == [b"", b"abc"]
