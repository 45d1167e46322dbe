"""Which commits edits stand by that were undone and redone, and which others came to nothing.

An undo, and what it took away, came to nothing together. So did a redo and its undo, and what that
had taken away stands as it was; but where another of the wanted edits was made between the two, the
redo is what it stands by: it was put on top of that one. What came to nothing is in nobody's way,
for an undo or redo is refused at once where anything that stands is in its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from perdure.core.values.ops import Append, Move, Splice, TextSplice
from perdure.core.values.plain_values import Path
from perdure.model import Commit


class Standing(Struct, frozen=True):
    """What stands of a path.

    Attributes:
        chosen: what the wanted ones stand by, newest first: taken back in this order, they take the
            wanted ones back.
        path: back to the last of `chosen`, newest first.
        nothing: the seqs of those that came to nothing, each with others on the path or before it.
        across: those of them that did so with one of `chosen` in between.
    """

    chosen: list[Commit]
    path: list[Commit]
    nothing: set[int]
    across: set[int]


def standing(wanted: Iterable[Commit], path: Sequence[Commit]) -> Standing:
    """What the wanted commits stand by, all of which are on the path, newest first."""
    line = _Line({commit.seq: commit for commit in path}, {commit.seq for commit in wanted})
    for commit in reversed(path):
        line.add(commit)
    seqs = sorted({line.by.get(seq, seq) for seq in line.wanted})
    across = {
        seq
        for last, one in line.ended.items()
        for seq in one.seqs
        if bisect_left(seqs, one.since) != bisect_left(seqs, last)
    }
    return Standing(
        [line.commits[seq] for seq in reversed(seqs)],
        [commit for commit in path if commit.seq >= seqs[0]],
        {seq for one in line.ended.values() for seq in one.seqs},
        across,
    )


class _Ended(Struct, frozen=True):
    """Commits that came to nothing together. `since`: the first; 0: it is in front of the path."""

    since: int
    seqs: set[int]


class _Line(Struct):
    """A path as far as it has been gone along, oldest first.

    Attributes:
        commits: all of the path.
        wanted: seqs.
        by: of an edit that was redone, the commit that it stands by.
        took: of an undo, the edits that it took away, and what each of them stood by.
        ended: by the last of them, what came to nothing.
        own: what the wanted ones stand by, oldest first.
        inside: of a list or text, the commits that stand and changed something in it, oldest first.
    """

    commits: dict[int, Commit]
    wanted: set[int]
    by: dict[int, int] = field(default_factory=dict)
    took: dict[int, dict[int, int]] = field(default_factory=dict)
    ended: dict[int, _Ended] = field(default_factory=dict)
    own: list[int] = field(default_factory=list)
    inside: dict[Path, list[int]] = field(default_factory=dict)

    def add(self, commit: Commit) -> None:
        kind, seq, refers = commit.cause.kind, commit.seq, commit.cause.refers
        if seq in self.wanted or kind not in ("undo", "redo") or not refers:
            self._put(seq, seq in self.wanted)
        elif kind == "undo":
            self._undo(seq, refers)
        else:
            self._redo(seq, refers[0])

    def _undo(self, seq: int, edits: Sequence[int]) -> None:
        self.took[seq] = stood = {edit: self.by.pop(edit, edit) for edit in edits}
        own = not self.wanted.isdisjoint(stood)
        taken = self.commits.keys() & stood.values()
        for one in taken:
            self._take(one)
        since = min(taken) if len(taken) == len(set(stood.values())) else 0
        # A group is undone as a whole: none of the wanted stands here, and no place of theirs is
        # compared with what is in front of this.
        if own or not self._moves(since, seq, {*taken, seq}):
            self.ended[seq] = _Ended(since, {*taken, seq})
        else:
            for one in (*taken, seq):
                self._put(one)

    def _redo(self, seq: int, undo: int) -> None:
        stood = self.took.get(undo, {})
        own = not self.wanted.isdisjoint(stood)
        since, ended = (undo, {undo, seq}) if stood else (0, {seq})
        if (own and self.own and self.own[-1] > undo) or self._moves(since, seq, ended):
            self.by.update(dict.fromkeys(stood, seq))
            self._put(seq, own)
            return
        self._take(undo)
        self.ended.pop(undo, None)
        self.ended[seq] = _Ended(since, ended)
        self.by.update(stood)
        for one in self.commits.keys() & stood.values():
            self._put(one, own)

    def _put(self, seq: int, own: bool = False) -> None:
        """A commit stands."""
        for seqs in self._lists(seq, own):
            at = bisect_left(seqs, seq)
            if seqs[at : at + 1] != [seq]:
                seqs.insert(at, seq)

    def _take(self, seq: int) -> None:
        """A commit stands no more."""
        for seqs in self._lists(seq, True):
            at = bisect_left(seqs, seq)
            if seqs[at : at + 1] == [seq]:
                del seqs[at]

    def _lists(self, seq: int, own: bool) -> Iterator[list[int]]:
        if own:
            yield self.own
        if seq in self.commits:
            for path in {path for path, _ in _lists(self.commits[seq])}:
                yield self.inside.setdefault(path, [])

    def _moves(self, since: int, last: int, seqs: set[int]) -> bool:
        """Whether commits that would come to nothing moved items of a list, or text, that one which
        stands was made in between them: its places are not those of the commits around them."""
        for path in {path for seq in seqs for path, moved in _lists(self.commits[seq]) if moved}:
            inside = self.inside.get(path, [])
            if not seqs.issuperset(inside[bisect_right(inside, since) : bisect_left(inside, last)]):
                return True
        return False


def displace(commits: Iterable[Commit], others: Iterable[Commit]) -> bool:
    """Whether commits gave items of a list, or text, another place in which others changed some."""
    moved = {path for commit in commits for path, moved in _lists(commit) if moved}
    return bool(moved) and not moved.isdisjoint(path for one in others for path, _ in _lists(one))


def _lists(commit: Commit) -> Iterator[tuple[Path, bool]]:
    """The lists and texts that a commit changed something in, and whether that moved items of it.
    Of those in one another the outermost: where the others are is a matter of its items."""
    for op in commit.delta:
        outer = next((depth for depth, key in enumerate(op.path) if type(key) is int), None)
        match op:
            case Splice():
                yield op.path[:outer], op.removed != len(op.values)
            case TextSplice():
                yield op.path[:outer], op.removed != len(op.text)
            case Append() | Move():
                yield op.path[:outer], True  # what was appended is taken off in front of others
            case _ if outer is not None:
                yield op.path[:outer], False
