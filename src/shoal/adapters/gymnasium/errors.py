"""shoal's errors for calls at the wrong moment, each also Gymnasium's error of that kind."""

from __future__ import annotations

from gymnasium import error as gymnasium_error

from shoal.engine import StateErrors
from shoal.errors import ClosedError, NoPendingCallError, PendingCallError


class GymnasiumPendingCallError(PendingCallError, gymnasium_error.AlreadyPendingCallError):
    """A call was started while another has not been waited for."""


class GymnasiumNoPendingCallError(NoPendingCallError, gymnasium_error.NoAsyncCallError):
    """A wait was asked for, but nothing was started."""


class GymnasiumClosedError(ClosedError, gymnasium_error.ClosedEnvironmentError):
    """The batch was used after `close()`."""


STATE_ERRORS = StateErrors(GymnasiumPendingCallError, GymnasiumNoPendingCallError, GymnasiumClosedError)
