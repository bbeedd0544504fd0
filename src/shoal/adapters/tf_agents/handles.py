"""`ProcessPyEnvironment`: one env in a worker, by itself or as a live handle on one env of a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any

from shoal.adapters.tf_agents import calls
from shoal.adapters.tf_agents.agreement import agree
from shoal.adapters.tf_agents.batch import STATE_ERRORS
from shoal.adapters.tf_agents.codecs import TimeStepCodec, codec_of, describe, repacked
from shoal.adapters.tf_agents.driver import PyEnvironmentDriver
from shoal.adapters.tf_agents.facts import Facts
from shoal.adapters.tf_agents.framework import framework
from shoal.adapters.tf_agents.needs import needs_of
from shoal.engine import Engine, Options, Promise
from shoal.errors import ArgumentTypeError, MisfitError, StateError, StepTimeoutError, WorkerDiedError
from shoal.structure.ragged import empty_views
from shoal.worker import Call, Description
from shoal.worker.calls import method_call


class ProcessPyEnvironment:
    """Reaches one env beside its worker; stands in for TF-Agents' class of this name.

    Public attributes that are not listed here are the env's own: reading one asks the worker, and methods
    can be called like any other. Names with an underscore in front are never looked up there; see `access`.
    """

    def __init__(self, env_constructor: Callable[[], Any], flatten: bool = False, **options: Any) -> None:
        """Keeps the constructor; `start` starts the worker.

        Args:
            env_constructor: Constructs a `PyEnvironment`, a Gymnasium env or a dm_env environment.
            flatten: Accepted for TF-Agents' sake; nests arrive the same either way.
            options: The engine's; see `shoal.engine.Options`.

        Raises:
            ArgumentTypeError: The constructor is none.
        """
        if not callable(env_constructor):
            raise ArgumentTypeError(
                f"env_constructor is non-callable, {env_constructor!r}; give a function that constructs an env"
            )
        self._env_constructor = env_constructor
        self._flatten = flatten
        self._options = Options(**options)
        self._engine: Engine | None = None
        self._facts: Facts | None = None
        self._row = 0
        self._start: Future[None] | None = None
        self._is_own = True
        self._is_closed = False

    @classmethod
    def _of_batch(cls, engine: Engine, row: int, facts: Facts, flatten: bool) -> ProcessPyEnvironment:
        """Returns a handle on one env of a batch."""
        handle = cls.__new__(cls)
        handle._flatten = flatten
        handle._engine, handle._row, handle._facts = engine, row, facts
        handle._start = None
        handle._is_own = handle._is_closed = False
        return handle

    def start(self, wait_to_start: bool = True) -> None:
        """Starts the worker and constructs the env.

        Args:
            wait_to_start: Whether to wait until that is done; otherwise `wait_start` does.

        Raises:
            Exception: Whatever the constructor raised.
        """
        if not self._is_own or self._start is not None or self._engine is not None:
            raise StateError("the env has been started already")
        start: Future[None] = Future()
        self._start = start
        if wait_to_start:
            self._run(start)
            self.wait_start()
        else:
            Thread(target=self._run, args=(start,), name="shoal-start", daemon=True).start()

    def wait_start(self) -> None:
        """Waits until the env is constructed; raises whatever its constructor raised."""
        if self._start is not None:
            try:
                self._start.result()
            finally:
                # One that is still at work is kept: `close` has to end what comes of it.
                if self._start.done():
                    self._start = None
        elif self._engine is None:
            raise StateError("the env has not been started; call start() first")

    def _run(self, start: Future[None]) -> None:
        def resolve(facts: list[Facts]) -> Description:
            self._facts = agree(facts)
            return describe(self._facts)

        try:
            needs = needs_of([self._env_constructor])
            self._engine = Engine(
                needs.env_fns,
                PyEnvironmentDriver,
                resolve,
                self._options,
                setups=needs.setups,
                preload=needs.preload,
                name=type(self).__name__,
                state_errors=STATE_ERRORS,
            )
        except BaseException as error:
            start.set_exception(error)
        else:
            start.set_result(None)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Promise:
        """Starts calling a method of the env; the promise gives its result when it is called."""
        return self._ask(method_call(name, args, kwargs))

    def access(self, name: str) -> Any:
        """Returns an attribute of the env, private ones too.

        A method comes as a function that calls it there; anything else is a copy.

        Raises:
            AttributeError: The env has none of that name.
        """
        value = self._ask(Call(0, f"access to {name!r}", calls.access, (name,)))()
        if isinstance(value, calls.RemoteMethod):
            return lambda *args, **kwargs: self.call(value.name, *args, **kwargs)()
        return value

    def __getattr__(self, name: str) -> Any:
        """Returns a public attribute of the env; see `access`."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.access(name)

    def step(self, action: Any, blocking: bool = True) -> Any:
        """Steps the env.

        Args:
            action: One action, nested as its spec or, if `flatten`, with its leaves. Copied.
            blocking: Whether to wait.

        Returns:
            The time step, its values in the types of their specs; a promise of it if not blocking.
        """
        action = self._to_action(action)
        return self._time_step(Call(0, "step", calls.step, (action,)), blocking)

    def reset(self, blocking: bool = True) -> Any:
        """Resets the env and returns its time step, or a promise of it."""
        result = self._time_step(Call(0, "reset", calls.reset), blocking)
        self._started().make_ready([self._row])
        return result

    def render(self, mode: str = "rgb_array", blocking: bool = True) -> Any:
        """Returns the env's frame `[H, W, 3]`, or a promise of it."""
        if mode != "rgb_array":
            raise NotImplementedError(f"Only rgb_array rendering mode is supported. Got {mode}")
        promise = self.call("render")
        return promise() if blocking else promise

    def seed(self, seed: Any, blocking: bool = True) -> Any:
        """Seeds the env and returns what its `seed` returns, or a promise of it."""
        promise = self.call("seed", seed)
        return promise() if blocking else promise

    def observation_spec(self) -> Any:
        """Returns the env's."""
        return framework().specs(self._known().observation_spec)

    def action_spec(self) -> Any:
        """Returns the env's."""
        return framework().specs(self._known().action_spec)

    def time_step_spec(self) -> Any:
        """Returns the env's."""
        return framework().specs(self._known().time_step_spec)

    def reward_spec(self) -> Any:
        """Returns the env's."""
        return framework().specs(self._known().reward_spec)

    def discount_spec(self) -> Any:
        """Returns the env's."""
        return framework().specs(self._known().discount_spec)

    def close(self) -> None:
        """Closes the env; its worker ends, too, if it is not a batch's. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._start is not None:
            # It is being started, and must not be left running.
            self._start.exception()
            self._start = None
        if self._engine is None:
            return
        if self._is_own:
            self._engine.close()
        elif not self._engine.is_closed:
            # One that hangs is ended with the batch, and one whose worker has died has ended already.
            with contextlib.suppress(StepTimeoutError, WorkerDiedError):
                limit = self._engine.close_timeout
                self._engine.call_one(self._row, Call(0, "close", calls.close), limit)(limit)

    def _known(self) -> Facts:
        self._started()
        assert self._facts is not None
        return self._facts

    def _started(self) -> Engine:
        if self._is_closed:
            raise STATE_ERRORS.closed("handle is closed: the env was closed by `close()`.")
        if self._start is not None:
            self.wait_start()
        if self._engine is None:
            raise StateError("the env has not been started; call start() first")
        return self._engine

    def _ask(self, call: Call) -> Promise:
        return self._started().call_one(self._row, call)

    def _to_action(self, action: Any) -> Any:
        """Returns a copy of an action in the containers and types of its spec; raises `MisfitError`."""
        spec = self._known().action_spec
        if self._flatten:
            action = repacked(spec, action)
        codec = codec_of(spec)
        views = empty_views(codec, 1)
        try:
            codec.writer(views, "action")(0, action)
        except MisfitError as misfit:
            raise misfit.inside(f"env {self._row}: ") from None
        return codec.reader(views)(0, 1)[0]

    def _time_step(self, call: Call, blocking: bool) -> Any:
        promise, codec = self._ask(call), TimeStepCodec(self._known().time_step_spec)

        def time_step() -> Any:
            return codec.one(promise(), f"env {self._row}: ")

        return time_step() if blocking else time_step
