"""The portable twins of what only Linux has, tried out on Linux: in the program and in every worker.

Each program here runs with a `sitecustomize` that takes away, in every Python process, what other systems
do not have, before shoal looks for it.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import programs
import pytest

from shoal.testing import faults

pytestmark = pytest.mark.timeout(60)

START_METHODS = ["forkserver", "spawn", "fork"]

ELSEWHERE = """
import os, select, signal

for module, names in {
    os: "eventfd eventfd_read eventfd_write EFD_CLOEXEC EFD_NONBLOCK memfd_create MFD_CLOEXEC pidfd_open "
        "posix_fallocate sched_getaffinity sched_setaffinity sched_yield waitid",
    select: "POLLRDHUP epoll",
    signal: "pidfd_send_signal",
}.items():
    for name in names.split():
        delattr(module, name)

# No signal tells of a parent's death.
import shoal.backends.entry
shoal.backends.entry.die_with_parent = lambda: None
"""
BEGIN = """
import os, signal, sys, time, warnings
from functools import partial
import shoal
from shoal.testing import Counter, Faulty, faults

START_METHOD = sys.argv[1]

class Marked(Faulty):
    def close(self):
        open(f"closed-{self.index}", "w").close()
        super().close()

class Looker(Counter):
    def seen(self):
        return looks()

def looks():
    "Returns what the descriptors and the mapped files of this process are."
    seen = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            seen.add(os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
        except OSError:
            pass
    with open("/proc/self/maps") as maps:
        return seen, [line.split()[5] for line in maps if "memfd" in line or line.endswith("(deleted)\\n")]

def build(*env_fns, **options):
    options = dict(num_workers=len(env_fns), start_method=START_METHOD, close_timeout=0.5, **options)
    return shoal.AsyncVectorEnv(env_fns, **options)

def expect(kind, *parts):
    "Returns a context in which this must be raised, soon."
    class Expected:
        def __enter__(self):
            self.start = time.monotonic()
        def __exit__(self, found, error, _):
            assert found is not None and issubclass(found, kind), f"not raised: {kind}"
            assert all(part in str(error) for part in parts), str(error)
            assert time.monotonic() - self.start < 5
            return True
    return Expected()
"""


def elsewhere(folder: Path) -> dict[str, str]:
    """Returns the environment in which Python starts without what only Linux has."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(ELSEWHERE, encoding="utf-8")
    return {"PYTHONPATH": str(site)}


def check(program: str, folder: Path, start_method: str) -> str:
    source = BEGIN + textwrap.dedent(program)
    return programs.check(source, folder, [start_method], environ=elsewhere(folder))


@pytest.mark.parametrize("start_method", START_METHODS)
def test_batch_runs(tmp_path, start_method):
    """A pipe instead of an eventfd, a file without a name instead of a memfd, and the same results."""
    program = """
    import numpy as np
    from gymnasium.spaces import Box
    from shoal.testing import Pixels
    from shoal.memory import bell, segment

    assert bell.make_bell is bell.PipeBell
    assert segment.create_anonymous_file is segment.create_unlinked_file
    envs = build(*[partial(Counter, index) for index in range(3)], lambda: Looker(3))
    assert envs.reset(seed=1)[0].ravel().tolist() == [0, 100, 200, 300]
    for t in range(1, 200):
        assert envs.step([0] * 4)[0].ravel().tolist() == [t, 100 + t, 200 + t, 300 + t]
    assert envs.call("render") == (None,) * 4
    envs.close()

    envs = build(Looker, Looker)
    envs.reset()
    for seen, mapped in [looks(), *envs.call("seen")]:
        assert "pipe" in seen and "socket" in seen
        assert "anon_inode" not in seen and "/memfd" not in seen, seen
        assert len(mapped) >= 2 and not [name for name in mapped if "memfd" in name], mapped
    envs.close()

    # Large enough to be lent.
    envs = shoal.AsyncVectorEnv([partial(Pixels, index=i) for i in range(4)], num_workers=2, start_method=START_METHOD)
    held = [envs.reset()[0]] + [envs.step([0] * 4)[0] for _ in range(6)]
    for t, observations in enumerate(held):
        for index in range(4):
            assert np.array_equal(observations[index], Pixels.frame(index, t))
    envs.close()
    """
    check(program, tmp_path, start_method)


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_death_and_hang_are_told(tmp_path, start_method):
    """Without a descriptor for processes the end of a socket tells of a death."""
    program = """
    envs = build(Counter, partial(Faulty, "step", "exit", index=1))
    envs.reset()
    with expect(shoal.WorkerDiedError, "env 1", "in step", "exit code 3"):
        envs.step([0, 0])
    envs.close()

    envs = build(Counter, Counter, Counter)
    envs.reset()
    faults.kill(envs, 1)
    with expect(shoal.WorkerDiedError, "env 1", "SIGKILL"):
        envs.step([0, 0, 0])
    envs.close()

    for fault in ("hang", "hang-in-c"):
        envs = build(Counter, partial(Faulty, "step", fault, index=1), step_timeout=0.2)
        envs.reset()
        with expect(shoal.StepTimeoutError, "env 1"):
            envs.step([0, 0])
        start = time.monotonic()
        envs.close()
        assert time.monotonic() - start < 5
        assert all(map(faults.process_gone, envs.worker_pids)), f"{fault}: a worker is left"

    with expect(ValueError, "bad apple"):
        build(Counter, partial(Faulty, "constructor"))
    with expect(shoal.WorkerDiedError, "env 1", "SIGABRT"):
        build(Counter, partial(Faulty, "constructor", "abort"))
    with expect(shoal.StartTimeoutError, "env 1"):
        build(Counter, partial(Faulty, "constructor", "hang"), start_timeout=1.0)
    """
    check(program, tmp_path, start_method)


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_death_is_told_although_a_child_of_the_env_lives(tmp_path, start_method):
    """A forked child has a copy of the socket, so that the socket's end does not come."""
    program = """
    class Forker(Counter):
        def __init__(self):
            super().__init__()
            # Numerical libraries may have threads, which is no matter to a child that does nothing.
            warnings.simplefilter("ignore", DeprecationWarning)
            if not os.fork():
                time.sleep(600)
                os._exit(0)
        def step(self, action):
            os._exit(3)

    envs = build(Forker, Counter)
    envs.reset()
    with expect(shoal.WorkerDiedError, "env 0", "exit code 3"):
        envs.step([0, 0])
    envs.close()
    """
    check(program, tmp_path, start_method)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_workers_go_with_their_program(tmp_path, start_method):
    """Without a signal at the parent's death: by the end of the socket, and by whoever watches it."""
    program = """
    idle = build(partial(Marked, "call", "raise", index=0))
    busy = build(partial(Marked, "step", "hang", index=1))
    for envs in (idle, busy):
        envs.reset()
    busy.step_async([0])
    open("ready.part", "w").close()
    os.rename("ready.part", "ready")
    time.sleep(1000)
    """
    source = BEGIN + textwrap.dedent(program)
    started = programs.Program(source, tmp_path, [start_method], environ=elsewhere(tmp_path))
    try:
        started.wait_for(tmp_path / "ready")
        started.kill()
        faults.wait_until(lambda: not list(started.pids()), 4.0, "all processes of the program are gone")
    finally:
        programs.end(started)
    assert sorted(path.name for path in tmp_path.glob("closed-*")) == ["closed-0", "closed-1"]


def test_launcher_is_killed(tmp_path):
    """Nobody tells the workers; the program still ends them when it closes the batch."""
    program = """
    from shoal.backends import launcher_pid

    envs = [build(Counter, partial(Faulty, "step", fault)) for fault in ("raise", "hang", "hang-in-c")]
    for each in envs:
        each.reset()
    for each in envs[1:]:
        each.step_async([0, 0])
    os.kill(launcher_pid(), signal.SIGKILL)
    faults.wait_until(lambda: launcher_pid() is None or faults.process_gone(launcher_pid()))
    for each in envs:
        start = time.monotonic()
        each.close()
        assert time.monotonic() - start < 5
        faults.wait_until(lambda: all(map(faults.process_gone, each.worker_pids)), 2, "workers are gone")
    new = build(Counter, Counter)
    new.reset()
    new.close()
    """
    check(program, tmp_path, "forkserver")
