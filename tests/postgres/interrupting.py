"""Raises before the n-th instruction of a call, in the backend's and in psycopg's own frames."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psycopg

import perdure.storage

ROOTS = tuple(str(Path(str(module.__file__)).parent) for module in (perdure.storage, psycopg))


class TimeLimit(Exception):
    """What a soft time limit's signal handler raises: an exception as any other."""


KINDS: tuple[type[BaseException], ...] = (KeyboardInterrupt, TimeLimit, MemoryError)


class Interrupt:
    """Counts the instructions of the calling thread. As a context it raises once, before the
    `at`-th; 0: never.

    Attributes:
        count: instructions so far.
        where: the function that it was raised in; "": it was not.
    """

    def __init__(self, at: int = 0, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.count = 0
        self.where = ""
        self._at = at
        self._kind = kind
        self._known: dict[CodeType, bool] = {}

    def __enter__(self) -> Interrupt:
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter_frame(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code not in self._known:
            self._known[code] = code.co_filename.startswith(ROOTS)
        if self.where or not self._known[code]:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and not self.where:
            self.count += 1
            if self.count == self._at:
                self.where = frame.f_code.co_qualname
                raise self._kind("injected")
        return self._step


def instructions(call: Callable[[], object]) -> int:
    """How many a call comes to."""
    with Interrupt() as counted:
        call()
    return counted.count


def interrupt(call: Callable[[], object], at: int, kind: type[BaseException]) -> str:
    """Make a call, and raise in it. Gives the function that it was raised in; where a collector's
    or a callback's exceptions are only shown, or it was not come to, the call went on."""
    shows, sys.unraisablehook = sys.unraisablehook, lambda _: None
    injected = Interrupt(at, kind)
    try:
        with injected:
            call()
    except kind:
        if not injected.where:
            raise
    finally:
        sys.unraisablehook = shows
    return injected.where
