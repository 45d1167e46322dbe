"""Reads what a log says of retention: what is removed of it, or is about to be."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.errors import Corrupt, NotFound
from perdure.model import AgentInfo, Commit
from perdure.storage.log.chunk_size import ChunkSize
from perdure.storage.log.commits import SEQ_END, CommitReader
from perdure.storage.log.gone import Gone
from perdure.storage.looks import Reads
from perdure.storage.retention import RETENTION, Trim, last_standing


class RetentionReader(CommitReader):
    """Reads the words of retention in the log of one incarnation of one agent."""

    def __init__(self, backend: Reads, info: AgentInfo) -> None:
        super().__init__(backend, info)
        self._unread: dict[int, Trim | None] = {}
        """By the seq of a word that cannot be read: what stands in its place. One at most."""

    def trim(self, until: int | None = None) -> Trim | None:
        """Returns the last standing word on what retention has removed of the log, or is about to;
        None if there is none. If a later word cannot be read, what it said is found in what is
        left of the log, once: O(log).

        Args:
            until: as of this commit.
        """
        last = word = self.last_word() if until is None else self.word_before(until + 1)
        said = None
        while word:
            try:
                said = last_standing(word, self._word, self._between)
                break
            except Corrupt:
                word = self.word_before(word)
        if word == last:
            return said
        if last not in self._unread:
            gone = self.gone(SEQ_END, said)
            found = gone.word(last, last - 1, word) if gone.payloads else said
            self._unread = {last: found}
        return self._unread[last]

    def gone(self, last: int, said: Trim | None = None) -> Gone:
        """Returns what the commits up to one lack, by what is left of them; `said` as of `Gone`.
        Reads all of them."""
        gone = Gone(self.name, said)
        first, chunk = 1, ChunkSize()
        while rows := self._backend.read(self.no, first, last, limit=chunk.now):
            chunk.read(rows)
            gone.note(rows)
            first = rows[-1].seq + 1
        return gone

    def _word(self, seq: int) -> Commit:
        # What only a newer version says of retention must not be ignored.
        return self._salvaged(self._row(seq), (Corrupt,))

    def _between(self, first: int, last: int) -> Iterator[Commit]:
        return self.commits(first, last, damaged_too=True)

    def word_before(self, seq: int) -> int:
        """Returns the seq of the last word before a commit, standing or not; 0 if there is none."""
        for commit in self.commits(1, seq - 1, newest_first=True, damaged_too=True):
            if commit.branch == RETENTION:
                return commit.seq
        return 0

    def last_word(self) -> int:
        """Returns the seq of the last word on what is gone, standing or not; 0 if there is none."""
        ref = self._backend.ref(self.no, RETENTION)
        return 0 if ref is None else ref.seq

    def trimmed(self, seq: int, trim: Trim | None = None) -> NotFound:
        """Returns the error for a commit whose state retention removed."""
        trim = trim or self.trim()
        hint = "a copy of the store, or an export, from before that has it"
        if trim is not None:
            more = ", ".join(map(str, sorted(trim.bases)[-5:]))
            hint = f"the states from commit {trim.before} on are there, and those of {more}; {hint}"
        return NotFound("its state was removed by retention", target=self.target(seq), hint=hint)
