"""What a thread does not take in, and what to do then."""

from __future__ import annotations

from perdure.adapters import ForeignLogs
from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph.requests import Put, made_after
from perdure.integrations.langgraph.view import View

FORKING = ("update", "fork")
"""Sources of checkpoints that are put beside others on purpose."""


def refuse_late(logs: ForeignLogs, name: str, late: bool, checkpoint_id: str) -> None:
    """Raise NotFound for what belongs to a thread that was deleted."""
    info = logs.look(name)
    if info is None or not late:
        return
    raise NotFound(
        f"the thread was deleted, a late write for checkpoint {checkpoint_id} cannot bring it "
        "back", target=f"thread {name!r}",
        hint="begin anew: call the graph with this thread_id and no checkpoint_id",
    )  # fmt: skip


def was_there(logs: ForeignLogs, name: str, namespace: str, checkpoint_id: str) -> bool:
    """Whether the thread that was deleted had this checkpoint, or is too young to know."""
    info = logs.look(name)
    if info is None:
        return False
    view = View(logs.log(info))
    if view.find(namespace, checkpoint_id) is not None:
        return True
    return not made_after(checkpoint_id, view.log.commit(info.seq).at.timestamp())


def refuse_gone(name: str, own: View, namespace: str, checkpoint_id: str) -> None:
    """Raise Conflict for what belongs to a checkpoint that somebody went back from: there it would
    be all that the thread has, without anything before it."""
    if own.past().moved and own.puts(namespace, checkpoint_id):
        raise Conflict(
            f"checkpoint {checkpoint_id} is gone: commit {own.past().moved} moved the thread back "
            "to before it", target=f"thread {name!r}",
            hint="call the graph anew: it goes on from where the thread is now",
        )  # fmt: skip


def refuse_race(name: str, put: Put) -> None:
    """Raise Conflict for a second child of its parent that is not meant to be one."""
    if put.metadata.get("source") in FORKING:
        return
    raise Conflict(
        f"checkpoint {put.parent} has a child already: somebody else went on from it",
        target=f"thread {name!r}, checkpoint {put.id}",
        hint='read the thread again and decide anew, or let on_race="branch" keep both',
    )
