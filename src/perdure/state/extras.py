"""What else goes into a commit, beside ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from perdure.model import Checkpoint, RunInfo


@dataclass(slots=True)
class Extras:
    """What else goes into a commit, beside ops; see `Proposal`."""

    records: Sequence[Mapping[str, Any]] = ()
    key: tuple[str, bytes] | None = None
    checkpoint: Checkpoint | None = None
    drop_branch: str | None = None
    delete_agent: bool = False
    runs: Sequence[RunInfo] = ()
    release: bool = False
    sync: bool = False


NOTHING = Extras()


def asked(*declared: object) -> bytes:
    """A digest of what a caller asked for under an idempotency key, by its declared arguments."""
    return sha256("\0".join(map(repr, declared)).encode("utf-8", "surrogatepass")).digest()[:16]
