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
from msgspec import Struct, field

from perdure.errors import Corrupt, PerdureError, UnsupportedFormat
from perdure.model import AgentInfo, Rebuilt
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend
from perdure.storage.log.way_back import EPOCHS
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.faults import RESTORE, RESTORE_OR_REPAIR
from perdure.storage.sqlite.file_complete import DamagedWalError
from perdure.storage.sqlite.listing import list_agent, put_names
from perdure.storage.sqlite.page_mending import MendedPages, mend_pages
from perdure.storage.sqlite.proofs import (
    BrokenTreeError,
    DoubtfulPages,
    check_what_nothing_proves,
    differing_indexes,
    find_doubtful,
    unlisted,
)
from perdure.storage.sqlite.wal_salvage import salvage


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
    done = _Done()
    with done.telling():
        backend, differ = _opened(path, done, take_incomplete=take_incomplete)
        try:
            if done.is_cut:
                backend.change(lambda db: db.execute(_FENCE, (EPOCHS,)))
                asks.lost(done.lost)
            _rebuild(backend, asks, done, differ=differ, take_incomplete=take_incomplete)
        except UnicodeDecodeError as error:  # apsw's, of a text that it was to give
            raise Corrupt(
                "a text in it is not UTF-8", target=f"store {backend.path}", hint=RESTORE
            ) from error
        finally:
            backend.close()
    return Rebuilt(done.copy, "; ".join(done.told), done.is_cut)


_FENCE = "UPDATE refs SET epoch = epoch + ? WHERE kind = 'branch'"


class _Done(Struct):
    """The changes of the files so far; see `Rebuilt`, and `Salvaged`."""

    told: list[str] = field(default_factory=list)
    copy: str = ""
    is_cut: bool = False
    lost: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    def took(self, found: MendedPages | None) -> bool:
        if found is not None:
            self.told.append(found.told)
            self.copy = self.copy or found.copy
        return found is not None

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Says in the errors of its block what was done: another call would not know it."""
        try:
            yield
        except PerdureError as error:
            if self.told:
                done = f"{'; '.join(self.told)}; the old files are kept as {self.copy}"
                error.hint = f"{error.hint}\n  → {done}" if error.hint else done
            raise


def _opened(path: str, done: _Done, *, take_incomplete: bool) -> tuple[SqliteBackend, bool]:
    """Returns the store, opened; and True if indexes differ from their tables. What keeps it from
    being opened or read is put right before, if that is proved."""
    if not take_incomplete:
        return _open(path, done, salvages=False), False
    if os.path.isfile(path):
        done.took(mend_pages(os.path.realpath(path), (1,)))
    backend = _open(path, done, salvages=True)
    try:
        return backend, backend.examine(differing_indexes)
    except BrokenTreeError as error:
        backend.close()
        if not done.took(mend_pages(backend.path, error.pages)):
            raise
    except BaseException:
        backend.close()
        raise
    backend = _open(path, done, salvages=True)
    try:
        return backend, backend.examine(differing_indexes)
    except BaseException:
        backend.close()
        raise


def _open(path: str, done: _Done, *, salvages: bool) -> SqliteBackend:
    try:
        return SqliteBackend(path, create=False, checked=False)
    except DamagedWalError:
        if not salvages:
            raise
    salvaged = salvage(os.path.realpath(path))
    done.told.append(salvaged.told)
    done.copy = done.copy or salvaged.copy
    done.is_cut, done.lost = salvaged.is_cut, salvaged.lost
    return SqliteBackend(path, create=False, checked=False)


def _rebuild(
    backend: SqliteBackend, asks: Asks, done: _Done, *, differ: bool, take_incomplete: bool
) -> None:
    def keep() -> None:
        done.copy = done.copy or backend.keep_copy()

    if not take_incomplete:
        backend.maintain("check")
    elif differ:
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
