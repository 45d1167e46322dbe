"""The last commits of a thread's log, read and decoded once, and what they say of its checkpoints.

Rebuilding a channel that is stored as deltas takes all writes of a hundred ancestors. Each found by
its keys would be eight look-ups; in the log they are neighbours, and one read has them all.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.adapters import ForeignLog
from perdure.core.chain import check_link
from perdure.integrations.langgraph import names
from perdure.integrations.langgraph.view import Write, read_writes, writes_on
from perdure.model import Commit

GAP_MAX = 256
"""A commit so far below what is read is read alone: what is between is of no use."""

COMMITS_KEPT = 1000
"""Of one thread, between two reads."""

Checkpoint = tuple[str, str]
"""Namespace and id."""


class Window:
    """The commits from `low` to the log's end. Commits never change, so what is in stays true for
    as long as the log only grows by checkpoints and writes: what else is there, `follow` refuses.
    """

    def __init__(self, log: ForeignLog, end: int) -> None:
        self.log = log
        self.end = end
        self.low = end + 1
        self._commits: dict[int, Commit] = {}
        self._below: Iterator[Commit] = log.commits(1, end, newest_first=True)
        self._puts: dict[Checkpoint, dict[int, int]] = {}
        self._alone: dict[Checkpoint, dict[int, int]] = {}
        self._along: dict[int, list[int]] = {}
        self._complete: set[Checkpoint] = set()

    def follow(self, end: int) -> bool:
        """Read on up to the log's end; False: it says what makes a new look necessary."""
        if self.end == end:
            return True
        if end < self.end or self.low > self.end or len(self._commits) > COMMITS_KEPT:
            return False
        top = self._commits[self.end]
        for commit in self.log.commits(self.end + 1, end):
            check_link(commit, top)
            if not self._note(commit):
                return False
            top, self.end = commit, commit.seq
        return self.end == end

    def commit(self, seq: int) -> Commit:
        """One commit; from memory, if it is in or not far below."""
        if 0 < seq < self.low <= seq + GAP_MAX:
            self._reach(seq)
        found = self._commits.get(seq)
        return self.log.commit(seq) if found is None else found

    def _reach(self, seq: int) -> None:
        while self.low > seq:
            commit = next(self._below, None)
            if commit is None:
                return
            self._note(commit)
            self.low = commit.seq

    def _note(self, commit: Commit) -> bool:
        """Whether it is a checkpoint, or writes."""
        self._commits[commit.seq] = commit
        found = names.read_key(commit.cause.key)
        if found is None:
            return False
        kind, number, namespace, checkpoint_id = found
        if kind == "w":
            self._alone.setdefault((namespace, checkpoint_id), {})[number] = commit.seq
        else:
            self._puts.setdefault((namespace, checkpoint_id), {})[number] = commit.seq
            if on := writes_on(commit):
                self._along.setdefault(on, []).append(commit.seq)
        return True

    def put_of(self, namespace: str, checkpoint_id: str) -> int | None:
        """Seq of the commit that put a checkpoint last; None: it is not in."""
        puts = self._puts.get((namespace, checkpoint_id))
        return puts[max(puts)] if puts else None

    def writes(self, namespace: str, checkpoint_id: str) -> tuple[list[Write], int] | None:
        """As `View.writes`; None: the checkpoint, or a part of what was put, is not in."""
        at = namespace, checkpoint_id
        puts = self._puts.get(at)
        if not puts or max(puts) != len(puts):
            return None
        if at not in self._complete:
            self._find_early(at)
        alone = self._alone.get(at, {})
        found = {seq: read_writes(self.commit(seq)) for seq in alone.values()}
        for on in puts.values():
            for seq in self._along.get(on, ()):
                found[seq] = read_writes(self._commits[seq], on)
        return [write for seq in sorted(found) for write in found[seq]], len(alone)

    def _find_early(self, at: Checkpoint) -> None:
        """Writes may have come before their checkpoint, and be below: their numbers tell."""
        alone = self._alone.get(at, {})
        number = 1
        while self.low > 1 and number not in alone:
            seq = self.log.key(names.writes_key(*at, number))
            if seq is None:
                break
            alone = self._alone.setdefault(at, {})
            alone[number] = seq
            number += 1
        self._complete.add(at)
