"""Rows of agents and of their names that a disk lost: `repair --take-incomplete` puts them back, as
the agents' own logs have them. Nothing else becomes of them than was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt
from perdure.storage.sqlite.connection import checksum_vfs
from tests.cli.operator import Operator
from tests.crash.test_repair_damaged import counting, waiting


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("put-back") / "store.db"
    with perdure.open(path, snapshots=perdure.SnapshotPolicy(every_commits=3)) as store:
        for name in ("plain", "named", "trimmed", "deleted", "to purge", "again"):
            agent = store.agent(name)
            for number in range(4):
                with agent.edit("step", key=f"k {number}") as draft:
                    draft["n"] = number
        store.agent("named").checkpoint("point", config={"model": "m"}, dependencies=["msgspec"])
        store.agent("named").fork("side", at=2)
        store.agent("named").fork("gone", at=2)
        store.agent("named").delete_branch("gone")
        store.agent("named").rollback(3)
        store.agent("trimmed").checkpoint("kept")
        store.agent("trimmed").trim(before=4)
        store.delete("deleted")
        store.delete("to purge", purge=True)
        store.delete("again")
        with store.agent("again").edit("a second one") as draft:
            draft["second"] = True
        store.run(counting, "with a run", 3)
        store.start(waiting, "waits").signal("go", 1)
        store.shrink()
    return path


def rows(path: Path, sql: str) -> list[Any]:
    db = apsw.Connection(str(path), vfs=checksum_vfs())
    try:
        return list(db.execute(sql))
    finally:
        db.close()


def change(path: Path, sql: str) -> None:
    """With right page checksums, as a disk leaves them that lost a write."""
    db = apsw.Connection(str(path), vfs=checksum_vfs())
    try:
        db.execute(sql)
        assert db.changes() >= 1, sql
    finally:
        db.close()


def views(path: Path) -> tuple[dict[str, Any], list[Any], list[Any]]:
    told: dict[str, Any] = {}
    with perdure.open(path) as store:
        store.check_pages()
        for info in store.agents():
            agent = store.agent_of(info)
            told[info.name] = (
                info,
                agent.verify().root,
                agent.state,
                agent.checkpoints(),
                [(one.name, one.head, one.deleted) for one in agent.branches()],
                store.runs(info.name),
                store._context.backend.inbox(agent=info.name),
            )
    listed = rows(path, "SELECT no, name, incarnation, deleted FROM agents ORDER BY no")
    names = "SELECT agent_no, name, kind, seq, deleted, checkpoint FROM refs ORDER BY 1, 2"
    return told, listed, rows(path, names)


def damages(path: Path) -> list[tuple[str, ...]]:
    """Of each agent: its row, all of its names, both; and each name, lost or as it was before."""
    made: list[tuple[str, ...]] = []
    for (no,) in rows(path, "SELECT no FROM agents"):
        listed, names = (
            f"DELETE FROM agents WHERE no = {no}",
            f"DELETE FROM refs WHERE agent_no = {no}",
        )
        made += [(listed,), (names,), (listed, names)]
    for no, name, kind, seq, deleted in rows(
        path, "SELECT agent_no, name, kind, seq, deleted FROM refs"
    ):
        one = f"WHERE agent_no = {no} AND name = '{name}'"
        made.append((f"DELETE FROM refs {one}",))
        if kind == "branch" and seq > 1:
            made.append((f"UPDATE refs SET seq = {seq - 1} {one}",))
        if deleted:
            made.append((f"UPDATE refs SET deleted = 0 {one}",))
    return made


def test_i11_what_a_log_has_is_put_back(original: Path, tmp_path: Path) -> None:
    """Story: a disk lost the write of the page that lists an agent, or its names. The agent's log
    was whole, and nobody could have it any more: each way out was refused."""
    before = views(original)
    for number, damage in enumerate(damages(original)):
        path = tmp_path / str(number) / "store.db"
        path.parent.mkdir()
        shutil.copy(original, path)
        for sql in damage:
            change(path, sql)
        as_it_was = path.read_bytes()
        with pytest.raises(Corrupt, match="--take-incomplete"):
            perdure.repair(path)
        assert path.read_bytes() == as_it_was
        proved = perdure.repair(path, take_incomplete=True)
        assert sum(bool(one.damages) for one in proved) == 1, (damage, proved)
        assert views(path) == before, damage
        (kept,) = path.parent.glob("*-damaged*")
        assert kept.exists()
        assert not any(one.damages for one in perdure.repair(path))
        shutil.rmtree(path.parent)


def test_who_comes_back_works_on(original: Path, tmp_path: Path) -> None:
    operator = Operator(tmp_path / "store.db")
    shutil.copy(original, operator.path)
    (number,) = rows(operator.path, "SELECT no FROM agents WHERE name = 'named'")[0]
    for table in ("agents", "refs"):
        column = "no" if table == "agents" else "agent_no"
        change(operator.path, f"DELETE FROM {table} WHERE {column} = {number}")
    change(operator.path, "DELETE FROM sqlite_sequence WHERE name = 'agents'")
    told = operator.json("repair", "--take-incomplete")
    assert not told["complete"] and Path(told["copy"]).exists()
    (named,) = [one for one in told["agents"] if "damages" in one]
    assert "it was not listed, and is again, as its log says" in named["damages"][0]
    assert any("its branch 'side' was not there: it is at commit" in d for d in named["damages"])
    with perdure.open(operator.path) as store:
        agent = store.agent("named")
        with agent.edit("goes on") as draft:
            draft["more"] = True
        assert (
            agent.checkpoint_of("point") if hasattr(agent, "checkpoint_of") else agent.at("point")
        )
        with store.agent("brand new").edit("begun") as draft:
            draft["n"] = 1
        found = store.find("brand new")
        assert found is not None and found.no > number
        store.check_pages()


def test_i4_no_fencing_token_is_given_twice(original: Path, tmp_path: Path) -> None:
    """A lease that nothing was written under is in no log."""
    path = tmp_path / "store.db"
    shutil.copy(original, path)
    with perdure.open(path) as store:
        info = store.find("plain")
        assert info is not None
        backend = store._context.backend
        backend.heartbeat("somebody", 60_000)
        leased = backend.lease(info.no, "main", "somebody")
        assert isinstance(leased, perdure.model.Lease)
        backend.heartbeat("somebody", None)
    change(path, f"DELETE FROM refs WHERE agent_no = {info.no}")
    perdure.repair(path, take_incomplete=True)
    with perdure.open(path) as store:
        ref = store._context.backend.ref(info.no, "main")
        assert ref is not None and ref.epoch > leased.epoch and ref.held is None


@pytest.mark.parametrize(
    "damage",
    [
        # The log has lost what the names say.
        ("DELETE FROM commits WHERE id = (SELECT max(id) FROM commits WHERE id >> 36 = 1)",),
        # It does not say whose it is, or does not hold together.
        ("DELETE FROM agents WHERE no = 1", "DELETE FROM commits WHERE id = (1 << 36) + 1"),
        ("DELETE FROM agents WHERE no = 1", "DELETE FROM commits WHERE id = (1 << 36) + 3"),
        ("DELETE FROM agents WHERE no = 1", "DELETE FROM commits WHERE id >> 36 = 1"),
        # Another one has its name.
        ("UPDATE agents SET no = 77 WHERE no = 1",),
    ],
)
def test_what_no_log_says_is_refused_still(
    original: Path, tmp_path: Path, damage: tuple[str, ...]
) -> None:
    path = tmp_path / "store.db"
    shutil.copy(original, path)
    for sql in damage:
        change(path, sql)
    for take in (False, True):
        before = path.read_bytes()
        with pytest.raises(Corrupt):
            perdure.repair(path, take_incomplete=take)
        assert path.read_bytes() == before
