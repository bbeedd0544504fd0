"""Which envs may be stepped, and why the others may not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shoal.errors import StateError

_NEVER_RESET = "it has not been reset yet"


class Readiness:
    """Keeps, for each env that must be reset before it is stepped, the reason."""

    def __init__(self, num_envs: int) -> None:
        """Every env has yet to be reset."""
        self._reasons = dict.fromkeys(range(num_envs), _NEVER_RESET)

    def check_step(self) -> None:
        """Raises `StateError` for the first env that cannot be stepped."""
        if self._reasons:
            row, reason = min(self._reasons.items())
            raise StateError(f"env {row} cannot be stepped: {reason}; reset it first")

    def check_reset(self, chosen: Sequence[bool]) -> None:
        """Raises `StateError` if an env that is left out of a reset has nothing to show yet."""
        never = [row for row, reason in self._reasons.items() if not chosen[row] and reason is _NEVER_RESET]
        if never:
            raise StateError(f"env {never[0]} has not been reset yet and is left out of this reset; reset all first")

    def grant(self, rows: Iterable[int]) -> None:
        """Lets these envs be stepped."""
        for row in rows:
            self._reasons.pop(row, None)

    def refuse(self, rows: Iterable[int], reason: str) -> None:
        """Refuses to step these envs until they are reset."""
        self._reasons.update(dict.fromkeys(rows, reason))

    def refuse_ended(self, terminations: np.ndarray, truncations: np.ndarray) -> None:
        """Refuses to step, with autoreset disabled, the envs whose episode has ended."""
        self.refuse(
            np.flatnonzero(terminations | truncations).tolist(), "its episode has ended and autoreset is disabled"
        )
