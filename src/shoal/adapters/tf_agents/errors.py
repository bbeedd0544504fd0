"""shoal's errors that are also what TF-Agents raises then."""

from __future__ import annotations

from shoal.errors import ClosedError


class TfAgentsClosedError(ClosedError, OSError):
    """The batch was used after `close()`."""
