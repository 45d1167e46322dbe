"""Opening a store that no program has made yet, or that is away: whoever serves it may be there
first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import typer

from perdure import NotAStore, NotFound, PerdureError, StoreUnavailable
from perdure.cli.session import Session, opened
from perdure.system.flag import Flag
from perdure.types import WorkerEvent

FIRST_S = 0.05
MISSING_MAX_S = 1.0
UNAVAILABLE_MAX_S = 5.0
"""The longest pauses between two tries, as those of a worker are."""
UNFINISHED_MAX = 20
"""The number of tries for a file that is not a store: its maker may not be done with it."""

HINT = "waiting until a program makes it; with --create this command does"


class Stop:
    """SIGTERM and SIGINT, heeded from before the store is open. A second one ends the process at
    once, as a crash would."""

    def __init__(self) -> None:
        self.flag = Flag()
        self.told: Callable[[], None] = lambda: None
        """Called by the handler: who goes on with the open store is to stop."""

    def heed(self, number: int, _: Any) -> None:
        if self.flag.is_set():
            os._exit(128 + number)
        self.flag.set()
        self.told()


@contextmanager
def heeding() -> Iterator[Stop]:
    """Gives what the two signals set, until the end of the block; on the main thread only."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, stop.heed) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def opened_in_time(
    ctx: typer.Context, say: Callable[[WorkerEvent], None], stop: Stop, *, create: bool
) -> Iterator[Session | None]:
    """Gives the command's store, open, as soon as it is there; None if `stop` came first.

    Args:
        say: told once why it waits, again if that changes, and that the wait is over.

    Raises:
        UsageError: no store was named, or no backend knows its URL.
        NotAStore, UnsupportedFormat, Corrupt, StoreUnavailable: waiting does not help.
    """
    said, pause_s, unfinished = "", 0.0, 0
    while not stop.flag.is_set():
        with ExitStack() as stack:
            try:
                session = stack.enter_context(opened(ctx, create=create))
            except (NotFound, NotAStore, StoreUnavailable) as error:
                if isinstance(error, StoreUnavailable) and not error.retry:
                    raise
                unfinished = unfinished + 1 if isinstance(error, NotAStore) else 0
                if unfinished > UNFINISHED_MAX:
                    raise
                words = _in_words(error)
                if words != said and not unfinished:
                    said = words
                    say(WorkerEvent("unavailable", words=said))
            else:
                if said:
                    say(WorkerEvent("available"))
                yield session
                return
        longest_s = MISSING_MAX_S if said.endswith(HINT) else UNAVAILABLE_MAX_S
        pause_s = FIRST_S if unfinished else min(pause_s * 2 or FIRST_S, longest_s)
        stop.flag.wait(pause_s)
    yield None


def _in_words(error: PerdureError) -> str:
    said = f"{error.target}: {error.problem}"
    return f"{said}: {HINT}" if isinstance(error, NotFound) else said
