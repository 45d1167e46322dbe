"""Giving a store its page checksums back, after another SQLite moved pages without them.

The story: a store's process crashed, somebody looked into the file with another SQLite, and that
one, as the last to close it, moved the WAL into the main file. It knows nothing of our checksums,
so every page that it moved fails them, though no byte of the data is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.model import AgentInfo
from perdure.storage.port import Backend
from perdure.storage.sqlite.backend import SqliteBackend


def rebuild_checksums(
    path: str, prove: Callable[[Backend, AgentInfo], None],
    heal: Callable[[Backend], None] = lambda _: None,
) -> None:  # fmt: skip
    """Read the file without its checksums, prove that it is whole, then write them anew.

    Args:
        prove: called with every agent, deleted and former ones too; raises unless its log
            verifies, and then nothing is changed.
        heal: called once all are proved; may write.

    Raises:
        Corrupt: the data itself is damaged. Restore the store from a copy.
        StoreUnavailable: another process has the file open.
    """
    backend = SqliteBackend(path, create=False, checked=False)
    try:
        backend.maintain("check")
        for info in backend.incarnations():
            prove(backend, info)
        heal(backend)
        backend.rewrite_pages()
    finally:
        backend.close()
