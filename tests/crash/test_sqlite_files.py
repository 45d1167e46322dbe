"""The worst nights of a SQLite file: each test opens with the story that it keeps in mind."""

import errno
import multiprocessing
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import (
    Corrupt,
    NotAStore,
    NotFound,
    StoreUnavailable,
    UnsupportedFormat,
)
from perdure.storage.appending import Appended
from perdure.storage.locate import locate
from perdure.storage.sqlite import connection, executors
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing.contract.backend import Pen
from perdure.testing.faults import FaultyFiles, no_fault


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@perdure.agent(dict)
def waits(run: perdure.Run[dict[str, Any]]) -> None:
    run.wait_for("go")


@perdure.agent(dict)
def done(run: perdure.Run[dict[str, Any]]) -> None: ...


def filled(path: str, commits: int = 50) -> None:
    backend = SqliteBackend(path)
    pen = Pen(backend)
    for n in range(commits):
        pen.write(value={"text": f"message {n} " * 20})
    backend.close()


def read_all(path: str) -> list[tuple[int, bytes, bytes]]:
    backend = SqliteBackend(path)
    try:
        rows = backend.read(1, 1, 10_000)
        assert backend.ref(1, "main") is not None
        backend.maintain("check")
        return [(row.seq, row.header, row.payload) for row in rows]
    finally:
        backend.close()


# -- what is not a store ---------------------------------------------------------------------


def test_a_text_file_is_refused_and_left_alone(path: str) -> None:
    Path(path).write_bytes(b"my diary\n" * 1000)
    with pytest.raises(NotAStore, match="not a Perdure store"):
        SqliteBackend(path)
    assert Path(path).read_bytes() == b"my diary\n" * 1000
    assert os.listdir(os.path.dirname(path)) == ["store.db"]


@pytest.mark.parametrize("text", [b"x", b"S", b"\0", b"hi", b"a" * 99, b"a" * 512], ids=len)
def test_a_short_file_is_refused_and_left_alone(path: str, text: bytes) -> None:
    """SQLite takes a file of one byte for an empty one, and made a store of it: the byte, somebody
    else's, was gone."""
    Path(path).write_bytes(text)
    for create in (True, False):
        with pytest.raises(NotAStore, match="not a Perdure store"):
            locate(path, create=create)
    assert Path(path).read_bytes() == text
    assert os.listdir(os.path.dirname(path)) == ["store.db"]


def test_what_is_no_file_is_said_to_be_none(path: str) -> None:
    """Of /dev/null it was said that the disk may be failing, of a folder that it is unavailable;
    and a pipe was waited for."""
    os.mkfifo(path)
    for place, said in (
        (os.devnull, "not a regular file"),
        (path, "not a regular file"),
        (os.path.dirname(path), "is a folder"),
    ):
        with pytest.raises(NotAStore, match=said):
            locate(place)


def test_another_programs_database_is_refused_and_left_alone(path: str) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    before = Path(path).read_bytes()
    with pytest.raises(NotAStore):
        SqliteBackend(path)
    assert Path(path).read_bytes() == before


def test_a_newer_format_is_refused_and_left_alone(path: str) -> None:
    filled(path)
    raw = apsw.Connection(path, vfs=connection.checksum_vfs())
    raw.pragma("user_version", 99)
    raw.close()
    with pytest.raises(UnsupportedFormat, match="99"):
        SqliteBackend(path)


def test_looking_does_not_create(path: str) -> None:
    with pytest.raises(NotFound, match="no such file"):
        locate(path, create=False)
    assert not os.path.exists(path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteBackend(str(tmp_path / "no" / "store.db"))


def test_a_folder_that_was_deleted_beneath_the_process_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare FileNotFoundError, which named nothing."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(NotFound, match="the current directory was deleted"):
        perdure.open("x.db")


def test_a_network_file_system_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"30 25 0:26 / {os.path.dirname(path)} rw - nfs4 server:/export rw\n"
    monkeypatch.setattr(Path, "read_text", lambda _: line)
    with pytest.raises(StoreUnavailable, match="network file system"):
        SqliteBackend(path)


def test_a_network_file_system_behind_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the link is on a local disk, and was what was looked at."""
    far, here = tmp_path / "far", tmp_path / "here"
    far.mkdir()
    here.mkdir()
    (here / "store.db").symlink_to(far / "store.db")
    SqliteBackend(str(here / "before.db")).close()  # what it reads of the package's files is kept
    mounts = f"29 25 8:1 / / rw - ext4 /dev/sda1 rw\n30 25 0:26 / {far} rw - nfs4 server:/e rw\n"
    monkeypatch.setattr(Path, "read_text", lambda _: mounts)
    SqliteBackend(str(here / "other.db")).close()
    with pytest.raises(StoreUnavailable, match="network file system"):
        SqliteBackend(str(here / "store.db"))


def test_the_files_of_a_store_behind_a_link_are_known(path: str, tmp_path: Path) -> None:
    """SQLite keeps the WAL beside the file, and it was looked for beside the link: so nobody saw
    that it was deleted, and commits were acknowledged that were lost."""
    filled(path)
    (tmp_path / "link.db").symlink_to(path)
    with perdure.open(tmp_path / "link.db") as store:
        assert store.url == f"sqlite:///{path}"
        agent = store.agent("linked", initial={})
        agent.update(lambda draft: draft.update(n=1))
        os.unlink(path + "-wal")
        with pytest.raises(Corrupt, match="-wal was deleted"):
            agent.update(lambda draft: draft.update(n=2))


# -- bad bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 40, 4000])
def test_i12_a_file_that_ends_within_a_page_is_corrupt(path: str, cut: int) -> None:
    """SQLite took the missing bytes for zeros, and did not look at that page's checksum: a signal
    that waited there came to its run with zeros for its end, and `verify` found nothing."""
    filled(path)
    os.truncate(path, os.path.getsize(path) - cut)
    with pytest.raises(Corrupt, match="ends within its last page"):
        SqliteBackend(path)


@pytest.mark.parametrize("cut", [40, 4000, 4096, 2 * 4096])
def test_a_file_that_is_cut_short_while_it_is_in_use_does_not_pass(path: str, cut: int) -> None:
    """Something is in the WAL of a store that is open, and so nobody looked: of a value that goes
    on on other pages, as of a message that waits, the end was zeros, and `verify` found nothing."""
    filled(path)
    with perdure.open(path) as store:
        for number in range(4):
            store.start(waits, f"new {number}").signal("go", "x" * 12000)
    with perdure.open(path) as store:
        store.agent("a", initial={}).checkpoint("made")
        assert os.path.getsize(path + "-wal")
        os.truncate(path, os.path.getsize(path) - cut)
        with pytest.raises(Corrupt):
            store.check_pages()
        for name in (path, path + "-wal"):
            shutil.copy(name, name.replace("store", "copy"))
    with pytest.raises(Corrupt), perdure.open(path.replace("store", "copy")) as store:
        store.check_pages()


def test_a_checkpoint_that_ended_within_a_page_is_made_again(path: str) -> None:
    """At a limit for files, say. All of it is in the WAL still; but the file alone was looked at,
    and a healthy store was Corrupt for good."""
    filled(path)
    with perdure.open(path) as store:
        store.agent("another", initial={}).checkpoint("made")
        for name in (path, path + "-wal"):
            shutil.copy(name, name.replace("store", "copy"))
    copied = path.replace("store", "copy")
    with open(copied, "ab") as file:  # a page more, of which a checkpoint got through with a part
        file.write(bytes(100))
    assert os.path.getsize(copied) % 4096
    with perdure.open(copied) as store:
        assert store.agent("another").verify().commits
        store.check_pages()
    assert os.path.getsize(copied) % 4096 == 0


def test_i11_i12_flipped_bits_are_found(path: str) -> None:
    """10 of 250 flipped bits made an indexed look-up miss in silence: a commit "was not there".

    Whatever bit is flipped, what is read is either exactly what was written or an error.
    """
    filled(path)
    whole = read_all(path)
    original = Path(path).read_bytes()
    rng = random.Random(7)
    found = 0
    for _ in range(250):
        bit = rng.randrange(len(original) * 8)
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << (bit % 8)
        Path(path).write_bytes(damaged)
        try:
            assert read_all(path) == whole
        except (Corrupt, NotAStore, UnsupportedFormat):
            found += 1
        for suffix in ("-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)
    assert found > 150  # or the file is mostly unused, and this proves little


def test_i11_a_damaged_first_byte_is_damage_and_no_other_file(path: str) -> None:
    """One flipped bit in the file's magic, and the operator was told to check the path."""
    filled(path)
    whole = bytearray(Path(path).read_bytes())
    whole[5] ^= 1
    Path(path).write_bytes(whole)
    with pytest.raises(Corrupt, match="first page is damaged"):
        SqliteBackend(path)


# -- looking without a right to write ----------------------------------------------------------


def read_only(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also root may not write: a mode alone would not keep it from that."""
    os.chmod(path, 0o444)
    monkeypatch.setattr(connection, "may_write", lambda _: False)


def test_a_store_that_may_only_be_read_can_be_looked_at(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a read-only store left a read-only -shm beside it, and when the file was made
    writable again no program could write."""
    filled(path)
    with monkeypatch.context() as only_reading:
        read_only(path, only_reading)
        with perdure.open(path, create=False) as store:
            assert [info.seq for info in store.agents()] == [50]
            store.check_pages()
            store.agent_of(store.agents()[0]).verify()
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="read-only"):
                    store.delete("a")
    assert os.listdir(os.path.dirname(path)) == ["store.db"]
    os.chmod(path, 0o644)
    with perdure.open(path) as store:
        store.delete("a")


def test_who_may_only_look_sees_no_old_state_as_the_present_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may only read had a closed store open, as a dashboard has, and its owner began to
    write: the dashboard showed the old states on and on, and called healthy agents Corrupt."""
    filled(path)
    may = [False]
    monkeypatch.setattr(connection, "may_write", lambda _: may[0])
    with perdure.open(path, create=False) as looker:
        agent = looker.agent_of(looker.agents()[0])
        assert agent.seq == 50
        may[0] = True
        with perdure.open(path) as store:
            with store.agent_of(store.agents()[0]).edit("more") as draft:
                draft["n"] = "more"
            may[0] = False
            for look in (looker.agents, agent.refresh, agent.verify):
                with pytest.raises(StoreUnavailable, match="part of it is in its -wal"):
                    look()
            may[0] = True
        may[0] = False
        with suppress(StoreUnavailable):  # that the file is another one since, is said once
            looker.agents()
        assert agent.refresh()["n"] == "more"


def test_a_store_that_may_only_be_read_takes_no_commit(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one was said to be of unknown fate, and those behind it that the disk may fail."""
    filled(path)
    read_only(path, monkeypatch)
    backend = SqliteBackend(path)
    for _ in range(3):
        (outcome,) = backend.append([Pen(backend, "b").make()[0]])
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.problem.startswith("the file is read-only") and outcome.outcome == "not_done"
    backend.close()


def test_a_read_only_store_with_a_wal_says_what_to_do(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SqliteBackend(path)
    Pen(backend).write()
    with monkeypatch.context() as only_reading:
        read_only(path, only_reading)
        with pytest.raises(StoreUnavailable, match="copy the file and its -wal"):
            SqliteBackend(path)
    backend.close()


def test_a_copy_without_its_wal_says_so(path: str, tmp_path: Path) -> None:
    backend = SqliteBackend(path)
    Pen(backend).write()
    copy = str(tmp_path / "copy.db")
    shutil.copy(path, copy)
    with pytest.raises(NotAStore, match="its -wal belongs to it"):
        SqliteBackend(copy, create=False)
    backend.close()


# -- other hands on the files ------------------------------------------------------------------

CHECKPOINT_ELSEWHERE = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
c.close()
"""


def test_i1_a_second_sqlite_in_the_process_drops_our_locks(path: str) -> None:
    """POSIX locks belong to the process: a stdlib sqlite3 that opened and closed our file dropped
    them; the next process believed itself alone, checkpointed, and deleted the WAL under us. What
    we then wrote went into a file without a name, and was acknowledged."""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write()
    other = sqlite3.connect(path)
    other.execute("SELECT count(*) FROM sqlite_master").fetchall()
    other.close()
    subprocess.run([sys.executable, "-c", CHECKPOINT_ELSEWHERE, path], check=True)
    lost = not os.path.exists(path + "-wal")
    append, _ = pen.make()
    (outcome,) = backend.append([append])
    if lost:
        assert isinstance(outcome, Corrupt)
        assert "another program" in str(outcome)
    else:
        assert isinstance(outcome, Appended)
    backend.close()
    # A SQLite without our file layer moves pages without their checksums, so the store is refused
    # until it is repaired; what was acknowledged is in it.
    repaired = perdure.repair(path)
    assert [one.commits for one in repaired] == [1 if lost else 2]
    assert len(read_all(path)) == (1 if lost else 2)


def test_i11_a_repair_refuses_data_that_is_damaged(path: str) -> None:
    """A changed payload: rebuilding the checksums over it would have hidden it for ever."""
    with perdure.open(path) as store, store.agent("a").edit("x") as draft:
        draft["text"] = "a sentence that is long enough to be found in the file " * 3
    raw = apsw.Connection(path, vfs="unix")
    raw.execute("UPDATE commits SET payload = CAST(substr(payload, 1, 60) || x'00' AS BLOB)")
    raw.close()
    before = Path(path).read_bytes()
    with pytest.raises(Corrupt):
        perdure.repair(path)
    assert Path(path).read_bytes() == before


def test_a_repair_waits_for_nobody_to_have_it_open(path: str) -> None:
    """It said that it wants the store for itself, and rewrote it under a program at work."""
    filled(path)
    opened = subprocess.Popen(
        [sys.executable, "-c", HOLD_OPEN, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert opened.stdout is not None and opened.stdout.readline() == b"open\n"
    with pytest.raises(StoreUnavailable, match="another process has it open"):
        perdure.repair(path)
    opened.communicate()
    assert [one.commits for one in perdure.repair(path)] == [50]
    assert len(read_all(path)) == 50


HOLD_OPEN = """
import sys
from perdure.storage.sqlite.backend import SqliteBackend
backend = SqliteBackend(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
backend.close()
"""


def test_lock_files_of_the_dead_are_tidied_away(path: str) -> None:
    """Each kill left one behind; after a demo of twenty kills there were twenty-one."""
    backend = SqliteBackend(path)
    folder = Path(path + "-executors")
    folder.mkdir()
    (folder / "long-dead").touch()
    (folder / "just-died").touch()
    backend.heartbeat("just-died", 60_000)  # its row counts: without its file it would seem alive
    backend.close()
    (folder / "just-died").touch()
    backend = SqliteBackend(path)
    backend.heartbeat("one", 60_000)
    assert sorted(os.listdir(folder)) == ["just-died", "one"]
    assert not backend.alive("just-died")
    backend.close()


def test_looking_does_not_fill_an_empty_file(path: str) -> None:
    Path(path).touch()
    with pytest.raises(NotAStore):
        perdure.open(path, create=False)
    assert Path(path).read_bytes() == b""


def test_i1_a_deleted_wal_is_not_written_to_in_silence(path: str) -> None:
    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write()
    os.unlink(path + "-wal")
    (outcome,) = backend.append([pen.make()[0]])
    assert isinstance(outcome, Corrupt)
    assert "deleted" in str(outcome)
    backend.close()


def test_two_stores_of_one_process_share_a_file(path: str) -> None:
    one, two = SqliteBackend(path), SqliteBackend(path)
    a, b = Pen(one, "a"), Pen(two, "b")
    for _ in range(5):
        a.write()
        b.write()
    two.close()
    a.write()
    assert [info.seq for info in one.agents()] == [6, 5]
    one.close()


def _child(backend: SqliteBackend, queue: "multiprocessing.Queue[str]") -> None:
    pen = Pen(backend, "child")
    pen.write()
    queue.put("written")


def test_a_forked_child_opens_the_file_anew(path: str) -> None:
    """SQLite's connections do not survive a fork: a child that used its parent's, or even closed
    it, could corrupt the file."""
    backend = SqliteBackend(path)
    pen = Pen(backend, "parent")
    pen.write()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(backend, queue))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    pen.write()
    assert [info.name for info in backend.agents()] == ["child", "parent"]
    backend.close()
    assert len(read_all(path)) >= 1


# -- failing disks -----------------------------------------------------------------------------


def test_a_full_disk_leaves_all_as_it_was(path: str) -> None:
    files = FaultyFiles()
    backend = SqliteBackend(path, vfs=files.name)
    pen = Pen(backend)
    pen.write()

    def full(operation: str, name: str, end: int) -> None:
        if operation == "write":
            raise apsw.FullError("disk full")

    files.fault = full
    append, _ = pen.make()
    (outcome,) = backend.append([append])
    assert isinstance(outcome, StoreUnavailable), outcome
    assert outcome.retry
    files.fault = no_fault
    assert len(backend.read(1, 1, 9)) == 1
    (outcome,) = backend.append([append])
    assert isinstance(outcome, Appended)
    backend.close()
    assert len(read_all(path)) == 2


def test_i1_a_commit_that_failed_and_happened_is_looked_up(path: str) -> None:
    """COMMIT said EIO, and the row was there after reopening: a retry would have written it twice,
    an error would have been a lie."""
    files = FaultyFiles()
    backend = SqliteBackend(path, vfs=files.name)
    pen = Pen(backend)
    pen.write()
    files.after = True
    failures = iter([True])

    def lost_answer(operation: str, name: str, end: int) -> None:
        if operation == "sync" and name.endswith("-wal") and next(failures, False):
            raise apsw.IOError("the answer was lost")

    files.fault = lost_answer
    append, tail = pen.make()
    (outcome,) = backend.append([append])
    assert isinstance(outcome, Appended), outcome
    pen.accept(append, tail, outcome)
    pen.write()
    backend.close()
    assert len(read_all(path)) == 3


def test_i1_unknown_is_said_where_it_cannot_be_found_out(path: str) -> None:
    files = FaultyFiles()
    backend = SqliteBackend(path, vfs=files.name)
    pen = Pen(backend)
    pen.write()

    def dead(operation: str, name: str, end: int) -> None:
        raise apsw.IOError("the disk is gone")

    files.fault = dead
    (outcome,) = backend.append([pen.make()[0]])
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.outcome == "unknown"
    files.fault = no_fault
    pen.tail = type(pen.tail)(*_tail(backend))
    pen.heads["main"] = pen.tail.seq
    pen.write()
    backend.close()


def _tail(backend: SqliteBackend) -> tuple[int, bytes, int]:
    from perdure.core.format import chain

    row = backend.read(1, 1, 99)[-1]
    tail = chain.tail_of(row.header, "a")
    return tail.seq, tail.id, tail.at


def test_i2_in_a_batch_only_what_cannot_be_written_fails(path: str) -> None:
    """One commit too large for the disk must not fail the sixty-three beside it."""
    files = FaultyFiles()
    backend = SqliteBackend(path, vfs=files.name)
    pens = [Pen(backend, f"agent-{n}") for n in range(4)]
    for pen in pens:
        pen.write()
    appends = [pen.make(value="x" * (1_000_000 if n == 2 else 10))[0] for n, pen in enumerate(pens)]
    appends[2].payload = b"x" * 3_000_000

    def nearly_full(operation: str, name: str, end: int) -> None:
        if operation == "write" and end > 1_000_000:
            raise apsw.FullError("disk full")

    files.fault = nearly_full
    outcomes = backend.append(appends)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds[2] is StoreUnavailable
    assert kinds[0] is kinds[1] is Appended
    files.fault = no_fault
    backend.close()


def test_a_file_made_read_only_under_us_says_so(path: str) -> None:
    files = FaultyFiles()
    backend = SqliteBackend(path, vfs=files.name)
    pen = Pen(backend)
    pen.write()

    def read_only(operation: str, name: str, end: int) -> None:
        if operation == "write":
            raise apsw.ReadOnlyError("read-only")

    files.fault = read_only
    (outcome,) = backend.append([pen.make()[0]])
    assert isinstance(outcome, StoreUnavailable)
    assert "read-only" in str(outcome)
    files.fault = no_fault
    pen.write()
    backend.close()


def test_nobody_tidies_a_file_that_is_just_made_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit before a VACUUM woke the store's own housekeeper, which moved the WAL meanwhile:
    half of the calls said that another process had locked the file."""
    at_work: list[str] = []
    with perdure.open(tmp_path / "s.db") as store:
        store.agent("a").save({"n": 1})
        writer: Any = store._context.backend._writer  # type: ignore[attr-defined]
        keeper, begin, tidy = writer._housekeeper, writer.begin, writer.tidy

        def woken(**how: Any) -> Any:
            keeper._checkpoint_due = True
            keeper._kick()
            time.sleep(0.05)
            return begin(**how)

        def tidied() -> None:
            at_work.append("shrink")
            tidy()

        monkeypatch.setattr(keeper, "_checkpoint", lambda: at_work.append("housekeeper"))
        monkeypatch.setattr(writer, "begin", woken)
        monkeypatch.setattr(writer, "tidy", tidied)
        store.shrink()
    assert at_work[0] == "shrink"


def test_a_disk_that_fails_as_a_store_closes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the file that shows that a process lives gave a bare OSError, and nothing behind it
    was closed."""

    class Failing(FileIO):
        def close(self) -> None:
            was_open = not self.closed
            super().close()
            if was_open:
                raise OSError(errno.EIO, "closing")

    monkeypatch.setattr(executors, "FileIO", Failing)
    with perdure.open(path) as store:
        store.run(done, "b")
        store.agent("a").save({"n": 1})
    with perdure.open(path) as store:
        assert store.agent("a").state == {"n": 1}
