"""The helpers beside those of the installed Gymnasium, over spaces and values that chance chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Dict, OneOf, Text, Tuple
from gymnasium.vector import utils as theirs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import shoal
from shoal.testing.equality import assert_same
from shoal.testing.spaces import leaf_spaces, nested_spaces

ROWS = st.integers(1, 4)
SEEDS = st.integers(0, 2**31 - 1)

# With what shoal has memory for, and Gymnasium too.
texts = st.builds(Text, st.integers(1, 6), min_length=st.just(0), charset=st.sampled_from(["ab", "xyz 1", "äö漢"]))
one_ofs = st.lists(leaf_spaces() | texts, min_size=1, max_size=3).map(OneOf)
mixed_spaces = st.one_of(
    nested_spaces(),
    texts,
    one_ofs,
    st.lists(nested_spaces(1) | texts | one_ofs, min_size=1, max_size=3).map(Tuple),
    st.dictionaries(st.sampled_from("abc"), nested_spaces(1) | texts | one_ofs, min_size=1).map(Dict),
)


def plain(value: Any) -> Any:
    """Returns a nest with plain dicts, in which the two differ on purpose."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def assert_alike(ours: Any, theirs: Any) -> None:
    """Raises unless two nests are the same but for the kind of dict."""
    assert_same(plain(ours), plain(theirs))
    assert keys(ours) == keys(theirs)


def keys(value: Any) -> Any:
    """Returns the keys of all dicts in a nest, in their order."""
    if isinstance(value, dict):
        return [(key, keys(part)) for key, part in value.items()]
    return list(map(keys, value)) if isinstance(value, tuple) else None


def samples(space: Any, count: int, seed: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def their_memory(space: Any, rows: int) -> Any:
    """Returns Gymnasium's memory; some versions have none for float16."""
    try:
        return theirs.create_shared_memory(space, rows)
    except TypeError as error:
        assume("no size" not in str(error))
        raise


@given(mixed_spaces, ROWS, SEEDS)
@settings(max_examples=200)
def test_what_is_read_after_writing_is_what_gymnasium_reads(space, rows, seed):
    """Programs move from one to the other by an import, and must see the same containers, types and bits."""
    memory, reference = shoal.create_shared_memory(space, rows), their_memory(space, rows)
    for index, value in enumerate(samples(space, rows, seed)):
        shoal.write_to_shared_memory(space, index, value, memory)
        theirs.write_to_shared_memory(space, index, value, reference)
    assert_alike(
        shoal.read_from_shared_memory(space, memory, rows), theirs.read_from_shared_memory(space, reference, rows)
    )


@given(nested_spaces(), ROWS, SEEDS)
@settings(max_examples=100)
def test_memory_is_that_of_gymnasium(space, rows, seed):
    """Arrays lie in both memories in the same way: one may write what the other reads, in a mixed program."""
    memory, reference = shoal.create_shared_memory(space, rows), their_memory(space, rows)
    for index, value in enumerate(samples(space, rows, seed)):
        theirs.write_to_shared_memory(space, index, value, memory)
        shoal.write_to_shared_memory(space, index, value, reference)
    expected = theirs.read_from_shared_memory(space, memory, rows)
    assert_alike(shoal.read_from_shared_memory(space, memory, rows), expected)
    assert_alike(theirs.read_from_shared_memory(space, reference, rows), expected)


@given(nested_spaces(), SEEDS)
@settings(max_examples=100)
def test_strict_takes_whatever_the_space_gives(space, seed):
    """A sample lies in its space, so a strict check has nothing to say."""
    (value,) = samples(space, 1, seed)
    loose, strict = (shoal.create_shared_memory(space, 1) for _ in range(2))
    shoal.write_to_shared_memory(space, 0, value, loose)
    shoal.write_to_shared_memory(space, 0, value, strict, strict=True)
    assert_same(shoal.read_from_shared_memory(space, strict, 1), shoal.read_from_shared_memory(space, loose, 1))


@given(nested_spaces(), ROWS, SEEDS)
@settings(max_examples=100)
def test_rows_of_a_batch_are_those_gymnasium_iterates_over(space, rows, seed):
    """Each env must get the same action, in the same containers."""
    batched = shoal.batch_space(space, rows)
    (batch,) = samples(batched, 1, seed)
    ours, reference = list(shoal.iterate(batched, batch)), list(theirs.iterate(batched, batch))
    assert len(ours) == len(reference) == rows
    for own, other in zip(ours, reference, strict=True):
        assert_alike(own, other)


@given(mixed_spaces, ROWS, SEEDS)
@settings(max_examples=100)
def test_values_of_every_kind_come_back_from_their_batch(space, rows, seed):
    """`concatenate` and `iterate` undo each other, also where Gymnasium's `iterate` gives up or mixes envs."""
    values = samples(space, rows, seed)
    batch = shoal.concatenate(space, values, shoal.create_empty_array(space, rows))
    rows_again = list(shoal.iterate(shoal.batch_space(space, rows), batch))
    # The order of keys is the batched space's, and `batch_space` sorts them.
    assert_same(as_arrays(rows_again), as_arrays(values))


def as_arrays(value: Any) -> Any:
    """Returns a nest with arrays for NumPy scalars, as which some leaves are sampled."""
    if isinstance(value, dict):
        return {key: as_arrays(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(as_arrays, value))
    return value if isinstance(value, str) else np.asarray(value)


@given(mixed_spaces, ROWS, SEEDS)
@settings(max_examples=100)
def test_batch_is_what_gymnasium_concatenates(space, rows, seed):
    """Batches built here go to code that expects Gymnasium's."""
    values = samples(space, rows, seed)
    ours = shoal.create_empty_array(space, rows)
    reference = theirs.create_empty_array(space, rows)
    assert_alike(ours, reference)
    assert_alike(shoal.concatenate(space, values, ours), theirs.concatenate(space, values, reference))
    assert_alike(
        shoal.concatenate(values, shoal.create_empty_array(space, rows), space),
        theirs.concatenate(space, values, theirs.create_empty_array(space, rows)),
    )


@given(mixed_spaces, ROWS)
@settings(max_examples=100)
def test_space_of_a_batch_is_gymnasiums(space, rows):
    """It is compared with `==`, and saved with policies."""
    assert shoal.batch_space(space, rows) == theirs.batch_space(space, rows)
    assert shoal.batch_space(rows, space) == theirs.batch_space(space, rows)


@given(nested_spaces(), ROWS, SEEDS)
@settings(max_examples=50)
def test_batch_read_from_memory_lies_in_the_batched_space(space, rows, seed):
    """What is read is checked against the space of the batch by wrappers and by `check_env`."""
    memory = shoal.create_shared_memory(space, rows)
    for index, value in enumerate(samples(space, rows, seed)):
        shoal.write_to_shared_memory(space, index, value, memory)
    assert shoal.batch_space(space, rows).contains(shoal.read_from_shared_memory(space, memory, rows))
