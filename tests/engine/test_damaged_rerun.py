"""Runs are set back, or forked, to a step before a commit that cannot be read."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import NeedsAttention
from perdure.store import Store
from tests.cli.operator import Operator
from tests.damaging import Vandal
from tests.engine.conftest import Place
from tests.engine.waits import go

KINDS = [
    "a delta that does not fit",
    "a record that is no map",
    "a byte of the payload",
    "no header",
]
READABLE = "a delta that does not fit"

calls: list[int] = []


@perdure.tool
def pay(number: int) -> int:
    calls.append(number)
    return number


@perdure.step
def look(n: int) -> int:
    return n


@perdure.agent(dict)
def paying(run: perdure.Run[dict[str, Any]]) -> int:
    look(1)
    pay(1)
    with run.edit("paid once") as draft:
        draft["n"] = 1
    look(2)
    word = run.wait_for("go")
    pay(2)
    return int(word)


def met(place: Place, kind: str, behind: int = 0) -> tuple[Store, perdure.RunHandle[Any], int]:
    """A run that came to the damage; and the last good commit."""
    calls.clear()
    store = place.open()
    assert go(store, paying) is None
    last = store.agent("a").seq
    vandal = Vandal(store, "a")
    vandal.damage(kind)
    vandal.go_on(behind)
    (row,) = store.runs("a")
    handle = store.handle(row.id)
    handle.signal("go", 7)
    with pytest.raises(perdure.Corrupt):
        go(store, paying)
    assert handle.status == "needs_attention"
    return store, handle, last


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", [0, 2])
def test_a_run_is_set_back_to_a_step_before_it(place: Place, kind: str, behind: int) -> None:
    """Retry and fork said Corrupt: the run could only be ended, and all of it done anew. What the
    damaged commit says is not known, be it that the next payment was made: so a person is asked."""
    store, handle, _ = met(place, kind, behind)
    handle.retry("look#2")
    assert handle.status == "pending" and store.agent("a").state == {"n": 1}
    if kind == READABLE:
        assert go(store, paying) == 7
        assert calls == [1, 2]
        return
    with pytest.raises(NeedsAttention, match=r"may have been made before.*cannot be read"):
        go(store, paying)
    assert calls == [1]
    with pytest.raises(NeedsAttention, match=r"may have been made"):
        go(store, paying)
    assert "settle" in str(handle.why())
    handle.settle("pay#2", not_done=True)
    assert go(store, paying) == 7
    assert calls == [1, 2]
    assert [effect.place for effect in handle.effects(damaged_too=True)][-1] == "pay#2"


def test_in_the_next_turn_nobody_can_read_it_either(place: Place) -> None:
    """What was left there was forgotten with the turn, and so was that a part of it is unknown."""

    @perdure.agent(dict, name="paying")
    def turning(run: perdure.Run[dict[str, Any]], turn: int = 1) -> Any:
        if turn == 1:
            look(1)
            pay(1)
            with run.edit("paid once") as draft:
                draft["n"] = 1
            look(2)
            return run.again(2)
        return pay(2)

    store, handle, _ = met(place, "no header")
    handle.retry("look#2")
    with pytest.raises(NeedsAttention, match=r"pay#1.*may have been made before"):
        go(store, turning)
    handle.settle("pay#1", done=2)
    assert go(store, turning) == 2
    assert calls == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_payment_is_not_asked_for_as_unknown(place: Place, kind: str) -> None:
    store, handle, _ = met(place, kind)
    handle.retry("pay#1", effects="reuse")
    if kind == READABLE:
        assert go(store, paying) == 7 and calls == [1, 2]
        return
    with pytest.raises(NeedsAttention, match=r"pay#2.*may have been made before"):
        go(store, paying)
    assert calls == [1], "of the first one it is known what came of it"
    handle.settle("pay#2", done=2)
    assert go(store, paying) == 7
    assert calls == [1]


def test_who_says_live_is_not_asked(place: Place) -> None:
    store, handle, _ = met(place, "a byte of the payload")
    handle.retry("look#2", effects="live")
    assert go(store, paying) == 7
    assert calls == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_goes_on_from_a_step_before_it(place: Place, kind: str) -> None:
    store, handle, last = met(place, kind)
    other = handle.fork("look#2", branch="beside", effects="ask")
    key = other.info.key
    if kind != READABLE:
        with pytest.raises(NeedsAttention, match="may have been made"):
            go(store, paying, key=key)
        other.settle("pay#2", not_done=True)
    assert go(store, paying, key=key) == 7, "it has the signals of the run that it is forked from"
    assert calls == [1, 2]
    assert store.agent("a").branch("beside").state == {"n": 1}
    assert handle.status == "needs_attention"
    store.agent("a").rollback(last, cancel_run=True)
    assert store.agent("a").state == {"n": 1}


def test_a_run_that_was_ended_is_set_back_behind_it(place: Place) -> None:
    """The commands of the error come first: what is set back then is a run that was cancelled."""
    store, handle, last = met(place, "a byte of the payload")
    store.agent("a").rollback(last, cancel_run=True)
    handle.retry("wait_for:go#1", effects="live")
    handle.signal("go", 9, key="again")
    assert go(store, paying) in (7, 9)
    assert calls == [1, 2]


def test_another_runs_damage_asks_nobody(place: Place) -> None:
    """The header of a damaged commit says whose it is."""
    calls.clear()
    store = place.open()
    assert go(store, paying) is None
    vandal = Vandal(store, "a")
    vandal.cause = perdure.Cause("step", run="a/other/main", step="pay#1")
    vandal.damage("a byte of the payload")
    (row,) = store.runs("a")
    handle = store.handle(row.id)
    handle.cancel()
    handle.retry("look#2")
    handle.signal("go", 7)
    assert go(store, paying) == 7
    assert calls == [1, 2]


def test_from_the_shell(place: Place) -> None:
    """Each command that is printed works when it is pasted."""
    _, handle, _ = met(place, "a byte of the payload")
    if place.url.startswith("memory:"):
        return
    place.close()
    operator = Operator(place.url.removeprefix("sqlite:///"))  # type: ignore[arg-type]
    assert operator.see("retry", handle.id, "--from", "look#2")
    with perdure.open(place.url) as again, pytest.raises(NeedsAttention):
        go(again, paying)
    said = re.sub(r"\s+", " ", operator.see("why", handle.id))
    assert "may have been made" in said
    assert "may have been made" in operator.see("runs", "a")
    command = re.findall(r"perdure (settle \S+ \S+ --run \S+ --not-done)", said)[0]
    assert operator.see(*shlex.split(command))
    with perdure.open(place.url) as again:
        assert go(again, paying) == 7
    assert calls == [1, 2]
    assert operator.json("run", "show", handle.id)["status"] == "done"
    told = operator.type("effects", "a", "--json")
    assert told.exit_code == 5
    assert [one["place"] for one in json.loads(told.stdout)][-1] == "pay#2"


@perdure.tool
async def apay(number: int) -> int:
    calls.append(number)
    return number


@perdure.agent(dict)
async def apaying(run: perdure.AsyncRun[dict[str, Any]]) -> int:
    await apay(1)
    word = await run.wait_for("go")
    await apay(2)
    return int(word)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_same_of_asynchronous_code(place: Place, kind: str) -> None:
    async def life() -> None:
        calls.clear()
        async with perdure.open_async(place.url, durability="os") as store:
            task = asyncio.create_task(store.run(apaying, "a"))
            while not [row for row in await store.runs("a") if row.status == "waiting"]:
                await asyncio.sleep(0.01)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            last = (await store.agent("a")).seq
            Vandal(place.open(), "a").damage(kind)
            (row,) = await store.runs("a")
            handle = await store.handle(row.id)
            await handle.signal("go", 7)
            with pytest.raises(perdure.Corrupt):
                await store.run(apaying, "a")
            agent = await store.agent("a")
            assert (await agent.at(last)).state == {}
            await (await agent.fork("beside", at=last)).save({"n": 1})
            await handle.retry("wait_for:go#1")
            with pytest.raises(NeedsAttention, match="may have been made before"):
                await store.run(apaying, "a")
            await handle.settle("apay#2", not_done=True)
            assert await store.run(apaying, "a") == 7
            assert calls == [1, 2]
            await agent.rollback(last)
            assert agent.state == {}
            assert [one.seq async for one in agent.log(damaged_too=True)]

    asyncio.run(life())
