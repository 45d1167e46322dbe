"""The ends of logs, which the next commits are linked to, and what is known to be in front of them.

An end is only believed until a backend refuses it: another process may have written since.
"""

from __future__ import annotations

from contextlib import suppress

from perdure.core.format import chain
from perdure.core.format.chain import START, LogTail
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.storage.log.proposals import Proposal
from perdure.storage.lost_commits import lost_parent
from perdure.storage.port import LogStorage

KEPT = 4096
"""Logs whose ends are remembered, for some 400 bytes each; another one's is one look away."""

AT_FORK = ""
"""In place of a branch's name: many candidates fork at one commit, and only the first needs a look,
which is a ninth of a fork."""


class LogEnds:
    """See the module. Only the leader of the committer uses it.

    Attributes:
        tails: by the agent's number.
        heads: by log and branch, the id of a commit that is in front of the tail, of logs where it
            was asked for once; as AT_FORK, the one that was forked at last.
    """

    def __init__(self, backend: LogStorage) -> None:
        self._backend = backend
        self.tails: dict[int | None, LogTail] = {}
        self.heads: dict[int, dict[str, bytes]] = {}

    def find(self, proposal: Proposal) -> LogTail:
        """Returns the end of its log, if it is not known yet."""
        if proposal.no is None:
            return START
        last = self._backend.read(proposal.no, 0, 2**40, newest_first=True, limit=1)
        target = f"agent {proposal.draft.agent!r}"
        try:
            tail = chain.tail_of(last[0].header, target) if last else START
        except (Corrupt, UnsupportedFormat):
            # The next commit links to its bytes, even if they cannot be read.
            tail = LogTail(
                last[0].seq, chain.commit_id(last[0].header), self._last_time(proposal.no)
            )
        self.tails[proposal.no] = tail
        return tail

    def behind_parent(self, proposal: Proposal, tail: LogTail) -> LogTail:
        """Returns the end of a proposal's log, behind the very commit that it was made on. A server
        that lost commits may have others under their numbers, and other agents under theirs.

        What is in front of a tail is fixed by the tail's id, which the backend compares when it
        writes. So it is asked once where other branches' commits are in between.

        Raises:
            LostCommitsError: another commit is in its place.
        """
        draft, no = proposal.draft, proposal.no
        assert no is not None
        seq = draft.parents[0]
        if tail.seq <= seq:  # others have written since, or what we wrote is lost
            self.forget(no)
            tail = self.find(proposal)
            if tail.seq < seq and proposal.expected is not None:
                return tail  # the backend says where the head is
        known = self.heads.setdefault(no, {})
        name = AT_FORK if proposal.expected is None else draft.branch
        if draft.parent_id not in (tail.id, known.get(name)):
            there = self._backend.read(no, seq, seq)
            if there and chain.commit_id(there[0].header) != draft.parent_id:
                self.forget(no)
                raise lost_parent(draft.agent, seq)
            known[name] = draft.parent_id
        return tail

    def forget(self, no: int | None) -> None:
        self.tails.pop(no, None)
        if no is not None:
            self.heads.pop(no, None)

    def clear(self) -> None:
        self.tails.clear()
        self.heads.clear()

    def _last_time(self, no: int) -> int:
        """Returns the time of the last commit whose header can be read; 0 if there is none."""
        last = 2**40
        while rows := self._backend.read(no, 0, last, newest_first=True, limit=32):
            for row in rows:
                with suppress(Corrupt, UnsupportedFormat):
                    return chain.tail_of(row.header, "").at
            last = rows[-1].seq - 1
        return 0
