"""Extra outputs: what an env gives at every step beside its observation, declared with a space.

They travel in shared memory with the observation, and arrive among the infos as arrays `[B, ...]`: an action mask,
say, costs no message and no second call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space

from shoal.adapters.gymnasium.driver import GymnasiumDriver
from shoal.errors import ArgumentTypeError, MisfitError
from shoal.structure import Codec, PartsCodec
from shoal.structure.cast import brief
from shoal.worker import DriverFactory
from shoal.worker.infos import gather, merge


@dataclass(frozen=True)
class Extra:
    """One extra output.

    Attributes:
        space: What its values are like.
        method: The env's method that gives it; None if it is in the info under its name.
    """

    space: Space[Any]
    method: str | None = None


class Extras:
    """The extra outputs of a batch; false if there are none."""

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        """Takes, by name, spaces, or pairs of a space and a method's name.

        Raises:
            ArgumentTypeError: Something else was given.
        """
        if given is not None and not isinstance(given, Mapping):
            raise ArgumentTypeError(
                f"extras must be a dict of spaces, or of spaces and methods' names, found {brief(given)}"
            )
        self._extras = {name: _to_extra(name, each) for name, each in (given or {}).items()}

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._extras)

    def driver_factory(self) -> DriverFactory:
        """Returns what drives an env that has these extra outputs."""
        if not self._extras:
            return GymnasiumDriver
        return partial(ExtrasDriver, methods={name: extra.method for name, extra in self._extras.items()})

    def beside(self, observation: Codec, codec_of: Callable[[Space[Any]], Codec]) -> Codec:
        """Returns how observations travel with the extra outputs beside them."""
        if not self._extras:
            return observation
        names = ["observation", *(f"extras[{name!r}]" for name in self._extras)]
        return PartsCodec(names, [observation, *(codec_of(extra.space) for extra in self._extras.values())])

    def unpack(self, parts: tuple[Any, ...], infos: dict[str, Any], num_envs: int) -> Any:
        """Returns the observations, and puts the extra outputs into the infos, as Gymnasium's infos are."""
        observations, *values = parts
        for name, value in zip(self._extras, values, strict=True):
            infos[name], infos[f"_{name}"] = value, np.ones(num_envs, np.bool_)
        return observations

    def unpack_finals(self, finals: dict[int, Any], infos: dict[str, Any], num_envs: int) -> dict[int, Any]:
        """Returns last observations by row, and puts their extra outputs into the final infos."""
        rows = [
            (row, dict(zip(self._extras, map(_plain, values), strict=True))) for row, (_, *values) in finals.items()
        ]
        infos.setdefault("final_info", {}).update(merge([gather(rows)], num_envs))
        return {row: observation for row, (observation, *_) in finals.items()}


def _plain(value: Any) -> Any:
    """Returns a value whose type makes a column of numbers: NumPy's bool is no number to Gymnasium."""
    return bool(value) if isinstance(value, np.bool_) else value


def _to_extra(name: str, given: Any) -> Extra:
    match given:
        case Space():
            return Extra(given)
        case (Space() as space, str(method)):
            return Extra(space, method)
    raise ArgumentTypeError(
        f"extras[{name!r}] must be a space, or a space and the name of the env's method that gives the value, "
        f"found {brief(given)}"
    )


class ExtrasDriver(GymnasiumDriver):
    """Steps one `gymnasium.Env` that has extra outputs; its observation is a tuple, the env's own and the extras."""

    def __init__(self, env_fn: Callable[[], Any], methods: Mapping[str, str | None]) -> None:
        """Constructs the env.

        Args:
            env_fn: Its constructor.
            methods: By name of the output the method that gives it, None if it is in the info.
        """
        super().__init__(env_fn)
        self._methods = dict(methods)
        step_env = self.env.step

        def step(action: Any) -> Any:
            observation, reward, terminated, truncated, info = step_env(action)
            info = dict(info)
            return self._with_extras(observation, info), reward, terminated, truncated, info

        self.step = step

    def reset(self, seed: int | None, options: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the env."""
        observation, info = super().reset(seed, options)
        info = dict(info)
        return self._with_extras(observation, info), info

    def _with_extras(self, observation: Any, info: dict[str, Any]) -> tuple[Any, ...]:
        """Returns observation and extras, which are taken out of the info."""
        values = [observation]
        for name, method in self._methods.items():
            if method is not None:
                values.append(self.env.get_wrapper_attr(method)())
            elif name in info:
                values.append(info.pop(name))
            else:
                raise MisfitError(
                    f"info[{name!r}]", "is missing; an extra output must be in the info of every reset and step"
                )
        return tuple(values)
