"""How much Python work something takes: counted, so that nothing else on the machine matters."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import perdure

_OURS = os.path.dirname(perdure.__file__) + os.sep


def work_of(does: Callable[[], object]) -> int:
    """The lines of the library that are run, on all threads, each turn of a loop anew."""
    counts: dict[int, list[int]] = {}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        counts[threading.get_ident()][0] += 1
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        counts.setdefault(threading.get_ident(), [0])[0] += 1
        return line

    before = sys.gettrace()
    threading.settrace(call)
    sys.settrace(call)
    try:
        does()
    finally:
        sys.settrace(before)
        threading.settrace(None)
    return sum(count for (count,) in counts.values())
