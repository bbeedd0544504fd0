"""The whole contract."""

from __future__ import annotations

from shoal.testing.contract.conduct import ConductContract
from shoal.testing.contract.episodes import EpisodesContract
from shoal.testing.contract.results import ResultsContract


class VectorEnvContract(ResultsContract, EpisodesContract, ConductContract):
    """Every promise of a vector env; a subclass brings the fixture `make_vec`."""
