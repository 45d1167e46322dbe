"""One incarnation of an agent in the memory backend, and what is left of it when it is purged."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.errors import Conflict
from perdure.model import AgentInfo
from perdure.storage.port import Append, Ref, StoredCommit, StoredSnapshot
from perdure.storage.run_table import RunTable


class Agent(Struct):
    """`commits` has None in place of those that were purged."""

    name: str
    no: int
    incarnation: int
    deleted: bool = False
    purge: bool = False
    purged: bool = False
    commits: list[tuple[bytes, bytes] | None] = field(default_factory=list)
    refs: dict[str, Ref] = field(default_factory=dict)
    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    snapshots: dict[int, StoredSnapshot] = field(default_factory=dict)

    def copy(self) -> Agent:
        return replace(
            self, commits=list(self.commits), refs=dict(self.refs), keys=dict(self.keys),
            snapshots=dict(self.snapshots),
        )  # fmt: skip

    def info(self) -> AgentInfo:
        return AgentInfo(
            self.name, self.no, self.incarnation, self.deleted, len(self.commits), self.purged
        )

    def last_header(self) -> bytes:
        """Empty, where there is no commit yet. The last one is never purged."""
        last = self.commits[-1] if self.commits else None
        return last[0] if last is not None else b""

    def stored(self, seq: int) -> StoredCommit | None:
        found = self.commits[seq - 1]
        return None if found is None else StoredCommit(seq, *found, seq in self.snapshots)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Headers and payloads that are there."""
        return (commit for commit in self.commits if commit is not None)

    def move(self, item: Append) -> None:
        """The branch's head to a commit, which may take the lease."""
        ref = replace(self.refs[item.branch], seq=item.seq)
        if item.holder is not None and item.epoch is not None:
            ref = replace(ref, epoch=item.epoch, held=item.epoch, holder=item.holder)
        self.refs[item.branch] = ref

    def end(self, *, purge: bool) -> None:
        self.deleted = True
        self.purge = purge
        for name, ref in self.refs.items():
            self.refs[name] = replace(ref, deleted=True, held=None, holder=None)


def purge(agent: Agent, limit: int, leaves: dict[int, bytes], runs: RunTable) -> bool:
    """As `Backend.purge`."""
    if not agent.deleted:
        raise Conflict("is not deleted", target=f"agent {agent.name!r}")
    agent.purge = agent.purged = True
    there = [at for at, commit in enumerate(agent.commits[:-1]) if commit is not None]
    for at in there[:limit]:
        agent.commits[at] = None
        for leaf in agent.snapshots.pop(at + 1, StoredSnapshot(b"")).leaf_ids:
            leaves.pop(leaf, None)
    if len(there) > limit:
        return True
    agent.snapshots.clear()
    agent.keys.clear()
    agent.refs.clear()
    runs.rows = {key: row for key, row in runs.rows.items() if row.agent_no != agent.no}
    agent.purge = False
    return False


def bury(agent: Agent, item: Append, runs: RunTable) -> bool:
    """As `Shipment.graves`; whether it was not there."""
    if len(agent.commits) >= item.seq:
        return False
    agent.commits += [None] * (item.seq - 1 - len(agent.commits))
    agent.commits.append((item.header, item.payload))
    agent.end(purge=True)
    agent.purged = True
    runs.rows = {key: row for key, row in runs.rows.items() if row.agent_no != agent.no}
    runs.end_agent(agent.name)
    return True
