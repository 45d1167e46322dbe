"""A thread that commits again and again waits awake for its answers; nobody else does."""

from __future__ import annotations

import asyncio
import select
import socket
import threading

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.storage.postgres import awake, connection
from perdure.storage.postgres.address import AWAKE_S, parse
from perdure.storage.postgres.awake import Haste, came_soon
from perdure.system import processors
from perdure.testing.pen import Pen
from tests.postgres.conftest import Open
from tests.postgres.server import Server
from tests.postgres.test_faults import held_log


class _Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(awake, "time", clock)
    return clock


def _commit(haste: Haste, clock: _Clock, *, after: float, takes: float) -> float:
    clock.now += after
    awake_s = haste.began()
    clock.now += takes
    haste.answered()
    return awake_s


@pytest.mark.parametrize(
    ("after", "takes", "last", "expected"),
    [
        (0.0002, 0.0003, 0.0002, 0.001),
        (0.5, 0.0003, 0.0002, 0.001),
        (0.0002, 0.0003, 0.5, 0.0),
        (0.0002, 0.02, 0.0002, 0.0),
    ],
    ids=["one-behind-the-other", "again", "work-between", "far-away"],
)
def test_who_comes_back_at_once_after_a_quick_answer_waits_awake(
    clock: _Clock, after: float, takes: float, last: float, expected: float
) -> None:
    haste = Haste(0.001)
    assert _commit(haste, clock, after=0.0, takes=0.0003) == 0.0  # the first knows nothing
    _commit(haste, clock, after=after, takes=takes)
    assert _commit(haste, clock, after=last, takes=0.0003) == expected


def test_an_answer_that_did_not_come_is_not_quick(clock: _Clock) -> None:
    """A commit that fails calls nothing when it ends: the next one goes by the answer before."""
    haste = Haste(0.001)
    _commit(haste, clock, after=0.0, takes=0.0003)
    haste.began()
    clock.now += 2.0
    assert haste.began() == 0.0


def test_threads_that_take_turns_sleep(clock: _Clock) -> None:
    """Each look would take Python's lock from the others: a step of sixteen runs, on threads of
    their own, took a seventh longer."""
    haste, seen = Haste(0.001), []
    for _ in range(3):
        seen.append(_commit(haste, clock, after=0.0002, takes=0.0003))
        other = threading.Thread(
            target=lambda: seen.append(_commit(haste, clock, after=0.0002, takes=0.0003))
        )
        other.start()
        other.join()
    assert seen == [0.0] * 6


def test_where_less_than_a_processor_is_allowed_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's limit stopped a process for most of each tenth of a second: a step with half a
    processor took half as long again as asleep."""
    for processors_allowed, awake_s in ((0.5, 0.0), (1.0, AWAKE_S)):
        monkeypatch.setattr(processors, "allowed", lambda n=processors_allowed: n)
        assert parse("postgresql://host/agents").awake_s == awake_s
        assert parse("postgresql://host/agents?awake=0.002").awake_s == 0.002


def test_looking_ends_when_it_comes_and_when_it_takes_too_long() -> None:
    here, there = socket.socketpair()
    with here, there:
        incoming = select.poll()
        incoming.register(here, select.POLLIN)
        assert not came_soon(incoming, 0.001)
        there.send(b"x")
        assert came_soon(incoming, 60.0)
        there.close()
        here.recv(1)
        assert came_soon(incoming, 60.0)  # its end is something to read, too


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What came of each wait awake."""
    seen: list[bool] = []

    def noting(incoming: select.poll, awake_s: float) -> bool:
        seen.append(came_soon(incoming, awake_s))
        return seen[-1]

    monkeypatch.setattr(connection, "came_soon", noting)
    return seen


def test_a_server_that_falls_silent_under_an_awake_thread_is_waited_for_as_ever(
    server: Server,
    url: str,
    open_store: Open,
    looks: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Haste, "began", lambda _: 0.05)
    backend = open_store(url + "&deadline=2")
    pen = Pen(backend)
    pen.write()
    with held_log(server, url, pen.number()):
        (outcome,) = backend.append([pen.make(awaited=True)[0]])
    assert looks == [False]
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.outcome == "not_done"
    assert len(backend.read(pen.number(), 1, 9)) == 1
    pen.write()


def test_commits_one_behind_the_other_are_waited_for_awake_unless_told_otherwise(
    url: str, open_store: Open, looks: list[bool]
) -> None:
    sleeping, pen = Pen(open_store(url + "&awake=0"), "s"), Pen(open_store(url + "&awake=1"))
    for _ in range(20):
        sleeping.write(awaited=True)
    assert looks == []
    for _ in range(20):  # each within a second of the one before, unless the machine stands still
        pen.write(awaited=True)
    assert any(looks)


def test_what_a_thread_brings_for_an_event_loop_is_slept_for(url: str, looks: list[bool]) -> None:
    """The loop has other things to do meanwhile: a step took as long as before, and twice the
    processor time."""

    async def editing() -> None:
        async with perdure.open_async(url + "&awake=1") as store:
            agent = await store.agent("a", dict)
            for number in range(20):
                async with agent.edit() as state:
                    state["number"] = number

    asyncio.run(editing())
    assert looks == []


def test_what_a_caller_waits_for_is_waited_for_awake(url: str, looks: list[bool]) -> None:
    with perdure.open(url + "&awake=1") as store:
        agent = store.agent("a", dict)
        for number in range(20):
            with agent.edit() as state:
                state["number"] = number
    assert any(looks)
