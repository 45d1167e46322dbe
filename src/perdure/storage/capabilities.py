"""Optional abilities of a backend besides keeping logs, each under one name, which the backend
declares.

Code that can do without one asks for it by `Capability.of`; docs/backends.md lists the capabilities
that each promise of Perdure needs. The errors are those of the port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, Unpack, cast

from msgspec import Struct

from perdure.missing import MISSING, Missing
from perdure.model import AgentInfo, Lease, Message, RunInfo
from perdure.storage.answers import ExecutorRow, Mail, Serves, Sizes, Standing
from perdure.storage.appending import Append, Ref, Refused
from perdure.storage.port import LogStorage
from perdure.storage.wanted import InboxConditions

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
        """Returns the backend as one that has this capability; None if it does not."""
        return cast("C", backend) if self in backend.capabilities else None


# -- runs -------------------------------------------------------------------------------------


class RunQuery(Struct, frozen=True):
    """A query for rows of runs; each condition narrows it.

    Attributes:
        status: only rows with one of these.
        parent: only runs that this run started; empty: only those that no run started.
        limit: the most rows; None: all.
        after: id of the last run of the previous page, in the same order; an unknown id gives no
            rows.
    """

    agent: str | None = None
    run_id: str | None = None
    unfinished: bool = False
    status: Sequence[str] | None = None
    function: str | None = None
    parent: str | None = None
    limit: int | None = None
    after: str | None = None
    newest_first: bool = False


EVERY_RUN = RunQuery()


class RunRows(Protocol):
    """Rows of runs, which commits write."""

    def runs(self, query: RunQuery = EVERY_RUN) -> list[RunInfo]:
        """Returns rows of runs, in the order in which they were created."""
        ...

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        """Returns runs that somebody could resume now, each once.

        First, in the order of `due_since`, up to `limit`: pending ones, waiting ones whose timer is
        due or that have a message, unfinished ones with a message "cancel". Then, oldest first, up
        to `limit` running ones: the caller finds out whether their owner is dead; those whose
        branch is held by another process's living executor may be left out. The cost depends on
        what is returned, not on how many wait. Messages "start" are not included: see `inbox`.
        """
        ...

    def next_wake(self) -> int:
        """Returns the earliest timer of all waiting runs, in microseconds since 1970; 0 if there is
        none."""
        ...


RUN_ROWS = Capability[RunRows]("run rows")


class Sent(Struct, frozen=True):
    """The message is in the inbox, durably; it may have been there before.

    Attributes:
        message: as it was put in. If it was taken out since, its value is MISSING; for a "start" of
            a run that began without one, `no` is also 0.
        fresh: True if this call put it in; False if nothing was changed.
    """

    message: Message
    fresh: bool


class Inbox(Protocol):
    """Messages to runs: put in once each, and taken out by one commit."""

    def send(self, message: Message) -> Sent | Refused:
        """Puts a message into a run's inbox, durably, in a transaction of its own.

        Needs no lease and no commit, and conflicts with neither. May be repeated: the same run,
        kind, name and key is put in once only.

        A commit that finishes the run takes out what is left in its inbox; one that deletes the
        agent ends the inboxes of all its runs, those that did not start yet too.

        Returns:
            Refused ``gone``: the run is finished, or there is neither a run nor a message "start"
            for one; or, for a "start", the incarnation of its agent (`incarnation_of` the run) is
            deleted, even at this moment. Never for a message that was put in before.

        Raises:
            TypeError: the value is not plain data.
            StoreUnavailable: nothing was put in, or its outcome is "unknown".
        """
        ...

    def inbox(self, run: str | None = None, **conditions: Unpack[InboxConditions]) -> list[Message]:
        """Returns messages that no commit took out yet, of one run, of one agent or of all, in the
        order they came; each condition narrows. The cost depends on what is returned, and on the
        messages that `name` skips.

        `after`: only those with greater numbers. The numbers of messages to one run grow; those to
        several runs may not.
        """
        ...

    def mail(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Mail:
        """Returns messages that were put into inboxes since a cursor was given, of all agents, in
        the order of their numbers. Cursors, limit and errors are those of `feed`.

        Args:
            to_the_end: also those that the feed would hold back, because others may still come
                before them: the cursors of this walk are good for its next page, and not to be
                kept.

        Messages that a commit took out since have MISSING as their value. Messages removed by a
        run's end or an agent's deletion may be left out.
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
        """Takes or releases the lease of a branch, durably, in a transaction of its own (I4).

        Taken for `executor`, with the next epoch, if none is held or the one held is `over`.
        Released if the epoch held is `release`; with `executor` None and `over`, broken. Returns
        the new lease; otherwise the branch as it is.
        """
        ...


LEASES = Capability[Leases]("leases")


class Liveness(Protocol):
    """The executors that live."""

    def heartbeat(self, executor: str, ttl_ms: int | None, serves: Serves = ()) -> None:
        """Announces that an executor lives for `ttl_ms` more; None: it has ended, forget it.

        Args:
            serves: names of the agent functions that it runs for others, with their queues.
        """
        ...

    def executors(self) -> list[ExecutorRow]:
        """Returns the executors that announced that they live, and not that they ended, by id."""
        ...

    def alive(self, executor: str) -> bool:
        """Returns True if an executor may still be running: not if it is provably dead, nor if it
        expired. In doubt it is True until its time is up."""
        ...


LIVENESS = Capability[Liveness]("liveness")


class Notices(Protocol):
    """Notices between processes that there is something to do. A process that gets none polls."""

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        """Calls `callback` with the run's id at every `notify`, by whatever process.

        The call is made on a thread of the backend; what the callback raises is logged. Best
        effort: a notice may get lost, so listeners also poll from time to time. In a forked child
        nobody listens. A second call for the same executor replaces the first.

        Returns:
            The function that ends it; closing the store does, too. A call that is under way may end
                after it.
        """
        ...

    def notify(self, run_id: str, *, besides: str = "") -> None:
        """Tells all listeners that there is something to do for a run; the executor `besides` may
        be left out. Never raises, never waits; nothing is promised."""
        ...


NOTICES = Capability[Notices]("notices")


# -- logs that come from elsewhere, or go -----------------------------------------------------


class Shipment(Struct, frozen=True):
    """Data of another store, on its way in. All of it gets in, or nothing.

    Attributes:
        appends: commits; `no` is None in all of them: the incarnation is found by its name and
            number, and the one with `seq` 1 creates it. Leaves of their snapshots that are there
            already are left out. Leases are ignored.
        messages: with their numbers, which must be free here, unless they belong to the same
            message, which is then left as it is. Those whose value is MISSING were taken out.
            `consumed` in the appends may name them, but only those not taken out.
        number_min: messages put in later by `send` get greater numbers than this.
        epochs: agent, incarnation, branch, and a minimum for its epoch afterwards.
        standing: the store's standing from now on; None keeps it.
        graves: last commits of logs that were purged in the other store; linked to nothing. If one
            is not there already, its incarnation is made if need be, deleted with its runs, and
            marked to be purged; before the appends, which contain nothing of these.
        taken: numbers of messages that commits of the other store took out, these commits or
            earlier ones. Those that are here are taken out last: a message has no order among the
            commits, so none is refused for it.
        after: the expected standing of this store. If it differs, nothing is written: somebody else
            ships into it, and knows more. None skips the check.
        forgotten: numbers of messages that are here as taken out, by commits of the other store
            that will not come: they are not known any more.
        to_purge: agents and incarnations that were purged in the other store: those that are
            deleted here, and not purged, are marked to be purged; after the appends.
    """

    appends: Sequence[Append] = ()
    messages: Sequence[Message] = ()
    number_min: int = 0
    epochs: Sequence[tuple[str, int, str, int]] = ()
    standing: Standing | None = None
    graves: Sequence[Append] = ()
    taken: Sequence[int] = ()
    after: Standing | None = None
    forgotten: Sequence[int] = ()
    to_purge: Sequence[tuple[str, int]] = ()


class Shipping(Protocol):
    """For stores that follow others, and for agents that move between stores."""

    def standing(self, no: int = 0) -> Standing | None:
        """Returns the last standing of an agent, or, with 0, of the store; None if there is
        none."""
        ...

    def stand(
        self,
        standing: Standing | None,
        no: int = 0,
        *,
        after: Standing | Missing | None = MISSING,
    ) -> None:
        """Sets the standing of an agent, or, with 0, of the store, from now on; durable. None
        removes it, and, with 0, also that of all its agents.

        An agent's standing has priority over the store's. If it is closed, an `append`, and taking
        a lease, are refused with a `ClosedError` in their own transaction (I2): nothing that is
        committed later slips past it. A closed store takes no new agents either, and by `send`
        messages only for agents that are open by their own standing; the inbox of a closed agent in
        an open store stays open. Releasing and breaking leases, heartbeats and all reading still
        work. While nothing is closed, this costs a commit nothing.

        Args:
            after: the expected standing of the store itself; None: it has none. If it differs,
                nothing is changed: another process decided otherwise. MISSING skips the check.

        Raises:
            OvertakenError: the store's standing is neither `after` nor, with 0, the new one.
            StoreUnavailable: its outcome says whether it may have been set.
        """
        ...

    def ship(self, shipment: Shipment) -> None:
        """Writes data of another store, in one transaction, durably, even if this one is closed.

        Raises:
            OvertakenError: this store's standing is not `Shipment.after`.
            Conflict: a commit does not link to what is here (I3), or a number is another
                message's; nothing was written.
            StoreUnavailable: its outcome says whether it may have been written.
        """
        ...


SHIPPING = Capability[Shipping]("shipping")


class Removal(Protocol):
    """Permanent removal: the logs of deleted agents, payloads of living ones."""

    def to_purge(self, after: int = 0, limit: int = 1000) -> list[AgentInfo]:
        """Returns deleted incarnations that are still to be purged, by number, after `after`."""
        ...

    def purge(self, no: int, limit: int = 500) -> bool:
        """Removes a part of what a deleted incarnation left, permanently, in one transaction: about
        `limit` rows, and a few megabytes. It removes its commits except the last one, which is its
        deletion, snapshots, leaves, keys, names and rows of runs. From the first part on it is
        `AgentInfo.purged`, and the feed gives its last commit once more, so that copies of the
        store learn of it. Killed in between, or called again, it continues.

        The store reuses the freed room. The caller has to check before that nobody needs the log.
        Works in a store that is closed to writers, too.

        Returns:
            True if there may be more: call it again.

        Raises:
            Conflict: it is not deleted.
            StoreUnavailable: one more part may be removed, or not.
        """
        ...

    def trim(
        self, no: int, word: int, remains: Mapping[int, bytes], snapshots: Sequence[int] = ()
    ) -> bool:
        """Replaces some payloads, by seq, with what retention leaves of them, permanently, in one
        transaction. The snapshots at some commits are removed with them, and those leaves that no
        other snapshot of the agent names. The caller has decided what is removed, and said so in
        the log. May be repeated, and works in a store that is closed to writers. With nothing to
        replace, it checks that the caller may.

        Args:
            word: the head of the branch `@retention` as the caller knows it; 0 for none.

        Returns:
            False if the head is another one, and nothing was done.

        Raises:
            StoreUnavailable: everything may be done, or nothing; or the caller may not.
        """
        ...


REMOVAL = Capability[Removal]("removal")


class Upkeep(Protocol):
    """Housekeeping of the backend's files or tables."""

    def maintain(
        self, what: Literal["sizes", "check", "clean", "shrink", "flush"], *, no: int | None = None
    ) -> Sizes:
        """Does housekeeping: counts bytes; reads every page and checks it; tidies the files;
        returns free room in them to the system, which may block all writers for a while; makes
        everything acknowledged durable.

        Returns:
            From "check": `extra["unread"]` names the tables that this user may not read, if there
            are any.

        Raises:
            Corrupt: from "check", with what is damaged.
        """
        ...


UPKEEP = Capability[Upkeep]("upkeep")


class Backend(
    LogStorage, RunRows, Inbox, Leases, Liveness, Notices, Shipping, Removal, Upkeep, Protocol
):
    """A backend with everything that a whole store needs."""


WHOLE: frozenset[Capability[Any]] = frozenset(
    {RUN_ROWS, INBOX, LEASES, LIVENESS, NOTICES, SHIPPING, REMOVAL, UPKEEP}
)
"""The capabilities of a `Backend`."""
