"""Errors that come when what was asked for is done already: they say so, and nobody does it
again."""

from __future__ import annotations

from types import TracebackType

from perdure.errors import PerdureError, StoreUnavailable


class DoneAlready:
    """Context manager around a call of several parts: once the part that counts is done (`is_now`),
    errors of the others say that it is, and do not ask for the same call again.

    Args:
        answers: kinds of errors that are answers to what was asked for: they stay as they are.
    """

    def __init__(self, *answers: type[PerdureError]) -> None:
        self._answers = answers
        self._done = ""
        self._hint = ""

    def is_now(self, done: str, hint: str) -> None:
        """Notes that the part that counts is done.

        Args:
            done: what is, and what may fail from here on, e.g. ``it is imported, and could not be
                read back``.
            hint: what to do if that fails, instead of the same call.
        """
        self._done, self._hint = done, hint

    def __enter__(self) -> DoneAlready:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._done or not isinstance(error, PerdureError):
            return
        if isinstance(error, self._answers):
            return
        error.problem = f"{self._done}: {error.problem}"
        error.hint = f"{self._hint}; {error.hint}" if error.hint else self._hint
        error.retry = False
        if isinstance(error, StoreUnavailable):
            error.outcome = "done"
