"""Ctrl-C at any moment: the program hears of it, and no row is ever out of step afterwards."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

import shoal
from shoal import AsyncVectorEnv
from shoal.testing import Counter


class Talkative(Counter):
    """Sends more in its info than a socket holds."""

    def step(self, action):
        return *super().step(action)[:4], {"image": np.zeros(500_000)}


def step_for_ever(envs):
    while True:
        envs.step([0] * envs.num_envs)


@pytest.fixture
def interrupt_after():
    """Returns a function that has a KeyboardInterrupt raised after so many seconds."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("env_fn", "rounds"), [(Counter, 150), (Talkative, 15)])
def test_reset_after_an_interrupt_starts_all_rows_anew(interrupt_after, env_fn, rounds):
    """A trainer that catches Ctrl-C to evaluate goes on with the same batch."""
    chance = random.Random(0)
    with AsyncVectorEnv([lambda i=i: env_fn(i) for i in range(4)], num_workers=2, step_timeout=20) as envs:
        envs.reset()
        for _ in range(rounds):
            with pytest.raises(KeyboardInterrupt):
                interrupt_after(chance.uniform(0.0005, 0.004))
                step_for_ever(envs)
            assert envs.reset()[0].ravel().tolist() == [0, 100, 200, 300]
            for t in (1, 2):
                assert envs.step([0] * 4)[0].ravel().tolist() == [t, 100 + t, 200 + t, 300 + t]


@pytest.mark.parametrize("goes_on", [True, False])
def test_interrupt_amid_a_message_to_a_stopped_worker(interrupt_after, goes_on):
    """What the socket had no room for goes out once the worker reads again; closing does not wait for that."""
    with AsyncVectorEnv([Counter] * 2, num_workers=2, close_timeout=1) as envs:
        envs.reset()
        pid = envs.worker_pids[1]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(KeyboardInterrupt):
            interrupt_after(0.3)
            envs.set_attr("blob", bytes(3_000_000))
        if goes_on:
            os.kill(pid, signal.SIGCONT)
            assert envs.reset()[0].ravel().tolist() == [0, 0]
            assert [len(blob) for blob in envs.get_attr("blob")] == [3_000_000] * 2
        began = time.monotonic()
    assert time.monotonic() - began < 20


def test_request_that_cannot_be_sent_leaves_the_batch_as_it_was():
    """However often: a refused reset must not use up the memory for results."""
    with AsyncVectorEnv([Counter] * 2, num_workers=1, copy=False) as envs:
        envs.reset()
        for _ in range(6):
            with pytest.raises(TypeError):
                envs.reset(options={"lock": threading.Lock()})
        assert envs.reset()[0].ravel().tolist() == [0, 0]


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
@pytest.mark.parametrize("info", [[1], "abc", 5])
def test_info_that_is_no_dictionary_is_that_envs_failure(backend, info):
    """One env's nonsense must not end the worker that it shares with others."""

    class Odd(Counter):
        def step(self, action):
            return *super().step(action)[:4], info

    with AsyncVectorEnv([Odd, Counter], num_workers=1, backend=backend, step_timeout=20) as envs:
        envs.reset()
        with pytest.raises((TypeError, ValueError)):
            envs.step([0, 0])
        assert envs.reset()[0].ravel().tolist() == [0, 0]


def test_final_observation_of_a_failed_step_does_not_come_later():
    """What a step that failed has kept belongs to that step."""

    class Odd(Counter):
        def step(self, action):
            observation, *_ = super().step(action)
            return (
                (observation, "bad", True, False, {}) if self.num_resets == 1 else (observation, 1.0, False, False, {})
            )

    with AsyncVectorEnv([Odd] * 2, num_workers=1, autoreset_mode="SameStep") as envs:
        envs.reset()
        with pytest.raises((shoal.MisfitError, TypeError, ValueError)):
            envs.step([0, 0])
        envs.reset()
        assert "final_obs" not in envs.step([0, 0])[4]


def test_info_dictionary_that_envs_share_is_read_in_its_turn():
    """A class attribute that every env fills in says something else after each."""

    class Sharing(Counter):
        shared: ClassVar[dict] = {}

        def step(self, action):
            self.shared["who"] = self.index
            return *super().step(action)[:4], self.shared

    with AsyncVectorEnv([lambda i=i: Sharing(i) for i in range(4)], num_workers=2) as envs:
        envs.reset()
        assert envs.step([0] * 4)[4]["who"].tolist() == [0, 1, 2, 3]
