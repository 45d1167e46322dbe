"""The contract of the storage port on retention: removed payloads of a living log, and what must
not be built on them."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from perdure.storage.appending import Appended, StoredSnapshot
from perdure.storage.capabilities import REMOVAL, Backend, Shipment
from perdure.storage.retention import RETENTION
from perdure.testing.pen import Contract, Pen, needs, refused


@needs(REMOVAL)
class TrimmingContract(Contract):
    """Tests of trimming."""

    def test_payloads_give_way_to_what_is_left_of_them(
        self, backend: Backend, pen: Pen, place: Path
    ) -> None:
        written = [pen.write(value=n, key=(f"k{n}", b"")) for n in range(6)]
        other = Pen(backend, "other")
        theirs = other.write()
        feed = backend.feed().cursor
        assert backend.trim(pen.number(), 0, {2: b"", 3: b"left"})
        assert backend.trim(pen.number(), 0, {3: b"left", 4: b"\0" * 9})
        if self.durable:
            backend.close()
            backend = self.open(place)
        rows = backend.read(pen.number(), 1, 9)
        assert [row.header for row in rows] == [item.header for item in written]
        kept = [written[n].payload for n in (0, 4, 5)]
        assert [row.payload for row in rows] == [kept[0], b"", b"left", b"\0" * 9, *kept[1:]]
        assert backend.read(other.number(), 1, 1)[0].payload == theirs.payload
        assert backend.feed(feed).entries == []
        assert backend.key(pen.number(), "k2") == (3, b"")
        sizes = backend.maintain("sizes", no=pen.number())
        assert (sizes.commits, sizes.payload_bytes) == (6, sum(map(len, kept)) + 13)
        pen.backend = backend
        pen.write()
        backend.close()

    def test_snapshots_go_with_the_leaves_that_nobody_else_names(self, backend: Backend) -> None:
        """The first leaf is shared by all three, the second by two, the others are one's own."""
        pen, other = Pen(backend), Pen(backend, "other")
        for writer, offset in ((pen, 0), (other, 100)):
            for number, ids in enumerate(([1, 2], [1, 2, 3], [1, 4])):
                ids = [leaf + offset for leaf in ids]
                new = ids if not number else ids[-1:]
                leaves = {leaf: b"leaf %d" % leaf for leaf in new}
                writer.write(value=number, snapshot=StoredSnapshot(b"manifest", ids, leaves))
        assert backend.trim(pen.number(), 0, {}, [1, 2])
        assert backend.snapshot(pen.number(), 1) is backend.snapshot(pen.number(), 2) is None
        left = backend.snapshot(pen.number(), 3)
        assert left is not None and left.leaves == {1: b"leaf 1", 4: b"leaf 4"}
        assert [row.snapshotted for row in backend.read(pen.number(), 1, 3)] == [False, False, True]
        assert backend.maintain("sizes", no=pen.number()).leaves == 2
        assert backend.trim(pen.number(), 0, {}, [1, 2, 3])
        assert backend.maintain("sizes", no=pen.number()).leaves == 0
        theirs = backend.snapshot(other.number(), 2)
        assert theirs is not None and len(theirs.leaves) == 3

    def test_a_snapshot_that_shares_a_leaf_that_went_is_refused(
        self, backend: Backend, pen: Pen
    ) -> None:
        """A process that had read an older snapshot goes on from its leaves."""
        pen.write(snapshot=StoredSnapshot(b"manifest", [1, 2], {1: b"one", 2: b"two"}))
        pen.write(snapshot=StoredSnapshot(b"manifest", [1, 3], {3: b"three"}))
        assert backend.trim(pen.number(), 0, {}, [1])
        late, tail = pen.make(snapshot=StoredSnapshot(b"manifest", [1, 2, 4], {4: b"four"}))
        assert refused(backend.append([late])[0]) == "leaves"
        assert len(backend.read(pen.number(), 1, 9)) == 2
        assert backend.snapshot(pen.number(), 3) is None
        without = replace(late, snapshot=None)
        (outcome,) = backend.append([without])
        assert isinstance(outcome, Appended)
        pen.accept(without, tail, outcome)
        pen.write(snapshot=StoredSnapshot(b"manifest", [1, 3, 5], {5: b"five"}))
        found = backend.snapshot(pen.number(), 4)
        assert found is not None and sorted(found.leaves) == [1, 3, 5]

    def test_what_is_built_without_knowing_what_went_is_refused(
        self, backend: Backend, pen: Pen
    ) -> None:
        pen.write()
        pen.write("early", trims=0)
        said = pen.write(RETENTION)
        for known in (0, 1, said.seq + 1):
            late, _ = pen.make("late", trims=known)
            assert refused(backend.append([late])[0]) == "trimmed"
            late, _ = pen.make(trims=known)
            assert refused(backend.append([late])[0]) == "trimmed"
        pen.write("late", trims=said.seq)
        pen.write(trims=said.seq)
        pen.write()
        said = pen.write(RETENTION, trims=said.seq)
        pen.write("later", trims=said.seq)

    def test_nothing_is_done_for_an_old_word(self, backend: Backend, pen: Pen) -> None:
        written = [pen.write(value=n) for n in range(3)]
        word = pen.write(RETENTION).seq
        for old in (0, word - 1, word + 1):
            assert not backend.trim(pen.number(), old, {2: b"left"}, [1])
        assert [row.payload for row in backend.read(pen.number(), 1, 3)] == [
            item.payload for item in written
        ]
        assert backend.trim(pen.number(), word, {2: b"left"})
        assert backend.read(pen.number(), 2, 2)[0].payload == b"left"

    def test_what_is_left_comes_from_another_store(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        item, tail = pen.make()
        pen.tail, pen.heads["main"] = tail, item.seq
        late, _ = pen.make()
        shipped = [
            replace(one, no=None, payload=payload)
            for one, payload in ((item, b"left"), (late, late.payload))
        ]
        backend.ship(Shipment(appends=shipped))
        rows = backend.read(pen.number(), 1, 9)
        assert [row.payload for row in rows[1:]] == [b"left", late.payload]
