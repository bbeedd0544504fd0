"""What stands in for the import of `gym.vector.utils` or `gymnasium.vector.utils`.

Every function takes its arguments in the order of either generation. Functions that need no shared memory are
Gymnasium's own; what is added is that they also work for spaces of no fixed size.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from gymnasium import Space, spaces
from gymnasium.vector import utils

from shoal.adapters.gymnasium.codecs import CustomSpaceError, NoSpaceError, custom_space_error
from shoal.adapters.gymnasium.dispatch import SpaceFunction
from shoal.adapters.gymnasium.shared_memory import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from shoal.errors import ArgumentError, ArgumentTypeError

CloudpickleWrapper = utils.CloudpickleWrapper
clear_mpi_env_vars = utils.clear_mpi_env_vars

__all__ = [
    "CloudpickleWrapper",
    "CustomSpaceError",
    "batch_differing_spaces",
    "batch_space",
    "clear_mpi_env_vars",
    "concatenate",
    "create_empty_array",
    "create_shared_memory",
    "iterate",
    "read_from_shared_memory",
    "write_to_shared_memory",
]


def _iterate_custom(space: Any, items: Any) -> Iterator[Any]:
    """Raises `CustomSpaceError`: what the parts of such a batch are is not known."""
    raise custom_space_error(
        f"Unable to iterate over {items}, since {space} is a custom `gym.Space` instance (i.e. not one of `Box`, "
        f"`Dict`, etc...). Space of type `{type(space)}` doesn't have an registered `iterate` function."
    )


def _no_space(value: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    raise custom_space_error(
        f"Space of type `{type(value)}` is not a valid `gym.Space` instance: {value!r}", NoSpaceError
    )


class NotIterableError(ArgumentTypeError):
    """What should be a batch cannot be iterated over."""


iterate = SpaceFunction("iterate", _iterate_custom, _no_space)
iterate.__doc__ = """Yields the values of a batch, one for each env.

Args:
    space: The batched space.
    items: The batch.

Raises:
    CustomSpaceError: The space is of a class that nobody has registered.
    TypeError: The batch cannot be iterated over.
    ValueError: Its parts are of unequal length.
"""


@iterate.provide(spaces.Box)
@iterate.provide(spaces.MultiDiscrete)
@iterate.provide(spaces.MultiBinary)
def _iterate_array(space: Any, items: Any) -> Iterator[Any]:
    try:
        return iter(items)
    except TypeError:
        raise NotIterableError(f"Unable to iterate over the following elements: {items}") from None


@iterate.provide(spaces.Discrete)
def _iterate_discrete(space: Any, items: Any) -> Iterator[Any]:
    raise NotIterableError("Unable to iterate over a space of type `Discrete`.")


@iterate.provide(spaces.Tuple)
def _iterate_tuple(space: Any, items: Any) -> Iterator[Any]:
    # A batch of values that are no arrays is a tuple of them, and its space a Tuple of as many spaces.
    if all(_is_single(part) for part in space.spaces):
        return iter(items)
    return zip(*(iterate(part, item) for part, item in zip(space.spaces, items, strict=True)), strict=True)


@iterate.provide(spaces.Dict)
def _iterate_dict(space: Any, items: Any) -> Iterator[Any]:
    if not space.spaces:
        raise ArgumentError("Unable to iterate over a batch of an empty Dict space: it does not say how many there are")
    parts = [iterate(part, items[key]) for key, part in space.spaces.items()]
    return (OrderedDict(zip(space.spaces, values, strict=True)) for values in zip(*parts, strict=True))


def _is_single(space: Any) -> bool:
    """Tells whether a space is one env's part of a batch of values that are no arrays."""
    return iterate.dispatch(type(space)) is _iterate_custom


def _calls(name: str) -> SpaceFunction:
    """Returns a function of Gymnasium's, and of Gym's for its spaces, with the space in any place."""

    def call(space: Any, *args: Any, **kwargs: Any) -> Any:
        home = utils
        if not isinstance(space, Space):
            # Whoever has such a space has Gym.
            home = importlib.import_module("gym.vector.utils")
        return getattr(home, name)(space, *args, **kwargs)

    return SpaceFunction(name, call, _no_space)


batch_space = _calls("batch_space")
concatenate = _calls("concatenate")
create_empty_array = _calls("create_empty_array")
batch_differing_spaces = utils.batch_differing_spaces
# What Gym calls the spaces whose values are arrays.
_BaseGymSpaces = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
