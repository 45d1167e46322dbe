"""What the OpenAI Agents SDK calls of a session, on a conversation that grows.

Imported where it is measured: other rows are not to pay for the SDK's modules. Each call is of a
session that is made for it, as for one request, so that all of its threads are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bench.growth.calls import Growth, Measure, call, often
from bench.growth.places import HISTORIES, Place
from perdure import Store
from perdure.integrations.openai_agents import PerdureSession

FEW = 5


def _item(number: int) -> Any:
    return {"role": "user", "content": f"{number:06}"}


def _conversation(store: Store, length: int) -> None:
    async def say() -> None:
        session = PerdureSession("c", store=store)
        for number in range(length):
            await session.add_items([_item(number)])

    asyncio.run(say())


HISTORIES["conversation"] = _conversation

Does = Callable[[PerdureSession], Awaitable[object]]


def _measured(name: str, does: Does, *, growth: Growth = "flat", what: str = "") -> None:
    """A call of one that has read nothing yet; opening and closing it included."""

    def measured(place: Place, measure: Measure) -> None:
        async def once() -> None:
            session = PerdureSession("c", place.url)
            await does(session)
            await session.close()

        often(measure, lambda _: asyncio.run(once()))

    full = f"PerdureSession.{name}"
    call(full, history="conversation", growth=growth, what=what or full)(measured)


async def _compact(session: PerdureSession) -> None:
    found = await session._get_compaction_snapshot(FEW)
    assert found is not None
    await found.replace_suffix(0, [_item(1)])


_measured(
    "get_items", lambda one: one.get_items(FEW), what="PerdureSession.get_items, the last few"
)
_measured(
    "get_items", lambda one: one.get_items(), growth="linear", what="PerdureSession.get_items, all"
)
_measured("add_items", lambda one: one.add_items([_item(1)]), growth="linear")
_measured("pop_item", lambda one: one.pop_item(), growth="linear")
_measured(
    "_get_compaction_snapshot",
    _compact,
    growth="linear",
    what="PerdureSession, a compaction of the last few",
)
_measured("branches", lambda one: one.branches(), growth="linear")
_measured("clear_session", lambda one: one.clear_session(), growth="linear")


@call(
    "PerdureSession.add_items",
    "PerdureSession.get_items",
    "PerdureSession.pop_item",
    history="conversation",
    what="PerdureSession.add_items, get_items, pop_item, once it was read",
)
def again(place: Place, measure: Measure) -> None:
    """The next turns of a session that stays. Its store's threads are there by then: what is
    counted of the library is what the loop's thread does, and of the database all."""
    session = PerdureSession("c", place.url)

    async def turn(number: int) -> None:
        await session.add_items([_item(number), _item(number)])
        await session.get_items(FEW)
        await session.pop_item()

    with asyncio.Runner() as loop:
        loop.run(session.get_items())
        often(measure, lambda number: loop.run(turn(number)))
        loop.run(session.close())
