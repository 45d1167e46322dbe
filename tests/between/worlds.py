"""Stores of one program, and copies of them as they were when it began."""

from __future__ import annotations

import copy
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec.structs import replace

import perdure
from perdure import Store
from perdure.missing import MISSING
from perdure.storage.capabilities import Backend
from perdure.storage.locate import _named_memories, locate
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.standing import read_why
from perdure.transfer.living_agents import living
from tests.between.moments import BUSY_MS
from tests.postgres.server import USER, shared

SIDES = ("here", "there", "elsewhere")
_names = itertools.count()


class Memory(MemoryBackend):
    """Stays open, as it is the same one for all who open it."""

    def close(self) -> None:
        pass


class World:
    """The stores of one try.

    Args:
        urls: of each side.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.urls = urls
        self._stores: dict[tuple[str, str], Store] = {}

    def store(self, side: str, who: str) -> Store:
        """Returns the store as somebody has it open: each has one of their own."""
        found = self._stores.get((side, who))
        if found is None:
            found = perdure.open(self.urls[side], durability="os")
            self._stores[side, who] = found
        return found

    def exists(self, side: str) -> bool:
        with suppress(perdure.NotFound):
            locate(self.urls[side], create=False).close()
            return True
        return False

    def close(self, who: str = "") -> None:
        for key in [key for key in self._stores if not who or key[1] == who]:
            self._stores.pop(key).close()


class Copies:
    """Makes copies of the stores that a function fills.

    Args:
        kinds: the backend of each side.
    """

    def __init__(self, folder: Path, kinds: Mapping[str, str], fill: Callable[[World], None]):
        self._folder = folder
        self._kinds = kinds
        self._base = World(self._new_urls())
        try:
            fill(self._base)
        finally:
            self._base.close()
        self._filled = [side for side in SIDES if self._base.exists(side)]

    @contextmanager
    def copied(self) -> Iterator[World]:
        """Gives a copy, and removes it afterwards."""
        world = World(self._new_urls())
        for side in self._filled:
            _COPY[self._kinds[side]](self._base.urls[side], world.urls[side])
        self._rename(world)
        try:
            yield world
        finally:
            world.close()
            self._remove(world)

    def remove(self) -> None:
        self._remove(self._base)

    def _remove(self, world: World) -> None:
        for side, url in world.urls.items():
            _REMOVE[self._kinds[side]](url)

    def _new_urls(self) -> dict[str, str]:
        return {side: self._new_url(kind) for side, kind in self._kinds.items()}

    def _new_url(self, kind: str) -> str:
        name = f"between-{next(_names)}"
        if kind == "postgres":
            return shared().new_url()
        if kind == "sqlite":
            return str(self._folder / f"{name}.db")
        _named_memories[name] = Memory(name)
        return f"memory://{name}"

    def _rename(self, world: World) -> None:
        """Lets stores that speak of each other speak of the copies."""
        backends = [(locate(self._base.urls[s]), locate(world.urls[s])) for s in self._filled]
        names = {before.url: now.url for before, now in backends}
        for before, now in backends:
            for no in [0, *(info.no for info in living(now))]:
                why = read_why(now.standing(no))
                if why is not None:
                    now.stand(replace(why, url=names.get(why.url, why.url)).standing(), no)
            before.close()
            now.close()


def _copy_memory(source: str, target: str) -> None:
    before, now = (_named_memories[url.removeprefix("memory://")] for url in (source, target))
    own = {"url", "_clock", "_lock", "_listeners"}
    data = {name: value for name, value in vars(before).items() if name not in own}
    vars(now).update(copy.deepcopy(data, {id(MISSING): MISSING}))


def _copy_file(source: str, target: str) -> None:
    shutil.copyfile(source, target)


@contextmanager
def impatient() -> Iterator[None]:
    """Who connects to the server in this block waits for no lock that is not free soon."""
    shared().sql(f"ALTER ROLE {USER} SET lock_timeout = {BUSY_MS}")
    try:
        yield
    finally:
        shared().sql(f"ALTER ROLE {USER} RESET lock_timeout")


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]


def _copy_schema(source: str, target: str) -> None:
    locate(target).close()
    before, now = schema_of(source), schema_of(target)
    server = shared()
    tables = server.sql("SELECT tablename::text FROM pg_tables WHERE schemaname = %s", now)
    sequences = server.sql("SELECT sequencename::text FROM pg_sequences WHERE schemaname = %s", now)
    parts = [
        f'TRUNCATE "{now}"."{name}"; INSERT INTO "{now}"."{name}" SELECT * FROM "{before}"."{name}"'
        for (name,) in tables
    ]
    parts += [
        f'SELECT setval(\'"{now}"."{name}"\', last_value, is_called) FROM "{before}"."{name}"'
        for (name,) in sequences
    ]
    server.sql("; ".join(parts))


def _remove_memory(url: str) -> None:
    _named_memories.pop(url.removeprefix("memory://"), None)


def _remove_file(url: str) -> None:
    for path in Path(url).parent.glob(f"{Path(url).name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove_schema(url: str) -> None:
    shared().sql(f'DROP SCHEMA IF EXISTS "{schema_of(url)}" CASCADE')


_COPY: dict[str, Any] = {
    "memory": _copy_memory,
    "sqlite": _copy_file,
    "postgres": _copy_schema,
}
_REMOVE: dict[str, Any] = {
    "memory": _remove_memory,
    "sqlite": _remove_file,
    "postgres": _remove_schema,
}


def backend_of(store: Store) -> Backend:
    return store._context.backend
