"""The way back from a commit that cannot be read: to the last one before it that can be.

The search is made only when there is such a commit: each state that is tried is folded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from perdure.errors import Corrupt, NotFound, PerdureError, UnsupportedFormat
from perdure.model import MAIN, Commit
from perdure.storage.retention import RETENTION
from perdure.system import shell

TRIED_MAX = 40
"""States that are tried before giving up; each that cannot be had skips all behind what it met."""

PUT_BACK = (
    "If there is none, `perdure repair --take-incomplete` restores what an agent's own log "
    "has, and keeps the file as it is beside it"
)
"""The way back of rows beside a log that were lost."""

EPOCHS = 1000
"""By how much the epoch of a branch grows whose row, or last commits, were lost: leases that were
taken since are in no log, and no fencing token may be given twice."""


class Readable(Protocol):
    """The part of `LogReader` that is needed here."""

    name: str

    def waited_on(self, branch: str) -> bool:
        """Returns True if a branch has an unfinished run, which a rollback has to end."""
        ...

    def can_fold(self, seq: int) -> int:
        """Returns 0 if the state at a commit can be folded; else the seq of the commit in the
        way."""
        ...

    def peek(self, seq: int) -> Commit: ...
    def commits(
        self,
        first: int = 1,
        last: int = ...,
        *,
        newest_first: bool = False,
        damaged_too: bool = False,
    ) -> Iterator[Commit]: ...


Unreadable = TypeVar("Unreadable", bound=Corrupt | UnsupportedFormat)


def with_way_back(reader: Readable, error: Unreadable, seq: int, branch: str = "") -> Unreadable:
    """Returns a copy of the error, with the way back as its hint; it can be raised from the
    original.

    Args:
        seq: the commit that cannot be read, or does not fit.
        branch: the branch of the wanted state; empty: that of the commit.
    """
    try:
        branch = branch or _branch_of(reader, seq)
        before = _last_readable(reader, seq, branch)
        if isinstance(error, UnsupportedFormat):
            hint = error.hint + _hint_beside(reader, branch, seq, before)
        else:
            hint = hint_for(reader, branch, seq, before)
    except PerdureError:  # the store itself fails: that is found by whoever goes back
        hint, before = error.hint, 0
    made = type(error)(error.problem, target=error.target, hint=hint, seq=seq, before=before)
    made.__cause__ = error.__cause__
    return made


def _hint_beside(reader: Readable, branch: str, seq: int, before: int) -> str:
    """Returns the hint for going on beside a commit that only a newer version can read, without
    undoing it."""
    if not before:
        return ""
    place = {} if branch in ("", MAIN) else {"branch": branch}
    fork = shell.perdure("fork", reader.name, f"before-{seq}", at=before, **place)
    state = shell.perdure("state", reader.name, at=before, **place)
    return (
        f"; or go on beside it from commit {before}, the last before it that this version can "
        f"read: `{fork}`; `{state}` shows it"
    )


def hint_for(reader: Readable, branch: str, seq: int, before: int) -> str:
    """Returns the hint for a commit that cannot be read: commands to paste."""
    agent = reader.name
    if branch == RETENTION:
        said = shell.perdure("trim", agent, before=1)
        return f"no state is lost with it; with `{said}` the log says anew what retention removed"
    verify = f"`{shell.perdure('verify', agent)}` says which commits are affected"
    if not before:
        return f"no commit before it can be read: restore the agent from a copy; {verify}"
    place = {} if branch in ("", MAIN) else {"branch": branch}
    ending = {"cancel_run": True} if reader.waited_on(branch) else {}
    back = shell.perdure("rollback", agent, str(before), **place, **ending)
    fork = shell.perdure("fork", agent, f"before-{seq}", at=before, **place)
    state = shell.perdure("state", agent, at=before, **place)
    return (
        f"go back to commit {before}, the last before it that can be read: `{back}`, or "
        f"`{fork}`; `{state}` shows it, `{shell.perdure('export', agent, until=before)}` writes "
        f"out everything until then; {verify}"
    )


def _branch_of(reader: Readable, seq: int) -> str:
    """Returns the branch of a commit; if that cannot be read, the branch of the one before it."""
    for at in range(seq, max(0, seq - TRIED_MAX), -1):
        try:
            if branch := reader.peek(at).branch:
                return branch
        except (Corrupt, UnsupportedFormat, NotFound):
            continue
    return MAIN


def _last_readable(reader: Readable, seq: int, branch: str) -> int:
    """Returns the last commit before `seq` whose state can be folded, of the branch, or of its
    origin; else of any branch; 0 if there is none."""
    for own in (True, False):
        below, tried = seq, 0
        for commit in reader.commits(1, seq - 1, newest_first=True, damaged_too=True):
            elsewhere = commit.branch != branch if own else commit.branch.startswith("@")
            if commit.seq >= below or commit.damaged or elsewhere:
                continue
            met = reader.can_fold(commit.seq)
            if not met:
                return commit.seq
            below, tried = min(below, met), tried + 1
            if tried == TRIED_MAX:
                break
    return 0
