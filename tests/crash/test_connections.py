"""Which connections a store opens: to open one takes as long as several commits."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.writer import Writer
from perdure.testing.contract.backend import Pen


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    """Grows by one for each connection that is opened."""
    found: list[Writer] = []
    connect = Writer.connect

    def counted(self: Writer, **more: Any) -> Any:
        found.append(self)
        return connect(self, **more)

    monkeypatch.setattr(Writer, "connect", counted)
    return found


def test_who_writes_first_takes_the_connection_that_was_opened(
    tmp_path: Path, opened: list[Writer]
) -> None:
    """A store opened one to look at its files and to read, and another one at its first commit: a
    third of what a first turn on a small LangGraph thread took. What is read behind that, by who
    writes, is in the memory of the connection that wrote it."""
    path = tmp_path / "agents.db"
    for count in (1, 2):
        with perdure.open(path) as store:
            agent = store.agent("a")
            for _ in range(3):
                agent.update(lambda draft: draft.update(x=draft.get("x", 0) + 1))
            assert store.agent("a").state == {"x": 3 * count}
            agent.refresh()
            assert agent.state == {"x": 3 * count}
        assert len(opened) == count


def test_who_writes_first_leaves_others_what_they_read_with(
    tmp_path: Path, opened: list[Writer]
) -> None:
    """One that is in use is not taken away, nor waited for."""
    backend = SqliteBackend(str(tmp_path / "agents.db"))
    pen = Pen(backend)
    with backend._reading() as db:
        db.execute("BEGIN")
        assert db.execute("SELECT count(*) FROM commits").get == 0
        pen.write()
        assert db.execute("SELECT count(*) FROM commits").get == 0  # as of when it began
        db.execute("COMMIT")
    pen.write()
    assert len(backend.read(1, 1, 9)) == 2
    assert len(opened) == 2
    backend.close()


def test_one_that_failed_under_a_reader_is_not_taken(tmp_path: Path, opened: list[Writer]) -> None:
    backend = SqliteBackend(str(tmp_path / "agents.db"))
    with pytest.raises(RuntimeError), backend._reading():
        raise RuntimeError("of the caller's own")  # nobody knows what it left behind
    pen = Pen(backend)
    pen.write()
    assert len(backend.read(1, 1, 9)) == 1
    assert len(opened) == 2
    backend.close()


def test_who_does_not_get_the_lock_has_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process had the file for longer than one waits, as `shrink` of a large one does.
    "The commit may or may not have happened", each writer was told, which had not begun one."""
    monkeypatch.setattr(connection, "BUSY_MS", 50)
    path = tmp_path / "agents.db"
    with perdure.open(path) as one, perdure.open(path, durability="os") as other:
        one.agent("a").save({"n": 1}, "made")
        agent = other.agent("a")
        for _ in range(2):  # before its first unsynced commit a store writes a mark
            writer: Any = one._context.backend._writer  # type: ignore[attr-defined]
            writer.begin()
            with pytest.raises(perdure.StoreUnavailable, match="locked by another") as refused:
                agent.save({"n": -1}, "not made")
            assert refused.value.outcome == "not_done"
            writer.drop_transaction()
            agent.update(lambda draft: draft.update(n=draft["n"] + 1))
        assert agent.state == {"n": 3}
