"""What becomes of results of functions that declare no type for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

import perdure
from perdure.engine.journal import undeclared_results
from perdure.errors import CallFailed, Unstorable
from perdure.store import Store


class Receipt(BaseModel):
    number: int
    cents: int = 500


@dataclass
class Line:
    text: str


class Level(Enum):
    HIGH = 3


class Size(NamedTuple):
    width: int
    height: int


def test_a_model_that_a_tool_returns_without_saying_so_is_kept_as_data(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool without annotations charged a card, and returned the receipt as a model. That could
    not be stored, so the call counted as failed, for good: each time the run was asked for, it
    raised that, and the receipt was lost."""
    monkeypatch.setattr(undeclared_results, "_told", set())  # it is said once in a process
    charged: list[int] = []

    @perdure.tool
    def charge_card(cents):
        charged.append(cents)
        return Receipt(number=len(charged), cents=cents)

    @perdure.agent(dict)
    def buy(run: perdure.Run[dict]) -> Any:
        return charge_card(700)

    with caplog.at_level(logging.WARNING, "perdure"):
        assert store.run(buy, "a") == {"number": 1, "cents": 700}
        assert store.options(key="again").run(buy, "a") == {"number": 2, "cents": 700}
    (said,) = [record.getMessage() for record in caplog.records]
    assert "charge_card() returned Receipt, and declares no type" in said
    assert "-> Receipt" in said
    (effect,) = store.handle("a/buy/main").effects()
    assert effect.state == "done"
    assert store.run(buy, "a") == {"number": 1, "cents": 700}
    assert charged == [700, 700]


def test_once_the_type_is_declared_the_recorded_result_is_of_it(store: Store) -> None:
    charged: list[int] = []

    def made(*, declared: bool) -> Callable[..., Any]:
        def charge(cents):
            charged.append(cents)
            return Receipt(number=len(charged), cents=cents)

        charge = perdure.tool(returns=Receipt if declared else None)(charge)

        @perdure.agent(dict)
        def buy(run: perdure.Run[dict]) -> str:
            run.call(str, 1)
            return f"receipt {charge(700).number}"

        return buy

    with pytest.raises(AttributeError):
        store.run(made(declared=False), "a")
    store.handle("a/buy/main").retry("charge#1", effects="reuse")
    assert store.run(made(declared=True), "a") == "receipt 1"
    assert charged == [700]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ([Receipt(number=1), Receipt(number=2)], [{"number": n, "cents": 500} for n in (1, 2)]),
        ({"lines": [Line("a")], "n": 1}, {"lines": [{"text": "a"}], "n": 1}),
        ((Line("a"), "b"), ({"text": "a"}, "b")),
        (Level.HIGH, 3),
        (Size(2, 3), (2, 3)),
    ],
)
def test_objects_are_kept_wherever_they_are(store: Store, value: Any, kept: Any) -> None:
    @perdure.agent(dict)
    def get(run: perdure.Run[dict]) -> Any:
        found = run.call(lambda: value)
        assert found == kept and type(found) is type(kept)
        return value

    assert store.run(get, "a") == kept
    assert store.run(get, "a") == kept


def test_what_has_no_plain_form_is_refused_as_before(store: Store) -> None:
    @perdure.tool
    def connect():
        return [Line("a"), threading.Lock()]

    @perdure.step
    def look():
        return {"lock": threading.Lock()}

    @perdure.agent(dict)
    def get(run: perdure.Run[dict]) -> str:
        with pytest.raises(CallFailed, match="took effect, but its result cannot be stored"):
            connect()
        with pytest.raises(Unstorable, match="lock cannot be stored") as refused:
            look()
        return refused.value.target

    assert store.run(get, "a") == "look().lock"


def test_it_is_so_in_coroutines_too(store: Store) -> None:
    @perdure.tool
    async def charge(cents):
        return Receipt(number=1, cents=cents)

    @perdure.agent(dict)
    async def buy(run: perdure.AsyncRun[dict]) -> Any:
        return [await charge(5), await run.call(lambda: Line("a"))]

    async def main() -> Any:
        async with perdure.open_async(store.url) as opened:
            return await opened.run(buy, "a")

    assert asyncio.run(main()) == [{"number": 1, "cents": 5}, {"text": "a"}]
