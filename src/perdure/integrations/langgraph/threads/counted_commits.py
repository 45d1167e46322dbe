"""The commits of a thread's log that count: all but those that a rollback discarded.

`perdure rollback` moves a thread back as a whole: to the state of all of its lines when a commit
was the newest. So the commits between that one and the rollback's own do not count any more:
neither checkpoints and lines, nor writes for checkpoints that stay. Going back to one of them,
which is forward, brings back what counted then.

A move is a commit on a line. The next commit behind it says so in a record, from which the move is
found without reading the commits between: ``{"t": "lg-after", "seq": …}``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from perdure.adapters import MOVES, is_line, is_moment
from perdure.integrations.langgraph.threads.record import malformed
from perdure.integrations.langgraph.threads.write_records import writes_on
from perdure.integrations.langgraph.values import thread_names
from perdure.model import Commit

AFTER = "lg-after"
"""The kind of a record, in its `t`, that names the last move before its commit."""

Read = Callable[[int], Commit]

Known = dict[int, tuple[int, int]]
"""Moves by their seqs: the moment that each leads back to, and the last move before that."""


class Past:
    """The moves of one log, up to one moment.

    Attributes:
        moved: the seq of the last move; 0 if there is none.
        told: the commits whose records say so.
    """

    __slots__ = ("_late", "_read", "_starts", "_tos", "moved", "told")

    def __init__(
        self, moves: Sequence[tuple[int, int]], read: Read, told: Collection[int] = ()
    ) -> None:
        self.moved = moves[0][0] if moves else 0
        self.told = told
        self._starts = [
            at for at, _ in reversed(moves)
        ]  # a thread may have been moved at each turn
        self._tos = [to for _, to in reversed(moves)]
        self._read = read
        self._late: dict[int, bool] = {}

    @classmethod
    def found(cls, heads: Sequence[int], read: Read, known: Known) -> Past:
        """Returns the past, found from the heads of the lines of the graph itself.

        Args:
            known: moves that were found before, to which others are added. The commits that tell of
                these are not in `told`.

        Raises:
            Corrupt: a record names a commit as a move that is not one.
        """
        told: set[int] = set()
        at = max((_last_move(head, read, told) for head in heads), default=0)
        return cls._from(at, read, told, known)

    @classmethod
    def back_at(cls, moment: int, read: Read) -> Past:
        """Returns the past as it was at a moment, for a rollback to it."""
        told: set[int] = set()
        return cls._from(_last_before(moment, read, told), read, told, {})

    @classmethod
    def _from(cls, at: int, read: Read, told: set[int], known: Known) -> Past:
        moves: list[tuple[int, int]] = []
        while at:
            if at not in known:
                commit = read(at)
                if commit.cause.kind not in MOVES:
                    raise malformed(commit)
                to = moment_of(commit, read)
                known[at] = to, _last_before(to, read, told)
            to, before = known[at]
            moves.append((at, to))
            at = before
        return cls(moves, read, told)

    def skips(self, seq: int) -> bool:
        """Returns True if a commit lies between a move and the moment that it leads back to."""
        index = bisect_right(self._starts, seq)  # of the first move behind it that stands
        return index < len(self._starts) and seq > self._tos[index]

    def skips_behind(self, seq: int) -> bool:
        """Returns True if the place directly behind a commit lies there, whatever the commit's own
        number."""
        index = bisect_right(self._starts, seq)
        return index < len(self._starts) and seq >= self._tos[index]

    def standing(self, first: int, last: int | None) -> Iterator[tuple[int, int | None]]:
        """Yields first and last of each stretch between two commits, both included, without the
        commits between a move and the moment that it leads back to. `last`: None: the end."""
        for index in range(bisect_right(self._starts, first), len(self._starts)):
            at, to = self._starts[index], self._tos[index]
            if last is not None and last < at:
                last = min(last, to)
                break
            if first <= to:
                yield first, to
            first = at
        if last is None or first <= last:
            yield first, last

    def gone(self, seq: int) -> bool:
        """Returns True if a commit of a line does not count any more. Neither does one that came
        too late, directly behind commits that a rollback had discarded a moment before."""
        if not self.moved:
            return False
        return self.skips(seq) or self._came_late(seq)

    def _came_late(self, seq: int) -> bool:
        index = bisect_right(self._starts, seq)
        since = self._starts[index - 1] if index else 0
        path: list[int] = []
        late: bool | None = None
        while late is None:
            if seq <= since:
                late = seq < since and self.gone(seq)
            elif seq in self._late:
                late = self._late[seq]
            else:
                commit = self._read(seq)
                path.append(seq)
                seq = commit.parent
                if move_before(commit) >= since:  # who knows an older one only may be late
                    late = False
        self._late.update(dict.fromkeys(path, late))
        return late

    def record(self) -> list[dict[str, Any]]:
        """Returns the record in which a commit refers to the last move, which must exist."""
        return [{"t": AFTER, "seq": self.moved}]


def is_move(commit: Commit) -> bool:
    return commit.cause.kind in MOVES and is_line(commit.branch)


def moment_of(move: Commit, read: Read) -> int:
    """Returns the commit that was the newest at the moment that a move leads back to. For a branch
    that is not a line, that is the commit where it left one."""
    seq = move.parent
    while seq > 0:
        commit = read(seq)
        if is_line(commit.branch) or is_moment(commit.branch):
            break
        seq = commit.parent
    return seq


def _outer(seq: int, read: Read) -> int:
    """Returns the last commit up to a moment on a line of the graph itself; 0 if there is none. The
    commit of a removal or a copy does not say which move was before it; that of a subgraph may not
    either, if its process had not heard of it."""
    while seq > 0 and not thread_names.is_line_of("", read(seq).branch):
        seq -= 1
    return seq


def _last_before(moment: int, read: Read, told: set[int]) -> int:
    """Returns the last move before a moment; 0 if there is none."""
    return max(_last_move(moment, read, told), _last_move(_outer(moment, read), read, told))


def _last_move(seq: int, read: Read, told: set[int]) -> int:
    """Returns the last move at or before a commit of a line; 0 if there is none. Adds the commits
    that told of it to `told`."""
    while seq > 0:
        commit = read(seq)
        if is_move(commit):
            return seq
        before, on = move_before(commit), writes_on(commit)
        if before or on is not None:
            told.add(seq)
        if before or thread_names.read_checkpoint_key(commit.cause.key) is not None:
            return before
        seq = commit.parent if on is None else on
    return 0


def move_before(commit: Commit) -> int:
    """Returns the move that a commit refers to; 0 if there is none."""
    for record in commit.records:
        if record.get("t") == AFTER:
            seq = record.get("seq")
            if type(seq) is not int or not 0 < seq < commit.seq:
                raise malformed(commit)
            return seq
    return 0


def _never(seq: int) -> Commit:
    raise AssertionError(seq)


NEVER = Past((), _never)
"""Of who never went back."""
