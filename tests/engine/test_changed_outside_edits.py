"""A run's state that its function changes without an edit: it is refused, and never just lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, field_validator, model_validator

import perdure
from perdure.errors import Drifted
from perdure.store import Store
from tests.engine.waits import go


class Level(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Message:
    text: str
    level: Level = Level.LOW


@dataclass
class Ticket:
    status: str = "open"
    level: Level = Level.LOW
    messages: list[Message] = field(default_factory=lambda: [Message("hi"), Message("there")])
    labels: set[str] = field(default_factory=set)
    cache: perdure.Ephemeral[dict[str, int]] = field(default_factory=dict)


refunds: list[int] = []


@pytest.fixture(autouse=True)
def no_refunds() -> None:
    refunds.clear()


@perdure.tool(on_crash="retry")
def refund(cents: int) -> int:
    refunds.append(cents)
    return cents


def keys(state: Any) -> None:
    state["paid"] = True


def nested(state: Any) -> None:
    state["invoice"]["paid"] = True


@pytest.mark.parametrize(("change", "path"), [(keys, "state.paid"), (nested, "state.invoice.paid")])
def test_a_key_that_is_set_without_an_edit_is_not_just_lost(
    store: Store, change: Callable[[Any], None], path: str
) -> None:
    """A function set `run.state["paid"] = True`, and returned its state: the result had it, and so
    the agent seemed to. It was in no log, and the agent's state was without it."""

    @perdure.agent(dict)
    def pay(run: perdure.Run[dict]) -> Any:
        with run.edit("billed") as draft:
            draft["invoice"] = {"cents": 500}
        change(run.state)
        return run.state

    with pytest.raises(Drifted, match="changed outside an edit") as refused:
        store.run(pay, "a")
    assert refused.value.target.endswith(path)
    assert 'with run.edit("why") as draft' in refused.value.hint
    assert store.handle("a/pay/main").status == "failed"
    assert store.agent("a").state == {"invoice": {"cents": 500}}
    with pytest.raises(Drifted):
        store.run(pay, "a")


def of_status(state: Ticket) -> None:
    state.status = "paid"


def of_level(state: Ticket) -> None:
    state.level = Level.HIGH


def of_items(state: Ticket) -> None:
    state.messages.append(Message("paid"))


def of_labels(state: Ticket) -> None:
    state.labels.add("paid")


@pytest.mark.parametrize("change", [of_status, of_level, of_items, of_labels])
def test_it_is_refused_before_anything_else_is_done(
    store: Store, change: Callable[[Ticket], None]
) -> None:
    @perdure.agent(Ticket)
    def pay(run: perdure.Run[Ticket]) -> int:
        change(run.state)
        return refund(5)

    @perdure.agent(Ticket)
    async def paying(run: perdure.AsyncRun[Ticket]) -> int:
        change(run.state)
        return await run.call(refund, 5)

    async def main() -> None:
        async with perdure.open_async(store.url) as opened:
            with pytest.raises(Drifted, match="changed outside an edit") as refused:
                await opened.run(paying, "b")
            assert 'async with run.edit("why") as draft' in refused.value.hint

    with pytest.raises(Drifted, match="changed outside an edit"):
        store.run(pay, "a")
    asyncio.run(main())
    assert refunds == []


def test_what_is_deep_inside_is_found_when_the_function_ends_or_its_turn(store: Store) -> None:
    @perdure.agent(Ticket)
    def pay(run: perdure.Run[Ticket], again: bool) -> Any:
        if again:
            refund(5)
        run.state.messages[1].text = "paid"
        return run.again(False) if again else "done"

    @perdure.agent(Ticket)
    async def paying(run: perdure.AsyncRun[Ticket]) -> Any:
        run.state.messages[1].level = Level.HIGH

    for again in (True, False):
        with pytest.raises(Drifted) as refused:
            store.options(key=f"{again}").run(pay, "a", again)
        assert refused.value.target.endswith("state.messages[1].text")
    assert store.agent("a", Ticket).state == Ticket()

    async def main() -> None:
        async with perdure.open_async(store.url) as opened:
            with pytest.raises(Drifted, match=r"changed outside an edit"):
                await opened.run(paying, "b")

    asyncio.run(main())


def test_what_is_taken_back_was_no_change(store: Store) -> None:
    @perdure.agent(Ticket)
    def pay(run: perdure.Run[Ticket]) -> str:
        run.state.messages.append(Message("for a prompt"))
        prompt = " ".join(one.text for one in run.state.messages)
        run.state.messages.pop()
        refund(5)
        return prompt

    assert store.run(pay, "a") == "hi there for a prompt"


class Shown(BaseModel):
    """What it shows is not what is stored."""

    name: str = ""
    tags: list[str] = []
    total: int = 0

    @field_validator("name")
    @classmethod
    def trimmed(cls, value: str) -> str:
        return value.strip()

    @model_validator(mode="after")
    def counted(self) -> Shown:
        self.total = len(self.tags)
        return self


def test_looking_at_the_state_changes_nothing(store: Store) -> None:
    """What hooks, Enums, sets, Ephemeral fields and newer fields show is no change."""
    stored = {"name": " Ada ", "tags": ["a", "b"]}  # as another program wrote it
    with store.agent("shown", perdure.Schema(dict, id="Shown"), initial=stored).edit() as draft:
        draft["name"] = " Ada  "

    @perdure.agent(Shown)
    def looks(run: perdure.Run[Shown]) -> list[Any]:
        seen = [run.state.name, run.state.total]
        refund(1)
        run.call(str, run.state.tags)
        return [*seen, run.state.total]

    assert store.run(looks, "shown") == ["Ada", 2, 2]

    @perdure.agent(Ticket)
    def ticket(run: perdure.Run[Ticket]) -> str:
        run.state.cache["x"] = 1
        refund(1)
        with run.edit("labelled") as draft:
            draft.labels.add("a")
            draft.level = Level.HIGH
            draft.messages[0].level = Level.HIGH
        refund(run.state.cache["x"])
        return run.state.messages[0].level.name

    assert store.run(ticket, "ticket") == "HIGH"


def test_a_run_that_waits_and_is_replayed_sees_no_change(store: Store) -> None:
    @perdure.agent(Ticket)
    def waits(run: perdure.Run[Ticket]) -> int:
        for number in range(3):
            refund(len(run.state.messages))
            with run.edit(f"turn {number}") as draft:
                draft.messages.append(Message(f"{number}"))
            run.wait_for("next")
            refund(len(run.state.messages))
        return len(run.state.messages)

    for _ in range(3):
        assert go(store, waits) is None
        store.handle("a/waits/main").signal("next")
    assert go(store, waits) == 5


def test_threads_and_tasks_that_edit_are_no_change(store: Store) -> None:
    @perdure.agent(dict)
    def threads(run: perdure.Run[dict]) -> int:
        def add(number: int) -> None:
            for step in range(5):
                _ = len(run.state)
                with run.edit("added") as draft:
                    draft[f"{number}.{step}"] = step
                refund(number)

        with run.executor(4) as pool:
            asked = [pool.submit(add, number) for number in range(4)]
            for number in range(5):
                _ = dict(run.state)
                refund(number)
            for one in asked:
                one.result()
        return len(run.state)

    @perdure.agent(dict)
    async def tasks(run: perdure.AsyncRun[dict]) -> int:
        async def add(number: int) -> None:
            for step in range(5):
                _ = len(run.state)
                async with run.edit("added") as draft:
                    draft[f"{number}.{step}"] = step
                await run.call(refund, number)

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(add(number))
        return len(run.state)

    assert store.run(threads, "a") == 20

    async def main() -> int:
        async with perdure.open_async(store.url) as opened:
            return await opened.run(tasks, "b")

    assert asyncio.run(main()) == 20
