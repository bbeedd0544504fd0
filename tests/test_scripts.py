"""The same program runs anywhere: however it was started, in whatever thread, and however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import programs
import pytest
from gymnasium.spaces import Box

import shoal
from shoal.testing import faults
from shoal.testing.toys import Counter

START_METHODS = ("forkserver", "spawn", "fork")

pytestmark = [
    pytest.mark.timeout(60),
    # Runners of tests have threads of their own.
    pytest.mark.filterwarnings("ignore:start_method='fork' copies a process that has other threads"),
]


def check_batch(batch: shoal.AsyncVectorEnv) -> None:
    """Checks that a batch of `Counter`s counts."""
    starts = [100.0 * index for index in range(batch.num_envs)]
    assert batch.reset()[0].ravel().tolist() == starts
    for t in (1, 2):
        observations, rewards, *_ = batch.step([0] * batch.num_envs)
        assert observations.ravel().tolist() == [start + t for start in starts]
        assert rewards.tolist() == [1.0] * batch.num_envs


def counters(num_envs: int = 2, **options: Any) -> shoal.AsyncVectorEnv:
    """Returns a batch of `Counter`s."""
    return shoal.AsyncVectorEnv([partial(Counter, index) for index in range(num_envs)], **options)


# --- However a program is handed to Python ---


@pytest.mark.parametrize("how", programs.HOW)
def test_program_without_main_guard(tmp_path, how):
    """Classes, lambdas and closures of the main program work, and no worker runs that program again."""
    program = """
    import gymnasium as gym, numpy as np, os, shoal
    with open("runs.txt", "a") as file:
        file.write("run;")

    class Config:
        scale = 10

    class Mine(gym.Env):
        observation_space = gym.spaces.Box(-1e9, 1e9, (1,), np.float64)
        action_space = gym.spaces.Discrete(5)

        def __init__(self, index, config):
            self.index, self.config = index, config
            with open("built.txt", "a") as file:
                file.write(f"{index};")

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.array([start(self.index)]), {}

        def step(self, action):
            return np.array([self.index + self.config.scale * action]), 1.0, False, False, {}

    def start(index):
        return -float(index)

    config = Config()
    config.scale = 100
    for start_method in ("forkserver", "spawn", "fork"):
        envs = shoal.AsyncVectorEnv([lambda i=i: Mine(i, config) for i in range(3)], start_method=start_method)
        assert envs.reset(seed=1)[0].ravel().tolist() == [0, -1, -2]
        assert envs.step([0, 1, 2])[0].ravel().tolist() == [0, 101, 202]
        envs.close()
        assert sorted(open("built.txt").read().split(";")) == ["", "0", "1", "2"], start_method
        os.remove("built.txt")
    print("done")
    """
    assert programs.check(program, tmp_path, how=how) == "done\n"
    assert (tmp_path / "runs.txt").read_text() == "run;"


# --- Wherever in a program ---


@pytest.mark.parametrize("start_method", START_METHODS)
def test_all_in_another_thread(start_method):
    """Signal handlers can only be set in the main thread, and that is the worker's business."""

    def work() -> None:
        batch = counters(start_method=start_method)
        check_batch(batch)
        batch.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.mark.parametrize("start_method", START_METHODS)
def test_thread_that_built_the_batch_may_end(start_method):
    """Linux takes the end of the thread that has forked for the death of the parent."""
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(counters, start_method=start_method).result()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    check_batch(batch)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(batch.close).result()


def test_inside_a_running_event_loop():
    """As in a notebook."""

    async def work() -> None:
        for start_method in START_METHODS:
            batch = counters(start_method=start_method)
            check_batch(batch)
            await asyncio.to_thread(check_batch, batch)
            batch.close()
        batch = await asyncio.to_thread(counters)
        await asyncio.to_thread(check_batch, batch)
        await asyncio.to_thread(batch.close)

    asyncio.run(work())


@pytest.mark.parametrize("start_method", START_METHODS)
def test_signals_of_workers_stay_with_them(start_method):
    """A forked worker has a copy of the event loop's wake-up descriptor; what it gets, the loop must not see."""

    async def work() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, seen.append, "SIGTERM")
        try:
            env_fns = [partial(faults.Faulty, "step", "hang")]
            batch = shoal.AsyncVectorEnv(env_fns, start_method=start_method, close_timeout=0.1)
            batch.reset()
            batch.step_async([0])
            # Ends the worker with SIGTERM.
            batch.close()
            # What came is handled before this is.
            await asyncio.to_thread(int)
            await asyncio.sleep(0)
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
        return seen

    assert asyncio.run(work()) == []


class Exclusive(Counter):
    """Holds a lock that nobody else can have until it is closed, and takes its time to get it."""

    def __init__(self, folder: Path, index: int) -> None:
        super().__init__(index)
        self.lock = folder / f"lock-{index}"
        self.lock.touch(exist_ok=False)
        time.sleep(0.5)

    def close(self) -> None:
        self.lock.unlink()


@pytest.mark.parametrize(
    ("num_envs", "start_serially", "shortest_s", "longest_s"), [(8, False, 0.5, 3.5), (3, True, 1.5, 10.0)]
)
def test_each_constructor_runs_once(tmp_path, num_envs, start_serially, shortest_s, longest_s):
    """All at the same time unless asked otherwise; one more env, for its spaces, would find the lock taken."""
    env_fns = [partial(Exclusive, tmp_path, index) for index in range(num_envs)]
    start = time.monotonic()
    batch = shoal.AsyncVectorEnv(env_fns, num_workers=num_envs, start_serially=start_serially)
    assert shortest_s <= time.monotonic() - start < longest_s
    check_batch(batch)
    batch.close()
    assert list(tmp_path.iterdir()) == []


def test_several_batches_at_once():
    """Training and evaluation side by side, opened and closed in any order."""
    first, second = counters(2), counters(3)
    check_batch(second)
    check_batch(first)
    first.close()
    third = counters(4, start_method="fork")
    check_batch(second)
    check_batch(third)
    second.close()
    check_batch(third)
    third.close()


def test_two_batches_in_two_threads():
    """Each has its own memory and bells; all they share is the process that starts workers."""

    def work(num_envs: int) -> None:
        for _ in range(3):
            batch = counters(num_envs)
            for _ in range(20):
                check_batch(batch)
            batch.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, [2, 3]))


def test_one_batch_in_two_threads():
    """Steps follow one another, and a call that comes while another is pending is refused; no reply is swapped."""
    batch = shoal.AsyncVectorEnv([partial(Parrot, index) for index in range(2)])
    batch.reset()

    def work(thread: int) -> int:
        answered = 0
        for count in range(100):
            said = (thread, count)
            with contextlib.suppress(shoal.PendingCallError):
                assert batch.call("repeat", said) == ((0, said), (1, said))
                answered += 1
            with contextlib.suppress(shoal.PendingCallError):
                first, second = batch.step([0, 0])[0].ravel().tolist()
                assert second == first + 100
        return answered

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, [1, 2]))
    batch.close()


class Parrot(Counter):
    """Says what it has heard."""

    def repeat(self, value: Any) -> tuple[int, Any]:
        return self.index, value


class Nested(gym.Env[Any, Any]):
    """An env that steps a batch of its own."""

    observation_space = Box(-1e9, 1e9, (3,), np.float64)
    action_space = Counter().action_space

    def __init__(self, start_method: str) -> None:
        self.batch = counters(3, num_workers=2, start_method=start_method)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.batch.reset()[0].ravel(), {}

    def step(self, action: Any) -> Any:
        return self.batch.step([action] * 3)[0].ravel(), 0.0, False, False, {}

    def pids(self) -> list[int]:
        return self.batch.worker_pids

    def close(self) -> None:
        self.batch.close()


@pytest.mark.parametrize("inner", START_METHODS)
@pytest.mark.parametrize("outer", ["forkserver", "fork"])
def test_batch_inside_an_env_of_another(outer, inner):
    """Workers may have children, and those may be workers."""
    batch = shoal.AsyncVectorEnv([partial(Nested, inner)] * 2, start_method=outer)
    assert batch.reset()[0].tolist() == [[0, 100, 200]] * 2
    assert batch.step([0, 0])[0].tolist() == [[1, 101, 201]] * 2
    inner_pids = [pid for pids in batch.call("pids") for pid in pids]
    assert len({*inner_pids, *batch.worker_pids}) == 6
    batch.close()
    faults.wait_until(lambda: all(map(faults.process_gone, inner_pids)), description="inner workers are gone")


def test_batch_inside_a_daemonic_process(tmp_path):
    """Those of `multiprocessing` may have no children of its own kind, and end without the usual exit handlers."""
    program = """
    import multiprocessing
    import shoal
    from shoal.testing import Counter, process_gone, wait_until

    def build_and_leave(pids):
        batch = shoal.AsyncVectorEnv([Counter, Counter], num_workers=2, start_method="forkserver")
        batch.reset()
        assert batch.step([0, 0])[0].ravel().tolist() == [1, 1]
        pids.send(batch.worker_pids)

    if __name__ == "__main__":
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            ours, theirs = context.Pipe()
            process = context.Process(target=build_and_leave, args=(theirs,), daemon=True)
            process.start()
            pids = ours.recv()
            process.join()
            assert process.exitcode == 0
            assert len(pids) == 2
            wait_until(lambda: all(map(process_gone, pids)), description="workers are gone")
    """
    programs.check(program, tmp_path)


# --- However it ends ---

BEGIN = """
import os, sys, threading, time
from functools import partial
import shoal
from shoal.testing import Counter, Faulty

class Marked(Faulty):
    def close(self):
        open(f"closed-{self.index}", "w").close()

START_METHOD = sys.argv[1]

def build(stage="call", fault="raise", **keywords):
    fns = [partial(Marked, stage, fault, index=i, **keywords) for i in range(2)]
    envs = shoal.AsyncVectorEnv(fns, start_method=START_METHOD)
    envs.reset()
    return envs
"""
ENDS = {
    "falls off the end": ("def main():\n    envs = build()\n    envs.step([0, 0])\nmain()", 0),
    "raises": ("envs = build()\nenvs.step([0, 0])\nraise KeyError('of the program itself')", 1),
    "exits in mid-step": ("envs = build(step_s=0.3)\nenvs.step_async([0, 0])\nsys.exit(4)", 4),
    "exits while an env hangs": ("envs = build('step', 'hang')\nenvs.step_async([0, 0])\nsys.exit(4)", 4),
    "keeps it in a global": ("envs = build()\nprint(envs.step([0, 0])[0].ravel())", 0),
    "leaves at once": ("envs = build()\nenvs.step([0, 0])\nos._exit(0)", 0),
    "keeps it in a cycle": ("envs = build()\nenvs.me = envs\nenvs.fn = lambda: envs\ndel envs", 0),
    "env raises": ("envs = build('step')\nenvs.step([0, 0])", 1),
}
ALL_ENDS = [pytest.param("forkserver", end, id=f"forkserver-{end}") for end in ENDS]
SOME_ENDS = [
    pytest.param(start_method, end, id=f"{start_method}-{end}")
    for start_method in ("spawn", "fork")
    for end in ("keeps it in a global", "exits in mid-step", "leaves at once")
]


@pytest.mark.parametrize(("start_method", "end"), [*ALL_ENDS, *SOME_ENDS])
def test_program_that_ends_without_close(tmp_path, start_method, end):
    """It ends in its own time with its own exit code and has only its own traceback to show; envs are closed."""
    program, code = ENDS[end]
    start = time.monotonic()
    done = programs.run(BEGIN + program, tmp_path, [start_method])
    assert time.monotonic() - start < 20
    assert done.returncode == code, done.stderr
    if code == 1:
        assert ("bad apple" if end == "env raises" else "KeyError: 'of the program itself'") in done.stderr
        if end == "raises":
            assert done.stderr.count("Traceback (most recent call last)") == 1
        assert "Exception ignored" not in done.stderr
        assert "leaked" not in done.stderr
    else:
        assert done.stderr == ""
    faults.wait_until(lambda: len(list(tmp_path.glob("closed-*"))) == 2, description="both envs were closed")


def test_program_that_ends_while_a_daemon_thread_steps(tmp_path):
    """A thread that collects for ever is usual; its last step is nobody's concern."""
    program = """
    envs = build(step_s=0.001)
    stepped = threading.Event()
    def collect():
        while True:
            envs.step([0, 0])
            stepped.set()
    threading.Thread(target=collect, daemon=True).start()
    stepped.wait()
    """
    done = programs.run(BEGIN + textwrap.dedent(program), tmp_path, ["forkserver"])
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("closed-*"))) == 2


def test_dropped_batch_is_collected():
    """Who forgets to close leaves nothing behind, also in mid-step and if an exception held it."""
    batch: Any = counters()
    batch.reset()
    batch.step_async([0, 0])
    pids, gone = batch.worker_pids, weakref.ref(batch)
    try:
        raise RuntimeError(batch)
    except RuntimeError as error:
        batch.error = error
    del batch
    gc.collect()
    assert gone() is None
    faults.wait_until(lambda: all(map(faults.process_gone, pids)), description="workers are gone")


def test_interrupted_program_can_go_on(tmp_path):
    """Ctrl-C reaches the program and not its workers, so that it may save its work and close."""
    program = programs.Program(
        BEGIN
        + textwrap.dedent(
            """
            envs = build("step", "hang", hang_s=1.0)
            envs.step_async([0, 0])
            try:
                open("stepping", "w").close()
                envs.step_wait()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            print(envs.call("poke", 5) if not envs.step_wait() else envs.call("poke", 3))
            envs.close()
            """
        ),
        tmp_path,
        ["forkserver"],
    )
    program.wait_for(tmp_path / "stepping")
    os.killpg(program.process.pid, signal.SIGINT)
    done = program.finish()
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n(3, 3)\n", "")


@pytest.mark.parametrize(("ends", "code", "said"), [("sys.exit(3)", 3, ""), ("pass", 0, "told\n")])
def test_signal_handler_may_close(tmp_path, ends, code, said):
    """As cluster jobs do when their time is up, in the middle of a step."""
    program = f"""
    import signal
    envs = build("step", "hang")
    def close(*_):
        envs.close(timeout=0.3)
        {ends}
    signal.signal(signal.SIGALRM, close)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        envs.step([0, 0])
    except shoal.ClosedError:
        print("told")
    """
    done = programs.run(BEGIN + textwrap.dedent(program), tmp_path, ["forkserver"])
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
    assert len(list(tmp_path.glob("closed-*"))) == 2


# --- Whatever surrounds it ---


def test_surroundings_are_those_of_the_moment(tmp_path):
    """Modules, folder and variables are found in workers as in the program, however late it has set them."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "late_env.py").write_text(
        "import os\nfrom shoal.testing import Counter\n"
        "class Late(Counter):\n    def where(self):\n"
        "        return os.getcwd(), os.environ.get('LATE'), os.environ.get('EARLY')\n"
    )
    program = """
    import os, sys
    os.environ["EARLY"] = "early"
    import shoal
    from shoal.testing import Counter
    shoal.preload()
    shoal.AsyncVectorEnv([Counter]).close()

    sys.path.append(os.path.abspath("modules"))
    os.chdir("elsewhere")
    os.environ["LATE"] = "naïve"
    del os.environ["EARLY"]
    from late_env import Late
    here = dict(os.environ), os.getcwd(), list(sys.path)
    for start_method in ("forkserver", "spawn", "fork"):
        envs = shoal.AsyncVectorEnv([Late, lambda: Late()], start_method=start_method)
        assert envs.call("where") == ((os.getcwd(), "naïve", None),) * 2, (start_method, envs.call("where"))
        envs.close()
    assert here == (dict(os.environ), os.getcwd(), list(sys.path))

    # A folder that is no more is no reason to fail.
    os.mkdir("short-lived")
    os.chdir("short-lived")
    os.rmdir("../short-lived")
    for start_method in ("forkserver", "spawn", "fork"):
        shoal.AsyncVectorEnv([Counter], start_method=start_method).close()
    """
    programs.check(program, tmp_path)


def test_start_method_of_multiprocessing(tmp_path):
    """It is the program's to set: respected here, never set, and not mistaken for set when it is only used."""
    program = """
    import multiprocessing, os, sys
    import psutil, shoal
    from shoal.backends import launcher_pid
    from shoal.testing import Counter

    class Mine(Counter):
        def command(self):
            return " ".join(psutil.Process().cmdline())

    def how(**options):
        envs = shoal.AsyncVectorEnv([Mine], **options)
        (command,) = envs.call("command")
        parent = psutil.Process(envs.worker_pids[0]).ppid()
        served = parent == launcher_pid()
        envs.close()
        return "spawn" if "spawned" in command else "forkserver" if served else "fork"

    assert how() == "forkserver"
    assert multiprocessing.get_start_method(allow_none=True) is None
    multiprocessing.Lock()
    assert how() == "forkserver", "a lock that somebody has made is no wish of the program"
    multiprocessing.set_start_method("spawn", force=True)
    assert how() == "spawn"
    assert how(start_method="fork") == how(context="fork") == "fork"
    assert multiprocessing.get_start_method() == "spawn"
    """
    programs.check(program, tmp_path)


def test_set_start_method_after_a_batch(tmp_path):
    """It may be called once in a program, and the library must not have been first."""
    program = """
    import multiprocessing
    import shoal
    from shoal.testing import Counter
    shoal.AsyncVectorEnv([Counter]).close()
    multiprocessing.set_start_method("spawn")
    """
    programs.check(program, tmp_path)


def test_threads_of_libraries_are_capped(tmp_path):
    """Four workers with four threads each are slower than with one, and the program's own are not to change."""
    program = """
    import os, sys
    import numpy as np, threadpoolctl
    import shoal
    from shoal.testing import Counter

    VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

    class Mine(Counter):
        def __init__(self):
            super().__init__()
            # Also of libraries that were there before the worker was.
            self.pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
            self.variables = tuple(os.environ.get(name) for name in VARIABLES)

    user = os.environ.get("OMP_NUM_THREADS")
    before, pools = dict(os.environ), threadpoolctl.threadpool_info()
    wrong = []
    for start_method in ("forkserver", "spawn", "fork"):
        for asked in (None, 1, 2):
            envs = shoal.AsyncVectorEnv([Mine], start_method=start_method, worker_threads=asked)
            threads = asked or int(user or 1)
            seen = envs.get_attr("variables") + envs.get_attr("pools")
            if seen != ((str(threads),) * 3, {threads}):
                wrong.append((start_method, asked, seen))
            envs.close()
    assert dict(os.environ) == before
    assert threadpoolctl.threadpool_info() == pools
    assert not wrong, wrong
    """
    programs.check(program, tmp_path)
    programs.check(program, tmp_path, environ={"OMP_NUM_THREADS": "2"})


def test_envs_that_print_read_and_log(tmp_path):
    """What envs print appears where the program prints, all of it; nothing of it upsets a step."""
    program = """
    import logging, os, sys, warnings
    import shoal
    from shoal.testing import Chatty

    class Mine(Chatty):
        def ask(self):
            return input("your name? ")
        def _outcome(self):
            logging.getLogger("env").info("not to be seen by default")
            os.system("echo from a child")
            return super()._outcome()

    logging.basicConfig(level=logging.INFO)
    for start_method in ("forkserver", "spawn", "fork"):
        envs = shoal.AsyncVectorEnv([Mine, Mine], num_workers=2, start_method=start_method)
        envs.reset()
        for t in (1, 2):
            assert envs.step([0, 0])[0].ravel().tolist() == [t, t]
        try:
            envs.call("ask")
        except EOFError as error:
            assert type(error) is EOFError and "env 0 raised in ask" in error.__notes__[0]
        else:
            raise AssertionError("input() has read something")
        assert envs.step([0, 0])[0].ravel().tolist() == [3, 3]
        envs.close()
    print("done")
    """
    done = programs.run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    calls = 3 * 2 * 4
    assert done.stdout.count("x") == calls * 199_999
    assert done.stdout.count("straight to descriptor 1\n") == calls
    assert done.stdout.count("from a child\n") == calls
    assert done.stdout.endswith("done\n")
    # Fork copies the configuration of logging, too.
    assert set(re.findall(r"Traceback|Exception ignored|Error", done.stderr)) == set()
    assert done.stderr.count("a chatty env was built") == 3 * 2


def test_program_without_standard_streams(tmp_path):
    """A daemon may have closed them; what takes their numbers then must not be printed to."""
    program = """
    import os, sys
    import shoal
    from shoal.testing import Chatty, Counter
    assert sys.stdout is None
    try:
        for start_method in ("forkserver", "spawn", "fork"):
            envs = shoal.AsyncVectorEnv([Chatty, Chatty], num_workers=2, start_method=start_method)
            envs.reset()
            assert envs.step([0, 0])[0].ravel().tolist() == [1, 1]
            envs.close()
    except BaseException:
        import traceback
        with open("error.txt", "w") as file:
            traceback.print_exc(file=file)
        raise
    open("done", "w").close()
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" program.py <&- >&- 2>&-', sys.executable],
        cwd=tmp_path,
        timeout=programs.PATIENCE_S,
    )
    error = tmp_path / "error.txt"
    assert not error.exists(), error.read_text()
    assert (tmp_path / "done").exists()


# --- Processes that the user starts ---


def test_fork_of_the_program_does_no_harm(tmp_path):
    """A child has copies of every descriptor; neither its end nor its life may touch the batch of its parent."""
    program = """
    import gc, os, sys, time
    import shoal
    from shoal.testing import Counter

    def in_child(work):
        pid = os.fork()
        if not pid:
            work()
            # As any program ends.
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    def own_batch():
        other = shoal.AsyncVectorEnv([Counter, Counter])
        other.reset()
        assert other.step([0, 0])[0].ravel().tolist() == [1, 1]
        other.close()

    def collect():
        global envs
        del envs
        gc.collect()

    def use():
        for act in (envs.reset, lambda: envs.step([0, 0]), lambda: envs.call("t")):
            try:
                act()
            except shoal.ShoalError:
                pass
            else:
                raise AssertionError("a child has used the workers of its parent")

    for start_method in ("forkserver", "spawn", "fork"):
        envs = shoal.AsyncVectorEnv([Counter, Counter], num_workers=2, start_method=start_method)
        envs.reset()
        t = 0
        for work in (lambda: None, own_batch, collect, lambda: envs.close(), use):
            in_child(work)
            t += 1
            assert envs.step([0, 0])[0].ravel().tolist() == [t, t]
            assert envs.call("t") == (t, t)
        envs.close()
    """
    programs.check(program, tmp_path)


def test_child_of_the_program_does_not_keep_workers(tmp_path):
    """It has a copy of every socket, so that none of them is closed when the program dies."""
    program = """
    import os, sys, time
    import shoal
    from shoal.testing import Counter
    envs = [shoal.AsyncVectorEnv([Counter], start_method=method) for method in ("forkserver", "spawn", "fork")]
    pids = [pid for each in envs for pid in each.worker_pids]
    if not os.fork():
        # Outlives the program, without its standard streams.
        os.closerange(0, 3)
        while all(os.path.exists(f"/proc/{pid}") for pid in pids):
            time.sleep(0.01)
        gone = [pid for pid in pids if not os.path.exists(f"/proc/{pid}")]
        deadline = time.monotonic() + 4
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)
        left = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        with open("left.part", "w") as file:
            file.write(repr(left))
        os.rename("left.part", "left.txt")
        os._exit(0)
    os._exit(0)
    """
    programs.run(program, tmp_path)
    faults.wait_until((tmp_path / "left.txt").exists)
    assert (tmp_path / "left.txt").read_text() == "[]"


@pytest.mark.parametrize("start_method", START_METHODS)
def test_descriptors_of_a_worker_are_its_own(start_method):
    """What an env starts inherits nothing: it would hold memory and sockets for as long as it lives."""
    batch = shoal.AsyncVectorEnv([Lister, Lister], num_workers=2, start_method=start_method)
    batch.reset()
    for listed in batch.call("of_a_child"):
        assert not [target for target in listed if PRIVATE.search(target)]
    inheritable = [target for fd, target in descriptors() if PRIVATE.search(target) and os.get_inheritable(fd)]
    batch.close()
    assert not inheritable


# What a program and its workers share.
PRIVATE = re.compile(r"memfd:shoal|eventfd|pidfd|socket:")


def descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield int(name), os.readlink(f"/proc/self/fd/{name}")


class Lister(Counter):
    """Tells what descriptors its children get."""

    def of_a_child(self) -> list[str]:
        command = ["ls", "-l", "/proc/self/fd"]
        return subprocess.run(command, close_fds=False, capture_output=True, text=True).stdout.splitlines()


def test_env_with_children_of_its_own():
    """Simulators are processes, and `multiprocessing` is how some envs start them."""
    batch = shoal.AsyncVectorEnv([Forking, Forking], num_workers=2)
    batch.reset()
    pids = [pid for pids in batch.call("child_pids") for pid in pids]
    assert len(set(pids)) == 4
    batch.close()
    faults.wait_until(lambda: all(map(faults.process_gone, pids)), description="children of envs are gone")


class Forking(Counter):
    """Has a child by `multiprocessing` and one by `subprocess`; its author forgot about `close`."""

    def __init__(self) -> None:
        super().__init__()
        self._forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        self._forked.start()
        self._opened = subprocess.Popen(["sleep", "600"])

    def child_pids(self) -> list[int]:
        return [self._forked.pid or 0, self._opened.pid]
