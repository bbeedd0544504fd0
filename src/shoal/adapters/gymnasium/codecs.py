"""How values of Gymnasium's spaces travel; the only place that knows a space."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError as GymnasiumCustomSpaceError
from gymnasium.spaces import GraphInstance

from shoal.adapters.gymnasium.dispatch import SpaceFunction, is_space_class
from shoal.errors import ArgumentTypeError, MisfitError
from shoal.structure import (
    ArrayCodec,
    Codec,
    ListPacker,
    Nest,
    OneOfCodec,
    PicklePacker,
    RaggedCodec,
    StackPacker,
    TextCodec,
)
from shoal.structure.cast import brief
from shoal.worker import by_value


class CustomSpaceError(ArgumentTypeError, GymnasiumCustomSpaceError):
    """A space of a class that shoal does not know."""


def custom_space_error(message: str, kind: type[CustomSpaceError] = CustomSpaceError) -> CustomSpaceError:
    """Returns the error which, where Gym is in use, is also Gym's."""
    gym_error = sys.modules.get("gym.error")
    if gym_error is not None:
        kind = type(kind.__name__, (kind, gym_error.CustomSpaceError), {"__module__": kind.__module__})
    return kind(message)


class NoSpaceError(CustomSpaceError, ValueError):
    """Something stands where a space should that is none."""


def codec_of(space: Any) -> Codec:
    """Returns how values of the space travel; of a class that nobody has registered, pickled."""
    tree = tree_of(space)
    codec: Codec = Nest(tree) if isinstance(tree, (dict, tuple)) else tree
    return codec


def register_codec(space_class: type, make_codec: Callable[[Any], Codec]) -> None:
    """Has values of spaces of a class, and of classes derived from it, travel by a codec of the caller's.

    Args:
        space_class: The class.
        make_codec: Takes a space and returns its codec (see `shoal.structure`), or a dict or tuple of codecs for
            a space with parts.

    Raises:
        ArgumentTypeError: It is no class of spaces.
    """
    if not is_space_class(space_class):
        raise ArgumentTypeError(f"space_class must be a class of spaces, found {space_class!r}")
    tree_of.register(space_class, make_codec)


def is_custom(space: Any) -> bool:
    """Tells whether nobody has registered the space's class, or one that it derives from."""
    return tree_of.dispatch(type(space)) is _custom


def _custom(_space: Any) -> RaggedCodec:
    return RaggedCodec(PicklePacker(by_value.dumps_back, pickle.loads))


def _no_space(space: Any) -> Any:
    raise NoSpaceError(f"{space!r} of type `{type(space)}` is no space; use one of gymnasium.spaces")


# Returns the space's codecs in nested dicts and tuples.
tree_of = SpaceFunction("tree_of", _custom, _no_space)


def _array(space: Any) -> ArrayCodec:
    return ArrayCodec(space.shape, space.dtype)


for _class in (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary):
    tree_of.provide(_class)(_array)


@tree_of.provide(spaces.Dict)
def _dict(space: Any) -> dict[str, Any]:
    return {key: tree_of(subspace) for key, subspace in space.spaces.items()}


@tree_of.provide(spaces.Tuple)
def _tuple(space: Any) -> tuple[Any, ...]:
    return tuple(tree_of(subspace) for subspace in space.spaces)


@tree_of.provide(spaces.Text)
def _text(space: Any) -> TextCodec:
    return TextCodec(space.max_length, space.character_set)


@tree_of.provide(spaces.OneOf)
def _one_of(space: Any) -> OneOfCodec:
    return OneOfCodec([codec_of(option) for option in space.spaces])


@tree_of.provide(spaces.Sequence)
def _sequence(space: Any) -> RaggedCodec:
    item = codec_of(space.feature_space)
    return RaggedCodec(StackPacker(item) if space.stack else ListPacker(item))


@tree_of.provide(spaces.Graph)
def _graph(space: Any) -> RaggedCodec:
    edge = None if space.edge_space is None else codec_of(space.edge_space)
    return RaggedCodec(GraphPacker(codec_of(space.node_space), edge))


class GraphPacker:
    """A `GraphInstance`: nodes `[N, ...]`, edges `[E, ...]` or None, links `[E, 2]` or None, of any integer type."""

    def __init__(self, node: Codec, edge: Codec | None) -> None:
        """Takes how a node and an edge travel."""
        self._node = StackPacker(node)
        self._edge = None if edge is None else StackPacker(edge)

    def pack(self, value: Any, where: str) -> bytes:
        """Returns the graph as bytes."""
        try:
            nodes, edges, links = value.nodes, value.edges, value.edge_links
        except AttributeError:
            raise MisfitError(where, f"expected a GraphInstance, found {brief(value)}") from None
        if edges is not None and self._edge is None:
            raise MisfitError(f"{where}.edges", "expected None, since the space has no edges, found an array")
        if links is not None:
            links = np.asarray(links)
            if links.dtype.kind not in "iu" or links.ndim != 2 or links.shape[1] != 2:
                raise MisfitError(
                    f"{where}.edge_links",
                    f"expected integers of shape (E, 2), found {links.dtype} of shape {links.shape}",
                )
        parts = (
            self._node.pack(nodes, f"{where}.nodes"),
            None if edges is None or self._edge is None else self._edge.pack(edges, f"{where}.edges"),
            None if links is None else (links.dtype.str, links.shape, links.tobytes()),
        )
        return pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)

    def unpack(self, payload: bytes) -> GraphInstance:
        """Returns the graph, all of its arrays new."""
        nodes, edges, links = pickle.loads(payload) if payload else (b"", None, None)
        return GraphInstance(
            self._node.unpack(nodes),
            None if edges is None or self._edge is None else self._edge.unpack(edges),
            None if links is None else np.frombuffer(bytearray(links[2]), links[0]).reshape(links[1]),
        )
