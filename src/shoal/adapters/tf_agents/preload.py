"""Whether workers will need tf-agents: importing TensorFlow takes seconds, and is best done once, before forking."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from shoal.worker import by_value

_OUR_MODULE = "shoal.adapters.tf_agents"
_THEIR_MODULE = "tf_agents.environments.py_environment"
# A module of theirs by name, and not one of this folder.
_NAMES_THEM = re.compile(rb"(?<!adapters\.)\btf_agents\.")


def modules_for(env_constructors: Sequence[Callable[[], Any]]) -> list[str]:
    """Returns this package and, if unpickling a constructor imports it anyway, tf-agents' `PyEnvironment`."""
    if _THEIR_MODULE in sys.modules and any(_needs_it(constructor) for constructor in env_constructors):
        return [_OUR_MODULE, _THEIR_MODULE]
    return [_OUR_MODULE]


def _needs_it(constructor: Callable[[], Any]) -> bool:
    module = sys.modules.get(getattr(constructor, "__module__", None) or "__main__")
    if module is not None and module.__name__ != "__main__":
        # It is imported by its name, and with it all that it imports.
        return any(_comes_from_them(value) for value in vars(module).values())
    try:
        return _NAMES_THEM.search(by_value.dumps(constructor)) is not None
    except Exception:
        # Sending it will say what is wrong with it.
        return False


def _comes_from_them(value: Any) -> bool:
    if isinstance(value, type):
        return any(base.__module__.startswith("tf_agents") for base in value.__mro__)
    return str(getattr(value, "__name__", "")).startswith("tf_agents")
