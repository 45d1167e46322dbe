"""What a call came to, on its way into the journal and to the function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from perdure.core.values.plain_values import Plain
from perdure.engine.journal.call import Call
from perdure.engine.journal.effects import Carried, uncarried
from perdure.engine.journal.failures import as_replayed
from perdure.engine.journal.lacking import lacks
from perdure.errors import NeedsAttention, PerdureError, UnknownZone
from perdure.system.user_errors import of_code

T = TypeVar("T")


def its_own(make: Callable[[], T]) -> T:
    """What is made of something that the user's code gave, with code of its class.

    Whether what is raised meanwhile is of its own making, or comes from outside, between two
    instructions, shows when it is made once more.

    Raises:
        Carried: the code of its class fails.
        PerdureError: it cannot be made.
        Exception: what came from outside.
    """
    try:
        return make()
    except PerdureError:
        raise
    except of_code() as first:
        _make_again(make)
        raise first


def taken(call: Call, value: Any) -> tuple[Plain, Exception | None]:
    """The plain form of what a call returned, and what came from outside while that was made; see
    `its_own`.

    Raises:
        Unstorable, SchemaError: it cannot be stored.
        Carried: the code of its class fails.
    """
    try:
        return call.results.take(value), None
    except PerdureError:
        raise
    except of_code() as first:
        return _make_again(partial(call.results.take, value)), first


def _make_again(make: Callable[[], T]) -> T:
    try:
        return make()
    except PerdureError:
        raise
    except of_code() as again:
        raise Carried(again) from None


def error_of(call: Call, raised: Exception) -> Exception:
    """The error that is a call's outcome: its function may catch it.

    Raises:
        NeedsAttention: that is none. What a person puts right must not be found wrong on every
            replay; and of a tool, what it did before is in doubt.
    """
    error = uncarried(raised)
    kind = type(error)  # not what it says that its class is
    if issubclass(kind, UnknownZone):
        raise lacks(error, call.run, call.target) from error  # type: ignore[arg-type]
    if issubclass(kind, NeedsAttention):
        raise error
    return error


def handed(call: Call, error: Exception, failure: Mapping[str, Any]) -> Carried:
    """What the function gets of a call that left with this error: the same the first time as on
    replay."""
    return Carried(as_replayed(error, failure, call.target))
