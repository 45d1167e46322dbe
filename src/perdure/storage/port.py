"""The storage port: what every backend must do, and exactly what each call promises.

A backend keeps bytes, and a few projections that are written in the same transaction as the commit
they follow from. It knows nothing of states, deltas or schemas. Its optional abilities are in
`storage.capabilities`. `perdure.testing.BackendContract` holds every backend to both pages.

Errors: a backend raises `StoreUnavailable` (with its outcome), `Corrupt` or `UnsupportedFormat`;
an absent row is None or an empty list, and never the result of a failure (I12).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from perdure.model import AgentInfo
from perdure.storage.appending import Append, Outcome, Ref, StoredSnapshot


class StoredCommit(Struct, frozen=True, gc=False):
    """One entry of the log as bytes. `snapshotted`: True if a snapshot of its state is stored."""

    seq: int
    header: bytes
    payload: bytes
    snapshotted: bool


class Fed(Struct, frozen=True):
    """One commit of the feed, and its agent."""

    no: int
    agent: str
    incarnation: int
    commit: StoredCommit


class Feed(Struct, frozen=True):
    """A part of the feed over all agents.

    Attributes:
        cursor: pass it to get the entries behind these. Opaque text, valid for this store only.
    """

    entries: list[Fed]
    cursor: str


class LogStorage(Protocol):
    """The core of the port. Synchronous and thread-safe. Reads see all commits that were answered
    before they began.

    Attributes:
        url: where the store is.
        capabilities: its `storage.capabilities`.
    """

    url: str
    capabilities: frozenset[Any]

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        """Writes commits in one transaction, each succeeding or failing alone (I2).

        Answers are in the batch's order; later appends see what earlier ones wrote. An exception as
        an answer belongs to that commit alone; its outcome attribute says whether it may have
        happened. Only `append` is called by one thread at a time.
        """
        ...

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        """Returns the latest incarnation of a name (deleted or not), or the one asked for; None if
        there is none."""
        ...

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        """Returns agents that are not deleted, by name, after `after`."""
        ...

    def read(
        self,
        no: int,
        first: int,
        last: int,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:
        """Returns the commits with first ≤ seq ≤ last, all from one moment."""
        ...

    def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
        """Returns the commits of all agents, deleted ones included, since a cursor was given.

        In order per agent; no order is promised between agents. Each commit comes at least once;
        one that commits late is never skipped. The last commit of a log comes (again) once that is
        being purged. Empty when there is nothing new: its cursor is as good as the previous one.

        Args:
            cursor: that of an earlier answer, however old; empty: from the start.
            limit: the most entries; there may be fewer, and more behind them.
            to_the_end: also those that are held back otherwise, because others may still come
                before them: the cursors of this walk are good for its next page, and not to be
                kept.

        Raises:
            NotFound: the cursor is not of this store, or the store was restored from an older copy
                since.
        """
        ...

    def ref(self, no: int, name: str) -> Ref | None:
        """Returns one name of an agent, deleted ones included; None if there is none."""
        ...

    def refs(self, no: int) -> list[Ref]:
        """Returns all names of an agent, deleted ones included, by name."""
        ...

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        """Returns the seq at which an idempotency key took effect, and the digest of its request;
        None if it is unused."""
        ...

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        """Returns the snapshot at a commit, with every stored leaf that its manifest names; None if
        there is none."""
        ...

    def now(self) -> int:
        """Returns the store's time, in microseconds since 1970."""
        ...

    def close(self) -> None:
        """Releases everything. Idempotent; later calls raise `StoreUnavailable`."""
        ...
