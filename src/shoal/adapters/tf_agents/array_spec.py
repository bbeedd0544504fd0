"""What an array looks like, as `tf_agents.specs.array_spec` says it, without TensorFlow.

Where the original's behaviour is an accident it is mended: bounds that differ by element can be broadcast when
they are sampled, every integer up to the greatest can be sampled, no sample leaves its bounds, and `num_values`
does not wrap around.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from shoal.adapters.tf_agents import nests
from shoal.errors import ArgumentError, ArgumentTypeError


class ArraySpec:
    """Shape and dtype of an array or a scalar; immutable, and equal to another whatever its name."""

    __slots__ = ("_dtype", "_name", "_shape")

    def __init__(self, shape: Iterable[int], dtype: DTypeLike, name: str | None = None) -> None:
        """Takes any iterable of sizes, and whatever `numpy.dtype` takes.

        Raises:
            TypeError: The shape is no iterable, or there is no such dtype.
        """
        self._shape = tuple(shape)
        self._dtype: np.dtype = np.dtype(dtype)
        self._name = name

    @property
    def shape(self) -> tuple[int, ...]:
        """`[...]`, the shape."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """Type of one element."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """What the array is called, if anything."""
        return self._name

    def check_array(self, array: Any) -> bool:
        """Tells whether an array or a number has exactly this shape and dtype; a list never has.

        A Python number has the dtype NumPy gives its type: a float is float64.
        """
        if isinstance(array, np.ndarray):
            return self._shape == array.shape and bool(self._dtype == array.dtype)
        if isinstance(array, Number):
            return self._shape == () and bool(self._dtype == np.dtype(type(array)))
        return False

    def replace(
        self, shape: Iterable[int] | None = None, dtype: DTypeLike | None = None, name: str | None = None
    ) -> ArraySpec:
        """Returns a spec with some parts exchanged; None keeps a part."""
        return ArraySpec(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._name if name is None else name,
        )

    @staticmethod
    def from_array(array: Any, name: str | None = None) -> ArraySpec:
        """Returns the spec of an array or a number.

        Raises:
            ValueError: It is something else.
        """
        if isinstance(array, np.ndarray):
            return ArraySpec(array.shape, array.dtype, name)
        if isinstance(array, Number):
            return ArraySpec((), type(array), name)
        raise ArgumentError(f"Array must be a np.ndarray or number, found {array!r}.")

    @staticmethod
    def from_spec(spec: Any) -> ArraySpec:
        """Returns a plain spec of the same shape, dtype and name, without bounds."""
        return ArraySpec(spec.shape, spec.dtype, spec.name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArraySpec):
            return False
        return self._shape == other._shape and self._dtype == other._dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return ArraySpec, (self._shape, self._dtype, self._name)

    def __repr__(self) -> str:
        return f"ArraySpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"


class BoundedArraySpec(ArraySpec):
    """An `ArraySpec` with inclusive bounds, for all elements or for each."""

    __slots__ = ("_maximum", "_minimum")

    def __init__(
        self,
        shape: Iterable[int],
        dtype: DTypeLike,
        minimum: ArrayLike | None = None,
        maximum: ArrayLike | None = None,
        name: str | None = None,
    ) -> None:
        """Takes bounds that can be broadcast to the shape; None and infinity become the dtype's own limits.

        Raises:
            ValueError: The bounds do not go with the shape, with each other, or with the dtype.
            TypeError: As for `ArraySpec`, or the dtype has no limits: it is no integer and no float.
        """
        super().__init__(shape, dtype, name)
        _check_broadcast("minimum", minimum, self._shape)
        _check_broadcast("maximum", maximum, self._shape)
        lowest, highest = _limits(self._dtype)
        low = np.array(lowest if minimum is None else minimum)
        high = np.array(highest if maximum is None else maximum)
        if self._dtype.kind == "f":
            low, high = _to_finite(low, lowest, highest), _to_finite(high, lowest, highest)
        if np.any(low > high):
            raise ArgumentError(f"Spec bounds min has values greater than max: {low} and {high}.")
        if any(np.any(bound < lowest) or np.any(bound > highest) for bound in (low, high)):
            raise ArgumentError(
                f"Spec bounds {low} and {high} are not within {lowest} and {highest}, the limits of {self._dtype}."
            )
        self._minimum = low.astype(self._dtype)
        self._maximum = high.astype(self._dtype)
        self._minimum.setflags(write=False)
        self._maximum.setflags(write=False)

    @property
    def minimum(self) -> np.ndarray:
        """The least values, read-only, in the shape in which they were given."""
        return self._minimum

    @property
    def maximum(self) -> np.ndarray:
        """The greatest values, inclusive and read-only, in the shape in which they were given."""
        return self._maximum

    @property
    def num_values(self) -> Any:
        """How many values each element can have, in 64 bit and in the spec's shape; None for floats.

        It is 0 for the whole range of a 64-bit type, which has one more value than 64 bit can count.
        """
        if not is_discrete(self):
            return None
        wide = np.uint64 if self._dtype == np.uint64 else np.int64
        low = np.broadcast_to(self._minimum, self._shape).astype(wide)
        high = np.broadcast_to(self._maximum, self._shape).astype(wide)
        with np.errstate(over="ignore"):
            return high - low + wide(1)

    def check_array(self, array: Any) -> bool:
        """Tells whether an array or a number has this shape and dtype and lies within the bounds; NaN does not."""
        return (
            super().check_array(array) and bool(np.all(array >= self._minimum)) and bool(np.all(array <= self._maximum))
        )

    # The order of arguments is TF-Agents', and no subtype's.
    def replace(  # type: ignore[override]
        self,
        shape: Iterable[int] | None = None,
        dtype: DTypeLike | None = None,
        minimum: ArrayLike | None = None,
        maximum: ArrayLike | None = None,
        name: str | None = None,
    ) -> BoundedArraySpec:
        """Returns a spec with some parts exchanged; None keeps a part."""
        return BoundedArraySpec(
            self._shape if shape is None else shape,
            self._dtype if dtype is None else dtype,
            self._minimum if minimum is None else minimum,
            self._maximum if maximum is None else maximum,
            self._name if name is None else name,
        )

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> BoundedArraySpec:
        """Returns a bounded spec like another, which may have bounds; without, they are the dtype's limits."""
        name = spec.name if name is None else name
        if hasattr(spec, "minimum") and hasattr(spec, "maximum"):
            return BoundedArraySpec(spec.shape, spec.dtype, spec.minimum, spec.maximum, name)
        return BoundedArraySpec(spec.shape, spec.dtype, name=name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundedArraySpec):
            return False
        return (
            super().__eq__(other)
            and bool(np.all(self._minimum == other._minimum))
            and bool(np.all(self._maximum == other._maximum))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._shape, self._dtype, self._minimum, self._maximum, self._name)

    def __repr__(self) -> str:
        return (
            f"BoundedArraySpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r}, "
            f"minimum={self._minimum}, maximum={self._maximum})"
        )


def _restored(
    shape: tuple[int, ...], dtype: np.dtype, minimum: np.ndarray, maximum: np.ndarray, name: str | None
) -> BoundedArraySpec:
    """Returns a spec from a pickle, without the checks that it has passed: a batch brings hundreds of them."""
    spec = BoundedArraySpec.__new__(BoundedArraySpec)
    ArraySpec.__init__(spec, shape, dtype, name)
    spec._minimum, spec._maximum = minimum, maximum
    minimum.setflags(write=False)
    maximum.setflags(write=False)
    return spec


def is_bounded(spec: Any) -> bool:
    """Tells whether a spec has bounds."""
    return isinstance(spec, BoundedArraySpec)


def is_discrete(spec: Any) -> bool:
    """Tells whether a spec, or a dtype, is of integers; booleans are none."""
    return issubclass(np.dtype(getattr(spec, "dtype", spec)).type, np.integer)


def is_continuous(spec: Any) -> bool:
    """Tells whether a spec, or a dtype, is of floats."""
    return issubclass(np.dtype(getattr(spec, "dtype", spec)).type, np.floating)


def sample_bounded_spec(spec: BoundedArraySpec, rng: np.random.RandomState) -> Any:
    """Returns a value within the bounds, those included if it is of integers.

    A range too wide for 64 bit, such as all of float64, is sampled from its middle half.
    """
    if spec.dtype.kind == "f":
        return _sample_floats(spec, rng)
    return _sample_integers(spec, rng)


def sample_spec_nest(structure: Any, rng: np.random.RandomState, outer_dims: Iterable[int] = ()) -> Any:
    """Returns a nest of values, `[*outer_dims, ...]`, for a nest of specs; without bounds from all their dtype."""
    outer_dims = tuple(outer_dims)

    def sample(spec: Any) -> Any:
        bounded = BoundedArraySpec.from_spec(spec)
        return sample_bounded_spec(bounded.replace(shape=outer_dims + bounded.shape), rng)

    return nests.map_nest(sample, structure)


def check_arrays_nest(arrays: Any, spec: Any) -> bool:
    """Tells whether a nest of arrays is one of a nest of specs."""
    try:
        assert_arrays_spec_nest(arrays, spec)
    except (TypeError, ValueError):
        return False
    return True


def assert_arrays_spec_nest(arrays: Any, spec: Any) -> None:
    """Passes if a nest of arrays is one of a nest of specs.

    Raises:
        ValueError: The nests differ in structure, or a value does not have the shape, dtype or bounds of its spec.
        TypeError: The nests differ in the types of their sequences, or a leaf of `spec` is no spec.
    """
    nests.assert_same_structure(arrays, spec)
    for value, leaf in zip(nests.flatten(arrays), nests.flatten(spec), strict=True):
        # Not by its class: TF-Agents' own specs check arrays, too.
        if not hasattr(leaf, "check_array"):
            raise ArgumentTypeError(f'The spec "{leaf}" is not an ArraySpec, it is a {type(leaf).__name__}.')
        if not leaf.check_array(value):
            raise ArgumentError(f'The value "{value}" does not match spec: {leaf}')


def add_outer_dims_nest(structure: Any, outer_dims: Iterable[int]) -> Any:
    """Returns a nest of specs whose shapes are `[*outer_dims, ...]`; bounds are kept."""
    outer_dims = tuple(outer_dims)

    def add_outer_dims(spec: Any) -> ArraySpec:
        shape = outer_dims + tuple(spec.shape)
        if hasattr(spec, "minimum") and hasattr(spec, "maximum"):
            return BoundedArraySpec(shape, spec.dtype, spec.minimum, spec.maximum, spec.name)
        return ArraySpec(shape, spec.dtype, spec.name)

    return nests.map_nest(add_outer_dims, structure)


def _check_broadcast(word: str, bound: Any, shape: tuple[int, ...]) -> None:
    try:
        np.broadcast_to(bound, shape)
    except ValueError as error:
        raise ArgumentError(f"{word} is not compatible with shape {shape}: {error}") from None


def _limits(dtype: np.dtype) -> tuple[Any, Any]:
    """Returns the least and the greatest finite value: Python's integers, or NumPy's floats of that dtype."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    # A long double is no type of TensorFlow's.
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.finfo(dtype).min, np.finfo(dtype).max
    raise ArgumentTypeError(f"Cannot find minimum value of {dtype}; a bounded spec is of integers or floats.")


def _to_finite(bound: np.ndarray, lowest: Any, highest: Any) -> np.ndarray:
    return np.where(bound == -np.inf, lowest, np.where(bound == np.inf, highest, bound))


def _sample_floats(spec: BoundedArraySpec, rng: np.random.RandomState) -> Any:
    low, high = spec.minimum, spec.maximum
    if spec.dtype == np.float64:
        with np.errstate(over="ignore"):
            is_too_wide = np.isinf(high - low)
        low, high = np.where(is_too_wide, low / 2, low), np.where(is_too_wide, high / 2, high)
    return rng.uniform(low, high, size=spec.shape).astype(spec.dtype)


def _sample_integers(spec: BoundedArraySpec, rng: np.random.RandomState) -> Any:
    # In Python's integers, as the end of the range, one above the maximum, may be no number of the dtype.
    if spec.minimum.size == 1 and spec.maximum.size == 1:
        [(low, stop)] = _integer_ranges(spec.minimum, spec.maximum)
        return rng.randint(low, stop, size=spec.shape, dtype=spec.dtype.type)
    ranges = _integer_ranges(*np.broadcast_arrays(spec.minimum, spec.maximum, np.empty(spec.shape, np.bool_))[:2])
    values = [rng.randint(low, stop, dtype=spec.dtype.type) for low, stop in ranges]
    return np.array(values, spec.dtype).reshape(spec.shape)


def _integer_ranges(minimum: np.ndarray, maximum: np.ndarray) -> list[tuple[int, int]]:
    """Returns for each element the least value, and one above the greatest."""
    widest = np.iinfo(np.int64).max if minimum.dtype == np.int64 else np.inf
    return [
        (low, high + 1) if high - low <= widest else (int(low / 2), int(high / 2 + 1))
        for low, high in zip(minimum.ravel().tolist(), maximum.ravel().tolist(), strict=True)
    ]
