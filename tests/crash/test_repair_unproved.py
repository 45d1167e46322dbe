"""Plain `repair` writes no checksum over what nothing proves: it names it, and leaves the file as
it is. What the log proves it compares with the log."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Corrupt
from tests.cli.operator import Operator
from tests.crash.test_repair_damaged import PAGE, flip, pages_of, place_in
from tests.state.test_projections import change


@perdure.agent(dict)
def desk(run: "perdure.Run[dict[str, Any]]") -> str:
    return "refunded" if run.ask("Refund 500 cents?") else "declined"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Three agents with money, of which one has a key, and a run that a person said no to."""
    operator = Operator(tmp_path / "store.db")
    with perdure.open(operator.path) as store:
        for name in ("alice", "bob", "carol"):
            with store.agent(name).edit("paid", key="m-1" if name == "carol" else None) as draft:
                draft["money"] = 100
        handle = store.start(desk, "t-1")

        def stop_at_waiting(event: perdure.types.WorkerEvent) -> None:
            if event.kind == "waiting":
                worker.stop()

        worker = perdure.Worker(store, [desk], on_event=stop_at_waiting)
        worker.run(signals=False)
        handle.answer(False)
        store.shrink()
    return operator


def refused(operator: Operator) -> "tuple[str, tuple[str, ...]]":
    """By the library and by the command line: neither changes a byte."""
    before = operator.path.read_bytes()
    with pytest.raises(Corrupt) as caught:
        perdure.repair(operator.path)
    code, said = operator.refused("repair")
    assert code == 5 and str(caught.value).split("\n")[0] in said
    assert operator.path.read_bytes() == before
    assert not list(operator.path.parent.glob("*-damaged*"))
    return said, caught.value.damages


def test_i11_no_stays_no(operator: Operator) -> None:
    """Story: one bit of the answer that waited was flipped, False became True. The hint of each
    error was `perdure repair`, which said that all is proved, and wrote a right checksum over it.
    The run refunded after "no"."""
    page = next(n for n in pages_of(operator.path)["inbox"])
    place = place_in(operator.path, page, b"answer")
    flip(operator.path, operator.path.read_bytes().index(b"\xc2", place))
    said, damages = refused(operator)
    assert "? agent 't-1': the answer 'ask#1" in said and "--take-incomplete" in said
    assert len(damages) == 1
    told = operator.json("repair", "--take-incomplete")
    (named,) = [one for one in told["agents"] if "damages" in one]
    assert tuple(named["damages"]) == damages


def test_i11_what_a_key_was_used_for_is_named(operator: Operator) -> None:
    """Story: one bit of what was asked for under a key was flipped, and repaired. The same command
    with the same key was a Conflict, "something else", for ever."""
    (page,) = pages_of(operator.path)["keys"]
    flip(operator.path, place_in(operator.path, page, b"m-1") + 6)
    said, damages = refused(operator)
    assert "agent 'carol': its keys" in said and len(damages) == 1


def test_i11_a_last_header_is_named(operator: Operator) -> None:
    """Story: a flipped bit gave another writer, or time, to the last commit of a log, which plain
    `repair` called proved."""
    path = operator.path
    with perdure.open(path) as store:
        info = store.find("alice")
        assert info is not None
        backend = store._context.backend
        (last,) = backend.read(info.no, 0, info.seq, newest_first=True, limit=1)
    place = path.read_bytes().index(last.header)
    flip(path, path.read_bytes().index(b"paid", place))
    said, damages = refused(operator)
    assert "agent 'alice', commit 2: it is the last one" in said and damages


@pytest.mark.parametrize("name", [b"bob", b"t-1"])
def test_i12_a_living_agent_stays_living(operator: Operator, name: bytes) -> None:
    """Story: SQLite keeps a 0 and a 1 as one bit in a row's header. It was flipped; `repair` said
    that all logs are proved, and from then on the agent was deleted, though its log did not say
    so: the next edit began an empty one."""
    (page,) = pages_of(operator.path)["agents"]
    flip(operator.path, place_in(operator.path, page, name) - 1)
    said, _ = refused(operator)
    assert (
        f"agent '{name.decode()}': it is listed as deleted, but its log says that it was not"
        in said
    )


def test_i12_a_deleted_agent_stays_deleted(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.delete("bob")
        store.shrink()
    (page,) = pages_of(operator.path)["agents"]
    flip(operator.path, place_in(operator.path, page, b"bob") - 1)
    said, _ = refused(operator)
    assert "listed as one that lives, but its log says that it was deleted" in said


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE agents SET deleted = 1 WHERE name = 'bob'", "its log says that it was not"),
        ("UPDATE refs SET epoch = 0 WHERE epoch > 0", "with epoch 0, but was written to under 1"),
        ("UPDATE agents SET deleted = 32 WHERE name = 'bob'", "neither living nor deleted"),
    ],
)
def test_what_the_log_says_is_compared(operator: Operator, sql: str, told: str) -> None:
    """Story: neither `verify` nor `repair` looked whether an agent was deleted as its log says, or
    whether the epoch of a branch is one that was given already: a fencing token was given twice."""
    change(str(operator.path), sql)
    said, _ = refused(operator)
    assert told in said
    with perdure.open(operator.path) as store, pytest.raises(Corrupt, match=told):
        store.check_pages()
        for info in store.runner._context.backend.incarnations():  # type: ignore[attr-defined]
            store.agent_of(info).verify()


@pytest.mark.parametrize("tables", [("agents",), ("agents", "sqlite_sequence")])
def test_i12_an_agent_whose_row_is_lost_is_no_missing_agent(
    tmp_path: Path, tables: tuple[str, ...]
) -> None:
    """Story: a disk lost the write of the pages that list an agent: they were as before it began,
    with right checksums. Its commits were there; `verify` and `repair` said that all is well, and
    `state` that there is no such agent."""
    operator = Operator(tmp_path / "store.db")
    with perdure.open(operator.path) as store, store.agent("a").edit("x") as draft:
        draft["n"] = 1
    shutil.copy(operator.path, old := tmp_path / "old.db")
    with perdure.open(operator.path) as store, store.agent("b").edit("x") as draft:
        draft["money"] = 100
    data, places = bytearray(operator.path.read_bytes()), pages_of(operator.path)
    for name in (*tables, "sqlite_autoindex_agents_1"):
        for number in places[name]:
            at = slice((number - 1) * PAGE, number * PAGE)
            data[at] = old.read_bytes()[at]
    operator.path.write_bytes(data)
    said, _ = refused(operator)
    assert "rows belong to agents that are not listed, of the numbers 2" in said
    done = operator.type("verify")
    assert done.exit_code == 5 and "not listed, of the numbers 2" in done.stdout
    with perdure.open(operator.path) as store, pytest.raises(Corrupt, match="not listed"):
        store.check_pages()


CRASH = """
import os, sys, perdure
store = perdure.open(sys.argv[1])
for number in range(int(sys.argv[2])):
    store.agent("a").save({"n": number, "text": "x" * 300}, "step", key=f"k {number}")
os.kill(os.getpid(), 9)
"""

MOVE = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("SELECT count(*) FROM commits").fetchall()
c.close()
"""


def crash_and_look(path: Path, commits: int) -> None:
    subprocess.run([sys.executable, "-c", CRASH, str(path), str(commits)])
    assert Path(f"{path}-wal").exists()
    subprocess.run([sys.executable, "-c", MOVE, str(path)], check=True)
    assert not Path(f"{path}-wal").exists()
    with pytest.raises(Corrupt), perdure.open(path) as store:
        store.check_pages()


def test_a_store_that_another_sqlite_moved_is_repaired(tmp_path: Path) -> None:
    """What it is for: a crash, and somebody looked with another SQLite. Pages that never had a
    checksum are no evidence of damage."""
    crash_and_look(tmp_path / "store.db", 30)
    (proved,) = perdure.repair(tmp_path / "store.db")
    assert proved.commits == 31 and not proved.damages
    with perdure.open(tmp_path / "store.db") as store:
        store.check_pages()
        assert store.agent("a").state["n"] == 29


def test_where_it_moved_pages_that_had_one_it_takes_a_word(tmp_path: Path) -> None:
    """They look as if damaged: nobody can say whether their last header, and their keys, are."""
    operator = Operator(tmp_path / "store.db")
    with perdure.open(operator.path) as store:
        store.agent("a").save({"n": 0}, "begun")
    crash_and_look(operator.path, 1)
    _, damages = refused(operator)
    assert any("it is the last one" in told for told in damages)
    told = operator.json("repair", "--take-incomplete")
    assert not told["complete"] and Path(told["copy"]).exists()
    with perdure.open(operator.path) as store:
        store.check_pages()
        assert store.agent("a").verify().commits == 3


def test_a_page_of_which_a_sector_is_gone_is_in_doubt(operator: Operator) -> None:
    """It has no checksum either, and is nobody's but the disk's."""
    (page,) = pages_of(operator.path)["keys"]
    data = bytearray(operator.path.read_bytes())
    data[page * PAGE - 8 : page * PAGE] = bytes(8)
    operator.path.write_bytes(data)
    assert not any(one.damages for one in perdure.repair(operator.path))
    with perdure.open(operator.path) as store:
        store.check_pages()
    data[page * PAGE - 512 : page * PAGE] = bytes(512)
    operator.path.write_bytes(data)
    refused(operator)
