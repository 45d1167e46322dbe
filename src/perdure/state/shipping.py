"""From one store's feed into another store: each commit checked, linked, and written as it is.

Where it goes on is always what the target has: so whoever ships may be killed at any moment.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core import chain
from perdure.core.bounds import index_key
from perdure.errors import Corrupt, PerdureError
from perdure.model import FINISHED, MISSING, Commit, Message, RunInfo
from perdure.state.divergence import Divergence, diverged, first_difference
from perdure.state.line import Line
from perdure.state.purging import sweep
from perdure.state.trimming import carry_out
from perdure.storage.port import Append, Backend, Fed, Shipment, StoredCommit
from perdure.storage.reader import CHUNK_MAX, LogReader
from perdure.storage.retention import RETENTION
from perdure.storage.standing import Why

_log = logging.getLogger("perdure.replication")

LINES_MAX = 10_000
SHIPMENT_BYTES = 16_000_000
"""About as much goes into one transaction, but always one commit at least."""


class Load(Struct):
    """What is about to be shipped, with what one must know to finish it."""

    appends: list[Append] = field(default_factory=list)
    snapshots: dict[tuple[str, int], tuple[int, Append]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    commits: list[tuple[Commit, Append]] = field(default_factory=list)
    graves: list[Append] = field(default_factory=list)
    size: int = 0


class Shipper:
    """See the module. Not safe between threads.

    Args:
        until: commits and messages later than this, in microseconds since 1970, are left out;
            0: none.
    """

    def __init__(self, source: Backend, target: Backend, until: int = 0) -> None:
        self.source = source
        self.target = target
        self._until = until
        self._lines: OrderedDict[tuple[str, int], Line] = OrderedDict()
        self.latest = 0
        """Time of the latest commit that was shipped, in microseconds since 1970."""

    def ship(
        self, entries: Iterable[Fed], messages: Sequence[Message] = (),
        why: Why | None = None, epochs: Sequence[tuple[str, int, str, int]] = (),
    ) -> int:  # fmt: skip
        """Ship what the target does not have yet, in a few transactions; how many commits.

        Args:
            why: what the target is, said along with the last of them.

        Raises:
            DivergedError: the target has another commit at the place of one of these.
            Corrupt: a commit is not what the source once wrote.
        """
        try:
            shipped, load = 0, Load()
            for fed in entries:
                self._load(fed, load)
                if load.size >= SHIPMENT_BYTES:
                    shipped += self._send(load, messages)
                    load, messages = Load(), ()
            if load.appends or load.graves or messages or epochs or why is not None:
                shipped += self._send(load, messages, why, epochs)
            return shipped
        except BaseException:
            self._lines.clear()  # they may be ahead of what got in
            raise

    def forget(self) -> None:
        """What is known of the target: somebody else may have shipped into it."""
        self._lines.clear()

    def rest_of(self, agent: str, incarnation: int) -> Iterator[Fed]:
        """What the target lacks of one log, read from the source."""
        info = self.source.agent(agent, incarnation)
        if info is None:
            return
        first = self._line(agent, incarnation).seq + 1
        while rows := self.source.read(info.no, first, info.seq, limit=CHUNK_MAX):
            for row in rows:
                yield Fed(info.no, agent, incarnation, row)
            first = rows[-1].seq + 1

    # -- one commit ------------------------------------------------------------------------------

    def _load(self, fed: Fed, load: Load) -> None:
        if self._until and self._time_of(fed) > self._until:
            return
        line = self._line(fed.agent, fed.incarnation)
        if fed.commit.seq <= line.seq:
            self._check_same(fed, load)
            return
        if not line.seq and fed.incarnation > 1:
            self._finish(fed.agent, fed.incarnation - 1, load)
        if fed.commit.seq > line.seq + 1:  # the target lost its end, or a cursor is too new
            between = self.source.read(fed.no, line.seq + 1, fed.commit.seq - 1)
            if len(between) < fed.commit.seq - 1 - line.seq and self._is_purged(fed):
                self._bury(fed, load)
                return
            for row in between:
                self._add(line, Fed(fed.no, fed.agent, fed.incarnation, row), load)
        self._add(line, fed, load)

    def _is_purged(self, fed: Fed) -> bool:
        info = self.source.agent(fed.agent, fed.incarnation)
        return info is not None and info.purged

    def _bury(self, fed: Fed, load: Load) -> None:
        """What is left of a log that was purged before the target had all of it."""
        row = fed.commit
        commit = chain.read_commit(fed.agent, row.seq, row.header, row.payload)
        if commit.cause.kind != "delete":
            return  # its last one comes in a moment
        gone = fed.agent, fed.incarnation
        self._lines.pop(gone, None)
        load.appends = [one for one in load.appends if (one.agent, one.incarnation) != gone]
        load.commits = [
            (one, item) for one, item in load.commits if (one.agent, one.incarnation) != gone
        ]
        load.snapshots.pop(gone, None)
        load.graves.append(
            Append(
                commit.agent, None, commit.incarnation, commit.seq, row.header, row.payload,
                commit.branch, None, prev=commit.prev,
            )
        )  # fmt: skip

    def _time_of(self, fed: Fed) -> int:
        return chain.tail_of(fed.commit.header, f"agent {fed.agent!r}, commit {fed.commit.seq}").at

    def _finish(self, agent: str, incarnation: int, load: Load) -> None:
        """A name's next incarnation begins only where the one before has ended."""
        for fed in self.rest_of(agent, incarnation):
            self._load(fed, load)

    def _add(self, line: Line, fed: Fed, load: Load) -> None:
        row = fed.commit
        commit = chain.read_commit(fed.agent, row.seq, row.header, row.payload)
        if commit.incarnation != fed.incarnation:
            raise Corrupt(
                "belongs to another incarnation",
                target=f"agent {fed.agent!r}, commit {row.seq}", hint=chain.HINT,
            )  # fmt: skip
        if line.last is not None and commit.prev != line.last.id and commit.seq == line.seq + 1:
            self._refuse(fed)
        key = commit.cause.key
        noted = self.source.key(fed.no, index_key(key)) if key is not None else None
        digest = noted[1] if noted is not None and noted[0] == commit.seq else None
        item = line.append(commit, row.header, row.payload, digest)
        if row.snapshotted:
            load.snapshots[fed.agent, fed.incarnation] = (fed.no, item)
        load.ended += [run.id for run in item.runs if run.status in FINISHED]
        if item.delete_agent:
            load.deleted.append(fed.agent)
        load.appends.append(item)
        load.commits.append((commit, item))
        load.size += commit.size

    def _check_same(self, fed: Fed, load: Load) -> None:
        """Of a commit that comes once more."""
        pending = next(
            (a.header for a in reversed(load.appends)
             if (a.agent, a.incarnation, a.seq) == (fed.agent, fed.incarnation, fed.commit.seq)),
            None,
        )  # fmt: skip
        info = self.target.agent(fed.agent, fed.incarnation)
        rows: list[StoredCommit] = []
        if pending is None and info is not None:
            rows = self.target.read(info.no, fed.commit.seq, fed.commit.seq)
            if info.purged and not rows:
                return
        if fed.commit.header not in (pending, *(row.header for row in rows)):
            self._refuse(fed)
        self.latest = max(self.latest, self._time_of(fed))

    def _refuse(self, fed: Fed) -> None:
        """Say where the logs part; where they do not, the source's own chain is broken.

        Raises:
            DivergedError, Corrupt: one of the two.
        """
        info = self.source.agent(fed.agent, fed.incarnation)
        found = info and first_difference(self.source, info, self.target)
        if isinstance(found, Divergence) and not found.behind:
            raise diverged((found,), self.target.url)
        raise Corrupt(
            "does not follow the one before it", hint=chain.HINT,
            target=f"agent {fed.agent!r}, commit {fed.commit.seq} of {self.source.url}",
        )  # fmt: skip

    def _line(self, agent: str, incarnation: int) -> Line:
        """Where the target's log of an agent goes on."""
        line = self._lines.pop((agent, incarnation), None)
        if line is None:
            line = self._read_line(agent, incarnation)
        self._lines[agent, incarnation] = line
        if len(self._lines) > LINES_MAX:
            self._lines.popitem(last=False)
        return line

    def _read_line(self, agent: str, incarnation: int) -> Line:
        target = self.target

        def find_row(run: str) -> RunInfo | None:
            return next(iter(target.runs(run_id=run)), None)

        info = target.agent(agent, incarnation)
        if info is None:
            return Line(find_row=find_row)
        row = target.read(info.no, info.seq, info.seq)[0]
        last = chain.read_commit(agent, row.seq, row.header, row.payload)
        heads = {ref.name: ref.seq for ref in target.refs(info.no) if ref.kind == "branch"}
        return Line(last, heads, find_row)

    # -- all of a shipment -----------------------------------------------------------------------

    def _send(
        self, load: Load, messages: Sequence[Message], why: Why | None = None,
        epochs: Sequence[tuple[str, int, str, int]] = (),
    ) -> int:  # fmt: skip
        for no, item in load.snapshots.values():
            item.snapshot = self.source.snapshot(no, item.seq)
        mail = self._in_time([*messages, *self._alive_anyway(load)])
        _Inbox(self.target, mail).note_consumed(load.commits)
        times = [commit.at_micros for commit, _ in load.commits]
        self.latest = max([self.latest, *times])
        said = replace(why, at=max(why.at, self.latest)).standing() if why is not None else None
        self.target.ship(Shipment(load.appends, mail, 0, epochs, said, load.graves))
        if load.graves or any(item.purge for item in load.appends):
            self._purge()
        for name, incarnation in {
            (item.agent, item.incarnation) for item in load.appends if item.branch == RETENTION
        }:
            self._trim(name, incarnation)
        for agent, incarnation in {(item.agent, item.incarnation) for item in load.appends}:
            if line := self._lines.get((agent, incarnation)):
                line.runs.forget_finished()
        return len(load.appends) + len(load.graves)

    def _purge(self) -> None:
        """What was deleted to be purged at the source is no longer wanted here either."""
        try:
            sweep(self.target)
        except PerdureError as error:  # it stays to be purged
            _log.warning("cannot purge in %s: %s", self.target.url, error)

    def _trim(self, agent: str, incarnation: int) -> None:
        """What retention removed at the source goes here, too."""
        try:
            info = self.target.agent(agent, incarnation)
            if info is not None:
                carry_out(self.target, LogReader(self.target, info))
        except PerdureError as error:  # it stays until retention removes more
            _log.warning("cannot remove what is to go in %s: %s", self.target.url, error)

    def _alive_anyway(self, load: Load) -> list[Message]:
        """Messages at the source for what ends with these commits: they came after the end."""
        found = [message for run in load.ended for message in self.source.inbox(run)]
        if load.deleted:
            starts = self.source.inbox(kind="start")
            found += [message for message in starts if message.agent in load.deleted]
        return found

    def _in_time(self, messages: Sequence[Message]) -> list[Message]:
        by_number = {message.no: message for message in messages}
        return [
            by_number[no] for no in sorted(by_number)
            if not self._until or by_number[no].at <= self._until
        ]  # fmt: skip


class _Inbox:
    """Finds the messages that commits took out: their records say which those were."""

    def __init__(self, target: Backend, arriving: Sequence[Message]) -> None:
        self._target = target
        self._arriving = arriving
        self._runs: dict[str, list[Message]] = {}

    def note_consumed(self, commits: Sequence[tuple[Commit, Append]]) -> None:
        for commit, item in commits:
            numbers = [no for record in commit.records for no in self._taken(record)]
            if numbers:
                item.consumed = numbers

    def _taken(self, record: Any) -> list[int]:
        match record:
            case {"t": "run-started", "run": str(run)}:
                return self._take(run, lambda message: message.kind == "start")
            case {"t": "wait-ended" | "message-refused", "run": str(run), "key": key, "at": at}:
                said = (key, at, record.get("who"))
                return self._take(
                    run, lambda message: (message.key, message.at, message.who) == said
                )[:1]
        return []

    def _take(self, run: str, wanted: Any) -> list[int]:
        there = self._there(run)
        found = [message for message in there if wanted(message)][:1]
        for message in found:
            there.remove(message)
        return [message.no for message in found]

    def _there(self, run: str) -> list[Message]:
        if run not in self._runs:
            there = {message.no: message for message in self._target.inbox(run)}
            there |= {
                message.no: message for message in self._arriving
                if message.run == run and message.value is not MISSING
            }  # fmt: skip
            self._runs[run] = list(there.values())
        return self._runs[run]
