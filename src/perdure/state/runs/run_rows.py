"""The rows of runs, rebuilt from the log: they are a view on it like everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from perdure.core.format.records import (
    Finished,
    Outcome,
    Record,
    RunCancelled,
    SetBack,
    Started,
    Stopped,
    Turn,
    Waiting,
)
from perdure.model import FINISHED as FINISHED
from perdure.model import Commit, RunInfo

MOVED = "the branch was moved under it"
DELETED = "its agent was deleted"
"""Why a run was cancelled, where that followed from something else than a wish to cancel it."""


def row_text(text: str) -> str:
    """Returns a text in the form that the columns of rows take: with lone surrogates spelled
    out."""
    return text.encode("utf-8", "backslashreplace").decode()


def row_problem(error: Any) -> str:
    """Returns the problem of a failed run, from the record of its error."""
    name = str(error.get("type", "")).rpartition(":")[2].rpartition(".")[2]
    return row_text(f"{name}: {error.get('text', '')}")


def args_digest(by_name: Mapping[str, str]) -> str:
    """Returns one digest of the digests of arguments."""
    joined = "\0".join(f"{name}={digest}" for name, digest in sorted(by_name.items()))
    return sha256(joined.encode()).hexdigest()[:16]


FindRow = Callable[[str], RunInfo | None]


class RebuiltRows:
    """The rows of runs as a view on the log, computed from its commits, which are fed in order."""

    def __init__(self, find: FindRow | None = None) -> None:
        """`find`: returns the row of a run that began before the first commit that is fed."""
        self._rows: dict[str, RunInfo] = {}
        self._find = find

    @property
    def rows(self) -> dict[str, RunInfo]:
        """All rows, by the run's id."""
        return self._rows

    def after(self, commit: Commit) -> list[RunInfo]:
        """Returns the rows that a commit changes, as they are after it."""
        changed: dict[str, RunInfo] = {}
        for record in commit.typed:
            row = self._after(record, commit)
            if row is not None:
                row = replace(row, changed_at_micros=commit.at_micros)
                self._rows[row.id] = changed[row.id] = row
        return list(changed.values())

    def forget_finished(self) -> None:
        """Drops the rows of finished runs, which `find` returns if they are needed again."""
        self._rows = {key: row for key, row in self._rows.items() if row.status not in FINISHED}

    def _row(self, run: str) -> RunInfo | None:
        row = self._rows.get(run)
        return self._find(run) if row is None and self._find is not None else row

    def _after(self, record: Record, commit: Commit) -> RunInfo | None:
        if isinstance(record, Started):
            return _started(record, commit)
        row = self._row(record.run) if record.run else None
        if row is None:
            return None
        match record:
            case Waiting():
                waits = row_text(str(record.waits))
                return replace(
                    row,
                    status="waiting",
                    wake_at_micros=record.wake_at or 0,
                    waits=waits,
                    seen=record.seen or 0,
                    problem=None,
                )
            case Turn():
                return replace(row, turn=row.turn + 1, turn_at=commit.seq)
            case _ if row.status == "waiting":
                row = replace(row, wake_at_micros=0, waits="")  # whatever ends the waiting
        match record:
            case Finished(status=status, value=value):
                problem = row_problem(value) if status == "failed" else None
                return replace(row, status=status, ended=commit.seq, result=value, problem=problem)
            case Record(t="run-version", version=version):
                return replace(row, version=row_text(str(version)))
            case Record(t="run-resumed"):
                return replace(row, status="running", problem=None)
            case SetBack():
                return replace(row, status="pending", ended=0, result=None, problem=None)
            case Record(t="run-pending"):
                return replace(row, status="pending", problem=None)
            case Stopped():
                problem = row_text(str(record.problem))
                return replace(row, status="needs_attention", problem=problem)
            case RunCancelled():
                # A cancellation gives its reason, in words or None; a move or deletion that caused
                # it does not.
                why = DELETED if commit.cause.kind == "delete" else MOVED
                if record.why is not UNSET:
                    why = row_text(str(record.why)) or "by request"
                return replace(row, status="cancelled", ended=commit.seq, problem=why)
            case Outcome(by_person=True) if row.status not in FINISHED:
                return replace(row, status="pending", problem=None)
        return None


def _started(record: Started, commit: Commit) -> RunInfo:
    # Nobody waits for a fork. Its record may name who started the run that it was made from.
    parent = "" if record.again is not None else record.parent or ""
    return RunInfo(
        record.run,
        commit.agent,
        0,
        commit.branch,
        record.function,
        record.key,
        "pending" if record.pending else "running",
        commit.seq,
        args=args_digest(record.args),
        turn_at=record.turn_at or commit.seq,
        turn=record.turn or 1,
        version=row_text(str(record.version or "")),
        queue=row_text(str(record.queue or "default")),
        parent=row_text(str(parent)),
        started_at_micros=commit.at_micros,
    )
