"""Standard streams kept for the command, whatever envs and libraries read and print."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

from shoal.cli import fold

_FOLD_TIMEOUT_S = 5.0


@contextlib.contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Keeps standard output for the caller.

    Until the end of the context, file descriptor 1 leads to standard error, for this process and
    for all it starts, and descriptor 0 is at its end, so that an env that asks for input gets
    `EOFError` instead of waiting for somebody to type.

    Yields:
        The real standard output.
    """
    with _saved(0, 1) as (_, real_stdout), open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        with _text(real_stdout) as stdout:
            yield stdout


@contextlib.contextmanager
def folded_output() -> Iterator[TextIO]:
    """Passes on to standard error what is printed inside the context, but each line only once.

    Libraries tend to say the same thing in every env of every worker; hundreds of copies would bury
    the result. This is about descriptors 1 and 2 of this process and of all it starts. The lines go
    through a process rather than a thread, which could not run while an env that holds the
    interpreter lock waits for room in the pipe.

    Yields:
        The real standard error.
    """
    with _saved(1, 2) as (_, real_stderr):
        # In a session of its own: Ctrl-C is not for it, there may be more to pass on.
        command = [sys.executable, "-I", "-S", fold.__file__]
        reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True)
        assert reader.stdin is not None
        try:
            os.dup2(reader.stdin.fileno(), 1)
            os.dup2(reader.stdin.fileno(), 2)
            with _text(real_stderr) as stderr:
                yield stderr
        finally:
            _flush()
            _end(reader)


def _end(reader: subprocess.Popen[bytes]) -> None:
    try:
        reader.communicate(fold.END, _FOLD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        reader.kill()
        reader.communicate()


@contextlib.contextmanager
def _saved(*descriptors: int) -> Iterator[list[int]]:
    """Yields copies of descriptors; in the end, the descriptors are again what they were."""
    _flush()
    copies = [os.dup(descriptor) for descriptor in descriptors]
    try:
        yield copies
    finally:
        # What is still buffered was meant for where the descriptors lead now.
        _flush()
        for descriptor, copy in zip(descriptors, copies, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)


def _text(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # Libraries in C have buffers of their own.
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)
