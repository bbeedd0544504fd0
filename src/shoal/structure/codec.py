"""A codec says how one kind of value becomes fixed-size leaves and back.

Beside the env a codec writes one value into one row, and reads rows as separate values. On the
user's side it writes a whole batch, and shows the rows as a batch. Views are made once, when the
memory is laid out; what a codec returns for them is called every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from shoal.errors import MisfitError
from shoal.structure.cast import brief, cast, fit, to_array
from shoal.structure.leaf import Leaf

# One array `[B, ...]` for each leaf, and `Cells` for one that is ragged.
Views = Sequence[Any]
Writer = Callable[[int, Any], None]
Reader = Callable[[int, int], list[Any]]


class Codec(Protocol):
    """How values of one kind travel. Every `views` argument is one array `[B, ...]` for each leaf."""

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays that one value becomes; paths start at the value."""

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one value in one row; it raises `MisfitError`, named by `where`."""

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows `first` to `last` (exclusive) as separate values, copies."""

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a whole batch; raises `MisfitError` and may then have stored a part."""

    def batch(self, views: Views) -> Any:
        """Returns what the user calls a batch of these values, a view where it can be one."""


def is_sized(value: Any) -> bool:
    """Tells whether a value is a sequence of values, or an array of them."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict))


def encode_each(codec: Codec, views: Views, batch: Any, where: str) -> None:
    """Stores a batch that is a sequence with one value for each env."""
    # Values without leaves leave no view to tell how many there are.
    rows = len(views[0]) if views else None
    if not is_sized(batch):
        count = "each env" if rows is None else f"each of {rows} envs"
        raise MisfitError(where, f"expected a tuple with one value for {count}, found {brief(batch)}")
    if rows is not None and len(batch) != rows:
        raise MisfitError(where, f"expected {rows}, one for each env, found {len(batch)}")
    write = codec.writer(views, where)
    for row, value in enumerate(batch):
        try:
            write(row, value)
        except MisfitError as misfit:
            misfit.row = row
            raise


class ArrayCodec:
    """A number or an array of fixed shape and dtype.

    Attributes:
        shape: `[...]`, shape of one value.
        dtype: Type of one element.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        """Takes the shape of one value and anything `numpy.dtype` takes."""
        self.shape = tuple(int(size) for size in shape)
        self.dtype = np.dtype(dtype)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The one leaf."""
        return (Leaf((), self.shape, self.dtype),)

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one value in one row."""
        (view,) = views
        shape = self.shape
        # NumPy hands out one object for each built-in dtype, and `is` is what the common case can afford.
        dtype = np.dtype(self.dtype.str)
        # Row views made once: storing through them takes half as long as indexing the batch.
        rows = [view[row, ...] for row in range(len(view))]

        def write(row: int, value: Any) -> None:
            try:
                if value.dtype is dtype and value.shape == shape:
                    rows[row][...] = value
                    return
            except AttributeError:
                pass
            rows[row][...] = fit(value, shape, dtype, where)

        if len(shape) > 1 or not _is_plain_buffer(view):
            return write
        if not shape:
            return _number_writer(view, write)
        buffers = [row.data for row in rows]

        def write_vector(row: int, value: Any) -> None:
            # A buffer takes in only what has its own format and length: check and copy in half the time.
            try:
                buffers[row][:] = value
            except (TypeError, ValueError, BufferError):
                write(row, value)

        return write_vector

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate values: scalars, or arrays of one common copy."""
        (view,) = views
        if self.shape:
            return lambda first, last: list(view[first:last].copy())
        return lambda first, last: list(view[first:last])

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores an array-like `[B, ...]`."""
        (view,) = views
        if type(batch) is not np.ndarray or batch.dtype != view.dtype or batch.shape != view.shape:
            batch = to_array(batch, self.dtype, where)
            if batch.shape != view.shape:
                raise MisfitError(where, _batch_problem(batch, view))
            batch = cast(batch, self.dtype, where)
        view[...] = batch

    def batch(self, views: Views) -> np.ndarray:
        """Returns the view itself, `[B, ...]`."""
        view: np.ndarray = views[0]
        return view

    def __repr__(self) -> str:
        """Returns what was given."""
        return f"ArrayCodec({self.shape}, {self.dtype})"


def _number_writer(view: np.ndarray, write: Writer) -> Writer:
    """Returns a writer of single numbers that stores Python's own without making an array of each."""
    usual = float if view.dtype == np.float64 else int
    if usual is int and view.dtype.kind not in "iu":
        return write
    numbers: Any = view.data

    def write_number(row: int, value: Any) -> None:
        if type(value) is usual:
            try:
                numbers[row] = value
                return
            except ValueError:
                # Out of range, which the other way says better.
                pass
        write(row, value)

    return write_number


def _is_plain_buffer(view: np.ndarray) -> bool:
    """Tells whether Python's buffers know the element type; they do not know foreign byte orders, for one."""
    try:
        view.reshape(-1).data[:0] = view.reshape(-1)[:0].data
    except (NotImplementedError, ValueError, TypeError, BufferError):
        return False
    return True


def _batch_problem(batch: np.ndarray, view: np.ndarray) -> str:
    if batch.ndim == 0:
        return f"expected one for each of {len(view)} envs, shape {view.shape}, found a single {batch.dtype}"
    if len(batch) != len(view):
        return f"expected {len(view)}, one for each env, found {len(batch)}"
    return f"expected {view.dtype} of shape {view.shape}, found {batch.dtype} of shape {batch.shape}"
