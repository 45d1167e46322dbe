"""Retention of a living log: the history before a commit is removed, on purpose, and the log says
so (I7).

The headers stay, all of them: so the chain is still proved, and the reason for each commit can be
read. Payloads are removed. What is needed from before the horizon stays: the first commit; the
source of the rows of runs, names and copies; tool calls in doubt, and outcomes that a run may take
over from a history that it left; and, whole, each state that something reads or builds on: those
of heads and checkpoints, and those from which a path crosses the horizon.

First a commit on the branch `@retention` says what is removed, and the hashes of the states that
stay. Then those states are stored in place of their commits' payloads, and the others are removed,
part by part. If the process is killed anywhere, the next call goes on. A commit that builds on
something old says which word of retention its writer knows (`Append.trims`): nothing is built on
what is about to be removed.

A commit that cannot be read stays as it is, because its meaning is unknown. So does everything
before it: a copy of the log can only have that, and not the later word of retention. If a state
that is to stay cannot be had because of one, the commits between the two stay, so that a reader
sees the damage instead of retention; and so does the state that the way back leads to.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format import chain, remains
from perdure.core.format.records import (
    Finished,
    Intent,
    Outcome,
    Record,
    RunCancelled,
    Turn,
    is_ours,
)
from perdure.core.values.state_hash import state_hash
from perdure.errors import Conflict, Corrupt, NotFound
from perdure.model import Cause, Commit
from perdure.public_data import PublicData
from perdure.retention.kept_states import NeededStates, fold_each
from perdure.retention.purging import COPIED, needed_by
from perdure.state.context import Context
from perdure.state.runs.run_reading import RecordedCalls
from perdure.state.stateless_commits import without_delta
from perdure.state.threads import of_a_thread
from perdure.storage.appending import Riders
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.chunk_size import ChunkSize
from perdure.storage.log.commits import check_follows
from perdure.storage.log.proposals import Proposal
from perdure.storage.log.reader import SEQ_END, LogReader
from perdure.storage.port import StoredCommit
from perdure.storage.retention import RETENTION, Trim, stretches
from perdure.system.backoff import chances

PART = 500
"""Payloads that go in one transaction, while writers wait."""

Stays = tuple[set[int], set[int]]
"""Seqs whose states stay, and seqs whose payloads do."""


TellStays = Callable[[int, set[int]], Stays]
"""Returns what else must stay, for callers that know more of a log than its names: given the
horizon, and the commits before it whose states stay anyway. May refuse with a `Conflict`."""


def keep_no_more(horizon: int, needed: set[int]) -> Stays:
    """Returns nothing more to keep: for logs whose records all have known kinds."""
    return set(), set()


class Trimmed(PublicData, Struct, frozen=True):
    """The result of retention on one agent.

    Attributes:
        before: commits before this one were removed; a run or state that needs more lowers it.
        removed: the number of payloads removed by this call.
        bases: the number of states from before it that stay.
        freed: bytes of payloads, snapshots and leaves that this made free in the store.
        seq: seq of the commit that says so; 0: there was nothing to remove.
    """

    agent: str
    before: int
    removed: int = 0
    bases: int = 0
    freed: int = 0
    seq: int = 0


def trim(
    context: Context,
    reader: LogReader,
    before: int,
    also: TellStays | None = None,
) -> Trimmed:
    """Removes what is before a commit.

    An unfinished run keeps everything since its current turn began.

    Args:
        also: returns what else must stay.

    Raises:
        Conflict: a copy reads this log; or others kept building on what was to be removed.
    """
    if also is None and of_a_thread(reader):
        raise Conflict(
            "is a thread, which has more than its branches' heads to keep",
            target=reader.target(),
            hint="`perdure trim` does that, and so does its framework's saver",
        )
    scan = _Scan(reader, knows_all=also is not None)
    for _ in chances():
        _refuse_copied(context.backend, reader)
        scan.go_on(min(before, _held(context.backend, reader)))
        try:
            needed = scan.needed(context.backend)
            states, payloads = (also or keep_no_more)(scan.horizon, {*needed})
            word = scan.word(needed | states, payloads)
        except NotFound:
            if scan.is_latest:
                raise
            continue
        if not scan.unsaid and not any(map(scan.is_worth_it, word.seqs())):
            return Trimmed(reader.name, scan.horizon)
        # A store that may not remove must not say that it does: a copy, and the next call, would
        # believe it.
        context.backend.trim(reader.no, 0, {})
        try:
            _say(context, reader, word)
        except Conflict:  # somebody else just did
            continue
        size = _size(context.backend, reader)
        removed = carry_out(context.backend, reader)
        said = reader.trim()
        stands = said is not None and not said.found and said.at > word.seen
        if removed is not None and said is not None and stands:
            freed = max(0, size - _size(context.backend, reader))
            return Trimmed(reader.name, said.before, removed, len(said.bases), freed, said.at)
    raise Conflict(
        "others keep building on what was to be removed",
        target=reader.target(),
        hint="nothing was removed; make the call again",
    )


def _first_known(reader: LogReader) -> Commit:
    """Returns the first commit that names the agent's schema."""
    commits = reader.commits(damaged_too=True)
    return next((one for one in commits if one.schema_id), None) or reader.commit(1)


def _held(backend: Backend, reader: LogReader) -> int:
    """Returns the earliest commit that an unfinished run reads when it resumes."""
    runs = backend.runs(RunQuery(agent=reader.name, unfinished=True))
    return min((run.turn_at for run in runs if run.agent_no == reader.no), default=SEQ_END)


def _refuse_copied(backend: Backend, reader: LogReader) -> None:
    info = backend.agent(reader.name, reader.incarnation)
    user = needed_by(backend, info) if info is not None else None
    if user is not None:
        raise Conflict(
            f"its log is read by {user!r}, a copy of it",
            target=reader.target(),
            hint="delete the copy first, or keep the history for as long as it lives",
        )


class _Scan:
    """A scan of the whole log: what is before the horizon, and what of it must stay.

    Args:
        knows_all: True if records of unknown kinds belong to a framework, which says what of them
            stays.

    Attributes:
        horizon: at least the part that is already removed.
        unsaid: True if something is gone that the log does not say: the word that did cannot be
            read, or stayed behind when this was copied.
        end: seq of the last commit that was there.
    """

    def __init__(self, reader: LogReader, *, knows_all: bool = False) -> None:
        self._reader = reader
        self._knows_all = knows_all
        self.horizon = self.end = self._last_word = 0
        self._said: Trim | None = None
        self._done: set[int] = set()
        self._stay: set[int] = {1}
        self._parents: list[tuple[int, ...]] = []
        self._origins: dict[int, int] = {}
        self._in_doubt: dict[str, int] = {}
        self._left: dict[str, set[int]] = {}
        """Commits with outcomes that unfinished runs may take over from histories they left."""
        self._calls = RecordedCalls()
        self._gone: list[int] = []
        self._damaged: set[int] = set()
        self._hashes: dict[int, str] = {}
        self._last: Commit | None = None
        self.unsaid = False

    def go_on(self, horizon: int) -> None:
        """Scans the commits since the last scan."""
        self._last_word = self._reader.last_word()
        for commit in self._reader.commits(self.end + 1, damaged_too=True, newer_too=False):
            if not self.end and commit.seq > 1:  # no state can be had, and what is left is evidence
                raise Corrupt(
                    "is missing from the log", target=self._reader.target(1), hint=chain.HINT, seq=1
                )
            self._check(commit)
            self._note(commit)
        said = self._reader.trim()
        known = said is not None and not said.found
        self.unsaid = not all(known and said and said.has_removed(seq) for seq in self._gone)
        if self.unsaid:
            # What is gone is not evidence of anything, and what stays with a state needs a word
            # that keeps it: also before damage.
            said = self._reader.gone(self.end, said).word(0, self.end, self._last_word)
        self._said = said
        self.horizon = min(max(horizon, said.before if said is not None else 1), self.end)

    @property
    def is_latest(self) -> bool:
        """True if no newer word of retention was added since the last scan."""
        return self._reader.last_word() == self._last_word

    def is_worth_it(self, seq: int) -> bool:
        """True if a commit's payload is there, and was not already said to be removed."""
        return seq not in self._done

    def _check(self, commit: Commit) -> None:
        """Notes a damaged commit; of two that do not follow each other, either may be."""
        try:
            check_follows(commit, self._last)
        except Corrupt:
            self._damaged.update((commit.seq, max(1, commit.seq - 1)))
        if commit.damaged:
            self._damaged.add(commit.seq)
        self._last = commit

    def _note(self, commit: Commit) -> None:
        self.end = commit.seq
        self._parents.append(commit.parents)
        origin = 0 if commit.trimmed or commit.parent >= commit.seq else commit.parent
        self._origins[commit.seq] = origin
        if commit.trimmed:
            self._gone.append(commit.seq)
        if commit.trimmed or commit.branch == RETENTION:
            self._done.add(commit.seq)
        elif any(map(self._stays, commit.typed)):
            self._stay.add(commit.seq)
        for record in commit.typed:
            key = self._calls.key_of(record)
            if isinstance(record, Intent):
                self._in_doubt[key] = commit.seq
            elif record.t in ("outcome", "cancelled"):
                self._in_doubt.pop(key, None)
            elif isinstance(record, Turn) and not record.left_at:
                self._left[record.run] = record.left.outcomes if record.left is not None else set()
            elif isinstance(record, Finished | RunCancelled):
                self._left.pop(record.run, None)

    def _stays(self, record: Record) -> bool:
        """True if something beside the log is rebuilt from the record, or a run looks for it at any
        age; or if that is unknown, because only a newer version knows the record."""
        kind = record.t
        return (
            (kind.startswith("run-") and kind != "run-progress")
            or (isinstance(record, Outcome) and record.by_person)
            or kind in ("checkpoint", "branch-deleted", "agent-deleted", COPIED)
            or record.child is not None
            or not (self._knows_all or is_ours(record))
        )

    def needed(self, backend: Backend) -> set[int]:
        """Returns the seqs before the horizon whose states something reads or builds on."""
        named = {
            ref.seq
            for ref in backend.refs(self._reader.no)
            if not ref.deleted and ref.name != RETENTION
        }
        crossed = {seq for parents in self._parents[self.horizon - 1 :] for seq in parents}
        return {seq for seq in named | crossed if seq < self.horizon}

    def word(self, states: set[int], payloads: set[int]) -> Trim:
        """Returns the next word of retention, without its seq; it includes everything said
        before."""
        said = self._said
        needed = {seq for seq in states if 1 < seq < self.horizon}
        bases = dict.fromkeys(said.bases, 0) if said is not None else {}
        origins = {**self._origins, **bases}
        wanted = NeededStates(self._reader, said, needed, origins, self._hashes)
        wanted.keep_way_back(self._damaged, self.horizon)
        behind = max(self._damaged - {*self._gone}, default=0)
        wanted.keep_bases(behind)
        stay = self._stay | set(self._in_doubt.values()) | payloads | wanted.payloads
        stay |= wanted.states.union(*self._left.values())
        removed = stretches(
            seq
            for seq in range(1, self.horizon)
            if (seq > behind and seq not in stay) or (said is not None and said.has_removed(seq))
        )
        hashes = {seq: self._hashes[seq] for seq in wanted.states}
        return Trim(0, self.end, self._last_word, self.horizon, removed, hashes)


def _say(context: Context, reader: LogReader, word: Trim) -> None:
    """Commits the word; durable when this returns.

    Raises:
        Conflict: another writer just did.
    """
    draft = draft_of(word, reader, _first_known(reader), context.executor)
    riders = Riders(sync=True, trims=word.previous)
    context.committer.submit(Proposal(draft, reader.no, word.previous or None, riders))


def draft_of(word: Trim, reader: LogReader, schema_of: Commit, executor: str) -> chain.Draft:
    """Returns the draft of the commit that says a word of retention. Each begins at the first
    commit, which stays: otherwise the second would need the state of the one before it."""
    cause = Cause("trim", f"what was before commit {word.before} removed", refers=(word.before,))
    first = replace(schema_of, seq=1, id=schema_of.id if schema_of.seq == 1 else b"")
    return without_delta(reader, RETENTION, first, cause, [word.record()], executor)


def carry_out(backend: Backend, reader: LogReader) -> int | None:
    """Removes what the log says is removed, and returns the number of payloads. May be repeated.

    Returns:
        None if another writer said more in the meantime, and carries that out.

    Raises:
        Corrupt: a state that is to stay differs from the one in the log's word.
    """
    word = reader.last_word()
    said = reader.trim()
    if said is None or said.found:  # no writer says that it removes anything
        return 0
    try:
        if not _keep_bases(backend, reader, said, word):
            return None
    except NotFound:
        if reader.last_word() == word:
            raise
        return None
    snapshots = [seq for seq in reader.snapshot_seqs() if seq < said.before]
    for start in range(0, len(snapshots), PART):
        if not backend.trim(reader.no, word, {}, snapshots[start : start + PART]):
            return None
    found = 0
    start, chunk = 1, ChunkSize()
    while start < said.before:
        part: dict[int, bytes] = {}
        rows = backend.read(reader.no, start, said.before - 1, limit=min(chunk.now, PART))
        if not rows:
            break
        chunk.read(rows)
        start = rows[-1].seq + 1
        for row in rows:
            left = _left_of(row, said, reader.target(row.seq))
            if left != row.payload:
                part[row.seq] = left
        if part and not backend.trim(reader.no, word, part):
            return None
        found += sum(left == remains.REMOVED for left in part.values())
    return found


def _left_of(row: StoredCommit, said: Trim, target: str) -> bytes:
    if said.has_removed(row.seq):
        return remains.REMOVED
    if row.payload.startswith(remains.MAGIC) and row.seq not in said.bases:
        try:
            return remains.payload_of(row.payload, target)  # its state stayed for an earlier time
        except Corrupt:
            return row.payload
    return row.payload


def _keep_bases(backend: Backend, reader: LogReader, said: Trim, word: int) -> bool:
    """Stores the states that are to stay; returns False if another writer said more in the
    meantime."""
    for folded in fold_each(reader, said.bases):
        (row,) = backend.read(reader.no, folded.seq, folded.seq)
        if row.payload.startswith(remains.MAGIC):
            continue
        found, wanted = state_hash(folded.state), said.bases[folded.seq]
        if found != wanted:
            raise Corrupt(
                f"its state hashes to {found}, but must be kept as {wanted}",
                target=reader.target(folded.seq),
                hint=chain.HINT,
            )
        kept = remains.write_base(row.payload, folded.state)
        if not backend.trim(reader.no, word, {folded.seq: kept}):
            return False
    return True


def _size(backend: Backend, reader: LogReader) -> int:
    sizes = backend.maintain("sizes", no=reader.no)
    return sizes.payload_bytes + sizes.snapshot_bytes + sizes.leaf_bytes
