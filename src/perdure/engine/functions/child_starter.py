"""Starts runs from a run, with the options that were set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.engine.execution.execution import Execution
from perdure.engine.functions.child_handle import Child
from perdure.engine.functions.children import ChildOptions, started_child

P = ParamSpec("P")
R = TypeVar("R")


class ChildStarter:
    """Starts runs from a run; from `Run.options`."""

    def __init__(self, execution: Execution[Any], options: ChildOptions) -> None:
        self._execution = execution
        self._options = options

    def start(
        self,
        function: Callable[Concatenate[Any, P], R],
        agent: str,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Child[R]:
        """Starts another run; see `Run.start`."""
        execution = self._execution
        effects = started_child(execution, function, agent, args, kwargs, self._options)
        return Child(execution, execution.performer.call(effects), function)
