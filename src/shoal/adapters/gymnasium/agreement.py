"""Whether envs can be one batch, and the spaces that the batch then has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import Space, spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from shoal.adapters.gymnasium.driver import Facts
from shoal.errors import ArgumentError, ArgumentTypeError, SpecMismatchError
from shoal.worker import by_value

Pair = tuple[Space[Any], Space[Any]]  # batched space, single space


@dataclass(frozen=True)
class Agreement:
    """The spaces of a batch.

    Attributes:
        observation_space: Batched.
        single_observation_space: One env's.
        action_space: Batched.
        single_action_space: One env's.
        facts: Those of env 0.
    """

    observation_space: Space[Any]
    single_observation_space: Space[Any]
    action_space: Space[Any]
    single_action_space: Space[Any]
    facts: Facts


def _same(facts: Sequence[Facts]) -> Pair:
    """All observation spaces are equal."""
    first = facts[0].observation_space
    _require(
        facts,
        lambda own: is_same_space(own.observation_space, first),
        "observation_mode='same' however env {index} has the observation space {found}, but env 0 has {expected}; "
        "if only bounds differ and that is meant, use observation_mode='different'",
    )
    return batch_space(first, len(facts)), first


def _different(facts: Sequence[Facts]) -> Pair:
    """Observation spaces have one shape and dtype, and bounds of their own."""
    first = facts[0].observation_space
    _require_equivalent(facts, first)
    return batch_differing_spaces([own.observation_space for own in facts]), first


MODES: dict[str, Callable[[Sequence[Facts]], Pair]] = {"same": _same, "different": _different}


def check_observation_mode(mode: Any) -> None:
    """Raises for an `observation_mode` that is neither a known word nor a pair of spaces."""
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise ArgumentTypeError(
                f"Expected both elements of observation_mode to be Spaces, got {type(mode[0])} and {type(mode[1])}"
            )
    elif not isinstance(mode, str) or mode not in MODES:
        raise ArgumentError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation "
            f"space, actual got {mode!r}"
        )


def agree(facts: Sequence[Facts], observation_mode: Any) -> Agreement:
    """Returns the spaces of a batch of these envs.

    Args:
        facts: Each env's.
        observation_mode: `"same"`, `"different"`, or the pair (batched space, single space).

    Raises:
        SpecMismatchError: Two envs differ; the text says which and how.
    """
    if isinstance(observation_mode, str):
        batched, single = MODES[observation_mode](facts)
    else:
        batched, single = observation_mode
        _require_equivalent(facts, single)
    action_space = facts[0].action_space
    _require(
        facts,
        lambda own: is_same_space(own.action_space, action_space),
        "env {index} has the action space {found}, but env 0 has {expected}; all envs of a batch share one",
        lambda own: own.action_space,
    )
    return Agreement(batched, single, batch_space(action_space, len(facts)), action_space, facts[0])


def is_same_space(a: Any, b: Any) -> bool:
    """Tells whether two spaces are equal; those of a class without `==` are if their attributes are.

    Each env brings spaces of its own, so that Python's identity would tell them all apart.
    """
    if a == b:
        return True
    if type(a) is not type(b):
        return False
    if not any("__eq__" in vars(base) for base in type(a).__mro__[:-1]):
        return _has_same_attributes(a, b)
    if isinstance(a, spaces.Dict):
        return list(a.spaces) == list(b.spaces) and all(map(is_same_space, a.spaces.values(), b.spaces.values()))
    if isinstance(a, (spaces.Tuple, spaces.OneOf)):
        return len(a.spaces) == len(b.spaces) and all(map(is_same_space, a.spaces, b.spaces))
    if isinstance(a, spaces.Sequence):
        return a.stack == b.stack and is_same_space(a.feature_space, b.feature_space)
    if isinstance(a, spaces.Graph):
        return is_same_space(a.node_space, b.node_space) and is_same_space(a.edge_space, b.edge_space)
    return False


def _has_same_attributes(a: Space[Any], b: Space[Any]) -> bool:
    """Tells whether two spaces differ in nothing but their random generators."""
    own, other = ({name: value for name, value in vars(each).items() if name != "_np_random"} for each in (a, b))
    return own.keys() == other.keys() and all(_is_same(own[name], other[name]) for name in own)


def _is_same(a: Any, b: Any) -> bool:
    with contextlib.suppress(Exception):
        if type(a) is type(b) and bool(a == b):
            return True
    # Arrays, say, do not answer with one truth value.
    return by_value.dumps(a) == by_value.dumps(b)


def _require_equivalent(facts: Sequence[Facts], expected: Space[Any]) -> None:
    _require(
        facts,
        lambda own: is_space_dtype_shape_equiv(own.observation_space, expected),
        "env {index} has the observation space {found}, whose shape or dtype is not that of {expected}",
        expected=expected,
    )


def _require(
    facts: Sequence[Facts],
    holds: Callable[[Facts], bool],
    message: str,
    space_of: Callable[[Facts], Space[Any]] = lambda own: own.observation_space,
    expected: Space[Any] | None = None,
) -> None:
    for index, own in enumerate(facts):
        if not holds(own):
            wanted = space_of(facts[0]) if expected is None else expected
            raise SpecMismatchError(message.format(index=index, found=space_of(own), expected=wanted))
