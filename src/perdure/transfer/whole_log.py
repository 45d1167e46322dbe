"""A whole log out of one store and into another, as the exact bytes of its chain.

So every commit id, and a root that is kept elsewhere, stays valid at the destination. The views
beside the log (branches, checkpoints, keys, runs) are rebuilt from it on the way in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.checks import iterable
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.core.format import chain, remains
from perdure.core.format.records import Record
from perdure.core.format.rows import order_of
from perdure.core.values import codec
from perdure.core.values.plain_values import Plain, same
from perdure.errors import Conflict, Corrupt
from perdure.missing import MISSING
from perdure.model import MAIN, Cause, Commit, RunInfo, Verified, id_text
from perdure.public_data import PublicData
from perdure.state.commit_lookup import resolve
from perdure.state.context import Context
from perdure.state.runs.parentage import args_of_start
from perdure.state.runs.taken_signals import Taken
from perdure.storage.appending import Append
from perdure.storage.capabilities import Backend, RunQuery, Shipment
from perdure.storage.keys import find_key
from perdure.storage.log import snapshots
from perdure.storage.log.chunk_size import ChunkSize
from perdure.storage.log.gone import Gone
from perdure.storage.log.proposals import Proposal
from perdure.storage.log.reader import LogReader
from perdure.storage.log.snapshots import Leaves
from perdure.storage.retention import RETENTION
from perdure.system import shell
from perdure.system.done_already import DoneAlready
from perdure.transfer import incoming_states
from perdure.transfer.incoming_log import LogEnd
from perdure.transfer.own_words import has_no_state, is_said, linked
from perdure.transfer.retold_messages import Ties, begun_by, untold_by
from perdure.transfer.unrelated_runs import refuse_strangers

Progress = Callable[[int, int], None]


class LogEntry(PublicData, Struct, frozen=True):
    """One commit in its stored form.

    Attributes:
        header, payload: the exact bytes; the chain's hashes are made of them.
        asked: the digest of its idempotency key's request; None without a key. It is kept beside
            the log, not in the chain.
        orders: the orders of runs that it requested, and that had not begun when this was read, by
            their ids. They are in no log before the runs begin; None: there are none.
    """

    header: bytes
    payload: bytes
    asked: bytes | None = None
    orders: bytes | None = None

    @property
    def commit(self) -> Commit:
        """The decoded commit, checked against itself.

        Raises:
            Corrupt: header and payload do not belong together, or are malformed.
        """
        fields = chain.read_header(self.header, "a commit of the export")
        if len(fields) < 4 or type(fields[1]) is not str or type(fields[3]) is not int:
            raise Corrupt("its header is malformed", target="a commit of the export", hint=HINT)
        return chain.read_commit(fields[1], fields[3], self.header, self.payload)


HINT = "the file was damaged on its way: export again"


def export_log(backend: Backend, reader: LogReader, until: int | None = None) -> Iterator[LogEntry]:
    """Yields the log as it is now, oldest first, each link checked; later commits are not in it,
    but for the word of a retention that comes meanwhile: without it the log would look damaged.

    Args:
        until: the last commit to yield; None: all. If retention has since removed something up to
            there, one more commit says so.

    Raises:
        NotFound: retention removed the state that `main` had at `until`.
        Corrupt: a commit cannot be read; or something is gone that no word of retention says.
    """
    last = reader.last_seq()
    reader.absent(last + 1)  # that no branch speaks of one behind it
    if until is not None:
        last = resolve(reader, MAIN, until)
        if reader.last_word():
            _refuse_stateless(reader, reader.gone(last), last)
    gone = Gone(reader.name)
    if last and not backend.read(reader.no, 1, 1):
        reader.refuse_purged(1)
    before: Commit | None = None
    first, chunk = 1, ChunkSize()
    while first <= last:
        rows = backend.read(reader.no, first, last, limit=chunk.now)
        chunk.read(rows)
        gone.note(rows)
        for row in rows:
            if row.seq != (before.seq + 1 if before is not None else 1):
                reader.refuse_purged(row.seq - 1)
            commit = reader.check(row, before)
            key = commit.cause.key
            found = find_key(backend, reader.no, key) if key is not None else None
            held = found[1] if found is not None and found[0] == row.seq else None
            yield LogEntry(row.header, row.payload, held, _orders_of(backend, commit))
            before = commit
        if gone.payloads and until is None:
            last = max(last, reader.last_word())
        first = rows[-1].seq + 1 if rows else last + 1
    if not is_said(reader, gone, last):
        yield _word_of(backend, reader, gone, last)


def _refuse_stateless(reader: LogReader, gone: Gone, last: int) -> None:
    if has_no_state(reader, gone, last):
        raise reader.trimmed(last)


def _word_of(backend: Backend, reader: LogReader, gone: Gone, last: int) -> LogEntry:
    """Returns the commit that says behind the last one what was removed up to there: the log's own
    word is further behind."""
    _refuse_stateless(reader, gone, last)
    if not gone.is_said(reader.trim()):
        raise Corrupt(
            "its payload is gone, but the log does not say that it was removed",
            target=reader.target(gone.payloads[0]),
            hint=f"`{shell.perdure('trim', reader.name, before=1)}` says it, if that is as it "
            "should be; then export again",
        )
    (row,) = backend.read(reader.no, last, last)
    tail = chain.tail_of(row.header, reader.target(last))
    previous = reader.word_before(last + 1)
    word = gone.word(0, last, previous)
    return LogEntry(*linked(reader, word, tail, backend.now()))


def _orders_of(backend: Backend, commit: Commit) -> bytes | None:
    orders: dict[str, Plain] = {}
    for record in commit.typed:
        if record.child is not None:
            run = record.child.run
            for message in backend.inbox(run, kind="start"):
                order: Any = message.value
                if _fits(order, record) and not backend.runs(RunQuery(run_id=run)):
                    orders[run] = order
    return codec.encode(orders) if orders else None


def _read_orders(entry: LogEntry, commit: Commit) -> dict[str, Plain]:
    """Returns the orders beside a commit. Raises Corrupt if they are not orders, or not this
    commit's."""
    if entry.orders is None:
        return {}
    given = {one.child.run: one for one in commit.typed if one.child is not None}
    try:
        orders: Any = codec.decode(entry.orders)
        if all(run in given and _fits(order, given[run]) for run, order in orders.items()):
            return dict(orders)
    except (AttributeError, LookupError, TypeError, ValueError, codec.UndecodableError):
        pass
    raise Corrupt(
        "the orders beside it are not its own",
        target=f"agent {commit.agent!r}, commit {commit.seq}",
        hint=HINT,
    )


def _fits(value: Any, record: Record) -> bool:
    """True if an order is the one that this record of a start gave: with the same arguments."""
    try:
        order = order_of(value)
    except (TypeError, ValueError):
        return False
    form = type(order.digests) in (int, type(None))
    return form and order.parent == record.run and order.args == args_of_start(record)


def import_log(
    context: Context,
    entries: Iterable[LogEntry],
    *,
    root: str | None = None,
    progress: Progress | None = None,
    total: int = 0,
) -> Verified:
    """Writes an exported log, in one transaction: all of it, or nothing.

    Every link, digest and state, on every branch, is checked before anything is written. The log is
    held in memory.

    Args:
        root: the id that the last commit must have; only it shows that no commit is missing at the
            end.

    Raises:
        Corrupt: the entries are not a whole log; it names the first that does not follow.
        Conflict: the store has an agent of that name; or a run that would be taken for another.
    """
    plan = _LogPlan()
    for entry in iterable(entries, "entries"):
        _check_entry(entry)
        plan.add(entry)
        if progress is not None:
            progress(plan.seq, total)
    last = plan.last
    if last is None:
        raise Corrupt("there is no commit in it", target="the export", hint=HINT)
    if root is not None and id_text(last.id) != root:
        raise Corrupt(
            f"its last commit is {id_text(last.id)}, but should be {root}",
            target=f"agent {last.agent!r}",
            hint=HINT,
        )
    _refuse_existing(context.backend, last)
    plan.check_states()
    refuse_strangers(context.backend, plan.rows, plan.ties, plan.find_id)
    # A waiting run remembers the number of the last message that it looked at; new messages must
    # have later ones.
    context.backend.ship(Shipment(number_min=plan.seen))
    # Messages between runs are in no log, either; nor is it known from a log alone which signals
    # its runs have taken (I5).
    rows, backend = plan.rows, context.backend
    end = plan.appends[-1]
    end.riders = replace(
        end.riders,
        sends=[*untold_by(backend, rows, plan.ties, plan.orders)],
        consumed=begun_by(backend, rows),
        known=[*plan.taken.messages()],
    )
    with DoneAlready() as done:
        context.committer.submit(_Whole.of(plan, last))
        done.is_now(
            f"{last.agent!r} is imported, and other logs' runs could not be told of its own",
            f"do not import it again; `{shell.perdure('verify', last.agent)}` reads it",
        )
        _tell_of_others(context, plan)
    return Verified(last.agent, last.seq, 1, last.id)


def _tell_of_others(context: Context, plan: _LogPlan) -> None:
    """Exchanges messages with other logs that were taken in at the same time, each of which was not
    there yet for the other: the later one sees both."""
    backend = context.backend
    rows = {run: row for run in plan.rows for row in backend.runs(RunQuery(run_id=run))}
    for message in untold_by(backend, rows, plan.ties, plan.orders):
        context.send(message)
    begun = [
        one.no
        for run in plan.orders
        if backend.runs(RunQuery(run_id=run))
        for one in backend.inbox(run, kind="start")
        if same(one.value, plan.orders[run])
    ]
    if begun:
        backend.ship(Shipment(taken=begun))


def _check_entry(entry: LogEntry) -> None:
    if not is_a(entry, LogEntry):
        raise TypeError(f"entries must come from export_log, not {shown(entry)}")
    more = [part for part in (entry.asked, entry.orders) if part is not None]
    for part in (entry.header, entry.payload, *more):
        if type(part) is not bytes:
            raise TypeError(f"an entry of a log must be made of bytes, not {shown(part)}")


def _refuse_existing(backend: Backend, last: Commit) -> None:
    info = backend.agent(last.agent)
    if info is None or (info.deleted and info.incarnation < last.incarnation):
        return
    what = "was there, and was deleted" if info.deleted else "is there already"
    raise Conflict(
        f"{what} (incarnation {info.incarnation}, {info.seq} commits)",
        target=f"agent {last.agent!r}",
        hint="nothing was written; import into a store that does not have it",
    )


class _LogPlan:
    """The appends that write a log, with the views of it that each brings along."""

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self.ties = Ties()
        self.taken = Taken()
        self.orders: dict[str, Plain] = {}
        self._line = LogEnd()
        self.parents: list[int] = []
        """Of its commits, from the first one on."""

    @property
    def seq(self) -> int:
        return len(self.appends)

    @property
    def last(self) -> Commit | None:
        return self._line.last

    def add(self, entry: LogEntry) -> None:
        commit, last = entry.commit, self.last
        chain.check_link(commit, last)
        if last is not None and (commit.agent, commit.incarnation) != (
            last.agent,
            last.incarnation,
        ):
            raise Corrupt(
                "belongs to another agent",
                target=f"agent {commit.agent!r}, commit {commit.seq}",
                hint=HINT,
            )
        self.appends.append(self._line.append(commit, entry.header, entry.payload, entry.asked))
        self.parents.append(commit.parent)
        self.ties.note(commit)
        self.taken.note(commit)
        self.orders |= _read_orders(entry, commit)

    @property
    def rows(self) -> dict[str, RunInfo]:
        return self._line.runs.rows

    @property
    def seen(self) -> int:
        """The highest number of a message that a waiting run had looked at."""
        return max((run.seen for run in self.rows.values()), default=0)

    def find_id(self, seq: int) -> bytes | None:
        """Returns the id of its commit with this seq; None if there is none."""
        return chain.commit_id(self.appends[seq - 1].header) if 0 < seq <= self.seq else None

    def check_states(self) -> None:
        """Folds every branch: a log that cannot be read is not taken in. The state at main's head
        is stored as a snapshot, or the first reader would replay the whole log.

        Raises:
            Corrupt: a commit does not fit what it builds on; or something is missing that the log
                does not say was removed.
        """
        head = 0 if self.appends[-1].riders.delete_agent else self._line.heads.get(MAIN, 0)
        without = []
        for seq, state in incoming_states.states(self.parents, self._stored):
            if state is MISSING:
                without.append(seq)
            elif seq == head:
                first = self.appends[head - 1]
                first.snapshot, _ = snapshots.write(
                    state, Leaves(), first.agent, first.incarnation, self.parents[head - 1]
                )
        trimmed = [item.seq for item in self.appends if item.payload == remains.REMOVED]
        word = self._line.heads.get(RETENTION, 0)
        incoming_states.check_gone(without, trimmed, word, lambda seq: self._stored(seq)[0])

    def _stored(self, seq: int) -> tuple[Commit, bytes]:
        item = self.appends[seq - 1]
        return LogEntry(item.header, item.payload).commit, item.payload


class _Whole(Proposal, eq=False):
    """A log that is linked already: it keeps its place, and gets in in one transaction."""

    whole: Append | None = None
    last: chain.LogTail = chain.START

    @classmethod
    def of(cls, plan: _LogPlan, last: Commit) -> _Whole:
        first, *rest = plan.appends
        payload = chain.Payload(first.payload, b"", b"")
        draft = chain.Draft(
            first.agent,
            first.incarnation,
            first.branch,
            (),
            last.schema_id,
            last.schema_version,
            "",
            0,
            Cause("import"),
            payload,
        )
        durable = replace(first.riders, sync=True)
        return cls(
            draft,
            None,
            None,
            whole=replace(first, then=rest, riders=durable),
            last=chain.LogTail(last.seq, last.id, last.at_micros),
        )

    def link(self, tail: chain.LogTail, now: int) -> Append:
        assert self.whole is not None
        self.tail, self.linked = self.last, self.whole
        return self.whole
