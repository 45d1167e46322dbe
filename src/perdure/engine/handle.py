"""A handle on a run from outside: what it is doing, what it gave, and settling what is in doubt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from perdure.core.schema import Schema
from perdure.core.values import Plain, take
from perdure.engine.failures import rebuild_error
from perdure.engine.journal import Entry, Journal
from perdure.errors import Conflict, NeedsAttention, NotFound, RunFailed, TimedOut
from perdure.model import MISSING, Cause, Commit, RunInfo, RunStatus
from perdure.state.context import Context
from perdure.state.extras import Extras
from perdure.state.projections import FINISHED, row_text
from perdure.state.working import WorkingCopy
from perdure.storage.committer import HERE
from perdure.storage.reader import SEQ_END, LogReader

R = TypeVar("R")
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class EffectInfo:
    """One tool call of a run, as the effect ledger has it.

    Attributes:
        place: its id in the run, e.g. ``refund#1``.
        state: ``done``, ``failed``, ``in doubt``, or ``not done`` (settled so).
        attempts: how often it was called, by its intents.
        by: whose word the outcome is: ``call``, ``probe``, ``crash``, ``person``; empty in doubt.
    """

    run: str
    place: str
    preview: str
    state: str
    attempts: int
    policy: str
    key: str
    seq: int
    result: Plain = None
    by: str = ""


class RunHandle(Generic[R]):
    """One run, seen from outside the process that executes it."""

    def __init__(self, context: Context, info: RunInfo) -> None:
        self._context = context
        self._id = info.id

    @property
    def id(self) -> str:
        return self._id

    @property
    def info(self) -> RunInfo:
        """The run as it is now."""
        return self._context.backend.runs(run_id=self._id)[0]

    @property
    def status(self) -> RunStatus:
        return self.info.status

    def result(self, timeout: timedelta | float | None = None) -> R:
        """The recorded result, waiting for it up to `timeout` (seconds or a timedelta).

        Waiting runs nothing: without a timeout, and with nobody who runs the run, it lasts for
        ever. `store.run` is what goes on with a run.

        Raises:
            TimedOut: it is not finished yet.
            NeedsAttention: it stopped, and needs a person.
            RunFailed or the function's own exception: it failed or was cancelled.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            info = self.info
            if info.status == "done":
                return info.result  # type: ignore[no-any-return]
            if info.status == "failed":
                raise rebuild_error(info.result, f"run {info.id}")
            if info.status == "cancelled":
                raise RunFailed(f"was cancelled: {info.problem}", target=f"run {info.id}")
            if info.status == "needs_attention":
                raise NeedsAttention(info.problem or "it stopped", target=f"run {info.id}")
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"is {info.status} still", target=f"run {info.id}")
            time.sleep(POLL_S)

    def effects(self) -> list[EffectInfo]:
        """The run's tool calls, in order: its part of the effect ledger."""
        entries = self._journal().entries.values()
        return [_effect(self._id, entry) for entry in entries if entry.kind == "tool"]

    def settle(
        self, call: str, *, done: Any = MISSING, not_done: bool = False, by: str = ""
    ) -> Commit:
        """Say what became of a tool call in doubt; the run goes on when it is run again.

        What a person said may be said anew, until the run went on with it.

        Args:
            call: its place, e.g. ``refund#1``.
            done: it took effect, and this is its result.
            not_done: it did not take effect: it will be called again.
            by: who says so; recorded.

        Raises:
            NotFound: the run has no such call.
            Conflict: the call is not in doubt, the run went on with what was said of it, or an
                executor is running the run.
            ValueError: neither or both of `done` and `not_done`.
        """
        if (done is MISSING) == (not not_done):
            raise ValueError("say either done=<its result> or not_done=True")
        outcome: dict[str, Any] = {"t": "outcome", "run": self._id, "place": call, "by": "person"}
        if by:
            outcome["who"] = by
        if not_done:
            outcome["not_done"] = True
        else:
            outcome["value"] = take(done, root="done")

        def settled(info: RunInfo) -> RunInfo:
            self._check_open(call, info)
            if info.status in FINISHED:  # only the ledger learns of it
                return info
            return replace(info, status="pending", problem=None)

        return self._record(Cause("settle", call, run=self._id, step=call), outcome, settled)

    def _check_open(self, call: str, info: RunInfo) -> None:
        """What became of the call may still be said; as of this head.

        Raises:
            NotFound, Conflict: as `settle` says.
        """
        journal = self._journal()
        entry = journal.entries.get(call)
        if entry is None or entry.kind != "tool":
            known = [effect.place for effect in self.effects() if effect.state == "in doubt"]
            raise NotFound(
                f"has no tool call {call!r}", target=f"run {self._id}",
                hint=f"in doubt: {', '.join(known) or 'nothing'}",
            )  # fmt: skip
        if entry.outcome is None:
            return
        target = f"run {self._id}, call {call}"
        if entry.outcome.get("by") != "person" or info.status in FINISHED:
            raise Conflict("is not in doubt: it is settled", target=target)
        later = (commit.records for commit in journal.commits if commit.seq > entry.seq)
        if any(r.get("run") == self._id and "place" in r for records in later for r in records):
            raise Conflict(
                "is settled, and the run went on with that", target=target,
                hint="what it did since rests on it: cancel the run if that must not stand",
            )  # fmt: skip

    def cancel(self, why: str = "") -> Commit:
        """End a run that nobody executes; its tool calls stay in the ledger.

        Raises:
            Conflict: it is finished, or an executor is running it.
        """

        def cancelled(info: RunInfo) -> RunInfo:
            if info.status in FINISHED:
                raise Conflict(f"is {info.status} already", target=f"run {self._id}")
            return replace(
                info, status="cancelled", ended=HERE, problem=row_text(why) or "by request"
            )

        record = {"t": "run-cancelled", "run": self._id, "why": why}
        return self._record(Cause("run-cancelled", why, run=self._id), record, cancelled)

    def _record(
        self, cause: Cause, record: Mapping[str, Any], row_after: Callable[[RunInfo], RunInfo]
    ) -> Commit:
        """Commit a record along with the run's new row; nothing can come in between."""
        reader = self._reader()
        last = reader.commit(reader.last_seq())
        schema: Schema[Any] = Schema(dict, id=last.schema_id, version=last.schema_version)
        working = WorkingCopy(
            self._context, reader.name, schema, self.info.branch, incarnation=reader.incarnation
        )
        with working.lock:
            working.refresh()
            row = row_after(self.info)  # as of this head: the commit is refused if it moves
            extras = Extras(records=[record], runs=[row], sync=True)
            return reader.commit(working.commit_delta([], cause, extras).seq)

    def _reader(self) -> LogReader:
        info = self.info
        agent = self._context.backend.agent(info.agent)
        while agent is not None and agent.no != info.agent_no:
            agent = self._context.backend.agent(info.agent, agent.incarnation - 1)
        if agent is None:
            raise NotFound("its agent is gone", target=f"run {self._id}")
        return LogReader(self._context.backend, agent)

    def _journal(self) -> Journal:
        return Journal.read(self._id, self._reader().commits(self.info.started, SEQ_END))


def _effect(run: str, entry: Entry) -> EffectInfo:
    outcome = entry.outcome
    if outcome is None:
        state = "in doubt"
    elif "error" in outcome:
        state = "failed"
    else:
        state = "not done" if outcome.get("not_done") else "done"
    call = entry.call
    return EffectInfo(
        run, entry.place, str(call.get("preview", "")), state, entry.attempts,
        str(call.get("policy", "")), str(call.get("key", "")), entry.seq,
        outcome.get("value") if outcome else None,
        str(outcome.get("by", "call")) if outcome else "",
    )  # fmt: skip
