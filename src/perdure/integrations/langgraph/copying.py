"""Copies of threads: a commit that points to another log, as of now."""

from __future__ import annotations

from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph import changes
from perdure.integrations.langgraph.thread import Thread
from perdure.integrations.langgraph.view import COPIED
from perdure.model import Cause
from perdure.store import ForeignLogs


def copy_thread(logs: ForeignLogs, source: Thread, target: str) -> None:
    """Make `target` a thread with all that `source` holds now. O(1).

    Raises:
        NotFound: there is no source. Conflict: the target is there already.
    """
    with source.lock:
        views = source.views()
        if not views:
            raise NotFound("there is no such thread to copy", target=f"thread {source.name!r}")
        log = views[0].log
        now = logs.look(source.name)
        removed = views[0].removed_at()
    known = logs.look(target)
    if known is not None and not known.deleted:
        raise Conflict(
            "there is a thread of that id already", target=f"thread {target!r}",
            hint="delete it first, or copy to another id",
        )  # fmt: skip
    record = {
        "t": COPIED, "thread": source.name, "incarnation": log.info.incarnation,
        "seq": log.info.seq if now is None else now.seq, "removed": removed,
    }  # fmt: skip
    cause = Cause("create", f"copy of {source.name}", refers=())
    logs.create(target, changes.nothing(), cause, records=[record])
