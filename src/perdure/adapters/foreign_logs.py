"""Logs whose states somebody else computes: a framework's threads.

A working copy captures what a user changes in one state. A framework gives whole values, each for a
commit of its choice; its adapter computes the delta by itself, and writes it here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.bounds import index_key
from perdure.core.arguments.checks import flag, flags
from perdure.core.arguments.names import check_cause, check_name, check_words
from perdure.core.format import chain
from perdure.core.values import ops
from perdure.core.values.fitting_ops import check_fits
from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain
from perdure.errors import NotFound, StoreUnavailable, Unstorable
from perdure.model import MAIN, AgentInfo, Cause, Commit
from perdure.retention.purging import Purged, sweep
from perdure.retention.trimming import TellStays, Trimmed, trim
from perdure.state.commit_lookup import Where, horizon
from perdure.state.context import Context
from perdure.state.snapshot_age import SinceSnapshot
from perdure.storage.appending import Riders
from perdure.storage.keys import find_key, find_keys
from perdure.storage.log.proposals import Proposal
from perdure.storage.log.reader import SEQ_END, Folded, LogReader
from perdure.storage.log.refusals import KeyUsedError as KeyUsedError
from perdure.storage.retention import Trim as Retained
from perdure.transfer.living_agents import living

P = ParamSpec("P")
R = TypeVar("R")


class Held(Struct, frozen=True):
    """A state at a commit, in memory, with the data for its next snapshot.

    Nobody changes `state`: later states share its unchanged parts. `since` is None if only its
    place in the log is known. `id`: of the commit, if known: what is made on it gets in only behind
    that very one.
    """

    seq: int
    state: Plain
    since: SinceSnapshot | None
    id: bytes = b""


Step = tuple[Sequence[Op], Plain, Cause, Sequence[Mapping[str, Any]]]
"""One commit to append: its delta, the state that this leads to, why, and records."""


class ForeignLogs:
    """The agents of one foreign schema in an open store. Safe to share between threads."""

    def __init__(self, context: Context, schema_id: str, version: tuple[int, int]) -> None:
        self.context = context
        self.schema = schema_id, version

    @property
    def url(self) -> str:
        return self.context.backend.url

    def look(self, name: str) -> AgentInfo | None:
        """Returns the latest incarnation of a name, deleted or not, with its last seq. Costs one
        look-up.

        Raises:
            ValueError: it cannot name an agent.
            StoreUnavailable: the store is closed.
        """
        self.check_open()
        return self.context.backend.agent(check_name(name, "an agent"))

    def now(self) -> int:
        """Returns the store's clock, in microseconds since 1970."""
        return self.context.backend.now()

    def check_open(self) -> None:
        """Raises StoreUnavailable after close: an in-memory store that others have open would still
        answer."""
        if self.context.closed:
            raise StoreUnavailable("the store is closed", target=self.url, hint="open it again")

    def log(self, info: AgentInfo) -> ForeignLog:
        return ForeignLog(self, info)

    def incarnation(self, name: str, incarnation: int) -> ForeignLog | None:
        """Returns the log of one incarnation, which may be deleted."""
        info = self.context.backend.agent(name, incarnation)
        return None if info is None else ForeignLog(self, info)

    def all(self) -> Iterator[AgentInfo]:
        """Yields the agents of this schema that are not deleted, by name.

        Damage in another agent concerns nobody here: an agent's schema is read from the header of
        its first commit. One whose header cannot be read may be of this schema, and is yielded.
        """
        yield from filter(self._may_be_one, living(self.context.backend))

    def _may_be_one(self, info: AgentInfo) -> bool:
        first = next(self.log(info).commits(1, 1, damaged_too=True), None)
        return first is None or first.schema_id in ("", self.schema[0])

    def purge(self, seconds: float, of: AgentInfo | None = None) -> Purged:
        """Removes what was deleted to be purged, for about this long; `of`: see `sweep`."""
        return sweep(self.context.backend, seconds, of)

    def create(
        self,
        name: str,
        state: Plain,
        cause: Cause,
        *,
        records: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[ForeignLog, Held]:
        """Makes an agent by its first commit, on the branch ``main``.

        Raises:
            ValueError, TypeError: it cannot name an agent.
            Conflict: it was created in the meantime.
        """
        name = check_name(name, "an agent")
        info = self.context.backend.agent(name)
        number = 1 if info is None else info.incarnation + 1
        since = SinceSnapshot()
        self.check_open()
        payload = chain.pack_payload([ops.Set((), state)], records)
        proposal = self._propose(name, number, None, MAIN, (), None, cause, payload)
        committed = self.context.committer.submit(proposal)
        since.note((ops.Set((), state),), len(payload.data))
        since.begin_ageing(committed.at_micros)
        made = AgentInfo(name, committed.no, number, False, committed.seq)
        return ForeignLog(self, made), Held(committed.seq, state, since, committed.id)

    def _propose(
        self,
        name: str,
        incarnation: int,
        no: int | None,
        branch: str,
        parents: tuple[int, ...],
        expected: int | None,
        cause: Cause,
        payload: chain.Payload,
        parent_id: bytes = b"",
    ) -> Proposal:
        check_cause(cause)
        kind, run, step = (
            word if word is None else check_words(word, "each word of a cause")
            for word in (cause.kind, cause.run, cause.step)
        )
        cause = replace(cause, kind=kind, run=run, step=step)
        if not all(type(seq) is int for seq in cause.refers):
            raise TypeError("a commit refers to others by their numbers")
        draft = chain.Draft(
            name,
            incarnation,
            branch,
            parents,
            *self.schema,
            self.context.executor,
            0,
            cause,
            payload,
            parent_id,
        )
        key = None if cause.key is None else (index_key(cause.key), b"")
        return Proposal(draft, no, expected, Riders(key=key))

    async def in_thread(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a blocking function on one of the store's own threads; see `Context.in_thread`."""
        return await self.context.in_thread(fn, *args, **kwargs)


class ForeignLog:
    """The log of one incarnation of an agent. What is read is checked, as everywhere (I11)."""

    def __init__(self, logs: ForeignLogs, info: AgentInfo) -> None:
        self._logs = logs
        self._backend = logs.context.backend
        self._reader = LogReader(self._backend, info)
        self.info = info

    def key(self, key: str) -> int | None:
        """Returns the seq of the commit that an idempotency key made; None if there is none."""
        found = find_key(self._backend, self.info.no, key)
        return None if found is None else found[0]

    def keys(self, keys: Sequence[str]) -> dict[str, int]:
        """Returns the seqs of the commits that many keys made; those that made none are left
        out."""
        return find_keys(self._backend, self.info.no, keys)

    def head(self, branch: str, *, ever: bool = False) -> int | None:
        """Returns the seq of a branch's head; None if there is no branch of that name, 0 if it was
        deleted.

        Args:
            ever: True for the last head of a deleted one, too.
        """
        flag(ever, "ever=")
        ref = self._backend.ref(self.info.no, branch)
        if ref is None:
            return None
        return 0 if (ref.deleted and not ever) or ref.kind != "branch" else ref.seq

    def branches(self, *, ever: bool = False) -> list[tuple[str, int]]:
        """Returns names and heads of the branches; deleted ones only if `ever`."""
        flag(ever, "ever=")
        return [
            (ref.name, ref.seq)
            for ref in self._backend.refs(self.info.no)
            if ref.kind == "branch" and (ever or not ref.deleted)
        ]

    def commit(self, seq: int) -> Commit:
        return self._reader.commit(seq)

    def commits(
        self,
        first: int = 1,
        last: int | None = None,
        *,
        newest_first: bool = False,
        damaged_too: bool = False,
    ) -> Iterator[Commit]:
        """Yields commits of all branches in order, each checked against its neighbour.

        Args:
            damaged_too: also yields the readable parts of damaged commits; nothing is compared
                then, so the caller has to check what it relies on.
        """
        flags(newest_first=newest_first, damaged_too=damaged_too)
        last = SEQ_END if last is None else last
        return self._reader.commits(first, last, newest_first=newest_first, damaged_too=damaged_too)

    def retained(self) -> Retained | None:
        """Returns what retention left of the log, as the log says; None if it removed nothing."""
        return self._reader.trim()

    def has_state(self, seq: int) -> bool:
        """True if retention left the state at a commit."""
        try:
            self._reader.kept(seq)
        except NotFound:
            return False
        return True

    def at(self, seq: int) -> Held:
        """Returns the state at a commit, newly folded: the caller may keep and change it."""
        return _held(self._reader.fold(seq))

    def at_last_of(self, commits: Sequence[Commit]) -> Held:
        """Returns the state at the last of some commits read from here: all that lead to it, from
        the log's first on. They are not changed."""
        folded = self._reader.fold_read(commits)
        return self.at(commits[-1].seq) if folded is None else _held(folded)

    def spend(self, state: Plain, commit: Commit) -> Plain:
        """Applies one more commit to a state, in place; returns the state. The commit's values
        become part of it."""
        return self._reader.spend(state, commit)

    def append(
        self,
        base: Held,
        delta: Sequence[Op],
        state: Plain,
        cause: Cause,
        *,
        branch: str,
        new: bool = False,
        records: Sequence[Mapping[str, Any]] = (),
        folded: bool = False,
    ) -> Held:
        """Makes one commit on top of `base`, durable when this returns.

        The delta is folded onto `base.state` before it is sent: one that does not fit would make
        the agent unreadable from there on.

        Args:
            delta: the change from `base.state` to `state`; the tree and the ops may share values.
                The result of the delta counts, also in a snapshot.
            branch: its head must be `base`, unless it is `new`.
            cause: its `key`, if it has one, must be new to the agent.
            folded: True if the caller made `state` from `base.state` by these changes, in place:
                there is nothing left to fold them onto.

        Raises:
            Unstorable: the delta does not fit the state; nothing was written.
            Conflict: the head has moved, the name is taken, or (`KeyUsedError`) the key was used.
            NotFound: the agent or the branch was deleted.
            StoreUnavailable: its outcome says whether it may have been written.
        """
        delta = tuple(delta)
        since = base.since
        if new and since is not None:
            since = copy.deepcopy(since)  # the line that it leaves goes on with its own
        self._logs.check_open()
        branch, new, folded = (
            check_name(branch, "a branch"),
            flag(new, "new="),
            flag(folded, "folded="),
        )
        if delta and not folded:
            state = self._fold(base, delta)
        step = (delta, state, cause, records)
        proposal, size = self._propose(base, step, branch, new=new)
        if new:
            proposal.riders = replace(proposal.riders, trims=self._reader.kept(base.seq))
        stored: Callable[[int], None] | None = None
        try:
            if since is not None:
                stored = self._note(proposal, since, base.seq, step, size)
            committed = self._logs.context.committer.submit(proposal)
        except BaseException:
            if since is not None:
                since.doubt()
            raise
        if stored is not None and since is not None:
            since.wrote(proposal, stored, committed.at_micros)
        return Held(committed.seq, state, since, committed.id)

    def _fold(self, base: Held, delta: Sequence[Op]) -> Plain:
        first = delta[0]
        replaced = type(first) is ops.Set and first.path == ()
        state = base.state if base.state is not None or replaced else self.at(base.seq).state
        try:
            return check_fits(state, delta)
        except ops.OpError as error:
            raise Unstorable(
                f"its delta does not fit the state of commit {base.seq}: {error}",
                target=self._reader.target(),
                hint="nothing was written; compute the delta again from that state",
            ) from error

    def _propose(
        self, base: Held, step: Step, branch: str, *, new: bool = False
    ) -> tuple[Proposal, int]:
        """Returns the proposal, and the size of its payload in bytes."""
        delta, _, cause, records = step
        info, payload = self.info, chain.pack_payload(delta, records)
        proposal = self._logs._propose(
            info.name,
            info.incarnation,
            info.no,
            branch,
            (base.seq,),
            None if new else base.seq,
            cause,
            payload,
            base.id,
        )
        return proposal, len(payload.data)

    def _note(
        self, proposal: Proposal, since: SinceSnapshot, parent: int, step: Step, size: int
    ) -> Callable[[int], None] | None:
        """Notes one more commit, and gives it a snapshot if one is due; returns the function to
        call, with its time, once that is stored."""
        delta, state, _, _ = step
        since.note(delta, size)
        # The cause as written: the caller's may hold words that equal anything.
        if not since.due(self._logs.context, proposal.draft.cause):
            return None
        info = self.info
        proposal.snapshot, stored = since.write(state, info.name, info.incarnation, parent)
        return stored

    def trim(self, before: Where | timedelta, stays: TellStays) -> Trimmed:
        """Removes what is before a commit, a moment, or of an age; see `trimming.trim`."""
        context = self._logs.context
        return trim(
            context, self._reader, horizon(self._reader, before, context.backend.now()), stays
        )

    def begin(self, seq: int) -> Held:
        """Returns the place of a commit, for one that replaces the whole state after it."""
        since = SinceSnapshot()
        since.begin_ageing(self._backend.now())
        return Held(seq, None, since)


def _held(folded: Folded) -> Held:
    since = SinceSnapshot()
    since.begin(folded, migrated=False)
    return Held(folded.seq, folded.state, since, folded.id)


def moved(base: Held, seq: int) -> Held:
    """Returns the same state at a later commit, which did not change it."""
    return replace(base, seq=seq, id=b"")


__all__ = ["ForeignLog", "ForeignLogs", "Held", "KeyUsedError", "Retained", "Step", "moved"]
