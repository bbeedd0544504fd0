"""How actions reach the envs of a `ParallelPyEnvironment`, and which are refused; whose the arrays are."""

from __future__ import annotations

import copy
import itertools
from functools import partial

import numpy as np
import pytest
import tf_agents_envs as envs_for_tests
from tf_agents_envs import NESTED, Echo, counters, nested_actions, observed, parallel
from vectors import every_backend

import shoal
from shoal.adapters.tf_agents import (
    StepType,
    nests,
    restart,
)
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)

both = pytest.mark.parametrize("flag", [False, True], ids=["off", "on"])


@both
@every_backend
def test_nested_actions_reach_the_envs(backend, flag):
    """Dict, tuple, list and namedtuple, each leaf in the type of its spec: as if the env were stepped by hand."""
    with parallel(counters(3, Echo), backend=backend, flatten=flag) as env:
        env.reset()
        for seed in range(3):
            actions = nested_actions(seed, seed + 20, seed + 40)
            observation = env.step(actions).observation
            assert list(observation) == list(NESTED), "mappings keep the order of the spec"
            assert_same(observation, actions)
        at, move = "at: Point(float64, dict(a: int8, z: bool))", "move: tuple(float32, list(int32, uint8))"
        assert [handle.last_types() for handle in env.envs] == [f"dict({at}, {move}, turn: int64)"] * 3


@both
def test_flat_actions_need_only_the_leaves(flag):
    """`flatten` takes any containers with the right leaves in the order of `tf.nest`; without it they must be right."""
    actions = nested_actions(3, 4)
    with parallel(counters(2, Echo), backend="serial", flatten=flag) as env:
        env.reset()
        flat = tuple(nests.flatten(actions))
        if flag:
            assert_same(env.step(flat).observation, env.step(actions).observation)
            return
        with pytest.raises(shoal.MisfitError, match="action"):
            env.step(flat)


def test_flatten_and_blocking_change_no_value():
    """They are ways to get there; every result is the same, bit for bit."""
    histories = []
    for flatten, blocking in itertools.product([False, True], repeat=2):
        with parallel(counters(3, Echo, length=2), flatten=flatten, blocking=blocking) as env:
            assert (env._flatten, env._blocking) == (flatten, blocking)
            steps = [env.step(nested_actions(n, n + 1, n + 2)) for n in range(5)]
            histories.append([env.reset(), *steps, env.time_step_spec()])
    for history in histories[1:]:
        assert_same(history[:-1], histories[0][:-1])
        assert history[-1] == histories[0][-1]


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_blocking_is_one_env_after_another(tmp_path, backend):
    """Envs that share a device ask for it."""
    with parallel(counters(make=partial(envs_for_tests.Timed, tmp_path)), backend=backend, blocking=True) as env:
        env.reset()
        env.step(np.zeros(3, np.int32))
    assert envs_for_tests.are_one_after_another(tmp_path, "reset")
    assert envs_for_tests.are_one_after_another(tmp_path, "step")


@pytest.mark.parametrize("stage", ["reset", "step"])
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_otherwise_envs_work_at_the_same_time(tmp_path, backend, stage):
    """That is what workers are for."""
    with parallel(counters(make=partial(envs_for_tests.Meeting, tmp_path, stage, 3)), backend=backend) as env:
        env.reset()
        assert observed(env.step(np.zeros(3, np.int32))) == [1, 101, 201]


MISFITS = {
    "too short": lambda: nested_actions(1),
    "too long": lambda: nested_actions(1, 2, 3),
    "one leaf too short": lambda: {**nested_actions(1, 2), "turn": np.array([1])},
    "one leaf too long": lambda: {**nested_actions(1, 2), "turn": np.array([1, 2, 3])},
    "no batch axis": lambda: {**nested_actions(1, 2), "turn": np.int64(1)},
    "wrong shape": lambda: {**nested_actions(1, 2), "move": (np.zeros((2, 3)), nested_actions(1, 2)["move"][1])},
    "wrong dtype": lambda: {**nested_actions(1, 2), "turn": np.array([1.5, 2.5])},
    "does not fit the dtype": lambda: {**nested_actions(1, 2), "move": (np.zeros((2, 2)), [[1, 2], [[[1, 256]]] * 2])},
    "no numbers": lambda: {**nested_actions(1, 2), "turn": ["left", "right"]},
    "none": lambda: None,
    "missing key": lambda: {key: nested_actions(1, 2)[key] for key in ("move", "at")},
    "no dict": lambda: [nested_actions(1, 2)] * 2,
    "tuple too short": lambda: {**nested_actions(1, 2), "move": (np.zeros((2, 2)),)},
    "leaf for a list": lambda: {**nested_actions(1, 2), "move": (np.zeros((2, 2)), np.zeros(2))},
}


@both
@every_backend
def test_actions_that_do_not_fit_are_refused_before_anything_is_sent(backend, flag):
    """TF-Agents steps some of the envs, or drops what is too much; and the next step must be the right one."""
    with parallel(counters(2, Echo), backend=backend, flatten=flag) as env:
        last = env.reset()
        for t, (name, make) in enumerate(MISFITS.items()):
            with pytest.raises(shoal.MisfitError, match=r"^(env 0: )?action"):
                pytest.fail(f"{name} was taken: {env.step(make())}")
            assert [handle.t for handle in env.envs] == [t, t]
            assert env.current_time_step() is last
            last = env.step(nested_actions(3 + t, 4 + t))
            assert_same(last.observation, nested_actions(3 + t, 4 + t))


def test_error_says_which_leaf_of_an_action():
    """The path is worth more than the shape."""
    with parallel(counters(2, Echo), backend="serial") as env:
        env.reset()
        with pytest.raises(shoal.MisfitError, match=r"^action\['move'\]\[1\]\[0\]: "):
            env.step({**nested_actions(1, 2), "move": (np.zeros((2, 2)), [np.zeros(3, np.int32), np.zeros((2, 1, 2))])})
        with pytest.raises(shoal.MisfitError, match=r"^action\['turn'\]: .*float64"):
            env.step({**nested_actions(1, 2), "turn": np.array([1.5, 2.5])})


def test_unstack_and_stack_as_tf_agents_tests_them():
    """Its own tests call these two, and so do subclasses."""
    with parallel(counters(2), backend="serial") as env:
        assert [row.tolist() for row in env._unstack_actions(np.array([[1.0], [2.0]]))] == [[1.0], [2.0]]
        unstacked = env._unstack_actions({"b": np.array([1, 2]), "a": np.array([3, 4])})
        assert [(list(each), each["a"].tolist()) for each in unstacked] == [(["b", "a"], 3), (["b", "a"], 4)]
        stacked = env._stack_time_steps([restart(np.array([n], np.float64)) for n in range(2)])
        assert_same(stacked, restart(np.array([[0.0], [1.0]]), batch_size=2))
    with parallel(counters(2), backend="serial", flatten=True) as env:
        flat = env._unstack_actions({"b": np.array([1, 2]), "a": np.array([3, 4])})
        assert [tuple(leaf.tolist() for leaf in each) for each in flat] == [(3, 1), (4, 2)]
        stacked = env._stack_time_steps([tuple(restart(np.array([n], np.float64))) for n in range(2)])
        assert_same(stacked, restart(np.array([[0.0], [1.0]]), batch_size=2))


# --- Values that must stay as they are ---


@every_backend
def test_time_steps_never_change_later(backend):
    """A replay buffer keeps them; neither the next step nor an env that reuses its arrays may touch them."""
    with parallel(counters(2, envs_for_tests.Reused), backend=backend) as env:
        steps = [env.reset()]
        kept = [copy.deepcopy(steps[0])]
        for _ in range(4):
            steps.append(env.step(np.zeros(2, np.int32)))
            kept.append(copy.deepcopy(steps[-1]))
        assert [observed(step) for step in steps] == [[n, n] for n in range(5)]
        leaves = [leaf for step in steps for leaf in nests.flatten(step)]
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(leaves, 2))
        env.reset()
        assert_same(steps, kept)
    assert_same(steps, kept)


@every_backend
def test_time_steps_and_actions_are_the_callers_to_change(backend):
    """What the caller does to its arrays is no business of the envs."""
    with parallel(counters(2, Echo), backend=backend) as env:
        first = env.reset()
        for leaf in nests.flatten(first):
            leaf[...] = 1
        actions = nested_actions(1, 2)
        second = env.step(actions)
        for leaf in nests.flatten(actions):
            leaf[...] = 0
        assert_same(second.observation, nested_actions(1, 2))
        actions = nested_actions(1, 2)
        assert_same(nests.stack([handle.last_action for handle in env.envs]), actions)
        assert [int(constant) for constant in (StepType.FIRST, StepType.MID, StepType.LAST)] == [0, 1, 2]
