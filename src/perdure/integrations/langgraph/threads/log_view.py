"""Reading one log of a thread: where its checkpoints, lines, writes and removals are.

A copied thread begins with a pointer to another's log, as of a moment; it has several views.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.adapters import COPIES, POINTS, ForeignLog, Held, Retained
from perdure.errors import Conflict, Corrupt, UnsupportedFormat
from perdure.integrations.langgraph.threads.branch_commits import Branches
from perdure.integrations.langgraph.threads.counted_commits import (
    NEVER,
    Known,
    Past,
    is_move,
    moment_of,
    move_before,
)
from perdure.integrations.langgraph.threads.recent_commits import NEAR, Window
from perdure.integrations.langgraph.threads.record import record_of
from perdure.integrations.langgraph.threads.write_records import Write, read_writes, writes_on
from perdure.integrations.langgraph.values import thread_names
from perdure.model import MAIN, Commit

WRITTEN_MAX = 1000
SPACES_MAX = 256
"""Namespaces of which the ends of the lines are in memory."""


class Tip(Struct, frozen=True):
    """The end of one line: a branch of a namespace.

    Attributes:
        branch: its name; `head` is the seq of its head.
        at, id: seq and id of its latest checkpoint; 0 and "" where it has none yet.
        late: how many checkpoints of the namespace came after one with a greater id.
        pure: whether only writes came after that checkpoint, so that its state is the head's.
        open: whether its branch goes on from there; else that has more, which does not count.
    """

    branch: str
    head: int
    at: int
    id: str
    late: int
    pure: bool
    open: bool = True


class View:
    """One log, up to a commit (`until`; None: to its end).

    Attributes:
        end: the log's last seq, if the view is kept in step with it and its last commits are in
            memory; 0 if it is only read occasionally.
    """

    def __init__(
        self, log: ForeignLog, until: int | None = None, removed_at: int | None = None
    ) -> None:
        self.log = log
        self.until = until
        self._removed_at = removed_at
        self._heads: dict[str, dict[str, int]] = {}
        self._tips: dict[str, list[Tip]] = {}
        self._past: Past | None = None
        self._moves: Known = {}
        self._removed: dict[str, Any] | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self.end = 0
        self._in_step = False
        self._window: Window | None = None
        self._branches: Branches | None = None
        self._retained: tuple[Retained | None] | None = None

    def then(self, moment: int) -> View:
        """The log as it was when a commit was the newest."""
        view = View(self.log, moment)
        return View(self.log, moment, view.removed_at(moment))

    def step_to(self, end: int) -> None:
        """Notes the log's end, as it was just seen."""
        self.end, self._in_step = end, True

    def forget(self) -> None:
        """Drop what others may have changed."""
        self._in_step = False
        self._past = None
        self._heads.clear()  # before the tips: who knows these looks for no heads
        self._tips.clear()
        self._counts.clear()
        self._removed = self._branches = self._retained = None

    def _seen(self, seq: int | None) -> int | None:
        return None if seq is None or (self.until is not None and seq > self.until) else seq

    def recent(self) -> Window:
        """The log's last commits, up to `end`."""
        if self._window is None or not self._window.follow(self.end):
            self._window = Window(self.log, self.end)
        return self._window

    def telling(self) -> Window:
        """`recent`, for who asks it for checkpoints and writes."""
        past = self.past()
        window = self.recent()
        window.past = past
        return window

    def past(self) -> Past:
        """Returns the past, which tells which commits count."""
        if self._past is None:
            self._past = Past.found([*self._heads_of("").values()], self.commit, self._moves)
        return self._past

    def commit(self, seq: int, reach: int = NEAR) -> Commit:
        """Returns one commit, not to be changed; see `Window.commit`."""
        return self.recent().commit(seq, reach) if self.end else self.log.commit(seq)

    def at(self, seq: int) -> Held:
        """The state at a commit; see `Window.at`."""
        return self.recent().at(seq) if self.end else self.log.at(seq)

    def far(self) -> Callable[[int], Commit]:
        """Returns a function like `commit`, for callers that read most of the range between; of
        this moment."""
        return self.recent().far if self.end else self.log.commit

    # -- checkpoints -----------------------------------------------------------------------

    def find(self, namespace: str, checkpoint_id: str) -> int | None:
        """Seq of the commit that put a checkpoint, the last time that it was put."""
        return next(iter(deque(self.each_put(namespace, checkpoint_id), 1)), None)

    def each_put(self, namespace: str, checkpoint_id: str) -> Iterator[int]:
        """Yields the seqs of the commits that put a checkpoint and count, in order."""
        number = 1
        while seq := self._seen(
            self.log.key(thread_names.checkpoint_key(namespace, checkpoint_id, number))
        ):
            if not self.past().gone(seq):
                yield seq
            number += 1

    def puts(self, namespace: str, checkpoint_id: str) -> int:
        """Returns the number of times that a checkpoint was put, whether these count or not."""
        number = 1
        while self.log.key(thread_names.checkpoint_key(namespace, checkpoint_id, number)):
            number += 1
        return number - 1

    def is_trimmed(self, seq: int) -> bool:
        """Returns True if retention removed what a commit put."""
        return self.commit(seq).trimmed or self.has_lost(seq)

    def has_lost(self, seq: int) -> bool:
        """Returns True if retention removed the state at a commit, even if it left the rest, as for
        writes for another."""
        if self._retained is None:
            self._retained = (self.log.retained(),)
        said = self._retained[0]
        return said is not None and not said.keeps_state(seq) and not self.log.has_state(seq)

    def commits(self) -> Iterator[Commit]:
        """Yields all commits, newest first; of those that cannot be read, what is readable."""
        return self.log.commits(1, self.until, newest_first=True, damaged_too=True)

    # -- lines -----------------------------------------------------------------------------

    def tips(self, namespace: str) -> list[Tip]:
        """The ends of a namespace's lines, by their number."""
        known = self._tips.get(namespace)
        if known is None:
            if len(self._tips) >= SPACES_MAX:  # a graph makes one for each call of a subgraph
                self._tips.clear()
                self._heads.clear()
            known = self._tips[namespace] = list(self._look_for_tips(namespace))
        return known

    def lines(self, namespace: str) -> int:
        """Returns the number of branches of a namespace, all of which may be gone."""
        return len(self._heads_of(namespace))

    def begin(self, tip: Tip) -> None:
        """Notes the first line of a log that this process has just begun."""
        self._tips[""], self._heads[""], self._past = [tip], {tip.branch: tip.head}, NEVER

    def put_tip(self, namespace: str, tip: Tip) -> None:
        """Notes a commit of this process.

        Raises:
            Conflict: it does not count, as somebody went back a moment before: only who comes
                behind the end of the line that was moved is refused by the log itself.
        """
        tips = self.tips(namespace)
        heads = self._heads.get(namespace)
        if heads is not None:  # as mostly; an exception may have come where all is forgotten
            heads[tip.branch] = tip.head
        past = self._past
        if past is not None and past.moved and past.gone(tip.head):
            raise Conflict(f"commit {tip.head} came behind a rollback that its writer had not seen")
        for index, known in enumerate(tips):
            if known.branch == tip.branch and known.open:
                tips[index] = tip
                return
        tips.append(tip)

    def _heads_of(self, namespace: str) -> dict[str, int]:
        """The branches of a namespace by their number, and their heads; 0: it is deleted."""
        known = self._heads.get(namespace)
        if known is None:
            known = self._heads[namespace] = dict(self._look_for_heads(namespace))
        return known

    def read_short(self, end: int) -> None:
        """Begins with a log that ends there; see `Window.read_short`."""
        self.step_to(end)
        self.recent().read_short()

    @property
    def _is_straight(self) -> bool:
        """True if the log is straight, as it was last seen; see `Window.is_straight`. A writer that
        was too late for a commit knows that this is outdated."""
        return self._in_step and self.recent().is_straight

    def _look_for_heads(self, namespace: str) -> Iterator[tuple[str, int]]:
        if self._is_straight:  # that a branch is not there is proved by a look at SQLite's pages
            if namespace == "":
                yield MAIN, self.end
            return
        number = 1
        copied = self.until is not None  # then the log may have been deleted since
        while (
            head := self.log.head(branch := thread_names.branch_of(namespace, number), ever=copied)
        ) is not None:
            number += 1
            yield branch, self._head_of(branch, head)

    def _head_of(self, branch: str, head: int) -> int:
        """Returns the head of a branch at the end of this view."""
        return self._last_on(branch) if self.until is not None and head > self.until else head

    def _last_on(self, branch: str, until: int | None = None) -> int:
        """A branch's last commit that counts, up to one; 0: it has none."""
        past = self._past or NEVER  # which is not known yet where a copy looks for its heads
        until = self.until if until is None else until
        if self._branches is None or not self._branches.reaches(until):
            self._branches = Branches(self.log, until)
        return next((seq for seq in self._branches.of(branch, until) if not past.gone(seq)), 0)

    def _look_for_tips(self, namespace: str) -> Iterator[Tip]:
        past = self.past()
        for branch, head in self._heads_of(namespace).items():
            if past.gone(head):
                end = self._end_of(branch, head)
                if end:
                    yield replace(self.tip_at(namespace, branch, end), pure=False, open=False)
                continue
            yield self.tip_at(namespace, branch, head)
            move = self._move_at(head) if head and past.moved else None
            if move is not None:
                # It may have come from another line; where this one ended before stays an end.
                end = self._last_on(branch, moment_of(move, self.commit))
                if end and self.commit(move.parent).branch != branch:
                    yield replace(self.tip_at(namespace, branch, end), pure=False, open=False)

    def _move_at(self, seq: int) -> Commit | None:
        commit = self.commit(seq)
        return commit if is_move(commit) else None

    def _end_of(self, branch: str, head: int) -> int:
        """A branch's last commit that counts, where its head does not; 0: it has none."""
        seq, past = head, self.past()
        try:
            while seq > 0 and past.gone(seq):
                commit = self.commit(seq)
                if commit.branch != branch:
                    return 0
                if is_move(commit):
                    return self._last_on(branch, seq - 1)
                seq = commit.parent
            return seq if seq and self.commit(seq).branch == branch else 0
        except (Corrupt, UnsupportedFormat):  # what nobody asks for is in nobody's way
            return self._last_on(branch, head - 1)

    def tip_at(self, namespace: str, branch: str, head: int) -> Tip:
        """The tip of a branch that has this head; 0: of one that is deleted."""
        pure = True
        for commit in self.way(namespace, branch, head):
            key = thread_names.read_checkpoint_key(commit.cause.key)
            if key is not None:
                if key[0] != namespace:  # a line of another namespace begins where it was forked
                    break
                late = int(record_of(commit).get("late", 0))
                return Tip(branch, head, commit.seq, key[1], late, pure)
            pure = pure and writes_on(commit) is not None
        return Tip(branch, head, 0, "", 0, False)

    def way(self, namespace: str, branch: str, head: int) -> Iterator[Commit]:
        """Yields the commits from one of a line down to the last checkpoint before it."""
        seq = head
        while seq > 0:
            commit = self.commit(seq)
            yield commit
            on = writes_on(commit)
            if on is None:
                seq = self._before(namespace, branch, commit)
            else:  # there may be a move in between, whose state is another one
                seq = on if move_before(commit) <= on else commit.parent

    def _before(self, namespace: str, branch: str, commit: Commit) -> int:
        """Returns the commit before a line's end. A move may lead to the moment of a commit
        elsewhere."""
        if commit.branch != branch or not is_move(commit):
            return commit.parent
        moment = moment_of(commit, self.commit)
        if thread_names.is_line_of(namespace, self.commit(moment).branch):
            return commit.parent
        return self._last_on(branch, moment)

    def namespaces(self) -> list[str]:
        """Returns all namespaces that have a checkpoint."""
        found: dict[str, None] = {}
        past = self.past()
        for branch, head in self.log.branches(ever=self.until is not None):
            if branch in (thread_names.REMOVED, COPIES, POINTS):
                continue
            seq = self._head_of(branch, head)
            if past.gone(seq):
                seq = self._end_of(branch, seq)
            while seq > 0:
                commit = self.log.commit(seq)
                key = thread_names.read_checkpoint_key(commit.cause.key)
                if key is not None:
                    found[key[0]] = None
                    break
                on = writes_on(commit)
                seq = commit.parent if on is None else on
        if past.moved and any(tip.at for tip in self.tips("")):  # a move may lead elsewhere
            found[""] = None
        return list(found)

    # -- writes ----------------------------------------------------------------------------

    def writes(self, namespace: str, checkpoint_id: str) -> tuple[list[Write], int]:
        """Returns all writes for a checkpoint that count, in their order, and the number of all
        commits of writes alone: without checkpoints that contain some."""
        alone = list(self._written(namespace, checkpoint_id))
        gone = self.past().gone
        writes = {seq: read_writes(self.log.commit(seq)) for seq in alone if not gone(seq)}
        for seq, child in self._took_along(namespace, checkpoint_id):
            writes[child.seq] = read_writes(child, seq)
        return [write for seq in sorted(writes) for write in writes[seq]], len(alone)

    def _written(self, namespace: str, checkpoint_id: str) -> Iterator[int]:
        """The commits of writes for it alone."""
        number = 1
        while seq := self._seen(
            self.log.key(thread_names.writes_key(namespace, checkpoint_id, number))
        ):
            yield seq
            number += 1

    def _took_along(self, namespace: str, checkpoint_id: str) -> Iterator[tuple[int, Commit]]:
        """Yields the commits that put the checkpoint, each with the checkpoint behind it, which may
        contain some of its writes."""
        for seq in self.each_put(namespace, checkpoint_id):
            child = self._behind(namespace, seq)
            if child is not None:
                yield seq, child

    def _behind(self, namespace: str, seq: int) -> Commit | None:
        """The checkpoint that follows one on its line, and may have taken its writes along."""
        if any(tip.at == seq and tip.pure for tip in self._tips.get(namespace, ())):
            return None
        if seq == self.until:  # what came behind is not the copy's
            return None
        branch, past = self.log.commit(seq).branch, self.past()
        for start, end in ((seq + 1, seq + 1), (seq + 2, self.until)):  # mostly it is the next
            for first, last in past.standing(start, end):
                for commit in self.log.commits(first, last, damaged_too=True):
                    if commit.branch == branch and thread_names.read_checkpoint_key(
                        commit.cause.key
                    ):
                        if past.gone(commit.seq):
                            continue
                        return commit
        return None

    def written(self, namespace: str, checkpoint_id: str) -> int:
        """Returns the number of commits of writes for a checkpoint; at least."""
        known = self._counts.get((namespace, checkpoint_id))
        return self.writes(namespace, checkpoint_id)[1] if known is None else known

    def note_written(self, namespace: str, checkpoint_id: str, count: int) -> None:
        """Notes writes of this process. If the number is wrong, the next key will be taken."""
        if len(self._counts) >= WRITTEN_MAX:
            self._counts.clear()
        self._counts[namespace, checkpoint_id] = count

    # -- removals --------------------------------------------------------------------------

    def removals(self) -> dict[str, Any]:
        """Returns the state of the branch that records removals, by the name of the log and
        namespace: ``{"until": seq, "keep": [seqs], "also": [seqs]}``."""
        if self._removed is None:
            seq = self.removed_at()
            self._removed = self.log.at(seq).state if seq else {}
        return self._removed or {}

    def removed_at(self, until: int | None = None) -> int:
        """Returns the commit that recorded removals last, up to a moment; 0 if there is none, or it
        is gone."""
        if self._removed_at is not None:
            return self._removed_at
        if self._is_straight:
            return 0
        seq, past = self.log.head(thread_names.REMOVED) or 0, self.past()
        while seq and (past.moved or until is not None):
            commit = self.log.commit(seq)
            if (until is None or seq <= until) and not past.skips_behind(_seen_by(commit)):
                break
            seq = commit.parent if commit.cause.kind != "fork" else 0
        return seq


def _seen_by(removal: Commit) -> int:
    """Returns the last commit that the author of a removal had seen: a move that came since is not
    affected by it. Earlier versions do not record that."""
    refers = removal.cause.refers
    return refers[-1] if len(refers) > (removal.cause.kind == "fork") else removal.seq - 1


def parent_of(log: View | Window | ForeignLog, record: dict[str, Any]) -> str | None:
    """The id of a checkpoint's parent. One in the same log is stored by its seq."""
    parent = record["parent"]
    if not isinstance(parent, int):
        return None if parent is None else str(parent)
    key = thread_names.read_checkpoint_key(log.commit(parent).cause.key)
    return None if key is None else key[1]


def writes_of(
    views: Sequence[View],
    view: View,
    seq: int,
    namespace: str,
    checkpoint_id: str,
    reach: int = NEAR,
) -> list[Write]:
    """Returns the writes of a checkpoint that a view has at `seq`, as `writes_in` does, from its
    last commits if it is among these."""
    if view is views[0]:
        view.commit(seq, reach)
        recent = view.telling().writes(thread_names.place_of(namespace, checkpoint_id))
        if recent is not None:
            return [*writes_in(views[1:], namespace, checkpoint_id), *recent[0]]
    return writes_in(views, namespace, checkpoint_id)


def writes_seen(
    views: Sequence[View], windows: Sequence[Window], namespace: str, checkpoint_id: str
) -> list[Write]:
    """Returns the writes as `writes_in` does, from windows onto the views where a checkpoint is in
    one."""
    writes: list[Write] = []
    place = thread_names.place_of(namespace, checkpoint_id)
    for view, window in zip(reversed(views), reversed(windows), strict=True):
        seen = window.writes(place)
        writes += (view.writes(namespace, checkpoint_id) if seen is None else seen)[0]
    return writes


def writes_in(views: Sequence[View], namespace: str, checkpoint_id: str) -> list[Write]:
    """Returns all writes for a checkpoint of a thread with these views, in their order."""
    writes: list[Write] = []
    for view in reversed(views):
        writes += view.writes(namespace, checkpoint_id)[0]
    return writes
