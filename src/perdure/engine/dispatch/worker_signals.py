"""Signals that end a worker: the first lets it drain, a second one ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def heeding(
    stop: Callable[[], None], is_stopping: Callable[[], bool], *, wanted: bool
) -> Iterator[None]:
    """Context manager in which SIGTERM and SIGINT call `stop`; on the main thread, and if wanted.

    Args:
        is_stopping: returns True if that was called before: then the process ends at once, as a
            crash would end it.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(number: int, _: Any) -> None:
        if is_stopping():
            os._exit(128 + number)
        stop()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, heed) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
