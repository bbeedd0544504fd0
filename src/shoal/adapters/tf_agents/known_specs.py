"""A `PyEnvironment` whose specs are known when it is made."""

from __future__ import annotations

from typing import Any

from shoal.adapters.tf_agents.py_environment import PyEnvironment


class KnownSpecs(PyEnvironment):
    """Returns specs that its own kind has put into attributes."""

    _observation_spec: Any
    _action_spec: Any
    _reward_spec: Any
    _discount_spec: Any

    def observation_spec(self) -> Any:
        """Returns one env's, without a batch axis."""
        return self._observation_spec

    def action_spec(self) -> Any:
        """Returns one env's, without a batch axis."""
        return self._action_spec

    def reward_spec(self) -> Any:
        """Returns one env's, without a batch axis."""
        return self._reward_spec

    def discount_spec(self) -> Any:
        """Returns one env's, without a batch axis."""
        return self._discount_spec
