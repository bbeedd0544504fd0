"""Gymnasium's interface: its envs inside workers, its `VectorEnv` outside."""

from shoal.adapters.gymnasium.codecs import register_codec
from shoal.adapters.gymnasium.make import make
from shoal.adapters.gymnasium.vector_env import AsyncVectorEnv

__all__ = ["AsyncVectorEnv", "make", "register_codec"]
