"""Arguments of which a class fills in a part: with another value each time that one is made."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import pydantic
import pytest

import perdure
from perdure.store import Store
from perdure.testing import run_until_waiting


@dataclass
class Order:
    cents: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


class OrderModel(pydantic.BaseModel):
    cents: int
    id: str = pydantic.Field(default_factory=lambda: uuid.uuid4().hex)


paid: list[str] = []


@perdure.tool(on_crash="ask")
def pay(order: Any) -> str:
    paid.append(order.id)
    return str(order.id)


def pay_for(run: perdure.Run[dict], *orders: Any) -> str:
    receipt, *_ = [pay(order) for order in orders]
    run.wait_for("delivered")
    return receipt


@perdure.agent(dict)
def buy(run: perdure.Run[dict], order: Order, *more: Order) -> str:
    return pay_for(run, order, *more)


@perdure.agent(dict, name="buy-model")
def buy_model(run: perdure.Run[dict], order: OrderModel, *more: OrderModel) -> str:
    return pay_for(run, order, *more)


@pytest.mark.parametrize("function", [buy, buy_model])
@pytest.mark.parametrize("requested", [True, False])
def test_what_a_class_fills_in_is_the_same_at_each_replay(
    store: Store, function: Any, requested: bool
) -> None:
    """An order came in as plain data, and its class filled in an id: another one at each replay. So
    the payment was called with another argument than the recorded one, the run could never go on,
    and who took its outcome over paid a second time."""
    paid.clear()
    given: Any = {"cents": 500}
    if requested:
        store.start(function, "a", given, given)
    handle = run_until_waiting(store, function, "a", given, given)
    handle.signal("delivered")
    assert store.run(function, "a", given, given) == paid[0]
    assert len(paid) == len(set(paid)) == 2
    assert store.run(function, "a", given, given) == paid[0]
    handle.retry("pay#1", effects="reuse")
    run_until_waiting(store, function, "a", given, given)
    assert len(paid) == 2
