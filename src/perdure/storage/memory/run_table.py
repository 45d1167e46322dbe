"""Rows of runs and their inbox in dicts: a part of the memory backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace

from perdure.core.arguments.names import incarnation_of
from perdure.core.values import codec
from perdure.missing import MISSING
from perdure.model import FINISHED, UNFINISHED, Message, RunInfo
from perdure.storage.answers import Mail
from perdure.storage.appending import Refused
from perdure.storage.capabilities import RunQuery, Sent
from perdure.storage.cursors import foreign_cursor, number_of
from perdure.storage.due import due_since
from perdure.storage.memory.shelves import Shelves
from perdure.storage.memory.undoing import Undo
from perdure.storage.standing import number_taken
from perdure.storage.wanted import InboxQuery

Place = tuple[str, str, str, str]
"""Run, kind, name and key of a message: what it is put in once by."""


class RunTable:
    """Not thread-safe: its backend's lock orders its users. `undo` notes what it changes."""

    __slots__ = ("last_no", "places", "put_in", "rows", "undo", "waiting")

    def __init__(self, undo: Undo) -> None:
        self.undo = undo
        self.rows: Shelves[str, RunInfo] = Shelves(undo, _labels_of_row)
        self.waiting: Shelves[int, Message] = Shelves(undo, _labels)
        self.put_in: dict[Place, Message] = {}
        self.places: dict[int, Place] = {}
        """Of those that were put in, by number."""
        self.last_no = 0

    def note(self) -> None:
        """Notes everything before any change of it."""
        self.rows.note()
        self.waiting.note()
        for name in ("put_in", "places"):
            self.undo.field(self, name)
            setattr(self, name, getattr(self, name).copy())
        self.undo.field(self, "last_no")

    def in_order(self) -> None:
        """Restores the order after a change was taken back: what was deleted comes back at the
        end."""
        self.waiting.in_order()
        self.put_in = dict(sorted(self.put_in.items(), key=_number_of))

    # -- rows --------------------------------------------------------------------------------

    def put(self, row: RunInfo) -> None:
        self.rows.put(row.id, _own_row(row))
        if row.status in FINISHED:
            for number in [*self.waiting.of(("run", row.id))]:
                self.consume(number)

    def drop(self, agent: str, agent_no: int) -> None:
        """Drops the rows of one incarnation of an agent."""
        for row in [*self.rows.of(agent).values()]:
            if row.agent_no == agent_no:
                self.rows.take(row.id)

    def find(self, query: RunQuery) -> list[RunInfo]:
        """See `RunRows.runs`."""
        rows = self._some(query.agent, query.run_id)
        if query.newest_first:
            rows.reverse()
        if query.after is not None:
            rows = self._behind(query.after, rows, newest_first=query.newest_first)
        found = (
            row
            for row in rows
            if (query.agent is None or row.agent == query.agent)
            and (not query.unfinished or row.status in UNFINISHED)
            and (query.status is None or row.status in query.status)
            and (query.function is None or row.function == query.function)
            and (query.parent is None or row.parent == query.parent)
        )
        return [_own_row(row) for row in islice(found, query.limit)]

    def _some(self, agent: str | None, run_id: str | None) -> list[RunInfo]:
        """Returns rows that include those of an agent, or the one of an id."""
        if run_id is not None:
            row = self.rows.all.get(run_id)
            return [row] if row is not None else []
        return [*(self.rows.all if agent is None else self.rows.of(agent)).values()]

    def _behind(self, after: str, rows: list[RunInfo], *, newest_first: bool) -> list[RunInfo]:
        if after not in self.rows.all:
            return []
        ids = [*self.rows.all]
        if newest_first:
            ids.reverse()
        wanted = set(ids[ids.index(after) + 1 :])
        return [row for row in rows if row.id in wanted]

    def of(self, agent: str, run: str) -> list[RunInfo]:
        """Returns the agent's unfinished rows, and the one of that id."""
        rows = self.rows.of(agent).values()
        found = [row for row in rows if row.id == run or row.status in UNFINISHED]
        one = self.rows.all.get(run)
        if one is not None and one.agent != agent:
            found.insert(0, one)
        return [_own_row(row) for row in found]

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        """See `Backend.ready`."""
        addressed: dict[str, int] = {}
        for kind in ("signal", "answer"):
            for message in self.waiting.of(("kind", kind)).values():
                addressed[message.run] = max(message.no, addressed.get(message.run, 0))
        cancelled = {message.run for message in self.waiting.of(("kind", "cancel")).values()}
        first = [
            row
            for row in self.rows
            if row.status == "pending"
            or (
                row.status == "waiting"
                and (0 < row.wake_at_micros <= now or addressed.get(row.id, 0) > row.seen)
            )
            or (row.status in UNFINISHED and row.id in cancelled)
        ]
        first = sorted(first, key=lambda row: due_since(row, now))[:limit]
        there = {row.id for row in first}
        running = (row for row in self.rows if row.status == "running" and row.id not in there)
        return [*first, *islice(running, limit)]

    def next_wake(self) -> int:
        """See `Backend.next_wake`."""
        timers = (row.wake_at_micros for row in self.rows if row.status == "waiting")
        return min((timer for timer in timers if timer > 0), default=0)

    # -- the inbox ---------------------------------------------------------------------------

    def send(
        self, message: Message, now: int, next_incarnation: int, check: Callable[[], None]
    ) -> Sent | Refused:
        """See `Backend.send`.

        Args:
            next_incarnation: the first one of its agent that is not deleted.
            check: raises if a message that would be put in is not taken.
        """
        value = codec.decode(codec.encode(message.value))  # what is not storable is refused here
        place = message.run, message.kind, message.name, message.key
        row = self.rows.all.get(message.run)
        before = self.put_in.get(place)
        if before is not None:
            return Sent(_own(self.waiting.all.get(before.no, before)), fresh=False)
        if message.kind == "start":
            if row is not None:
                return Sent(begun(message, row), fresh=False)
            if incarnation_of(message.run) < next_incarnation:
                return Refused("gone")
        elif row is not None:
            if row.status in FINISHED:
                return Refused("gone")
        elif not self._starts(message.run):
            check()  # the run may be yet to come
            return Refused("gone")
        check()
        self.undo.field(self, "last_no")
        self.last_no += 1
        message = replace(message, value=value, at_micros=now, no=self.last_no)
        self.waiting.put(message.no, message)
        self._put_in(place, message)
        return Sent(_own(message), fresh=True)

    def _put_in(self, place: Place, message: Message) -> None:
        self.undo.item(self.put_in, place)
        self.undo.item(self.places, message.no)
        self.put_in[place] = replace(message, value=MISSING)
        self.places[message.no] = place

    def _starts(self, run: str) -> bool:
        return any(one.kind == "start" for one in self.waiting.of(("run", run)).values())

    def inbox(self, wanted: InboxQuery) -> list[Message]:
        """See `Backend.inbox`."""
        some = self.waiting.all
        for label in ("run", "agent", "kind"):
            if (said := getattr(wanted, label)) is not None:
                some = self.waiting.of((label, said))
                break
        found: Iterable[Message] = some.values()
        if wanted.newest_first or wanted.after:
            found = takewhile(lambda message: message.no > wanted.after, reversed(some.values()))
        if wanted.after and not wanted.newest_first:
            found = reversed([*found])
        fitting = (
            message
            for message in found
            if wanted.agent in (None, message.agent)
            and wanted.kind in (None, message.kind)
            and wanted.name in (None, message.name)
        )
        return [_own(message) for message in islice(fitting, wanted.limit)]

    def mail(self, cursor: str, limit: int, url: str) -> Mail:
        """See `Backend.mail`."""
        after = number_of(cursor)
        if (after < 0 and cursor) or after > self.last_no:
            raise foreign_cursor(url)
        numbered = sorted((one for one in self.put_in.values() if one.no > after), key=_number)
        found = [_own(self.waiting.all.get(one.no, one)) for one in numbered[:limit]]
        return Mail(found, str(found[-1].no) if found else cursor, self.last_no)

    def take_in(self, message: Message) -> None:
        """Puts in a message of another store, with its number; see `Shipment`.

        Raises:
            Conflict: the number is another message's.
        """
        place = message.run, message.kind, message.name, message.key
        there = self.put_in.get(place)
        if there is not None and there.no == message.no and message.no in self.waiting.all:
            return
        if self.places.get(message.no, place) != place:
            raise number_taken(message)
        if there is not None and there.no != message.no:
            self.undo.item(self.places, there.no)
            del self.places[there.no]
        self._put_in(place, message)
        if message.value is not MISSING:
            self.waiting.put(message.no, _own(message))
            if message.no < self.last_no:
                self.waiting.in_order()
        self.last_no = max(self.last_no, message.no)

    def know(self, message: Message) -> None:
        """See `Riders.known`."""
        place = message.run, message.kind, message.name, message.key
        there = self.put_in.get(place)
        if there is not None:
            self.consume(there.no)
            return
        self.undo.field(self, "last_no")
        self.last_no += 1
        self._put_in(place, replace(message, no=self.last_no))

    def has_all(self, numbers: Sequence[int]) -> bool:
        return len(set(numbers)) == len(numbers) and all(no in self.waiting.all for no in numbers)

    def has_unread(
        self, read_to: Mapping[str, int], begun: Sequence[str], taken: Sequence[int]
    ) -> bool:
        """Returns True if a message is unread in the sense of `Riders.read_to` and, for the runs
        that begin, `Riders.holder`."""
        return any(
            (
                message.kind in ("signal", "answer")
                and message.no > read_to.get(message.run, message.no)
            )
            or (message.kind in ("start", "cancel") and message.no not in taken)
            for run in {*read_to, *begun}
            for message in self.waiting.of(("run", run)).values()
        )

    def has_begun(self, fresh: Sequence[str], taken: Sequence[int]) -> bool:
        """Returns True if a run is not new in the sense of `Riders.fresh`."""
        return any(
            run in self.rows.all
            or any(
                one.kind == "start" and one.no not in taken
                for one in self.waiting.of(("run", run)).values()
            )
            for run in fresh
        )

    def has_ended(self, going: Sequence[str]) -> bool:
        """Returns True if a run is over, or not there, in the sense of `Riders.going`."""
        for run in going:
            row = self.rows.all.get(run)
            if row.status in FINISHED if row is not None else not self._starts(run):
                return True
        return False

    def has_start(self, agent: str, taken: Sequence[int]) -> bool:
        """Returns True if a "start" is unread in the sense of `Riders.starts_read`."""
        waiting = self.waiting.of(("agent", agent)).values()
        return any(one.kind == "start" and one.no not in taken for one in waiting)

    def consume(self, no: int) -> None:
        self.waiting.take(no)

    def forget_taken(self, numbers: Iterable[int]) -> None:
        """See `Shipment.forgotten`."""
        for no in numbers:
            if no in self.places and no not in self.waiting.all:
                del self.put_in[self.places.pop(no)]

    def end_agent(self, name: str) -> None:
        for place, message in list(self.put_in.items()):
            if message.agent == name:
                self.undo.item(self.put_in, place)
                self.undo.item(self.places, message.no)
                del self.put_in[place]
                self.places.pop(message.no, None)
                self.waiting.take(message.no)


def _labels(message: Message) -> Iterable[tuple[str, str]]:
    return ("run", message.run), ("agent", message.agent), ("kind", message.kind)


def _labels_of_row(row: RunInfo) -> Iterable[str]:
    return (row.agent,)


def _number_of(entry: tuple[object, Message]) -> int:
    return entry[1].no


def _number(message: Message) -> int:
    return message.no


def begun(message: Message, row: RunInfo) -> Message:
    """Returns a stand-in for the "start" of a run that began without one."""
    return replace(message, value=MISSING, at_micros=row.started_at_micros, no=0)


def _own(message: Message) -> Message:
    """Returns it with a value of its own, which the caller may change."""
    if message.value is MISSING:
        return message
    value: Any = codec.decode(codec.encode(message.value))
    return replace(message, value=value)


def _own_row(row: RunInfo) -> RunInfo:
    """Returns it with a result of its own, which the caller may change."""
    if row.result is None:
        return row
    return replace(row, result=codec.decode(codec.encode(row.result)))
