"""Copies of threads: a commit that points to another log, as of now."""

from __future__ import annotations

from perdure.adapters import COPIED, COPIES, ForeignLogs
from perdure.core.values.diff import diff
from perdure.core.values.plain_values import Plain
from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph.threads import state_changes
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.model import AgentInfo, Cause
from perdure.system.backoff import chances


def copy_thread(logs: ForeignLogs, source: Thread, target: str) -> None:
    """Makes `target` a thread with all that `source` holds now. O(1).

    The log of the source records this first, and is kept from then on as long as the copy lives; if
    the process is killed in between, there is no copy.

    Raises:
        NotFound: there is no source. Conflict: the target is there already.
    """
    known = logs.look(target)
    if known is not None and not known.deleted:
        raise Conflict(
            "there is a thread of that id already",
            target=f"thread {target!r}",
            hint="delete it first, or copy to another id",
        )
    with source.lock:
        info, end, removed = _announce(logs, source, target)
    record = {
        "t": COPIED,
        "agent": source.name,
        "incarnation": info.incarnation,
        "seq": info.seq,
        "id": end,
        "removed": removed,
    }
    cause = Cause("create", f"copy of {source.name}", refers=())
    logs.create(target, state_changes.nothing(), cause, records=[record])


def _announce(logs: ForeignLogs, source: Thread, target: str) -> tuple[AgentInfo, bytes, int]:
    """Records in the source's log that it is copied; returns the log as it was, the id of its last
    commit, and the seq of its removals."""
    for _ in chances():
        views = source.views()
        info = logs.look(source.name)
        if not views or info is None:
            raise NotFound("there is no such thread to copy", target=f"thread {source.name!r}")
        view = views[0]
        # As of that moment: another process may move or delete it before this is recorded.
        removed = View(view.log, info.seq).removed_at(info.seq)
        end = view.log.commit(info.seq).id
        try:
            _say(view, target, logs.now())
        except (Conflict, NotFound):  # somebody else copies it too, or deleted it: look again
            continue
        finally:
            view.forget()
        return info, end, removed
    raise source.too_busy()


def _say(view: View, target: str, at: int) -> None:
    head = view.log.head(COPIES)
    what = f"copied to {target}"
    if not head:
        state: Plain = {target: at}
        held = view.log.begin(1)
        cause = Cause("fork", COPIES, refers=(1,))
        view.log.append(held, diff(None, state), state, cause, branch=COPIES, new=True)
        return
    held = view.log.at(head)
    state = {**held.state, target: at}
    view.log.append(held, diff(held.state, state), state, Cause("save", what), branch=COPIES)
