"""Passes lines on, each once: the program between what envs print and standard error.

It runs by itself, on nothing but the standard library.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

# The last line. The pipe may stay open after it, in processes that outlive the measurement.
END = b"\0end of output\0\n"

# Longer lines are taken in pieces.
_MAX_LINE_BYTES = 1 << 16

# Lines remembered. Whoever prints more than so many different ones has something to say.
_MAX_LINES = 10_000


def fold(lines: BinaryIO, out: BinaryIO) -> None:
    """Copies lines to `out`, without those that came before, up to `END` or the end of the pipe."""
    seen: set[bytes] = set()
    left_out = 0
    while line := lines.readline(_MAX_LINE_BYTES):
        last = line.endswith(END)
        line = line.removesuffix(END)
        if line in seen:
            left_out += 1
        else:
            out.write(line)
            out.flush()
            if len(seen) < _MAX_LINES:
                seen.add(line)
        if last:
            break
    if left_out:
        out.write(b"(%d more lines, all like some above)\n" % left_out)
        out.flush()


if __name__ == "__main__":
    fold(sys.stdin.buffer, sys.stdout.buffer)
