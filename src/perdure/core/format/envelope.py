"""The envelope around every stored value: what is needed to read it, then its bytes.

Layout in docs/format.md ("Envelope"). Compression is one of its features, alone or with a
dictionary of ours; encryption has its bit and field reserved, so that today's readers refuse what
they cannot read instead of misreading it.
"""

from __future__ import annotations

import os
import struct
from hashlib import sha256
from io import BytesIO

from perdure.core.format import dictionary
from perdure.errors import Corrupt, Unstorable, UnsupportedFormat
from perdure.system.late_imports import loading

MAGIC = b"Pd"
VERSION = 1
ZSTD = 1 << 0
DICTIONARY = 1 << 1
ENCRYPTED = 1 << 2
MSGPACK = 1

SALT_SIZE = 16
_HEAD = struct.Struct(">2sBHB")  # magic, version, features, codec
_HEADS = {
    features: _HEAD.pack(MAGIC, VERSION, features, MSGPACK)
    for features in (0, ZSTD, ZSTD | DICTIONARY)
}
_FEATURES = {head: features for features, head in _HEADS.items()}
OVERHEAD = _HEAD.size + SALT_SIZE

COMPRESS_MIN = 64
"""Shorter bodies gain nothing: a frame's own header eats it."""

DICTIONARY_MAX = 16 * 1024
"""Longer bodies, those of leaves, have enough of their own to learn from."""

LEVEL = 1
"""On texts of 600 B level 3 gains nothing over it, and takes longer."""

LEVEL_LONG = 7
"""Of leaves level 3 takes 4 % off level 1, and this one 4 % more, for 0.6 ms for each 64 KiB: one
commit in a hundred has one to pack."""

BODY_MAX = 1 << 30
"""Refuse to inflate beyond 1 GiB: the announced size may be a lie (a decompression bomb)."""

RATIO_MAX = 1 << 15
"""No zstd frame holds more than so many times its size, four bytes for a block of 128 KiB: one that
announces more lies, and the room is not even asked for."""

SEALED_MAX = 900_000_000
"""A larger body is refused before it is written, however well it compresses: it could not be read
again, or does not fit into a row of SQLite."""

_idle: list[_Tools] = []
"""Tools that nobody uses, the last used one last: what it works on is still in the processor's
caches. Taken and put back by single operations, which need no lock.

They are pooled, not thread-local: programs have threads that make a few commits and end, as each
run of a graph has new ones. The first commit of each took 100 µs longer, and each had its own
memory to warm up.
"""


DRAWN_SIZE = 24
"""Of one draw: an envelope's salt, and the id of a payload."""

DRAWN_AT_ONCE = 128

_drawn = BytesIO()
"""Bytes that are drawn and not used yet; read by single operations, which need no lock.

A draw is a system call that releases the interpreter's lock: in an event loop, beside the thread
that commits, it may cost a thread switch each time. A step there takes 0.98 of the CPU that it
takes with a draw of its own.
"""


def drop_drawn() -> None:
    """Drops all drawn bytes, so that a forked child does not share them."""
    global _drawn
    _drawn = BytesIO()


os.register_at_fork(after_in_child=drop_drawn)  # a child must not use what its parent will


def random_bytes() -> bytes:
    """Returns `DRAWN_SIZE` fresh random bytes, drawn from the kernel for many commits at once. Any
    thread may call it."""
    global _drawn
    while not (drawn := _drawn.read(DRAWN_SIZE)):
        _drawn = BytesIO(os.urandom(DRAWN_SIZE * DRAWN_AT_ONCE))
    return drawn


def seal(body: bytes, salt: bytes = b"") -> bytes:
    """Puts a body into an envelope with a fresh salt, compressed where that makes it smaller.

    Args:
        salt: `SALT_SIZE` random bytes that the caller has drawn; empty: drawn here.

    Raises:
        Unstorable: it is too large. MemoryError: none is left to pack it.
    """
    if len(body) > SEALED_MAX:
        raise Unstorable(
            f"{len(body):,} bytes are too much for one commit",
            hint="keep it in a file or an object store, and record its name; or store it in parts",
        )
    features = 0
    if len(body) >= COMPRESS_MIN:
        tools = _borrow()
        try:
            if len(body) > DICTIONARY_MAX:
                packed = tools.pack_long(body)
                if len(packed) < len(body):
                    body, features = packed, ZSTD
            else:
                packed = tools.pack(body)
                if len(packed) + len(dictionary.ID) < len(body):
                    body, features = dictionary.ID + packed, ZSTD | DICTIONARY
        except tools.broken as error:
            raise MemoryError(str(error)) from error  # nothing else keeps it from packing bytes
        finally:
            _idle.append(tools)
    return _HEADS[features] + (salt or os.urandom(SALT_SIZE)) + body


def open_envelope(data: bytes, target: str) -> bytes:
    """Returns the body of an envelope.

    Raises:
        Corrupt: these bytes are not an envelope, or their compressed body is broken.
        UnsupportedFormat: it needs a feature that this version does not have.
        StoreUnavailable: it is packed, and this machine lacks what unpacks it.
    """
    features = _FEATURES.get(data[: _HEAD.size])
    if features is None or len(data) < OVERHEAD:
        features = _unusual(data, target)
    body = data[OVERHEAD:]
    return _inflate(body, features, target) if features & ZSTD else body


def _unusual(data: bytes, target: str) -> int:
    """Returns the features of a head that this version does not write."""
    if len(data) < OVERHEAD or data[:2] != MAGIC:
        raise Corrupt("stored bytes are not an envelope", target=target, hint=RESTORE_HINT)
    _, version, features, codec = _HEAD.unpack_from(data)
    if version > VERSION or features not in _HEADS or codec != MSGPACK:
        raise UnsupportedFormat(
            f"stored with envelope version {version}, features {features:#06b}, codec {codec}",
            target=target,
            hint="read it with a newer perdure",
        )
    return int(features)


def _inflate(body: bytes, features: int, target: str) -> bytes:
    tools = _borrow()
    try:
        unpack = tools.unpack_long
        if features & DICTIONARY:
            if not body.startswith(dictionary.ID):
                number = body[: len(dictionary.ID)]
                raise UnsupportedFormat(
                    f"packed with dictionary {number.hex() or 'none'}",
                    target=target,
                    hint="read it with a newer perdure",
                )
            body, unpack = body[len(dictionary.ID) :], tools.unpack
        size = tools.size(body)  # below 0: it does not say it
        if not 0 <= size <= BODY_MAX or size > RATIO_MAX * len(body):
            raise Corrupt("announces an absurd size", target=target, hint=RESTORE_HINT)
        return unpack(body)
    except tools.broken as error:
        if "llocation error" in str(error):  # the bytes are as good as ever
            raise MemoryError(str(error)) from error
        raise Corrupt(f"a broken zstd frame: {error}", target=target, hint=RESTORE_HINT) from error
    finally:
        _idle.append(tools)


RESTORE_HINT = (
    "run `perdure verify` to see how far the damage goes, and restore the store from a copy"
)


def digest(data: bytes) -> bytes:
    """Returns the digest of a payload that its header keeps: over the stored envelope, salt
    included."""
    return sha256(b"perdure.payload.v1\0" + data).digest()


class _Tools:
    """A set of zstandard objects for one thread at a time: threads must not share them."""

    def __init__(self) -> None:
        dictionary.check_installed()
        with loading:
            import zstandard

        known = dictionary.load(LEVEL)
        self.pack = zstandard.ZstdCompressor(
            level=LEVEL, dict_data=known, write_dict_id=False
        ).compress
        self.unpack = zstandard.ZstdDecompressor(dict_data=known).decompress
        self.pack_long = zstandard.ZstdCompressor(level=LEVEL_LONG).compress
        self.unpack_long = zstandard.ZstdDecompressor().decompress
        self.size = zstandard.frame_content_size
        self.broken = zstandard.ZstdError


def _borrow() -> _Tools:
    """Returns tools that no other thread uses; the caller puts them back when it is done."""
    try:
        return _idle.pop()
    except IndexError:
        return _Tools()
