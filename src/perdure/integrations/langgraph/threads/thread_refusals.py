"""The refusals of a thread, with hints on what to do."""

from __future__ import annotations

from perdure.adapters import ForeignLogs
from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.threads.requests import Put, made_after

FORKING = ("update", "fork")
"""Sources of checkpoints that are put beside others on purpose."""


def refuse_late(name: str, checkpoint_id: str) -> None:
    """Raises NotFound for writes to a thread that was deleted."""
    raise NotFound(
        f"the thread was deleted, a late write for checkpoint {checkpoint_id} cannot bring it back",
        target=f"thread {name!r}",
        hint="start again: call the graph with this thread_id and no checkpoint_id",
    )


def refuse_late_put(logs: ForeignLogs, name: str, put: Put) -> None:
    """Refuses as `refuse_late` does, if the thread was deleted: it was not there a moment ago.
    Another writer may begin it right now."""
    info = logs.look(name)
    if info is not None and info.deleted and put.parent is not None:
        refuse_late(name, put.id)


def refuse_late_writes(logs: ForeignLogs, name: str, namespace: str, checkpoint_id: str) -> None:
    """Refuses as `refuse_late_put` does, if the thread had this checkpoint, or is too young to
    tell."""
    info = logs.look(name)
    if info is None or not info.deleted:
        return
    view = View(logs.log(info))
    had = view.find(namespace, checkpoint_id) is not None
    if had or not made_after(checkpoint_id, view.log.commit(info.seq).at.timestamp()):
        refuse_late(name, checkpoint_id)


def refuse_gone(name: str, own: View, namespace: str, checkpoint_id: str) -> None:
    """Raises Conflict for writes to a checkpoint that a rollback discarded: they would be all that
    the thread has there, without anything before."""
    if own.past().moved and own.puts(namespace, checkpoint_id):
        raise Conflict(
            f"checkpoint {checkpoint_id} is gone: commit {own.past().moved} moved the thread back "
            "to before it",
            target=f"thread {name!r}",
            hint="call the graph again: it continues from where the thread is now",
        )


def removed(name: str, checkpoint_id: str) -> NotFound:
    """The error for a checkpoint that retention removed, where a line still leads to it."""
    return NotFound(
        f"checkpoint {checkpoint_id} was removed by retention",
        target=f"thread {name!r}",
        hint="move the thread to a later commit with `perdure rollback`, or take it from a copy of "
        "the store, or an export, from before that",
    )


def refuse_race(name: str, put: Put) -> None:
    """Raises Conflict for a second child of its parent that is not meant to be one."""
    if put.metadata.get("source") in FORKING:
        return
    raise Conflict(
        f"checkpoint {put.parent} has a child already: another writer continued from it",
        target=f"thread {name!r}, checkpoint {put.id}",
        hint='read the thread again and decide again, or let on_race="branch" keep both',
    )
