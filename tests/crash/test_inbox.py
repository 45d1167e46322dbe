"""Messages under crashes: each test opens with its story."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from perdure.errors import StoreUnavailable
from perdure.model import Message
from perdure.storage.appending import Appended, Refused
from perdure.storage.capabilities import Backend, RunQuery, Sent
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.rows import run
from perdure.storage.sqlite.statements import statements
from perdure.testing.contract.inbox import put, signal
from perdure.testing.faults import FaultyFiles, no_fault
from perdure.testing.pen import Pen, a_run
from tests.crash.elsewhere import end, listen_elsewhere


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def backend(path: str, files: FaultyFiles) -> Iterator[SqliteBackend]:
    backend = SqliteBackend(path, vfs=files.name)
    yield backend
    files.fault = no_fault
    backend.close()


def once(files: FaultyFiles, operation: str, error: type[Exception], times: int = 1) -> None:
    """Let the next operations of a kind on the WAL fail."""
    left = [times]

    def fault(done: str, name: str, end: int) -> None:
        if done == operation and name.endswith("-wal") and left[0]:
            left[0] -= 1
            raise error("injected")

    files.fault = fault


SENDER = """
import os, signal, sys
from perdure.model import Message
from perdure.storage.sqlite.backend import SqliteBackend
backend = SqliteBackend(sys.argv[1], durability="os")
for n in range(20):
    backend.send(Message("r", "a", "signal", "go", str(n), n))
    print(n, flush=True)
    if n == 7:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_i1_a_message_survives_whoever_sent_it(path: str) -> None:
    """Killed between its call and hearing of it, the sender says it again: it is there once."""
    backend = SqliteBackend(path)
    Pen(backend).write(runs=[a_run("r")])
    command = [sys.executable, "-c", SENDER, path]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    assert said.split() == [str(n) for n in range(8)]
    again = backend.send(Message("r", "a", "signal", "go", "7", 7))
    assert isinstance(again, Sent) and not again.fresh
    assert [message.value for message in backend.inbox("r")] == list(range(8))
    backend.close()


def test_i1_a_message_is_synced_whatever_the_stores_durability(
    path: str, files: FaultyFiles
) -> None:
    """Commits at "os" may be lost in a power cut; what a person answered may not."""
    backend = SqliteBackend(path, durability="os", vfs=files.name)
    Pen(backend).write(runs=[a_run("r")])
    synced = files.counts.get("sync", 0)
    put(backend, signal())
    assert files.counts["sync"] > synced
    backend.close()


def test_i1_a_send_whose_commit_failed_and_happened_is_done(
    backend: SqliteBackend, files: FaultyFiles
) -> None:
    """COMMIT answered EIO with the row in place. To its sender that was a failure; said again, it
    seemed somebody else's message."""
    Pen(backend).write(runs=[a_run("r")])
    files.after = True
    once(files, "sync", apsw.IOError)
    sent = backend.send(signal(value=[1]))
    assert isinstance(sent, Sent) and sent.fresh
    assert backend.inbox("r") == [sent.message]


def test_i1_a_send_whose_commit_failed_is_made_again(
    backend: SqliteBackend, files: FaultyFiles
) -> None:
    Pen(backend).write(runs=[a_run("r")])
    once(files, "write", apsw.IOError)
    sent = backend.send(signal())
    assert isinstance(sent, Sent) and sent.fresh
    assert backend.inbox("r") == [sent.message]


def test_i12_a_full_disk_takes_no_message_and_loses_none(
    backend: SqliteBackend, files: FaultyFiles
) -> None:
    Pen(backend).write(runs=[a_run("r")])
    first = put(backend, signal(key="1"))
    once(files, "write", apsw.FullError, times=99)
    with pytest.raises(StoreUnavailable) as failed:
        backend.send(signal(key="2"))
    assert "disk is full" in str(failed.value)
    files.fault = no_fault
    assert backend.inbox() == [first]
    assert put(backend, signal(key="2")).no > first.no


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_i2_a_message_goes_exactly_with_its_commit(
    backend: SqliteBackend, files: FaultyFiles, operation: str, *, after: bool
) -> None:
    """The commit of a run that took a signal failed at COMMIT. Settled anew, it found its message
    taken out, by itself, and refused itself; or the message was gone and the commit was not."""
    pen = Pen(backend)
    pen.write(runs=[a_run("r")])
    first, second = put(backend, signal(key="1")), put(backend, signal(key="2"))
    files.after = after
    once(files, operation, apsw.IOError)
    pen.write(consumed=[first.no])
    assert backend.inbox() == [second]
    assert len(backend.read(pen.number(), 1, 9)) == 2


def test_i2_a_commit_that_is_not_in_has_taken_nothing_out(
    path: str, backend: SqliteBackend, files: FaultyFiles
) -> None:
    pen = Pen(backend)
    pen.write(runs=[a_run("r")])
    message = put(backend, signal())
    once(files, "write", apsw.FullError, times=99)
    append, _ = pen.make(consumed=[message.no])
    (outcome,) = backend.append([append])
    assert isinstance(outcome, StoreUnavailable)
    files.fault = no_fault
    assert backend.inbox() == [message]
    pen.write(consumed=[message.no])


def test_i2_two_stores_take_a_message_out_once(path: str) -> None:
    one, other = SqliteBackend(path), SqliteBackend(path)
    a, b = Pen(one, "a"), Pen(other, "b")
    a.write(runs=[a_run("r")])
    b.write()
    for n in range(5):
        message = put(one, signal(key=str(n)))
        outcomes: list[object] = []
        for pen in (a, b) if n % 2 else (b, a):
            append, tail = pen.make(consumed=[message.no])
            outcomes += pen.backend.append([append])
            if isinstance(outcomes[-1], Appended):
                pen.accept(append, tail, outcomes[-1])
        assert outcomes[1:] == [Refused("consumed")]
    one.close()
    other.close()


def test_a_store_that_may_only_be_read_shows_its_inbox(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.storage.sqlite import connection

    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write(runs=[a_run("r", status="waiting", wake_at_micros=5)])
    message = put(backend, signal())
    backend.close()
    monkeypatch.setattr(connection, "may_write", lambda path: False)
    looking = SqliteBackend(path, create=False)
    assert looking.inbox() == [message]
    assert [row.id for row in looking.ready(9, 9)] == ["r"]
    assert (looking.next_wake(), looking.executors()) == (5, [])
    with pytest.raises(StoreUnavailable, match="read-only"):
        looking.send(signal(key="2"))
    looking.notify("r")
    looking.close()


def test_i8_a_run_is_ready_when_its_owner_is_dead(path: str) -> None:
    """A worker that looks for orphans had to look at every run of every living one, and with a
    thousand of those never came to the one that nobody had."""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write(runs=[a_run("orphan"), a_run("cancelled")])
    process = listen_elsewhere(path)
    try:
        backend.lease(pen.number(), "main", "other")
        assert backend.ready(0, 9) == []
        put(backend, Message("cancelled", "a", "cancel", ""))
        assert [row.id for row in backend.ready(0, 9)] == ["cancelled"]
    finally:
        end(process)
    assert [row.id for row in backend.ready(0, 9)] == ["cancelled", "orphan"]
    backend.lease(pen.number(), "main", "mine", over=1)
    backend.heartbeat("mine", 60_000)  # whether it is at work here, this process knows
    assert [row.id for row in backend.ready(0, 9)] == ["cancelled", "orphan"]
    backend.close()


# -- what it costs -----------------------------------------------------------------------------


def steps(backend: SqliteBackend, look: Callable[[Backend], object]) -> int:
    """Instructions of SQLite that a look-up takes."""
    ticks = [0]

    def tick() -> bool:
        ticks[0] += 1
        return False

    with backend._reading() as db:
        db.set_progress_handler(tick, 10)
    look(backend)
    with backend._reading() as db:
        db.set_progress_handler(None)
    return ticks[0] * 10


def test_a_hundred_thousand_that_wait_cost_nothing(path: str) -> None:
    """Each worker asks several times a second what there is to do. It went over every row."""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    row = a_run("w0", status="waiting", wake_at_micros=2**60)
    pen.write(runs=[replace(row, id=f"w{n}") for n in range(100)])
    looks: list[Callable[[Backend], object]] = [
        lambda backend: backend.ready(100, 50),
        lambda backend: backend.next_wake(),
        lambda backend: backend.inbox("w7"),
        lambda backend: backend.runs(RunQuery(run_id="w7")),
        lambda backend: backend.runs(RunQuery(newest_first=True, limit=5)),
        lambda backend: backend.runs(RunQuery(agent="b", unfinished=True)),
    ]
    few = [steps(backend, look) for look in looks]
    pen.write(runs=[replace(row, id=f"w{n}") for n in range(5000)])
    for n in range(100):  # that are to start need not be looked at, one by one
        backend.send(Message(f"s{n}", "a", "start", "f"))
    many = [steps(backend, look) for look in looks]
    for before, now in zip(few, many, strict=True):
        assert now <= before + 100, (few, many)
    backend.close()


def test_every_statement_can_be_prepared(path: str) -> None:
    """One that forces an index fails where the index does not serve."""
    backend = SqliteBackend(path)
    with backend._alone(), backend._transaction() as db:
        run(db, "make_standings")  # a table that is there only in stores that need it
    with backend._reading() as db:
        assert run(db, "next_timer") == []
        for name, text in statements().items():
            if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE")):
                assert list(db.execute("EXPLAIN " + text, _anything(text))), name
    backend.close()


def _anything(text: str) -> Any:
    if names := re.findall(r":([a-z_]+)", text):
        return dict.fromkeys(names)
    numbered = [n for n in range(1, 9) if f"?{n}" in text]
    return (None,) * (max(numbered) if numbered else text.count("?"))
