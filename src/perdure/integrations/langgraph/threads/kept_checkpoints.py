"""The checkpoints and writes of a thread that retention keeps, beside what it keeps in every log.

They make up the thread now and at each moment from the horizon on, for a rollback leads there: each
line of each namespace keeps its last checkpoint, however old, with the writes for it. Such a moment
consists of the state just before the horizon, and of what came since then. Only a move to before
the horizon, or a removal, brings others to the ends of lines; so each of these is looked at by
itself.

Discarded commits stay hidden: the commits to which the rollbacks lead tell of that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator

from perdure.adapters import Stays
from perdure.integrations.langgraph.threads.counted_commits import Past, is_move, moment_of
from perdure.integrations.langgraph.threads.finding import put_last, standing
from perdure.integrations.langgraph.threads.log_view import Tip, View, parent_of
from perdure.integrations.langgraph.threads.record import record_of
from perdure.integrations.langgraph.threads.removed import is_removed, removals_of
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.integrations.langgraph.threads.thread_refusals import FORKING
from perdure.integrations.langgraph.threads.valueless_channels import Lacking
from perdure.integrations.langgraph.threads.write_records import writes_on
from perdure.integrations.langgraph.values import thread_names
from perdure.model import Commit

Spot = tuple[str, str]
"""Namespace and id of a checkpoint."""


def stays(thread: Thread, passing: Collection[str], horizon: int, needed: Collection[int]) -> Stays:
    """Returns the seqs whose states stay, and those whose payloads stay.

    Args:
        needed: the seqs before the horizon whose states stay anyway.
        passing: channels in which no value stays from step to step.

    Raises:
        Conflict: a channel is stored as deltas, or seems to be: its value depends on what would be
            removed.
    """
    view = thread.seen[0]
    view.forget()  # somebody else may have been here since the last try
    found = _Staying(view, horizon)
    found.states.update(found.shown(needed))
    for then in found.moments:
        found.keep_lines(then)
    for then in found.moments:
        found.keep_inner(then)
    for then in found.moments:
        found.keep_writes(then)
    lacking = Lacking(thread.name, passing)
    for seq in sorted(found.states):
        if seq > 1:
            lacking.look(found.spots[seq][0], view.log.at(seq).state)
    lacking.refuse_for(view.log, horizon - 1)
    for origin in thread.seen[1:]:  # it stays; what is left of the copy leads there no more
        lacking.refuse_for(origin.log, origin.until)
    return found.states | found.removals, found.payloads


def _behind(view: View, namespace: str, tip: Tip, seq: int) -> Iterator[int]:
    """Yields the commits on a line behind its last checkpoint: that is found through them."""
    for commit in view.way(namespace, tip.branch, tip.head):
        if commit.seq <= seq:
            break
        if writes_on(commit) is not None:
            yield commit.seq


class _Moment:
    """A thread as it is, or as it was."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._past = view.past()
        self.removals = removals_of([view])

    def has(self, seq: int) -> bool:
        """Returns True if a commit counts."""
        return (self.view.until is None or seq <= self.view.until) and not self._past.gone(seq)

    def shows(self, namespace: str, seq: int) -> bool:
        """Returns True if the thread shows a checkpoint at this moment."""
        return (
            self.has(seq)
            and not is_removed(self.removals, self.view.log, namespace, seq)
            and not self.view.has_lost(seq)
        )


class _Staying:
    """Collects the seqs that stay.

    Attributes:
        states: of checkpoints. `removals`: of commits that say what is removed.
        spots: the checkpoint that each commit put.
    """

    def __init__(self, view: View, horizon: int) -> None:
        self._view = view
        self._horizon = horizon
        self.states: set[int] = set()
        self.removals: set[int] = set()
        self.payloads: set[int] = set()
        self.spots: dict[int, Spot] = {}
        self._puts: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self._writes: defaultdict[Spot, set[int]] = defaultdict(set)
        self._parents: dict[int, tuple[int, ...]] = {}
        moments, end = {horizon - 1}, 0
        for commit in view.log.commits(damaged_too=True):
            moments.update(self._look_at(commit))
            end = commit.seq
        for puts in self._puts.values():
            puts.sort()
        moments.add(end)  # what it is now, whatever others put while this looks
        self.moments = [_Moment(view.then(one)) for one in sorted(moments) if one > 0]

    def _look_at(self, commit: Commit) -> Iterator[int]:
        """Notes a commit, and the moments that it changes."""
        self._parents[commit.seq] = commit.parents
        key = thread_names.read_key(commit.cause.key)
        if key is not None:
            kind, _, place = key
            spot = thread_names.read_place(place)
            if kind == "c":
                self.spots[commit.seq] = spot
            if commit.damaged:
                pass
            elif kind == "w":
                self._writes[spot].add(commit.seq)
            elif not commit.trimmed:
                self._puts[spot[0]].append((spot[1], commit.seq))
                on = writes_on(commit)
                if on in self.spots:
                    self._writes[self.spots[on]].add(commit.seq)
        if commit.seq < self._horizon:
            if any(record.get("t") == "checkpoint" for record in commit.records):
                yield commit.seq
        elif commit.branch == thread_names.REMOVED:
            yield commit.seq
        elif is_move(commit) and (to := moment_of(commit, self._view.commit)) < self._horizon:
            yield to

    def shown(self, seqs: Collection[int]) -> Iterator[int]:
        """Yields those seqs that are checkpoints, and shown; the first one always is."""
        now = self.moments[-1]
        for seq in {1, *seqs}:
            spot = self.spots.get(seq)
            if spot is not None and now.shows(spot[0], seq):
                yield seq

    def keep_lines(self, then: _Moment) -> None:
        """Keeps the ends of lines at a moment, and the commits that identify them."""
        view = then.view
        self.payloads.update(view.past().told)
        if view.until is not None:
            self.payloads.update(Past.back_at(view.until, view.commit).told)
        removed_at = view.removed_at()
        if removed_at:
            self.removals.add(removed_at)
        for namespace in view.namespaces():
            for tip in view.tips(namespace):
                found = standing(view, then.removals, namespace, tip)
                if found is None:
                    continue
                last = put_last(found, namespace)
                self.states |= {one.seq for one in (found, last) if not view.is_trimmed(one.seq)}
                self.payloads.update(_behind(view, namespace, tip, found.seq))
        self.states |= self._ends(then)

    def _ends(self, then: _Moment) -> set[int]:
        """The checkpoints of which none came that is shown. A line may have ended at more than its
        last one: that it was moved away from, before it went on elsewhere."""
        shown: set[int] = set()
        for namespace, puts in self._puts.items():
            last = {one: seq for one, seq in puts if then.shows(namespace, seq)}
            shown.update(last.values())
        above: set[int] = set()
        for seq in shown:
            path = [seq]
            while path:
                for parent in self._parents.get(path.pop(), ()):
                    if parent not in above:
                        above.add(parent)
                        path.append(parent)
        return {seq for seq in shown - above if seq < self._horizon}

    def keep_inner(self, then: _Moment) -> None:
        """Keeps the last checkpoints of subgraphs before the checkpoints that are shown: continuing
        from one continues its subgraphs from there, though they may have gone on since, for other
        lines. If it was put by hand, they continue from those before its parent."""
        shown = {seq for seq in self.states if self.spots[seq][0] == "" and then.shows("", seq)}
        outer = {one for seq in shown for one in self._bounds(seq)}
        for namespace, puts in self._puts.items():
            for one in outer if namespace else ():
                for index in range(bisect_left(puts, (one, 0)) - 1, -1, -1):
                    if then.shows(namespace, puts[index][1]):
                        self.states.add(puts[index][1])
                        break

    def _bounds(self, seq: int) -> Iterator[str]:
        """The ids of checkpoints before which LangGraph looks for those of subgraphs, when it goes
        on from one."""
        yield self.spots[seq][1]
        record = record_of(self._view.log.commit(seq))
        if record and record["metadata"].get("source") in FORKING:
            parent = parent_of(self._view.log, record)
            if parent is not None:
                yield parent

    def keep_writes(self, then: _Moment) -> None:
        """The writes for all checkpoints that are shown and stay."""
        for seq in self.states:
            spot = self.spots[seq]
            if then.shows(spot[0], seq):
                self.payloads.update(one for one in self._writes[spot] if then.has(one))
