"""Code of a class that runs while an object is put together: defaults, setters, constructors.

Where it fails, the stored data does not fit the class as it is now, and is not damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class MisfitError(ValueError):
    """The stored fields do not fit those that the class has now."""


class UnmadeError(ValueError):
    """An object has all of its data, and the class does not make what was left out beside it.

    Attributes:
        made: the object without that.
    """

    def __init__(self, made: Any, problem: str) -> None:
        super().__init__(problem)
        self.made = made


def default_of(name: str, make: Callable[[], Any]) -> Any:
    """Returns the default of a field.

    Raises:
        MisfitError: it cannot be made.
    """
    with _fitting(f"the default of {name!r} cannot be made"):
        return make()


def give(made: Any, name: str, value: Any) -> None:
    """Sets an attribute, by its setter if it has one.

    Raises:
        MisfitError: that refuses the value.
    """
    with _fitting(f"the class does not take its {name!r}"):
        object.__setattr__(made, name, value)


def is_computed(member: Any) -> bool:
    """Returns True for a property that cannot be set."""
    return isinstance(member, property) and member.fset is None


@contextmanager
def _fitting(problem: str) -> Iterator[None]:
    try:
        yield
    except RecursionError:  # of a reader deep in the stack, who tries again on a new one
        raise
    except Exception as error:
        raise MisfitError(f"{problem}: {error}") from error
