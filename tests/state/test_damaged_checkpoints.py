"""The row of a checkpoint is not what it was; the log has all of it, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import perdure
from perdure import Corrupt
from perdure.storage.sqlite.connection import checksum_vfs
from tests.postgres.server import shared

WRONG: dict[str, Callable[[bytes], bytes]] = {
    "a digit of the state's hash": lambda cell: _other(cell, b"state_hash"),
    "a digit of the configuration's": lambda cell: _other(cell, b"config_hash"),
    "the name of a field": lambda cell: cell.replace(b"schema_version", b"schema_verskon"),
    "a text that is none": lambda cell: _no_text(cell, b"state_hash"),
    "all of it": lambda cell: b"\xc1" + cell,
}


def _other(cell: bytes, field: bytes) -> bytes:
    at = cell.index(b"sha256:", cell.index(field)) + 7
    return cell[:at] + (b"0" if cell[at : at + 1] != b"0" else b"1") + cell[at + 1 :]


def _no_text(cell: bytes, field: bytes) -> bytes:
    at = cell.index(b"sha256:", cell.index(field)) + 7
    return cell[:at] + bytes((cell[at] ^ 0x80,)) + cell[at + 1 :]


def text(statement: str) -> Any:
    return statement.encode()


def damage(url: str, change: Callable[[bytes], bytes]) -> None:
    where = "WHERE agent_no = 1 AND kind = 'checkpoint'"
    if url.startswith("postgresql:"):
        with psycopg.connect(url.partition("?")[0], autocommit=True) as server:
            schema = url.partition("schema=")[2] or "perdure"
            table = f"{schema}.refs"
            cell: Any = server.execute(text(f"SELECT checkpoint FROM {table} {where}")).fetchone()
            server.execute(
                text(f"UPDATE {table} SET checkpoint = %s {where}"), [change(bytes(cell[0]))]
            )
        return
    with contextlib.closing(apsw.Connection(url, vfs=checksum_vfs())) as db:
        found: Any = db.execute(f"SELECT checkpoint FROM refs {where}").fetchone()
        db.execute(f"UPDATE refs SET checkpoint = ? {where}", [change(found[0])])


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_what_a_checkpoint_recorded_is_compared_with_the_log(
    tmp_path: Path, backend: str, what: str
) -> None:
    """A bit of a checkpoint's row was another one. `verify` compared its name and its commit, and
    said that all was well, of a guard that did not hold any more; in the name of a field, or where
    it left no text, it was a bare error at each command, for the agents beside it, too."""
    url = str(tmp_path / "a.db") if backend == "sqlite" else shared().new_url()
    config = {"model": "m-1"}
    with perdure.open(url, durability="os") as store:
        for name in ("a", "b"):
            agent = store.agent(name, initial={"n": 1})
            agent.checkpoint("before refund", config=config)
            agent.save({"n": 2})
        point = store.agent("a").checkpoints()[0]
        store.agent("a").verify()
    damage(url, WRONG[what])
    with perdure.open(url) as store, perdure.open("memory://") as elsewhere:
        store.agent("b").verify()
        agent = store.agent("a")
        with pytest.raises(Corrupt, match="checkpoint 'before refund' is not the one of commit"):
            agent.verify()
        agent.save({"n": 3})
        assert agent.state == {"n": 3} and agent.at(point.seq).state == {"n": 1}
        assert store.agent("b").at("before refund", config=config, strict=True).state == {"n": 1}
        if what != "a digit of the configuration's":
            with pytest.raises(Corrupt):
                agent.at("before refund")
        (info, _) = store.agents()
        elsewhere.import_log(store.export_log(info))
        assert elsewhere.agent("a").checkpoints() == [point]
        elsewhere.agent("a").verify()
