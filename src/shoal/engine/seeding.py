"""Seeds: one for each env, from whatever the user gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from shoal.errors import ArgumentError, ArgumentTypeError

Seeds = list["int | None"]


def increment(seed: int, num_envs: int) -> Seeds:
    """Returns `seed`, `seed + 1`, ...: Gymnasium's rule."""
    return [seed + index for index in range(num_envs)]


def spawn(seed: int, num_envs: int) -> Seeds:
    """Returns seeds that batches with neighbouring seeds do not share, each of 32 bits, all different."""
    seeds: dict[int, None] = {}
    children = np.random.SeedSequence(seed)
    while len(seeds) < num_envs:
        (child,) = children.spawn(1)
        seeds[int(child.generate_state(1)[0])] = None
    return list(seeds)


SEEDINGS: dict[str, Callable[[int, int], Seeds]] = {"increment": increment, "spawn": spawn}


def seeds_for(seed: Any, num_envs: int, seeding: str) -> Seeds:
    """Returns one seed for each env.

    Args:
        seed: None, one integer, or one integer or None for each env.
        num_envs: `B`.
        seeding: What one integer means.

    Raises:
        ArgumentError: A seed is negative, or there are not `B` of them.
        ArgumentTypeError: A seed is no integer.
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, np.ndarray):
        seed = seed.tolist()
    if isinstance(seed, Sequence) and not isinstance(seed, (str, bytes)):
        if len(seed) != num_envs:
            raise ArgumentError(
                f"If seeds are passed as a list the length must match num_envs={num_envs} but got length={len(seed)}."
            )
        return [None if one is None else _checked(one) for one in seed]
    return SEEDINGS[seeding](_checked(seed), num_envs)


def _checked(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ArgumentTypeError(f"a seed must be a whole number or None, found {seed!r}")
    if seed < 0:
        raise ArgumentError(f"a seed must not be negative, found {seed}")
    return int(seed)
