"""A run that is set back to a step, or forked there, has what it had heard before that step."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import NeedsAttention, Store
from perdure.testing import Clock, replay, run_until_waiting


@pytest.fixture
def paid() -> list[str]:
    return []


@pytest.fixture
def selling(paid: list[str]) -> Any:
    @perdure.tool(on_crash="ask")
    def pay(order: str) -> int:
        paid.append(order)
        return len(paid)

    @perdure.agent(dict)
    def selling(run: perdure.Run[dict]) -> list[Any]:
        new = run.patched("orders have random ids")
        order = f"{run.uuid() if new else 0} {run.now()} {run.random()}"
        with run.edit("ordered") as draft:
            draft["at"], draft["order"] = run.uuid().hex, order
        chance = f"{order} {run.uuid()}"
        return [order, run.state["at"], pay(chance)]

    return selling


def test_a_call_with_an_id_that_was_drawn_for_it_is_the_same_call(
    store: Store, selling: Any, paid: list[str]
) -> None:
    """A function drew an id for its order, and paid for it. The id had come into the log with the
    payment, so that the run that was set back to the payment had none. It drew another one, and
    that made another payment of it: it was made again, and nobody was asked."""
    first = store.run(selling, "a")
    handle = store.handle("a/selling/main")
    for _ in range(2):  # the second time from where it was set back
        handle.retry("pay#1", effects="reuse")
        assert store.run(selling, "a") == first
    handle.retry("pay#1")
    handle.cancel()
    handle.retry("pay#1")  # it did not come so far in between
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(selling, "a")
    handle.settle("pay#1", done=1)
    assert store.run(selling, "a") == first
    assert len(paid) == 1
    assert replay(store, selling, handle.id).check() == first
    store.agent("a").verify()


def test_a_fork_has_the_values_from_before_its_step(
    store: Store, selling: Any, paid: list[str]
) -> None:
    first = store.run(selling, "a")
    forked = store.handle("a/selling/main").fork("pay#1", branch="b", effects="reuse")
    assert store.options(key="main@b").run(selling, "a") == first
    third = forked.fork("pay#1", branch="c", effects="reuse", key="third")
    assert store.options(key="third").run(selling, "a") == first
    assert len(paid) == 1
    assert replay(store, selling, third.id).check() == first
    store.agent("a").verify()


def test_what_is_drawn_in_the_block_of_an_edit_belongs_to_it(
    store: Store, selling: Any, paid: list[str]
) -> None:
    """What was drawn before the edit stays. Its block runs anew, and its code may be another one
    now; it says when it was made, too."""
    order, at, _ = store.run(selling, "a")
    handle = store.handle("a/selling/main")
    handle.retry("edit:ordered#1", effects="reuse")
    again = store.run(selling, "a")
    assert again[0] == order
    assert again[1] != at
    assert len(paid) == 2, "the id that it is paid under is drawn after that step"
    assert replay(store, selling, handle.id).check() == again


@pytest.fixture
def approving(paid: list[str]) -> Any:
    @perdure.tool(on_crash="ask")
    def pay(who: str) -> int:
        paid.append(who)
        return len(paid)

    @perdure.agent(dict)
    def approving(run: perdure.Run[dict], how: str) -> list[Any]:
        try:
            hour = timedelta(hours=1)
            if how == "ask":
                who = run.ask("Who pays?", schema=str, timeout=hour)
            else:
                who = run.wait_for("payer", timeout=hour)
        except perdure.TimedOut:
            who = "the house"
        return [who, pay(who)]

    return approving


@pytest.mark.parametrize("how", ["ask", "signal"])
@pytest.mark.parametrize("came", [True, False])
@pytest.mark.parametrize("fork", [True, False])
def test_who_was_heard_before_the_step_is_not_asked_again(
    approving: Any, paid: list[str], how: str, came: bool, fork: bool
) -> None:
    """Nobody had said in time who pays, and the house did. Somebody said so later, and the run was
    set back to the payment: the end of its wait had come into the log with the payment, so it
    waited again, heard that, and another one paid as well. A person who had answered was asked once
    more."""

    def say(handle: Any, who: str) -> None:
        if how == "signal":
            handle.signal("payer", who)
        elif handle.questions():
            handle.answer(who)

    clock = Clock()
    with clock.open("memory://") as store:
        handle = run_until_waiting(store, approving, "a", how)
        if came:
            say(handle, "ada")
        clock.advance(timedelta(hours=2))
        first = store.run(approving, "a", how)
        assert first == ["ada" if came else "the house", 1]
        run, options = handle, store.options()
        for number in range(2):
            if fork:
                key = f"fork {number}"
                run = run.fork("pay#1", branch=f"b{number}", effects="reuse", key=key)
                options = store.options(key=key)
            else:
                run.retry("pay#1", effects="reuse")
            say(run, "bob")
            run_until_waiting(options, approving, "a", how)
            assert run.result(0) == first
        assert len(paid) == 1
        assert replay(store, approving, run.id).check() == first
        store.agent("a").verify()


@pytest.mark.parametrize("fork", [True, False])
def test_a_signal_from_before_the_step_does_not_come_again(
    store: Store, paid: list[str], fork: bool
) -> None:
    """It is in the history that the run continues; the next one is for the next wait."""

    @perdure.tool(on_crash="ask")
    def pay(who: str) -> int:
        paid.append(who)
        return len(paid)

    @perdure.agent(dict)
    def twice(run: perdure.Run[dict]) -> list[Any]:
        return [(who := run.wait_for("payer"), pay(who), run.wait_for("payer"))]

    handle = store.start(twice, "a")
    for who in ("ada", "bob"):
        handle.signal("payer", who, key=who)
    first = store.run(twice, "a")
    run, options = handle, store.options()
    for number in range(2):
        if fork:
            run = run.fork("pay#1", branch=f"b{number}", effects="reuse", key=f"fork {number}")
            options = store.options(key=f"fork {number}")
        else:
            run.retry("pay#1", effects="reuse")
        assert options.run(twice, "a") == first
    assert paid == ["ada"]


def test_a_time_that_was_up_before_the_step_is_up(store: Store, paid: list[str]) -> None:
    """The guest took too long, and the house paid. Set back to that payment, the guest was there at
    once, and paid as well."""
    there = asyncio.Event()

    @perdure.step
    async def guest() -> str:
        await there.wait()
        return "the guest"

    @perdure.tool(on_crash="ask")
    async def pay(who: str) -> int:
        paid.append(who)
        return len(paid)

    @perdure.agent(dict)
    async def late(run: perdure.AsyncRun[dict]) -> list[Any]:
        coming = asyncio.create_task(guest())
        done, _ = await asyncio.wait([coming], timeout=0.01)
        number = await pay("the guest" if done else "the house")
        there.set()
        return [number, await coming]

    assert run_until_waiting(store, late, "a").result(0) == [1, "the guest"]
    handle = store.handle("a/late/main")
    handle.retry("pay#1", effects="reuse")
    assert run_until_waiting(store, late, "a").result(0) == [1, "the guest"]
    assert paid == ["the house"]
    assert replay(store, late, handle.id).check() == [1, "the guest"]


@dataclass
class OldReceipt:
    cents: int


@dataclass
class Receipt:
    cents: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


def test_what_a_class_filled_in_since_is_kept(store: Store, paid: list[str]) -> None:
    """Beside: an older program had heard a signal without the id that the class fills in now."""

    @perdure.step
    def note(cents: int) -> int:
        return cents

    @perdure.tool(on_crash="ask")
    def pay(receipt: str) -> int:
        paid.append(receipt)
        return len(paid)

    def program(kind: Any) -> Any:
        @perdure.agent(dict)
        def booking(run: perdure.Run[dict]) -> Any:
            receipt = run.wait_for("receipt", schema=kind)
            note(receipt.cents)
            run.wait_for("go on")
            return pay(receipt.id)

        return booking

    handle = store.start(program(OldReceipt), "a")
    handle.signal("receipt", {"cents": 5})
    run_until_waiting(store, program(OldReceipt), "a").signal("go on")
    new = program(Receipt)
    assert store.run(new, "a") == 1
    for _ in range(2):
        handle.retry("note#1", effects="reuse")
        assert store.run(new, "a") == 1
    assert len(paid) == 1
