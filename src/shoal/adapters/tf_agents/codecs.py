"""How values of array specs travel; the only place of this adapter that knows a codec."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.array_spec import ArraySpec
from shoal.adapters.tf_agents.facts import Facts
from shoal.adapters.tf_agents.framework import framework
from shoal.adapters.tf_agents.time_step import TimeStep
from shoal.errors import MisfitError
from shoal.structure import ArrayCodec, Codec, Leaf, Nest, Reader, Views, Writer
from shoal.worker import Description


def codec_of(specs: Any) -> Codec:
    """Returns how values of these specs travel."""
    tree = nests.map_nest(lambda spec: ArrayCodec(spec.shape, spec.dtype), specs)
    codec: Codec = tree if isinstance(specs, ArraySpec) else Nest(tree)
    return codec


def repacked(specs: Any, values: Any) -> Any:
    """Returns the leaves of a nest of actions in the containers of their specs; raises `MisfitError`."""
    try:
        return nests.pack(specs, nests.flatten(values))
    except ValueError as error:
        raise MisfitError("action", str(error)) from None


def describe(facts: Facts) -> Description:
    """Returns how the values of such envs travel.

    What the host calls an observation is the whole time step: nothing of it is worked out from anything
    else, so it arrives as the env gave it.
    """
    return Description(TimeStepCodec(facts.time_step_spec), codec_of(facts.action_spec))


class TimeStepCodec:
    """A time step, of any class, as its four parts.

    Attributes:
        leaves: All leaves; paths start with the part's name.
    """

    def __init__(self, spec: TimeStep) -> None:
        """Takes the specs of the four parts."""
        self._spec = spec
        self._codecs = [codec_of(part) for part in spec]
        stops = list(accumulate(len(codec.leaves) for codec in self._codecs))
        self._spans = list(zip([0, *stops], stops, strict=False))
        self.leaves: tuple[Leaf, ...] = tuple(
            Leaf((name, *leaf.path), leaf.shape, leaf.dtype)
            for name, codec in zip(TimeStep._fields, self._codecs, strict=True)
            for leaf in codec.leaves
        )

    def writer(self, views: Views, where: str) -> Writer:
        """Returns a function that stores one time step in one row; errors name the part, not `where`."""
        write_step_type, write_reward, write_discount, write_observation = (
            codec.writer(views[start:stop], name)
            for name, codec, (start, stop) in zip(TimeStep._fields, self._codecs, self._spans, strict=True)
        )

        def write(row: int, time_step: Any) -> None:
            step_type, reward, discount, observation = time_step
            write_step_type(row, step_type)
            write_reward(row, reward)
            write_discount(row, discount)
            write_observation(row, observation)

        return write

    def reader(self, views: Views) -> Reader:
        """Returns a function that gives rows as separate time steps, copies."""
        readers = [
            codec.reader(views[start:stop]) for codec, (start, stop) in zip(self._codecs, self._spans, strict=True)
        ]

        def read(first: int, last: int) -> list[Any]:
            return [TimeStep(*parts) for parts in zip(*(read(first, last) for read in readers), strict=True)]

        return read

    def encode(self, views: Views, batch: Any, where: str) -> None:
        """Stores a batch of time steps; errors name the part, not `where`."""
        for part, name, codec, (start, stop) in zip(batch, TimeStep._fields, self._codecs, self._spans, strict=True):
            codec.encode(views[start:stop], part, name)

    def batch(self, views: Views) -> TimeStep:
        """Returns the batch as one time step, `[B, ...]` each leaf, views."""
        return TimeStep(
            *(codec.batch(views[start:stop]) for codec, (start, stop) in zip(self._codecs, self._spans, strict=True))
        )

    def one(self, time_step: Any, where: str) -> Any:
        """Returns one time step in the types of its specs and in the framework's class, a copy.

        Raises:
            MisfitError: A value does not fit; the text begins with `where`.
        """
        views = [np.empty((1, *leaf.shape), leaf.dtype) for leaf in self.leaves]
        try:
            self.writer(views, "")(0, time_step)
        except MisfitError as misfit:
            raise misfit.inside(where) from None
        return framework().TimeStep(*self.batch([view[0, ...] for view in views]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels as the specs alone."""
        return TimeStepCodec, (self._spec,)

    def __repr__(self) -> str:
        """Returns the specs."""
        return f"TimeStepCodec({self._spec})"
