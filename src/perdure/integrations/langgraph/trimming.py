"""Retention of a thread: which checkpoints and writes stay beside what every log keeps.

A thread's latest checkpoints may be old: each namespace has its own line, and a subgraph that ended
long ago has its last one far behind. Those stay, with the writes for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from perdure.adapters import Stays, Trimmed, Where
from perdure.errors import Corrupt, PerdureError, UnsupportedFormat
from perdure.integrations.langgraph.finding import standing
from perdure.integrations.langgraph.lacking import Lacking
from perdure.integrations.langgraph.requests import Found
from perdure.integrations.langgraph.thread import Thread
from perdure.integrations.langgraph.view import View, removals_of


def stays(thread: Thread, view: View, horizon: int, passing: Collection[str]) -> Stays:
    """The seqs whose states, and whose payloads stay.

    Args:
        passing: more channels in which no value stays between steps.

    Raises:
        Conflict: a channel is stored as deltas, or seems to be: its value is made of what goes.
    """
    states: set[int] = set()
    payloads: set[int] = set()
    lacking = Lacking(thread.name, passing)
    removals = removals_of([view])
    for namespace in view.namespaces():
        for tip in view.tips(namespace):
            found = standing(view, removals, namespace, tip)
            if found is None:
                continue
            states.add(found.seq)
            payloads |= view.written_in(namespace, found.id) | _line_behind(view, found)
            lacking.look(namespace, view.log.at(found.seq).state)
    lacking.refuse_for(view.log, horizon - 1)
    for origin in thread.seen[1:]:  # it stays; what is left of the copy leads there no more
        lacking.refuse_for(origin.log, origin.until)
    return states, payloads


def trim_threads(
    threads: Iterable[Thread], before: Where | timedelta, passing: Collection[str]
) -> list[Trimmed]:
    """Each of these that is there.

    Raises:
        Corrupt, UnsupportedFormat: of the first that cannot be read, once all others are done.
    """
    done: list[Trimmed] = []
    unreadable: list[PerdureError] = []
    for thread in threads:
        try:
            found = trim_thread(thread, before, passing)
        except (Corrupt, UnsupportedFormat) as error:
            unreadable.append(error)
        else:
            done += [found] if found is not None else []
    if unreadable:
        raise unreadable[0]
    return done


def trim_thread(
    thread: Thread, before: Where | timedelta, passing: Collection[str]
) -> Trimmed | None:
    """Remove a thread's history before a commit or moment; None: there is no such thread."""
    with thread.lock:
        views = thread.views()
        if not views:
            return None
        own = views[0]
        own.forget()
        try:
            return own.log.trim(before, lambda horizon: stays(thread, own, horizon, passing))
        finally:
            thread.forget()


def _line_behind(view: View, found: Found) -> set[int]:
    """What came on a line behind its last checkpoint: by it, that one is found."""
    behind: set[int] = set()
    seq = found.tip.head if found.tip is not None else 0
    while seq > found.seq:
        behind.add(seq)
        seq = view.commit(seq).parent
    return behind
