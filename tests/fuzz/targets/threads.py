"""LangGraph's values and threads: from its own database, and back out of ours."""

from __future__ import annotations

import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from langgraph.checkpoint.sqlite import SqliteSaver

import perdure
from perdure.core.values import codec
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.moving.move_threads import Mover, open_source
from perdure.integrations.langgraph.moving.serializer import Reader
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder
from tests.cli import langgraph_graphs as graphs
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target
from tests.fuzz.targets.logs import mended
from tests.fuzz.targets.tokens import as_text

NO_CELL = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)
COLUMNS = (
    (
        "checkpoints",
        (
            "thread_id",
            "checkpoint_ns",
            "checkpoint_id",
            "parent_checkpoint_id",
            "type",
            "checkpoint",
            "metadata",
        ),
    ),
    (
        "writes",
        (
            "thread_id",
            "checkpoint_ns",
            "checkpoint_id",
            "task_id",
            "idx",
            "channel",
            "type",
            "value",
        ),
    ),
)


def _theirs(parts: Parts, looks: Looks) -> None:
    """Kind and bytes as LangGraph wrote them: a value, or an `Unread` that says why not."""
    reader = Reader({})
    with reader.listening():
        for kind, data in zip(parts[0::2], parts[1::2], strict=False):
            value = reader.loads_typed((as_text(kind), data))
            looks.note(type(value).__name__)
            with looks.look():
                Coder(BUILT_IN).encode(value, ())


def _plain(parts: Parts, looks: Looks) -> None:
    """Plain values that stand in a log for rich ones."""
    coder = Coder(BUILT_IN)
    for part in parts:
        with looks.look(codec.UndecodableError):
            value = coder.decode(codec.decode(part))
            looks.note(type(value).__name__)


def _threads(parts: Parts, looks: Looks) -> None:
    """A thread's log behind its chain, as the saver reads it."""
    with perdure.open("memory://") as store:
        with looks.look():
            store.import_log(mended(parts))
        saver = PerdureSaver(store)
        for info in store.agents():
            config: Any = {"configurable": {"thread_id": info.name, "checkpoint_ns": ""}}
            with looks.look():
                saver.get_tuple(config)
            with looks.look():
                list(saver.list(config))
            with looks.look():
                saver.delete_thread(info.name)


@cache
def _path() -> Path:
    return Path(tempfile.mkdtemp(prefix="perdure-fuzz-"), "threads.sqlite")


@cache
def _whole() -> bytes:
    path = Path(tempfile.mkdtemp(prefix="perdure-fuzz-"), "whole.sqlite")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graphs.fill(saver)
    graphs.settle(path)
    return path.read_bytes()


def _source(parts: Parts, looks: Looks) -> None:
    """LangGraph's own database, as `import-langgraph` reads it. Each part: table, column and row by
    number, and a value."""
    _path().write_bytes(_whole())
    db = sqlite3.connect(_path())
    try:
        for part in parts:
            with looks.look(sqlite3.Error, *NO_CELL):
                _set(db, *msgspec.msgpack.decode(part, type=tuple[int, int, int, Any]))
        db.commit()
    finally:
        db.close()
    with looks.look():
        source = open_source(str(_path()), {})
        try:
            mover = Mover(source, {})
            with perdure.open("memory://") as store:
                mover.store = store
                for thread in source.threads():
                    with looks.look():
                        moved = mover.move(thread)
                        looks.note(str(len(moved.problems)))
        finally:
            source.close()


def _set(db: sqlite3.Connection, table: int, column: int, row: int, value: Any) -> None:
    name, columns = COLUMNS[table % 2]
    rows = db.execute(f"SELECT rowid FROM {name} ORDER BY rowid").fetchall()
    where = columns[column % len(columns)], rows[row % len(rows)][0]
    db.execute(f"UPDATE {name} SET {where[0]} = ? WHERE rowid = ?", (value, where[1]))


theirs = Target("langgraph-values", _theirs)
plain = Target("langgraph-plain", _plain)
threads = Target("langgraph-threads", _threads)
source = Target("langgraph-source", _source, prepare=_whole)
