"""Finds the backend of a store's URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, get_args

from perdure.core.arguments import exact_types
from perdure.core.arguments.checks import one_of
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.errors import NotAStore, NotFound
from perdure.model import AgentInfo, Durability, Rebuilt
from perdure.storage.capabilities import Backend
from perdure.storage.clocks import Clock, wall_clock
from perdure.storage.group_policy import GROUPED, GroupPolicy
from perdure.system.late_imports import loading
from perdure.system.locks import Lock

if TYPE_CHECKING:
    from perdure.storage.memory.backend import MemoryBackend
    from perdure.storage.sqlite.repair import Asks

_named_memories: dict[str, MemoryBackend] = {}
_naming = Lock()

EXAMPLES = {
    "sqlite": "sqlite:///path/to/file",
    "postgresql": "postgresql://host/database",
    "postgres": "postgresql://host/database",
    "memory": "memory://",
}
"""A URL of each scheme."""

_SERVERS_OWN = (
    "a store in PostgreSQL is backed up by its server: pg_dump -n SCHEMA, or pg_basebackup; "
    "perdure replicate URL copy.db copies it into a file, perdure export writes one log"
)
ELSEWHERE = {
    "postgresql": _SERVERS_OWN,
    "postgres": _SERVERS_OWN,
    "memory": "a store in memory ends with its process: store.export_log writes its logs",
}
"""Of stores that are no file: what backs them up."""

STORE_MARK = b"Prdu"
"""SQLite's id of the application, in a store's file."""


def locate(
    url: str | os.PathLike[str],
    *,
    durability: Durability = "sync",
    group: GroupPolicy = GROUPED,
    create: bool = True,
    clock: Clock = wall_clock,
) -> Backend:
    """Opens the backend of a URL.

    Args:
        url: a path, ``sqlite:///path``, ``postgresql://host/database?schema=name`` (its options are
            in docs/postgres.md), or ``memory://``. A named memory, ``memory://name``, is the same
            one for everyone who opens it in this process.
        create: True makes a store that is not there yet.
        group: when commits that need not wait for the disk reach it.
        clock: the store's clock; for tests. A named memory keeps the one that it was made with.

    Raises:
        NotFound: it is not there and may not be made.
        StoreUnavailable, NotAStore, UnsupportedFormat, Corrupt: it cannot be opened; see
            `perdure.open`.
        ValueError: no backend knows such a URL, or the durability is not one of the three.
        ImportError: a package that the backend needs is not installed.
    """
    text = url_text(url)
    durability = one_of(durability, "durability ", get_args(Durability))
    scheme, rest = _split(text)
    if scheme is None:
        return _sqlite(text, durability, clock, create=create, group=group)
    if scheme == "sqlite":
        return _sqlite(_path_of(text), durability, clock, create=create, group=group)
    if scheme == "memory":
        return _memory(rest, clock, create=create)
    if scheme in ("postgresql", "postgres"):
        return _postgres(text, durability, clock, create=create, group=group)
    raise ValueError(
        f"no backend for {scheme}://; use a path, sqlite:///path, postgresql://host/database or "
        "memory://"
    )


def url_text(url: str | os.PathLike[str]) -> str:
    """Returns a store's path or URL as a text.

    Raises:
        TypeError: it is not a text. ValueError: the system allows no such name.
    """
    given = os.fspath(url) if issubclass(type(url), os.PathLike) else url
    if not is_a(given, str):
        raise TypeError(f"a store is opened by its path or URL, which is a text, not {shown(url)}")
    text = exact_types.text(given)
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(f"a store's path or URL must be a text, not {shown(text)}") from error
    if "\0" in text:
        raise ValueError(f"a store's path or URL must not contain NUL: {shown(text)}")
    return text


def rebuild_checksums(url: str | os.PathLike[str], asks: Asks, *, take_incomplete: bool) -> Rebuilt:
    """See `perdure.storage.sqlite.repair`; other backends keep no page checksums of their own."""
    with loading:
        from perdure.storage.sqlite.repair import rebuild_checksums as rebuild

    text = os.fspath(url)
    scheme, _ = _split(text)
    if scheme not in (None, "sqlite"):
        raise ValueError(f"{scheme}://: only SQLite stores have page checksums to repair")
    path = _path_of(text) if scheme else text
    return rebuild(path, asks, take_incomplete=take_incomplete)


class Copied(Backend, Protocol):
    """The copy of a whole store."""

    def incarnations(self) -> list[AgentInfo]:
        """Returns all agents, deleted ones too."""
        ...


@contextmanager
def copy_store(
    url: str | os.PathLike[str], path: str | os.PathLike[str], progress: Callable[[int, int], None]
) -> Iterator[Copied]:
    """Copies a SQLite store, as it is at this moment; gives the copy, open, which is at `path` once
    the block has ended without an exception.

    Raises:
        ValueError: it is another backend's, or `path` is no path.
        Conflict, NotFound, StoreUnavailable, NotAStore, UnsupportedFormat, Corrupt: as for
            `perdure.backup`.
    """
    text, target = url_text(url), url_text(path)
    scheme, _ = _split(text)
    if scheme not in (None, "sqlite"):
        raise ValueError(ELSEWHERE.get(scheme, f"no backend for {scheme}://"))
    if not target or "://" in target or target.endswith(os.sep) or os.path.isdir(target):
        raise ValueError(f"a backup is written to a file, not to {shown(target)}")
    with loading:
        from perdure.storage.sqlite.backend import SqliteBackend
        from perdure.storage.sqlite.backup import part_of
        from perdure.storage.sqlite.faults import translate

    source = locate(text, create=False)
    assert isinstance(source, SqliteBackend)
    try:
        target = os.path.abspath(target)
        with part_of(target) as part:
            source.copy_pages(part, progress)
            source.close()
            copy = SqliteBackend(part, create=False)
            try:
                yield copy
            finally:
                copy.close()
    except OSError as error:
        raise translate(error, target) from error
    finally:
        source.close()


def _split(text: str) -> tuple[str | None, str]:
    """Returns a URL's scheme and the rest; for a path None and the path.

    Raises:
        ValueError: a URL lacks a slash; taken for a path, it would be a new and empty store.
    """
    scheme, found, rest = text.partition("://")
    if found:
        return scheme, rest
    word, found, _ = text.partition(":")
    if found and word in EXAMPLES:  # not shown: it may hold a password
        raise ValueError(
            f"a URL that begins with {word}: but lacks a slash: write it as {EXAMPLES[word]} "
            f"(a file of that name: ./{word}:…)"
        )
    return None, text


def _path_of(url: str) -> str:
    """Returns the path in sqlite:///path: relative, or absolute after a fourth slash. It has no
    options: a ``?`` or ``#`` belongs to the name of a file or folder."""
    slash, path = url.removeprefix("sqlite://")[:1], url.removeprefix("sqlite:///")
    optional = ("?" in path or "#" in path) and not os.path.exists(path)
    if slash != "/" or not path.strip("/") or optional:
        raise ValueError(f"{url!r}: write it as sqlite:///path/to/file (four slashes: absolute)")
    return path


def _sqlite(
    path: str, durability: Durability, clock: Clock, *, create: bool, group: GroupPolicy
) -> Backend:
    with loading:
        from perdure.storage.sqlite.backend import SqliteBackend  # apsw costs 20 ms to import

    if not path or path == ":memory:":
        raise ValueError(f"{path!r} is not the path of a file; a store in memory is memory://")
    if os.path.isdir(path):
        raise NotAStore(
            "is a folder", target=f"store {path}", hint="name a file in it, such as agents.db"
        )
    return SqliteBackend(path, durability=durability, group=group, create=create, clock=clock)


def _postgres(
    url: str, durability: Durability, clock: Clock, *, create: bool, group: GroupPolicy
) -> Backend:
    try:
        with loading:
            from perdure.storage.postgres.backend import PostgresBackend
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise ImportError(
            "a store in PostgreSQL needs psycopg: pip install 'perdure[postgres]'"
        ) from error
    return PostgresBackend(url, durability=durability, group=group, create=create, clock=clock)


def _memory(name: str, clock: Clock, *, create: bool) -> Backend:
    with loading:
        from perdure.storage.memory.backend import MemoryBackend

    if not name:
        return MemoryBackend(clock=clock)
    with _naming:
        if name not in _named_memories or _named_memories[name].closed:
            if not create:
                raise NotFound("no such store in this process", target=f"memory://{name}")
            _named_memories[name] = MemoryBackend(name, clock=clock)
        return _named_memories[name]


def is_store_file(path: str) -> bool:
    """Returns True if a file is a store, by its mark. It opens and closes the file, which drops the
    locks of a store that this process has open: do not call it then.

    Raises:
        OSError: it cannot be read.
    """
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        file.seek(68)  # https://sqlite.org/fileformat.html: the application's id
        return file.read(4) == STORE_MARK
