"""What a backend goes by as its clock; tests give it another one."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""The time, in microseconds since 1970."""


def wall_clock() -> int:
    """This machine's."""
    return time.time_ns() // 1000
