"""Where a measurement was taken: what a reader needs to judge its figures."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy

import shoal

# Load per CPU above which other programs are likely to have taken part.
_BUSY = 0.5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Machine and versions, and how busy the machine was before the measurement.

    Attributes:
        cpus: CPUs this process may use.
        load: One-minute load average before the measurement; None where there is none.
        system: Operating system and processor.
        python: Version of Python.
        numpy: Version of NumPy.
        gymnasium: Version of Gymnasium.
        shoal: Version of shoal.
    """

    cpus: int
    load: float | None
    system: str
    python: str
    numpy: str
    gymnasium: str
    shoal: str

    @classmethod
    def now(cls) -> Surroundings:
        """Returns the present surroundings; to be asked before the measurement."""
        return cls(
            cpus=shoal.available_cpus(),
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            numpy=numpy.__version__,
            gymnasium=gymnasium.__version__,
            shoal=shoal.__version__,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the attributes, ready for `json.dumps`."""
        return asdict(self)

    def notes(self) -> list[str]:
        """Returns lines to print under a table."""
        load = "" if self.load is None else f", load average before {self.load:.2f}"
        lines = [
            f"{self.cpus} CPU{'s' * (self.cpus != 1)} ({self.system}){load}; Python {self.python}, "
            f"NumPy {self.numpy}, Gymnasium {self.gymnasium}, shoal {self.shoal}."
        ]
        if self.load is not None and self.load > _BUSY * self.cpus:
            lines.append("The machine was busy before the measurement: take the figures with care.")
        return lines
