"""Many workers that see the same runs share them out, and do not all try for the first ones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import perdure
from perdure.engine.dispatch import picking, worker
from perdure.storage.postgres import backend as postgres
from perdure.storage.postgres.backend import PostgresBackend
from perdure.store import Store
from tests.engine.working import BOUND_S, doubling, wait_until, working
from tests.postgres.conftest import Open
from tests.postgres.server import Server
from tests.postgres.test_faults import schema_of

Closing = Callable[[Store], Store]


@pytest.fixture
def closing() -> Iterator[Closing]:
    """Closes stores at the end: else their heartbeats would go on without their backends."""
    with ExitStack() as stack:
        yield stack.enter_context


NAMES = ["a/f/1", "b/f/1", "c\0/f/ä"]


def test_what_one_claims_others_leave(backend: PostgresBackend) -> None:
    assert backend.claim(NAMES[:2], "one") == set(NAMES[:2])
    assert backend.claim(NAMES, "two") == set(NAMES[2:])
    assert backend.claim(NAMES, "one") == set(NAMES[:2]), "its own it may claim again"
    assert backend.claim([], "two") == set()


def test_a_claim_ends_by_itself(backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.claim(NAMES, "dead") == set(NAMES)
    wait_until(lambda: backend.claim(NAMES, "two") == set(NAMES))


def test_claims_that_are_over_go(server: Server, url: str, backend: PostgresBackend) -> None:
    """Each run has one, and there is no end of runs: they were removed where a process began, and
    a fleet that works for months has none that begins."""
    for number in range(5):
        backend.claim([f"{number}/{name}" for name in NAMES], "one")

    def are_gone() -> bool:
        backend.claim(["the last one"], "one")
        return server.sql(f"SELECT run FROM {schema_of(url)}.claims") == [("the last one",)]

    wait_until(are_gone)


def test_who_claims_does_not_wait_for_who_is_claiming(
    server: Server, url: str, backend: PostgresBackend
) -> None:
    """Old claims of all are claimed by one in a transaction that hangs: the other takes what is
    left, at once."""
    backend.claim(NAMES, "dead")
    with psycopg.connect(server.url()) as hanging:
        hanging.execute(
            f"SELECT * FROM {schema_of(url)}.claims WHERE run = %s FOR UPDATE", (NAMES[0],)
        )
        ours: set[str] = set()
        until = time.monotonic() + BOUND_S
        while len(ours) < 2 and time.monotonic() < until:
            ours |= backend.claim(NAMES, "two")
        assert ours == set(NAMES[1:])
    wait_until(lambda: backend.claim(NAMES, "two") == set(NAMES))


def test_many_at_once_share_what_there_is(url: str, open_store: Open) -> None:
    """Each claims all, in another order: each run is had by one, and nobody waits for ever."""
    names = [f"{number}/f/1" for number in range(40)]
    got: Counter[str] = Counter()
    stores = [open_store(url) for _ in range(4)]

    def claim(number: int) -> None:
        for begin in range(0, 40, 5):
            for run in stores[number].claim(names[begin:] + names[:begin], f"e-{number}"):
                if run not in mine[number]:
                    mine[number].add(run)

    mine: list[set[str]] = [set() for _ in stores]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "CLAIM_S", 60.0)
        threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
    for claimed in mine:
        got.update(claimed)
    assert got == Counter(names)


def test_workers_do_not_try_for_the_same_runs(
    url: str, open_store: Open, closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four workers with 300 runs to begin tried 794 times, and were slower than one alone: all saw
    the same runs first, all but one lost each of them, and looked again."""
    monkeypatch.setattr(postgres, "CLAIM_S", 60.0)  # on a slow machine, too
    asking, *stores = (closing(Store(open_store(url))) for _ in range(4))
    handles = [asking.start(doubling, f"a-{number}", number) for number in range(60)]
    lost: list[Any] = []
    conclude = worker.Worker._conclude

    def concluded(self: worker.Worker, job: Any) -> None:
        if job.error is not None:
            lost.append(job.error)
        conclude(self, job)

    monkeypatch.setattr(worker.Worker, "_conclude", concluded)
    begin = threading.Barrier(3)
    look = worker.Worker._look

    def looked(self: worker.Worker) -> float:
        if self not in first:
            first.add(self)
            begin.wait(BOUND_S)  # each is alive before any of them looks who else is
        return look(self)

    first: set[worker.Worker] = set()
    monkeypatch.setattr(worker.Worker, "_look", looked)
    workers = [perdure.Worker(store, [doubling], limit=4) for store in stores]
    threads = [threading.Thread(target=one.run) for one in workers]
    for thread in threads:
        thread.start()
    assert [handle.result(BOUND_S) for handle in handles] == [2 * n for n in range(60)]
    for one in workers:
        one.stop()
    for thread in threads:
        thread.join(BOUND_S)
    assert lost == []


def test_what_a_worker_claimed_that_died_is_begun_by_another(
    url: str, open_store: Open, closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells of a claim's end: who was refused looks again when it is over."""
    monkeypatch.setattr(picking, "CLAIM_S", 0.5)
    monkeypatch.setattr(postgres, "CLAIM_S", 0.5)
    dead, alive, store = open_store(url), open_store(url), closing(Store(open_store(url)))
    alive.heartbeat("somebody else", 60_000)
    handle = store.start(doubling, "a", 4)
    assert dead.claim([handle.id], "dead") == {handle.id}
    with working(store, doubling):
        assert handle.result(BOUND_S) == 8
