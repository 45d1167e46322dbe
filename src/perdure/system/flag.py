"""A mark that one thread sets and others wait for, whatever exception comes in between.

`threading.Event` keeps its books under a condition that is written in Python. Ctrl-C where somebody
takes that leaves it taken: whoever sets the event, or waits for it, does so for ever. Here
everything that two threads touch is a single operation of the system's, done or not done.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Flag:
    """As `threading.Event`. A wait may end a little early where the flag was just cleared."""

    __slots__ = ("_gate", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()
        """Closed while the flag is not set."""
        self._gate.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set it. Interrupted, it may be set and nobody woken; set again, they are."""
        self._is_set = True
        self._open()

    def clear(self) -> None:
        self._is_set = False  # first: what is set from here on stays so
        self._gate.acquire(blocking=False)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, or for so long; whether it is."""
        if not self._is_set:
            timeout = -1 if seconds is None else max(seconds, 0.0)
            if self._gate.acquire(timeout=timeout) and self.is_set():
                self._open()  # for the next who waits
        return self._is_set

    def _open(self) -> None:
        if self._gate.locked():
            with suppress(RuntimeError):  # another one did at this moment
                self._gate.release()
