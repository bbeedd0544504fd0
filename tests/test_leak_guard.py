"""The leak guard sees what a test leaves behind: shown by a run of pytest over tests that do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

# All look at one run.
pytestmark = pytest.mark.xdist_group("leak_guard")

HERE = Path(__file__).parent

CONFTEST_END = """
def pytest_sessionstart():
    import leak_guard
    leak_guard.PATIENCE_S = 0.5

def pytest_sessionfinish():
    import leak_guard
    for process in leak_guard.processes():
        process.kill()
"""

INNER_TESTS = """
import ctypes, mmap, os, socket, subprocess, threading
from pathlib import Path
import pytest

QUIET = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
RELEASED = threading.Event()
KEPT = {}
NAMED = Path(f"/dev/shm/shoal-forgotten-{os.getpid()}")

def teardown_module():
    RELEASED.set()

def test_leaks_a_process():
    KEPT["process"] = subprocess.Popen(["sleep", "60"], **QUIET)

def test_leaks_a_zombie():
    KEPT["zombie"] = subprocess.Popen(["true"], **QUIET)

def test_leaks_an_orphan():
    subprocess.run("sleep 61 &", shell=True, check=True, **QUIET)

def test_leaks_a_thread():
    threading.Thread(target=RELEASED.wait, args=[30], name="forgotten").start()

def test_leaks_a_daemon_thread_of_ours():
    threading.Thread(target=RELEASED.wait, args=[30], name="shoal-watch", daemon=True).start()

def test_leaks_a_pipe():
    KEPT["pipe"] = os.pipe()

def test_leaks_an_eventfd():
    libc = ctypes.CDLL(None)
    assert libc.eventfd(0, 0) >= 0

def test_leaks_a_socket():
    KEPT["sockets"] = socket.socketpair()

def test_leaks_a_file(tmp_path):
    KEPT["file"] = open(tmp_path / "log.txt", "w")

def test_leaks_a_mapping():
    fd = os.memfd_create("forgotten")
    os.truncate(fd, 4096)
    KEPT["mapping"] = mmap.mmap(fd, 4096)
    os.close(fd)

def test_leaks_named_memory():
    NAMED.touch()

def test_leaves_nothing(tmp_path):
    NAMED.unlink()

def test_lets_go_in_time():
    read, write = os.pipe()
    threading.Timer(0.1, lambda: (os.close(read), os.close(write))).start()

@pytest.fixture
def cycle():
    class Cycle:
        def __init__(self):
            self.me = self
            self.pair = os.pipe()
        def __del__(self):
            for fd in self.pair:
                os.close(fd)
    return Cycle()

def test_leaves_it_to_the_garbage_collector(cycle):
    pass

def test_fails_and_leaves_only_its_variables():
    pair = socket.socketpair()
    raise ValueError("on purpose")

def test_replaces_what_it_found():
    for end in KEPT["sockets"]:
        end.close()
    KEPT["sockets"] = socket.socketpair()

def test_ordinary_daemon_thread():
    threading.Thread(target=RELEASED.wait, args=[30], daemon=True).start()

@pytest.mark.no_leak_guard(reason="shows how")
def test_excused():
    KEPT["excused"] = os.pipe()

@pytest.mark.no_leak_guard
def test_excused_without_reason():
    pass
"""

# Parts of what must be said about each test that leaks; what leaves nothing is empty.
EXPECTED = {
    "test_leaks_a_process": ["process ", "sleep 60"],
    "test_leaks_a_zombie": ["process ", "zombie"],
    "test_leaks_an_orphan": ["process ", "sleep 61"],
    "test_leaks_a_thread": ["thread forgotten"],
    "test_leaks_a_daemon_thread_of_ours": ["thread shoal-watch"],
    "test_leaks_a_pipe": ["descriptor of pipe", "-> pipe:["],
    "test_leaks_an_eventfd": ["descriptor of anon_inode:[eventfd]"],
    "test_leaks_a_socket": ["descriptor of socket", "-> socket:["],
    "test_leaks_a_file": ["descriptor of /", "log.txt"],
    "test_leaks_a_mapping": ["mapping of /memfd:forgotten"],
    "test_leaks_named_memory": ["/dev/shm/shoal-forgotten-"],
    "test_leaves_nothing": [],
    "test_lets_go_in_time": [],
    "test_leaves_it_to_the_garbage_collector": [],
    "test_fails_and_leaves_only_its_variables": ["on purpose"],
    "test_replaces_what_it_found": [],
    "test_ordinary_daemon_thread": [],
    "test_excused": [],
    "test_excused_without_reason": ["say why"],
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What the guard said about each of the inner tests; empty where it had nothing to say."""
    folder = tmp_path_factory.mktemp("inner")
    shutil.copy(HERE / "leak_guard.py", folder)
    conftest = (HERE / "conftest.py").read_text(encoding="utf-8")
    (folder / "conftest.py").write_text(conftest + CONFTEST_END, encoding="utf-8")
    (folder / "test_inner.py").write_text(INNER_TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=report.xml"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    cases = ElementTree.parse(folder / "report.xml").iter("testcase")
    return {case.get("name", ""): "".join(case.itertext()) for case in cases}


def test_every_inner_test_was_looked_at(complaints):
    """A misspelt name would be a claim that nobody checks."""
    assert set(complaints) == set(EXPECTED)


@pytest.mark.parametrize(("test", "said"), EXPECTED.items(), ids=EXPECTED)
def test_guard_on(complaints, test, said):
    """A test that leaks fails and is told what it left; one that does not, passes."""
    assert bool(complaints[test]) == bool(said), complaints[test]
    for part in said:
        assert part in complaints[test]


def test_variables_of_a_failed_test_are_no_leak(complaints):
    """One failure is reported once; the traceback that pytest keeps holds the rest."""
    assert "left behind" not in complaints["test_fails_and_leaves_only_its_variables"]
