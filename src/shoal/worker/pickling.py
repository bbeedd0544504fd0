"""Pickling across the control plane: code and main-script classes by value, and a word on what cannot go."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from shoal.errors import ArgumentTypeError
from shoal.worker import by_value
from shoal.worker.failures import Failure
from shoal.worker.infos import Column, Columns
from shoal.worker.messages import Reply
from shoal.worker.wire import from_wire, to_wire


class PickledFunction:
    """A constructor on its way to a worker; it is unpickled where it is called, so that failing there is its own."""

    def __init__(self, payload: bytes) -> None:
        """Takes a pickled function."""
        self._payload = payload

    def __call__(self) -> Any:
        """Unpickles the function and returns what it returns."""
        return pickle.loads(self._payload)()


def pickle_functions(functions: list[Callable[[], Any]]) -> list[PickledFunction]:
    """Returns the constructors ready to travel, each by itself so that they share nothing.

    Raises:
        ArgumentTypeError: One cannot be pickled; the text says which, and which part of it.
    """
    done: dict[int, PickledFunction] = {}
    for index, function in enumerate(functions):
        if id(function) in done:
            continue
        try:
            done[id(function)] = PickledFunction(by_value.dumps(function))
        except Exception as error:
            path = find_unpicklable(function, f"env_fns[{index}]")
            raise ArgumentTypeError(
                f"env_fns[{index}] cannot be sent to a worker process: {path} cannot be pickled "
                f"({type(error).__name__}: {error}); create it inside the function, or use backend='thread'"
            ) from error
    return [done[id(function)] for function in functions]


def dumps_reply(reply: Reply, first_row: int) -> bytes:
    """Returns the pickled reply of a worker whose rows begin with `first_row`.

    Infos that cannot be pickled arrive as their `repr`, other values as failures that say so.
    """
    wire = to_wire(reply.infos) if reply.infos and not reply.values and not reply.failures else None
    if wire is not None:
        return pickle.dumps(wire, pickle.HIGHEST_PROTOCOL)
    try:
        return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)
    except Exception:
        pass
    try:
        return by_value.dumps_back(reply)
    except Exception:
        failures = list(reply.failures)
        rows = itertools.count(first_row) if reply.rows is None else reply.rows
        for row, value in zip(rows, reply.values, strict=False):
            if not is_picklable(value):
                path = find_unpicklable(value, "the result")
                error = TypeError(f"a result cannot be sent to another process: {path} cannot be pickled")
                failures.append(Failure(row, "sending a result", error, ""))
        degraded = replace(reply, values=(), infos=_readable(reply.infos or {}), failures=failures)
        try:
            return by_value.dumps_back(degraded)
        except Exception as error:
            failures.append(Failure(first_row, "sending a result", TypeError(f"it cannot be pickled: {error}"), ""))
            return by_value.dumps_back(replace(degraded, infos=None, failures=failures))


def loads_reply(payload: bytes, worker: int, sequence: int, first_row: int) -> Reply:
    """Returns the reply; one that cannot be rebuilt here becomes a failure that says so."""
    try:
        content = pickle.loads(payload)
        if isinstance(content, Reply):
            return content
        return Reply(worker, sequence, infos=from_wire(content))
    except Exception as error:
        return Reply(worker, sequence, failures=[Failure.of(first_row, "receiving a result", error)])


def is_picklable(value: Any) -> bool:
    """Tells whether the value survives `dumps_reply`."""
    try:
        by_value.dumps(value)
    except Exception:
        return False
    return True


def find_unpicklable(value: Any, path: str, depth: int = 4) -> str:
    """Returns the path to the innermost part of a value that cannot be pickled, as it is written in Python."""
    if depth:
        for step, part in _parts(value):
            if not is_picklable(part):
                return find_unpicklable(part, path + step, depth - 1)
    return f"{path} (a {type(value).__name__})"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a function or object is made of, with how to get there."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{position}]", item) for position, item in enumerate(value))
    code = getattr(value, "__code__", None)
    if code is not None:
        cells = getattr(value, "__closure__", None) or ()
        for name, cell in zip(code.co_freevars, cells, strict=False):
            yield f".<{name}>", cell.cell_contents
        scope = getattr(value, "__globals__", {})
        yield from ((f".<{name}>", scope[name]) for name in code.co_names if name in scope)
        for position, default in enumerate(getattr(value, "__defaults__", None) or ()):
            yield f".__defaults__[{position}]", default
    for attribute in ("func", "args", "keywords", "__self__"):
        if not isinstance(value, type) and hasattr(type(value), attribute):
            yield f".{attribute}", getattr(value, attribute)
    if not isinstance(value, type):
        yield from ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())
    if is_dataclass(value) and not isinstance(value, type):
        # One with slots has no dictionary.
        yield from ((f".{field.name}", getattr(value, field.name)) for field in fields(value))


def _readable(columns: Columns) -> Columns:
    readable: Columns = {}
    for key, column in columns.items():
        if is_picklable(column):
            readable[key] = column
        elif isinstance(column.values, dict):
            readable[key] = Column(column.rows, _readable(column.values))
        else:
            items = [item if is_picklable(item) else repr(item) for item in column.items()]
            readable[key] = Column(column.rows, items)
    return readable
