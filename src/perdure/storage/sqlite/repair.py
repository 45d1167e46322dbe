"""Restoring a store's page checksums, after another SQLite moved pages without them, or a bit of a
page was flipped.

The first story: a store's process crashed, somebody looked into the file with another SQLite, and
that one, as the last to close it, moved the WAL into the main file. It knows nothing of our
checksums, so every page that it moved fails them, although no byte of the data is wrong.

The second one: a page of the file is damaged. It has rows of a dozen agents, and only one of these
rows has changed; but none of them can be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import apsw

from perdure.errors import Corrupt, PerdureError, UnsupportedFormat
from perdure.model import AgentInfo, Rebuilt
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend
from perdure.storage.log.way_back import EPOCHS
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.faults import RESTORE, RESTORE_OR_REPAIR
from perdure.storage.sqlite.file_complete import DamagedWalError
from perdure.storage.sqlite.listing import list_agent, put_names
from perdure.storage.sqlite.proofs import (
    DoubtfulPages,
    check_what_nothing_proves,
    differing_indexes,
    find_doubtful,
    unlisted,
)
from perdure.storage.sqlite.wal_salvage import Salvaged, salvage


class Asks(Protocol):
    """Questions to the readers of logs; each raises if the file is to stay as it is."""

    def lost(self, last: Mapping[int, tuple[str, int]]) -> None:
        """Receives agents whose last commits may be lost, by number: the name, if it is known, and
        the last seq."""

    def unlisted(self, backend: Backend, no: int) -> AgentInfo | None:
        """Returns the agent that has a log under a number that is not listed, if the log names
        it."""

    def lost_names(self, backend: Backend, info: AgentInfo) -> Sequence[Ref]:
        """Returns the rows for names that differ in its log."""

    def doubt(self, backend: Backend, doubtful: DoubtfulPages) -> None:
        """Receives the content of pages that fail their checksums, before anything is proved."""

    def prove(self, backend: Backend, info: AgentInfo) -> None:
        """Called with every agent, deleted and former ones included."""

    def conclude(self, backend: Backend) -> None:
        """Called once all are proved; may write."""


def rebuild_checksums(path: str, asks: Asks, *, take_incomplete: bool) -> Rebuilt:
    """Reads the file without its checksums, proves that it is whole, then writes them again.

    Args:
        take_incomplete: True if the data may be damaged, too. Then indexes that differ from their
            tables are rebuilt, lost rows of agents and names are restored from the logs, a damaged
            WAL is emptied once all that it proves is in the file, and a copy is kept.

    Raises:
        Corrupt: the data itself is damaged. Restore the store from a copy.
        StoreUnavailable: another process has the file open.
    """
    backend, salvaged = _opened(path, salvages=take_incomplete)
    if salvaged is None:
        return Rebuilt(_rebuild(backend, asks, "", take_incomplete=take_incomplete))
    with _telling(salvaged):
        try:
            if salvaged.is_cut:
                backend.change(lambda db: db.execute(_FENCE, (EPOCHS,)))
                asks.lost(salvaged.lost)
        except BaseException:
            backend.close()
            raise
        copy = _rebuild(backend, asks, salvaged.copy, take_incomplete=take_incomplete)
    return Rebuilt(copy, salvaged.told, salvaged.is_cut)


_FENCE = "UPDATE refs SET epoch = epoch + ? WHERE kind = 'branch'"


def _opened(path: str, *, salvages: bool) -> tuple[SqliteBackend, Salvaged | None]:
    try:
        return SqliteBackend(path, create=False, checked=False), None
    except DamagedWalError:
        if not salvages:
            raise
    salvaged = salvage(os.path.realpath(path))
    with _telling(salvaged):
        return SqliteBackend(path, create=False, checked=False), salvaged


@contextmanager
def _telling(salvaged: Salvaged) -> Iterator[None]:
    """Says in the errors of its block what became of the WAL: another call would not know it."""
    try:
        yield
    except PerdureError as error:
        done = f"{salvaged.told}; the old files are kept as {salvaged.copy} and its -wal"
        error.hint = f"{error.hint}\n  → {done}" if error.hint else done
        raise


def _rebuild(backend: SqliteBackend, asks: Asks, copy: str, *, take_incomplete: bool) -> str:
    kept = [copy] if copy else []

    def keep() -> None:
        if not kept:
            kept.append(backend.keep_copy())

    try:
        if not take_incomplete:
            backend.maintain("check")
        elif backend.examine(differing_indexes):
            keep()
            _rebuild_indexes(backend)
        doubtful = backend.examine(find_doubtful)
        if take_incomplete:
            _put_back(backend, asks, keep)
        backend.examine(lambda db, at: check_what_nothing_proves(db, at, doubtful.tables))
        asks.doubt(backend, doubtful)
        for info in backend.incarnations():
            try:
                asks.prove(backend, info)
            except UnsupportedFormat as error:
                _refuse_damaged(backend, info, error)
                raise
        if take_incomplete:
            keep()
        asks.conclude(backend)
        backend.rewrite_pages()
    except UnicodeDecodeError as error:  # apsw's, of a text that it was to give
        raise Corrupt(
            "a text in it is not UTF-8", target=f"store {backend.path}", hint=RESTORE
        ) from error
    finally:
        backend.close()
    return "".join(kept)


def _put_back(backend: SqliteBackend, asks: Asks, keep: Callable[[], None]) -> None:
    """Restores rows of agents and names that a disk lost."""
    for no in backend.examine(unlisted):
        if (info := asks.unlisted(backend, no)) is not None:
            keep()
            backend.change(lambda db, info=info: list_agent(db, info))  # type: ignore[misc]
    for info in backend.incarnations():
        if refs := asks.lost_names(backend, info):
            keep()
            backend.change(lambda db, info=info, refs=refs: put_names(db, info.no, refs))  # type: ignore[misc]


def _refuse_damaged(backend: SqliteBackend, info: AgentInfo, error: UnsupportedFormat) -> None:
    """Raises Corrupt if what looks like a newer version's data is on a page that fails its
    checksum."""
    rows = backend.read(info.no, error.seq, error.seq) if error.seq else []
    if rows and backend.examine(find_doubtful).may_hold(rows[0].header):
        raise Corrupt(
            f"{error.problem}, on a page that fails its checksum",
            target=error.target,
            hint=RESTORE_OR_REPAIR,
            seq=error.seq,
            before=error.before,
        ) from error


def _rebuild_indexes(backend: SqliteBackend) -> None:
    try:
        backend.change(lambda db: db.execute("REINDEX"))
    except apsw.ConstraintError as error:
        raise Corrupt(
            f"rows that must be unique are there twice ({error})",
            target=f"store {backend.path}",
            hint=RESTORE,
        ) from error
    backend.maintain("check")
