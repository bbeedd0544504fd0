"""How a batch behaves beside stepping: attributes, errors of envs, wrong calls, and its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import error as gymnasium_error
from gymnasium.spaces import Box, Dict, Discrete, Space
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from shoal import EnvError, RemoteTraceback, StateError
from shoal.testing.contract.makers import NUM_ENVS, Make, counted, counters
from shoal.testing.equality import assert_same
from shoal.testing.faults import Fault, Faulty, Stage
from shoal.testing.toys import Attributed, Counter, Echo

NOTHING = [0] * NUM_ENVS  # Actions that say nothing.

# What a batch can be asked for, to be asked at the wrong moment.
CALLS: dict[str, Callable[[Any], Any]] = {
    "reset": lambda vec: vec.reset(),
    "step": lambda vec: vec.step(NOTHING),
    "reset_async": lambda vec: vec.reset_async(),
    "step_async": lambda vec: vec.step_async(NOTHING),
    "call_async": lambda vec: vec.call_async("render"),
    "call": lambda vec: vec.call("render"),
    "get_attr": lambda vec: vec.get_attr("t"),
    "set_attr": lambda vec: vec.set_attr("goal", 1),
    "render": lambda vec: vec.render(),
}
WAITS: dict[str, Callable[[Any], Any]] = {
    "reset": lambda vec: vec.reset_wait(),
    "step": lambda vec: vec.step_wait(),
    "call": lambda vec: vec.call_wait(),
}

# Batches of actions that fit no batch of envs with that action space.
WRONG_ACTIONS: dict[str, tuple[Space[Any], list[Any]]] = {
    "discrete": (
        Discrete(5),
        [
            np.zeros(2, int),
            np.zeros(6, int),
            [],
            0,
            np.zeros((NUM_ENVS, 1), int),
            np.full(NUM_ENVS, 0.5),
            ["left"] * NUM_ENVS,
            None,
        ],
    ),
    "box": (
        Box(-1, 1, (2,), np.float32),
        [
            np.zeros((2, NUM_ENVS), np.float32),
            np.zeros(NUM_ENVS, np.float32),
            # Too large for its type.
            np.full((NUM_ENVS, 2), 1e39),
            [[0.0, 1.0]] * (NUM_ENVS - 1) + [[0.0]],
        ],
    ),
    "dict": (
        Dict(fire=Discrete(2), move=Box(-1, 1, (2,), np.float32)),
        [
            {"fire": np.zeros(NUM_ENVS, int)},
            {"fire": np.zeros(NUM_ENVS, int), "move": np.zeros((2, 2), np.float32)},
            np.zeros(NUM_ENVS),
        ],
    ),
}


def wrapped() -> Any:
    """Returns an `Attributed` env inside two wrappers."""
    return OrderEnforcing(TimeLimit(Attributed(), 100))


def make_faulty(make_vec: Make, stage: Stage, fault: Fault, at: int, **options: Any) -> Any:
    """Returns a batch of which env 2 has a fault."""
    envs: list[Any] = [partial(Faulty, "call", at=10**9, index=index) for index in range(NUM_ENVS)]
    envs[2] = partial(Faulty, stage, fault, at, 2)
    return make_vec(envs, **options)


class ConductContract:
    """Whatever is asked, the answer is right or a clear error, and the batch goes on."""

    def test_calls_reach_every_env(self, make_vec: Make) -> None:
        """Methods get their arguments, also one named `name`; what is not callable is read."""
        vec = make_vec([Attributed] * 3)
        vec.reset()
        assert vec.call("f", 1, name="z") == ((1, "z"),) * 3
        assert vec.call("add", 2, b=3) == (5, 5, 5)
        assert vec.call("goal") == vec.get_attr("goal") == (0, 0, 0)
        assert vec.get_attr("_private") == ("private",) * 3
        vec.call_async("add", 2, 2)
        assert vec.call_wait() == (4, 4, 4)

    def test_one_value_is_set_on_all(self, make_vec: Make) -> None:
        """Only lists and tuples are taken apart."""
        vec = make_vec([Attributed] * 3)
        for value in ("text", {"k": 1}, 7, None, np.arange(2)):
            vec.set_attr("w", value)
            assert_same(vec.get_attr("w"), (value,) * 3)

    def test_values_are_set_one_by_one_inside_wrappers(self, make_vec: Make) -> None:
        """The env must see its new attribute, not a wrapper's of that name."""
        vec = make_vec([wrapped] * 3)
        vec.reset()
        for values in ([1, 2, 3], (4, 5, 6)):
            vec.set_attr("goal", values)
            assert_same(vec.step([0, 0, 0])[1], np.array(values, float))
            for wrong in (values[:2], [*values, 7], []):
                with pytest.raises(ValueError, match="3"):
                    vec.set_attr("goal", wrong)
            assert vec.get_attr("goal") == tuple(values)

    def test_failing_calls_leave_the_batch_in_order(self, make_vec: Make) -> None:
        """A look at what is not there must not cost the run."""
        vec = make_vec([wrapped] * 3)
        vec.reset()
        with pytest.raises(AttributeError, match="nope"):
            vec.get_attr("nope")
        with pytest.raises(RuntimeError, match="this property is broken"):
            vec.get_attr("broken")
        with pytest.raises(TypeError):
            vec.call("add", 1)
        for name in ("reset", "step", "close"):
            with pytest.raises(ValueError, match=name):
                vec.call(name)
        assert_same(vec.step([0, 0, 0])[0], np.ones((3, 1)))

    def test_frames_come_in_order(self, make_vec: Make) -> None:
        """One for each env, each as the env made it."""
        vec = make_vec(counters(3, render_mode="rgb_array"))
        assert vec.render_mode == "rgb_array"
        vec.reset()
        vec.step([0, 0, 0])
        assert_same(vec.render(), tuple(np.full((4, 6 + i, 3), 1, np.uint8) for i in range(3)))

    def test_an_error_in_step_is_the_envs_own(self, make_vec: Make) -> None:
        """It says what, where and which env; the others have stepped; a reset of that env mends it."""
        vec = make_faulty(make_vec, "step", Fault.RAISE, 3, autoreset_mode="Disabled")
        vec.reset()
        vec.step(NOTHING)
        vec.step(NOTHING)
        with pytest.raises(ValueError, match="bad apple") as caught:
            vec.step(NOTHING)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "faults.py" in str(caught.value.__cause__)
        assert "env 2" in "".join(caught.value.__notes__)
        assert vec.get_attr("t") == (3, 3, 2, 3, 3)
        with pytest.raises(StateError, match="env 2"):
            vec.step(NOTHING)
        assert vec.get_attr("t") == (3, 3, 2, 3, 3)
        observations, _ = vec.reset(options={"reset_mask": np.arange(NUM_ENVS) == 2})
        assert_same(observations, counted([3, 3, 0, 3, 3]))
        assert_same(vec.step(NOTHING)[0], counted([4, 4, 1, 4, 4]))

    def test_an_error_in_reset_is_mended_by_the_next(self, make_vec: Make) -> None:
        """An env whose reset failed has nothing to show, and must not be stepped."""
        vec = make_faulty(make_vec, "reset", Fault.RAISE, 1)
        with pytest.raises(ValueError, match="bad apple"):
            vec.reset()
        with pytest.raises(StateError, match="env 2"):
            vec.step(NOTHING)
        with pytest.raises(StateError, match="env 2"):
            vec.reset(options={"reset_mask": np.arange(NUM_ENVS) != 2})
        assert_same(vec.reset()[0], counted(0))
        assert_same(vec.step(NOTHING)[0], counted(1))

    def test_an_episode_that_ends_beside_an_error_has_ended(self, make_vec: Make) -> None:
        """The error took the results of that step with it, so the caller cannot know; nothing may be stepped."""
        envs = [Counter, partial(Counter, 1, length=1), partial(Faulty, "step", index=2)]
        vec = make_vec(envs, autoreset_mode="Disabled")
        vec.reset()
        with pytest.raises(ValueError, match="bad apple"):
            vec.step([0, 0, 0])
        vec.reset(options={"reset_mask": np.array([False, False, True])})
        with pytest.raises(StateError, match="env 1"):
            vec.step([0, 0, 0])
        assert vec.get_attr("t") == (1, 1, 0)

    @pytest.mark.parametrize(("stage", "name"), [("call", "poke"), ("render", "render")])
    def test_an_error_in_a_call_leaves_the_episode(self, make_vec: Make, stage: Stage, name: str) -> None:
        """Only a failed step or reset needs another reset."""
        vec = make_faulty(make_vec, stage, Fault.RAISE, 1)
        vec.reset()
        with pytest.raises(ValueError, match="bad apple"):
            vec.call(name)
        assert_same(vec.step(NOTHING)[0], counted(1))
        assert vec.call(name) == (None,) * NUM_ENVS

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            (Fault.RAISE_UNPICKLABLE, Exception),
            (Fault.RAISE_MULTI_ARG, Exception),
            (Fault.MEMORY_ERROR, (MemoryError, EnvError)),
            (Fault.KEYBOARD_INTERRUPT, (KeyboardInterrupt, EnvError)),
            (Fault.SYS_EXIT, (SystemExit, EnvError)),
        ],
    )
    def test_any_exception_arrives(self, make_vec: Make, fault: Fault, error: Any) -> None:
        """Also one that cannot travel, and one that is no `Exception`; the batch goes on."""
        vec = make_faulty(make_vec, "step", fault, 1)
        vec.reset()
        with pytest.raises(error) as caught:
            vec.step(NOTHING)
        if error is Exception:
            assert "bad apple" in str(caught.value)
        assert_same(vec.reset()[0], counted(0))
        assert_same(vec.step(NOTHING)[0], counted(1))

    @pytest.mark.parametrize(("space", "batches"), WRONG_ACTIONS.values(), ids=WRONG_ACTIONS)
    def test_wrong_actions_are_refused_before_any_env_steps(
        self, make_vec: Make, space: Any, batches: list[Any]
    ) -> None:
        """Nothing is cut, stretched or wrapped to fit, and a right batch works right after."""
        vec = make_vec([partial(Echo, space, index=index) for index in range(NUM_ENVS)])
        vec.reset(seed=0)
        for t, actions in enumerate(batches, 1):
            with pytest.raises((ValueError, TypeError), match="action"):
                vec.step(actions)
            right = vec.action_space.sample()
            assert_same(vec.step(right)[0], right)
            assert vec.get_attr("t") == (t,) * NUM_ENVS

    def test_a_step_before_the_first_reset_is_an_error(self, make_vec: Make) -> None:
        """There is no observation yet that it could follow."""
        vec = make_vec(counters())
        with pytest.raises(StateError, match="reset"):
            vec.step(NOTHING)
        with pytest.raises(StateError, match="reset"):
            vec.reset(options={"reset_mask": np.arange(NUM_ENVS) > 0})
        assert vec.get_attr("num_resets") == (0,) * NUM_ENVS
        assert_same(vec.reset()[0], counted(0))

    def test_waiting_for_nothing_is_an_error(self, make_vec: Make) -> None:
        """Of Gymnasium's class and in its words, since programs match both."""
        vec = make_vec(counters())
        vec.reset()
        for t, name in enumerate(WAITS, 1):
            said = f"Calling `{name}_wait` without any prior call to `{name}_async`"
            with pytest.raises(gymnasium_error.NoAsyncCallError, match=said) as caught:
                WAITS[name](vec)
            assert isinstance(caught.value, StateError)
            assert caught.value.name == name
            assert_same(vec.step(NOTHING)[0], counted(t))

    @pytest.mark.parametrize("pending", WAITS)
    def test_a_second_call_does_not_disturb_the_first(self, make_vec: Make, pending: str) -> None:
        """It is an error of Gymnasium's class that names what is pending; that can still be finished."""
        vec = make_vec(counters(render_mode="ansi"))
        vec.reset()
        vec.step(NOTHING)
        CALLS[f"{pending}_async"](vec)
        said = f"while waiting for a pending call to `{pending}` to complete"
        for call in CALLS.values():
            with pytest.raises(gymnasium_error.AlreadyPendingCallError, match=said) as caught:
                call(vec)
            assert isinstance(caught.value, StateError)
            assert caught.value.name == pending
        for other in WAITS.keys() - {pending}:
            with pytest.raises(gymnasium_error.NoAsyncCallError, match=f"Calling `{other}_wait`"):
                WAITS[other](vec)
        t = {"reset": 0, "step": 2, "call": 1}[pending]
        assert_same(WAITS[pending](vec)[0], "env 0 at 1" if pending == "call" else counted(t))
        assert_same(vec.step(NOTHING)[0], counted(t + 1))

    @pytest.mark.parametrize("pending", [None, *WAITS])
    def test_closing_ends_it_for_good(self, make_vec: Make, pending: str | None) -> None:
        """With a call pending, too. Twice is once; what says nothing about envs still works."""
        vec = make_vec(counters(), autoreset_mode="SameStep")
        vec.reset()
        if pending:
            CALLS[f"{pending}_async"](vec)
        vec.close()
        vec.close()
        assert vec.closed
        assert type(vec).__name__ in repr(vec)
        assert vec.single_observation_space == Counter().observation_space
        for call in (*CALLS.values(), *WAITS.values()):
            with pytest.raises(gymnasium_error.ClosedEnvironmentError, match=r"after a call to `close\(\)`") as caught:
                call(vec)
            assert isinstance(caught.value, StateError)

    def test_results_outlive_the_batch(self, make_vec: Make) -> None:
        """Evaluation scripts close first and look at what they got later."""
        vec = make_vec(counters())
        observations = vec.reset()[0]
        results = vec.step(NOTHING)
        vec.close()
        del vec
        assert_same((observations, results[0]), (counted(0), counted(1)))
