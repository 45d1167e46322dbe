"""More of them: runs that hold something of the world open, and that undo what they did to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncStore
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.worker import Worker
from perdure.errors import CallFailed, NeedsAttention, RunFailed, TimedOut
from perdure.model import UNFINISHED
from perdure.store import Store
from tests.faults.checking import State, WrongError
from tests.faults.injecting import is_told
from tests.faults.run_scenes import _run, _run_async, _waiting, worked_off
from tests.faults.scenes import Call, begun, scene

# -- resources -----------------------------------------------------------------------------------

seen: defaultdict[str, list[Session]] = defaultdict(list)
"""The sessions that steps got, by the agents that their runs are of."""


class Session:
    def __init__(self, number: int) -> None:
        self.number, self.closed = number, False

    def ask(self, name: str, n: int) -> int:
        seen[name].append(self)
        if self.closed:
            raise WrongError("a step got a session that is closed")
        return n + self.number

    def close(self) -> None:
        self.closed = True


@perdure.resource(check=lambda one: not one.closed)
def session(ticket: perdure.Ticket) -> Iterator[Session]:
    if ticket.value is None:
        ticket.keep(1)
    made = Session(ticket.value)
    try:
        yield made
    finally:
        made.close()


@perdure.resource
def client() -> Session:
    return Session(2)


@perdure.resource
async def line() -> Session:
    await asyncio.sleep(0)
    return Session(3)


@perdure.step
def look_up(name: str, n: int) -> int:
    return session.get().ask(name, n) + client.get().ask(name, n)


@perdure.step
async def call_up(name: str, n: int) -> int:
    return (await line.get()).ask(name, n) + session.get().ask(name, n)


@perdure.agent(State)
def browsing(run: perdure.Run[State]) -> int:
    return look_up(run.agent, 1) + sum(run.map(lambda n: look_up(run.agent, n), [2, 3], limit=2))


@perdure.agent(State)
async def calling(run: perdure.AsyncRun[State]) -> int:
    return sum(await asyncio.gather(*(call_up(run.agent, n) for n in (1, 2))))


def all_closed(name: str, call: Call) -> Call:
    """What a step got is closed once its function has ended, however it did."""

    def checked() -> None:
        try:
            call()
        finally:
            left = [one.number for one in seen.pop(name, []) if not one.closed]
            if left:
                raise WrongError(f"sessions {left} are open still")

    return checked


@scene
def run_resources(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, all_closed(name, _run(store, browsing, agent, 21))


@scene
def run_async_resources(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, all_closed(name, _run_async(store, calling, agent, 14))


@perdure.agent(State)
def asking_between(run: perdure.Run[State]) -> int:
    first = look_up(run.agent, 1)
    run.wait_for("word")
    return first + look_up(run.agent, 2)


@scene
def run_resources_again(store: Store, name: str) -> tuple[Agent[State], Call]:
    """They are opened again behind a wait, by the ticket."""
    agent = begun(store, name)
    handle = _waiting(store, asking_between, name)
    seen.pop(name, None)

    def call() -> None:
        if handle.status in UNFINISHED:
            handle.signal("word", key="k")
        assert store.run(asking_between, name) == 12

    return agent, all_closed(name, call)


# -- transactions --------------------------------------------------------------------------------

_shop = sqlite3.connect("file:faults-shop?mode=memory&cache=shared", uri=True)
"""Keeps the shop's database, which is in memory."""
_shop.execute("CREATE TABLE bookings (name TEXT)")
_shop.commit()


def connect() -> sqlite3.Connection:
    return sqlite3.connect("file:faults-shop?mode=memory&cache=shared", uri=True, timeout=10)


@perdure.tool(transaction=perdure.sql_transaction(connect))
def book(name: str) -> int:
    perdure.transaction().connection.execute("INSERT INTO bookings VALUES (?)", (name,))
    return 7


@perdure.agent(State)
def booking(run: perdure.Run[State]) -> int:
    return book(run.agent)


@scene
def run_transaction(store: Store, name: str) -> tuple[Agent[State], Call]:
    """Booked once, and the run has heard of it; or it failed, and nothing is booked."""
    agent = begun(store, name)
    booked = _run(store, booking, agent, 7)

    def call() -> None:
        done = False
        try:
            booked()
            done = True
        finally:
            with closing(connect()) as looking:
                found = looking.execute("SELECT count(*) FROM bookings WHERE name = ?", (name,))
                ((number,),) = found.fetchall()
            failed = store.handle(f"{name}/booking/main").status == "failed" if number else True
            if number > 1 or (done and number != 1) or (number and failed):
                raise WrongError(f"booked {number} times")

    return agent, call


# -- sagas ---------------------------------------------------------------------------------------

done: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""What took effect, by agent: the keys of the calls that did it, as their service knows them."""


@perdure.tool(on_crash="retry", retry=perdure.Retry(attempts=4, first=0.001))
def give_back(payment: str, name: str) -> str:
    done[name][f"back {payment}"] = 1
    return payment


@perdure.tool(on_crash="retry", compensate=give_back)
def take(name: str, n: int) -> str:
    key = perdure.idempotency_key()
    done[name][key] = 1
    return key


@perdure.agent(State, compensate=True)
def trip(run: perdure.Run[State]) -> None:
    take(run.agent, 1)
    take(run.agent, 2)
    raise LookupError("no flight")


@perdure.agent(State, compensate=True)
async def atrip(run: perdure.AsyncRun[State]) -> None:
    await run.call(take, run.agent, 1)
    await run.call(take, run.agent, 2)
    raise LookupError("no flight")


@perdure.agent(State, compensate=True)
def long_trip(run: perdure.Run[State]) -> None:
    take(run.agent, 1)
    take(run.agent, 2)
    run.wait_for("never")


def check_undone(store: Store, name: str) -> None:
    """Of a run that has ended, each call that took effect is undone, and none twice."""
    for info in store.runs(agent=name):
        if info.status in UNFINISHED:
            continue
        paid = Counter[str]()
        for effect in store.handle(info.id).effects():
            if effect.state == "done":
                paid[effect.place.partition("#")[0]] += 1
        if paid["take"] != paid["give_back"]:
            raise WrongError(f"{info.status}, and {dict(paid)} are done")


def undone(store: Store, name: str, call: Call) -> Call:
    def checked() -> None:
        try:
            call()
        except NeedsAttention as doubt:  # behind two, a call may be in doubt
            if "nobody knows whether" not in str(doubt):
                raise
        except Exception as error:  # its own, or the injected one, as it is recorded
            if not (isinstance(error, LookupError | RunFailed | CallFailed) or is_told(error)):
                raise
        finally:
            check_undone(store, name)

    return checked


@scene
def run_failing_undone(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, undone(store, name, lambda: store.run(trip, name))


@scene
def run_async_failing_undone(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)

    async def main() -> None:
        await AsyncStore(store).run(atrip, name)

    return agent, undone(store, name, lambda: asyncio.run(main()))


def _asked_to_end(handle: RunHandle[Any]) -> bool:
    return handle.status not in UNFINISHED or handle.why().asked_to_end is not None


@scene
def run_cancelled_undone(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    handle = _waiting(store, long_trip, name)

    def call() -> None:
        if not _asked_to_end(handle):  # a second request ends one that needs a person
            handle.cancel("enough")
        worked_off(store, Worker(store, [long_trip], queues=[name]), name)
        if handle.status not in ("cancelled", "needs_attention"):
            raise WrongError(f"it is {handle.status}")

    return agent, undone(store, name, call)


@scene
def run_late_undone(store: Store, name: str) -> tuple[Agent[State], Call]:
    """Its time limit is up while it waits."""
    agent = begun(store, name)
    limited: Any = store.options(time_limit=0.05)

    def call() -> None:
        # Its call may be left in doubt: then, late, it is not made again, and a person is asked.
        with suppress(TimedOut, NeedsAttention):
            limited.run(long_trip, name)

    return agent, undone(store, name, call)


@perdure.agent(State)
def half_way(run: perdure.Run[State]) -> list[str]:
    take(run.agent, 1)
    first = run.compensate()
    take(run.agent, 2)
    return [*first, *run.compensate()]


@scene
def run_compensate(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    return agent, _run(store, half_way, agent, ["take#1", "take#2"])
