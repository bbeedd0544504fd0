"""Where the bytes are: segments, layouts, blocks with their leases, rings, and the bells that announce them."""

from shoal.memory.bell import Bell, Patience, make_bell, watch
from shoal.memory.blocks import Block, Blocks
from shoal.memory.heap import Heap
from shoal.memory.layout import Layout
from shoal.memory.ring import ControlMemory, Ring
from shoal.memory.segment import Segment

__all__ = [
    "Bell",
    "Block",
    "Blocks",
    "ControlMemory",
    "Heap",
    "Layout",
    "Patience",
    "Ring",
    "Segment",
    "make_bell",
    "watch",
]
