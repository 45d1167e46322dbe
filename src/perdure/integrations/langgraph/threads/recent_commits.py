"""The last commits of a thread's log, read and decoded once, and what they tell about its
checkpoints.

Rebuilding a channel that is stored as deltas takes all writes of a hundred ancestors. Each found by
its keys would be eight look-ups; in the log they are neighbours, and one read has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from math import inf

from perdure.adapters import ForeignLog, Held
from perdure.core.format.chain import check_link
from perdure.integrations.langgraph.threads.counted_commits import NEVER
from perdure.integrations.langgraph.threads.delta_trail import Trails
from perdure.integrations.langgraph.threads.write_records import Write, read_writes, writes_on
from perdure.integrations.langgraph.values import thread_names
from perdure.model import MAIN, Commit

NEAR = 16
"""A commit so far below what is read comes along with a read of all between; one by itself costs a
look-up."""

FAR = 256
"""The same, for who is going to read most of what is between."""

COMMITS_KEPT = 1000
"""Of one thread, between two reads."""

FOLDED_MAX = 32
"""Commits that a state is made of as they are in; of more there may be a snapshot."""

ALONE_KEPT = 64
"""Commits that were read by themselves."""


class Window:
    """The commits from `low` to the log's end. Commits never change, so the content stays true as
    long as the log only grows by checkpoints and writes: `follow` refuses anything else.

    Checkpoints are told apart by what all keys of one have in common: `names.place_of`.

    What it finds about one checkpoint is kept in its `trails`, until a later commit changes that.

    Args:
        cut: the log goes on behind `end`, and so may have more for what is in here.

    Attributes:
        past: tells which commits count, for `put_of` and `writes`.

    An exception in the middle of an update leaves the window torn: a commit was read but not noted,
    or only some writes were found. Then `follow` refuses, too.
    """

    def __init__(self, log: ForeignLog, end: int, *, cut: bool = False) -> None:
        self.log = log
        self._cut = cut
        self.end = end
        self.low = end + 1
        self._torn = False
        self._top = end
        self._commits: dict[int, Commit] = {}
        self._others: dict[int, Commit] = {}
        self._below: Iterator[Commit] = log.commits(1, end, newest_first=True, damaged_too=True)
        self._puts: dict[str, dict[int, int]] = {}
        self._alone: dict[str, dict[int, int]] = {}
        self._along: dict[int, list[int]] = {}
        self._complete: set[str] = set()
        self._spent: set[int] = set()
        self._straight = self._readable = True
        self._written: dict[int, tuple[Commit, int | None, list[Write]]] = {}
        self.trails = Trails()
        self.past = NEVER

    def follow(self, end: int) -> bool:
        """Reads on up to the log's end; returns False if something makes a new look necessary."""
        if self._torn:
            return False
        if self.end == end:
            return True
        if (
            not self.end < end <= self.end + FAR
            or self.low > self.end
            or len(self._commits) > COMMITS_KEPT
        ):
            return False
        top = self._commits[self.end]
        for commit in self.log.commits(self.end + 1, end, damaged_too=True):
            _check_follows(commit, top)
            self._torn = True
            if not self._note(commit):
                return False
            self.trails.follow(commit)
            top, self.end, self._top = commit, commit.seq, commit.seq
            self._torn = False
        return self.end == end

    def read_short(self) -> None:
        """Reads a short log as a whole: a look at its end will fold all commits, too."""
        if self.end <= FOLDED_MAX:
            self._reach(1)

    @property
    def is_straight(self) -> bool:
        """True if the window has the log from its first commit on, and it consists of checkpoints
        and writes on one branch. Every other branch begins with a commit of its own: so there is
        none, and nothing was removed."""
        return self._straight and self._is_whole

    @property
    def _is_whole(self) -> bool:
        """True if the window has the log from its first commit to its end, and the kind of each
        commit is known."""
        return self.low == 1 and self._readable and not (self._torn or self._cut)

    def commit(self, seq: int, reach: int = NEAR) -> Commit:
        """Returns one commit, reading those above it, too, if it is at most `reach` below them.

        Raises:
            Corrupt, UnsupportedFormat: this commit cannot be read. Others that cannot do not matter
                here.
        """
        found = self._commits.get(seq)
        if found is None and 0 < seq < self.low <= seq + reach:
            self._reach(seq)
            found = self._commits.get(seq)
        if found is None:
            found = self._others.get(seq)
        if found is None:
            if len(self._others) >= ALONE_KEPT:
                self._others.clear()
            found = self._others[seq] = self.log.commit(seq)
        return found if not found.damaged else self.log.commit(seq)  # which says the way back

    def far(self, seq: int) -> Commit:
        """Returns one commit, for callers that read most of the range between; see `commit`."""
        found = self._commits.get(seq)
        return found if found is not None and not found.damaged else self.commit(seq, FAR)

    def at(self, seq: int) -> Held:
        """The state at a commit, which the caller may keep and change. Of a short thread nothing is
        read a second time for it."""
        path: list[Commit] = []
        if 0 < seq <= FOLDED_MAX and self.low <= FOLDED_MAX + 1:
            self._reach(1)
        while seq > 0 and len(path) < FOLDED_MAX:
            commit = self._commits.get(seq)
            if commit is None or commit.trimmed or commit.damaged:
                break
            path.append(commit)
            seq = commit.parent
        if seq > 0 or not path or not self._spent.isdisjoint(one.seq for one in path):
            return self.log.at(path[0].seq if path else seq)
        path.reverse()
        return self.log.at_last_of(path)

    def walk(self) -> Iterator[Commit]:
        """Yields all commits, newest first, as they are requested; other reads may come in
        between."""
        seq = self.end
        while (commit := self._read(seq)) is not None:
            yield commit
            seq = commit.seq - 1

    def _read(self, seq: int) -> Commit | None:
        """Returns a commit that is in or the next to come in; None if the log does not go that
        far."""
        if seq < self.low:
            self._reach(seq)
        return self._commits.get(seq)

    def spend(self, seq: int) -> Commit:
        """Returns one commit for application to a state: its values become part of the state, and
        change with it. So a commit that was spent is read again."""
        if seq in self._spent:
            return self.log.commit(seq)
        self._spent.add(seq)
        return self.commit(seq)

    def drop_above(self, seq: int) -> None:
        """Forget what commits above one say; not which checkpoints and writes they have. Who asks
        for one of them reads it anew."""
        for above in range(seq + 1, self._top + 1):
            self._commits.pop(above, None)
            self._written.pop(above, None)
        self._top = min(self._top, seq)

    def _reach(self, seq: int) -> None:
        while self.low > seq:
            self._torn = True
            commit = next(self._below, None)
            if commit is None:
                self._torn = False
                return
            above = self._commits.get(self.low)
            if above is not None:
                _check_follows(above, commit)
            self._note(commit)
            self.low = commit.seq
            self._torn = False

    def _note(self, commit: Commit) -> bool:
        """Notes a commit; returns True if it is a checkpoint, or writes."""
        self._commits[commit.seq] = commit
        if commit.damaged:
            self._readable = False
        found = thread_names.read_key(commit.cause.key)
        if found is None or commit.branch != MAIN or commit.damaged or commit.trimmed:
            self._straight = False
        if found is None:
            return False
        kind, number, place = found
        if kind == "w":
            self._alone.setdefault(place, {})[number] = commit.seq
        else:
            self._puts.setdefault(place, {})[number] = commit.seq
            if on := writes_on(commit):
                self._along.setdefault(on, []).append(commit.seq)
        return True

    def put_of(self, place: str) -> int | None:
        """Seq of the commit that put a checkpoint last; None: it is not in."""
        puts = self._puts.get(place)
        if puts and self.past.moved:
            return max((seq for seq in puts.values() if not self.past.gone(seq)), default=None)
        return puts[max(puts)] if puts else None

    def writes(self, place: str) -> tuple[list[Write], int] | None:
        """Returns the writes as `View.writes` does; None if the checkpoint, or a part of it, is not
        in the window."""
        puts = self._puts.get(place)
        if not puts and self._is_whole and place not in self._alone:
            return [], 0
        if not puts or self._cut or max(puts) != len(puts):
            return None
        if place not in self._complete:
            self._find_early(place)
        alone = self._alone.get(place, {})
        gone = self.past.gone if self.past.moved else None
        found = {
            seq: self._writes_in(seq) for seq in alone.values() if gone is None or not gone(seq)
        }
        for on in puts.values():
            for seq in self._along.get(on, ()):
                if gone is None or not (gone(on) or gone(seq)):
                    found[seq] = self._writes_in(seq, on)
        return [write for seq in sorted(found) for write in found[seq]], len(alone)

    def _writes_in(self, seq: int, on: int | None = None) -> list[Write]:
        """Returns the writes of a commit, not to be changed; see `read_writes`."""
        commit = self.commit(seq)
        known = self._written.get(seq)
        if known is None or known[0] is not commit or known[1] != on:
            known = self._written[seq] = commit, on, read_writes(commit, on)
        return known[2]

    def lacks(self, places: Set[str]) -> bool:
        """Returns True if the log is known to have nothing of any of these checkpoints. Reads it to
        its begin if that takes no more than to look for each of them, and for writes for it."""
        if self.low <= 2 * len(places):
            self._reach(1)
        nothing = places.isdisjoint(self._puts) and places.isdisjoint(self._alone)
        return nothing and self._is_whole

    def find_early(self, places: Iterable[str]) -> None:
        """Looks up for many checkpoints at once what `writes` would look up for each."""
        asked = {
            thread_names.key_of("w", place, 1): place
            for place in places
            if place in self._puts
            and place not in self._complete
            and 1 not in self._alone.get(place, ())
        }
        if self.low <= 1 or self._cut or not asked:
            return
        first = self.log.keys(list(asked))
        for key, place in asked.items():
            if first.get(key, inf) <= self.end:
                self._torn = True
                self._alone.setdefault(place, {})[1] = first[key]
                self._find_early(place, 2)
            self._complete.add(place)

    def _find_early(self, place: str, number: int = 1) -> None:
        """Writes may have come before their checkpoint, and be below: their numbers tell."""
        self._torn = True
        alone = self._alone.get(place, {})
        while self.low > 1 and number not in alone:
            seq = self.log.key(thread_names.key_of("w", place, number))
            if seq is None or seq > self.end:  # it is none of what is looked at
                break
            alone = self._alone.setdefault(place, {})
            alone[number] = seq
            number += 1
        self._complete.add(place)
        self._torn = False


def _check_follows(commit: Commit, before: Commit) -> None:
    """Checks that a commit follows another. The link of a damaged commit says nothing.

    Raises:
        Corrupt: it does not.
    """
    if not commit.damaged and not before.damaged:
        check_link(commit, before)
