"""The storage port: what a backend must do, and exactly what each call promises.

A backend keeps bytes, and a few projections that are written in the same transaction as the commit
they follow from. It knows nothing of states, deltas or schemas. `perdure.testing.BackendContract`
holds every backend to this page.

Errors: a backend raises `StoreUnavailable` (with its outcome), `Corrupt` or `UnsupportedFormat`;
an absent row is None or an empty list, and never the result of a failure (I12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from perdure.model import AgentInfo, Lease, Message, MessageKind, RunInfo
from perdure.storage.answers import ExecutorRow, Mail, Serves, Sizes, Standing
from perdure.storage.appending import Append, Outcome, Ref, Refused, StoredSnapshot


class StoredCommit(Struct, frozen=True, gc=False):
    """One entry of the log as bytes. `snapshotted`: whether a snapshot of its state is stored."""

    seq: int
    header: bytes
    payload: bytes
    snapshotted: bool


class Sent(Struct, frozen=True):
    """The message is in the inbox, durably, or was there before.

    Attributes:
        message: as it was put in. Of one that was taken out since, the value is MISSING; of a
            "start" for a run that began without one, `no` is 0, too.
        fresh: whether this call put it in. False: nothing was changed.
    """

    message: Message
    fresh: bool


class Fed(Struct, frozen=True):
    """One commit of the feed, and whose it is."""

    no: int
    agent: str
    incarnation: int
    commit: StoredCommit


class Feed(Struct, frozen=True):
    """A part of the feed over all agents.

    Attributes:
        cursor: give it to get what comes behind these. Opaque text, of this store only.
    """

    entries: list[Fed]
    cursor: str


class Shipment(Struct, frozen=True):
    """What another store had, on its way in. All of it gets in, or nothing.

    Attributes:
        appends: commits; `no` is None in all of them: the incarnation is found by its name and
            number, and the one with `seq` 1 creates it. Of their snapshots, leaves that are there
            already are left out. No lease is looked at.
        messages: with the numbers that they have, which must be free here, unless it is the
            same message: that one is left as it is. Those whose value is MISSING were taken out.
            `consumed` in the appends may name them, and then names only such as are not taken out.
        number_min: messages put in later by `send` get greater numbers than this.
        epochs: agent, incarnation, branch, and how high its epoch is afterwards at least.
        standing: the store's from now on; None: it stays as it is.
        graves: last commits of logs that were purged where they come from; linked to nothing. Where
            one is not there already, its incarnation is made if there is none, is deleted with
            its runs, and is to be purged; before the appends, which have nothing of these.
        taken: numbers of messages that commits took out where they come from, these ones or earlier
            ones. Those that are here are taken out, after all else: a message has no order among
            the commits, so none is refused for it.
        after: how this store stands. If it stands otherwise, nothing is written: somebody else
            ships into it, and knows more. None: that is not looked at.
    """

    appends: Sequence[Append] = ()
    messages: Sequence[Message] = ()
    number_min: int = 0
    epochs: Sequence[tuple[str, int, str, int]] = ()
    standing: Standing | None = None
    graves: Sequence[Append] = ()
    taken: Sequence[int] = ()
    after: Standing | None = None


class Backend(Protocol):
    """Synchronous and thread-safe. Reads see all commits that were answered before they began."""

    url: str

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        """Write commits in one transaction, each succeeding or failing alone (I2).

        Answers are in the batch's order; later appends see what earlier ones wrote. An exception
        as an answer is that commit's own; its outcome attribute says whether it may have happened.
        Only `append` is called by one thread at a time.
        """
        ...

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        """The latest incarnation of a name (deleted or not), or the one asked for."""
        ...

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        """Agents that are not deleted, by name, after `after`."""
        ...

    def read(self, no: int, first: int, last: int, *, newest_first: bool = False,
             limit: int | None = None) -> list[StoredCommit]:  # fmt: skip
        """The commits with first ≤ seq ≤ last, all from one moment."""
        ...

    def feed(self, cursor: str = "", *, limit: int = 1000) -> Feed:
        """What was committed, of all agents, deleted ones included, since a cursor was given.

        In order per agent; no order is promised between agents. Each commit at least once; one
        that commits late is never passed over. Empty when there is nothing new: its cursor is
        as good as the one before.

        Args:
            cursor: that of an earlier answer, kept for as long as one likes; empty: from the start.
            limit: the most entries; there may be fewer, and more behind them.

        Raises:
            NotFound: the cursor is not one of this store, or of one that was since restored from
                an older copy.
        """
        ...

    def ref(self, no: int, name: str) -> Ref | None:
        """One name of an agent, deleted ones included."""
        ...

    def refs(self, no: int) -> list[Ref]:
        """All names of an agent, deleted ones included, by name."""
        ...

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        """Where an idempotency key took effect, and the digest of what it was for."""
        ...

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        """The snapshot at a commit, with every leaf that its manifest names and is stored."""
        ...

    def runs(
        self, *, agent: str | None = None, run_id: str | None = None, unfinished: bool = False,
        status: Sequence[str] | None = None, function: str | None = None, limit: int | None = None,
        after: str | None = None, newest_first: bool = False,
    ) -> list[RunInfo]:  # fmt: skip
        """Rows of runs, in the order in which they came to be; each condition narrows.

        Args:
            status: only rows with one of these.
            after: id of the last run of the page before, in the same order. Unknown: no rows.
        """
        ...

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        """Runs that somebody could go on with now, each once.

        First, in the order of `due_since`, up to `limit`: pending ones, waiting ones whose timer
        is due or that have a message, unfinished ones with a message "cancel". Then, oldest first,
        up to `limit` running ones: whether their owner is dead, the caller finds out; those whose
        branch is held by another process's living executor may be left out. Costs what it
        returns, however many wait. Messages "start" are not in it: see `inbox`.
        """
        ...

    def next_wake(self) -> int:
        """The earliest timer of all waiting runs, in microseconds since 1970; 0: there is none."""
        ...

    def send(self, message: Message) -> Sent | Refused:
        """Put a message into a run's inbox, durably, in a transaction of its own.

        Needs no lease and no commit, and conflicts with neither. May be repeated: the same run,
        kind, name and key is put in once only.

        A commit that finishes the run takes out what is left in its inbox; one that deletes the
        agent ends the inboxes of all its runs, those that did not start yet too.

        Returns:
            Refused ``gone``: the run is finished, or there is neither a run nor a message "start"
            for one; or, for a "start", the incarnation of its agent (`incarnation_of` the run) is
            deleted, be it at this very moment. Never for a message that was put in before.

        Raises:
            TypeError: the value is not plain data.
            StoreUnavailable: nothing was put in, or its outcome is "unknown".
        """
        ...

    def inbox(
        self, run: str | None = None, *, agent: str | None = None, kind: MessageKind | None = None,
        name: str | None = None, limit: int | None = None, newest_first: bool = False,
        after: int = 0,
    ) -> list[Message]:  # fmt: skip
        """Messages that no commit took out yet, of one run, of one agent or of all, in the order
        they came; each condition narrows. Costs what it returns, and what `name` passes over.

        `after`: only those with greater numbers. The numbers of those to one run grow; not so those
        to several."""
        ...

    def mail(self, cursor: str = "", *, limit: int = 1000) -> Mail:
        """Messages that were put into inboxes since a cursor was given, of all agents, in the
        order of their numbers. Cursors, limit and errors are those of `feed`.

        Those that a commit took out since have MISSING as their value. What a run's end or an
        agent's deletion removed may be left out.
        """
        ...

    # What follows is for stores that follow others, and for agents that move between stores.

    def standing(self, no: int = 0) -> Standing | None:
        """What was last said of an agent, or, with 0, of the store; None: nothing."""
        ...

    def stand(self, standing: Standing | None, no: int = 0) -> None:
        """Say how an agent, or, with 0, the store stands from now on; durable. None: nothing is
        said of it any more, and, with 0, of none of its agents either.

        What is said of an agent goes before what is said of the store. Where it is closed, an
        `append` is answered, and taking a lease is refused, with a `ClosedError`, in the very
        transaction (I2): nothing that is committed later than this slips past it. A store that is
        closed takes no new agents either, and by `send` messages only for agents that are said
        to be open; the inbox of a closed agent in an open store stays open. Giving back and
        breaking leases, heartbeats and all reading go on. While nothing is closed, this costs a
        commit nothing.

        Raises:
            StoreUnavailable: its outcome says whether it may have been said.
        """
        ...

    def ship(self, shipment: Shipment) -> None:
        """Write what comes from another store, in one transaction, durably, also where this one is
        closed.

        Raises:
            OvertakenError: this store does not stand as `Shipment.after` says.
            Conflict: a commit does not link to what is here (I3), or a number is another
                message's; nothing was written.
            StoreUnavailable: its outcome says whether it may have been.
        """
        ...

    def lease(self, no: int, branch: str, executor: str | None, *,
              over: int | None = None, release: int | None = None) -> Lease | Ref:  # fmt: skip
        """Take or give back the lease of a branch, durably, in a transaction of its own (I4).

        Taken for `executor`, with the next epoch, if none is held or the one held is `over`.
        Given back if the epoch held is `release`; with `executor` None and `over`, broken.
        Returns the new lease; else the branch as it is.
        """
        ...

    def heartbeat(self, executor: str, ttl_ms: int | None, serves: Serves = ()) -> None:
        """Say that an executor lives for `ttl_ms` more; None: it has ended, forget it.

        Args:
            serves: names of the agent functions that it runs for others, and of which queues.
        """
        ...

    def executors(self) -> list[ExecutorRow]:
        """The executors that said that they live, and not that they ended, by id."""
        ...

    def alive(self, executor: str) -> bool:
        """Whether an executor may still be running: provably dead ones are not, expired ones
        neither. In doubt, the answer is True until its time is up."""
        ...

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback` with the run's id at every `notify`, by whatever process.

        On a thread of the backend; what the callback raises is logged. Best effort: a notice may
        get lost, so who listens also looks by itself from time to time. In a forked child nobody
        listens. A second one for the same executor replaces the first.

        Returns:
            What ends it; also closing the store does. A call that is under way may end after it.
        """
        ...

    def notify(self, run_id: str, *, besides: str = "") -> None:
        """Tell all who listen that there is something to do for a run; the executor `besides` may
        be left out. Never raises, never waits; nothing is promised."""
        ...

    def to_purge(self, after: int = 0, limit: int = 1000) -> list[AgentInfo]:
        """Deleted incarnations that are to be purged and are not yet, by number, after `after`."""
        ...

    def purge(self, no: int, limit: int = 500) -> bool:
        """Remove a part of what a deleted incarnation left, for good, in one transaction: about
        `limit` rows, and a few megabytes. What goes is its commits but the last one, which is its
        deletion, snapshots, leaves, keys, names and rows of runs. From the first part on it is
        `AgentInfo.purged`. Killed in between, or called again, it goes on where it was.

        The freed room is used again by the store. Whether somebody needs the log, the caller finds
        out before. It may be done in a store that is closed to writers.

        Returns:
            Whether there may be more: call it again.

        Raises:
            Conflict: it is not deleted.
            StoreUnavailable: a part more may be gone, or not.
        """
        ...

    def trim(
        self, no: int, word: int, remains: Mapping[int, bytes], snapshots: Sequence[int] = ()
    ) -> bool:
        """Put what retention leaves of some payloads, by seq, in their places, for good, in one
        transaction. The snapshots at some commits go with it, and those leaves that no other
        snapshot of the agent names. What may go, the caller finds out before, and has said in the
        log. It may be done again, and in a store that is closed to writers. With nothing to put, it
        finds out whether the caller may.

        Args:
            word: the head of the branch `@retention` as the caller knows it, 0: there is none.

        Returns:
            False: it is another one, and nothing was done.

        Raises:
            StoreUnavailable: all of it may be done, or nothing; or the caller may not.
        """
        ...

    def maintain(self, what: Literal["sizes", "check", "clean", "shrink", "flush"], *,
                 no: int | None = None) -> Sizes:  # fmt: skip
        """Housekeeping: count bytes; read every page and check it; tidy the files; give the room
        that is free in them back to the system, which may keep all writers waiting; make all that
        was acknowledged durable.

        Raises:
            Corrupt: from "check", with what is damaged.
        """
        ...

    def now(self) -> int:
        """The store's clock, in microseconds since 1970."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent; later calls raise `StoreUnavailable`."""
        ...
