"""Rows of runs and their inbox in dicts: that part of the memory backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core import codec
from perdure.model import FINISHED, MISSING, UNFINISHED, Message, MessageKind, RunInfo
from perdure.storage.answers import Mail
from perdure.storage.cursors import foreign_cursor, number_of
from perdure.storage.port import Refused, Sent
from perdure.storage.standing import number_taken
from perdure.storage.undoing import Undo


class RunTable(Struct):
    """Not thread-safe: its backend's lock orders its users. `undo` notes what it changes."""

    undo: Undo
    rows: dict[str, RunInfo] = field(default_factory=dict)
    waiting: dict[int, Message] = field(default_factory=dict)
    put_in: dict[tuple[str, str, str, str], Message] = field(default_factory=dict)
    last_no: int = 0

    def note(self) -> None:
        """Before anything may become of it."""
        for name in ("rows", "waiting", "put_in"):
            self.undo.field(self, name)
            setattr(self, name, getattr(self, name).copy())
        self.undo.field(self, "last_no")

    def in_order(self) -> None:
        """Behind a change that was taken back: what was deleted comes back at the end."""
        self.waiting = dict(sorted(self.waiting.items()))
        self.put_in = dict(sorted(self.put_in.items(), key=_number_of))

    # -- rows --------------------------------------------------------------------------------

    def put(self, row: RunInfo) -> None:
        self.undo.item(self.rows, row.id)
        self.rows[row.id] = row
        if row.status in FINISHED:
            for message in self.inbox(row.id):
                self.consume(message.no)

    def find(
        self, *, agent: str | None, run_id: str | None, unfinished: bool,
        status: Sequence[str] | None, function: str | None, limit: int | None, after: str | None,
        newest_first: bool,
    ) -> list[RunInfo]:  # fmt: skip
        """As `Backend.runs`."""
        rows = list(self.rows.values())
        if newest_first:
            rows.reverse()
        if after is not None:
            ids = [row.id for row in rows]
            rows = rows[ids.index(after) + 1 :] if after in self.rows else []
        found = [
            row for row in rows
            if (agent is None or row.agent == agent)
            and (run_id is None or row.id == run_id)
            and (not unfinished or row.status in UNFINISHED)
            and (status is None or row.status in status)
            and (function is None or row.function == function)
        ]  # fmt: skip
        return found[:limit]

    def of(self, agent: str, run: str) -> list[RunInfo]:
        """The agent's that are unfinished, and the one of that id."""
        return [
            row for row in self.rows.values()
            if row.id == run or (row.agent == agent and row.status in UNFINISHED)
        ]  # fmt: skip

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        """As `Backend.ready`."""
        addressed: dict[str, int] = {}
        for message in self.waiting.values():
            addressed[message.run] = max(message.no, addressed.get(message.run, 0))
        cancelled = {message.run for message in self.waiting.values() if message.kind == "cancel"}
        first = [
            row for row in self.rows.values()
            if row.status == "pending"
            or (row.status == "waiting" and (0 < row.wake_at <= now
                or addressed.get(row.id, 0) > row.seen))
            or (row.status in UNFINISHED and row.id in cancelled)
        ]  # fmt: skip
        there = {row.id for row in first}
        running = (row for row in self.rows.values() if row.status == "running")
        return [*first, *(row for row in running if row.id not in there)][:limit]

    def next_wake(self) -> int:
        """As `Backend.next_wake`."""
        timers = (row.wake_at for row in self.rows.values() if row.status == "waiting")
        return min((timer for timer in timers if timer > 0), default=0)

    # -- the inbox ---------------------------------------------------------------------------

    def send(self, message: Message, now: int) -> Sent | Refused:
        """As `Backend.send`."""
        value = codec.decode(codec.encode(message.value))  # what is not storable is refused here
        place = message.run, message.kind, message.name, message.key
        row = self.rows.get(message.run)
        before = self.put_in.get(place)
        if before is not None:
            return Sent(_own(self.waiting.get(before.no, before)), fresh=False)
        if message.kind == "start":
            if row is not None:
                return Sent(begun(message, row), fresh=False)
        elif row.status in FINISHED if row else not self._starts(message.run):
            return Refused("gone")
        self.undo.field(self, "last_no")
        self.undo.item(self.waiting, self.last_no + 1)
        self.undo.item(self.put_in, place)
        self.last_no += 1
        message = replace(message, value=value, at=now, no=self.last_no)
        self.waiting[message.no] = message
        self.put_in[place] = replace(message, value=MISSING)
        return Sent(_own(message), fresh=True)

    def _starts(self, run: str) -> bool:
        return any(one.run == run and one.kind == "start" for one in self.waiting.values())

    def inbox(
        self, run: str | None = None, *, agent: str | None = None, kind: MessageKind | None = None,
        limit: int | None = None,
    ) -> list[Message]:  # fmt: skip
        """As `Backend.inbox`."""
        found = [
            _own(message) for message in self.waiting.values()
            if run in (None, message.run) and agent in (None, message.agent)
            and kind in (None, message.kind)
        ]  # fmt: skip
        return found[:limit]

    def mail(self, cursor: str, limit: int, url: str) -> Mail:
        """As `Backend.mail`."""
        after = number_of(cursor)
        if (after < 0 and cursor) or after > self.last_no:
            raise foreign_cursor(url)
        numbered = sorted((one for one in self.put_in.values() if one.no > after), key=_number)
        found = [_own(self.waiting.get(one.no, one)) for one in numbered[:limit]]
        return Mail(found, str(found[-1].no) if found else cursor)

    def take_in(self, message: Message) -> None:
        """A message of another store, with its number; see `Shipment`.

        Raises:
            Conflict: the number is another message's.
        """
        place = message.run, message.kind, message.name, message.key
        there = self.put_in.get(place)
        if there is not None and there.no == message.no and message.no in self.waiting:
            return
        if any(one.no == message.no and at != place for at, one in self.put_in.items()):
            raise number_taken(message)
        self.put_in[place] = replace(message, value=MISSING)
        if message.value is not MISSING:
            self.waiting[message.no] = _own(message)
            self.waiting = dict(sorted(self.waiting.items()))
        self.last_no = max(self.last_no, message.no)

    def has_all(self, numbers: Sequence[int]) -> bool:
        return len(set(numbers)) == len(numbers) and all(no in self.waiting for no in numbers)

    def has_unread(
        self, read_to: Mapping[str, int], begun: Sequence[str], taken: Sequence[int]
    ) -> bool:
        """As `Append.read_to` and, of the runs that are begun, `Append.holder`."""
        return any(
            (message.kind == "signal" and message.no > read_to.get(message.run, message.no))
            or (message.kind == "cancel" and message.run in begun)
            or (
                message.kind == "start"
                and (message.run in begun or message.run in read_to)
                and message.no not in taken
            )
            for message in (self.waiting.values() if read_to or begun else ())
        )

    def consume(self, no: int) -> None:
        self.undo.item(self.waiting, no)
        del self.waiting[no]

    def end_agent(self, name: str) -> None:
        for place, message in list(self.put_in.items()):
            if message.agent == name:
                self.undo.item(self.put_in, place)
                self.undo.item(self.waiting, message.no)
                del self.put_in[place]
                self.waiting.pop(message.no, None)


def _number_of(entry: tuple[object, Message]) -> int:
    return entry[1].no


def _number(message: Message) -> int:
    return message.no


def begun(message: Message, row: RunInfo) -> Message:
    """What stands for the "start" of a run that began without one."""
    return replace(message, value=MISSING, at=row.started_at, no=0)


def _own(message: Message) -> Message:
    """With a value of its own: whoever gets it may change it."""
    if message.value is MISSING:
        return message
    value: Any = codec.decode(codec.encode(message.value))
    return replace(message, value=value)
