"""Inputs and where they lie: `corpus/TARGET/name`, each one file, a msgpack array of its parts."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec

from tests.fuzz.mutating import Parts

CORPUS = Path(__file__).parent / "corpus"


def pack(parts: Parts) -> bytes:
    return msgspec.msgpack.encode(parts)


def unpack(data: bytes) -> Parts:
    return msgspec.msgpack.decode(data, type=list[bytes])


def corpus(name: str) -> dict[str, Parts]:
    """The committed inputs of a target, by their files' names."""
    found = sorted((CORPUS / name).iterdir()) if (CORPUS / name).is_dir() else []
    return {path.name: unpack(path.read_bytes()) for path in found}


def short_name(parts: Parts) -> str:
    return sha256(pack(parts)).hexdigest()[:12]
