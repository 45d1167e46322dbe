"""The state that an agent is created with by its first run, whoever begins that, and whatever keeps
a run from beginning."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

import perdure
from perdure.core.format import envelope
from perdure.engine.dispatch import backoff
from perdure.errors import SchemaError, Unstorable
from perdure.store import Store
from tests.engine.conftest import Place
from tests.engine.waits import go, records, until, verify_all
from tests.engine.working import BOUND_S, working


class Ticket(BaseModel):
    customer: str
    notes: list[str] = []


@dataclasses.dataclass
class Plain:
    customer: str


class Struct(msgspec.Struct):
    customer: str


class Typed(TypedDict):
    customer: str


class Optional(BaseModel):
    customer: str = ""


def has_a_customer(state: Optional) -> bool:
    return bool(state.customer)


CHECKED = perdure.Schema(Optional, id="checked", invariants=[has_a_customer])


@perdure.agent(Ticket)
def handling(run: perdure.Run[Ticket], note: str = "") -> str:
    with run.edit("noted") as draft:
        draft.notes.append(note)
    return run.state.customer


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@pytest.mark.parametrize("schema", [Ticket, Plain, Struct, Typed, CHECKED], ids=str)
def test_a_run_is_not_requested_whose_agent_cannot_be_created(store: Store, schema: Any) -> None:
    """A state had a field without a default. start() took the request, and the worker could not
    create the agent: it tried for ever, 40 times a second, and `why` said that it would begin."""

    @perdure.agent(schema)
    def reading(run: perdure.Run[Any]) -> str:
        return str(run.state)

    with pytest.raises(SchemaError, match="the agent does not exist") as refused:
        store.start(reading, "t")
    assert "store.options(initial=" in refused.value.hint
    assert ").start(…)" in refused.value.hint
    assert store.runs() == []


@pytest.mark.parametrize(
    ("schema", "initial"),
    [
        (Ticket, Ticket(customer="c-7")),
        (Plain, Plain("c-7")),
        (Struct, Struct("c-7")),
        (Typed, {"customer": "c-7"}),
        (CHECKED, Optional(customer="c-7")),
    ],
    ids=str,
)
def test_its_first_state_comes_along_with_the_request(
    store: Store, schema: Any, initial: Any
) -> None:
    @perdure.agent(schema)
    def reading(run: perdure.Run[Any]) -> Any:
        state = run.state
        return state["customer"] if isinstance(state, dict) else state.customer

    with working(store, reading):
        assert store.options(initial=initial).start(reading, "t").result(BOUND_S) == "c-7"
    assert store.options(initial=initial).run(reading, "u") == "c-7"
    assert len(store.incarnations("t")) == 1


def test_one_that_is_there_keeps_its_state(store: Store) -> None:
    store.agent("t", Ticket, initial=Ticket(customer="c-7")).update(lambda draft: None)
    with store.agent("t", Ticket, initial=Ticket(customer="c-7")).edit("there") as draft:
        draft.notes.append("first")
    other = store.options(initial=Ticket(customer="another"))
    assert other.run(handling, "t") == "c-7"
    assert other.start(handling, "t").result(BOUND_S) == "c-7"


def test_who_requested_it_says_how_its_agent_begins(store: Store) -> None:
    """Whoever begins it may have another idea of that."""
    store.options(initial=Ticket(customer="requested")).start(handling, "t")
    assert store.options(initial=Ticket(customer="own")).run(handling, "t") == "requested"


@pytest.mark.parametrize(
    ("initial", "error"),
    [
        (Ticket.model_construct(customer=3), SchemaError),
        ({"notes": []}, SchemaError),
        (None, SchemaError),
        ("c-7", SchemaError),
        (Ticket(customer="x" * (envelope.SEALED_MAX // 2)), Unstorable),
    ],
    ids=["field", "lacking", "none", "text", "size"],
)
def test_a_wrong_first_state_is_refused_at_the_call(
    store: Store, initial: Any, error: type[Exception]
) -> None:
    for there in (False, True):
        if there:
            with store.agent("t", Ticket, initial=Ticket(customer="c")).edit("made") as draft:
                draft.notes.append("there")
        with pytest.raises(error):
            store.options(initial=initial).start(handling, "t")
        with pytest.raises(error):
            store.options(initial=initial).run(handling, "t")
    assert store.runs() == []


def test_the_natural_call_says_the_right_one(store: Store) -> None:
    with pytest.raises(TypeError, match=r"store\.options\(initial=…\)\.start"):
        store.start(handling, "t", initial=Ticket(customer="c-7"))  # type: ignore[call-overload]


def test_an_agent_that_is_deleted_and_requested_again_begins_as_requested(store: Store) -> None:
    options = store.options(initial=Ticket(customer="first"))
    options.start(handling, "t")
    store.delete("t")
    store.options(initial=Ticket(customer="second")).start(handling, "t")
    assert store.run(handling, "t") == "second"


def test_a_newer_program_takes_the_first_state_of_an_older_one(place: Place) -> None:
    """Requested before a deploy, begun after it."""

    def program(version: int) -> Any:
        class Account(BaseModel):
            name: str
            cents: int

        class Account2(BaseModel):
            name: str
            amount: int

        old = perdure.Schema(Account, id="account")
        new = perdure.Schema(
            Account2,
            id="account",
            version=2,
            migrations={1: lambda state: {"name": state["name"], "amount": state["cents"]}},
        )

        @perdure.agent(old if version == 1 else new, name="reading")
        def reading(run: perdure.Run[Any]) -> Any:
            return run.state.model_dump()

        return reading, Account(name="anna", cents=500) if version == 1 else None

    reading, first = program(1)
    store = place.open()
    store.options(initial=first).start(reading, "t")
    newer, _ = program(2)
    with working(store, newer):
        done = store.handle("t/reading/main").result(BOUND_S)
    assert done == {"name": "anna", "amount": 500}


def test_children_bring_theirs(store: Store) -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> str:
        options = run.options(key="k", initial=Ticket(customer="c-7"))
        return options.start(handling, "child", "from the parent").result()

    go(store, parent, "p")
    go(store, handling, "child", "from the parent", key="k")
    assert store.run(parent, "p") == "c-7"
    assert store.agent("child", Ticket).state.notes == ["from the parent"]


def test_a_child_that_cannot_begin_is_refused_the_same_each_time(store: Store) -> None:
    """On replay its agent may be there."""

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> str:
        said = ""
        try:
            run.start(handling, "child")
        except SchemaError as refused:
            said = refused.hint
        run.wait_for("go")
        return said

    go(store, parent, "p")
    with store.agent("child", Ticket, initial=Ticket(customer="c")).edit("made") as draft:
        draft.notes.append("there")
    store.handle("p/parent/main").signal("go")
    assert "run.options(initial=Ticket(…)).start(…)" in store.run(parent, "p")
    assert store.runs("child") == []


def test_from_an_event_loop(place: Place) -> None:
    @perdure.agent(Ticket)
    async def reading(run: perdure.AsyncRun[Ticket]) -> str:
        return run.state.customer

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            with pytest.raises(SchemaError, match="the agent does not exist"):
                await store.start(reading, "t")
            options = store.options(initial=Ticket(customer="c-7"))
            await options.start(reading, "t")
            assert await store.run(reading, "t") == "c-7"
            assert await options.run(reading, "u") == "c-7"

    asyncio.run(main())


# -- what keeps a run from beginning -----------------------------------------------------------


def test_a_run_that_cannot_begin_needs_a_person_and_is_told_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """351 lines came into the log in eight seconds, all the same, for one run that could not
    begin; it stayed pending, and `why` said that it goes on by itself."""
    monkeypatch.setattr(backoff, "AGAIN_S", 0.001)

    def program(migrations: Any) -> Any:
        schema = perdure.Schema(Ticket, id="ticket", version=2, migrations=migrations)

        @perdure.agent(schema, name="handling")
        def newer(run: perdure.Run[Ticket], note: str = "") -> str:
            return run.state.customer

        return newer

    def broken(state: Any) -> Any:
        raise KeyError("customers")

    older = perdure.Schema(Ticket, id="ticket")

    @perdure.agent(older, name="handling")
    def old(run: perdure.Run[Ticket], note: str = "") -> str:
        return run.state.customer

    handle = store.options(initial=Ticket(customer="c-7")).start(old, "t")
    with (
        caplog.at_level(logging.INFO, "perdure.worker"),
        working(store, program({1: broken})) as events,
    ):
        events.wait_for("needs_attention", handle.id)
    assert events.kinds(handle.id) == ["trouble", "needs_attention"]
    told = [one for one in caplog.records if handle.id in one.getMessage()]
    assert [one.levelname for one in told] == ["WARNING", "WARNING"]
    said = handle.why()
    assert (handle.status, said.situation) == ("needs_attention", "stopped")
    assert "customers" in said.why and "5 times without an outcome" in said.why
    handle.resume()
    with working(store, program({1: lambda state: state})):
        assert handle.result(BOUND_S) == "c-7"
    assert [one["t"] for one in records(store, "t")][:2] == ["run-started", "run-stopped"]


def test_each_change_of_trouble_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "AGAIN_S", 0.001)
    troubles = iter(["first", "first", "second", "second"])

    def leave() -> None:
        if (trouble := next(troubles, None)) is not None:
            raise SystemExit(trouble)

    @perdure.agent(dict)
    def leaving(run: perdure.Run[dict]) -> str:
        run.call(leave)
        return "done"

    with working(store, leaving) as events:
        handle = store.start(leaving, "t")
        assert handle.result(BOUND_S) == "done"
        until(lambda: "done" in events.kinds(handle.id))
    told = [event.words for event in events if event.kind == "trouble"]
    assert len(told) == 2 and "first" in told[0] and "second" in told[1]
