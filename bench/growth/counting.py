"""What a call does, in counts that are the same on every machine.

Lines of the library, on the calling thread and on those that it starts; and what SQLite does for
it: statements, and steps of its virtual machine, which grow with the rows that are looked at.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from types import FrameType
from typing import Any

import apsw

import perdure

_OURS = os.path.dirname(perdure.__file__) + os.sep


@dataclass(frozen=True, slots=True)
class Work:
    """What one call took.

    Attributes:
        lines: of the library that were run, each turn of a loop anew.
        statements: of SQL that came to their end.
        steps: of SQLite's virtual machine.
        seconds: without any counting.
    """

    lines: int
    statements: int
    steps: int
    seconds: float = 0.0


class Meter:
    """Takes what calls need: `time` and `count` are given what makes the call, once or often."""

    def __init__(self) -> None:
        self._counted: list[Work] = []
        self._seconds: list[float] = []

    def time(self, does: Callable[[], object]) -> None:
        start = perf_counter()
        does()
        self._seconds.append(perf_counter() - start)

    def count(self, does: Callable[[], object]) -> None:
        _sql.statements = _sql.steps = 0
        lines = lines_of(does)
        self._counted.append(Work(lines, _sql.statements, _sql.steps))

    def work(self) -> Work:
        """The median of each: a snapshot rides along with some commits."""
        counted, seconds = self._counted, self._seconds
        return Work(
            int(median(one.lines for one in counted)),
            int(median(one.statements for one in counted)),
            int(median(one.steps for one in counted)),
            median(seconds) if seconds else 0.0,
        )


def lines_of(does: Callable[[], object]) -> int:
    """The lines of the library that are run, on all threads that begin meanwhile and on this."""
    counts: dict[int, list[int]] = {}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        counts[threading.get_ident()][0] += 1
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        counts.setdefault(threading.get_ident(), [0])[0] += 1
        return line

    before = sys.gettrace()
    threading.settrace(call)
    sys.settrace(call)
    try:
        does()
    finally:
        sys.settrace(before)
        threading.settrace(None)
    return sum(count for (count,) in counts.values())


class _Sql:
    """What the connections that were opened since `counting_sql` did."""

    def __init__(self) -> None:
        self.statements = 0
        self.steps = 0

    def watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ended, id=self)

    def _ended(self, event: dict[str, Any]) -> None:
        self.statements += 1
        self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


_sql = _Sql()


class counting_sql:  # noqa: N801 - it reads as the function that it would be
    """Context manager: connections to SQLite that are opened inside are counted."""

    def __enter__(self) -> None:
        apsw.connection_hooks.append(_sql.watch)

    def __exit__(self, *error: object) -> None:
        apsw.connection_hooks.remove(_sql.watch)
