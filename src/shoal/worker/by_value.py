"""Pickles code by value, as cloudpickle does, but so that it is still known where it came from.

Two things differ. Code keeps the name of its file, so that tracebacks from beside an env show its lines. And
a class of the main script that comes back is the script's own class: cloudpickle would find it, too, but
would first set all its attributes to what they were when it was sent.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

_reduce_code = cloudpickle.CloudPickler.dispatch_table[CodeType]


def dumps(value: Any) -> bytes:
    """Returns the value pickled; raises whatever keeps it from being pickled."""
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


def dumps_back(value: Any) -> bytes:
    """Returns the value pickled for the process that runs the main script."""
    with io.BytesIO() as file:
        _PicklerBack(file).dump(value)
        return file.getvalue()


def dumps_state(value: Any) -> bytes:
    """Returns an object pickled with all that has become of it, also if it would pickle its constructor's arguments."""
    with io.BytesIO() as file:
        _StatePickler(file).dump(value)
        return file.getvalue()


def _reduce_code_with_file(code: CodeType) -> tuple[Any, ...]:
    make, arguments = _reduce_code(code)
    return make, tuple(code.co_filename if each == "<dynamic-code>" else each for each in arguments)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    dispatch_table: ClassVar[Any] = ChainMap(
        {CodeType: _reduce_code_with_file}, cloudpickle.CloudPickler.dispatch_table
    )


class _PicklerBack(_Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and value.__module__ == "__main__" and "<" not in value.__qualname__:
            return _find_in_main, (value.__qualname__, dumps(value))
        return super().reducer_override(value)


class _StatePickler(_Pickler):
    def reducer_override(self, value: Any) -> Any:
        if any(base.__name__ == "EzPickle" for base in type(value).__mro__) and hasattr(value, "__dict__"):
            return _new, (type(value),), vars(value), None, None, _set_attributes
        return super().reducer_override(value)


def _new(cls: Any) -> Any:
    """Returns an object that was not initialised."""
    return cls.__new__(cls)


def _set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Gives an object its attributes, past what its class would do on unpickling."""
    vars(value).update(attributes)


def _find_in_main(qualname: str, payload: bytes) -> Any:
    """Returns the main script's class of that name; where it has none, the class from the payload."""
    found: Any = sys.modules["__main__"]
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) else pickle.loads(payload)
