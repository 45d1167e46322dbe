"""The contract of the storage port, as tests. Subclass it once per backend:

    class TestMyBackend(BackendContract):
        def open(self, place):
            return MyBackend(place / "store")

Every test gets an empty store. A backend for which `durable` is true is closed and opened again in
between, on the same place. Tests of capabilities that a backend does not declare are skipped.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.format import chain
from perdure.core.values import ops
from perdure.errors import PerdureError, StoreUnavailable
from perdure.model import Cause, Checkpoint
from perdure.storage.appending import Appended, Refused, StoredSnapshot
from perdure.storage.capabilities import RUN_ROWS, UPKEEP, WHOLE, Backend
from perdure.testing.contract.bounds import BoundsContract
from perdure.testing.contract.feed import FeedContract
from perdure.testing.contract.fresh import FreshContract
from perdure.testing.contract.going import GoingContract
from perdure.testing.contract.inbox import InboxContract
from perdure.testing.contract.leases import LeasesContract
from perdure.testing.contract.looks import LooksContract
from perdure.testing.contract.notices import NoticesContract
from perdure.testing.contract.purging import PurgingContract
from perdure.testing.contract.runs import RunsContract
from perdure.testing.contract.shipping import ShippingContract
from perdure.testing.contract.taking import TakingContract
from perdure.testing.contract.trimming import TrimmingContract
from perdure.testing.pen import Pen as Pen
from perdure.testing.pen import a_run, needs, refused


class BackendContract(
    BoundsContract,
    RunsContract,
    InboxContract,
    LeasesContract,
    LooksContract,
    NoticesContract,
    FeedContract,
    ShippingContract,
    PurgingContract,
    TakingContract,
    FreshContract,
    GoingContract,
    TrimmingContract,
):
    """The whole contract of a backend."""

    def test_it_declares_what_it_is_tested_for(self, backend: Backend) -> None:
        assert backend.capabilities & WHOLE == self.capabilities

    # -- append ----------------------------------------------------------------------------

    def test_commits_are_read_back_byte_for_byte(self, backend: Backend, pen: Pen) -> None:
        written = [pen.write(value=n) for n in range(5)]
        rows = backend.read(pen.number(), 1, 5)
        assert [(r.seq, r.header, r.payload) for r in rows] == [
            (a.seq, a.header, a.payload) for a in written
        ]
        down = backend.read(pen.number(), 2, 4, newest_first=True, limit=2)
        assert [row.seq for row in down] == [4, 3]
        assert backend.read(pen.number(), 6, 9) == []

    def test_i3_a_taken_place_is_refused(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        late, _ = pen.make()
        pen.write()
        stale = replace(late, expected=pen.heads["main"])
        assert refused(backend.append([stale])[0]) == "stale"
        assert len(backend.read(pen.number(), 1, 9)) == 2

    def test_i3_a_gap_is_refused(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        append, _ = pen.make()
        gap = replace(append, seq=7)
        assert refused(backend.append([gap])[0]) == "stale"

    def test_i3_what_links_to_a_commit_that_never_got_in_is_refused(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Two commits were linked one behind the other and handed over in one batch. Somebody
        else's had taken the first one's place; the second one, whose branch stood where it
        expected, was taken, and named a predecessor that is not in the log."""
        pen.write()
        lost, lost_tail = pen.make(value="lost")
        pen.write(value="somebody else's")
        tail, pen.tail = pen.tail, lost_tail
        behind, _ = pen.make(value="behind")
        assert [refused(one) for one in backend.append([lost, behind])] == ["moved", "stale"]
        fork, _ = pen.make("fork")
        assert refused(backend.append([fork])[0]) == "stale"
        pen.tail = tail
        pen.write(value="behind")
        assert len(backend.read(pen.number(), 1, 9)) == 3

    def test_a_moved_head_is_refused_with_where_it_is(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write()
        append, _ = pen.make(expected=1)
        (outcome,) = backend.append([append])
        assert refused(outcome) == "moved"
        assert isinstance(outcome, Refused) and outcome.ref is not None and outcome.ref.seq == 2

    def test_i2_each_of_a_batch_succeeds_or_fails_alone(self, backend: Backend) -> None:
        a, b, c = Pen(backend, "a"), Pen(backend, "b"), Pen(backend, "c")
        for pen in (a, b, c):
            pen.write()
        bad, _ = b.make(expected=99)
        outcomes = backend.append([a.make()[0], bad, c.make()[0]])
        assert [type(o) for o in outcomes] == [Appended, Refused, Appended]
        assert [len(backend.read(p.number(), 1, 9)) for p in (a, b, c)] == [2, 1, 2]

    def test_a_batch_may_hold_several_commits_of_one_log(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        first, tail = pen.make()
        pen.tail, pen.heads["main"] = tail, first.seq
        second, _ = pen.make()
        assert all(isinstance(o, Appended) for o in backend.append([first, second]))
        ref = backend.ref(pen.number(), "main")
        assert ref is not None and ref.seq == 3

    @needs(RUN_ROWS)
    def test_a_refused_commit_leaves_nothing_of_its_riders(
        self, backend: Backend, pen: Pen
    ) -> None:
        pen.write()
        append, _ = pen.make(
            expected=9,
            key=("k", b"x"),
            snapshot=StoredSnapshot(b"m", [77], {77: b"leaf"}),
            checkpoint=Checkpoint("cp", 2, "h", "dict", (1, 0)),
            runs=[a_run("a")],
        )
        assert refused(backend.append([append])[0]) == "moved"
        assert backend.key(pen.number(), "k") is None
        assert backend.snapshot(pen.number(), 2) is None
        assert backend.ref(pen.number(), "cp") is None
        assert backend.runs() == []

    def test_concurrent_appends_lose_nothing(self, backend: Backend) -> None:
        from perdure.storage.log.committer import Committer
        from perdure.storage.log.proposals import Proposal

        committer = Committer(backend)
        errors: list[BaseException] = []

        def writer(name: str) -> None:
            try:
                no, expected = None, None
                for _ in range(20):
                    draft = chain.Draft(
                        name,
                        1,
                        "main",
                        (expected,) if expected else (),
                        "dict",
                        (1, 0),
                        "x",
                        0,
                        Cause("edit"),
                        chain.pack_payload([ops.Set((), 1)], ()),
                    )
                    done = committer.submit(Proposal(draft, no, expected))
                    no, expected = done.no, done.seq
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=writer, args=(f"agent-{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert [info.seq for info in backend.agents()] == [20] * 8

    # -- agents and names ------------------------------------------------------------------

    def test_an_unknown_agent_is_none(self, backend: Backend) -> None:
        assert backend.agent("nobody") is None
        assert backend.agents() == []

    def test_agents_are_listed_by_name_in_pages(self, backend: Backend) -> None:
        for name in ("b", "a", "ab", "%", "a%"):
            Pen(backend, name).write()
        assert [info.name for info in backend.agents()] == ["%", "a", "a%", "ab", "b"]
        assert [info.name for info in backend.agents("a")] == ["a", "a%", "ab"]
        assert [info.name for info in backend.agents("a", after="a", limit=1)] == ["a%"]

    def test_an_agent_is_created_once(self, backend: Backend) -> None:
        Pen(backend).write()
        late, _ = Pen(backend).make()
        assert refused(backend.append([late])[0]) == "exists"

    def test_a_deleted_agent_takes_no_late_write(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        late, _ = pen.make()
        late = replace(late, seq=3)
        pen.write(delete_agent=True)
        assert refused(backend.append([late])[0]) == "gone"
        fork, _ = pen.make("other")
        assert refused(backend.append([fork])[0]) == "gone"
        info = backend.agent("a")
        assert info is not None and info.deleted
        assert backend.agents() == []

    def test_a_deleted_name_begins_a_new_incarnation(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write(delete_agent=True)
        again = Pen(backend, "a", incarnation=2)
        again.write()
        info = backend.agent("a")
        assert info is not None and (info.incarnation, info.seq, info.deleted) == (2, 1, False)
        old = backend.agent("a", 1)
        assert old is not None and old.deleted and old.seq == 2
        assert again.number() != pen.number()

    def test_branches_and_checkpoints_share_names(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write("side")
        pen.write(checkpoint=Checkpoint("cp", 3, "h", "dict", (1, 0), None, {"p": "1"}))
        clash, _ = pen.make("cp")
        assert refused(backend.append([clash])[0]) == "exists"
        clash, _ = pen.make(checkpoint=Checkpoint("side", 4, "h", "dict", (1, 0)))
        assert refused(backend.append([clash])[0]) == "exists"
        refs = {ref.name: ref for ref in backend.refs(pen.number())}
        assert {name: (r.kind, r.seq) for name, r in refs.items()} == {
            "cp": ("checkpoint", 3),
            "main": ("branch", 3),
            "side": ("branch", 2),
        }
        assert refs["cp"].checkpoint == Checkpoint("cp", 3, "h", "dict", (1, 0), None, {"p": "1"})

    def test_a_dropped_branch_keeps_its_name(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write("side")
        moved, _ = pen.make(drop_branch="side", drop_head=1)
        assert refused(backend.append([moved])[0]) == "moved"
        pen.write(drop_branch="side", drop_head=2)
        ref = backend.ref(pen.number(), "side")
        assert ref is not None and ref.deleted
        again, _ = pen.make("side")
        assert refused(backend.append([again])[0]) == "gone"
        fresh, _ = pen.make("side", expected=None)
        assert refused(backend.append([fresh])[0]) == "exists"

    # -- keys and snapshots ----------------------------------------------------------------

    def test_a_key_takes_effect_once(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write(key=("k", b"asked"))
        assert backend.key(pen.number(), "k") == (2, b"asked")
        again, _ = pen.make(key=("k", b"other"))
        (outcome,) = backend.append([again])
        assert outcome == Refused("key", seq=2, asked=b"asked")
        other = Pen(backend, "b")
        other.write()
        other.write(key=("k", b"mine"))

    @needs(UPKEEP)
    def test_snapshots_share_leaves(self, backend: Backend, pen: Pen) -> None:
        pen.write(snapshot=StoredSnapshot(b"one", [5], {5: b"five"}))
        pen.write(snapshot=StoredSnapshot(b"two", [5, 6], {6: b"six"}))
        assert backend.snapshot(pen.number(), 2) == StoredSnapshot(
            b"two", (5, 6), {5: b"five", 6: b"six"}
        ) or backend.snapshot(pen.number(), 2) == StoredSnapshot(
            b"two", [5, 6], {5: b"five", 6: b"six"}
        )
        assert backend.snapshot(pen.number(), 3) is None
        assert [row.snapshotted for row in backend.read(pen.number(), 1, 3)] == [True, True]
        sizes = backend.maintain("sizes", no=pen.number())
        assert (sizes.commits, sizes.snapshots, sizes.leaves, sizes.leaf_bytes) == (2, 2, 2, 7)

    # -- reopening and closing ---------------------------------------------------------------

    def test_i1_everything_is_there_after_reopening(self, place: Path) -> None:
        if not self.durable:
            return
        backend = self.open(place)
        pen = Pen(backend)
        pen.write(key=("k", b"x"), snapshot=StoredSnapshot(b"one", [5], {5: b"five"}))
        pen.write(runs=[a_run("r")])
        backend.lease(pen.number(), "main", "one")
        before = _everything(backend, pen.number())
        backend.close()
        backend = self.open(place)
        assert _everything(backend, pen.number()) == before
        backend.close()

    def test_a_closed_store_says_so(self, place: Path) -> None:
        backend = self.open(place)
        pen = Pen(backend)
        pen.write()
        backend.close()
        backend.close()
        with pytest.raises(StoreUnavailable):
            backend.agent("a")
        try:
            (outcome,) = backend.append([pen.make()[0]])
        except PerdureError as error:
            outcome = error
        assert isinstance(outcome, StoreUnavailable)

    @needs(RUN_ROWS, UPKEEP)
    def test_housekeeping_changes_nothing(self, backend: Backend, pen: Pen) -> None:
        pen.write(key=("k", b"x"))
        before = _everything(backend, pen.number())
        for what in ("check", "clean", "flush"):
            backend.maintain(what)
        assert _everything(backend, pen.number()) == before


def _everything(backend: Backend, no: int) -> list[Any]:
    return [
        backend.agents(),
        backend.read(no, 1, 99),
        backend.refs(no),
        backend.key(no, "k"),
        backend.snapshot(no, 1),
        backend.runs(),
    ]
