"""Gymnasium's registry of envs, carried over to the workers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium


@dataclass(frozen=True)
class ForwardRegistry:
    """Registers in a worker what the user's process has registered, so that `gymnasium.make` finds it there."""

    specs: dict[str, Any]

    @classmethod
    def here(cls) -> ForwardRegistry:
        """Returns what was registered in this process by others than Gymnasium itself."""
        return cls(
            {
                name: spec
                for name, spec in gymnasium.registry.items()
                if not str(spec.entry_point).startswith("gymnasium.envs.")
            }
        )

    def __call__(self) -> None:
        """Adds what is missing here."""
        missing = {name: spec for name, spec in self.specs.items() if name not in gymnasium.registry}
        if missing:
            gymnasium.registry.update(missing)
            # The module that registers them in the first place may yet be imported here.
            warnings.filterwarnings("ignore", message=".*Overriding environment .* already in registry")
