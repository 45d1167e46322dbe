"""The payloads and states that retention removed from a log, found by what it left there.

A word of retention says the same. Where it cannot be read, or is behind damage that a copy does not
come past, it is found here: only retention leaves such remains, and each kept state has a seal.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from perdure.core.format import chain, remains
from perdure.core.values.state_hash import state_hash
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.storage.port import StoredCommit
from perdure.storage.retention import Trim, stretches


class Gone:
    """The payloads and states that a log lacks: its commits are noted in order, from the first on.

    Args:
        agent: the agent's name, for errors.
        said: a word of retention; what it says is about to go counts as gone.

    Attributes:
        payloads: seqs of the commits without payloads, ascending.
        bases: by seq, the hashes of the states that stay in place of payloads.
        states: seqs of the commits whose states are gone with the payloads. Of a damaged commit,
            and of what is built on one, that is not said: they are damaged.
    """

    def __init__(self, agent: str, said: Trim | None = None) -> None:
        self._agent = agent
        self._said = said
        self.payloads: list[int] = []
        self.bases: dict[int, str] = {}
        self.states: set[int] = set()

    def note(self, rows: Iterable[StoredCommit]) -> None:
        """Notes the next commits, as they are stored."""
        for row in rows:
            with suppress(Corrupt, UnsupportedFormat):
                self._note(row)

    def _note(self, row: StoredCommit) -> None:
        seq, said = row.seq, self._said
        target = f"agent {self._agent!r}, commit {seq}"
        if row.payload == remains.REMOVED or (said is not None and said.has_removed(seq)):
            self.payloads.append(seq)
            self.states.add(seq)
        elif said is not None and seq in said.bases:
            self.bases[seq] = said.bases[seq]
        elif row.payload.startswith(remains.MAGIC):
            self.bases[seq] = state_hash(remains.state_of(row.payload, target))
        elif self.states:
            parents = chain.parents_of(row.header, target)
            if parents and parents[0] in self.states:
                self.states.add(seq)

    def is_said(self, word: Trim | None) -> bool:
        """True if a word of retention says all of this, and nothing to the contrary."""
        return not self.payloads or (
            word is not None
            and all(map(word.has_removed, self.payloads))
            and not any(map(word.keeps_state, self.states))
        )

    def word(self, at: int, seen: int, previous: int) -> Trim:
        """Returns this as a word of retention; see `Trim`. What is gone from `at` on, no word there
        can say."""
        before = max(self.states, default=0) + 1
        if self._said is not None:
            before = max(before, self._said.before)
        removed = stretches(seq for seq in self.payloads if not at or seq < at)
        return Trim(at, seen, previous, before, removed, self.bases, found=True)
