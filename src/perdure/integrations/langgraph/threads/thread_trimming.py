"""Retention of threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from functools import partial

from perdure.adapters import Trimmed, Where
from perdure.adapters.on_each import on_each
from perdure.integrations.langgraph.threads.kept_checkpoints import stays
from perdure.integrations.langgraph.threads.thread import Thread


def trim_threads(
    threads: Iterable[Thread], before: Where | timedelta, passing: Collection[str]
) -> list[Trimmed]:
    """Trims each of these threads that exists.

    Raises:
        Corrupt, UnsupportedFormat, Conflict: of the first that cannot be read or trimmed, after all
            others are done.
    """
    found = on_each(threads, lambda thread: trim_thread(thread, before, passing))
    return [one for one in found if one is not None]


def trim_thread(
    thread: Thread, before: Where | timedelta, passing: Collection[str]
) -> Trimmed | None:
    """Removes a thread's history before a commit or moment; None if there is no such thread."""
    with thread.lock:
        views = thread.views()
        if not views:
            return None
        own = views[0]
        own.forget()
        try:
            return own.log.trim(before, partial(stays, thread, passing))
        finally:
            thread.forget()
