"""The run that started a run. Messages between runs go by that, not by their ids alone.

A run's id is made of names, and other stores have the same agents and keys. After a log was taken
in, the run with the id of its run's child may be a stranger: that run is not told of its end, nor
does it end with it.
"""

from __future__ import annotations

from msgspec import Struct

from perdure.core.arguments.names import incarnation_of
from perdure.core.format.records import Record, Started
from perdure.core.format.rows import order_of
from perdure.errors import Corrupt, NotFound, UnsupportedFormat
from perdure.model import RunInfo
from perdure.state.runs.family_messages import agent_of, begin_of
from perdure.state.runs.run_rows import args_digest
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import LogReader

_OF_THE_CALL = ("(agent)", "(key)")
"""The names that distinguish one start from another besides the arguments of the started run."""


class Origin(Struct, frozen=True):
    """The origin of a run: who started it, by the record of its begin or by the message that
    requests it.

    Attributes:
        parent: the id of the run that started it; empty: none did.
        args: one digest of its arguments.
        at: seq and id of a commit of the parent's log, in the turn that asked; None: there is no
            parent, or an older version asked.
    """

    parent: str
    args: str
    at: tuple[int, bytes] | None = None

    @classmethod
    def begun(cls, record: Started) -> Origin:
        """Returns the origin of a run that began with this record, or is to begin with it."""
        return cls(str(record.parent or ""), args_digest(record.args), record.origin)

    @classmethod
    def find(cls, backend: Backend, run: str) -> Origin | None:
        """Returns the origin of a run that exists, or was requested; None if there is none."""
        rows = backend.runs(RunQuery(run_id=run))
        if not rows:
            asked = backend.inbox(run, kind="start")
            if asked:
                return cls.begun(order_of(asked[0].value))
            rows = backend.runs(RunQuery(run_id=run))  # it may have begun between the two looks
        return cls.of_row(backend, rows[0]) if rows else None

    @classmethod
    def of_row(cls, backend: Backend, row: RunInfo) -> Origin:
        """Returns the origin of a run that has begun. If its record cannot be read, its row
        decides."""
        known = cls(row.parent, row.args)
        info = backend.agent(row.agent, incarnation_of(row.id))
        if not row.parent or info is None or info.no != row.agent_no:
            return known
        try:
            began = begin_of(LogReader(backend, info).commit(row.started), row.id)
        except (Corrupt, NotFound, UnsupportedFormat):
            return known
        return known if began is None else cls.begun(began)

    def is_of(self, backend: Backend) -> bool:
        """True if its parent is the run of that id which exists here, and not one of another
        store."""
        info = backend.agent(agent_of(self.parent), incarnation_of(self.parent))
        if self.at is None or info is None or info.purged:
            return True
        try:
            commit = LogReader(backend, info).peek(self.at[0])
            return bool(commit.damaged) or commit.id == self.at[1]
        except NotFound:
            return False
        except (Corrupt, UnsupportedFormat):
            return True


def args_of_start(record: Record) -> dict[str, str]:
    """Returns the digests of the arguments of a started run, from the record of its start."""
    given = record.args.items()
    return {name: digest for name, digest in given if name not in _OF_THE_CALL}
