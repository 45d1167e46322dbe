"""Giving a store its page checksums back, after another SQLite moved pages without them, or a bit
of a page was flipped.

The first story: a store's process crashed, somebody looked into the file with another SQLite, and
that one, as the last to close it, moved the WAL into the main file. It knows nothing of our
checksums, so every page that it moved fails them, though no byte of the data is wrong.

The second one: a page of the file is damaged. It has rows of a dozen agents, and one of these rows
is not what it was; but none of them can be read.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import AgentInfo
from perdure.storage.port import Backend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.faults import RESTORE, RESTORE_OR_REPAIR
from perdure.storage.sqlite.proofs import (
    Doubtful,
    check_what_nothing_proves,
    differing_indexes,
    find_doubtful,
)


def rebuild_checksums(
    path: str, prove: Callable[[Backend, AgentInfo], None],
    heal: Callable[[Backend], None], doubt: Callable[[Backend, Doubtful], None], *,
    take_incomplete: bool,
) -> str:  # fmt: skip
    """Read the file without its checksums, prove that it is whole, then write them anew.

    Args:
        prove: called with every agent, deleted and former ones too; raises where the file is to
            stay as it is.
        heal: called once all are proved; may write; raises where the file is to stay as it is.
        doubt: called before that with what is on pages that fail their checksums.
        take_incomplete: the data may be damaged, too. Then indexes that differ from their tables
            are made anew, and a copy is kept.

    Returns:
        The path of the copy; empty where none was asked for.

    Raises:
        Corrupt: the data itself is damaged. Restore the store from a copy.
        StoreUnavailable: another process has the file open.
    """
    backend = SqliteBackend(path, create=False, checked=False)
    copy = ""
    try:
        if not take_incomplete:
            backend.maintain("check")
        elif backend.examine(differing_indexes):
            copy = backend.keep_copy()
            _rebuild_indexes(backend)
        doubtful = backend.examine(find_doubtful)
        backend.examine(lambda db, at: check_what_nothing_proves(db, at, doubtful.tables))
        doubt(backend, doubtful)
        for info in backend.incarnations():
            try:
                prove(backend, info)
            except UnsupportedFormat as error:
                _refuse_damaged(backend, info, error)
                raise
        if take_incomplete and not copy:
            copy = backend.keep_copy()
        heal(backend)
        backend.rewrite_pages()
    except UnicodeDecodeError as error:  # apsw's, of a text that it was to give
        raise Corrupt(
            "a text in it is not UTF-8", target=f"store {backend.path}", hint=RESTORE
        ) from error
    finally:
        backend.close()
    return copy


def _refuse_damaged(backend: SqliteBackend, info: AgentInfo, error: UnsupportedFormat) -> None:
    """Raises Corrupt: what looks like a newer version's is on a page that fails its checksum."""
    rows = backend.read(info.no, error.seq, error.seq) if error.seq else []
    if rows and backend.examine(find_doubtful).may_hold(rows[0].header):
        raise Corrupt(
            f"{error.problem}, on a page that fails its checksum", target=error.target,
            hint=RESTORE_OR_REPAIR, seq=error.seq, before=error.before,
        ) from error  # fmt: skip


def _rebuild_indexes(backend: SqliteBackend) -> None:
    try:
        backend.rebuild_indexes()
    except apsw.ConstraintError as error:
        raise Corrupt(
            f"rows that there can be one of are there twice ({error})",
            target=f"store {backend.path}", hint=RESTORE,
        ) from error  # fmt: skip
    backend.maintain("check")
