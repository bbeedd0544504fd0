"""A kit for testing vector envs: toy envs, faults on demand, and a contract that every backend keeps.

`shoal.testing.spaces` has Hypothesis strategies and is imported by name, since it needs Hypothesis;
so does `shoal.testing.contract`, which needs pytest.
"""

from shoal.testing.faults import (
    Fault,
    Faulty,
    TwoArgumentError,
    kill,
    make_none,
    process_gone,
    resume,
    stop,
    wait_until,
)
from shoal.testing.toys import (
    Attributed,
    Chatty,
    Counter,
    Echo,
    EverySpace,
    Parental,
    Pixels,
    ReusedBuffer,
    Scripted,
    Sleeper,
    Stochastic,
)

__all__ = [
    "Attributed",
    "Chatty",
    "Counter",
    "Echo",
    "EverySpace",
    "Fault",
    "Faulty",
    "Parental",
    "Pixels",
    "ReusedBuffer",
    "Scripted",
    "Sleeper",
    "Stochastic",
    "TwoArgumentError",
    "kill",
    "make_none",
    "process_gone",
    "resume",
    "stop",
    "wait_until",
]
