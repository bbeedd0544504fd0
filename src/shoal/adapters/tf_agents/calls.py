"""What the faces ask of an env beside stepping and resetting the batch: functions of its slot."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from shoal.adapters.tf_agents.driver import find_attribute
from shoal.adapters.tf_agents.facts import Facts
from shoal.errors import StateError
from shoal.worker.host import EnvSlot
from shoal.worker.state import capture, check, restore


@dataclass(frozen=True)
class RemoteMethod:
    """Stands for a method of an env, which stays where it is."""

    name: str


@dataclass(frozen=True)
class EnvState:
    """Where an env was.

    Attributes:
        own: What the env's `get_state` gave, None if it has none.
        pickled: All of the env, pickled, if it has no `get_state`.
        time_step: Its current time step, a plain tuple; None before the first reset.
    """

    own: Any
    pickled: bytes | None
    time_step: tuple[Any, ...] | None


def access(slot: EnvSlot, name: str) -> Any:
    """Returns an attribute of the env, or what stands for it if it is a method."""
    attribute = find_attribute(slot.driver.env, name)
    if getattr(attribute, "__self__", None) is not None and callable(attribute):
        return RemoteMethod(name)
    return attribute


def step(slot: EnvSlot, action: Any) -> tuple[Any, ...]:
    """Steps the env by itself and returns its time step, a plain tuple."""
    # A copy, since it may be read after the env's next step.
    return copy.deepcopy(tuple(slot.driver.step(action)[0]))


def reset(slot: EnvSlot) -> tuple[Any, ...]:
    """Resets the env by itself and returns its time step, a plain tuple."""
    return copy.deepcopy(tuple(slot.restart()[0]))


def close(slot: EnvSlot) -> None:
    """Closes the env; whatever it is asked from then on is an error."""
    slot.driver.close()
    slot.resume()


def close_env(slot: EnvSlot) -> None:
    """Closes an env that its driver leaves open, because it belongs to somebody else."""
    slot.driver.env.close()


def get_state(slot: EnvSlot) -> EnvState:
    """Returns the env's state: by its own `get_state`, or else all of it."""
    env = slot.driver.env
    current = env._current_time_step
    # Copies: the env may use its arrays again.
    time_step = None if current is None else copy.deepcopy(tuple(current))
    try:
        own = env.get_state()
    except NotImplementedError:
        return EnvState(None, capture(env), time_step)
    return EnvState(copy.deepcopy(own), None, time_step)


def check_state(slot: EnvSlot, state: EnvState) -> None:
    """Raises `StateError` if it is no state of such an env."""
    if not isinstance(state, EnvState):
        raise StateError(f"expected a state of `get_state`, found {state!r}")
    if state.pickled is not None:
        env = slot.driver.env
        if Facts.of(check(env, state.pickled)) != Facts.of(env):
            raise StateError(f"this is the state of an env with other specs than {env}; restore it where it belongs")


def set_state(slot: EnvSlot, state: EnvState) -> tuple[Any, ...] | None:
    """Brings the env into a state, and returns its time step there, a plain tuple."""
    env = slot.driver.env
    if state.pickled is not None:
        restore(env, state.pickled)
    else:
        time_step_class = type(env.time_step_spec())
        env.set_state(copy.deepcopy(state.own))
        env._current_time_step = None if state.time_step is None else time_step_class(*copy.deepcopy(state.time_step))
    slot.resume()
    return state.time_step
