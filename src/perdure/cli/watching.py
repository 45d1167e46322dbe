"""`--watch`: runs that are listed again whenever one of them changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.live import Live

from perdure.cli.terminal import Screen, flush
from perdure.types import RunInfo

EVERY_S = 1.0
"""The interval between two looks."""


def pause() -> None:
    time.sleep(EVERY_S)


def watch(
    console: Screen | None,
    look: Callable[[], Sequence[RunInfo]],
    whole: Callable[[Sequence[RunInfo]], RenderableType],
    tell: Callable[[RunInfo], None],
    is_over: Callable[[], bool],
) -> None:
    """Shows runs until it is over, or Ctrl-C ends it.

    Args:
        console: a terminal, on which the whole list is drawn anew; None: each run that changed is
            told of, at first all of them.
        is_over: asked before each look, so that the last one shows the end.
    """
    try:
        if console is None:
            _tell_changes(look, tell, is_over)
            return
        with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                over = is_over()
                live.update(whole(look()), refresh=True)
                if over:
                    return
                pause()
    except KeyboardInterrupt:
        return


def _tell_changes(
    look: Callable[[], Sequence[RunInfo]],
    tell: Callable[[RunInfo], None],
    is_over: Callable[[], bool],
) -> None:
    known: dict[str, RunInfo] = {}
    while True:
        over = is_over()
        for run in look():
            if known.get(run.id) != run:
                known[run.id] = run
                tell(run)
        flush()
        if over:
            return
        pause()
