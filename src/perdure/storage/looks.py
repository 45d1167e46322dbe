"""Reading everything that a run needs to begin, or to resume, at once.

Separate questions cost a round trip each to a distant store, and a transaction each in a near one;
and the answers may change in between. So a backend may have `LOOKS`, and a distant one
`FAR_LEASES`: then a `Look` asks once, and answers from that. Anything else it reads when needed;
with other backends, that is everything.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import replace

from perdure.model import UNFINISHED, AgentInfo, Lease, Message, MessageKind, RunInfo
from perdure.storage.appending import Append, Ref, StoredSnapshot
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.port import StoredCommit
from perdure.storage.shortcuts import FAR_LEASES, LOOKS, AgentAndRun


class Reads(Protocol):
    """The part of `Backend` that reads one agent's log."""

    capabilities: frozenset[Any]

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None: ...
    def ref(self, no: int, name: str) -> Ref | None: ...
    def refs(self, no: int) -> list[Ref]: ...
    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None: ...
    def read(
        self,
        no: int,
        first: int,
        last: int,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]: ...
    def runs(self, query: RunQuery) -> list[RunInfo]: ...


class Look:
    """Reads of one agent and of one run. Between `again`, or `lease`, and `forget` its answers may
    be as old as the former; otherwise they are as new as the backend's own. For one thread.

    Args:
        run: an id; it can be set later, before `again` or `lease`.
    """

    capabilities: frozenset[Any] = frozenset()

    def __init__(self, backend: Backend, agent: str, run: str) -> None:
        self._backend = backend
        self._looks, self._leases = LOOKS.of(backend), FAR_LEASES.of(backend)
        self._agent = agent
        self.run = run
        self._seen: AgentAndRun | None = None
        self._seen_run = ""
        self._commits: list[StoredCommit] = []

    # -- looking -------------------------------------------------------------------------------

    def again(self) -> Look:
        """Reads everything again."""
        if self._looks is not None:
            self._keep(self._looks.look(self._agent, self.run))
        return self

    def lease(self, no: int, branch: str, executor: str, *, over: int | None = None) -> Lease | Ref:
        """Takes a lease like `Backend.lease`; and reads everything under it."""
        if self._leases is None:
            taken = self._backend.lease(no, branch, executor, over=over)
            if isinstance(taken, Lease):
                self.again()
            return taken
        answer, seen = self._leases.take(no, branch, executor, over, self._agent, self.run)
        self._keep(seen)
        return answer

    def note(self, no: int, append: Append) -> None:
        """Notes a commit that was just written to the agent's log."""
        seen, commits = self._seen, self._commits
        if seen is None or append.agent != self._agent:
            return
        if seen.agent is None or seen.agent.no != no:
            if append.seq != 1:
                return
            commits.clear()  # of a deleted one
            made = AgentInfo(append.agent, no, append.incarnation, False, append.seq)
            self._seen = replace(seen, agent=made, branch="")
        if not commits or commits[0].seq + 1 != append.seq:  # else there is another's in between
            commits.clear()
        commits.insert(
            0, StoredCommit(append.seq, append.header, append.payload, append.snapshot is not None)
        )

    def forget(self) -> None:
        """Makes later reads ask the backend each time."""
        self._keep(None)

    def _keep(self, seen: AgentAndRun | None) -> None:
        self._seen, self._seen_run = seen, self.run
        self._commits = list(seen.commits) if seen is not None else []

    @property
    def of_one_moment(self) -> bool:
        """True if its answers come from one moment."""
        return self._seen is not None and self._seen_run == self.run

    # -- reading -------------------------------------------------------------------------------

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        """See `Backend.agent`."""
        seen = self._seen
        if seen is None or name != self._agent:
            return self._backend.agent(name, incarnation)
        if seen.agent is None or incarnation in (None, seen.agent.incarnation):
            return seen.agent
        return self._backend.agent(name, incarnation)

    def ref(self, no: int, name: str) -> Ref | None:
        """See `Backend.ref`."""
        seen = self._seen
        if seen is not None and name == seen.branch and seen.agent and seen.agent.no == no:
            return seen.ref
        return self._backend.ref(no, name)

    def refs(self, no: int) -> list[Ref]:
        """See `Backend.refs`."""
        return self._backend.refs(no)

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        """See `Backend.snapshot`."""
        return self._backend.snapshot(no, seq)

    def run_row(self) -> RunInfo | None:
        """Returns the row of its run; None if it has not begun."""
        if self._seen is not None and self._seen_run == self.run:
            found = [row for row in self._seen.runs if row.id == self.run]
        else:
            found = self._backend.runs(RunQuery(run_id=self.run))
        return found[0] if found else None

    def unfinished(self) -> list[RunInfo]:
        """Returns the agent's unfinished runs, in their order, of all its branches."""
        if self._seen is None:
            return self._backend.runs(RunQuery(agent=self._agent, unfinished=True))
        return [
            row for row in self._seen.runs if row.agent == self._agent and row.status in UNFINISHED
        ]

    def runs(self, query: RunQuery) -> list[RunInfo]:
        """See `Backend.runs`; always asks the backend."""
        return self._backend.runs(query)

    def inbox(self, kind: MessageKind | None = None) -> list[Message]:
        """Returns the messages to its run, or those of one kind, that no commit took out."""
        if self._seen is None or self._seen_run != self.run:
            return self._backend.inbox(self.run, kind=kind)
        return [message for message in self._seen.messages if kind in (None, message.kind)]

    def read(
        self,
        no: int,
        first: int,
        last: int,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:
        """See `Backend.read`."""
        known = self._commits if self._seen and self._seen.agent else []
        here = self._seen and self._seen.agent and self._seen.agent.no == no
        if here and known and last <= known[0].seq and first >= known[-1].seq:
            found = [row for row in known if first <= row.seq <= last]
            return (found if newest_first else found[::-1])[:limit]
        return self._backend.read(no, first, last, newest_first=newest_first, limit=limit)
