"""The error for commits that this process knows, and that its store no longer has.

A server that crashed may lack what was acknowledged last, where that is within its promise; a
standby that follows late may be promoted, and a copy put back. Others write in the place of what is
lost: a number alone does not say that it is the same commit, or even the same agent.
"""

from __future__ import annotations

from perdure.errors import Corrupt

HINT = (
    "the store lost what was written last (a server crashed, a standby that was behind was "
    "promoted), or an older copy was put back: look at the log (`perdure log`) and at what the "
    "tools did; the next call goes on with the log as it is"
)


class LostCommitsError(Corrupt):
    """The log lacks a commit that this process knows."""


def lost_parent(agent: str, seq: int) -> LostCommitsError:
    """Returns the error for a commit made on one that is not in the log: nothing was written."""
    return LostCommitsError(
        f"this was made on a commit {seq} that is not in the log: another one has its place",
        target=f"agent {agent!r}",
        hint=HINT,
    )
