"""The write-ahead log is moved and begun anew, whoever writes meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import apsw

from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.connection import connect
from perdure.storage.sqlite.housekeeper import CHECKPOINT_PAGES, LONG_PAGES, Housekeeper
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
        path, lambda: connect(path, synchronous="FULL", create=False, vfs=files.name), None,
        lambda: None, threading.Lock,
    )  # fmt: skip
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
