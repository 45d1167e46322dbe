"""`run.compensate`: what a run did is undone, the last first, once, wherever its process dies."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import InDoubt, NeedsAttention, PerdureError
from perdure.testing import (
    RunEnding,
    kill_at_every_boundary,
    play,
    run_until_waiting,
)
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.saga_world import (
    begin_world,
    book_room,
    cancel_room,
    happened,
    note,
    pay,
    refund,
    world,
)


@pytest.fixture(autouse=True)
def new_world(tmp_path: Path) -> None:
    begin_world(tmp_path)


@perdure.tool(on_crash="fail")
def send(text: str) -> None:
    note("send")


@perdure.step
def fly() -> None:
    raise ConnectionError("no flight")


@perdure.agent(dict)
def travel(run: perdure.Run[dict]) -> list[str]:
    book_room("Ada")
    book_room("Ben", nights=2)
    pay(500)
    try:
        fly()
    except ConnectionError:
        return run.compensate()
    return []


@perdure.agent(dict)
async def travel_async(run: perdure.AsyncRun[dict]) -> list[str]:
    await run.call(book_room, "Ada")
    await run.call(book_room, "Ben", nights=2)
    await run.call(pay, 500)
    try:
        await run.call(fly)
    except ConnectionError:
        return await run.compensate()
    return []


@perdure.agent(dict, compensate=True)
def failing(run: perdure.Run[dict]) -> None:
    book_room("Ada")
    book_room("Ben", nights=2)
    pay(500)
    fly()


@perdure.agent(dict, compensate=True)
async def failing_async(run: perdure.AsyncRun[dict]) -> None:
    await run.call(book_room, "Ada")
    await run.call(book_room, "Ben", nights=2)
    await run.call(pay, 500)
    await run.call(fly)


ALL = ["book Ada", "book Ben", "pay 500", "refund", "cancel Ben", "cancel Ada"]


@pytest.mark.parametrize("function", [travel, travel_async, failing, failing_async])
def test_i5_all_is_undone_once_in_reverse_wherever_the_process_dies(function: Any) -> None:
    """The flight failed after the hotel was paid. The process that gave the money back died, and
    the next one gave it back again."""

    def check(end: RunEnding) -> None:
        assert happened() == ALL, end.killed_at
        if function in (travel, travel_async):
            assert end.result == ["pay#1", "book_room#2", "book_room#1"]
        else:
            assert isinstance(end.result, ConnectionError)
        assert [effect.state for effect in end.effects] == ["done"] * 6

    endings = kill_at_every_boundary(function, before=begin_world, check=check)
    assert {f"{when} tool {n}" for when in ("before", "after") for n in range(1, 7)} < {
        end.killed_at for end in endings
    }


def test_what_has_no_compensation_stays_and_what_failed_is_not_undone(place: Place) -> None:
    @perdure.tool(on_crash="fail", compensate=refund)
    def decline(cents: int) -> str:
        raise ValueError("declined")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[Any]:
        book_room("Ada")
        send("booked")
        with pytest.raises(ValueError, match="declined"):
            decline(5)
        first = run.compensate()
        book_room("Ben")
        return [first, run.compensate(), run.compensate()]

    assert place.open().run(act, "a") == [["book_room#1"], ["book_room#2"], []]
    assert happened() == ["book Ada", "send", "cancel Ada", "book Ben", "cancel Ben"]


@pytest.mark.parametrize("way_out", ["resume", "done", "not_done"])
def test_i8_one_that_fails_for_good_needs_attention(place: Place, way_out: str) -> None:
    """The bank was closed. The refund had failed three times, the run ended as failed, and nobody
    was told that the money was still there."""
    store = place.open()
    closed = [True]
    tries: list[str] = []

    @perdure.tool(on_crash="retry", retry=perdure.Retry(attempts=3, first=0.001))
    def give_back(payment: str) -> str:
        tries.append(perdure.idempotency_key())
        if closed:
            raise ConnectionError("the bank is closed")
        return "given back"

    @perdure.tool(on_crash="fail", compensate=give_back)
    def charge(cents: int) -> str:
        return "paid"

    @perdure.agent(dict, compensate=True)
    def act(run: perdure.Run[dict]) -> None:
        charge(5)
        fly()

    with pytest.raises(NeedsAttention, match=r"charge#1 is not undone.*the bank is closed") as told:
        store.run(act, "a")
    assert "perdure resume" in told.value.hint and "give_back#1" in told.value.hint
    handle = store.handle("a/act/main")
    assert handle.status == "needs_attention" and len(tries) == 3
    assert [(one.state, one.open) for one in handle.effects()] == [
        ("done", False),
        ("not undone", True),  # so whoever lists what is to be settled finds it
    ]
    if way_out == "done":
        handle.settle("give_back#1", done="given back by hand", by="ann")
    elif way_out == "not_done":
        handle.settle("give_back#1", not_done=True, by="ann")
    if way_out != "done":
        closed.clear()
    with pytest.raises(ConnectionError, match="no flight"):
        place.open().run(act, "a")
    assert handle.info.status == "failed"
    assert len(tries) == (3 if way_out == "done" else 4) and len(set(tries)) == 1
    assert [one.state for one in handle.effects()] == ["done", "done"]


@pytest.mark.parametrize("way_out", ["done", "not_done"])
def test_i5_of_a_call_in_doubt_a_person_says_if_there_is_anything_to_undo(
    place: Place, crash: Crashes, way_out: str
) -> None:
    """A payment was in doubt, and its refund was made all the same: nothing had been paid."""

    @perdure.tool(on_crash="fail", compensate=refund)
    def charge(cents: int) -> str:
        crash("in the call")
        return "paid"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        book_room("Ada")
        try:
            charge(5)
        except InDoubt:
            return run.compensate()
        return []

    crash.arm("in the call")
    with pytest.raises(CrashError):
        place.open().run(act, "a")
    for _ in range(2):  # it stays so
        with pytest.raises(NeedsAttention, match="nobody knows whether charge#1 took effect"):
            place.open().run(act, "a")
    assert happened() == ["book Ada"]
    handle = place.open().handle("a/act/main")
    said: Any = {"done": "nothing"} if way_out == "done" else {"not_done": True}
    handle.settle("refund#1", **said, by="ann")
    assert place.open().run(act, "a") == ["charge#1", "book_room#1"]
    undone = ["refund"] if way_out == "not_done" else []
    assert happened() == ["book Ada", *undone, "cancel Ada"]


def test_i5_a_compensation_in_doubt_is_decided_by_its_policy(place: Place, crash: Crashes) -> None:
    @perdure.tool
    def take_back(payment: str) -> str:
        note("take back")
        crash("in the compensation")
        return "taken back"

    @perdure.tool(on_crash="fail", compensate=take_back)
    def charge(cents: int) -> str:
        return "paid"

    @perdure.agent(dict, compensate=True)
    def act(run: perdure.Run[dict]) -> None:
        charge(5)
        fly()

    crash.arm("in the compensation")
    with pytest.raises(CrashError):
        place.open().run(act, "a")
    with pytest.raises(NeedsAttention, match="nobody knows whether it took effect"):
        place.open().run(act, "a")
    place.open().handle("a/act/main").settle("take_back#1", done="it did", by="ann")
    with pytest.raises(ConnectionError):
        place.open().run(act, "a")
    assert happened() == ["take back"]


def test_it_waits_for_what_is_under_way(runs: Async) -> None:
    """A task was still paying when the run undid everything, and that payment stayed."""
    begun, go = asyncio.Event(), asyncio.Event()

    @perdure.tool(on_crash="fail", compensate=refund)
    async def slow(cents: int) -> str:
        begun.set()
        await go.wait()
        return note("slow")

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        task = asyncio.create_task(slow(5))
        await begun.wait()
        with pytest.raises(PerdureError, match="slow#1 is under way"):
            await run.compensate()
        go.set()
        await task
        return await run.compensate()

    found = runs.run(act)
    assert len(found) == 1 and happened() == ["slow", "refund"]


def test_tasks_that_pay_side_by_side_are_undone_in_the_order_of_the_log(runs: Async) -> None:
    @perdure.agent(dict, name="act")
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        await run.map(book_room, ["a", "b", "c", "d"])
        undone = await run.compensate()
        await run.wait_for("go")
        return undone

    store = runs.store
    handle = run_until_waiting(store, act, "a")
    handle.signal("go")
    run_until_waiting(store, act, "a")
    booked = [one for one in handle.effects() if str(one.result).startswith("book ")]
    booked.sort(key=lambda one: (one.seq, one.place))
    assert handle.result() == [one.place for one in reversed(booked)]
    guests = [str(one.result).removeprefix("book ") for one in reversed(booked)]
    assert happened()[4:] == [f"cancel {guest}" for guest in guests]


def test_a_plain_function_undoes_as_a_tool(place: Place) -> None:
    def take_back(cents: int) -> None:
        note(f"take back {cents}")

    @perdure.tool(on_crash="fail", compensate=take_back)
    def charge(cents: int) -> int:
        return cents

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        charge(5)
        return run.compensate()

    store = place.open()
    assert store.run(act, "a") == ["charge#1"]
    assert happened() == ["take back 5"]
    assert [one.place for one in store.handle("a/act/main").effects()] == [
        "charge#1",
        "take_back#1",
    ]


def test_two_tools_of_one_name_are_undone_by_their_own(place: Place) -> None:
    """Another module had a tool of that name, and its compensation was called."""

    @perdure.tool(on_crash="fail", compensate=refund, name="twice")
    def charge(cents: int) -> str:
        return "paid"

    def stranger(cents: int) -> str:
        raise AssertionError("not called")

    stranger.__module__ = "elsewhere"
    perdure.tool(on_crash="fail", compensate=send, name="twice")(stranger)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        charge(5)
        return run.compensate()

    assert place.open().run(act, "a") == ["twice#1"]
    assert happened() == ["refund"]


def test_tools_of_a_factory_need_names_of_their_own(place: Place) -> None:
    def account(name: str) -> Any:
        @perdure.tool(on_crash="fail", compensate=lambda result: None)
        def charge(cents: int, of: str = name) -> str:
            return "paid"

        return charge

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        account("a")(5)
        account("b")(6)
        return run.compensate()

    with pytest.raises(NeedsAttention, match="2 tools 'charge'"):
        place.open().run(act, "a")


def test_a_fork_does_not_undo_what_its_origin_paid(place: Place) -> None:
    """Both would give the money back."""
    store = place.open()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        pay(500)
        run.wait_for("go")
        return run.compensate()

    handle = run_until_waiting(store, act, "a")
    handle.signal("go")
    run_until_waiting(store, act, "a")
    assert handle.result() == ["pay#1"]
    other = handle.fork("wait_for:go#1", branch="what-if")
    other.signal("go")
    worker = perdure.Worker(store, [act])
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert other.result(timeout=60) == []
    worker.stop()
    thread.join(60)
    assert happened() == ["pay 500", "refund"]


def test_in_play_stand_ins_undo() -> None:
    played = play(
        travel,
        tools={
            book_room: lambda guest, nights=1: f"book {guest}",
            pay: lambda cents: "paid",
            refund: lambda payment: "back",
            cancel_room: lambda booking, guest: "off",
        },
    )
    assert played.result == ["pay#1", "book_room#2", "book_room#1"]
    assert happened() == []


def test_a_result_that_cannot_be_stored_is_a_failure_too(place: Place) -> None:
    @perdure.agent(dict, compensate=True)
    def act(run: perdure.Run[dict]) -> object:
        pay(500)
        return object()

    with pytest.raises(perdure.Unstorable):
        place.open().run(act, "a")
    assert happened() == ["pay 500", "refund"]


def test_what_needs_attention_is_not_undone(place: Place) -> None:
    @perdure.agent(dict, compensate=True)
    def act(run: perdure.Run[dict]) -> None:
        pay(500)
        raise NeedsAttention("look")

    with pytest.raises(NeedsAttention):
        place.open().run(act, "a")
    assert happened() == ["pay 500"]


@pytest.mark.parametrize(
    ("undo", "problem"),
    [
        (7, "compensate="),
        (lambda *args: None, "takes any arguments"),
        (lambda result, euros: None, "needs euros, which"),
        (lambda result, *, euros: None, "needs euros, which"),
    ],
)
def test_wrong_compensations_are_refused_at_once(undo: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):

        @perdure.tool(compensate=undo)
        def charge(cents: int) -> None: ...


def test_what_is_left_out_of_the_log_cannot_be_needed() -> None:
    with pytest.raises(TypeError, match="record_args= leaves out of the log"):

        @perdure.tool(compensate=lambda result, card: None, record_args=False)
        def charge(card: str) -> None: ...


def test_an_argument_that_cannot_be_kept_is_refused_before_the_call(place: Place) -> None:
    @perdure.tool(on_crash="fail", compensate=lambda result, where: None)
    def charge(where: perdure.Ephemeral[Any]) -> str:
        return note("charge")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return charge(object())

    with pytest.raises(perdure.Unstorable, match="where"):
        place.open().run(act, "a")
    assert happened() == []


def test_i5_what_was_undone_is_not_taken_over_when_the_run_is_set_back(place: Place) -> None:
    """A run was retried from before its payment, with what it had done: the payment that had been
    given back counted as paid."""
    store = place.open()
    trains = [False]

    @perdure.step
    def find_train() -> str:
        if not trains[0]:
            raise LookupError("no train")
        return "the 8:12"

    @perdure.step
    def begin() -> None: ...

    @perdure.agent(dict, compensate=True)
    def ride(run: perdure.Run[dict]) -> str:
        begin()
        pay(500)
        return find_train()

    with pytest.raises(LookupError):
        store.run(ride, "a")
    trains[0] = True
    handle = store.handle("a/ride/main")
    handle.retry("begin#1", effects="reuse")
    with pytest.raises(NeedsAttention, match="it was made before"):
        store.run(ride, "a")
    assert happened() == ["pay 500", "refund"]
    handle.settle("pay#1", not_done=True, by="ann")
    assert store.run(ride, "a") == "the 8:12"
    assert happened() == ["pay 500", "refund", "pay 500"]


@perdure.unrecorded
def note_outside(what: str) -> None:
    with world[0].open("a") as file:
        file.write(f"{what}|\n")


def test_i5_a_doubt_that_is_taken_over_is_a_doubt_still(place: Place, crash: Crashes) -> None:
    @perdure.step
    def begin() -> None: ...

    @perdure.tool(on_crash="fail", compensate=refund)
    def charge(cents: int) -> str:
        crash("in the call")
        return "paid"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        begin()
        with suppress(InDoubt):
            charge(5)
        if not happened():
            note_outside("looked")
            raise LookupError("no flight")
        return run.compensate()

    crash.arm("in the call")
    with pytest.raises(CrashError):
        place.open().run(act, "a")
    with pytest.raises(LookupError):
        place.open().run(act, "a")
    store = place.open()
    store.handle("a/act/main").retry("begin#1", effects="reuse")
    with pytest.raises(NeedsAttention, match="nobody knows whether charge#1 took effect"):
        store.run(act, "a")
