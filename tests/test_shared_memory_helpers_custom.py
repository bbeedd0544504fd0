"""The shared-memory helpers and spaces that they do not know: what is raised, and how a project adds its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import gymnasium.error
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.spaces import Box, Discrete, OneOf
from vectors import readable

import shoal
from shoal import CustomSpaceError, MisfitError, create_shared_memory, read_from_shared_memory, write_to_shared_memory
from shoal.testing.equality import assert_same


class Custom(gym.Space):
    """A space that nobody has registered."""

    def sample(self, mask=None, probability=None):
        return 0

    def contains(self, x):
        return x == 0


CUSTOM = Custom()
AROUND: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "alone": lambda space: (space, 0),
    "in a Dict": lambda space: (gym_spaces.Dict(a=space), {"a": 0}),
    "in a Tuple": lambda space: (gym_spaces.Tuple((Discrete(2), space)), (1, 0)),
    "in a OneOf": lambda space: (OneOf((Discrete(2), space)), (1, 0)),
    "deep inside": lambda space: (gym_spaces.Dict(a=gym_spaces.Tuple((gym_spaces.Dict(b=space),))), {"a": ({"b": 0},)}),
}
OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "create": lambda space, value, memory: create_shared_memory(space, 1),
    "read": lambda space, value, memory: read_from_shared_memory(space, memory, 1),
    "read, old order": lambda space, value, memory: read_from_shared_memory(memory, space, 1),
    "write": lambda space, value, memory: write_to_shared_memory(space, 0, value, memory),
    "write, old order": lambda space, value, memory: write_to_shared_memory(0, value, memory, space),
    "write strictly": lambda space, value, memory: write_to_shared_memory(space, 0, value, memory, strict=True),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("operate", OPERATIONS.values(), ids=OPERATIONS)
def test_custom_space_is_refused_with_every_versions_error(operate, around):
    """Programs catch it to fall back to pipes, and catch the class that their Gym has."""
    _, value = around(CUSTOM)
    # Memory as if for a Discrete: the space must be refused, not the memory.
    memory = create_shared_memory(around(Discrete(2))[0], 1)
    space, _ = around(CUSTOM)
    with pytest.raises(CustomSpaceError, match="Custom") as caught:
        operate(space, value, memory)
    for error in (gymnasium.error.CustomSpaceError, TypeError, shoal.ShoalError):
        assert isinstance(caught.value, error)
    assert not isinstance(caught.value, MisfitError)


@pytest.mark.parametrize(
    "operate, words",
    [
        (OPERATIONS["create"], "Cannot create a shared memory"),
        (OPERATIONS["read"], "Cannot read from a shared memory"),
        (OPERATIONS["write"], "Cannot write to a shared memory"),
    ],
    ids=["create", "read", "write"],
)
def test_refusal_of_a_custom_space_has_gyms_words(operate, words):
    """Both generations of the text are in it, since they are what people search for."""
    with pytest.raises(CustomSpaceError) as caught:
        operate(CUSTOM, 0, create_shared_memory(Discrete(2), 1))
    assert words in str(caught.value)
    assert "shared memory only supports default Gym spaces" in str(caught.value)
    assert "doesn't have an registered" in str(caught.value)


@pytest.mark.parametrize(
    "thing", [5, None, "Box", {}, (), [Discrete(2)], np.zeros(2), Discrete, object()], ids=readable
)
def test_what_is_no_space_is_refused_with_every_versions_error(thing):
    """Gym raises a CustomSpaceError, Gymnasium a TypeError."""
    for operate in OPERATIONS.values():
        with pytest.raises(CustomSpaceError) as caught:
            operate(thing, 0, create_shared_memory(Discrete(2), 1))
        assert isinstance(caught.value, gymnasium.error.CustomSpaceError) and isinstance(caught.value, TypeError)


def test_refused_custom_space_leaves_nothing_behind():
    """The parts before it had their memory already."""
    with pytest.raises(CustomSpaceError):
        create_shared_memory(gym_spaces.Tuple((gym_spaces.Sequence(Discrete(2)), Box(0, 1, (1000,)), CUSTOM)), 100)


# Register.


def make_registered() -> type[Any]:
    """Returns a new class of spaces of whole numbers, for which functions as in Gym's documentation are registered."""

    class Whole(gym.Space):
        def sample(self, mask=None, probability=None):
            return 3

        def contains(self, x):
            return isinstance(x, int)

    @create_shared_memory.register(Whole)
    def create(space, n=1, ctx=None):
        return ["unwritten"] * n

    @read_from_shared_memory.register(Whole)
    def read(space, shared_memory, n=1):
        return tuple(shared_memory[:n])

    def write(space, index, value, shared_memory):
        shared_memory[index] = value

    assert write_to_shared_memory.register(Whole, write) is write
    assert create(None, 2) == ["unwritten"] * 2, "the decorator must return the function"
    return Whole


@pytest.fixture(scope="module")
def whole() -> type[Any]:
    return make_registered()


@pytest.mark.parametrize("write_old", [False, True])
def test_registered_functions_are_called_for_their_class(whole, write_old):
    """Who has written them for Gym's helpers registers them here with the same lines."""
    space = whole()
    memory = create_shared_memory(space, n=2)
    if write_old:
        write_to_shared_memory(1, 7, memory, space)
        assert read_from_shared_memory(memory, space, 2) == ("unwritten", 7)
    else:
        write_to_shared_memory(space, 1, 7, memory)
        assert read_from_shared_memory(space, memory, n=2) == ("unwritten", 7)


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("strict", [False, True])
def test_registered_functions_are_called_for_parts(whole, around, strict):
    """A custom space is seldom alone; and its functions, written for Gym, know nothing of strictness."""
    space, value = around(whole())
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, value, memory, **({"strict": True} if strict else {}))
    batch = read_from_shared_memory(space, memory, 1)
    found = {
        "alone": lambda: batch,
        "in a Dict": lambda: batch["a"],
        "in a Tuple": lambda: batch[1],
        "in a OneOf": lambda: (batch[0][1],),
        "deep inside": lambda: batch["a"][0]["b"],
    }
    (name,) = (name for name, made in AROUND.items() if made is around)
    assert found[name]() == (0,)


def test_registered_functions_are_called_for_derived_classes(whole):
    """As with `functools.singledispatch`, which Gym uses."""
    derived = type("Derived", (whole,), {})
    assert create_shared_memory(derived(), 2) == ["unwritten"] * 2
    assert create_shared_memory.dispatch(derived) is create_shared_memory.dispatch(whole)


def test_nearest_class_decides():
    """A project may treat one kind of Box in its own way; all others stay as they are."""

    class Cropped(Box):
        pass

    create_shared_memory.register(Cropped, lambda space, n=1, ctx=None: "mine")
    assert create_shared_memory(Cropped(0, 1, (2,))) == "mine"
    assert create_shared_memory(gym_spaces.Tuple((Cropped(0, 1, (2,)),))) == ("mine",)
    assert len(create_shared_memory(Box(0, 1, (2,)))) == 2


def test_registered_read_and_write_of_a_box_are_used_in_containers():
    """The memory may be the default's and only the values be changed."""

    class Scaled(Box):
        pass

    plain = Box(0, 200, (2,))
    write_to_shared_memory.register(
        Scaled, lambda space, index, value, memory: write_to_shared_memory(plain, index, np.multiply(value, 2), memory)
    )
    space = gym_spaces.Dict(a=Scaled(0, 100, (2,)))
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, {"a": [1, 2]}, memory)
    assert_same(read_from_shared_memory(space, memory, 1)["a"], np.array([[2, 4]], np.float32))


def test_refusal_inside_a_registered_function_keeps_its_path():
    """What the project's function calls names the value; around it is the rest of the way."""

    class Picky(Box):
        pass

    def refuse(space, index, value, memory):
        raise MisfitError("value[0]", "never")

    write_to_shared_memory.register(Picky, refuse)
    space = gym_spaces.Dict(a=Picky(0, 1, (2,)))
    with pytest.raises(MisfitError, match=r"^value\['a'\]\[0\]: never"):
        write_to_shared_memory(space, 0, {"a": [0, 1]}, create_shared_memory(space, 1))
