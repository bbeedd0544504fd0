"""Calls to the methods and attributes of envs, of all or of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.adapters.gymnasium.indices import rows_of
from shoal.engine import Engine
from shoal.errors import ArgumentError
from shoal.worker import Call
from shoal.worker.calls import has_attribute, method_call, set_attribute


class EnvCalls:
    """What a batch of envs offers beside stepping them. Each call is one message to each worker concerned.

    If it fails in some envs the others have done it all the same, and the first failure is raised.
    """

    _engine: Engine
    num_envs: int

    def call(
        self,
        name: str,
        /,
        *args: Any,
        indices: Any = None,
        each: Sequence[tuple[Any, ...]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Calls a method of every env, or of some, or reads an attribute that is not callable.

        Args:
            name: The method's, of the env or of one of its wrappers.
            *args: For all alike.
            indices: Which envs: an index, a list of them, or a bool array `[B]`; None for all.
            each: Further arguments, a tuple for each of those envs, behind the others.
            **kwargs: For all alike.

        Returns:
            One result for each of those envs, in the order of `indices`.
        """
        rows, each = self._chosen(indices, each)
        return self._engine.call(method_call(name, args, kwargs), each, rows=rows)

    def call_async(
        self,
        name: str,
        /,
        *args: Any,
        indices: Any = None,
        each: Sequence[tuple[Any, ...]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Starts a call; see `call`."""
        rows, each = self._chosen(indices, each)
        self._engine.call_async(method_call(name, args, kwargs), each, rows=rows)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Returns the results of the call that was started."""
        return self._engine.call_wait(timeout)

    def get_attr(self, name: str, indices: Any = None) -> tuple[Any, ...]:
        """Returns the attribute of that name of every env, or of some; one that is callable is called (Gymnasium)."""
        return self.call(name, indices=indices)

    def has_attr(self, name: str, indices: Any = None) -> bool:
        """Tells whether every env, or each of some, has an attribute of that name, or one of its wrappers has."""
        rows, _ = self._chosen(indices, None)
        return all(self._engine.call(Call(0, f"looking for {name!r}", has_attribute, (name,)), rows=rows))

    def set_attr(self, name: str, values: Any, indices: Any = None) -> None:
        """Sets an attribute of every env, or of some.

        Args:
            name: Its name; it is set on the wrapper that has it.
            values: A list or tuple with one value for each of those envs, or one value for all.
            indices: Which envs: an index, a list of them, or a bool array `[B]`; None for all.
        """
        rows, _ = self._chosen(indices, None)
        count = self.num_envs if rows is None else len(rows)
        if not isinstance(values, (list, tuple)):
            values = [values] * count
        if len(values) != count:
            chosen = "environments" if rows is None else "chosen environments"
            raise ArgumentError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {count} {chosen}."
            )
        call = Call(0, f"setting {name!r}", set_attribute, (name,))
        self._engine.call(call, [(value,) for value in values], rows=rows, kind="set_attr")

    def _chosen(
        self, indices: Any, each: Sequence[tuple[Any, ...]] | None
    ) -> tuple[list[int] | None, Sequence[tuple[Any, ...]] | None]:
        """Returns the rows that are meant, None for all, and what each of them gets."""
        self._engine.check_open()
        rows = rows_of(indices, self.num_envs)
        count = self.num_envs if rows is None else len(rows)
        if each is not None and len(each) != count:
            raise ArgumentError(f"each has {len(each)} entries for {count} envs; give a tuple of arguments for each")
        return rows, each
