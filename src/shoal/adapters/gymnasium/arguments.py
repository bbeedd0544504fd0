"""What the user may give to a batch of Gymnasium envs, checked and in one form."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium import Env

from shoal.errors import ArgumentError, ArgumentTypeError


def check_env_fns(env_fns: Any) -> list[Callable[[], Any]]:
    """Returns the constructors as a list.

    Raises:
        ArgumentError: There are none.
        ArgumentTypeError: One is no function; the text shows what it should be.
    """
    if isinstance(env_fns, (Env, str)) or callable(env_fns) or not isinstance(env_fns, Iterable):
        raise ArgumentTypeError(
            f"env_fns must be a list of functions that construct an env each, found {env_fns!r}: "
            "[lambda: gymnasium.make('CartPole-v1') for _ in range(8)]"
        )
    functions = list(env_fns)
    if not functions:
        raise ArgumentError("env_fns is empty; give at least one function that constructs an env")
    for index, function in enumerate(functions):
        if isinstance(function, Env):
            raise ArgumentTypeError(
                f"env_fns[{index}] is an env, {function!r}, but must be a function that constructs one: "
                f"lambda: {_constructor(function)}"
            )
        if not callable(function):
            raise ArgumentTypeError(
                f"env_fns[{index}] is non-callable, {function!r}; it must be a function that constructs an env: "
                "lambda: gymnasium.make('CartPole-v1')"
            )
    return functions


def _constructor(env: Env[Any, Any]) -> str:
    """Returns how an env like this one would be made, as code."""
    return f"gymnasium.make({env.spec.id!r})" if env.spec is not None else f"{type(env.unwrapped).__name__}(...)"


def worker_limit(num_workers: int | None, max_concurrency: Any, num_envs: int) -> int | None:
    """Returns `num_workers` within Gymnasium's `max_concurrency`; raises `ArgumentError` for a senseless one."""
    if max_concurrency is None:
        return num_workers
    if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, (int, np.integer)):
        raise ArgumentError(f"`max_concurrency` must be an integer or None, got {type(max_concurrency)}.")
    if max_concurrency < 1:
        raise ArgumentError(f"`max_concurrency` must be a positive or None, got {max_concurrency}.")
    # As many envs run at once as there are workers.
    return min(num_envs if num_workers is None else num_workers, int(max_concurrency))


def choose_start_method(context: str | None, start_method: str | None) -> str:
    """Returns the start method: the argument, Gymnasium's argument, or what the program has set to be different."""
    if context is not None and start_method is not None and context != start_method:
        raise ArgumentError(f"context={context!r} and start_method={start_method!r} differ; give one of them")
    chosen = start_method or context
    if chosen is None and "multiprocessing" in sys.modules:
        import multiprocessing

        chosen = multiprocessing.get_start_method(allow_none=True)
        # The system's own default is set by whoever makes a lock or a queue, so it is no wish of the program.
        if chosen == multiprocessing.get_all_start_methods()[0]:
            chosen = None
    return chosen or "forkserver"


def chosen_infos(infos: Any) -> tuple[str, ...] | None:
    """Returns the keys of infos to deliver, None for all.

    Raises:
        ArgumentTypeError: It is neither `"all"`, keys, nor None.
    """
    if isinstance(infos, str):
        if infos == "all":
            return None
    elif infos is None:
        return ()
    elif isinstance(infos, Iterable):
        keys = tuple(infos)
        if all(isinstance(key, str) for key in keys):
            return keys
    raise ArgumentTypeError(f"infos must be 'all', a list of keys, or None for none, found {infos!r}")
