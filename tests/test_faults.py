"""An env or its worker goes wrong: whoever calls is told at once what happened, and can still close."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import programs
import pytest

import shoal
from shoal.testing import faults
from shoal.testing.faults import Fault, Faulty, make_none
from shoal.testing.toys import Counter

pytestmark = pytest.mark.timeout(60)

# "Within a second", with room for a loaded machine.
PROMPT_S = 5.0

ASKED = {
    "reset": lambda batch: batch.reset(),
    "step": lambda batch: batch.step([0] * batch.num_envs),
    "call": lambda batch: batch.call("poke", 3),
    "render": lambda batch: batch.render(),
}
# What each fault that raises becomes: a type, and what the text has.
RAISED: dict[Fault, tuple[type[BaseException], str | None]] = {
    Fault.RAISE: (ValueError, "bad apple"),
    Fault.RAISE_UNPICKLABLE: (shoal.EnvError, "Local: bad apple"),
    Fault.RAISE_MULTI_ARG: (shoal.EnvError, r"TwoArgumentError: bad apple \(7\)"),
    Fault.MEMORY_ERROR: (MemoryError, None),
    Fault.KEYBOARD_INTERRUPT: (KeyboardInterrupt, None),
    Fault.SYS_EXIT: (SystemExit, "5"),
}
# The name of the class as the traceback and the notes have it.
NAMES = {
    **{fault: error.__name__ for fault, (error, _) in RAISED.items()},
    Fault.RAISE_UNPICKLABLE: "Local",
    Fault.RAISE_MULTI_ARG: "TwoArgumentError",
}
# How a process ends that a fault takes with it, and how messages put that.
DEADLY = {
    Fault.EXIT: (3, "exit code 3"),
    Fault.ABORT: (-signal.SIGABRT, "SIGABRT"),
    Fault.SEGFAULT: (-signal.SIGSEGV, "SIGSEGV"),
    Fault.SIGKILL: (-signal.SIGKILL, "SIGKILL"),
}


class Marked(Counter):
    """A counter that leaves a file behind when it is built, and another one when it is closed."""

    def __init__(self, marks: Path, index: int = 0, **counter: Any) -> None:
        super().__init__(index, **counter)
        self.marks = marks
        (marks / f"built-{index}").touch()

    def poke(self, value: Any = None) -> Any:
        return value

    def close(self) -> None:
        (self.marks / f"closed-{self.index}").touch()


def closed(marks: Path) -> list[int]:
    """Returns the indices of the `Marked` envs that have been closed."""
    return marked(marks, "closed")


def marked(marks: Path, what: str) -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in marks.glob(f"{what}-*"))


def fail_after(marks: Path, others: list[int], fault: Fault) -> None:
    """Goes wrong in place of a constructor, once the others are built."""
    faults.wait_until(lambda: marked(marks, "built") == others, description="the others are built")
    faults.commit(fault)


@contextlib.contextmanager
def promptly(limit_s: float = PROMPT_S) -> Iterator[None]:
    """Fails if what is done inside takes too long; what never ends is the timeout's."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < limit_s


@contextlib.contextmanager
def batch_of(env_fns: Sequence[Callable[[], Any]], **options: Any) -> Iterator[shoal.AsyncVectorEnv]:
    """Makes a batch with a worker for each env, and closes it."""
    options = {"num_workers": len(env_fns), "close_timeout": 1.0, **options}
    batch = shoal.AsyncVectorEnv(env_fns, **options)
    try:
        yield batch
    finally:
        with promptly():
            batch.close()


def with_fault_in_env_1(marks: Path, stage: str, fault: Fault, **faulty: Any) -> list[Callable[[], Any]]:
    """Returns constructors of three envs, the second of which goes wrong."""
    return [partial(Marked, marks), partial(Faulty, stage, fault, index=1, **faulty), partial(Marked, marks, 2)]


def with_fault_in_constructor_1(marks: Path, fault: Fault) -> list[Callable[[], Any]]:
    """Returns constructors of three envs, the second of which goes wrong once the others are built."""
    return [partial(Marked, marks), partial(fail_after, marks, [0, 2], fault), partial(Marked, marks, 2)]


def check_told(error: BaseException, doing: str, name: str) -> None:
    """Checks that an exception of env 1 says where it comes from."""
    assert any(note.startswith(f"env 1 raised in {doing}: {name}") for note in error.__notes__)
    cause = error.__cause__
    assert isinstance(cause, shoal.RemoteTraceback)
    # File, line and exception, as Python would have printed them beside the env.
    for part in ("env 1", "Traceback (most recent call last)", 'faults.py", line ', name):
        assert part in str(cause)


# --- An env raises ---


@pytest.mark.parametrize("fault", RAISED)
@pytest.mark.parametrize("stage", ASKED)
def test_exception_reaches_the_caller(tmp_path, stage, fault):
    """As itself where that can be, told from whom, with the others unharmed and the worker alive."""
    ask, (kind, text) = ASKED[stage], RAISED[fault]
    with batch_of(with_fault_in_env_1(tmp_path, stage, fault)) as batch:
        pids = batch.worker_pids
        if stage != "reset":
            batch.reset()
        with promptly(), pytest.raises(kind, match=text) as caught:
            ask(batch)
        assert type(caught.value) is kind
        check_told(caught.value, "poke" if stage == "call" else stage, NAMES[fault])
        if stage == "step":
            assert batch.get_attr("t") == (1, 0, 1)
        assert batch.call("poke", 3) == (3, 3, 3)
        assert batch.reset()[0].ravel().tolist() == [0, 100, 200]
        assert batch.step([0, 0, 0])[0].ravel().tolist() == [1, 101, 201]
        assert batch.worker_pids == pids
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("fault", RAISED)
def test_exception_in_a_constructor_takes_everything_down(tmp_path, fault):
    """The others have been built, or are being built; none of them may stay."""
    kind, text = RAISED[fault]
    env_fns = with_fault_in_constructor_1(tmp_path, fault)
    with promptly(), pytest.raises(kind, match=text) as caught:
        shoal.AsyncVectorEnv(env_fns, num_workers=3)
    check_told(caught.value, "constructor", NAMES[fault])
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("fault", RAISED)
def test_exception_in_close_is_logged(tmp_path, fault, caplog):
    """`close` ends everything and never raises: there would be nobody to do better."""
    with caplog.at_level(logging.WARNING, "shoal"), batch_of(with_fault_in_env_1(tmp_path, "close", fault)):
        pass
    (record,) = caplog.records
    assert f"env 1 raised in close: {NAMES[fault]}" in record.getMessage()
    assert 'faults.py", line ' in record.getMessage()
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_several_exceptions_are_one_error(num_workers):
    """The lowest row comes first, whoever is faster, so that a failing program fails the same way each time."""
    env_fns = [
        partial(Faulty, "step", Fault.RAISE, index=0, delay_s=0.05),
        partial(Counter, 1),
        partial(Faulty, "step", Fault.RAISE_MULTI_ARG, index=2),
        partial(Faulty, "step", Fault.MEMORY_ERROR, index=3),
    ]
    for _ in range(3):
        with batch_of(env_fns, num_workers=num_workers) as batch:
            batch.reset()
            with promptly(), pytest.raises(ValueError, match="bad apple") as caught:
                batch.step([0] * 4)
            assert caught.value.__notes__ == [
                "env 0 raised in step: ValueError: bad apple",
                "also env 2 raised in step: TwoArgumentError: bad apple (7)",
                "also env 3 raised in step: MemoryError: ",
            ]
            for part in ("env 0", "env 2", "env 3", "TwoArgumentError", "MemoryError"):
                assert part in str(caught.value.__cause__)
            # No leftover reply is taken for the answer to another call.
            assert batch.get_attr("index") == (0, 1, 2, 3)
            assert batch.reset()[0].ravel().tolist() == [0, 100, 200, 300]


def test_faulty_env_must_be_reset():
    """What an env is worth after its step has raised, nobody knows."""
    with batch_of([Counter, partial(Faulty, "step")]) as batch:
        batch.reset()
        with pytest.raises(ValueError, match="bad apple"):
            batch.step([0, 0])
        with pytest.raises(shoal.StateError, match=r"env 1 .* raised ValueError; reset it first"):
            batch.step([0, 0])
        batch.reset()
        assert batch.step([0, 0])[0].ravel().tolist() == [1, 1]


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Awkward(Marked):
    """Raises what is hard to report."""

    def unreadable(self) -> None:
        raise Unreadable

    def recurse(self) -> None:
        self.recurse()

    def chain(self) -> None:
        try:
            raise KeyError("the root of it")
        except KeyError as error:
            raise ValueError("on top") from error

    def generator_exit(self) -> None:
        raise GeneratorExit

    def big(self) -> None:
        raise ValueError("x" * 3_000_000)


@pytest.mark.parametrize(
    ("method", "kind", "text"),
    [
        ("unreadable", shoal.EnvError, "Unreadable"),
        ("recurse", RecursionError, "awkward|recurs"),
        ("chain", ValueError, "the root of it"),
        ("generator_exit", GeneratorExit, "GeneratorExit"),
        ("big", ValueError, "xxxx"),
    ],
)
def test_awkward_exceptions(tmp_path, method, kind, text):
    """Reporting a failure must not fail itself."""
    with batch_of([partial(Awkward, tmp_path)] * 2) as batch:
        with promptly(), pytest.raises(kind) as caught:
            batch.call(method)
        assert text.split("|")[-1] in str(caught.value.__cause__)
        assert batch.call("poke", 1) == (1, 1)


def test_exception_class_of_the_main_script(tmp_path):
    """A program that defines an exception must be able to catch it."""
    programs.check(
        """
        import shoal
        from shoal.testing import Counter

        class Apple(Exception):
            eaten = 0
            def __init__(self, colour, worm=None):
                super().__init__(colour, worm)
                self.colour = colour

        class Hungry(Counter):
            def step(self, action):
                raise Apple("red", worm="green")

        batch = shoal.AsyncVectorEnv([Hungry, Hungry], num_workers=2)
        batch.reset()
        try:
            batch.step([0, 0])
        except Apple as error:
            caught = error
        assert type(caught) is Apple
        assert (caught.colour, caught.args) == ("red", ("red", "green"))
        assert "env 0 raised in step: Apple" in caught.__notes__[0], caught.__notes__
        assert "raise Apple" in str(caught.__cause__)
        batch.close()
        """,
        tmp_path,
    )


def test_class_of_the_main_script_stays_as_it_is(tmp_path):
    """A worker has a copy of it, as it was; what comes back must not make the program's own like that."""
    programs.check(
        """
        import shoal
        from shoal.testing import Counter

        LEVEL = 0

        class Apple(Exception):
            eaten = 0
            def level(self):
                return LEVEL

        class Hungry(Counter):
            def step(self, action):
                raise Apple
            def apple(self):
                return Apple()

        batch = shoal.AsyncVectorEnv([Hungry])
        batch.reset()
        Apple.eaten, LEVEL, method = 7, 8, Apple.level
        (apple,) = batch.call("apple")
        assert type(apple) is Apple
        try:
            batch.step([0])
        except Apple as error:
            assert error.level() == 8
        assert (Apple.eaten, apple.level()) == (7, 8)
        assert Apple.level is method
        batch.close()
        """,
        tmp_path,
    )


# --- A worker dies ---


@pytest.mark.parametrize("fault", DEADLY)
@pytest.mark.parametrize("stage", ["reset", "step", "call"])
def test_death_of_a_worker_is_told(tmp_path, stage, fault):
    """Not a bare end-of-file error: which envs, how it ended, at what."""
    ask, (code, text) = ASKED[stage], DEADLY[fault]
    with batch_of(with_fault_in_env_1(tmp_path, stage, fault)) as batch:
        pid = batch.worker_pids[1]
        if stage != "reset":
            batch.reset()
        with promptly(), pytest.raises(shoal.WorkerDiedError) as caught:
            ask(batch)
        error = caught.value
        assert (error.worker, error.env_indices, error.pid, error.exit_code) == (1, (1,), pid, code)
        for part in ("env 1", f"in {stage}", str(pid), text):
            assert part in str(error)
        assert isinstance(error, EOFError)
        # It stays dead, and saying so takes no time.
        with promptly(), pytest.raises(shoal.WorkerDiedError, match="env 1"):
            batch.reset()
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("fault", DEADLY)
def test_death_in_a_constructor_takes_everything_down(tmp_path, fault):
    """A library that aborts without its licence must not leave its siblings running."""
    code, text = DEADLY[fault]
    env_fns = with_fault_in_constructor_1(tmp_path, fault)
    with promptly(), pytest.raises(shoal.WorkerDiedError, match=text) as caught:
        shoal.AsyncVectorEnv(env_fns, num_workers=3)
    assert (caught.value.env_indices, caught.value.exit_code) == ((1,), code)
    assert "constructor" in str(caught.value)
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("fault", DEADLY)
def test_death_in_close_is_logged(tmp_path, fault, caplog):
    """It was going to end anyway, but not like that."""
    with caplog.at_level(logging.WARNING, "shoal"), batch_of(with_fault_in_env_1(tmp_path, "close", fault)) as batch:
        batch.reset()
    (record,) = caplog.records
    assert "worker 1 died while closing over env 1" in record.getMessage()
    assert DEADLY[fault][1] in record.getMessage()
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("start_method", ["spawn", pytest.param("fork", marks=pytest.mark.filterwarnings("ignore"))])
def test_other_start_methods_tell_the_same(tmp_path, start_method):
    """The exit code comes another way for each of them."""
    with batch_of(with_fault_in_env_1(tmp_path, "step", Fault.RAISE), start_method=start_method) as batch:
        batch.reset()
        with promptly(), pytest.raises(ValueError, match="bad apple") as caught:
            batch.step([0, 0, 0])
        check_told(caught.value, "step", "ValueError")
        batch.reset()
        faults.kill(batch, 2)
        with promptly(), pytest.raises(shoal.WorkerDiedError, match=r"env 2.*SIGKILL") as caught:
            batch.step([0, 0, 0])
        assert caught.value.exit_code == -signal.SIGKILL
    with batch_of(with_fault_in_env_1(tmp_path, "step", Fault.EXIT), start_method=start_method) as batch:
        batch.reset()
        with promptly(), pytest.raises(shoal.WorkerDiedError, match="exit code 3"):
            batch.step([0, 0, 0])


def test_env_is_named_among_several_of_a_worker():
    """All envs of a dead worker are lost, but one of them has done it."""
    env_fns = [*[partial(Counter, index) for index in range(3)], partial(Faulty, "step", Fault.EXIT, index=3)]
    with batch_of(env_fns, num_workers=2) as batch:
        batch.reset()
        with promptly(), pytest.raises(shoal.WorkerDiedError, match=r"envs 2 to 3.* in step of env 3") as caught:
            batch.step([0] * 4)
        assert caught.value.env_indices == (2, 3)


def test_several_deaths_are_one_error():
    """When memory runs out more than one is killed."""
    with batch_of([Counter, partial(Faulty, "step", Fault.EXIT), partial(Faulty, "step", Fault.SIGKILL)]) as batch:
        batch.reset()
        with promptly(), pytest.raises(shoal.WorkerDiedError) as caught:
            batch.step([0] * 3)
        for part in ("worker 1", "exit code 3", "worker 2", "SIGKILL"):
            assert part in str(caught.value)


def test_death_is_told_although_a_sibling_takes_long():
    """A slow env must not hold back the news."""
    with batch_of([partial(Counter, step_s=30.0), partial(Faulty, "step", Fault.EXIT)]) as batch:
        batch.reset()
        with promptly(), pytest.raises(shoal.WorkerDiedError, match="env 1"):
            batch.step([0, 0])


@pytest.mark.parametrize("stage", ["reset", "step", "call"])
def test_worker_killed_while_idle(tmp_path, stage):
    """Found by the next call, whichever it is."""
    with batch_of([partial(Marked, tmp_path, index) for index in range(3)]) as batch:
        batch.reset()
        batch.step([0, 0, 0])
        faults.kill(batch, 1)
        with promptly(), pytest.raises(shoal.WorkerDiedError, match=r"worker 1 \(env 1.*SIGKILL") as caught:
            ASKED[stage](batch)
        assert caught.value.exit_code == -signal.SIGKILL
    assert closed(tmp_path) == [0, 2]


def test_all_workers_killed_while_idle():
    """Nobody is left to ask, and closing must not wait for an answer."""
    with batch_of([Counter, Counter]) as batch:
        batch.reset()
        for worker in range(2):
            faults.kill(batch, worker)
        with promptly(1.0):
            batch.close()


def test_worker_killed_between_send_and_wait():
    """The step was sent, the reply will never come."""
    with batch_of([Counter, partial(Counter, step_s=30.0)]) as batch:
        batch.reset()
        batch.step_async([0, 0])
        faults.kill(batch, 1)
        with promptly(), pytest.raises(shoal.WorkerDiedError, match="env 1"):
            batch.step_wait()


# --- An env hangs ---


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_IN_C])
def test_hang_in_step(tmp_path, fault):
    """The caller learns which env hangs; closing ends even one that no signal handler reaches."""
    with batch_of(with_fault_in_env_1(tmp_path, "step", fault), step_timeout=0.3, close_timeout=0.3) as batch:
        batch.reset()
        with promptly(), pytest.raises(shoal.StepTimeoutError, match="env 1") as caught:
            batch.step([0, 0, 0])
        assert isinstance(caught.value, TimeoutError)
        for other in ("env 0", "env 2"):
            assert other not in str(caught.value)
        # The others wait for nobody.
        with promptly(), pytest.raises((shoal.StateError, shoal.StepTimeoutError)):
            batch.step([0, 0, 0])
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_IN_C])
def test_hang_in_a_constructor(tmp_path, fault):
    """Nothing is left of a batch that has not been built in time."""
    env_fns = with_fault_in_constructor_1(tmp_path, fault)
    with promptly(1.0 + PROMPT_S), pytest.raises(shoal.StartTimeoutError, match="env 1") as caught:
        shoal.AsyncVectorEnv(env_fns, num_workers=3, start_timeout=1.0, close_timeout=0.3)
    assert "start_timeout" in str(caught.value)
    assert closed(tmp_path) == [0, 2]


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.HANG_IN_C])
def test_hang_in_close(tmp_path, fault):
    """`close_timeout` is for all of them together."""
    env_fns = with_fault_in_env_1(tmp_path, "close", fault)
    batch = shoal.AsyncVectorEnv(env_fns, num_workers=3, close_timeout=0.3)
    with promptly(0.3 + PROMPT_S):
        batch.close()
    assert closed(tmp_path) == [0, 2]


def test_late_answer_is_not_taken_for_another():
    """After a timeout the old step may still end; its results belong to nobody."""
    env_fns = [Counter, partial(Faulty, "step", Fault.HANG, hang_s=0.6, index=1)]
    with batch_of(env_fns, step_timeout=0.1) as batch:
        batch.reset()
        with pytest.raises(shoal.StepTimeoutError):
            batch.step([0, 0])
        batch.reset_async()
        assert batch.reset_wait(timeout=10)[0].ravel().tolist() == [0, 100]
        assert batch.step([0, 0])[0].ravel().tolist() == [1, 101]


def test_late_answer_may_be_waited_for():
    """A timeout that was too short costs nothing but the time."""
    with batch_of([Counter, partial(Faulty, "step", Fault.HANG, hang_s=0.4, index=1)]) as batch:
        batch.reset()
        batch.step_async([0, 0])
        with pytest.raises(shoal.StepTimeoutError):
            batch.step_wait(timeout=0.05)
        assert batch.step_wait(timeout=10)[0].ravel().tolist() == [1, 101]


def test_stopped_worker(tmp_path):
    """A frozen process answers nothing and heeds no SIGTERM, but closing still ends it."""
    env_fns = [partial(Marked, tmp_path, index) for index in range(2)]
    with batch_of(env_fns, step_timeout=0.3, close_timeout=0.3) as batch:
        batch.reset()
        pid = batch.worker_pids[1]
        faults.stop(batch, 1)
        with promptly(), pytest.raises(shoal.StepTimeoutError, match="env 1"):
            batch.step([0, 0])
    assert faults.process_gone(pid)
    assert closed(tmp_path) == [0]


def test_stopped_worker_may_go_on():
    """As after Ctrl-Z and `fg`."""
    with batch_of([Counter, Counter]) as batch:
        batch.reset()
        faults.stop(batch, 1)
        batch.step_async([0, 0])
        faults.resume(batch, 1)
        assert batch.step_wait(timeout=10)[0].ravel().tolist() == [1, 1]


def test_close_with_a_step_that_takes_long(tmp_path):
    """Closing waits for the step as long as it may, and then the env is closed all the same."""
    with batch_of([partial(Marked, tmp_path, step_s=30.0)], close_timeout=0.3) as batch:
        batch.reset()
        batch.step_async([0])
    assert closed(tmp_path) == [0]


def test_close_by_another_thread_while_a_step_hangs(tmp_path):
    """As a watchdog does it; whoever waits for the step is told."""
    raised: list[BaseException] = []

    def step() -> None:
        try:
            batch.step([0, 0, 0])
        except shoal.ShoalError as error:
            raised.append(error)

    batch = shoal.AsyncVectorEnv(with_fault_in_env_1(tmp_path, "step", Fault.HANG), num_workers=3, close_timeout=0.3)
    batch.reset()
    waiting = threading.Thread(target=step)
    waiting.start()
    faults.wait_until(lambda: batch._engine._backend.current_row(1) == 1, description="env 1 is in its step")
    with promptly():
        batch.close()
        waiting.join()
    assert len(raised) == 1
    assert closed(tmp_path) == [0, 2]


# --- Constructors ---


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.SYS_EXIT, Fault.HANG])
def test_built_envs_are_closed_when_a_later_constructor_fails(tmp_path, num_workers, fault):
    """They hold licences, windows, simulators; also those in the very worker where it fails."""
    env_fns: list[Callable[[], Any]] = [partial(Marked, tmp_path, index) for index in range(3)]
    env_fns.append(partial(fail_after, tmp_path, [0, 1, 2], fault))
    with promptly(), pytest.raises((ValueError, SystemExit, shoal.StartTimeoutError)):
        shoal.AsyncVectorEnv(env_fns, num_workers=num_workers, start_timeout=1.5, close_timeout=0.5)
    assert closed(tmp_path) == [0, 1, 2]


def test_built_envs_are_closed_when_spaces_differ(tmp_path):
    """Every constructor was fine by itself."""
    env_fns = [partial(Marked, tmp_path), partial(Marked, tmp_path, 1), partial(Stretched, tmp_path, 2)]
    with promptly(), pytest.raises(shoal.SpecMismatchError, match="env 2"):
        shoal.AsyncVectorEnv(env_fns, num_workers=3)
    assert closed(tmp_path) == [0, 1, 2]


class Stretched(Marked):
    """Has another observation space than its siblings."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.observation_space = type(self.observation_space)(0, 1, (7,))


@pytest.mark.parametrize("env_fn", [make_none, int, lambda: Counter])
def test_constructor_that_returns_no_env(env_fn):
    """Usually a forgotten `return`."""
    with promptly(), pytest.raises(shoal.ArgumentTypeError, match=r"must return a gymnasium\.Env") as caught:
        shoal.AsyncVectorEnv([Counter, Counter, env_fn], num_workers=2)
    assert "env 2 raised in constructor" in caught.value.__notes__[0]


def test_constructor_that_cannot_be_sent():
    """Which one, and which part of it: a closure may hold many things."""
    config = {"path": "here", "locks": [None, threading.Lock()]}
    with promptly(), pytest.raises(shoal.ArgumentTypeError, match=r"env_fns\[1\]") as caught:
        shoal.AsyncVectorEnv([Counter, lambda: Counter(len(config))], num_workers=2)
    assert "config" in str(caught.value)
    assert "['locks'][1]" in str(caught.value)


def explode() -> None:
    raise RuntimeError("cannot be unpickled")


class Bomb:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return explode, ()


def test_constructor_that_cannot_be_received():
    """A module that only the program can import, say."""
    with promptly(), pytest.raises(RuntimeError, match="cannot be unpickled") as caught:
        shoal.AsyncVectorEnv([Counter, partial(Counter, Bomb())], num_workers=2)
    assert "env 1 raised in constructor" in caught.value.__notes__[0]


class Secretive(Counter):
    """Has metadata that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"render_modes": [], "lock": threading.Lock()}


def test_env_whose_metadata_cannot_be_sent():
    """What every env reports of itself goes the way of all results."""
    with promptly(), pytest.raises(TypeError, match=r"metadata\['lock'\]"):
        shoal.AsyncVectorEnv([Counter, Secretive], num_workers=2)


def test_worker_init_that_fails():
    """It runs before any env is built, in each worker."""
    with promptly(), pytest.raises(RuntimeError, match="cannot be unpickled"):
        shoal.AsyncVectorEnv([Counter, Counter], num_workers=2, worker_init=explode)


def test_start_timeout_before_the_worker_is_there(tmp_path):
    """A worker that is started too late must not be taken for one of the next batch."""
    for _ in range(3):
        with promptly(), pytest.raises(shoal.StartTimeoutError, match="start_timeout"):
            shoal.AsyncVectorEnv([Counter, Counter], num_workers=2, start_timeout=0)
        with batch_of([partial(Traveller, tmp_path, index) for index in range(2)]) as batch:
            batch.reset()
            check_in_order(batch)


# --- Values that cannot travel ---


class Traveller(Marked):
    """Hands out what is hard to send."""

    def lock(self) -> Any:
        return {"ok": 1, "locks": [threading.Lock()]}

    def bomb(self) -> Any:
        return Bomb()

    def pid(self) -> int:
        return os.getpid()

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)
        return *outcome, {1: {"odd": threading.Lock()}, 2: {"odd": Bomb()}}.get(int(action), info)


@pytest.fixture
def travellers(tmp_path):
    with batch_of([partial(Traveller, tmp_path, index) for index in range(2)]) as batch:
        batch.reset()
        yield batch


def check_in_order(batch: shoal.AsyncVectorEnv) -> None:
    """Checks that the batch answers every kind of request, each with its own reply, and closes at once."""
    assert batch.call("poke", 3) == (3, 3)
    assert batch.call("pid") == tuple(batch.worker_pids)
    assert batch.reset()[0].ravel().tolist() == [0, 100]
    assert batch.step([0, 0])[0].ravel().tolist() == [1, 101]
    with promptly(0.9):
        batch.close()


def test_result_that_cannot_be_sent(travellers):
    """The env is fine, and the caller is told which part is the matter."""
    with promptly(), pytest.raises(TypeError, match=r"\['locks'\]\[0\]"):
        travellers.call("lock")
    check_in_order(travellers)


def test_result_that_cannot_be_received(travellers):
    """Its class may exist beside the env only."""
    with promptly(), pytest.raises(Exception, match="cannot be unpickled"):
        travellers.call("bomb")
    check_in_order(travellers)


@pytest.mark.parametrize("action", [1, 2])
def test_info_that_cannot_travel(travellers, action):
    """Infos are beside the point; results that came with them must not be lost for good, nor their memory."""
    for _ in range(6):
        with promptly(), contextlib.suppress(RuntimeError):
            travellers.step([action, 0])
    check_in_order(travellers)


def test_argument_that_cannot_be_sent(travellers):
    """Nothing was sent, so nothing is due."""
    for _ in range(3):
        with promptly(), pytest.raises(TypeError, match="lock"):
            travellers.call("poke", threading.Lock())
    check_in_order(travellers)


@pytest.mark.parametrize(
    "send",
    [
        lambda batch: batch.call("poke", Bomb()),
        lambda batch: batch.reset(options={"bomb": Bomb()}),
        lambda batch: batch.set_attr("w", Bomb()),
    ],
    ids=["call", "reset", "set_attr"],
)
def test_argument_that_cannot_be_received(travellers, send):
    """A worker that cannot read one request goes on to the next."""
    with promptly(), pytest.raises(RuntimeError, match="cannot be unpickled"):
        send(travellers)
    check_in_order(travellers)
