"""What a `Call` may have done with an env: functions of its slot, sent by name."""

from __future__ import annotations

from typing import Any

from shoal.worker.host import EnvSlot
from shoal.worker.messages import Call


def call_method(slot: EnvSlot, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *own: Any) -> Any:
    """Calls a method of the env, with arguments of its own behind the others, or reads what is not callable."""
    return slot.driver.call(name, (*args, *own), kwargs)


def has_attribute(slot: EnvSlot, name: str) -> bool:
    """Tells whether the env or one of its wrappers has an attribute."""
    return slot.driver.has_attribute(name)


def set_attribute(slot: EnvSlot, name: str, value: Any) -> None:
    """Sets an attribute of the env."""
    slot.driver.set_attribute(name, value)


def method_call(name: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Call:
    """Returns the request to call a method of envs, or to read an attribute."""
    return Call(0, name, call_method, (name, args, kwargs or {}))
