"""`run.checkpoint`, `run.undo`, `run.redo`, `run.rollback`: what they ask for, and what they give.

See docs/decisions/0048-a-run-goes-back.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any

from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import check_name, check_point, shown, words_of
from perdure.core.format.records import CheckpointRecord
from perdure.engine.execution.execution import Execution
from perdure.engine.journal.effects import Arrive, Arrived, Carried, Change, Changed, Effects
from perdure.engine.journal.failures import rebuild_error
from perdure.errors import NotFound
from perdure.model import Checkpoint, Commit
from perdure.state import checkpoints
from perdure.state.commit_lookup import Where, place_of, resolve
from perdure.state.run_moves import (
    PlannedMove,
    answer_of,
    planning_back,
    planning_checkpoint,
    planning_rollback,
)
from perdure.state.time_travel import Back
from perdure.state.working_copy import Flow
from perdure.storage.log.reader import LogReader

Asked = Where | Checkpoint


def back(execution: Execution[Any], kind: Back) -> Effects:
    """The effects of `undo` and `redo`; gives a `BranchMove`."""
    plan = partial(planning_back, execution.working, kind)
    return _moving(execution, kind, lambda _: plan())


def rollback(execution: Execution[Any], to: Asked) -> Effects:
    """The effects of `rollback`; gives a `BranchMove`.

    Raises:
        TypeError, ValueError: `to` names no commit.
    """
    where, said = _where(to)
    working = execution.working

    def plan(_: str) -> Flow[PlannedMove]:
        seq = where if type(where) is not str else execution.edits.points.get(where, where)
        target = partial(resolve, working.reader, working.branch, seq)
        if is_a(to, Checkpoint):
            target = partial(_seq_of, working.reader, to)
        return planning_rollback(working, said, target)

    return _moving(execution, f"rollback:{said}", plan)


def _where(to: Asked) -> tuple[Where, str]:
    """Returns what names a commit, and its words."""
    given: Any = to
    if is_a(given, Checkpoint):
        return to.seq, check_name(to.name, "a checkpoint")  # type: ignore[union-attr]
    where: Any = place_of(given)
    if type(where) is str:
        return where, check_name(where, "a branch or checkpoint")
    if type(where) is datetime:
        if where.tzinfo is None:
            raise ValueError(
                f"a naive datetime, {where!r}, names no moment; give it a time zone, "
                "e.g. datetime(..., tzinfo=UTC)"
            )
        return where, where.isoformat()
    if type(where) is not int:
        raise TypeError(
            f"{shown(given)} names no commit; say its seq (an int), a checkpoint or its name, a "
            "branch's name, or a datetime"
        )
    return where, str(where)


def _seq_of(reader: LogReader, point: Checkpoint) -> int:
    """Returns the seq of a checkpoint of this agent.

    Raises:
        NotFound: it is another agent's, or another store's.
    """
    commit = reader.commit(point.seq)
    named = [one for one in commit.typed if isinstance(one, CheckpointRecord)]
    known = [checkpoints.recorded(one, commit) for one in named if one.name == point.name]
    if any(one.state_hash == point.state_hash for one in known):
        return point.seq
    raise NotFound(
        f"has no checkpoint {shown(point.name)} at commit {point.seq}: it is of another agent",
        target=f"agent {reader.name!r}",
        hint="roll back to a checkpoint that this run, or this agent, made; or to one by its name",
    )


def _moving(
    execution: Execution[Any], name: str, plan: Callable[[str], Flow[PlannedMove]]
) -> Effects:
    outcome, commit = yield from _made(execution, name, plan)
    return answer_of(commit, outcome.value)


def checkpoint(
    execution: Execution[Any],
    name: str,
    config: Mapping[str, Any] | None,
    dependencies: Iterable[str],
) -> Effects:
    """The effects of `checkpoint`; gives a `Checkpoint`.

    Raises:
        TypeError, ValueError: the name is invalid, or too long for a number behind it; or another
            argument is.
    """
    name = check_point(name)
    digest, names = checkpoints.config_hash(config), words_of(dependencies, "dependencies")
    return _checkpointing(execution, name, digest, names)


def _checkpointing(
    execution: Execution[Any], name: str, config: str | None, dependencies: Iterable[str]
) -> Effects:
    def plan(place: str) -> Flow[PlannedMove]:
        return planning_checkpoint(
            execution.working, name, config, dependencies, execution.id, place
        )

    outcome, commit = yield from _made(execution, f"checkpoint:{name}", plan)
    execution.edits.points[name] = commit.seq
    record = next(
        one
        for one in commit.typed
        if isinstance(one, CheckpointRecord) and one.name == outcome.value
    )
    return checkpoints.recorded(record, commit)


def _made(
    execution: Execution[Any], name: str, plan: Callable[[str], Flow[PlannedMove]]
) -> Effects:
    """Makes a change, or finds it recorded; gives its record, and its commit."""
    arrived: Arrived = yield Arrive(name, "move", {}, str)
    entry, target = arrived.entry, f"run {execution.id}, {arrived.place}"
    if entry is None or entry.outcome is None:
        changed: Changed = yield Change(arrived.place, lambda: plan(arrived.place))
        if changed.error is not None:
            raise Carried(changed.error)
        return changed.outcome, changed.commit
    outcome = entry.outcome
    if outcome.error is not None:
        raise Carried(rebuild_error(outcome.error, target))
    return outcome, _recorded(execution, entry.seq)


def _recorded(execution: Execution[Any], seq: int) -> Commit:
    """Returns a commit of the run's turn that was recorded."""
    commits = execution.journal.commits
    place = bisect_left(commits, seq, key=attrgetter("seq"))
    return commits[place] if place < len(commits) else execution.working.reader.commit(seq)
