"""The storage port in a dict: for tests, for `perdure.testing.play`, and for state that may be
lost.

It keeps the promises of the SQLite backend except durability. Everything ends with the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Unpack

from msgspec.structs import replace

from perdure.core.format import chain
from perdure.errors import NotFound, StoreUnavailable
from perdure.missing import MISSING, Missing
from perdure.model import MAIN, AgentInfo, Lease, Message, RunInfo
from perdure.storage.answers import ExecutorRow, Mail, Serves, Sizes, Standing, serves_text
from perdure.storage.appending import Append, Appended, Outcome, Ref, Refused, StoredSnapshot
from perdure.storage.capabilities import EVERY_RUN, WHOLE, RunQuery, Sent, Shipment
from perdure.storage.clocks import Clock, wall_clock
from perdure.storage.cursors import foreign_cursor, number_of
from perdure.storage.listeners import LocalListeners
from perdure.storage.memory.agent import AgentLog, bury, note, purge, refusal, sizes_of, trim
from perdure.storage.memory.run_table import RunTable
from perdure.storage.memory.standings import Standings
from perdure.storage.memory.undoing import Undo
from perdure.storage.port import Fed, Feed, StoredCommit
from perdure.storage.shortcuts import LOOKS, AgentAndRun
from perdure.storage.standing import (
    ClosedError,
    check_after,
    no_such_agent,
    not_linked,
)
from perdure.storage.wanted import InboxConditions, InboxQuery
from perdure.system.locks import Lock


class MemoryBackend:
    """See `perdure.storage.capabilities.Backend`, whose promises these methods keep."""

    capabilities = WHOLE | {LOOKS}

    def __init__(self, name: str = "", *, clock: Clock = wall_clock) -> None:
        self.url = f"memory://{name}"
        self._clock = clock
        self._lock = Lock()
        self._agents: list[AgentLog] = []
        self._latest: dict[str, AgentLog] = {}
        self._arrivals: list[tuple[int, int]] = []
        self._standings = Standings()
        self._id = os.urandom(8).hex()
        self._leaves: dict[int, bytes] = {}
        self._undo = Undo()
        self._runs = RunTable(self._undo)
        self._executors: dict[str, tuple[int, str]] = {}
        self._listeners = LocalListeners()
        self._closed = False

    # -- writing ---------------------------------------------------------------------------

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        with self._lock:
            self._check_open()
            return [self._unless_closed(item) for item in batch]  # each one whole, or not at all

    def _unless_closed(self, item: Append) -> Outcome:
        try:
            self._check_closed(item.no or 0, f"agent {item.agent!r}")
            return self._append_all(item)
        except ClosedError as error:
            if self._undo:
                self._take_back()
            return error

    def _check_closed(self, no: int, target: str) -> None:
        self._standings.check_open(no, target, self.url)

    def _append_all(self, item: Append) -> Outcome:
        """Writes a commit with those that follow it: all, or none."""
        outcome = self._append(item)
        for follower in item.then:
            if isinstance(outcome, Appended):
                outcome = self._append(replace(follower, no=outcome.no))
        if isinstance(outcome, Appended):
            self._undo.keep()
        elif self._undo:
            self._take_back()
        return outcome

    def _take_back(self) -> None:
        self._undo.back()
        self._runs.in_order()

    def _append(self, item: Append) -> Outcome:
        latest = self._latest.get(item.agent)
        if item.no is None:
            if latest and not (latest.deleted and latest.incarnation < item.incarnation):
                return Refused("exists")
            agent = AgentLog(item.agent, len(self._agents) + 1, item.incarnation)
        else:
            agent = self._agents[item.no - 1]
        refused = refusal(agent, item, self._runs, self._leaves)
        if refused:
            return refused
        end = chain.commit_id(agent.last_header()) if agent.commits else b""
        if item.seq != len(agent.commits) + 1 or item.behind.id != end:
            return Refused("stale", agent.refs.get(item.branch))
        if item.no is None:
            self._undo.end(self._agents)
            self._undo.item(self._latest, item.agent)
            self._agents.append(agent)
            self._latest[item.agent] = agent
        self._write(agent, item)
        return Appended(agent.no)

    def _write(self, agent: AgentLog, item: Append) -> None:
        undo = self._undo
        undo.end(agent.commits)
        undo.end(self._arrivals)
        undo.item(agent.refs, item.branch)
        agent.commits.append((item.header, item.payload))
        self._arrivals.append((agent.no, item.seq))
        if item.expected is None:
            agent.refs[item.branch] = Ref(item.branch, "branch", item.seq)
        else:
            agent.move(item)
        if item.riders.key is not None:
            undo.item(agent.keys, item.riders.key[0])
            agent.keys[item.riders.key[0]] = (item.seq, item.riders.key[1])
        if item.snapshot is not None:
            for leaf in item.snapshot.leaves:
                undo.item(self._leaves, leaf)
            undo.item(agent.snapshots, item.seq)
            self._leaves.update(item.snapshot.leaves)
            agent.snapshots[item.seq] = replace(item.snapshot, leaves={})
        if item.riders.checkpoint is not None:
            name = item.riders.checkpoint.name
            undo.item(agent.refs, name)
            agent.refs[name] = Ref(
                name, "checkpoint", item.riders.checkpoint.seq, checkpoint=item.riders.checkpoint
            )
        if item.riders.drop_branch is not None:
            undo.item(agent.refs, item.riders.drop_branch)
            agent.refs[item.riders.drop_branch] = replace(
                agent.refs[item.riders.drop_branch], deleted=True
            )
        for message in item.riders.consumed:
            self._runs.consume(message)
        for run in item.riders.runs:
            self._runs.put(replace(run, agent_no=agent.no))
        for sent in item.riders.sends:
            self._put_in(sent)
        for known in item.riders.known:
            self._runs.know(known)
        if item.epoch_min:
            agent.raise_epoch(item.branch, item.epoch_min)
        if item.riders.release:
            agent.let_go(item.branch)
        if item.riders.delete_agent:
            note(undo, agent)
            self._runs.end_agent(agent.name)
            agent.end(purge=item.riders.purge)

    # -- reading ---------------------------------------------------------------------------

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        with self._lock:
            self._check_open()
            if incarnation is None:
                agent = self._latest.get(name)
                return agent.info() if agent else None
            agent = self._known(name, incarnation)
            return agent.info() if agent else None

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        with self._lock:
            self._check_open()
            names = sorted(n for n in self._latest if n.startswith(prefix) and n > after)
            live = (self._latest[name] for name in names)
            return [agent.info() for agent in live if not agent.deleted][:limit]

    def read(
        self,
        no: int,
        first: int,
        last: int,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:
        with self._lock:
            self._check_open()
            agent = self._agents[no - 1]
            first, last = max(first, 1), min(last, len(agent.commits))
            seqs = range(last, first - 1, -1) if newest_first else range(first, last + 1)
            if not agent.purged:
                seqs = seqs[:limit]
            found = (agent.stored(seq) for seq in seqs)
            return [commit for commit in found if commit is not None][:limit]

    def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
        with self._lock:
            self._check_open()
            place = self._place_of(cursor)
            entries: list[Fed] = []
            while len(entries) < limit and place < len(self._arrivals):
                no, seq = self._arrivals[place]
                place += 1
                agent = self._agents[no - 1]
                if commit := agent.stored(seq):
                    entries.append(Fed(no, agent.name, agent.incarnation, commit))
            return Feed(entries, f"{self._id}-{place}")

    def _place_of(self, cursor: str) -> int:
        if not cursor:
            return 0
        store, _, place = cursor.partition("-")
        arrived = number_of(place)
        if store != self._id or not 0 <= arrived <= len(self._arrivals):
            raise foreign_cursor(self.url)
        return arrived

    def ref(self, no: int, name: str) -> Ref | None:
        with self._lock:
            self._check_open()
            return self._agents[no - 1].refs.get(name)

    def refs(self, no: int) -> list[Ref]:
        with self._lock:
            self._check_open()
            return [ref for _, ref in sorted(self._agents[no - 1].refs.items())]

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        with self._lock:
            self._check_open()
            return self._agents[no - 1].keys.get(key)

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        with self._lock:
            self._check_open()
            found = self._agents[no - 1].snapshots.get(seq)
            if found is None:
                return None
            leaves = {i: self._leaves[i] for i in found.leaf_ids if i in self._leaves}
            return replace(found, leaves=leaves)

    def look(self, agent: str, run: str) -> AgentAndRun:
        """See `Looks.look`."""
        with self._lock:
            self._check_open()
            latest = self._latest.get(agent)
            rows = self._runs.of(agent, run)
            branch = next((row.branch for row in rows if row.id == run), MAIN)
            ref = latest.refs.get(branch) if latest is not None else None
            info = latest.info() if latest is not None else None
            return AgentAndRun(info, rows, self._runs.inbox(InboxQuery(run)), branch, ref, ())

    # -- runs and their inbox --------------------------------------------------------------

    def runs(self, query: RunQuery = EVERY_RUN) -> list[RunInfo]:
        with self._lock:
            self._check_open()
            return self._runs.find(query)

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        with self._lock:
            self._check_open()
            return self._runs.ready(now, limit)

    def next_wake(self) -> int:
        with self._lock:
            self._check_open()
            return self._runs.next_wake()

    def send(self, message: Message) -> Sent | Refused:
        with self._lock:
            self._check_open()
            return self._undo.kept(self._put_in(message))

    def _put_in(self, message: Message) -> Sent | Refused:
        agent = self._latest.get(message.agent)

        def check() -> None:
            own = self._standings.get(agent.no) if agent else None
            if own is None or own.closed:
                self._check_closed(0, "")

        return self._runs.send(message, self.now(), AgentLog.following(agent), check)

    def inbox(self, run: str | None = None, **conditions: Unpack[InboxConditions]) -> list[Message]:
        with self._lock:
            self._check_open()
            return self._runs.inbox(InboxQuery(run, **conditions))

    def mail(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Mail:
        with self._lock:
            self._check_open()
            return self._runs.mail(cursor, limit, self.url)

    # -- what comes from other stores ------------------------------------------------------

    def standing(self, no: int = 0) -> Standing | None:
        with self._lock:
            self._check_open()
            return self._standings.get(no)

    def stand(
        self, standing: Standing | None, no: int = 0, *, after: Standing | Missing | None = MISSING
    ) -> None:
        with self._lock:
            self._check_open()
            self._standings.put(standing, no, after, self.url)

    def ship(self, shipment: Shipment) -> None:
        with self._lock:
            self._check_open()
            undo, tables = self._undo, (self._latest, self._leaves, self._standings)
            for items in (self._agents, self._arrivals, *tables):
                undo.whole(items)
            for agent in self._agents:
                note(undo, agent)
            self._runs.note()
            try:
                self._ship(shipment)
            except BaseException:
                self._take_back()
                raise
            undo.keep()

    def _ship(self, shipment: Shipment) -> None:
        check_after(self._standings.get(0), shipment.after, self.url)
        for message in shipment.messages:
            self._runs.take_in(message)
        self._runs.last_no = max(self._runs.last_no, shipment.number_min)
        for grave in shipment.graves:
            self._bury(grave)
        for item in shipment.appends:
            outcome = self._append(self._addressed(item))
            if not isinstance(outcome, Appended):
                raise not_linked(item, outcome)
        for agent, incarnation in shipment.to_purge:
            self._find(agent, incarnation).mark()
        for message in shipment.messages:
            self._runs.take_in(message)  # what the end of a run took away is there again
        for number in shipment.taken:
            self._runs.consume(number)
        self._runs.forget_taken(shipment.forgotten)
        for name, incarnation, branch, epoch in shipment.epochs:
            self._find(name, incarnation).raise_epoch(branch, epoch)
        if shipment.standing is not None:
            self._standings[0] = shipment.standing

    def _bury(self, item: Append) -> None:
        agent = self._known(item.agent, item.incarnation)
        if agent is None:
            agent = AgentLog(item.agent, len(self._agents) + 1, item.incarnation)
            self._agents.append(agent)
            latest = self._latest.get(item.agent)
            if latest is None or latest.incarnation < item.incarnation:
                self._latest[item.agent] = agent
        bury(agent, item, self._runs, self._arrivals)

    def _addressed(self, item: Append) -> Append:
        """Returns it with the number of its agent, and removes any lease that would block it."""
        if item.seq == 1:
            return item
        agent = self._find(item.agent, item.incarnation)
        for name in (item.branch, item.riders.drop_branch):
            agent.let_go(name)
        return replace(item, no=agent.no, epoch=None)

    def _known(self, name: str, incarnation: int) -> AgentLog | None:
        wanted = name, incarnation
        return next((one for one in self._agents if (one.name, one.incarnation) == wanted), None)

    def _find(self, name: str, incarnation: int) -> AgentLog:
        agent = self._known(name, incarnation)
        if agent is None:
            raise no_such_agent(name, incarnation)
        return agent

    # -- leases and executors --------------------------------------------------------------

    def lease(
        self,
        no: int,
        branch: str,
        executor: str | None,
        *,
        over: int | None = None,
        release: int | None = None,
    ) -> Lease | Ref:
        with self._lock:
            self._check_open()
            refs = self._agents[no - 1].refs
            ref = refs.get(branch)
            if ref is None:
                raise NotFound("there is no such branch", target=f"branch {branch!r}")
            if release is not None:
                if ref.held == release:
                    refs[branch] = replace(ref, held=None, holder=None)
            elif executor is None:
                if over is not None and ref.held == over:
                    refs[branch] = replace(ref, epoch=ref.epoch + 1, held=None, holder=None)
            elif ref.held == over and not ref.deleted and ref.kind == "branch":
                self._check_closed(no, f"agent {self._agents[no - 1].name!r}")
                epoch = ref.epoch + 1
                refs[branch] = replace(ref, epoch=epoch, held=epoch, holder=executor)
                return Lease(no, branch, executor, epoch)
            return refs[branch]

    def heartbeat(self, executor: str, ttl_ms: int | None, serves: Serves = ()) -> None:
        with self._lock:
            self._check_open()
            if ttl_ms is None:
                self._executors.pop(executor, None)
            else:
                self._executors[executor] = self.now() + ttl_ms * 1000, serves_text(serves)

    def alive(self, executor: str) -> bool:
        with self._lock:
            self._check_open()
            return self._executors.get(executor, (0, ()))[0] > self.now()

    def executors(self) -> list[ExecutorRow]:
        with self._lock:
            self._check_open()
            return [
                ExecutorRow.of(executor, expires, serves, alive=expires > self.now())
                for executor, (expires, serves) in sorted(self._executors.items())
            ]

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        with self._lock:
            self._check_open()
            return self._listeners.listen(executor, callback)

    def notify(self, run_id: str, *, besides: str = "") -> None:
        self._listeners.notify(run_id, besides)

    # -- housekeeping ----------------------------------------------------------------------

    def to_purge(self, after: int = 0, limit: int = 1000) -> list[AgentInfo]:
        with self._lock:
            self._check_open()
            return [agent.info() for agent in self._agents[after:] if agent.purge][:limit]

    def purge(self, no: int, limit: int = 500) -> bool:
        with self._lock:
            self._check_open()
            agent = self._agents[no - 1]
            note(self._undo, agent)
            self._undo.whole(self._leaves)
            self._undo.end(self._arrivals)
            self._runs.note()
            more = purge(agent, limit, self._leaves, self._runs, self._arrivals)
            return self._undo.kept(more)

    def trim(
        self, no: int, word: int, remains: Mapping[int, bytes], snapshots: Sequence[int] = ()
    ) -> bool:
        with self._lock:
            self._check_open()
            agent = self._agents[no - 1]
            note(self._undo, agent)
            self._undo.whole(self._leaves)
            return self._undo.kept(trim(agent, word, remains, snapshots, self._leaves))

    def maintain(
        self, what: Literal["sizes", "check", "clean", "shrink", "flush"], *, no: int | None = None
    ) -> Sizes:
        if what != "sizes":
            return Sizes()
        with self._lock:
            self._check_open()
            agents = self._agents if no is None else [self._agents[no - 1]]
            return sizes_of(agents, self._leaves)

    def now(self) -> int:
        return self._clock()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Closes it. Named memories outlive their openers, so that a "reopened" store finds its
        agents."""
        if self.url == "memory://":
            self._closed = True
            self._listeners.close()

    def _check_open(self) -> None:
        if self._undo:  # of one who was interrupted
            self._take_back()
        if self._closed:
            raise StoreUnavailable("the store is closed", target=self.url, hint="open it again")
