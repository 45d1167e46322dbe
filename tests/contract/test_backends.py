"""Every backend keeps the storage port's contract."""

from pathlib import Path

from perdure.storage.memory import MemoryBackend
from perdure.storage.port import Backend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing import BackendContract


class TestMemory(BackendContract):
    durable = False

    def open(self, place: Path) -> Backend:
        return MemoryBackend()


class TestSqlite(BackendContract):
    def open(self, place: Path) -> Backend:
        return SqliteBackend(str(place / "store.db"))


class TestSqliteGroup(BackendContract):
    def open(self, place: Path) -> Backend:
        return SqliteBackend(str(place / "store.db"), durability="group")
