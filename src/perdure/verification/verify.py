"""`verify`: proves that a log is whole, and that every view stored beside it agrees with it."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec.structs import replace

from perdure.core.arguments.checks import function
from perdure.core.arguments.names import shown
from perdure.core.format import chain
from perdure.core.format.records import Named
from perdure.core.values.plain_values import Plain, copy, same
from perdure.core.values.state_hash import state_hash
from perdure.errors import Corrupt, NotFound, PerdureError
from perdure.missing import MISSING
from perdure.model import AgentInfo, Commit, RunInfo, Verified, id_text
from perdure.retention.purging import verify_grave
from perdure.state.agent_names import Names
from perdure.state.runs.run_rows import RebuiltRows
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.keys import find_key
from perdure.storage.log import snapshots
from perdure.storage.log.commits import check_follows
from perdure.storage.log.reader import Folded, LogReader
from perdure.storage.retention import RETENTION, Trim
from perdure.system import shell
from perdure.verification.findings import Findings
from perdure.visible import visible

ROOT = re.compile(r"sha256:[0-9a-f]{64}")
HEADS_MAX = 16
"""States held at once; that of a branch which is left longer is folded anew."""

AHEAD_MAX = 512
AHEAD_BYTES_MAX = 4 << 20
"""The size of the walk's look-ahead, for commits that step back to one that it is about to pass."""

KEPT_MAX = 64
"""States held at once for such commits; what is more is folded anew."""

HALF_GONE = "parts of its state are gone, but the log says that it was kept"

Progress = Callable[[int, int], None]
"""Called with commits done and commits in all."""


def verify_log(
    backend: Backend,
    reader: LogReader,
    *,
    anchor: str | None = None,
    progress: Progress | None = None,
    damaged: list[int] | None = None,
) -> Verified:
    """Reads the whole log: links, digests, ops, snapshots, names, idempotency keys and runs.

    Args:
        damaged: receives the seqs of damaged snapshots whose states the log gives, which then
            do not raise.
        anchor: the root that an earlier `verify` returned and that was kept elsewhere. Only it
            shows that an owner of the file cut off the log's end and rebuilt it.

    Raises:
        Corrupt: the first finding, by agent and commit; its `damages` are all of them, and its hint
            says which states cannot be read because of them.
        ValueError: the anchor is not a root: that is a typing error, not a log that was cut off.
    """
    _check_arguments(reader, anchor, progress)
    info = backend.agent(reader.name, reader.incarnation)
    if info is not None and info.purged:
        return verify_grave(backend, reader, anchor)
    try:
        return _verify_whole(backend, reader, info, anchor, progress, damaged)
    except Corrupt:
        info = backend.agent(reader.name, reader.incarnation)
        if info is None or not info.purged:
            raise
    # It was purged meanwhile, and what was found says nothing.
    if damaged is not None:
        damaged.clear()
    return verify_grave(backend, reader, anchor)


def _verify_whole(
    backend: Backend,
    reader: LogReader,
    info: AgentInfo | None,
    anchor: str | None,
    progress: Progress | None,
    damaged: list[int] | None,
) -> Verified:
    # Others may commit meanwhile. Each commit moves a branch to itself, so the furthest head is
    # the length of the log at the moment of the names.
    behind = reader.last_seq()
    refs, runs = _projections(backend, reader)
    total = max((ref.seq for ref in refs if ref.kind == "branch"), default=0)
    if total < behind:
        raise _wrong(reader, f"its log goes to commit {behind}, but its branches only to {total}")
    findings = Findings(reader)
    snapshotted: set[int] = set()
    walk = _StateWalk(backend, reader, findings, damaged)
    before: Commit | None = None
    anchored = anchor is None
    with findings.noting():  # what cannot be read at all ends the walk, what is damaged does not
        snapshotted = {seq for seq in reader.snapshot_seqs() if seq <= total}
        log = reader.commits(1, total, damaged_too=True, newer_too=False)
        for commit, builders in looking_ahead(log):
            _check_place(reader, commit, before, findings)
            walk.builders = builders
            walk.step(commit, check_snapshot=commit.seq in snapshotted)
            with findings.noting(beside=True):
                _check_key(backend, reader, commit)
            anchored = anchored or id_text(commit.id) == anchor
            before = commit
            if progress is not None:
                progress(commit.seq, total)
    with findings.noting():
        _check_end(reader, before, total)
        walk.check_left(refs)
        if not anchored:
            raise Corrupt(
                f"the anchor {anchor} is not in its log: the log was cut off or rebuilt",
                target=reader.target(),
                hint="compare with a copy from the time of the anchor",
            )
    if not walk.blind:
        with findings.noting(beside=True):
            _compare_refs(reader, walk.names, refs)
            _compare_deleted(backend, reader, walk.names, info)
            _compare_runs(reader, walk, runs)
    findings.conclude()
    assert before is not None
    healed = len(damaged or ())
    good = len(snapshotted) - healed
    return Verified(reader.name, before.seq, good, before.id, trimmed=walk.trimmed, healed=healed)


def _check_arguments(reader: LogReader, anchor: str | None, progress: Progress | None) -> None:
    if progress is not None:
        function(progress, "progress=")
    given: object = anchor
    if given is not None and not (isinstance(given, str) and ROOT.fullmatch(given)):
        raise ValueError(
            f"{reader.target()}: the anchor {shown(anchor)} is not a root; verify returns it as "
            "sha256: and 64 hexadecimal digits"
        )


def _wrong(reader: LogReader, problem: str, seq: int | None = None) -> Corrupt:
    return Corrupt(problem, target=reader.target(seq), hint=chain.HINT)


def _check_place(
    reader: LogReader, commit: Commit, before: Commit | None, findings: Findings
) -> None:
    """Checks a commit by itself, and that it follows the one before it."""
    if commit.damaged:
        damage = _wrong(reader, commit.damaged, commit.seq)
        damage.seq = commit.seq
        findings.note(damage)
    if before is not None and commit.seq != before.seq + 1:
        reader.refuse_purged(before.seq + 1)
    try:
        check_follows(commit, before)
    except Corrupt as error:  # one of the two is not what it was
        error.seq = before.seq if before is not None else commit.seq
        findings.note(error)
    if commit.incarnation != reader.incarnation:
        findings.note(_wrong(reader, "belongs to another incarnation", commit.seq))


def _check_end(reader: LogReader, last: Commit | None, total: int) -> None:
    if last is None:
        raise _wrong(reader, "its log is empty")
    if last.seq != total:
        raise _wrong(
            reader,
            f"its log ends at commit {last.seq}, a branch is at {total}",
        )


def looking_ahead(commits: Iterable[Commit]) -> Iterator[tuple[Commit, int]]:
    """Yields each commit, and the number of commits soon after it that step back to it: they build
    on it, though it is no longer the last one of their branch, or is another's. An unreadable
    commit raises once all before it were yielded."""
    source = iter(commits)
    ahead: deque[Commit] = deque()
    builders: Counter[int] = Counter()
    ends: dict[str, int] = {}
    held, over = 0, False
    broken: PerdureError | None = None
    while True:
        while not over and (not ahead or (len(ahead) < AHEAD_MAX and held < AHEAD_BYTES_MAX)):
            try:
                commit = next(source)
            except StopIteration:
                over = True
                break
            except PerdureError as error:
                over, broken = True, error
                break
            if commit.parent and ends.get(commit.branch) != commit.parent:
                builders[commit.parent] += 1
            ends[commit.branch] = commit.seq
            ahead.append(commit)
            held += commit.size
        if not ahead:
            break
        commit = ahead.popleft()
        held -= commit.size
        yield commit, builders.pop(commit.seq, 0)
    if broken is not None:
        raise broken


class _StateWalk:
    """Folds every branch forward at once, and rebuilds the names from the log.

    Attributes:
        blind: True if a commit was damaged: what it said of names and runs is unknown.
        builders: the number of commits soon after the next one that step back to it.
        doubted: True if a snapshot so far differs from the log, or could not be compared.
    """

    def __init__(
        self, backend: Backend, reader: LogReader, findings: Findings, damaged: list[int] | None
    ) -> None:
        self._backend = backend
        self._damaged = damaged
        self._reader = reader
        self._findings = findings
        self._trim: Trim | None = None
        with findings.noting():
            self._trim = reader.trim()
        self.trimmed = 0
        self.blind = self.doubted = False
        self._heads: dict[str, tuple[int, Plain]] = {}  # of each branch: seq, state
        self.builders = 0
        self._kept: dict[int, tuple[int, Plain]] = {}  # of each seq: its builders left, state
        self._far: Folded | None = None
        """The last state that was folded anew."""
        self.names = Names()
        self.runs = RebuiltRows()

    def step(self, commit: Commit, *, check_snapshot: bool) -> None:
        self.blind = self.blind or bool(commit.damaged)
        try:
            if commit.trimmed:
                self._check_said(commit)
            state = self._state_or_lost(commit)
        except Corrupt as error:
            self._findings.note(error)
            self._findings.lost.add(commit.seq)
            state = MISSING
        self.doubted = self.doubted or (check_snapshot and state is MISSING)
        if state is MISSING and check_snapshot and commit.seq in self._findings.lost:
            state = self._from_snapshot(commit)
        elif state is not MISSING and check_snapshot:
            self._note_snapshot(commit, state)
        if state is not MISSING:
            if self.builders:
                # Folded again for each of them, a log that goes back again and again would take
                # quadratic time.
                self._kept[commit.seq] = self.builders, copy(state)
                while len(self._kept) > KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
            self._heads[commit.branch] = commit.seq, state
            while len(self._heads) > HEADS_MAX:
                del self._heads[next(iter(self._heads))]
        else:  # what it was made of is gone, or about to be
            self._heads.pop(commit.branch, None)
        self.names.after(commit)
        self.runs.after(commit)
        for record in commit.typed:
            if isinstance(record, Named):
                self._heads.pop(record.name, None)

    def _state_or_lost(self, commit: Commit) -> Plain:
        """Returns the state; MISSING, too, if the log does not give it. That is noted once: for the
        commit that is the reason, not for those that build on it."""
        lost = self._findings.lost
        if commit.damaged and not commit.foldable:
            lost.add(commit.seq)
            return MISSING
        kept = self._trim is not None and commit.seq in self._trim.bases
        try:
            if kept or commit.parent not in lost:
                return self._state_if_kept(commit)
        except Corrupt as error:
            told = error.seq in lost and error.seq != commit.seq
            if not (told or commit.damaged):
                self._findings.note(error)
                lost.add(error.seq or commit.seq)
        lost.add(commit.seq)
        return MISSING

    def _from_snapshot(self, commit: Commit) -> Plain:
        """Returns the state after what is lost: nothing proves it, but it lets the check go on."""
        try:
            state = self._reader.fold(commit.seq).state
        except (Corrupt, NotFound):
            return MISSING
        self._findings.lost.discard(commit.seq)
        return state

    def _state_if_kept(self, commit: Commit) -> Plain:
        """Returns the state; MISSING if retention removed what it was made of, or is about to."""
        while self._trim is None or self._trim.keeps_state(commit.seq):
            try:
                return self._state_at(commit)
            except NotFound:  # retention went on since this look began
                trim = self._reader.trim()
                if trim == self._trim:
                    raise _wrong(self._reader, HALF_GONE, commit.seq) from None
                self._trim = trim
        return MISSING

    def _state_at(self, commit: Commit) -> Plain:
        bases: Mapping[int, str] = self._trim.bases if self._trim is not None else {}
        if commit.seq not in bases:
            return self._reader.spend(self._state_before(commit), commit)
        state = self._reader.fold(commit.seq, snapshots_too=False).state
        if (found := state_hash(state)) != bases[commit.seq]:
            raise _wrong(
                self._reader,
                f"its state hashes to {found}, but retention kept {bases[commit.seq]}",
                commit.seq,
            )
        return state

    def check_left(self, refs: list[Ref]) -> None:
        """Checks heads whose states retention could not keep: it left what is in the way."""
        trim = self._trim
        for ref in refs if trim is not None else ():
            passed = ref.deleted or ref.name == RETENTION or ref.seq in self._findings.lost
            if trim is None or passed or trim.keeps_state(ref.seq):
                continue
            with suppress(NotFound), self._findings.noting():  # it may have moved since
                self._reader.fold(ref.seq)

    def _check_said(self, commit: Commit) -> None:
        """Checks (I7) that a missing payload was removed on purpose, even since this check
        began."""
        self.trimmed += 1
        if self._trim is None or not self._trim.has_removed(commit.seq):
            self._trim = self._reader.trim()
        if self._trim is None or not self._trim.has_removed(commit.seq):
            raise _wrong(
                self._reader,
                "its payload is gone, but the log does not say that it was removed",
                commit.seq,
            )

    def _state_before(self, commit: Commit) -> Plain:
        """Returns the parent's state, to be changed: a branch passes its own on, a fork gets a
        copy."""
        seq, state = self._heads.pop(commit.branch, (0, None))
        if seq == commit.parent:
            return state
        left, state = self._kept.pop(commit.parent, (0, None))
        if left > 1:
            self._kept[commit.parent] = left - 1, state
            return copy(state)
        if left:
            return state
        for at, other in self._heads.values():
            if at == commit.parent:
                return copy(other)
        # Snapshots before here are checked; reading from the log alone, each of many far steps back
        # would take a time that grows with the log. If states are lost, a snapshot may be all that
        # there is. A chain of steps back continues from the one before.
        good = bool(self._findings.lost) or not self.doubted
        self._far = self._reader.fold(commit.parent, snapshots_too=good, known=self._far)
        return copy(self._far.state)

    def _note_snapshot(self, commit: Commit, state: Plain) -> None:
        try:
            self._check_snapshot(commit, state)
        except Corrupt as error:
            self.doubted = True
            if self._damaged is None:
                self._findings.note(error)
            else:
                self._damaged.append(commit.seq)

    def _check_snapshot(self, commit: Commit, state: Plain) -> None:
        reader = self._reader
        target = f"agent {reader.name!r}, snapshot at commit {commit.seq}"
        hint = snapshots.hint_for(reader.name)
        stored = self._backend.snapshot(reader.no, commit.seq)
        if stored is None:
            self._trim = reader.trim()
            if self._trim is not None and commit.seq < self._trim.before:
                return  # retention removed it since this look began
            raise Corrupt("the snapshot vanished", target=target, hint=hint)
        found, _ = snapshots.read(stored, target, reader.name, reader.incarnation, commit.parent)
        if not same(found, state):
            raise Corrupt(
                "the snapshot is not the state that the log gives", target=target, hint=hint
            )


def _compare_refs(reader: LogReader, names: Names, refs: list[Ref]) -> None:
    stored = {ref.name: (ref.kind, ref.seq, ref.deleted) for ref in refs}
    for name in sorted(stored.keys() | names.refs.keys()):
        if stored.get(name) != names.refs.get(name):
            raise _wrong(
                reader,
                f"{name!r} is stored as {stored.get(name)}, but the log says "
                f"{names.refs.get(name)}",
            )
    for ref in refs:
        if ref.epoch < names.epochs.get(ref.name, 0):
            raise _wrong(
                reader,
                f"branch {ref.name!r} is stored with epoch {ref.epoch}, but was written to under "
                f"{names.epochs[ref.name]}: a fenced-off writer could write again",
            )
        if ref.kind == "checkpoint" and ref.checkpoint != (said := names.points[ref.name]):
            raise Corrupt(
                f"the stored checkpoint {ref.name!r} is not the one of commit {said.seq}",
                target=reader.target(),
                hint=f"the log is whole: `{shell.perdure('state', reader.name, at=said.seq)}` goes "
                f"by the commit's number, and what `{shell.perdure('export', reader.name)}` writes "
                "has the checkpoint as it was",
            )


def _compare_deleted(
    backend: Backend, reader: LogReader, names: Names, before: AgentInfo | None
) -> None:
    """Checks that an agent is listed as deleted exactly if its log says so.

    Args:
        before: its row from before the log was read; it may have been deleted since.
    """
    now = backend.agent(reader.name, reader.incarnation) if names.deleted else before
    if now is not None and now.deleted is not names.deleted:
        told = "as deleted" if now.deleted else "as one that lives"
        says = "was deleted" if names.deleted else "was not"
        raise _wrong(
            reader,
            f"it is listed {told}, but its log says that it {says}",
        )


MOMENTS_MAX = 100


def _projections(backend: Backend, reader: LogReader) -> tuple[list[Ref], list[RunInfo] | None]:
    """Returns names and runs as of one moment; no runs if the agent is too busy to have one."""
    refs = backend.refs(reader.no)
    for _ in range(MOMENTS_MAX):
        runs = [
            run for run in backend.runs(RunQuery(agent=reader.name)) if run.agent_no == reader.no
        ]
        again = backend.refs(reader.no)
        if again == refs:
            return refs, runs
        refs = again
    return refs, None


def _compare_runs(reader: LogReader, walk: _StateWalk, runs: list[RunInfo] | None) -> None:
    if runs is None:
        return
    stored = {run.id: run for run in runs}
    told = {run: replace(row, agent_no=reader.no) for run, row in walk.runs.rows.items()}
    for run in sorted(stored.keys() | told.keys()):
        if not _same_row(stored.get(run), told.get(run)):
            raise _wrong(
                reader,
                f"run {visible(run)} is stored as {stored.get(run)}, but the log says "
                f"{told.get(run)}",
            )


def _same_row(a: RunInfo | None, b: RunInfo | None) -> bool:
    """True if they are equal, their results by type too."""
    if a is None or b is None:
        return a is b
    return replace(a, result=None) == replace(b, result=None) and same(a.result, b.result)


def _check_key(backend: Backend, reader: LogReader, commit: Commit) -> None:
    key = commit.cause.key
    if key is None:
        return
    found = find_key(backend, reader.no, key)
    if found is None or found[0] != commit.seq:
        raise _wrong(
            reader,
            f"its idempotency key {key!r} is noted for commit {found[0] if found else 'none'}",
            commit.seq,
        )
