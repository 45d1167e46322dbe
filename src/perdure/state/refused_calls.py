"""Errors for calls that a handle refuses."""

from __future__ import annotations

from perdure.errors import Conflict


class RefusedError(Conflict):
    """A call that is refused however often it is made."""

    retry = False


def inside_edit(agent: str) -> Conflict:
    return RefusedError(
        "not inside an open edit",
        target=f"agent {agent!r}",
        hint="end the block first, or use another handle: store.agent(…)",
    )


def stores_own(agent: str, branch: str) -> Conflict:
    return RefusedError(
        f"the branch {branch!r} belongs to the store and is read-only",
        target=f"agent {agent!r}",
        hint="fork it, or write to a branch of your own",
    )
