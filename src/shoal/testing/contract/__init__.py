"""What a vector env promises, as pytest classes: whoever adds a backend or an adapter subclasses them.

```python
import functools
import pytest
from shoal.testing.contract import VectorEnvContract, closing_all

class TestMine(VectorEnvContract):
    @pytest.fixture
    def make_vec(self):
        with closing_all(functools.partial(MyVectorEnv, backend="mine")) as make_vec:
            yield make_vec
```

`make_vec(env_fns, **options)` returns a running batch with the interface of Gymnasium's `AsyncVectorEnv`; the
options are that class's own. `VectorEnvContract` is the whole; its parts can be taken alone where starting a
batch is slow. For messages that show values, call `pytest.register_assert_rewrite("shoal.testing.contract")` before
this is first imported.
"""

from shoal.testing.contract.conduct import ConductContract
from shoal.testing.contract.episodes import EpisodesContract
from shoal.testing.contract.makers import Make, closing_all, counters, plain_loop
from shoal.testing.contract.results import ResultsContract
from shoal.testing.contract.suite import VectorEnvContract

__all__ = [
    "ConductContract",
    "EpisodesContract",
    "Make",
    "ResultsContract",
    "VectorEnvContract",
    "closing_all",
    "counters",
    "plain_loop",
]
