"""What stands in for the import of `gym.vector.utils` or `gymnasium.vector.utils`.

Every function takes its arguments in the order of either generation. Functions that need no shared memory are
Gymnasium's own; what is added is that they also work for spaces of no fixed size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gymnasium import spaces
from gymnasium.vector import utils

from shoal.adapters.gymnasium.codecs import CustomSpaceError, NoSpaceError, is_custom
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
    raise CustomSpaceError(
        f"Unable to iterate over {items}, since {space} is a custom `gym.Space` instance (i.e. not one of `Box`, "
        f"`Dict`, etc...). Space of type `{type(space)}` doesn't have an registered `iterate` function."
    )


def _no_space(value: Any, *_args: Any, **_kwargs: Any) -> Any:
    raise NoSpaceError(f"Space of type `{type(value)}` is not a valid `gym.Space` instance: {value!r}")


class NotIterableError(ArgumentTypeError):
    """What should be a batch cannot be iterated over."""


iterate = SpaceFunction(_iterate_custom, _no_space)
iterate.__doc__ = """Yields the values of a batch, one for each env.

Args:
    space: The batched space.
    items: The batch.

Raises:
    CustomSpaceError: The space is of a class that nobody has registered.
    TypeError: The batch cannot be iterated over.
    ValueError: Its parts are of unequal length.
"""


@iterate.register(spaces.Box)
@iterate.register(spaces.MultiDiscrete)
@iterate.register(spaces.MultiBinary)
def _iterate_array(space: Any, items: Any) -> Iterator[Any]:
    try:
        return iter(items)
    except TypeError:
        raise NotIterableError(f"Unable to iterate over the following elements: {items}") from None


@iterate.register(spaces.Discrete)
def _iterate_discrete(space: Any, items: Any) -> Iterator[Any]:
    raise NotIterableError("Unable to iterate over a space of type `Discrete`.")


@iterate.register(spaces.Tuple)
def _iterate_tuple(space: Any, items: Any) -> Iterator[Any]:
    # A batch of values that are no arrays is a tuple of them, and its space a Tuple of as many spaces.
    if all(_is_single(part) for part in space.spaces):
        return iter(items)
    if any(is_custom(part) for part in space.spaces):
        custom = next(part for part in space.spaces if is_custom(part))
        return _iterate_custom(custom, items)
    return zip(*(iterate(part, item) for part, item in zip(space.spaces, items, strict=True)), strict=True)


@iterate.register(spaces.Dict)
def _iterate_dict(space: Any, items: Any) -> Iterator[Any]:
    if not space.spaces:
        raise ArgumentError("Unable to iterate over a batch of an empty Dict space: it does not say how many there are")
    parts = [iterate(part, items[key]) for key, part in space.spaces.items()]
    return (dict(zip(space.spaces, values, strict=True)) for values in zip(*parts, strict=True))


def _is_single(space: Any) -> bool:
    """Tells whether a space is one env's part of a batch of values that are no arrays."""
    return is_custom(space) or isinstance(space, (spaces.Text, spaces.Sequence, spaces.Graph, spaces.OneOf))


def _calls(function: Callable[..., Any]) -> SpaceFunction:
    """Returns one of Gymnasium's functions with the space in any place."""
    return SpaceFunction(function, _no_space)


batch_space = _calls(utils.batch_space)
concatenate = _calls(utils.concatenate)
create_empty_array = _calls(utils.create_empty_array)
