"""What the user may give to `reset`: seeds, options and which envs, for each env."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.adapters.gymnasium.indices import checked_mask, rows_of, spread
from shoal.engine.seeding import seeds_for
from shoal.errors import ArgumentError, ArgumentTypeError


def reset_arguments(
    seed: Any, options: Any, indices: Any, mask: Any, *, num_envs: int, seeding: str
) -> tuple[list[int | None], list[Any], np.ndarray | None]:
    """Returns each env's seed and options, and the mask `[B]` of envs to reset, None for all.

    Raises:
        ArgumentError: Two arguments say which envs to reset, none is to be reset, or the lengths do not fit.
        ArgumentTypeError: An argument is of the wrong type.
    """
    rows = _rows(indices, mask, num_envs)
    if rows is None:
        seeds = seeds_for(seed, num_envs, seeding)
        return seeds, *split_options(options, num_envs)
    if isinstance(options, dict) and "reset_mask" in options:
        raise ArgumentError("options['reset_mask'] and indices= or mask= both say which envs to reset; give one")
    if isinstance(seed, (list, tuple, np.ndarray)):
        # Spread first, which counts them.
        seeds = seeds_for(spread(seed, rows, num_envs, "seed"), num_envs, seeding)
    else:
        seeds = seeds_for(seed, num_envs, seeding)
    if isinstance(options, (list, tuple)):
        options = spread(options, rows, num_envs, "options")
    chosen = np.zeros(num_envs, np.bool_)
    chosen[rows] = True
    return seeds, split_options(options, num_envs)[0], chosen


def _rows(indices: Any, mask: Any, num_envs: int) -> list[int] | None:
    if indices is not None and mask is not None:
        raise ArgumentError("indices= and mask= both say which envs to reset; give one of them")
    if mask is not None:
        rows: list[int] | None = np.flatnonzero(checked_mask(mask, num_envs, "mask")).tolist()
    else:
        rows = rows_of(indices, num_envs)
    if rows is None:
        return None
    if not rows:
        raise ArgumentError("no env is to be reset; indices= or mask= must name one at least")
    if len(set(rows)) < len(rows):
        raise ArgumentError(f"indices names an env twice: {rows}")
    return rows


def split_options(options: Any, num_envs: int) -> tuple[list[Any], np.ndarray | None]:
    """Returns each env's options, and the mask of envs to reset."""
    if options is None:
        return [None] * num_envs, None
    if isinstance(options, dict):
        mask = _checked_reset_mask(options["reset_mask"], num_envs) if "reset_mask" in options else None
        common = {key: value for key, value in options.items() if key != "reset_mask"}
        return [common] * num_envs, mask
    if isinstance(options, (list, tuple)):
        if len(options) != num_envs:
            raise ArgumentError(f"options has {len(options)} entries for {num_envs} envs; give one for each")
        return list(options), None
    raise ArgumentTypeError(f"options must be a dict, a list with one dict for each env, or None, found {options!r}")


def _checked_reset_mask(mask: Any, num_envs: int) -> np.ndarray:
    if not isinstance(mask, np.ndarray):
        raise ArgumentTypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ArgumentError(f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise ArgumentTypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ArgumentError(
            f"`options['reset_mask']` must contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return mask.copy()
