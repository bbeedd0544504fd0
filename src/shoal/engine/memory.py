"""The memory of a batch: actions in front, result blocks behind, in one segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.engine.options import Options
from shoal.memory import Block, Blocks, Layout, Segment
from shoal.structure import ArrayCodec
from shoal.worker import Attach, Autoreset, Description
from shoal.worker.record import result_groups


class BatchMemory:
    """Where a batch's values are, as the engine sees it.

    Attributes:
        segment: All of it.
        acquire: Returns a block to write results to, None while workers still write to all.
    """

    def __init__(self, description: Description, num_envs: int, options: Options) -> None:
        """Reserves what the batch needs.

        Raises:
            SharedMemoryError: It cannot be had.
        """
        self._description = description
        self._encode = description.action.encode
        self._actions = Layout.of(num_envs, {"action": description.action.leaves})
        self._results = Layout.of(num_envs, result_groups(description, options.autoreset))
        self._num_blocks = Blocks.count_for(self._results) if options.copy else 1
        self.segment = Segment.create(self._actions.nbytes + self._num_blocks * self._results.nbytes)
        self._action_views = self._actions.views(self.segment.buffer, 0)["action"]
        self._blocks = Blocks(self._results, self.segment, self._actions.nbytes, self._num_blocks)
        self.acquire = self._blocks.acquire
        groups = ("reward", "terminated", "truncated")
        self._copy_scalars = [[block.views[group][0].copy for group in groups] for block in self._blocks]
        self._observe = [self._observer(block, description, copy=options.copy) for block in self._blocks]
        self._read_finals = [
            description.observation.reader(self._blocks[index].views["final_observation"])
            for index in range(self._num_blocks)
            if options.autoreset is Autoreset.SAME_STEP
        ]

    def attach(self) -> Attach:
        """Returns the request that hands the memory to the workers."""
        return Attach(0, self._description, self._results, self._actions, self._num_blocks, self.segment)

    def encode_actions(self, actions: Any) -> None:
        """Stores a batch of actions; raises `MisfitError`."""
        self._encode(self._action_views, actions, "action")

    def take_observations(self, block: Block) -> tuple[Any, dict[int, Any]]:
        """Returns the batch of observations, for the caller to keep, and the last ones of ended episodes.

        Returns:
            Observations, `[B, ...]` each leaf; and, by row, the last observations of episodes that ended in a
            same-step autoreset, copies.
        """
        return self._observe[block.index](), self._take_finals(block) if self._read_finals else {}

    def take_scalars(self, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns rewards, terminations and truncations, `[B]` each, copies."""
        copy_rewards, copy_terminations, copy_truncations = self._copy_scalars[block.index]
        return copy_rewards(), copy_terminations(), copy_truncations()

    def _observer(self, block: Block, description: Description, *, copy: bool) -> Callable[[], Any]:
        """Returns what gives a block's observations to the caller."""
        batch = description.observation.batch
        if not copy:
            # The caller holds the buffer itself, made once.
            raw = batch(block.views["observation"])
            return lambda: raw
        if isinstance(description.observation, ArrayCodec) and not block.lends("observation"):
            return block.views["observation"][0].copy
        return lambda: batch(block.take("observation"))

    def _take_finals(self, block: Block) -> dict[int, Any]:
        read = self._read_finals[block.index]
        return {int(row): read(int(row), int(row) + 1)[0] for row in np.flatnonzero(block.views["has_final"][0])}
