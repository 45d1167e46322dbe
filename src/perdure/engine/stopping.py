"""Noting that a run needs a person, without executing it (I8)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.engine.handle import RunHandle
from perdure.engine.wakeups import Wakeups
from perdure.errors import Conflict, PerdureError
from perdure.model import FINISHED, Cause, RunInfo
from perdure.state.context import Context
from perdure.state.projections import row_text


def stop(context: Context, wakeups: Wakeups, run: str, problem: str) -> None:
    """Note that a run needs a person. Writes; needs no state, so that it works behind damage, too.

    Raises:
        Conflict: it is finished, somebody executes it, or it is noted already.
    """

    def stopped(info: RunInfo) -> RunInfo:
        if info.status in (*FINISHED, "needs_attention"):
            raise Conflict(f"is {info.status}", target=f"run {run}")
        return replace(info, status="needs_attention", problem=row_text(problem))

    handle: RunHandle[Any] = RunHandle(context, wakeups, run)
    record = {"t": "run-stopped", "run": run, "problem": problem}
    handle._record(Cause("run-stopped", run=run), record, stopped)
    wakeups.tell(run)
    if parent := handle.info.parent:
        wakeups.tell(parent)


def stop_unread(context: Context, wakeups: Wakeups, run: str, error: PerdureError) -> None:
    """The same of one whose log cannot be read, here or at all. Never fails: its caller raises the
    error itself, and who executes it is to have given the lease back."""
    with suppress(PerdureError):
        stop(context, wakeups, run, row_text(f"what it recorded cannot be read: {error}"))
