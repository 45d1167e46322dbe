"""The contract of the storage port on purging: what is removed, what stays, and that it may be
interrupted anywhere and repeated."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.errors import Conflict
from perdure.model import Checkpoint, Message
from perdure.storage.appending import Append, Appended, Refused, StoredSnapshot
from perdure.storage.capabilities import (
    INBOX,
    REMOVAL,
    RUN_ROWS,
    Backend,
    RunQuery,
    Sent,
    Shipment,
)
from perdure.testing.pen import Contract, Pen, a_run, needs, refused


def a_long_log(pen: Pen, commits: int = 9, *, purge: bool = False) -> list[Append]:
    """Writes a log with snapshots, leaves, keys, a checkpoint, a second branch and a run; deleted
    at the end."""
    run = replace(a_run(f"r-{pen.agent}", status="done", ended=2), agent=pen.agent)
    written = [pen.write(key=("first", b"asked"), runs=[run])]
    for number in range(2, commits - 1):
        ids = [pen.number() * 1000 + leaf for leaf in range(number)]
        new = ids if number == 2 else ids[-1:]
        snapshot = StoredSnapshot(b"manifest", ids, dict.fromkeys(new, b"leaf"))
        written.append(pen.write(value=number, snapshot=snapshot if number < 5 else None))
    point = Checkpoint("named", commits - 1, "", "dict", (1, 0), None, {}, None, None)
    written.append(pen.write("side", checkpoint=point))
    written.append(pen.write(delete_agent=True, purge=purge))
    return written


def purged(backend: Backend, no: int, limit: int = 500) -> int:
    """Purges everything; returns the number of parts."""
    parts = 1
    while backend.purge(no, limit):
        parts += 1
        assert parts < 1000
    return parts


@needs(RUN_ROWS, REMOVAL)
class PurgingContract(Contract):
    """Tests of purging."""

    def test_what_is_deleted_to_be_purged_is_named_until_it_is(self, backend: Backend) -> None:
        pens = [Pen(backend, name) for name in "abc"]
        for pen in pens:
            a_long_log(pen, purge=pen.agent != "b")
        numbers = [pens[0].number(), pens[2].number()]
        assert [info.no for info in backend.to_purge()] == numbers
        assert [info.no for info in backend.to_purge(numbers[0])] == numbers[1:]
        assert [info.no for info in backend.to_purge(limit=1)] == numbers[:1]
        assert all(info.deleted and not info.purged for info in backend.to_purge())
        purged(backend, numbers[0])
        assert [info.no for info in backend.to_purge()] == numbers[1:]

    def test_only_the_last_commit_stays(self, backend: Backend, pen: Pen) -> None:
        other = Pen(backend, "other")
        theirs = a_long_log(other)
        mine = a_long_log(pen, purge=True)
        before = backend.maintain("sizes", no=other.number())
        purged(backend, pen.number())
        (row,) = backend.read(pen.number(), 1, 99)
        assert (row.seq, row.header, row.payload) == (9, mine[-1].header, mine[-1].payload)
        assert backend.read(pen.number(), 1, 99, newest_first=True, limit=3) == [row]
        assert backend.snapshot(pen.number(), 3) is None
        assert backend.refs(pen.number()) == []
        assert backend.key(pen.number(), "first") is None
        assert backend.runs(RunQuery(agent="a")) == []
        sizes = backend.maintain("sizes", no=pen.number())
        assert (sizes.commits, sizes.snapshots, sizes.leaves) == (1, 0, 0)
        info = backend.agent("a")
        assert info is not None and info.deleted and info.purged and info.seq == 9
        assert [row.header for row in backend.read(other.number(), 1, 99)] == [
            item.header for item in theirs
        ]
        after = backend.maintain("sizes", no=other.number())
        assert replace(after, file_bytes=0) == replace(before, file_bytes=0)

    @needs(INBOX)
    def test_i2_an_agent_is_made_and_deleted_at_once(self, backend: Backend) -> None:
        """There was nothing of it but the request of a run, which nobody could delete."""
        sent = backend.send(Message("a/f/main", "a", "start", "f", value={"args": [1]}))
        assert isinstance(sent, Sent)
        outcome: object = None
        for consumed in ([], [sent.message.no]):
            pen = Pen(backend)
            first, tail = pen.make()
            pen.no, pen.tail, pen.heads["main"] = 0, tail, 1
            gone: dict[str, Any] = {"delete_agent": True, "purge": True, "starts_read": True}
            end, _ = pen.make(consumed=consumed, **gone)
            (outcome,) = backend.append([replace(first, then=[replace(end, no=None)])])
            if not consumed:
                assert refused(outcome) == "unread"
                assert backend.agent("a") is None and backend.inbox() == [sent.message]
        assert isinstance(outcome, Appended)
        info = backend.agent("a")
        assert info is not None and (info.incarnation, info.seq, info.deleted) == (1, 2, True)
        assert backend.inbox() == [] and backend.agents() == []
        assert backend.send(Message("a/f/main", "a", "start", "f")) == Refused("gone")
        assert [one.no for one in backend.to_purge()] == [info.no]
        purged(backend, info.no)
        assert [row.seq for row in backend.read(info.no, 1, 99)] == [2]
        assert Pen(backend, incarnation=2).write().seq == 1

    def test_one_that_lives_is_not_purged(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        with pytest.raises(Conflict, match="not deleted"):
            backend.purge(pen.number())
        assert len(backend.read(pen.number(), 1, 9)) == 1
        assert backend.to_purge() == []

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_it_goes_on_where_it_was_ended(
        self, backend: Backend, pen: Pen, place: Path, limit: int
    ) -> None:
        a_long_log(pen, purge=True)
        assert backend.purge(pen.number(), limit)
        info = backend.agent("a")
        assert info is not None and info.purged
        if self.durable:
            backend.close()
            backend = self.open(place)
        assert [info.no for info in backend.to_purge()] == [pen.number()]
        purged(backend, pen.number(), limit)
        assert not backend.purge(pen.number())
        assert backend.to_purge() == []
        assert [row.seq for row in backend.read(pen.number(), 1, 99)] == [9]
        backend.close()

    def test_what_was_kept_may_be_purged_later(self, backend: Backend, pen: Pen) -> None:
        a_long_log(pen)
        assert backend.to_purge() == []
        purged(backend, pen.number())
        assert len(backend.read(pen.number(), 1, 99)) == 1

    def test_no_write_brings_it_back_and_its_name_is_free(self, backend: Backend) -> None:
        pen = Pen(backend)
        a_long_log(pen, purge=True)
        late = [pen.make()[0], pen.make("new")[0]]
        purged(backend, pen.number())
        assert [refused(one) for one in backend.append(late)] == ["gone", "gone"]
        again = Pen(backend, incarnation=2)
        again.write(runs=[a_run("r2")])
        assert again.number() != pen.number()
        assert not backend.purge(pen.number())
        assert [run.id for run in backend.runs(RunQuery(agent="a"))] == ["r2"]
        info = backend.agent("a")
        assert info is not None and not info.purged and info.incarnation == 2

    def test_a_feed_goes_on_behind_what_is_gone(self, backend: Backend, pen: Pen) -> None:
        written = a_long_log(pen, purge=True)
        part = backend.feed(limit=4)
        assert [entry.commit.seq for entry in part.entries] == [1, 2, 3, 4]
        purged(backend, pen.number())
        rest = backend.feed(part.cursor)
        assert {entry.commit.header for entry in rest.entries} == {written[-1].header}
        assert backend.feed(rest.cursor).entries == []
        assert {entry.commit.seq for entry in backend.feed().entries} == {9}

    @pytest.mark.parametrize("behind", [False, True])
    def test_a_feed_tells_when_a_log_is_purged(
        self, backend: Backend, pen: Pen, behind: bool
    ) -> None:
        """A follower had read the deletion long before: it kept the log that was gone here."""
        written = a_long_log(pen)
        if behind:
            Pen(backend, "b").write()
        before = backend.feed(to_the_end=True).cursor
        for limit in (2, 500):
            backend.purge(pen.number(), limit)
            told = backend.feed(before, to_the_end=True)
            assert [one.commit.header for one in told.entries] == [written[-1].header]
            assert backend.feed(told.cursor, to_the_end=True).entries == []

    def test_what_another_store_has_purged_is_to_be_purged_here(
        self, backend: Backend, pen: Pen
    ) -> None:
        a_long_log(pen)
        again = Pen(backend, incarnation=2)
        again.write()
        places = [("a", 1), ("a", 2)]
        backend.ship(Shipment(to_purge=places))
        assert [(info.name, info.incarnation) for info in backend.to_purge()] == [("a", 1)]
        assert len(backend.read(pen.number(), 1, 9)) == 9
        purged(backend, pen.number())
        backend.ship(Shipment(to_purge=places))
        assert backend.to_purge() == []

    def test_a_grave_comes_from_another_store(self, backend: Backend, pen: Pen) -> None:
        """Of a log that was purged there, before this store had any, a part, or all of it."""
        a_long_log(pen)
        (row,) = backend.read(pen.number(), 9, 9)
        part = Pen(backend, "part")
        part.write(key=("k", b""))
        part.write(runs=[a_run("of part", status="running")])
        item = Append("new", None, 3, 9, row.header, row.payload, "main", None)
        graves = [
            item,
            replace(item, agent="part", incarnation=1),
            replace(item, agent="a", incarnation=1),
        ]
        for _ in range(2):
            backend.ship(Shipment(graves=graves))
            for name, incarnation in (("new", 3), ("part", 1)):
                info = backend.agent(name, incarnation)
                assert info is not None
                assert (info.deleted, info.purged, info.seq) == (True, True, 9)
            assert {info.name for info in backend.to_purge()} == {"new", "part"}
        assert len(backend.read(pen.number(), 1, 9)) == 9
        purged(backend, part.number(), 2)
        assert [one.seq for one in backend.read(part.number(), 1, 9)] == [9]
        assert backend.runs(RunQuery(agent="part")) == []
        assert backend.key(part.number(), "k") is None
        fed = [(entry.agent, entry.commit.seq) for entry in backend.feed().entries]
        assert ("new", 9) in fed and ("part", 9) in fed

    def test_room_can_be_given_back(self, backend: Backend, pen: Pen) -> None:
        for number in range(20):
            pen.write(value=Random(number).randbytes(50_000).hex())
        pen.write(delete_agent=True)
        backend.maintain("clean")
        before = backend.maintain("sizes")
        purged(backend, pen.number())
        backend.maintain("shrink")
        after = backend.maintain("sizes")
        assert after.commits == 1
        assert after.payload_bytes < before.payload_bytes
        assert after.file_bytes < before.file_bytes or not before.file_bytes
        backend.maintain("check")
