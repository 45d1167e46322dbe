"""The contract of the storage port on the feed over all agents: in order, and none is missed."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.core.format import chain
from perdure.errors import NotFound
from perdure.private import new_folder
from perdure.storage.appending import Appended
from perdure.storage.capabilities import Backend
from perdure.storage.port import Fed
from perdure.testing.pen import Contract, Pen, refused


def drained(backend: Backend, cursor: str = "", limit: int = 1000) -> tuple[list[Fed], str]:
    """Returns everything that the feed has behind a cursor."""
    entries: list[Fed] = []
    while (part := backend.feed(cursor, limit=limit)).entries:
        assert len(part.entries) <= limit
        entries += part.entries
        cursor = part.cursor
    return entries, cursor


def places(entries: Sequence[Fed]) -> dict[str, list[int]]:
    """Returns the seqs of each agent's incarnation, in the order in which they were fed, repeats
    left out: a commit may be fed more than once."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        seqs = found.setdefault(f"{entry.agent}/{entry.incarnation}", [])
        if entry.commit.seq not in seqs:
            seqs.append(entry.commit.seq)
    return found


class FeedContract(Contract):
    """Tests of the feed."""

    def test_the_feed_of_an_empty_store_is_empty(self, backend: Backend) -> None:
        part = backend.feed()
        assert part.entries == []
        Pen(backend).write()
        assert places(drained(backend, part.cursor)[0]) == {"a/1": [1]}

    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_the_feed_has_every_commit_in_order_per_agent(
        self, backend: Backend, limit: int
    ) -> None:
        pens = [Pen(backend, name) for name in ("a", "b", "c")]
        for n in range(4):
            for pen in pens:
                pen.write("main" if n < 3 else "side")
        entries, cursor = drained(backend, limit=limit)
        assert places(entries) == {f"{name}/1": [1, 2, 3, 4] for name in "abc"}
        for entry in entries:
            (row,) = backend.read(entry.no, entry.commit.seq, entry.commit.seq)
            assert row == entry.commit
            info = backend.agent(entry.agent, entry.incarnation)
            assert info is not None and info.no == entry.no
        assert backend.feed(cursor).entries == []
        assert drained(backend, backend.feed(cursor).cursor)[0] == []

    def test_the_feed_goes_on_where_it_was(self, backend: Backend, pen: Pen) -> None:
        other = Pen(backend, "b")
        pen.write()
        other.write()
        _, cursor = drained(backend)
        pen.write()
        Pen(backend, "new").write()
        entries, later = drained(backend, cursor)
        assert places(entries) == {"a/1": [2], "new/1": [1]}
        assert places(drained(backend, cursor)[0]) == places(entries)  # an old cursor still serves
        other.write()
        assert places(drained(backend, later)[0]) == {"b/1": [2]}

    def test_the_feed_has_what_was_deleted(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write(delete_agent=True)
        Pen(backend, "a", incarnation=2).write()
        assert places(drained(backend)[0]) == {"a/1": [1, 2], "a/2": [1]}

    def test_the_feed_has_nothing_of_what_was_refused(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        _, cursor = drained(backend)
        moved, _ = pen.make(expected=7)
        assert refused(backend.append([moved])[0]) == "moved"
        whole = Pen(backend, "whole")
        first, tail = whole.make()
        whole.tail = tail
        broken, _ = whole.make(expected=7)
        (outcome,) = backend.append([replace(first, then=[broken])])
        assert refused(outcome) == "moved"
        assert backend.feed(cursor).entries == []
        (outcome,) = backend.append([first])
        assert isinstance(outcome, Appended)
        assert places(drained(backend, cursor)[0]) == {"whole/1": [1]}

    def test_a_busy_agent_does_not_keep_the_others_from_their_turn(self, backend: Backend) -> None:
        busy, quiet = Pen(backend, "busy"), Pen(backend, "quiet")
        busy.write()
        quiet.write()
        _, cursor = drained(backend)
        seen: list[str] = []
        quiet.write()
        for _ in range(6):
            for _ in range(4):
                busy.write()
            part = backend.feed(cursor, limit=2)
            seen += [entry.agent for entry in part.entries]
            cursor = part.cursor
        assert "quiet" in seen

    @pytest.mark.parametrize("text", ["x", "-1", "é", "bm90IGEgY3Vyc29y", "0" * 64, "1-99", "[]"])
    def test_rubbish_is_no_cursor(self, backend: Backend, pen: Pen, text: str) -> None:
        pen.write()
        with pytest.raises(NotFound, match="feed"):
            backend.feed(text)

    def test_another_stores_cursor_is_refused(self, place: Path) -> None:
        for name in ("one", "other"):
            new_folder(str(place / name))
        one, other = self.open(place / "one"), self.open(place / "other")
        for backend in (one, other):
            for _ in range(3):
                Pen(backend, f"agent-{random.random()}").write()
        cursor = one.feed().cursor
        with pytest.raises(NotFound, match="feed"):
            other.feed(cursor)
        one.close()
        other.close()

    def test_a_cursor_outlives_the_store_that_is_open(self, place: Path) -> None:
        if not self.durable:
            return
        backend = self.open(place)
        pen = Pen(backend)
        pen.write()
        _, cursor = drained(backend)
        pen.write()
        backend.close()
        backend = self.open(place)
        assert places(drained(backend, cursor)[0]) == {"a/1": [2]}
        backend.close()

    def test_no_late_committer_is_missed(self, place: Path) -> None:
        """Writers of their own connections commit side by side while the feed is read; a number
        that was drawn early and committed late must not be passed over."""
        backend = self.open(place)
        openers = [self.open(place) if self.durable else backend for _ in range(3)]
        writing = threading.Barrier(len(openers) + 1)
        errors: list[BaseException] = []

        def write(opener: Backend, name: str) -> None:
            try:
                writing.wait()
                pens = [Pen(opener, f"{name}-{n}") for n in range(3)]
                for n in range(30):
                    pens[n % 3].write()
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=write, args=(opener, f"w{n}"))
            for n, opener in enumerate(openers)
        ]
        for thread in threads:
            thread.start()
        writing.wait()
        entries, cursor = [], ""
        while any(thread.is_alive() for thread in threads):
            part = backend.feed(cursor, limit=7)
            entries += part.entries
            cursor = part.cursor
        for thread in threads:
            thread.join()
        entries += drained(backend, cursor)[0]
        assert errors == []
        assert places(entries) == {
            f"w{n}-{m}/1": list(range(1, 11)) for n in range(3) for m in range(3)
        }
        ids = {chain.commit_id(entry.commit.header) for entry in entries}
        assert len(ids) == 90
        for opener in openers:
            opener.close()
        backend.close()
