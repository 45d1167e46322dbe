"""Every backend keeps the storage port's contract."""

from pathlib import Path
from typing import Any

from perdure.storage.capabilities import Backend
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.port import LogStorage
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing import BackendContract
from tests.postgres.server import shared


class TestMemory(BackendContract):
    durable = False

    def open(self, place: Path) -> Backend:
        return MemoryBackend()


class Core(MemoryBackend):
    """A backend that keeps logs, and declares nothing else."""

    capabilities = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in BESIDE:
            raise AssertionError(f"{name} is of a capability that was not declared")
        return super().__getattribute__(name)


BESIDE = {name for name in dir(Backend) if not name.startswith("_")} - {*dir(LogStorage)}


class TestCore(BackendContract):
    """What a backend that only keeps logs has to do: it is asked for nothing else."""

    durable = False
    capabilities = frozenset()

    def open(self, place: Path) -> Backend:
        return Core()


class TestSqlite(BackendContract):
    def open(self, place: Path) -> Backend:
        return SqliteBackend(str(place / "store.db"))


class TestSqliteGroup(BackendContract):
    def open(self, place: Path) -> Backend:
        return SqliteBackend(str(place / "store.db"), durability="group")


class TestPostgres(BackendContract):
    """A place is a schema of its own, in the one server of this test process."""

    partitions = 0

    def url(self, place: Path) -> str:
        kept = place / "url"
        if not kept.exists():
            kept.write_text(shared().new_url(partitions=self.partitions))
        return kept.read_text()

    def open(self, place: Path) -> Backend:
        return PostgresBackend(self.url(place))


class TestPostgresGroup(TestPostgres):
    """With tables that are split by hash, as well."""

    partitions = 3

    def open(self, place: Path) -> Backend:
        return PostgresBackend(self.url(place), durability="group")
