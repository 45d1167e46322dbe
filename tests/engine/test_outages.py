"""When the store does not take a commit: nothing is lost, nothing is guessed, nobody is stuck."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.aio import AsyncStore
from perdure.engine.dispatch.heartbeat import Claim
from perdure.errors import Corrupt, PerdureError, StoreUnavailable
from perdure.model import Durability
from perdure.storage.looks import Look
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.store import Store
from perdure.testing.faults import FaultyFiles
from tests.engine.conftest import Crashes, Place


class Outage:
    """Makes a store's backend fail, from its `at`-th append on, until `over`."""

    def __init__(self, store: Store, at: int) -> None:
        self.backend: Any = store._context.backend
        self.append: Any = self.backend.append
        self.lease: Any = self.backend.lease
        self.left = at
        vars(self.backend).update(append=self.fail_append, lease=self.fail_lease)

    def fail_append(self, batch: Any) -> Any:
        self.left -= 1
        if self.left <= 0:
            return [StoreUnavailable("the disk is full")] * len(batch)
        return self.append(batch)

    def fail_lease(self, *args: Any, **more: Any) -> Any:
        if self.left <= 0:
            raise StoreUnavailable("the disk is full")
        return self.lease(*args, **more)

    def over(self) -> None:
        del self.backend.append, self.backend.lease


def in_time(function: Any) -> Any:
    """What it gives; it is a failure if it hangs."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(30)
    assert found, "stuck"
    return found[0]


@pytest.mark.parametrize("at", range(1, 7))
def test_a_full_disk_stops_the_run_and_it_goes_on_afterwards(
    place: Place, crash: Crashes, at: int
) -> None:
    """The disk was full when the run stopped, so that its lease could not be given back: asked for
    again in the same process it stood by for itself, for ever. And at its first commit, the caller
    got a RunInterrupted, which `except Exception` does not catch."""

    @perdure.tool(on_crash="retry")
    def act() -> int:
        crash.note(perdure.idempotency_key())
        return 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        try:
            with run.edit("n") as draft:
                draft["n"] = 1
            return act() + run.call(len, "ab")
        except Exception as swallowed:
            crash.note(swallowed)
            return 0

    store = place.open()
    outage = Outage(store, at)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        store.run(f, "a")
    if at < 6:
        assert not [run for run in store.runs() if run.status != "running"]
    outage.over()
    assert in_time(lambda: store.run(f, "a")) == 3
    assert store.agent("a").state == {"n": 1}
    # Called at most twice: once more only where its outcome could not be recorded.
    assert len(crash.calls) == (2 if at == 4 else 1) and len(set(crash.calls)) == 1
    (branch,) = store.agent("a").branches()
    assert branch.holder is None


@pytest.mark.parametrize("at", [3, 4])
def test_who_left_a_run_and_could_not_give_it_back_does_not_execute_it(
    place: Place, at: int
) -> None:
    """The disk was full, and `store.run` had left with a StoreUnavailable: `why` said that this
    process is executing the run, at a tool that nobody is at."""

    @perdure.tool(on_crash="retry")
    def act() -> int:
        return 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        return act() + act()

    store = place.open()
    outage = Outage(store, at)
    with pytest.raises(StoreUnavailable):
        store.run(f, "a")
    said = store.handle("a/f/main").why()
    assert (said.situation, said.executor) == ("abandoned", store._context.executor)
    assert "left it unfinished" in said.why
    assert store.handle("a/f/main").report().why.situation == "abandoned"
    outage.over()
    assert store.run(f, "a") == 2


@pytest.mark.parametrize("at", [3, 4])
def test_another_process_is_not_kept_waiting_by_a_lease_that_could_not_be_given_back(
    place: Place, at: int
) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        return run.call(len, "a") + run.call(len, "b")

    store = place.open(lease_ttl=timedelta(milliseconds=300))
    outage = Outage(store, at)
    with pytest.raises(StoreUnavailable):
        store.run(f, "a")
    outage.over()
    assert in_time(lambda: place.open().run(f, "a")) == 2


@pytest.mark.parametrize("durability", ["os", "group", "sync"])
def test_i5_intents_and_outcomes_are_synced_whatever_the_durability(
    tmp_path: Path, durability: Durability
) -> None:
    files = FaultyFiles()
    store = Store(SqliteBackend(str(tmp_path / "s.db"), durability=durability, vfs=files.name))
    counts: list[int] = []

    def count() -> None:
        counts.append(files.counts.get("sync", 0))

    @perdure.tool
    def act() -> int:
        count()
        return 1

    @perdure.step
    def think() -> int:
        return 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        think()
        count()
        act()
        count()
        think()
        count()

    store.run(f, "a")
    store.close()
    before, at_call, after, step = counts
    assert at_call > before, "the intent is durable when the tool is called"
    assert after > at_call, "and its outcome when its caller sees it"
    if durability == "os":
        assert step == after


def test_a_function_cannot_swallow_that_it_lost_its_branch(place: Place, crash: Crashes) -> None:
    """Frameworks catch everything. What says that the run must not go on is no Exception, and it
    is raised again by whatever is called next."""
    store, other = place.open(), place.open()

    @perdure.tool
    def act() -> None:
        crash.note("acted")

    turns: list[int] = []
    told: list[Any] = []

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        turns.append(run.epoch)
        if len(turns) > 1:
            return "the successor's"
        (branch,) = other.agent("a").branches()
        other._context.backend.lease(1, "main", None, over=branch.epoch)  # as a takeover does
        for call in (act, lambda: run.state, lambda: run.call(len, "x"), run.now, act):
            try:
                try:
                    call()
                except Exception:
                    crash.note("swallowed")
            except BaseException as interrupt:
                told.append(interrupt)
        return "as if nothing had happened"

    assert store.run(f, "a") == "the successor's"
    assert crash.calls == [] and len(turns) == 2 and turns[1] > turns[0]
    assert [type(interrupt) for interrupt in told] == [perdure.RunInterrupted] * 5
    assert {type(interrupt.__cause__) for interrupt in told} == {perdure.Fenced}
    assert told[0].reason is told[0].__cause__


def test_an_agent_that_is_gone_interrupts_its_run(place: Place, crash: Crashes) -> None:
    """A zombie whose agent had been deleted meanwhile got NotFound in its function, which went on
    with the next tool call."""
    store, other = place.open(), place.open()

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        if run.id.endswith("~2"):
            return
        (branch,) = other.agent("a").branches()
        other._context.backend.lease(1, "main", None, over=branch.epoch)
        other.delete("a")
        try:
            run.call(len, "x")
        except Exception:
            crash.note("swallowed")

    with pytest.raises(PerdureError, match="deleted"):
        store.run(f, "a")
    assert crash.calls == []


def test_a_lease_that_is_gone_does_not_keep_those_after_it(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease that could not be given back stayed first among those that were owed, and a process
    whose agent had been purged under it never gave back any other."""
    store, other = place.open(), place.open()
    liveness, backend = store.runner.liveness, other._context.backend
    liveness.start()
    claims: dict[str, Claim] = {}
    for name in ("purged", "damaged", "kept"):
        other.agent(name, initial={}).checkpoint("there")
        info = backend.agent(name)
        assert info is not None
        claims[name] = Claim(name, info.no, "main")
        look = Look(store._context.backend, name, "")
        claims[name].epoch = liveness.take(claims[name], look)

    held = backend.ref(claims["purged"].no or 0, "main")
    assert held is not None
    backend.lease(claims["purged"].no or 0, "main", None, over=held.held)  # as a takeover does
    other.delete("purged", purge=True)
    other.purge()

    lease: Any = store._context.backend.lease

    def damaged(no: int, *args: Any, **more: Any) -> Any:
        if no == claims["damaged"].no:
            raise Corrupt("a page is damaged", target="the store")
        return lease(no, *args, **more)

    vars(store._context.backend).update(lease=damaged)
    for claim in claims.values():
        liveness.release(claim)
    assert backend.ref(claims["kept"].no or 0, "main").held is None  # type: ignore[union-attr]
    assert "a page is damaged" in caplog.text
    vars(store._context.backend).update(lease=lease)
    liveness.settle()
    assert backend.ref(claims["damaged"].no or 0, "main").held is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "asked", ["start", "start, keyed", "result", "the end that was asked for", "now", "select"]
)
def test_i8_what_the_engine_asks_in_vain_is_no_failure_of_the_function(
    place: Place, asked: str
) -> None:
    """Story: a server was away while a run started another one. The function got that as an error
    of its own, and when the server was back soon enough the run was recorded as failed."""
    store = place.open()
    backend: Any = store._context.backend
    away = [0]

    def failing(method: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            if away[0]:
                away[0] -= 1
                raise StoreUnavailable("the server is away")
            return method(*args, **more)

        return call

    names = ("runs", "inbox", "now", "agent", "read")
    for name in names:
        vars(backend)[name] = failing(getattr(backend, name))

    @perdure.agent(dict, name=f"child-{asked.replace(' ', '-')}")
    def child(run: perdure.Run[dict]) -> str:
        return "told"

    @perdure.agent(dict, name=f"asking-{asked.replace(' ', '-')}")
    def asking(run: perdure.Run[dict]) -> str:
        turns.append(asked)
        first = len(turns) == 1
        if asked.startswith("start"):
            away[0] = first
            keyed = run.options(key="k") if "keyed" in asked else run
            return str(keyed.start(child, "b").result(timeout=0, default="told"))
        if asked == "result":
            one = run.start(child, "b")
            away[0] = first
            return str(one.result(timeout=0, default="told"))
        away[0] = first
        if asked == "now":
            run.now()
        elif asked == "select":
            run.wait_for("s", timeout=0, default=None)
        else:
            run._execution.news()
            run.call(len, "x")
        return "told"

    turns: list[str] = []
    with pytest.raises(StoreUnavailable, match="the server is away"):
        store.run(asking, "a")
    assert [row.status for row in store.runs("a")] == ["running"]
    assert store.run(asking, "a") == "told"
    assert len(turns) == 2
    for name in names:
        del vars(backend)[name]


@contextmanager
def one_fails(store: Store, at: int, *, did: bool) -> Iterator[None]:
    """One append, the `at`-th, whether it happened (`did`) or not; all others go through."""
    backend: Any = store._context.backend
    numbers, append = itertools.count(1), backend.append

    def fail(batch: Any) -> Any:
        if next(numbers) != at:
            return append(batch)
        if did:
            append(batch)
        time.sleep(0.03)  # others come meanwhile, and are next
        raise StoreUnavailable("locked for too long", outcome="unknown" if did else "not_done")

    backend.append = fail
    with suppress(StoreUnavailable):
        yield
    del backend.append


@perdure.step
def slow(number: int) -> int:
    time.sleep(0.01)
    return number


@perdure.agent(dict)
def waits_and_maps(run: perdure.Run[dict]) -> list[int]:
    run.select(go=perdure.Signal("g0"), late=perdure.Timer(timedelta(seconds=60)))
    return run.map(slow, [0, 2])


@perdure.agent(dict)
async def waits_side_by_side(run: perdure.AsyncRun[dict]) -> list[int]:
    async def one(number: int) -> int:
        await run.wait_for(f"g{number}")
        return await run.call(slow, number)

    return list(await asyncio.gather(one(0), one(1), one(2), run.call(slow, 3)))


@pytest.mark.parametrize("did", [False, True], ids=["did not happen", "happened"])
@pytest.mark.parametrize("function", [waits_and_maps, waits_side_by_side])
def test_a_commit_that_fails_beside_another_leaves_no_hole(
    place: Place, function: Any, did: bool
) -> None:
    """What a wait gave was to be recorded with it. The next commit went through without: the run
    needed attention for good, as what it waited for was not in its log."""

    store, expected = place.open(), [0, 2] if function is waits_and_maps else [0, 1, 2, 3]

    def run(agent: str) -> Any:
        if function is waits_and_maps:
            return store.run(function, agent)

        async def go() -> Any:
            return await AsyncStore(store).run(function, agent)

        return asyncio.run(go())

    for at in range(1, 9):
        agent = f"a{at}"
        handle = store.start(function, agent)
        for name in ("g0", "g1", "g2"):
            handle.signal(name, 1)
        with one_fails(store, at, did=did):
            assert run(agent) == expected
        assert run(agent) == expected


@perdure.agent(dict)
async def draws_meanwhile(run: perdure.AsyncRun[dict]) -> int:
    async def draw() -> int:
        await asyncio.sleep(0.02)  # the others' commit is under way
        for _ in range(10):
            run.random()
        return await run.call(slow, 1)

    return sum(await asyncio.gather(draw(), run.call(slow, 2), run.call(slow, 3)))


def test_what_is_put_off_while_a_commit_fails_is_recorded_once(place: Place) -> None:
    """It was taken for what had waited for that commit, and put back beside itself."""
    store = place.open()

    async def go(agent: str) -> Any:
        return await AsyncStore(store).run(draws_meanwhile, agent)

    for at in range(2, 5):
        agent = f"a{at}"
        with one_fails(store, at, did=False):
            asyncio.run(go(agent))
        assert asyncio.run(go(agent)) == 6
        log = store.agent(agent).log()
        drawn = [r["place"] for commit in log for r in commit.records if r["t"] == "value"]
        assert len(drawn) == len(set(drawn)) == 10
