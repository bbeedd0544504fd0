"""What workers need so that envs are constructed there as they would be in the program."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.adapters.gymnasium.registry import ForwardRegistry
from shoal.adapters.tf_agents.preload import THEIR_MODULE, modules_for
from shoal.adapters.tf_agents.system_multiprocessing import state_setups

# Which states this process has been given.
_restored: set[int] = set()


class Needs(NamedTuple):
    """What an engine is given.

    Attributes:
        env_fns: The constructors, which restore the program's state first.
        setups: Called in each worker before its envs are constructed.
        preload: Modules worth importing before workers are forked.
    """

    env_fns: list[Callable[[], Any]]
    setups: list[Callable[[], Any]]
    preload: list[str]


def needs_of(env_constructors: Sequence[Callable[[], Any]]) -> Needs:
    """Returns what the workers of these envs need."""
    preload = modules_for(env_constructors)
    restore = state_setups(have_tf_agents=THEIR_MODULE in preload)
    env_fns = list(env_constructors)
    if restore:
        token = secrets.randbits(62)
        # One for each constructor, however often it is given: it is sent once.
        wrapped = {id(each): _WithState(each, restore, token) for each in env_constructors}
        env_fns = [wrapped[id(each)] for each in env_constructors]
    return Needs(env_fns, [ForwardRegistry.here()], preload)


@dataclass(frozen=True)
class _WithState:
    """A constructor that restores global state before its first call in a process.

    Not before: only when the constructor is there have the modules been imported that the state may be about.
    """

    env_constructor: Callable[[], Any]
    restore: Sequence[Callable[[], Any]]
    token: int

    def __call__(self) -> Any:
        if self.token not in _restored:
            _restored.add(self.token)
            for restore in self.restore:
                restore()
        return self.env_constructor()
