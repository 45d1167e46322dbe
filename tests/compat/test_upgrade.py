"""A store of the first format, opened by this Perdure: it is brought up to date, or seen so."""

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, PerdureError
from perdure.model import Message
from perdure.storage.capabilities import Backend, RunQuery, Sent
from perdure.storage.log.reader import LogReader
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.repair import rebuild_checksums
from perdure.storage.sqlite.statements import migrations
from perdure.testing.faults import FaultyFiles, no_fault
from perdure.verification.repair_checks import Proof
from perdure.verification.verify import verify_log

FIXTURE = Path(__file__).resolve().parent / "fixtures" / "format-1.db"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(shutil.copy(FIXTURE, tmp_path))


def format_of(path: str) -> int:
    with open(path, "rb") as file:
        return int.from_bytes(file.read(64)[60:], "big")


def verify_all(backend: SqliteBackend) -> None:
    for info in backend.incarnations():
        verify_log(backend, LogReader(backend, info))


def test_it_is_brought_up_to_date(path: str) -> None:
    """`verify` compares every row of a run with what the log says: with the times that the first
    format did not keep, too."""
    backend = SqliteBackend(path)
    verify_all(backend)
    rows = backend.runs()
    assert len(rows) > 3 and all(0 < row.started_at_micros <= row.changed_at_micros for row in rows)
    assert all((row.turn, row.turn_at, row.queue) == (1, row.started, "default") for row in rows)
    run = next(row for row in rows if row.status == "done")
    start = Message(run.id, run.agent, "start", run.function)
    sent = backend.send(start)
    assert isinstance(sent, Sent) and not sent.fresh
    backend.close()
    assert format_of(path) == max(migrations()) == 2
    before = Path(path).read_bytes()
    SqliteBackend(path).close()
    assert Path(path).read_bytes() == before  # once


def test_the_schema_is_that_of_a_new_store(path: str, tmp_path: Path) -> None:
    SqliteBackend(path).close()
    new = str(tmp_path / "new.db")
    SqliteBackend(new).close()
    schemas = []
    for file in (path, new):
        db = sqlite3.connect(f"file:{file}?immutable=1", uri=True)
        schemas.append(sorted(map(str, db.execute("SELECT name, sql FROM sqlite_schema"))))
        db.close()
    assert schemas[0] == schemas[1]


def test_one_that_may_only_be_read_is_seen_as_new(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of years ago, on a disk that nobody may write to."""
    monkeypatch.setattr(connection, "may_write", lambda path: False)
    before = Path(path).read_bytes()
    backend = SqliteBackend(path, create=False)
    verify_all(backend)
    assert backend.inbox() == [] and backend.executors() == []
    assert backend.next_wake() == 0
    assert len(backend.runs(RunQuery(unfinished=True))) == len(backend.ready(2**60, 99)) == 0
    with pytest.raises(PerdureError, match="read-only"):
        backend.send(Message("r", "a", "start", "f"))
    backend.close()
    assert Path(path).read_bytes() == before
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["format-1.db"]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_upgrade_that_fails_leaves_the_old_format(path: str, operation: str) -> None:
    files = FaultyFiles()

    def full(done: str, name: str, end: int) -> None:
        if done == operation and name.endswith("-wal"):
            raise apsw.FullError("injected")

    files.fault = full
    with pytest.raises(PerdureError, match="disk is full"):
        SqliteBackend(path, vfs=files.name)
    files.fault = no_fault
    backend = SqliteBackend(path)
    verify_all(backend)
    backend.close()


def test_processes_that_upgrade_at_once(path: str) -> None:
    code = (
        "import sys; from perdure.storage.sqlite.backend import SqliteBackend as B; "
        "b = B(sys.argv[1]); print(len(b.runs()))"
    )
    command = [sys.executable, "-c", code, path]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0] for process in processes]
    assert len(set(said)) == 1 and int(said[0]) > 3
    backend = SqliteBackend(path)
    verify_all(backend)
    backend.close()


def test_i11_a_damaged_wal_is_found_before_anything_is_written(path: str) -> None:
    """An upgrade is a write: at the end of a WAL whose middle is damaged it would have overwritten
    commits that were acknowledged."""
    db = connection.connect(path, synchronous="FULL", create=False)
    for n in range(3):
        db.execute("INSERT INTO marks (name) VALUES (?)", (f"mark {n}",))
    kept = Path(path).read_bytes(), bytearray(Path(path + "-wal").read_bytes())
    db.close(True)
    Path(path).write_bytes(kept[0])
    kept[1][32 + 24 + 100] ^= 1
    Path(path + "-wal").write_bytes(kept[1])
    with pytest.raises(Corrupt, match="write-ahead log is damaged"):
        SqliteBackend(path)
    assert format_of(path) == 1
    assert Path(path + "-wal").read_bytes() == kept[1]


def test_a_repair_of_an_old_store_that_keeps_a_copy(path: str) -> None:
    """Rows as the first format had them are proved, too, behind the copy as before it."""
    data = bytearray(Path(path).read_bytes())
    data[-3] ^= 1  # a checksum, not what it is of
    data[4090] ^= 1  # that of the schema
    Path(path).write_bytes(data)
    assert all(one.head for one in perdure.repair(path, take_incomplete=True))
    assert format_of(path) == format_of(f"{path}-damaged") == 1
    backend = SqliteBackend(path)
    backend.maintain("check")
    verify_all(backend)
    backend.close()


def test_a_repair_of_an_old_store(path: str) -> None:
    """Proved as it is, with rows as the first format had them; upgraded when it is next opened."""
    data = bytearray(Path(path).read_bytes())
    data[-3] ^= 1  # a checksum, not what it is of
    Path(path).write_bytes(data)

    class Sure(Proof):
        def doubt(self, backend: Backend, doubtful: object) -> None:
            """Somebody knows that it was another SQLite."""

    proof = Sure(take_incomplete=False)
    rebuild_checksums(path, proof, take_incomplete=False)
    assert len(proof.agents) > 5 and format_of(path) == 1
    backend = SqliteBackend(path)
    backend.maintain("check")
    verify_all(backend)
    backend.close()
