"""A file layer under SQLite that fails on demand: full disks, input/output errors, lost answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal

import apsw

from perdure.storage.sqlite.connection import checksum_vfs

Operation = Literal["write", "sync", "read", "truncate"]
_names = itertools.count()


def no_fault(operation: Operation, name: str, end: int) -> None:
    """Does nothing: no fault."""


class FaultyFiles(apsw.VFS):
    """A VFS over the checksumming one. Use its `name` as the `vfs` of a SqliteBackend.

    `fault` is called before each operation with the operation, the file's name, and for writes
    where in the file it ends; SQLite gets what it raises. With `after` set, the operation is done
    first and reported as failed: a lost answer.
    """

    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        self.fault: Callable[[Operation, str, int], None] = no_fault
        self.after = False
        self.counts: dict[str, int] = {}
        super().__init__(self.name, checksum_vfs())

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def perform(self, operation: Operation, name: str, do: Callable[[], Any], end: int = 0) -> Any:
        self.counts[operation] = self.counts.get(operation, 0) + 1
        result = do() if self.after else None
        self.fault(operation, name, end)
        return result if self.after else do()


class _File(apsw.VFSFile):
    def __init__(self, files: FaultyFiles, name: Any, flags: list[int]) -> None:
        self._files = files
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(checksum_vfs(), name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        write = super().xWrite
        self._files.perform("write", self._name, lambda: write(data, offset), offset + len(data))

    def xSync(self, flags: int) -> None:  # noqa: N802
        sync = super().xSync
        self._files.perform("sync", self._name, lambda: sync(flags))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        truncate = super().xTruncate
        self._files.perform("truncate", self._name, lambda: truncate(size))
