"""Filling a store with what another had at a moment, also where retention came to that later."""

from __future__ import annotations

from functools import partial

from perdure.errors import Conflict
from perdure.model import AgentInfo, from_micros
from perdure.state.context import Context
from perdure.state.policy import SnapshotPolicy
from perdure.state.replication import Follower, living, raise_tokens
from perdure.state.trimming import Stays, trim
from perdure.storage.committer import Committer
from perdure.storage.port import Backend
from perdure.storage.reader import LogReader
from perdure.storage.retention import Trim


def restore(follower: Follower) -> tuple[int, int]:
    """Fill an empty target with the logs of a source as they were at a moment, and open it.

    What retention removed at the source since that moment is missing here, too, and said in the
    target's own logs: the word on it there is later than the moment.

    Args:
        follower: of kind "restoring", with its `until`.

    Returns:
        Commits and messages that came.

    Raises:
        Conflict: of the states of that moment, retention removed some.
        As `Follower.begin` and `Follower.step`.
    """
    source, target, until = follower.source, follower.target, follower.why.until
    for info in living(source):
        _trimmed_since(source, info, until)
    follower.begin()
    found = follower.drain()
    raise_tokens(target, None)
    target.stand(None)
    committer = Committer(target)
    context = Context(target, committer, SnapshotPolicy())
    for info in living(target):
        there = source.agent(info.name, info.incarnation)
        said = _trimmed_since(source, there, until) if there is not None else None
        if said is not None:
            trim(context, LogReader(target, info), said.before, partial(_stayed, said))
    committer.close()
    return found


def _stayed(said: Trim, horizon: int) -> Stays:
    """What the source kept: here no more goes."""
    kept = {seq for seq in range(1, horizon) if not said.has_removed(seq)}
    return {*said.bases} & kept, kept


def _trimmed_since(source: Backend, info: AgentInfo, until: int) -> Trim | None:
    """What retention removed of a log since a moment."""
    reader = LogReader(source, info)
    said = reader.trim()
    if said is None or reader.commit(said.at).at_micros <= until:
        return None
    first = reader.commit(said.before)
    if first.at_micros > until and reader.commit(1).at_micros <= until:
        raise Conflict(
            f"retention removed what was before {first.at.isoformat()}",
            target=f"agent {info.name!r} of {source.url}",
            hint=f"restore a moment from then on, {from_micros(until).isoformat()} is before",
        )  # fmt: skip
    return said
