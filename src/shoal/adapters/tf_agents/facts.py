"""What a face wants to know of a `PyEnvironment`: its specs, as shoal's own, which need no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.array_spec import ArraySpec, BoundedArraySpec
from shoal.adapters.tf_agents.time_step import DEFAULT_DISCOUNT_SPEC, TimeStep
from shoal.errors import ArgumentTypeError


@dataclass(frozen=True)
class Facts:
    """The specs of one env.

    Attributes:
        observation_spec: The env's.
        action_spec: The env's.
        reward_spec: The env's.
        discount_spec: The env's.
        time_step_spec: The env's, with its own discount spec in it; tf-agents puts in the default one.
    """

    observation_spec: Any
    action_spec: Any
    reward_spec: Any
    discount_spec: Any
    time_step_spec: TimeStep

    @classmethod
    def of(cls, env: Any) -> Facts:
        """Asks a `PyEnvironment`, tf-agents' or shoal's."""
        time_step = TimeStep(*(to_own_specs(part, "time_step_spec") for part in env.time_step_spec()))
        discount = to_own_specs(env.discount_spec(), "discount_spec")
        if time_step.discount == DEFAULT_DISCOUNT_SPEC:
            time_step = time_step._replace(discount=discount)
        return cls(
            observation_spec=to_own_specs(env.observation_spec(), "observation_spec"),
            action_spec=to_own_specs(env.action_spec(), "action_spec"),
            reward_spec=to_own_specs(env.reward_spec(), "reward_spec"),
            discount_spec=discount,
            time_step_spec=time_step,
        )


def to_own_specs(nest: Any, name: str) -> Any:
    """Returns a nest of array specs, tf-agents', dm_env's or shoal's, as a nest of shoal's.

    Raises:
        ArgumentTypeError: Something in it is no array spec.
    """

    def to_own(spec: Any) -> ArraySpec:
        try:
            shape, dtype = tuple(spec.shape), np.dtype(spec.dtype)
        except (AttributeError, TypeError):
            raise ArgumentTypeError(f"{name} holds {spec!r}, which is no array spec") from None
        if dtype.kind not in "biufcSUmM":
            raise ArgumentTypeError(
                f"{name} holds {spec!r}, whose values have no fixed size; give it a number or fixed-length string type"
            )
        if type(spec) in (ArraySpec, BoundedArraySpec):
            # Immutable, so it may as well be this one.
            return spec  # type: ignore[no-any-return]
        if getattr(spec, "minimum", None) is None:
            return ArraySpec(shape, dtype, spec.name)
        return BoundedArraySpec(shape, dtype, spec.minimum, spec.maximum, spec.name)

    return nests.map_nest(to_own, nest)
