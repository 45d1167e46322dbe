"""Messages between runs, repeated in a store that was filled from logs.

A message is in no log until it is taken out. One that was there at the moment to which a store is
restored, or at which a log was exported, and was taken out later, or stayed behind, is missing in
the new store. People and programs can send theirs again; a run cannot. But a run's messages follow
from the logs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.bounds import index_key, message_key
from perdure.core.arguments.names import incarnation_of
from perdure.core.format import records
from perdure.core.values.plain_values import Plain
from perdure.model import FINISHED, UNFINISHED, Commit, Message, RunInfo
from perdure.state.runs.family_messages import (
    CHILD,
    Families,
    agent_of,
    end_told,
    plain_begin_of,
    to_end_with,
)
from perdure.state.runs.parentage import Origin, args_of_start
from perdure.state.runs.run_reading import RecordedWaits
from perdure.state.runs.run_rows import args_digest
from perdure.state.runs.taken_signals import Taken
from perdure.storage.capabilities import Backend, RunQuery, Shipment
from perdure.storage.log.reader import LogReader
from perdure.transfer.arriving_messages import PAGE, all_mail
from perdure.transfer.given_tokens import last_number
from perdure.transfer.living_agents import living

_NO_ORDER = "t", "run"
"""The fields of the record of a run's begin that are not part of its order."""


class RequestedRun(Struct, frozen=True):
    """A run that another one, `by`, requested. `lives`: True if it goes on when that one is
    cancelled, or its time is up. `args`: one digest of its arguments."""

    by: str
    agent: str
    lives: bool
    args: str


class Ties:
    """The runs of a log and the runs that they know, computed from its commits, which are fed in
    order. Parts of it may be in a history that a run left.

    Attributes:
        started: started runs by their ids; not those taken over from a history that was left.
        cancelled: runs that were cancelled at least once.
        origins: the origins of its own runs.
        said: results of calls as people settled them, which may be ids of runs.
        families: its runs, and those that they have in common.
        sent: the messages that its runs sent to those that they had started.
    """

    def __init__(self) -> None:
        self.started: dict[str, RequestedRun] = {}
        self.cancelled: set[str] = set()
        self.origins: dict[str, Origin] = {}
        self.said: set[str] = set()
        self.families = Families()
        self.sent: list[Message] = []
        self._waits = RecordedWaits()

    def note(self, commit: Commit) -> None:
        self.families.note(commit)
        for record in commit.typed:
            child = record.child
            self._waits.note(record)
            if isinstance(record, records.Outcome) and record.sent is not None:
                self.sent.append(_sent_again(record, record.sent))
            match record:
                case records.RunCancelled():
                    self.cancelled.add(record.run)
                case records.Started():
                    self.origins[record.run] = Origin.begun(record)
                case records.Outcome(by_person=True):
                    if type(record.value) is str:
                        self.said.add(record.value)
                case records.Outcome(t="step") if child is not None:
                    if record.made != child.run or not child.let_live:
                        args = args_digest(args_of_start(record))
                        self.started[child.run] = RequestedRun(
                            record.run, child.agent, bool(child.let_live), args
                        )

    @property
    def awaited(self) -> Iterator[tuple[str, str]]:
        """Yields pairs of a run that waits, and a run that it waits for."""
        for (run, _), began in self._waits.open.items():
            for branch in began.branches:
                if branch.kind == "child":
                    yield run, branch.name.removeprefix(CHILD)

    def knows(self, run: str, child: RunInfo) -> bool:
        """True if a run may be told of the end of one that it waits for: it, or its origin of a
        fork, started that, or a person named it."""
        start = self.started.get(child.id)
        if start is not None and child.parent == start.by:
            return True
        return child.parent == run or child.id in self.said


def _sent_again(record: records.Outcome, sent: records.SentMessage) -> Message:
    value = record.value if sent.kind == "signal" else f"by run {record.run}"
    run, agent = sent.run, agent_of(sent.run)
    return Message(run, agent, sent.kind, sent.name, sent.key, value, record.run)


def ties_of(backend: Backend, run: str) -> Ties:
    """Returns the ties in the log of a run; none if the log is not there."""
    ties = Ties()
    info = backend.agent(agent_of(run), incarnation_of(run))
    if info is not None and not info.purged:
        for commit in LogReader(backend, info).commits(1, damaged_too=True):
            ties.note(commit)
    return ties


def retell(source: Backend, target: Backend, until: int) -> None:
    """Sends the missing messages in a restored store, before it opens, and once the numbers of its
    own messages are known; and lets it know the signals that its runs have taken. May be
    repeated."""
    last = last_number(target)
    told = _untold(source, target, until)
    while part := [*islice(told, PAGE)]:
        now = target.now()
        numbered = [replace(one, no=last + n, at_micros=now) for n, one in enumerate(part, 1)]
        target.ship(Shipment(messages=numbered))
        last += len(numbered)


def _untold(source: Backend, target: Backend, until: int) -> Iterator[Message]:
    known = {_place(message) for message in all_mail(target)}
    requested: set[str] = set()
    sent: list[Message] = []
    for info in living(target):
        if not target.runs(RunQuery(agent=info.name, limit=1)):
            continue
        ties, taken = Ties(), Taken()
        for commit in LogReader(target, info).commits(1, damaged_too=True):
            ties.note(commit)
            taken.note(commit)
        # The source's inbox tells of them, too, if their agent was not deleted since.
        fresh = [one for one in taken.messages() if _place(one) not in known]
        known.update(map(_place, fresh))
        yield from fresh
        sent += ties.sent
        yield from ends_for(target, {}, ties)
        for run, start in ties.started.items():
            starter = _row(target, {}, start.by)
            if starter is None:
                continue
            if _is_to_end(target, {}, ties, run):
                yield from _cancel_untold(target, {}, ties, run, start.by)
            else:
                for order in _order_untold(source, target, run, start, until):
                    requested.add(run)
                    yield order
    # At last: by then it is known what their receivers have taken.
    for message in sent:
        if _place(message) not in known and _may_hear(target, {}, message, requested):
            known.add(_place(message))
            yield message


def _may_hear(
    backend: Backend, rows: Mapping[str, RunInfo], message: Message, requested: Collection[str]
) -> bool:
    """Returns True if a message may be sent again to a run that another one had started.

    Args:
        rows: as for `_is_to_end`.
        requested: runs that are being requested.
    """
    row = _row(backend, rows, message.run)
    if row is None:
        asked = backend.inbox(message.run, kind="start", limit=1)
        return message.run in requested or bool(asked)
    if row.status in FINISHED or message.kind == "signal":
        return row.status not in FINISHED
    if backend.inbox(message.run, kind="cancel", limit=1):
        return False  # one is enough
    return message.run in rows or message.run not in ties_of(backend, message.run).cancelled


def _place(message: Message) -> tuple[str, str, str, str]:
    return message.run, message.kind, message.name, message_key(message.key)


def _order_untold(
    source: Backend, target: Backend, run: str, start: RequestedRun, until: int
) -> Iterator[Message]:
    """Yields the message that requests a run that another one had requested by then, and that began
    later: its content is in the begin on the source."""
    if _row(target, {}, run) is not None or target.inbox(run, kind="start", limit=1):
        return
    agent, by, number = start.agent, start.by, incarnation_of(run)
    was, there = target.agent(agent, number), source.agent(agent, number)
    if there is None or there.purged or (was is not None and was.deleted):
        return
    for commit in LogReader(source, there).commits(1, damaged_too=True):
        if (began := plain_begin_of(commit, run)) is None:
            continue
        # If it began by then, its agent is left out here, or cut off.
        if began.get("parent") == by and commit.at_micros > until:
            order = {key: value for key, value in began.items() if key not in _NO_ORDER}
            yield Message(run, agent, "start", str(order["function"]), "", order)
        return


def _is_to_end(backend: Backend, rows: Mapping[str, RunInfo], ties: Ties, run: str) -> bool:
    """Returns True if a run that another one started is to end with it; see `to_children`.

    Args:
        rows: the rows of runs of logs that the backend is about to have.
        ties: the ties of the other's log.
    """
    start = ties.started.get(run)
    if start is None or start.lives:
        return False
    starter = _row(backend, rows, start.by)
    others = (_row(backend, rows, one) for one in ties.families.having[run])
    going_on = any(one is not None and one.status in UNFINISHED for one in others)
    return starter is not None and ties.families.takes_along(starter) and not going_on


def _cancel_untold(
    backend: Backend, rows: Mapping[str, RunInfo], ties: Ties, run: str, by: str
) -> Iterator[Message]:
    """Yields the message that asks a run to end with the one that started it; not if it was asked
    before, and resumed since.

    Args:
        rows, ties: those of a log that the backend is about to have.
    """
    row = _row(backend, rows, run)
    if row is None or row.parent != by or row.status in FINISHED:
        return
    if backend.inbox(run, kind="cancel", limit=1):
        return
    if run not in rows:
        ties = ties_of(backend, run)
    if run not in ties.cancelled:
        yield to_end_with(by, run, row.agent, once=index_key(by))


# -- of a log that is taken in ---------------------------------------------------------------------


def untold_by(
    backend: Backend, rows: Mapping[str, RunInfo], ties: Ties, orders: Mapping[str, Plain]
) -> Iterator[Message]:
    """Yields the messages between its runs and those that are there already.

    Args:
        rows: the rows of its runs.
        orders: the orders that came along with it, by the runs that they request.
    """
    yield from ends_for(backend, rows, ties)
    yield from ends_of(backend, rows, ties)
    requested: set[str] = set()
    for run, start in ties.started.items():
        starter = _row(backend, rows, start.by)
        if starter is None:
            continue
        if _is_to_end(backend, rows, ties, run):
            yield from _cancel_untold(backend, rows, ties, run, start.by)
        elif run in orders and _row(backend, rows, run) is None and _may_begin(backend, run, start):
            order: Any = orders[run]
            requested.add(run)
            yield Message(run, start.agent, "start", str(order["function"]), "", order)
    for row in rows.values():
        if row.status in FINISHED or not row.parent or row.parent in rows:
            continue
        starter = _row(backend, rows, row.parent)
        if starter is None:
            continue
        others = ties_of(backend, starter.id)
        if _is_to_end(backend, rows, others, row.id):
            yield from _cancel_untold(backend, rows, ties, row.id, starter.id)
        to_it = (message for message in others.sent if message.run == row.id)
        yield from (one for one in to_it if _may_hear(backend, rows, one, ()))
    yield from (one for one in ties.sent if _may_hear(backend, rows, one, requested))


def _may_begin(backend: Backend, run: str, start: RequestedRun) -> bool:
    """Returns True if nobody requests it yet, and its agent's next incarnation is that of the
    run."""
    if backend.inbox(run, kind="start", limit=1):
        return False
    info = backend.agent(start.agent)
    number = 1 if info is None else info.incarnation + bool(info.deleted)
    return number == incarnation_of(run)


def begun_by(backend: Backend, rows: Mapping[str, RunInfo]) -> list[int]:
    """Returns the numbers of messages that request runs of an incoming log: they have begun."""
    return [one.no for run in rows for one in backend.inbox(run, kind="start")]


def ends_for(backend: Backend, rows: Mapping[str, RunInfo], ties: Ties) -> Iterator[Message]:
    """Yields the messages that tell waiting runs of ends that they have not heard of.

    Args:
        rows: the rows of the runs of a log that the backend is about to have; others are there.
    """
    for run, child in dict.fromkeys(ties.awaited):
        ended = _row(backend, rows, child)
        if ended is not None and ended.status in FINISHED and ties.knows(run, ended):
            yield from _unless_told(backend, rows, ended, run)


def ends_of(backend: Backend, rows: Mapping[str, RunInfo], ties: Ties) -> Iterator[Message]:
    """Yields the messages that tell existing runs of the ends of those of an incoming log."""
    for row in rows.values():
        if not row.parent or row.status not in FINISHED:
            continue
        if row.parent in rows or ties.origins[row.id].is_of(backend):
            yield from _unless_told(backend, rows, row, row.parent)


def _unless_told(
    backend: Backend, rows: Mapping[str, RunInfo], ended: RunInfo, run: str
) -> Iterable[Message]:
    waiting = _row(backend, rows, run)
    if waiting is None or waiting.status != "waiting":
        return []  # one that is gone on with sees it by itself
    name = CHILD + ended.id
    told = any(one.name == name for one in backend.inbox(run, kind="signal", name=name))
    return [] if told else [end_told(ended, run)]


def _row(backend: Backend, rows: Mapping[str, RunInfo], run: str) -> RunInfo | None:
    if run in rows:
        return rows[run]
    found = backend.runs(RunQuery(run_id=run))
    return found[0] if found else None
