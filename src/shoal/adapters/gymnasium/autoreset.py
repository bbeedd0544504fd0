"""Gymnasium's enum of autoreset modes, also for Gymnasium 1.0, which had none."""

from __future__ import annotations

from enum import Enum
from typing import Any

from shoal.errors import ArgumentError
from shoal.worker import Autoreset

try:
    from gymnasium.vector import AutoresetMode
except ImportError:

    class AutoresetMode(Enum):  # type: ignore[no-redef]
        """When an env whose episode has ended is reset."""

        NEXT_STEP = "NextStep"
        SAME_STEP = "SameStep"
        DISABLED = "Disabled"


def autoreset_mode(mode: Any) -> AutoresetMode:
    """Returns Gymnasium's mode for a mode, or for its value or name.

    Raises:
        ArgumentError: There is no such mode.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for known in AutoresetMode:
        if mode in (known.value, known.name) or mode is Autoreset[known.name]:
            return known
    raise ArgumentError(f"autoreset_mode={mode!r} is unknown; use one of {[known.value for known in AutoresetMode]}")


__all__ = ["AutoresetMode", "autoreset_mode"]
