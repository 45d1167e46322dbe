"""From a tape, the files as a power loss at any moment may leave them.

What was synced is there. Of what was not, each sector may be there or not, in any order, also the
names of new files and of deleted ones; and a file may have grown by sectors that hold zeros.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from tests.powerloss.recording import Operation

PAGE_CACHE = 4096
"""Bytes that the system keeps, writes and forgets as one."""

SECTORS = (512, 4096)

Keep = Callable[[int, int], bool]
"""Whether a piece reached the disk: by the number of the unsynced operation, and of the piece."""


class Image(Struct, frozen=True):
    """Files by name, and what was done to come to them."""

    files: Mapping[str, bytes]
    how: str

    def digest(self) -> bytes:
        whole = hashlib.blake2b(digest_size=16)
        for name, content in sorted(self.files.items()):
            whole.update(f"{name}\0{len(content)}\0".encode())
            whole.update(content)
        return whole.digest()


class File(Struct):
    """One file: what is on the disk for sure, what the system has in memory, and what of that is
    not on the disk yet."""

    durable: bytearray = field(default_factory=bytearray)
    cached: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)
    """Pages that a failed sync called clean: not written again, unless they are touched again."""

    def do(self, operation: Operation) -> None:
        _apply(self.cached, operation)
        if self.forgotten and operation.kind == "write":
            operation = self._whole_pages(operation)
        self.unsynced.append(operation)

    def _whole_pages(self, operation: Operation) -> Operation:
        first = operation.offset // PAGE_CACHE
        last = (operation.offset + len(operation.data) - 1) // PAGE_CACHE
        touched = set(range(first, last + 1))
        if not touched & self.forgotten:
            return operation
        self.forgotten -= touched
        start = first * PAGE_CACHE
        whole = bytes(self.cached[start : (last + 1) * PAGE_CACHE])
        return Operation("write", operation.file, offset=start, data=whole)

    def sync(self) -> None:
        for operation in self.unsynced:
            _apply(self.durable, operation)
        self.unsynced.clear()

    def sync_fails(self, rng: random.Random, kept: float) -> None:
        """The system drops what it could not write, and does not try it again."""
        for operation in self.unsynced:
            if operation.kind == "write":
                end = operation.offset + len(operation.data)
                self.forgotten.update(range(operation.offset // PAGE_CACHE, -(-end // PAGE_CACHE)))
        chance = _Chance(rng, kept)
        self.durable = bytearray(self.left(512, chance, grown=rng.random() < 0.5))
        self.unsynced.clear()

    def left(self, sector: int, keep: Keep, *, grown: bool = False) -> bytes:
        """What is on the disk after a power loss.

        Args:
            grown: the file has the size that it would have with all that was written.
        """
        content = bytearray(self.durable)
        for number, operation in enumerate(self.unsynced):
            for place, piece in enumerate(_pieces(operation, sector)):
                if keep(number, place):
                    _apply(content, piece)
        if grown and len(content) < len(self.cached):
            content.extend(bytes(len(self.cached) - len(content)))
        return bytes(content)


def _apply(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        content.extend(bytes(operation.offset - len(content)))
        return
    if operation.offset > len(content):
        content.extend(bytes(operation.offset - len(content)))
    content[operation.offset : operation.offset + len(operation.data)] = operation.data


def _pieces(operation: Operation, sector: int) -> Iterator[Operation]:
    """A write, cut where sectors begin; all else is one piece."""
    if operation.kind != "write":
        yield operation
        return
    at, end = operation.offset, operation.offset + len(operation.data)
    while at < end:
        until = min((at // sector + 1) * sector, end)
        data = operation.data[at - operation.offset : until - operation.offset]
        yield Operation("write", operation.file, offset=at, data=data)
        at = until


class _Chance:
    """Keeps each piece by chance."""

    def __init__(self, rng: random.Random, kept: float) -> None:
        self._rng = rng
        self._kept = kept

    def __call__(self, number: int, place: int) -> bool:
        return self._rng.random() < self._kept


def all_of_it(number: int, place: int) -> bool:
    return True


def nothing(number: int, place: int) -> bool:
    return False


class Disk:
    """A folder and its files while a tape is played."""

    def __init__(self, before: Mapping[str, bytes], rng: random.Random, kept: float = 0.0) -> None:
        """
        Args:
            before: the files that were there, durably, in the order of their numbers.
            kept: the share of unsynced sectors that are on the disk although their sync failed.
        """
        self._rng = rng
        self._kept = kept
        self.files: dict[int, File] = {}
        self.names: dict[str, int] = {}
        self.unsynced_names: list[Operation] = []
        for number, (name, content) in enumerate(before.items()):
            self.files[number] = File(bytearray(content), bytearray(content))
            self.names[name] = number

    def play(self, operation: Operation) -> None:
        match operation.kind:
            case "create" | "delete":
                self.files.setdefault(operation.file, File())
                self.unsynced_names.append(operation)
            case "write" | "truncate":
                self.files[operation.file].do(operation)
            case "sync":
                self.files[operation.file].sync()
            case "sync-failed":
                self.files[operation.file].sync_fails(self._rng, self._kept)
            case "sync-folder":
                self.names = self._names(len(self.unsynced_names))
                self.unsynced_names.clear()

    def _names(self, done: int) -> dict[str, int]:
        """The folder after so many of its unsynced changes. File systems keep their order."""
        names = dict(self.names)
        for operation in self.unsynced_names[:done]:
            if operation.kind == "create":
                names[operation.name] = operation.file
            else:
                names.pop(operation.name, None)
        return names

    def seen(self) -> Image:
        """What a process sees that reads the files now: no power was lost."""
        names = self._names(len(self.unsynced_names))
        files = {name: bytes(self.files[file].cached) for name, file in names.items()}
        return Image(files, "as the system has it")

    # -- power losses ----------------------------------------------------------------------------

    def crashes(self, rng: random.Random, subsets: int) -> Iterator[Image]:
        """Images of a power loss now; some may be equal. `subsets`: so many are drawn by chance."""
        names = len(self.unsynced_names)
        open_files = [number for number, file in self.files.items() if file.unsynced]
        for done in range(names + 1):
            yield self._image(done, "all unsynced is lost", {})
            yield self._image(done, "all unsynced is kept", dict.fromkeys(open_files, all_of_it))
        if not open_files:
            return
        yield self._image(names, "lost, but the files have grown", {}, grown=True)
        for number in open_files if len(open_files) > 1 else ():
            yield self._image(names, f"only file {number} is kept", {number: all_of_it})
        for number in open_files:
            last = len(self.files[number].unsynced) - 1
            yield self._image(names, "only the last write is kept", {number: _only(last)})
            for sector in SECTORS:
                torn = _until(
                    last, rng.randrange(_count(self.files[number].unsynced[last], sector))
                )
                keeps = {**dict.fromkeys(open_files, all_of_it), number: torn}
                how = f"the last write of file {number} is torn, sectors of {sector}"
                yield self._image(names, how, keeps, sector)
        yield from self._by_chance(rng, subsets, open_files)

    def _by_chance(
        self, rng: random.Random, subsets: int, open_files: list[int]
    ) -> Iterator[Image]:
        for number in range(subsets):
            sector = SECTORS[number % 2]
            kept = rng.choice((0.1, 0.5, 0.9, 0.98))
            done = rng.randint(0, len(self.unsynced_names))
            keeps = {file: _Chance(rng, kept) for file in open_files}
            how = f"{kept:.0%} of sectors of {sector} are kept, drawn by chance ({number})"
            yield self._image(done, how, keeps, sector, grown=rng.random() < 0.3)

    def _image(
        self,
        names: int,
        how: str,
        keeps: Mapping[int, Keep],
        sector: int = 512,
        *,
        grown: bool = False,
    ) -> Image:
        files = {
            name: self.files[file].left(sector, keeps.get(file, nothing), grown=grown)
            for name, file in self._names(names).items()
        }
        if names < len(self.unsynced_names):
            how += f"; {len(self.unsynced_names) - names} changes of the folder are lost"
        return Image(files, how)


def _only(wanted: int) -> Keep:
    return lambda number, place: number == wanted


def _until(last: int, pieces: int) -> Keep:
    return lambda number, place: number < last or place < pieces


def _count(operation: Operation, sector: int) -> int:
    return sum(1 for _ in _pieces(operation, sector))
