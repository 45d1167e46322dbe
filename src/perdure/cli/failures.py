"""Errors for people and scripts: one exit code per kind, words or JSON on stderr."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence

import typer

from perdure import errors
from perdure.cli.terminal import complain, stderr_console, text
from perdure.system import shell
from perdure.system.urls import shown as without_password
from perdure.visible import visible

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""The base of the errors that typer raises for a wrong command line; it has no public name."""

OK, INTERNAL, USAGE, NOT_FOUND, CONFLICT, CORRUPT, UNAVAILABLE, ATTENTION, SCHEMA, FORMAT = range(
    10
)
INTERRUPTED, PIPE_CLOSED = 130, 141
USAGES = (ValueError, ImportError, UnicodeEncodeError)
"""The errors that the library, or SQLite, raises for an invalid argument."""

CODES: tuple[tuple[type[errors.PerdureError], int], ...] = (
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.Fenced, CONFLICT),
    (errors.Corrupt, CORRUPT),
    (errors.StoreUnavailable, UNAVAILABLE),
    (errors.NeedsAttention, ATTENTION),
    (errors.InDoubt, ATTENTION),
    (errors.SchemaError, SCHEMA),
    (errors.GuardMismatch, SCHEMA),
    (errors.NotAStore, FORMAT),
    (errors.UnsupportedFormat, FORMAT),
)

HELP = (
    "Exit codes: 0 done · 1 an unexpected error, or output that cannot be written · "
    "2 wrong command line · 3 not found · 4 conflict · 5 corrupt · 6 store unavailable · "
    "7 needs a person · 8 does not fit the schema · 9 not a store, or of a newer format · "
    "130 interrupted."
)


IN_THE_SHELL: Mapping[str, str] = {
    errors.Hint.RUN_UNFINISHED: "let it finish, or say --cancel-run",
    errors.Hint.HEAD_MOVED: "it is being written to; try again",
    errors.Hint.RUN_EXECUTED: "wait until its run ends or waits; or end it, too: --cancel-runs",
    errors.Hint.BRANCH_HELD: "wait until its run ends; or `perdure cancel` it; or end its process "
    "first, {where}, then try "
    "again; or work on a fork",
}
"""Hints for programs in the words of the command line."""


OF_REPLICATION = ("ClosedError", "DivergedError", "DoneBeforeError", "IncompleteError")
"""Public kinds of errors from `perdure.replication`."""

STORELESS = re.compile("`perdure (?![^`]*--store)")
"""A command of the library's, which does not say on which store."""


def code_of(error: BaseException) -> int:
    if type(error) in USAGES or isinstance(error, UsageError):
        return USAGE  # the library's words for an argument that cannot be, e.g. an overlong name,
        # or a URL whose driver is not installed
    if isinstance(error, errors.StoreUnavailable) and error.outcome == "done":
        return INTERNAL  # what the store was asked for is done, as where words cannot be printed
    return next((code for kind, code in CODES if isinstance(error, kind)), INTERNAL)


def name_of(error: BaseException) -> str:
    """Returns the name of an error's kind that users know: of a kind of the library's own, the one
    in docs/errors.md that it is a kind of."""
    known = (kind.__name__ for kind in type(error).__mro__ if _is_public(kind))
    return next(known, type(error).__name__)


def _is_public(kind: type) -> bool:
    return vars(errors).get(kind.__name__) is kind or kind.__name__ in OF_REPLICATION


def in_the_shell(words: str, store: str | None, *, shown: bool) -> str:
    """Returns the library's words with commands that can be pasted: on this store, if it was
    `shown` on the command line. A password in its URL is left out: it must then come from
    elsewhere."""
    if (ours := IN_THE_SHELL.get(words)) is not None:
        file = (store or "").removeprefix("sqlite:///")
        listed = f"`lsof {shell.quote(file)}` lists them"
        here = f"one on this machine that has the store open ({listed})"
        words = ours.replace("{where}", "on whatever machine it runs" if "://" in file else here)
    if store and shown:
        here = f"`perdure --store {shell.quote(without_password(store))} "
        words = STORELESS.sub(lambda _: here, words)
    return words


def report(error: Exception, *, as_json: bool, say: Callable[[str], str]) -> int:
    """Reports an error on stderr; returns the exit code.

    Args:
        say: converts hints of the library for this command line.
    """
    code = code_of(error)
    if code == INTERNAL and os.environ.get("PERDURE_DEBUG"):
        raise error
    problem, target, hint = _parts(error)
    problem, hint = say(problem), say(hint)
    if as_json:
        said: dict[str, object] = {
            "error": "Usage" if code == USAGE else name_of(error),
            "exit_code": code,
            "problem": problem,
            "target": target,
            "hint": hint,
            "retry": isinstance(error, errors.PerdureError) and error.retry,
        }
        if isinstance(error, errors.StoreUnavailable):
            said["outcome"] = error.outcome
        if isinstance(error, errors.Corrupt) and error.damages:
            said["damages"] = list(error.damages)
        complain(json.dumps(said))
        return code
    console = stderr_console()
    head = f"{target}: " if target else ""
    first, *more = problem.split("\n")
    console.print(text(("error: ", "bold red"), (head, "bold"), first))
    for line in more:
        console.print(text("  ", line))
    for line in hint.split("\n") if hint else ():
        console.print(text(("  → ", "cyan"), line.removeprefix("  → ")))
    return code


def _parts(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, errors.PerdureError):
        return error.problem, error.target, error.hint
    if isinstance(error, UsageError):
        message = getattr(error, "format_message", lambda: str(error))()
        return visible(str(message)), "", ""
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object!r:.60} is not valid text: it has bytes that are not UTF-8", "", ""
    if code_of(error) == USAGE:
        return visible(str(error)), "", ""
    hint = "set PERDURE_DEBUG=1 for the traceback, and report it"
    return f"unexpected: {type(error).__name__}: {error}", "", hint


def asks_for_json(arguments: Sequence[str]) -> bool:
    """True if a command line that could not be parsed asked for JSON."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before
