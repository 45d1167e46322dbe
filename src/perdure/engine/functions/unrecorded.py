"""Functions whose steps and tools are called as they are, inside a run, because one means it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from perdure.core.arguments.checks import function as check_function
from perdure.engine.execution.current_run import RunFrame, current, enter, inside
from perdure.engine.journal.values import is_async

P = ParamSpec("P")
R = TypeVar("R")


def unrecorded(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called without recording steps and tools inside it: one means it."""
    check_function(function, "what is called unrecorded")
    if is_async(function):

        @functools.wraps(function)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            outer = current()
            try:
                with inside(RunFrame(None, "function")):
                    return await function(*args, **kwargs)  # type: ignore[misc]
            finally:
                enter(outer)

        return call_async  # type: ignore[return-value]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        outer = current()
        try:
            with inside(RunFrame(None, "function")):
                return function(*args, **kwargs)
        finally:
            enter(outer)

    return call
