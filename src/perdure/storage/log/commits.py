"""The commits of one agent's log, each checked before it is used (I11): its payload against its
header, its header against the link to its neighbour.

The error for an unreadable commit names the way back; callers that do not rely on its content get
its readable parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from perdure.core.format import chain
from perdure.core.format.salvage import salvage
from perdure.errors import Corrupt, NotFound, PerdureError, UnsupportedFormat
from perdure.model import MAIN, MICROS_MAX, AgentInfo, Commit
from perdure.storage.capabilities import RunQuery
from perdure.storage.log.chunk_size import CHUNK_FIRST, ChunkSize
from perdure.storage.log.way_back import with_way_back
from perdure.storage.looks import Reads
from perdure.storage.port import StoredCommit

SEQ_END = 1 << 36

UNREADABLE = (Corrupt, UnsupportedFormat)
Salvaged = tuple[type[PerdureError], ...]
"""The errors that are no reason to raise: what can be had of such a commit is given."""

Damaged = Literal["refused", "foldable", "all"]
"""Which damaged commits are given: none; those of which all is there that a state is made of."""


def check_follows(commit: Commit, before: Commit | None) -> None:
    """Checks that a commit follows another like `chain.check_link`; a damaged one as far as its
    header can be read.

    Raises:
        Corrupt: it does not follow.
    """
    if commit.damaged:
        if not commit.prev:
            return  # the one behind it links to its bytes, whatever they are
        if not commit.at_micros:
            commit = replace(commit, at_micros=MICROS_MAX)
    chain.check_link(commit, before)


def _check_pair(older: Commit, newer: Commit) -> None:
    try:
        if newer.damaged:
            check_follows(newer, older)
        else:
            chain.check_link(newer, older)
    except Corrupt as error:  # which of the two it is, another one behind them would say
        error.seq = older.seq
        raise


class CommitReader:
    """Reads the commits of one incarnation of one agent.

    Attributes:
        chunk_first: the number of commits that a walk back reads at first.
    """

    chunk_first = CHUNK_FIRST

    def __init__(self, backend: Reads, info: AgentInfo) -> None:
        self._backend = backend
        self.name = info.name
        self.no = info.no
        self.incarnation = info.incarnation
        self._snapshotted: set[int] = set()
        """Of the commits that were read, those at which there is a snapshot."""

    def target(self, seq: int | None = None) -> str:
        return f"agent {self.name!r}" + (f", commit {seq}" if seq is not None else "")

    def waited_on(self, branch: str) -> bool:
        """Returns True if a branch has an unfinished run; see `way_back`."""
        rows = self._backend.runs(RunQuery(agent=self.name, unfinished=True))
        return any((row.agent_no, row.branch) == (self.no, branch or MAIN) for row in rows)

    # -- commits ---------------------------------------------------------------------------

    def commit(self, seq: int) -> Commit:
        """Returns one commit.

        Raises:
            NotFound: the log has no such seq. Corrupt: it cannot be read; the error names the way
                back.
        """
        try:
            return self._decode(self._row(seq))
        except UNREADABLE as error:
            raise with_way_back(self, error, seq) from error

    def peek(self, seq: int) -> Commit:
        """Returns one commit, or its readable parts if it is damaged: at least the branch and the
        schema, if need be those of an earlier commit.

        Raises:
            NotFound: the log has no such seq.
        """
        commit = self._salvaged(self._row(seq))
        before = seq
        while commit.damaged and not (commit.schema_id and commit.branch) and before > 1:
            before -= 1
            other = self._salvaged(self._row(before))
            if other.schema_id and other.branch:
                commit = replace(
                    commit,
                    branch=commit.branch or other.branch,
                    schema_id=other.schema_id,
                    schema_version=other.schema_version,
                )
        return commit

    def _row(self, seq: int) -> StoredCommit:
        stored = self._backend.read(self.no, seq, seq) if seq > 0 else []
        if not stored:
            raise self.absent(seq)
        return stored[0]

    def absent(self, seq: int) -> NotFound:
        """Returns the error for a commit that is not there.

        Raises:
            Corrupt: a branch or checkpoint says that it was there.
        """
        self.refuse_purged(seq)
        named = max((ref.seq for ref in self._backend.refs(self.no)), default=0)
        last = self.last_seq()  # behind it, and so not before it
        if 0 < seq <= named and (last < named or not self._backend.read(self.no, seq, seq)):
            raise Corrupt(
                f"is not there, but a branch or checkpoint is at commit {named}",
                target=self.target(seq),
                hint=chain.HINT,
                seq=seq,
            )
        return NotFound(
            "there is no such commit",
            target=self.target(seq),
            hint=f"its log goes from 1 to {last}",
        )

    def refuse_purged(self, seq: int) -> None:
        """Checks that a missing commit was not purged.

        Raises:
            NotFound: it was purged.
        """
        info = self._backend.agent(self.name, self.incarnation)
        if info is not None and info.purged and 0 < seq <= info.seq:
            raise NotFound(
                "is gone: the agent was deleted, and its log purged",
                target=self.target(seq),
                hint=f"only commit {info.seq}, the deletion, is left; what was exported, or copied "
                "to another store, before that is still there",
            )

    def commits(
        self,
        first: int = 1,
        last: int = SEQ_END,
        *,
        newest_first: bool = False,
        damaged_too: bool = False,
        newer_too: bool = True,
    ) -> Iterator[Commit]:
        """Yields commits of all branches in order, each checked against its neighbour.

        Args:
            damaged_too: also yields the readable parts of damaged commits, marked by
                `Commit.damaged`; nothing is compared then. For callers that do not rely on their
                content.
            newer_too: with `damaged_too`, also those that only a newer version can read. False for
                callers that would report them as damaged.

        Raises:
            Corrupt: at the first that cannot be read, or does not follow; the error names the way
                back.
            UnsupportedFormat: at the first that only a newer version can read.
        """
        salvaged: Salvaged = () if not damaged_too else (Corrupt,)
        if damaged_too and newer_too:
            salvaged = UNREADABLE
        walk = self._commits(first, last, newest_first, salvaged)
        while True:
            try:
                commit = next(walk, None)
            except UNREADABLE as error:
                if not error.seq:
                    raise
                raise with_way_back(self, error, error.seq) from error
            if commit is None:
                return
            yield commit

    def told(
        self,
        first: int = 1,
        last: int = SEQ_END,
        *,
        newest_first: bool = False,
        damaged_too: bool = False,
    ) -> Iterator[Commit]:
        """Yields commits like `commits`; with `damaged_too` also, for each gap, one commit that
        stands for all that are missing there, at the last of them. For display only: nothing is
        known of them."""
        if not damaged_too:
            yield from self.commits(first, last, newest_first=newest_first)
            return
        step = -1 if newest_first else 1
        due = first if not newest_first else last if last < SEQ_END else 0
        for commit in self.commits(first, last, newest_first=newest_first, damaged_too=True):
            if due and commit.seq != due:
                yield self._missing(due, commit.seq - step)
            yield commit
            due = commit.seq + step
        if due and (due >= first if newest_first else due <= last < SEQ_END):
            yield self._missing(due, first if newest_first else last)

    def _missing(self, one: int, other: int) -> Commit:
        first, last = sorted((one, other))
        self.refuse_purged(last)
        many = f"commits {first}–{last} are" if first < last else "it is"
        return salvage(self.name, self.incarnation, last, b"", b"", f"{many} missing from the log")

    def _commits(
        self, first: int, last: int, newest_first: bool, salvaged: Salvaged
    ) -> Iterator[Commit]:
        chunk = ChunkSize()
        before: Commit | None = None
        while first <= last:
            asked = chunk.now
            rows = self._backend.read(self.no, first, last, newest_first=newest_first, limit=asked)
            chunk.read(rows)
            for row in rows:
                commit = self._salvaged(row, salvaged)
                if before is None and not newest_first and commit.seq > first:
                    self._check_none(first, bool(salvaged))
                if not salvaged:
                    self._check_neighbour(before, commit, newest_first=newest_first)
                yield commit
                before = commit
            if len(rows) < asked:
                if newest_first:
                    self._check_reached(before, first, last, bool(salvaged))
                elif (end := before.seq if before is not None else first - 1) < last:
                    self._check_none(end + 1, bool(salvaged))
                return
            if newest_first:
                last = rows[-1].seq - 1
            else:
                first = rows[-1].seq + 1

    def _check_reached(self, before: Commit | None, first: int, last: int, salvaged: bool) -> None:
        """Checks that a walk back ended where the log begins: a missing commit may be damage."""
        missing = before.seq - 1 if before is not None else last
        if not max(first, 1) <= missing < SEQ_END:
            return
        self.refuse_purged(missing)
        if not salvaged and (before is not None or missing <= self.last_seq()):
            raise Corrupt(
                "is missing from the log", target=self.target(missing), hint=chain.HINT, seq=missing
            )
        if not salvaged:
            self.absent(missing)  # raises where a branch says that it was there

    def _check_none(self, seq: int, salvaged: bool) -> None:
        """Checks that no branch or checkpoint names a commit that was not found."""
        self.refuse_purged(seq)
        if not salvaged:
            self.absent(seq)

    def _check_neighbour(
        self, before: Commit | None, commit: Commit, *, newest_first: bool
    ) -> None:
        if before is None:
            return
        if abs(commit.seq - before.seq) != 1:
            self.refuse_purged(min(commit.seq, before.seq) + 1)
        if newest_first:
            _check_pair(commit, before)
        else:
            _check_pair(before, commit)

    def _decode(self, row: StoredCommit) -> Commit:
        if row.snapshotted:
            self._snapshotted.add(row.seq)
        try:
            return chain.read_commit(self.name, row.seq, row.header, row.payload)
        except UNREADABLE as error:
            raise self._judged(error, row) from error.__cause__

    def _judged(self, error: Corrupt | UnsupportedFormat, row: StoredCommit) -> PerdureError:
        """Returns the error with its commit. What looks like a newer version's commit is damaged if
        the one behind it follows another header: a hash needs no decoding."""
        error.seq = row.seq
        if not isinstance(error, UnsupportedFormat):
            return error
        try:
            behind = self._backend.read(self.no, row.seq + 1, row.seq + 1)
            if not behind or chain.follows(behind[0].header, row.header):
                return error
        except UNREADABLE:
            return error
        return Corrupt(
            f"{error.problem}, and the next commit follows another one",
            target=error.target,
            hint=chain.HINT,
            seq=row.seq,
        )

    def check(self, row: StoredCommit, before: Commit | None) -> Commit:
        """Returns a stored commit, checked to follow another one.

        Raises:
            Corrupt: it does not, or cannot be read; the error names the way back.
        """
        try:
            commit = self._decode(row)
            if before is None:
                check_follows(commit, None)
            else:
                self._check_neighbour(before, commit, newest_first=False)
        except UNREADABLE as error:
            raise with_way_back(self, error, error.seq or row.seq) from error
        return commit

    def _salvaged(self, row: StoredCommit, errors: Salvaged = UNREADABLE) -> Commit:
        """Returns the commit; or its readable parts if it raises one of these errors."""
        try:
            return self._decode(row)
        except errors as error:
            commit = salvage(
                self.name, self.incarnation, row.seq, row.header, row.payload, error.problem
            )
            if isinstance(error, UnsupportedFormat):  # what it all means, only that version knows
                commit = replace(commit, newer=True, foldable=False)
            return commit

    def last_seq(self) -> int:
        rows = self._backend.read(self.no, 0, SEQ_END, newest_first=True, limit=1)
        return rows[0].seq if rows else 0

    def ancestors(
        self, seq: int, *, damaged: Damaged = "refused", chunk: int | None = None
    ) -> Iterator[Commit]:
        """Yields the commits whose deltas make up the state at a commit, newest first.

        Args:
            damaged: which damaged commits are yielded, too. Nothing is yielded behind one whose
                parent cannot be read.
            chunk: the number of commits read at first; by default `chunk_first`.

        Raises:
            Corrupt: at the first that is refused; the error names the way back.
        """
        try:
            for commit, _ in self._ancestor_rows(seq, damaged, chunk):
                yield commit
        except UNREADABLE as error:
            if not error.seq:
                raise
            raise with_way_back(self, error, error.seq) from error

    def _ancestor_rows(
        self, seq: int, damaged: Damaged, chunk: int | None = None
    ) -> Iterator[tuple[Commit, StoredCommit]]:
        """Follows first parents, reading neighbours in growing chunks."""
        size = ChunkSize(chunk or self.chunk_first, grows=2)
        rows: dict[int, StoredCommit] = {}
        child: Commit | None = None
        while seq > 0:
            row = rows.get(seq)
            if row is None:
                near = self._chunk(seq, size.now)
                size.read(near)
                rows = {row.seq: row for row in near}
                if seq not in rows:
                    self.refuse_purged(seq)
                    raise Corrupt(
                        "is missing from the log", target=self.target(seq), hint=chain.HINT, seq=seq
                    )
                row = rows[seq]
            try:
                commit = chain.read_commit(self.name, seq, row.header, row.payload)
            except UNREADABLE as error:
                commit = self._salvaged(row)
                if damaged == "refused" or (damaged == "foldable" and not commit.foldable):
                    raise self._judged(error, row) from error.__cause__
            if child is not None and child.seq == seq + 1 and damaged != "all":
                _check_pair(commit, child)
            yield commit, row
            child, seq = commit, commit.parents[0] if commit.parents else 0

    def _chunk(self, seq: int, size: int) -> list[StoredCommit]:
        """Returns a commit and some before it; only that one if the bytes of the others cannot be
        read."""
        try:
            return self._backend.read(self.no, max(1, seq - size + 1), seq, newest_first=True)
        except Corrupt:
            return self._backend.read(self.no, seq, seq)

    def can_fold(self, seq: int) -> int:
        """Returns 0 if the state at a commit can be folded; else the seq of the commit in the
        way."""
        raise NotImplementedError
