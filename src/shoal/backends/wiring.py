"""What a batch shares with all its worker processes: the control memory and the bells."""

from __future__ import annotations

import contextlib

from shoal.memory import Bell, ControlMemory, make_bell


class Wiring:
    """Made at once or not at all.

    Attributes:
        control: The rings.
        submitted: For each worker the bell that the engine rings.
        completed: The bell that all workers ring.
    """

    def __init__(self, num_workers: int) -> None:
        """Makes all of it.

        Raises:
            SharedMemoryError: There is no memory.
            OSError: The program has no descriptors left.
        """
        self.submitted: list[Bell] = []
        with contextlib.ExitStack() as undo:
            self.control = ControlMemory.create(num_workers)
            undo.callback(self.control.segment.close)
            for _ in range(num_workers + 1):
                bell = make_bell()
                undo.callback(bell.close)
                self.submitted.append(bell)
            undo.pop_all()
        self.completed = self.submitted.pop()

    def close(self) -> None:
        """Closes this process's descriptors."""
        for bell in (*self.submitted, self.completed):
            bell.close()
        self.control.segment.close()
