"""A child that ends while its parent cancels it, or tells it something: the parent has looked at
it, and its commit is on the way. What is recorded is what the child came to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import perdure
from perdure.engine.execution.commit_items import Flight, Item, next_items
from perdure.errors import Conflict, RunFailed, TimedOut
from perdure.model import Cause
from perdure.storage.appending import Riders
from perdure.storage.log.refusals import EndedError
from perdure.store import Store
from tests.engine.conftest import Async, Place
from tests.engine.waits import HOUR, Clock, go, just_before, records, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


def begun(store: Store, agent: str = "kid") -> None:
    go(store, child, agent, key="k")


def ends(store: Store, agent: str = "kid") -> Callable[[], None]:
    def act() -> None:
        store.handle(f"{agent}/child/k").signal("go", "it is done")
        go(store, child, agent, key="k")

    return act


def is_deleted(store: Store) -> Callable[[], None]:
    def act() -> None:
        store.delete("kid", purge=True)
        store.purge()

    return act


def said(store: Store, place: str) -> dict[str, Any]:
    (record,) = [one for one in records(store, "a", "step") if one["place"] == place]
    return record


# -- that it is to end -----------------------------------------------------------------------------


@perdure.agent(dict)
def cancelling(run: perdure.Run[dict]) -> Any:
    kid = run.options(key="k").start(child, "kid")
    run.wait_for("go")
    asked = kid.cancel("nobody needs it")
    run.wait_for("go on")
    try:
        return [asked, kid.result()]
    except RunFailed as error:
        return [asked, error.problem]


@pytest.mark.parametrize("gone", [False, True])
def test_a_child_that_ended_at_the_same_moment_is_not_said_to_be_cancelled(
    place: Place, gone: bool
) -> None:
    """`child.cancel()` said True, and `child.result()` gave the child's good result: its parent did
    not undo what it had done."""
    store, other = place.open(), place.open()
    go(store, cancelling)
    begun(store)
    handle = store.handle("a/cancelling/main")
    handle.signal("go")
    act = is_deleted(other) if gone else ends(other)
    done = just_before(store, "kid/child/k", act, "going")
    go(store, cancelling)
    assert done
    handle.signal("go on")
    result = "was cancelled: its agent was deleted" if gone else "it is done"
    assert go(store, cancelling) == [False, result]
    record = said(store, "cancel:child#1")
    assert record["value"] is False and "sent" not in record
    assert store.runner.context.backend.inbox() == []


def test_a_child_whose_end_comes_behind_its_cancellation_is_cancelled(place: Place) -> None:
    store, other = place.open(), place.open()
    go(store, cancelling)
    begun(store)
    for word in ("go", "go on"):
        store.handle("a/cancelling/main").signal(word)
    store.handle("kid/child/k").signal("go", "it is done")
    done: list[str] = []

    def cancels() -> None:
        done.append("cancelled")
        go(store, cancelling)

    committer = other.runner.context.committer
    submit = committer.submit

    def submitting(proposal: Any) -> Any:
        if proposal.riders.read_to and not done:  # its end
            cancels()
        return submit(proposal)

    committer.submit = submitting  # type: ignore[method-assign]
    with pytest.raises(RunFailed):
        go(other, child, "kid", key="k")
    assert done and go(store, cancelling) == [True, "was cancelled: nobody needs it"]


# -- what it is told -------------------------------------------------------------------------------


@perdure.agent(dict)
def telling(run: perdure.Run[dict]) -> Any:
    kid = run.options(key="k").start(child, "kid")
    run.wait_for("go")
    try:
        kid.signal("word", "billing")
        told = "told"
    except Conflict as error:
        told = error.problem
    run.wait_for("go on")
    return told


def test_a_child_that_ended_at_the_same_moment_is_told_nothing(place: Place) -> None:
    """The signal was recorded as sent, and went to nobody."""
    store, other = place.open(), place.open()
    go(store, telling)
    begun(store)
    handle = store.handle("a/telling/main")
    handle.signal("go")
    done = just_before(store, "kid/child/k", ends(other), "going")
    go(store, telling)
    assert done
    handle.signal("go on")
    assert go(store, telling) == "has ended: nobody would receive it"
    record = said(store, "signal:word#1")
    assert "Conflict" in str(record["error"]) and "sent" not in record


# -- when its time is up ---------------------------------------------------------------------------


@perdure.agent(dict)
def impatient(run: perdure.Run[dict]) -> Any:
    kid = run.options(key="k").start(child, "kid")
    run.wait_for("go")
    try:
        return kid.result(timeout=HOUR)
    except TimedOut:
        return "late"
    except RunFailed as error:
        return error.problem


@pytest.mark.parametrize("gone", [False, True])
def test_a_child_that_ended_as_its_time_was_up_has_a_result(
    place: Place, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Its parent was told that it took too long, and that it had been asked to end; and it was
    done."""
    clock = Clock(monkeypatch)
    store, other = place.open(), place.open()
    go(store, impatient)
    begun(store)
    store.handle("a/impatient/main").signal("go")
    go(store, impatient)
    clock.forward(HOUR + 1)
    act = is_deleted(other) if gone else ends(other)
    done = just_before(store, "kid/child/k", act, "going")
    result = go(store, impatient)
    assert done
    assert result == ("was cancelled: its agent was deleted" if gone else "it is done")
    (_, ended) = records(store, "a", "wait-ended")
    assert ended["label"] == "it" and "sent" not in ended
    assert store.runner.context.backend.inbox() == []


# -- in an event loop ------------------------------------------------------------------------------


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """`just_before` for the next store that is opened."""

    def hook(run: str, act: Callable[[], Any]) -> list[list[str]]:
        opened: list[list[str]] = []
        real = perdure.store.Store.__init__

        def opening(self: Store, *args: Any, **more: Any) -> None:
            real(self, *args, **more)
            opened.append(just_before(self, run, act, "going"))

        monkeypatch.setattr(perdure.store.Store, "__init__", opening)
        return opened

    return hook


@perdure.tool(on_crash="fail")
async def pay(name: str) -> str:
    return f"paid {name}"


@pytest.mark.parametrize("ended", [[], ["k1"], ["k2"], ["k1", "k3"], ["k1", "k2", "k3"]])
def test_of_several_in_one_commit_each_comes_to_its_own(
    place: Place, runs: Async, before_commit: Any, ended: list[str]
) -> None:
    """They share a commit, with the outcomes of payments beside them: each comes to what it would
    have come to by itself."""
    other = place.open()

    @perdure.agent(dict)
    async def gathering(run: perdure.AsyncRun[dict]) -> Any:
        kids = [await run.options(key="k").start(child, name) for name in ("k1", "k2", "k3")]
        await run.call(begin)

        async def tell() -> str:
            try:
                await kids[2].signal("word", "billing")
            except Conflict as error:
                return error.problem
            return "told"

        asked = (kid.cancel("nobody needs it") for kid in kids[:2])
        return await asyncio.gather(pay("Ada"), *asked, tell(), pay("Eve"))

    def begin() -> None:
        for name in ("k1", "k2", "k3"):
            begun(other, name)

    def act() -> None:
        for name in ended:
            ends(other, name)()

    opened = before_commit("k1/child/k", act)
    told = "has ended: nobody would receive it" if "k3" in ended else "told"
    expected = ["paid Ada", "k1" not in ended, "k2" not in ended, told, "paid Eve"]
    assert runs.run(gathering) == expected
    assert any(opened)
    assert [one["value"] for one in records(runs.store, "a", "outcome")] == ["paid Ada", "paid Eve"]
    effects = runs.store.handle("a/gathering/main").effects()
    assert [one.state for one in effects] == ["done", "done"]
    sent = {one["sent"]["run"] for one in records(runs.store, "a", "step") if one.get("sent")}
    assert sent == {f"{name}/child/k" for name in {"k1", "k2", "k3"} - {*ended}}


@pytest.mark.parametrize("waits", [False, True])
def test_a_task_that_is_cancelled_while_its_child_ends_hears_of_that(
    place: Place, runs: Async, before_commit: Any, waits: bool
) -> None:
    other = place.open()
    tasks: list[asyncio.Task[Any]] = []

    @perdure.agent(dict)
    async def giving_up(run: perdure.AsyncRun[dict]) -> Any:
        kid = await run.options(key="k").start(child, "kid")
        await run.call(begun, other)

        async def give_up() -> Any:
            return await (kid.result(timeout=0) if waits else kid.cancel("nobody needs it"))

        tasks.append(asyncio.create_task(give_up()))
        try:
            told = await tasks[-1]
        except asyncio.CancelledError:
            told = "cancelled"
        return [told, await kid.result(), await run.call(str, told)]

    def act() -> None:
        tasks[-1].cancel()
        ends(other)()

    opened = before_commit("kid/child/k", act)
    assert runs.run(giving_up) == ["cancelled", "it is done", "cancelled"]
    assert any(opened)
    (heard,) = records(runs.store, "a", "cancelled")
    if not waits:
        assert said(runs.store, heard["place"])["value"] is False


def test_what_tells_runs_something_shares_a_commit_until_it_is_refused() -> None:
    """A run that told a hundred children something in tasks would make a hundred commits of it, one
    after the other."""
    cause, nothing = Cause("step"), cast(Any, None)
    plain, edit = Item(cause), Item(cause, change=cast(Any, "a move"))
    one, two = (Item(cause, Riders(going=(run,))) for run in ("r", "q"))
    queue = [plain, one, plain, two, plain, edit, plain]
    taken = next_items(queue)
    assert taken == [plain, one, plain, two, plain]
    assert next_items(queue) == [edit] and queue == [plain]
    ended = EndedError("has ended")
    flight = Flight(taken, nothing, nothing, None)
    assert flight.overtaken(ended) == ([], taken)
    queue = [*taken, edit]
    taken = next_items(queue)
    assert taken == [plain, one]
    assert Flight(taken, nothing, nothing, None).overtaken(ended) == ([one], [plain])
    assert next_items(queue) == [plain, two] and next_items(queue) == [plain, edit]
