"""The removals of retention from a log, as the log itself records them (I7).

Its branch `@retention` has a commit for each removal, a *word*; the latest standing one lists
everything that was removed until then. It is in the log before anything is removed: a reader, and
whoever continues after a crash, finds there what is gone, and which states were kept.

A word does not stand if a commit came just before it that needs what was to be removed: its writer
has not seen that commit. The log alone decides this, so a follower knows, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from perdure.core.format import chain
from perdure.core.format.records import SetBack, TrimRecord
from perdure.errors import Corrupt
from perdure.model import Commit

OURS = "@"
"""The beginning of branches on which Perdure notes what was removed, copied and trimmed."""

RETENTION = "@retention"
COPIES = "@copies"
"""The branch whose state names the copies of an agent: name, and when it was said."""


POINTS = "@points"
"""The branch of the commits that name others as checkpoints, from beside their branches; the parent
of each is the one that it names."""

REQUESTS = "@requests"
"""The branch that says of runs that they were cancelled before they began, where an executor had
the branch that they were to begin on."""

STORES_OWN = (RETENTION, COPIES, POINTS, REQUESTS)
"""Branches that nobody else writes to: what is on them is read as the store's word."""

MOVES = frozenset({"rollback", "adopt"})
"""The kinds of commits by which a branch goes back, and a thread with all of its
lines."""


def is_moment(branch: str) -> bool:
    """True for a branch of Perdure's own whose commits stand for the moment when they were made;
    one that names a commit stands for that."""
    return branch.startswith(OURS) and branch != POINTS


class Trim(Struct, frozen=True):
    """One word of the log on what is removed.

    Attributes:
        at: seq of the commit with the word.
        seen: seq of the last commit that its writer had read.
        previous: seq of the word before it; 0: there is none.
        before: everything removed was before this seq.
        removed: first and last of each stretch of commits whose payloads are removed, ascending.
        bases: by seq, the hashes of the states that stayed.
        found: True if the word itself cannot be read: this is what the log lacks.
    """

    at: int
    seen: int
    previous: int
    before: int
    removed: tuple[tuple[int, int], ...]
    bases: Mapping[int, str]
    found: bool = False

    def has_removed(self, seq: int) -> bool:
        """True if a commit's payload is removed, or is about to be."""
        place = bisect_right(self.removed, (seq, 1 << 62)) - 1
        return place >= 0 and seq <= self.removed[place][1]

    def seqs(self) -> Iterator[int]:
        """Yields the seqs of all commits whose payloads are removed."""
        for first, last in self.removed:
            yield from range(first, last + 1)

    def keeps_state(self, seq: int) -> bool:
        """True if the state at a commit stays: that of the first commit always does."""
        return seq >= self.before or seq == 1 or seq in self.bases

    def record(self) -> TrimRecord:
        """Returns the record that `trim_of` reads."""
        return TrimRecord(
            seen=self.seen,
            previous=self.previous,
            before=self.before,
            removed=list(self.removed),
            bases=sorted(self.bases.items()),
        )

    def stands(self, between: Iterable[Commit]) -> bool:
        """True if nothing needs what is to be removed. `between`: the commits after `seen` and
        before `at`. A later commit that needs it is refused (`Append.trims`).

        A move or a removal shows a thread's earlier state, of which its parents are only a part.
        """
        return not any(
            commit.branch.startswith(OURS)
            or commit.cause.kind in MOVES
            or not all(map(self.keeps_state, commit.parents))
            or any(isinstance(one, SetBack) or one.again is not None for one in commit.typed)
            for commit in between
        )


def stretches(seqs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Returns ascending seqs as the first and last of each stretch."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return tuple(found)


def trim_of(commit: Commit) -> Trim:
    """Returns the word in a commit on the branch `@retention`.

    Raises:
        Corrupt: it has none.
    """
    for record in commit.typed:
        if isinstance(record, TrimRecord):
            return Trim(
                commit.seq,
                record.seen,
                record.previous,
                record.before,
                tuple(record.removed),
                dict(record.bases),
            )
    raise Corrupt(
        "does not say what was removed",
        target=f"agent {commit.agent!r}, commit {commit.seq}",
        hint=chain.HINT,
    )


def last_standing(
    word: int, commit: Callable[[int], Commit], between: Callable[[int, int], Iterable[Commit]]
) -> Trim | None:
    """Returns the last standing word, searched from the last word on; None if there is none.

    Args:
        word: seq of the last word; 0: there is none.
        commit, between: return one commit of the log, and those of a stretch, by first and last
            seq.

    Raises:
        Corrupt: a commit has no word, or names a later one as its previous word.
    """
    while word:
        trim = trim_of(commit(word))
        if trim.at - trim.seen == 1 or trim.stands(between(trim.seen + 1, trim.at - 1)):
            return trim
        if trim.previous >= word:  # such words would be followed for ever
            raise Corrupt(
                f"names commit {trim.previous} as its previous word",
                target=f"commit {word} of the branch {RETENTION}",
                hint=chain.HINT,
            )
        word = trim.previous
    return None
