"""Running anew from a step: on a branch of its own, or in place; and what was made before there.

Both share history with what was, and copy nothing: a run's journal is what lies on the path from
its turn's begin to its branch's head, so that going back on the log goes back in the run. What the
run did to the world after that step it has done, though: before such a tool call is made again,
somebody decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.schema import Schema
from perdure.engine.journal import Entry, Journal
from perdure.engine.orders import run_id
from perdure.errors import Conflict, NotFound
from perdure.model import FINISHED, Cause, RunInfo
from perdure.state.context import Context
from perdure.state.extras import Extras
from perdure.state.working import WorkingCopy
from perdure.storage.committer import HERE
from perdure.storage.reader import LogReader

Again = Literal["ask", "reuse", "live"]
"""What to do before a tool call that was made before already: ask a person; take the outcome that
it had; make it again, under another idempotency key."""

CHOICES = ("ask", "reuse", "live")


class Before(Struct, frozen=True):
    """What a run made of tool calls before it was set back, or the one that it was forked from.

    Attributes:
        aliases: ids of the runs whose records in its history are its own, itself included.
    """

    effects: Again
    journals: Sequence[Journal]
    aliases: frozenset[str]

    def find(self, name: str, args: Mapping[str, str]) -> Entry | None:
        """The tool call of this name and these arguments that was made; each is found once."""
        for journal in self.journals:
            entry = journal.find(name, args)
            if entry is None or entry.kind != "tool" or entry.call.get("args", {}) != args:
                continue
            journal.take(entry)
            return entry
        return None


def made_before(reader: LogReader, info: RunInfo, path: Sequence[Any]) -> Before | None:
    """From the commits on the path of a run's branch since its turn began; None: it was never set
    back and is no fork."""
    aliases = {info.id}
    effects: Again = "ask"
    journals: list[Journal] = []
    for commit in path:
        for record in commit.records:
            if record.get("run") != info.id or "again" not in record:
                continue
            again = record["again"]
            effects = again["effects"]
            aliases |= set(again["runs"])
            later = reader.commits(int(again["at"]) + 1, int(again["until"]))
            gone = list(later)
            journals += [Journal.read(run, gone) for run in again["runs"]]
    return Before(effects, journals, frozenset(aliases)) if journals else None


def fork_run(
    context: Context, info: RunInfo, step: str, effects: Again, branch: str, key: str | None
) -> RunInfo:
    """Make a branch where a step begins, and on it a run that goes on from there; see
    `RunHandle.fork`."""
    reader = _reader(context, info)
    at = _before_step(reader, info, step)
    key = key or f"{info.key}@{branch}"
    new = run_id(info.agent, info.function, key, reader.incarnation)
    if context.backend.runs(run_id=new):
        raise Conflict("there is such a run", target=f"run {new}", hint="use another key")
    began = _started(reader, info)
    record = {
        **began, "run": new, "key": key, "pending": True, "turn": info.turn,
        "turn_at": info.turn_at, "again": _again(reader, info, at, step, effects),
    }  # fmt: skip
    row = replace(
        info, id=new, key=key, branch=branch, status="pending", started=HERE, ended=0,
        result=None, problem=None, wake_at=0, waits="", started_at=HERE, seen=0, parent="",
    )  # fmt: skip
    working = _working(context, reader, info.branch)
    with working.lock:
        working.refresh()
        cause = Cause("fork", f"{info.function} from {step}", run=new, refers=(at,))
        extras = Extras(records=[record], runs=[row], sync=True)
        working.commit_move(at, cause, extras, branch=branch)
    return row


def retry_run(context: Context, info: RunInfo, step: str, effects: Again) -> None:
    """Set a run, and its branch's state, back to where a step begins; see `RunHandle.retry`."""
    reader = _reader(context, info)
    working = _working(context, reader, info.branch)
    with working.lock:
        working.refresh()
        at = _before_step(reader, info, step)
        record = {
            "t": "run-retried", "run": info.id, "from": step,
            "again": _again(reader, info, at, step, effects),
        }  # fmt: skip
        row = replace(
            info, status="pending", ended=0, result=None, problem=None, wake_at=0, waits=""
        )
        cause = Cause("rollback", f"retry from {step}", run=info.id, refers=(at,))
        working.commit_move(at, cause, Extras(records=[record], runs=[row], sync=True))


def _again(reader: LogReader, info: RunInfo, at: int, step: str, effects: Again) -> dict[str, Any]:
    if effects not in CHOICES:
        raise ValueError(f"effects={effects!r}: must be one of {', '.join(CHOICES)}")
    runs = [info.id]
    for commit in reader.commits(info.started, info.started):
        runs += [
            run for record in commit.records if record.get("run") == info.id
            for run in record.get("again", {}).get("runs", ())
        ]  # fmt: skip
    return {
        "runs": runs, "at": at, "until": reader.last_seq(), "step": step, "effects": effects,
    }  # fmt: skip


def _before_step(reader: LogReader, info: RunInfo, step: str) -> int:
    """Seq of the commit before the first record of a place, on the path of the run's branch.

    Raises:
        NotFound: the current turn has no such place.
    """
    head = reader.ref(info.branch).seq
    seen: list[str] = []
    found: int | None = None
    for commit in reader.ancestors(head):
        if commit.seq <= info.turn_at:
            break
        for record in commit.records:
            place = record.get("place")
            if place is not None:
                seen.append(str(place))
            if place == step:
                found = commit.parent
    if found is None:
        places = list(dict.fromkeys(reversed(seen)))
        shown = ", ".join(places[:20]) + (" …" if len(places) > 20 else "")
        raise NotFound(
            f"its current turn has not come to {step!r}", target=f"run {info.id}",
            hint=f"it has: {shown or 'nothing yet'}",
        )  # fmt: skip
    return found


def _started(reader: LogReader, info: RunInfo) -> dict[str, Any]:
    for record in reader.commit(info.started).records:
        if record.get("run") == info.id and record["t"] == "run-started":
            return dict(record)
    raise NotFound("the commit that began it says nothing of it", target=f"run {info.id}")


def refuse_unfinished(info: RunInfo) -> None:
    """A run is set back only when nobody may be at it."""
    if info.status not in (*FINISHED, "needs_attention"):
        raise Conflict(
            f"is {info.status}", target=f"run {info.id}",
            hint="cancel it first, or fork it",
        )  # fmt: skip


def _reader(context: Context, info: RunInfo) -> LogReader:
    agent = context.backend.agent(info.agent)
    if agent is None or agent.no != info.agent_no:
        raise NotFound("its agent was deleted", target=f"run {info.id}")
    return LogReader(context.backend, agent)


def _working(context: Context, reader: LogReader, branch: str) -> WorkingCopy[Any]:
    head = reader.commit(reader.ref(branch).seq)
    schema: Schema[Any] = Schema(dict, id=head.schema_id, version=head.schema_version)
    return WorkingCopy(context, reader.name, schema, branch, incarnation=reader.incarnation)
