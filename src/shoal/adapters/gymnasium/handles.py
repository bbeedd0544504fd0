"""A worker process as programs know it from `multiprocessing`."""

from __future__ import annotations

import psutil


class WorkerHandle:
    """Looks like the `multiprocessing.Process` that Gymnasium keeps for each env.

    Attributes:
        name: Says which worker it is.
        pid: Its process id.
    """

    def __init__(self, worker: int, pid: int) -> None:
        """Takes the worker's number and process id."""
        self.name = f"shoal-worker-{worker}"
        self.pid = pid

    def is_alive(self) -> bool:
        """Tells whether the process is there and not a zombie."""
        try:
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    def terminate(self) -> None:
        """Sends SIGTERM."""
        psutil.Process(self.pid).terminate()

    def kill(self) -> None:
        """Sends SIGKILL."""
        psutil.Process(self.pid).kill()

    def __repr__(self) -> str:
        """Returns name and process id."""
        return f"<{self.name} pid={self.pid}>"
