"""What the batch does: reset, step, call and close, seeds, and what happens when a worker fails."""

from shoal.engine.engine import Engine
from shoal.engine.options import Options, StateErrors
from shoal.engine.promise import Promise
from shoal.engine.step_batch import StepBatch

__all__ = ["Engine", "Options", "Promise", "StateErrors", "StepBatch"]
