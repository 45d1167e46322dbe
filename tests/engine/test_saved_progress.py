"""What a tool saved before it called the world is there for its probe, and for its next attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.errors import NeedsAttention, PerdureError, Unstorable
from perdure.testing import RunEnding, boundary, kill_at_every_boundary, play
from tests.engine.conftest import Async, CrashError, Crashes, Place

BANK: dict[str, int] = {}
"""The bank's books, by the number that it gave to the transfer."""


def begin_transfer() -> str:
    return f"tx-{len(BANK) + 1}"


def find_transfer(cents: int) -> Any:
    number = perdure.saved_progress()
    return number if number in BANK else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_transfer)
def wire(cents: int) -> str:
    number = begin_transfer()
    perdure.save_progress(number)
    boundary("before the transfer")
    BANK[number] = cents
    boundary("after the transfer")
    return number


@perdure.agent(dict)
def transfer(run: perdure.Run[dict]) -> str:
    return wire(500)


async def find_transfer_async(cents: int) -> Any:
    return find_transfer(cents)


@perdure.tool(on_crash="probe", probe=find_transfer_async)
async def wire_async(cents: int) -> str:
    number = begin_transfer()
    await perdure.save_progress_async(number)
    boundary("before the transfer")
    BANK[number] = cents
    boundary("after the transfer")
    return number


@perdure.agent(dict)
async def transfer_async(run: perdure.AsyncRun[dict]) -> str:
    return await wire_async(500)


def paid_once(end: RunEnding) -> None:
    assert BANK == {"tx-1": 500}, end.killed_at


@pytest.mark.parametrize("function", [transfer, transfer_async])
def test_i5_a_probe_finds_a_call_by_the_number_that_it_saved(function: Any) -> None:
    """A bank gives each transfer a number, and is asked by it. The tool saved it before it sent
    the transfer, and crashed: its probe was given nothing, and could not ask."""
    endings = kill_at_every_boundary(
        function,
        before=lambda folder: BANK.clear(),
        check=paid_once,
    )
    assert {"at before the transfer 1", "at after the transfer 1"} < {
        end.killed_at for end in endings
    }


def test_i5_it_is_durable_when_the_call_returns(place: Place, crash: Crashes) -> None:
    """`heartbeat` saves soon after. A tool that crashed at once had saved nothing."""
    store = place.open()
    found: list[Any] = []

    def look() -> Any:
        found.append(perdure.saved_progress("nothing"))
        return "found"

    @perdure.tool(on_crash="probe", probe=look)
    def send() -> str:
        perdure.save_progress({"number": 7})
        other = place.open()  # as another process sees it
        log = other.agent("a").log()
        assert [one["value"] for commit in log for one in commit.records if one["t"] == "progress"]
        raise CrashError

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return send()

    with pytest.raises(CrashError):
        store.run(act, "a")
    assert place.open().run(act, "a") == "found"
    assert found == [{"number": 7}]


def test_the_next_attempt_has_it_too(runs: Async, crash: Crashes) -> None:
    @perdure.tool(on_crash="retry")
    async def send() -> str:
        before = perdure.saved_progress("nothing")
        await perdure.save_progress_async("tx-1")
        if before == "nothing":
            raise CrashError
        return str(before)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        return await send()

    runs.crash(act)
    assert runs.run(act) == "tx-1"


def test_tools_beside_each_other_save_what_is_theirs(runs: Async) -> None:
    @perdure.tool(on_crash="retry")
    async def send(number: int) -> Any:
        await perdure.save_progress_async(number)
        await asyncio.sleep(0)
        await perdure.save_progress_async(number * 10)
        return perdure.saved_progress()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[Any]:
        return await asyncio.gather(*(send(number) for number in range(1, 9)))

    assert runs.run(act) == [number * 10 for number in range(1, 9)]


def test_outside_of_runs_it_does_nothing() -> None:
    perdure.save_progress("tx-1")
    asyncio.run(perdure.save_progress_async("tx-1"))
    assert perdure.saved_progress("nothing") == "nothing"


def test_where_it_cannot_be_saved_it_says_so(place: Place) -> None:
    """In the agent function itself it would be kept for nobody."""
    store = place.open()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        perdure.save_progress("tx-1")
        return "saved"

    with pytest.raises(PerdureError, match="no call whose progress"):
        store.run(act, "a")


def test_a_probe_saves_nothing(place: Place) -> None:
    store = place.open()

    def look() -> Any:
        perdure.save_progress("found")

    @perdure.tool(on_crash="probe", probe=look)
    def send() -> str:
        raise CrashError

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return send()

    with pytest.raises(CrashError):
        store.run(act, "a")
    with pytest.raises(NeedsAttention, match="a probe has no progress of its own"):
        place.open().run(act, "a")


def test_what_is_no_data_is_refused() -> None:
    @perdure.tool(on_crash="fail")
    def send() -> str:
        perdure.save_progress(object())
        return "sent"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return send()

    with pytest.raises(Unstorable, match="progress"):
        play(act)
