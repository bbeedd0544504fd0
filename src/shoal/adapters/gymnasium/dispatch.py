"""Functions that do another thing for each class of spaces, Gymnasium's and old Gym's alike.

Like `functools.singledispatch`, with two differences. The space may stand anywhere among the arguments: Gym has
moved it from the end to the front. And a class of Gym's stands for Gymnasium's class of the same name, so that Gym
need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from gymnasium import Space

F = TypeVar("F", bound=Callable[..., Any])
_FRAMEWORKS = ("gym", "gymnasium")


def is_space(value: Any) -> bool:
    """Tells whether it is a space of Gymnasium's or Gym's, or derives from one."""
    return isinstance(value, Space) or any(_is_base(cls) for cls in type(value).__mro__)


def is_space_class(cls: Any) -> bool:
    """Tells whether it is such a space's class."""
    return isinstance(cls, type) and (issubclass(cls, Space) or any(_is_base(base) for base in cls.__mro__))


def _is_base(cls: type) -> bool:
    return cls.__name__ == "Space" and cls.__module__.partition(".")[0] in _FRAMEWORKS


class SpaceFunction:
    """A function of a space and other arguments, registered by the space's class."""

    def __init__(
        self,
        name: str,
        default: Callable[..., Any],
        refuse: Callable[..., Any],
        adapt: Callable[[Any], Any] = lambda function: function,
    ) -> None:
        """Makes a function for which none is registered yet.

        Args:
            name: Its name.
            default: Called for spaces of classes that nobody has registered.
            refuse: Called with arguments among which there is no space.
            adapt: Makes what is called of a function that a user registers.
        """
        self._default = default
        self._refuse = refuse
        self._adapt = adapt
        self._own: dict[type, Callable[..., Any]] = {}
        self._names: dict[str, Callable[..., Any]] = {}
        self.__doc__ = default.__doc__
        self.__name__ = self.__qualname__ = name

    @overload
    def register(self, cls: Any) -> Callable[[F], F]: ...

    @overload
    def register(self, cls: Any, function: F) -> F: ...

    def register(self, cls: Any, function: Any = None) -> Any:
        """Has a function called for spaces of a class, and of classes derived from it; also a decorator."""
        if function is None:
            return lambda function: self.register(cls, function)
        self._own[cls] = self._adapt(function)
        return function

    def provide(self, cls: type) -> Callable[[F], F]:
        """Returns a decorator that has a function of shoal's own called, for Gym's class of that name, too."""

        def provide(function: F) -> F:
            self._names[cls.__name__] = function
            return function

        return provide

    def dispatch(self, cls: type) -> Callable[..., Any]:
        """Returns the function for spaces of a class."""
        for base in cls.__mro__:
            if base in self._own:
                return self._own[base]
            if base.__name__ in self._names and base.__module__.partition(".")[0] in _FRAMEWORKS:
                return self._names[base.__name__]
        return self._default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Finds the space, and calls the function of its class with the space in front."""
        if "space" in kwargs:
            space = kwargs.pop("space")
        else:
            place = next((place for place, value in enumerate(args) if is_space(value)), 0)
            if not args:
                raise TypeError(f"{self.__name__} needs a space")
            space, args = args[place], args[:place] + args[place + 1 :]
        if not is_space(space):
            return self._refuse(space, *args, **kwargs)
        return self.dispatch(type(space))(space, *args, **kwargs)
