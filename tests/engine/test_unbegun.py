"""Runs that were requested and have not begun: ended, and set aside for a person, without anybody
who serves their functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure.engine.control import unbegun
from perdure.errors import Conflict, RunFailed
from perdure.replication import following
from perdure.storage.retention import REQUESTS
from perdure.store import Store
from tests.engine.conftest import Place
from tests.engine.waits import Background, go, records, until, verify_all
from tests.engine.working import BOUND_S, working

CALLED: list[str] = []


@perdure.agent(dict)
def say(run: perdure.Run[dict], text: str) -> str:
    CALLED.append(text)
    return text


@perdure.agent(dict, name="say")
async def asaying(run: perdure.AsyncRun[dict], text: str) -> str:
    CALLED.append(text)
    return text


@perdure.agent(dict)
def waiting(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    CALLED.clear()
    yield
    verify_all(place)


def test_one_that_nobody_serves_is_ended_where_it_is_cancelled(place: Place) -> None:
    """A request was cancelled, and stayed pending until a worker with its function came; agents()
    did not show its agent, delete() said that there was none, and its text stayed in the file."""
    store = place.open()
    handle = store.start(say, "customer", "a secret")
    handle.signal("note", "kept")
    handle.cancel("a mistake")
    assert (handle.status, handle.info.problem) == ("cancelled", "a mistake")
    assert [run.status for run in store.runs()] == ["cancelled"]
    assert [info.name for info in store.agents()] == ["customer"]
    assert store.runner.context.backend.inbox() == []
    [begun, ended] = records(store, "customer")
    assert (begun["t"], begun["preview"]) == ("run-started", "text='a secret'")
    assert [one["value"] for one in ended["left"]] == ["kept"]
    with pytest.raises(RunFailed, match="was cancelled: a mistake"):
        handle.result(timeout=0)
    with pytest.raises(RunFailed, match="a mistake"):
        store.run(say, "customer", "a secret")
    assert store.start(say, "customer", "a secret").status == "cancelled", "the same, once more"
    with pytest.raises(Conflict, match="other arguments"):
        store.start(say, "customer", "another")
    with pytest.raises(Conflict, match="cancelled already"):
        handle.cancel()
    assert handle.why().situation == "finished"
    store.delete("customer", purge=True)
    store.purge()
    assert store.agents() == [] and CALLED == []


def test_its_agent_is_the_one_that_was_requested(store: Store) -> None:
    """The agent is made by who cancels, whose program may know no class of its."""
    from pydantic import BaseModel

    class Ticket(BaseModel):
        customer: str
        notes: list[str] = []

    @perdure.agent(perdure.Schema(Ticket, id="ticket", version=(2, 1)))
    def handling(run: perdure.Run[Any]) -> str:
        return str(run.state.customer)

    options = store.options(initial=Ticket(customer="c-7"))
    handle = options.start(handling, "t")
    store.handle(handle.id).cancel()
    agent = store.agent("t", perdure.Schema(Ticket, id="ticket", version=(2, 1)))
    assert agent.state == Ticket(customer="c-7")
    assert (agent.commit(1).schema_id, agent.commit(1).schema_version) == ("ticket", (2, 1))
    assert store.options(key="next").run(handling, "t") == "c-7"


def test_one_behind_a_run_that_is_executed_is_ended_at_once(place: Place) -> None:
    """Its branch is another process's, and whoever serves its function may never come."""
    inside, go_on = threading.Event(), threading.Event()

    @perdure.agent(dict)
    def holding(run: perdure.Run[dict]) -> str:
        run.call(inside.set)
        assert go_on.wait(60)
        return "held"

    running = Background(lambda: place.open().run(holding, "a"))
    until(lambda: inside.is_set() or running.ended)
    store = place.open()
    for number in range(2):
        handle = store.options(key=f"{number}").start(say, "a", "never")
        handle.cancel("no longer")
        assert (handle.status, handle.info.branch) == ("cancelled", REQUESTS)
    go_on.set()
    assert running.join() == "held"
    with (
        pytest.raises(perdure.Conflict, match="@requests"),
        store.agent("a", branch=REQUESTS).edit("not ours") as draft,
    ):
        draft["x"] = 1
    assert go(store, say, "a", "after", key="after") == "after"
    assert CALLED == ["after"]


@pytest.mark.parametrize("there", [False, True])
def test_who_begins_it_at_that_moment_begins_it_not_at_all(
    place: Place, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """A worker had looked, and was about to begin it, when it was cancelled: what is said to be
    cancelled must never execute."""
    store, other = place.open(), place.open()
    if there:
        store.agent("a").update(lambda draft: draft.update(there=True))
    handle = other.start(say, "a", "never")
    backend = store.runner.context.backend
    append, said = backend.append, list[str]()

    def late(batch: Any) -> Any:
        if not said and any(run.id == handle.id for item in batch for run in _rows(item)):
            said.append(handle.id)
            handle.cancel("at this moment")
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    with working(store, say):
        until(lambda: said)
        assert store.start(say, "b", "other").result(BOUND_S) == "other"
    assert (handle.status, CALLED) == ("cancelled", ["other"])


def _rows(item: Any) -> list[Any]:
    return [*item.riders.runs, *(row for then in item.then for row in _rows(then))]


@pytest.mark.parametrize("there", [False, True])
def test_one_that_begins_at_that_moment_is_cancelled_as_one_that_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    store, other = place.open(), place.open()
    if there:
        store.agent("a").update(lambda draft: draft.update(there=True))
    handle = store.start(waiting, "a")
    backend = store.runner.context.backend
    append, said = backend.append, list[str]()

    def late(batch: Any) -> Any:
        if not said:
            said.append("now")
            go(other, waiting)
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    handle.cancel("enough")
    assert (handle.status, handle.info.problem) == ("cancelled", "enough")
    assert [one["t"] for one in records(store)][-2:] == ["run-waiting", "run-cancelled"]


def test_a_signal_that_comes_at_that_moment_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = store.start(waiting, "a")
    backend = store.runner.context.backend
    append, said = backend.append, list[str]()

    def late(batch: Any) -> Any:
        if not said:
            said.append("now")
            handle.signal("go", 1)
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    handle.cancel()
    [end] = records(store, kind="run-cancelled")
    assert [one["value"] for one in end["left"]] == [1]


# -- children ----------------------------------------------------------------------------------


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> str:
    child = run.options(key="k").start(say, "child", "for the parent")
    try:
        return child.result()
    except RunFailed as failed:
        return str(failed.problem)


def test_a_parent_hears_of_it(store: Store) -> None:
    go(store, parent, "p")
    store.handle("child/say/k").cancel("not that one")
    assert store.run(parent, "p") == "was cancelled: not that one"


def test_children_that_nobody_serves_end_with_their_parent(store: Store) -> None:
    go(store, parent, "p")
    store.handle("p/parent/main").cancel("enough")
    child = store.handle("child/say/k")
    assert (child.status, child.info.problem) == ("cancelled", "with p/parent/main")
    assert store.runner.context.backend.inbox() == []


def test_children_of_a_deleted_agent_end_with_it(store: Store) -> None:
    go(store, parent, "p")
    store.delete("p")
    assert store.handle("child/say/k").status == "cancelled"


def test_one_whose_canceller_was_killed_is_ended_by_any_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked to end with its parent, in the commit of the parent's end; who was to end it was
    gone then, and no worker had its function."""
    store = place.open()
    go(store, parent, "p")
    with monkeypatch.context() as killed:
        killed.setattr(unbegun, "end_unbegun", lambda *_: False)
        store.handle("p/parent/main").cancel("enough")
    child = store.handle("child/say/k")
    assert child.status == "pending"
    with working(place.open(), waiting):
        until(lambda: child.status == "cancelled")


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_one_whose_canceller_was_killed_is_ended_by_who_calls_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, there: bool, is_async: bool
) -> None:
    """Who called it with its key, where its agent was not there, began it again and again: each
    begin was refused, for the request to end that it did not take, and the call never returned."""
    store = place.open()
    if there:
        store.agent("child").update(lambda draft: draft.update(there=True))
    go(store, parent, "p")
    with monkeypatch.context() as killed:
        killed.setattr(unbegun, "end_unbegun", lambda *_: False)
        store.handle("p/parent/main").cancel("enough")
    say_too = store.start(say, "other", "free")

    async def called() -> None:
        async with perdure.open_async(place.url) as opened:
            await opened.options(key="k").run(asaying, "child", "for the parent")

    with pytest.raises(RunFailed, match="with p/parent/main"):
        if is_async:
            asyncio.run(called())
        else:
            store.options(key="k").run(say, "child", "for the parent")
    assert CALLED == [] and [run.status for run in store.runs("child")] == ["cancelled"]
    assert [one.run for one in store.runner.context.backend.inbox()] == [say_too.id]
    say_too.cancel()


# -- for a person ------------------------------------------------------------------------------


def test_one_that_needs_a_person_begins_when_it_is_resumed(store: Store) -> None:
    handle = store.start(say, "a", "later")
    handle.signal("note")
    context, wakeups = store.runner.context, store.runner.wakeups
    assert unbegun.stop_unbegun(context, wakeups, handle.id, "its library is not there")
    assert not unbegun.stop_unbegun(context, wakeups, handle.id, "again")
    assert (handle.status, handle.why().situation) == ("needs_attention", "stopped")
    with pytest.raises(perdure.NeedsAttention, match="its library is not there"):
        handle.result(timeout=0)
    assert [run.id for run in store.runs(status=["needs_attention"])] == [handle.id]
    handle.resume()
    assert store.run(say, "a", "later") == "later"


def test_one_that_needs_a_person_can_be_cancelled(store: Store) -> None:
    handle = store.start(say, "a", "never")
    unbegun.stop_unbegun(store.runner.context, store.runner.wakeups, handle.id, "broken")
    handle.cancel("then not")
    assert (handle.status, CALLED) == ("cancelled", [])


# -- elsewhere ---------------------------------------------------------------------------------


def test_it_is_cancelled_in_a_copy_too(place: Place) -> None:
    """A follower had the request; promoted, it must not begin what was cancelled."""
    store = place.open()
    kept, ended = store.start(say, "kept", "yes"), store.start(say, "ended", "no")
    copy = f"memory://copy-of-{id(place)}"
    target = perdure.open(copy)
    with following(place.url, copy) as follower:
        follower.step()
        assert [run.status for run in target.runs()] == ["pending", "pending"]
        ended.cancel()
        follower.step()
        assert {run.id: run.status for run in target.runs()} == {
            kept.id: "pending",
            ended.id: "cancelled",
        }
        assert [one.run for one in target.runner.context.backend.inbox()] == [kept.id]
    target.close()


def test_from_an_event_loop(place: Place) -> None:
    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            handle = await store.start(say, "a", "never")
            await handle.cancel("async", wait=True, timeout=0)
            assert await handle.status() == "cancelled"

    asyncio.run(main())
