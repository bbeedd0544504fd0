"""A leaf: one array of fixed shape and type inside a possibly nested value."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Leaf:
    """One array inside a value, as it is for one env.

    Attributes:
        path: Keys from the root of the value, e.g. `("camera", "rgb")`; `()` for a plain array.
        shape: `[...]`, without a batch axis.
        dtype: Type of one element.
        is_ragged: Whether the array only says where the value is, which has no fixed size; see `Cells`.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    is_ragged: bool = False

    @property
    def nbytes(self) -> int:
        """Size of one env's value, in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        """Returns type and shape as NumPy users write them, e.g. `float32 (3, 84)`."""
        return f"{self.dtype} {self.shape}"


def describe_path(path: Path) -> str:
    """Returns the path as it is written in Python, e.g. `['camera'][0]`."""
    return "".join(f"[{key!r}]" for key in path)
