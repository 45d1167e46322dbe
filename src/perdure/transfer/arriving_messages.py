"""Messages on their way into a follower, with the same result in whatever order things happened.

A message is in no log until a commit takes it out, so it has no place among the commits. In any
order this holds: a message that the source still has, read after these commits were there, is kept;
one that a commit took out, or that was removed with its run's end, is not, and does not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from perdure.core.arguments.bounds import message_key
from perdure.core.format.records import Record, Started, WaitEnded
from perdure.missing import MISSING
from perdure.model import FINISHED, Commit, Message, RunInfo
from perdure.state.runs.run_reading import left_over
from perdure.storage.capabilities import Backend, RunQuery, Shipment
from perdure.storage.log.reader import LogReader

PAGE = 1000


class Arriving:
    """The messages of one shipment.

    Args:
        messages: messages that came to inboxes since the last look.
        commits: those of the shipment, in their order.
        ended: runs that they end, which removes everything that was in their inboxes then.
        deleted: agents that they delete, which removes everything that was in their inboxes.
        until: messages later than this are left out, in microseconds since 1970, and those that
            were taken out, at a time that is unknown here; 0: none.

    Attributes:
        messages: messages for the target.
        taken: numbers of messages that must not be there afterwards.
    """

    def __init__(
        self,
        source: Backend,
        target: Backend,
        messages: Sequence[Message],
        commits: Sequence[Commit],
        ended: Collection[str],
        deleted: Collection[str],
        until: int = 0,
    ) -> None:
        self._target = target
        self._runs: dict[str, list[Message]] = {}
        fresh = _still_there(source, set(ended), set(deleted))
        by_number = {
            message.no: message
            if message.agent not in deleted and message.run not in ended
            else replace(message, value=MISSING)
            for message in messages
            if message.agent not in deleted or message.no in fresh
        }
        by_number |= fresh
        self.messages = [
            storable(by_number[no])
            for no in sorted(by_number)
            if not until
            or (by_number[no].at_micros <= until and by_number[no].value is not MISSING)
        ]
        self._arriving: dict[str, list[Message]] = {}
        for message in self.messages:
            if message.value is not MISSING:
                self._arriving.setdefault(message.run, []).append(message)
        self.taken = list(self._taken_by(commits))

    def _taken_by(self, commits: Sequence[Commit]) -> Iterator[int]:
        """Yields the numbers of the messages that commits took out, by their records."""
        for commit in commits:
            for record in commit.typed:
                yield from self._taken(record)

    def _taken(self, record: Record) -> list[int]:
        run = record.run
        match record:
            case Started():
                return self._take(run, lambda message: message.kind == "start")
            case WaitEnded():
                said = (message_key(record.key), record.at, record.who)
                return self._take(
                    run, lambda one: (message_key(one.key), one.at_micros, one.who) == said
                )
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
            there |= {message.no: message for message in self._arriving.get(run, ())}
            self._runs[run] = list(there.values())
        return self._runs[run]


def storable(message: Message) -> Message:
    """Returns a message that every backend can keep: an older version stored long keys as they
    were."""
    key = message_key(message.key)
    return message if key is message.key else replace(message, key=key)


def _still_there(source: Backend, ended: set[str], deleted: set[str]) -> dict[int, Message]:
    """Returns the source's current messages for these runs and agents, by number: they came after
    the shipped ends. For names that live again, also messages taken out since."""
    found = [message for run in ended for message in source.inbox(run)]
    if deleted:
        starts = [one for one in source.inbox(kind="start") if one.agent in deleted]
        found += [message for start in starts for message in source.inbox(start.run)]
    again = {name for name in deleted if _lives(source, name)}
    if again:
        found += [message for message in all_mail(source) if message.agent in again]
    return {message.no: message for message in found}


def _lives(source: Backend, name: str) -> bool:
    info = source.agent(name)
    return info is not None and not info.deleted


def taken_by_then(source: Backend, target: Backend, until: int) -> Iterator[Message]:
    """Yields messages that runs had taken out by the moment to which a target is restored, without
    their values: a sender that repeats one of them must be told that it is known. Messages that
    were taken out later are left out; they have to be sent again."""
    gone = (one for one in all_mail(source) if one.value is MISSING and one.at_micros <= until)
    for run, messages in _by_run(gone):
        yield from map(storable, _taken_by(target, run, messages))


def forget_untaken(target: Backend, agents: Collection[str] | None) -> None:
    """Lets a target forget the messages that it knows as taken out by commits that will not come to
    it: these have to be sent again, and must not be taken for known then.

    Args:
        agents: only messages to these; None: to all.
    """
    numbers = _untaken(target, agents)
    while part := [*islice(numbers, PAGE)]:
        target.ship(Shipment(forgotten=part))


def _untaken(target: Backend, agents: Collection[str] | None) -> Iterator[int]:
    gone = (one for one in all_mail(target) if one.value is MISSING)
    for run, messages in _by_run(gone):
        if agents is None or messages[0].agent in agents:
            taken = {one.no for one in _taken_by(target, run, messages)}
            yield from (one.no for one in messages if one.no not in taken)


def _by_run(messages: Iterable[Message]) -> Iterable[tuple[str, list[Message]]]:
    found: dict[str, list[Message]] = {}
    for message in messages:
        found.setdefault(message.run, []).append(message)
    return found.items()


def _taken_by(target: Backend, run: str, messages: Sequence[Message]) -> Iterator[Message]:
    """Yields those of the messages to a run that it took out according to the log."""
    rows = target.runs(RunQuery(run_id=run))
    if not rows:
        return  # it had not begun
    over = rows[0].status in FINISHED
    took, lacking = (set(), 0) if over else _took(target, rows[0])
    for message in messages:
        said = message_key(message.key), message.at_micros, message.who
        if over or message.kind == "start" or said in took or message.at_micros <= lacking:
            yield message


def _took(target: Backend, run: RunInfo) -> tuple[set[tuple[str, int, str]], int]:
    """Returns the messages that a run took out according to the log, by key, time and sender; and
    the time of the last of its commits of which retention removed what it says."""
    took: set[tuple[str, int, str]] = set()
    lacking = 0
    info = target.agent(run.agent)
    if info is None or info.no != run.agent_no:
        return took, lacking
    for commit in LogReader(target, info).commits(run.started, damaged_too=True):
        if commit.trimmed:
            lacking = commit.at_micros
        for record in commit.typed:
            if record.run != run.id:
                continue
            if isinstance(record, WaitEnded) and record.at is not None:
                took.add((message_key(record.key), int(record.at), record.who))
            for one in left_over(record):
                took.add((message_key(str(one.key)), int(one.at), str(one.who)))
    return took, lacking


def all_mail(source: Backend) -> Iterable[Message]:
    """Yields all messages of a store, those that were taken out without their values."""
    return mail_from(source, "")


def mail_from(source: Backend, cursor: str) -> Iterator[Message]:
    """Yields all messages since a cursor, also those that the feed holds back because a foreign
    transaction has not ended."""
    while (part := source.mail(cursor, limit=PAGE, to_the_end=True)).messages:
        yield from part.messages
        cursor = part.cursor
