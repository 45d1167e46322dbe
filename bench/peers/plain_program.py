"""The limit: what a machine can do at best, without any library: `FOLDER append|insert`.

`append` writes a line to a plain file and waits until the disk has it; `insert` makes one row and
one transaction of it with the standard library's sqlite3, in WAL mode and at synchronous FULL.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from bench.peers.contest import LISTED, Contestant, contend, in_threads, message, timed, token
from bench.peers.serving import Answer, result

Write = Callable[[str], None]
SAID = "SELECT text FROM log WHERE name = 'conversation'"
_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Plain(Contestant):
    """What both limits do alike: one write is a step, and two are a tool call."""

    _said = 0

    def write(self, name: str) -> Write:
        """What makes one text durable, under that name."""
        raise NotImplementedError

    def _timed(self, name: str, texts: Iterable[str], per: int = 1) -> Answer:
        texts, write = list(texts), self.write(name)
        with timed() as clock:
            for text in texts:
                write(text)
        return clock.answer(len(texts) // per)

    def say(self, count: int) -> Answer:
        first = self._said + 1
        self._said += count
        return self._timed("conversation", map(message, range(first, first + count)))

    def steps(self, count: int) -> Answer:
        return self._timed("others", map(result, range(count)))

    def tools(self, count: int) -> Answer:
        return self._timed("others", (result(number) for number in range(count) for _ in "12"), 2)

    def tokens(self, count: int) -> Answer:
        return self._timed("others", map(token, range(count)))

    def concurrent(self, runs: int, count: int) -> Answer:
        names = [self.new_name() for _ in range(runs)]
        writes = [self.write(name) for name in names]

        def work(write: Write) -> None:
            for number in range(count):
                write(result(number))

        with timed() as clock:
            in_threads([partial(work, write) for write in writes])
        return clock.answer(runs * count)


class Appended(Plain):
    """A file for each name."""

    def about(self) -> Answer:
        return {"version": ""}

    def _path(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.txt"

    def write(self, name: str) -> Write:
        descriptor = os.open(self._path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def append(text: str) -> None:
            os.write(descriptor, f"{text}\n".encode())
            _sync(descriptor)

        return append

    def open(self) -> int:
        path = self._path("conversation")
        messages = path.read_text("utf-8").splitlines() if path.exists() else []
        self._said = len(messages)
        return self._said

    def delete(self) -> Answer:
        with timed() as clock:
            self._path("conversation").unlink()
        return clock.answer(1)


class Inserted(Plain):
    """A table for all names, and one connection, which its threads take in turns."""

    def about(self) -> Answer:
        return {"version": sqlite3.sqlite_version}

    def open(self) -> int:
        path = Path(self.folder) / "plain.db"
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, name TEXT, text TEXT)",
            "CREATE INDEX IF NOT EXISTS named ON log (name)",
        ):
            self._database.execute(statement)
        messages = self._rows(f"{SAID} ORDER BY id")
        self._said = len(messages)
        return self._said

    def _rows(self, statement: str) -> list[str]:
        return [text for (text,) in self._database.execute(statement)]

    def write(self, name: str) -> Write:
        def insert(text: str) -> None:
            with self._lock:
                self._database.execute("INSERT INTO log (name, text) VALUES (?, ?)", (name, text))

        return insert

    def past(self, at: int) -> Answer:
        with timed() as clock:
            found = self._rows(f"{SAID} ORDER BY id LIMIT {at}")
        assert len(found) == at
        return clock.answer(1)

    def recent(self) -> Answer:
        with timed() as clock:
            self._rows(f"{SAID} ORDER BY id DESC LIMIT {LISTED}")
        return clock.answer(1)

    def delete(self) -> Answer:
        with timed() as clock:
            self._database.execute("DELETE FROM log WHERE name = 'conversation'")
        return clock.answer(1)

    def close(self) -> None:
        self._database.close()


if __name__ == "__main__":
    folder, kind = sys.argv[1:]
    contend({"append": Appended, "insert": Inserted}[kind](folder))
