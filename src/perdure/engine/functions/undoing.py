"""`@tool(compensate=…)`: what undoes a call of a tool, and what of the call is kept for that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.arguments.checks import function as check_function
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.values import Parameters, label, refuse_generator
from perdure.errors import SchemaError
from perdure.missing import MISSING

_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Undo:
    """The compensation of one tool.

    It is called with the result of the call that it undoes, and with those of its arguments that it
    names. These are in the log, whole, so that it can be called by whoever goes on with the run.

    Args:
        function: the compensation; `tool`: what it undoes.
        shows: `record_args=` of the tool.

    Raises:
        TypeError: it takes something that the tool has not, or that is left out of the log.
    """

    def __init__(self, function: Callable[..., Any], tool: Callable[..., Any], shows: Any) -> None:
        check_function(function, "compensate=")
        refuse_generator(function)
        self.function = function
        self._of = inspect.signature(tool)
        self.parameters = Parameters(function)
        taken = list(inspect.signature(function).parameters.values())
        if any(one.kind in _ANY for one in taken):
            raise TypeError(
                f"compensate={label(function)} takes any arguments: name those of {label(tool)} "
                "that it needs, behind its result"
            )
        rest = taken[1:]
        self._names = [one.name for one in rest if one.name in self._of.parameters]
        lacking = [
            one.name for one in rest if one.default is one.empty and one.name not in self._names
        ]
        if lacking:
            raise TypeError(
                f"compensate={label(function)} needs {', '.join(lacking)}, which {label(tool)} has "
                "not: it is called with the result of the call, and with those of its arguments "
                "that it names"
            )
        if self._names and shows is not True:
            raise TypeError(
                f"compensate={label(function)} needs {', '.join(self._names)}, which record_args= "
                "leaves out of the log: let it take the result alone"
            )
        self._result = taken[0].name if taken else ""

    def kept(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Plain]:
        """Returns the arguments of a call that are kept for it.

        Raises:
            SchemaError, Unstorable: one does not fit its type there, or cannot be stored.
        """
        if not self._names:
            return {}
        bound = self._of.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {name: bound.arguments[name] for name in self._names}
        return self.parameters.take((), given)[1]

    def arguments(self, result: Plain, kept: Mapping[str, Plain]) -> dict[str, Any]:
        """Returns its own arguments, by name, read by its annotations.

        Args:
            result: of the call; MISSING: nobody knows it, and it gets None.

        Raises:
            SchemaError: one does not fit any more, or was not kept: the compensation did not name
                it then.
        """
        if missing := [name for name in self._names if name not in kept]:
            raise SchemaError(f"{', '.join(missing)} was not kept of the call")
        given = {name: one for name, one in kept.items() if name in self._names}
        if self._result and result is not MISSING:
            given[self._result] = result
        built = self.parameters.build((), given)[1]
        return {self._result: None, **built} if self._result else built


_of_tools: dict[str, dict[str, Undo]] = {}
"""By the names of tools and of their modules. A tool that is defined anew takes its place."""


def note_undo(tool: str, of: str, undo: Undo) -> None:
    """Makes it the compensation of the tool of that name in that module."""
    _of_tools.setdefault(tool, {})[of] = undo


def undo_of(tool: str, of: str) -> Undo | None:
    """Returns the compensation of the tool of that name in that module, or in the only one that has
    such a tool, as code moves; None: this program has none."""
    known = _of_tools.get(tool, {})
    if of in known:
        return known[of]
    return next(iter(known.values())) if len(known) == 1 else None
