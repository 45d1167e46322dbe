"""Raises at the n-th instruction of Perdure's code that a call comes to.

CPython delivers a signal's exception where a function begins, behind a call and where a loop goes
back; MemoryError and RecursionError where anything is made or called. Here it comes before any
instruction at all: what survives that depends on no version's choice. Only where a coroutine hands
on to what it awaits nothing comes: there what it awaits would be thrown away half done, so that
CPython itself delivers nothing there (an `await` goes round by JUMP_BACKWARD_NO_INTERRUPT).
"""

from __future__ import annotations

import dis
import inspect
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import perdure

ROOT = str(Path(perdure.__file__).parent)
LEFT_OUT = tuple(f"{ROOT}/{name}" for name in ("testing/", "cli/"))


HANDING_ON = ("SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT")


class TimeLimit(Exception):
    """What a soft time limit's signal handler raises."""


KINDS: tuple[Callable[[], BaseException], ...] = (
    lambda: KeyboardInterrupt("injected"),
    lambda: TimeLimit("injected"),
    lambda: MemoryError("injected"),
    lambda: SystemExit("injected"),
    lambda: RecursionError("injected"),
)


class Injector:
    """Counts the instructions of the calling thread, and raises before one of them.

    Attributes:
        count: instructions so far.
        raised: what was raised; None while the place was not come to.
        where: file, function and line of that.
    """

    def __init__(self, at: int = 0, make: Callable[[], BaseException] = KINDS[0]) -> None:
        self.count = 0
        self.raised: BaseException | None = None
        self.where = ""
        self._at = at
        self._make = make
        self._known: dict[CodeType, bool] = {}
        self._handing_on: dict[CodeType, frozenset[int]] = {}

    def _ours(self, code: CodeType) -> bool:
        known = self._known.get(code)
        if known is None:
            name = code.co_filename
            known = self._known[code] = name.startswith(ROOT) and not name.startswith(LEFT_OUT)
        return known

    def _hands_on(self, frame: FrameType) -> bool:
        """Whether it is at an instruction by which a coroutine awaits."""
        code = frame.f_code
        if not code.co_flags & inspect.CO_COROUTINE:
            return False
        offsets = self._handing_on.get(code)
        if offsets is None:
            offsets = frozenset(
                one.offset for one in dis.get_instructions(code) if one.opname in HANDING_ON
            )
            self._handing_on[code] = offsets
        return frame.f_lasti in offsets

    def _before(self, code: CodeType, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._at:
            self.raised = self._make()
            self.where = f"{code.co_filename[len(ROOT) + 1 :]}:{frame.f_lineno} {code.co_qualname}"
            raise self.raised

    # With sys.settrace: 3.11, and where nothing else is asked for.

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._at and self.count >= self._at:
            sys.settrace(None)
            return None
        if not self._ours(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and not self._hands_on(frame):
            self._before(frame.f_code, frame)
        return self._step

    def __enter__(self) -> Injector:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def join(self) -> None:
        """From inside of a call that Perdure makes: count from here on, in what goes on around
        it, too."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._ours(frame.f_code):
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
                frame.f_trace = self._step
            frame = frame.f_back
        sys.settrace(self._call)

    def leave(self) -> None:
        """The end of what `join` began."""
        sys.settrace(None)


def count(call: Callable[[], object]) -> int:
    """How many instructions of Perdure's a call comes to on this thread."""
    with Injector() as injector:
        call()
    return injector.count


def inject(call: Callable[[], object], at: int, make: Callable[[], BaseException]) -> Injector:
    """Make a call, in which that is raised before its `at`-th instruction."""
    injector = Injector(at, make)
    # In what a weak reference's end calls an exception goes nowhere: it is only shown.
    shows = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with injector:
            call()
    except BaseException as error:
        if not is_from(error, injector.raised):
            raise
    finally:
        sys.unraisablehook = shows
    return injector


def interrupt(
    call: Callable[[], object], after_s: float, make: Callable[[], BaseException]
) -> Injector:
    """Make a call, in which a real signal's handler raises after that time; on the main thread."""
    injector, armed = Injector(0, make), True

    def handler(number: int, frame: FrameType | None) -> None:
        if armed:
            injector.raised = make()
            code = frame.f_code if frame is not None else handler.__code__
            injector.where = f"{Path(code.co_filename).name} {code.co_qualname}"
            raise injector.raised

    before = signal.signal(signal.SIGALRM, handler)
    shows = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        call()
        armed = False
    except BaseException as error:
        armed = False
        if not is_from(error, injector.raised):
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = shows
    return injector


def is_from(error: BaseException, raised: BaseException | None) -> bool:
    """What comes out is that, or says that it was the reason; a framework may have wrapped it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        if one is raised:
            return True
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
        reason = getattr(one, "reason", None)
        todo.append(reason if isinstance(reason, BaseException) else None)
    return False


class Helper:
    """A thread that makes calls for the test's own, so that it can give up on one that hangs."""

    def __init__(self) -> None:
        self._call: Callable[[], object] = lambda: None
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        threading.Thread(target=self._serve, name="helper", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            try:
                self._call()
                self._error = None
            except BaseException as error:
                self._error = error
            self._done.release()

    def call(self, call: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Make a call there, and raise what it raises. TimeoutError: it hangs, and with it this
        helper."""
        self._call = call
        self._go.release()
        if not self._done.acquire(timeout=timeout_s):
            raise TimeoutError("it hangs")
        if self._error is not None:
            raise self._error
