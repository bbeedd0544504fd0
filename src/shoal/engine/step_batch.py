"""What a step gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class StepBatch(NamedTuple):
    """The results of one step.

    Attributes:
        observations: Batch of observations, `[B, ...]` each leaf.
        rewards: `[B]`, float64.
        terminations: `[B]`, bool.
        truncations: `[B]`, bool.
        infos: Columns and masks by key, see `shoal.worker.infos`.
        final_observations: With same-step autoreset the last observation of each env whose episode
            ended, by row.
    """

    observations: Any
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    infos: dict[str, Any]
    final_observations: dict[int, Any]
