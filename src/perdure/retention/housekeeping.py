"""Housekeeping of a store: sizes, room, checks of its pages, and what is removed for good."""

from __future__ import annotations

from perdure.core.arguments.checks import seconds as duration
from perdure.core.arguments.names import check_name
from perdure.errors import NotFound
from perdure.retention.purging import Purged, purge_name, sweep
from perdure.state.context import Context
from perdure.storage.answers import Sizes


class Housekeeping:
    """Operations on a store as a whole."""

    _context: Context

    def purge(self, name: str | None = None, *, seconds: float | None = None) -> Purged:
        """Removes, permanently, the logs of agents that were deleted with ``purge=True``; or, by
        its name, of one that was deleted in any way. Only the deletion stays of each, which names
        everything before it by its hash; logs that living copies read are kept. Stores that follow
        this one do the same, at their next look; backups and other copies do not. Done in small
        transactions, for about `seconds`; if it is killed, the next call continues.

        Raises:
            NotFound: there is no deleted agent of that name.
        """
        backend = self._context.backend
        if seconds is not None:
            seconds = duration(seconds, "seconds=")
        if name is None:
            return sweep(backend, seconds)
        return purge_name(backend, check_name(name, "an agent"))

    def shrink(self) -> None:
        """Returns free room in the files to the system; nobody else can write meanwhile."""
        self._context.backend.maintain("shrink")

    def check_pages(self) -> tuple[str, ...]:
        """Reads every page of the store and checks it. Returns the names of PostgreSQL's tables
        that this user may not read, such as an auditor: they were not checked.

        Raises:
            Corrupt: a page is damaged; the error says which.
        """
        return tuple(self._context.backend.maintain("check").extra.get("unread", ()))

    def sizes(self, name: str | None = None) -> Sizes:
        """Returns the bytes kept for one agent, or for all.

        Raises:
            NotFound: there is no such agent.
        """
        if name is None:
            return self._context.backend.maintain("sizes")
        info = self._context.backend.agent(check_name(name, "an agent"))
        if info is None:
            raise NotFound("there is no such agent", target=f"agent {name!r}")
        return self._context.backend.maintain("sizes", no=info.no)

    def flush(self) -> None:
        """Makes everything that was acknowledged durable, whatever the store's durability."""
        self._context.backend.maintain("flush")
