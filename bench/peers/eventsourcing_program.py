"""The `eventsourcing` library in the field, in its own environment, on its SQLite module: `FOLDER`.

As shipped: a conversation is an aggregate, a message an event; no snapshots unless asked for.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar
from uuid import NAMESPACE_URL, uuid4, uuid5

import eventsourcing.sqlite  # type: ignore[import-not-found]  # noqa: F401  (it would later)
from eventsourcing.application import (  # type: ignore[import-not-found]
    AggregateNotFoundError,
    Application,
)
from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found]

from bench.peers.contest import LISTED, Contestant, contend, in_threads, message, timed, token
from bench.peers.serving import Answer, Missing, result

ID = uuid5(NAMESPACE_URL, "conversation")


class Conversation(Aggregate):  # type: ignore[misc]
    @event("Began")  # type: ignore[untyped-decorator]
    def __init__(self, id: object) -> None:  # the library names it so
        self._id = id
        self.messages: list[str] = []

    @event("Said")  # type: ignore[untyped-decorator]
    def say(self, text: str) -> None:
        self.messages.append(text)


class Events(Contestant):
    package: ClassVar[str] = "eventsourcing"

    def open(self) -> int:
        path = Path(self.folder) / "events.db"
        self.app = Application(
            env={
                "PERSISTENCE_MODULE": "eventsourcing.sqlite",
                "SQLITE_DBNAME": str(path),
            }
        )
        try:
            self.conversation = self.app.repository.get(ID)
        except AggregateNotFoundError:
            self.conversation = Conversation(ID)
            self.app.save(self.conversation)
        return len(self.conversation.messages)

    def close(self) -> None:
        self.app.close()

    def _timed(self, conversation: Conversation, texts: list[str]) -> Answer:
        with timed() as clock:
            for text in texts:
                conversation.say(text)
                self.app.save(conversation)
        return clock.answer(len(texts))

    def say(self, count: int) -> Answer:
        first = len(self.conversation.messages) + 1
        return self._timed(self.conversation, [message(first + number) for number in range(count)])

    def steps(self, count: int) -> Answer:
        return self._timed(Conversation(uuid4()), [result(number) for number in range(count)])

    def tokens(self, count: int) -> Answer:
        return self._timed(Conversation(uuid4()), [token(number) for number in range(count)])

    def concurrent(self, runs: int, count: int) -> Answer:
        texts = [result(number) for number in range(count)]
        works = [partial(self._timed, Conversation(uuid4()), texts) for _ in range(runs)]
        with timed() as clock:
            in_threads(works)
        return clock.answer(runs * count)

    def past(self, at: int) -> Answer:
        with timed() as clock:
            found = self.app.repository.get(ID, version=at + 1)
        assert len(found.messages) == at
        return clock.answer(1)

    def recent(self) -> Answer:
        with timed() as clock:
            list(islice(self.app.events.get(ID, desc=True, limit=LISTED), LISTED))
        return clock.answer(1)

    def delete(self) -> Answer:
        raise Missing("events are for ever")


if __name__ == "__main__":
    contend(Events(sys.argv[1]))
