"""The program is killed: whatever its envs are at, nothing of it is left a moment later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import programs
import pytest

from shoal.testing import faults

# All situations of one start method look at one program.
pytestmark = pytest.mark.timeout(60)

# "Within two seconds", with room for a loaded machine.
GONE_S = 4.0

PROGRAM = """
import os, subprocess, sys, threading, time, warnings
from functools import partial
import shoal
from shoal.testing import Counter, Faulty

warnings.simplefilter("ignore")
START_METHOD = sys.argv[1]

def mark(what, label, pid=None):
    with open(f"{what}-{label}.part", "w") as file:
        file.write(str(pid or os.getpid()))
    os.rename(f"{what}-{label}.part", f"{what}-{label}")

class Marked(Faulty):
    def __init__(self, label, *arguments, **keywords):
        self.label = label
        mark("built", label)
        super().__init__(*arguments, **keywords)

    def close(self):
        mark("closed", self.label)
        super().close()

    def _enter(self, stage):
        if stage == self.stage:
            mark("at", self.label)
        super()._enter(stage)

class Parent(Marked):
    def __init__(self, label, closes, command):
        self.closes = closes
        self.child = subprocess.Popen(command, close_fds=False)
        mark("child", label, self.child.pid)
        super().__init__(label, "call")

    def close(self):
        super().close()
        if self.closes:
            self.child.kill()
            self.child.wait()

class Nested(Marked):
    def __init__(self, label):
        self.batch = build(partial(Counter), partial(Counter))
        for number, pid in enumerate(self.batch.worker_pids):
            mark("child", f"{label}.{number}", pid)
        super().__init__(label, "call")

    def close(self):
        super().close()
        self.batch.close()

def build(*env_fns):
    return shoal.AsyncVectorEnv(env_fns, num_workers=1, start_method=START_METHOD, close_timeout=1000)

SLEEP = ["sleep", "600"]
DEAF = ["sh", "-c", "trap '' TERM INT HUP; sleep 600"]

idle = build(partial(Marked, "idle", "call"))
step = build(partial(Marked, "step", "step", "hang"), partial(Marked, "step-sibling", "call"))
close = build(partial(Marked, "close-sibling", "call"), partial(Marked, "close", "close", "hang"))
family = build(partial(Parent, "family", True, SLEEP))
careless = build(partial(Parent, "careless", False, DEAF))
nested = build(partial(Nested, "nested"))
batches = [idle, step, close, family, careless, nested]
if START_METHOD != "fork":
    c = build(partial(Marked, "step-in-c", "step", "hang-in-c"), partial(Marked, "step-in-c-sibling", "call"))
    batches.append(c)
for batch in batches:
    batch.reset()
for batch in batches[6:] + [step]:
    batch.step_async([0, 0])
fns = [partial(Marked, "constructor-sibling", "call"), partial(Marked, "constructor", "constructor", "hang")]
threading.Thread(target=build, args=fns, daemon=True).start()
while not os.path.exists("at-constructor"):
    time.sleep(0.01)
threading.Thread(target=close.close, daemon=True).start()
mark("ready", "program", shoal.backends.launcher_pid())
time.sleep(1000)
"""
# The situations that a worker can be in, and the envs in it that Python still gets to close.
SITUATIONS = {
    "idle": ["idle"],
    "constructor": ["constructor-sibling"],
    "step": ["step", "step-sibling"],
    "close": ["close-sibling", "close"],
    "step-in-c": [],
    "family": ["family"],
    "careless": ["careless"],
    "nested": ["nested"],
}


class Aftermath(NamedTuple):
    """What came of a program that was killed.

    Attributes:
        folder: Where its envs have left their marks: `what-label`, with a process id.
        gone: When each process was gone, in seconds after the kill.
        left: Processes that were still there after a multiple of the time they have.
    """

    folder: Path
    gone: dict[int, float]
    left: list[int]

    def pid(self, what: str, label: str) -> int:
        return int((self.folder / f"{what}-{label}").read_text())

    def when_gone(self, pid: int) -> float:
        assert pid not in self.left
        return self.gone[pid]


@pytest.fixture(scope="module", params=["forkserver", "spawn", "fork"])
def aftermath(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    """Runs the program until every env is where it is to be, kills it, and watches what goes when."""
    folder = tmp_path_factory.mktemp(request.param)
    program = programs.Program(PROGRAM, folder, [request.param])
    try:
        marks = ["ready-program", *(f"at-{label}" for label in ("constructor", "step", "close"))]
        if request.param != "fork":
            marks.append("at-step-in-c")
        program.wait_for(*[folder / mark for mark in marks])
        alive = set(program.pids()) - {program.process.pid}
        start = time.monotonic()
        program.kill()
        gone: dict[int, float] = {}
        while alive and time.monotonic() < start + 2 * GONE_S:
            for pid in list(alive):
                if faults.process_gone(pid):
                    alive.discard(pid)
                    gone[pid] = time.monotonic() - start
            time.sleep(0.01)
        # Whatever somebody has started on the way out.
        left = sorted({*alive, *program.pids()})
        yield Aftermath(folder, gone, left)
    finally:
        programs.end(program)


@pytest.mark.xdist_group("orphans")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_worker_goes_with_its_program(aftermath, request, situation):
    """And closes its envs, wherever Python can still run: they hold licences and simulators."""
    if situation == "step-in-c" and "fork" in request.node.callspec.id.split("-"):
        pytest.skip("a forked worker whose env keeps the GIL ends only when its env returns; see the documentation")
    assert aftermath.when_gone(aftermath.pid("built", situation)) < GONE_S
    for label in SITUATIONS[situation]:
        assert (aftermath.folder / f"closed-{label}").exists(), f"{label} was not closed"


@pytest.mark.xdist_group("orphans")
def test_children_of_envs_go_with_the_program(aftermath):
    """Also those that nobody closes and that heed no signal: they are of the worker's process group."""
    children = [aftermath.pid("child", label) for label in ("family", "careless", "nested.0")]
    assert [pid for pid in children if pid in aftermath.left] == []
    assert all(aftermath.when_gone(pid) < GONE_S for pid in children)


@pytest.mark.xdist_group("orphans")
def test_nothing_else_is_left(aftermath, request):
    """Neither the process that starts workers, nor any that this test knows nothing of."""
    assert aftermath.left == []
    launcher = (aftermath.folder / "ready-program").read_text()
    if "fork" not in request.node.callspec.id.split("-"):
        assert aftermath.when_gone(int(launcher)) < GONE_S
    assert not list(Path("/dev/shm").glob("*shoal*"))


# --- The process that starts workers ---


def test_launcher_ends_with_the_last_batch(tmp_path):
    """A program that is done with batches has no process more than before; `preload` keeps one for the next."""
    program = """
    import os
    import shoal
    from shoal.backends import launcher_pid
    from shoal.testing import Counter, process_gone

    def build(start_method="forkserver"):
        return shoal.AsyncVectorEnv([Counter], start_method=start_method)

    class Importer(Counter):
        def loaded(self):
            import sys
            return "wave" in sys.modules

    assert launcher_pid() is None
    first, second = build(), build("spawn")
    pid = launcher_pid()
    assert pid is not None
    first.close()
    assert launcher_pid() == pid
    second.close()
    assert launcher_pid() is None and process_gone(pid)
    build("fork").close()
    assert launcher_pid() is None

    shoal.preload("wave", "no_such_module")
    pid = launcher_pid()
    assert pid is not None
    for start_method in ("forkserver", "spawn"):
        build(start_method).close()
        assert launcher_pid() == pid and not process_gone(pid)
    envs = shoal.AsyncVectorEnv([Importer])
    assert envs.call("loaded") == (True,)
    envs.close()
    print(pid)
    """
    pid = int(programs.check(program, tmp_path))
    assert faults.process_gone(pid)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_launcher_is_killed(tmp_path, start_method):
    """Its workers go, for nobody would look after them; the program is told and may start anew."""
    program = """
    import os, signal, sys, time
    import shoal
    from shoal.backends import launcher_pid
    from shoal.testing import Counter, Faulty, Parental, process_gone, wait_until

    class Marked(Counter):
        def close(self):
            open(f"closed-{os.getpid()}", "w").close()

    class Careless(Parental):
        def close(self):
            pass

    START_METHOD = sys.argv[1]
    if START_METHOD == "forkserver":
        shoal.preload()

    def build(*env_fns, **options):
        return shoal.AsyncVectorEnv(env_fns, num_workers=len(env_fns), start_method=START_METHOD, **options)

    idle = build(Marked, Marked)
    idle.reset()
    busy = build(lambda: Faulty("step", "hang"))
    busy.reset()
    busy.step_async([0])
    parental = build(Careless)
    (child,) = parental.get_attr("child_pid")
    deaf = build(lambda: Faulty("step", "hang-in-c"), close_timeout=0.2)
    deaf.reset()
    deaf.step_async([0])
    old = launcher_pid()
    os.kill(old, signal.SIGKILL)
    for pid in (*idle.worker_pids, *busy.worker_pids, *parental.worker_pids, child):
        wait_until(lambda: process_gone(pid), 4, f"{pid} is gone")
    assert all(os.path.exists(f"closed-{pid}") for pid in idle.worker_pids)
    start = time.monotonic()
    for act in (lambda: idle.step([0, 0]), lambda: idle.reset(), busy.step_wait):
        try:
            act()
        except shoal.WorkerDiedError as error:
            assert error.worker == 0 and error.env_indices == (0,), error
        else:
            raise AssertionError("nobody has told")
    assert time.monotonic() - start < 5

    new = build(Marked, Marked)
    assert launcher_pid() not in (None, old)
    new.reset()
    assert new.step([0, 0])[0].ravel().tolist() == [1, 1]
    for batch in (idle, busy, parental, deaf):
        start = time.monotonic()
        batch.close()
        assert time.monotonic() - start < 5
        assert all(map(process_gone, batch.worker_pids)), "a worker is left"
    assert new.step([0, 0])[0].ravel().tolist() == [2, 2]
    new.close()
    """
    programs.check(program, tmp_path, [start_method])


def test_launcher_cannot_be_started(tmp_path):
    """Whatever is the matter with the interpreter, nobody waits for it."""
    program = """
    import sys
    import shoal
    from shoal.testing import Counter
    python, sys.executable = sys.executable, sys.argv[1]
    for _ in range(2):
        try:
            shoal.AsyncVectorEnv([Counter])
        except shoal.StartError as error:
            print(error)
        else:
            raise AssertionError("who has started it?")
    sys.executable = python
    shoal.AsyncVectorEnv([Counter]).close()
    """
    assert "cannot be started" in programs.check(program, tmp_path, ["/no/such/python"])
    assert "ended with exit code 1" in programs.check(program, tmp_path, ["/bin/false"])
