"""New runs on other branches than main: what-ifs of a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure import Conflict, NotFound, Store
from perdure.engine.control.stopping import stop
from perdure.engine.dispatch import pending_orders
from perdure.testing import run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import verify_all
from tests.engine.working import wait_until, working


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def say(run: perdure.Run[dict], words: str) -> list[str]:
    with run.edit("said") as draft:
        draft.setdefault("said", []).append(words)
    return list(run.state["said"])


@perdure.agent(dict)
async def asay(run: perdure.AsyncRun[dict], words: str) -> list[str]:
    async with run.edit("said") as draft:
        draft.setdefault("said", []).append(words)
    return list(run.state["said"])


@perdure.agent(dict)
def listen(run: perdure.Run[dict]) -> str:
    return str(run.wait_for("words"))


def chat(store: Store, *branches: str) -> Any:
    store.options(key="m-1").run(say, "a", "hello")
    agent = store.agent("a")
    for branch in branches:
        agent.fork(branch)
    return agent


def test_a_turn_on_a_branch(store: Store) -> None:
    """A conversation was forked as a what-if, and there was no way to let it go on: a new run began
    on main, whatever its key, and only a run that existed at the fork could be forked."""
    agent = chat(store, "what-if")
    there = store.options(key="m-2", branch="what-if")
    assert there.run(say, "a", "and if?") == ["hello", "and if?"]
    assert there.run(say, "a", "and if?") == ["hello", "and if?"], "recorded"
    assert store.options(key="m-2").run(say, "a", "else") == ["hello", "else"], "another run"
    assert agent.branch("what-if").state == {"said": ["hello", "and if?"]}
    assert agent.refresh() == {"said": ["hello", "else"]}
    with pytest.raises(Conflict, match="other arguments"):
        there.run(say, "a", "other words")
    assert [(run.key, run.branch) for run in store.runs("a")][1:] == [
        ("m-2@what-if", "what-if"),
        ("m-2", "main"),
    ]


def test_the_longest_names(store: Store) -> None:
    branch, key = "b" * 200, "k" * 120
    with pytest.raises(NotFound, match="no branch"):
        store.options(key=key, branch=branch).run(say, "a", "hello")
    chat(store, branch)
    there = store.options(key=key, branch=branch)
    handle = there.start(say, "a", "there")
    assert there.run(say, "a", "there") == ["hello", "there"]
    assert (handle.status, handle.info.branch) == ("done", branch)


def test_what_it_is_called_by(store: Store) -> None:
    """The key with its branch, as the run of a fork has it, names the same run."""
    handle = run_until_waiting(store, listen, "a")
    agent = store.agent("a")
    agent.fork("b")
    mine = store.options(branch="b").start(listen, "a")
    assert mine.info.key == "main@b"
    assert store.options(key="main@b", branch="b").start(listen, "a").id == mine.id
    mine.signal("words", "there")
    assert store.options(branch="b").run(listen, "a") == "there"
    assert handle.status == "waiting"
    fork = mine.fork("wait_for:words#1", branch="c", key="x@d")
    agent.fork("d")
    with pytest.raises(Conflict, match="is on branch 'c', not on 'd'"):
        store.options(key="x", branch="d").run(listen, "a")
    fork.cancel()


@pytest.mark.parametrize("ask", ["run", "start"])
def test_a_branch_that_is_not_there(store: Store, ask: str) -> None:
    asking = store.options(branch="what-if")
    with pytest.raises(NotFound, match="no branch 'what-if'"):
        getattr(asking, ask)(say, "a", "hello")
    agent = chat(store, "what-if")
    agent.delete_branch("what-if")
    agent.checkpoint("point")
    for name in ("what-if", "point"):
        with pytest.raises(NotFound, match=f"no branch '{name}'"):
            getattr(store.options(branch=name), ask)(say, "a", "hello")
    with pytest.raises(ValueError, match="the store's own"):
        store.options(branch="@points")
    assert len(store.runs()) == 1


def test_a_key_alone_still_chooses_none(store: Store) -> None:
    chat(store, "what-if")
    with pytest.raises(Conflict) as refused:
        store.options(key="m-9@what-if").run(say, "a", "hello")
    assert "store.options(branch='what-if')" in refused.value.hint


def test_a_worker_begins_it_beside_a_run_on_main(store: Store) -> None:
    """Runs of one branch are begun one after the other; those of another do not wait behind them:
    the first order of an agent would hide those of its branches (I8)."""
    agent = chat(store, "b", "c")
    run_until_waiting(store, listen, "a")
    queued = store.options(key="m-3").start(say, "a", "waits for the one that listens")
    there = [store.options(key="m-4", branch=one).start(say, "a", one) for one in ("b", "c")]
    assert [run.branch for run in store.runs("a", status=["pending"])] == ["main", "b", "c"]
    with working(store, say, listen):
        assert [one.result(timeout=30) for one in there] == [["hello", "b"], ["hello", "c"]]
        assert queued.status == "pending"
        store.handle("a/listen/main").signal("words", "now")
        wait_until(lambda: queued.status == "done")
    assert agent.refresh()["said"][1:] == ["waits for the one that listens"]


def test_many_orders_of_many_branches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the first of each line is known, and lines give way to those of others."""
    monkeypatch.setattr(pending_orders, "KNOWN_MAX", 2)
    monkeypatch.setattr(pending_orders, "AGENTS_MAX", 2)
    agent = chat(store, "b", "c")
    branches = ("main", "b", "c")
    asked = [
        store.options(key=f"n-{n}", branch=branch).start(say, "a", f"{n}")
        for n in range(6)
        for branch in branches
    ]
    with working(store, say):
        for one in asked:
            one.result(timeout=60)
    for branch in branches:
        assert agent.branch(branch).state["said"][1:] == [f"{n}" for n in range(6)]


def test_a_request_keeps_its_branch(store: Store) -> None:
    """A caller that executes the request itself need not say the branch again; and a branch with a
    request is not deleted beneath it."""
    agent = chat(store, "b")
    asked = store.options(branch="b").start(say, "a", "there")
    with pytest.raises(Conflict, match="is to begin on it"):
        agent.delete_branch("b")
    assert store.options(key=asked.info.key).run(say, "a", "there") == ["hello", "there"]
    assert asked.info.branch == "b"
    agent.delete_branch("b")
    assert agent.refresh() == {"said": ["hello"]}


def test_cancelled_before_it_begins(store: Store) -> None:
    agent = chat(store, "b")
    asked = store.options(branch="b").start(say, "a", "there")
    asked.cancel()
    assert (asked.status, asked.info.branch) == ("cancelled", "b")
    needing = store.options(key="2", branch="b").start(say, "a", "there")
    stop(agent._context, store.runner.wakeups, needing.id, "nobody serves it")
    assert (needing.status, needing.info.branch) == ("needs_attention", "b")
    needing.resume()
    assert store.options(key="2", branch="b").run(say, "a", "there") == ["hello", "there"]
    assert agent.refresh() == {"said": ["hello"]}


def test_its_branch_was_deleted_at_the_same_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set aside for a person and resumed, it would have begun on main."""
    agent = chat(store, "b")
    honest = type(store._context.backend).inbox
    monkeypatch.setattr(
        type(store._context.backend),
        "inbox",
        lambda self, *a, **more: [] if "agent" in more else honest(self, *a, **more),
    )
    asked = store.options(branch="b").start(say, "a", "there")
    agent.delete_branch("b")
    monkeypatch.undo()
    with pytest.raises(NotFound, match="deleted"):
        store.options(branch="b").run(say, "a", "there")
    stop(agent._context, store.runner.wakeups, asked.id, "it could not begin")
    assert (asked.status, asked.info.problem) == ("cancelled", "its branch 'b' was deleted")
    assert agent.refresh() == {"said": ["hello"]}


def test_code_of_a_run_waits_for_one_on_a_branch(store: Store) -> None:
    """Its agent's main branch waits for the very run whose code asks: that is no circle, as the
    branch is free."""
    chat(store, "b/c")

    @perdure.agent(dict)
    def inner(run: perdure.Run[dict]) -> list[str]:
        there = store.options(key="new", branch="b/c")
        return perdure.unrecorded(there.run)(say, "a", "there")

    @perdure.agent(dict)
    def outer(run: perdure.Run[dict]) -> list[str]:
        return run.start(inner, "z").result()

    handle = store.start(outer, "a")
    with working(store, outer, inner, say):
        assert handle.result(timeout=30) == ["hello", "there"]


def test_it_goes_on_there_after_a_crash(place: Place, crash: Crashes) -> None:
    @perdure.tool(on_crash="retry")
    def pay(cents: int) -> int:
        crash("in it")
        crash.note(cents)
        return cents

    @perdure.agent(dict)
    def buy(run: perdure.Run[dict]) -> int:
        paid = pay(5)
        with run.edit("paid") as draft:
            draft["paid"] = paid
        return paid

    store = place.open()
    agent = chat(store, "b")
    there = store.options(branch="b")
    crash.arm("in it")
    with pytest.raises(CrashError):
        there.run(buy, "a")
    other = place.open()
    assert other.options(branch="b").run(buy, "a") == 5
    assert other.agent("a", branch="b").state == {"said": ["hello"], "paid": 5}
    assert agent.refresh() == {"said": ["hello"]} and crash.calls == [5]


def test_from_an_event_loop(place: Place, runs: Async) -> None:
    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            assert await store.run(asay, "a", "hello") == ["hello"]
            agent = await store.agent("a")
            await agent.fork("b")
            there = store.options(branch="b")
            assert await there.run(asay, "a", "there") == ["hello", "there"]
            handle = await store.options(key="2", branch="b").start(asay, "a", "later")
            assert (await handle.info()).branch == "b"

    asyncio.run(main())
