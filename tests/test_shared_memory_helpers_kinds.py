"""Shared memory for values that are no arrays: Text, OneOf, Sequence and Graph, which Gym has in part or not at all."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.spaces import Box, Discrete, Graph, GraphInstance, MultiBinary, OneOf, Sequence, Text
from vectors import readable

from shoal import MisfitError, create_shared_memory, read_from_shared_memory, write_to_shared_memory
from shoal.testing.equality import assert_same

N = 3
POINT = Box(-1, 1, (2,), np.float32)
ITEM = gym_spaces.Dict(at=POINT, kind=Discrete(4))


def stored(space: gym.Space[Any], *values: Any, **options: Any) -> Any:
    """Returns what is read from memory into which each value was written."""
    memory = create_shared_memory(space, len(values))
    for index, value in enumerate(values):
        write_to_shared_memory(space, index, value, memory, **options)
    return read_from_shared_memory(space, memory, len(values))


def point(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def graph(space: Graph, nodes: int, edges: int | None) -> GraphInstance:
    """Returns a graph of so many nodes and edges, the same at each call."""
    space.seed(1)
    return space.sample(num_nodes=nodes, num_edges=edges)


# Text.


@pytest.mark.parametrize("texts", [("abc", "x", "zz"), ("a", "abc", "b"), ("", "", "abc")], ids=str)
def test_texts_come_back_at_their_own_length(texts):
    """Rows have room for the longest; what is behind a short text is no part of it."""
    assert stored(Text(3, min_length=0), *texts) == texts


def test_shorter_text_replaces_a_longer_one_in_whole():
    """The end of yesterday's text would make a word that nobody said."""
    space = Text(5)
    memory = create_shared_memory(space, 1)
    for text in ("abcde", "xy", "pqrs", "z"):
        write_to_shared_memory(space, 0, text, memory)
        assert read_from_shared_memory(space, memory, 1) == (text,)


def test_unwritten_text_is_empty():
    """Gym's reads as the first character over and over, as if an env had said so."""
    space = Text(3, charset="abc")
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, "cba", memory)
    assert read_from_shared_memory(space, memory, 2) == ("", "cba")


def test_texts_are_copies():
    """A `str` cannot change under whoever holds it."""
    space = Text(3)
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, "abc", memory)
    (before,) = read_from_shared_memory(space, memory, 1)
    write_to_shared_memory(space, 0, "xyz", memory)
    assert before == "abc"


@pytest.mark.parametrize("charset", ["aé漢🐟", "\0a", "𝄞\ud800"], ids=ascii)
def test_every_character_of_python_is_a_character(charset):
    """Languages have more letters than ASCII, and a NUL is not the end of anything."""
    space = Text(len(charset) + 2, charset=charset)
    assert stored(space, charset, charset[0] + charset) == (charset, charset[0] + charset)


@pytest.mark.parametrize(
    "text, error, problem",
    [("abcd", IndexError, "at most 3"), ("a-b", KeyError, "'-'"), (5, ValueError, "str"), (b"abc", ValueError, "str")],
    ids=readable,
)
def test_text_that_does_not_fit_is_refused_with_gyms_error(text, error, problem):
    """Gym's errors are accidents, an IndexError and a KeyError, but programs may catch them."""
    with pytest.raises(error, match=rf"^value: .*{problem}") as caught:
        stored(Text(3), text)
    assert isinstance(caught.value, MisfitError)


# OneOf.


def test_kind_comes_back_as_an_index_with_its_value():
    """Which space a value is of cannot be told from the value."""
    space = OneOf((Discrete(5), POINT, Text(3)))
    batch = stored(space, (1, [1, -1]), (2, "abc"), (0, 4))
    assert_same(batch, ((np.int64(1), point(1, -1)), (np.int64(2), "abc"), (np.int64(0), np.int64(4))))


def test_kind_is_a_copy_and_its_array_a_view():
    """As in Gymnasium: the array of a row shows what is written there next, the index says what it was."""
    space = OneOf((Discrete(5), POINT))
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, (1, [1, -1]), memory)
    index, value = read_from_shared_memory(space, memory, 2)[1]
    write_to_shared_memory(space, 1, (1, [0, 1]), memory)
    write_to_shared_memory(space, 1, (0, 3), memory)
    assert index == 1 and value.tolist() == [0, 1]
    value[:] = 9
    assert memory[2][:] == [0, 0, 9, 9]


def test_writing_one_kind_leaves_the_memory_of_the_others():
    """Only what was said is stored; the rest is not made up."""
    space = OneOf((Discrete(5), Discrete(9)))
    memory = create_shared_memory(space, 2)
    assert len(memory) == 3
    write_to_shared_memory(space, 0, (0, 4), memory)
    write_to_shared_memory(space, 0, (1, 8), memory)
    assert [part[:] for part in memory] == [[1, 0], [4, 0], [8, 0]]


@pytest.mark.parametrize(
    "option, first, second",
    [
        (gym_spaces.Tuple((Discrete(5), Discrete(7))), (3, 4), (1, 2)),
        (gym_spaces.Tuple((gym_spaces.Tuple((Discrete(5),)), Discrete(7))), ((3,), 4), ((1,), 2)),
        (gym_spaces.Tuple((Text(3), Discrete(7))), ("ab", 4), ("cd", 2)),
        (gym_spaces.Tuple((Discrete(7), Text(3))), (4, "ab"), (2, "cd")),
        (gym_spaces.Tuple((gym_spaces.Dict(a=Discrete(3)), Text(3))), ({"a": 1}, "ab"), ({"a": 2}, "cd")),
        (gym_spaces.Tuple(()), (), ()),
        (gym_spaces.Dict({}), {}, {}),
        (gym_spaces.Dict(a=Discrete(3), b=gym_spaces.Tuple((Text(2),))), {"a": 1, "b": ("x",)}, {"a": 2, "b": ("y",)}),
        (OneOf((Discrete(3), Text(2))), (1, "ab"), (0, 2)),
        (Sequence(Discrete(9)), (1, 2, 3), (4,)),
        (Sequence(Discrete(9), stack=True), [1, 2, 3], [4, 5, 6]),
        (Sequence(Discrete(9), stack=True), [1], [4, 5, 6]),
        (Sequence(ITEM), ({"at": [0, 1], "kind": 1},), ()),
        (Sequence(ITEM, stack=True), {"at": [[0, 1]], "kind": [1]}, {"at": [[1, 0], [1, 1]], "kind": [1, 2]}),
        (MultiBinary(2), [0, 1], [1, 0]),
    ],
    ids=readable,
)
def test_kind_may_be_of_any_space(option, first, second):
    """Each row has the value that was written there: nothing of the row beside it, whatever the value is made of."""
    space = OneOf((Discrete(2), option))
    batch = stored(space, (1, first), (0, 1), (1, second))
    assert [int(index) for index, _ in batch] == [1, 0, 1]
    assert lists(batch[0][1]) == lists(first)
    assert batch[1][1] == 1
    assert lists(batch[2][1]) == lists(second)


def test_kind_may_be_a_graph():
    """Graphs are tuples, too, but of one value's parts."""
    plain = Graph(Discrete(5), None)
    batch = stored(OneOf((plain, Discrete(2))), (0, graph(plain, 3, None)), (1, 1), (0, graph(plain, 2, None)))
    assert_same(batch[0][1], graph(plain, 3, None))
    assert_same(batch[2][1], graph(plain, 2, None))


def lists(value: Any) -> Any:
    """Returns a nest with lists for arrays and numbers for NumPy's scalars."""
    if isinstance(value, dict):
        return {key: lists(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(lists, value))
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


# Sequence.


@pytest.mark.parametrize("length", [0, 1, 2, 100, 10_000])
def test_sequence_of_any_length_comes_back(length):
    """Gym has no memory for it at all; here it grows."""
    batch = stored(Sequence(Discrete(100_000)), range(length), (7,), tuple(range(length)))
    assert batch == (tuple(range(length)), (7,), tuple(range(length)))
    assert all(type(number) is np.int64 for number in batch[0])


def test_sequence_may_grow_and_shrink_beside_others():
    """A value that outgrows its place must neither lose its own items nor write over its neighbour's."""
    space = Sequence(POINT)
    memory = create_shared_memory(space, 2)
    values: dict[int, tuple[np.ndarray, ...]] = {0: (), 1: ()}
    for length in (0, 1, 500, 3, 0, 10_000, 2):
        for index in (0, 1):
            values[index] = tuple(np.full(2, index + 1, np.float32) for _ in range(length + index))
            write_to_shared_memory(space, index, values[index], memory)
            batch = read_from_shared_memory(space, memory, 2)
            assert_same(batch, (values[0], values[1]))


@pytest.mark.parametrize("stack", [False, True])
def test_sequence_of_nested_values_comes_back(stack):
    """The items of a sequence may have parts; stacked, each part is one array."""
    space = Sequence(ITEM, stack=stack)
    space.seed(2)
    values = [space.sample() for _ in range(N)]
    batch = stored(space, *values)
    assert len(batch) == N
    for read, value in zip(batch, values, strict=True):
        assert lists(read) == lists(value)
        assert stack or space.contains(read)


def test_unwritten_sequence_is_empty():
    """Zero-filled memory means the empty value."""
    memory = create_shared_memory(Sequence(POINT), 2)
    assert read_from_shared_memory(Sequence(POINT), memory, 2) == ((), ())


def test_sequences_and_graphs_are_copies():
    """Their place moves as they grow, so a view would show anything."""
    space = gym_spaces.Tuple((Sequence(POINT), Graph(POINT, None)))
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, ((point(1, 1),), GraphInstance(np.ones((1, 2), np.float32), None, None)), memory)
    (points,), (instance,) = read_from_shared_memory(space, memory, 1)
    points[0][:] = 5
    instance.nodes[:] = 5
    (points,), (instance,) = read_from_shared_memory(space, memory, 1)
    assert points[0].tolist() == [1, 1] and instance.nodes.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "value, path",
    [
        ((1, 2.5), "value[1]"),
        ((1, -300, 1.5), "value[2]"),
        ((1, [1, 2]), "value[1]"),
        (("a",), "value[0]"),
        (5, "value"),
        (None, "value"),
        ("12", "value"),
        ({1: 2}, "value"),
    ],
    ids=readable,
)
def test_item_that_does_not_fit_is_named_by_its_place(value, path):
    """Among ten thousand items the place is what one needs."""
    with pytest.raises(MisfitError) as caught:
        stored(Sequence(Discrete(9)), value)
    assert caught.value.where == path


def test_refused_sequence_leaves_the_last_one():
    """Its place is written only when all of it fits."""
    space = Sequence(Discrete(9))
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, (1, 2, 3), memory)
    with pytest.raises(MisfitError):
        write_to_shared_memory(space, 0, (4, 5.5), memory)
    assert read_from_shared_memory(space, memory, 1) == ((1, 2, 3),)


# Graph.

GRAPHS = {
    "no edge space": (Graph(POINT, None), 3, None),
    "edges": (Graph(POINT, Discrete(4)), 3, 5),
    "one edge": (Graph(Discrete(7), POINT), 2, 1),
    "no edges": (Graph(Discrete(7), POINT), 1, 0),
    "large": (Graph(POINT, POINT), 1000, 5000),
}


@pytest.mark.parametrize("space, nodes, edges", GRAPHS.values(), ids=GRAPHS)
def test_graph_of_any_size_comes_back(space, nodes, edges):
    """Gym refuses graphs, since their size is not known; here their memory grows."""
    value, small = graph(space, nodes, edges), graph(space, 1, edges and 1)
    batch = stored(space, value, small)
    for read, expected in zip(batch, (value, small), strict=True):
        assert_same(read, expected)
        assert space.contains(read)


def test_graph_may_be_replaced_by_a_smaller_one():
    """And by one that has no edges at all."""
    space = Graph(POINT, Discrete(4))
    memory = create_shared_memory(space, 1)
    for value in (graph(space, 50, 90), graph(space, 2, 1), GraphInstance(np.ones((1, 2), np.float32), None, None)):
        write_to_shared_memory(space, 0, value, memory)
        assert_same(read_from_shared_memory(space, memory, 1)[0], value)


def test_unwritten_graph_has_no_nodes():
    """Zero-filled memory means the empty value."""
    memory = create_shared_memory(Graph(POINT, None), 1)
    (empty,) = read_from_shared_memory(Graph(POINT, None), memory, 1)
    assert empty.nodes.shape == (0, 2) and empty.edges is None and empty.edge_links is None


@pytest.mark.parametrize(
    "value, path",
    [
        (5, "value"),
        ((1, 2, 3), "value"),
        (GraphInstance(np.zeros((1, 3)), None, None), "value.nodes"),
        (GraphInstance(np.zeros((1, 2)), np.array([0.5]), np.array([[0, 0]])), "value.edges"),
        (GraphInstance(np.zeros((1, 2)), np.array([1]), np.array([0, 0])), "value.edge_links"),
        (GraphInstance(np.zeros((1, 2)), np.array([1]), np.array([[0.0, 0.0]])), "value.edge_links"),
    ],
    ids=readable,
)
def test_part_of_a_graph_that_does_not_fit_is_named(value, path):
    """A graph has three arrays; which of them is wrong is what one needs to know."""
    with pytest.raises(MisfitError) as caught:
        stored(Graph(POINT, Discrete(4)), value)
    assert caught.value.where == path


# Together.


def test_all_kinds_lie_side_by_side():
    """A space of the real world has some of each, nested."""
    space = gym_spaces.Dict(
        camera=Box(0, 255, (2, 2), np.uint8),
        told=gym_spaces.Tuple((Text(9), Sequence(Text(4)))),
        map=Graph(POINT, Discrete(3)),
        order=OneOf((Discrete(3), Sequence(POINT))),
        half=Box(-1, 1, (2,), np.float16),
    )
    space.seed(6)
    values = [space.sample() for _ in range(N)]
    batch = stored(space, *values, strict=True)
    for index, value in enumerate(values):
        assert_same(batch["camera"][index], value["camera"])
        assert_same(batch["half"][index], value["half"])
        assert batch["told"][0][index] == value["told"][0] and batch["told"][1][index] == value["told"][1]
        assert lists(batch["map"][index]) == lists(value["map"])
        assert lists(batch["order"][index]) == lists(value["order"])
