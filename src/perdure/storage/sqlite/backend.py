"""The storage port on one SQLite file, in WAL mode with checksummed pages.

One connection writes (writer.py), under a lock; others read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from sys import _getframe
from typing import Literal, TypeVar, TypeVarTuple, Unpack

import apsw

from perdure.errors import Corrupt, NotFound, StoreUnavailable
from perdure.missing import MISSING, Missing
from perdure.model import AgentInfo, Durability, Lease, Message, RunInfo
from perdure.storage.answers import ExecutorRow, Mail, Serves, Sizes, Standing, serves_text
from perdure.storage.appending import Append, Outcome, Ref, Refused, StoredSnapshot
from perdure.storage.capabilities import EVERY_RUN, WHOLE, RunQuery, Sent, Shipment
from perdure.storage.clocks import Clock, wall_clock
from perdure.storage.disk_waits import DiskWaits
from perdure.storage.group_policy import GROUPED, GroupPolicy
from perdure.storage.port import Feed, StoredCommit
from perdure.storage.shortcuts import HEADS_AT_HAND, LOOKS, MANY_KEYS, SNAPSHOT_PARTS, AgentAndRun
from perdure.storage.sqlite import closing, inbox, purging, shipping
from perdure.storage.sqlite.backup import copy_pages
from perdure.storage.sqlite.closing import unless_closed
from perdure.storage.sqlite.executors import ExecutorLocks
from perdure.storage.sqlite.faults import (
    FAILED,
    IOERR_DATA,
    RESTORE,
    RESTORE_OR_REPAIR,
    translate,
    unmasked,
    unread_page,
)
from perdure.storage.sqlite.feed import Feeder
from perdure.storage.sqlite.file_complete import refuse_missing_pages
from perdure.storage.sqlite.files import exists
from perdure.storage.sqlite.forks import quiet_at_forks
from perdure.storage.sqlite.looking import find_agent, info_of, look
from perdure.storage.sqlite.proofs import check_list
from perdure.storage.sqlite.readers import ConnectionUser, Readers
from perdure.storage.sqlite.rows import (
    SEQ_MAX,
    behind,
    find_key,
    find_keys,
    find_ref,
    ids_json,
    place,
    run,
    span,
    to_commits,
    to_ref,
    unpack_ids,
)
from perdure.storage.sqlite.runs import list_ready, list_runs
from perdure.storage.sqlite.sites import refuse_other_bytes, refuse_second_names
from perdure.storage.sqlite.sockets import Sockets
from perdure.storage.sqlite.transaction import Alone, Transaction, settled
from perdure.storage.sqlite.writer import Writer
from perdure.storage.wanted import InboxConditions, InboxQuery

T = TypeVar("T")
Asked = TypeVarTuple("Asked")

FEW = 16
"""Commits that are read as fast as looked up: nobody who writes waits for that."""

FORGOTTEN_AFTER_US = 24 * 3600 * 1_000_000


class SqliteBackend:
    """See `perdure.storage.capabilities.Backend`, whose promises these methods keep."""

    capabilities = WHOLE | {LOOKS, MANY_KEYS, HEADS_AT_HAND, SNAPSHOT_PARTS}

    def __init__(
        self,
        path: str,
        *,
        durability: Durability = "sync",
        group: GroupPolicy = GROUPED,
        create: bool = True,
        vfs: str | None = None,
        checked: bool = True,
        clock: Clock = wall_clock,
    ) -> None:
        if not create and not _is_there(path):
            raise NotFound(
                "there is no such file",
                target=f"store {path}",
                hint="check the path; stores are created by programs, not by looking at them",
            )
        try:
            self.path = os.path.abspath(path)
        except FileNotFoundError as error:
            raise NotFound(
                "the current directory was deleted",
                target=f"store {path}",
                hint="change into another one, or give an absolute path",
            ) from error
        if os.path.islink(self.path):  # what lies beside it, and on which disk, is not the link's
            self.path = os.path.realpath(self.path)
        refuse_other_bytes(self.path)
        refuse_second_names(self.path)
        self.url = f"sqlite:///{self.path}"
        self._locks = ExecutorLocks(self.path)
        self._sockets = Sockets(self.path, self._locks.dead)
        self.now = clock
        waits = DiskWaits(durability, group)
        self._writer = Writer(self.path, waits, vfs, create=create, checked=checked, clock=clock)
        self._readers = Readers(self._writer.connect)
        self._writer.lend(self._readers)
        self._feeder = Feeder(self.url)
        quiet_at_forks(self)

    def _alone(self) -> Alone:
        return Alone(self._writer)

    def _transaction(self) -> Transaction:
        return Transaction(self._writer)

    def _reading(self) -> _Reading:
        self._writer.check()
        return _Reading(self._readers, self._writer)

    # -- the log ---------------------------------------------------------------------------

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        with self._writer.lock:
            return self._writer.append(batch)

    def read(
        self,
        no: int,
        first: int,
        last: int,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:
        between = place(no, max(first, 0)), place(no, max(min(last, SEQ_MAX), 0))
        name = "read_down" if newest_first else "read_up"
        wanted = (*between, -1 if limit is None else limit)

        def found(db: apsw.Connection) -> list[StoredCommit]:
            return to_commits(run(db, name, wanted), *between, down=newest_first)

        if last - first < FEW or (limit is not None and limit <= FEW):
            return self._look_up(found)
        with self._reading() as db:
            return found(db)

    def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
        with self._reading() as db:
            return self._feeder.read(db, cursor, limit)

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        with self._reading() as db:
            while rows := run(db, "find_snapshot", (place(no, seq),)):
                manifest, packed = rows[0]
                ids = unpack_ids(packed)
                leaves = dict(run(db, "find_leaves", (ids_json(ids),)))
                # A leaf is missing: perhaps retention has just removed both.
                if len(leaves) == len(ids) or run(db, "find_snapshot", (place(no, seq),)) == rows:
                    return StoredSnapshot(manifest, ids, leaves)
        return None

    def manifest(self, no: int, seq: int) -> StoredSnapshot | None:
        """See `SnapshotParts.manifest`."""
        with self._reading() as db:
            rows = run(db, "find_snapshot", (place(no, seq),))
        return StoredSnapshot(rows[0][0], unpack_ids(rows[0][1])) if rows else None

    def leaf(self, leaf_id: int) -> bytes | None:
        """See `SnapshotParts.leaf`."""
        with self._reading() as db:
            rows = run(db, "find_leaves", (ids_json((leaf_id,)),))
        return rows[0][1] if rows else None

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        return self._look_up(find_key, no, key)

    def keys(self, no: int, keys: Sequence[str]) -> dict[str, int]:
        """See `ManyKeys.keys`."""
        with self._reading() as db:
            return find_keys(db, no, keys)

    # -- agents and names ------------------------------------------------------------------

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        return self._look_up(find_agent, name, incarnation)

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        wanted = prefix, after, limit, behind(prefix)
        try:
            with self._reading() as db:
                rows = run(db, "list_agents", wanted)
        except Corrupt:  # of the names, maybe: each log tells its own end, if that is whole
            with self._reading() as db:
                return [info_of(db, row) for row in run(db, "list_agents_alone", wanted)]
        return [AgentInfo(name, no, incarnation, False, seq) for no, name, incarnation, seq in rows]

    def ref(self, no: int, name: str) -> Ref | None:
        return self._look_up(find_ref, no, name)

    def ref_at_hand(self, no: int, name: str) -> tuple[Ref | None] | None:
        """See `HeadsAtHand.ref_at_hand`."""
        return self._writer.at_hand(find_ref, no, name)

    def _look_up(self, look: Callable[[apsw.Connection, *Asked], T], *asked: *Asked) -> T:
        """Returns the result of a look at a row or two, preferably on the writer's connection:
        usually the last writer asks."""
        if (found := self._writer.at_hand(look, *asked)) is not None:
            return found[0]
        with self._reading() as db:
            return look(db, *asked)

    def refs(self, no: int) -> list[Ref]:
        with self._reading() as db:
            return [to_ref(row) for row in run(db, "list_refs", (no,))]

    def look(self, agent: str, run: str) -> AgentAndRun:
        """See `Looks.look`."""
        with self._reading() as db:
            return look(db, agent, run)

    # -- runs and their inbox --------------------------------------------------------------

    def runs(self, query: RunQuery = EVERY_RUN) -> list[RunInfo]:
        with self._reading() as db:
            return list_runs(db, query)

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        with self._reading() as db:
            others = [
                row.id for row in self._executors(db) if row.alive and not self._locks.holds(row.id)
            ]
            return list_ready(db, now, limit, others)

    def next_wake(self) -> int:
        with self._reading() as db:
            found = run(db, "next_timer")
        return int(found[0][0]) if found else 0

    def send(self, message: Message) -> Sent | Refused:
        put = inbox.Put(message, self.now())
        with self._alone():
            return settled(self._writer, put, put.find)

    def inbox(self, run: str | None = None, **conditions: Unpack[InboxConditions]) -> list[Message]:
        with self._reading() as db:
            return inbox.messages(db, InboxQuery(run, **conditions))

    def mail(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Mail:
        with self._reading() as db:
            return inbox.mail(db, cursor, limit, self.url)

    # -- what comes from other stores ------------------------------------------------------

    def standing(self, no: int = 0) -> Standing | None:
        with self._reading() as db:
            return closing.find(db, no)

    def stand(
        self, standing: Standing | None, no: int = 0, *, after: Standing | Missing | None = MISSING
    ) -> None:
        with self._alone():
            settled(self._writer, lambda db: closing.stand(db, standing, no, after))

    def ship(self, shipment: Shipment) -> None:
        with self._alone(), self._transaction() as db:
            shipping.ship(db, shipment, self.now)

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
        with self._alone(), self._transaction() as db:
            if release is not None:
                run(db, "give_lease", (no, branch, release))
            elif executor is None:
                run(db, "break_lease", (no, branch, over))
            else:
                with unless_closed(db, no):
                    row = run(db, "take_lease", (no, branch, executor, over))
                if row:
                    return Lease(no, branch, executor, row[0][0])
            ref = find_ref(db, no, branch)
        if ref is None:
            raise NotFound("there is no such branch", target=f"branch {branch!r}")
        return ref

    def heartbeat(self, executor: str, ttl_ms: int | None, serves: Serves = ()) -> None:
        if ttl_ms is None:
            with self._alone(), self._transaction() as db:
                run(db, "end_executor", (executor,))
            self._locks.drop(executor)
            return
        self._writer.check()
        begins = self._locks.hold(executor)
        with self._alone(), self._transaction() as db:
            expires = self.now() + ttl_ms * 1000
            run(db, "put_executor", (executor, expires, serves_text(serves)))
            if begins:
                run(db, "forget_executors", (self.now() - FORGOTTEN_AFTER_US,))
        if begins:
            self._locks.tidy(self._counts_as_alive)
            self._sockets.tidy()

    def executors(self) -> list[ExecutorRow]:
        with self._reading() as db:
            return self._executors(db)

    def _executors(self, db: apsw.Connection) -> list[ExecutorRow]:
        now = self.now()
        return [
            ExecutorRow.of(one, ends, serves, alive=ends > now and not self._locks.dead(one))
            for one, ends, serves in run(db, "list_executors")
        ]

    def alive(self, executor: str) -> bool:
        return not self._locks.dead(executor) and self._counts_as_alive(executor)

    def _counts_as_alive(self, executor: str) -> bool:
        with self._reading() as db:
            found = run(db, "find_executor", (executor,))
        return bool(found) and found[0][0] > self.now()

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        self._writer.check()
        return self._sockets.listen(executor, callback)

    def notify(self, run_id: str, *, besides: str = "") -> None:
        self._sockets.notify(run_id, besides)

    # -- housekeeping ----------------------------------------------------------------------

    def to_purge(self, after: int = 0, limit: int = 1000) -> list[AgentInfo]:
        with self._reading() as db:
            found = purging.to_purge(db, after, limit)
            return [info_of(db, row) for no in found for row in run(db, "find_numbered", (no,))]

    def purge(self, no: int, limit: int = 500) -> bool:
        with self._alone(), self._transaction() as db:
            return purging.purge(db, no, limit)

    def trim(
        self, no: int, word: int, remains: Mapping[int, bytes], snapshots: Sequence[int] = ()
    ) -> bool:
        with self._alone(), self._transaction() as db:
            return purging.trim(db, no, word, remains, snapshots)

    def maintain(
        self, what: Literal["sizes", "check", "clean", "shrink", "flush"], *, no: int | None = None
    ) -> Sizes:
        self._writer.check()
        match what:
            case "sizes":
                return self._sizes(no)
            case "check":
                self._check_pages()
            case "clean":
                with self._writer.lock:
                    self._writer.tidy()
            case "shrink":
                self._writer.shrink()
            case "flush":
                self._writer.flush()
        return Sizes()

    def incarnations(self) -> list[AgentInfo]:
        """Returns every agent that there ever was; for `perdure.repair`."""
        with self._reading() as db:
            return [info_of(db, row) for row in run(db, "list_incarnations")]

    def examine(self, look: Callable[[apsw.Connection, str], T]) -> T:
        """Returns the result of a look at the file itself; for `perdure.repair`."""
        with self._reading() as db:
            return look(db, self.path)

    def change(self, work: Callable[[apsw.Connection], object]) -> None:
        """Changes the tables themselves; for `perdure.repair`."""
        with self._alone(), self._transaction() as db:
            work(db)

    def keep_copy(self) -> str:
        """Copies the file as it is, beside it; returns the copy's path; for `perdure.repair`."""
        with self._writer.lock:
            self._readers.close()
            return self._writer.keep_copy()

    def rewrite_pages(self) -> None:
        """Writes every page again, with its checksum; for `perdure.repair`."""
        with self._writer.lock:
            self._readers.close()
            self._writer.rewrite()

    def _check_pages(self) -> None:
        with self._reading() as db:
            found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)")]
            unread = unread_page(found, db) if found != ["ok"] else None
        if found != ["ok"]:
            if unread is not None:
                raise self._writer.translate(unread)
            by_sum = any(f"error code={IOERR_DATA}" in line for line in found)
            hint = RESTORE_OR_REPAIR if by_sum else RESTORE
            raise Corrupt("; ".join(found), target=f"store {self.path}", hint=hint)
        with self._reading() as db:
            refuse_missing_pages(db, self.path)
            check_list(db, self.path)

    def _sizes(self, no: int | None) -> Sizes:
        between = span(no) if no is not None else (0, 2**63 - 1)
        with self._reading() as db:
            commits, headers, payloads = run(db, "count_commits", between)[0]
            snapshots, manifests = run(db, "count_snapshots", between)[0]
            ids = {leaf for (ids,) in run(db, "leaf_ids", between) for leaf in unpack_ids(ids)}
            leaf_bytes = run(db, "count_leaves", (ids_json(ids),))[0][0]
        try:
            files = [name for name in (self.path, self.path + "-wal") if exists(name)]
            on_disk = sum(map(os.path.getsize, files))
        except OSError as error:
            raise self._writer.translate(error) from error
        return Sizes(
            commits, headers, payloads, snapshots, manifests, len(ids), leaf_bytes, on_disk
        )

    def copy_pages(self, target: str, progress: Callable[[int, int], None]) -> None:
        """Copies the store into an empty file; see `backup.copy_pages`."""
        with self._reading() as db:
            copy_pages(db, target, progress)

    def close(self) -> None:
        self._sockets.close()
        self._locks.close()
        spare = self._readers.spare()
        self._readers.close()
        self._writer.close(spare)

    # SQLite's locks do not cross a fork, but its memory of them does: a child's connections, even
    # new ones, would believe that they hold the parent's locks.

    def stop(self) -> None:
        """Before a fork: gives nobody a connection until `go_on`, or `renew` in the child."""
        self._readers.stop()
        self._writer.stop()

    def go_on(self) -> None:
        self._writer.go_on()
        self._readers.go_on()

    def renew(self) -> None:
        self._writer.renew()
        self._readers.renew()
        self._locks.forget_after_fork()
        self._sockets.forget_after_fork()


class _Reading(ConnectionUser):
    """Context manager: a connection to read with. After an error it is not used again."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer

    def __enter__(self) -> apsw.Connection:
        connection = self.connection = self._readers.take(self, _getframe(1))
        return connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        found = unmasked(error, self.connection) if error is not None else None
        whole = False
        try:
            refuse_changed = getattr(self.connection, "refuse_changed", None)
            if refuse_changed is not None and not isinstance(error, StoreUnavailable):
                refuse_changed()  # whatever was found may be of several states
            whole = error is None
        finally:
            self._readers.give_back(self, whole=whole)
        if isinstance(found, FAILED):
            raise self._writer.translate(found) from error


def _is_there(path: str) -> bool:
    try:
        return exists(path)
    except OSError as error:
        raise translate(error, path) from error
