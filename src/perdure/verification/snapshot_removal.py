"""Removal of damaged snapshots: each is a cache of the log, and reading works without."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model import Verified
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.system import logs
from perdure.verification.verify import Progress, verify_log

_log = logs.logger("perdure.verify")


def healing_log(
    backend: Backend,
    reader: LogReader,
    *,
    anchor: str | None = None,
    progress: Progress | None = None,
) -> Verified:
    """Verifies a log like `verify_log`; damaged snapshots whose states the log gives are removed,
    once everything else is proved.

    Raises:
        StoreUnavailable: nothing may be written here; or it is unknown whether they are removed.
    """
    damaged: list[int] = []
    proved = verify_log(backend, reader, anchor=anchor, progress=progress, damaged=damaged)
    drop_snapshots(backend, reader, damaged)
    return proved


def drop_snapshots(backend: Backend, reader: LogReader, seqs: Sequence[int]) -> None:
    """Removes the snapshots at some commits, and the leaves that only they have. Atomic."""
    if not seqs:
        return
    while not backend.trim(reader.no, reader.last_word(), {}, seqs):
        pass  # retention said something meanwhile: that is compared with its last word
    where = ", ".join(map(str, seqs))
    _log.warning("agent %r: removed damaged snapshots, at commit %s", reader.name, where)
