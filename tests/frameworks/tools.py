"""Functions to hand to frameworks. Their annotations are strings here, as with any module that
says ``from __future__ import annotations``, and name what only this module knows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

import perdure


class Receipt(BaseModel):
    number: int
    cents: int


class Item(BaseModel):
    sku: str
    count: Annotated[int, Field(ge=1)] = 1


Reason = Literal["broken", "late"]


def order_plain(items: list[Item], reason: Reason, note: str | None = None) -> Receipt:
    """Order things again.

    Args:
        items: What to order.
        reason: Why it is ordered again.
        note: For whoever packs it.
    """
    return Receipt(number=len(items), cents=100 * sum(item.count for item in items))


order_tool = perdure.tool(on_crash="retry", name="order")(order_plain)
order_step = perdure.step(name="order")(order_plain)


class CrashError(BaseException):
    """What the process would have died of."""


class Desk:
    """A step and a tool, what they did outside, and a crash on demand.

    Attributes:
        looked, refunded: what took effect.
        crashing: the next refund takes effect, and then the process dies.
        seconds: how long the refund of an order takes.
    """

    def __init__(self, on_crash: Any = "ask") -> None:
        self.looked: list[str] = []
        self.refunded: list[tuple[str, int]] = []
        self.crashing = False
        self.seconds: Callable[[str], float] = lambda order: 0
        self._take(on_crash)

    def _take(self, on_crash: Any) -> None:
        @perdure.step
        def look_up(order: str) -> int:
            """What the order cost.

            Args:
                order: Its number.
            """
            self.looked.append(order)
            return 500

        @perdure.tool(on_crash=on_crash)
        def refund(order: str, cents: int) -> str:
            """Pay money back.

            Args:
                order: Its number.
                cents: How much.
            """
            time.sleep(self.seconds(order))
            return self._refund(order, cents)

        self.look_up: Any = look_up
        self.refund: Any = refund

    def _refund(self, order: str, cents: int) -> str:
        if cents > 10_000:
            raise ValueError(f"{cents} cents are too much")
        self.refunded.append((order, cents))
        if self.crashing:
            self.crashing = False
            raise CrashError
        return f"receipt {len(self.refunded)} for {order}"


class AsyncDesk(Desk):
    """The same, with an async step and an async tool."""

    def _take(self, on_crash: Any) -> None:
        api: Any = perdure

        @api.step
        async def look_up(order: str) -> int:
            """What the order cost."""
            await asyncio.sleep(0)
            self.looked.append(order)
            return 500

        @api.tool(on_crash=on_crash)
        async def refund(order: str, cents: int) -> str:
            """Pay money back."""
            await asyncio.sleep(self.seconds(order))
            return self._refund(order, cents)

        self.look_up = look_up
        self.refund = refund
