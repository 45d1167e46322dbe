"""What the Linux kernel and a FUSE file system say to each other over /dev/fuse.

Requests come as a header and a body, answers go back as a header and a body; all numbers are
little-endian here. The kernel's <linux/fuse.h> describes them, libfuse is not needed. This speaks
version 7.31, which every kernel since 5.4 answers in.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from enum import IntEnum

from msgspec import Struct

MAJOR, MINOR = 7, 31
WRITE_MAX = 256 * 1024
"""Bytes of one write."""

ROOT = 1
"""The kernel's number of the root folder."""

VALID_S = 3600
"""How long the kernel may trust a name, or what it knows of a node: nobody changes them but through
it."""

_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_KEEP_CACHE = 1 << 1
"""Of an opened file: what the kernel has of it in memory is right still."""

_REQUEST = struct.Struct("<IIQQIIIHH")
_ANSWER = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_HELLO = struct.Struct("<IIIIHHIIHH32x")


class Call(IntEnum):
    """What a request wants. Whatever is not here is refused, and the kernel does without it."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    BATCH_FORGET = 42
    RENAME2 = 45


UNANSWERED = (Call.FORGET, Call.BATCH_FORGET)
CHANGES = (
    Call.SETATTR,
    Call.MKDIR,
    Call.UNLINK,
    Call.RMDIR,
    Call.RENAME,
    Call.LINK,
    Call.WRITE,
    Call.FSYNC,
    Call.FSYNCDIR,
    Call.CREATE,
    Call.RENAME2,
)
"""What matters to a disk."""


class Request(Struct, frozen=True):
    """One request. `node`: the number of the node that it is about."""

    call: int
    unique: int
    node: int
    user: int
    group: int
    body: bytes

    def take(self, form: str) -> tuple[int, ...]:
        """The numbers at the beginning of its body."""
        return struct.unpack_from(form, self.body)

    def names(self, after: int = 0) -> list[bytes]:
        """The names behind so many bytes of its body."""
        return self.body[after:].split(b"\0")[:-1]


class Device:
    """An open /dev/fuse."""

    def __init__(self) -> None:
        self.descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._room = bytearray(WRITE_MAX + 8192)

    def receive(self) -> Request | None:
        """The next request; None: there was one, and it was withdrawn."""
        try:
            count = os.readv(self.descriptor, [self._room])
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        _, call, unique, node, user, group, _, _, _ = _REQUEST.unpack_from(self._room)
        body = bytes(memoryview(self._room)[_REQUEST.size : count])
        return Request(call, unique, node, user, group, body)

    def answer(self, request: Request, body: bytes = b"", error: int = 0) -> None:
        """`error`: an errno, with which nothing else is answered."""
        head = _ANSWER.pack(_ANSWER.size + len(body), -error, request.unique)
        try:
            os.writev(self.descriptor, [head, body])
        except OSError as failed:
            if failed.errno != errno.ENOENT:  # whoever asked is gone
                raise

    def close(self) -> None:
        """Whoever waits for an answer, or asks from now on, gets an error."""
        os.close(self.descriptor)


def hello(request: Request) -> bytes:
    """The answer to INIT: what we can, and what the kernel is to leave to itself.

    Write-back caching is not asked for, so that each write comes here at once.
    """
    major, minor, ahead, flags = request.take("<4I")
    if (major, minor) < (MAJOR, MINOR):
        raise RuntimeError(f"the kernel speaks FUSE {major}.{minor}, older than {MAJOR}.{MINOR}")
    agreed = flags & (_BIG_WRITES | _MAX_PAGES)
    pages = WRITE_MAX // 4096
    return _HELLO.pack(MAJOR, MINOR, ahead, agreed, 64, 48, WRITE_MAX, 1, pages, 0)


class Attributes(Struct, frozen=True):
    """What `stat` tells of a node."""

    number: int
    mode: int
    links: int
    user: int
    group: int
    size: int
    changed_ns: int

    def pack(self) -> bytes:
        seconds, nanos = divmod(self.changed_ns, 10**9)
        return _ATTRIBUTES.pack(
            self.number,
            self.size,
            -(-self.size // 512),
            seconds,
            seconds,
            seconds,
            nanos,
            nanos,
            nanos,
            self.mode,
            self.links,
            self.user,
            self.group,
            0,
            4096,
            0,
        )


def entry(attributes: Attributes) -> bytes:
    """A name that was found, or made."""
    number = attributes.number
    return _ENTRY.pack(number, 0, VALID_S, VALID_S, 0, 0) + attributes.pack()


def told(attributes: Attributes) -> bytes:
    return struct.pack("<QII", VALID_S, 0, 0) + attributes.pack()


def opened(handle: int) -> bytes:
    return struct.pack("<QIi", handle, _KEEP_CACHE, 0)


def written(count: int) -> bytes:
    return struct.pack("<II", count, 0)


def room() -> bytes:
    """Of a disk: much."""
    return struct.pack("<5Q4I24x", 2**24, 2**23, 2**23, 2**20, 2**19, 4096, 255, 4096, 0)


def listed(number: int, place: int, mode: int, name: bytes) -> bytes:
    """One line of a folder's list; the next one is at `place`."""
    line = struct.pack("<QQII", number, place, len(name), stat.S_IFMT(mode) >> 12) + name
    return line + bytes(-len(line) % 8)
