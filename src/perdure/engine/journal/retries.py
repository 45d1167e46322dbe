"""The rules for retrying a failed attempt of a step or tool, and for the duration of an attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.core.arguments.checks import Seconds, count, number, seconds
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.core.arguments.unrun_code import has_not_run, plain_function
from perdure.system.user_errors import of_code

Retryable = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]


class Retry(Struct, frozen=True):
    """The number of attempts for a call that raised, and the pauses between them.

    The pause before attempt n + 1 is ``first * factor ** (n - 1)``, at most `longest`, and then a
    random part of `jitter` less, so that calls that failed together are not all retried together.

    Attributes:
        attempts: the number of tries in all, including the first.
        on: the errors that are worth another try: types, or a function that returns True for them.
            Exceptions that are not an `Exception`, and results that cannot be stored, are never
            tried again.
        first, longest: seconds or a timedelta.
        jitter: from 0 (none) to 1 (anything between no pause and the whole).
    """

    attempts: int = 3
    on: Retryable = Exception
    first: Seconds = 1.0
    factor: float = 2.0
    longest: Seconds = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        first, longest = seconds(self.first, "first="), seconds(self.longest, "longest=")
        factor, jitter = number(self.factor, "factor="), number(self.jitter, "jitter=")
        attempts = count(self.attempts, "attempts=", least=-1)
        if attempts < 1 or first < 0 or not 0 <= jitter <= 1:
            raise ValueError(
                "a Retry needs attempts of at least 1, pauses of at least 0 and a jitter of 0 to 1"
            )
        if not factor >= 1 or longest < 0:
            raise ValueError("a Retry needs a factor of at least 1 and no negative longest pause")
        if type(self.first) is not timedelta:
            force_setattr(self, "first", first)
        if type(self.longest) is not timedelta:
            force_setattr(self, "longest", longest)
        for name, value in (("attempts", attempts), ("factor", factor), ("jitter", jitter)):
            force_setattr(self, name, value)  # what was checked, whatever the caller's says later
        kinds = self.on if type(self.on) is tuple else (self.on,)
        if not (all(is_a(k, type) for k in kinds) or callable(self.on)):
            raise ValueError(
                f"on={shown(self.on)}: must be a type, a tuple of types, or a function"
            )
        if not isinstance(self.on, tuple | type):
            plain_function(self.on, "on=")

    def worth_it(self, error: Exception) -> bool:
        """Returns True if this error is worth another try; False if `on` itself fails on it."""
        if isinstance(self.on, tuple | type):
            return issubclass(type(error), self.on)  # `isinstance` asks the error, which may fail
        try:
            said = self.on(error)
            if has_not_run(said):
                raise TypeError(f"its answer is a {type(said).__name__}, which has not run")
            return bool(said)
        except of_code() as failed:  # the call's own error must not get lost behind it
            with suppress(Exception):
                error.add_note(f"could not tell if it is worth another try: {failed!r}")
            return False

    def pause_s(self, attempt: int) -> float:
        """Returns the pause after attempt number `attempt` failed, in seconds."""
        longest = seconds(self.longest)
        try:
            whole = min(seconds(self.first) * self.factor ** (attempt - 1), longest)
        except OverflowError:
            whole = longest
        return whole * (1 - self.jitter * random.random())


ONCE = Retry(attempts=1)


class Limits(Struct, frozen=True):
    """The limits of `step` and `tool` on attempts and time.

    Attributes:
        timeout: seconds that one attempt may take.
        total_timeout: seconds from the first attempt's begin after which none is begun any more,
            and the running one is given up.
        heartbeat_timeout: seconds that an attempt may go without calling `perdure.heartbeat`.
    """

    retry: Retry = ONCE
    timeout: float | None = None
    total_timeout: float | None = None
    heartbeat_timeout: float | None = None

    @property
    def timed(self) -> bool:
        return not (
            self.timeout is None and self.total_timeout is None and self.heartbeat_timeout is None
        )

    @classmethod
    def of(
        cls,
        retry: Retry | int | None,
        timeout: Seconds | None,
        total_timeout: Seconds | None,
        heartbeat_timeout: Seconds | None,
    ) -> Limits:
        """Returns the limits from a decorator's arguments; a plain number of attempts becomes a
        `Retry`.

        Raises:
            ValueError: a limit allows no time at all, or no attempt.
        """
        given = {
            "timeout=": timeout,
            "total_timeout=": total_timeout,
            "heartbeat_timeout=": heartbeat_timeout,
        }
        limits = [None if value is None else seconds(value, of) for of, value in given.items()]
        if any(limit is not None and limit <= 0 for limit in limits):
            raise ValueError("a timeout must be longer than nothing; leave it out for none")
        if is_a(retry, int) and not is_a(retry, bool):
            retry = Retry(retry)
        if retry is not None and not is_a(retry, Retry):
            raise TypeError(
                f"retry= is a perdure.Retry, or a number of attempts, not {shown(retry)}"
            )
        made = cls(retry or ONCE, *limits)
        return NO_LIMITS if made == NO_LIMITS else made


NO_LIMITS = Limits()
