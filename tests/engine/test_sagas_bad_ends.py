"""The bad ends of sagas: whichever it is, what they did is undone first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, Drifted, NeedsAttention, NotFound, RunFailed, Unstorable
from perdure.testing import Ending, run_until_waiting
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.kills import kill_program_at_every_other_boundary
from tests.engine.saga_world import begin_world, happened, note
from tests.engine.three_payments import UNDONE, executed, give_back, shop, take


@pytest.fixture(autouse=True)
def new_world(tmp_path: Path) -> None:
    begin_world(tmp_path)


BAD_ENDS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "again, refused": (lambda run: run.again(object()), Unstorable),
    "again, too many": (lambda run: run.again("x", "y"), TypeError),
    "a canceled await": (lambda run: None, RunFailed),
    "drifted": (lambda run: run.state.update(flight="LH 7"), Drifted),
}


@pytest.mark.parametrize("how", [*BAD_ENDS])
@pytest.mark.parametrize("is_async", [False, True])
def test_every_bad_end_is_undone_first(place: Place, how: str, is_async: bool) -> None:
    """Of some bad ends only the driver of the function heard: a next turn that was refused, a
    `CancelledError` that left it, a state that was changed outside an edit. They undid nothing."""
    end, error = BAD_ENDS[how]

    def sync_buys(run: perdure.Run[dict], text: str) -> Any:
        take(1)
        if how == "a canceled await":
            raise asyncio.CancelledError
        return end(run)

    async def async_buys(run: perdure.AsyncRun[dict], text: str) -> Any:
        await run.call(take, 1)
        if how == "a canceled await":
            raise asyncio.CancelledError
        return end(run)

    body: Any = async_buys if is_async else sync_buys
    store = place.open()
    with pytest.raises(error):
        executed(store, perdure.agent(dict, compensate=True, name="buys")(body), "x")
    assert happened() == ["take 1", "give back 1"]
    handle = store.handle("a/buys/main")
    assert handle.status == "failed"
    with pytest.raises(error):
        handle.result(timeout=0)


def test_i5_so_it_is_with_the_error_wherever_the_process_dies(tmp_path: Path) -> None:
    @perdure.agent(dict, compensate=True)
    def buys(run: perdure.Run[dict], text: str) -> Any:
        for cents in (1, 2, 3):
            take(cents)
        return run.again("x", "y")

    def program(folder: Path) -> Any:
        begin_world(folder)
        with perdure.open(folder / "a.db", durability="os") as store:
            with pytest.raises(TypeError, match="too many"):
                executed(store, buys, "x")
            return store.handle("a/buys/main").status

    def check(end: Ending) -> None:
        begin_world(end.folder)
        assert end.result == "failed", end
        assert [*dict.fromkeys(happened())] == UNDONE, end.killed_at

    assert kill_program_at_every_other_boundary(program, check, tmp_path) > 5


def test_an_async_compensation_of_a_plain_function_needs_attention(place: Place) -> None:
    """The run failed, with a TypeError, and other calls were not undone either."""

    @perdure.tool(on_crash="retry")
    async def later(cents: int) -> None:
        note(f"give back {cents}")

    @perdure.tool(on_crash="retry", compensate=later)
    def deposit(cents: int) -> int:
        note(f"take {cents}")
        return cents

    def body(run: perdure.Run[dict]) -> None:
        take(1)
        deposit(2)
        raise LookupError("no flight")

    store = place.open()
    with pytest.raises(NeedsAttention, match=r"deposit#1.*compensate=later is async"):
        store.run(perdure.agent(dict, compensate=True, name="buys")(body), "a")
    handle = store.handle("a/buys/main")
    assert store.runs("a")[0].status == "needs_attention"
    assert happened() == ["take 1", "take 2"]
    handle.cancel("by hand")
    assert handle.status == "cancelled"


@pytest.mark.parametrize("has_default", [False, True])
def test_a_compensation_that_names_more_than_was_kept_needs_attention(
    place: Place, has_default: bool
) -> None:
    """A release let the refund name the currency, too. Of calls made before it, that was not kept:
    runs failed with a TypeError and undid nothing, or gave back euros for dollars."""

    @perdure.tool(on_crash="retry")
    def older(receipt: str, cents: int) -> None:
        note(f"give back {cents}")

    def with_default(receipt: str, cents: int, currency: str = "EUR") -> None:
        note(f"give back {cents} {currency}")

    def without(receipt: str, cents: int, currency: str) -> None:
        note(f"give back {cents} {currency}")

    def release(refund: Any) -> Any:
        @perdure.tool(on_crash="retry", name="pay", compensate=refund)
        def pay(cents: int, currency: str) -> str:
            note(f"take {cents}")
            return "receipt"

        @perdure.agent(dict, compensate=True, name="travel")
        def travel(run: perdure.Run[dict]) -> None:
            pay(5, "USD")
            run.wait_for("flight")

        return travel

    store = place.open()
    handle = run_until_waiting(store, release(older), "trip")
    newer = release(with_default if has_default else without)
    handle.cancel("not wanted")
    with pytest.raises(NeedsAttention, match=r"pay#1.*currency was not kept"):
        store.run(newer, "trip")
    handle.resume()
    with pytest.raises(RunFailed, match="not wanted"):
        store.run(release(older), "trip")
    assert happened() == ["take 5", "give back 5"]


def test_a_release_without_compensation_undoes_what_began_with_it(place: Place) -> None:
    store = place.open()
    handle = run_until_waiting(store, perdure.agent(dict, compensate=True)(shop), "a", "waits")
    handle.cancel("not wanted")
    with pytest.raises(RunFailed, match="not wanted"):
        store.run(perdure.agent(dict)(shop), "a", "waits")
    assert happened() == UNDONE


def test_a_deletion_waits_for_a_saga_that_is_executed(place: Place) -> None:
    """It had undone what it did and ended, and `delete(cancel_runs=True)` waited on, for ever."""
    store, held, go = place.open(), threading.Event(), threading.Event()

    @perdure.step
    def hold() -> None:
        held.set()
        assert go.wait(60)

    @perdure.agent(dict, compensate=True)
    def buys(run: perdure.Run[dict]) -> None:
        take(1)
        hold()
        take(2)

    store.start(buys, "a")
    worker = perdure.Worker(place.open(), [buys])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert held.wait(60)
    threading.Timer(0.05, go.set).start()
    assert store.delete("a", cancel_runs=True, timeout=60)
    worker.stop()
    thread.join(60)
    assert happened()[-1] == "give back 1"


def test_a_saga_that_was_undone_for_its_end_is_not_forked(place: Place) -> None:
    """A fork from its compensation called the function with the library's own list of what was to
    be undone: it paid that."""
    store = place.open()
    function = perdure.agent(dict, compensate=True)(shop)
    handle = run_until_waiting(store, function, "a", "waits")
    handle.cancel("not wanted")
    with pytest.raises(RunFailed):
        store.run(function, "a", "waits")
    for step in ("give_back#1", "take#1"):
        with pytest.raises(Conflict, match="undone: there is no step to go on from"):
            handle.fork(step, branch="again", effects="reuse")
    with pytest.raises(NotFound, match="has not come to 'take#1'"):
        handle.retry("take#1", effects="reuse")
    assert happened() == UNDONE and len(store.runs("a")) == 1


def test_a_call_that_is_being_undone_is_settled_by_what_undoes_it(
    place: Place, crash: Crashes
) -> None:
    """That the payment was made was taken and recorded; the run went on saying that nobody knew."""

    @perdure.tool(on_crash="ask", compensate=give_back)
    def pay(cents: int) -> int:
        crash("paying")
        return cents

    @perdure.agent(dict, compensate=True)
    def buys(run: perdure.Run[dict]) -> None:
        pay(5)

    crash.arm("paying")
    with pytest.raises(CrashError):
        place.open().run(buys, "a")
    store = place.open()
    with pytest.raises(NeedsAttention):
        store.run(buys, "a")
    handle = store.handle("a/buys/main")
    handle.cancel("not wanted")
    with pytest.raises(NeedsAttention, match="pay#1 took effect"):
        store.run(buys, "a")
    with pytest.raises(Conflict, match="give_back#1 is to undo it") as refused:
        handle.settle("pay#1", done=5)
    assert "settle give_back#1" in str(refused.value.hint)
    handle.settle("give_back#1", done=None)
    with pytest.raises(RunFailed, match="not wanted"):
        store.run(buys, "a")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_beside_the_one_that_failed_is_undone_too(place: Place, is_async: bool) -> None:
    """`asyncio.gather` leaves the others running when one raises. The undoing was refused, for the
    one under way: the run failed with that, and all stayed paid."""
    store, begun = place.open(), threading.Event()

    @perdure.tool(on_crash="retry", compensate=give_back)
    def slowly(cents: int) -> int:
        begun.set()
        time.sleep(0.05)
        note(f"take {cents}")
        return cents

    @perdure.tool(on_crash="retry", compensate=give_back)
    async def slowly_async(cents: int) -> int:
        begun.set()
        await asyncio.sleep(3600)
        return cents

    @perdure.step
    def fails() -> None:
        assert begun.wait(60)
        raise LookupError("no flight")

    @perdure.agent(dict, compensate=True)
    async def buys(run: perdure.AsyncRun[dict]) -> None:
        await run.call(take, 1)
        other = slowly_async(2) if is_async else run.call(slowly, 2)
        await asyncio.gather(other, run.call(fails))

    if is_async:  # nobody knows whether it took effect
        with pytest.raises(NeedsAttention, match="took effect"):
            executed(store, buys)
        handle = store.handle("a/buys/main")
        (asked,) = [one.place for one in handle.effects() if one.open]
        handle.settle(asked, done=None)
        with pytest.raises(LookupError, match="no flight"):
            executed(place.open(), buys)
        assert happened() == ["take 1", "give back 1"]
    else:
        with pytest.raises(LookupError, match="no flight"):
            executed(store, buys)
        assert happened() == ["take 1", "take 2", "give back 2", "give back 1"]
