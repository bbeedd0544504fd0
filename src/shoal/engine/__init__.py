"""What the batch does: reset, step, call and close, seeds, and what happens when a worker fails."""

from shoal.engine.engine import Engine, StepBatch
from shoal.engine.options import Options, StateErrors

__all__ = ["Engine", "Options", "StateErrors", "StepBatch"]
