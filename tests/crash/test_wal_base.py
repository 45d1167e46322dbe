"""A store's file beside a `-wal` that another file, or another state of it, had."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest

import perdure
from perdure import Corrupt
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.btree import is_whole
from perdure.storage.sqlite.connection import checksum_vfs
from perdure.storage.sqlite.wal_index import CHANGES, FRAMES, UNKNOWN, wal_index

NAMES = ("t0", "t1", "t2")
PAGE_SIZE = 4096


def write(path: Path, *numbers: int) -> None:
    """One commit for each number, of one agent after the other, in a store that is then closed."""
    with perdure.open(path) as store:
        _write(store, numbers)


def _write(store: perdure.Store, numbers: tuple[int, ...]) -> None:
    for n in numbers:
        with store.agent(NAMES[n % len(NAMES)]).edit("seen") as draft:
            draft.setdefault("seen", []).append([n, "x" * 300])


def crash(path: Path, *numbers: int, then: Callable[[perdure.Store], None] | None = None) -> None:
    """The same, and the files are left as a process that was killed leaves them."""
    left = {end: Path(f"{path}{end}") for end in ("", "-wal")}
    with perdure.open(path) as store:
        _write(store, numbers)
        if then is not None:
            then(store)
        kept = {file: file.read_bytes() for file in left.values()}
    for file, content in kept.items():
        file.write_bytes(content)


def seen(path: Path) -> list[int]:
    with perdure.open(path) as store:
        store.check_pages()
        for info in store.agents():
            store.agent_of(info).verify()
        return sorted(n for info in store.agents() for n, _ in store.agent_of(info).state["seen"])


def refused(path: Path) -> Corrupt:
    """Twice, and nothing is changed by it."""
    before = {end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal")}
    errors = []
    for _ in range(2):
        with pytest.raises(Corrupt, match="goes on from another state") as raised:
            perdure.open(path)
        errors.append(raised.value)
    assert before == {end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal")}
    return errors[0]


def mark(path: Path) -> tuple[Any, Any]:
    """The numbers in the main file."""
    connection = apsw.Connection(
        f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    [(base, own)] = connection.execute("SELECT base, own FROM wal_base").fetchall()
    connection.close()
    return base, own


def looking(path: Path) -> apsw.Connection:
    """One that never moves the WAL by itself."""
    connection = apsw.Connection(str(path), vfs=checksum_vfs())
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def own_of(path: Path) -> bytes:
    """The number as whoever has it open sees it."""
    connection = looking(path)
    own = bytes(connection.execute("SELECT own FROM wal_base").get)
    connection.close()
    return own


def maintain(path: Path, what: Literal["clean", "shrink"]) -> None:
    """Also while it is open."""
    backend = SqliteBackend(str(path))
    backend.maintain(what)
    backend.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def copy(path: Path) -> Path:
    """Of a store that was closed; the store has more commits since."""
    write(path, *range(10))
    found = path.with_suffix(".bak")
    shutil.copy(path, found)
    write(path, *range(10, 25))
    return found


def test_a_backup_is_not_mixed_with_the_wal_that_a_crash_left(path: Path, copy: Path) -> None:
    """After a crash the store was damaged, and its verified backup was copied over its file. The
    WAL of the crash lay there still, and SQLite moved its pages into the backup: malformed for
    good, or, worse, agents of two moments that took edits."""
    crash(path, *range(25, 30))
    shutil.copy(copy, path)
    error = refused(path)
    assert f"mv {path}-wal {path}-shm" in error.hint
    assert str(path) in error.target
    os.rename(f"{path}-wal", path.with_name("elsewhere-wal"))  # the command that is named, in part
    assert seen(path) == list(range(10))


def test_the_right_file_put_back_has_all_that_was_acknowledged(path: Path, copy: Path) -> None:
    crash(path, *range(25, 30))
    own = path.read_bytes()
    shutil.copy(copy, path)
    refused(path)
    path.write_bytes(own)
    assert seen(path) == list(range(30))


def test_a_backup_of_the_very_state_that_the_wal_goes_on_from_is_that_state(path: Path) -> None:
    write(path, *range(10))
    copied = path.read_bytes()
    crash(path, *range(10, 14))
    path.write_bytes(copied)
    assert seen(path) == list(range(14))


def test_a_wal_of_before_beside_a_file_of_now(path: Path) -> None:
    """The -wal alone was restored, out of a copy of all files."""
    write(path, *range(5))
    crash(path, *range(5, 10))
    wal = Path(f"{path}-wal").read_bytes()
    write(path, *range(10, 15))
    write(path, *range(15, 20))
    Path(f"{path}-wal").write_bytes(wal)
    refused(path)


def test_a_wal_of_another_store(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for one in (path, other):
        write(one, *range(5))
    crash(path, *range(5, 10))
    shutil.copy(other, path)
    refused(path)


def test_a_copy_of_a_store_in_use_whose_files_are_of_two_moments(path: Path) -> None:
    """The main file was copied, the WAL was moved and begun anew, and the WAL was copied."""
    write(path, 0, 1, 2)
    torn = path.with_name("torn.db")
    with perdure.open(path) as store:
        _write(store, (3, 4, 5))
        shutil.copy(path, torn)
        maintain(path, "clean")
        _write(store, (6, 7, 8))
        maintain(path, "clean")
        _write(store, (9,))
        shutil.copy(f"{path}-wal", f"{torn}-wal")
    refused(torn)


def test_a_copy_of_both_files_of_a_moment_is_a_store(path: Path) -> None:
    """As a volume's snapshot is, of a store in use; whatever of the WAL was moved by then."""
    write(path, 0, 1, 2)
    with perdure.open(path) as store:
        for n in range(3, 12):
            _write(store, (n,))
            if n % 3 == 2:
                maintain(path, "clean")
            both = path.with_name(f"copy-{n}.db")
            shutil.copy(path, both)
            shutil.copy(f"{path}-wal", f"{both}-wal")
    for n in range(3, 12):
        assert seen(path.with_name(f"copy-{n}.db")) == list(range(n + 1))


def test_a_snapshot_of_both_files_that_was_verified_is_no_part_of_what_went_on(path: Path) -> None:
    """Both files were copied at one moment, and the copy was verified: which moved its WAL into it.
    Beside it went the original's WAL on. The copy must not be taken for the state at the end of
    that, as only the half of it is in the copy."""
    write(path, 0, 1, 2)
    both = path.with_name("copy.db")
    with perdure.open(path) as store:
        _write(store, (3, 4, 5))
        shutil.copy(path, both)
        shutil.copy(f"{path}-wal", f"{both}-wal")
        _write(store, (6, 7, 8))
    assert seen(both) == list(range(6))
    crash(path, 9)
    shutil.copy(both, path)
    refused(path)


def moved_by_sqlite(path: Path, wal: bytes) -> bytes:
    """The main file once all of the WAL was moved into it, and nothing else was written."""
    connection = looking(path)
    connection.execute("SELECT count(*) FROM agents").fetchall()
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    connection.close()
    assert Path(f"{path}-wal").read_bytes() == wal
    return path.read_bytes()


def test_whatever_was_moved_of_a_wal_when_the_power_went(path: Path) -> None:
    """A checkpoint writes pages in some order, and the power may go behind any of them, or within
    one. The WAL has them all: that is a crash, and nobody is refused."""
    write(path, *range(12))
    crash(path, *range(12, 18))
    base, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    moved = moved_by_sqlite(path, wal)
    base = base.ljust(len(moved), b"\0")
    places = range(0, len(moved), PAGE_SIZE)
    changed = [at for at in places if moved[at : at + PAGE_SIZE] != base[at : at + PAGE_SIZE]]
    assert len(changed) > 3
    rng = random.Random(4)
    for torn in [PAGE_SIZE] * 8 + [1, 100, PAGE_SIZE - 30, PAGE_SIZE - 20, PAGE_SIZE - 4]:
        file = bytearray(base)
        for at in changed:
            if torn < PAGE_SIZE or rng.random() < 0.5:
                file[at : at + torn] = moved[at : at + torn]
        path.write_bytes(file)
        Path(f"{path}-wal").write_bytes(wal)
        assert seen(path) == list(range(18)), torn


def test_a_wal_in_which_more_than_one_number_was_drawn(path: Path) -> None:
    """Somebody read for long, so the WAL was not begun anew, though all of it had been moved."""
    write(path, 0, 1)
    files = []
    with perdure.open(path) as store:
        _write(store, (2,))
        reader = looking(path)
        for n in range(3, 6):
            reader.execute("BEGIN; SELECT count(*) FROM agents").fetchall()
            files.append(path.read_bytes())
            mover = looking(path)
            mover.execute("SELECT count(*) FROM agents").fetchall()
            mover.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            mover.close()
            _write(store, (n,))
            reader.execute("COMMIT")
        reader.close()
        files.append(path.read_bytes())
        wal = Path(f"{path}-wal").read_bytes()
    for file in files:
        path.write_bytes(file)
        Path(f"{path}-wal").write_bytes(wal)
        assert seen(path) == list(range(6))


def test_a_store_of_before_gets_its_numbers(path: Path) -> None:
    """A store has none that was made by an earlier version, and so has its WAL. Whatever there is
    of it goes on; once a WAL has numbers, a copy without any is of before."""
    write(path, 0, 1)
    connection = apsw.Connection(str(path), vfs=checksum_vfs())
    connection.execute("DROP TABLE wal_base")
    connection.close()
    old = path.with_suffix(".bak")
    shutil.copy(path, old)
    crash(path, 2, 3)  # brings the table
    assert seen(path) == [0, 1, 2, 3]
    crash(path, 4)
    assert seen(path) == [0, 1, 2, 3, 4]
    crash(path, 5)
    shutil.copy(old, path)
    refused(path)


def test_a_wal_that_was_written_without_numbers_is_taken(path: Path) -> None:
    """Another SQLite, or an earlier version, wrote and was killed: nobody can tell, and a crash is
    what mostly happened."""
    write(path, 0, 1)
    connection = looking(path)
    connection.execute("INSERT INTO marks VALUES ('x')")
    connection.close()
    assert Path(f"{path}-wal").stat().st_size
    assert seen(path) == [0, 1]


def test_a_vacuum_that_was_cut_off(path: Path) -> None:
    """The table has another page then, and who wrote with an earlier version drew no number."""
    write(path, *range(30))
    with perdure.open(path) as store:
        store.delete("t1", purge=True)
        store.purge()
    connection = looking(path)
    connection.execute("VACUUM")
    connection.close()
    base, wal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    left = [n for n in range(30) if n % 3 != 1]
    moved = moved_by_sqlite(path, wal)
    for end in range(PAGE_SIZE, len(base), PAGE_SIZE):
        path.write_bytes(moved[:end] + base[end:])
        Path(f"{path}-wal").write_bytes(wal)
        assert seen(path) == left, end


def test_to_shrink_and_to_repair_draw_a_number(path: Path) -> None:
    """The same rows lie on other pages afterwards: a copy of before is another state."""
    write(path, *range(30))
    before = mark(path)
    maintain(path, "shrink")
    shrunk = mark(path)
    assert shrunk[1] not in before
    perdure.repair(path)
    assert mark(path)[1] not in (*before, *shrunk)
    assert seen(path) == list(range(30))


@pytest.mark.parametrize("beside", [(), (30, 31, 32)], ids=["at once", "beside a service"])
def test_a_shrink_that_was_killed_leaves_a_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, beside: tuple[int, ...]
) -> None:
    """It drew two numbers in one transaction where the WAL was empty: the one before the second was
    never in the file. Killed while it copied the pages it left a WAL that goes on from nothing:
    whole stores were refused, and who followed the hint lost what was acknowledged since."""
    write(path, *range(30))
    kept: dict[str, bytes] = {}
    execute = apsw.Connection.execute

    def dies_in_vacuum(self: apsw.Connection, sql: str, *args: Any, **more: Any) -> Any:
        if sql == "VACUUM":
            raise apsw.FullError("killed here")
        return execute(self, sql, *args, **more)

    with perdure.open(path) as store, perdure.open(path) as other:
        monkeypatch.setattr(
            "perdure.storage.sqlite.guards.Connection.execute", dies_in_vacuum, raising=False
        )
        with pytest.raises(perdure.StoreUnavailable):
            other.shrink()
        monkeypatch.undo()
        _write(store, beside)
        kept = {end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal")}
    for end, content in kept.items():
        Path(f"{path}{end}").write_bytes(content)
    assert kept["-wal"]
    assert seen(path) == [*range(30), *beside]


def test_a_number_is_drawn_once_for_a_wal(path: Path) -> None:
    """Each is a page that is written: not more than one for each time that the WAL begins."""
    write(path, 0)
    with perdure.open(path) as store:
        _write(store, (1,))
        first = own_of(path)
        _write(store, (2, 3, 4))
        store.flush()
        assert own_of(path) == first
        maintain(path, "clean")
        assert own_of(path) == first
        _write(store, (5,))
        assert own_of(path) != first


def test_who_only_looks_after_a_crash_draws_one_when_it_closes(path: Path) -> None:
    crash(path, *range(4))
    with perdure.open(path):
        before = own_of(path)
    assert mark(path)[0] == before


def test_the_checksum_of_a_page_is_that_of_sqlites_own_layer(path: Path) -> None:
    write(path, *range(30))
    content = path.read_bytes()
    pages = [content[at : at + PAGE_SIZE] for at in range(0, len(content), PAGE_SIZE)]
    assert all(map(is_whole, pages))
    assert not any(is_whole(page[:-9] + bytes((page[-9] ^ 1,)) + page[-8:]) for page in pages)
    assert not is_whole(pages[1][:-1] + bytes((pages[1][-1] ^ 1,)))


def test_what_is_shared_of_a_wal_is_what_sqlite_says(path: Path) -> None:
    write(path, 0)
    crash(path, 1)
    db = looking(path)
    db.execute("SELECT count(*) FROM agents").fetchall()
    words = wal_index(db)
    frames, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    assert (words[FRAMES], words[CHANGES]) == (frames, 0)
    with perdure.open(path) as store:
        _write(store, (2,))
        frames, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        assert (words[FRAMES], bool(words[CHANGES])) == (frames, True)
    db.close()
    write(path, 3)
    looks = apsw.Connection(
        f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    assert wal_index(looks) == UNKNOWN
    assert sorted(os.listdir(path.parent)) == ["s.db"]


KILLED = """
import os, sys, threading, perdure
path, seed = sys.argv[1], int(sys.argv[2])
threading.Timer(0.05 + seed % 7 / 40, os._exit, (9,)).start()
n = 0
while True:
    with perdure.open(path) as store:
        for _ in range(1 + (seed + n) % 40):
            store.agent("t").update(lambda d: d.update(n=d.get("n", 0) + 1, x="y" * 3000))
            n += 1
"""


def test_killed_at_any_moment_nobody_is_refused(path: Path) -> None:
    last = 0
    for seed in range(12):
        subprocess.run([sys.executable, "-c", KILLED, str(path), str(seed)], check=False)
        if path.exists():
            with perdure.open(path) as store:
                if store.agents():
                    n = store.agent("t").state.get("n", 0)  # it may just have been created
                    assert n >= last
                    last = n
