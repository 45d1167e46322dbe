"""The outcome of a call, on its way into the journal and to the function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from perdure.core.values.plain_values import Plain
from perdure.engine.journal.call import Call
from perdure.engine.journal.effects import Carried, uncarried
from perdure.engine.journal.failures import as_replayed
from perdure.engine.journal.lacking_resources import lacks
from perdure.errors import NeedsAttention, PerdureError, UnknownZone
from perdure.system.late_imports import NotLoadedError
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
        _make_again(make)
        raise first


def taken(call: Call, value: Any) -> tuple[Plain, Exception | None]:
    """Returns the plain form of a call's result, and an exception that came from outside in the
    meantime; see `its_own`.

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
    """Returns the error that is a call's outcome: its function may catch it.

    Raises:
        NeedsAttention, NotLoadedError: it is not an outcome. An error that a person or time can fix
            must not recur on every replay; and the effects of a tool before it are in doubt.
    """
    error = uncarried(raised)
    kind = type(error)  # not what it says that its class is
    if issubclass(kind, UnknownZone):
        raise lacks(error, call.run, call.target) from error  # type: ignore[arg-type]
    if issubclass(kind, NeedsAttention | NotLoadedError):
        raise error
    return error


def handed(call: Call, error: Exception, failure: Mapping[str, Any]) -> Carried:
    """Returns the error that the function gets for a call that left with this one: the same the
    first time as on replay."""
    return Carried(as_replayed(error, failure, call.target))
