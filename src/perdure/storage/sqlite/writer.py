"""The one connection that writes: its transactions, and the outcomes of failed ones.

A commit's fate after an error is looked up, never guessed: COMMIT has been seen to fail with the
row in place (I1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from sys import _getframe
from typing import TypeVar, TypeVarTuple

import apsw

from perdure.errors import Corrupt, PerdureError, StoreUnavailable
from perdure.storage.appending import Append, Appended, Outcome
from perdure.storage.clocks import Clock, wall_clock
from perdure.storage.disk_waits import DiskWaits
from perdure.storage.sqlite.absent import Find, is_refused_room, judged
from perdure.storage.sqlite.alone import keep_copy, without_wal, write_anew
from perdure.storage.sqlite.append import append, landed
from perdure.storage.sqlite.connection import connect
from perdure.storage.sqlite.failed_sync import doubt, is_in_doubt, trust
from perdure.storage.sqlite.faults import FAILED, MisplacedError, ReplacedError, translate, unmasked
from perdure.storage.sqlite.file_complete import UNSYNCED, may_have_wal
from perdure.storage.sqlite.files import Files
from perdure.storage.sqlite.housekeeper import Housekeeper
from perdure.storage.sqlite.readers import Readers
from perdure.storage.sqlite.rows import do
from perdure.storage.sqlite.trees import Trees
from perdure.storage.sqlite.upgrade import upgrade
from perdure.storage.sqlite.wal import FRAME_SIZE, ROOM_BEHIND, make_room, sync_wal, write_wal_again
from perdure.storage.sqlite.wal_base import WalBase
from perdure.storage.unknown_outcome import unknown
from perdure.system.locks import Lock, WithinItselfError, first_frame

T = TypeVar("T")
Asked = TypeVarTuple("Asked")

HEADS_KEPT = 4096
"""Agents whose last commit is kept in memory, so that the next one need not read it."""


class Writer:
    """The writing connection of one open store. `lock` orders its users.

    An exception may come between any two instructions. The next holder of the lock repairs what it
    left: see `ready`.
    """

    def __init__(
        self,
        path: str,
        waits: DiskWaits,
        vfs: str | None,
        *,
        create: bool,
        checked: bool = True,
        clock: Clock = wall_clock,
    ) -> None:
        self._path = path
        self._clock = clock
        self._waits = waits
        self._vfs, self._checked = vfs, checked
        self._trees = Trees(path)
        self._marked = False
        self._suspect, self._lacked_room = is_in_doubt(path), False
        self._final: PerdureError | None = None
        self._only_looks: bool | None = None
        self._lent: tuple[apsw.Connection, Readers] | None = None
        self.lock = Lock()
        self._housekeeper = Housekeeper(
            path, self._connect_again, waits.flush_after_s, self.sync_failed, lambda: self.lock
        )
        self._base = WalBase()
        has_wal = may_have_wal(path)
        self._connection: apsw.Connection | None = self.connect(create=create, has_wal=has_wal)
        try:
            if checked and not self._connection.readonly("main"):
                upgrade(self._connection)
            self._adopt(self._connection)
        except BaseException as error:
            found = unmasked(error, self._connection)
            self._connection.close(True)
            if isinstance(found, FAILED):
                raise translate(found, path) from error
            raise

    def connect(self, *, create: bool = False, has_wal: bool = False) -> apsw.Connection:
        """Returns another connection to the same file."""
        synchronous = "FULL" if self._waits.durability == "sync" else "NORMAL"
        connection = connect(
            self._path,
            synchronous=synchronous,
            create=create,
            vfs=self._vfs,
            checked=self._checked,
            trees=self._trees,
            has_wal=has_wal,
        )
        only_looks = connection.readonly("main")
        if self._only_looks not in (None, only_looks):
            # A connection that may only read sees no WAL: not even this process's own commits.
            connection.close(True)
            problem = "this user's right to write to the file has changed since it was opened"
            hint = "open the store again"
            raise StoreUnavailable(problem, target=f"store {self._path}", hint=hint)
        self._only_looks = only_looks
        return connection

    def lend(self, readers: Readers) -> None:
        """Lends the connection of the opening to the readers, until somebody writes: a second one
        takes as long as opening a store and reading a little. The first writer takes it back, if
        nobody is reading with it at that moment."""
        connection, self._connection = self._connection, None
        assert connection is not None
        connection.set_wal_hook(None)
        self._lent = connection, readers
        self._housekeeper.close_left = readers.close_left
        readers.lend(connection)

    def _take_back(self) -> apsw.Connection | None:
        """Returns the lent connection, if it is free; None if another one is needed."""
        lent, self._lent = self._lent, None
        return lent[0] if lent is not None and lent[1].take_back(lent[0]) else None

    def _connect_again(self) -> apsw.Connection:
        self._files.check()
        return self.connect()

    def _adopt(self, connection: apsw.Connection) -> None:
        try:
            files = Files.of(self._path)
        except BaseException:
            connection.close(True)
            raise
        self._cursor = connection.cursor()
        self._heads: dict[int, tuple[int, bytes]] = {}
        self._full: bool | None = self._waits.durability == "sync"
        self._files = files
        self._housekeeper.wal_pages = 0
        self._base.forget()
        connection.set_wal_hook(self._housekeeper.wal_grew)
        self._connection = connection  # last: what goes with it is there

    def check(self) -> None:
        """Raises the error that ended this writer: it was closed, or its files were exchanged."""
        if self._final is not None:
            raise self._final

    def ready(self) -> apsw.Connection:
        """Returns, with the lock held, the connection outside of any transaction; reopened if the
        last failure, or a fork, closed it.

        An open transaction was left by a call that an exception ended: nobody wants it committed.
        """
        if self._final is not None:
            raise self._final
        if self._suspect:
            self._reopen_durably()
        if self._connection is None:
            self._files.check()  # I1: the files that were checked at the opening, or no others
            self._adopt(self._take_back() or self.connect())
        connection = self._connection
        assert connection is not None
        if connection.in_transaction:
            roll_back(connection)
        return connection

    def at_hand(
        self, look: Callable[[apsw.Connection, *Asked], T], *asked: *Asked
    ) -> tuple[T] | None:
        """Returns the result of a look at the committed data: this connection has the pages in
        memory, which others would have to read and check again. None if the connection is not free,
        or something is wrong with it."""
        if self._final is not None:
            raise self._final
        if self.lock.try_take(_getframe()):
            try:
                connection = self._connection
                if not (self._suspect or connection is None or connection.in_transaction):
                    return (look(connection, *asked),)
            except (apsw.Error, MisplacedError):
                pass  # one that only reads asks again, and says what is wrong
            finally:
                self.lock.give_back(_getframe())
        return None

    # -- commits ---------------------------------------------------------------------------

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        """See `Backend.append`."""
        try:
            return self._transact(batch)
        except FAILED as error:
            return self._settle(batch, error)
        except PerdureError as error:
            return [error] * len(batch)
        except Exception as error:  # one of them cannot be bound: the others are not to blame
            if len(batch) == 1:
                return [error]
            return [outcome for item in batch for outcome in self.append([item])]

    def _transact(self, batch: Sequence[Append]) -> list[Outcome]:
        connection, housekeeper, files = self.ready(), self._housekeeper, self._files
        durable = self._waits.due(batch)
        if durable != self._full:
            self._sync_each(connection, durable)
        if not durable and not self._marked:
            self._mark_unsynced(connection)
        cursor = self._cursor  # one that is kept: making one costs as much as beginning
        try:
            self._base.begin(connection, cursor.execute, self._path)
            pages = housekeeper.wal_pages
            if durable and pages and files.wal_size < pages * FRAME_SIZE + ROOM_BEHIND:
                files.check()  # no zeros into a file that is not ours
                make_room(self._path, self._vfs)
            outcomes = []
            for item in batch:
                outcomes.append(append(connection, item, self._clock, self._heads, cursor))
            cursor.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        files.check()
        if len(self._heads) > HEADS_KEPT:
            self._heads.clear()
        for item, outcome in zip(batch, outcomes, strict=True):
            if type(outcome) is Appended:
                last = item.then[-1] if item.then else item
                self._heads[outcome.no] = (last.seq, last.header)
        if durable:
            self._waits.unsynced = 0
            housekeeper.flush_due = False
        elif self._waits.flush_after_s is not None:
            housekeeper.flush_later()
        return outcomes

    def _mark_unsynced(self, connection: apsw.Connection) -> None:
        """Marks the store durably, before its first unsynced commit: see `check_wal`."""
        self.begin()
        do(connection, "add_mark", (UNSYNCED,))
        self.commit(connection)
        self._sync_each(connection, False)
        self._marked = True

    def _sync_each(self, connection: apsw.Connection, full: bool) -> None:
        """Sets whether the connection syncs each transaction that it commits."""
        if full != self._full:
            self._full = None  # I1: an exception in between leaves nobody to believe in a sync
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full

    def _settle(self, batch: Sequence[Append], error: Exception) -> list[Outcome]:
        """Settles a batch after an error: looks up what is in, retries the rest."""
        self._distrust(error)
        problem = self.translate(error)
        if isinstance(problem, Corrupt):
            return [problem] * len(batch)
        try:
            self._reopen_durably()
        except Exception:
            return [*self.judge(problem, *(partial(landed, item=item) for item in batch))]
        return [self._settle_one(item, problem) for item in batch]

    def _settle_one(self, item: Append, problem: PerdureError) -> Outcome:
        try:
            if (no := landed(self.ready(), item)) is not None:
                return Appended(no)
            return self._transact([item])[0]
        except FAILED as again:
            self._distrust(again)
            second = self.translate(again)
            try:
                self._reopen_durably()
                no = landed(self.ready(), item)
            except Exception:
                return self.judge(second, partial(landed, item=item))[0]
            return Appended(no) if no is not None else second
        except PerdureError as refused:
            return refused

    def _reopen_durably(self) -> None:
        """Drops the failed connection, and rewrites what it may have left unsynced.

        After a failed fsync the kernel may call lost pages clean, so a later fsync of the WAL
        proves nothing. I1: the WAL is written a second time before any of it goes into the main
        file: newer pages there, under a WAL whose end is lost, would be no state that ever was.
        Then it is emptied, durably: commits that nobody was told of must not reappear from it.
        """
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None
        self._housekeeper.close_left()
        connection = self.connect()
        try:
            write_wal_again(connection, self._path)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            sync_wal(self._path)
            self._adopt(connection)
        except BaseException as error:
            found = unmasked(error, connection)
            connection.close(True)
            self._connection = None
            if isinstance(found, FAILED):
                raise translate(found, self._path) from error
            raise
        self._suspect = False
        trust(self._path)

    def judge(self, problem: PerdureError, *finds: Find) -> list[PerdureError]:
        """Returns the errors for what failed and cannot be rewritten: not done, or unknown."""
        connect = self._connect_again if self._lacked_room else None
        return judged(problem, self._path, finds, connect)

    # -- everything else -------------------------------------------------------------------

    def begin(self, *, renumbers: bool = False) -> apsw.Connection:
        """Begins a transaction that is durable once committed; returns the connection. `renumbers`:
        pages may get other content under the same numbers."""
        connection = self.ready()
        self._sync_each(connection, True)
        self._base.begin(connection, connection.execute, self._path, always=renumbers)
        return connection

    def commit(self, connection: apsw.Connection) -> None:
        """Commits what `begin` began."""
        connection.execute("COMMIT")
        self._files.check()

    def drop_transaction(self) -> None:
        """Rolls back an open transaction, if any: other processes would wait for its end."""
        with suppress(apsw.Error):
            if self._connection is not None:
                roll_back(self._connection)

    def failed(self, error: Exception) -> PerdureError:
        """Returns the error of the tree for one that ended a transaction."""
        self._distrust(error)
        return self.translate(error)

    def translate(self, error: BaseException) -> PerdureError:
        """Returns the error of the tree; exchanged files explain all other errors."""
        error = unmasked(error, self._connection)
        try:
            self._files.check()
        except ReplacedError as replaced:
            # For good: what is read from now on may be invisible to everyone else.
            self._final = translate(replaced, self._path)
            return self._final
        except OSError as unknown:
            return translate(unknown, self._path)
        return translate(error, self._path)

    def tidy(self) -> None:
        """Moves all of the WAL into the main file, and empties it."""
        self._housekeeper.close_left()
        try:
            self.ready().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except FAILED as error:
            raise self.translate(error) from error

    def shrink(self) -> None:
        """Gives free pages back: the file is rewritten, and as much again goes through the WAL.
        Meanwhile nobody else can write."""
        with self._housekeeper.resting(), self.lock:
            try:
                connection = self.begin(renumbers=True)
                self.commit(connection)
                connection.execute("VACUUM")
            except FAILED as error:
                raise self.translate(error) from error
            self.tidy()

    def rewrite(self) -> None:
        """Writes every page again, with its checksum. Nobody else may have the file open."""
        self._without_wal(write_anew)
        self.tidy()

    def keep_copy(self) -> str:
        """Copies the file as it is, beside it; returns the copy's path. Nobody else may have the
        file open.

        Raises:
            StoreUnavailable: another process has it open; or there is no room for the copy.
        """
        return self._without_wal(lambda connection: keep_copy(connection, self._path))

    def _without_wal(self, work: Callable[[apsw.Connection], T]) -> T:
        connection = self.ready()
        self._base.forget()
        try:
            return without_wal(connection, self._path, work, checked=self._checked)
        except FAILED as error:  # that the WAL's file is gone is our own doing
            raise translate(unmasked(error, connection), self._path) from error
        finally:
            self._files = Files.of(self._path)

    def flush(self) -> None:
        """Makes everything acknowledged durable.

        Raises:
            StoreUnavailable: it may not be durable; the next write, or flush, rewrites it.
        """
        with self.lock:
            self.ready()
        try:
            sync_wal(self._path)
        except OSError as error:
            self.sync_failed()
            raise unknown(translate(error, self._path), f"store {self._path}") from error

    def _distrust(self, error: Exception) -> None:
        """Distrusts the connection after an error; and the WAL, if a sync may have failed."""
        self._suspect = True
        self._lacked_room = is_refused_room(error, self._connection)
        if isinstance(error, apsw.IOError | OSError):
            doubt(self._path)

    def sync_failed(self) -> None:
        """Notes that a sync failed: no later one of the file proves anything of earlier writes."""
        self._suspect = True
        doubt(self._path)

    def stop(self) -> None:
        """Before a fork: closes the connection, because SQLite's locks do not cross a fork. Until
        `go_on`, or `renew` in the child, nobody else can write."""
        self._housekeeper.stop()
        with suppress(WithinItselfError):  # this very thread has it
            self.lock.take(first_frame())
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None
        # From here on nobody in this process has the file open, and its readers have closed theirs,
        # too. So another process may be the last one to close it, and tidy the WAL away.
        self._files.wal = None

    def go_on(self) -> None:
        self.lock.give_back(first_frame())
        self._housekeeper.go_on()

    def renew(self) -> None:
        """Resets itself in the child."""
        self.lock = Lock()
        self._housekeeper.renew()

    def close(self, spare: apsw.Connection | None = None) -> None:
        """Closes; as the last one it tidies the WAL away, if that is still ours.

        Args:
            spare: the last connection that read, for a store that never wrote.
        """
        self._housekeeper.close()  # it may be waiting for the lock
        with self.lock:
            if self._suspect and self._final is None:
                with suppress(PerdureError, apsw.Error, ReplacedError, OSError):
                    self._reopen_durably()
            self._final = self._final or StoreUnavailable(
                "the store is closed", target=f"store {self._path}", hint="open it again"
            )
            if self._connection is not None and spare is not None:
                spare.close(True)  # only the last connection to a file tidies the WAL away
            if connection := self._connection or spare:
                self._let_go(connection)
            self._lent = self._connection = None  # last: who is interrupted calls again

    def _let_go(self, connection: apsw.Connection) -> None:
        with suppress(ReplacedError, OSError, apsw.ConnectionClosedError):  # closed before
            self._files.check()
            if self._waits.flush_after_s is not None and self._waits.unsynced:
                sync_wal(self._path)
            try:
                if self._files.wal_size and not self._suspect:
                    self._base.settle(connection)
            except apsw.Error as error:
                self._distrust(error)
            if not self._suspect:  # else what it moved might be lost in the WAL: a mixture is worse
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.close(True)


def roll_back(connection: apsw.Connection) -> None:
    """Ends the open transaction, if there is one."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
