"""What a value looks like: leaves, codecs, nests. Pure: no processes, no shared memory, no framework."""

from shoal.structure.codec import ArrayCodec, Codec, Reader, Views, Writer
from shoal.structure.leaf import Leaf
from shoal.structure.nest import Nest
from shoal.structure.one_of import OneOfCodec
from shoal.structure.parts import PartsCodec
from shoal.structure.ragged import ListPacker, Packer, PicklePacker, RaggedCodec, StackPacker
from shoal.structure.text import TextCodec

__all__ = [
    "ArrayCodec",
    "Codec",
    "Leaf",
    "ListPacker",
    "Nest",
    "OneOfCodec",
    "Packer",
    "PartsCodec",
    "PicklePacker",
    "RaggedCodec",
    "Reader",
    "StackPacker",
    "TextCodec",
    "Views",
    "Writer",
]
