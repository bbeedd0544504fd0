"""`get_state` and `set_state` of a batch: everything goes on exactly as it did then."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import programs
import pytest
from gymnasium.utils import EzPickle
from gymnasium.wrappers import TimeLimit
from tf_agents_envs import Counter, OwnState, Stochastic, counters, observed, parallel
from vectors import every_backend

import shoal
from shoal.adapters.tf_agents import ArraySpec, PyEnvironment, restart, transition
from shoal.testing import toys
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)


class EasyToPickle(EzPickle, toys.Stochastic):
    """Pickles, on its own, what it was constructed with, and forgets what has become of it."""

    def __init__(self, length_p: float = 0.1) -> None:
        EzPickle.__init__(self, length_p)
        toys.Stochastic.__init__(self, length_p)


def easy_to_pickle(index: int = 0) -> gym.Env[Any, Any]:
    env = TimeLimit(EasyToPickle(0.1), 6)
    env.reset(seed=index)
    return env


KINDS = {"own": OwnState, "pickled": Stochastic, "gymnasium": easy_to_pickle}
every_kind = pytest.mark.parametrize("kind", KINDS)


def actions_of(batch: int, count: int, kind: str = "pickled") -> list[np.ndarray]:
    dtype = np.int64 if kind == "gymnasium" else np.int32
    return list(np.random.default_rng(batch).integers(0, 5, (count, 3)).astype(dtype))


def play(env: Any, batch: int, count: int = 20, kind: str = "pickled") -> list[Any]:
    return [env.step(actions) for actions in actions_of(batch, count, kind)]


@every_backend
@every_kind
def test_restored_batch_repeats_itself_bit_for_bit(backend, kind):
    """Generators, episode ends, time limits and all: what comes after step 7 comes again."""
    with parallel(counters(3, KINDS[kind]), backend=backend, num_workers=2 if backend != "serial" else 1) as env:
        env.reset()
        play(env, 1, 7, kind)
        state = env.get_state()
        current = copy.deepcopy(env.current_time_step())
        expected = play(env, 2, kind=kind)
        assert any(step.is_last().any() for step in expected), "episodes ended meanwhile"
        for _ in range(2):
            env.set_state(state)
            assert_same(env.current_time_step(), current)
            assert_same(play(env, 2, kind=kind), expected)


@every_kind
def test_one_env_alone_is_restored(kind):
    """Its entry of the state, among today's states of the others, which stay as they are."""
    with parallel(counters(3, KINDS[kind]), backend="serial") as env:
        env.reset()
        then = env.get_state()
        first = play(env, 3, kind=kind)
        now = env.get_state()
        expected = play(env, 3, kind=kind)
        env.set_state([now[0], then[1], now[2]])
        again = play(env, 3, kind=kind)
    for step, own, others in zip(again, first, expected, strict=True):
        assert_same(step.observation[1], own.observation[1])
        assert_same(step.observation[::2], others.observation[::2])


@every_kind
@pytest.mark.parametrize("backend", ["process", "serial"])
def test_state_goes_over_to_a_new_batch(kind, backend):
    """Envs that are constructed alike; how they are spread over workers is no part of the state."""
    with parallel(counters(3, KINDS[kind]), num_workers=3) as env:
        env.reset()
        play(env, 1, 7, kind)
        state, current = env.get_state(), env.current_time_step()
        expected = play(env, 2, kind=kind)
    with parallel(counters(3, KINDS[kind]), backend=backend, num_workers=1) as env:
        env.set_state(state)
        assert_same(env.current_time_step(), current)
        assert_same(play(env, 2, kind=kind), expected)


@pytest.mark.parametrize("kind", ["own", "pickled"])
def test_state_goes_to_disk_and_into_a_new_program(tmp_path, kind):
    """A checkpoint that only the process can read that wrote it is none."""
    folder = __file__.rpartition("/")[0]
    with parallel(counters(3, KINDS[kind])) as env:
        env.reset()
        play(env, 1, 7)
        (tmp_path / "state.pickle").write_bytes(pickle.dumps(env.get_state()))
        expected = [np.array(env.current_time_step().observation), *(step.observation for step in play(env, 2))]
    np.save(tmp_path / "expected.npy", np.stack(expected))
    np.save(tmp_path / "actions.npy", np.stack(actions_of(2, 20)))
    programs.check(
        f"""
        import pickle, sys
        import numpy as np
        sys.path.insert(0, {folder!r})
        from tf_agents_envs import {KINDS[kind].__name__}, counters, parallel

        with parallel(counters(3, {KINDS[kind].__name__})) as env:
            env.set_state(pickle.loads(open("state.pickle", "rb").read()))
            seen = [env.current_time_step().observation]
            seen += [env.step(actions).observation for actions in np.load("actions.npy")]
        assert np.stack(seen).tobytes() == np.load("expected.npy").tobytes()
        """,
        tmp_path,
    )


@every_backend
@every_kind
def test_state_does_not_change_later(backend, kind):
    """Also where no process lies in between, and an env that hands out its own dictionary."""
    with parallel(counters(3, KINDS[kind]), backend=backend) as env:
        env.reset()
        state = env.get_state()
        kept = pickle.dumps(state)
        play(env, 1, kind=kind)
        env.get_state()
        assert pickle.dumps(state) == kept
        env.set_state(state)
        play(env, 1, kind=kind)
        assert pickle.dumps(state) == kept


@every_kind
def test_state_before_the_first_reset(kind):
    """There is no current time step then, and the next step is a reset."""
    with parallel(counters(3, KINDS[kind]), backend="serial") as env:
        state = env.get_state()
        expected = [env.reset(), *play(env, 1, kind=kind)]
        env.set_state(state)
        with pytest.raises(ValueError, match="Current timestep not initialized"):
            env.current_time_step()
        assert_same([env.step(actions_of(1, 1, kind)[0]), *play(env, 1, kind=kind)], expected)


@every_kind
def test_state_at_the_end_of_episodes(kind):
    """What comes after LAST is FIRST, also when the LAST was restored."""
    with parallel(counters(3, KINDS[kind]), backend="serial") as env:
        env.reset()
        while not env.step(actions_of(1, 1, kind)[0]).is_last().any():
            pass
        state, last = env.get_state(), env.current_time_step()
        following = env.step(actions_of(4, 1, kind)[0])
        play(env, 5, 3, kind)
        env.set_state(state)
        assert_same(env.current_time_step(), last)
        again = env.step(actions_of(4, 1, kind)[0])
        assert_same(again, following)
        assert again.is_first().tolist() == last.is_last().tolist()


def test_restored_batch_that_had_failed_can_be_stepped():
    """A state is a way back from an error, too."""

    class Moody(Counter):
        def _step(self, action: Any) -> Any:
            if action == 4:
                raise ValueError("bad apple")
            return super()._step(action)

    with parallel(counters(3, Moody)) as env:
        env.reset()
        state = env.get_state()
        with pytest.raises(ValueError, match="bad apple"):
            env.step(np.array([0, 4, 0], np.int32))
        env.set_state(state)
        assert observed(env.step(np.zeros(3, np.int32))) == [1, 101, 201]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_states_for_another_number_of_envs_are_refused(count):
    """Before anything is changed."""
    with parallel(counters(3, Stochastic), backend="serial") as env:
        env.reset()
        state = env.get_state()
        expected = play(env, 1, 3)
        now = env.get_state()
        with pytest.raises(shoal.ArgumentError, match=f"state has {count} entries for 3 envs"):
            env.set_state((state * 2)[:count])
        assert pickle.dumps(env.get_state()) == pickle.dumps(now)
        assert_same(env.current_time_step(), expected[-1])


class Locked(Stochastic):
    def __init__(self, **stochastic: Any) -> None:
        super().__init__(**stochastic)
        self.parts = {"clock": (n for n in range(3))}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_env_whose_state_cannot_be_saved_is_named(backend):
    """And the part of it that is the reason; the batch goes on."""
    with parallel([Stochastic, Locked, Stochastic], backend=backend) as env:
        env.reset()
        with pytest.raises(
            shoal.StateError, match=r"<Locked>\['parts'\]\['clock'\].* cannot be pickled.*get_state"
        ) as caught:
            env.get_state()
        assert any(note.startswith("env 1 raised in get_state") for note in caught.value.__notes__)
        assert env.step(np.zeros(3, np.int32)).is_mid().any()


class LockedGymnasium(toys.Counter):
    """Cannot be pickled, and has what the error asks for."""

    def __init__(self, **counter: Any) -> None:
        super().__init__(**counter)
        self.clock = (n for n in range(3))

    def get_state(self) -> Any:
        return {"t": self.t}

    def set_state(self, state: Any) -> None:
        self.t = state["t"]


def test_gymnasium_env_with_state_methods_of_its_own():
    """The error asks for them, so they must help."""
    with parallel(counters(3, LockedGymnasium), backend="serial") as env:
        env.reset()
        no_actions = np.zeros(3, np.int64)
        env.step(no_actions)
        state = env.get_state()
        env.step(no_actions)
        env.set_state(state)
        assert observed(env.step(no_actions)) == [2, 102, 202]


@pytest.mark.parametrize("name", ["of another class", "no state"])
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_is_no_state_of_such_an_env_changes_nothing(backend, name):
    """Half a batch from then and half from now is worse than an error."""
    with parallel(counters(3), backend="serial") as env:
        other = env.get_state()[0] if name == "of another class" else {"t": 3}
    with parallel(counters(3, Stochastic), backend=backend) as env:
        env.reset()
        state = env.get_state()
        play(env, 1, 3)
        now = env.get_state()
        expected = play(env, 2, 5)
        env.set_state(now)
        with pytest.raises(shoal.StateError, match="state of") as caught:
            env.set_state([state[0], other, state[2]])
        assert any(note.startswith("env 1 raised in set_state") for note in caught.value.__notes__)
        assert_same(play(env, 2, 5), expected)


class OneBuffer(PyEnvironment):
    """Observes one array for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def observation_spec(self) -> Any:
        return ArraySpec((2,), np.float32)

    def action_spec(self) -> Any:
        return ArraySpec((), np.int32)

    def _reset(self) -> Any:
        self.buffer[:] = 0
        return restart(self.buffer)

    def _step(self, action: Any) -> Any:
        self.buffer += 1
        return transition(self.buffer, 1.0)


@every_backend
def test_state_keeps_its_time_step_while_the_env_goes_on(backend):
    """Its arrays are the env's own where there is no process in between."""
    with shoal.ParallelPyEnvironment([OneBuffer] * 2, backend=backend) as env:
        env.reset()
        saved, state = env.step(np.zeros(2, np.int32)), env.get_state()
        env.step(np.zeros(2, np.int32))
        env.set_state(state)
        assert_same(env.current_time_step().observation, saved.observation)
        assert env.step(np.zeros(2, np.int32)).observation.tolist() == [[2, 2], [2, 2]]


def test_state_of_another_gymnasium_env_is_refused():
    """Both are wrapped in the same class, which says nothing of what is inside."""
    with shoal.ParallelPyEnvironment([lambda: gym.make("CartPole-v1")]) as env:
        env.reset()
        state = env.get_state()
    with shoal.ParallelPyEnvironment([lambda: gym.make("Pendulum-v1")]) as other:
        first = other.reset()
        with pytest.raises(shoal.StateError, match="other specs"):
            other.set_state(state)
        assert_same(other.current_time_step().observation, first.observation)
