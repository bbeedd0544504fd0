"""What a value looks like: leaves, codecs, nests. Pure: no processes, no shared memory, no framework."""

from shoal.structure.codec import ArrayCodec, Codec, Reader, Views, Writer
from shoal.structure.leaf import Leaf
from shoal.structure.nest import Nest

__all__ = ["ArrayCodec", "Codec", "Leaf", "Nest", "Reader", "Views", "Writer"]
