"""Why an execution stops before its function has come to its end."""

from __future__ import annotations

from perdure.errors import PerdureError


class LeftError(PerdureError):
    """Something left a call without an outcome: `left`."""

    def __init__(self, left: BaseException, what: str, target: str) -> None:
        super().__init__(
            f"{type(left).__name__} left {what} without an outcome, and was caught", target=target,
            hint="let it through; run it again to go on",
        )  # fmt: skip
        self.left = left
        self.__cause__ = left


class Cancelled(PerdureError):
    """The run was asked to end; `problem` says why."""


class Drained(PerdureError):
    """This executor is ending; the run goes on elsewhere."""


class DeadlinePassed(PerdureError):
    """The run took longer than its deadline allows; it ends as failed."""
