"""What retention removed of a log, as the log itself says it (I7).

Its branch `@retention` has a commit for each time, a *word*; the latest that stands tells of all
that was removed until then. It is in the log before anything is removed: a reader, and whoever is
to go on after a crash, finds there what is gone, and which states were kept.

A word does not stand if something came just before it that needs what was to go: whoever makes it
has not seen that. The log alone tells, so a follower knows, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from perdure.core.format import chain
from perdure.core.format.records import SetBack, Trimmed
from perdure.errors import Corrupt
from perdure.model import Commit

OURS = "@"
"""How branches begin on which Perdure notes what was removed, copied and trimmed."""

RETENTION = "@retention"
TRIMMED = "trimmed"
COPIES = "@copies"
"""The branch whose state names the copies of an agent: name, and when it was said."""


STORES_OWN = (RETENTION, COPIES)
"""Branches that nobody else writes to: what is on them is read as the store's word."""

MOVES = frozenset({"rollback", "adopt"})
"""What commits are by which a branch goes back, and a thread of LangGraph with all of its lines."""


class Trim(Struct, frozen=True):
    """One word of the log on what is gone.

    Attributes:
        at: seq of the commit that says it.
        seen: seq of the last commit that whoever says it had looked at.
        previous: seq of the word before it; 0: there is none.
        before: what is gone was before this seq.
        removed: first and last of each stretch of commits whose payloads are removed, ascending.
        bases: by seq, the hashes of the states that stayed.
    """

    at: int
    seen: int
    previous: int
    before: int
    removed: tuple[tuple[int, int], ...]
    bases: Mapping[int, str]

    def has_removed(self, seq: int) -> bool:
        """Whether a commit's payload is removed, or is about to be."""
        place = bisect_right(self.removed, (seq, 1 << 62)) - 1
        return place >= 0 and seq <= self.removed[place][1]

    def seqs(self) -> Iterator[int]:
        """Of all commits whose payloads are removed."""
        for first, last in self.removed:
            yield from range(first, last + 1)

    def keeps_state(self, seq: int) -> bool:
        """Whether the state at a commit stays: the first one's always does."""
        return seq >= self.before or seq == 1 or seq in self.bases

    def record(self) -> Trimmed:
        """As `trim_of` reads it."""
        return Trimmed(
            seen=self.seen,
            previous=self.previous,
            before=self.before,
            removed=list(self.removed),
            bases=sorted(self.bases.items()),
        )

    def stands(self, between: Iterable[Commit]) -> bool:
        """Whether nothing needs what is to go. `between`: the commits behind `seen` and before
        `at`. What comes later is refused where it does (`Append.trims`).

        A move or a removal shows what a thread was, of which its parents are only a part.
        """
        return not any(
            commit.branch.startswith(OURS)
            or commit.cause.kind in MOVES
            or not all(map(self.keeps_state, commit.parents))
            or any(isinstance(one, SetBack) or one.again is not None for one in commit.typed)
            for commit in between
        )


def stretches(seqs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending seqs as first and last of each stretch."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return tuple(found)


def trim_of(commit: Commit) -> Trim:
    """What a commit on the branch `@retention` says.

    Raises:
        Corrupt: it says nothing of that.
    """
    for record in commit.typed:
        if isinstance(record, Trimmed):
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
    """What the last word that stands says, from the last word on; None: there is none.

    Args:
        word: seq of the last word; 0: there is none.
        commit, between: one commit of the log, and those of a stretch, by first and last seq.

    Raises:
        Corrupt: a word says nothing, or names a later one as the one before it.
    """
    while word:
        trim = trim_of(commit(word))
        if trim.at - trim.seen == 1 or trim.stands(between(trim.seen + 1, trim.at - 1)):
            return trim
        if trim.previous >= word:  # such words would be followed for ever
            raise Corrupt(
                f"names commit {trim.previous} as the word before it",
                target=f"commit {word} of the branch {RETENTION}",
                hint=chain.HINT,
            )
        word = trim.previous
    return None
