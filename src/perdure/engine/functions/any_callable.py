"""Calls of any callable that a run is given: decorated or not, bound or not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

from perdure.engine.functions.decorators import RecordedFunction, mark_of
from perdure.engine.journal.values import per_function


def recorded_as(function: Callable[..., Any]) -> RecordedFunction:
    """Returns the recording of calls of any callable: one that is not decorated is a step."""
    return mark_of(function) or _undecorated(function)


_undecorated = per_function(lambda function: RecordedFunction("step", function))


def unbound(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """Returns a call of any callable as it is recorded: a `functools.partial` of a step or tool is
    a call of that, with all of its arguments; and the mark that a bound method shows is its
    function's, which takes the object, too."""
    inner, given, named = function, args, kwargs
    while isinstance(inner, functools.partial):
        given, named = (*inner.args, *given), {**inner.keywords, **named}
        inner = inner.func
    if mark_of(inner) is None:
        return function, args, kwargs
    if isinstance(inner, MethodType):
        given = (inner.__self__, *given)
    return inner, given, named
