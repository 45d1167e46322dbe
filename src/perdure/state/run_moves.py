"""Checkpoint, undo, redo and rollback by the run that has the branch: commits on its head.

A rollback from outside moves the branch; a run's journal is the path to its branch's head, and may
not move. So the run's is a delta to the earlier state; see docs/decisions/0048-a-run-goes-back.md.

Each is planned first, by a flow that only reads, and then committed, while no edit is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from perdure.core.format.records import Passed
from perdure.core.undo.undo_plan import RunChanges
from perdure.core.values.diff import diff
from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain
from perdure.model import Cause, Checkpoint, Commit
from perdure.state import checkpoints, not_found, time_travel
from perdure.state.threads import refuse_inner
from perdure.state.time_travel import Back
from perdure.state.working_copy import Flow, WorkingCopy
from perdure.storage.appending import NOTHING, Riders, together
from perdure.storage.log.proposals import Committed
from perdure.storage.log.reader import Folded, LogReader

CALLS_MAX = 1000
"""The most tool calls that the answer of an undo or rollback lists, and the log keeps for it."""


class PlannedMove(Struct, frozen=True):
    """A commit to be made.

    Attributes:
        cause: without the run and the place.
        value: the answer, as the run's record keeps it.
        riders: what belongs to it beside that record.
        anew: the live object is not of the plain state, and another one takes its place.
        free: an earlier state comes back as it was: invariants are not asked.
    """

    cause: Cause
    value: Plain = None
    ops: Sequence[Op] = ()
    riders: Riders = NOTHING
    anew: bool = False
    free: bool = False

    def committing(self, working: WorkingCopy[Any], cause: Cause, along: Riders) -> Flow[Committed]:
        """Commits it on the branch's head, which has the state that it was planned on."""
        riders = along if self.riders is NOTHING else together([along, self.riders])
        return working.committing_delta(
            self.ops, cause, riders, whole=self.free, anew=self.anew, free=self.free
        )


def planning_back(
    working: WorkingCopy[Any], kind: Back, of: RunChanges | None = None
) -> Flow[PlannedMove]:
    """Plans an undo or redo. `of`: see `time_travel.planned`.

    Raises:
        NotFound: there is nothing to take back. Conflict: it cannot be.
    """
    shown = working.take_as_stored()
    plan, calls = yield partial(time_travel.planned, working, kind, working.seq, of)
    riders = NOTHING if plan.record is None else Riders((plan.record,))
    cause = Cause(kind, refers=tuple(plan.seqs))
    return PlannedMove(cause, _told(calls, untold=False), plan.ops, riders, anew=not shown)


def planning_rollback(
    working: WorkingCopy[Any], what: str, target: Callable[[], int]
) -> Flow[PlannedMove]:
    """Plans a rollback to the state of another commit, migrated as a whole.

    Args:
        what: the caller's words for that commit.

    Raises:
        NotFound: there is no such commit, or its state was removed. SchemaError: that state does
            not fit the schema.
    """
    reader, head = working.reader, working.seq
    seq, folded, left = yield partial(_read, reader, working.branch, head, target)
    schema, version = working.schema, folded.schema_version
    if folded.schema_id != schema.id:
        raise not_found.other_schema(working.name, folded.schema_id, schema)
    plain = schema.complete(schema.migrate(folded.state, version), version)
    schema.build_stored(plain, working.name, seq, version)
    shown = working.take_as_stored()
    riders = Riders((Passed(to=seq, rest=[]),))
    told = _told(time_travel.tool_calls(left), untold=time_travel.is_untold(left))
    cause, ops = Cause("rollback", what, refers=(seq,)), diff(working.plain, plain)
    return PlannedMove(cause, told, ops, riders, anew=not shown, free=True)


def _read(
    reader: LogReader, branch: str, head: int, target: Callable[[], int]
) -> tuple[int, Folded, list[Commit]]:
    seq = target()
    refuse_inner(reader, branch)
    return seq, reader.fold(seq), time_travel.left_behind(reader, head, seq)


def _told(calls: Sequence[Mapping[str, Any]], *, untold: bool) -> Plain:
    return {"calls": list(calls[:CALLS_MAX]), "untold": untold or len(calls) > CALLS_MAX}


def answer_of(commit: Commit, value: Plain) -> time_travel.BranchMove:
    """Returns the answer of an undo or rollback by its commit, and by `PlannedMove.value` as the
    run's record kept it."""
    told: Any = value if type(value) is dict else {}
    return time_travel.BranchMove(commit, tuple(told.get("calls", ())), bool(told.get("untold")))


def planning_checkpoint(
    working: WorkingCopy[Any],
    name: str,
    config: str | None,
    dependencies: Iterable[str],
    run: str,
    position: str,
) -> Flow[PlannedMove]:
    """Plans a checkpoint of the state, under a name or the next free one behind it.

    Args:
        config: the hash of the configuration.
        run, position: the run, and its place now.

    Raises:
        SchemaError: the state does not fit its schema. NotFound: a distribution is not installed.
    """
    point = yield from planning_point(working, name, config, dependencies, run, position)
    riders = Riders((checkpoints.record_of(point),), checkpoint=point)
    return PlannedMove(Cause("checkpoint", point.name), point.name, (), riders)


def planning_point(
    working: WorkingCopy[Any],
    name: str,
    config: str | None,
    dependencies: Iterable[str],
    run: str,
    position: str,
) -> Flow[Checkpoint]:
    """Plans the checkpoint itself; see `planning_checkpoint`."""
    named = yield partial(free_name, working.reader, name)
    point = partial(checkpoints.current_point, working, named, config, dependencies, run, position)
    return (yield point) if working.lowers else point()  # there it reads the log


def free_name(reader: LogReader, name: str) -> str:
    """Returns a name for a checkpoint, or, where that is taken, with a number behind it as places
    have: ``before refund#2``. Some ten look-ups, however many there are."""

    def is_taken(number: int) -> bool:
        return reader.is_taken(_numbered(name, number))

    low, high = 0, 1  # the last that is known to be taken, and the first that may be free
    while is_taken(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    return _numbered(name, high)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}#{number}"
