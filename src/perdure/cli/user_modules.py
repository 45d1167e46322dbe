"""Modules of users, and agent functions in them, that a command line names."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from perdure import Worker
from perdure.cli.failures import UsageError
from perdure.cli.session import close_names
from perdure.cli.terminal import complain
from perdure.visible import visible

NAMES_SHOWN = 20


def agent_functions(words: str) -> list[Callable[..., Any]]:
    """Returns the agent functions that an argument names.

    Raises:
        UsageError: it names none.
    """
    name, _, wanted = words.partition(":")
    module = user_module(name)
    known = {key: value for key, value in vars(module).items() if Worker.can_run(value)}
    there = ", ".join(list(known)[:NAMES_SHOWN]) or "none"
    if not wanted:
        if not known:
            raise UsageError(
                f"module {name!r} has no agent functions: decorate them with @perdure.agent(…)"
            )
        return list(known.values())
    found: list[Callable[..., Any]] = []
    for one in filter(None, (part.strip() for part in wanted.split(","))):
        if one not in vars(module):
            close = close_names(one, list(known))
            meant = f"did you mean {' or '.join(close)}? " if close else ""
            raise UsageError(
                f"module {name!r} has no {one!r}; {meant}agent functions there: {there}"
            )
        if one not in known:
            raise UsageError(
                f"{visible(f'{name}:{one}')} is not an agent function: decorate it with "
                f"@perdure.agent(…); agent functions there: {there}"
            )
        found.append(known[one])
    return found


def user_function(words: str, option: str) -> Callable[..., Any]:
    """Returns the function that an option names, ``module:name``.

    Raises:
        UsageError: it names none.
    """
    name, _, wanted = words.partition(":")
    found = vars(user_module(name)).get(wanted)
    if not callable(found):
        said = visible(words)
        raise UsageError(f"{option} {said}: there is no such function; write module:name")
    return found  # type: ignore[no-any-return]


def user_module(name: str) -> ModuleType:
    """Imports a module; the current directory is searched, too.

    Raises:
        UsageError: there is none, or it fails.
    """
    if name.endswith(".py") or "/" in name:
        meant = name.removesuffix(".py").strip("./").replace("/", ".")
        raise UsageError(f"{name!r} is a file; say the module's name: {meant}")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is not a module's name; write module or module:name,name")
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory was deleted: change into the one with the module"
        ) from None
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"there is no module {error.name!r}, neither in {here} nor where Python looks"
            ) from error
        _show(error)
        raise UsageError(f"module {name!r} cannot be imported: {error}") from error
    except Exception as error:
        _show(error)
        raise UsageError(
            f"module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    except SystemExit as error:  # as of a script, which would end the command, and with code 0
        _show(error)
        raise UsageError(
            f"module {name!r} cannot be imported: it ended the program (SystemExit: {error}); "
            'put what it does under `if __name__ == "__main__":`'
        ) from error


def _show(error: BaseException) -> None:
    """Prints where it failed, which is in the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "importlib" not in frame.filename]
    complain("".join(traceback.format_list(ours[1:])).rstrip("\n"))
