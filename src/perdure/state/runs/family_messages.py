"""Messages between runs and the runs that they started: sent to their inboxes by the commits that
end them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from perdure.core.arguments.bounds import index_key
from perdure.core.format.records import Finished, Started
from perdure.core.format.rows import order_of
from perdure.model import Commit, Message, RunInfo
from perdure.state.runs.run_rows import args_digest
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import LogReader

CHILD = "child:"
"""A parent is told of a child's end by a signal of this name, followed by the child's id."""


def agent_of(run: str) -> str:
    """Returns the name of a run's agent, from the run's id."""
    return unquote(run.split("/")[0])


def begin_of(commit: Commit, run: str) -> Started | None:
    """Returns the record with which a run began, if it began in this commit."""
    for record in commit.typed:
        if isinstance(record, Started) and record.run == run:
            return record
    return None


def plain_begin_of(commit: Commit, run: str) -> Mapping[str, Any] | None:
    """Returns that record as it is in the log: a run can be requested with it."""
    began = begin_of(commit, run)
    return None if began is None else commit.records[commit.typed.index(began)]


def starter_of(backend: Backend, run: str) -> str | None:
    """Returns the run that started one which exists, or was requested; empty if no run did; None if
    there is no such run."""
    for _ in range(2):  # it may begin between the two looks
        if rows := backend.runs(RunQuery(run_id=run)):
            return rows[0].parent
        asked: Any = [message.value for message in backend.inbox(run, kind="start", limit=1)]
        if asked:
            return str(asked[0].get("parent") or "")
    return None


def to_family(
    backend: Backend,
    run: RunInfo,
    reader: LogReader,
    asked: Iterable[Message] = (),
    beside: Iterable[RunInfo] = (),
    *,
    overdue: bool = False,
) -> list[Message]:
    """Returns the messages that tell of a run's end: to those that started it and, if it was
    cancelled or its time was up, to those that end with it. They belong in the commit that ends it.

    Args:
        run, asked: as for `to_parents`.
        reader: the reader of its agent's log.
        beside: other runs that the same commit ends.
        overdue: its time was up.
    """
    told = to_parents(run, asked)
    if run.status == "cancelled" or overdue:
        told += to_children(backend, reader, run, {one.id for one in beside})
    return told


def to_parents(run: RunInfo, asked: Iterable[Message] = ()) -> list[Message]:
    """Returns the messages that tell the runs that started one how it ended. After it was set back
    and resumed it may end again, which is told again.

    Args:
        run: its row at its end.
        asked: messages that requested it after another caller had begun it. A request with other
            arguments is for another run.
    """
    parents = [run.parent]
    for order in (order_of(message.value) for message in asked):
        if args_digest(order.args) == run.args:
            parents.append(order.parent)
    return [end_told(run, parent) for parent in dict.fromkeys(parents) if parent]


def end_told(run: RunInfo, parent: str) -> Message:
    """Returns the message that tells one run how another ended, by its row."""
    end: dict[str, Any] = {"status": run.status, "value": run.result}
    if run.status == "cancelled":
        end["problem"] = run.problem
    key = os.urandom(12).hex() if run.started else index_key(run.id)
    return Message(parent, agent_of(parent), "signal", CHILD + run.id, key, end)


class Families:
    """The runs that each run of a log has as its own, computed from the log's commits, which are
    fed in order.

    Attributes:
        own: by run: those that it started, that it took over, or that one from which it was forked
            had by then; each with the commit since which it has it.
        having: by run: those that have it as their own.
        bound: pairs of a run and the run that started it and that it ends with.
        late: runs that failed, when they last ended, because their time was up.
    """

    def __init__(self) -> None:
        self.own: dict[str, dict[str, int]] = {}
        self.having: dict[str, set[str]] = {}
        self.bound: set[tuple[str, str]] = set()
        self.late: set[str] = set()

    def note(self, commit: Commit) -> None:
        for record in commit.typed:
            run = record.run
            if record.child is not None:
                self._add(run, record.child.run, commit.seq)
                if not record.child.let_live:
                    self.bound.add((record.child.run, run))
            elif isinstance(record, Finished):
                self.late.discard(run)
                if record.overdue:
                    self.late.add(run)
            elif isinstance(record, Started) and record.again is not None:
                for one in record.again.runs:
                    for child, since in [*self.own.get(one, {}).items()]:
                        if since <= record.again.at:
                            self._add(run, child, commit.seq)

    def takes_along(self, starter: RunInfo) -> bool:
        """Returns True if a run has ended so that those which it started end with it."""
        late = starter.status == "failed" and starter.id in self.late
        return late or starter.status == "cancelled"

    def _add(self, run: str, child: str, seq: int) -> None:
        self.own.setdefault(run, {}).setdefault(child, seq)
        self.having.setdefault(child, set()).add(run)


def to_children(
    backend: Backend, reader: LogReader, run: RunInfo, ended: Collection[str] = ()
) -> list[Message]:
    """Returns the messages to the runs that a run has to end with it, unless another unfinished run
    of its log has them, too. Two runs that end at the same moment leave the runs that both have:
    neither sees the other's end. Runs of other stores with the same ids are left alone.

    Args:
        ended: runs that end in the same commit.
    """
    families = Families()
    # A fork has its origin's turn, and may have what was started in it before the fork began.
    for commit in reader.commits(min(run.started, run.turn_at), damaged_too=True):
        families.note(commit)
    own = families.own.get(run.id, {})
    others = backend.runs(RunQuery(agent=run.agent, unfinished=True)) if own else []
    going_on = {one.id for one in others if one.id != run.id and one.id not in ended}
    told = []
    for child in own:
        starter = starter_of(backend, child)
        if starter is None:  # gone, or yet to come: who takes in the message knows
            starter = run.id
        if (child, starter) not in families.bound or not going_on.isdisjoint(
            families.having[child]
        ):
            continue
        rows = backend.runs(RunQuery(run_id=starter)) if starter != run.id else []
        if starter == run.id or any(map(families.takes_along, rows)):
            told.append(to_end_with(run.id, child, agent_of(child), once=os.urandom(12).hex()))
    return told


def to_end_with(run: str, child: str, agent: str, *, once: str) -> Message:
    """Returns the message that tells a run to end with the one that started it.

    Args:
        once: a key under which it hears of this once. It may have been cancelled, set back and
            resumed before, so the key must differ from earlier ones.
    """
    return Message(child, agent, "cancel", "", once, f"with {run}")
