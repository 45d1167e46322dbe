"""Recorded values of which a class fills in a part, with another one each time that it is made. A
person settled a call with plain data, or an older program recorded what a newer one reads."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

import perdure
from perdure.store import Store
from perdure.testing import replay, run_until_waiting
from tests.engine.conftest import Place


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass
class Receipt:
    cents: int
    id: str = field(default_factory=new_id)


@dataclass
class Several:
    receipts: list[Receipt]


class ReceiptModel(pydantic.BaseModel):
    cents: int
    id: str = pydantic.Field(default_factory=new_id)


@dataclass
class Numbered:
    cents: int
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self.id or new_id()


@dataclass
class NumberedLate:
    cents: int
    id: str = field(init=False)

    def __post_init__(self) -> None:
        if not hasattr(self, "id"):
            self.id = new_id()


class NumberedStruct(msgspec.Struct):
    cents: int
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self.id or new_id()


class NumberedModel(pydantic.BaseModel):
    cents: int
    id: str = ""

    def model_post_init(self, _: Any) -> None:
        self.id = self.id or new_id()


class NumberedByField(pydantic.BaseModel):
    cents: int
    id: str = pydantic.Field(default="", validate_default=True)

    @pydantic.field_validator("id")
    @classmethod
    def numbered(cls, given: str) -> str:
        return given or new_id()


class NumberedBefore(pydantic.BaseModel):
    cents: int
    id: str = ""

    @pydantic.model_validator(mode="before")
    @classmethod
    def numbered(cls, given: Any) -> Any:
        return {"id": new_id(), **given} if isinstance(given, dict) else given


BY_CODE = [
    Numbered,
    NumberedLate,
    NumberedStruct,
    NumberedModel,
    NumberedByField,
    NumberedBefore,
]


@dataclass
class OldReceipt:
    cents: int


booked: list[str] = []
GIVEN = {"cents": 500}


@pytest.fixture(autouse=True)
def _none_booked() -> Iterator[None]:
    yield
    booked.clear()


@perdure.tool(on_crash="ask")
def book(receipt_id: str) -> str:
    booked.append(receipt_id)
    return receipt_id


def book_all(run: perdure.Run[dict], *receipts: Any) -> str:
    """Passes ids on, and waits: the rest of the run begins with a replay."""
    of_first, *_ = [book(one.id) for one in receipts]
    run.wait_for("delivered")
    return of_first


def completed(store: Store) -> int:
    """Returns the number of values that were completed in the log."""
    return sum(
        record["t"] == "value-completed"
        for commit in store.agent("a").log()
        for record in commit.records
    )


def deliver(store: Store, function: Callable[..., Any], *given: Any, replays: bool = True) -> None:
    """Goes on with a run, several times, to its end; then takes each booking over."""
    run_until_waiting(store, function, "a", *given)
    handle = run_until_waiting(store, function, "a", *given)
    handle.signal("delivered")
    assert store.run(function, "a", *given) == booked[0]
    assert len(booked) == len(set(booked))
    times = len(booked)
    if replays:
        assert replay(store, function).check() == booked[0]
    for effects in ("reuse", "ask"):
        handle.retry("book#1", effects=effects)  # the id is still the one that was booked
        with suppress(perdure.NeedsAttention):
            run_until_waiting(store, function, "a", *given)
        assert len(booked) == times
        if effects == "reuse":
            assert store.run(function, "a", *given) == booked[0]


@perdure.tool(on_crash="ask")
def pay() -> Receipt:
    raise SystemExit("the process ends here")


@perdure.tool(on_crash="ask")
def pay_several() -> Several:
    raise SystemExit("the process ends here")


@perdure.tool(on_crash="ask")
def pay_model() -> ReceiptModel:
    raise SystemExit("the process ends here")


@perdure.tool(on_crash="ask")
def pay_numbered() -> Numbered:
    raise SystemExit("the process ends here")


@pytest.mark.parametrize("tool", [pay, pay_several, pay_model, pay_numbered])
def test_what_a_call_is_settled_with_is_the_same_at_each_replay(place: Place, tool: Any) -> None:
    """A call in doubt was settled with its result as JSON, and the result's class filled in an id:
    another one at each replay. The run was stuck behind its next call, the settlement could not be
    corrected any more, and who took the next call's outcome over made that call again."""

    @perdure.agent(dict)
    def buy(run: perdure.Run[dict]) -> str:
        receipt = tool()
        return book_all(run, *(receipt.receipts if tool is pay_several else [receipt]))

    store = place.open()
    for _ in range(2):
        with suppress(SystemExit, perdure.NeedsAttention):
            store.run(buy, "a")
    handle = store.handle("a/buy/main")
    handle.settle(f"{tool.__name__}#1", done=7)  # a slip: it does not fit
    with pytest.raises(perdure.NeedsAttention, match="does not fit"):
        store.run(buy, "a")
    several = {"receipts": [GIVEN, GIVEN]}
    handle.settle(f"{tool.__name__}#1", done=several if tool is pay_several else GIVEN)
    deliver(store, buy)
    assert completed(store) == 1
    assert booked[0] in repr(handle.effects()[0].result)


def test_a_settlement_counts_as_used_when_something_was_made_of_it(place: Place) -> None:
    """Beside: the run takes a settlement and stops, before it has made anything of it. The person
    may still correct it, as what was filled in is not recorded yet."""
    stops = [True]

    @perdure.agent(dict)
    def buy(run: perdure.Run[dict]) -> str:
        receipt = pay()
        if stops:
            raise perdure.NeedsAttention("look at this first")
        return book_all(run, receipt)

    store = place.open()
    for _ in range(2):
        with suppress(SystemExit, perdure.NeedsAttention):
            store.run(buy, "a")
    handle = store.handle("a/buy/main")
    handle.settle("pay#1", done={"cents": 5})
    with pytest.raises(perdure.NeedsAttention, match="look at this first"):
        store.run(buy, "a")
    handle.settle("pay#1", done={"cents": 500, "id": "i-7"})
    stops.clear()
    deliver(store, buy)
    assert booked == ["i-7"]
    assert completed(store) == 0


def test_a_taken_over_settlement_is_completed_where_it_is_recorded_again(place: Place) -> None:
    """Beside: a run is set back before the call that was settled, and takes its outcome over. It is
    the same receipt."""

    @perdure.agent(dict)
    def buy(run: perdure.Run[dict]) -> str:
        return book_all(run, pay())

    store = place.open()
    for _ in range(2):
        with suppress(SystemExit, perdure.NeedsAttention):
            store.run(buy, "a")
    handle = store.handle("a/buy/main")
    handle.settle("pay#1", done=GIVEN)
    run_until_waiting(store, buy, "a").signal("delivered")
    store.run(buy, "a")
    handle.retry("pay#1", effects="reuse")
    assert store.run(buy, "a") == booked[0]
    handle.fork("book#1", branch="other", effects="reuse")
    assert store.options(key="main@other").run(buy, "a") == booked[0]
    assert len(booked) == 1


def test_what_a_task_got_is_the_same_at_each_replay(place: Place) -> None:
    """Beside: of an asynchronous function, whose calls run side by side."""

    @perdure.step
    async def look() -> int:
        return 1

    @perdure.agent(dict)
    async def buy(run: perdure.AsyncRun[dict]) -> str:
        receipt, _ = await asyncio.gather(run.call(pay), look())
        await run.call(book, receipt.id)
        await run.wait_for("delivered")
        return str(receipt.id)

    store = place.open()
    for _ in range(2):
        with suppress(SystemExit, perdure.NeedsAttention):
            run_until_waiting(store, buy, "a")
    handle = store.handle("a/buy/main")
    (call,) = [one.place for one in handle.effects() if one.open]
    handle.settle(call, done=GIVEN)
    for _ in range(2):
        run_until_waiting(store, buy, "a")
    handle.signal("delivered")
    assert run_until_waiting(store, buy, "a").result() == booked[0]
    assert len(booked) == completed(store) == 1


# -- what an older program recorded --------------------------------------------------------------


def program(kind: str, cls: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns a function of a program that has this class of receipts, and the child of that."""

    def child(run: perdure.Run[dict]) -> Any:
        return cls(cents=5)

    child.__annotations__["return"] = cls
    started = perdure.agent(dict)(child)

    @perdure.step(returns=cls)
    def made() -> Any:
        return cls(cents=5)

    @perdure.tool(returns=cls)
    def paid() -> Any:
        return cls(cents=5)

    def receipt_of(run: perdure.Run[dict]) -> Any:
        match kind:
            case "step":
                return made()
            case "tool":
                return paid()
            case "signal":
                return run.wait_for("receipt", schema=cls)
            case "answer":
                return run.ask("which?", schema=cls, key="which")
        return run.start(started, "kid").result()

    def buy(run: perdure.Run[dict], *given: Any) -> Any:
        if kind == "turn" and not given:
            return run.again(cls(cents=5))
        receipts = given or [receipt_of(run)]
        run.wait_for("go on")
        return "older" if cls is OldReceipt else book_all(run, *receipts)

    buy.__annotations__["given"] = cls
    return perdure.agent(dict)(buy), started


@pytest.mark.parametrize("kind", ["step", "tool", "signal", "answer", "child", "arguments", "turn"])
def test_what_an_older_program_recorded_is_the_same_at_each_replay(place: Place, kind: str) -> None:
    """A newer release gave a class an id, made by a function, and went on with what the older had
    recorded. Each replay made another id, and the run was stuck behind the first call that it was
    passed to."""
    takes_over(place.open(), kind, Receipt)


@pytest.mark.parametrize("kind", ["step", "signal", "child", "arguments"])
@pytest.mark.parametrize("cls", BY_CODE)
def test_what_code_of_a_class_fills_in_is_the_same_at_each_replay(kind: str, cls: Any) -> None:
    """A newer release gave a class an id with a fixed default, and code that replaced it by one of
    its own. What the older had recorded got another id at each replay."""
    with perdure.open("memory://") as store:
        takes_over(store, kind, cls)


def takes_over(store: Store, kind: str, cls: Any) -> None:
    """A program with this class goes on with a run of the older one."""
    old, child = program(kind, OldReceipt)
    given = [GIVEN, GIVEN] if kind == "arguments" else []
    handle = run_until_waiting(store, old, "a", *given)
    if kind == "signal":
        handle.signal("receipt", GIVEN)
    if kind == "answer":
        handle.answer(GIVEN)
    for info in store.runs(agent="kid"):
        store.options(key=info.key).run(child, "kid")
    run_until_waiting(store, old, "a", *given).signal("go on")
    new, _ = program(kind, cls)
    deliver(store, new, *given, replays=kind != "turn")  # it has another turn than the older one
    assert completed(store) == 1


def stays_booked(
    store: Store, new: Any, handle: perdure.RunHandle[Any], step: str, effects: Any
) -> None:
    """Sets a run that has booked back to a step, twice: it books no more."""
    for _ in range(2):
        handle.retry(step, effects=effects)
        with suppress(perdure.NeedsAttention):
            run_until_waiting(store, new, "a")
        assert len(booked) == 1
        if effects == "ask":
            handle.settle("book#1", done=booked[0])
        assert store.run(new, "a") == booked[0]


@pytest.mark.parametrize("effects", ["reuse", "ask"])
@pytest.mark.parametrize("taken_by_both", [False, True])
def test_a_signal_comes_again_with_what_was_filled_in(
    place: Place, effects: Any, taken_by_both: bool
) -> None:
    """A run was set back to before the wait for a signal that an older program had recorded, and
    got it again as it was sent: it had another id then. What had been booked was not found, and was
    booked once more."""
    old, _ = program("signal", OldReceipt)
    new, _ = program("signal", Receipt)
    store = place.open()
    handle = run_until_waiting(store, old, "a")
    handle.signal("receipt", GIVEN)
    run_until_waiting(store, old, "a").signal("go on")
    if taken_by_both:
        store.run(old, "a")
        handle.retry("wait_for:receipt#1", effects=effects)
    run_until_waiting(store, new, "a").signal("delivered")
    assert store.run(new, "a") == booked[0]
    stays_booked(store, new, handle, "wait_for:receipt#1", effects)


@pytest.mark.parametrize("cls", [Receipt, *BY_CODE])
def test_a_state_of_an_older_program_is_the_same_at_each_replay(place: Place, cls: Any) -> None:
    """Beside: a run passed on what code of its state's class had filled in. The run's first write
    stored what defaults make, and not this, so the next replay was stuck behind that call."""
    store = place.open()
    old = perdure.Schema(OldReceipt, id="Receipt")
    store.agent("a", old, initial=OldReceipt(5)).checkpoint("as it was")

    @perdure.agent(perdure.Schema(cls, id="Receipt"))
    def act(run: perdure.Run[Any]) -> str:
        return book_all(run, run.state)

    run_until_waiting(store, act, "a").signal("delivered")
    assert store.run(act, "a") == booked[0]
    assert store.agent("a", perdure.Schema(cls, id="Receipt")).state.id == booked[0]
    assert len(booked) == 1


@pytest.mark.parametrize("effects", ["reuse", "ask"])
@pytest.mark.parametrize("cls", [Receipt, Numbered])
def test_a_child_ends_again_with_what_was_filled_in(place: Place, effects: Any, cls: Any) -> None:
    """Beside: so was a run that was set back to before the end of a child that an older program had
    run."""
    old, child = program("child", OldReceipt)
    new, _ = program("child", cls)
    store = place.open()
    handle = run_until_waiting(store, old, "a")
    (info,) = store.runs(agent="kid")
    store.options(key=info.key).run(child, "kid")
    run_until_waiting(store, old, "a").signal("go on")
    run_until_waiting(store, new, "a").signal("delivered")
    assert store.run(new, "a") == booked[0]
    stays_booked(store, new, handle, f"child:{info.id}#1", effects)


@pytest.mark.parametrize("cls", [Receipt, *BY_CODE])
def test_complete_values_are_recorded_once(place: Place, cls: Any) -> None:
    """Beside: what a program records of its own is complete, and nothing is added to it."""
    new, _ = program("step", cls)
    store = place.open()
    run_until_waiting(store, new, "a").signal("go on")
    deliver(store, new)
    assert completed(store) == 0
