"""Files and folders: what programs see, and what of it the disk has.

What the disk has, lies in folders of the real system. Each file's bytes have a name there for as
long as it lives, by its number, in the *shelf*; its names in the tree are further links to it.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Iterable, Iterator

from tests.powerloss.lossy.kernel import Attributes

PAGE = 4096
SECTORS = (512, 4096)
"""What a disk writes whole, or not at all: the older and the newer ones."""


class File:
    """A file. What was written since its last sync is in memory, in pages.

    Args:
        shelf: the descriptor of the folder where its bytes are, under its number.
    """

    def __init__(self, number: int, shelf: int) -> None:
        self.number = number
        self.links = 1
        self.unsynced: dict[int, bytearray] = {}
        self._shelf = shelf
        found = os.stat(str(number), dir_fd=shelf)
        self.mode, self.user, self.group = found.st_mode, found.st_uid, found.st_gid
        self.changed_ns = found.st_mtime_ns
        self.size = found.st_size
        self._shown = found.st_size
        """So many of the disk's bytes are seen. The others were cut off since the last sync."""
        self._opened = 0
        self._descriptor = -1

    def attributes(self) -> Attributes:
        return Attributes(
            self.number, self.mode, self.links, self.user, self.group, self.size, self.changed_ns
        )

    # -- what programs see -----------------------------------------------------------------------

    def open(self) -> None:
        self._opened += 1

    def release(self) -> None:
        self._opened -= 1
        self._rest()

    def read(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        data = bytearray(self._on_disk(offset, length))
        if self.unsynced:
            for page, start, count in _pieces(offset, length):
                held = self.unsynced.get(page)
                if held is not None:
                    at = page * PAGE + start - offset
                    data[at : at + count] = held[start : start + count]
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        for page, start, count in _pieces(offset, len(data)):
            if page not in self.unsynced:
                whole = count == PAGE
                held = bytes(PAGE) if whole else self._on_disk(page * PAGE, PAGE)
                self.unsynced[page] = bytearray(held)
            at = page * PAGE + start - offset
            self.unsynced[page][start : start + count] = view[at : at + count]
        self.size = max(self.size, offset + len(data))
        self.changed_ns = time.time_ns()

    def truncate(self, size: int) -> None:
        if size < self.size:
            self._shown = min(self._shown, size)
            for page in [page for page in self.unsynced if page * PAGE >= size]:
                del self.unsynced[page]
            if size // PAGE in self.unsynced:
                rest = size % PAGE
                self.unsynced[size // PAGE][rest:] = bytes(PAGE - rest)
        self.size = size
        self.changed_ns = time.time_ns()

    # -- what the disk has -----------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether a power loss may take something of it."""
        return bool(self.unsynced) or self._shown != self.size or self._cut_off

    @property
    def _cut_off(self) -> bool:
        return self._shown < os.stat(str(self.number), dir_fd=self._shelf).st_size

    def sync(self) -> None:
        self.write_back(list(self.unsynced))
        if self._shown != self.size:
            os.ftruncate(self._bytes(), self.size)
            self._shown = self.size
        self._rest()

    def write_back(self, pages: Iterable[int]) -> None:
        """Some pages go to the disk, and before them, that others were cut off."""
        if self._cut_off:
            os.ftruncate(self._bytes(), self._shown)
        for page in pages:
            data = self.unsynced.pop(page)[: self.size - page * PAGE]
            os.pwrite(self._bytes(), data, page * PAGE)
            self._shown = max(self._shown, page * PAGE + len(data))
        self._rest()

    def tear(self, dice: random.Random, kept: float) -> int:
        """The power is lost: of its unsynced sectors this share is on the disk, drawn by chance, in
        any order; and its new length, or not. How many pages were lost, in whole or in part."""
        if not self.dirty:
            return 0
        if self._cut_off:
            if dice.random() >= kept:
                return len(self.unsynced)  # that is lost, and with it what came after
            self.write_back([])
        lost = 0
        sector = dice.choice(SECTORS)
        for page, data in self.unsynced.items():
            places = range(0, min(PAGE, self.size - page * PAGE), sector)
            chosen = [place for place in places if dice.random() < kept]
            for place in chosen:
                piece = data[place : min(place + sector, self.size - page * PAGE)]
                os.pwrite(self._bytes(), piece, page * PAGE + place)
            lost += len(chosen) < len(places)
        if dice.random() < kept:
            os.ftruncate(self._bytes(), self.size)
        self._opened = 0
        self._rest()
        return lost

    def _on_disk(self, offset: int, length: int) -> bytes:
        """What was there at the last sync; zeros where it has been cut off since."""
        seen = max(0, min(length, self._shown - offset))
        data = os.pread(self._bytes(), seen, offset) if seen else b""
        return data.ljust(length, b"\0")

    def _bytes(self) -> int:
        if self._descriptor < 0:
            self._descriptor = os.open(str(self.number), os.O_RDWR, dir_fd=self._shelf)
        return self._descriptor

    def _rest(self) -> None:
        """Nobody has it open: neither have we."""
        if self._descriptor >= 0 and not self._opened:
            os.close(self._descriptor)
            self._descriptor = -1

    def change(self, mode: int | None, user: int | None, group: int | None) -> None:
        """Modes and owners are on the disk at once: they are not what this is about."""
        if mode is not None:
            self.mode = stat.S_IFREG | stat.S_IMODE(mode)
            os.fchmod(self._bytes(), stat.S_IMODE(mode))
        if user is not None or group is not None:
            self.user = self.user if user is None else user
            self.group = self.group if group is None else group
            os.fchown(self._bytes(), self.user, self.group)
        self._rest()


class Folder:
    """A folder. Its names may be other ones than the disk has.

    Args:
        descriptor: of the folder on the disk; -1: it is not there yet.
    """

    def __init__(self, number: int, mode: int, user: int, group: int, descriptor: int) -> None:
        self.number = number
        self.mode, self.user, self.group = stat.S_IFDIR | stat.S_IMODE(mode), user, group
        self.descriptor = descriptor
        self.names: dict[bytes, Node] | None = None if descriptor >= 0 else {}
        """None: nobody has looked yet."""
        self.changed_ns = time.time_ns()

    def attributes(self) -> Attributes:
        return Attributes(self.number, self.mode, 2, self.user, self.group, PAGE, self.changed_ns)

    def change(self, mode: int | None, user: int | None, group: int | None) -> None:
        if mode is not None:
            self.mode = stat.S_IFDIR | stat.S_IMODE(mode)
        self.user = self.user if user is None else user
        self.group = self.group if group is None else group
        if self.descriptor >= 0:
            self.settle_owner()

    def settle_owner(self) -> None:
        os.fchmod(self.descriptor, stat.S_IMODE(self.mode))
        if os.geteuid() == 0:
            os.fchown(self.descriptor, self.user, self.group)


Node = File | Folder


def _pieces(offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """The pages that a stretch touches: page, where it begins there, how much of it is there."""
    end = offset + length
    while offset < end:
        page, start = divmod(offset, PAGE)
        count = min(PAGE - start, end - offset)
        yield page, start, count
        offset += count
