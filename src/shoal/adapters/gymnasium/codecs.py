"""How values of Gymnasium's spaces travel; the only place that knows a space."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from gymnasium import spaces
from gymnasium.error import CustomSpaceError as GymnasiumCustomSpaceError

from shoal.errors import ArgumentTypeError
from shoal.structure import ArrayCodec, Codec, Nest


class CustomSpaceError(ArgumentTypeError, GymnasiumCustomSpaceError):
    """A space of a class that shoal does not know."""


def codec_of(space: spaces.Space[Any]) -> Codec:
    """Returns how values of the space travel.

    Raises:
        CustomSpaceError: The space, or one inside it, is of an unknown class.
    """
    tree = tree_of(space)
    codec: Codec = Nest(tree) if isinstance(tree, (dict, tuple)) else tree
    return codec


@singledispatch
def tree_of(space: Any) -> Any:
    """Returns the space's codecs in nested dicts and tuples; classes are registered as with `singledispatch`."""
    raise CustomSpaceError(
        f"Space of type `{type(space)}` is not supported: {space}. Supported are Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of them; wrap the env so that it gives one of these."
    )


@tree_of.register(spaces.Box)
@tree_of.register(spaces.Discrete)
@tree_of.register(spaces.MultiDiscrete)
@tree_of.register(spaces.MultiBinary)
def _array(space: spaces.Space[Any]) -> ArrayCodec:
    assert space.shape is not None
    return ArrayCodec(space.shape, space.dtype)


@tree_of.register(spaces.Dict)
def _dict(space: spaces.Dict) -> dict[str, Any]:
    return {key: tree_of(subspace) for key, subspace in space.spaces.items()}


@tree_of.register(spaces.Tuple)
def _tuple(space: Any) -> tuple[Any, ...]:
    return tuple(tree_of(subspace) for subspace in space.spaces)
