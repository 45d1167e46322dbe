"""What interrupts a run by itself, wherever in the engine's work for its function it comes up.

Both are for ``with``. What the function did itself is never done inside of them.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.errors import NeedsAttention, PerdureError, RunInterrupted, StoreUnavailable

Interrupt = Callable[[PerdureError], RunInterrupted]


class Stopping:
    """Context manager: a need for attention that is found in it interrupts the run."""

    __slots__ = ("_interrupt",)

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NeedsAttention):
            raise self._interrupt(error)


class Asking(Stopping):
    """Context manager, around what is asked of the store: that it cannot be reached is no failure
    of the function, which would be its run's end (I8). It is left, and gone on with later."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreUnavailable):
            raise self._interrupt(error)
