"""`ParallelPyEnvironment`: TF-Agents' interface to a batch of envs in worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from shoal.adapters.tf_agents import nests
from shoal.adapters.tf_agents.batch import EngineEnvironment
from shoal.adapters.tf_agents.codecs import repacked
from shoal.adapters.tf_agents.handles import ProcessPyEnvironment
from shoal.adapters.tf_agents.needs import needs_of
from shoal.backends import getting_ready
from shoal.engine import Options
from shoal.errors import ArgumentError, ArgumentTypeError
from shoal.worker import Call
from shoal.worker.calls import call_method


class EmptyError(ArgumentError, IndexError):
    """There is no env; TF-Agents raises `IndexError` then."""


class ParallelPyEnvironment(EngineEnvironment):
    """Steps envs in worker processes; stands in for TF-Agents' class of this name.

    Envs may be tf-agents' or shoal's `PyEnvironment`, Gymnasium envs or dm_env environments. See
    `docs/porting/tf-agents.md` for what differs from TF-Agents' class.
    """

    def __init__(
        self,
        env_constructors: Sequence[Callable[[], Any]],
        start_serially: bool = True,
        blocking: bool = False,
        flatten: bool = False,
        *,
        num_workers: int | None = None,
        backend: str = "process",
        start_method: str = "forkserver",
        step_timeout: float | None = None,
        start_timeout: float | None = 300.0,
        close_timeout: float = 5.0,
        worker_init: Callable[[], Any] | None = None,
        worker_threads: int | None = None,
    ) -> None:
        """Starts the workers and constructs the envs, each exactly once, in its worker.

        Args:
            env_constructors: Functions that construct an env each. They travel by cloudpickle, so lambdas,
                closures and classes of the main script are fine.
            start_serially: Whether to construct one env after another, or as many at once as there are workers.
            blocking: Whether to step one env after another, too.
            flatten: Whether actions need only have the leaves of the action spec, in the order of
                `tf.nest`, and not its containers. Time steps are the same either way.
            num_workers: How many workers share the envs; None for one a CPU, at most one an env.
            backend: `"process"`, `"thread"` or `"serial"`; all give the same results.
            start_method: `"forkserver"`, `"spawn"` or `"fork"`.
            step_timeout: Seconds to wait for a reset, step or call; None to wait while the workers live. The
                serial backend cannot interrupt an env and does not heed it.
            start_timeout: Seconds that constructing all envs may take, None for no limit.
            close_timeout: Seconds that envs may take to close before their workers are killed.
            worker_init: Called in each worker before its envs are constructed.
            worker_threads: Threads that numerical libraries may use in a worker; None for one, or what
                `OMP_NUM_THREADS` and its like say.

        Raises:
            ArgumentTypeError: A constructor is no function.
            SpecMismatchError: The envs' specs differ.
            StartTimeoutError, WorkerDiedError: A worker did not get ready.
            Exception: Whatever a constructor raised. Nothing is left running after any of these.
        """
        self._env_constructors = _check_constructors(env_constructors)
        self._blocking = blocking
        self._start_serially = start_serially
        self._flatten = flatten
        # TFPyEnvironment asks for it, lest it warn.
        self._parallel_execution = True
        self._options = Options(
            num_workers=num_workers,
            backend=backend,
            start_method=start_method,
            step_timeout=step_timeout,
            start_timeout=start_timeout,
            close_timeout=close_timeout,
            start_serially=start_serially,
            blocking=blocking,
            worker_init=worker_init,
            worker_threads=worker_threads,
        )
        self.start()

    def start(self) -> None:
        """Starts workers and envs, as the constructor has done already; envs that are there are closed before."""
        self.close()
        options = self._options
        uses_server = options.backend == "process" and options.start_method != "fork"
        with getting_ready() if uses_server else contextlib.nullcontext():
            needs = needs_of(self._env_constructors)
            super().__init__(needs.env_fns, options, setups=needs.setups, preload=needs.preload)
        self._envs = [
            ProcessPyEnvironment._of_batch(self._engine, row, facts, self._flatten)
            for row, facts in enumerate(self._facts_of_env)
        ]

    @property
    def envs(self) -> list[ProcessPyEnvironment]:
        """A live handle on each env."""
        return self._envs

    def _step(self, actions: Any) -> Any:
        if self._flatten:
            actions = repacked(self._own_action_spec, actions)
        return super()._step(actions)

    def seed(self, seeds: Sequence[Any]) -> list[Any]:
        """Seeds every env with its own seed, and returns what their `seed` methods return."""
        if len(seeds) != self._num_envs:
            raise ArgumentError(
                f"Number of seeds should match the number of parallel_envs. Found {len(seeds)} for {self._num_envs}."
            )
        call = Call(0, "seed", call_method, ("seed",))
        return list(self._engine.call(call, [((seed,), {}) for seed in seeds]))

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns every env's frame, `[B, H, W, 3]`."""
        if mode != "rgb_array":
            raise NotImplementedError(f"Only rgb_array rendering mode is supported. Got {mode}")
        return self._render()

    # TF-Agents' own tests, and some programs, call these two.

    def _unstack_actions(self, batched_actions: Any) -> list[Any]:
        """Returns each env's action, flat if `flatten`."""
        size = len(nests.flatten(batched_actions)[0])
        unstacked = nests.rows(batched_actions, size)
        return [tuple(nests.flatten(action)) for action in unstacked] if self._flatten else unstacked

    def _stack_time_steps(self, time_steps: Sequence[Any]) -> Any:
        """Returns time steps, flat if `flatten`, as one batch."""
        if self._flatten:
            time_steps = [nests.pack(self._time_step_spec, each) for each in time_steps]
        return nests.stack(time_steps)


def _check_constructors(env_constructors: Any) -> list[Callable[[], Any]]:
    try:
        constructors = list(env_constructors)
    except TypeError:
        raise ArgumentTypeError(
            f"env_constructors must be a list of functions that construct an env each, found {env_constructors!r}"
        ) from None
    if not constructors:
        raise EmptyError("env_constructors is empty; give at least one function that constructs an env")
    for index, constructor in enumerate(constructors):
        if not callable(constructor):
            raise ArgumentTypeError(
                f"Found non-callable `env_constructors` in `ParallelPyEnvironment`: env_constructors[{index}] is "
                f"{constructor!r}. Give a function that constructs the env, not the env: lambda: "
                f"{type(constructor).__name__}(...)"
            )
    return constructors
