"""shoal's errors for calls at the wrong moment, each also what TF-Agents raises then."""

from __future__ import annotations

from shoal.engine import StateErrors
from shoal.errors import ClosedError


class TfAgentsClosedError(ClosedError, OSError):
    """The batch was used after `close()`."""


STATE_ERRORS = StateErrors(closed=TfAgentsClosedError, has_halves=False)
