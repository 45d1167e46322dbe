"""The signals that the runs of a log have taken.

A sender that repeats one of them, under its key, must be told that it is known. A store knows that
by its inboxes, in which a message stays after it was taken out; a store that takes in a log has
only the log. A signal counts as taken as long as its run has it: not if the run gave it back, or
gets it again since it was set back. Such a signal may be waiting in the inbox of the log's old
store, which does not come along; a sender that repeats it does the right thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from msgspec import Struct, field

from perdure.core.format.records import Record, SetBack
from perdure.core.format.rows import check_message
from perdure.errors import Unstorable
from perdure.missing import MISSING
from perdure.model import MICROS_MAX, Commit, Message
from perdure.state.runs.run_reading import RecordedWaits, SignalUse
from perdure.state.runs.unused_signals import base_key

_Which = tuple[str, str]
"""A signal's name, and the key under which it was sent first."""


class _Life(Struct):
    """The signals in the commits of one run.

    Attributes:
        events: by commit: a signal taken, or, with None, given back.
        left: the signals that it had not used when it ended.
        last: the last commit from which its history is known.
    """

    events: list[tuple[int, _Which, Message | None]] = field(default_factory=list)
    left: dict[_Which, Message] = field(default_factory=dict)
    last: int = 0

    def held(self, parents: Mapping[int, int]) -> dict[_Which, Message]:
        """Returns the signals that it has on the history that it continues.

        Args:
            parents: the parents of the log's commits, by seq.
        """
        path: set[int] = set()
        at, first = self.last, self.events[0][0] if self.events else self.last + 1
        while at >= first:
            path.add(at)
            at = parents.get(at, 0)  # one that is missing from the log has none
        held: dict[_Which, Message] = {}
        for seq, which, message in self.events:
            if seq in path and message is not None:
                held[which] = message
            elif seq in path:
                held.pop(which, None)
        return held | self.left


class Taken:
    """The signals that runs have taken, computed from the commits of a log, which are fed in
    order."""

    def __init__(self) -> None:
        self._agent = ""
        self._lives: dict[str, _Life] = {}
        self._waits = RecordedWaits()
        self._parents: dict[int, int] = {}

    def note(self, commit: Commit) -> None:
        self._agent = commit.agent
        self._parents[commit.seq] = commit.parent
        for record in commit.typed:
            self._note(commit.seq, record)

    def _note(self, seq: int, record: Record) -> None:
        run = record.run
        self._waits.note(record)
        if isinstance(record, SetBack):
            self._life(run, seq).left.clear()  # they are brought to it again
        for one in self._waits.signals(record):
            if one.how == "given back":
                which = one.name, base_key(one.key)
                self._life(run, seq).events.append((seq, which, None))
            elif (message := self._message(run, one)) is None:
                continue
            elif one.how == "taken":
                self._life(run, seq).events.append((seq, (one.name, message.key), message))
            else:
                self._lives.setdefault(run, _Life()).left[one.name, message.key] = message

    def _life(self, run: str, seq: int) -> _Life:
        life = self._lives.setdefault(run, _Life())
        life.last = seq
        return life

    def _message(self, run: str, use: SignalUse) -> Message | None:
        """Returns the signal as it was sent; None if no store can have taken such a message."""
        name, key, at, who = use.name, use.key, use.at, use.who
        if type(key) is not str or not key or type(at) is not int or not 0 <= at <= MICROS_MAX:
            return None
        message = Message(run, self._agent, "signal", name, base_key(key), MISSING, who, at)
        with suppress(Unstorable):
            check_message(message)
            return message
        return None

    def messages(self) -> Iterator[Message]:
        """Yields all of them, without their values and numbers."""
        for life in self._lives.values():
            yield from life.held(self._parents).values()
