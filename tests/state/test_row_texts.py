"""Rows that no hash covers: what is wrong in them is an error that says so, with a way out."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.errors import Corrupt, PerdureError
from perdure.storage.answers import ExecutorRow
from perdure.storage.standing import Why

NO_TEXT = "CAST(x'ff41' AS TEXT)"
COLUMNS = (
    "agents.name",
    "executors.id",
    "executors.serves",
    "inbox.agent",
    "inbox.key",
    "inbox.name",
    "inbox.run",
    "inbox.who",
    "keys.key",
    "marks.name",
    "refs.holder",
    "refs.name",
    "runs.agent",
    "runs.args",
    "runs.branch",
    "runs.function",
    "runs.id",
    "runs.key",
    "runs.parent",
    "runs.problem",
    "runs.queue",
    "runs.status",
    "runs.version",
    "runs.waits",
    "standings.why",
)


@perdure.agent(dict)
def asking(run: Any) -> bool:
    return bool(run.ask("go on?"))


@perdure.agent(dict)
def working(run: Any) -> int:
    return 1


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "agents.db"
    with perdure.open(path) as store:
        store.agent("a").update(lambda draft: draft.update(n=1), "begin", key="k")
        store.run(working, "a")
        store.start(asking, "a").signal("news", 1)
        backend: Any = store._context.backend
        backend.stand(Why("here", url="elsewhere").standing(), backend.agent("a").no)
        with backend._transaction() as db:
            db.execute("INSERT INTO executors VALUES ('x', 9000000000000000, '[\"asking\"]')")
            db.execute("INSERT OR IGNORE INTO marks VALUES ('unsynced')")
            db.execute("UPDATE refs SET holder = 'x', held = 1, epoch = 9")
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path / "agents.db"))


def put(path: Path, column: str, value: str) -> None:
    """Write into all rows of a table; the pages' checksums are right."""
    table, name = column.split(".")
    with perdure.open(path) as store:
        backend: Any = store._context.backend
        with backend._transaction() as db:
            db.execute(f"UPDATE OR REPLACE {table} SET {name} = {value}")


def looks(store: Store) -> Iterator[Callable[[], object]]:
    backend = store._context.backend
    no = 1
    yield lambda: list(store.agents())
    yield lambda: store.runs()
    yield lambda: store.find("a")
    yield lambda: backend.feed("")
    yield lambda: backend.refs(no)
    yield lambda: backend.standing(no)
    yield backend.executors
    yield lambda: backend.key(no, "k")
    yield lambda: store.handle("a/asking/main").why()
    yield lambda: store.handle("a/asking/main").report()
    yield lambda: store.handle("a/asking/main").signal("more", 2)
    yield lambda: store.start(asking, "b")
    yield lambda: store.agent("a").save({"n": 2}, "on")
    yield lambda: store.agent("a").verify()


@pytest.mark.parametrize("column", COLUMNS)
def test_a_text_that_is_none(path: Path, column: str) -> None:
    """A byte that is no UTF-8, in the row of an executor, a standing or a run, came out of `why`,
    `start` and others as the bare UnicodeDecodeError of SQLite's wrapper."""
    put(path, column, NO_TEXT)
    said: list[PerdureError] = []
    try:
        store = perdure.open(path)
    except PerdureError as error:
        said.append(error)
    else:
        with store:
            for look in looks(store):
                try:
                    look()
                except PerdureError as error:
                    said.append(error)
    for one in said:
        assert one.target and (one.hint or not isinstance(one, Corrupt)), one
    assert column == "marks.name" or any(isinstance(one, Corrupt) for one in said), said


def test_every_column_of_text_is_tried(path: Path) -> None:
    connection = sqlite3.connect(path)
    tables = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")
    ]
    there = {
        f"{table}.{column[1]}"
        for table in tables
        if not table.startswith("sqlite_")
        for column in connection.execute(f"PRAGMA table_info({table})")
        if column[2] == "TEXT"
    }
    connection.close()
    assert there == {*COLUMNS, "refs.kind", "inbox.kind"}, "those two are checked by SQLite"


@pytest.mark.parametrize(
    "text", ["", "[1", "5", "[1]", '{"f": 1}', '{"f": [2]}', '"f"', "[" * 9_999]
)
def test_what_an_executor_serves_is_read_or_refused(text: str) -> None:
    """What no worker ever wrote there was a bare JSONDecodeError from `why` of any run. Of one that
    is gone nobody needs it."""
    with pytest.raises(Corrupt) as caught:
        ExecutorRow.of("x-1", 0, text, alive=True)
    assert caught.value.target == "executor 'x-1'" and "heartbeat" in caught.value.hint
    assert ExecutorRow.of("x-1", 0, text, alive=False).serves == ()
