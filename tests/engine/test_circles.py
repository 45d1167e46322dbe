"""Runs that wait for each other: found when the circle closes, and named where there is one (I8).

A buyer's run started a child on the seller's agent and waited for it, and the seller's one on the
buyer's. Each child was queued behind the run of the other: all four waited for ever, and `why`
called each of them fine.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import Signal
from perdure.engine.control.stopping import stop_in_circle
from perdure.errors import Conflict, NeedsAttention, TimedOut
from perdure.store import Store
from tests.engine.conftest import Async, Place
from tests.engine.waits import HOUR, Background, go, until, verify_all
from tests.engine.working import working


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def leaf(run: perdure.Run[dict]) -> int:
    return 1


@perdure.agent(dict)
def trade(run: perdure.Run[dict], other: str) -> str:
    return f"got {run.start(leaf, other).result()}"


def leaves(store: Store) -> list[str]:
    return [run.id for run in store.runs(function="leaf")]


def close(store: Store, *agents: str) -> NeedsAttention:
    """Let each start a child on the next one's agent, and the last on the first one's."""
    for agent, other in itertools.pairwise(agents):
        assert go(store, trade, agent, other) is None
        assert store.handle(f"{agent}/trade/main").why().situation == "waiting"
    with pytest.raises(NeedsAttention) as stopped:
        go(store, trade, agents[-1], agents[0])
    return stopped.value


@pytest.mark.parametrize("agents", [("X", "Y"), ("X", "Y", "Z")])
def test_the_run_that_closes_a_circle_needs_attention(
    store: Store, agents: tuple[str, ...]
) -> None:
    problem = str(close(store, *agents))
    last = store.handle(f"{agents[-1]}/trade/main")
    assert last.status == "needs_attention"
    assert last.info.problem == problem
    for run in [*leaves(store), *(f"{agent}/trade/main" for agent in agents)]:
        assert run in problem, "the whole circle is named"
    assert problem.count("which is queued behind") == len(agents)
    first = store.handle(f"{agents[0]}/trade/main")
    assert first.status == "waiting", "one of them is enough"

    last.cancel()
    with working(store, leaf, trade):
        assert [store.handle(f"{one}/trade/main").result(30) for one in agents[:-1]] == [
            "got 1" for _ in agents[:-1]
        ]


def test_ending_another_one_of_the_circle_is_a_way_out_too(store: Store) -> None:
    hint = str(close(store, "X", "Y"))
    assert "`perdure cancel X/trade/main`, and then `perdure resume Y/trade/main`" in hint
    closing = store.handle("Y/trade/main")
    closing.resume()
    with pytest.raises(NeedsAttention):
        go(store, trade, "Y", "X")
    assert closing.status == "needs_attention", "nothing was put right"
    store.handle("X/trade/main").cancel()
    closing.resume()
    with working(store, leaf, trade):
        assert closing.result(30) == "got 1"


def test_a_child_and_its_parents_circle_over_other_agents(store: Store) -> None:
    """What is refused at the call is a child on an agent of its own line; here the line breaks."""

    @perdure.agent(dict)
    def gather(run: perdure.Run[dict], *others: str) -> list[Any]:
        children = [run.start(leaf, other) for other in others]
        return [child.result() for child in children]

    assert go(store, gather, "X", "free", "Y") is None
    assert go(store, gather, "Y", "X") is None, "X waits for one that can begin"
    for run in leaves(store):
        if run.startswith("free/"):
            go(store, leaf, "free", key=run.rpartition("/")[2])
    with pytest.raises(NeedsAttention, match="in a circle"):
        go(store, gather, "X", "free", "Y")


def test_a_wait_that_something_else_can_end_is_none(store: Store) -> None:
    @perdure.agent(dict)
    def patient(run: perdure.Run[dict], other: str, how: str) -> str:
        child = run.start(leaf, other)
        if how == "timeout":
            return str(child.result(timeout=HOUR, default="late"))
        return run.select(child=child, told=Signal("told")).name

    assert go(store, patient, "X", "Y", "timeout") is None
    assert go(store, patient, "Y", "X", "signal") is None
    assert go(store, trade, "Z", "X") is None, "it leads to a circle that somebody can open"
    for agent in "XYZ":
        (run,) = store.runs(agent=agent, status=["waiting"])
        assert store.handle(run.id).why().situation == "waiting"
    store.handle("Y/patient/main").signal("told")
    assert go(store, patient, "Y", "X", "signal") == "told"


def test_an_asynchronous_run_closes_one_too(runs: Async) -> None:
    @perdure.agent(dict)
    async def trade_async(run: perdure.AsyncRun[dict], *others: str) -> list[int]:
        children = [await run.start(leaf, other) for other in others]
        return await asyncio.gather(*(child.result() for child in children))

    assert go(runs.store, trade, "X", "a") is None
    with pytest.raises(NeedsAttention, match="in a circle"):
        runs.run(trade_async, "X")
    assert runs.info("trade_async").status == "needs_attention"


def test_why_names_a_circle_that_is_there_already(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an older version, or where the process died before it looked."""
    monkeypatch.setattr("perdure.engine.dispatch.conclusion.stop_in_circle", lambda *_: None)
    go(store, trade, "X", "Y")
    go(store, trade, "Y", "X")
    go(store, trade, "Z", "Y")
    for run in store.runs(unfinished=True):
        said = store.handle(run.id).why()
        assert said.situation == "stopped", run.id
        assert "wait for each other in a circle: run" in said.why
        assert {"X/trade/main", "Y/trade/main"} <= {w.command[-1] for w in said.ways}, run.id
        assert (said.behind is not None) == (run.function == "leaf")
    ends = [way.command for way in store.handle("X/trade/main").why().ways]
    assert ("cancel", "Y/trade/main") in ends


def test_two_that_close_it_at_the_same_moment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looked, and saw the other being executed."""
    both = threading.Barrier(2, timeout=60)

    def together(*args: Any) -> Any:
        both.wait()
        return stop_in_circle(*args)

    monkeypatch.setattr("perdure.engine.dispatch.conclusion.stop_in_circle", together)
    stores = place.open(), place.open()
    calls = [
        Background(lambda s=s, a=a, b=b: go(s, trade, a, b))  # type: ignore[misc]
        for s, a, b in zip(stores, "XY", "YX", strict=True)
    ]
    ended: list[Any] = []
    for call in calls:
        try:
            ended.append(call.join())
        except NeedsAttention as stopped:
            ended.append(stopped)
    assert any(isinstance(end, NeedsAttention) for end in ended)
    statuses = {stores[0].handle(f"{agent}/trade/main").status for agent in "XY"}
    assert "needs_attention" in statuses


# -- in place --------------------------------------------------------------------------------


@perdure.agent(dict)
def for_a_handle(run: perdure.Run[dict], which: str) -> Any:
    here = _stores[-1]
    handles = {
        "own": lambda: here.handle(run._execution.id),
        "queued": lambda: here.options(key="behind").start(leaf, run._execution.agent),
    }
    try:
        return handles[which]().result()
    except Conflict as refused:
        return str(refused)


_stores: list[Store] = []


@pytest.mark.parametrize("which", ["own", "queued"])
def test_a_handles_result_of_what_must_wait_for_oneself_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """It blocked for ever, and `why` said: executing; nothing, while it works."""
    monkeypatch.setitem(globals(), "_stores", [store])
    said = go(store, for_a_handle, "a", which)
    assert "would wait for itself: run a/for_a_handle/main waits for run a/" in said


def test_an_asynchronous_handles_result_is_refused_too(place: Place) -> None:
    kept = place.open()  # a memory store lives as long as it is open

    async def main() -> Any:
        async with perdure.open_async(place.url, durability="os") as store:

            @perdure.agent(dict)
            async def ahead(run: perdure.AsyncRun[dict]) -> Any:
                handle = await store.options(key="behind").start(leaf, "a")
                with pytest.raises(TimedOut):
                    await handle.result(timeout=0.05)
                with pytest.raises(Conflict) as refused:
                    await handle.result()
                return str(refused.value)

            return await asyncio.wait_for(store.run(ahead, "a"), 60)

    assert "which is queued behind run a/ahead/main" in asyncio.run(main())
    assert kept.handle("a/leaf/behind").why().situation == "pending"


def test_a_handles_result_with_a_timeout_just_times_out(store: Store) -> None:
    @perdure.agent(dict)
    def looks(run: perdure.Run[dict]) -> str:
        try:
            store.options(key="behind").start(leaf, "a").result(timeout=0.05)
        except TimedOut:
            return "not yet"
        return "done"

    assert go(store, looks) == "not yet"


def test_runs_that_run_each_other_in_place_are_refused_where_it_closes(store: Store) -> None:
    """Each stood by until the other would have ended."""
    both = threading.Barrier(2, timeout=60)

    @perdure.agent(dict)
    def calls(run: perdure.Run[dict], other: str) -> str:
        both.wait()
        try:
            return f"{store.run(leaf, other)}"
        except Conflict as refused:
            return str(refused)

    x, y = (
        Background(lambda a=a, b=b: store.run(calls, a, b))  # type: ignore[misc]
        for a, b in ("XY", "YX")
    )
    ends = [x.join(), y.join()]
    assert any("would wait for itself" in end for end in ends)


def test_a_run_that_another_one_waits_for_in_place_closes_one(store: Store) -> None:
    """The one whose code blocks is executed: only this process knows that it waits."""
    waits = threading.Event()

    @perdure.agent(dict)
    def blocks(run: perdure.Run[dict]) -> Any:
        handle = store.start(trade, "Y", "X")
        waits.set()
        try:
            return handle.result()
        except (Conflict, NeedsAttention) as refused:
            return str(refused)

    blocked = Background(lambda: store.run(blocks, "X"))
    waits.wait(60)
    until(lambda: [*store.runner.wakeups.in_place])
    with suppress(NeedsAttention):  # unless the other one has seen it first, and ended
        go(store, trade, "Y", "X")
    assert "X/leaf" in blocked.join()
