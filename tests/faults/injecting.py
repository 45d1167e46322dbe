"""Raises at the n-th instruction of Perdure's code that a call comes to.

CPython delivers a signal's exception where a function begins, behind a call and where a loop goes
back; MemoryError and RecursionError where anything is made or called. Here it comes before any
instruction at all: what survives that depends on no version's choice. Only where a coroutine hands
on to what it awaits nothing comes: there what it awaits would be thrown away half done, so that
CPython itself delivers nothing there (an `await` goes round by JUMP_BACKWARD_NO_INTERRUPT). And
nothing comes at a NOP, which cannot raise, and which the compiler leaves out of every handler's
range where a `try` begins: not even the `finally` around it would run.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
import os
import signal
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import perdure
from perdure.engine.journal.leaving import TornError
from perdure.system import process_id
from perdure.system.stack_room import SHALLOW

ROOT = str(Path(perdure.__file__).parent)
ASYNCIO = str(Path(asyncio.__file__).parent)
LEFT_OUT = tuple(f"{ROOT}/{name}" for name in ("testing/", "cli/"))


AS_OBJECTS_END = frozenset((process_id._forget.__code__,))
"""Called by Python itself, whenever memory is collected: an exception in there goes nowhere, and
Python 3.11 may put back the trace function of another frame behind it, which it cannot call."""

HANDING_ON = frozenset(("SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT"))
NOTHING_COMES = frozenset(("NOP",))


class TimeLimit(Exception):
    """What a soft time limit's signal handler raises."""


KINDS: tuple[Callable[[], BaseException], ...] = (
    lambda: KeyboardInterrupt("injected"),
    lambda: TimeLimit("injected"),
    lambda: MemoryError("injected"),
    lambda: SystemExit("injected"),
    lambda: RecursionError("injected"),
)


@cache
def _spared(code: CodeType) -> frozenset[int] | None:
    """Where, in code of ours, nothing comes; None: it is not ours."""
    name = code.co_filename
    if not name.startswith(ROOT) or name.startswith(LEFT_OUT) or code in AS_OBJECTS_END:
        return None
    names = NOTHING_COMES | HANDING_ON if code.co_flags & inspect.CO_COROUTINE else NOTHING_COMES
    return frozenset(one.offset for one in dis.get_instructions(code) if one.opname in names)


class Injector:
    """Counts the instructions of the calling thread, and raises before one of them.

    Args:
        again: so many instructions behind the first another one comes, as from somebody who presses
            Ctrl-C twice; 0: none does.
        calls: what an injector counted in the same call before: then the instructions of most calls
            need not be counted again.

    Attributes:
        count: instructions so far.
        calls: how many there had been at each call of a function.
        first, raised: what was raised before, if that is two, and last; None while the place was
            not come to.
        where: file, function and line of that.
    """

    def __init__(
        self,
        at: int = 0,
        make: Callable[[], BaseException] = KINDS[0],
        again: int = 0,
        calls: Sequence[int] = (),
    ) -> None:
        self.count = 0
        self.calls: list[int] = []
        self.first: BaseException | None = None
        self.raised: BaseException | None = None
        self.where = ""
        self._at = at
        self._again = again
        self._make = make
        # CPython 3.11 calls a frame's trace function by a borrowed reference: where the frame drops
        # it meanwhile, what is called is something else, or the process crashes. Here it is held.
        self._steps: dict[frozenset[int], Any] = {}
        self._known_calls = calls
        self._skipped = bisect_left(calls, at) - 1
        """So many calls come before the one that is to be counted from."""

    def _ours(self, code: CodeType) -> bool:
        return _spared(code) is not None

    def _before(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._at:
            self._raise(frame)

    def _raise(self, frame: FrameType) -> None:
        code = frame.f_code
        where = f"{code.co_filename[len(ROOT) + 1 :]}:{frame.f_lineno} {code.co_qualname}"
        self.where = f"{self.where}, then {where}" if self.where else where
        self.first, self.raised = self.raised, self._make()
        if self._again and self.first is None:
            self._at += self._again
            # What a trace function raises takes it away: it is put back at the next call, or
            # where this one ends, whichever comes first.
            sys.setprofile(self._go_on)
        raise self.raised

    def _go_on(self, frame: FrameType, event: str, argument: object) -> None:
        sys.setprofile(None)
        self._join(frame)

    # With sys.settrace: 3.11, and where nothing else is asked for.

    def _skip(self, frame: FrameType, event: str, argument: object) -> Any:
        if _spared(frame.f_code) is None:
            return None
        if self._skipped:
            self._skipped -= 1
            return None
        self.count = self._known_calls[bisect_left(self._known_calls, self._at) - 1]
        self._join(frame.f_back)
        return self._call(frame, event, argument)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._at and self.count >= self._at:
            sys.settrace(None)
            return None
        spared = _spared(frame.f_code)
        if spared is None:
            return None
        self.calls.append(self.count)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._counting(spared)

    def _counting(self, spared: frozenset[int]) -> Any:
        found = self._steps.get(spared)
        if found is not None:
            return found

        def step(frame: FrameType, event: str, argument: object) -> Any:
            if event == "opcode" and frame.f_lasti not in spared:
                self.count = count = self.count + 1
                if count == self._at:
                    self._raise(frame)
            return step

        self._steps[spared] = step
        return step

    def __enter__(self) -> Injector:
        sys.settrace(self._call if self._skipped < 0 else self._skip)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def join(self) -> None:
        """From inside of a call that Perdure makes: count from here on, in what goes on around
        it, too."""
        self._join(sys._getframe(1))

    def _join(self, frame: FrameType | None) -> None:
        while frame is not None:
            spared = _spared(frame.f_code)
            if spared is not None:
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
                frame.f_trace = self._counting(spared)
            frame = frame.f_back
        sys.settrace(self._call)

    def leave(self) -> None:
        """The end of what `join` began."""
        sys.setprofile(None)
        sys.settrace(None)


def counted(call: Callable[[], object]) -> Injector:
    """What instructions of Perdure's a call comes to on this thread."""
    with Injector() as injector:
        call()
    return injector


def count(call: Callable[[], object]) -> int:
    """How many there are."""
    return counted(call).count


class Handled(Injector):
    """Calls a handler before the n-th instruction, as a signal's that raises nothing."""

    def __init__(self, at: int, handler: Callable[[], object], calls: Sequence[int]) -> None:
        super().__init__(at, calls=calls)
        self._handler = handler

    def _raise(self, frame: FrameType) -> None:
        self._handler()


class Watchdog:
    """``with watchdog:`` ends a call of the main thread that hangs, by an error that says where."""

    def __init__(self, seconds: float = 20.0) -> None:
        self._seconds = seconds
        self._until = 0.0
        signal.signal(signal.SIGVTALRM, self._bark)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def __enter__(self) -> None:
        self._until = time.monotonic() + self._seconds

    def __exit__(self, *_: object) -> None:
        self._until = 0.0

    def _watch(self) -> None:
        while True:
            time.sleep(1.0)
            if self._until and time.monotonic() > self._until:
                # Once more, if what then ends hangs, too: an event loop awaits its tasks.
                self._until += self._seconds
                os.kill(os.getpid(), signal.SIGVTALRM)

    def _bark(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the call hangs: {places(frame)}")


def places(frame: FrameType | None) -> str:
    """The innermost calls, for a person who looks for the reason."""
    found = traceback.extract_stack(frame)[-6:] if frame is not None else []
    return " > ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in found)


def _deep(call: Callable[[], object], frames: int) -> object:
    return call() if frames == 0 else _deep(call, frames - 1)


def inject(
    call: Callable[[], object],
    at: int,
    make: Callable[[], BaseException],
    again: int = 0,
    calls: Sequence[int] = (),
) -> Injector:
    """Make a call, in which that is raised before its `at`-th instruction; and, where it is said,
    once more so many instructions later."""
    injector = Injector(at, make, again, calls)

    def traced() -> None:
        with injector:
            call()

    # In what a weak reference's end calls an exception goes nowhere: it is only shown.
    shows = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        # That comes of a deep stack, or of what is gone through.
        _deep(traced, 2 * SHALLOW if isinstance(make(), RecursionError) else 0)
    except BaseException as error:
        lost = isinstance(error, TornError) and injector.first is not None  # where both came
        if not (lost or is_from(error, injector.first, injector.raised)):
            error.add_note(injector.where)
            raise
    finally:
        sys.unraisablehook = shows
    return injector


def interrupt(
    call: Callable[[], object], after_s: float, make: Callable[[], BaseException]
) -> Injector:
    """Make a call, in which a real signal's handler raises after that time; on the main thread.

    Where that was in asyncio's own code, it may be asyncio that waits for ever: it takes a task's
    wake-up out, and does not carry it out. So there it comes a moment later.
    """
    injector, armed = Injector(0, make), True

    def handler(number: int, frame: FrameType | None) -> None:
        if armed:
            code = frame.f_code if frame is not None else handler.__code__
            if code.co_filename.startswith(ASYNCIO):
                signal.setitimer(signal.ITIMER_REAL, 2e-5)
                return
            raised = injector.raised = make()
            injector.where = f"{Path(code.co_filename).name} {code.co_qualname}"
            raise raised

    before = signal.signal(signal.SIGALRM, handler)
    shows = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        _deep(call, 2 * SHALLOW if isinstance(make(), RecursionError) else 0)
        armed = False
    except BaseException as error:
        armed = False
        if not (is_told(error) or is_from(error, injector.first, injector.raised)):
            error.add_note(injector.where)
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = shows
    return injector


def is_told(error: BaseException) -> bool:
    """Whether an error that is rebuilt from a record tells of what was raised; or one of ours does,
    in words."""
    if isinstance(error, KeyError) and isinstance(error.args[0], threading.Thread):
        return True  # of Python's own books, where the start of a thread was interrupted
    words = str(error)
    passed_on = (  # by Python itself
        "raised StopIteration",
        "unhandled errors in a TaskGroup",
        "release unlocked lock",
    )
    return "injected" in words or any(one in words for one in passed_on)


def is_from(error: BaseException, *raised: BaseException | None) -> bool:
    """What comes out is one of those, or says that it was the reason; a framework may have wrapped
    it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        if any(one is other for other in raised):
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
        self._thread = threading.Thread(target=self._serve, name="helper", daemon=True)
        self._thread.start()

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
            raise TimeoutError(
                f"it hangs: {places(sys._current_frames().get(self._thread.ident or 0))}"
            )
        if self._error is not None:
            raise self._error
