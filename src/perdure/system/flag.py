"""A flag that one thread sets and others wait for, whatever exception comes in between.

`threading.Event` guards its state by a condition that is written in Python. Ctrl-C while a thread
takes that leaves it taken: whoever sets the event, or waits for it, blocks for ever. Here
everything that two threads touch is a single operation of the system, done or not done.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Flag:
    """A flag like `threading.Event`. A wait may end a little early if the flag was just cleared."""

    __slots__ = ("_gate", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()
        """Closed while the flag is not set."""
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Sets it. An interrupted call may set it and wake nobody; another call wakes them."""
        self._is_set = True
        self._open()

    def clear(self) -> None:
        self._is_set = False  # first: what is set from here on stays so
        self._gate.acquire(blocking=False)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until it is set, or for this long; returns True if it is set."""
        if not self._is_set:
            timeout = -1 if seconds is None else max(seconds, 0.0)
            if self._gate.acquire(timeout=timeout) and self.is_set():
                self._open()  # for the next who waits
        return self._is_set

    def _open(self) -> None:
        if self._gate.locked():
            with suppress(RuntimeError):  # another one did at this moment
                self._gate.release()
