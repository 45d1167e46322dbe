"""Errors that interrupt a run, wherever in the engine's work for its function they come up.

Both are for ``with``. The function's own code never runs inside of them; its errors pass through as
`Carried`.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.engine.journal.leaving import Interrupt
from perdure.errors import StoreUnavailable


class Stopping:
    """Context manager: a need for attention that is found in it interrupts the run, and so does
    what comes from outside, between two instructions of it."""

    __slots__ = ("_passed_on",)

    def __init__(self, passed_on: Callable[[BaseException], BaseException]) -> None:
        self._passed_on = passed_on

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and (other := self._passed_on(error)) is not error:
            raise other


class Asking:
    """Context manager around requests to the store: an unreachable store is not a failure of the
    function, which would end its run (I8). The function is left, and the run resumed later."""

    __slots__ = ("_interrupt",)

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreUnavailable):
            raise self._interrupt(error)
