"""Batches for the contract, and the plain loop that they are measured against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from shoal.testing.toys import Counter

Make: TypeAlias = Callable[..., Any]  # env_fns and options to a running batch.

# An uneven split over two workers, and over three.
NUM_ENVS = 5


@contextmanager
def closing_all(make: Make) -> Iterator[Make]:
    """Gives the same maker, and closes in the end what it has made."""
    with ExitStack() as stack:

        def make_vec(env_fns: Sequence[Callable[[], Any]], **options: Any) -> Any:
            return stack.enter_context(closing(make(env_fns, **options)))

        yield make_vec


def counters(num_envs: int = NUM_ENVS, **counter: Any) -> list[partial[Counter]]:
    """Returns constructors of counters with indices from 0."""
    return [partial(Counter, index, **counter) for index in range(num_envs)]


def counted(t: int | Sequence[int], num_envs: int = NUM_ENVS) -> Any:
    """Returns what counters observe at time `t`, one for all or one for each: `[B, 1]`."""
    return (100.0 * np.arange(num_envs) + t)[:, None]


def plain_loop(env_fns: Sequence[Callable[[], Any]], seed: int, actions: Any) -> Iterator[tuple[Any, ...]]:
    """Yields what a loop over single envs gives, with a reset instead of the step after an episode's end.

    Args:
        env_fns: Constructors of envs whose observations are arrays.
        seed: Env `i` gets `seed + i`.
        actions: Rows, one for each step, with one action for each env.

    Yields:
        Observations `[B, ...]`, rewards, terminations and truncations `[B]`, of the reset and of each step.
    """
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(env_fn())) for env_fn in env_fns]
        rows = [(env.reset(seed=seed + i)[0], 0.0, False, False) for i, env in enumerate(envs)]
        yield _batch(rows)
        for row_of_actions in actions:
            rows = [
                (env.reset()[0], 0.0, False, False) if before[2] or before[3] else env.step(action)[:4]
                for env, before, action in zip(envs, rows, row_of_actions, strict=True)
            ]
            yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    observations, rewards, terminations, truncations = zip(*rows, strict=True)
    return np.stack(observations), np.array(rewards, float), np.array(terminations), np.array(truncations)
