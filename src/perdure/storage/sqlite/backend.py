"""The storage port on one SQLite file, in WAL mode with checksummed pages.

One connection writes, under a lock; others read. A commit's fate after an error is looked up, never
guessed: COMMIT has been seen to fail with the row in place (I1).
"""

from __future__ import annotations

import os
import struct
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import apsw
import msgspec

from perdure.core import codec
from perdure.errors import Corrupt, NotFound, PerdureError, StoreUnavailable
from perdure.model import AgentInfo, Checkpoint, Durability, Lease, RunInfo
from perdure.storage.port import (
    Append, Appended, Outcome, Ref, Refused, Sizes, StoredCommit, StoredSnapshot,
)  # fmt: skip
from perdure.storage.sqlite.connection import Files, check_wal, connect
from perdure.storage.sqlite.executors import ExecutorLocks
from perdure.storage.sqlite.faults import RESTORE, ReplacedError, translate
from perdure.storage.sqlite.housekeeper import Housekeeper, sync_wal
from perdure.storage.sqlite.statements import statements

SEQ_BITS = 36
SEQ_MAX = (1 << SEQ_BITS) - 1
GROUP_COMMITS = 64
GROUP_MS = 20
READERS_KEPT = 4
SYNCHRONOUS = {"sync": "FULL", "group": "NORMAL", "os": "NORMAL"}

_abandoned: list[Any] = []
"""Connections inherited through a fork. Closing or collecting them here would harm the parent's."""


class SqliteBackend:
    """See `perdure.storage.port.Backend`, whose promises these methods keep."""

    def __init__(
        self, path: str, *, durability: Durability = "sync", create: bool = True,
        vfs: str | None = None,
    ) -> None:  # fmt: skip
        if not create and not os.path.exists(path):
            raise NotFound(
                "there is no such file", target=f"store {path}",
                hint="check the path; stores are created by programs, not by looking at them",
            )  # fmt: skip
        self.path = os.path.abspath(path)
        self.url = f"sqlite:///{self.path}"
        self._durability: Durability = durability
        self._vfs = vfs
        self._sql = statements()
        self._locks = ExecutorLocks(self.path)
        self._closed = False
        self._start(create=create)
        _forget_in_children(self)

    def _start(self, *, create: bool) -> None:
        self._pid = os.getpid()
        self._write_lock = threading.RLock()
        self._readers: list[apsw.Connection] = []
        self._unsynced = 0
        self._housekeeper = Housekeeper(
            self.path, self._connect_to_checkpoint, GROUP_MS / 1000 if self._durability == "group" else None
        )
        self._writer: apsw.Connection | None = self._connect(create=create)
        try:
            check_wal(self._writer, self.path)
        except Corrupt:
            self._writer.close()
            raise
        self._adopt_writer(self._writer)

    def _connect(self, *, create: bool = False) -> apsw.Connection:
        return connect(
            self.path, synchronous=SYNCHRONOUS[self._durability], create=create, vfs=self._vfs
        )

    def _connect_to_checkpoint(self) -> apsw.Connection:
        self._files.check()
        return self._connect()

    def _adopt_writer(self, writer: apsw.Connection) -> None:
        self._writer = writer
        self._full = self._durability == "sync"
        self._files = Files.of(self.path)
        writer.set_wal_hook(self._after_commit)

    def _after_commit(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._housekeeper.wal_grew(pages)
        return apsw.SQLITE_OK

    # -- writing ---------------------------------------------------------------------------

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        with self._write_lock:
            try:
                return self._transact(batch)
            except (apsw.Error, ReplacedError) as error:
                return self._settle(batch, error)
            except PerdureError as error:
                return [error] * len(batch)

    def _transact(self, batch: Sequence[Append]) -> list[Outcome]:
        writer = self._ready()
        durable = self._choose_durability(writer, batch)
        writer.execute("BEGIN IMMEDIATE")
        try:
            outcomes: list[Outcome] = [
                self._append_all(writer, item) if item.then else self._append(writer, item)
                for item in batch
            ]
            writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise
        self._files.check()
        if durable:
            self._unsynced = 0
            self._housekeeper.flushed()
        elif self._durability == "group":
            self._housekeeper.flush_later()
        return outcomes

    def _choose_durability(self, writer: apsw.Connection, batch: Sequence[Append]) -> bool:
        self._unsynced += len(batch)
        full = (
            self._durability == "sync"
            or any(item.sync for item in batch)
            or (self._durability == "group" and self._unsynced >= GROUP_COMMITS)
        )
        if full != self._full:
            writer.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full
        return full

    def _append_all(self, db: apsw.Connection, item: Append) -> Outcome:
        """A commit with those that follow it: all, or none; the batch's others do not notice."""
        db.execute("SAVEPOINT whole")
        outcome = self._append(db, item)
        for follower in item.then:
            if not isinstance(outcome, Appended):
                db.execute("ROLLBACK TO whole")
                break
            outcome = self._append(db, replace(follower, no=outcome.no))
        else:
            if not isinstance(outcome, Appended):
                db.execute("ROLLBACK TO whole")
        db.execute("RELEASE whole")
        return outcome

    def _append(self, db: apsw.Connection, item: Append) -> Outcome:
        refused = self._refusal(db, item)
        if refused:
            return refused
        no = item.no
        if no is None:
            no = db.execute(self._sql["add_agent"], (item.agent, item.incarnation)).get
        place = (no << SEQ_BITS) | item.seq
        values = {
            "id": place, "before": place - 1, "header": item.header, "payload": item.payload,
            "no": no, "branch": item.branch, "expected": item.expected, "epoch": item.epoch,
            "seq": item.seq,
        }  # fmt: skip
        name = "add_first_commit" if item.expected is None else "add_commit"
        db.execute(self._sql[name], values)
        if not db.changes():
            return self._diagnose(db, item, no)
        if item.expected is None:
            db.execute(self._sql["add_branch"], (no, item.branch, item.seq))
        else:
            db.execute(self._sql["move_head"], (no, item.branch, item.seq))
        self._append_extras(db, item, no, place)
        return Appended(no)

    def _refusal(self, db: apsw.Connection, item: Append) -> Refused | None:
        """What can be told before anything is written; the rest, the insert itself refuses."""
        if item.no is None:
            found = db.execute(self._sql["find_agent"], (item.agent, None)).fetchall()
            if found and not (found[0][3] and found[0][2] < item.incarnation):
                return Refused("exists")
            return None
        if item.key is not None:
            used = db.execute(self._sql["find_key"], (item.no, item.key[0])).fetchall()
            if used:
                return Refused("key", seq=used[0][0], asked=used[0][1])
        taken = item.checkpoint.name if item.checkpoint else None
        if item.expected is None:
            taken = item.branch
        if taken is not None and (ref := self._find_ref(db, item.no, taken)):
            return Refused("exists", ref)
        if item.drop_branch is not None:
            ref = self._find_ref(db, item.no, item.drop_branch)
            if ref is None or ref.deleted or ref.kind != "branch":
                return Refused("gone", ref)
            if ref.held is not None:
                return Refused("held", ref)
        if item.expected is None:
            found = db.execute(self._sql["find_agent"], (item.agent, item.incarnation)).fetchall()
            if not found or found[0][3]:
                return Refused("gone")
        return None

    def _diagnose(self, db: apsw.Connection, item: Append, no: int) -> Refused:
        """Why the conditional insert took nothing."""
        if item.expected is None:
            return Refused("stale")
        ref = self._find_ref(db, no, item.branch)
        if ref is None or ref.deleted:
            return Refused("gone", ref)
        if ref.held != item.epoch:
            return Refused("held" if item.epoch is None else "fenced", ref)
        if ref.seq != item.expected:
            return Refused("moved", ref)
        return Refused("stale", ref)

    def _append_extras(self, db: apsw.Connection, item: Append, no: int, place: int) -> None:
        if item.key is not None:
            db.execute(self._sql["add_key"], (no, item.key[0], item.seq, item.key[1]))
        if item.snapshot is not None:
            for leaf_id, data in item.snapshot.leaves.items():
                db.execute(self._sql["add_leaf"], (leaf_id, data))
            ids = item.snapshot.leaf_ids
            packed = struct.pack(f">{len(ids)}q", *ids)
            db.execute(self._sql["add_snapshot"], (place, item.snapshot.manifest, packed))
        if item.checkpoint is not None:
            row = (no, item.checkpoint.name, item.checkpoint.seq, _to_bytes(item.checkpoint))
            db.execute(self._sql["add_checkpoint"], row)
        if item.drop_branch is not None:
            db.execute(self._sql["drop_branch"], (no, item.drop_branch))
        for run in item.runs:
            db.execute(self._sql["put_run"], _run_row(run, no))
        if item.epoch_min:
            db.execute(self._sql["raise_epoch"], (no, item.branch, item.epoch_min))
        if item.release:
            db.execute(self._sql["release"], (no, item.branch))
        if item.delete_agent:
            db.execute(self._sql["end_agent"], (no,))
            db.execute(self._sql["end_refs"], (no,))

    def _settle(self, batch: Sequence[Append], error: Exception) -> list[Outcome]:
        """After an error that hit the whole transaction: look up what is in, retry what is not."""
        problem = self._translate(error)
        if isinstance(problem, Corrupt):
            return [problem] * len(batch)
        try:
            self._reopen_durably()
        except Exception:
            return [self._unknown(problem)] * len(batch)
        return [self._settle_one(item, problem) for item in batch]

    def _translate(self, error: Exception) -> PerdureError:
        """The error of the tree; files that were exchanged under us explain all others."""
        try:
            self._files.check()
        except (ReplacedError, OSError) as replaced:
            error = replaced
        return translate(error, self.path)

    def _settle_one(self, item: Append, problem: PerdureError) -> Outcome:
        try:
            if (no := self._landed(item)) is not None:
                return Appended(no)
            return self._transact([item])[0]
        except (apsw.Error, ReplacedError) as again:
            second = translate(again, self.path)
            try:
                self._reopen_durably()
                no = self._landed(item)
            except Exception:
                return self._unknown(second)
            return Appended(no) if no is not None else second
        except PerdureError as refused:
            return refused

    def _reopen_durably(self) -> None:
        """Drop the connection that failed, and write anew what it may have left unsynced.

        After a failed fsync the kernel may call lost pages clean, so a later fsync of the WAL
        proves nothing. Moving its content into the main file writes and syncs it a second time.
        """
        if self._writer is not None:
            self._writer.close(True)
            self._writer = None
        writer = self._connect()
        try:
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        except BaseException:
            writer.close(True)
            raise
        self._adopt_writer(writer)

    def _landed(self, item: Append) -> int | None:
        """The agent's number if exactly this commit is in the log."""
        writer = self._ready()
        no = item.no
        if no is None:
            row = writer.execute(self._sql["find_agent"], (item.agent, item.incarnation)).fetchall()
            if not row:
                return None
            no = int(row[0][0])
        place = (no << SEQ_BITS) | item.seq
        header = writer.execute(self._sql["find_header"], (place,)).get
        return no if header == item.header else None

    def _unknown(self, problem: PerdureError) -> StoreUnavailable:
        return StoreUnavailable(
            f"the commit may or may not have happened: {problem.problem}",
            target=problem.target or f"store {self.path}",
            hint="when the store answers again, look at the agent's log, or make the same call "
            "with an idempotency key; " + problem.hint,
            outcome="unknown",
        )

    def _ready(self) -> apsw.Connection:
        if self._closed:
            raise StoreUnavailable(
                "the store is closed", target=f"store {self.path}", hint="open it again"
            )
        if self._pid != os.getpid():
            self._after_fork()
        if self._writer is None:
            self._adopt_writer(self._connect())
        assert self._writer is not None
        return self._writer

    def _after_fork(self) -> None:
        """A child must not use its parent's connections: SQLite's locks do not cross a fork."""
        _abandoned.append((self._writer, self._readers))
        self._locks.forget_after_fork()
        self._start(create=False)

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """A transaction of the backend's own, outside the log; durable when it ends."""
        with self._write_lock:
            try:
                writer = self._ready()
                self._full = True
                writer.execute("PRAGMA synchronous = FULL")
                writer.execute("BEGIN IMMEDIATE")
                try:
                    yield writer
                    writer.execute("COMMIT")
                except BaseException:
                    if writer.in_transaction:
                        writer.execute("ROLLBACK")
                    raise
                self._files.check()
            except (apsw.Error, ReplacedError) as error:
                raise translate(error, self.path) from error

    # -- reading ---------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        if self._closed or self._pid != os.getpid():
            self._ready()
        try:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect()
            yield connection
            if len(self._readers) < READERS_KEPT and not self._closed:
                self._readers.append(connection)
            else:
                connection.close()
        except apsw.Error as error:
            raise self._translate(error) from error

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        with self._reading() as db:
            rows = db.execute(self._sql["find_agent"], (name, incarnation)).fetchall()
            return self._info(db, rows[0]) if rows else None

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        with self._reading() as db:
            rows = db.execute(self._sql["list_agents"], (prefix, after, limit)).fetchall()
            return [self._info(db, row) for row in rows]

    def _info(self, db: apsw.Connection, row: tuple[Any, ...]) -> AgentInfo:
        no, name, incarnation, deleted = row
        last = db.execute(self._sql["last_place"], _span(no)).get
        return AgentInfo(name, no, incarnation, bool(deleted), (last or 0) & SEQ_MAX)

    def read(
        self, no: int, first: int, last: int, *, newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:  # fmt: skip
        base = no << SEQ_BITS
        span = (base | max(first, 0), base | max(min(last, SEQ_MAX), 0))
        name = "read_down" if newest_first else "read_up"
        with self._reading() as db:
            rows = db.execute(self._sql[name], (*span, -1 if limit is None else limit)).fetchall()
        return [StoredCommit(at & SEQ_MAX, head, body, bool(snap)) for at, head, body, snap in rows]

    def ref(self, no: int, name: str) -> Ref | None:
        with self._reading() as db:
            return self._find_ref(db, no, name)

    def refs(self, no: int) -> list[Ref]:
        with self._reading() as db:
            return [_ref(row) for row in db.execute(self._sql["list_refs"], (no,)).fetchall()]

    def _find_ref(self, db: apsw.Connection, no: int, name: str) -> Ref | None:
        rows = db.execute(self._sql["find_ref"], (no, name)).fetchall()
        return _ref(rows[0]) if rows else None

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        with self._reading() as db:
            rows = db.execute(self._sql["find_key"], (no, key)).fetchall()
        return (rows[0][0], rows[0][1]) if rows else None

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        with self._reading() as db:
            place = (no << SEQ_BITS) | seq
            rows = db.execute(self._sql["find_snapshot"], (place,)).fetchall()
            if not rows:
                return None
            manifest, packed = rows[0]
            ids = struct.unpack(f">{len(packed) // 8}q", packed)
            leaves = {
                leaf_id: data
                for leaf_id in ids
                if (data := db.execute(self._sql["find_leaf"], (leaf_id,)).get) is not None
            }
        return StoredSnapshot(manifest, ids, leaves)

    def runs(
        self, *, agent: str | None = None, run_id: str | None = None, unfinished: bool = False
    ) -> list[RunInfo]:
        with self._reading() as db:
            rows = db.execute(self._sql["find_runs"], (agent, run_id, unfinished)).fetchall()
        return [_run(row) for row in rows]

    # -- leases and executors --------------------------------------------------------------

    def lease(
        self, no: int, branch: str, executor: str | None, *, over: int | None = None,
        release: int | None = None,
    ) -> Lease | Ref:  # fmt: skip
        with self._writing() as db:
            if release is not None:
                db.execute(self._sql["give_lease"], (no, branch, release)).fetchall()
            elif executor is None:
                db.execute(self._sql["break_lease"], (no, branch, over)).fetchall()
            else:
                row = db.execute(self._sql["take_lease"], (no, branch, executor, over)).fetchall()
                if row:
                    return Lease(no, branch, executor, row[0][0])
            ref = self._find_ref(db, no, branch)
        if ref is None:
            raise NotFound("there is no such branch", target=f"branch {branch!r}")
        return ref

    def heartbeat(self, executor: str, ttl_ms: int | None) -> None:
        if ttl_ms is None:
            with self._writing() as db:
                db.execute(self._sql["end_executor"], (executor,))
            self._locks.drop(executor)
            return
        self._locks.hold(executor)
        with self._writing() as db:
            db.execute(self._sql["put_executor"], (executor, self.now() + ttl_ms * 1000))

    def alive(self, executor: str) -> bool:
        if self._locks.dead(executor):
            return False
        with self._reading() as db:
            expires = db.execute(self._sql["find_executor"], (executor,)).get
        return expires is not None and int(expires) > self.now()

    # -- housekeeping ----------------------------------------------------------------------

    def maintain(
        self, what: Literal["sizes", "check", "clean", "flush"], *, no: int | None = None
    ) -> Sizes:
        if what == "flush":
            self._ready()
            sync_wal(self.path)
        elif what == "check":
            self._check_pages()
        elif what == "clean":
            with self._write_lock:
                try:
                    self._ready().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                except apsw.Error as error:
                    raise translate(error, self.path) from error
        return self._sizes(no) if what == "sizes" else Sizes()

    def _check_pages(self) -> None:
        with self._reading() as db:
            found = [row[0] for row in db.execute("PRAGMA integrity_check(20)").fetchall()]
        if found != ["ok"]:
            raise Corrupt("; ".join(found), target=f"store {self.path}", hint=RESTORE)

    def _sizes(self, no: int | None) -> Sizes:
        span = _span(no) if no is not None else (0, 2**63 - 1)
        with self._reading() as db:
            commits, headers, payloads = db.execute(self._sql["count_commits"], span).fetchall()[0]
            snapshots, manifests = db.execute(self._sql["count_snapshots"], span).fetchall()[0]
            packed = db.execute(self._sql["leaf_ids"], span).fetchall()
            ids = {i for (data,) in packed for i in struct.unpack(f">{len(data) // 8}q", data)}
            leaf_bytes = sum(db.execute(self._sql["count_leaf"], (i,)).get or 0 for i in ids)
        size = sum(
            os.path.getsize(file)
            for file in (self.path, self.path + "-wal")
            if os.path.exists(file)
        )
        return Sizes(
            commits, headers, payloads, snapshots, manifests, len(ids), leaf_bytes, size
        )

    def now(self) -> int:
        return time.time_ns() // 1000

    def close(self) -> None:
        with self._write_lock:
            if self._closed:
                return
            if self._pid != os.getpid():
                _abandoned.append((self._writer, self._readers))
                self._closed = True
                return
            self._closed = True
            self._housekeeper.close()
            self._locks.close()
            if self._durability == "group" and self._unsynced:
                sync_wal(self.path)
            for connection in self._readers:
                connection.close(True)
            self._readers.clear()
            if self._writer is not None:
                self._let_go(self._writer)
            self._writer = None

    def _let_go(self, writer: apsw.Connection) -> None:
        """Close the last connection; it tidies the WAL away if that is still ours."""
        try:
            self._files.check()
            writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        except (ReplacedError, OSError):
            pass
        writer.close(True)


def _span(no: int) -> tuple[int, int]:
    return no << SEQ_BITS, (no << SEQ_BITS) | SEQ_MAX


def _to_bytes(checkpoint: Checkpoint) -> bytes:
    return msgspec.msgpack.encode(checkpoint)


def _ref(row: tuple[Any, ...]) -> Ref:
    name, kind, seq, deleted, epoch, held, holder, data = row
    checkpoint = msgspec.msgpack.decode(data, type=Checkpoint) if data else None
    return Ref(name, kind, seq, bool(deleted), epoch, held, holder, checkpoint)


def _run_row(run: RunInfo, no: int) -> tuple[Any, ...]:
    return (
        run.id, run.agent, no, run.branch, run.function, run.key, run.status, run.started,
        run.ended, run.args, codec.encode(run.result), run.problem,
    )  # fmt: skip


def _run(row: tuple[Any, ...]) -> RunInfo:
    *fields, result, problem = row
    return RunInfo(*fields, result=codec.decode(result), problem=problem)


def _forget_in_children(backend: SqliteBackend) -> None:
    """A fork may happen while another thread holds the write lock: the child gets a new one."""
    weak = weakref.ref(backend)

    def renew() -> None:
        if (inherited := weak()) is not None:
            inherited._write_lock = threading.RLock()
            inherited._locks.forget_after_fork()

    os.register_at_fork(after_in_child=renew)
