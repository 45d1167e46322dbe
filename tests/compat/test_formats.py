"""Every format that was ever released stays readable: by us, and from its description alone."""

from __future__ import annotations

import ast
import datetime as dt
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.core.values import codec
from perdure.core.values.plain_values import same
from perdure.core.values.state_hash import state_hash
from perdure.model import id_text
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from tests.compat import stranger
from tests.compat.make_fixture import NAME, VALUES

WAITING = (
    "wake_at",
    "waits",
    "turn",
    "turn_at",
    "version",
    "queue",
    "parent",
    "started_at",
    "changed_at",
)
"""What the second format adds to a row of a run."""

HERE = Path(__file__).resolve().parent
FORMATS = sorted(path.stem for path in (HERE / "fixtures").glob("*.db"))


@pytest.fixture(params=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a fixture: opening a store may bring it up to date."""
    return Path(shutil.copy(HERE / "fixtures" / f"{request.param}.db", tmp_path))


@pytest.fixture
def expected(path: Path) -> Any:
    return json.loads((HERE / "fixtures" / f"{path.stem}.json").read_text("utf-8"))


def backend_of(store: perdure.Store) -> Backend:
    return store.runner._context.backend


def reader_of(store: perdure.Store, agent: str, incarnation: int) -> LogReader:
    info = backend_of(store).agent(agent, incarnation)
    assert info is not None
    return LogReader(backend_of(store), info)


def test_there_is_a_fixture_of_the_current_format() -> None:
    assert {"format-1", NAME} <= set(FORMATS)


def test_we_read_every_commit_and_state(path: Path, expected: Any) -> None:
    with perdure.open(path, create=False) as store:
        for log in expected["logs"]:
            reader = reader_of(store, log["agent"], log["incarnation"])
            commits = list(reader.commits())
            assert [commit.seq for commit in commits] == [entry["seq"] for entry in log["commits"]]
            for commit, entry in zip(commits, log["commits"], strict=True):
                assert id_text(commit.id) == entry["id"]
                assert (commit.cause.kind, commit.branch) == (entry["kind"], entry["branch"])
                for snapshots_too in (True, False):
                    state = reader.fold(commit.seq, snapshots_too=snapshots_too).state
                    assert state_hash(state) == entry["state"]
            assert reader.snapshot_seqs() == log["snapshots"]
            refs = backend_of(store).refs(reader.no)
            assert {r.name: [r.kind, r.seq, r.deleted] for r in refs} == log["refs"]
        found = {run.id: [run.status, run.started, run.ended] for run in store.runs()}
        assert found == expected["runs"]
        left = backend_of(store).inbox()
        told = [[one.no, one.run, one.kind, one.name, one.key, one.who] for one in left]
        assert told == expected.get("inbox", [])


def test_we_verify_it(path: Path, expected: Any) -> None:
    with perdure.open(path, create=False) as store:
        store.check_pages()
        for log in expected["logs"]:
            info = backend_of(store).agent(log["agent"], log["incarnation"])
            assert info is not None
            verified = store.agent_of(info).verify(anchor=log["commits"][0]["id"])
            assert verified.root == log["commits"][-1]["id"]


def test_we_can_go_on_writing_to_it(path: Path) -> None:
    with perdure.open(path) as store:
        agent = store.agent("ticket-42")
        before = agent.seq
        with agent.edit("years later") as draft:
            draft["late"] = True
        assert agent.seq == before + 1
        assert agent.undo().commit.seq == before + 2
        agent.verify()


def test_values_come_back_as_what_they_were(path: Path) -> None:
    with perdure.open(path, create=False) as store:
        state = store.agent("values").at(2).plain
    assert same(state, VALUES)
    assert list(state["order"]) == ["z", "a"]  # the order of dicts is kept
    assert math.copysign(1, state["floats"][1]) == -1


def test_a_stranger_reads_the_same(path: Path, expected: Any) -> None:
    """Written from docs/format.md, the reader finds the same ids, states and projections."""
    logs, db = stranger.read_store(str(path))
    assert [(log.name, log.incarnation) for log in logs] == [
        (log["agent"], log["incarnation"]) for log in expected["logs"]
    ]
    for log, known in zip(logs, expected["logs"], strict=True):
        for entry, said in zip(log.entries, known["commits"], strict=True):
            assert f"sha256:{entry.id[1:].hex()}" == said["id"]
            assert (entry.kind, entry.branch) == (said["kind"], said["branch"])
            assert stranger.state_hash(log.state(entry.seq)) == said["state"]
        assert {name: list(ref) for name, ref in log.refs.items()} == known["refs"]
        assert log.deleted == known["deleted"]
        snapshots = dict(stranger.read_snapshots(log, db))
        assert list(snapshots) == known["snapshots"]
        for seq, state in snapshots.items():
            assert stranger.canonical(state) == stranger.canonical(log.state(seq))
    db.close()


def test_a_stranger_reads_what_retention_left(tmp_path: Path) -> None:
    path = tmp_path / "trimmed.db"
    with perdure.open(path) as store:
        agent = store.agent("a")
        for number in range(60):
            with agent.edit("grow") as draft:
                draft.setdefault("log", []).append("one word after the other " * number)
            if number == 20:
                agent.checkpoint("early")
        agent.trim(50)
        states = {seq: agent.at(seq).plain for seq in (1, agent.checkpoints()[0].seq, 49, 50, 61)}
        trim_at = agent.verify().commits
    ((log,), db) = stranger.read_store(str(path))
    assert log.refs["@retention"] == ("branch", trim_at, False)
    for seq, state in states.items():
        assert stranger.canonical(log.state(seq)) == stranger.canonical(state)
    with pytest.raises(stranger.Refused, match="retention removed"):
        log.state(30)
    db.execute("SELECT 1")
    db.close()
    log.entries[29].gone, log.entries[54].gone = True, True
    with pytest.raises(stranger.Refused, match="without a word"):
        log.check_retention()


def test_a_stranger_and_we_fold_alike(path: Path) -> None:
    """Not by their hashes: each state, value by value, types and all."""
    logs, db = stranger.read_store(str(path))
    db.close()
    with perdure.open(path, create=False) as store:
        for log in logs:
            reader = reader_of(store, log.name, log.incarnation)
            for entry in log.entries:
                theirs = log.state(entry.seq)
                for snapshots_too in (True, False):
                    ours = reader.fold(entry.seq, snapshots_too=snapshots_too).state
                    assert same(ours, theirs)
                    assert codec.encode(ours) == codec.encode(theirs)  # dicts in one order, too


def test_projections_follow_from_the_log(path: Path) -> None:
    """As docs/format.md says: keys, runs and checkpoints, rebuilt by the stranger."""
    logs, db = stranger.read_store(str(path))
    for log in logs:
        rows = db.execute("SELECT key, seq FROM keys WHERE agent_no = ?", (log.no,)).fetchall()
        assert dict(rows) == log.keys
        query = "SELECT name, checkpoint FROM refs WHERE agent_no = ? AND kind = 'checkpoint'"
        rows = db.execute(query, (log.no,)).fetchall()
        assert {name: stranger.unpack(data) for name, data in rows} == log.checkpoints
        query = "SELECT id, status, started, ended, result, branch FROM runs WHERE agent_no = ?"
        rows = db.execute(query, (log.no,)).fetchall()
        assert {row[0] for row in rows} == log.runs.keys()
        for run, status, started, ended, result, branch in rows:
            known = log.runs[run]
            assert (status, started, ended, branch) == (
                known["status"],
                known["started"],
                known["ended"],
                known["branch"],
            )
            assert same(stranger.unpack(result), known["result"])
        if path.stem == "format-1":
            continue
        query = f"SELECT id, {', '.join(WAITING)} FROM runs WHERE agent_no = ?"
        for run, *values in db.execute(query, (log.no,)).fetchall():
            assert values == [log.runs[run][name] for name in WAITING]
    if path.stem != "format-1":
        values = db.execute("SELECT value FROM inbox ORDER BY no").fetchall()
        assert [value if value is None else stranger.unpack(value) for (value,) in values] == [
            *[None] * 5,
            {"when": dt.datetime(2026, 1, 2)},  # those that were taken out, and one
        ]
    db.close()


def test_a_stranger_refuses_what_was_changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(stranger.Refused, match="page"):
        stranger.read_store(str(path))


def test_the_stranger_is_one() -> None:
    tree = ast.parse((HERE / "stranger.py").read_text("utf-8"))
    names = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not any(name.startswith("perdure") for name in names)
