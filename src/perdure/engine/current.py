"""Which run the code at hand belongs to, and how many runs this process is driving."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from perdure.engine.run import Run

Inside = Literal["function", "step", "tool", "edit"]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where in a run the code is.

    Attributes:
        key: the idempotency key of the tool call it is inside of.
        outer: the frame that this one was entered from; set by `inside`.
    """

    run: Run[object] | None
    inside: Inside
    key: str | None = None
    outer: Frame | None = None


_frame: ContextVar[Frame | None] = ContextVar("perdure_frame", default=None)
_driving = 0
_driving_lock = threading.Lock()


def current() -> Frame | None:
    """The frame of the code that calls; None outside of runs."""
    return _frame.get()


def driving() -> bool:
    """Whether any run is being executed in this process."""
    return _driving > 0


@contextmanager
def inside(frame: Frame) -> Iterator[None]:
    token = _frame.set(replace(frame, outer=_frame.get()))
    try:
        yield
    finally:
        _frame.reset(token)


@contextmanager
def counted() -> Iterator[None]:
    """Around the execution of a run's function."""
    global _driving
    with _driving_lock:
        _driving += 1
    try:
        yield
    finally:
        with _driving_lock:
            _driving -= 1
