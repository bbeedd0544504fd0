"""`ProcessPyEnvironment`, by itself and as a handle on one env of a batch."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from tf_agents_envs import (
    Counter,
    Echo,
    Faulty,
    Marked,
    Meeting,
    Point,
    Reused,
    Talkative,
    counters,
    marked,
    nested_actions,
    observed,
    parallel,
)
from vectors import every_backend, worker_processes

import shoal
from shoal.adapters.tf_agents import (
    ProcessPyEnvironment,
    TimeStep,
    nests,
    restart,
)
from shoal.testing import Fault, faults, wait_until
from shoal.testing.equality import assert_same

pytestmark = pytest.mark.timeout(60)

PROMPT_S = 5.0


@pytest.fixture
def started(request):
    """Gives a function that makes and starts an env, and closes what it has made."""
    made: list[ProcessPyEnvironment] = []

    def start(constructor: Any = Talkative, **options: Any) -> ProcessPyEnvironment:
        made.append(ProcessPyEnvironment(constructor, **options))
        made[-1].start()
        return made[-1]

    yield start
    for env in made:
        env.close()


# --- By itself ---


@every_backend
def test_one_env_in_a_worker(started, backend):
    """Specs, reset, step and autoreset of the env, unbatched, in the types of the specs."""
    env = started(partial(Counter, 1, length=2), backend=backend)
    alone = Counter(1, length=2)
    for name in ("observation_spec", "action_spec", "time_step_spec", "reward_spec", "discount_spec"):
        assert getattr(env, name)() == getattr(alone, name)()
        assert env.call(name)() == getattr(alone, name)()
    seen = [env.step(3), *(env.step(action) for action in range(4))]
    assert all(isinstance(step, TimeStep) for step in seen)
    assert [int(step.step_type) for step in seen] == [0, 1, 2, 0, 1]
    expected = [alone.step(action) for action in (3, 0, 1, 2, 3)]
    for step, own in zip(seen, expected, strict=True):
        assert_same(step, TimeStep(*own))
    assert_same(env.reset(), restart(np.array([100.0])))


@pytest.mark.parametrize("flatten", [False, True])
def test_nested_actions_and_observations_of_one_env(started, flatten):
    """As the env has them, however they travel."""
    env = started(Echo, flatten=flatten)
    env.reset()
    (action,) = nests.rows(nested_actions(3), 1)
    time_step = env.step(action)
    assert isinstance(time_step.observation["at"], Point)
    assert_same(time_step.observation, nests.map_nest(np.asarray, action))


def test_starting_without_waiting(tmp_path):
    """Two envs that wait for each other can only have been started side by side."""
    envs = [ProcessPyEnvironment(partial(Meeting, tmp_path, "constructor", 2, index=index)) for index in range(2)]
    for env in envs:
        env.start(wait_to_start=False)
    for env in envs:
        env.wait_start()
    assert [env.reset().observation.tolist() for env in envs] == [[0], [100]]
    for env in envs:
        env.close()


@pytest.mark.parametrize("use", [lambda env: env.reset(), lambda env: env.observation_spec(), lambda env: env.t])
def test_first_use_waits_for_the_start(use):
    """Nobody needs `wait_start` who just goes on."""
    env = ProcessPyEnvironment(Counter)
    env.start(wait_to_start=False)
    use(env)
    env.close()


@pytest.mark.parametrize("wait", [True, False])
def test_constructor_error_arrives_as_itself(wait):
    """TF-Agents has an `AssertionError` of text, which `python -O` swallows; and it may be tried again."""
    env = ProcessPyEnvironment(partial(Faulty, "constructor"))
    for _ in range(2):
        with pytest.raises(ValueError, match="bad apple"):
            env.start() if wait else (env.start(wait_to_start=False), env.wait_start())
    env.close()


def test_close_while_it_starts(tmp_path):
    """What is being built is closed, too."""
    env = ProcessPyEnvironment(partial(Marked, tmp_path))
    env.start(wait_to_start=False)
    env.close()
    assert marked(tmp_path, "closed") == marked(tmp_path, "built") == [0]


def test_calls_at_the_wrong_moment():
    """Before the start, twice, and after the end; TF-Agents fails with whatever attribute is missing."""
    env = ProcessPyEnvironment(Counter)
    for use in (env.reset, partial(env.step, 0), env.wait_start, env.action_spec, lambda: env.t, env.render):
        with pytest.raises(shoal.StateError, match=r"has not been started; call start\(\) first"):
            use()
    env.start()
    with pytest.raises(shoal.StateError, match="started already"):
        env.start()
    env.close()
    env.close()
    for use in (env.reset, partial(env.step, 0), env.action_spec, lambda: env.t, partial(env.call, "get_t")):
        with pytest.raises(OSError, match="handle is closed"):
            use()


def test_close_before_start():
    """In TF-Agents it is an `AttributeError`; there is nothing to close."""
    before = worker_processes()
    env = ProcessPyEnvironment(Counter)
    env.close()
    env.close()
    assert worker_processes() <= before


@pytest.mark.parametrize("thing", [None, 3, Counter()], ids=["none", "number", "env"])
def test_what_is_no_constructor_is_a_type_error(thing):
    """At once, and not in `start`."""
    with pytest.raises(TypeError, match="env_constructor is non-callable"):
        ProcessPyEnvironment(thing)


@every_backend
def test_promises_are_called_in_any_order_and_more_than_once(started, backend):
    """In TF-Agents a promise is just "receive the next message"."""
    env = started(backend=backend)
    first, second, third = (env.call("add", 10, b=n) for n in range(3))
    assert [third(), first(), second(), first(), third()] == [12, 10, 11, 10, 12]
    reset, step = env.reset(blocking=False), env.step(2, blocking=False)
    assert [step().observation.tolist(), reset().observation.tolist()] == [[1], [0]]
    assert_same(step(), step())
    assert [env.seed(3, blocking=False)(), env.render(blocking=False)().shape] == ["seed 3 in env 0", (4, 6, 3)]


@every_backend
def test_hundred_promises_at_once(started, backend):
    """More than fit into any pipe; each gets its own answer."""
    env = started(backend=backend)
    big = np.zeros(20_000)
    promises = [env.call("add", n, big) for n in range(100)]
    steps = [env.step(0, blocking=False) for _ in range(100)]
    order = list(range(100))
    random.Random(0).shuffle(order)
    assert [promises[n]()[-1] for n in order] == order
    # The first step is a reset.
    assert [steps[n]().observation.tolist() for n in order] == [[n] for n in order]


def test_promise_of_an_error_raises_it_each_time(started):
    """And only there: what was asked after it has its own answer."""
    env = started(partial(Faulty, "step"))
    env.reset()
    failed, fine = env.step(0, blocking=False), env.call("add", 1, 2)
    assert fine() == 3
    for _ in range(2):
        with pytest.raises(ValueError, match="bad apple"):
            failed()
    assert env.step(0).observation.tolist() == [1]


def test_promise_that_nobody_calls(started):
    """Its answer is nobody's, and not the next call's."""
    env = started()
    for n in range(100):
        env.call("add", n)
    assert env.call("add", 1, 1)() == 2


def test_attributes_of_the_env(started):
    """Public ones by their name, private ones by `access`; local names are never looked up there."""
    env = started(partial(Talkative, index=3))
    assert (env.index, env.num_resets) == (3, 0)
    assert env.access("_secret") == "secret of 3"
    with pytest.raises(AttributeError, match="_secret"):
        _ = env._secret
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = env.no_such_thing
    with pytest.raises(AttributeError, match="_no_such_thing"):
        env.access("_no_such_thing")
    assert not hasattr(env, "no_such_thing")
    assert env.index == 3


def test_methods_are_called_where_the_env_is(started):
    """TF-Agents sends the whole env over, and calls the method of that copy."""
    env = started()
    add, get_t = env.add, env.get_t
    assert (add(1, b=2), get_t()) == (3, 0)
    env.reset()
    env.step(0)
    assert (get_t(), env.access("get_t")()) == (1, 1)
    with pytest.raises(TypeError, match="add"):
        add()
    assert env.get_info()["t"] == 1
    assert env.current_time_step().observation.tolist() == [1]


def test_attribute_that_cannot_be_sent_is_an_error_and_nothing_else(started):
    """The worker lives on, and the next call has its own answer."""

    class Holding(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def give(self) -> Any:
            return self.lock

    env = started(Holding)
    with pytest.raises(Exception, match="lock"):
        _ = env.lock
    with pytest.raises(Exception, match="lock"):
        env.call("give")()
    assert env.call("add", 1, 2)() == 3


def test_actions_that_do_not_fit_are_refused(started):
    """As in a batch: the env never sees them."""
    env = started()
    env.reset()
    for action in ([1, 2], 1.5, "left", None):
        with pytest.raises(shoal.MisfitError, match="action"):
            pytest.fail(f"{action!r} was taken: {env.step(action)}")
    assert env.t == 0


@every_backend
def test_promised_steps_are_values_of_their_own(started, backend):
    """Also of an env that rewrites one array for ever, and when the caller reuses its action."""
    env = started(Reused, backend=backend)
    env.reset()
    steps = [env.step(0, blocking=False) for _ in range(3)]
    assert [step().observation.tolist() for step in steps] == [[1], [2], [3]]
    action = np.array(1, np.int32)
    step = env.step(action, blocking=False)
    action[...] = 4
    step()
    assert env.last_action == 1


def test_value_that_does_not_fit_is_named(started):
    """As in a batch."""

    class Wrong(Counter):
        def _observation(self) -> Any:
            return np.zeros(1 + self.t)

    env = started(Wrong)
    env.reset()
    with pytest.raises(shoal.MisfitError, match=r"^env 0: observation: expected float64 of shape \(1,\)"):
        env.step(0)


def test_death_of_the_worker_is_told(started):
    """`EOFError`, as in TF-Agents, and closing does not fail for it."""
    env = started(partial(Faulty, "step", Fault.EXIT))
    env.reset()
    for _ in range(2):
        with pytest.raises(EOFError, match="exit code 3"):
            env.step(0)
    env.close()


def test_hung_env_does_not_survive_close(started):
    """TF-Agents leaves it running."""
    before = worker_processes()
    env = started(partial(Faulty, "step", Fault.HANG), step_timeout=0.3, close_timeout=0.3)
    env.reset()
    promise = env.step(0, blocking=False)
    with pytest.raises(TimeoutError, match="env 0"):
        promise()
    env.close()
    assert worker_processes() <= before


@pytest.mark.parametrize("wait", [True, False])
def test_garbage_collection_without_close(tmp_path, wait):
    """TF-Agents' exit handler keeps every env for ever."""
    before = worker_processes()
    env = ProcessPyEnvironment(partial(Marked, tmp_path))
    env.start(wait_to_start=wait)
    if wait:
        env.reset(blocking=False)
    del env
    gc.collect()
    wait_until(lambda: marked(tmp_path, "closed") == [0], PROMPT_S)
    wait_until(lambda: worker_processes() <= before, PROMPT_S)


# --- As a handle on one env of a batch ---


@every_backend
@pytest.mark.parametrize("num_workers", [1, 3])
def test_handles_are_live(backend, num_workers):
    """What one does through a handle happens to the env of the batch."""
    num_workers = 1 if backend == "serial" else num_workers
    with parallel(counters(3, Talkative), backend=backend, num_workers=num_workers) as env:
        env.reset()
        env.step(np.array([1, 2, 3], np.int32))
        assert [(handle.index, handle.t, handle.last_action) for handle in env.envs] == [
            (0, 1, 1),
            (1, 1, 2),
            (2, 1, 3),
        ]
        assert env.envs[1].step(4).observation.tolist() == [102]
        assert observed(env.step(np.zeros(3, np.int32))) == [2, 103, 202]
        assert env.envs[2].reset().observation.tolist() == [200]
        assert observed(env.step(np.zeros(3, np.int32))) == [3, 104, 201]
        assert env.envs[0].seed(9) == env.envs[0].seed(9, blocking=False)() == "seed 9 in env 0"
        assert env.envs[1].render()[0, 0, 0] == env.envs[1].render(blocking=False)()[0, 0, 0] == 14
        assert env.envs[2].action_spec() == env.action_spec()
        assert env.envs[2].access("_secret") == "secret of 2"


def test_step_through_a_handle_beside_a_batch_step():
    """It takes its turn, and neither gets the other's answer."""
    with parallel(counters(3)) as env:
        env.reset()
        for n in range(20):
            before = env.envs[1].step(0, blocking=False)
            batch = env.step(np.zeros(3, np.int32))
            after = env.envs[1].step(0, blocking=False)
            assert observed(batch) == [n + 1, 100 + 3 * n + 2, 201 + n]
            assert after().observation.tolist() == [100 + 3 * n + 3]
            assert before().observation.tolist() == [100 + 3 * n + 1]


def test_handles_work_side_by_side(tmp_path):
    """Promises of several envs, as programs have them that step envs one by one."""
    with parallel(counters(3, partial(Meeting, tmp_path, "reset", 3))) as env:
        promises = [handle.reset(blocking=False) for handle in env.envs]
        assert [promise().observation.tolist() for promise in promises[::-1]] == [[200], [100], [0]]


def test_batch_starts_anew_after_resets_by_handles():
    """The batch has no current time step then, so its first step is a reset, as in TF-Agents."""
    with parallel(counters(2)) as env:
        for handle in env.envs:
            handle.reset()
            handle.step(0)
        assert observed(env.step(np.zeros(2, np.int32))) == [0, 100]
        assert [handle.num_resets for handle in env.envs] == [2, 2]


@every_backend
def test_closing_one_handle_closes_one_env(tmp_path, backend):
    """The others go on; the batch says which env is gone, in whatever class it says so."""
    with parallel(counters(3, partial(Marked, tmp_path)), backend=backend) as env:
        env.reset()
        env.envs[1].close()
        env.envs[1].close()
        assert marked(tmp_path, "closed") == [1]
        with pytest.raises(OSError, match="handle is closed"):
            env.envs[1].step(0)
        assert env.envs[0].step(0).observation.tolist() == [1]
        for use in (partial(env.step, np.zeros(3, np.int32)), env.reset):
            with pytest.raises(shoal.ClosedError, match="closed") as caught:
                use()
            assert any("env 1" in note for note in caught.value.__notes__)
        assert env.envs[2].reset().observation.tolist() == [200]
    assert marked(tmp_path, "closed") == [0, 1, 2]


@pytest.mark.parametrize("error", [OSError, shoal.ClosedError])
def test_batch_with_a_closed_env_is_an_os_error(error):
    """TF-Agents' class for whatever is done with a closed handle."""
    with parallel(counters(2)) as env:
        env.reset()
        env.envs[1].close()
        with pytest.raises(error, match="closed"):
            env.step(np.zeros(2, np.int32))


def test_closing_a_handle_after_its_worker_died():
    """Closing is what one does then; TF-Agents ignores that the pipe is broken."""
    with parallel(counters(3)) as env:
        env.reset()
        faults.kill(env, 1)
        with pytest.raises(EOFError):
            env.envs[1].reset()
        for handle in env.envs:
            handle.close()


def test_closing_a_handle_on_a_hung_env_is_bounded():
    """In TF-Agents it takes five seconds; here whatever `close_timeout` says, and then the batch can be closed."""
    hung = partial(Faulty, "step", Fault.HANG, index=1)
    with parallel([Counter, hung], close_timeout=0.3) as env:
        env.reset()
        promise = env.envs[1].step(0, blocking=False)
        is_back = threading.Event()

        def close() -> None:
            with contextlib.suppress(shoal.ShoalError):
                env.envs[1].close()
            is_back.set()

        closing = threading.Thread(target=close)
        closing.start()
        was_bounded = is_back.wait(PROMPT_S)
        env.close()
        closing.join()
        del promise
    assert was_bounded


def test_errors_through_a_handle_concern_one_env():
    """The env named, the others unharmed, the batch as it was."""
    with parallel([Talkative, partial(Faulty, "step", index=1), partial(Talkative, index=2)]) as env:
        env.reset()
        with pytest.raises(ValueError, match="bad apple") as caught:
            env.envs[1].step(0)
        assert any(note.startswith("env 1 raised in step") for note in caught.value.__notes__)
        assert observed(env.step(np.zeros(3, np.int32))) == [1, 101, 201]
