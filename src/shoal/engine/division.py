"""A call to chosen envs: divided among the workers that have them, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from shoal.worker import Call, Reply


def divide(
    call: Call, each: Sequence[tuple[Any, ...]] | None, rows: Sequence[int] | None, spans: Sequence[tuple[int, int]]
) -> dict[int, Call]:
    """Returns one request for each worker that has any of the rows.

    Args:
        call: What to do, for all envs alike.
        each: Further arguments, one tuple for each of the rows.
        rows: Which, in any order; None for all.
        spans: First and last row, exclusive, of each worker.
    """
    chosen = range(spans[-1][1]) if rows is None else rows
    requests: dict[int, Call] = {}
    for worker, (first, last) in enumerate(spans):
        places = [place for place, row in enumerate(chosen) if first <= row < last]
        if places:
            own = None if each is None else [each[place] for place in places]
            requests[worker] = replace(call, each=own, rows=[chosen[place] for place in places])
    return requests


def in_order(replies: Sequence[Reply], rows: Sequence[int] | None, spans: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
    """Returns the values of all replies in the order in which their rows were asked for."""
    if rows is None:
        return tuple(value for reply in replies for value in reply.values)
    values: dict[int, Iterator[Any]] = {reply.worker: iter(reply.values) for reply in replies}
    owner = [worker for worker, (first, last) in enumerate(spans) for _ in range(first, last)]
    return tuple(next(values[owner[row]]) for row in rows)
