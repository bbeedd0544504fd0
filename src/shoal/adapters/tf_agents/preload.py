"""Whether workers will need tf-agents: importing TensorFlow takes seconds, and is best done once, before forking."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from shoal.worker import by_value

# What is beside an env, not what is in the program.
_OUR_MODULES = ("shoal.adapters.tf_agents.driver", "shoal.adapters.tf_agents.codecs")
THEIR_MODULE = "tf_agents.environments.py_environment"


def modules_for(env_constructors: Sequence[Callable[[], Any]]) -> list[str]:
    """Returns this package and, if unpickling a constructor imports it anyway, tf-agents' `PyEnvironment`."""
    # The same one is often given many times, and looking into one takes milliseconds.
    different = {id(constructor): constructor for constructor in env_constructors}.values()
    if THEIR_MODULE in sys.modules and any(map(_needs_it, different)):
        return [*_OUR_MODULES, THEIR_MODULE]
    return [*_OUR_MODULES]


def _needs_it(constructor: Callable[[], Any]) -> bool:
    try:
        payload = by_value.dumps(constructor)
    except Exception:
        # Sending it will say what is wrong with it.
        return False
    names = {argument for _, argument, _ in pickletools.genops(payload) if isinstance(argument, str)}
    return any(_leads_to_them(name) for name in names)


def _leads_to_them(name: str) -> bool:
    """Tells whether a name in a pickle is that of a module of theirs, or of one that uses theirs."""
    if name.startswith("tf_agents."):
        return True
    module = None if name == "__main__" or name.startswith("shoal") else sys.modules.get(name)
    return module is not None and any(_comes_from_them(value) for value in list(vars(module).values()))


def _comes_from_them(value: Any) -> bool:
    if isinstance(value, type):
        return any(base.__module__.startswith("tf_agents") for base in value.__mro__)
    return str(getattr(value, "__name__", "")).startswith("tf_agents")
