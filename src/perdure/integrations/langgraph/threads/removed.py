"""What is removed of a thread, as its logs say it: single checkpoints, and all of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.adapters import ForeignLog, ForeignLogs
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.values import thread_names


def removals_of(views: Iterable[View]) -> dict[str, Any]:
    """What is removed of a thread: what its own log says, before what those said that it is a copy
    of."""
    found: dict[str, Any] = {}
    for view in views:
        found = {**view.removals(), **found}
    return found


def was_deleted(logs: ForeignLogs, view: View, namespace: str, checkpoint_id: str) -> bool:
    """Whether a checkpoint belongs to a thread of that id that was deleted before this one."""
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
    """How removals name a log."""
    return f"{log.info.incarnation}:{log.info.name}"


def is_removed(removals: dict[str, Any], log: ForeignLog, namespace: str, seq: int) -> bool:
    marks = removals.get(label_of(log), {}).get(namespace)
    if marks is None:
        return False
    return seq in marks["also"] or (seq <= marks["until"] and seq not in marks["keep"])
