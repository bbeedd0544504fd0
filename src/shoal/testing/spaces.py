"""Spaces to test with: Hypothesis strategies, and a fixed list for parametrised tests.

Only spaces that can be sampled come out. Gymnasium's samplers go through float64, so these are left out:

- float64 boxes wider than the largest float64, whose width overflows;
- int64 and uint64 boxes with close bounds beyond `2**33`, whose samples may round to above the high bound;
- signed boxes with all of their range at one end of the type, which older versions clip away.
"""

from __future__ import annotations

import datetime
import inspect
from collections import OrderedDict
from typing import Any

import gymnasium as gym
import hypothesis.extra.numpy as hnp
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

AnySpace = gym.Space[Any]

BOX_DTYPES = ("bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
# Some that order, join or look like other keys once they are paths, masks or attributes.
KEYS = ("a", "b", "_a", "a.b", "a/b", "B", "", "low", "ключ")
# Up to four bytes a character, and halves of a pair, which no encoding takes by default.
CHARSETS = ("ab", "xyz \n", "aéß中", "a\U0001d11e\U0010ffff", "a\ud800\udc00")

# Not in Gymnasium 1.0.
DISCRETE_HAS_DTYPE = "dtype" in inspect.signature(spaces.Discrete).parameters


def leaf_spaces() -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for spaces without parts: Box, Discrete, MultiDiscrete and MultiBinary."""
    return st.one_of(boxes(), discretes(), multi_discretes(), multi_binaries())


def nested_spaces(max_depth: int = 3) -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for leaf spaces and Dicts and Tuples of them, none of them empty.

    Args:
        max_depth: How many containers may lie around a leaf.
    """
    if max_depth < 1:
        return leaf_spaces()
    parts = nested_spaces(max_depth - 1)
    return st.one_of(leaf_spaces(), _dicts(parts), _tuples(parts))


def all_spaces(max_depth: int = 4) -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for spaces of every kind: those of `nested_spaces`, and those without a fixed size.

    Args:
        max_depth: How many Dicts, Tuples, OneOfs and Sequences may lie around a space.
    """
    plain = st.one_of(leaf_spaces(), texts(), graphs(), days())
    if max_depth < 1:
        return plain
    parts = all_spaces(max_depth - 1)
    return st.one_of(plain, _dicts(parts), _tuples(parts), one_ofs(parts), sequences(parts))


def _dicts(parts: st.SearchStrategy[AnySpace]) -> st.SearchStrategy[AnySpace]:
    # Gymnasium sorts the keys of a dict, and keeps those of an OrderedDict as they come.
    dicts = st.dictionaries(st.sampled_from(KEYS), parts, min_size=1, max_size=3)
    return st.one_of(dicts.map(spaces.Dict), dicts.map(lambda parts: spaces.Dict(OrderedDict(parts))))


def _tuples(parts: st.SearchStrategy[AnySpace]) -> st.SearchStrategy[AnySpace]:
    return st.lists(parts, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts)))


@st.composite
def boxes(draw: st.DrawFn) -> AnySpace:
    """Returns Boxes of every dtype; shapes may be `()` or have no elements; bounds differ by element."""
    dtype = np.dtype(draw(st.sampled_from(BOX_DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    bounds = draw(st.lists(_bounds(dtype), min_size=1, max_size=3))
    low, high = (_filled(shape, dtype, side) for side in zip(*bounds, strict=True))
    return spaces.Box(low, high, dtype=dtype.type)


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], values: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    return np.resize(np.array(values, dtype), shape)


def _bounds(dtype: np.dtype[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Returns pairs of a low and a high bound that Gymnasium can sample between."""
    if dtype.kind == "b":
        return st.sampled_from([(0, 1), (0, 0), (1, 1)])
    if dtype.kind == "f":
        width: Any = 8 * dtype.itemsize
        # NumPy finds nothing between 0.0 and -0.0, so there is but one zero.
        bound = st.floats(-1000, 1000, width=width, allow_subnormal=False).map(lambda value: value + 0.0)
        largest = float(np.finfo(dtype).max) / (2 if width == 64 else 1)
        return st.one_of(
            st.tuples(bound, bound).map(sorted).map(tuple),
            bound.map(lambda low: (low, np.inf)),
            bound.map(lambda high: (-np.inf, high)),
            st.sampled_from([(-np.inf, np.inf), (-largest, largest)]),
        )
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if dtype.itemsize == 8:
        wide = (least // 2, 2**62)
        least, most = max(least, -(2**33)), 2**33
    else:
        wide = (least, most)
    low = st.integers(least, most - 2)
    return st.one_of(
        st.just(wide),
        low.flatmap(lambda low: st.tuples(st.just(low), st.integers(max(low, least + 2), most))),
    )


@st.composite
def discretes(draw: st.DrawFn) -> AnySpace:
    """Returns Discretes with any start and, where Gymnasium has them, dtypes other than int64."""
    dtype = np.dtype(draw(st.sampled_from(("i8", "i4", "i2", "u1")))) if DISCRETE_HAS_DTYPE else np.dtype("i8")
    far = {8: 2**40, 4: 2**30, 2: 2**14, 1: 100}[dtype.itemsize]
    n = draw(st.integers(1, 100))
    start = draw(st.sampled_from((0, 1, far)) | st.integers(0 if dtype.kind == "u" else -far, far))
    return _discrete(n, start, dtype)


def _discrete(n: int, start: int, dtype: np.dtype[Any]) -> AnySpace:
    options: dict[str, Any] = {"dtype": dtype.type} if DISCRETE_HAS_DTYPE else {}
    return spaces.Discrete(n, start=start, **options)


@st.composite
def multi_discretes(draw: st.DrawFn) -> AnySpace:
    """Returns MultiDiscretes of one or two axes, with and without starts."""
    dtype = np.dtype(draw(st.sampled_from(("i8", "i4", "u1"))))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3))
    nvec: Any = draw(hnp.arrays(dtype, shape, elements=st.integers(1, 9)))
    offset = st.integers(0 if dtype.kind == "u" else -100, 100)
    start: Any = draw(st.none() | hnp.arrays(dtype, shape, elements=offset))
    element: Any = dtype.type
    return spaces.MultiDiscrete(nvec, dtype=element, start=start)


def multi_binaries() -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for MultiBinaries of one or more axes."""
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3)
    return (st.integers(1, 9) | shapes).map(spaces.MultiBinary)


@st.composite
def texts(draw: st.DrawFn) -> AnySpace:
    """Returns Texts of up to 9 characters, among them the empty text alone, of small and of odd character sets."""
    max_length = draw(st.integers(0, 9))
    min_length = draw(st.integers(0, max_length))
    return spaces.Text(max_length, min_length=min_length, charset=draw(st.sampled_from(CHARSETS)))


def one_ofs(parts: st.SearchStrategy[AnySpace] | None = None) -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for OneOfs of up to three spaces; of leaves, unless other parts are given."""
    return st.lists(leaf_spaces() if parts is None else parts, min_size=1, max_size=3).map(spaces.OneOf)


def sequences(parts: st.SearchStrategy[AnySpace] | None = None) -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for Sequences, stacked or not; of leaves, unless other parts are given."""
    return st.builds(_sequence, leaf_spaces() if parts is None else parts, st.booleans())


def _sequence(part: AnySpace, stack: bool) -> AnySpace:
    return spaces.Sequence(part, stack=stack)


def graphs() -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for Graphs of what all versions of Gymnasium allow in them, with and without edges."""
    # Older versions sample Discretes as if they began at 0.
    features = st.one_of(boxes(), st.integers(1, 9).map(spaces.Discrete))
    return st.builds(_graph, features, st.none() | features)


def _graph(node_space: Any, edge_space: Any) -> AnySpace:
    return spaces.Graph(node_space, edge_space)


class Days(gym.Space[datetime.date]):
    """Days of a stretch: a space of a class that Gymnasium does not know and nobody has registered.

    Like most such classes it has no `==`.
    """

    def __init__(self, first: datetime.date, num_days: int) -> None:
        super().__init__(None, None)
        self.first, self.num_days = first, num_days

    @property
    def is_np_flattenable(self) -> bool:
        """Tells that no array stands for a day."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> datetime.date:
        """Returns any of the days."""
        return self.first + datetime.timedelta(days=int(self.np_random.integers(self.num_days)))

    def contains(self, x: Any) -> bool:
        """Tells whether it is one of the days."""
        return isinstance(x, datetime.date) and 0 <= (x - self.first).days < self.num_days


def days() -> st.SearchStrategy[AnySpace]:
    """Returns a strategy for spaces of a class that is not known."""
    firsts = st.dates(datetime.date(1, 1, 1), datetime.date(2100, 1, 1))
    return st.builds(Days, firsts, st.integers(1, 1000))


def standard_spaces() -> list[tuple[str, AnySpace]]:
    """Returns hand-picked spaces with a name each: what the strategies cover, without chance.

    They are new objects at each call: `pytest.mark.parametrize("name, space", standard_spaces())`.
    """
    inf = np.inf
    named: dict[str, AnySpace] = {}
    for dtype in map(np.dtype, BOX_DTYPES):
        (low, high), kind = (0, 1), dtype.kind
        if kind in "iu":
            low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if dtype.itemsize == 8 and kind in "iu":
            low, high = low // 2, 2**62
        bounds: tuple[Any, Any] = (-inf, inf) if kind == "f" else (low, high)
        named[f"box-{dtype.name}"] = spaces.Box(*bounds, (3,), dtype.type)
    named |= {
        "box-image": spaces.Box(0, 255, (8, 6, 3), np.uint8),
        "box-scalar-f4": spaces.Box(-1, 1, (), np.float32),
        "box-scalar-i4": spaces.Box(-9, 9, (), np.int32),
        "box-empty": spaces.Box(-1, 1, (0,), np.float32),
        "box-empty-2d": spaces.Box(0, 9, (2, 0), np.int64),
        "box-one-element": spaces.Box(-1, 1, (1,), np.float64),
        "box-half-infinite": _box([0.0, -inf, -inf, -2.5], [inf, 0.0, inf, 2.5], np.float32),
        "box-single-value": _box([3.0, -1.0], [3.0, 1.0], np.float64),
        "discrete": spaces.Discrete(5),
        "discrete-one": spaces.Discrete(1),
        "discrete-negative-start": spaces.Discrete(3, start=-1),
        "discrete-far-start": spaces.Discrete(7, start=2**40),
        "multi-discrete": spaces.MultiDiscrete([3, 1, 5]),
        "multi-discrete-i4": spaces.MultiDiscrete([3, 4], dtype=np.int32),
        "multi-discrete-start": spaces.MultiDiscrete(np.array([3, 4]), start=np.array([-1, 10])),
        "multi-discrete-2d": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 10], [0, 0]])),
        "multi-binary": spaces.MultiBinary(4),
        "multi-binary-nd": spaces.MultiBinary([2, 3]),
        "dict": spaces.Dict(position=spaces.Box(-1, 1, (2,), np.float32), gear=spaces.Discrete(3)),
        "dict-unsorted": spaces.Dict(OrderedDict(b=spaces.Box(0, 1, (1,)), a=spaces.Box(2, 3, (1,)))),
        "dict-odd-keys": spaces.Dict(
            {"a.b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(3)), "": spaces.MultiBinary(2)}
        ),
        "tuple": spaces.Tuple((spaces.Box(0, 9, (2,), np.float32), spaces.Discrete(4))),
        "tuple-of-one": spaces.Tuple((spaces.Discrete(2),)),
        "nested": spaces.Dict(
            fire=spaces.Discrete(2),
            camera=spaces.Dict(rgb=spaces.Box(0, 255, (4, 4, 3), np.uint8), on=spaces.MultiBinary(1)),
            parts=spaces.Tuple((spaces.Discrete(3, start=-1), spaces.Tuple((spaces.Box(-inf, inf, ()),)))),
        ),
    }
    if DISCRETE_HAS_DTYPE:
        named["discrete-i4"] = _discrete(5, -2, np.dtype("i4"))
        named["discrete-u1"] = _discrete(5, 200, np.dtype("u1"))
    return list(named.items())


def _box(low: list[float], high: list[float], dtype: type[np.floating[Any]]) -> AnySpace:
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)
