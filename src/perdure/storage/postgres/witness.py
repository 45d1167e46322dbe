"""Commits that this process knows to be durable, and whether the server that answers now has them.

A standby that did not follow synchronously may be promoted without the last acknowledged commits,
and an old primary may come back beside a new one. Such a server looks like any other: a run that
continued there would silently repeat what was done. So a process keeps, for each agent, the last
commit that it knows to be durable, and for each branch the last epoch that it took. The first
connection to another server than the one before asks for all of these: to one that was started at
another moment, or with tables that were put back. If something is missing there, the agent's log is
`Corrupt` for this process, until it ends: people have to decide which of two histories is right.
An agent is known by its name and incarnation: its number may be another one's by then.

A process that knows nothing of a commit cannot miss it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from perdure.core.format import chain
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import AgentInfo
from perdure.storage.lost_commits import LostCommitsError
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import from_text, text
from perdure.storage.postgres.statements import statements
from perdure.storage.postgres.wire import blobs, numbers, texts
from perdure.system.locks import Lock

KEPT = 20_000
"""Of how many agents, those seen last, the last commit is known."""

LAZY = frozenset({"step", "attempt-failed", "progress"})
"""The kinds of commits that may have been answered before they were durable, whatever the store's
durability is."""

HINT = (
    "an asynchronous standby was promoted without it, or an old primary came back: stop all "
    "writers, and compare the servers' logs (`perdure log`) and what the tools did; restart "
    "this program to go on with the log as it is here"
)


def may_be_lazy(header: bytes) -> bool:
    """Returns True if a commit may have nothing but steps, which need not wait for the disk."""
    try:
        return chain.kind_of(header, "a commit") in LAZY
    except (Corrupt, UnsupportedFormat):
        return True


class _Lost(Struct, frozen=True):
    """A loss of the server, in one agent. `owner`: its name and incarnation, if known."""

    owner: tuple[str, int] | None
    who: str
    what: str


class Witness:
    """The known commits and epochs of one store, checked against each new server.

    Attributes:
        lost: the agents of which the server has lost something.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._sql = statements(address.schema)
        self._commits: dict[int, tuple[int, bytes]] = {}
        self._epochs: dict[tuple[int, str], int] = {}
        self._lost: dict[int, _Lost] = {}
        self.lost: Collection[int] = self._lost.keys()
        self._server = ""
        self.renew()

    def renew(self) -> None:
        """Resets itself in a forked child: somebody may have held a lock."""
        self._lock = Lock()
        self._meeting = Lock()

    # -- what is known -----------------------------------------------------------------------

    def saw(self, no: int, seq: int, header: bytes) -> None:
        """Notes a durable commit."""
        with self._lock:
            known = self._commits.pop(no, None)
            self._commits[no] = known if known and known[0] > seq else (seq, header)
            if len(self._commits) > KEPT:
                del self._commits[next(iter(self._commits))]

    def read(self, no: int, seq: int, header: bytes) -> None:
        """Notes a commit that was read, unless it may not be durable yet: a step's need not be."""
        if not may_be_lazy(header):
            self.saw(no, seq, header)

    def took(self, no: int, branch: str, epoch: int) -> None:
        """Notes a lease."""
        with self._lock:
            self._epochs.pop((no, branch), None)
            self._epochs[no, branch] = epoch
            if len(self._epochs) > KEPT:
                del self._epochs[next(iter(self._epochs))]

    def check(self, db: Connection, numbers_: Iterable[int | None]) -> None:
        """Checks agents before anything is reported of them, or done to them.

        Raises:
            LostCommitsError: the server has lost something of one of them.
        """
        if not self._lost:
            return
        for no in numbers_:
            if no is not None and self.lacks(db, no):
                raise self.error(no)

    def check_agent(self, info: AgentInfo) -> None:
        """Checks one that was looked up by its name.

        Raises:
            LostCommitsError: the server has lost something of it.
        """
        lost = self._lost.get(info.no)
        if lost is not None and lost.owner in (None, (info.name, info.incarnation)):
            raise self.error(info.no)

    def lacks(self, db: Connection, no: int) -> bool:
        """True if the server has lost something of the agent of that number. If it gave the number
        to another agent since, nothing of that one is lost."""
        lost = self._lost.get(no)
        if lost is None or lost.owner is None:
            return lost is not None
        row = db.execute(self._sql["find_owner"], (no,)).fetchone()
        if row is None or (from_text(row[0]), row[1]) == lost.owner:
            return True
        with self._lock:
            self._lost.pop(no, None)
            self._commits.pop(no, None)
            for place in [place for place in self._epochs if place[0] == no]:
                del self._epochs[place]
        return False

    def error(self, no: int) -> LostCommitsError:
        lost = self._lost[no]
        return LostCommitsError(lost.what, target=lost.who, hint=HINT)

    # -- whether it is there -----------------------------------------------------------------

    def meet(self, db: Connection) -> bool:
        """Checks a new connection: if it leads to another server than the last one, asks it for
        everything known. A standby is allowed to be behind.

        Returns:
            True if another one answered before.
        """
        if not db.server or db.server == self._server:
            return False
        with self._meeting:
            before = self._server
            if db.server == before:
                return False
            with self._lock:
                commits, epochs = dict(self._commits), dict(self._epochs)
            if commits:
                self._ask_for_commits(db, commits)
            if epochs:
                self._ask_for_epochs(db, epochs)
            self._server = db.server
        return bool(before)

    def _ask_for_commits(self, db: Connection, known: dict[int, tuple[int, bytes]]) -> None:
        seqs = [seq for seq, _ in known.values()]
        headers = [header for _, header in known.values()]
        values = numbers(list(known)), numbers(seqs), blobs(headers)
        for no, name, seq, last in db.execute(self._sql["find_lost_commits"], values).fetchall():
            if last >= seq:
                there = "has another one in its place"
            else:
                there = f"ends at commit {last}" if last else "has none of it"
            knows = f"this process knows commit {seq}"
            self._note(no, name, f"{knows}, but the log of the server that answers {there}")

    def _ask_for_epochs(self, db: Connection, known: dict[tuple[int, str], int]) -> None:
        values = (
            numbers([no for no, _ in known]),
            texts([text(branch) for _, branch in known]),
            numbers(list(known.values())),
        )
        for no, name, branch, epoch, last in db.execute(
            self._sql["find_lost_epochs"], values
        ).fetchall():
            self._note(
                no,
                name,
                f"this process took epoch {epoch} of branch {from_text(branch)!r}, but the server "
                f"that answers is at epoch {last}",
            )

    def _owner(self, no: int) -> tuple[str, int] | None:
        """Returns whose number it was; None if no commit of it is known."""
        known = self._commits.get(no)
        if known is None:
            return None
        try:
            _, name, incarnation, *_ = chain.read_header(known[1], f"agent number {no}")
        except (Corrupt, UnsupportedFormat):
            return None
        return name, incarnation

    def _note(self, no: int, name: str | None, what: str) -> None:
        owner = self._owner(no)
        if owner is not None:
            who = f"agent {owner[0]!r}"
        else:
            who = f"agent number {no}" if name is None else f"agent {from_text(name)!r}"
        self._lost.setdefault(no, _Lost(owner, f"{who} of store {self._address.shown}", what))
