"""The signals that the runs of a log have taken.

A sender that repeats one of them, under its key, must be told that it is known. A store knows that
by its inboxes, in which a message stays after it was taken out; a store that takes in a log has
only the log. A signal counts as taken as long as its run has it: not if the run gave it back, or
gets it again since it was set back. Such a signal may be waiting in the inbox of the log's old
store, which does not come along; a sender that repeats it does the right thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from perdure.core.format.records import (
    Cancelled,
    Finished,
    Record,
    RunCancelled,
    SetBack,
    WaitBegan,
    WaitEnded,
)
from perdure.core.format.rows import check_message
from perdure.errors import Unstorable
from perdure.missing import MISSING
from perdure.model import MICROS_MAX, Commit, Message
from perdure.state.runs.unused_signals import base_key, signal_names

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

    def held(self, parents: Sequence[int]) -> dict[_Which, Message]:
        """Returns the signals that it has on the history that it continues.

        Args:
            parents: of the log's commits, from the first one on.
        """
        path: set[int] = set()
        at, first = self.last, self.events[0][0] if self.events else self.last + 1
        while at >= first:
            path.add(at)
            at = parents[at - 1]
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
        self._names: dict[tuple[str, str], Mapping[str, str]] = {}
        """By the run and the place of a wait: as `signal_names`."""

    def note(self, commit: Commit) -> None:
        self._agent = commit.agent
        for record in commit.typed:
            self._note(commit.seq, record)

    def _note(self, seq: int, record: Record) -> None:
        run = record.run
        place = run, record.place
        match record:
            case WaitBegan():
                self._names[place] = signal_names(record)
            case WaitEnded():
                name = self._names.get(place, {}).get(record.label)
                if name is not None:
                    message = self._message(run, name, record.key, record.at, record.who)
                    if message is not None:
                        self._life(run, seq).events.append((seq, (name, message.key), message))
            case Cancelled():
                match record.gave_back:
                    case [str(name), str(key)]:
                        life = self._life(run, seq)
                        life.events.append((seq, (name, base_key(key)), None))
            case SetBack():
                self._life(run, seq).left.clear()  # they are brought to it again
            case Finished() | RunCancelled():
                for one in record.left:
                    name, who = str(one.get("name", "")), one.get("who", "")
                    if message := self._message(run, name, one.get("key"), one.get("at"), who):
                        self._lives.setdefault(run, _Life()).left[name, message.key] = message

    def _life(self, run: str, seq: int) -> _Life:
        life = self._lives.setdefault(run, _Life())
        life.last = seq
        return life

    def _message(self, run: str, name: str, key: Any, at: Any, who: Any) -> Message | None:
        """Returns the signal as it was sent; None if no store can have taken such a message."""
        if type(key) is not str or not key or type(at) is not int or not 0 <= at <= MICROS_MAX:
            return None
        message = Message(run, self._agent, "signal", name, base_key(key), MISSING, who, at)
        with suppress(Unstorable):
            check_message(message)
            return message
        return None

    def messages(self, parents: Sequence[int]) -> Iterator[Message]:
        """Yields all of them, without their values and numbers.

        Args:
            parents: of the log's commits, from the first one on.
        """
        for life in self._lives.values():
            yield from life.held(parents).values()
