"""`AsyncVectorEnv`: Gymnasium's vector interface over an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.vector import VectorEnv

from shoal.adapters.gymnasium.agreement import Agreement, agree, check_observation_mode
from shoal.adapters.gymnasium.arguments import (
    check_env_fns,
    choose_start_method,
    chosen_infos,
    worker_limit,
)
from shoal.adapters.gymnasium.autoreset import AutoresetMode
from shoal.adapters.gymnasium.autoreset import autoreset_mode as to_autoreset_mode
from shoal.adapters.gymnasium.codecs import codec_of
from shoal.adapters.gymnasium.driver import Facts
from shoal.adapters.gymnasium.env_calls import EnvCalls
from shoal.adapters.gymnasium.errors import STATE_ERRORS
from shoal.adapters.gymnasium.extras import Extras
from shoal.adapters.gymnasium.handles import WorkerHandle
from shoal.adapters.gymnasium.registry import ForwardRegistry
from shoal.adapters.gymnasium.reset_arguments import reset_arguments
from shoal.adapters.gymnasium.strict import StrictCodec
from shoal.engine import Engine, Options, StepBatch
from shoal.errors import ArgumentTypeError
from shoal.worker import Autoreset, Description

StepReturn = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class AsyncVectorEnv(EnvCalls, VectorEnv):
    """Steps Gymnasium envs in worker processes; stands in for `gymnasium.vector.AsyncVectorEnv`.

    Observations, rewards and flags come through shared memory. The arrays that `reset` and `step` return
    never change afterwards; large ones are lent, not copied. See `docs/porting/gymnasium.md` for what
    differs from Gymnasium's class.

    Attributes:
        num_envs: `B`.
        num_workers: How many workers share the envs.
        single_observation_space: Space of one env's observation.
        observation_space: Space of a batch of observations.
        single_action_space: Space of one env's action.
        action_space: Space of a batch of actions.
        metadata: Env 0's, with the autoreset mode added.
        render_mode: Env 0's.
        observations: What `reset` or `step` returned last, None before.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        observation_mode: str | tuple[Space[Any], Space[Any]] = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | None = None,
        backend: str = "process",
        start_method: str | None = None,
        step_timeout: float | None = None,
        start_timeout: float | None = 300.0,
        close_timeout: float = 5.0,
        start_serially: bool = False,
        seeding: str = "increment",
        worker_init: Callable[[], Any] | None = None,
        worker_threads: int | None = None,
        infos: str | Sequence[str] | None = "all",
        strict: bool = False,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts the workers and constructs the envs, each exactly once, in its worker.

        Args:
            env_fns: Functions that construct an env each. They travel by cloudpickle, so lambdas, closures
                and classes of the main script are fine.
            shared_memory: Accepted for Gymnasium's sake; values travel through shared memory either way.
            copy: If False, observations are views of one buffer that the next call overwrites.
            context: Gymnasium's name for `start_method`.
            daemon: Accepted for Gymnasium's sake; workers may always have children, and always end with
                this process.
            worker: Not supported, since there are no pipes to serve; see `worker_init`.
            observation_mode: `"same"`; `"different"` for spaces of one shape and dtype whose bounds differ;
                or the pair (batched space, single space).
            autoreset_mode: What happens when an episode ends.
            max_concurrency: Gymnasium's name for an upper limit of `num_workers`.
            num_workers: How many workers share the envs; None for one a CPU, at most one an env.
            backend: `"process"`, `"thread"` or `"serial"`; all give the same results.
            start_method: `"forkserver"` (default), `"spawn"` or `"fork"`.
            step_timeout: Seconds to wait for a reset, step or call; None to wait while the workers live. The
                serial backend cannot interrupt an env and does not heed it.
            start_timeout: Seconds that constructing all envs may take, None for no limit.
            close_timeout: Seconds that envs may take to close before their workers are killed.
            start_serially: Whether to start one worker after the other.
            seeding: What one integer seed means: `"increment"` gives env `i` the seed plus `i`, which is
                Gymnasium's rule; `"spawn"` an independent one from NumPy's `SeedSequence`.
            worker_init: Called in each worker before its envs are constructed.
            worker_threads: Threads that numerical libraries may use in a worker; None for one, or what
                `OMP_NUM_THREADS` and its like say.
            infos: Which infos to deliver: `"all"`, the keys of those that are wanted, or None for none.
            strict: Whether observations and actions must lie in their spaces: within the bounds, without NaN and
                without other keys. Otherwise only shape and type are checked.
            extras: What the envs give at every reset and step beside their observations, by name: a space, for
                what is in the info under that name; or a space and the name of a method of the env. It arrives
                through shared memory as `infos[name]`, `[B, ...]`.

        Raises:
            ArgumentError, ArgumentTypeError: An argument makes no sense.
            SpecMismatchError: The envs' spaces differ.
            StartTimeoutError, WorkerDiedError: A worker did not get ready.
            Exception: Whatever a constructor raised. Nothing is left running after any of these.
        """
        if worker is not None:
            raise ArgumentTypeError(
                "worker= replaces the loop of Gymnasium's pipe workers, which do not exist here; use worker_init= "
                "to prepare workers, and a wrapper inside the env function to change what an env does"
            )
        self.env_fns = check_env_fns(env_fns)
        self.shared_memory = shared_memory
        self.copy = copy
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.observation_mode = observation_mode
        self.autoreset_mode = to_autoreset_mode(autoreset_mode)
        self.max_concurrency = max_concurrency
        check_observation_mode(observation_mode)
        options = Options(
            num_workers=worker_limit(num_workers, max_concurrency, len(self.env_fns)),
            backend=backend,
            start_method=choose_start_method(context, start_method),
            autoreset=Autoreset[self.autoreset_mode.name],
            copy=copy,
            step_timeout=step_timeout,
            start_timeout=start_timeout,
            close_timeout=close_timeout,
            start_serially=start_serially,
            seeding=seeding,
            infos=chosen_infos(infos),
            worker_init=worker_init,
            worker_threads=worker_threads,
        )
        self._extras = Extras(extras)
        agreed: list[Agreement] = []

        def resolve(facts: list[Facts]) -> Description:
            agreed.append(agree(facts, observation_mode))
            observation, action = agreed[0].single_observation_space, agreed[0].single_action_space
            if not strict:
                return Description(self._extras.beside(codec_of(observation), codec_of), codec_of(action))
            own = StrictCodec(codec_of(observation), [each.observation_space for each in facts])
            return Description(self._extras.beside(own, StrictCodec.of), StrictCodec.of(action))

        self._engine = Engine(
            self.env_fns,
            self._extras.driver_factory(),
            resolve,
            options,
            setups=[ForwardRegistry.here()],
            name=type(self).__name__,
            state_errors=STATE_ERRORS,
        )
        (agreement,) = agreed
        self._seeding = seeding
        self.num_envs = self._engine.num_envs
        self.num_workers = self._engine.num_workers
        self.single_observation_space = agreement.single_observation_space
        self.observation_space = agreement.observation_space
        self.single_action_space = agreement.single_action_space
        self.action_space = agreement.action_space
        self.metadata = {**agreement.facts.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = agreement.facts.render_mode
        self.observations: Any = None

    @property
    def worker_pids(self) -> list[int]:
        """Process id of each worker; this process's own where workers are no processes."""
        return self._engine.worker_pids

    @property
    def processes(self) -> list[WorkerHandle]:
        """A handle of each worker process, for programs that look at Gymnasium's."""
        return [WorkerHandle(worker, pid) for worker, pid in enumerate(self.worker_pids)]

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """Each env's `np_random_seed`."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of each env's random generator."""
        return self.get_attr("np_random")

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None,
        indices: Any = None,
        mask: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all envs, or some of them; the others keep their last observation.

        Args:
            seed: None; an integer, from which every env gets its own (see `seeding`), whichever are reset; or one
                for each env that is reset, None among them for no seed.
            options: Handed to every env's `reset`, a copy each; or one for each env that is reset, in a list. Under
                `"reset_mask"` a bool array `[B]` says which envs to reset, as in Gymnasium. Never changed.
            indices: Which envs to reset: an index, a list of them, or a bool array `[B]`; None for all.
            mask: Which envs to reset, as bools `[B]`.

        Returns:
            Observations, `[B, ...]` each leaf, and infos.

        Raises:
            ArgumentError: There is no such env, or there are more or fewer seeds or options than envs to reset.
        """
        return self._shown(*self._engine.reset(*self._reset_arguments(seed, options, indices, mask)))

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None,
        indices: Any = None,
        mask: Any = None,
    ) -> None:
        """Starts a reset; see `reset`."""
        self._engine.reset_async(*self._reset_arguments(seed, options, indices, mask))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Returns `(observations, infos)` of the reset that was started.

        Args:
            timeout: Seconds to wait, None for the `step_timeout` given at construction.

        Raises:
            StepTimeoutError: It is not complete; it stays pending and may be waited for again.
        """
        return self._shown(*self._engine.reset_wait(timeout))

    def step(self, actions: Any) -> StepReturn:
        """Steps every env.

        Args:
            actions: A batch of actions as `action_space` has them, `[B, ...]` each leaf; for Dict and Tuple
                spaces also a list with one action for each env. Copied.

        Returns:
            Observations `[B, ...]`, rewards `[B]` float64, terminations `[B]` and truncations `[B]` bool, infos.
        """
        return self._returned(self._engine.step(actions))

    def step_async(self, actions: Any) -> None:
        """Starts a step; see `step`."""
        self._engine.step_async(actions)

    def step_wait(self, timeout: float | None = None) -> StepReturn:
        """Returns the results of the step that was started.

        Args:
            timeout: Seconds to wait, None for the `step_timeout` given at construction.

        Raises:
            StepTimeoutError: It is not complete; it stays pending and may be waited for again.
        """
        return self._returned(self._engine.step_wait(timeout))

    def render(self) -> tuple[Any, ...]:
        """Returns every env's rendered frame."""
        return self.call("render")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the envs and ends the workers.

        Args:
            timeout: Seconds that envs may take to close, None for the `close_timeout` given at construction.
            terminate: Whether to end the workers without letting the envs finish what they do.
        """
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.close(timeout, ask=not terminate)

    def _reset_arguments(
        self, seed: Any, options: Any, indices: Any, mask: Any
    ) -> tuple[list[int | None], list[Any], np.ndarray | None]:
        """Returns each env's seed and options, and which envs to reset."""
        self._engine.check_open()
        return reset_arguments(seed, options, indices, mask, num_envs=self.num_envs, seeding=self._seeding)

    def __enter__(self) -> AsyncVectorEnv:
        """Returns itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Closes the batch; an exception goes on."""
        self.close()

    def _returned(self, batch: StepBatch) -> StepReturn:
        observations, rewards, terminations, truncations, infos, finals = batch
        if finals:
            if self._extras:
                finals = self._extras.unpack_finals(finals, infos, self.num_envs)
            _add_final_observations(infos, finals, self.num_envs)
        observations, infos = self._shown(observations, infos)
        return observations, rewards, terminations, truncations, infos

    def _shown(self, observations: Any, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self._extras:
            observations = self._extras.unpack(observations, infos, self.num_envs)
        self.observations = observations
        return observations, infos


def _add_final_observations(infos: dict[str, Any], finals: dict[int, Any], num_envs: int) -> None:
    """Puts last observations where Gymnasium's users look for them: an array of objects and a mask."""
    observations = np.full(num_envs, None, dtype=object)
    mask = np.zeros(num_envs, dtype=np.bool_)
    for row, observation in finals.items():
        observations[row] = observation
        mask[row] = True
    infos["final_obs"], infos["_final_obs"] = observations, mask
