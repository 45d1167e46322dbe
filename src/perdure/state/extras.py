"""What else goes into a commit, beside ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from perdure.core.chain import Draft
from perdure.model import Checkpoint, Message, RunInfo
from perdure.storage.committer import Proposal


class Extras(Struct):
    """What else goes into a commit, beside ops; see `Proposal`."""

    records: Sequence[Mapping[str, Any]] = ()
    key: tuple[str, bytes] | None = None
    checkpoint: Checkpoint | None = None
    drop_branch: str | None = None
    delete_agent: bool = False
    runs: Sequence[RunInfo] = ()
    consumed: Sequence[int] = ()
    sends: Sequence[Message] = ()
    release: bool = False
    sync: bool = False

    def propose(
        self, draft: Draft, *, no: int | None, expected: int | None, epoch: int | None
    ) -> Proposal:
        """A commit with all of this."""
        return Proposal(
            draft, no=no, expected=expected, epoch=epoch, key=self.key,
            checkpoint=self.checkpoint, drop_branch=self.drop_branch,
            delete_agent=self.delete_agent, runs=self.runs, release=self.release, sync=self.sync,
            consumed=self.consumed, sends=self.sends,
        )  # fmt: skip


NOTHING = Extras()


def asked(*declared: object) -> bytes:
    """A digest of what a caller asked for under an idempotency key, by its declared arguments."""
    return sha256("\0".join(map(repr, declared)).encode("utf-8", "surrogatepass")).digest()[:16]
