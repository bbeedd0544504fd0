"""Shared memory between real processes: handed over at their start, written on one side and read on the other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.spaces import Box, Discrete, Graph, MultiBinary, OneOf, Sequence, Text

from shoal import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from shoal.testing.equality import assert_same

START_METHODS = ("fork", "forkserver", "spawn")
# Starting an interpreter and importing Gymnasium takes a second; a loaded machine may take its time.
PATIENCE_S = 60.0
N = 3

POINT = Box(-1, 1, (2,), np.float32)
SPACE = gym_spaces.Dict(
    image=Box(0, 255, (4, 4), np.uint8),
    half=Box(-1, 1, (3,), np.float16),
    flags=gym_spaces.Tuple((MultiBinary(3), Discrete(9), Box(0, 1, (2,), np.bool_))),
    text=Text(8),
    kind=OneOf((Discrete(5), POINT)),
    seen=Sequence(POINT),
    map=Graph(POINT, Discrete(4)),
)
NUMBERS = Sequence(Discrete(2**40))
# Longer and shorter in turn, so that places are left, kept and used again.
LENGTHS = (0, 1, 10, 3, 100, 1000, 7, 2500, 5000, 2, 10_000)


def samples(seed: int) -> list[Any]:
    """Returns values to hand over: a new interpreter has another order of the text's characters, and samples others."""
    SPACE.seed(seed)
    return [SPACE.sample() for _ in range(N)]


def numbers(row: int, length: int) -> tuple[int, ...]:
    """Returns numbers that no other row has."""
    return tuple(range(row * 10**6, row * 10**6 + length))


@contextmanager
def processes(context: Any, target: Callable[..., None], *arguments: tuple[Any, ...]) -> Iterator[None]:
    """Starts a process for each of the arguments, and at the end of the block waits until all have ended well."""
    started = [context.Process(target=target, args=each) for each in arguments]
    try:
        for process in started:
            process.start()
        yield
        for process in started:
            process.join(PATIENCE_S)
        assert [process.exitcode for process in started] == [0] * len(started)
    finally:
        for process in started:
            if process.pid is not None:
                process.kill()
                process.join()
            process.close()


@pytest.fixture(params=START_METHODS)
def context(request: pytest.FixtureRequest) -> Any:
    return multiprocessing.get_context(request.param)


def write_rows(memory: Any, values: list[Any]) -> None:
    for index, value in enumerate(values):
        write_to_shared_memory(SPACE, index, value, memory)


def test_parent_reads_what_a_child_has_written(context):
    """That is what the memory is for, and it must hold for every kind of space and start of processes."""
    memory, expected = (create_shared_memory(SPACE, N, context) for _ in range(2))
    early = read_from_shared_memory(SPACE, memory, N)
    values = samples(3)
    with processes(context, write_rows, (memory, values)):
        pass
    write_rows(expected, values)
    batch = read_from_shared_memory(SPACE, memory, N)
    assert_same(batch, read_from_shared_memory(SPACE, expected, N))
    # Views are of the memory, so those from before have it, too.
    assert_same(early["image"], batch["image"])
    assert_same(early["flags"], batch["flags"])
    assert batch["text"] == tuple(value["text"] for value in values)
    assert batch["image"].any()


def copy_rows(source: Any, target: Any, written: Any) -> None:
    assert written.wait(PATIENCE_S)
    batch = read_from_shared_memory(SPACE, source, N)
    for index in range(N):
        value = {
            **{name: batch[name][index] for name in ("image", "half", "text", "kind", "seen", "map")},
            "flags": tuple(part[index] for part in batch["flags"]),
        }
        write_to_shared_memory(SPACE, index, value, target)


def test_child_reads_what_the_parent_has_written_since_its_start(context):
    """The other way round: a policy in the parent, whose actions the child takes."""
    source, target = (create_shared_memory(SPACE, N, context) for _ in range(2))
    written = context.Event()
    with processes(context, copy_rows, (source, target, written)):
        write_rows(source, samples(4))
        written.set()
    batch = read_from_shared_memory(SPACE, target, N)
    assert_same(batch, read_from_shared_memory(SPACE, source, N))
    assert batch["image"].any()


def write_growing(memory: Any, row: int, start: Any) -> None:
    start.wait(PATIENCE_S)
    for length in LENGTHS:
        write_to_shared_memory(NUMBERS, row, numbers(row, length), memory)


def test_children_grow_values_of_different_rows_at_once(context):
    """All rows lie in one heap: who gets which place must not depend on who asks at the same moment."""
    memory = create_shared_memory(NUMBERS, N, context)
    start = context.Barrier(N)
    with processes(context, write_growing, *((memory, row, start) for row in range(N))):
        pass
    assert read_from_shared_memory(NUMBERS, memory, N) == tuple(numbers(row, LENGTHS[-1]) for row in range(N))


def test_parent_may_write_its_row_while_children_write_theirs(context):
    """The parent is one more writer of the same heap, and may be asked for places at any time."""
    memory = create_shared_memory(NUMBERS, N + 1, context)
    start = context.Barrier(N + 1)
    with processes(context, write_growing, *((memory, row, start) for row in range(N))):
        write_growing(memory, N, start)
    assert read_from_shared_memory(NUMBERS, memory, N + 1) == tuple(numbers(row, LENGTHS[-1]) for row in range(N + 1))


def read_growing(source: Any, target: Any, written: Any, read: Any) -> None:
    for _ in LENGTHS:
        assert written.acquire(timeout=PATIENCE_S)
        (value,) = read_from_shared_memory(NUMBERS, source, 1)
        write_to_shared_memory(NUMBERS, 0, value, target)
        read.release()


def test_child_follows_a_value_that_grows(context):
    """Its mapping is from its start, when there was little to map; it must see what has been added since."""
    source, target = (create_shared_memory(NUMBERS, 1, context) for _ in range(2))
    written, read = context.Semaphore(0), context.Semaphore(0)
    with processes(context, read_growing, (source, target, written, read)):
        for length in LENGTHS:
            write_to_shared_memory(NUMBERS, 0, numbers(1, length), source)
            written.release()
            assert read.acquire(timeout=PATIENCE_S)
            assert read_from_shared_memory(NUMBERS, target, 1) == (numbers(1, length),)


def write_by_the_old_order(space: Any, memory: Any, index: int) -> None:
    write_to_shared_memory(index, np.full(2, index, np.float32), memory, space)


def test_one_process_for_each_row_as_old_programs_have_it(context):
    """Gym's first example: each worker writes its own row, with the space as the last argument."""
    memory = create_shared_memory(POINT, N, context)
    batch = read_from_shared_memory(memory, POINT, N)
    with processes(context, write_by_the_old_order, *((POINT, memory, row) for row in range(N))):
        pass
    assert_same(batch, np.repeat(np.arange(N, dtype=np.float32), 2).reshape(N, 2))


def fail_to_write(memory: Any) -> None:
    try:
        write_to_shared_memory(NUMBERS, 0, (1, 2.5), memory)
    except ValueError:
        return
    raise AssertionError("2.5 is no integer")


def test_refused_write_does_not_keep_the_lock(context):
    """Else the first bad value of one process would stop all others."""
    memory = create_shared_memory(NUMBERS, 1, context)
    with processes(context, fail_to_write, (memory,)):
        pass
    write_to_shared_memory(NUMBERS, 0, (1, 2), memory)
    assert read_from_shared_memory(NUMBERS, memory, 1) == ((1, 2),)
