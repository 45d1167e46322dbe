"""The contract of leases: one owner at a time, under an epoch that only grows (I4)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.errors import NotFound
from perdure.model import Lease
from perdure.storage.appending import Ref
from perdure.storage.capabilities import LEASES, Backend
from perdure.testing.pen import Contract, Pen, elsewhere, needs, refused


@needs(LEASES)
class LeasesContract(Contract):
    """Tests of leases."""

    def test_i4_only_the_current_epoch_appends(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        first = backend.lease(pen.number(), "main", "one")
        assert isinstance(first, Lease) and first.epoch == 1
        assert refused(backend.append([pen.make()[0]])[0]) == "held"
        pen.write(epoch=1)
        second = backend.lease(pen.number(), "main", "two", over=1)
        assert isinstance(second, Lease) and second.epoch == 2
        assert refused(backend.append([pen.make(epoch=1)[0]])[0]) == "fenced"
        pen.write(epoch=2)

    def test_i4_a_lease_is_taken_once(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        assert isinstance(backend.lease(pen.number(), "main", "one"), Lease)
        answer = backend.lease(pen.number(), "main", "two")
        assert isinstance(answer, Ref) and (answer.held, answer.holder) == (1, "one")
        assert isinstance(backend.lease(pen.number(), "main", "two", over=7), Ref)

    def test_i4_epochs_grow_over_releases_and_breaks(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        no = pen.number()
        backend.lease(no, "main", "one")
        answer = backend.lease(no, "main", None, release=1)
        assert isinstance(answer, Ref) and answer.held is None
        pen.write()
        second = backend.lease(no, "main", "one")
        assert isinstance(second, Lease) and second.epoch == 2
        backend.lease(no, "main", None, release=1)  # a late release of an old epoch
        assert refused(backend.append([pen.make()[0]])[0]) == "held"
        backend.lease(no, "main", None, over=2)
        pen.write()
        assert refused(backend.append([pen.make(epoch=2)[0]])[0]) == "fenced"
        third = backend.lease(no, "main", "three")
        assert isinstance(third, Lease) and third.epoch == 4

    def test_a_lease_of_a_branch_that_is_not_there_is_not_found(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Of an agent that was purged under its owner: who gave its lease back to PostgreSQL got a
        TypeError, and never gave back any other."""
        pen.write()
        ways: list[Any] = [{}, {"over": 1}, {"release": 1}]
        for more in ways:
            for executor in ("one", None):
                with pytest.raises(NotFound, match="no such branch"):
                    backend.lease(pen.number(), "nowhere", executor, **more)

    def test_a_lease_goes_with_the_last_commit(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        backend.lease(pen.number(), "main", "one")
        pen.write(epoch=1, release=True)
        pen.write()

    def test_a_held_branch_is_not_dropped(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write("side")
        backend.lease(pen.number(), "side", "one")
        assert refused(backend.append([pen.make(drop_branch="side")[0]])[0]) == "held"

    def test_who_is_refused_is_told_what_refuses(self, backend: Backend, pen: Pen) -> None:
        """A lease that was given back while another asked for it was refused, with a branch that
        nobody holds; and a commit that it had stood in the way of, as if the head had moved."""
        pen.write()
        no, ended = pen.number(), threading.Event()
        linked_wrongly = replace(pen.make()[0], behind=elsewhere(bytes(33)))

        def take_and_give_back() -> None:
            for _ in range(300):
                if isinstance(lease := backend.lease(no, "main", "one"), Lease):
                    backend.lease(no, "main", None, release=lease.epoch)
            ended.set()

        with ThreadPoolExecutor() as other:
            other.submit(take_and_give_back)
            while not ended.is_set():
                answer = backend.lease(no, "main", "two")
                if isinstance(answer, Lease):
                    backend.lease(no, "main", None, release=answer.epoch)
                else:
                    assert answer.held is not None, answer
                outcome: Any = backend.append([linked_wrongly])[0]
                if refused(outcome) != "stale":
                    assert outcome.why == "held" and outcome.ref.held is not None, outcome
