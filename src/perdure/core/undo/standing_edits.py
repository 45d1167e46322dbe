"""The commits that stand for edits that were undone and redone, and the commits that cancel out.

An undo and the edits it took back cancel out. So do a redo and its undo, and the edits that the
undo had taken back stand as they were; but where another wanted edit was made between the two, the
redo stands for it: it was put on top of that one. Commits that cancel out block nothing, because an
undo or redo is refused at once where anything that stands is in its own way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from perdure.core.values.ops import Append, Move, Splice, TextSplice
from perdure.core.values.plain_values import Path
from perdure.model import Commit


class StandingCommits(Struct, frozen=True):
    """The commits of a path that stand.

    Attributes:
        chosen: the commits that stand for the wanted ones, newest first: taking them back in this
            order takes the wanted ones back.
        path: back to the last of `chosen`, newest first.
        nothing: the seqs of those that cancel out, each with others on the path or before it.
        across: those of them that have one of `chosen` in between.
        torn: seqs of those that stand for wanted ones and for others: neither can be told apart.
    """

    chosen: list[Commit]
    path: list[Commit]
    nothing: set[int]
    across: set[int]
    torn: set[int]


def standing(wanted: Iterable[Commit], path: Sequence[Commit]) -> StandingCommits:
    """Returns the commits that stand for the wanted ones, all of which are on the path, newest
    first."""
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
    return StandingCommits(
        [line.commits[seq] for seq in reversed(seqs)],
        [commit for commit in path if commit.seq >= seqs[0]],
        {seq for one in line.ended.values() for seq in one.seqs},
        across,
        line.torn_apart(),
    )


class _Ended(Struct, frozen=True):
    """Commits that cancel out together. `since`: the first; 0: it is before the path."""

    since: int
    seqs: set[int]


class _Line(Struct):
    """The part of a path read so far, oldest first.

    Attributes:
        commits: all of the path.
        wanted: seqs.
        by: for an edit that was redone, the commit that stands for it.
        took: for an undo, the edits that it took back, and the commit that stood for each.
        ended: commits that cancel out, by the last of them.
        own: the commits that stand for the wanted ones, oldest first.
        inside: for a list or text, the standing commits that changed something in it, oldest first.
        torn: redos of which a part was taken back, with wanted edits in it.
    """

    commits: dict[int, Commit]
    wanted: set[int]
    by: dict[int, int] = field(default_factory=dict)
    took: dict[int, dict[int, int]] = field(default_factory=dict)
    ended: dict[int, _Ended] = field(default_factory=dict)
    own: list[int] = field(default_factory=list)
    inside: dict[Path, list[int]] = field(default_factory=dict)
    torn: set[int] = field(default_factory=set)

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
        shared = not taken.isdisjoint(self.by.values())
        if shared and own:
            self.torn |= taken.intersection(self.by.values())
        # Where none of the wanted ones stands here, as in a group, which is undone as a whole, none
        # of their places is compared with what comes before this.
        alone = own and not self.own
        if not shared and (alone or not self._moves(since, seq, {*taken, seq})):
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

    def torn_apart(self) -> set[int]:
        """Returns what stands for wanted edits and for others. Turns of a run are undone one by
        one, also after several of them were redone at once."""
        others = {one for edit, one in self.by.items() if edit not in self.wanted}
        return self.torn | {one for edit in self.wanted if (one := self.by.get(edit)) in others}

    def _put(self, seq: int, own: bool = False) -> None:
        """Notes that a commit stands."""
        for seqs in self._lists(seq, own):
            at = bisect_left(seqs, seq)
            if seqs[at : at + 1] != [seq]:
                seqs.insert(at, seq)

    def _take(self, seq: int) -> None:
        """Notes that a commit no longer stands."""
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
        """True if commits that would cancel out moved items of a list, or text, that a standing
        commit changed between them: its places are not those of the commits around them."""
        for path in {path for seq in seqs for path, moved in _lists(self.commits[seq]) if moved}:
            inside = self.inside.get(path, [])
            if not seqs.issuperset(inside[bisect_right(inside, since) : bisect_left(inside, last)]):
                return True
        return False


def displace(commits: Iterable[Commit], others: Iterable[Commit]) -> bool:
    """True if commits moved items of a list, or text, in which others changed some."""
    moved = {path for commit in commits for path, moved in _lists(commit) if moved}
    return bool(moved) and not moved.isdisjoint(path for one in others for path, _ in _lists(one))


def _lists(commit: Commit) -> Iterator[tuple[Path, bool]]:
    """Yields the lists and texts that a commit changed something in, and whether that moved their
    items. Of nested ones only the outermost: the places of the others depend on its items."""
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
