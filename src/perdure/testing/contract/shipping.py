"""The contract of the storage port on data of other stores: who is kept out, and that a shipment
gets in whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.errors import Conflict, NotFound, PerdureError
from perdure.missing import MISSING
from perdure.model import Lease, Message
from perdure.storage.answers import Standing
from perdure.storage.appending import Append, Appended, Refused, StoredSnapshot
from perdure.storage.capabilities import (
    INBOX,
    LEASES,
    REMOVAL,
    RUN_ROWS,
    SHIPPING,
    Backend,
    Sent,
    Shipment,
)
from perdure.storage.standing import ClosedError, OvertakenError, Why, read_why
from perdure.testing.pen import Contract, Pen, a_run, elsewhere, needs

FOLLOWS = Why("follows", "sqlite:////elsewhere/é.db", feed="f", mail="7").standing()
MOVED = Why("moved", "postgresql://there").standing()
HERE = Why("here").standing()


class Ghost(Pen):
    """Makes commits that are not written here: those of another store."""

    def next(self, branch: str = "main", **more: Any) -> Append:
        append, self.tail = self.make(branch, **more)
        self.heads[branch] = append.seq
        return append


def a_message(no: int, key: str = "", **more: Any) -> Message:
    more.setdefault("value", {"n": no})
    return Message("a/f/main", "a", "signal", "s", key or str(no), at_micros=no, no=no, **more)


def taken(no: int) -> Message:
    return a_message(no, value=MISSING)


@needs(RUN_ROWS, INBOX, LEASES, SHIPPING, REMOVAL)
class ShippingContract(Contract):
    """Tests of shipping."""

    # -- who is kept out -------------------------------------------------------------------

    def test_nothing_is_said_of_a_store_at_first(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        assert backend.standing() is None
        assert backend.standing(pen.number()) is None
        backend.stand(None)

    def test_what_is_said_is_kept_and_taken_back(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        backend.stand(FOLLOWS)
        backend.stand(HERE, pen.number())
        assert backend.standing() == FOLLOWS
        assert backend.standing(pen.number()) == HERE
        assert read_why(backend.standing()) == Why(
            "follows", "sqlite:////elsewhere/é.db", feed="f", mail="7"
        )
        backend.stand(Standing(False, "{"))
        why = read_why(backend.standing())
        assert why is not None and why.kind == "unknown"
        backend.stand(None)
        backend.stand(None, pen.number())
        assert backend.standing() is None
        assert backend.standing(pen.number()) is None

    def test_i4_a_closed_store_takes_no_writes(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        backend.send(Message("a/f/main", "a", "start", "f"))
        backend.stand(FOLLOWS)
        picture = _picture(backend, pen)
        fork, _ = pen.make("fork")
        new, _ = Pen(backend, "new").make()
        whole = replace(Pen(backend, "whole").make()[0], then=[pen.make()[0]])
        keyed, _ = pen.make(key=("k", b"asked"))
        for item in (pen.make()[0], keyed, fork, new, whole):
            (outcome,) = backend.append([item])
            assert isinstance(outcome, ClosedError), outcome
            assert outcome.outcome == "not_done"
            assert "follows" in str(outcome) and outcome.url == "sqlite:////elsewhere/é.db"
        with pytest.raises(ClosedError, match="promote"):
            backend.lease(pen.number(), "main", "one")
        with pytest.raises(ClosedError):
            backend.send(Message("b/f/main", "b", "start", "f"))
        assert _picture(backend, pen) == picture
        backend.heartbeat("one", 1000)
        backend.stand(replace(FOLLOWS, closed=False))
        pen.write(key=("k", b"asked"))
        assert isinstance(backend.lease(pen.number(), "main", "one"), Lease)

    def test_i4_an_agent_that_moved_takes_no_commits(self, backend: Backend, pen: Pen) -> None:
        other = Pen(backend, "other")
        pen.write()
        other.write()
        lease = backend.lease(pen.number(), "main", "one")
        assert isinstance(lease, Lease)
        backend.stand(MOVED, pen.number())
        late, _ = pen.make(epoch=lease.epoch)
        fork, _ = pen.make("fork")
        mine, tail = other.make()
        outcomes = backend.append([late, mine, fork])
        assert [type(one) for one in outcomes] == [ClosedError, Appended, ClosedError]
        assert "postgresql://there" in str(outcomes[0]) and "'a'" in str(outcomes[0])
        other.accept(mine, tail, Appended(other.number()))
        with pytest.raises(ClosedError, match="postgresql://there"):
            backend.lease(pen.number(), "main", "two", over=lease.epoch)
        # Its inbox is open: what comes is sent on to where it is.
        assert isinstance(backend.send(Message("a/f/main", "a", "start", "f")), Sent)
        assert len(backend.read(pen.number(), 1, 9)) == 1
        backend.lease(pen.number(), "main", None, release=lease.epoch)
        backend.stand(None, pen.number())
        pen.write()

    def test_i4_an_agent_that_arrived_is_open_in_a_closed_store(
        self, backend: Backend, pen: Pen
    ) -> None:
        other = Pen(backend, "other")
        pen.write()
        other.write()
        backend.stand(Why("moving-in", "memory://").standing())
        backend.stand(HERE, pen.number())
        pen.write()
        assert isinstance(backend.lease(pen.number(), "main", "one"), Lease)
        assert isinstance(backend.append([other.make()[0]])[0], ClosedError)
        assert isinstance(backend.send(Message("a/f/main", "a", "start", "f")), Sent)
        with pytest.raises(ClosedError):
            backend.send(Message("other/f/main", "other", "start", "f"))
        backend.stand(None)
        assert backend.standing(pen.number()) is None
        other.write()

    def test_i2_a_commit_whose_message_a_closed_store_does_not_take_is_refused_whole(
        self, backend: Backend, pen: Pen
    ) -> None:
        """While agents moved in, one that had arrived asked for a child on one that had not. Its
        commit got in without the message: the child was never started, and the parent waited for
        it for good."""
        start = Message("other/f/main", "other", "start", "f", value=1)
        signal = Message("other/f/main", "other", "signal", "s", value=1)
        nobody = Message("other/g/main", "other", "signal", "s", value=1)
        other, third = Pen(backend, "other"), Pen(backend, "third")
        for one in (pen, other, third):
            one.write()
        backend.stand(Why("moving-in", "memory://").standing())
        for one in (pen, third):
            backend.stand(HERE, one.number())
        picture = _picture(backend, pen)
        bad, _ = pen.make(runs=[a_run("a/f/main")], sends=[start], key=("k", b"asked"))
        fork, _ = pen.make("fork", sends=[nobody, start])
        for item in (bad, fork, replace(bad, riders=replace(bad.riders, key=None))):
            mine, tail = third.make()
            outcomes = backend.append([item, mine])
            assert [type(one) for one in outcomes] == [ClosedError, Appended], outcomes
            assert isinstance(outcomes[0], ClosedError) and outcomes[0].outcome == "not_done"
            third.accept(mine, tail, Appended(third.number()))
            (outcome,) = backend.append([item])
            assert isinstance(outcome, ClosedError), outcome
            assert _picture(backend, pen)[1:-1] == picture[1:-1]
        # Nobody waits for this one here; but its run may be yet to come.
        assert isinstance(backend.append([pen.make(sends=[nobody])[0]])[0], ClosedError)
        with pytest.raises(ClosedError):
            backend.send(nobody)
        here = Message("a/g/main", "a", "signal", "s")
        assert backend.send(here) == Refused("gone")
        pen.write(sends=[here])
        backend.stand(None)
        assert backend.send(nobody) == Refused("gone")
        pen.write(sends=[nobody])
        pen.write(runs=[a_run("a/f/main")], sends=[start], key=("k", b"asked"))
        assert [one.name for one in backend.inbox("other/f/main")] == ["f"]
        backend.stand(Why("moving-in", "memory://").standing())
        backend.stand(HERE, pen.number())
        pen.write(sends=[start])
        assert not _fresh(backend.send(start))
        assert isinstance(backend.append([pen.make(sends=[signal])[0]])[0], ClosedError)

    def test_other_openers_are_kept_out_too(self, place: Path) -> None:
        if not self.durable:
            return
        one, other = self.open(place), self.open(place)
        pen = Pen(one)
        pen.write()
        other.stand(FOLLOWS)
        assert isinstance(one.append([pen.make()[0]])[0], ClosedError)
        one.close()
        other.close()
        again = self.open(place)
        assert again.standing() == FOLLOWS
        assert isinstance(again.append([replace(pen.make()[0])])[0], ClosedError)
        again.close()

    # -- shipments -------------------------------------------------------------------------

    def test_a_shipment_gets_into_a_closed_store(self, backend: Backend) -> None:
        backend.stand(FOLLOWS)
        ghost = Ghost(backend)
        snapshot = StoredSnapshot(b"one", (5,), {5: b"five"})
        items = [
            ghost.next(key=("k", b"asked"), snapshot=snapshot),
            ghost.next(snapshot=StoredSnapshot(b"two", (5, 6), {5: b"five", 6: b"six"})),
            ghost.next("side", epoch_min=7, runs=[a_run("a/f/main")]),
        ]
        later = replace(FOLLOWS, why=Why("follows", "x", feed="further").standing().why)
        backend.ship(Shipment(items, standing=later))
        info = backend.agent("a")
        assert info is not None and info.seq == 3
        rows = backend.read(info.no, 1, 9)
        assert [(r.header, r.payload) for r in rows] == [(i.header, i.payload) for i in items]
        assert backend.key(info.no, "k") == (1, b"asked")
        found = backend.snapshot(info.no, 2)
        assert found is not None and dict(found.leaves) == {5: b"five", 6: b"six"}
        ref = backend.ref(info.no, "side")
        assert ref is not None and (ref.seq, ref.epoch, ref.held) == (3, 7, None)
        assert [run.agent_no for run in backend.runs()] == [info.no]
        assert backend.standing() == later
        assert isinstance(backend.append([replace(ghost.make()[0], no=info.no)])[0], ClosedError)
        assert [(f.agent, f.commit.seq) for f in backend.feed().entries] == [
            ("a", 1),
            ("a", 2),
            ("a", 3),
        ]

    def test_a_shipment_is_all_or_nothing(self, backend: Backend) -> None:
        backend.stand(FOLLOWS)
        ghost = Ghost(backend)
        backend.ship(Shipment([ghost.next()]))
        picture = _picture(backend, ghost)
        fresh = Ghost(backend, "fresh")
        good = [fresh.next(), ghost.next(runs=[a_run("a/f/main")])]
        lost = Ghost(backend, "lost")
        lost.next()
        for bad in (replace(good[1], behind=elsewhere(b"\1" + b"x" * 32)), lost.next(), good[0]):
            with pytest.raises(Conflict):
                backend.ship(Shipment([*good, bad], [a_message(4)], standing=MOVED, number_min=99))
            assert _picture(backend, ghost) == picture
            assert backend.agent("fresh") is None
        backend.ship(Shipment(good, [a_message(4)]))
        assert [message.no for message in backend.inbox()] == [4]

    def test_incarnations_and_deletions_are_shipped(self, backend: Backend) -> None:
        first, second = Ghost(backend), Ghost(backend, incarnation=2)
        backend.ship(Shipment([first.next(), first.next(delete_agent=True), second.next()]))
        old, new = backend.agent("a", 1), backend.agent("a")
        assert old is not None and old.deleted and old.seq == 2
        assert new is not None and (new.incarnation, new.deleted, new.seq) == (2, False, 1)

    def test_a_shipment_looks_at_no_lease(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write("side")
        for branch in ("main", "side"):
            backend.lease(pen.number(), branch, "one")
        ghost = Ghost(backend)
        ghost.tail, ghost.heads = pen.tail, dict(pen.heads)
        backend.ship(Shipment([ghost.next(drop_branch="side")]))
        ref = backend.ref(pen.number(), "main")
        assert ref is not None and (ref.seq, ref.held, ref.epoch) == (3, None, 1)

    def test_epochs_are_raised_and_never_lowered(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        backend.ship(Shipment(epochs=[("a", 1, "main", 9)]))
        backend.ship(Shipment(epochs=[("a", 1, "main", 3)]))
        lease = backend.lease(pen.number(), "main", "one")
        assert isinstance(lease, Lease) and lease.epoch == 10

    # -- messages --------------------------------------------------------------------------

    def test_mail_has_what_came_and_what_was_taken_out(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("a/f/main")])
        assert backend.mail().messages == []
        sent = [backend.send(a_message(0, key)) for key in ("x", "y", "z")]
        messages = [one.message for one in sent if isinstance(one, Sent)]
        first = backend.mail(limit=2)
        assert first.messages == messages[:2]
        pen.write(consumed=[messages[2].no])
        rest = backend.mail(first.cursor)
        assert rest.messages == [replace(messages[2], value=MISSING)]
        assert backend.mail(rest.cursor).messages == []
        assert backend.mail(to_the_end=True).messages == [*first.messages, *rest.messages]
        assert backend.mail(first.cursor, to_the_end=True).messages == rest.messages
        assert backend.mail(backend.mail(rest.cursor).cursor).messages == []
        for rubbish in ("x", "-1", "é", "99999"):
            with pytest.raises(NotFound, match="feed"):
                backend.mail(rubbish)

    def test_a_cursor_of_mail_outlives_the_message_that_it_names(
        self, backend: Backend, pen: Pen
    ) -> None:
        pen.write(runs=[a_run("a/f/main")])
        sent = backend.send(a_message(0, "x"))
        assert isinstance(sent, Sent)
        cursor = backend.mail().cursor
        pen.write(consumed=[sent.message.no])
        assert backend.mail(cursor).messages == []
        pen.write(delete_agent=True)
        assert backend.mail(cursor).messages == []
        backend.send(replace(a_message(0), run="a/f/main~2", kind="start"))
        assert [one.run for one in backend.mail(cursor).messages] == ["a/f/main~2"]
        Pen(backend, "a", 2).write()
        assert [one.run for one in backend.mail(cursor).messages] == ["a/f/main~2"]

    def test_messages_are_shipped_with_their_numbers(self, backend: Backend) -> None:
        backend.stand(FOLLOWS)
        ghost = Ghost(backend)
        row = a_run("a/f/main")
        backend.ship(Shipment([ghost.next(runs=[row])], [a_message(3), taken(4), a_message(9)]))
        assert [(m.no, m.at_micros, m.value) for m in backend.inbox("a/f/main")] == [
            (3, 3, {"n": 3}),
            (9, 9, {"n": 9}),
        ]
        # Again, and with news of what is not known here yet: what is here stays.
        backend.ship(Shipment([], [a_message(3), taken(9)]))
        assert [m.no for m in backend.inbox()] == [3, 9]
        backend.ship(Shipment([ghost.next(consumed=[9])]))
        backend.ship(Shipment([], [taken(9)]))
        assert [m.no for m in backend.inbox()] == [3]
        with pytest.raises(Conflict):
            backend.ship(Shipment([], [a_message(3, "another")]))
        backend.stand(None)
        # What was taken out is known: the same is not put in again. New ones get later numbers.
        for no in (4, 9):
            again = backend.send(a_message(no))
            assert isinstance(again, Sent) and not again.fresh and again.message.no == no
        fresh = backend.send(a_message(0, "fresh"))
        assert isinstance(fresh, Sent) and fresh.message.no > 9

    def test_numbers_go_on_where_they_are_told(self, backend: Backend) -> None:
        backend.ship(Shipment(number_min=1000))
        backend.ship(Shipment(number_min=10))
        sent = backend.send(Message("a/f/main", "a", "start", "f"))
        assert isinstance(sent, Sent) and sent.message.no > 1000

    def test_how_far_the_numbers_went_is_told(self, backend: Backend) -> None:
        """Also of messages that are not there any more, and of numbers that were passed over: a
        store that was promoted has none of the messages whose numbers it goes on from."""
        assert backend.mail().last == 0
        backend.ship(Shipment(number_min=1000))
        assert 1000 <= backend.mail().last < 1_000_000
        ghost = Ghost(backend)
        run, done = a_run("a/f/main"), a_run("a/f/main", status="done", ended=2)
        backend.ship(Shipment([ghost.next(runs=[run])], [a_message(2_000_000)]))
        assert backend.mail().last >= 2_000_000
        backend.stand(None)
        sent = backend.send(a_message(0, "fresh"))
        assert isinstance(sent, Sent)
        backend.ship(Shipment([ghost.next(runs=[done])]))
        assert not backend.inbox()
        assert backend.mail().last == backend.mail(backend.mail().cursor).last == sent.message.no

    def test_what_came_after_the_end_of_a_run_stays(self, backend: Backend) -> None:
        """A run ended, was tried again, and got a message. Shipped in one, the message was in the
        inbox when the end emptied it."""
        ghost = Ghost(backend)
        done, again = a_run("a/f/main", status="done", ended=2), a_run("a/f/main")
        backend.ship(
            Shipment(
                [
                    ghost.next(runs=[a_run("a/f/main")]),
                    ghost.next(runs=[done]),
                    ghost.next(runs=[again]),
                ],
                [taken(1), a_message(2)],
            )
        )
        assert [m.no for m in backend.inbox("a/f/main")] == [2]
        start = Message("a/f/next", "a", "start", "f", value=1, at_micros=5, no=5)
        backend.ship(Shipment([ghost.next(delete_agent=True)], [start]))
        assert [m.no for m in backend.inbox()] == [5]

    def test_what_was_taken_out_goes_in_any_order(self, backend: Backend) -> None:
        """A message that a commit took out has no order among the commits: the end of its run may
        have emptied the inbox before, or it never came here."""
        ghost = Ghost(backend)
        done = a_run("a/f/main", status="done", ended=2)
        backend.ship(Shipment([ghost.next(runs=[a_run("a/f/main")])], [a_message(1), a_message(2)]))
        backend.ship(Shipment([ghost.next(runs=[done])], [a_message(3)], taken=[1, 3, 77]))
        assert backend.inbox() == []
        backend.ship(Shipment([], [taken(1), taken(3)], taken=[1]))
        assert backend.inbox() == []
        assert [one.no for one in backend.mail().messages] == [1, 2, 3]

    def test_what_was_taken_out_can_be_forgotten(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("a/f/main")])
        backend.ship(Shipment([], [a_message(1), taken(2), taken(3)]))
        backend.ship(Shipment(forgotten=[1, 2, 77]))
        assert backend.mail().messages == [a_message(1), taken(3)]
        with pytest.raises(Conflict):
            backend.ship(Shipment([replace(pen.make()[0], behind=elsewhere(b"x"))], forgotten=[3]))
        sent = [backend.send(a_message(0, str(key))) for key in (1, 2, 3)]
        assert [isinstance(one, Sent) and one.fresh for one in sent] == [False, True, False]
        first, second = backend.inbox()
        assert first.no == 1 and second.no > 3

    def test_who_was_overtaken_ships_nothing(self, backend: Backend) -> None:
        ghost = Ghost(backend)
        backend.stand(FOLLOWS)
        further = replace(FOLLOWS, why=Why("follows", "x", feed="further").standing().why)
        backend.ship(Shipment([ghost.next()], standing=further, after=FOLLOWS))
        late = ghost.make()[0]
        for stands in (further, None):
            with pytest.raises(OvertakenError):
                backend.ship(Shipment([late], [a_message(1)], after=FOLLOWS))
            assert backend.standing() == stands
            assert backend.inbox() == []
            backend.stand(None)
        info = backend.agent("a")
        assert info is not None and info.seq == 1

    def test_who_decides_by_how_a_store_stands_is_told_that_it_stands_otherwise(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Two processes that decide of a store at the same time do not both have their way."""
        pen.write()
        no = pen.number()
        backend.stand(FOLLOWS, after=None)
        backend.stand(FOLLOWS, after=None)  # its answer was lost
        for standing, at in ((MOVED, 0), (None, 0), (MOVED, no), (None, no)):
            for after in (None, MOVED):
                with pytest.raises(OvertakenError):
                    backend.stand(standing, at, after=after)
        assert (backend.standing(), backend.standing(no)) == (FOLLOWS, None)
        backend.stand(HERE, no, after=FOLLOWS)
        backend.stand(MOVED, after=FOLLOWS)
        assert (backend.standing(), backend.standing(no)) == (MOVED, HERE)
        backend.stand(None, no, after=MOVED)
        backend.stand(None, after=MOVED)
        assert (backend.standing(), backend.standing(no)) == (None, None)

    def test_a_closed_backend_ships_nothing(self, place: Path) -> None:
        backend = self.open(place)
        backend.close()
        for use in (
            lambda: backend.feed(),
            lambda: backend.mail(),
            lambda: backend.standing(),
            lambda: backend.stand(None),
            lambda: backend.ship(Shipment()),
        ):
            with pytest.raises(PerdureError):
                use()


def _fresh(sent: Sent | Refused) -> bool:
    assert isinstance(sent, Sent), sent
    return sent.fresh


def _picture(backend: Backend, pen: Pen) -> list[Any]:
    info = backend.agent(pen.agent)
    assert info is not None
    return [
        backend.agents(),
        backend.read(info.no, 1, 99),
        backend.refs(info.no),
        backend.runs(),
        backend.inbox(),
        backend.standing(),
        backend.mail().messages,
        [(fed.no, fed.commit.seq) for fed in backend.feed().entries],
    ]
