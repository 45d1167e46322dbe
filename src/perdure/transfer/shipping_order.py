"""The commits of a shipment to another store, and the order in which it takes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct, field

from perdure.core.format import chain
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import FINISHED, Commit
from perdure.storage.appending import Append, StoredSnapshot
from perdure.storage.capabilities import Backend
from perdure.storage.port import Fed
from perdure.system import logs

_log = logs.logger("perdure.replication")


def _ended_by(item: Append) -> list[tuple[str, str]]:
    return [(item.agent, run.id) for run in item.riders.runs if run.status in FINISHED]


class Load(Struct):
    """Commits that are about to be shipped, with the data to finish that."""

    appends: list[Append] = field(default_factory=list)
    snapshots: dict[tuple[str, int], tuple[int, Append]] = field(default_factory=dict)
    ended: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    commits: list[tuple[Commit, Append]] = field(default_factory=list)
    graves: list[Append] = field(default_factory=list)
    to_purge: list[tuple[str, int]] = field(default_factory=list)
    size: int = 0

    def agents(self) -> set[str]:
        """Returns the agents whose commits are in it."""
        items = {item.agent for item in [*self.appends, *self.graves]}
        return items | {agent for agent, _ in self.to_purge}

    def add(self, commit: Commit, item: Append) -> None:
        """Adds the next commit of an agent."""
        self.appends.append(item)
        self.commits.append((commit, item))
        self.ended += _ended_by(item)
        if item.riders.delete_agent:
            self.deleted.append(item.agent)

    def drop(self, agent: str, incarnation: int, first: int = 1) -> None:
        """Leaves out the commits of one incarnation of an agent, from a seq on."""

        def goes(item: Append) -> bool:
            return (item.agent, item.incarnation, item.seq >= first) == (agent, incarnation, True)

        self.commits = [(one, item) for one, item in self.commits if not goes(item)]
        self.appends = [item for _, item in self.commits]
        self.ended = [one for item in self.appends for one in _ended_by(item)]
        self.snapshots = {
            key: (no, one) for key, (no, one) in self.snapshots.items() if not goes(one)
        }

    def in_order(self) -> list[Load]:
        """Returns its parts, each for a transaction. An incarnation is taken only after the one
        before it, and graves come first in a shipment: so what is older than a grave goes before
        that."""
        graves: dict[str, set[int]] = {}
        for grave in self.graves:
            graves.setdefault(grave.agent, set()).add(grave.incarnation)
        oldest = {item.agent: item.incarnation for item in reversed(self.appends)}
        if not any(oldest.get(agent, 1 << 62) < max(found) for agent, found in graves.items()):
            return [self]
        parts: dict[int, Load] = {0: Load(to_purge=self.to_purge)} if self.to_purge else {}
        for grave in self.graves:
            stage = sum(one <= grave.incarnation for one in graves[grave.agent])
            part = parts.setdefault(stage, Load())
            part.graves.append(grave)
            part.deleted.append(grave.agent)
        for commit, item in self.commits:
            stage = sum(one < item.incarnation for one in graves.get(item.agent, ()))
            self._move(commit, item, parts.setdefault(stage, Load()))
        return [part for _, part in sorted(parts.items())]

    def of(self, agent: str) -> Iterator[Load]:
        """Yields one agent's part of it, commit by commit, so that as many as possible get in."""
        if gone := [one for one in self.to_purge if one[0] == agent]:
            yield Load(to_purge=gone)
        graves = [grave for grave in self.graves if grave.agent == agent]
        for commit, item in self.commits:
            if item.agent == agent:
                while graves and graves[0].incarnation < item.incarnation:
                    yield Load(graves=[graves.pop(0)], deleted=[agent])
                part = Load()
                self._move(commit, item, part)
                yield part
        for grave in graves:
            yield Load(graves=[grave], deleted=[agent])

    def _move(self, commit: Commit, item: Append, part: Load) -> None:
        """Moves one commit into a part of this."""
        key = item.agent, item.incarnation
        part.add(commit, item)
        if key in self.snapshots and self.snapshots[key][1] is item:
            part.snapshots[key] = self.snapshots[key]


def refuted_from(source: Backend, fed: Fed, load: Load) -> int:
    """Returns the seq from which on the loaded commits of a log are damaged, where the next one
    cannot be taken: that of the last, if the next one follows another header; else a seq that none
    has."""
    log = fed.agent, fed.incarnation
    last = max((one.seq for one in load.appends if (one.agent, one.incarnation) == log), default=0)
    with suppress(Corrupt, UnsupportedFormat):
        rows = source.read(fed.no, last, last + 1) if last else []
        if len(rows) == 2 and not chain.follows(rows[1].header, rows[0].header):
            return last
    return last + 1


def snapshot_of(source: Backend, no: int, item: Append) -> StoredSnapshot | None:
    """Returns a snapshot; None if it is not complete: it is only a cache."""
    try:
        found = source.snapshot(no, item.seq)
    except Corrupt as error:
        _log.warning("a snapshot of agent %r stays behind: %s", item.agent, error)
        return None
    whole = found is not None and set(found.leaf_ids) <= found.leaves.keys()
    return found if whole else None
