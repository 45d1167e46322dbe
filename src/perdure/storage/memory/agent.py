"""One incarnation of an agent in the memory backend, and its rest after a purge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.errors import Conflict
from perdure.model import AgentInfo
from perdure.storage.answers import Sizes
from perdure.storage.appending import Append, Ref, Refused, StoredSnapshot, misplaced, undroppable
from perdure.storage.memory.run_table import RunTable
from perdure.storage.memory.undoing import Undo
from perdure.storage.port import StoredCommit
from perdure.storage.retention import RETENTION


class AgentLog(Struct):
    """One incarnation. `commits` has None in place of purged ones."""

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

    @staticmethod
    def following(latest: AgentLog | None) -> int:
        """Returns the number of the first incarnation that is not deleted, after the latest one."""
        return 1 if latest is None else latest.incarnation + latest.deleted

    def info(self) -> AgentInfo:
        return AgentInfo(
            self.name, self.no, self.incarnation, self.deleted, len(self.commits), self.purged
        )

    def last_header(self) -> bytes:
        """Returns the last commit's header; empty if there is no commit yet. The last one is never
        purged."""
        last = self.commits[-1] if self.commits else None
        return last[0] if last is not None else b""

    def stored(self, seq: int) -> StoredCommit | None:
        found = self.commits[seq - 1]
        return None if found is None else StoredCommit(seq, *found, seq in self.snapshots)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the headers and payloads that are there."""
        return (commit for commit in self.commits if commit is not None)

    def move(self, item: Append) -> None:
        """Moves the branch's head to a commit, which may take the lease."""
        ref = replace(self.refs[item.branch], seq=item.seq)
        if item.riders.holder is not None and item.epoch is not None:
            ref = replace(ref, epoch=item.epoch, held=item.epoch, holder=item.riders.holder)
        self.refs[item.branch] = ref

    def raise_epoch(self, branch: str, least: int) -> None:
        if (ref := self.refs.get(branch)) is not None:
            self.refs[branch] = replace(ref, epoch=max(ref.epoch, least))

    def let_go(self, branch: str | None) -> None:
        """Removes a branch's lease, if there are both."""
        if branch is not None and (ref := self.refs.get(branch)) is not None:
            self.refs[branch] = replace(ref, held=None, holder=None)

    def end(self, *, purge: bool) -> None:
        self.deleted = True
        self.purge = purge
        for name, ref in self.refs.items():
            self.refs[name] = replace(ref, deleted=True, held=None, holder=None)

    def mark(self) -> None:
        """Marks it to be purged, as in `Shipment.to_purge`."""
        self.purge = self.purge or (self.deleted and not self.purged)


def note(undo: Undo, agent: AgentLog) -> None:
    """Notes an agent before any change of it; takes as long as its log is long."""
    for items in (agent.commits, agent.refs, agent.keys, agent.snapshots):
        undo.whole(items)
    for name in ("deleted", "purge", "purged"):
        undo.field(agent, name)


def refusal(
    agent: AgentLog, item: Append, runs: RunTable, leaves: Mapping[int, bytes]
) -> Refused | None:
    """Returns why a commit of a log that exists, or begins with it, does not get in; None if it
    does."""
    if item.riders.consumed and not runs.has_all(item.riders.consumed):
        return Refused("consumed")
    begun = [row.id for row in item.riders.runs if item.riders.holder]
    if runs.has_unread(item.riders.read_to, begun, item.riders.consumed):
        return Refused("unread")
    if runs.has_begun(item.riders.fresh, item.riders.consumed):
        return Refused("begun")
    if runs.has_ended(item.riders.going):
        return Refused("ended")
    if item.riders.starts_read and runs.has_start(item.agent, item.riders.consumed):
        return Refused("unread")
    if item.riders.key is not None and item.riders.key[0] in agent.keys:
        seq, asked = agent.keys[item.riders.key[0]]
        return Refused("key", seq=seq, asked=asked)
    taken = item.branch if item.expected is None else None
    for name in (taken, item.riders.checkpoint.name if item.riders.checkpoint else None):
        if name is not None and name in agent.refs:
            return Refused("exists", agent.refs[name])
    dropped = item.riders.drop_branch
    if dropped is not None and (
        refused := undroppable(agent.refs.get(dropped), item.riders.drop_head)
    ):
        return refused
    if agent.deleted:
        return Refused("gone")
    if item.riders.trims is not None and item.riders.trims != _head(agent, RETENTION):
        return Refused("trimmed", agent.refs.get(RETENTION))
    if item.snapshot is not None and any(
        leaf not in leaves and leaf not in item.snapshot.leaves for leaf in item.snapshot.leaf_ids
    ):
        return Refused("leaves")
    return misplaced(item, agent.refs.get(item.branch)) if item.expected is not None else None


def _head(agent: AgentLog, branch: str) -> int:
    ref = agent.refs.get(branch)
    return 0 if ref is None else ref.seq


def trim(
    agent: AgentLog,
    word: int,
    remains: Mapping[int, bytes],
    snapshots: Sequence[int],
    leaves: dict[int, bytes],
) -> bool:
    """See `Backend.trim`."""
    if _head(agent, RETENTION) != word:
        return False
    for seq, data in remains.items():
        commit = agent.commits[seq - 1]
        if commit is not None:
            agent.commits[seq - 1] = commit[0], data
    gone = {
        leaf
        for seq in snapshots
        if seq in agent.snapshots
        for leaf in agent.snapshots.pop(seq).leaf_ids
    }
    for leaf in gone.difference(*(one.leaf_ids for one in agent.snapshots.values())):
        leaves.pop(leaf, None)
    return True


def purge(
    agent: AgentLog,
    limit: int,
    leaves: dict[int, bytes],
    runs: RunTable,
    arrivals: list[tuple[int, int]],
) -> bool:
    """See `Backend.purge`."""
    if not agent.deleted:
        raise Conflict("is not deleted", target=f"agent {agent.name!r}")
    if not agent.purged:
        arrivals.append((agent.no, len(agent.commits)))
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
    runs.drop(agent.name, agent.no)
    agent.purge = False
    return False


def bury(agent: AgentLog, item: Append, runs: RunTable, arrivals: list[tuple[int, int]]) -> None:
    """Puts in one of `Shipment.graves`."""
    if len(agent.commits) >= item.seq:
        return
    agent.commits += [None] * (item.seq - 1 - len(agent.commits))
    agent.commits.append((item.header, item.payload))
    agent.end(purge=True)
    agent.purged = True
    runs.drop(agent.name, agent.no)
    runs.end_agent(agent.name)
    arrivals.append((agent.no, item.seq))


def sizes_of(agents: Sequence[AgentLog], leaves: Mapping[int, bytes]) -> Sizes:
    """See `Backend.maintain`."""
    commits = [commit for agent in agents for commit in agent.rows()]
    snapshots = [snap for agent in agents for snap in agent.snapshots.values()]
    ids = {i for snap in snapshots for i in snap.leaf_ids}
    return Sizes(
        len(commits),
        sum(len(h) for h, _ in commits),
        sum(len(p) for _, p in commits),
        len(snapshots),
        sum(len(s.manifest) for s in snapshots),
        len(ids),
        sum(len(leaves[i]) for i in ids),
    )
