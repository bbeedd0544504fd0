"""The memory of a batch: actions in front, result blocks behind, in one segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.engine.options import Options
from shoal.errors import MisfitError
from shoal.memory import Block, Blocks, Heap, Layout, Segment
from shoal.structure import ArrayCodec
from shoal.worker import Attach, Autoreset, Description
from shoal.worker.messages import ACTIONS
from shoal.worker.record import result_groups


class BatchMemory:
    """Where a batch's values are, as the engine sees it.

    Attributes:
        segment: All values of fixed size, and where the others are.
        num_blocks: How many result blocks there are.
        files: All of it, for whoever closes it.
        acquire: Returns a block to write results to, None while workers still write to all.
    """

    def __init__(self, description: Description, rows: Sequence[tuple[int, int]], options: Options) -> None:
        """Reserves what the batch needs, given each worker's rows.

        Raises:
            SharedMemoryError: It cannot be had.
        """
        self._description = description
        num_envs = rows[-1][1]
        self._encode = description.action.encode
        self._actions = Layout.of(num_envs, {"action": description.action.leaves})
        self._results = Layout.of(num_envs, result_groups(description, options.autoreset))
        self.num_blocks = Blocks.count_for(self._results) if options.copy else 1
        self.segment = Segment.create(self._actions.nbytes + self.num_blocks * self._results.nbytes)
        self._heaps = _make_heaps(description, len(rows))
        self.files: list[Segment | Heap] = [self.segment, *self._heaps.values()]
        written = [self._heaps[ACTIONS]] * num_envs if self._heaps else ()
        read = [self._heaps[worker] for worker, span in enumerate(rows) if self._heaps for _ in range(*span)]
        self._action_views = self._actions.views(self.segment.buffer, 0, written)["action"]
        self._blocks = Blocks(self._results, self.segment, self._actions.nbytes, self.num_blocks, read)
        self.acquire = self._blocks.acquire
        groups = ("reward", "terminated", "truncated")
        self._copy_scalars = [[block.views[group][0].copy for group in groups] for block in self._blocks]
        self._observe = [self._observer(block, description, copy=options.copy) for block in self._blocks]
        self._read_finals = [
            description.observation.reader(self._blocks[index].views["final_observation"])
            for index in range(self.num_blocks)
            if options.autoreset is Autoreset.SAME_STEP
        ]

    def attach(self) -> Attach:
        """Returns the request that hands the memory to the workers."""
        return Attach(0, self._description, self._results, self._actions, self.num_blocks, self.segment, self._heaps)

    def encode_actions(self, actions: Any) -> None:
        """Stores a batch of actions; raises `MisfitError`."""
        try:
            self._encode(self._action_views, actions, "action")
        except MisfitError as misfit:
            raise misfit if misfit.row is None else misfit.inside(f"env {misfit.row}: ") from None

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
            raw = batch(block.views["observation"])
            if any(leaf.is_ragged for leaf in description.observation.leaves):
                # What has no fixed size is not in the buffer.
                return lambda: batch(block.views["observation"])
            # The caller holds the buffer itself, made once.
            return lambda: raw
        if isinstance(description.observation, ArrayCodec) and not block.lends("observation"):
            copied: Callable[[], Any] = block.views["observation"][0].copy
            return copied
        return lambda: batch(block.take("observation"))

    def _take_finals(self, block: Block) -> dict[int, Any]:
        read = self._read_finals[block.index]
        return {int(row): read(int(row), int(row) + 1)[0] for row in np.flatnonzero(block.views["has_final"][0])}


def _make_heaps(description: Description, num_workers: int) -> dict[int, Heap]:
    """Returns a heap for whoever writes values of no fixed size; none if there are no such values."""
    leaves = (*description.observation.leaves, *description.action.leaves)
    if not any(leaf.is_ragged for leaf in leaves):
        return {}
    return {writer: Heap.create() for writer in (ACTIONS, *range(num_workers))}
