"""Functions whose call runs none of their code: coroutine functions and generators, where a plain
answer is asked for. The object that they give back counts as true."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from perdure.core.arguments.checks import function
from perdure.core.arguments.names import shown

_KINDS = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def plain_function(value: Callable[..., Any], of: str) -> None:
    """Raises TypeError unless the value can be called, and its code then runs."""
    function(value, of)
    if is_unrun(value):
        raise TypeError(
            f"{of} must be a plain function: a call of {shown(value)} runs none of its code"
        )


def is_unrun(value: Callable[..., Any]) -> bool:
    """True if a call runs none of its code; for objects, of what they are called by."""
    while isinstance(value, functools.partial):
        value = value.func
    called = (value, getattr(type(value), "__call__", None))  # noqa: B004
    return any(kind(one) for kind in _KINDS for one in called)


def has_not_run(result: object) -> bool:
    """True if a function gave something that is still to run, a coroutine or a generator. It is
    closed."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
        return True
    return inspect.isawaitable(result) or inspect.isasyncgen(result)
