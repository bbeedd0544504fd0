"""Fails every test that leaves something behind.

Compared before and after each test: processes that this one has started, directly or not, orphans among them;
threads; file descriptors; shared memory that is mapped; entries of `/dev/shm`. What is still going away gets
`PATIENCE_S` seconds. Threads, descriptors and mappings of one kind are counted, so a test may replace what it
found: end the launcher and have another started, say.

Not held against a test, since they are kept until exit on purpose:

- the launcher process, by `shoal.preload()`, with its socket and pidfd, which are there before each test;
- `multiprocessing`'s resource tracker, its fork server, and the shared arrays its heap keeps for reuse
  (Gymnasium's `AsyncVectorEnv` takes its memory there);
- what drivers and measuring tools open at the first use: `IGNORED_FILES`.

`@pytest.mark.no_leak_guard(reason="...")` switches it off for one test.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

import psutil
import pytest

import shoal
from shoal.backends import launcher_pid

PATIENCE_S = 5.0

IGNORED_FILES = re.compile(
    r"""
      /dev/shm/(pym-|sem\.mp-).*        # multiprocessing: arenas of its heap, semaphores
    | /dev/(u?random|dri/.*|nvidia.*)   # opened once by libraries and graphics drivers
    | .*\.(ttf|otf)                     # matplotlib's fonts
    | .*/\.coverage[^/]*                # the data file of a coverage run
    """,
    re.VERBOSE,
)

# In the environment of every process started below this one. So those are found, too, whose parents are gone.
TOKEN = uuid.uuid4().hex
os.environ["SHOAL_TESTS"] = f"{os.environ.get('SHOAL_TESTS', '')}:{TOKEN}"

# A kind of thing, and one line for each thing of that kind.
Traces = dict[str, list[str]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "no_leak_guard(reason): the test may leave things behind, and why.")


@pytest.fixture(autouse=True)
def leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test if it leaves something behind; the first fixture set up, so the last torn down."""
    marker = request.node.get_closest_marker("no_leak_guard")
    if marker is not None:
        if not (marker.args or marker.kwargs.get("reason")):
            pytest.fail('say why: @pytest.mark.no_leak_guard(reason="...")', pytrace=False)
        yield
        return
    if launcher_pid() is None:
        # An earlier test has ended the one that is kept for all.
        shoal.preload()
    before = traces()
    yield
    forget_the_test(request.node)
    left = wait_until_gone(before)
    if left:
        lines = [f"  {kind}: {line}" for kind, lines in left.items() for line in lines]
        pytest.fail("\n".join([f"left behind {PATIENCE_S:g} s after the test:", *lines]), pytrace=False)


def forget_the_test(item: pytest.Item) -> None:
    """Drops what pytest still holds: the fixtures' results, all finished by now, and a failed test's variables."""
    getattr(item, "funcargs", {}).clear()
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


def wait_until_gone(before: Mapping[str, list[str]]) -> Traces:
    """Returns what is there beyond `before` once nothing is or patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while left := grown(before, traces()):
        if time.monotonic() > deadline:
            return left
        # Some things are released only when a reference cycle is found.
        gc.collect()
        time.sleep(0.02)
    return {}


def grown(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Traces:
    """Returns the kinds of which there are more `after`, with the lines that are new."""
    return {
        kind: [line for line in lines if line not in before.get(kind, ())]
        for kind, lines in after.items()
        if len(lines) > len(before.get(kind, ()))
    }


def traces() -> Traces:
    """Returns everything that this process would leave behind if it ended now."""
    found: Traces = {}
    for kind, line in chain(
        process_traces(), thread_traces(), descriptor_traces(), mapping_traces(), shared_memory_traces()
    ):
        found.setdefault(kind, []).append(line)
    return found


def process_traces() -> Iterator[tuple[str, str]]:
    for process in processes():
        with suppress(psutil.NoSuchProcess), process.oneshot():
            status = process.status()
            # Of a process that nobody has waited for, only the name is left.
            command = [process.name()] if status == psutil.STATUS_ZOMBIE else process.cmdline()
            yield f"process {process.pid}", f"{status}, child of {process.ppid()}: {' '.join(command)[:200]}"


def processes() -> set[psutil.Process]:
    """Returns the processes started below this one, orphans among them, without those kept on purpose."""
    kept = {launcher_pid(), *kept_by_multiprocessing("_pid", "_forkserver_pid")}
    family = {*psutil.Process().children(recursive=True), *bearers_of_token()}
    return {process for process in family if process.pid not in kept}


def bearers_of_token() -> Iterator[psutil.Process]:
    token = TOKEN.encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError, psutil.NoSuchProcess):
            if token in path.read_bytes() and int(path.parent.name) != os.getpid():
                yield psutil.Process(int(path.parent.name))


def thread_traces() -> Iterator[tuple[str, str]]:
    for thread in threading.enumerate():
        if not thread.daemon or thread.name.startswith("shoal"):
            yield f"thread {thread.name}", repr(thread)


def descriptor_traces() -> Iterator[tuple[str, str]]:
    kept = kept_by_multiprocessing("_fd", "_forkserver_alive_fd")
    for name in os.listdir("/proc/self/fd"):
        # The descriptor that lists the folder is gone by now.
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if int(name) not in kept and not IGNORED_FILES.fullmatch(target):
                yield f"descriptor of {without_number(target)}", f"{name} -> {target}"


def mapping_traces() -> Iterator[tuple[str, str]]:
    """Yields memory that is shared with other processes; it outlives its descriptor."""
    seen = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, inode, *path = line.split(maxsplit=5)
        # One segment may be mapped in several pieces.
        if access.endswith("s") and inode not in seen and not IGNORED_FILES.fullmatch("".join(path)):
            seen.add(inode)
            yield f"mapping of {without_number(''.join(path))}", f"{span}, inode {inode}"


def shared_memory_traces() -> Iterator[tuple[str, str]]:
    # Hidden ones belong to browsers on somebody's desktop.
    for path in Path("/dev/shm").glob("[!.]*"):
        if not IGNORED_FILES.fullmatch(str(path)):
            yield str(path), "an entry of /dev/shm"


def without_number(target: str) -> str:
    """Returns `socket` for `socket:[123]`: what a descriptor leads to, less which one it is."""
    return re.sub(r":\[\d+\]$", "", target)


def kept_by_multiprocessing(*attributes: str) -> set[int]:
    """Returns pids or descriptors of multiprocessing's own helpers, which end with this process."""
    helpers = [
        getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None),
        getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None),
    ]
    numbers = {getattr(helper, attribute, None) for helper in helpers for attribute in attributes}
    return {number for number in numbers if number is not None}
