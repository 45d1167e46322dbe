"""Sagas of three payments, which are given back in the reverse order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import perdure
from perdure.testing import run_until_waiting
from tests.engine.saga_world import note

TOOK = ["take 1", "take 2", "take 3"]
UNDONE = [*TOOK, "give back 3", "give back 2", "give back 1"]

comes: list[Callable[[], object]] = []
"""What happens, once, while the second call is undone."""


@perdure.tool(on_crash="retry")
def give_back(cents: int) -> None:
    note(f"give back {cents}")
    if cents == 2 and comes:
        comes.pop()()


@perdure.tool(on_crash="retry", compensate=give_back)
def take(cents: int) -> int:
    note(f"take {cents}")
    return cents


def shop(run: perdure.Run[dict], how: str) -> Any:
    for cents in (1, 2, 3):
        take(cents)
    if how == "asks":
        return run.compensate()
    if how == "waits":
        run.wait_for("never")
    raise LookupError("no flight")


async def shop_async(run: perdure.AsyncRun[dict], how: str) -> Any:
    for cents in (1, 2, 3):
        await run.call(take, cents)
    if how == "asks":
        return await run.compensate()
    if how == "waits":
        await run.wait_for("never")
    raise LookupError("no flight")


def executed(store: Any, function: Any, *args: Any) -> Any:
    """Gives the result of a run that is executed here, of either kind."""
    return run_until_waiting(store, function, "a", *args).result(timeout=0)
