"""The test kit keeps its own promises; nothing of the rest of shoal is needed here."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import optree
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from hypothesis import given, settings

from shoal.testing import faults, spaces, toys
from shoal.testing.faults import Fault, Faulty

NESTED = dict(spaces.standard_spaces())["nested"]

MAKERS: dict[str, Callable[[], toys.Counter]] = {
    "counter": functools.partial(toys.Counter, index=3, length=4),
    "echo": functools.partial(toys.Echo, Discrete(5)),
    "every-space": functools.partial(toys.EverySpace, NESTED),
    "reused-buffer": toys.ReusedBuffer,
    "scripted": functools.partial(toys.Scripted, Box(0, 9, (1,)), np.ones(1, np.float32)),
    "stochastic": toys.Stochastic,
    "sleeper": functools.partial(toys.Sleeper, step_s=0.0),
    "pixels": functools.partial(toys.Pixels, (4, 5, 3), index=2),
    "attributed": toys.Attributed,
    "faulty": functools.partial(Faulty, "step", at=10**6),
}


def rollout(make: Callable[[], Any], seed: int, actions: list[int]) -> list[Any]:
    """Returns everything one env gives, with a reset after each end."""
    env = make()
    seen: list[Any] = [*optree.tree_map(np.copy, env.reset(seed=seed))]
    for action in actions:
        *outcome, info = env.step(action)
        seen += [*optree.tree_map(np.copy, tuple(outcome)), info]
        if outcome[2] or outcome[3]:
            seen += [*optree.tree_map(np.copy, env.reset())]
    env.close()
    return seen


def same(left: Any, right: Any) -> bool:
    """Tells whether two nests are equal in structure, type and value."""
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and bool(np.array_equal(left, right))


def as_array(leaf: Any) -> Any:
    """Undoes that Gymnasium samples a scalar integer Box as a NumPy scalar and then warns of it."""
    return np.asarray(leaf) if isinstance(leaf, np.number | np.bool_) else leaf


@pytest.mark.parametrize("name", MAKERS)
def test_same_seed_gives_the_same_trajectory(name):
    """Parity tests compare toys across backends, so a toy must not differ from itself."""
    actions = [int(action) for action in np.random.default_rng(0).integers(0, 5, 60)]
    assert same(rollout(MAKERS[name], 7, actions), rollout(MAKERS[name], 7, actions))


@pytest.mark.parametrize("name", ["echo", "every-space", "stochastic"])
def test_other_seed_gives_another_trajectory(name):
    """A toy that ignores its seed would hide a library that mixes up seeds."""
    assert not same(rollout(MAKERS[name], 7, [0] * 9), rollout(MAKERS[name], 8, [0] * 9))


@pytest.mark.parametrize("name", MAKERS)
def test_makers_and_envs_can_be_pickled(name):
    """Constructors travel to workers, and states of envs travel back."""
    env = pickle.loads(pickle.dumps(MAKERS[name]))()
    env.reset(seed=1)
    env.step(1)
    twin = cloudpickle.loads(cloudpickle.dumps(env))
    assert same(env.step(2)[0], twin.step(2)[0])


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "faulty"])
def test_observations_are_in_their_space(name):
    """Otherwise strict mode would blame the library's codecs for a toy's mistake."""
    env = MAKERS[name]()
    observation, _ = env.reset(seed=3)
    for _ in range(5):
        assert env.observation_space.contains(optree.tree_map(as_array, observation))
        observation = env.step(env.action_space.sample())[0]


def test_counter_counts_and_remembers():
    """The counter is the ruler by which rows, seeds and options are measured."""
    env = toys.Counter(index=3, length=2)
    options = {"k": 1}
    observation, info = env.reset(seed=5, options=options)
    assert observation.dtype == np.float64
    assert (observation.tolist(), info) == ([300.0], {})
    assert (env.last_seed, env.last_action, env.num_resets) == (5, None, 1)
    assert env.last_options is options
    assert env.step(4) == (np.array([301.0]), 1.0, False, False, {})
    assert env.last_action == 4
    assert env.step(0) == (np.array([302.0]), 1.0, True, False, {})
    assert env.reset()[0].tolist() == [300.0]
    assert (env.last_seed, env.last_options, env.num_resets) == (None, None, 2)


def test_counter_truncates_on_request():
    """Truncation and termination must be told apart."""
    env = toys.Counter(length=1, truncates=True)
    env.reset()
    assert env.step(0)[2:4] == (False, True)


def test_counter_renders_in_every_mode():
    """Frames differ in size by env, so that a batch of them cannot be stacked by accident."""
    assert toys.Counter().render() is None
    assert toys.Counter(2, render_mode="rgb_array").render().shape == (4, 8, 3)
    assert len(toys.Counter(2, render_mode="rgb_array_list").render()) == 1
    assert toys.Counter(2, render_mode="ansi").render() == "env 2 at 0"


@pytest.mark.parametrize(("name", "space"), spaces.standard_spaces())
def test_echo_returns_its_action(name, space):
    """An action must come back as it was sent, and not as the same object."""
    env = toys.Echo(space)
    first, info = env.reset(seed=0)
    assert same(first, toys.Echo(space).reset(seed=0)[0])
    assert info == {}
    env.action_space.seed(1)
    action = env.action_space.sample()
    observation, *_, info = env.step(action)
    assert same(observation, action)
    assert not any(
        np.shares_memory(*pair)
        for pair in zip(optree.tree_leaves(observation), optree.tree_leaves(action), strict=True)
        if isinstance(pair[0], np.ndarray) and pair[0].size
    )
    assert info == {"type": type(action).__name__, "contains": True}


def test_echo_tells_that_an_action_does_not_fit():
    """`contains` is how a test sees what an env would have seen."""
    env = toys.Echo(Dict(a=Discrete(2), t=Tuple((MultiBinary(2), Box(0, 1, ())))))
    env.reset(seed=0)
    good = {"a": np.int64(1), "t": (np.ones(2, np.int8), np.float32(0.5))}
    assert env.step(good)[-1] == {"type": "dict", "contains": True}
    assert env.step({**good, "a": 2})[-1]["contains"] is False
    assert env.step({"a": 1})[-1]["contains"] is False
    assert env.step(3)[-1] == {"type": "int", "contains": False}


def test_every_space_shows_all_kinds_of_ends_and_infos():
    """A run must meet what it is there for: missing keys, both flags, nested infos."""
    env = toys.EverySpace(Discrete(3), length=15, end_p=0.1)
    env.reset(seed=0)
    infos, ends = [], set()
    for _ in range(300):
        _, _, terminated, truncated, info = env.step(0)
        infos.append(info)
        ends.add((terminated, truncated))
        if terminated or truncated:
            env.reset()
    assert ends >= {(False, False), (True, False), (False, True)}
    keys = {"count", "loss", "speed", "position", "cells", "word", "nested"}
    assert set().union(*infos) == keys
    assert all(any(key not in info for info in infos) for key in keys)
    assert {"x", "name", "deep"} == set().union(*(info.get("nested", {}) for info in infos))


def test_every_space_draws_the_same_without_infos_and_with_other_actions():
    """Runs with and without infos can be compared."""
    with_infos, without = (toys.EverySpace(NESTED, infos=infos) for infos in (True, False))
    assert same(with_infos.reset(seed=2)[0], without.reset(seed=2)[0])
    for action in range(5):
        *left, _ = with_infos.step(action)
        *right, info = without.step(0)
        assert same(left, right)
        assert info == {}


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_reused_buffer_is_one_array(dtype):
    """What a library keeps of such an env without copying changes under its hands."""
    env = toys.ReusedBuffer(dtype=dtype, length=2)
    first, _ = env.reset()
    second, *_ = env.step(0)
    assert second is first
    assert second.tolist() == [1, 1]
    assert env.step(0)[2] is True
    assert env.reset()[0] is first
    assert first.tolist() == [0, 0]


def test_scripted_follows_its_lists():
    """Entry `t` belongs to time `t`, the last one stays, and what is no list is a constant."""
    env = toys.Scripted(
        Box(0, 9, (2,)),
        [[1, 2], (3, 4.5)],
        rewards=[None, 1, True],
        terminated=[0, 0, np.True_],
        infos=[{"a": 1}, None],
    )
    for _ in range(2):
        assert env.reset() == ([1, 2], {"a": 1})
        assert env.step(0) == ((3, 4.5), 1, 0, False, {})
        assert env.step(0) == ((3, 4.5), True, np.True_, False, {})
        assert env.step(0)[0] == (3, 4.5)


def test_stochastic_depends_on_its_actions():
    """A lost or swapped action must show in what follows, not only in one step."""
    left, right = toys.Stochastic(), toys.Stochastic()
    left.reset(seed=1)
    right.reset(seed=1)
    assert same(left.step(2)[0], right.step(2)[0])
    difference = left.step(3)[0] - right.step(1)[0]
    np.testing.assert_allclose(difference, 2, rtol=1e-5)
    difference = left.step(0)[0] - right.step(0)[0]
    np.testing.assert_allclose(difference, 2, rtol=1e-5)


def test_sleeper_sleeps():
    """Timeouts and first-ready stepping are tested with it."""
    times = [time.monotonic()]
    env = toys.Sleeper(step_s=0.02, reset_s=0.04, init_s=0.06)
    times.append(time.monotonic())
    env.reset()
    times.append(time.monotonic())
    env.step(0)
    times.append(time.monotonic())
    assert np.all(np.diff(times) >= [0.06, 0.04, 0.02])


def test_pixels_differ_by_env_time_and_place():
    """Every byte can be predicted, and no row, time or offset can be taken for another."""
    env = toys.Pixels(index=300)
    env.reset()
    observation, *_ = env.step(0)
    assert np.array_equal(observation, toys.Pixels.frame(300, 1))
    frames = {toys.Pixels.frame(i, t, (5, 5)).tobytes() for i in range(0, 70_000, 700) for t in range(0, 999, 99)}
    assert len(frames) == 100 * 11
    assert len(set(observation.reshape(-1, 8)[:256, 0].tolist())) == 256
    assert toys.Pixels.frame(1, 2, ()).shape == ()


def test_chatty_uses_every_stream(capfd, caplog):
    """Each way to write must reach the worker's streams."""
    with pytest.warns(UserWarning, match="chatty"):
        env = toys.Chatty(bytes_per_step=1000)
    env.reset()
    capfd.readouterr()
    env.step(0)
    out, _ = capfd.readouterr()
    assert "x" * 999 + "\n" in out
    assert "straight to descriptor 1" in out
    assert "env 0 at 1" not in out
    assert "env 0 is at 1" in caplog.text


def test_parental_ends_its_child():
    """The child is there until `close`, and not after it."""
    env = toys.Parental()
    assert not faults.process_gone(env.child_pid)
    env.close()
    assert faults.process_gone(env.child_pid)
    env.close()


def test_attributed_has_what_wrapper_tests_need():
    """Attributes by wrapper are set on the base env, which then acts on them."""
    env = gym.wrappers.TimeLimit(toys.Attributed(), 9)
    env.set_wrapper_attr("goal", 7)
    env.reset()
    assert env.step(0)[1] == 7.0
    base = env.unwrapped
    assert isinstance(base, toys.Attributed)
    assert base.f(1, name="z") == (1, "z")
    assert base.add(2, 3) == 5
    assert base.fn("same") == "same"
    with pytest.raises(RuntimeError, match="broken"):
        _ = base.broken
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(base.fn)


RAISED = {
    Fault.RAISE: ValueError,
    Fault.RAISE_UNPICKLABLE: Exception,
    Fault.RAISE_MULTI_ARG: faults.TwoArgumentError,
    Fault.MEMORY_ERROR: MemoryError,
    Fault.KEYBOARD_INTERRUPT: KeyboardInterrupt,
    Fault.SYS_EXIT: SystemExit,
}


def use(env: Faulty, stage: str) -> Any:
    """Calls the env once in that stage."""
    stages: dict[str, Callable[[], Any]] = {
        "reset": env.reset,
        "step": functools.partial(env.step, 0),
        "render": env.render,
        "close": env.close,
        "call": functools.partial(env.poke, 1),
    }
    return stages[stage]()


@pytest.mark.parametrize("fault", faults.RAISING)
@pytest.mark.parametrize("stage", ["reset", "step", "render", "close", "call"])
def test_fault_raises_at_its_call_and_only_there(stage, fault):
    """Calls before and after it, and other stages, are healthy."""
    env = Faulty(stage, fault, at=3)
    for other in ("reset", "step", "render", "call", "close"):
        if other != stage:
            for _ in range(4):
                use(env, other)
    use(env, stage)
    use(env, stage)
    with pytest.raises(RAISED[fault]):
        use(env, stage)
    use(env, stage)


@pytest.mark.parametrize("fault", faults.RAISING)
def test_constructor_raises(fault):
    """The stage that users meet first."""
    with pytest.raises(RAISED[fault]):
        Faulty("constructor", fault.value)


def test_a_healthy_faulty_is_a_counter():
    """Expected values can be taken from the counter."""
    actions = [1] * 9
    healthy = functools.partial(Faulty, "constructor", "exit", at=2, index=4, length=3, truncates=True)
    counter = functools.partial(toys.Counter, index=4, length=3, truncates=True)
    assert same(rollout(healthy, 0, actions), rollout(counter, 0, actions))
    assert Faulty("step", render_mode="ansi").render() == "env 0 at 0"


def test_tally_counts_across_envs(tmp_path):
    """The env that replaces a failed one must be able to do better."""
    make = functools.partial(Faulty, "step", at=2, tally=tmp_path / "tally")
    first = make()
    first.step(0)
    with pytest.raises(ValueError, match="bad apple"):
        first.step(0)
    second = make()
    second.step(0)
    second.step(0)


def test_unknown_stages_and_faults_are_refused():
    """A misspelt fault would make its test pass without one."""
    with pytest.raises(ValueError, match="stepp"):
        Faulty("stepp")
    with pytest.raises(ValueError, match="explode"):
        Faulty("step", "explode")
    with pytest.raises(ValueError, match="make_none"):
        Faulty("constructor", "return-none")
    assert faults.make_none(1, index=2) is None


def raised_by(fault: Fault) -> BaseException:
    with pytest.raises(BaseException) as caught:
        faults.commit(fault)
    return caught.value


def test_errors_resist_pickle_as_promised():
    """One cannot be pickled at all; the other only fails when it is rebuilt."""
    local = raised_by(Fault.RAISE_UNPICKLABLE)
    assert type(local).__name__ == "Local"
    for dumps in (pickle.dumps, cloudpickle.dumps):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            dumps(local)
    pickled = pickle.dumps(raised_by(Fault.RAISE_MULTI_ARG))
    with pytest.raises(TypeError, match="reason"):
        pickle.loads(pickled)


def run_faulty(*arguments: Any, **keywords: Any) -> subprocess.Popen[bytes]:
    """Steps a `Faulty` twice in a process of its own; it writes one line before each step."""
    code = f"""if True:
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from shoal.testing.faults import Faulty
        env = Faulty(*{arguments!r}, **{keywords!r})
        env.reset()
        for t in range(2):
            print("step", t, flush=True)
            env.step(0)
        env.close()
        print("end", flush=True)
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, env=environ)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.EXIT, 3),
        (Fault.ABORT, -signal.SIGABRT),
        (Fault.SEGFAULT, -signal.SIGSEGV),
        (Fault.SIGKILL, -signal.SIGKILL),
        (Fault.SYS_EXIT, 5),
    ],
)
def test_deadly_fault_ends_the_process(fault, code):
    """At the second step, with the status that a parent has to explain."""
    process = run_faulty("step", fault.value, at=2)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert out.split() == [b"step", b"0", b"step", b"1"]


@pytest.mark.parametrize("fault", faults.HANGING)
def test_hang_ends_after_its_time(fault):
    """Late answers are tested with hangs that end."""
    process = run_faulty("step", fault.value, at=1, hang_s=0.2)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.endswith(b"end\n")


@pytest.mark.parametrize("fault", faults.HANGING)
def test_hang_goes_on_until_killed(fault):
    """The process is alive, silent, and gone after SIGKILL."""
    with run_faulty("step", fault.value, at=1, hang_s=60.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"step 0\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        faults.kill(SimpleNamespace(worker_pids=[os.getpid(), process.pid]), worker=1)
        assert process.wait(10) == -signal.SIGKILL


def test_hang_in_c_keeps_the_interpreter_from_running():
    """A handler of the worker's, or a thread in it, cannot be relied upon to end such an env."""
    code = """if True:
        import signal, sys, threading, time
        from shoal.testing import faults
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        threading.Thread(target=lambda: (time.sleep(0.2), print("alive", flush=True)), daemon=True).start()
        print("ready", flush=True)
        faults.commit("hang-in-c", hang_s=60.0)
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.1)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()
        assert process.stdout.read() == b""


def test_workers_can_be_stopped_and_resumed():
    """A frozen worker is alive, but answers nothing until it is resumed."""
    command = [sys.executable, "-c", "print('up', flush=True); input(); print('on', flush=True)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        envs = SimpleNamespace(worker_pids=[process.pid])
        assert process.stdout.readline() == b"up\n"
        faults.stop(envs, worker=0)
        process.stdin.write(b"\n")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        assert not faults.process_gone(process.pid)
        faults.resume(envs, worker=0)
        assert process.stdout.readline() == b"on\n"
        assert process.wait(10) == 0
    assert faults.process_gone(process.pid)


def test_wait_until_says_what_it_waited_for():
    """A test that waits in vain must be readable."""
    faults.wait_until(iter([False, None, 1]).__next__)
    with pytest.raises(AssertionError, match=r"not within 0.01 s: the moon is blue"):
        faults.wait_until(lambda: False, timeout_s=0.01, description="the moon is blue")


def check_space(space: gym.Space[Any]) -> None:
    """Samples a space and its batch, and pickles it, with warnings as errors."""
    space.seed(0)
    for _ in range(3):
        assert space.contains(optree.tree_map(as_array, space.sample()))
    batch = gym.vector.utils.batch_space(space, 3)
    batch.seed(0)
    assert batch.contains(optree.tree_map(as_array, batch.sample()))
    assert pickle.loads(pickle.dumps(space)) == space


@pytest.mark.parametrize(("name", "space"), spaces.standard_spaces())
def test_standard_space_contains_its_samples(name, space):
    """Otherwise parity tests would test Gymnasium's samplers."""
    check_space(space)


@settings(deadline=None)
@given(spaces.leaf_spaces())
def test_leaf_spaces_contain_their_samples(space):
    """See above; these are drawn."""
    assert not isinstance(space, Dict | Tuple)
    check_space(space)


@settings(deadline=None)
@given(spaces.nested_spaces(max_depth=2))
def test_nested_spaces_are_as_deep_as_asked(space):
    """Empty containers have no batch, and too deep ones take too long."""

    def depth(part: Any) -> int:
        if not isinstance(part, Dict | Tuple):
            return 0
        assert len(part) > 0
        return 1 + max(map(depth, part.values() if isinstance(part, Dict) else part))

    assert depth(space) <= 2
    check_space(space)


def test_standard_spaces_are_new_each_time():
    """Spaces carry generators, so sharing them would let one test change another."""
    first, second = (dict(spaces.standard_spaces()) for _ in range(2))
    assert first == second
    assert all(first[name] is not second[name] for name in first)
