"""Runs that are asked to end, and have to undo what they did before: an executor does that."""

from __future__ import annotations

from perdure.engine.control.noting import reader_of_run
from perdure.engine.functions.compensations import plan_in, plans_begun, undoing_in
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.left_history import path_of
from perdure.model import RunInfo
from perdure.state.context import Context
from perdure.state.runs.family_messages import begin_of
from perdure.state.runs.run_rows import FINISHED
from perdure.storage.log.commits import UNREADABLE


def undoes_first(context: Context, info: RunInfo) -> bool:
    """Returns True if a run that nobody executes may not be ended here: by its ``compensate=True``
    it must first undo what it did. One that needs attention may, if it stopped while it did so, or
    was asked to end before: that is the way out.
    So may one whose log cannot be read: nobody could undo it.
    """
    if not info.started or info.status in FINISHED:
        return False
    try:
        return _undoes_first(context, info)
    except UNREADABLE:
        return False


def _undoes_first(context: Context, info: RunInfo) -> bool:
    reader = reader_of_run(context, info.id)
    if undoing_in(reader.commit(info.turn_at), info.id):
        return info.status != "needs_attention"
    began = begin_of(reader.commit(info.started), info.id)
    if began is None or not began.compensate:
        return False
    stopped = info.status == "needs_attention"
    if stopped and len(context.backend.inbox(info.id, kind="cancel")) > 1:
        return False
    path = path_of(reader, reader.ref(info.branch).seq, info.turn_at)
    if plans_begun(Journal.read(info.id, reversed(path))):
        return not stopped
    return bool(plan_in(path, info.id, under_way="in doubt"))
