"""How values of array specs travel; the only place of this adapter that knows a codec."""

from __future__ import annotations

from typing import Any

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.array_spec import ArraySpec
from shoal.adapters.tf_agents.facts import Facts
from shoal.adapters.tf_agents.framework import framework
from shoal.adapters.tf_agents.time_step import TimeStep
from shoal.errors import MisfitError
from shoal.structure import ArrayCodec, Codec, Nest, PartsCodec
from shoal.structure.ragged import empty_views
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


class TimeStepCodec(PartsCodec):
    """A time step, of any class, as its four parts."""

    def __init__(self, spec: TimeStep) -> None:
        """Takes the specs of the four parts."""
        super().__init__(TimeStep._fields, [codec_of(part) for part in spec])
        self._spec = spec

    def one(self, time_step: Any, where: str) -> Any:
        """Returns one time step in the types of its specs and in the framework's class, a copy.

        Raises:
            MisfitError: A value does not fit; the text begins with `where`.
        """
        views = empty_views(self, 1)
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
