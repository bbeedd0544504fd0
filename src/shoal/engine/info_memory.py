"""The infos of a batch: from shared memory where they are laid out there, from messages where they are not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from shoal.engine.exchange import Exchange
from shoal.memory import Block, Segment
from shoal.worker import Reply, ShareInfos
from shoal.worker.columns import MOST_COLUMNS, InfoBlock, InfoLayout, Schema, count, learn
from shoal.worker.infos import Columns, merge


class InfoMemory:
    """What is known of a batch's infos, and where they are.

    Attributes:
        is_outgrown: Whether there is something new to lay out.
        segment: The memory, None before there is any.
    """

    def __init__(self, rows: Sequence[tuple[int, int]], num_blocks: int) -> None:
        """Takes each worker's rows, last exclusive."""
        self._rows = rows
        self._num_envs = rows[-1][1]
        self._num_blocks = num_blocks
        self._schema: Schema = {}
        self._blocks: list[InfoBlock] = []
        self.is_outgrown = False
        self.segment: Segment | None = None

    def share(self, exchange: Exchange) -> None:
        """Hands workers new columns; they answer in order, so whatever they are asked next finds them."""
        try:
            pending = exchange.prepare("infos")
            exchange.abandon(pending)
            exchange.broadcast(pending, self._lay_out())
        except BaseException:
            # Some may have them and some not: all get others before the next step.
            self.is_outgrown = True
            raise

    def _lay_out(self) -> ShareInfos:
        """Returns the request that hands workers new columns; the old ones are not used any more."""
        self.is_outgrown = False
        layout = InfoLayout(copy.deepcopy(self._schema), self._num_envs, len(self._rows), self._num_blocks)
        if self.segment is not None:
            self.segment.close()
        self.segment = Segment.create(layout.nbytes)
        self._blocks = layout.blocks(self.segment)
        return ShareInfos(0, layout, self.segment)

    def take(self, block: Block, sequence: int) -> dict[str, Any]:
        """Returns the infos of a request to which nobody has replied with a message."""
        if not self._blocks:
            return {}
        own = self._blocks[block.index]
        filled = own.filled(sequence)
        if all(filled):
            return own.take()
        parts = [own.columns_of(*rows) for rows, is_filled in zip(self._rows, filled, strict=True) if is_filled]
        return merge(parts, self._num_envs) if parts else {}

    def merge(self, block: Block, sequence: int, replies: Sequence[Reply]) -> dict[str, Any]:
        """Returns the infos of a request to which some workers have replied with a message."""
        parts: list[Columns] = []
        room = [MOST_COLUMNS - count(self._schema)]
        for reply in replies:
            if reply.infos:
                parts.append(reply.infos)
                self.is_outgrown |= learn(self._schema, reply.infos, room)
            elif self._blocks and self._blocks[block.index].is_filled(reply.worker, sequence):
                parts.append(self._blocks[block.index].columns_of(*self._rows[reply.worker]))
        return merge(parts, self._num_envs) if parts else {}

    def close(self) -> None:
        """Closes the memory."""
        if self.segment is not None:
            self.segment.close()
