"""The number of commits that are read from a log at once."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.storage.port import StoredCommit

CHUNK_FIRST = 32
CHUNK_MAX = 2048
CHUNK_BYTES = 16_000_000
"""About as much of payloads is held at once, but one commit at least: those of a log with pictures
or documents may have megabytes each."""


class ChunkSize:
    """Grows with each chunk, as long as the commits are small.

    Attributes:
        now: the number of commits to read next.
    """

    def __init__(self, first: int = CHUNK_FIRST, *, grows: int = 4) -> None:
        self.now = min(first, CHUNK_MAX)
        self._grows = grows

    def read(self, rows: Sequence[StoredCommit]) -> None:
        """Takes note of what was read."""
        if not rows:
            return
        size = sum(len(row.payload) for row in rows) or 1
        fitting = max(CHUNK_BYTES * len(rows) // size, 1)
        self.now = min(self.now * self._grows, CHUNK_MAX, fitting)
