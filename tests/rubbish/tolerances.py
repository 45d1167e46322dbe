"""What is let pass, and why: all that may come out of a wrong call is told here, in one place.

`TOLERATED` are errors that are right where they come. Whatever else is raised must be an error of
the library's, or a TypeError or ValueError that names what is wrong. `MAY_WRITE` is what may be
written by a call that raises.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from msgspec import Struct

import perdure
from perdure.errors import PerdureError
from tests.rubbish.hostile import EndlessError, HostileError, WordlessError

HERE = str(Path(__file__).parent)


class Raised(Struct, frozen=True):
    """What a call raised, and what was wrong with it."""

    target: str
    error: BaseException
    wrong: dict[str, Any]


def _callers_own(raised: Raised) -> bool:
    return isinstance(raised.error, HostileError | WordlessError) or _ends_in_callers_code(
        raised.error
    )


def _ends_in_callers_code(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if "/contextlib.py" not in f.filename), None)
    return last is not None and last.filename.startswith(HERE) and last.name not in _OURS


_OURS = {"_call_in_run", "_call_in_async_run", "_in_run", "_plain", "_async", "_bound", "call"}
"""Functions here that call the library: what ends in these was raised by Python for the call."""


def _builtin(raised: Raised) -> bool:
    return isinstance(raised.error, TypeError | ValueError | ArithmeticError | LookupError) and any(
        _is_builtin(value) for value in raised.wrong.values()
    )


def _is_builtin(value: Any) -> bool:
    """Whether it can be called, and its frames are not seen."""
    try:
        if type(value) in (FunctionType, MethodType):
            return False
        return callable(value) or type(value) in (BuiltinFunctionType, property, classmethod)
    except HostileError:
        return True


def _no_log(raised: Raised) -> bool:
    return isinstance(raised.error, perdure.Corrupt) and bool(
        re.search("there is no commit in it|its last commit is", str(raised.error))
    )


def _no_store_there(raised: Raised) -> bool:
    return isinstance(raised.error, perdure.StoreUnavailable) and any(
        isinstance(value, str) or type(value).__module__ == "pathlib"
        for name, value in raised.wrong.items()
        if name in ("url", "source", "target", "urls")
    )


def _each_is_a_step(raised: Raised) -> bool:
    return isinstance(raised.error, EndlessError) or "HungError" in type(raised.error).__name__


def _stopped(raised: Raised) -> bool:
    return "raised StopIteration" in str(raised.error) and any(map(is_code, raised.wrong.values()))


def _of_a_type(raised: Raised) -> bool:
    """Python's own words for it; but nothing is written, and nothing hangs."""
    return isinstance(
        raised.error,
        TypeError | AttributeError | ValueError | LookupError | ArithmeticError | RuntimeError,
    )


TOLERATED: tuple[tuple[str, str, Callable[[Raised], bool]], ...] = (
    ("", "the caller's own code raised it: it comes out as it is", _callers_own),
    ("", "a class or builtin was given for a function: what it says of its arguments", _builtin),
    ("Store.import_log", "an empty log, or another root: Corrupt as documented", _no_log),
    ("AsyncStore.import_log", "the same", _no_log),
    ("open", "a path or host that is not there", _no_store_there),
    ("replication.", "a path or host that is not there", _no_store_there),
    ("Saver.from_url", "the same", _no_store_there),
    ("Memory.from_url", "the same", _no_store_there),
    ("Session.", "the same", _no_store_there),
    ("Testing.", "the same", _no_store_there),
    (
        "Testing.re",
        "a file that is no export: Corrupt as documented",
        lambda raised: isinstance(raised.error, perdure.Corrupt) and "line 1" in str(raised.error),
    ),
    (
        "InRun.model",
        "the SDK's own: there are no credentials",
        lambda raised: type(raised.error).__module__.startswith(("openai", "agents")),
    ),
    (
        "Port.heartbeat",
        "an executor's id is the library's own, and names a file",
        lambda raised: "executor" in raised.wrong,
    ),
    (
        "Taken.import_log",
        "a log that is none: Corrupt as documented",
        lambda raised: isinstance(raised.error, perdure.Corrupt),
    ),
    *(
        (room, "typed calls of a framework or an adapter, which no person makes", _of_a_type)
        for room in ("Saver.", "Memory.", "Session.", "InRun.", "Adapters.", "Port.")
    ),
    ("Run.map", "as many steps as the caller has items", _each_is_a_step),
    ("AsyncRun.map", "the same", _each_is_a_step),
    ("", "a function's StopIteration: Python's own rule for coroutines", _stopped),
    (
        "move",
        "an index that is not there, as documented",
        lambda raised: isinstance(raised.error, IndexError),
    ),
)
"""By the beginning of the target's name; the reason; and how it is told."""

DEEP = re.compile(
    r"unsupported operand|object is not (iterable|callable|subscriptable|an iterator)|"
    r"has no attribute|argument of type|not supported between|must be str, not|"
    r"expected str instance|cannot convert|unhashable type|an integer is required|first arg|"
    r"descriptor|can't compare|can't subtract|embedded null|Invalid value NaN|surrogates not "
    r"allowed|indices must be|expected at (least|most)|too (large|big)|dictionary update sequence|"
    r"changed size during|should return|must return|__[a-z]+__ returned"
)
"""Python's words for what was found out too late, in the middle of the work."""


def trouble(target: str, error: BaseException, wrong: dict[str, Any]) -> str:
    """Why a caller could make nothing of what was raised; empty: it is as it should be."""
    raised = Raised(target, error, wrong)
    if any(target.startswith(name) and told(raised) for name, _, told in TOLERATED):
        return ""
    if isinstance(error, perdure.Corrupt):
        return "it calls it corrupt"
    if isinstance(error, perdure.StoreUnavailable) and "closed" not in str(error):
        return "it says that the store is unavailable"
    if isinstance(error, PerdureError):
        return ""
    if not isinstance(error, TypeError | ValueError) or isinstance(error, UnicodeError):
        return f"it is a bare {type(error).__name__}"
    if DEEP.search(str(error)) and not str(error).startswith(("agent() ", "step() ")):
        return "it comes from deep within, and names no argument"
    if not str(error):
        return "it says nothing"
    return ""


MAY_WRITE: tuple[tuple[str, str], ...] = (
    ("Run.", "a run's journal says what it came to"),
    ("AsyncRun.", "the same"),
    ("Child", "the same"),
    ("AsyncChild", "the same"),
    ("RunThreads.", "the same"),
    ("Ask.", "the same"),
    ("Signal.", "the same"),
    ("Timer.", "the same"),
    ("step", "the same"),
    ("tool", "the same"),
    ("heartbeat", "the same"),
    ("saved", "the same"),
    ("unrecorded", "the same"),
    ("increment", "the same"),
    ("move", "the same"),
    ("agent", "a run that fails is recorded"),
    ("Options.", "the same"),
    ("AsyncOptions.", "the same"),
    ("Store.run", "the same"),
    ("Store.start", "the same"),
    ("AsyncStore.run", "the same"),
    ("AsyncStore.start", "the same"),
    ("Store.options", "the options are used for a run"),
    ("AsyncStore.options", "the same"),
    ("invariant", "a schema's agent is made before its rule is broken"),
    ("transitions", "the same"),
    ("Schema.", "the same"),
    ("InRun.", "a run's journal says what it came to"),
    ("Testing.run_until_waiting", "a run that fails is recorded"),
    ("Saver.put", "a thread's begin may be a commit of its own"),
    ("Saver.aput", "the same"),
    ("Saver.__init__", "what is used afterwards"),
    ("Memory.__init__", "the same"),
    ("Session.__init__", "the same"),
    ("Adapters.foreign_logs", "the same"),
    ("replication.migrate", "what moved is another store's"),
    ("replication.following", "who opens a follower counts as one of the store's"),
)
"""Targets, by the beginning of their names, which may leave new agents and runs, and change those
that they made, although they raise. None of them may change what was there before."""


def may_write(target: str) -> bool:
    return any(target.startswith(name) for name, _ in MAY_WRITE)


def is_code(value: Any) -> bool:
    """Whether a caller's code runs where it is used."""
    with suppress(HostileError):
        return callable(value)
    return True
