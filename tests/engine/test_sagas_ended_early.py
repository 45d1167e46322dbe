"""Sagas that are asked to end, or come to their deadline, while what they did is being undone; and
several parts of a run that undo at once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import NeedsAttention, RunFailed, TimedOut
from perdure.testing import Clock, Ending, run_until_waiting
from tests.engine.conftest import Place
from tests.engine.kills import kill_program_at_every_other_boundary
from tests.engine.saga_world import begin_world, happened, note
from tests.engine.three_payments import TOOK, UNDONE, comes, executed, shop, shop_async, take


@pytest.fixture(autouse=True)
def new_world(tmp_path: Path) -> None:
    begin_world(tmp_path)
    comes.clear()


FUNCTIONS = pytest.mark.parametrize(
    "function",
    [
        perdure.agent(dict, compensate=True, name="shop")(shop),
        perdure.agent(dict, compensate=True, name="shop")(shop_async),
    ],
    ids=["sync", "async"],
)
WAYS = pytest.mark.parametrize("how", ["fails", "asks"])


@FUNCTIONS
@WAYS
def test_a_deadline_that_passes_while_it_is_undone_does_not_end_that(
    function: Any, how: str
) -> None:
    """The bank took its time, the deadline passed between two refunds, and the run failed there:
    what was left stayed paid, and nobody was told."""
    clock = Clock()
    with clock.open("memory://") as store:
        comes.append(lambda: clock.advance(61))
        function_error = LookupError if how == "fails" else TimedOut
        result: Any = None
        try:
            result = executed(store.options(deadline=60), function, how)
        except function_error:
            assert how == "fails"
        assert happened() == UNDONE
        handle = store.handle("a/shop/main")
        assert handle.status == ("failed" if how == "fails" else "done")
        assert result == (None if how == "fails" else ["take#3", "take#2", "take#1"])


@FUNCTIONS
@WAYS
def test_a_request_to_end_that_comes_while_it_is_undone_does_not_end_that(
    place: Place, function: Any, how: str
) -> None:
    """It came between two refunds, and the run was cancelled there."""
    store = place.open()
    comes.append(lambda: place.open().handle("a/shop/main").cancel("not wanted"))
    with pytest.raises(RunFailed, match="not wanted"):
        executed(store, function, how)
    assert happened() == UNDONE
    assert store.handle("a/shop/main").status == "cancelled"


@FUNCTIONS
@pytest.mark.parametrize("ends", ["cancel", "deadline"])
def test_i5_so_it_is_wherever_the_process_dies(tmp_path: Path, function: Any, ends: str) -> None:
    clock = Clock()

    def program(folder: Path) -> Any:
        begin_world(folder)
        with clock.open(folder / "a.db", durability="os") as store:
            comes[:] = [
                (lambda: store.handle("a/shop/main").cancel("not wanted"))
                if ends == "cancel"
                else (lambda: clock.advance(3601))
            ]
            asked = store.options(deadline=3600) if ends == "deadline" else store
            try:
                executed(asked, function, "fails")
            except (RunFailed, LookupError, TimedOut) as error:
                return type(error).__name__
            raise AssertionError("it ended well")

    def check(end: Ending) -> None:
        begin_world(end.folder)
        assert end.error is None, (end.killed_at, end.error)
        heard = {"RunFailed", "LookupError"} if ends == "cancel" else {"TimedOut", "LookupError"}
        assert end.result in heard, end
        assert [*dict.fromkeys(happened())] == UNDONE, end.killed_at

    first = int(ends == "cancel")
    assert kill_program_at_every_other_boundary(program, check, tmp_path, first) > 5


@pytest.mark.parametrize("ends", ["cancel", "deadline"])
def test_one_that_stopped_there_and_was_put_right_is_undone_whatever_asks_it_to_end(
    ends: str,
) -> None:
    """The bank was closed, and the run needed attention. It was put right and resumed as the hint
    said; the deadline had passed meanwhile, or somebody cancelled it before a worker came: it ended
    at once, and all stayed paid."""
    clock, closed = Clock(), [True]

    @perdure.tool(on_crash="retry")
    def open_hours(cents: int) -> None:
        if closed:
            raise ConnectionError("the bank is closed")
        note(f"give back {cents}")

    @perdure.tool(on_crash="fail", compensate=open_hours)
    def pay(cents: int) -> int:
        note(f"take {cents}")
        return cents

    @perdure.agent(dict, compensate=True)
    def buys(run: perdure.Run[dict]) -> None:
        for cents in (1, 2, 3):
            pay(cents)
        raise LookupError("no flight")

    with clock.open("memory://") as store:
        asked = store.options(deadline=60)
        with pytest.raises(NeedsAttention, match="the bank is closed"):
            asked.run(buys, "a")
        closed.clear()
        handle = store.handle("a/buys/main")
        handle.resume()
        if ends == "cancel":
            handle.cancel("not wanted")
            assert handle.status == "pending", "an executor undoes it first"
        else:
            clock.advance(61)
        with pytest.raises(RunFailed if ends == "cancel" else LookupError):
            asked.run(buys, "a")
        assert happened() == UNDONE
        assert handle.status == ("cancelled" if ends == "cancel" else "failed")


def test_one_that_cannot_be_undone_may_be_ended_all_the_same(place: Place) -> None:
    @perdure.tool(on_crash="retry")
    def broken(cents: int) -> None:
        raise ConnectionError("the bank is gone")

    @perdure.tool(on_crash="fail", compensate=broken)
    def pay(cents: int) -> int:
        return cents

    @perdure.agent(dict, compensate=True)
    def buys(run: perdure.Run[dict]) -> None:
        pay(1)
        raise LookupError("no flight")

    store = place.open()
    with pytest.raises(NeedsAttention, match="the bank is gone"):
        store.run(buys, "a")
    handle = store.handle("a/buys/main")
    handle.cancel("leave it")
    assert handle.status == "cancelled"


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_is_cancelled_behind_its_last_call_is_undone(place: Place, is_async: bool) -> None:
    """It returned well, and was cancelled before that was recorded: so it was cancelled, and all
    stayed paid."""
    store = place.open()

    def is_cancelled() -> None:
        place.open().handle("a/buys/main").cancel("not wanted")

    def sync_buys(run: perdure.Run[dict]) -> str:
        take(1)
        is_cancelled()
        return "bought"

    async def async_buys(run: perdure.AsyncRun[dict]) -> str:
        await run.call(take, 1)
        is_cancelled()
        return "bought"

    body: Any = async_buys if is_async else sync_buys
    with pytest.raises(RunFailed, match="not wanted"):
        executed(store, perdure.agent(dict, compensate=True, name="buys")(body))
    assert happened() == ["take 1", "give back 1"]
    assert store.handle("a/buys/main").status == "cancelled"


@pytest.mark.parametrize("is_async", [False, True])
def test_parts_that_undo_at_once_undo_each_call_once(place: Place, is_async: bool) -> None:
    """Each part did so in its handler. They came to it at the same moment, and each gave back what
    had been paid."""
    store, together = place.open(), threading.Barrier(3)

    def sync_buys(run: perdure.Run[dict]) -> Any:
        for cents in (1, 2, 3):
            take(cents)

        def part(number: int) -> list[str]:
            if len(happened()) == 3:
                together.wait(60)
            return run.compensate()

        return run.map(part, range(3))

    async def async_buys(run: perdure.AsyncRun[dict]) -> Any:
        for cents in (1, 2, 3):
            await run.call(take, cents)
        return await asyncio.gather(*[run.compensate() for _ in range(3)])

    body: Any = async_buys if is_async else sync_buys
    function = perdure.agent(dict, compensate=True, name="buys")(body)
    said = executed(store, function)
    assert sorted(said, key=len) == [[], [], ["take#3", "take#2", "take#1"]]
    assert happened() == UNDONE
    assert perdure.testing.replay(store, function, "a/buys/main").check() == said


def test_i5_parts_that_undo_at_once_wherever_their_process_dies(tmp_path: Path) -> None:
    @perdure.agent(dict, compensate=True)
    async def buys(run: perdure.AsyncRun[dict]) -> Any:
        for cents in (1, 2, 3):
            await run.call(take, cents)
        return sorted(await asyncio.gather(*[run.compensate() for _ in range(3)]), key=len)

    def program(folder: Path) -> Any:
        begin_world(folder)
        with perdure.open(folder / "a.db", durability="os") as store:
            return executed(store, buys)

    def check(end: Ending) -> None:
        begin_world(end.folder)
        assert end.result == [[], [], ["take#3", "take#2", "take#1"]], end
        assert [*dict.fromkeys(happened())] == UNDONE, end.killed_at

    assert kill_program_at_every_other_boundary(program, check, tmp_path) > 5


def test_a_call_that_undid_another_is_not_undone_itself(place: Place) -> None:
    """Canceling a room is undone by booking it again. The function undid what it had done, and then
    failed: the rooms were booked again, and stayed so."""

    @perdure.tool(on_crash="retry")
    def book_again(room: str) -> None:
        note("book again")

    @perdure.tool(on_crash="retry", compensate=book_again)
    def cancel_room(room: str) -> str:
        note(f"cancel {room}")
        return room

    @perdure.tool(on_crash="fail", compensate=cancel_room)
    def book(room: str) -> str:
        note(f"book {room}")
        return room

    @perdure.agent(dict, compensate=True)
    def travel(run: perdure.Run[dict]) -> None:
        book("a")
        book("b")
        assert run.compensate() == ["book#2", "book#1"]
        assert run.compensate() == []
        raise LookupError("no flight")

    with pytest.raises(LookupError):
        place.open().run(travel, "trip")
    assert happened() == ["book a", "book b", "cancel b", "cancel a"]


def test_what_an_abandoned_undoing_left_is_undone_at_the_end(place: Place) -> None:
    """It had a limit of time. What was planned and not undone by then counted as undone."""
    slow = [True]

    @perdure.tool(on_crash="retry")
    async def slowly(cents: int) -> None:
        if cents == 2 and slow:
            slow.clear()
            await asyncio.sleep(3600)
        note(f"give back {cents}")

    @perdure.tool(on_crash="fail", compensate=slowly)
    async def pay(cents: int) -> int:
        note(f"take {cents}")
        return cents

    @perdure.agent(dict, compensate=True)
    async def buys(run: perdure.AsyncRun[dict]) -> None:
        for cents in (1, 2, 3):
            await pay(cents)
        with suppress(TimeoutError):
            await asyncio.wait_for(run.compensate(), 0.3)
        raise LookupError("no flight")

    store = place.open()
    with pytest.raises(NeedsAttention, match="which was under way, has undone pay#2"):
        executed(store, buys)
    handle = store.handle("a/buys/main")
    open_ones = [one.place for one in handle.effects() if one.open]
    handle.settle(open_ones[0], not_done=True, by="ann")
    with pytest.raises(LookupError):
        executed(store, buys)
    assert happened() == [*TOOK, "give back 3", "give back 2", "give back 1"]


def test_a_waiting_run_that_is_cancelled_twice_is_undone_once(place: Place) -> None:
    store = place.open()
    function = perdure.agent(dict, compensate=True, name="shop")(shop)
    handle = run_until_waiting(store, function, "a", "waits")
    handle.cancel("not wanted")
    comes.append(lambda: place.open().handle("a/shop/main").cancel("really not"))
    with pytest.raises(RunFailed, match="not wanted"):
        run_until_waiting(store, function, "a", "waits")
    assert happened() == UNDONE


def test_a_compensation_belongs_to_the_call_that_it_undid(place: Place) -> None:
    """The run was undone and failed, and was set back with what it had made kept. The room was
    booked anew, as a person decided, and the run failed again: that the first booking was canceled
    was taken for the cancellation of the second, which stayed."""

    @perdure.tool(on_crash="retry")
    def cancel_room(booking: None, guest: str) -> None:
        note("cancel")

    @perdure.tool(on_crash="fail", compensate=cancel_room)
    def book(guest: str) -> None:
        note("book")

    @perdure.agent(dict, compensate=True)
    def travel(run: perdure.Run[dict]) -> None:
        book("Ada")
        raise LookupError("no flight")

    store = place.open()
    with pytest.raises(LookupError):
        store.run(travel, "trip")
    handle = store.handle("trip/travel/main")
    handle.retry("book#1", effects="reuse")
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(travel, "trip")
    handle.settle("book#1", not_done=True, by="ann")
    with pytest.raises(LookupError):
        store.run(travel, "trip")
    assert happened() == ["book", "cancel", "book", "cancel"]


def test_what_was_undone_is_so_for_a_run_that_keeps_the_call(place: Place) -> None:
    @perdure.tool(on_crash="retry")
    def cancel_room(booking: None) -> None:
        note("cancel")

    @perdure.tool(on_crash="fail", compensate=cancel_room)
    def book() -> None:
        note("book")

    @perdure.step
    def fly() -> None:
        raise LookupError("no flight")

    @perdure.agent(dict, compensate=True)
    def travel(run: perdure.Run[dict]) -> None:
        book()
        fly()

    store = place.open()
    with pytest.raises(LookupError):
        store.run(travel, "trip")
    store.handle("trip/travel/main").retry("fly#1", effects="reuse")
    with pytest.raises(LookupError):
        store.run(travel, "trip")
    assert happened() == ["book", "cancel"]


@pytest.mark.parametrize("how", ["alone", "gather", "group"])
def test_a_call_that_a_timeout_cancelled_is_not_under_way(how: str) -> None:
    """That its task was cancelled was not in the log yet when the function failed: as if the call
    were under way, the undoing was refused, and the run failed with all that it had paid."""

    @perdure.tool(on_crash="retry")
    async def cancel(booking: str | None, what: str) -> None:
        note(f"cancel {what}")

    @perdure.tool(on_crash="retry", compensate=cancel)
    async def book(what: str) -> str:
        await asyncio.sleep(0.002)
        return what

    @perdure.agent(dict, compensate=True)
    async def trip(run: perdure.AsyncRun[dict], seconds: float) -> None:
        await book("room")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if how == "alone":
                    await book("flight")
                elif how == "gather":
                    await asyncio.gather(book("flight"), book("car"))
                else:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(book("flight"))
                        group.create_task(book("car"))
        raise LookupError("no flight in time")

    async def main() -> set[str]:
        said = set()
        async with perdure.open_async("memory://") as store:
            for number in range(60):
                with pytest.raises((LookupError, NeedsAttention)) as raised:
                    await store.run(trip, str(number), number % 20 * 0.00025)
                said.add(raised.typename)
        return said

    assert asyncio.run(main()) <= {"LookupError", "NeedsAttention"}
    assert set(happened()) <= {"cancel room", "cancel flight", "cancel car"}
