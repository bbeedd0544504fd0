"""Autoreset: what happens beside an env when its episode ends.

Each mode is a function that the host calls when a step ended an episode, and only then. It returns the
observation and info to deliver for that step, and may change what the env's next step will do. The
three modes and their names are Gymnasium's.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from shoal.errors import StateError
from shoal.worker.infos import snapshot

EpisodeEnd = tuple[Any, dict[str, Any]]


class Slot(Protocol):
    """One env's place in the host, as far as autoreset is concerned."""

    row: int
    step: Callable[[Any], Any]

    def restart(self) -> EpisodeEnd:
        """Resets the env, and makes its next step an ordinary one."""

    def keep_final(self, observation: Any) -> None:
        """Stores the last observation of the episode in memory, beside the one of the next."""


class Autoreset(Enum):
    """When an env whose episode has ended is reset."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


def next_step(slot: Slot, observation: Any, info: dict[str, Any]) -> EpisodeEnd:
    """Delivers the last observation; the next step resets, ignores its action, and gives reward 0."""

    def step(_action: Any) -> Any:
        first_observation, first_info = slot.restart()
        return first_observation, 0.0, False, False, first_info

    slot.step = step
    return observation, info


def same_step(slot: Slot, observation: Any, info: dict[str, Any]) -> EpisodeEnd:
    """Resets at once and delivers the new episode's first observation; the old one's last goes beside it."""
    slot.keep_final(observation)
    # The env may use one dictionary, or one array in it, for ever.
    final_info = snapshot(info)
    first_observation, first_info = slot.restart()
    return first_observation, {**first_info, "final_info": final_info}


def disabled(slot: Slot, observation: Any, info: dict[str, Any]) -> EpisodeEnd:
    """Delivers the last observation; until the env is reset, stepping it is an error."""

    def step(_action: Any) -> Any:
        raise StateError(
            f"env {slot.row} has ended its episode and autoreset is disabled; reset it before its next step"
        )

    slot.step = step
    return observation, info


AUTORESET: dict[Autoreset, Callable[[Slot, Any, dict[str, Any]], EpisodeEnd]] = {
    Autoreset.NEXT_STEP: next_step,
    Autoreset.SAME_STEP: same_step,
    Autoreset.DISABLED: disabled,
}
