"""What a call does, in counts that are the same on every machine.

Lines of the library, on the calling thread and on those that it starts; and what SQLite does for
it: statements, and steps of its virtual machine, which grow with the rows that are looked at.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from types import FrameType
from typing import Any, Protocol

import apsw

import perdure
from perdure.core.format.envelope import random_bytes

_OURS = os.path.dirname(perdure.__file__) + os.sep
_DRAWN = random_bytes.__code__
"""Not counted: it draws for many commits at once, and some call or other comes to that."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one call took.

    Attributes:
        lines: of the library that were run, each turn of a loop anew.
        statements: of SQL that came to their end.
        steps: of SQLite's virtual machine; on PostgreSQL rows that its server read or wrote.
        seconds: without any counting.
    """

    lines: int
    statements: int
    steps: int
    seconds: float = 0.0


class Counter(Protocol):
    """Of what a database does for the stores that are opened in ``with counter:``.

    Attributes:
        few: steps that may come on top of a longer history: a page more of an index, a chunk
            more of a log.
    """

    few: int

    def begin(self) -> None:
        """Count from here on."""

    def counted(self) -> tuple[int, int]:
        """Statements and steps since then."""

    def __enter__(self) -> object: ...

    def __exit__(self, *error: object) -> None: ...


class Meter:
    """Takes what calls need: `time` and `count` are given what makes the call, once or often."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._counted: list[Work] = []
        self._seconds: list[float] = []

    def time(self, does: Callable[[], object]) -> None:
        start = perf_counter()
        does()
        self._seconds.append(perf_counter() - start)

    def count(self, does: Callable[[], object]) -> None:
        self._counter.begin()
        lines = lines_of(does)
        self._counted.append(Work(lines, *self._counter.counted()))

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
        code = frame.f_code
        if not code.co_filename.startswith(_OURS) or code is _DRAWN:
            return None
        counts.setdefault(threading.get_ident(), [0])[0] += 1
        return line

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # else what a store from before has to do as it is collected is counted here
    threading.settrace(call)
    sys.settrace(call)
    try:
        does()
    finally:
        sys.settrace(before)
        threading.settrace(None)
        if collects:
            gc.enable()
    return sum(count for (count,) in counts.values())


class SqliteCounter:
    """Statements that came to their end, and the steps of their virtual machine."""

    few = 120

    def __init__(self) -> None:
        self._statements = self._steps = 0

    def begin(self) -> None:
        self._statements = self._steps = 0

    def counted(self) -> tuple[int, int]:
        return self._statements, self._steps

    def _watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ended, id=self)

    def _ended(self, event: dict[str, Any]) -> None:
        self._statements += 1
        self._steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def __enter__(self) -> None:
        apsw.connection_hooks.append(self._watch)

    def __exit__(self, *error: object) -> None:
        apsw.connection_hooks.remove(self._watch)
