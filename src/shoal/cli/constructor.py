"""Env ids: what is wrong with one, and a constructor for it that any process can call."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium


class _Package(NamedTuple):
    module: str
    extra: str


# Packages whose envs are known to Gymnasium only after somebody imports them.
_NAMESPACES = {"ALE": _Package("ale_py", "atari")}

_VERSION = re.compile(r"-v\d+$")


class UnknownEnvError(ValueError):
    """No env goes by this id, or not until something is installed."""


@dataclass(frozen=True, slots=True)
class EnvConstructor:
    """Makes a Gymnasium env by its id; every contender gets the same constructor.

    Attributes:
        env_id: As for `gymnasium.make`, also `module:Name-v0`.
        kwargs: Keyword arguments for the env.
    """

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Returns a new env, with the wrappers `gymnasium.make` puts around it."""
        _register_namespace(self.env_id)
        return gymnasium.make(self.env_id, **self.kwargs)


def check_env_id(env_id: str) -> None:
    """Raises `UnknownEnvError`, which says what to do, unless envs can be made by this id.

    The id's module is imported, so that its envs are registered; no env is made.
    """
    module, colon, name = env_id.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise UnknownEnvError(
                f"{env_id!r} needs the module {module!r}, which cannot be imported: {type(error).__name__}: {error}."
            ) from error
    try:
        _register_namespace(env_id)
        gymnasium.spec(name)
    except ModuleNotFoundError as error:
        raise UnknownEnvError(f"{env_id!r} needs a package that is not installed: {error}.") from error
    except gymnasium.error.Error as error:
        remedy = (
            "write module:Name-v0 to import the module that registers it"
            if _VERSION.search(name)
            else f"write its version, as in '{name}-v1'"
        )
        raise UnknownEnvError(f"{env_id!r} is not a registered env ({str(error).rstrip('.')}); {remedy}.") from error


def _register_namespace(env_id: str) -> None:
    namespace = env_id.rpartition(":")[2].partition("/")[0]
    package = _NAMESPACES.get(namespace)
    if package is None:
        return
    try:
        module = importlib.import_module(package.module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; pip install 'shoal[{package.extra}]'") from error
    gymnasium.register_envs(module)
