"""The run that the current code belongs to, and the number of runs that this process drives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from perdure.engine.journal.scopes import Scope

if TYPE_CHECKING:
    from perdure.engine.execution.driven_run import DrivenRun
    from perdure.engine.journal.effects import Attempt

Inside = Literal["function", "step", "tool", "edit"]


class RunFrame(Struct, frozen=True):
    """The place of the current code in a run.

    Attributes:
        scope: the task of the run.
        key: the idempotency key of the enclosing tool call.
        attempt: the attempt of the enclosing step or tool.
        outer: the frame that this one was entered from; `inside` sees to it.
    """

    run: DrivenRun[Any] | None
    inside: Inside
    scope: Scope | None = None
    key: str | None = None
    attempt: Attempt | None = None
    outer: RunFrame | None = None


_frame: ContextVar[RunFrame | None] = ContextVar("perdure_frame", default=None)
current: Callable[[], RunFrame | None] = _frame.get
"""The frame of the code that calls; None outside of runs."""


class _Driven:
    """A run is being executed, for as long as this lives."""

    __slots__ = ("__weakref__",)


_driven: WeakSet[_Driven] = WeakSet()
# No number: an exception between two instructions would leave it one too high for good, and from
# then on no tool could be called outside of runs. A mark goes with the frame that holds it.


def current_in(context: Context) -> RunFrame | None:
    """The frame of code that runs in this context."""
    return context.get(_frame)


def driving() -> bool:
    """Returns True if any run is being executed in this process."""
    return len(_driven) > 0


class inside:  # noqa: N801 - it reads as the function that it would be, and each call enters one
    """Context manager: the code is in this frame."""

    __slots__ = ("_frame", "_token")

    def __init__(self, frame: RunFrame) -> None:
        self._frame = frame

    def __enter__(self) -> None:
        frame, outer = self._frame, _frame.get()
        if frame.outer is not outer:
            frame = RunFrame(frame.run, frame.inside, frame.scope, frame.key, frame.attempt, outer)
        self._token = _frame.set(frame)

    def __exit__(self, *error: object) -> None:
        _frame.reset(self._token)


enter: Callable[[RunFrame | None], object] = _frame.set
"""The code is in this frame from now on. To be in the outer one again, in a `finally`, also behind
`inside`, whose own end something may come before: what came after would take itself for a part of
what is over."""


def enter_scope(scope: Scope, run: DrivenRun[Any]) -> None:
    """Enters a new scope in the context of a task of the run that was just made. A thread that lost
    its context may have made it, from its reference to the run."""
    frame = _frame.get() or RunFrame(run, "function")
    _frame.set(replace(frame, scope=scope))


@contextmanager
def counted() -> Iterator[None]:
    """Context manager around the execution of a run's function."""
    mark = _Driven()
    _driven.add(mark)
    try:
        yield
    finally:
        _driven.discard(mark)
