"""The write-ahead log is moved and begun anew, whoever writes meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.storage.sqlite import housekeeper
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.connection import connect
from perdure.storage.sqlite.housekeeper import CHECKPOINT_PAGES, LONG_PAGES, Housekeeper
from perdure.system.threads import Servants
from perdure.testing.faults import FaultyFiles, Operation

PAGE = 4096
ROUNDS = 12


def write(db: apsw.Connection, pages: int) -> None:
    """One transaction of another process, of about so many pages."""
    name = os.urandom(8).hex().ljust(pages * PAGE, ".")
    db.execute("INSERT INTO marks (name) VALUES (?)", (name,))
    db.execute("DELETE FROM marks WHERE name = ?", (name,))


def test_the_log_of_a_file_with_several_writers_does_not_grow_without_end(tmp_path: Path) -> None:
    """A pass that only moves pages leaves out what is committed while it syncs the main file, and a
    log of which something is left is not begun anew. We kept out our own writers, not those of
    other processes: with a worker and a client at work, the log grew for as long as both were
    busy. Here somebody commits in each sync of the main file."""
    path = str(tmp_path / "store.db")
    SqliteBackend(path).close()
    files = FaultyFiles()
    other = connect(path, synchronous="NORMAL", create=False)
    other.set_busy_timeout(0)
    beaten = 0

    def commit_meanwhile(operation: Operation, name: str, end: int) -> None:
        nonlocal beaten
        if operation == "sync" and name == path:
            try:
                write(other, 1)
            except apsw.BusyError:
                beaten += 1

    files.fault = commit_meanwhile
    housekeeper = Housekeeper(
        path,
        lambda: connect(path, synchronous="FULL", create=False, vfs=files.name),
        None,
        lambda: None,
        threading.Lock,
    )
    sizes = []
    for _ in range(ROUNDS):
        write(other, CHECKPOINT_PAGES)
        housekeeper._checkpoint()
        sizes.append(os.path.getsize(path + "-wal") // PAGE)
    assert max(sizes) < LONG_PAGES + 4 * CHECKPOINT_PAGES, sizes
    assert sizes[-1] == sizes[-3], sizes
    assert beaten, "nobody was ever kept out"
    housekeeper._let_go()
    other.close()


class Counting:
    """A connection that notes for how long each try to begin the WAL anew may wait."""

    def __init__(self, path: str) -> None:
        self.waits_ms: list[int] = []
        self._connection = connect(path, synchronous="OFF", create=False)
        self._busy_ms = 0
        self.close = self._connection.close

    def set_busy_timeout(self, milliseconds: int) -> None:
        self._busy_ms = milliseconds
        self._connection.set_busy_timeout(milliseconds)

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        if mode == apsw.SQLITE_CHECKPOINT_RESTART:
            self.waits_ms.append(self._busy_ms)
        return self._connection.wal_checkpoint(mode=mode)


def test_commits_do_not_each_wait_for_somebody_who_reads_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look was left in its transaction by an exception that somebody kept; it may as well be a
    long look of another process. The housekeeper could not begin the WAL anew, gave up after a
    fifth of a second with the writers' lock in hand, and tried it again at the next commit: so it
    was at each."""
    path = str(tmp_path / "store.db")
    SqliteBackend(path).close()
    writer, reader = (connect(path, synchronous="OFF", create=False) for _ in range(2))
    made: Any = Counting(path)
    waits_ms = made.waits_ms
    housekeeper = Housekeeper(path, lambda: made, None, pytest.fail, threading.Lock)
    monkeypatch.setattr(housekeeper, "_kick", lambda: True)  # the test does its work
    kicks, pages = 0, 0

    def told(told_by: apsw.Connection, name: str, number: int) -> int:
        nonlocal pages
        pages = number
        return housekeeper.wal_grew(told_by, name, number)

    writer.set_wal_hook(told)

    def commit_until(is_enough: Callable[[], bool]) -> None:
        nonlocal kicks
        while not is_enough():
            write(writer, CHECKPOINT_PAGES // 10)
            kicks += housekeeper._checkpoint_due
            housekeeper._do_what_is_due()

    reader.execute("BEGIN; SELECT count(*) FROM marks").fetchall()
    commit_until(lambda: pages >= 5 * LONG_PAGES)
    tried = [ms > 0 for ms in waits_ms]
    assert kicks <= 5 * LONG_PAGES / CHECKPOINT_PAGES
    assert sum(tried) == 3 < len(tried) <= kicks  # from 4, 8 and 16 thousand pages on

    reader.execute("COMMIT")
    commit_until(lambda: pages < CHECKPOINT_PAGES)  # at the next try, which does not wait
    assert len(waits_ms) == len(tried) + 1 and waits_ms[-1] == 0
    reader.execute("BEGIN; SELECT count(*) FROM marks").fetchall()
    commit_until(lambda: pages >= LONG_PAGES + CHECKPOINT_PAGES)
    assert waits_ms[len(tried) + 1] > 0, "the next one is not waited for"
    housekeeper._let_go()
    writer.close()
    reader.close()


def test_a_thread_that_could_not_be_started_is_not_asked_for_at_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory a thread dies before its first word, and is waited for meanwhile: each commit
    behind that, with the store's lock, would wait as long."""
    started: list[object] = []

    def begin(self: Servants, target: object) -> None:
        started.append(target)
        raise StoreUnavailable("no thread could be started")

    monkeypatch.setattr(Servants, "begin", begin)
    monkeypatch.setattr(housekeeper, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(housekeeper, "BEGIN_AGAIN_S", 3600.0)
    with perdure.open(tmp_path / "store.db") as store:
        for number in range(20):
            store.agent("a").save({"text": os.urandom(8192).hex(), "number": number})
    assert len(started) == 1
