"""The contestants of a durable commit: what a machine can do at best, and what a database does."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import Operation
from bench.workplace import Ticket
from perdure import Agent

APPEND = "append+fdatasync"
INSERT = "sqlite3 INSERT"
_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def stored_bytes(agent: Agent[Ticket]) -> bytes:
    """As many bytes as the agent's last commit has in the log; random, so nothing shrinks them."""
    return os.urandom(agent.commit(agent.seq).size)


@contextmanager
def appending(path: Path, data: bytes) -> Iterator[Operation]:
    """Append the bytes to a plain file and wait until the disk has them."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append_and_sync(_: int) -> None:
        os.write(descriptor, data)
        _sync(descriptor)

    try:
        yield append_and_sync
    finally:
        os.close(descriptor)


@contextmanager
def inserting(path: Path, data: bytes) -> Iterator[Operation]:
    """One row per transaction with the standard library's sqlite3, as durable as ours."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    try:
        yield lambda _: database.execute("INSERT INTO log (data) VALUES (?)", (data,))
    finally:
        database.close()
