"""A tape of everything that a SQLite store does to the disk, operation by operation.

Reads, locks and the -shm are not on it: of those, a power loss leaves nothing that counts.
"""

from __future__ import annotations

import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from unittest import mock

import apsw
from msgspec import Struct

from perdure.storage.sqlite.connection import checksum_vfs

Kind = Literal[
    "write", "truncate", "sync", "sync-failed", "create", "delete", "sync-folder", "mark"
]

_names = itertools.count()
_SYNCS_ITS_FOLDER = (
    apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
)
"""Files of these kinds that it may create, SQLite's own file layer syncs together with their
folder, at the first sync after they were opened. A test holds this against what `strace` sees."""


class Operation(Struct, frozen=True):
    """One entry of the tape.

    Args:
        file: the number of the file, by identity: a name that is deleted and made again is another.
        name: of the file in its folder, for "create" and "delete"; of the mark.
        offset: where `data` is written; the new size of a truncated file.
    """

    kind: Kind
    file: int = -1
    name: str = ""
    offset: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        where = f" {self.name}" if self.name else f" file {self.file}" if self.file >= 0 else ""
        size = f" [{self.offset}, +{len(self.data)}]" if self.kind == "write" else ""
        return f"{self.kind}{where}{size}"


class Tape(apsw.VFS):
    """A VFS over the checksumming one that writes down what it does. Use its `name` as the `vfs`
    of a SqliteBackend, inside `recording()`, which sees the syncs that do not go through SQLite.

    `fails` is asked before each sync, with the file's name, whether it shall fail: the system then
    forgets what it had to write, as Linux does, and the file still reads as if all were well.
    """

    def __init__(self, folder: str) -> None:
        self.name = f"tape-{next(_names)}"
        self.folder = os.path.realpath(folder)
        self.operations: list[Operation] = []
        self.before: dict[str, bytes] = {}
        self.fails: Callable[[str], bool] = lambda name: False
        self._lock = threading.RLock()
        self._known: dict[tuple[int, int], int] = {}
        self._descriptors: dict[int, int] = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                self.before[name] = file.read()
            self._number(os.path.join(folder, name))
        super().__init__(self.name, checksum_vfs())

    # -- what is written down --------------------------------------------------------------------

    def mark(self, name: str) -> int:
        """A moment that the workload names. Returns its place on the tape."""
        return self._put(Operation("mark", name=name))

    def _put(self, operation: Operation) -> int:
        with self._lock:
            self.operations.append(operation)
            return len(self.operations) - 1

    def _number(self, path: str) -> int:
        """The number of the file that is at the path now."""
        status = os.stat(path)
        identity = status.st_dev, status.st_ino
        if identity not in self._known:
            self._known[identity] = len(self._known)
            # Kept open to the end: closing it would drop SQLite's locks, and as long as it is open
            # no new file gets its inode.
            self._descriptors[self._known[identity]] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._known[identity]

    def _content(self, file: int, offset: int, size: int) -> bytes:
        """What is really there: below us, pages get their checksums."""
        return os.pread(self._descriptors[file], size, offset)

    # -- SQLite's files --------------------------------------------------------------------------

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self._lock:
            number = self._number(filename) if os.path.exists(filename) else -1
            super().xDelete(filename, syncdir)
            self._put(Operation("delete", number, os.path.basename(filename)))
            if syncdir:
                self._put(Operation("sync-folder"))

    def opened(self, path: str, existed: bool) -> int:
        number = self._number(path)
        if not existed:
            self._put(Operation("create", number, os.path.basename(path)))
        return number

    def wrote(self, file: int, offset: int, size: int) -> None:
        self._put(Operation("write", file, offset=offset, data=self._content(file, offset, size)))

    def sync(self, file: int, name: str, really: Callable[[], None]) -> None:
        """Sync one file, unless that is to fail.

        Raises:
            OSError: it failed.
        """
        with self._lock:
            if self.fails(name):
                self._put(Operation("sync-failed", file))
                raise OSError(5, "the sync failed")
            really()
            self._put(Operation("sync", file))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """An operation and its entry are one: others do not come between."""
        with self._lock:
            yield

    # -- what our own code does ------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[Tape]:
        """See the class. Close all stores that use the tape before it ends."""
        with (
            mock.patch.object(os, "fsync", self._syncing(os.fsync)),
            mock.patch.object(os, "fdatasync", self._syncing(os.fdatasync)),
            mock.patch.object(os, "pwrite", self._writing(os.pwrite)),
            mock.patch.object(os, "mknod", self._making(os.mknod)),
        ):
            yield self
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self.unregister()

    def _syncing(self, really: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            status = os.fstat(descriptor)
            number = self._known.get((status.st_dev, status.st_ino))
            if stat.S_ISDIR(status.st_mode):
                really(descriptor)
                if os.path.samestat(status, os.stat(self.folder)):
                    self._put(Operation("sync-folder"))
            elif number is not None:
                name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
                self.sync(number, name, lambda: really(descriptor))
            else:
                really(descriptor)

        return sync

    def _making(self, really: Callable[[str, int], None]) -> Callable[[str, int], None]:
        def mknod(path: str, mode: int) -> None:
            with self._lock:
                really(path, mode)
                if os.path.dirname(path) == self.folder:
                    self.opened(path, existed=False)

        return mknod

    def _writing(self, really: Callable[[int, bytes, int], int]) -> Callable[..., int]:
        def pwrite(descriptor: int, data: bytes, offset: int) -> int:
            status = os.fstat(descriptor)
            number = self._known.get((status.st_dev, status.st_ino))
            with self._lock:
                size = really(descriptor, data, offset)
                if number is not None:
                    self.wrote(number, offset, size)
            return size

        return pwrite


class _File(apsw.VFSFile):
    def __init__(self, tape: Tape, name: Any, flags: list[int]) -> None:
        self._tape = tape
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._name = os.path.basename(path)
        creates = bool(flags[0] & apsw.SQLITE_OPEN_CREATE)
        self._syncs_folder = creates and bool(flags[0] & _SYNCS_ITS_FOLDER)
        with tape.alone():
            existed = os.path.exists(path)
            super().__init__(checksum_vfs(), name, flags)
            self._number = tape.opened(path, existed)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._tape.alone():
            super().xWrite(data, offset)
            self._tape.wrote(self._number, offset, len(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        with self._tape.alone():
            super().xTruncate(size)
            self._tape._put(Operation("truncate", self._number, offset=size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        sync = super().xSync
        try:
            self._tape.sync(self._number, self._name, lambda: sync(flags))
        except OSError as failed:
            raise apsw.IOError(str(failed)) from failed
        if self._syncs_folder:
            self._syncs_folder = False
            self._tape._put(Operation("sync-folder"))
