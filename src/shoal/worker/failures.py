"""Failures: an exception raised beside an env, on its way to the user.

It arrives as itself: pickled, with the worker's traceback as text. An exception that cannot be pickled,
or not be rebuilt from its pickle, becomes an `EnvError` that says its type and message.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Sequence
from typing import Any

from shoal.errors import EnvError, MisfitError, RemoteTraceback
from shoal.worker import by_value

# A batch may have hundreds of envs, and a screen has few lines.
_MOST_NOTES = 8
_MOST_TRACEBACKS = 3


class Failure:
    """One env's exception.

    Attributes:
        row: Which env, counted in the batch.
        doing: What it was asked for, e.g. `"step"`.
        error: The exception.
        text: Its traceback, as Python prints it.
        title: Its type and the first line of its message.
    """

    def __init__(self, row: int, doing: str, error: BaseException, text: str, title: str = "") -> None:
        """Keeps what it is given; the title is the exception's if there is none."""
        self.row = row
        self.doing = doing
        self.error = error
        self.text = text
        self.title = title or f"{type(error).__name__}: {_text(error)}".splitlines()[0]

    @classmethod
    def of(cls, row: int, doing: str, error: BaseException) -> Failure:
        """Returns the failure for an exception that has just been caught."""
        if isinstance(error, MisfitError):
            error = error.inside(f"env {row}: ").with_traceback(error.__traceback__)
        return cls(row, doing, error, "".join(traceback.format_exception(type(error), error, error.__traceback__)))

    @property
    def summary(self) -> str:
        """One line: which env, doing what, raised what."""
        return f"env {self.row} raised in {self.doing}: {self.title}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels with the exception pickled apart, tried out first."""
        return _rebuild, (self.row, self.doing, _portable(self.error), self.text, self.title)


def raise_failures(failures: Sequence[Failure]) -> None:
    """Raises the exception of the first failing env; its cause has the tracebacks, its notes name the other envs."""
    first, *others = sorted(failures, key=lambda failure: failure.row)
    error = first.error
    _add_note(error, first.summary)
    for other in others[:_MOST_NOTES]:
        _add_note(error, f"also {other.summary}")
    if len(others) > _MOST_NOTES:
        rows = ", ".join(str(other.row) for other in others[_MOST_NOTES:])
        _add_note(error, f"also envs {rows}")
    # Many envs mostly fail in one way, and one traceback says it.
    different = {failure.title: failure for failure in (*others[::-1], first)}.values()
    shown = sorted(different, key=lambda failure: failure.row)[:_MOST_TRACEBACKS]
    cause = RemoteTraceback(*(f"{failure.summary}\n\n{failure.text}" for failure in shown))
    raise error from cause


def _add_note(error: BaseException, note: str) -> None:
    with contextlib.suppress(Exception):
        # An exception may refuse attributes.
        _attach_note(error, note)


def _attach_note(error: BaseException, note: str) -> None:
    # Python 3.10 shows no notes, but whoever looks for them finds them in the same place.
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", ()), note]


def _portable(error: BaseException) -> bytes:
    """Returns the pickled exception, or a pickled `EnvError` in its stead."""
    try:
        payload = by_value.dumps_back(error)
        rebuilt = pickle.loads(payload)
        if type(rebuilt) is type(error) and str(rebuilt) == str(error):
            return payload
    except BaseException:
        # Its own methods may do anything.
        pass
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    return pickle.dumps(EnvError(f"{name}: {_text(error)} (an exception of this type cannot be pickled and rebuilt)"))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"<its message cannot be read: {type(broken).__name__}>"


def _rebuild(row: int, doing: str, payload: bytes, text: str, title: str) -> Failure:
    try:
        error = pickle.loads(payload)
    except BaseException as broken:
        # Its class exists beside the env, but not here.
        error = EnvError(f"{title} (it cannot be rebuilt here: {type(broken).__name__}: {broken})")
    return Failure(row, doing, error, text, title)
