"""What can go wrong, as a tree: every error is a `ShoalError` and the nearest built-in.

```
ShoalError
├── ArgumentError (ValueError)        an argument has a wrong value
├── ArgumentTypeError (TypeError)     an argument has a wrong type
├── MisfitError (ValueError)          an action or observation does not fit its space
├── SpecMismatchError (ValueError, RuntimeError)   envs of one batch differ
├── EnvError (RuntimeError)           an env raised something that cannot be rebuilt here
├── WorkerDiedError (EOFError)        a worker process is gone
├── StartError (RuntimeError)         a worker process could not be started
├── StepTimeoutError, StartTimeoutError (TimeoutError)   no answer in time
├── SharedMemoryError (MemoryError)   the batch does not fit into memory
└── StateError (RuntimeError)         a call came at the wrong moment
    ├── PendingCallError              another call has not been waited for
    ├── NoPendingCallError            there is nothing to wait for
    └── ClosedError                   the batch is closed
```

An exception that an env raises is none of these: it reaches the caller as itself, with the
worker's traceback, a `RemoteTraceback`, as its cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import TimeoutError as MultiprocessingTimeoutError


class ShoalError(Exception):
    """Any error that is shoal's own."""


class ArgumentError(ShoalError, ValueError):
    """An argument has a value that makes no sense; the text says which would."""


class ArgumentTypeError(ShoalError, TypeError):
    """An argument has the wrong type; the text says which is right."""


class MisfitError(ShoalError, ValueError):
    """A value does not fit its space: wrong shape, unsafe cast, missing key.

    Attributes:
        where: What the value is, from the outside in, e.g. `"env 3: observation['camera']"`.
        problem: What was expected and what was found.
        row: Which value of a batch it is, where that is not part of `where` yet; None if it is, or is unknown.
    """

    row: int | None = None

    def __init__(self, where: str, problem: str) -> None:
        """Joins the two into the message."""
        super().__init__(where, problem)
        self.where = where
        self.problem = problem

    def __str__(self) -> str:
        """Returns `where: problem`."""
        return f"{self.where}: {self.problem}"

    def inside(self, outer: str) -> MisfitError:
        """Returns the same error with one more step in front of `where`."""
        return type(self)(f"{outer}{self.where}", self.problem)


class SpecMismatchError(ShoalError, ValueError, RuntimeError):
    """Two envs of one batch have different spaces; nothing is left running."""


class EnvError(ShoalError, RuntimeError):
    """An env raised an exception that cannot be sent or rebuilt; the text has its type and message."""


class RemoteTraceback(ShoalError):
    """The traceback of an exception raised beside an env; it is only ever a cause."""

    def __str__(self) -> str:
        """Returns the traceback as the worker formatted it."""
        return "\n" + "\n".join(str(part) for part in self.args)


class WorkerDiedError(ShoalError, EOFError):
    """A worker process ended before it answered.

    Attributes:
        worker: Number of the worker, from 0.
        env_indices: The envs that lived in it.
        pid: Its process id.
        exit_code: Exit code as `subprocess` gives it: negative for a signal, None if unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        worker: int = -1,
        env_indices: Sequence[int] = (),
        pid: int = -1,
        exit_code: int | None = None,
    ) -> None:
        """Keeps the facts beside the message."""
        super().__init__(message)
        self.worker = worker
        self.env_indices = tuple(env_indices)
        self.pid = pid
        self.exit_code = exit_code


class StartError(ShoalError, RuntimeError):
    """A worker process could not be started."""


class StepTimeoutError(ShoalError, TimeoutError, MultiprocessingTimeoutError):
    """No answer within the deadline; the call is still pending and may be waited for again.

    Attributes:
        late: Who has not answered, in words.
    """

    def __init__(self, message: str = "", late: str = "") -> None:
        """Keeps who is late beside the message."""
        super().__init__(message)
        self.late = late


class StartTimeoutError(StepTimeoutError):
    """An env was not built within `start_timeout`; nothing is left running."""


class SharedMemoryError(ShoalError, MemoryError):
    """The memory that the batch needs cannot be had."""


class StateError(ShoalError, RuntimeError):
    """A call came at the wrong moment; the text says what has to come first."""


class PendingCallError(StateError):
    """A call was started while another has not been waited for."""

    def __init__(self, message: str, name: str = "") -> None:
        """Keeps the name of the pending call, as Gymnasium's class of this kind does."""
        super().__init__(message)
        self.name = name


class NoPendingCallError(StateError):
    """A wait was asked for, but nothing was started."""

    def __init__(self, message: str, name: str = "") -> None:
        """Keeps the name of the call that should have come first."""
        super().__init__(message)
        self.name = name


class ClosedError(StateError):
    """The batch was used after `close()`."""
