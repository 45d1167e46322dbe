"""Runs with ``compensate=True`` that are cancelled, or take too long: they are undone first."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.control.stopping import stop
from perdure.engine.functions import undoing
from perdure.errors import NeedsAttention, RunFailed, TimedOut
from perdure.testing import Clock, run_until_waiting, run_with_kills
from tests.engine.conftest import Place
from tests.engine.saga_world import begin_world, book_room, happened, note, pay, refund


@pytest.fixture(autouse=True)
def new_world(tmp_path: Path) -> None:
    begin_world(tmp_path)


@perdure.agent(dict, compensate=True)
def waiting(run: perdure.Run[dict]) -> None:
    book_room("Ada")
    pay(500)
    run.wait_for("never")


@perdure.agent(dict, compensate=True)
async def waiting_async(run: perdure.AsyncRun[dict]) -> None:
    await run.call(book_room, "Ada")
    await run.call(pay, 500)
    await run.wait_for("never")


WAITED = ["book Ada", "pay 500", "refund", "cancel Ada"]
BOTH = pytest.mark.parametrize("function", [waiting, waiting_async])


@perdure.step
def note_nothing() -> None: ...


def finish(store: Any, function: Any, name: str = "a") -> Any:
    worker = perdure.Worker(store, [function])
    thread = threading.Thread(target=worker.run)
    thread.start()
    handle = store.handle(f"{name}/{function.__name__}/main")
    try:
        with pytest.raises(RunFailed) as ended:
            handle.result(timeout=60)
    finally:
        worker.stop()
        thread.join(60)
    return ended.value


@BOTH
def test_a_cancelled_run_that_waits_is_undone_before_it_ends(place: Place, function: Any) -> None:
    """The trip was called off while it waited for a passport. The hotel was paid, and stayed so."""
    store = place.open()
    handle = run_until_waiting(store, function, "a")
    handle.cancel("called off")
    assert handle.status == "waiting" and happened() == WAITED[:2]
    handle.cancel("called off again")
    assert "called off" in str(finish(store, function))
    assert handle.info.status == "cancelled" and happened() == WAITED
    assert [effect.state for effect in handle.effects()] == ["done"] * 4


@BOTH
def test_a_cancelled_run_that_executes_is_undone_before_it_ends(
    place: Place, function: Any
) -> None:
    store = place.open()
    begun, go = threading.Event(), threading.Event()

    def hold(guest: str, nights: int = 1) -> str:
        begun.set()
        assert go.wait(60)
        return note(f"hold {guest}")

    held = perdure.tool(on_crash="fail", name="hold", compensate=refund)(hold)

    @perdure.agent(dict, compensate=True, name=function.__name__)
    def sync_act(run: perdure.Run[dict]) -> None:
        pay(500)
        held("Ada")
        book_room("never")

    @perdure.agent(dict, compensate=True, name=function.__name__)
    async def async_act(run: perdure.AsyncRun[dict]) -> None:
        await run.call(pay, 500)
        await run.call(held, "Ada")
        await run.call(book_room, "never")

    act: Any = sync_act if function is waiting else async_act
    act.__name__ = function.__name__
    worker = perdure.Worker(store, [act])
    thread = threading.Thread(target=worker.run)
    thread.start()
    handle = store.start(act, "a")
    assert begun.wait(60)
    handle.cancel("enough")
    handle.cancel("really")
    go.set()
    with pytest.raises(RunFailed, match="enough"):
        handle.result(timeout=60)
    worker.stop()
    thread.join(60)
    assert happened() == ["pay 500", "hold Ada", "refund", "refund"]


@BOTH
def test_i5_a_cancelled_run_is_undone_once_wherever_its_process_dies(
    tmp_path: Any, function: Any
) -> None:
    """Killed at each boundary of the undoing in turn, and recovered."""

    def program(folder: Any) -> Any:
        with perdure.open(folder / "a.db", durability="os") as store:
            with suppress(RunFailed):  # it has ended
                handle = run_until_waiting(store, function, "a")
                if handle.status == "waiting":
                    handle.cancel("called off")
                    run_until_waiting(store, function, "a")
            return store.handle(f"a/{function.__name__}/main").status

    number = 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        begin_world(folder)
        end = run_with_kills(program, folder, [number])
        assert end.result == "cancelled", end
        assert happened() == WAITED, end.killed_at
        if not end.killed_at:
            break
        number += 1
    assert number > 12


def test_a_run_that_takes_too_long_is_undone(place: Place) -> None:
    clock = Clock()
    with clock.open("memory://") as store:
        store.options(deadline=60).start(waiting, "a")
        handle = run_until_waiting(store, waiting, "a")
        assert happened() == WAITED[:2]
        clock.advance(61)
        with pytest.raises(TimedOut, match="deadline"):
            run_until_waiting(store, waiting, "a")
        assert handle.status == "failed" and happened() == WAITED
        with pytest.raises(TimedOut, match="deadline"):
            handle.result()


def test_a_run_that_needs_attention_is_undone_when_it_is_cancelled(place: Place) -> None:
    store = place.open()

    @perdure.agent(dict, compensate=True)
    def stuck(run: perdure.Run[dict]) -> None:
        pay(500)
        raise NeedsAttention("look")

    with pytest.raises(NeedsAttention):
        store.run(stuck, "a")
    handle = store.handle("a/stuck/main")
    handle.cancel("enough")
    assert handle.status == "pending"
    finish(store, stuck)
    assert handle.info.status == "cancelled" and happened() == ["pay 500", "refund"]


def test_changed_code_does_not_keep_a_run_from_being_undone(place: Place) -> None:
    """A deploy had changed the function, so its run could not go on; nor could it be undone."""
    store = place.open()
    run_until_waiting(store, waiting, "a").cancel("called off")

    @perdure.agent(dict, name="waiting", compensate=True)
    def changed(run: perdure.Run[dict]) -> None:
        note_nothing()

    changed.__name__ = "waiting"
    finish(store, changed)
    assert happened() == WAITED


def test_one_that_cannot_be_undone_may_be_ended_all_the_same(place: Place) -> None:
    store = place.open()

    @perdure.tool(on_crash="retry")
    def broken(payment: str) -> str:
        raise ConnectionError("the bank is gone")

    @perdure.tool(on_crash="fail", compensate=broken)
    def charge(cents: int) -> str:
        return "paid"

    @perdure.agent(dict, compensate=True)
    def act(run: perdure.Run[dict]) -> None:
        charge(5)
        run.wait_for("never")

    handle = run_until_waiting(store, act, "a")
    handle.cancel("called off")
    with pytest.raises(NeedsAttention, match="charge#1 is not undone"):
        run_until_waiting(store, act, "a")
    assert handle.status == "needs_attention"
    handle.cancel("leave it")
    assert handle.info.status == "cancelled"


def test_without_anything_to_undo_it_ends_at_once(place: Place) -> None:
    store = place.open()

    @perdure.agent(dict, compensate=True)
    def idle(run: perdure.Run[dict]) -> None:
        run.wait_for("never")

    handle = run_until_waiting(store, idle, "a")
    handle.cancel()
    assert handle.info.status == "cancelled"


def test_i8_a_run_whose_program_is_gone_may_be_ended_all_the_same(place: Place) -> None:
    """Nobody could undo it any more, and no request to cancel ended it."""
    store = place.open()

    @perdure.agent(dict, compensate=True)
    def gone(run: perdure.Run[dict]) -> None:
        pay(500)
        raise NeedsAttention("look")

    with pytest.raises(NeedsAttention):
        store.run(gone, "a")
    handle = store.handle("a/gone/main")
    handle.cancel("enough")
    with pytest.raises(NeedsAttention, match="no tool 'pay'"):
        known = undoing._of_tools.pop("pay")
        try:
            store.run(gone, "a")
        finally:
            undoing._of_tools["pay"] = known
    handle.cancel("enough, really")
    assert handle.info.status == "cancelled" and happened() == ["pay 500"]


def test_i8_one_that_no_worker_serves_may_be_ended_by_a_second_request(place: Place) -> None:
    store = place.open()
    handle = run_until_waiting(store, waiting, "a")
    handle.cancel("called off")
    stop(store.runner.context, store.runner.wakeups, handle.id, "no worker serves it")
    assert handle.status == "needs_attention"
    handle.cancel("leave it")
    assert handle.info.status == "cancelled" and happened() == WAITED[:2]


@BOTH
def test_who_waits_for_the_end_of_a_cancelled_saga_hears_of_it(place: Place, function: Any) -> None:
    """The worker had undone and ended it at once, and `cancel(wait=True)` waited on, for ever."""
    store = place.open()
    handle = run_until_waiting(store, function, "a")
    worker = perdure.Worker(place.open(), [function])
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        handle.cancel("called off", wait=True, timeout=60)
    finally:
        worker.stop()
        thread.join(60)
    assert handle.status == "cancelled" and happened() == WAITED
