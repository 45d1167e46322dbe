"""One agent's log on its way into a store: commit by commit, with the views that each brings along.

Everything follows from the log: branches, keys, checkpoints and runs are rebuilt from it.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.core.arguments.bounds import index_key
from perdure.core.arguments.names import check_name
from perdure.core.format import chain
from perdure.core.format.records import CheckpointRecord, Deleted, Named, Record
from perdure.errors import Corrupt
from perdure.model import Commit
from perdure.state.checkpoints import recorded
from perdure.state.runs.run_rows import FindRow, RebuiltRows
from perdure.storage.appending import Append, Riders
from perdure.storage.log.proposals import asked


class LogEnd:
    """The end of an incoming log. `last` is the last commit that went in, None at the log's
    begin."""

    def __init__(
        self,
        last: Commit | None = None,
        heads: dict[str, int] | None = None,
        find_row: FindRow | None = None,
    ) -> None:
        self.last = last
        self._header = b""
        self.heads = heads if heads is not None else {}
        self.runs = RebuiltRows(find_row)
        self.lacks = False
        """True if retention removed one of the commits that went in since this was made."""

    @property
    def seq(self) -> int:
        return self.last.seq if self.last is not None else 0

    def append(self, commit: Commit, header: bytes, payload: bytes, digest: bytes | None) -> Append:
        """Returns the append that writes the next commit.

        Args:
            commit: the decoded header and payload.
            digest: the digest of its key's request; None: computed from its cause's words.

        Raises:
            Corrupt: it does not follow the last one.
        """
        chain.check_link(commit, self.last)
        if commit.branch not in self.heads:
            _check_names(commit)
        key = commit.cause.key
        digest = digest if digest is not None else asked(commit.cause.what)
        riders = Riders(
            key=(index_key(key), digest) if key is not None else None,
            runs=self.runs.after(commit),
        )
        for record in commit.typed:
            riders = _with(record, commit, riders)
        item = Append(
            commit.agent,
            None,
            commit.incarnation,
            commit.seq,
            header,
            payload,
            commit.branch,
            self.heads.get(commit.branch),
            riders=riders,
            epoch_min=commit.epoch,
            behind=chain.LogTail(self.seq, commit.prev, 0, self._header),
        )
        self._header = header
        self.heads[commit.branch] = commit.seq
        self.lacks = self.lacks or commit.trimmed
        self.last = commit
        return item


def _check_names(commit: Commit) -> None:
    """Refuses invalid names: such an agent could not be opened by name, nor deleted."""
    try:
        check_name(commit.agent, "an agent")
        check_name(commit.branch, "a branch")
    except ValueError as error:
        raise Corrupt(
            str(error), target=f"agent {commit.agent!r:.60}, commit {commit.seq}", hint=chain.HINT
        ) from error


def _with(record: Record, commit: Commit, riders: Riders) -> Riders:
    match record:
        case CheckpointRecord():
            return replace(riders, checkpoint=recorded(record, commit))
        case Named(name=name):
            return replace(riders, drop_branch=name)
        case Deleted():
            return replace(riders, delete_agent=True, purge=record.purge is True)
    return riders
