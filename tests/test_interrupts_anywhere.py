"""Ctrl-C at every point where Python may notice it, one after another: nothing is stuck and nothing is stale after it.

A timer hits the few instructions that matter once in ten thousand tries. So here a trace function raises
`KeyboardInterrupt` itself: at the first place where the interpreter looks for signals, at the second, and so on
until the call gets through.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
from functools import partial
from types import CodeType, FrameType
from typing import Any, ClassVar

import numpy as np
import pytest

import shoal
from shoal import AsyncVectorEnv
from shoal.testing.toys import Counter

FOLDER = shoal.__file__.rpartition("__init__")[0]
# The interpreter looks for signals after these (CPython, `ceval.c`).
NOTICED_AFTER = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="from Python 3.12 on a trace function is not told of every instruction"
)


class Talkative(Counter):
    """Has infos that go by message, some longer than a socket takes at once."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"text": "a" * (300_000 if self.t % 2 else 3)}


class InterruptAt:
    """Raises `KeyboardInterrupt` at the place of that number inside shoal.

    Attributes:
        has_struck: Whether the call went on for long enough.
    """

    _names: ClassVar[dict[CodeType, dict[int, str]]] = {}

    def __init__(self, number: int) -> None:
        self.has_struck = False
        self._left = number
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> InterruptAt:
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)
        # Frames hold what is in them.
        self._last.clear()

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._look

    def _look(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "exception":
            # A handler begins at once, without a look.
            self._last[frame] = -1
        elif event == "opcode":
            last, self._last[frame] = self._last.get(frame), frame.f_lasti
            if last is None or self._name(frame.f_code, last).startswith(NOTICED_AFTER):
                self._left -= 1
                if self._left < 0:
                    self.has_struck = True
                    sys.settrace(None)
                    raise KeyboardInterrupt
        return self._look

    def _name(self, code: CodeType, offset: int) -> str:
        names = self._names.get(code)
        if names is None:
            names = self._names[code] = {each.offset: each.opname for each in dis.get_instructions(code)}
        return names.get(offset, "")


def assert_goes_on(envs):
    """After a reset all envs count from their beginning."""
    assert envs.reset()[0].ravel().tolist() == [0, 100, 200, 300]
    for t in (1, 2):
        assert envs.step([0] * 4)[0].ravel().tolist() == [t, 100 + t, 200 + t, 300 + t]


def works_here(envs):
    """Whether it is the caller who steps the envs, so that what is interrupted may be an env itself."""
    return envs.worker_pids == [os.getpid()] * 2 and not any(
        thread.name.startswith("shoal-worker") for thread in threading.enumerate()
    )


@pytest.fixture(params=[("process", Counter), ("process", Talkative), ("thread", Talkative), ("serial", Talkative)])
def envs(request):
    """Four envs in two workers; a call that is stuck is one that the timeout ends."""
    backend, env_class = request.param
    env_fns = [partial(env_class, index) for index in range(4)]
    with AsyncVectorEnv(env_fns, num_workers=2, backend=backend, step_timeout=20) as envs:
        envs.reset()
        yield envs


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["step", "reset", "get_attr"])
def test_interrupt_anywhere_leaves_nothing_stuck_or_stale(envs, name):
    """Whatever was cut short, the next reset starts all rows anew."""
    arguments = {"step": ([0] * 4,), "reset": (), "get_attr": ("t",)}[name]
    number = 0
    while True:
        interrupt = InterruptAt(number)
        try:
            with interrupt:
                getattr(envs, name)(*arguments)
        except KeyboardInterrupt:
            assert interrupt.has_struck
        if not interrupt.has_struck:
            break
        assert_goes_on(envs)
        number += 1
    assert number > 30


@pytest.mark.timeout(300)
def test_interrupted_wait_can_be_waited_for_again(envs):
    """Its results are as they would have been."""
    number = 0
    while True:
        before = np.array(envs.get_attr("t"))
        envs.step_async([0] * 4)
        interrupt = InterruptAt(number)
        try:
            with interrupt:
                results = envs.step_wait()
        except KeyboardInterrupt:
            try:
                results = envs.step_wait()
            except shoal.NoPendingCallError:
                # It came when all was done.
                results = None
            except shoal.StateError as error:
                assert "interrupted" in str(error)
                assert works_here(envs)
                results = None
        if results is not None:
            assert (results[0].ravel() == before + 1 + np.arange(0, 400, 100)).all()
            if "text" in results[4]:
                assert [len(text) for text in results[4]["text"]] == [300_000 if t % 2 else 3 for t in before + 1]
        if not interrupt.has_struck:
            break
        if works_here(envs):
            assert_goes_on(envs)
        number += 1
    assert number > 30
