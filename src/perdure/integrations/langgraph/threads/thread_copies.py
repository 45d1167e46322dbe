"""Copies of threads: a commit that points to another log, as of now."""

from __future__ import annotations

from perdure.adapters import COPIED, COPIES, ForeignLog, ForeignLogs
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
        info = logs.look(source.name)
        if info is None or info.deleted:
            raise NotFound("there is no such thread to copy", target=f"thread {source.name!r}")
        # Of what it was copied from itself nothing is read: there may be a thousand logs of that.
        log = logs.log(info)
        source.check_schema(log.commit(1).schema_id)
        # As of that moment: another process may move or delete it before this is recorded.
        removed = View(log, info.seq).removed_at(info.seq)
        end = log.commit(info.seq).id
        try:
            _say(log, target, logs.now())
        except (Conflict, NotFound):  # somebody else copies it too, or deleted it: look again
            continue
        finally:
            for view in source.seen[:1]:
                view.forget()
        return info, end, removed
    raise source.too_busy()


def _say(log: ForeignLog, target: str, at: int) -> None:
    head = log.head(COPIES)
    what = f"copied to {target}"
    if not head:
        state: Plain = {target: at}
        held = log.begin(1)
        cause = Cause("fork", COPIES, refers=(1,))
        log.append(held, diff(None, state), state, cause, branch=COPIES, new=True)
        return
    held = log.at(head)
    state = {**held.state, target: at}
    log.append(held, diff(held.state, state), state, Cause("save", what), branch=COPIES)
