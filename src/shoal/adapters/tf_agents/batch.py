"""What `ParallelPyEnvironment` and `BatchedPyEnvironment` share: a `PyEnvironment` over an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.adapters.tf_agents import calls, nests
from shoal.adapters.tf_agents.agreement import agree
from shoal.adapters.tf_agents.codecs import TimeStepCodec, describe
from shoal.adapters.tf_agents.driver import PyEnvironmentDriver
from shoal.adapters.tf_agents.errors import TfAgentsClosedError
from shoal.adapters.tf_agents.facts import Facts
from shoal.adapters.tf_agents.framework import framework
from shoal.adapters.tf_agents.known_specs import KnownSpecs
from shoal.engine import Engine, Options, StateErrors
from shoal.errors import ArgumentError
from shoal.worker import Call, Description, DriverFactory
from shoal.worker.calls import method_call

STATE_ERRORS = StateErrors(closed=TfAgentsClosedError, has_halves=False)


class EngineEnvironment(KnownSpecs):
    """Steps a batch of envs as one `PyEnvironment`.

    Time steps are of tf-agents' own class where tf-agents is installed. Their arrays never change afterwards.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        options: Options,
        *,
        driver_factory: DriverFactory = PyEnvironmentDriver,
        setups: Sequence[Callable[[], Any]] = (),
        preload: Sequence[str] = (),
    ) -> None:
        """Starts the workers and constructs the envs.

        Args:
            env_fns: Constructors of envs.
            options: The engine's.
            driver_factory: Makes a driver from a constructor.
            setups: Called in each worker before its envs are constructed.
            preload: Modules worth importing before workers are forked.
        """
        super().__init__()
        self._framework = framework()
        self._facts_of_env: list[Facts] = []

        def resolve(facts: list[Facts]) -> Description:
            self._facts_of_env = facts
            return describe(agree(facts))

        self._engine = Engine(
            env_fns,
            driver_factory,
            resolve,
            options,
            setups=setups,
            preload=preload,
            name=type(self).__name__,
            state_errors=STATE_ERRORS,
        )
        first, specs = self._facts_of_env[0], self._framework.specs
        self._codec = TimeStepCodec(first.time_step_spec)
        self._own_action_spec = first.action_spec
        self._action_spec = specs(first.action_spec)
        self._observation_spec = specs(first.observation_spec)
        self._reward_spec = specs(first.reward_spec)
        self._discount_spec = specs(first.discount_spec)
        self._time_step_spec = specs(first.time_step_spec)
        self._num_envs = self._engine.num_envs
        self._current_time_step = None

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """`B`, how many envs there are."""
        return self._num_envs

    @property
    def num_workers(self) -> int:
        """How many workers share the envs."""
        return self._engine.num_workers

    @property
    def worker_pids(self) -> list[int]:
        """Process id of each worker; this process's own where workers are no processes."""
        return self._engine.worker_pids

    def time_step_spec(self) -> Any:
        """Returns one env's, without a batch axis."""
        return self._time_step_spec

    def _reset(self) -> Any:
        nothing = [None] * self._num_envs
        return self._framework.TimeStep(*self._engine.reset(nothing, nothing)[0])

    def _step(self, actions: Any) -> Any:
        return self._framework.TimeStep(*self._engine.step(actions).observations)

    def get_info(self) -> Any:
        """Returns what every env's `get_info` returns, stacked: the same nest, `[B, ...]` each leaf.

        Raises:
            NotImplementedError: The envs have none.
            ValueError: The envs' infos differ in structure or shape; the text says which and how.
        """
        return nests.stack(self._engine.call(method_call("get_info")))

    def get_state(self) -> list[Any]:
        """Returns every env's state, which can be pickled if the envs' own states can.

        By the env's `get_state`, or else all that the env is made of; its current time step is part of it.

        Raises:
            StateError: An env's state cannot be saved; the text says which part of it.
        """
        return list(self._engine.call(Call(0, "get_state", calls.get_state)))

    def set_state(self, state: Sequence[Any]) -> None:
        """Brings every env into a state of `get_state`, from which it goes on exactly as it did then.

        Args:
            state: One for each env; of this batch or of another of envs that are constructed alike.

        Raises:
            ArgumentError: There are more or fewer than envs.
            StateError: One is no state of such an env; no env was changed.
        """
        if len(state) != self._num_envs:
            raise ArgumentError(f"state has {len(state)} entries for {self._num_envs} envs; give one for each")
        each = [(own,) for own in state]
        # All of them are looked at before any env is changed.
        self._engine.call(Call(0, "set_state", calls.check_state), each)
        time_steps = self._engine.call(Call(0, "set_state", calls.set_state), each)
        if any(time_step is None for time_step in time_steps):
            self._current_time_step = None
            return
        self._engine.make_ready(range(self._num_envs))
        ones = [self._codec.one(time_step, f"env {row}: ") for row, time_step in enumerate(time_steps)]
        self._current_time_step = nests.stack(ones)

    def close(self) -> None:
        """Closes the envs and ends the workers; idempotent, bounded, and does not raise."""
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.close()

    def _render(self, *mode: str) -> np.ndarray:
        frames = self._engine.call(method_call("render", mode))
        for row, frame in enumerate(frames):
            if np.shape(frame) != np.shape(frames[0]):
                raise ArgumentError(
                    f"env {row} has rendered a frame of shape {np.shape(frame)}, but env 0 one of "
                    f"{np.shape(frames[0])}; render them one by one with envs[i].render()"
                )
        return np.stack(frames)
