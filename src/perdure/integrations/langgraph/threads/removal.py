"""Removal of single checkpoints: the log keeps them, but the thread does not show them any more
(I7).

The removals are the state of a branch of the thread's agent, so they are recorded like everything
else, and one commit removes any number. Its cause refers to the last commit that its author had
seen: it counts as if it came directly behind that one, whatever came between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from perdure.core.values.diff import diff
from perdure.core.values.plain_values import copy
from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.threads.reading import metadata_of
from perdure.integrations.langgraph.threads.record import record_of
from perdure.integrations.langgraph.threads.removed import is_removed, label_of, removals_of
from perdure.integrations.langgraph.threads.requests import Found
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.model import Cause
from perdure.system.backoff import chances


def keep_latest(thread: Thread) -> None:
    """Removes all checkpoints of a thread but the latest of each namespace, in one commit."""
    with thread.lock:
        for look in _looks(thread):
            views = look.views
            spaces = {space for view in views for space in view.namespaces()}
            latest = {space: thread.find(space, None) for space in spaces}
            marks = {label_of(one.log): _all_but(one, look.seen, latest) for one in views}
            if look.commit(marks, "all but the latest checkpoints removed"):
                return


def _all_but(view: View, seen: int, latest: dict[str, Found | None]) -> dict[str, Any]:
    return {
        space: {
            "until": view.until or seen,
            "keep": [found.seq] if found is not None and found.view is view else [],
            "also": [],
        }
        for space, found in latest.items()
    }


def and_later(threads: Callable[[], Iterator[Thread]]) -> Iterator[Thread]:
    """Yields all threads, then those that came meanwhile: each may be a copy, from just before, of
    one that was changed."""
    first = {thread.name: thread for thread in threads()}
    yield from first.values()
    yield from [thread for thread in threads() if thread.name not in first]


def remove_runs(coder: Coder, thread: Thread, run_ids: Collection[str]) -> None:
    """Removes a thread's checkpoints that some runs put. Reads the whole log."""
    with thread.lock:
        for look in _looks(thread):
            removals = removals_of(look.views)
            marks: dict[str, dict[str, Any]] = {}
            found = False
            for view in look.views:
                own = marks[label_of(view.log)] = copy(removals.get(label_of(view.log), {}))
                for space, seq in _of_runs(coder, view, run_ids):
                    if not is_removed(removals, view.log, space, seq):
                        found = True
                        mark = own.setdefault(space, {"until": 0, "keep": [], "also": []})
                        mark["also"].append(seq)
                        mark["keep"] = [one for one in mark["keep"] if one != seq]
            if not found or look.commit(marks, f"{len(run_ids)} runs removed"):
                return


def _of_runs(coder: Coder, view: View, run_ids: Collection[str]) -> Iterable[tuple[str, int]]:
    for commit in view.commits():
        key = thread_names.read_checkpoint_key(commit.cause.key)
        if key is not None and not commit.trimmed and not commit.damaged:
            metadata = metadata_of(coder, record_of(commit)["metadata"])
            if str(metadata.get("run_id") or "") in run_ids:
                yield key[0], commit.seq


class _RemovalLook:
    """A look at a thread.

    Attributes:
        views: of it, as they are.
        seen: seq of the last commit that was there when it began; whether more is seen, is chance.
    """

    def __init__(self, views: list[View]) -> None:
        self.views = views
        self.seen = views[0].end
        self._head = views[0].log.head(thread_names.REMOVED)
        views[0].forget()  # what was removed before that is known from here on

    def commit(self, marks: dict[str, Any], what: str) -> bool:
        """Records removals; False if another process just did, and the caller must look again."""
        view, head = self.views[0], self._head
        try:
            if head:
                held = view.log.at(head)
                delta = diff(held.state, marks)
                if delta or view.removed_at() != head:  # a rollback left behind what it says
                    cause = Cause("save", what, refers=(self.seen,))
                    view.log.append(held, delta, marks, cause, branch=thread_names.REMOVED)
            else:
                held = view.log.begin(1)
                delta = diff(None, marks)
                cause = Cause("fork", thread_names.REMOVED, refers=(1, self.seen))
                view.log.append(held, delta, marks, cause, branch=thread_names.REMOVED, new=True)
        except (Conflict, NotFound):
            return False
        finally:
            view.forget()
        return True


def _looks(thread: Thread) -> Iterator[_RemovalLook]:
    """Yields looks at the thread, until there is no such thread.

    Raises:
        Conflict: others removed something between each look and its commit.
    """
    for _ in chances():
        views = thread.views()
        if not views:
            return
        yield _RemovalLook(views)
    raise thread.too_busy()
