"""The envelope around every stored value: what is needed to read it, then its bytes.

Layout in docs/format.md ("Envelope"). Compression is one of its features; a trained dictionary and
encryption have their bits and fields reserved, so that today's readers refuse what they cannot read
instead of misreading it.
"""

from __future__ import annotations

import os
import struct
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

from perdure.errors import Corrupt, Unstorable, UnsupportedFormat

if TYPE_CHECKING:
    import zstandard

MAGIC = b"Pd"
VERSION = 1
ZSTD = 1 << 0
DICTIONARY = 1 << 1
ENCRYPTED = 1 << 2
KNOWN_FEATURES = ZSTD
MSGPACK = 1

SALT_SIZE = 16
_HEAD = struct.Struct(">2sBHB")  # magic, version, features, codec
_HEADS = {features: _HEAD.pack(MAGIC, VERSION, features, MSGPACK) for features in (0, ZSTD)}
_FEATURES = {head: features for features, head in _HEADS.items()}
OVERHEAD = _HEAD.size + SALT_SIZE

COMPRESS_MIN = 128
"""Shorter bodies gain nothing: a frame's own header eats it."""

LEVEL = 1
"""On texts of 600 B and of 32 KiB level 3 gains nothing over it, and takes longer."""

BODY_MAX = 1 << 30
"""Refuse to inflate beyond 1 GiB: the announced size may be a lie (a decompression bomb)."""

SEALED_MAX = 900_000_000
"""What would not be read again, or does not fit into a row of SQLite, is refused before it is
written, however well it compresses."""

_local = threading.local()


def seal(body: bytes, salt: bytes = b"") -> bytes:
    """Put a body into an envelope with a fresh salt, compressed where that makes it smaller.

    Args:
        salt: `SALT_SIZE` random bytes that the caller has drawn; empty: drawn here.

    Raises:
        Unstorable: it is too big.
    """
    if len(body) > SEALED_MAX:
        raise Unstorable(
            f"{len(body):,} bytes are too much for one commit",
            hint="keep it in a file or an object store, and record its name; or store it in parts",
        )
    features = 0
    if len(body) >= COMPRESS_MIN:
        packed = _compressor().compress(body)
        if len(packed) < len(body):
            body, features = packed, ZSTD
    return _HEADS[features] + (salt or os.urandom(SALT_SIZE)) + body


def open_envelope(data: bytes, target: str) -> bytes:
    """The body of an envelope.

    Raises:
        Corrupt: these bytes are no envelope, or their compressed body is broken.
        UnsupportedFormat: it needs a feature that this version has not.
    """
    features = _FEATURES.get(data[: _HEAD.size])
    if features is None or len(data) < OVERHEAD:
        features = _unusual(data, target)
    body = data[OVERHEAD:]
    return _inflate(body, target) if features & ZSTD else body


def _unusual(data: bytes, target: str) -> int:
    """The features of a head that is not one of those that we write."""
    if len(data) < OVERHEAD or data[:2] != MAGIC:
        raise Corrupt("stored bytes are no envelope", target=target, hint=RESTORE_HINT)
    _, version, features, codec = _HEAD.unpack_from(data)
    if version > VERSION or features & ~KNOWN_FEATURES or codec != MSGPACK:
        raise UnsupportedFormat(
            f"stored with envelope version {version}, features {features:#06b}, codec {codec}",
            target=target,
            hint="read it with a newer perdure",
        )
    return int(features)


def _inflate(body: bytes, target: str) -> bytes:
    import zstandard

    try:
        if zstandard.frame_content_size(body) > BODY_MAX:
            raise Corrupt("announces an absurd size", target=target, hint=RESTORE_HINT)
        return _decompressor().decompress(body, max_output_size=BODY_MAX)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a broken zstd frame: {error}", target=target, hint=RESTORE_HINT) from error


RESTORE_HINT = (
    "run `perdure verify` to see how far the damage goes, and restore the store from a copy"
)


def digest(data: bytes) -> bytes:
    """The digest that a header keeps of its payload: over the stored envelope, salt included."""
    return sha256(b"perdure.payload.v1\0" + data).digest()


def _compressor() -> zstandard.ZstdCompressor:
    # zstandard's objects may not be shared between threads that use them at once.
    try:
        found: zstandard.ZstdCompressor = _local.compressor
    except AttributeError:
        import zstandard  # 5 ms to import

        found = _local.compressor = zstandard.ZstdCompressor(level=LEVEL)
    return found


def _decompressor() -> zstandard.ZstdDecompressor:
    try:
        found: zstandard.ZstdDecompressor = _local.decompressor
    except AttributeError:
        import zstandard

        found = _local.decompressor = zstandard.ZstdDecompressor()
    return found
