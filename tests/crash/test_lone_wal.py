"""A `-wal` or `-journal` whose store is not where it was, moved, removed, or not restored yet; or
whose store may not be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import StoreUnavailable
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.sites import refuse_lone_wal

KILLED = """
import os, sys, perdure
store = perdure.open(sys.argv[1])
for n in range(5):
    store.agent("t").save({"n": n})
os._exit(9)
"""


KILLED_REPAIR = """
import apsw, os, sys
from perdure.storage.sqlite.connection import checksum_vfs
db = apsw.Connection(sys.argv[1], vfs=checksum_vfs())
db.pragma("journal_mode", "delete")
db.pragma("cache_size", 1)  # it writes pages before the end
db.execute("BEGIN")
db.execute("UPDATE commits SET payload = zeroblob(length(payload))")
os._exit(9)
"""


@pytest.fixture
def half_written(tmp_path: Path) -> Path:
    """A store that somebody began to write anew."""
    path = tmp_path / "a.db"
    with perdure.open(path) as store:
        for n in range(20):
            store.agent("t").save({"n": n, "text": f"{n}" * 20_000})
    before = path.read_bytes()
    subprocess.run([sys.executable, "-c", KILLED_REPAIR, str(path)], check=False)
    assert Path(f"{path}-journal").stat().st_size and path.read_bytes() != before
    return path


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert Path(f"{path}-wal").stat().st_size
    return path


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_it_is_not_deleted_for_a_new_store(killed: Path, left: str) -> None:
    """Somebody had moved the store's file away and started the program again: SQLite took the WAL,
    in which all commits were, for a left-over, and deleted it."""
    elsewhere = killed.with_name("b.db")
    os.rename(killed, elsewhere)
    if left == "an empty file":
        killed.touch()
    wal = Path(f"{killed}-wal").read_bytes()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="its -wal is"):
            perdure.open(killed)
    assert Path(f"{killed}-wal").read_bytes() == wal
    os.replace(elsewhere, killed)
    with perdure.open(killed) as store:
        assert store.agent("t").state == {"n": 4}
        store.agent("t").verify()


def test_a_store_that_a_killed_repair_left_is_not_read_without_its_journal(
    half_written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looked at it in a snapshot of the disk, where nothing can be written, was told that the
    store is damaged, and to restore it from a copy."""
    with monkeypatch.context() as patched:
        patched.setattr(connection, "may_write", lambda path: False)
        with pytest.raises(StoreUnavailable, match="part of it is in its -journal"):
            perdure.open(half_written)
    with perdure.open(half_written) as store:
        assert store.agent("t").verify().commits == 21
    monkeypatch.setattr(connection, "may_write", lambda path: False)
    with perdure.open(half_written) as store:
        assert store.agent("t").state["n"] == 19


def test_a_lone_journal_is_not_deleted_for_a_new_store(half_written: Path) -> None:
    """The file was moved without it, and a program began a new store: SQLite deleted the only way
    back."""
    elsewhere = half_written.with_name("b.db")
    os.rename(half_written, elsewhere)
    with pytest.raises(StoreUnavailable, match="its -journal is"):
        perdure.open(half_written)
    os.replace(elsewhere, half_written)
    with perdure.open(half_written) as store:
        assert store.agent("t").verify().commits == 21


def test_a_store_whose_name_ends_like_a_wal(tmp_path: Path) -> None:
    with perdure.open(tmp_path / "a.db-wal") as store:
        store.agent("t").save({"n": 1})
    with pytest.raises(StoreUnavailable, match="its -wal is"):
        perdure.open(tmp_path / "a.db")
    with perdure.open(tmp_path / "a.db-wal") as store:
        assert store.agent("t").state == {"n": 1}


def test_what_is_left_of_an_emptied_wal_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "a.db-wal").touch()
    with perdure.open(tmp_path / "a.db") as store:
        store.agent("t").save({"n": 1})
    shutil.rmtree(tmp_path / "a.db-executors", ignore_errors=True)
    with perdure.open(tmp_path / "a.db") as store:
        assert store.agent("t").state == {"n": 1}


def test_what_another_process_makes_between_two_looks_is_not_lone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes opened a new store at once. One looked for the file, which was not there, and
    then for its WAL, which was: it said to move that away, which the other one was writing to."""
    path, wal, size_of = tmp_path / "a.db", tmp_path / "a.db-wal", os.path.getsize
    others: list[perdure.Store] = []

    def size(of: str) -> int:
        if of == str(path) and not others:
            monkeypatch.undo()
            wal.unlink()
            others.append(perdure.open(path))
            others[0].agent("theirs").save({"n": 1})
            raise FileNotFoundError(of)
        return size_of(of)

    monkeypatch.setattr(os.path, "getsize", size)
    wal.write_bytes(b"what the other one begins")
    refuse_lone_wal(str(path))
    assert others[0].agent("theirs").state == {"n": 1}
    others[0].close()


@pytest.mark.parametrize("moment", ["_is_bare", "_create"])
def test_a_store_that_another_process_makes_at_this_moment_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Several workers started on a store that was not there yet. One of some hundred found a file
    without our mark, and then tables in it, which another one had made in between: "not a Perdure
    store". Or it found a WAL that was none for its own connection, and the process died of a
    segmentation fault: SQLite reads before the begin of a file where it is told to."""
    path = tmp_path / "agents.db"
    original = getattr(connection, moment)

    def behind_another(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        made = "import perdure, sys; perdure.open(sys.argv[1]).agent('a').checkpoint('made')"
        subprocess.run([sys.executable, "-c", made, str(path)], check=True)
        return original(*args, **more)

    monkeypatch.setattr(connection, moment, behind_another)
    with perdure.open(path) as store:
        assert [agent.name for agent in store.agents()] == ["a"]
