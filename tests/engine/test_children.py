"""Runs that a run starts: once, whatever crashes, and it is told of their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import Signal, Timer
from perdure.errors import Conflict, PerdureError, RunFailed, TimedOut
from perdure.store import Store
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import HOUR, Clock, at_every_boundary, go, records, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@dataclass
class Receipt:
    cents: int


@perdure.agent(dict)
def paying(run: perdure.Run[dict], cents: int) -> Receipt:
    with run.edit("paid") as draft:
        draft["paid"] = draft.get("paid", 0) + cents
    if cents < 0:
        raise LookupError("less than nothing")
    if cents == 0:
        run.wait_for("amount")
    return Receipt(cents)


@perdure.agent(dict)
def shop(run: perdure.Run[dict], bank: str, cents: int) -> str:
    child = run.start(paying, bank, cents)
    try:
        receipt = child.result()
    except LookupError as error:
        return f"failed: {error}"
    except RunFailed as error:
        return f"{error.problem}"
    assert isinstance(receipt, Receipt)
    return f"paid {receipt.cents}"


def go_on_children(store: Store) -> None:
    """What a worker does for runs of `paying`: begin what was asked for, go on with the others."""
    for run in store.runs(function="paying", unfinished=True):
        inbox = store.runner._context.backend.inbox(run.id, kind="start")
        if inbox:
            (cents,), _ = inbox[0].value["input"]
        else:
            (began,) = [r for r in records(store, run.agent, "run-started") if r["run"] == run.id]
            (cents,), _ = began["input"]
        with suppress(LookupError, PerdureError):
            go(store, paying, run.agent, cents, key=run.key)


@pytest.mark.parametrize(("cents", "end"), [(5, "paid 5"), (-1, "failed: less than nothing")])
def test_a_childs_typed_result_or_its_error_comes_back(store: Store, cents: int, end: str) -> None:
    assert go(store, shop, "shop", "bank", cents) is None
    (child,) = store.runs(agent="bank")
    assert (child.status, child.parent) == ("pending", "shop/shop/main")
    assert store.handle("shop/shop/main").info.waits == f"run {child.id}"
    go_on_children(store)
    backend = store.runner._context.backend
    assert [run.id for run in backend.ready(backend.now(), 10)] == ["shop/shop/main"]
    assert go(store, shop, "shop", "bank", cents) == end
    (row,) = store.runs(agent="bank")
    assert row.parent == "shop/shop/main", "kept, whoever began it"


def test_it_is_started_once_and_its_end_told_once_after_a_crash_at_every_boundary(
    place: Place,
) -> None:
    def work(store: Store, agent: str) -> Any:
        go(store, shop, agent, f"bank of {agent}", 5)
        go_on_children(store)
        return go(store, shop, agent, f"bank of {agent}", 5)

    lost = 0
    for where, store, agent, end in at_every_boundary(place, work):
        assert end == "paid 5", where
        assert store.agent(f"bank of {agent}").state == {"paid": 5}, where
        assert len(store.runs(agent=f"bank of {agent}")) == 1, where
        assert store.runner._context.backend.inbox() == [], where
        lost += 1
    assert lost >= 14


def test_an_end_is_in_no_log_without_being_told(place: Place) -> None:
    """The child ended, its process died, and the parent waited for ever."""
    store = place.open()
    go(store, shop, "shop", "bank", 5)
    (child,) = store.runs(agent="bank")
    for run in store.runs(function="paying", unfinished=True):
        go(store, paying, run.agent, 5, key=run.key)
    assert store.runs(agent="bank")[0].status == "done"
    (told,) = store.runner._context.backend.inbox("shop/shop/main")
    assert (told.kind, told.name, told.value["status"]) == ("signal", f"child:{child.id}", "done")


@pytest.mark.parametrize("let_live", [False, True])
def test_children_end_with_their_parent_or_live(store: Store, let_live: bool) -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> Any:
        begun = run.options(let_live=let_live, key="begun").start(paying, "bank 1", 0)
        run.options(let_live=let_live, key="asked for").start(paying, "bank 2", 0)
        return begun.result()

    go(store, parent)
    go(store, paying, "bank 1", 0, key="begun")
    store.handle("a/parent/main").cancel("enough")
    go_on_children(store)
    expected = "waiting" if let_live else "cancelled"
    assert [run.status for run in store.runs(function="paying")] == [expected] * 2
    if not let_live:
        problems = {run.problem for run in store.runs(function="paying")}
        assert problems == {"with a/parent/main"}


@pytest.mark.parametrize("fails", [False, True])
def test_what_an_ended_child_left_at_work_goes_on(store: Store, fails: bool) -> None:
    """Story: a whole tree was to be stopped by cancelling its root. One run in the middle had ended
    a moment before, and what that had started went on; the docs said that it was cancelled."""

    @perdure.agent(dict)
    def middle(run: perdure.Run[dict]) -> None:
        run.options(key="leaf").start(paying, "bank 1", 0)
        if fails:
            raise ValueError("no")

    @perdure.agent(dict)
    def root(run: perdure.Run[dict]) -> None:
        run.options(key="middle").start(middle, "office")
        run.wait_for("never")

    go(store, root, "firm")
    with suppress(ValueError):
        go(store, middle, "office", key="middle")
    go(store, paying, "bank 1", 0, key="leaf")
    store.handle("firm/root/main").cancel()
    go_on_children(store)
    (leaf,) = store.runs(unfinished=True)
    assert (leaf.status, leaf.parent) == ("waiting", "office/middle/middle")


def test_a_cancelled_child_is_told_of(store: Store) -> None:
    go(store, shop, "shop", "bank", 0)
    go_on_children(store)
    (child,) = store.runs(agent="bank")
    store.handle(child.id).cancel("no money")
    assert go(store, shop, "shop", "bank", 0) == "was cancelled: no money"


@pytest.mark.parametrize("begun", [True, False])
def test_a_child_whose_agent_is_deleted_is_told_of(store: Store, begun: bool) -> None:
    """Its run, or the wish for it, was gone without a word: the parent waited for ever."""
    with store.agent("bank").edit("is there") as draft:
        draft["paid"] = 0
    go(store, shop, "shop", "bank", 0)
    if begun:
        go_on_children(store)
    store.delete("bank")
    backend = store.runner._context.backend
    assert [run.id for run in backend.ready(backend.now(), 10)] == ["shop/shop/main"]
    assert go(store, shop, "shop", "bank", 0) == "was cancelled: its agent was deleted"


def test_a_child_whose_branch_was_moved_is_told_of(store: Store) -> None:
    go(store, shop, "shop", "bank", 0)
    go_on_children(store)
    store.agent("bank").rollback(1, cancel_run=True)
    assert "moved" in go(store, shop, "shop", "bank", 0)


def test_its_end_may_be_asked_for_again(store: Store, crash: Crashes) -> None:
    """The first wait took the message that told of it: the second one waited for ever."""

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> Any:
        child = run.start(paying, "bank", 7)
        first = run.select(paid=child, late=Timer(HOUR))
        again = child.result()
        run.call(str, 1)
        crash("after")
        return [first.name, first.value.cents, again.cents, child.result().cents]

    go(store, parent)
    go_on_children(store)
    crash.arm("after")
    with pytest.raises(CrashError):
        go(store, parent)
    assert go(store, parent) == ["paid", 7, 7, 7]


def test_select_over_children_signals_and_times(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> list[Any]:
        one, two = run.start(paying, "bank 1", 0), run.start(paying, "bank 2", 2)
        names = [
            run.select(one=one, two=two, stop=Signal("stop"), late=Timer(HOUR)).name,
            run.select(one=one, stop=Signal("stop"), late=Timer(HOUR)).name,
        ]
        try:
            one.result(timeout=HOUR, cancel=False)
        except TimedOut as late:
            names.append(late.problem)
        return [*names, one.result(timeout=HOUR, default="none")]

    go(store, parent)
    go_on_children(store)
    for _ in range(3):
        assert go(store, parent) is None
        clock.forward(HOUR + 1)
    end = go(store, parent)
    assert end[:2] == ["two", "late"] and end[2].startswith("waited for run bank 1/")
    assert end[3] == "none"


def test_the_next_turns_child_is_another_one(store: Store) -> None:
    """It was named by its place, which is the same in each turn: the second turn got the first
    one's child, which had told of its end already, and waited for ever."""

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict], cents: int) -> Any:
        paid = run.start(paying, "bank", cents).result().cents
        return run.again(cents + 1) if cents < 3 else paid

    for _ in range(3):
        go(store, parent, "a", 1)
        go_on_children(store)
    assert go(store, parent, "a", 1) == 3
    assert store.agent("bank").state == {"paid": 6}


def test_ids_of_grandchildren_do_not_outgrow_what_a_key_may_be(store: Store) -> None:
    """A child's key held its parent's whole id: five generations on, it was too long."""

    @perdure.agent(dict)
    def generation(run: perdure.Run[dict], number: int) -> str:
        if number < 6:
            run.options(let_live=True).start(generation, "n" * 150 + str(number), number + 1)
        return run.id

    go(store, generation, "a", 1)
    for number in range(1, 6):
        (asked,) = store.runs(unfinished=True)
        go(store, generation, asked.agent, number + 1, key=asked.key)
    assert len(store.runs()) == 6 and store.runs(unfinished=True) == []


def test_two_starts_under_one_key_at_the_same_time_are_compared(runs: Async) -> None:
    """Two tasks started a run under one key, with different arguments, and both were on their way
    to the log: the second was given the run, and the result, of the first."""

    @perdure.agent(dict)
    async def ship(run: perdure.AsyncRun[dict], item: str) -> str:
        return f"shipped {item}"

    @perdure.agent(dict)
    async def together(run: perdure.AsyncRun[dict]) -> list[str]:
        async def one(item: str) -> str:
            started = await run.options(key="ship-17").start(ship, "parcel-17", item)
            return started.id

        both = await asyncio.gather(one("book"), one("lamp"), one("book"), return_exceptions=True)
        return [str(one).partition("\n")[0] for one in both]

    kid = "parcel-17/ship/ship-17"
    refused = f"run {kid}: was started with other arguments already"
    assert runs.run(together) == [kid, refused, kid]


@pytest.mark.parametrize("key", ["Ä" * 200, "/" * 200, None])
def test_names_that_are_too_long_together_are_refused_in_the_function(
    store: Store, key: str | None
) -> None:
    """Each name was one that a run may have. The run had paid, could not record that it starts the
    other one, and was taken up again by its worker for ever."""

    @perdure.agent(dict, name="寄" * 100)
    def ship(run: perdure.Run[dict]) -> None: ...

    @perdure.agent(dict)
    def order(run: perdure.Run[dict]) -> str:
        starting = run if key is None else run.options(key=key)
        with pytest.raises(ValueError, match="700 bytes"):
            starting.start(ship, "包" * 150)
        return "refused"

    assert go(store, order, "a") == "refused"


def test_a_child_that_could_never_begin_is_not_waited_for(store: Store) -> None:
    """A run waited for one of its own agent, which waited for its turn on it: for ever."""

    @perdure.agent(dict)
    def inner(run: perdure.Run[dict]) -> Any:
        return run.start(paying, "a", 1).result()

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict], other: str) -> Any:
        return run.start(inner, other).result()

    with pytest.raises(PerdureError, match="cannot begin before that ends"):
        go(store, parent, "a", "a")
    assert go(store, parent, "a", "b", key="2") is None
    (child,) = store.runs(agent="b", unfinished=True)
    with pytest.raises(PerdureError, match="run a/parent/2 has"):
        go(store, inner, "b", key=child.key)
    with pytest.raises(PerdureError, match="run a/parent/2 has"):
        go(store, parent, "a", "b", key="2")


def test_what_a_run_leaves_behind_for_its_own_agent_comes_after_it(store: Store) -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> str:
        return run.options(let_live=True, key="follow-up").start(paying, "a", 4).id

    assert go(store, parent) == "a/paying/follow-up"
    go_on_children(store)
    assert store.agent("a").state == {"paid": 4}


def test_a_run_that_others_started_is_not_taken_for_a_child(store: Store, crash: Crashes) -> None:
    """It would tell them of its end, and this run would wait for ever."""
    store.options(key="theirs").start(paying, "bank", 1)

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> list[str]:
        found = []
        for cents in (1, 2, 3):
            key = "theirs" if cents == 1 else "ours"
            try:
                run.options(key=key).start(paying, "bank", cents)
            except Conflict as refused:
                found.append(refused.problem)
        run.call(str, 1)
        crash("after")
        return found

    crash.arm("after")
    with pytest.raises(CrashError):
        go(store, parent)
    assert go(store, parent) == [
        "was started by somebody else already",
        "was started with other arguments already",
    ]


def test_arguments_that_cannot_be_stored_are_refused_before_anything(store: Store) -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> str:
        with pytest.raises(perdure.Unstorable):
            run.start(paying, "bank", object())  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            run.start(paying, "bank", 1, 2)  # type: ignore[call-arg]
        return run.start(paying, "bank", 1).id

    go(store, parent)
    assert len(store.runs(agent="bank")) == 1


def test_asynchronous_runs_have_children_too(place: Place) -> None:
    @perdure.agent(dict)
    async def child(run: perdure.AsyncRun[dict], n: int) -> int:
        return n * 10

    @perdure.agent(dict)
    async def parent(run: perdure.AsyncRun[dict]) -> list[Any]:
        children = [await run.options(key=f"c{n}").start(child, f"child {n}", n) for n in (1, 2, 3)]
        return list(await asyncio.gather(*(one.result() for one in children)))

    async def main() -> Any:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(parent, "a"))
            for n in (3, 1, 2):
                while not await store.runs(f"child {n}") and not running.done():
                    await asyncio.sleep(0.01)
                await store.options(key=f"c{n}").run(child, f"child {n}", n)
            return await asyncio.wait_for(running, 60)

    assert asyncio.run(main()) == [10, 20, 30]


ordered: list[str] = []


@perdure.agent(dict)
def shipping(run: perdure.Run[dict]) -> str:
    return "shipped"


@perdure.agent(dict)
def ship_all(run: perdure.Run[dict]) -> dict[str, str]:
    started = {one: run.options(key=one).start(shipping, "warehouse") for one in ordered}
    run.wait_for("go")
    return {one: child.id for one, child in started.items()}


def test_a_child_is_told_from_another_by_its_key(store: Store) -> None:
    """Two runs were started under a key each, of a set whose order is another one in each process.
    On replay agent, function and arguments were compared, the key was not: o-2 was given the run of
    o-1, and what it did."""
    ordered[:] = ["o-1", "o-2"]
    handle = store.start(ship_all, "all")
    go(store, ship_all, "all")
    ordered.reverse()
    handle.signal("go", 1)
    assert store.run(ship_all, "all") == {
        "o-2": "warehouse/shipping/o-2",
        "o-1": "warehouse/shipping/o-1",
    }


def test_a_child_under_another_key_is_another_one(store: Store) -> None:
    ordered[:] = ["o-1"]
    handle = store.start(ship_all, "all")
    go(store, ship_all, "all")
    ordered[:] = ["o-3"]
    handle.signal("go", 1)
    with pytest.raises(perdure.NeedsAttention, match=r"other arguments \(\(key\)\)"):
        store.run(ship_all, "all")
