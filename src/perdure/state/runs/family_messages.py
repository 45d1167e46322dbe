"""What runs that started others, and those, are told of each other: through their inboxes, in the
commits that end them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from perdure.core.arguments.bounds import index_key
from perdure.core.format.records import Started
from perdure.model import Commit, Message, RunInfo
from perdure.state.runs.run_rows import args_digest
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import LogReader

CHILD = "child:"
"""A parent is told of a child's end by a signal of this name, followed by the child's id."""


def agent_of(run: str) -> str:
    """The name of the agent that a run is of, from its id."""
    return unquote(run.split("/")[0])


def begin_of(commit: Commit, run: str) -> Started | None:
    """The record with which a run began, if it did with this commit."""
    for record in commit.typed:
        if isinstance(record, Started) and record.run == run:
            return record
    return None


def plain_begin_of(commit: Commit, run: str) -> Mapping[str, Any] | None:
    """The same as it is in the log: with it, a run can be asked for."""
    began = begin_of(commit, run)
    return None if began is None else commit.records[commit.typed.index(began)]


def starter_of(backend: Backend, run: str) -> str | None:
    """The run that started one which is there, or was asked for; empty: no run did; None: there is
    no such run."""
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
) -> list[Message]:
    """What tells of a run's end: those that started it and, if it was cancelled, those that are to
    end with it. For the commit that ends it, whoever makes that.

    Args:
        run, asked: as of `to_parents`.
        reader: of its agent's log.
        beside: others that the same commit ends.
    """
    told = to_parents(run, asked)
    if run.status == "cancelled":
        told += to_children(backend, reader, run, {one.id for one in beside})
    return told


def to_parents(run: RunInfo, asked: Iterable[Message] = ()) -> list[Message]:
    """What tells the runs that started one, if any did, how it ended. It may end again, once it was
    set back and gone on with, and then that is news.

    Args:
        run: its row as it is then.
        asked: messages that asked for it, and came when somebody else had begun it. Who asked for
            it with other arguments asked for another one.
    """
    parents = [run.parent]
    for order in (message.value for message in asked):
        if args_digest(order.get("args") or {}) == run.args:
            parents.append(str(order.get("parent", "")))
    return [end_told(run, parent) for parent in dict.fromkeys(parents) if parent]


def end_told(run: RunInfo, parent: str) -> Message:
    """What tells one run how another ended, by its row."""
    end: dict[str, Any] = {"status": run.status, "value": run.result}
    if run.status == "cancelled":
        end["problem"] = run.problem
    key = os.urandom(12).hex() if run.started else index_key(run.id)
    return Message(parent, agent_of(parent), "signal", CHILD + run.id, key, end)


class Having:
    """Which runs of a log have which runs as theirs, fed with its commits in order.

    Attributes:
        since: by a run, those that started it, that took it over, or that were forked from one that
            had it by then; and the commit since which each does.
        bound: runs that are to end with the one that started them: the one and the other.
    """

    def __init__(self) -> None:
        self.since: dict[str, dict[str, int]] = {}
        self.bound: set[tuple[str, str]] = set()

    def note(self, commit: Commit) -> None:
        for record in commit.typed:
            run = record.run
            if record.child is not None:
                child = record.child.run
                self.since.setdefault(child, {}).setdefault(run, commit.seq)
                if not record.child.let_live:
                    self.bound.add((child, run))
            elif isinstance(record, Started) and record.again is not None:
                again = record.again
                for since in self.since.values():
                    if any(since.get(one, commit.seq) <= again.at for one in again.runs):
                        since.setdefault(run, commit.seq)


def to_children(
    backend: Backend, reader: LogReader, run: RunInfo, ended: Collection[str] = ()
) -> list[Message]:
    """What tells the runs that a run has to end with it, once nobody else of its log has them that
    goes on. Two that end at one moment leave what both have: neither sees the other's end. None of
    these are those of others, where the log was taken into a store that has such under their ids.

    Args:
        ended: runs that end in the same commit.
    """
    having = Having()
    # A fork has its origin's turn, and may have what was started in it before the fork began.
    for commit in reader.commits(min(run.started, run.turn_at), damaged_too=True):
        having.note(commit)
    own = [child for child, since in having.since.items() if run.id in since]
    others = backend.runs(RunQuery(agent=run.agent, unfinished=True)) if own else []
    going_on = {one.id for one in others if one.id != run.id and one.id not in ended}
    told = []
    for child in own:
        starter = starter_of(backend, child)
        if (child, starter) not in having.bound or not going_on.isdisjoint(having.since[child]):
            continue
        rows = [run] if starter == run.id else backend.runs(RunQuery(run_id=starter))
        if rows and rows[0].status == "cancelled":
            told.append(to_end_with(run.id, child, agent_of(child), once=os.urandom(12).hex()))
    return told


def to_end_with(run: str, child: str, agent: str, *, once: str) -> Message:
    """What tells a run to end with the one that started it.

    Args:
        once: a key, under which it hears of this once. It may have been cancelled before, set back
            and gone on with, so this is to be told from all that it heard then.
    """
    return Message(child, agent, "cancel", "", once, f"with {run}")
