"""A pytest plugin for foreign suites: puts our savers and stores in the place of theirs.

Their tests stay as they were released. What they get from fixtures is replaced in the modules of
the fixtures; what they make by themselves (`InMemorySaver()`) under the names that their modules
have for it. One run is on one backend, so of each test there is one saver, not one for each of
theirs.

The environment says how: ``PERDURE_SUITE`` is "memory", "sqlite", "postgres" (ours, on that
backend) or "theirs"; ``PERDURE_OUTCOMES`` is where outcomes are written;
``PERDURE_SUITE_WHOLE`` takes all tests, not those alone that use a saver or store.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

import perdure
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.store.memory_store import PerdureStore

BACKEND = os.environ.get("PERDURE_SUITE", "memory")
OURS = BACKEND != "theirs"
WHOLE = bool(os.environ.get("PERDURE_SUITE_WHOLE"))
_numbers = itertools.count()


@contextmanager
def url() -> Iterator[str]:
    """Where a new store can be."""
    if BACKEND == "memory":
        yield f"memory://suite-{os.getpid()}-{next(_numbers)}"
    elif BACKEND == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"{folder}/threads.db"
    else:
        yield _postgres()


def _postgres() -> str:
    from tests_of_perdure.postgres.server import shared  # type: ignore[import-not-found]

    return str(shared().new_url())


@contextmanager
def saver() -> Iterator[PerdureSaver]:
    with url() as place, PerdureSaver.from_url(place, durability="os") as made:
        yield made


@asynccontextmanager
async def async_saver() -> AsyncIterator[PerdureSaver]:
    with url() as place:
        async with PerdureSaver.from_url(place, durability="os") as made:
            yield made


@contextmanager
def store() -> Iterator[PerdureStore]:
    with url() as place, PerdureStore.from_url(place, durability="os") as made:
        yield made


class InMemoryPerdureSaver(PerdureSaver):
    """For tests that make one by themselves, with the arguments of theirs."""

    def __init__(self, *, serde: Any = None, factory: Any = None) -> None:
        place = f"memory://suite-{os.getpid()}-{next(_numbers)}"
        super().__init__(perdure.open(place), serde=serde)


class InMemoryPerdureStore(PerdureStore):
    """As `InMemoryPerdureSaver`."""

    def __init__(self, *, index: Any = None) -> None:
        place = f"memory://suite-{os.getpid()}-{next(_numbers)}"
        super().__init__(perdure.open(place), index=index)


_places: dict[str, str] = {}
"""By the path that a test gives, where ours is."""


def place_of(conn_string: Any) -> str:
    """Where to put what a test puts into an SQLite file, or ``:memory:``."""
    if conn_string == ":memory:" or BACKEND == "memory":
        where = f"memory://suite-{os.getpid()}-{next(_numbers)}"
        return where if conn_string == ":memory:" else _places.setdefault(str(conn_string), where)
    if BACKEND == "sqlite":
        return f"{conn_string}.perdure"
    if str(conn_string) not in _places:
        _places[str(conn_string)] = _postgres()
    return _places[str(conn_string)]


class FilePerdureSaver(PerdureSaver):
    """In the place of `SqliteSaver` and its async twin."""

    @staticmethod
    def from_conn_string(conn_string: Any) -> PerdureSaver:
        return PerdureSaver.from_url(place_of(conn_string), durability="os")


class FilePerdureStore(PerdureStore):
    """In the place of `SqliteStore` and its async twin."""

    @staticmethod
    def from_conn_string(conn_string: Any, *, index: Any = None, ttl: Any = None) -> Any:
        return PerdureStore.from_url(place_of(conn_string), index=index, ttl=ttl, durability="os")


class AsyncFilePerdureStore(FilePerdureStore):
    """In the place of `AsyncSqliteStore`, in which these are coroutines; ours has one class for
    both, in which they block."""

    @staticmethod
    def from_conn_string(conn_string: Any, *, index: Any = None, ttl: Any = None) -> Any:
        @asynccontextmanager
        async def opened() -> AsyncIterator[AsyncFilePerdureStore]:
            with perdure.open(place_of(conn_string), durability="os") as beneath:
                made = AsyncFilePerdureStore(beneath, index=index, ttl=ttl)
                yield made
                await made.stop_ttl_sweeper()

        return opened()

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        return await self.asweep_ttl()

    async def start_ttl_sweeper(self, minutes: float | None = None) -> Any:  # type: ignore[override]
        made = PerdureStore(self.store, ttl=self.ttl_config)
        self._beside = made
        return made.start_ttl_sweeper(minutes)

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        beside = getattr(self, "_beside", None)
        return beside is None or await asyncio.to_thread(beside.stop_ttl_sweeper, timeout)


FIXTURES: dict[str, Any] = {
    "_checkpointer_memory": saver,
    "_checkpointer_sqlite": saver,
    "_checkpointer_sqlite_aio": async_saver,
    "_store_memory": store,
}
NAMES: dict[type, type] = {
    InMemorySaver: InMemoryPerdureSaver,
    InMemoryStore: InMemoryPerdureStore,
}
if WHOLE:  # a suite of LangGraph's SQLite savers; others mean a file where they say so
    NAMES = {
        SqliteSaver: FilePerdureSaver,
        AsyncSqliteSaver: FilePerdureSaver,
        SqliteStore: FilePerdureStore,
        AsyncSqliteStore: AsyncFilePerdureStore,
    }
USING = {"sync_checkpointer", "async_checkpointer", "sync_store", "async_store"}
ONE = {"memory", "in_memory"}
"""Of the savers that fixtures offer, the one in whose place ours is put."""


def pytest_plugin_registered(plugin: object) -> None:
    """Fixtures look these up in their conftest module when they are used."""
    if OURS and isinstance(plugin, ModuleType) and plugin.__name__.endswith("conftest"):
        for name, made in FIXTURES.items():
            if hasattr(plugin, name):
                setattr(plugin, name, made)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Leave the tests that use a saver or a store, each with one."""
    words: dict[str, set[str]] = {}
    for module in {item.module for item in items}:
        names = {name for name, value in vars(module).items() if _is_theirs(value)}
        words[module.__name__] = names
        if OURS:
            for name in names:
                setattr(module, name, NAMES[getattr(module, name)])
    left = [item for item in items if WHOLE or _wanted(item, words[item.module.__name__])]
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = left


def _is_theirs(value: Any) -> bool:
    return isinstance(value, type) and value in NAMES


def _wanted(item: Any, names: set[str]) -> bool:
    used = USING.intersection(item.fixturenames)
    if used:
        params = getattr(item, "callspec", None)
        found = {} if params is None else params.params
        return all(found.get(name, "memory") in ONE for name in used)
    return bool(names & _mentioned(item.function, item.module, set()))


def _mentioned(function: Any, module: ModuleType, seen: set[str]) -> set[str]:
    """The names that a test speaks of, and functions and classes of its module that it uses."""
    found: set[str] = set()
    code = getattr(function, "__code__", None)
    todo = [code] if isinstance(code, CodeType) else []
    while todo:
        code = todo.pop()
        found.update(code.co_names)
        todo += [const for const in code.co_consts if isinstance(const, CodeType)]
    for name in found - seen:
        seen.add(name)
        value = getattr(module, name, None)
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            found |= _mentioned(value, module, seen)
    return found


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each phase of a test that says something; with xdist, of all workers."""
    if report.when == "call" or report.outcome != "passed":
        _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A module that cannot be imported is a test that failed."""
    if report.failed:
        _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    path = os.environ.get("PERDURE_OUTCOMES")
    if path is None or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    words = str(report.longrepr)[-800:] if report.failed else ""
    with open(path, "a") as file:
        file.write(json.dumps([report.nodeid, report.outcome, words]) + "\n")
