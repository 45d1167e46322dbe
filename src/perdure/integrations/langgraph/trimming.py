"""Retention of a thread: which checkpoints and writes stay beside what every log keeps.

A thread's latest checkpoints may be old: each namespace has its own line, and a subgraph that ended
long ago has its last one far behind. Those stay, with the writes for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta

from perdure.adapters import Stays, Trimmed, Where
from perdure.core.values import Plain
from perdure.errors import Conflict, Corrupt, PerdureError, UnsupportedFormat
from perdure.integrations.langgraph.changes import VALUES, VERSIONS
from perdure.integrations.langgraph.finding import standing
from perdure.integrations.langgraph.kinds import is_delta_snapshot
from perdure.integrations.langgraph.requests import Found
from perdure.integrations.langgraph.thread import Thread
from perdure.integrations.langgraph.view import View, removals_of
from perdure.integrations.langgraph.written import read_writes
from perdure.model import Commit

PASSING = ("branch:to:", "start:", "__")
"""How the channels begin in which LangGraph itself leaves no value between steps."""


def stays(thread: Thread, view: View, horizon: int, passing: Collection[str]) -> Stays:
    """The seqs whose states, and whose payloads stay.

    Args:
        passing: more channels in which no value stays between steps.

    Raises:
        Conflict: a channel is stored as deltas, or seems to be: its value is made of what goes.
    """
    states: set[int] = set()
    payloads: set[int] = set()
    removals = removals_of([view])
    for namespace in view.namespaces():
        for tip in view.tips(namespace):
            found = standing(view, removals, namespace, tip)
            if found is None:
                continue
            states.add(found.seq)
            payloads |= view.written_in(namespace, found.id) | _line_behind(view, found)
            _refuse_deltas(thread, view, found, horizon, passing)
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


def _going(thread: Thread, view: View, horizon: int) -> Iterator[Commit]:
    """What may hold the writes before a horizon. Those that a copy was copied with stay, in another
    log; and nobody comes there any more from what is left of the copy."""
    yield from view.log.commits(1, horizon - 1)
    for origin in thread.seen[1:]:
        yield from origin.log.commits(1, origin.until)


def _refuse_deltas(
    thread: Thread, view: View, found: Found, horizon: int, passing: Collection[str]
) -> None:
    state: Plain = view.log.at(found.seq).state
    proven = [name for name, value in state[VALUES].items() if is_delta_snapshot(value)]
    if proven:  # now and then the latest checkpoint has one; those before it are made of writes
        raise Conflict(
            f"channel {proven[0]!r} is stored as deltas, its values are made of the writes before",
            target=f"thread {thread.name!r}", hint="keep its history",
        )  # fmt: skip
    suspects = {
        name for name in state[VERSIONS].keys() - state[VALUES].keys()
        if not name.startswith(PASSING) and name not in passing
    }  # fmt: skip
    if not suspects:
        return
    for commit in _going(thread, view, horizon):
        for write in read_writes(commit):
            for _, channel, _ in write.writes:
                if channel in suspects:
                    raise Conflict(
                        f"channel {channel!r} has no value in the latest checkpoint, and writes: "
                        "is it one that is stored as deltas, its value is made of all of them",
                        target=f"thread {thread.name!r}",
                        hint="keep its history; or, if no value of it is to stay from step to "
                        f"step, say so: PerdureSaver.trim(…, passing=[{channel!r}])",
                    )  # fmt: skip
