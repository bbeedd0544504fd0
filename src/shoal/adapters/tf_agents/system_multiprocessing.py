"""What TF-Agents' `system.system_multiprocessing` offers, for programs that call it.

shoal needs none of it: workers start from scripts, notebooks and stdin alike. State savers are heeded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shoal.worker import by_value

_state_savers: list[StateSaver] = []


class StateSaver:
    """Carries global state of the program into the workers."""

    def collect_state(self) -> Any:
        """Returns the state; called in the program when workers are started."""
        raise NotImplementedError(f"{type(self).__name__} has no collect_state method")

    def restore_state(self, state: Any) -> None:
        """Puts the state in place; called in each worker before its envs are constructed."""
        raise NotImplementedError(f"{type(self).__name__} has no restore_state method")


def initialized() -> bool:
    """Returns True: there is nothing to initialise."""
    return True


def get_context(method: str | None = None) -> Any:
    """Returns the `multiprocessing` context of that name."""
    return multiprocessing.get_context(method)


def handle_main(
    parent_main_fn: Callable[..., Any], *args: Any, extra_state_savers: Sequence[StateSaver] = (), **kwargs: Any
) -> Any:
    """Runs a program's main function with its command line, by `absl.app.run` where absl is installed."""
    _state_savers.extend(extra_state_savers)
    if importlib.util.find_spec("absl") is not None:
        from absl import app

        return app.run(parent_main_fn, *args, **kwargs)
    return sys.exit(parent_main_fn(sys.argv))


def handle_test_main(
    parent_main_fn: Callable[..., Any], *args: Any, extra_state_savers: Sequence[StateSaver] = (), **kwargs: Any
) -> Any:
    """Calls the function and returns what it returns."""
    _state_savers.extend(extra_state_savers)
    return parent_main_fn(*args, **kwargs)


def enable_interactive_mode(extra_state_savers: Sequence[StateSaver] | None = None) -> None:
    """Does nothing but remember state savers."""
    _state_savers.extend(extra_state_savers or ())


def state_setups(*, have_tf_agents: bool) -> list[Callable[[], Any]]:
    """Returns what workers call to have the state of all savers, those given to TF-Agents' own module among them.

    A state that cannot be pickled is passed over, as TF-Agents does.

    Args:
        have_tf_agents: Whether the workers import TF-Agents anyway. If not, the savers that TF-Agents brings
            itself, for Gym's registry, are left out: they would have every worker import TensorFlow.
    """
    theirs = sys.modules.get("tf_agents.system.default.multiprocessing_core")
    setups: list[Callable[[], Any]] = []
    for saver in (*_state_savers, *getattr(theirs, "_STATE_SAVERS", ())):
        if type(saver).__module__.startswith("tf_agents.") and not have_tf_agents:
            continue
        setup = partial(saver.restore_state, saver.collect_state())
        with contextlib.suppress(TypeError, pickle.PicklingError):
            by_value.dumps(setup)
            setups.append(setup)
    return setups
