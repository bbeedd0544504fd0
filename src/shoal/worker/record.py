"""A record: one result block as the host writes it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.structure import Leaf
from shoal.worker.autoreset import Autoreset
from shoal.worker.driver import Description


def result_groups(description: Description, autoreset: Autoreset) -> dict[str, Sequence[Leaf]]:
    """Returns the groups of leaves that one result block holds, by name."""
    observation = description.observation.leaves
    groups: dict[str, Sequence[Leaf]] = {
        "observation": observation,
        "reward": (Leaf((), (), np.dtype(np.float64)),),
        "terminated": (Leaf((), (), np.dtype(np.bool_)),),
        "truncated": (Leaf((), (), np.dtype(np.bool_)),),
    }
    if autoreset is Autoreset.SAME_STEP:
        groups["final_observation"] = observation
        groups["has_final"] = (Leaf((), (), np.dtype(np.bool_)),)
    return groups


class Record:
    """Writes a worker's rows of one block.

    Attributes:
        write_observation: Stores one env's observation; takes the row within the batch.
    """

    def __init__(
        self, description: Description, views: dict[str, list[np.ndarray]], first_row: int, last_row: int
    ) -> None:
        """Takes the views `[B, ...]` of the block, and which rows are this worker's."""
        self._first_row = first_row
        self.write_observation = description.observation.writer(views["observation"], "observation")
        # Through a typed array: NumPy would take None for NaN and "1" for a number.
        self._rewards = views["reward"][0].data
        (self._terminations,) = views["terminated"]
        (self._truncations,) = views["truncated"]
        self._has_final: np.ndarray | None = None
        if "final_observation" in views:
            self._write_final = description.observation.writer(views["final_observation"], "final observation")
            (self._has_final,) = views["has_final"]
            self._ended: list[bool] = [False] * (last_row - first_row)

    def write_scalars(
        self, first: int, last: int, rewards: list[Any], terminations: list[Any], truncations: list[Any]
    ) -> None:
        """Stores rewards and flags of rows `first` to `last` at once: one store a line of cache, not one an env."""
        self._rewards[first:last] = array("d", rewards)
        self._terminations[first:last] = terminations
        self._truncations[first:last] = truncations
        if self._has_final is not None:
            start = self._first_row
            self._has_final[first:last] = self._ended[first - start : last - start]
            self._ended[first - start : last - start] = [False] * (last - first)

    def keep_final(self, row: int, observation: Any) -> None:
        """Stores the last observation of an episode."""
        self._write_final(row, observation)
        self._ended[row - self._first_row] = True

    def clear_final(self, first: int, last: int) -> None:
        """Takes back the marks of rows that have no final observation in this batch."""
        if self._has_final is not None:
            self._has_final[first:last] = False
            start = self._first_row
            self._ended[first - start : last - start] = [False] * (last - first)
