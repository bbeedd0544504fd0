"""Calls to one env beside whatever else is on its way: what comes back belongs to whoever asked for it."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import psutil
import pytest

import shoal
from shoal.adapters.gymnasium.codecs import codec_of
from shoal.adapters.gymnasium.driver import GymnasiumDriver
from shoal.engine import Engine, Options
from shoal.testing import Counter
from shoal.worker import Description
from shoal.worker.calls import method_call
from shoal.worker.columns import MOST_COLUMNS, count, learn
from shoal.worker.infos import gather

every_backend = pytest.mark.parametrize("backend", ["serial", "thread", "process"])


def make_engine(backend: str, num_envs: int = 3, num_workers: int = 2) -> Engine:
    """Returns an engine over counters."""

    def resolve(facts):
        return Description(codec_of(facts[0].observation_space), codec_of(facts[0].action_space))

    options = Options(backend=backend, num_workers=num_workers)
    return Engine([Counter] * num_envs, GymnasiumDriver, resolve, options)


@every_backend
def test_promise_waited_for_during_a_step_leaves_the_step_its_replies(backend):
    """The step's replies come first, and are not the promise's; they must be there when the step is waited for."""
    engine = make_engine(backend)
    try:
        nothing = [None] * 3
        engine.reset(nothing, nothing)
        for t in range(1, 4):
            engine.step_async(np.zeros(3, int))
            promises = [engine.call_one(row, method_call("t")) for row in (2, 0)]
            assert [promise() for promise in promises] == [t, t]
            observations = engine.step_wait(5.0).observations
            assert np.all(np.asarray(observations).reshape(3, -1)[:, 0] == t)
    finally:
        engine.close()


@every_backend
def test_more_promises_than_a_worker_is_asked_at_once(backend):
    """They wait for their turn, and none is lost."""
    engine = make_engine(backend, num_envs=2, num_workers=1)
    try:
        engine.reset([None] * 2, [None] * 2)
        promises = [engine.call_one(index % 2, method_call("t")) for index in range(150)]
        assert [promise() for promise in reversed(promises)] == [0] * 150
    finally:
        engine.close()


class Newsy(Counter):
    """Says something under another key every few steps."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {f"key {self.t // 4}": self.t}


def test_workers_keep_no_columns_that_are_out_of_use():
    """Each new key brings new columns; a worker that kept all of them would run out of descriptors."""
    envs = shoal.AsyncVectorEnv([partial(Newsy, length=None)] * 2, num_workers=2)
    try:
        envs.reset()
        worker = psutil.Process(envs.worker_pids[0])
        counts = []
        for _ in range(80):
            envs.step(np.zeros(2, int))
            counts.append(worker.num_fds())
        assert max(counts[8:]) - min(counts[8:]) <= 2, counts
        assert len(os.listdir("/proc/self/fd")) < 100
    finally:
        envs.close()


def test_keys_beyond_the_limit_are_not_learnt():
    """An env that makes up keys for ever must not make the program grow."""
    schema, room = {}, [MOST_COLUMNS]
    for index in range(3):
        infos = {f"{index} {key}": key for key in range(200)} | {"deep": {f"{index} {key}": 1 for key in range(200)}}
        learn(schema, gather([(0, infos), (1, infos)]), room)
    assert count(schema) == MOST_COLUMNS and room == [0]
