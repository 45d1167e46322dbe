"""What stands beside the log is a view on it: `verify` rebuilds each from the log and compares."""

import decimal
from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Corrupt
from perdure.storage.sqlite.connection import checksum_vfs


@perdure.agent(dict)
def answer(run: "perdure.Run[dict]") -> int:
    return 42


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def change(path: str, sql: str) -> None:
    """Change a row, with right page checksums: as an owner of the file could."""
    db = apsw.Connection(path, vfs=checksum_vfs())
    db.execute(sql)
    assert db.changes() == 1
    db.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs SET result = x'2b'",
        "UPDATE runs SET status = 'failed'",
        "DELETE FROM runs",
        "UPDATE keys SET seq = 1",
        "DELETE FROM keys",
        "UPDATE refs SET seq = 2 WHERE name = 'main'",
        "DELETE FROM refs WHERE name = 'point'",
    ],
)
def test_a_view_that_was_changed_is_found(path: str, sql: str) -> None:
    """The row of a run was overwritten: the log was whole, `verify` content, and asking for the
    run's result gave another."""
    with perdure.open(path) as store:
        assert store.run(answer, "a") == 42
        agent = store.agent("a")
        with agent.edit("once", key="k") as draft:
            draft["x"] = 1
        agent.checkpoint("point")
        agent.verify()
    change(path, sql)
    with perdure.open(path) as store, pytest.raises(Corrupt):
        store.agent("a").verify()


def test_i6_an_increment_does_not_ask_the_threads_decimal_context(path: str) -> None:
    """Folding under a context of four digits gave 2.346 where the state had been 2.34567900."""
    with perdure.open(path) as store:
        agent = store.agent("a")
        with agent.edit("begin") as draft:
            draft["sum"] = decimal.Decimal("1.12345600")
        with decimal.localcontext() as context:
            context.prec = 4
            with agent.edit("add") as draft:
                perdure.increment(draft, "sum", decimal.Decimal("1.22222300"))
            assert agent.state["sum"] == decimal.Decimal("2.34567900")
            assert store.agent("a").at(3).state["sum"] == decimal.Decimal("2.34567900")


def test_repair_proves_deleted_agents_too(path: str) -> None:
    """The payload of a deleted agent was overwritten, and `repair` wrote its checksum anew."""
    with perdure.open(path) as store:
        with store.agent("gone").edit("x") as draft:
            draft["x"] = 1
        store.delete("gone")
    change(path, "UPDATE commits SET payload = x'00' WHERE (id & 15) = 2")
    with pytest.raises(Corrupt):
        perdure.repair(path)
