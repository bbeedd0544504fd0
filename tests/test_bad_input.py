"""Wrong input is one clear error, at once; nothing is left running, and a right call works right after."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import error as gymnasium_error
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from gymnasium.wrappers import TimeLimit
from vectors import every_backend, readable, vector, worker_processes

import shoal
from shoal import AsyncVectorEnv
from shoal.testing import Counter, Echo, Pixels, Scripted, Sleeper, process_gone, wait_until
from shoal.testing.equality import assert_same

COUNTERS = [partial(Counter, index) for index in range(3)]


def refused(error: type[Exception], builtin: type[Exception], match: str, make: Callable[[], Any]) -> Exception:
    """Checks that a batch cannot be made, says why in the right class, and leaves no process; returns the error."""
    before = worker_processes()
    with pytest.raises(error, match=match) as caught:
        make().close()
    assert isinstance(caught.value, builtin) and isinstance(caught.value, shoal.ShoalError)
    assert worker_processes() <= before
    return caught.value


# Constructors.


@pytest.mark.parametrize("env_fns", [[], (), iter([])], ids=["list", "tuple", "iterator"])
def test_no_constructors_are_refused(env_fns):
    """A batch of nothing has no spaces; usually a list was filtered too much."""
    refused(shoal.ArgumentError, ValueError, "^env_fns is empty", lambda: AsyncVectorEnv(env_fns))


def test_env_instead_of_its_constructor_is_refused_with_the_fix():
    """The most frequent mistake of all; the message shows what to write, with the id of that very env."""
    env = gym.make("CartPole-v1")
    error = partial(refused, shoal.ArgumentTypeError, TypeError)
    fix = r"must be a function that constructs one: lambda: gymnasium\.make\('CartPole-v1'\)$"
    error(r"^env_fns\[1\] is an env, .*" + fix, lambda: AsyncVectorEnv([partial(gym.make, "CartPole-v1"), env]))
    error(r"^env_fns\[0\] is an env, .*lambda: Counter\(\.\.\.\)$", lambda: AsyncVectorEnv([Counter()] * 2))
    error("^env_fns must be a list of functions .*lambda: gymnasium.make", lambda: AsyncVectorEnv(env))
    env.close()


@pytest.mark.parametrize(
    "env_fns, match",
    [
        (["CartPole-v1"] * 2, r"^env_fns\[0\] is non-callable, 'CartPole-v1'; .*lambda: gymnasium.make"),
        ([Counter, None], r"^env_fns\[1\] is non-callable, None; "),
        ([Counter, (Counter, {})], r"^env_fns\[1\] is non-callable, \("),
        (Counter, "^env_fns must be a list of functions"),
        (lambda: Counter(), "^env_fns must be a list of functions"),
        ("CartPole-v1", r"^env_fns"),
        (None, "^env_fns must be a list of functions"),
        (8, "^env_fns must be a list of functions"),
    ],
    ids=readable,
)
def test_what_is_no_list_of_functions_is_refused(env_fns, match):
    """The index leads to the wrong entry of a long list."""
    refused(shoal.ArgumentTypeError, TypeError, match, lambda: AsyncVectorEnv(env_fns))


@every_backend
def test_any_iterable_of_functions_is_fine(backend):
    """Generators and tuples are read once."""
    with vector((partial(Counter, index) for index in range(3)), backend) as envs:
        assert envs.reset()[0].tolist() == [[0], [100], [200]]


@every_backend
@pytest.mark.parametrize("thing", [None, 5, Counter], ids=readable)
def test_function_that_returns_no_env_is_named(backend, thing):
    """A forgotten `return` is found by the number of its env."""
    env_fns = [Counter, Counter, lambda: thing]
    match = r"^the function must return a gymnasium\.Env, but it returned "
    error = refused(
        shoal.ArgumentTypeError, TypeError, match, lambda: AsyncVectorEnv(env_fns, backend=backend, num_workers=2)
    )
    assert any("env 2" in note for note in error.__notes__)


@pytest.mark.parametrize("backend", ["serial", "thread"])
@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TimeLimit(env, 5)], ids=["bare", "wrapped"])
def test_env_object_that_is_shared_is_refused(backend, num_workers, wrap):
    """Three rows of one state look like three envs, and train on one: also in workers of their own."""
    env = Counter()
    refused(
        shoal.ArgumentError,
        ValueError,
        r"^env_fns\[0\] and env_fns\[1\] return the same env object; each must construct an env of its own",
        lambda: AsyncVectorEnv([lambda: wrap(env)] * 3, backend=backend, num_workers=num_workers),
    )


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("make_fns", [lambda fn: [fn] * 3, lambda fn: [lambda: fn() for _ in range(3)]])
def test_env_object_that_travels_is_a_copy_for_each_row(num_workers, make_fns):
    """A constructor that closes over an env carries a copy of it to each worker process, and for each row."""
    env = Counter()
    with vector(make_fns(lambda: env), "process", num_workers=num_workers) as envs:
        envs.reset()
        envs.step([0, 1, 2])
        assert envs.step([0, 1, 2])[0].tolist() == [[2], [2], [2]]
        assert envs.get_attr("last_action") == (0, 1, 2)
    assert env.t == 0


@every_backend
def test_loop_variable_is_bound_as_python_binds_it(backend):
    """`lambda: Env(i)` sees the last `i`; a batch cannot know that another was meant."""
    with vector([lambda: Counter(i) for i in range(3)], backend) as envs:  # noqa: B023
        assert envs.reset()[0].tolist() == [[200], [200], [200]]
    with vector([lambda i=i: Counter(i) for i in range(3)], backend) as envs:
        assert envs.reset()[0].tolist() == [[0], [100], [200]]


# Spaces.


def observing(space: gym.Space[Any]) -> partial[Scripted]:
    return partial(Scripted, space, None)


def acting(space: gym.Space[Any]) -> partial[Counter]:
    return partial(Counter, action_space=space)


BOX = Box(0, 1, (2,), np.float32)
DIFFERING_SPACES = {
    "bounds": Box(0, 5, (2,), np.float32),
    "shape": Box(0, 1, (3,), np.float32),
    "dtype": Box(0, 1, (2,), np.float64),
    "class": MultiBinary(2),
    "nesting": Dict(a=BOX),
}


@pytest.mark.parametrize(
    "name, backend", [*((name, "serial") for name in DIFFERING_SPACES), ("shape", "thread"), ("shape", "process")]
)
@pytest.mark.parametrize("role", ["observation", "action"])
def test_spaces_that_differ_are_named(name, backend, role):
    """Which env, which space, and both of them in full; the rows of one array cannot have two forms."""
    other = DIFFERING_SPACES[name]
    make = observing if role == "observation" else acting
    env_fns = [make(BOX), make(BOX), make(other), make(BOX)]
    error = refused(
        shoal.SpecMismatchError,
        ValueError,
        rf"env 2 has the {role} space {type(other).__name__}\(.*, but env 0 has Box\(",
        lambda: AsyncVectorEnv(env_fns, backend=backend, num_workers=2),
    )
    assert isinstance(error, RuntimeError), "Gymnasium's class for this"
    assert str(other) in str(error) and str(BOX) in str(error)


def test_bounds_that_differ_are_refused_with_the_argument_that_allows_them():
    """Whoever means it finds the way in the message."""
    env_fns = [observing(BOX), observing(DIFFERING_SPACES["bounds"])]
    make = partial(AsyncVectorEnv, env_fns, backend="serial")
    refused(shoal.SpecMismatchError, ValueError, "env 1 .*use observation_mode='different'", make)
    make(observation_mode="different").close()


@pytest.mark.parametrize("name", ["shape", "dtype", "class", "nesting"])
@pytest.mark.parametrize("mode", ["different", "given"])
def test_spaces_of_another_form_are_refused_in_every_mode(name, mode):
    """Bounds may be each env's own, but the memory for its values may not."""
    pair = (Box(0, 1, (2, 2), np.float32), BOX)
    refused(
        shoal.SpecMismatchError,
        ValueError,
        "^env 1 has the observation space .*, whose shape or dtype is not that of Box",
        lambda: AsyncVectorEnv(
            [observing(BOX), observing(DIFFERING_SPACES[name])],
            backend="serial",
            observation_mode=pair if mode == "given" else mode,
        ),
    )


# Options.


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"num_workers": 0}, shoal.ArgumentError, "^num_workers must be at least 1, found 0$"),
        ({"num_workers": -1}, shoal.ArgumentError, "^num_workers must be at least 1, found -1$"),
        ({"num_workers": 4}, shoal.ArgumentError, "^num_workers=4 is more than the 3 envs; use at most 3"),
        ({"num_workers": 1.5}, shoal.ArgumentTypeError, "^num_workers must be a whole number, found 1.5"),
        ({"num_workers": "2"}, shoal.ArgumentTypeError, "^num_workers must be a whole number, found '2'"),
        ({"num_workers": True}, shoal.ArgumentTypeError, "^num_workers must be a whole number, found True"),
        ({"backend": "tread"}, shoal.ArgumentError, "^backend='tread' is unknown; use one of 'serial', 'thread'"),
        ({"backend": None}, shoal.ArgumentError, "^backend=None is unknown; use one of"),
        ({"start_method": "frok"}, shoal.ArgumentError, "^start_method='frok' is unknown; use one of 'forkserver'"),
        ({"context": "frok"}, shoal.ArgumentError, "'frok' is unknown; use one of 'forkserver'"),
        ({"context": "fork", "start_method": "spawn"}, shoal.ArgumentError, "^context='fork' and start_method='spawn'"),
        ({"autoreset_mode": "Never"}, shoal.ArgumentError, "^autoreset_mode='Never' is unknown; use one of"),
        ({"observation_mode": "equal"}, shoal.ArgumentError, "^Invalid `observation_mode`, expected: 'same' or"),
        ({"observation_mode": (BOX, 5)}, shoal.ArgumentTypeError, "^Expected both elements of observation_mode to be"),
        ({"observation_mode": (BOX,)}, shoal.ArgumentError, "^Invalid `observation_mode`"),
        ({"observation_mode": None}, shoal.ArgumentError, "^Invalid `observation_mode`"),
        ({"worker": print}, shoal.ArgumentTypeError, "^worker= .*use worker_init="),
        ({"max_concurrency": 0}, shoal.ArgumentError, "^`max_concurrency` must be a positive or None, got 0"),
        ({"max_concurrency": "2"}, shoal.ArgumentError, "^`max_concurrency` must be an integer or None"),
        ({"step_timeout": -1}, shoal.ArgumentError, "^step_timeout must not be negative, found -1"),
        ({"step_timeout": "1"}, shoal.ArgumentTypeError, "^step_timeout must be a number of seconds, found '1'"),
        ({"step_timeout": float("nan")}, shoal.ArgumentError, "^step_timeout must not be negative"),
        ({"start_timeout": -0.5}, shoal.ArgumentError, "^start_timeout must not be negative"),
        ({"close_timeout": -1}, shoal.ArgumentError, "^close_timeout must not be negative"),
        ({"close_timeout": None}, shoal.ArgumentTypeError, "^close_timeout must be a number of seconds, found None"),
        ({"worker_init": 5}, shoal.ArgumentTypeError, "^worker_init must be a function without arguments, found 5"),
        ({"worker_threads": 0}, shoal.ArgumentError, "^worker_threads must be at least 1"),
        ({"seeding": "none"}, shoal.ArgumentError, "^seeding='none' is unknown; use one of 'increment', 'spawn'"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)
def test_option_that_makes_no_sense_is_refused(options, error, match):
    """The message has the argument's name, what was found, and what would be right."""
    builtin = TypeError if error is shoal.ArgumentTypeError else ValueError
    refused(error, builtin, match, lambda: AsyncVectorEnv(COUNTERS, **options))


@pytest.mark.parametrize(
    "arguments, error, match",
    [
        ({"id": "CartPole-v1", "num_envs": 0}, shoal.ArgumentError, "^num_envs must be at least 1, found 0"),
        ({"id": "CartPole-v1", "num_envs": "2"}, shoal.ArgumentTypeError, "^num_envs must be a whole number"),
        ({"id": "CartPole-v1", "num_envs": 2, "env_kwargs": [{}]}, shoal.ArgumentError, "2"),
        ({"id": 5}, shoal.ArgumentTypeError, "5"),
    ],
    ids=readable,
)
def test_make_refuses_what_makes_no_batch(arguments, error, match):
    """The short way to a batch is the one that beginners take."""
    builtin = TypeError if error is shoal.ArgumentTypeError else ValueError
    refused(error, builtin, match, lambda: shoal.make(**arguments))


def test_unknown_id_is_gymnasiums_own_error_before_anything_starts():
    """A misspelt id is the error that everybody knows from `gymnasium.make`."""
    before = worker_processes()
    with pytest.raises(gymnasium_error.NameNotFound, match="NoSuchEnv"):
        shoal.make("NoSuchEnv-v0", 2)
    assert worker_processes() <= before


# Observations.

OBSERVED = Dict(
    camera=Box(0, 255, (2, 2), np.uint8),
    state=Tuple((Box(-1, 1, (3,), np.float32), Discrete(4))),
)
GOOD = {"camera": np.zeros((2, 2), np.uint8), "state": (np.zeros(3, np.float32), 1)}
BAD_OBSERVATIONS: list[tuple[Any, str, str]] = [
    ({**GOOD, "camera": np.zeros((2, 3), np.uint8)}, "['camera']", "expected uint8 of shape (2, 2), found uint8 of"),
    ({**GOOD, "camera": np.zeros(4, np.uint8)}, "['camera']", "expected uint8 of shape (2, 2), found uint8 of"),
    ({**GOOD, "camera": np.zeros((1, 2, 2), np.uint8)}, "['camera']", "expected uint8 of shape (2, 2), found"),
    ({**GOOD, "camera": 0}, "['camera']", "expected uint8 of shape (2, 2), found int64 of shape ()"),
    ({**GOOD, "camera": np.full((2, 2), 0.5)}, "['camera']", "expected uint8, found float64"),
    ({**GOOD, "camera": np.full((2, 2), 300)}, "['camera']", "expected uint8, found int64 300, which uint8 cannot"),
    ({**GOOD, "camera": np.full((2, 2), -1)}, "['camera']", "expected uint8, found int64 -1, which uint8 cannot"),
    ({**GOOD, "camera": None}, "['camera']", "expected uint8, found NoneType None"),
    ({**GOOD, "state": (np.full(3, 1e300), 1)}, "['state'][0]", "expected float32, found float64 1e+300, which over"),
    ({**GOOD, "state": (np.zeros(3), 1.5)}, "['state'][1]", "expected int64, found float64"),
    ({**GOOD, "state": (np.zeros(3),)}, "['state']", "expected a tuple of 2, found 1 items"),
    ({**GOOD, "state": {}}, "['state']", "expected a tuple of 2, found a dict"),
    ({"camera": GOOD["camera"]}, "", "key 'state' is missing; expected ['camera', 'state'], found ['camera']"),
    ({}, "", "key 'camera' is missing; expected ['camera', 'state'], found []"),
    (np.zeros(3), "", "expected a dict with keys ['camera', 'state'], found an array of shape (3,)"),
    (None, "", "expected a dict with keys ['camera', 'state'], found a NoneType"),
]


def check_misfit(error: shoal.MisfitError, stage: str, path: str, problem: str) -> None:
    assert isinstance(error, ValueError) and isinstance(error, shoal.ShoalError)
    assert error.where == f"env 1: observation{path}"
    assert error.problem.startswith(problem)
    assert str(error).startswith(f"env 1: observation{path}: {problem}")
    assert any(f"env 1 raised in {stage}: MisfitError" in note for note in error.__notes__)


@pytest.mark.parametrize("bad, path, problem", BAD_OBSERVATIONS, ids=[problem for _, _, problem in BAD_OBSERVATIONS])
def test_observation_that_does_not_fit_is_named(bad, path, problem):
    """Env, path, what was expected, what was found; whoever reads the log can go and mend the env."""
    env_fns = [partial(Scripted, OBSERVED, each) for each in ([GOOD], [GOOD, bad, GOOD], [GOOD])]
    with vector(env_fns, num_workers=2) as envs:
        envs.reset()
        with pytest.raises(shoal.MisfitError) as caught:
            envs.step([0, 0, 0])
        check_misfit(caught.value, "step", path, problem)
        assert envs.get_attr("t") == (1, 1, 1)
        observations, _ = envs.reset()
        assert_same(observations["state"][1], np.ones(3, int))


@every_backend
def test_env_with_a_wrong_observation_goes_on_after_a_reset(backend):
    """The others have stepped and lose nothing; that one must begin anew, and until then is not stepped."""
    ragged = [np.zeros(1), np.zeros(1), np.zeros(2)]
    env_fns = [Counter, partial(Scripted, Counter().observation_space, ragged), partial(Counter, 2)]
    with vector(env_fns, backend, num_workers=2) as envs:
        envs.reset()
        envs.step([0, 0, 0])
        with pytest.raises(shoal.MisfitError) as caught:
            envs.step([0, 0, 0])
        check_misfit(caught.value, "step", "", "expected float64 of shape (1,), found float64 of shape (2,)")
        with pytest.raises(
            shoal.StateError, match=r"^env 1 cannot be stepped: its last step raised MisfitError; reset"
        ):
            envs.step([0, 0, 0])
        assert envs.get_attr("t") == (2, 2, 2)
        assert envs.reset()[0].tolist() == [[0], [0], [200]]
        assert envs.step([0, 0, 0])[0].tolist() == [[1], [0], [201]]


@every_backend
def test_wrong_first_observation_is_an_error_of_the_reset(backend):
    """Most wrong spaces are found here, in the first second of a run."""
    with vector([Counter, partial(Scripted, Counter().observation_space, np.zeros(3))], backend) as envs:
        with pytest.raises(shoal.MisfitError) as caught:
            envs.reset()
        check_misfit(caught.value, "reset", "", "expected float64 of shape (1,), found float64 of shape (3,)")
        with pytest.raises(shoal.StateError, match=r"^env 1 cannot be stepped: its last reset raised MisfitError"):
            envs.step([0, 0])
        assert envs.get_attr("t") == (0, 0)


@every_backend
def test_extra_key_of_an_observation_is_left_out(backend):
    """As in Gymnasium: envs often return more than they declare."""
    extra = {"a": None, "camera": GOOD["camera"], "z": object, "state": GOOD["state"]}
    with vector([partial(Scripted, OBSERVED, each) for each in (GOOD, extra)], backend) as envs:
        observations, _ = envs.reset()
        assert observations.keys() == {"camera", "state"}
        assert envs.observation_space.contains(observations)


@every_backend
def test_wrong_final_observation_is_named_as_such(backend):
    """With same-step autoreset it is another array than the next episode's first."""
    env_fns = [partial(Scripted, Counter().observation_space, [np.zeros(1), np.zeros(2)], terminated=True)]
    with vector(env_fns, backend, autoreset_mode="SameStep") as envs:
        envs.reset()
        with pytest.raises(shoal.MisfitError, match=r"^env 0: final observation: expected float64 of shape \(1,\)"):
            envs.step([0])


# Calls at the wrong moment.


@every_backend
def test_step_before_reset_is_refused(backend):
    """There is nothing to step from: neither stale zeros nor whatever the env happens to do."""
    with vector(COUNTERS, backend) as envs:
        for step in (envs.step, envs.step_async):
            with pytest.raises(shoal.StateError, match=r"^env 0 cannot be stepped: it has not been reset yet; reset"):
                step([0, 0, 0])
        with pytest.raises(gymnasium_error.NoAsyncCallError):
            envs.step_wait()
        envs.reset()
        assert envs.step([0, 0, 0])[0].tolist() == [[1], [101], [201]]


NOTHING = np.zeros(2, int)
MISUSES: dict[str, list[Callable[[Any], Any]]] = {
    # All but the last are preparation.
    "step_wait": [lambda envs: envs.step_wait()],
    "reset_wait": [lambda envs: envs.reset_wait()],
    "call_wait": [lambda envs: envs.call_wait()],
    "step_async, step_async": [lambda envs: envs.step_async(NOTHING), lambda envs: envs.step_async(NOTHING)],
    "step_async, step": [lambda envs: envs.step_async(NOTHING), lambda envs: envs.step(NOTHING)],
    "step_async, reset_async": [lambda envs: envs.step_async(NOTHING), lambda envs: envs.reset_async()],
    "step_async, call": [lambda envs: envs.step_async(NOTHING), lambda envs: envs.call("render")],
    "step_async, set_attr": [lambda envs: envs.step_async(NOTHING), lambda envs: envs.set_attr("x", 1)],
    "reset_async, step_async": [lambda envs: envs.reset_async(), lambda envs: envs.step_async(NOTHING)],
    "call_async, reset": [lambda envs: envs.call_async("render"), lambda envs: envs.reset()],
    "call_async, call_async": [lambda envs: envs.call_async("render"), lambda envs: envs.call_async("render")],
    "close, step": [lambda envs: envs.close(), lambda envs: envs.step(NOTHING)],
    "close, reset": [lambda envs: envs.close(), lambda envs: envs.reset()],
    "close, call": [lambda envs: envs.close(), lambda envs: envs.call("render")],
    "close, step_wait": [lambda envs: envs.close(), lambda envs: envs.step_wait()],
}
OUR_ERRORS: dict[type[Exception], type[Exception]] = {
    gymnasium_error.AlreadyPendingCallError: shoal.PendingCallError,
    gymnasium_error.NoAsyncCallError: shoal.NoPendingCallError,
    gymnasium_error.ClosedEnvironmentError: shoal.ClosedError,
}


def misuse(envs: Any, calls: list[Callable[[Any], Any]]) -> Exception:
    """Returns the error of the last call."""
    envs.reset()
    *preparation, wrong = calls
    for call in preparation:
        call(envs)
    with pytest.raises(Exception) as caught:
        wrong(envs)
    return caught.value


@pytest.fixture
def gymnasium_error_of():
    """Gives a function that returns what Gymnasium raises for a misuse."""

    def error_of(calls):
        envs = gym.vector.AsyncVectorEnv([Counter] * 2, context="fork")
        error = misuse(envs, calls)
        if not envs.closed:
            with warnings.catch_warnings():
                # It says that it waits for the pending call.
                warnings.simplefilter("ignore", UserWarning)
                envs.close()
        return error

    return error_of


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_gymnasiums_error_in_its_words(name, gymnasium_error_of):
    """Programs catch the class, and some read the text; ours may say more, but begins the same."""
    expected = gymnasium_error_of(MISUSES[name])
    for backend in ("serial", "process"):
        with vector([Counter] * 2, backend) as envs:
            error = misuse(envs, MISUSES[name])
        assert isinstance(error, type(expected)) and isinstance(error, OUR_ERRORS[type(expected)])
        assert isinstance(error, shoal.StateError) and isinstance(error, RuntimeError)
        assert str(error).startswith(str(expected))
        assert getattr(error, "name", None) == getattr(expected, "name", None)


PENDING = {
    "reset": (lambda envs: envs.reset_async(), lambda envs: envs.reset_wait()[0].tolist(), [[0], [100], [200]]),
    "step": (lambda envs: envs.step_async([1, 2, 3]), lambda envs: envs.step_wait()[0].tolist(), [[2], [102], [202]]),
    "call": (lambda envs: envs.call_async("render"), lambda envs: envs.call_wait(), (None, None, None)),
}


@every_backend
@pytest.mark.parametrize("pending", PENDING)
def test_refused_call_does_not_disturb_the_pending_one(backend, pending):
    """Finishing it gives the right rows, and the batch goes on."""
    start, finish, expected = PENDING[pending]
    with vector(COUNTERS, backend, num_workers=2) as envs:
        envs.reset()
        envs.step([0, 0, 0])
        start(envs)
        for wrong in (
            lambda: envs.reset(),
            lambda: envs.step([4, 4, 4]),
            lambda: envs.reset_async(),
            lambda: envs.step_async([4, 4, 4]),
            lambda: envs.call("render"),
            lambda: envs.call_async("render"),
            lambda: envs.get_attr("t"),
            lambda: envs.set_attr("t", 77),
            lambda: envs.render(),
        ):
            with pytest.raises(shoal.PendingCallError, match=f"waiting for a pending call to `{pending}` to complete"):
                wrong()
        for name in PENDING.keys() - {pending}:
            with pytest.raises(shoal.NoPendingCallError):
                getattr(envs, f"{name}_wait")()
        assert finish(envs) == expected
        with pytest.raises(shoal.NoPendingCallError):
            finish(envs)
        envs.step([0, 0, 0])


# The end.


@every_backend
def test_closed_batch_says_so_and_nothing_else(backend):
    """Every use is the one error; closing again, and what says nothing of the envs, is fine."""
    with vector(COUNTERS, backend) as envs:
        envs.reset()
        pids, name = envs.worker_pids, repr(envs)
        envs.close()
        envs.close()
        envs.close_extras()
        for use in (
            lambda: envs.reset(),
            lambda: envs.reset(seed=-1),
            lambda: envs.step([0, 0, 0]),
            lambda: envs.step(None),
            lambda: envs.reset_async(),
            lambda: envs.step_async([0, 0, 0]),
            lambda: envs.reset_wait(),
            lambda: envs.step_wait(),
            lambda: envs.call("render"),
            lambda: envs.call_async("render"),
            lambda: envs.call_wait(),
            lambda: envs.get_attr("t"),
            lambda: envs.set_attr("t", 1),
            lambda: envs.render(),
            lambda: envs.np_random,
        ):
            with pytest.raises(gymnasium_error.ClosedEnvironmentError, match="after a call to `close") as caught:
                use()
            assert isinstance(caught.value, shoal.ClosedError)
        assert repr(envs) == name and envs.closed and envs.num_envs == 3
        assert envs.action_space.contains(envs.action_space.sample())
        assert envs.single_observation_space == Counter().observation_space
        if backend == "process":
            assert all(map(process_gone, pids))


@every_backend
@pytest.mark.parametrize("pending", PENDING)
def test_close_with_a_call_pending_is_quiet(backend, pending, capfd):
    """A program that stops in the middle of a step must not hang, nor print a traceback."""
    with vector(COUNTERS, backend) as envs:
        envs.reset()
        PENDING[pending][0](envs)
        envs.close()
        with pytest.raises(shoal.ClosedError):
            PENDING[pending][1](envs)
    assert capfd.readouterr() == ("", "")


class Closing(Counter):
    """Writes down that it was closed."""

    closed: list[int] = []  # noqa: RUF012

    def close(self):
        self.closed.append(self.index)


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_envs_are_closed_once_however_often_the_batch_is(backend):
    """An env that talks to a device must be able to let go of it, and may not stand doing so twice."""
    Closing.closed = []
    with vector([partial(Closing, index) for index in range(3)], backend, num_workers=2) as envs:
        envs.reset()
        envs.close()
        envs.close()
    assert sorted(Closing.closed) == [0, 1, 2]


def fail_in(envs: Any) -> None:
    with pytest.raises(ValueError):
        envs.reset(seed=-1)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "idle": lambda envs: None,
    "reset": lambda envs: envs.reset(),
    "pending": lambda envs: (envs.reset(), envs.step_async([0] * envs.num_envs)),
    "cycle": lambda envs: setattr(envs, "myself", [envs]),
    "failed": fail_in,
}


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("shoal-worker")]


@every_backend
@pytest.mark.parametrize("state", HOLDERS)
def test_dropped_batch_is_gone_without_a_word(backend, state, capfd):
    """Notebooks overwrite their batch without closing it: workers must go, and nothing may be printed."""
    envs = AsyncVectorEnv(COUNTERS, backend=backend)
    gone = weakref.ref(envs)
    pids = [] if backend != "process" else envs.worker_pids
    HOLDERS[state](envs)
    del envs
    gc.collect()
    assert gone() is None
    wait_until(lambda: all(map(process_gone, pids)), 5)
    wait_until(lambda: not worker_threads(), 5)
    assert capfd.readouterr() == ("", "")


@every_backend
def test_dropped_batch_is_not_waited_for_long(backend, capfd):
    """Also while its envs are in the middle of a step, the program goes on and the workers go."""
    envs = AsyncVectorEnv([partial(Sleeper, 0.3)] * 2, backend=backend, num_workers=2)
    pids = [] if backend != "process" else envs.worker_pids
    envs.reset()
    envs.step_async([0, 0])
    del envs
    gc.collect()
    wait_until(lambda: all(map(process_gone, pids)), 5)
    wait_until(lambda: not worker_threads(), 5)
    assert capfd.readouterr() == ("", "")


@every_backend
def test_batch_that_only_a_traceback_holds_goes_with_it(backend):
    """An error that is looked at later, as notebooks do, keeps the batch; letting go of the error ends it."""

    def fail():
        envs = AsyncVectorEnv([partial(Echo, Discrete(2))] * 2, backend=backend)
        envs.reset()
        envs.step([0, 0, 0])
        return envs.worker_pids

    with pytest.raises(shoal.MisfitError) as caught:
        fail()
    before = worker_processes()
    assert bool(before) == (backend == "process")
    del caught
    gc.collect()
    wait_until(lambda: not worker_processes() and not worker_threads(), 5)


@every_backend
@pytest.mark.parametrize("shape", [(2,), (64, 64, 4)], ids=["small", "large"])
def test_results_outlive_a_dropped_batch(backend, shape):
    """Arrays that lie in the batch's memory keep it; reading them later must not end the program."""
    envs = AsyncVectorEnv([partial(Pixels, shape, index=index) for index in range(2)], backend=backend)
    kept = [envs.reset()[0], envs.step([0, 0])[0]]
    del envs
    gc.collect()
    for t, batch in enumerate(kept):
        assert_same(batch, np.stack([Pixels.frame(index, t, shape) for index in range(2)]))
