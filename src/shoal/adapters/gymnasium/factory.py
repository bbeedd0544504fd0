"""`shoal.make`: a batch from an id or a function, as `gymnasium.make_vec` makes one."""

from __future__ import annotations

import copy
import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium import Env
from gymnasium.envs.registration import EnvSpec

from shoal.adapters.gymnasium.vector_env import AsyncVectorEnv
from shoal.errors import ArgumentError, ArgumentTypeError

_OF_MAKE_VEC = {
    "vectorization_mode": "use backend='process', 'thread' or 'serial' here",
    "vector_kwargs": "give those arguments directly here",
}
_OPTIONS = frozenset(inspect.signature(AsyncVectorEnv.__init__).parameters) - {"self", "env_fns"}


def make(
    id: str | EnvSpec | Callable[..., Env[Any, Any]],
    num_envs: int = 1,
    *,
    wrappers: Sequence[Callable[[Env[Any, Any]], Env[Any, Any]]] = (),
    env_kwargs: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    **kwargs: Any,
) -> AsyncVectorEnv:
    """Returns a batch of envs.

    Args:
        id: A registered id, also as `"module:Env-v0"`; a spec; or a function that constructs an env.
        num_envs: `B`.
        wrappers: Applied to each env, the first one innermost.
        env_kwargs: Handed to the env's constructor; or one such dict for each env, in a list.
        **kwargs: Those that `AsyncVectorEnv` knows go there; the others are added to `env_kwargs`.

    Raises:
        ArgumentError, ArgumentTypeError: An argument makes no sense.
        gymnasium.error.UnregisteredEnv: There is no such id.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int):
        raise ArgumentTypeError(f"num_envs must be a whole number, found {num_envs!r}")
    if num_envs < 1:
        raise ArgumentError(f"num_envs must be at least 1, found {num_envs}")
    _check_names(kwargs)
    options = {name: value for name, value in kwargs.items() if name in _OPTIONS}
    common = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
    per_env = [{**common, **own} for own in _per_env(env_kwargs, num_envs)]
    if isinstance(id, (str, EnvSpec)):
        # Looked up here, so that a wrong id is an error before anything starts, and sent as it is.
        spec = copy.deepcopy(id if isinstance(id, EnvSpec) else _find_spec(id))
        construct: Callable[..., Env[Any, Any]] = partial(gymnasium.make, spec)
    elif callable(id):
        spec, construct = None, id
    else:
        raise ArgumentTypeError(f"id must be an env id, a spec or a function that constructs an env, found {id!r}")
    envs = AsyncVectorEnv([partial(_construct, construct, own, tuple(wrappers)) for own in per_env], **options)
    if spec is not None:
        # A copy: the functions that construct envs go on using theirs.
        envs.spec = copy.deepcopy(spec)
        envs.spec.kwargs = {**spec.kwargs, **per_env[0], "num_envs": num_envs}
    return envs


def _construct(
    construct: Callable[..., Env[Any, Any]],
    kwargs: dict[str, Any],
    wrappers: Sequence[Callable[[Env[Any, Any]], Env[Any, Any]]],
) -> Env[Any, Any]:
    env = construct(**kwargs)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def _find_spec(id: str) -> EnvSpec:
    """Returns the registered spec, after importing the module that an id like `"module:Env-v0"` names."""
    module, _, name = id.rpartition(":")
    if module:
        importlib.import_module(module)
    return gymnasium.spec(name)


def _check_names(names: Iterable[str]) -> None:
    """Raises for arguments that would go to the env, but are meant for the batch."""
    for name in names:
        if name in _OF_MAKE_VEC:
            raise ArgumentTypeError(f"{name}= belongs to gymnasium.make_vec; {_OF_MAKE_VEC[name]}")
        close = difflib.get_close_matches(name, _OPTIONS, 1, cutoff=0.85)
        if close and name not in _OPTIONS:
            raise ArgumentTypeError(
                f"{name}= is unknown; did you mean {close[0]}=? An env's argument of that name goes into env_kwargs="
            )


def _per_env(env_kwargs: Any, num_envs: int) -> list[dict[str, Any]]:
    if env_kwargs is None:
        return [{}] * num_envs
    if isinstance(env_kwargs, dict):
        return [env_kwargs] * num_envs
    if len(env_kwargs) != num_envs:
        raise ArgumentError(
            f"env_kwargs has {len(env_kwargs)} entries for {num_envs} envs; give one for each, or one dict"
        )
    return list(env_kwargs)
