"""The state of an env that has no way of its own to save it: everything that it is made of, pickled.

Gymnasium's `EzPickle`, a base of many envs, pickles what an env was constructed with and not what has become
of it since; here such an env is taken by its attributes, like any other object.
"""

from __future__ import annotations

import pickle
from typing import Any

from shoal.errors import StateError
from shoal.worker import by_value
from shoal.worker.pickling import find_unpicklable


def capture(env: Any) -> bytes:
    """Returns the state of an env.

    Raises:
        StateError: A part of the env cannot be pickled; the text says which.
    """
    try:
        return by_value.dumps_state(env)
    except Exception as error:
        path = find_unpicklable(vars(env), f"<{type(env).__name__}>")
        raise StateError(
            f"the env's state cannot be saved: {path} cannot be pickled ({type(error).__name__}: {error}); give the "
            "env get_state and set_state methods of its own"
        ) from error


def check(env: Any, state: bytes) -> Any:
    """Returns what the state was taken of, an object of the env's class.

    Raises:
        StateError: It was taken of an env of another class.
    """
    try:
        saved = pickle.loads(state)
    except Exception as error:
        raise StateError(f"this state cannot be read ({type(error).__name__}: {error})") from error
    if type(saved).__qualname__ != type(env).__qualname__:
        raise StateError(
            f"this is the state of a {type(saved).__qualname__}, and the env is a {type(env).__qualname__}; "
            "restore it into envs that are constructed alike"
        )
    return saved


def restore(env: Any, state: bytes) -> None:
    """Brings an env into a state of its own or of one that was constructed alike; raises as `check` does."""
    saved = check(env, state)
    vars(env).clear()
    vars(env).update(vars(saved))
