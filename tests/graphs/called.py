"""The steps and tools that programs call, of each policy, and who was really called."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import perdure
from tests.graphs.generate import delay_s, note_begin


class Ledger:
    """How often each call of a tool was made, by its key, and how often it may be."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.may: dict[str, int] = {}
        self.more: Counter[str] = Counter()
        self.fail_once: set[tuple[str, str]] = set()

    def begin(self, may: int = 1) -> None:
        key = perdure.idempotency_key()
        self.made[key] += 1
        self.may[key] = may

    def check(self) -> None:
        """Raises AssertionError: one was called more often than its policy, and what was said of it
        while it was in doubt, let it be."""
        too_often = {
            key: n for key, n in self.made.items() if n > self.may.get(key, 0) + self.more[key]
        }
        assert not too_often, f"called again: {too_often}, and might be {self.may}, {self.more}"


ledger = Ledger()
"""Of the program that is played."""

ATTEMPTS = 3
OFTEN = 1_000
"""How often a tool may be called that is to be tried again after a crash."""


@perdure.tool(on_crash="retry")
async def again(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin(OFTEN)
    await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.tool(on_crash="retry")
def again_in_thread(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin(OFTEN)
    return f"{called}!"


@perdure.tool
async def asked_for(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin()
    await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.tool
def asked_for_in_thread(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin()
    time.sleep(delay_s(called) / 10)
    return f"{called}!"


@perdure.tool(on_crash="fail")
async def once(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin()
    await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.tool(on_crash="fail")
def once_in_thread(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin()
    return f"{called}!"


async def _look(called: str, seen: str = "") -> Any:
    await asyncio.sleep(delay_s(called) / 2)
    key = perdure.idempotency_key()
    if sum(key.encode()) % 2:
        return f"{called}!"
    ledger.more[key] += 1
    return perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=_look)
async def probed(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin()
    await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.tool(on_crash="retry", timeout=0.003, retry=perdure.Retry(attempts=2, first=0.0005))
async def late(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin(OFTEN)
    await asyncio.sleep(delay_s(called))
    return f"{called}!"


@perdure.tool(on_crash="fail", timeout=0.003)
def late_in_thread(called: str, seen: str = "") -> str:
    note_begin(called)
    ledger.begin()
    time.sleep(delay_s(called))
    return f"{called}!"


@perdure.step(retry=perdure.Retry(attempts=ATTEMPTS, first=0.0005, jitter=0, on=KeyError))
async def tried_again(called: str, seen: str = "") -> str:
    note_begin(called)
    if (called, seen) not in ledger.fail_once:
        ledger.fail_once.add((called, seen))
        raise KeyError(called)
    return f"{called}!"


@perdure.step
async def cleans_slowly(called: str, seen: str = "") -> str:
    """What is cancelled in it is not through at once."""
    note_begin(called)
    try:
        await asyncio.sleep(delay_s(called))
    finally:
        await asyncio.sleep(delay_s(called) / 2)
    return f"{called}!"


@perdure.step
async def keeps_on(called: str, seen: str = "") -> str:
    """It does not let itself be cancelled."""
    note_begin(called)
    try:
        await asyncio.sleep(delay_s(called))
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return f"{called}!"


@perdure.step
def in_thread(called: str, seen: str = "") -> str:
    note_begin(called)
    time.sleep(delay_s(called) / 10)
    return f"{called}!"


@perdure.step
def failing_in_thread(called: str, seen: str = "") -> str:
    note_begin(called)
    raise ValueError(called)


@perdure.agent(dict)
async def child(run: perdure.AsyncRun[dict[str, Any]], called: str) -> str:
    async with run.edit("born") as draft:
        draft["called"] = called
    return await again(f"{called} of the child")
