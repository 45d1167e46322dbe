"""The least that a saver on SQLite can do in a graph: one durable commit for each checkpoint.

A row of fixed bytes; nothing is encoded, read or compared, and writes are not stored at all. What a
graph takes with it is LangGraph's own work, its threads, and the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from bench.rows.straight import INSERT
from perdure.integrations.langgraph.values import thread_names
from perdure.storage.sqlite.connection import connect

HEADER, PAYLOAD = bytes(250), bytes(350)
"""About what a step of a small state takes."""


class BareSaver(BaseCheckpointSaver[Any]):
    """Safe to share between threads."""

    def __init__(self, database: apsw.Connection) -> None:
        super().__init__()
        self._database = database
        self._mutex = threading.Lock()
        self._last = 0

    def get_tuple(self, config: RunnableConfig) -> None:
        return None

    def put(self, config: RunnableConfig, checkpoint: Any, *_: Any) -> RunnableConfig:
        with self._mutex:
            self._last += 1
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute(INSERT, (self._last, HEADER, PAYLOAD))
            self._database.execute("COMMIT")
        return thread_names.config_of(thread_names.thread_id_of(config), "", checkpoint["id"])

    def put_writes(self, *_: Any) -> None:
        pass

    def get_next_version(self, current: int | None, channel: None = None) -> int:
        return (current or 0) + 1


@contextmanager
def bare(path: Path) -> Iterator[BareSaver]:
    database = connect(str(path), synchronous="FULL", create=True)
    yield BareSaver(database)
    database.close()
