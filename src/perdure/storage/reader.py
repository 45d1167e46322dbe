"""The reading side of one agent's log: commits, heads, and states folded from the nearest snapshot.

Everything read is checked before it is used (I11): each payload against its header, each header
against the link to its neighbour, each snapshot against the commit it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from perdure.core import chain, ops, remains
from perdure.core.ops import Op, OpError
from perdure.core.values import Plain, copy
from perdure.errors import Corrupt, NotFound
from perdure.model import AgentInfo, Commit, to_micros
from perdure.storage import snapshots
from perdure.storage.looks import Reads
from perdure.storage.port import Ref, StoredCommit
from perdure.storage.retention import RETENTION, Trim, trim_of
from perdure.storage.snapshots import Leaves

CHUNK_FIRST = 32
CHUNK_MAX = 2048
COMMIT_WEIGHT = 200
"""What replaying a commit costs beside its bytes, in bytes."""

JOURNAL_WEIGHT = 1000
"""The same of one that changes no state: it is only in the way, and runs write thousands."""


def weight(delta: Sequence[Op], size: int) -> int:
    """What a commit of so many bytes adds to the reasons for a snapshot."""
    return size + (COMMIT_WEIGHT if delta else JOURNAL_WEIGHT)


SEQ_END = 1 << 36
FOLDS = 5
"""Times that a state is folded while retention is at work beside that."""


class Folded(Struct):
    """A state as the log says it, and what its next snapshot needs to know.

    Attributes:
        schema_id, schema_version: under which the state was written.
        leaves: the sealed leaves that hold its lists' items.
        weight: bytes of deltas since the nearest snapshot, and what reading them costs beside.
        commits: commits since it.
        snapshot_at: micros of that snapshot's commit; without one, of the first commit.
        snapshot_size: bytes of that snapshot and all of its leaves; 0 without one.
    """

    seq: int
    state: Plain
    schema_id: str
    schema_version: tuple[int, int]
    leaves: Leaves
    weight: int
    commits: int
    snapshot_at: int
    snapshot_size: int


class LogReader:
    """Reads the log of one incarnation of one agent."""

    def __init__(self, backend: Reads, info: AgentInfo) -> None:
        self._backend = backend
        self.name = info.name
        self.no = info.no
        self.incarnation = info.incarnation

    def target(self, seq: int | None = None) -> str:
        return f"agent {self.name!r}" + (f", commit {seq}" if seq is not None else "")

    # -- commits ---------------------------------------------------------------------------

    def commit(self, seq: int) -> Commit:
        """One commit.

        Raises:
            NotFound: the log has no such seq.
        """
        stored = self._backend.read(self.no, seq, seq) if seq > 0 else []
        if not stored:
            self.refuse_purged(seq)
            raise NotFound(
                "there is no such commit", target=self.target(seq),
                hint=f"its log goes from 1 to {self.last_seq()}",
            )  # fmt: skip
        return self._decode(stored[0])

    def refuse_purged(self, seq: int) -> None:
        """Of a commit that is not there: say so if it was purged.

        Raises:
            NotFound: it was.
        """
        info = self._backend.agent(self.name, self.incarnation)
        if info is not None and info.purged and 0 < seq <= info.seq:
            raise NotFound(
                "is gone: the agent was deleted, and its log purged", target=self.target(seq),
                hint=f"only commit {info.seq}, the deletion, is left; what was exported, or copied "
                "to another store, before that is still there",
            )  # fmt: skip

    def trim(self) -> Trim | None:
        """What retention has removed of the log, or is about to: the last word on it that stands.
        None: there is none."""
        seq = self.last_word()
        while seq:
            trim = trim_of(self.commit(seq))
            if trim.at - trim.seen == 1 or trim.stands(self.commits(trim.seen + 1, trim.at - 1)):
                return trim
            seq = trim.previous
        return None

    def last_word(self) -> int:
        """Seq of the last word on what is gone, whether it stands or not; 0: there is none."""
        ref = self._backend.ref(self.no, RETENTION)
        return 0 if ref is None else ref.seq

    def kept(self, seq: int) -> int:
        """As `last_word`, if the state of a commit is not gone by then.

        Raises:
            NotFound: it is.
        """
        last = self.last_word()
        trim = self.trim() if last else None
        if trim is not None and not trim.keeps_state(seq):
            raise self.trimmed(seq, trim)
        return last

    def trimmed(self, seq: int, trim: Trim | None = None) -> NotFound:
        """The error for a commit whose state retention removed."""
        trim = trim or self.trim()
        hint = "a copy of the store, or an export, from before that has it"
        if trim is not None:
            more = ", ".join(map(str, sorted(trim.bases)[-5:]))
            hint = f"there are the states from commit {trim.before} on, and of {more}; {hint}"
        return NotFound(
            "its state was removed by retention", target=self.target(seq), hint=hint
        )  # fmt: skip

    def commits(
        self, first: int = 1, last: int = SEQ_END, *, newest_first: bool = False
    ) -> Iterator[Commit]:
        """Commits of all branches in order, each checked against its neighbour."""
        chunk = CHUNK_FIRST
        before: Commit | None = None
        while first <= last:
            rows = self._backend.read(self.no, first, last, newest_first=newest_first, limit=chunk)
            for row in rows:
                commit = self._decode(row)
                if before is None and not newest_first and commit.seq > first:
                    self.refuse_purged(first)
                self._check_neighbour(before, commit, newest_first=newest_first)
                yield commit
                before = commit
            if len(rows) < chunk:
                if newest_first and before is not None and before.seq > max(first, 1):
                    self.refuse_purged(before.seq - 1)
                return
            if newest_first:
                last = rows[-1].seq - 1
            else:
                first = rows[-1].seq + 1
            chunk = min(chunk * 4, CHUNK_MAX)

    def _check_neighbour(
        self, before: Commit | None, commit: Commit, *, newest_first: bool
    ) -> None:
        if before is None:
            return
        if abs(commit.seq - before.seq) != 1:
            self.refuse_purged(min(commit.seq, before.seq) + 1)
        if newest_first:
            chain.check_link(before, commit)
        else:
            chain.check_link(commit, before)

    def _decode(self, row: StoredCommit) -> Commit:
        return chain.read_commit(self.name, row.seq, row.header, row.payload)

    def last_seq(self) -> int:
        rows = self._backend.read(self.no, 0, SEQ_END, newest_first=True, limit=1)
        return rows[0].seq if rows else 0

    # -- names -----------------------------------------------------------------------------

    def ref(self, name: str) -> Ref:
        """A branch or checkpoint that is not deleted.

        Raises:
            NotFound: naming those that there are.
        """
        ref = self._backend.ref(self.no, name)
        if ref is None or ref.deleted:
            if (info := self._backend.agent(self.name, self.incarnation)) and info.deleted:
                raise NotFound(
                    "was deleted" + (", and its log purged" if info.purged else ""),
                    target=self.target(),
                    hint="a late write cannot bring it back; open the agent anew for another one",
                )  # fmt: skip
            names = [other.name for other in self._backend.refs(self.no) if not other.deleted]
            raise NotFound(
                f"has no branch or checkpoint {name!r}" + (", it was deleted" if ref else ""),
                target=self.target(), hint=f"there are: {', '.join(names) or 'none'}",
            )  # fmt: skip
        return ref

    def at_time(self, branch: str, moment: datetime) -> int:
        """Seq of the branch's head at a moment; before it was forked, of what it was forked from:
        the last commit up to the moment that `history` tells of.

        Raises:
            NotFound: the agent did not exist yet.
            ValueError: the datetime is naive.
        """
        low = self.last_at(moment)
        name, last = branch, low
        while last:
            for commit in self.commits(1, last, newest_first=True):
                if commit.branch == name:
                    return commit.seq
            forked = next((one for one in self.commits(last + 1) if one.branch == name), None)
            if forked is None or not forked.parent:
                break
            name, last = self.commit(forked.parent).branch, min(forked.parent, low)
        raise NotFound(
            f"branch {branch!r} did not exist at {moment.isoformat()}, nor what it was forked from",
            target=self.target(),
        )

    def last_at(self, moment: datetime) -> int:
        """Seq of the last commit, of whatever branch, up to a moment; 0: there was none yet.

        Raises:
            ValueError: the datetime is naive.
        """
        if moment.tzinfo is None:
            raise ValueError(
                f"a naive datetime, {moment!r}, names no moment; give it a time zone, "
                "e.g. datetime(..., tzinfo=UTC)"
            )
        micros = to_micros(moment)
        low, high = 0, self.last_seq()
        while low < high:  # times grow along the log
            middle = (low + high + 1) // 2
            row = self._backend.read(self.no, middle, middle)[0]
            if chain.tail_of(row.header, self.target(middle)).at <= micros:
                low = middle
            else:
                high = middle - 1
        return low

    def history(self, head: int, branch: str) -> Iterator[Commit]:
        """What happened to a branch up to a commit, newest first.

        Its own commits, those rolled back from included, then, from where it was forked, those of
        the branch it came from.
        """
        name, last = branch, head
        while last >= 1:
            origin = 0
            for commit in self.commits(1, last, newest_first=True):
                if commit.branch != name:
                    continue
                yield commit
                if commit.cause.kind in ("fork", "create"):
                    origin = commit.parent
                    break
            if origin == 0:
                return
            name, last = self.commit(origin).branch, origin

    def ancestors(self, seq: int) -> Iterator[Commit]:
        """The commits whose deltas make up the state at a commit, newest first."""
        for commit, _ in self._ancestor_rows(seq):
            yield commit

    def _ancestor_rows(self, seq: int) -> Iterator[tuple[Commit, StoredCommit]]:
        """Follows first parents, reading neighbours in growing chunks."""
        chunk = CHUNK_FIRST
        rows: dict[int, StoredCommit] = {}
        child: Commit | None = None
        while seq > 0:
            row = rows.get(seq)
            if row is None:
                found = self._backend.read(self.no, max(1, seq - chunk + 1), seq, newest_first=True)
                rows = {row.seq: row for row in found}
                chunk = min(chunk * 2, CHUNK_MAX)
                if seq not in rows:
                    self.refuse_purged(seq)
                    raise Corrupt(
                        "is missing from the log", target=self.target(seq), hint=chain.HINT
                    )
                row = rows[seq]
            commit = self._decode(row)
            if child is not None and child.seq == seq + 1:
                chain.check_link(child, commit)
            yield commit, row
            child, seq = commit, commit.parent

    # -- states ----------------------------------------------------------------------------

    def fold(self, seq: int, *, snapshots_too: bool = True, known: Folded | None = None) -> Folded:
        """The state at a commit: the nearest snapshot on its path, and the deltas since (I6).

        Args:
            known: a state that is good, too, to begin with; it is copied.

        Raises:
            NotFound: there is no such commit, or retention removed what its state was made of.
        """
        for _ in range(FOLDS):
            folded = self._fold(seq, snapshots_too, known)
            if folded is not None:
                return folded
            trim = self.trim()
            if trim is None or not trim.keeps_state(seq):
                raise self.trimmed(seq, trim)
        raise Corrupt(
            "what its state is made of is not all there", target=self.target(seq), hint=chain.HINT
        )

    def _fold(self, seq: int, snapshots_too: bool, known: Folded | None) -> Folded | None:
        """As `fold`; None where something on the way is gone: retention may be at work just now,
        and have put a state elsewhere meanwhile."""
        pending: list[Commit] = []
        state: Plain = None
        leaves = Leaves()
        snapshot_at = size = 0
        newest: Commit | None = None
        for commit, row in self._ancestor_rows(seq):
            newest = newest or commit
            if known is not None and commit.seq == known.seq:
                state, snapshot_at = copy(known.state), commit.at_micros
                break
            if row.snapshotted and snapshots_too:
                stored = self._read_snapshot(commit)
                if stored is None:
                    return None
                state, leaves, size = stored
                snapshot_at = commit.at_micros
                break
            if commit.trimmed:
                return None
            if row.payload.startswith(remains.MAGIC):
                state, size = remains.state_of(row.payload, self.target(commit.seq)), commit.size
                snapshot_at = commit.at_micros
                break
            pending.append(commit)
        if newest is None:
            raise NotFound("there is no such commit", target=self.target(seq))
        if not snapshot_at:
            snapshot_at = pending[-1].at_micros
        weighed = 0
        for commit in reversed(pending):
            state = self.apply(state, commit)
            leaves.note(commit.delta)
            weighed += weight(commit.delta, commit.size)
        return Folded(
            seq, state, newest.schema_id, newest.schema_version, leaves, weighed, len(pending),
            snapshot_at, size,
        )  # fmt: skip

    def apply(self, state: Plain, commit: Commit) -> Plain:
        """Fold one commit's delta into a state, in place.

        Raises:
            NotFound: retention removed it. Corrupt: it does not fit.
        """
        if commit.trimmed:
            raise self.trimmed(commit.seq)
        try:
            return ops.fold(state, commit.delta)
        except OpError as error:
            raise Corrupt(str(error), target=self.target(commit.seq), hint=chain.HINT) from error

    def _read_snapshot(self, commit: Commit) -> tuple[Plain, Leaves, int] | None:
        """A snapshot's state, its leaves, and the bytes of all; None: it is gone."""
        stored = self._backend.snapshot(self.no, commit.seq)
        target = f"agent {self.name!r}, snapshot at commit {commit.seq}"
        if stored is None:
            return None
        state, leaves = snapshots.read(stored, target, self.name, self.incarnation, commit.parent)
        return state, leaves, len(stored.manifest) + sum(map(len, stored.leaves.values()))

    def snapshot_seqs(self) -> list[int]:
        """Where snapshots are stored."""
        seqs: list[int] = []
        first = 1
        while rows := self._backend.read(self.no, first, SEQ_END, limit=CHUNK_MAX):
            seqs += [row.seq for row in rows if row.snapshotted]
            first = rows[-1].seq + 1
        return seqs
