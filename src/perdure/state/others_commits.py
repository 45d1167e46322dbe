"""The commits that others made on a branch since the state in memory was that of its head."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from perdure.core.format import chain
from perdure.core.values import ops
from perdure.core.values.ops import Op, OpError
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt, PerdureError
from perdure.missing import MISSING
from perdure.model import Cause, Commit
from perdure.state.live_object import Live
from perdure.storage.log.reader import LogReader

MOVES = frozenset({"rollback", "adopt", "fork", "migrate", "trim"})
"""Commits whose state is not the one before them on their branch, changed by their delta."""

FOLLOW_MAX = 1000
"""Commits of others that are followed one by one; behind more, the state is folded anew."""


_delta, _kind = attrgetter("delta"), attrgetter("cause.kind")


def any_changes(commits: Sequence[Commit]) -> bool:
    """True if any of them leaves another state than the one before it."""
    return any(map(_delta, commits)) or not MOVES.isdisjoint(map(_kind, commits))


def newer_commits(
    reader: LogReader, seq: int, id_: bytes, head: int, schema: tuple[str, tuple[int, int]]
) -> list[Commit] | None:
    """Returns the commits from one commit (by its number and its id) to a branch's head, oldest
    first.

    Returns:
        None if the head does not build on that commit, is too far ahead of it, or a commit on the
        way was written under another schema.
    """
    newer: list[Commit] = []
    for commit in reader.ancestors(head, damaged="foldable"):
        if commit.seq <= seq:
            return newer[::-1] if commit.id == id_ else None
        if commit.trimmed or commit.damaged or len(newer) == FOLLOW_MAX:
            return None
        if (commit.schema_id, commit.schema_version) != schema:
            return None
        newer.append(commit)
    return None


def compares(reader: LogReader | None, cause: Cause) -> bool:
    """True if a commit's ops come of a comparison of whole states, as a save's do, or may do: those
    inside of an item of a list do not say that it is the same item."""
    if cause.kind not in ("undo", "redo"):
        return cause.kind != "edit"
    try:
        return reader is None or any(
            compares(reader, reader.commit(seq).cause) for seq in cause.refers
        )
    except PerdureError:
        return True  # of what retention removed, nobody knows


def advance_both(reader: LogReader, plain: Plain, live: Live[Any], commit: Commit) -> Plain:
    """Moves both states over a commit, in place. Returns the plain one; MISSING where only the log
    has it: validation here makes another of what was written.

    Raises:
        Corrupt: it does not fit.
    """
    inverses: list[Op] = []
    try:
        for op in commit.delta:
            plain = ops.apply_noting(plain, op, inverses)
    except OpError as error:
        raise Corrupt(str(error), target=reader.target(commit.seq), hint=chain.HINT) from error
    by_place = live.keeps_fields and compares(reader, commit.cause)
    delta = [ops.own(op) for op in commit.delta]
    version = commit.schema_version
    in_step = live.advance(plain, delta, inverses, version, by_place=by_place)
    return plain if in_step else MISSING
