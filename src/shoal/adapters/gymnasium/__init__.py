"""Gymnasium's interface: its envs inside workers, its `VectorEnv` outside.

Names are loaded when they are first used: workers need only the inside.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.adapters.gymnasium.codecs import register_codec
    from shoal.adapters.gymnasium.factory import make
    from shoal.adapters.gymnasium.vector_env import AsyncVectorEnv

_HOMES = {"AsyncVectorEnv": "vector_env", "make": "factory", "register_codec": "codecs"}

__all__ = ["AsyncVectorEnv", "make", "register_codec"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
