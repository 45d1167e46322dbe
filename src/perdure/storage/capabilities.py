"""What a backend may do beside keeping logs, each under one name, which the backend declares.

Code that can do without one asks for it by `Capability.of`; what each promise of Perdure needs is
in docs/backends.md. The errors are those of the port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from msgspec import Struct

from perdure.model import AgentInfo, Lease, Message, MessageKind, RunInfo
from perdure.storage.answers import ExecutorRow, Mail, Serves, Sizes, Standing
from perdure.storage.appending import Append, Ref, Refused
from perdure.storage.port import LogStorage

C = TypeVar("C")


class Declares(Protocol):
    capabilities: frozenset[Any]


class Capability(Generic[C]):
    """One of the protocols here, to be asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Capability({self.name!r})"

    def of(self, backend: Declares) -> C | None:
        """The backend, as one that has this; None: it has not."""
        return cast("C", backend) if self in backend.capabilities else None


# -- runs -------------------------------------------------------------------------------------


class RunQuery(Struct, frozen=True):
    """Which rows of runs are asked for; each condition narrows.

    Attributes:
        status: only rows with one of these.
        limit: the most rows; None: all.
        after: id of the last run of the page before, in the same order. Unknown: no rows.
    """

    agent: str | None = None
    run_id: str | None = None
    unfinished: bool = False
    status: Sequence[str] | None = None
    function: str | None = None
    limit: int | None = None
    after: str | None = None
    newest_first: bool = False


EVERY_RUN = RunQuery()


class RunRows(Protocol):
    """Rows of runs, which commits write."""

    def runs(self, query: RunQuery = EVERY_RUN) -> list[RunInfo]:
        """Rows of runs, in the order in which they came to be."""
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


RUN_ROWS = Capability[RunRows]("run rows")


class Sent(Struct, frozen=True):
    """The message is in the inbox, durably, or was there before.

    Attributes:
        message: as it was put in. Of one that was taken out since, the value is MISSING; of a
            "start" for a run that began without one, `no` is 0, too.
        fresh: whether this call put it in. False: nothing was changed.
    """

    message: Message
    fresh: bool


class Inbox(Protocol):
    """Messages to runs: put in once each, and taken out by one commit."""

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
        self,
        run: str | None = None,
        *,
        agent: str | None = None,
        kind: MessageKind | None = None,
        name: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        after: int = 0,
    ) -> list[Message]:
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


INBOX = Capability[Inbox]("inbox")


class Leases(Protocol):
    """One owner at a time of a branch (I4)."""

    def lease(
        self,
        no: int,
        branch: str,
        executor: str | None,
        *,
        over: int | None = None,
        release: int | None = None,
    ) -> Lease | Ref:
        """Take or give back the lease of a branch, durably, in a transaction of its own (I4).

        Taken for `executor`, with the next epoch, if none is held or the one held is `over`.
        Given back if the epoch held is `release`; with `executor` None and `over`, broken.
        Returns the new lease; else the branch as it is.
        """
        ...


LEASES = Capability[Leases]("leases")


class Liveness(Protocol):
    """Who is there to execute runs."""

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


LIVENESS = Capability[Liveness]("liveness")


class Notices(Protocol):
    """Word between processes that there is something to do. Whoever has none of it looks."""

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


NOTICES = Capability[Notices]("notices")


# -- logs that come from elsewhere, or go -----------------------------------------------------


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


class Shipping(Protocol):
    """For stores that follow others, and for agents that move between stores."""

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


SHIPPING = Capability[Shipping]("shipping")


class Removal(Protocol):
    """Removing for good what was there: the logs of deleted agents, payloads of living ones."""

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


REMOVAL = Capability[Removal]("removal")


class Upkeep(Protocol):
    """Housekeeping of what the backend keeps its bytes in."""

    def maintain(
        self, what: Literal["sizes", "check", "clean", "shrink", "flush"], *, no: int | None = None
    ) -> Sizes:
        """Housekeeping: count bytes; read every page and check it; tidy the files; give the room
        that is free in them back to the system, which may keep all writers waiting; make all that
        was acknowledged durable.

        Raises:
            Corrupt: from "check", with what is damaged.
        """
        ...


UPKEEP = Capability[Upkeep]("upkeep")


class Backend(
    LogStorage, RunRows, Inbox, Leases, Liveness, Notices, Shipping, Removal, Upkeep, Protocol
):
    """A backend with all that a whole store needs."""


WHOLE: frozenset[Capability[Any]] = frozenset(
    {RUN_ROWS, INBOX, LEASES, LIVENESS, NOTICES, SHIPPING, REMOVAL, UPKEEP}
)
"""The capabilities of a `Backend`."""
