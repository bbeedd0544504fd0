"""Runs a program in an interpreter of its own, and sees that nothing of it is left when it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from shoal.testing.faults import process_gone, wait_until

# Starting an interpreter and importing Gymnasium takes a second; a loaded machine may take its time.
PATIENCE_S = 45.0
# How long workers may take to go once the program has ended by itself.
LEAVE_S = 5.0

# Ways to hand a program to Python.
HOW = ("file", "-c", "stdin", "-m")


class Program:
    """A running program; its processes are known by a token in their environment, orphans too.

    Args:
        source: What it does, indented as the caller likes; no main guard is added.
        folder: Where its file is written and where it runs.
        arguments: What follows the file name in `sys.argv`.
        how: One of `HOW`.
        environ: Variables to add to the environment.
        options: For the interpreter.
    """

    def __init__(
        self,
        source: str,
        folder: Path,
        arguments: Sequence[object] = (),
        *,
        how: str = "file",
        environ: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        source = textwrap.dedent(source)
        (folder / "program.py").write_text(source, encoding="utf-8")
        self._token = f"SHOAL_PROGRAM={uuid.uuid4().hex}"
        name, _, value = self._token.partition("=")
        # What an outer run of pytest has set would change warnings, and with them what is printed.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
        told = {"file": ["program.py"], "-c": ["-c", source], "stdin": ["-"], "-m": ["-m", "program"]}[how]
        self._input = source if how == "stdin" else ""
        self.process = subprocess.Popen(
            [sys.executable, *options, *told, *map(str, arguments)],
            cwd=folder,
            env={**inherited, name: value, **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, *paths: Path) -> None:
        """Returns as soon as all these files are there."""

        def missing() -> list[str]:
            return [path.name for path in paths if not path.exists()]

        try:
            wait_until(lambda: not missing() or self.process.poll() is not None, PATIENCE_S)
        except AssertionError:
            self.process.kill()
        if missing():
            _, error = self.process.communicate(timeout=LEAVE_S)
            raise AssertionError(f"the program has not come to {missing()}; it said:\n{error}")

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Waits until it has ended and every process of it is gone, and returns what it said."""
        try:
            output, error = self.process.communicate(self._input, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, error = self.process.communicate()
            raise AssertionError(f"the program does not end; so far it said:\n{output}\n{error}") from None
        wait_until(lambda: not list(self.pids()), LEAVE_S, "all processes of the program are gone")
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, output, error)

    def kill(self) -> None:
        """Kills it with SIGKILL; what it has started stays."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def pids(self) -> Iterator[int]:
        """Yields the ids of its processes, of those that it has started, of those these have started, ..."""
        token = self._token.encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            # A process that ends while it is looked at is gone.
            with suppress(OSError):
                pid = int(path.parent.name)
                if token in path.read_bytes() and not process_gone(pid):
                    yield pid


def end(program: Program) -> None:
    """Kills it and all that is left of it."""
    program.kill()
    for pid in list(program.pids()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(
    source: str,
    folder: Path,
    arguments: Sequence[object] = (),
    *,
    how: str = "file",
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; see `Program`."""
    return Program(source, folder, arguments, how=how, environ=environ, options=options).finish()


def check(
    source: str,
    folder: Path,
    arguments: Sequence[object] = (),
    *,
    how: str = "file",
    environ: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> str:
    """Runs a program that holds assertions of its own and must have nothing to complain of; returns its output."""
    done = run(source, folder, arguments, how=how, environ=environ, options=options)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
