"""A server that dies and comes back under load: nothing acknowledged is lost, and all goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.storage.postgres import pool
from perdure.testing.pen import Pen
from tests.chaos.processes import Site
from tests.postgres.conftest import Open
from tests.postgres.crew import Crew
from tests.postgres.proxy import Proxy
from tests.postgres.server import START_S, Server
from tests.postgres.test_faults import through

DURABLE = {"fsync": "on", "full_page_writes": "on"}
ENDS: dict[str, Callable[[Server], None]] = {
    "crash": Server.crash,
    "killed": lambda server: server.stop(signal.SIGKILL),
    "immediate": lambda server: server.stop(signal.SIGQUIT),
}


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    server = Server(DURABLE).start()
    yield server
    server.remove()


@pytest.fixture
def durable(one_server: Server) -> Server:
    """It runs, also after a test that failed while it was down."""
    if not one_server.runs:
        restart(one_server)
    return one_server


def restart(server: Server) -> None:
    """What a killed first process has left may be in the way for a moment."""
    until = time.monotonic() + START_S
    server.launch()
    while not server.answers():
        assert time.monotonic() < until
        if not server.runs:
            server.launch()
        time.sleep(0.02)


def _set(number: int, draft: dict[str, int]) -> None:
    draft["n"] = number


class Writers:
    """Threads that write to an agent each, and know what was acknowledged."""

    def __init__(self, url: str, threads: int) -> None:
        self._store = perdure.open(url)
        self._stop = threading.Event()
        self.acknowledged = [0] * threads
        self.problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._write, args=(which,)) for which in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, which: int) -> None:
        agent = self._store.agent(f"writer-{which}", initial={"n": 0})
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                agent.update(partial(_set, number), key=f"k{number}")
            except BaseException as error:
                self.problems.append(error)
                return
            self.acknowledged[which] = number

    def go_on(self, more: int = 5) -> None:
        """Until each has written so much more, or failed."""
        wanted = [number + more for number in self.acknowledged]
        while not self.problems and any(
            number < least for number, least in zip(self.acknowledged, wanted, strict=True)
        ):
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._store.close()


@pytest.mark.parametrize("how", ENDS)
def test_i1_what_was_acknowledged_survives_and_writers_see_no_error(
    durable: Server, how: str
) -> None:
    """Many threads at once, more than connections: each waits for the server, and none for the
    others' waiting; what was in doubt is found, so that no key is used twice."""
    url = durable.new_url(retry=60, pool_size=3)
    writers = Writers(url, 8)
    try:
        for _ in range(2):
            writers.go_on()
            ENDS[how](durable)
            restart(durable)
        writers.go_on()
    finally:
        writers.stop()
    assert writers.problems == []
    with perdure.open(url) as store:
        for which, number in enumerate(writers.acknowledged):
            agent = store.agent(f"writer-{which}")
            assert agent.state["n"] == number
            assert agent.seq == number + 1  # nothing twice
            agent.verify()


@pytest.mark.parametrize("how", ["crash", "immediate"])
def test_agents_go_on_by_themselves(durable: Server, tmp_path: Path, how: str) -> None:
    """Two workers and whoever answers; the server ends twice in the middle of their work."""
    crew = Crew(Site(tmp_path, 1, 2, "sync", 2.0, durable.new_url()))
    try:
        for part in ("work", "work", "care"):
            crew.hire(part)
        for _ in range(2):
            crew.await_effects(6)
            ENDS[how](durable)
            restart(durable)
        crew.finish()
    finally:
        crew.end()


def test_agents_go_on_after_an_outage_that_is_longer_than_they_wait(
    durable: Server, tmp_path: Path
) -> None:
    """Calls of runs in the middle of their work fail; a worker says that the store is away, looks
    again, later and later, and takes its runs up where they were. (Once the test waited without end
    for the word of a worker that the crash had met when it was about to open the store.)"""
    crew = Crew(Site(tmp_path, 1, 2, "sync", 2.0, durable.new_url(retry=0.2)))
    try:
        for part in ("work", "work"):
            crew.hire(part)
        crew.wait(lambda: crew.ready() == 2)
        crew.hire("care")
        crew.await_effects(6)
        durable.crash()
        crew.wait(lambda: crew.said("worker unavailable") >= 2)
        restart(durable)
        crew.finish()
    finally:
        crew.end()


class Pauses:
    """Stands in for the pool's `time`: what passes is what it pauses for, once all have begun."""

    def __init__(self, callers: int) -> None:
        self.passed_s = 0.0
        self._callers = callers
        self._begun: set[int] = set()
        self._all_begun = threading.Event()

    def monotonic(self) -> float:
        self._begun.add(threading.get_ident())
        if len(self._begun) >= self._callers:
            self._all_begun.set()
        return self.passed_s

    def sleep(self, pause_s: float) -> None:
        assert self._all_begun.wait(START_S)
        self.passed_s += pause_s


def test_who_waits_for_a_server_that_stays_away_hears_of_it_in_time(
    server: Server, url: str, proxy: Proxy, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread that waited for a connection began to wait for the server anew: with 24 threads
    and one connection the last one heard of it after fourteen times as long."""
    retry_s = 1.0
    backend = open_store(through(proxy, server, url) + f"&pool_size=1&retry={retry_s}")
    backend.agents()
    proxy.refuses = True
    took: list[float] = []
    pauses = Pauses(24)
    monkeypatch.setattr(pool, "time", pauses)

    def ask() -> None:
        with pytest.raises(StoreUnavailable, match=r"cannot be reached|lost"):
            backend.agents()
        took.append(pauses.passed_s)

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took) == 24
    assert 0 < max(took) <= 2 * retry_s  # who finds its connection lost looks for another one
    proxy.refuses = False
    assert backend.agents() == []


def test_a_batch_in_doubt_is_waited_for_once(
    server: Server, url: str, proxy: Proxy, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit of a batch that was cut off waited for the server anew, one after the other."""
    retry_s = 1.0
    backend = open_store(through(proxy, server, url) + f"&retry={retry_s}")
    pens = [Pen(backend, f"a{number}") for number in range(16)]
    for pen in pens:
        pen.write()
    proxy.for_good = True
    proxy.cut = "answer"
    batch = [pen.make()[0] for pen in pens]
    pauses = Pauses(1)
    monkeypatch.setattr(pool, "time", pauses)
    outcomes = backend.append(batch)
    assert {getattr(outcome, "outcome", None) for outcome in outcomes} == {"unknown"}
    assert 0 < pauses.passed_s <= 2 * retry_s


def connected(conninfo: str) -> psycopg.Connection[Any]:
    """A server counts a connection that was closed until its process there has ended."""
    until = time.monotonic() + START_S
    while True:
        try:
            return psycopg.connect(conninfo)
        except psycopg.OperationalError:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_server_that_is_full_is_waited_for(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    """After a failover all come at once: who was refused a connection gave up, with an error."""
    if not server.sql("SELECT 1 FROM pg_roles WHERE rolname = 'crowded'"):
        server.sql("CREATE ROLE crowded LOGIN CONNECTION LIMIT 1 IN ROLE perdure")
    open_store(url)
    crowded = url.replace("//perdure@", "//crowded@")
    backend = open_store(through(proxy, server, crowded) + "&retry=60")
    came = len(proxy.links)
    found: list[object] = []
    with connected(crowded.partition("?")[0]):
        thread = threading.Thread(target=lambda: found.append(backend.agents()))
        thread.start()
        while len(proxy.links) < came + 3 and thread.is_alive():
            time.sleep(0.01)
        assert found == []
    thread.join()
    assert found == [[]]


def test_after_a_restart_the_clock_is_that_of_who_answers_now(
    durable: Server, open_store: Open
) -> None:
    """The measure with the shortest round trip counted for a minute, also when it was of a server
    that had been replaced since: timers went by its clock."""
    backend = open_store(durable.new_url(retry=60))
    backend.agents()
    ahead_us = 3600 * 1_000_000
    backend._clock.measure(lambda: round(time.time() * 1e6) + ahead_us)
    assert backend.now() > time.time() * 1e6 + ahead_us / 2
    durable.crash()
    restart(durable)
    backend.agents()
    assert backend.now() < time.time() * 1e6 + ahead_us / 2


def test_a_machine_that_slept_measures_the_clock_anew(durable: Server, open_store: Open) -> None:
    """A laptop slept for an hour, and its steady clock stood still. A program that only edited, and
    so had no heartbeat, gave its commits times of an hour ago from then on."""
    backend = open_store(durable.new_url())
    hour_s, clock = 3600, backend._clock
    assert not clock.is_old
    clock._offset_us -= hour_s * 1_000_000
    clock._ahead_s -= hour_s
    assert backend.now() < (time.time() - hour_s / 2) * 1e6
    backend.agents()
    assert abs(backend.now() / 1e6 - time.time()) < hour_s / 2
