"""Looking at all that a run needs to begin, or to go on, at once.

What is asked for one by one costs a round trip each where the store is far away, and a transaction
each where it is near; and it may change in between. So a backend may have more than `Backend` asks
for, `Looks`, and one that is far away `Far`: then a `Look` asks once, and answers from that. What
it did not ask for, it reads as it is wanted; with other backends, that is everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from perdure.errors import PerdureError
from perdure.model import UNFINISHED, AgentInfo, Lease, Message, MessageKind, RunInfo
from perdure.storage.appending import Append, Ref, StoredSnapshot
from perdure.storage.port import Backend, StoredCommit

CLAIM_S = 0.25
"""How long a claim keeps others from trying. Whoever claimed has taken the lease by then, or is
slow, or dead: then others try, too, and one of them gets it."""

COMMITS = 32
"""How many commits a look brings that is to be followed by reading the log: as many as the first
part of it that folding a state reads."""


class Seen(Struct, frozen=True):
    """What there was of an agent and of a run, all at one moment.

    Attributes:
        agent: its latest incarnation; None: there is none of that name.
        runs: in their order: those of that id, and the agent's unfinished ones.
        messages: what is in the run's inbox, in the order they came.
        branch: the run's, or main where it has not begun; `ref` is what the agent has there.
        commits: up to the branch's head, the last first, and dense; as many as were asked for, or
            all that there are; none, where the store is near.
    """

    agent: AgentInfo | None
    runs: Sequence[RunInfo]
    messages: Sequence[Message]
    branch: str
    ref: Ref | None
    commits: Sequence[StoredCommit]


class Looks(Protocol):
    """What a backend may have beside `Backend`, whose promises hold here, too."""

    def look(self, agent: str, run: str) -> Seen:
        """What there is, in one go; with `COMMITS` commits only where the run can begin or go on:
        it has not begun, or rests, and nobody has the branch's lease."""
        ...


class Far(Looks, Protocol):
    """What one that is far away may have, too."""

    def take(self, no: int, branch: str, executor: str, over: int | None, agent: str,
             run: str) -> tuple[Lease | Ref, Seen | None]:  # fmt: skip
        """As `Backend.lease`, for `executor`; and what there is under the lease, with `COMMITS`
        commits; None where it was not given."""
        ...

    def claim(self, runs: Sequence[str], executor: str) -> set[str]:
        """Those of the runs that nobody else has claimed within `CLAIM_S`, which `executor` claims
        now: it is about to take their leases, and others need not try. Nothing depends on it."""
        ...


Head = int | PerdureError
"""Where a branch ends: the seq of its last commit; 0: there is none, or it was deleted. Or why that
cannot be said of this one."""


class Heads(Protocol):
    """What a backend may have beside `Backend`, whose promises hold here, too."""

    def heads(self, places: Sequence[tuple[int, str]]) -> Sequence[Head]:
        """Where so many branches end, each of an agent's number and a name.

        Raises:
            PerdureError: nothing can be said of any of them.
        """
        ...


class AtHand(Protocol):
    """What a local backend may have beside `Backend`: for who must not wait, as an event loop."""

    def ref_at_hand(self, no: int, name: str) -> tuple[Ref | None] | None:
        """As `Backend.ref`, in a tuple; None: not without waiting for somebody else's work."""
        ...


class Reads(Protocol):
    """The part of `Backend` that the log of one agent is read by."""

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None: ...
    def ref(self, no: int, name: str) -> Ref | None: ...
    def refs(self, no: int) -> list[Ref]: ...
    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None: ...
    def read(self, no: int, first: int, last: int, *, newest_first: bool = False,
             limit: int | None = None) -> list[StoredCommit]: ...  # fmt: skip
    def runs(self, *, agent: str, unfinished: bool) -> list[RunInfo]: ...


_Take = Callable[
    [int, str, str, int | None, str, str], tuple[Lease | Ref, Seen | None]
]  # fmt: skip


class Look:
    """Reads of one agent and of one run. Between `again`, or `lease`, and `forget` what it answers
    may be as old as the former; else it is as new as the backend's own answers. For one thread.

    Args:
        run: an id; one that turns out to be another can be set later, before `again` or `lease`.
    """

    def __init__(self, backend: Backend, agent: str, run: str) -> None:
        self._backend = backend
        self._look: Callable[[str, str], Seen] | None = getattr(backend, "look", None)
        self._take: _Take | None = getattr(backend, "take", None)
        self._agent = agent
        self.run = run
        self._seen: Seen | None = None
        self._seen_run = ""
        self._commits: list[StoredCommit] = []

    # -- looking -------------------------------------------------------------------------------

    def again(self) -> Look:
        """Look at what there is now."""
        if self._look is not None:
            self._keep(self._look(self._agent, self.run))
        return self

    def lease(self, no: int, branch: str, executor: str, *, over: int | None = None) -> Lease | Ref:
        """As `Backend.lease`; and look at what there is under it."""
        if self._take is None:
            taken = self._backend.lease(no, branch, executor, over=over)
            if isinstance(taken, Lease):
                self.again()
            return taken
        answer, seen = self._take(no, branch, executor, over, self._agent, self.run)
        self._keep(seen)
        return answer

    def note(self, no: int, append: Append) -> None:
        """A commit that was just written to the agent's log."""
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
        """From now on, read what is there at each moment."""
        self._keep(None)

    def _keep(self, seen: Seen | None) -> None:
        self._seen, self._seen_run = seen, self.run
        self._commits = list(seen.commits) if seen is not None else []

    @property
    def of_one_moment(self) -> bool:
        """Whether what it answers was there all at once."""
        return self._seen is not None and self._seen_run == self.run

    # -- reading -------------------------------------------------------------------------------

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        """As `Backend.agent`."""
        seen = self._seen
        if seen is None or name != self._agent:
            return self._backend.agent(name, incarnation)
        if seen.agent is None or incarnation in (None, seen.agent.incarnation):
            return seen.agent
        return self._backend.agent(name, incarnation)

    def ref(self, no: int, name: str) -> Ref | None:
        """As `Backend.ref`."""
        seen = self._seen
        if seen is not None and name == seen.branch and seen.agent and seen.agent.no == no:
            return seen.ref
        return self._backend.ref(no, name)

    def refs(self, no: int) -> list[Ref]:
        """As `Backend.refs`."""
        return self._backend.refs(no)

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        """As `Backend.snapshot`."""
        return self._backend.snapshot(no, seq)

    def run_row(self) -> RunInfo | None:
        """The row of its run; None: it has not begun."""
        if self._seen is not None and self._seen_run == self.run:
            found = [row for row in self._seen.runs if row.id == self.run]
        else:
            found = self._backend.runs(run_id=self.run)
        return found[0] if found else None

    def unfinished(self) -> list[RunInfo]:
        """The agent's unfinished runs, in their order, of all its branches."""
        if self._seen is None:
            return self._backend.runs(agent=self._agent, unfinished=True)
        return [
            row for row in self._seen.runs if row.agent == self._agent and row.status in UNFINISHED
        ]

    def runs(self, *, agent: str, unfinished: bool) -> list[RunInfo]:
        """As `Backend.runs`, as new as that."""
        return self._backend.runs(agent=agent, unfinished=unfinished)

    def inbox(self, kind: MessageKind | None = None) -> list[Message]:
        """The messages to its run, or those of one kind, that no commit took out."""
        if self._seen is None or self._seen_run != self.run:
            return self._backend.inbox(self.run, kind=kind)
        return [message for message in self._seen.messages if kind in (None, message.kind)]

    def read(
        self, no: int, first: int, last: int, *, newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:  # fmt: skip
        """As `Backend.read`."""
        known = self._commits if self._seen and self._seen.agent else []
        here = self._seen and self._seen.agent and self._seen.agent.no == no
        if here and known and last <= known[0].seq and first >= known[-1].seq:
            found = [row for row in known if first <= row.seq <= last]
            return (found if newest_first else found[::-1])[:limit]
        return self._backend.read(no, first, last, newest_first=newest_first, limit=limit)
