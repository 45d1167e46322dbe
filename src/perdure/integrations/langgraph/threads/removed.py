"""The removals of a thread in its logs: single checkpoints, and all earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.adapters import ForeignLog, ForeignLogs
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.values import thread_names


def removals_of(views: Iterable[View]) -> dict[str, Any]:
    """Returns the removals of a thread: those of its own log take precedence over those of the logs
    that it was copied from."""
    found: dict[str, Any] = {}
    for view in views:
        found = {**view.removals(), **found}
    return found


def was_deleted(logs: ForeignLogs, view: View, namespace: str, checkpoint_id: str) -> bool:
    """Returns True if a checkpoint belongs to a deleted thread of that id that was before this
    one."""
    info = view.log.info
    for number in range(info.incarnation - 1, 0, -1):
        log = logs.incarnation(info.name, number)
        if log is None:
            continue
        if log.info.purged:  # of what it had, only the time is known
            made = thread_names.made_at(checkpoint_id)
            if made is not None and made <= log.commit(log.info.seq).at.timestamp():
                return True
        elif View(log).find(namespace, checkpoint_id) is not None:
            return True
    return False


def label_of(log: ForeignLog) -> str:
    """Returns the name of a log in removals."""
    return f"{log.info.incarnation}:{log.info.name}"


def is_removed(removals: dict[str, Any], log: ForeignLog, namespace: str, seq: int) -> bool:
    marks = removals.get(label_of(log), {}).get(namespace)
    if marks is None:
        return False
    return seq in marks["also"] or (seq <= marks["until"] and seq not in marks["keep"])
