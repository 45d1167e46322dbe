"""The end of one long list of a state, read without the items before it.

To show the last ten of thousands of messages, a program would otherwise read, prove and decode all
of them.
"""

from __future__ import annotations

from typing import NamedTuple

from perdure.core.format import remains
from perdure.core.values.ops import Append
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt
from perdure.model import AgentInfo, Commit
from perdure.storage.log import snapshots
from perdure.storage.log.chunk_size import CHUNK_FIRST
from perdure.storage.log.reader import LogReader
from perdure.storage.log.snapshots import ABSENT
from perdure.storage.shortcuts import SNAPSHOT_PARTS

CHUNK_LEAST = 4


class End(NamedTuple):
    """The last items of a list, or all if there are fewer, and the schema of their state."""

    items: list[Plain]
    schema_id: str
    schema_version: tuple[int, int]


class EndReader(LogReader):
    """Reads the last `count` items of the list at one key of the state. Everything that it reads is
    checked as usual (I11)."""

    def __init__(self, log: LogReader, key: str, count: int) -> None:
        super().__init__(log._backend, AgentInfo(log.name, log.no, log.incarnation, False, 0))
        self._key, self._count = key, count
        self.chunk_first = min(max(count, CHUNK_LEAST), CHUNK_FIRST)  # mostly each appends some

    def end(self, branch: str) -> End | None:
        """Returns the end of the list on a branch now. None if only a `fold` can tell, or say why
        not."""
        ref = self._backend.ref(self.no, branch)
        if ref is None or ref.deleted or ref.kind != "branch":
            return None
        try:
            return self._end(ref.seq)
        except (Corrupt, LookupError, TypeError):  # an op goes into what was not read, or worse
            return None

    def _end(self, seq: int) -> End | None:
        """Reads back from the newest commit until enough was appended, or there is a state."""
        pending: list[Commit] = []
        appended: list[Plain] = []
        only_appended = True
        state: Plain = None
        for commit, row in self._ancestor_rows(seq, "refused"):
            if row.snapshotted:
                state = self._snapshot(commit)
                break
            if row.payload.startswith(remains.MAGIC):
                state = self._kept_state(row)
                break
            if commit.trimmed:
                return None
            pending.append(commit)
            only_appended = only_appended and self._go_back(commit, appended)
            if only_appended and len(appended) >= self._count:
                return self._found(appended, pending[0])
        newest = pending[0] if pending else commit
        for commit in reversed(pending):
            state = self.spend(state, commit)
        return self._found(state[self._key], newest)

    def _go_back(self, commit: Commit, appended: list[Plain]) -> bool:
        """Puts the items that a commit appended in front; returns False if it did something else to
        the list."""
        for op in reversed(commit.delta):
            if op.path and op.path[0] != self._key:
                continue
            if type(op) is not Append or op.path != (self._key,):
                return False
            appended[0:0] = op.values
        return True

    def _found(self, items: list[Plain], newest: Commit) -> End | None:
        found = items[max(0, len(items) - self._count) :]
        if type(found) is not list or any(item is ABSENT for item in found):
            return None
        return End(found, newest.schema_id, newest.schema_version)

    def _snapshot(self, commit: Commit) -> Plain:
        """Returns the state of a snapshot, without most of its items if the backend allows that."""
        target = f"agent {self.name!r}, snapshot at commit {commit.seq}"
        parts = SNAPSHOT_PARTS.of(self._backend)
        if parts is None:
            whole = self._read_snapshot(commit)
            return None if whole is None else whole[0]
        return snapshots.read_end(
            parts.manifest(self.no, commit.seq),
            parts.leaf,
            self._key,
            self._count,
            target,
            self.name,
            self.incarnation,
            commit.parent,
        )
