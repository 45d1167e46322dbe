"""Arguments that the author of a function leaves out of the log, with `record_args=`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from perdure.core.arguments.checks import flag
from perdure.core.arguments.checks import function as check_function
from perdure.engine.journal.previews import PREVIEW_MAX, short
from perdure.engine.journal.values import is_async, label, refuse_generator
from perdure.system.user_errors import check_own

LEFT_OUT = "…"
"""Stands in a preview for arguments of which nothing is shown."""


class LeftOut(Struct, frozen=True):
    """The arguments of one call, of which the log has no more than its author shows.

    Attributes:
        shown: what people see of them.
        digests: their digests as they are, which are in memory only.
    """

    shown: str
    digests: Mapping[str, str]


def check_record_args(given: Any, function: Callable[..., Any]) -> Any:
    """Returns `record_args=` of a function: True, False, or the function that shows its arguments.

    Raises:
        TypeError: it is none of them, or cannot be called as the recorded function is.
    """
    if not callable(given):
        return flag(given, "record_args=")
    check_function(given, "record_args=")
    refuse_generator(given)
    if is_async(given):
        raise TypeError("record_args= cannot be awaited: give a function that is not async")
    with suppress(ValueError):  # builtins without a signature
        shows, taken = inspect.signature(given), inspect.signature(function).parameters.values()
        for all_of_them in (False, True):
            args, named = _places(taken, all_of_them=all_of_them)
            try:
                shows.bind(*args, **named)
            except TypeError:
                names = ", ".join(one.name for one in taken)
                raise TypeError(
                    f"record_args= is called with the arguments of {label(function)} as that is, "
                    f"({names}), and does not take them: {label(given)}{shows}"
                ) from None
    return given


def _places(taken: Any, *, all_of_them: bool) -> tuple[list[None], dict[str, None]]:
    """Returns arguments that fit the parameters: all, or only those that have no default."""
    args: list[None] = []
    named: dict[str, None] = {}
    for one in taken:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if all_of_them or one.default is one.empty:
            if one.kind is one.KEYWORD_ONLY:
                named[one.name] = None
            else:
                args.append(None)
    return args, named


def words_for(
    shows: Any, arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """Returns the preview of a call's arguments: what the author's function shows of them. An error
    of that function shows nothing, and stops nothing."""
    if shows is False:
        return LEFT_OUT if arguments else ""
    try:
        return _words(shows(*args, **kwargs))
    except Exception as error:
        check_own(error, partial(shows, *args, **kwargs))
        return f"<record_args: {type(error).__name__}>"


def _words(said: Any) -> str:
    if said is None:
        return LEFT_OUT
    if not isinstance(said, Mapping):
        return short(said)
    parts = [f"{_name(name)}={short(value)}" for name, value in said.items()]
    text = ", ".join(parts)
    return text if len(text) <= PREVIEW_MAX else text[: PREVIEW_MAX - 1] + LEFT_OUT


def _name(name: Any) -> str:
    """A name is shown as one only if it is one: a text of somebody else could steer a terminal."""
    return name if type(name) is str and name.isidentifier() else short(name)
