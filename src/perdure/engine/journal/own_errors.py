"""The errors of code of the class of a user's value: its own, or what came from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perdure.engine.journal.effects import Carried
from perdure.errors import PerdureError
from perdure.system.user_errors import of_code

T = TypeVar("T")


def its_own(make: Callable[[], T]) -> T:
    """Returns the result of `make`, which runs code of the class of a user's value.

    If an exception is raised, a second try shows if it is that code's own, or came from outside,
    between two instructions.

    Raises:
        Carried: the code of its class fails.
        PerdureError: the value cannot be stored or built.
        Exception: one that came from outside.
    """
    try:
        return make()
    except PerdureError:
        raise
    except of_code() as first:
        make_again(make)
        raise first


def make_again(make: Callable[[], T]) -> T:
    """The second try of `its_own`."""
    try:
        return make()
    except PerdureError:
        raise
    except of_code() as again:
        raise Carried(again) from None
