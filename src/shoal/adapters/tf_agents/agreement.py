"""Whether envs can be one batch."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.adapters.tf_agents.facts import Facts
from shoal.errors import SpecMismatchError


def agree(facts: Sequence[Facts]) -> Facts:
    """Returns what holds for all envs, which is what holds for env 0.

    Raises:
        SpecMismatchError: Two envs differ in more than the names of their specs.
    """
    first = facts[0]
    for index, own in enumerate(facts):
        if own.action_spec != first.action_spec:
            raise SpecMismatchError(
                "All environments must have the same action spec. "
                f"Env {index} has {own.action_spec}, but env 0 has {first.action_spec}."
            )
        if own.time_step_spec != first.time_step_spec:
            raise SpecMismatchError(
                "All environments must have the same time_step_spec. "
                f"Env {index} has {own.time_step_spec}, but env 0 has {first.time_step_spec}."
            )
    return first
