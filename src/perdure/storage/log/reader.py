"""The reading side of one agent's log: commits, heads, and states folded from the nearest snapshot.

Everything read is checked before it is used (I11): each payload against its header, each header
against the link to its neighbour, each snapshot against the commit it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from perdure.core.format import chain, remains
from perdure.core.values import ops
from perdure.core.values.ops import Op, OpError
from perdure.core.values.plain_values import Plain, copy
from perdure.errors import Corrupt, NotFound, PerdureError
from perdure.model import Commit, to_micros
from perdure.storage.appending import Ref
from perdure.storage.log import snapshots
from perdure.storage.log.chunk_size import ChunkSize
from perdure.storage.log.commits import SEQ_END as SEQ_END
from perdure.storage.log.commits import UNREADABLE
from perdure.storage.log.retention_reader import RetentionReader
from perdure.storage.log.snapshots import Leaves
from perdure.storage.log.way_back import with_way_back
from perdure.storage.port import StoredCommit
from perdure.storage.retention import Trim
from perdure.system import logs

_log = logs.logger("perdure.log")

REPLAY_COST = (1000, 200)
"""The cost of replaying a commit beside its bytes, in bytes: of one that changes no state (runs
write thousands), and of one that does."""

CHUNK_NEAR = 16
"""The number of commits read at first if a known state is near."""

FOLDS = 5
"""Times that a state is folded while retention is at work beside that."""


class Folded(Struct):
    """A state according to the log, with the data for its next snapshot.

    Attributes:
        id: of the commit `seq`.
        schema_id, schema_version: the schema under which the state was written.
        leaves: the sealed leaves that hold its lists' items.
        weight: bytes of deltas since the nearest snapshot, plus the cost of reading them.
        commits: commits since it.
        snapshot_at: micros of that snapshot's commit; without one, of the first commit.
        snapshot_size: bytes of that snapshot and all of its leaves; 0 without one.
    """

    seq: int
    id: bytes
    state: Plain
    schema_id: str
    schema_version: tuple[int, int]
    leaves: Leaves
    weight: int
    commits: int
    snapshot_at: int
    snapshot_size: int


class LogReader(RetentionReader):
    """Reads the log of one incarnation of one agent."""

    # -- what is gone ----------------------------------------------------------------------

    def kept(self, seq: int) -> int:
        """Returns `last_word`, if the state of a commit is not gone by then.

        Raises:
            NotFound: it is gone.
        """
        last = self.last_word()
        trim = self.trim() if last else None
        if trim is not None and not (trim.keeps_state(seq) or self._stays_by(seq, trim)):
            raise self.trimmed(seq, trim)
        if last and (trim is None or trim.at != last) and self._is_gone(seq):
            raise self.trimmed(seq, trim)  # by a word that cannot be read
        return last

    def _stays_by(self, seq: int, trim: Trim) -> bool:
        """True if nothing that a state is made of was removed, even though the state is not said to
        stay: as before a commit that cannot be read."""
        for commit, row in self._ancestor_rows(seq, "all"):
            if commit.trimmed or trim.has_removed(commit.seq):
                return False
            if row.payload.startswith(remains.MAGIC):
                return True
        return True

    def _is_gone(self, seq: int) -> bool:
        try:
            return self._fold(seq, True, None) is None
        except UNREADABLE:
            return False

    # -- names -----------------------------------------------------------------------------

    def ref(self, name: str) -> Ref:
        """Returns a branch or checkpoint that is not deleted.

        Raises:
            NotFound: there is none; the error names those that exist.
        """
        ref = self._backend.ref(self.no, name)
        if ref is None or ref.deleted:
            if (info := self._backend.agent(self.name, self.incarnation)) and info.deleted:
                raise NotFound(
                    "was deleted" + (", and its log purged" if info.purged else ""),
                    target=self.target(),
                    hint="a late write cannot bring it back; open the agent again for the new one",
                )
            names = [other.name for other in self._backend.refs(self.no) if not other.deleted]
            raise NotFound(
                f"has no branch or checkpoint {name!r}" + (": it was deleted" if ref else ""),
                target=self.target(),
                hint=f"there are: {', '.join(names) or 'none'}",
            )
        return ref

    def is_taken(self, name: str) -> bool:
        """Returns True if a branch or checkpoint has, or had, this name."""
        return self._backend.ref(self.no, name) is not None

    def last_of(self, branch: str) -> int:
        """Returns the seq of a branch's head; for a deleted one, its last.

        Raises:
            NotFound: there never was one.
        """
        ref = self._backend.ref(self.no, branch)
        return ref.seq if ref is not None else self.ref(branch).seq

    def at_time(self, branch: str, moment: datetime) -> int:
        """Returns the seq of the branch's head at a moment; before it was forked, that of its
        origin: the last commit up to the moment that `history` yields.

        Raises:
            NotFound: the agent did not exist yet, or its log was purged.
            ValueError: the datetime is naive.
        """
        low, name = self.last_at(moment), branch
        until = _Firsts(self.commits(1, low, newest_first=True, damaged_too=True))
        since = _Firsts(self.commits(low + 1, damaged_too=True))
        while low:
            if (last := until.of(name)) is not None:
                return last.seq
            forked = since.of(name)
            if forked is None or not forked.parent:
                break
            if forked.parent <= low:
                return forked.parent
            name = self.peek(forked.parent).branch
        raise NotFound(
            f"branch {branch!r} did not exist at {moment.isoformat()}, nor did the branch that it "
            "was forked from",
            target=self.target(),
        )

    def last_at(self, moment: datetime) -> int:
        """Returns the seq of the last commit, of any branch, up to a moment; 0 if there was none
        yet.

        Raises:
            NotFound: the log was purged. ValueError: the datetime is naive.
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
            known = middle
            while not (at := self._at(known)) and known > low + 1:
                known -= 1  # of one whose header cannot be read: it was later than this
            if at <= micros:
                low = middle
            else:
                high = known - 1
        return low

    def _at(self, seq: int) -> int:
        """Returns the time of a commit in microseconds; 0 if its header cannot be read, or is
        missing.

        Raises:
            NotFound: it was purged.
        """
        rows = self._backend.read(self.no, seq, seq)
        if not rows:
            self.refuse_purged(seq)
            return 0
        try:
            return chain.tail_of(rows[0].header, self.target(seq)).at
        except UNREADABLE:
            return self.peek(seq).at_micros

    def history(self, head: int, branch: str, *, damaged_too: bool = False) -> Iterator[Commit]:
        """Yields the commits of a branch up to one, newest first.

        Its own commits, those rolled back from included, then, from where it was forked, those of
        the branch it came from.

        Args:
            damaged_too: as `told`; a commit whose branch cannot be read counts for every branch.
        """
        name, last = branch, head
        while last >= 1:
            origin = 0
            for commit in self.told(1, last, newest_first=True, damaged_too=damaged_too):
                if commit.branch != name and (commit.branch or not commit.damaged):
                    continue
                yield commit
                if commit.cause.kind in ("fork", "create"):
                    origin = commit.parent
                    break
            if origin == 0:
                return
            name, last = self.peek(origin).branch, origin

    # -- states ----------------------------------------------------------------------------

    def fold(self, seq: int, *, snapshots_too: bool = True, known: Folded | None = None) -> Folded:
        """Returns the state at a commit: the nearest snapshot on its path, and the deltas since
        (I6).

        Args:
            known: another state that may serve as the start; it is copied.

        Raises:
            NotFound: there is no such commit, or retention removed what its state was made of.
            Corrupt: a commit on its path cannot be read, or does not fit; the error names the way
                back.
            UnsupportedFormat: only a newer version can read it; likewise.
        """
        for _ in range(FOLDS):
            try:
                folded = self._fold(seq, snapshots_too, known)
            except UNREADABLE as error:
                if isinstance(error, Corrupt) and seq > self.last_seq():
                    raise self.absent(seq) from error
                if not error.seq:
                    raise
                raise with_way_back(self, error, error.seq, self._branch(seq)) from error
            if folded is not None:
                return folded
            trim = self.trim()
            if trim is None or not trim.keeps_state(seq):
                raise self.trimmed(seq, trim)
        raise Corrupt(
            "parts of what its state is made of are missing",
            target=self.target(seq),
            hint=chain.HINT,
        )

    def fold_if_there(self, seq: int, known: Folded | None) -> Folded | None:
        """Folds a state by the log alone; returns None if something that it is made of is gone or
        damaged."""
        try:
            return self._fold(seq, False, known)
        except UNREADABLE:
            return None

    def _branch(self, seq: int) -> str:
        try:
            return self.peek(seq).branch
        except (NotFound, Corrupt):
            return ""

    def can_fold(self, seq: int) -> int:
        """Returns 0 if the state at a commit can be folded; else the seq of the commit in the
        way."""
        try:
            return 0 if self._fold(seq, True, None) is not None else seq
        except UNREADABLE as error:
            return error.seq or seq

    def is_behind(self, seq: int, weights: float, commits: float) -> bool:
        """True if there is that much weight, or that many commits, between a commit and the nearest
        whole state on its path. Reads no further."""
        weighed = count = 0
        for commit, row in self._ancestor_rows(seq, "all", CHUNK_NEAR):
            if row.snapshotted or row.payload.startswith(remains.MAGIC):
                return False
            weighed, count = weighed + commit.size + REPLAY_COST[bool(commit.delta)], count + 1
            if weighed >= weights or count >= commits:
                return True
        return False

    def _fold(self, seq: int, snapshots_too: bool, known: Folded | None) -> Folded | None:
        """Folds like `fold`; returns None if something on the way is gone: retention may be at
        work, and may have moved the state in the meantime."""
        pending: list[Commit] = []
        state: Plain = None
        leaves = Leaves()
        snapshot_at, size = None, 0
        newest: Commit | None = None
        broken: PerdureError | None = None
        chunk = None if known is None else CHUNK_NEAR
        for commit, row in self._ancestor_rows(seq, "foldable", chunk):
            newest = newest or commit
            if known is not None and commit.id == known.id:
                state, snapshot_at = copy(known.state), commit.at_micros
                break
            if row.snapshotted and snapshots_too:
                try:
                    stored = self._read_snapshot(commit)
                except UNREADABLE as error:
                    # a snapshot is a cache: the commits that it was made of are before it
                    _log.warning("%s: %s: passed over; %s", error.target, error.problem, error.hint)
                    broken = error
                else:
                    if stored is None:
                        return None
                    state, leaves, size = stored
                    snapshot_at = commit.at_micros
                    break
            if commit.trimmed:
                if broken is not None:  # and nothing is left of that
                    raise broken
                return None
            if row.payload.startswith(remains.MAGIC):
                state, size = self._kept_state(row), commit.size
                snapshot_at = commit.at_micros
                break
            pending.append(commit)
        if newest is None:
            raise self.absent(seq)
        if snapshot_at is None:
            snapshot_at = pending[-1].at_micros
        weighed = 0
        for commit in reversed(pending):
            state = self.spend(state, commit)
            leaves.note(commit.delta)
            weighed += commit.size + REPLAY_COST[bool(commit.delta)]
        return Folded(
            seq,
            newest.id,
            state,
            newest.schema_id,
            newest.schema_version,
            leaves,
            weighed,
            len(pending),
            snapshot_at,
            size,
        )

    def fold_read(self, commits: Sequence[Commit]) -> Folded | None:
        """Folds commits that were read here, and checked, before: all that lead to the last of
        them, from the first of the log on. Returns None if a snapshot is among them to start from.
        """
        if not self._snapshotted.isdisjoint(commit.seq for commit in commits):
            return None
        state: Plain = None
        leaves, weighed = Leaves(), 0
        for commit in commits:
            state = self.apply(state, commit)
            leaves.note(commit.delta)
            weighed += commit.size + REPLAY_COST[bool(commit.delta)]
        first, last = commits[0], commits[-1]
        place, schema = (last.seq, last.id), (last.schema_id, last.schema_version)
        return Folded(*place, state, *schema, leaves, weighed, len(commits), first.at_micros, 0)

    def origins(self, last: int) -> dict[int, int]:
        """Returns, for each commit up to one and by its header alone, the commit that its state
        builds on; 0 where the state is stored whole, is gone, builds on none, or cannot be read."""
        found: dict[int, int] = {}
        first, chunk = 1, ChunkSize()
        while rows := self._backend.read(self.no, first, last, limit=chunk.now):
            chunk.read(rows)
            for row in rows:
                found[row.seq] = self._origin(row)
            first = rows[-1].seq + 1
        return found

    def _origin(self, row: StoredCommit) -> int:
        if row.payload.startswith(remains.MAGIC):
            return 0
        try:
            parents = chain.parents_of(row.header, self.target(row.seq))
        except UNREADABLE:
            return 0
        return parents[0] if parents and parents[0] < row.seq else 0

    def _kept_state(self, row: StoredCommit) -> Plain:
        try:
            return remains.state_of(row.payload, self.target(row.seq))
        except Corrupt as error:
            error.seq = row.seq
            raise

    def apply(self, state: Plain, commit: Commit) -> Plain:
        """Folds one commit's delta into a state, in place; returns it. Its values are copied.

        Raises:
            NotFound: retention removed it. Corrupt: it does not fit.
        """
        return self._go_over(state, map(ops.own, commit.delta), commit)

    def spend(self, state: Plain, commit: Commit) -> Plain:
        """The same for a commit that nobody else has, and that goes into no other state: its values
        become part of this one, and change with it."""
        return self._go_over(state, commit.delta, commit)

    def _go_over(self, state: Plain, delta: Iterable[Op], commit: Commit) -> Plain:
        if commit.trimmed:
            raise self.trimmed(commit.seq)
        try:
            return ops.fold(state, delta)
        except OpError as error:
            seq = commit.seq
            raise Corrupt(str(error), target=self.target(seq), hint=chain.HINT, seq=seq) from error

    def _read_snapshot(self, commit: Commit) -> tuple[Plain, Leaves, int] | None:
        """Returns a snapshot's state, its leaves, and its size in bytes; None if it is gone."""
        stored = self._backend.snapshot(self.no, commit.seq)
        target = f"agent {self.name!r}, snapshot at commit {commit.seq}"
        if stored is None:
            return None
        state, leaves = snapshots.read(stored, target, self.name, self.incarnation, commit.parent)
        return state, leaves, len(stored.manifest) + sum(map(len, stored.leaves.values()))

    def snapshot_seqs(self) -> list[int]:
        """Returns the seqs at which snapshots are stored."""
        seqs: list[int] = []
        first, chunk = 1, ChunkSize()
        while rows := self._backend.read(self.no, first, SEQ_END, limit=chunk.now):
            chunk.read(rows)
            seqs += [row.seq for row in rows if row.snapshotted]
            first = rows[-1].seq + 1
        return seqs


class _Firsts:
    """The first commit of each branch among some, which are read only as far as needed."""

    def __init__(self, commits: Iterator[Commit]) -> None:
        self._commits = commits
        self._found: dict[str, Commit] = {}

    def of(self, branch: str) -> Commit | None:
        while branch not in self._found and (commit := next(self._commits, None)) is not None:
            self._found.setdefault(commit.branch, commit)
        return self._found.get(branch)
