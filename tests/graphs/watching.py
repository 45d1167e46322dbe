"""What hangs is found, and says where."""

from __future__ import annotations

import asyncio
import faulthandler
import io
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.graphs.loops import alive

LIMIT_S = 180.0
"""What takes longer hangs; what cannot even be broken off then ends the process."""


class HangsError(AssertionError):
    """It did not come to an end."""


@contextmanager
def watched(what: str, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Breaks off event loops that are at it for longer, with the stacks of their tasks.

    Raises:
        HangsError: they were.
    """
    said: list[str] = []

    def break_off() -> None:
        said.append(f"{what} hangs for {limit_s:g} s")
        for loop in [*alive]:
            with suppress(RuntimeError):  # it is over, or changes as it is looked at
                said.extend(map(_stack, asyncio.all_tasks(loop)))
        said.extend(
            f"{thread.name}:\n" + "".join(traceback.format_stack(sys._current_frames()[number]))
            for thread in threading.enumerate()
            if (number := thread.ident) in sys._current_frames() and number is not None
        )
        for loop in [*alive]:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)

    timer = threading.Timer(limit_s, break_off)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(limit_s + LIMIT_S, exit=True)
    try:
        yield
    except BaseException as error:
        if said:
            raise HangsError("\n".join(said)) from error
        raise
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()
    if said:
        raise HangsError("\n".join(said))


def _stack(task: asyncio.Task[object]) -> str:
    words = io.StringIO()
    task.print_stack(file=words)
    return f"{task}\n{words.getvalue()}"
