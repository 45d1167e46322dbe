"""What the agents do while they are killed: each returns the operations that it has done.

An operation is done once, whatever happens: that is checked in the world's own books.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import perdure
from perdure.engine.functions import agent_functions
from tests.chaos.world import World

world: World
SIGNALS = 4
CHILDREN = 3
TURNS = 4


def come(folder: Path) -> None:
    """In each process: where the world is."""
    global world
    world = World(folder)
    random.seed()
    is_of_version(random.choice(VERSIONS))


def dawdle() -> None:
    """A moment in which to be killed."""
    time.sleep(random.random() * 0.004)


def act(agent: str, op: str) -> str:
    dawdle()
    world.act(agent, op, perdure.idempotency_key(), perdure.fencing_token())
    dawdle()
    return op


async def act_async(agent: str, op: str) -> str:
    await asyncio.sleep(random.random() * 0.004)
    world.act(agent, op, perdure.idempotency_key(), perdure.fencing_token())
    await asyncio.sleep(random.random() * 0.004)
    return op


def find(agent: str, op: str) -> Any:
    found = world.look(agent, perdure.idempotency_key(), perdure.fencing_token())
    return op if found else perdure.NOT_DONE


@perdure.tool(on_crash="retry")
def again(agent: str, op: str) -> str:
    """The receiver ignores what it has seen: only this one may be called twice."""
    return act(agent, op)


probed = perdure.tool(on_crash="probe", probe=find, name="probed")(act)
asked = perdure.tool(on_crash="ask", name="asked")(act)
failing = perdure.tool(on_crash="fail", name="failing")(act)
probed_async = perdure.tool(on_crash="probe", probe=find, name="probed_async")(act_async)
asked_async = perdure.tool(on_crash="ask", name="asked_async")(act_async)


@perdure.tool(on_crash="probe", probe=find, retry=perdure.Retry(99, first=0.01, longest=0.05))
def moody(agent: str, op: str) -> str:
    """Often fails before it does anything."""
    dawdle()
    if random.random() < 0.4:
        raise ConnectionError("not now")
    return act(agent, op)


@perdure.step
def think(number: int) -> int:
    dawdle()
    return number * number


@perdure.step
def done_by(agent: str, op: str) -> bool:
    """Whether an operation was done, whoever asks now being the last who may do it."""
    token = perdure.fencing_token()
    world.look(agent, "", token)  # who comes later with an older token is refused
    return any(effect.op == op for effect in world.effects(agent))


def settled(agent: str, op: str) -> str:
    """The tool that raises when it is in doubt: the function itself finds out."""
    try:
        return failing(agent, op)
    except perdure.InDoubt:
        return op if done_by(agent, op) else settled(agent, op)


POLICIES: tuple[Callable[[str, str], str], ...] = (again, probed, asked, settled, moody)


@perdure.agent(dict)
def busy(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """Steps, tools of all policies, and edits, one after the other."""
    done = []
    for number in range(rounds):
        square = think(number)
        done.append(POLICIES[number % len(POLICIES)](run.agent, f"op-{square}"))
        with run.edit(f"round {number}") as draft:
            draft["n"] = draft.get("n", 0) + 1
    return done


@perdure.agent(dict)
def abreast(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """The same on threads."""
    done = []
    for number in range(rounds):
        ops = [f"op-{number}-{which}" for which in range(len(POLICIES))]

        def one(op: str) -> str:
            think(len(op))
            return POLICIES[int(op[-1])](run.agent, op)

        done += run.map(one, ops, limit=3)
        with run.edit(f"round {number}") as draft:
            draft["n"] = draft.get("n", 0) + 1
    return done


@perdure.agent(dict)
async def gathering(run: perdure.AsyncRun[dict[str, Any]], rounds: int) -> list[str]:
    """The same in an event loop: gather, a task group, and synchronous code on threads."""
    done: list[str] = []
    for number in range(rounds):
        op = f"op-{number}"
        done += await asyncio.gather(
            probed_async(run.agent, f"{op}-a"),
            asked_async(run.agent, f"{op}-b"),
            run.call(probed, run.agent, f"{op}-c"),
            run.call(again, run.agent, f"{op}-d"),
        )
        async with asyncio.TaskGroup() as group:
            squares = [group.create_task(run.call(think, n)) for n in range(3)]
            late = group.create_task(asked_async(run.agent, f"{op}-e"))
        done.append(late.result())
        async with run.edit(f"round {number}") as draft:
            draft["n"] = draft.get("n", 0) + 1
            draft["squares"] = [square.result() for square in squares]
        await run.sleep(0.01)
    return done


@perdure.agent(dict)
def listening(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """Signals, answers, times, and the first of several; with effects in between."""
    done = []
    for number in range(rounds):
        done.append(probed(run.agent, f"op-{number}"))
        for _ in range(SIGNALS):
            heard = run.wait_for(f"tick-{number}", schema=int)
            with run.edit("heard") as draft:
                draft.setdefault("heard", []).append(heard)
        run.sleep(0.02)
        if run.ask(f"Go on after {number}?"):
            done.append(asked(run.agent, f"op-{number}-b"))
        run.select(never=perdure.Signal("never"), late=perdure.Timer(0.03))
        with run.edit("round") as draft:
            draft["n"] = draft.get("n", 0) + 1
    return done


@perdure.agent(dict)
async def listening_async(run: perdure.AsyncRun[dict[str, Any]], rounds: int) -> list[str]:
    """As `listening`, with several waits at once."""
    done = []
    for number in range(rounds):

        async def hear(which: int, number: int = number) -> list[int]:
            name = f"tick-{number}-{which}"
            return [await run.wait_for(name, schema=int) for _ in range(2)]

        heard = await asyncio.gather(hear(0), hear(1), probed_async(run.agent, f"op-{number}"))
        done.append(heard[2])
        async with run.edit("heard") as draft:
            draft.setdefault("heard", []).extend([*heard[0], *heard[1]])
            draft["n"] = draft.get("n", 0) + 1
    return done


@perdure.agent(dict)
def parent(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """Starts others, and waits for what they give."""
    done = [asked(run.agent, "op-begin")]
    children = [
        run.options(key="main").start(child, f"{run.agent}-{number}", rounds)
        for number in range(CHILDREN)
    ]
    with run.edit("started") as draft:
        draft["n"] = rounds
    for one in reversed(children):
        done.append(f"child {one.result()}")
    return [*done, settled(run.agent, "op-end")]


@perdure.agent(dict)
def child(run: perdure.Run[dict[str, Any]], rounds: int) -> int:
    for number in range(rounds):
        (probed if number % 2 else asked)(run.agent, f"op-{number}")
        with run.edit("child") as draft:
            draft["n"] = draft.get("n", 0) + 1
    return rounds


@perdure.agent(dict)
def turning(run: perdure.Run[dict[str, Any]], rounds: int, turn: int = 0) -> Any:
    """Turns: each begins anew, on the state that the one before left."""
    for number in range(rounds):
        POLICIES[number % len(POLICIES)](run.agent, f"op-{turn}-{number}")
    with run.edit("turn") as draft:
        draft["n"] = draft.get("n", 0) + rounds
    return run.again(rounds, turn + 1) if turn + 1 < TURNS else run.state["n"]


@perdure.agent(dict)
def returning(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """Fails in the end, and is set back to any of its steps: what it did since then it does not do
    again, and a signal that it had not taken is there."""
    done = []

    def one(op: str) -> str:
        think(len(op))
        return POLICIES[int(op[-1])](run.agent, op)

    for number in range(rounds):
        ops = [f"op-{number}-{which}" for which in range(len(POLICIES))]
        done += run.map(one, ops, limit=3) if number % 2 else [one(op) for op in ops]
        with run.edit(f"round {number}") as draft:
            draft["n"] = draft.get("n", 0) + 1
    run.wait_for("broken")
    if not world.mended(run.agent):
        raise perdure.Conflict("the code is wrong")
    run.wait_for("mended")
    return done


def find_undone(done: str, agent: str) -> Any:
    found = world.look(agent, perdure.idempotency_key(), perdure.fencing_token())
    return f"no-{done}" if found else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_undone)
def take_back(done: str, agent: str) -> str:
    return act(agent, f"no-{done}")


booked = perdure.tool(on_crash="probe", probe=find, name="booked", compensate=take_back)(act)


@perdure.agent(dict)
def undoing(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """Does all, and undoes all, the last first."""
    for number in range(rounds):
        booked(run.agent, f"op-{number}")
        with run.edit(f"round {number}") as draft:
            draft["n"] = draft.get("n", 0) + 1
    return run.compensate()


@perdure.resource
def session(ticket: perdure.Ticket) -> Iterator[str]:
    """What is made at a service once in a run, and taken up again."""
    if ticket.value is None:
        ticket.keep(uuid.uuid4().hex)
    yield ticket.value


@perdure.step
def in_session() -> str:
    dawdle()
    return session.get()


@perdure.agent(dict)
def resourceful(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
    """All that it does is in one session, whoever goes on with it."""
    done, seen = [], set()
    for number in range(rounds):
        seen.add(in_session())
        done.append(probed(run.agent, f"op-{number}"))
        with run.edit(f"round {number}") as draft:
            draft["n"] = draft.get("n", 0) + 1
        run.sleep(0.01)
    assert len(seen) == 1, seen
    return done


def deployed(version: str) -> Callable[..., Any]:
    """One of two programs that are there at the same time. The new one makes a step more in each
    round, and replays runs of the old one; what it has been at, the old one could not replay."""

    @perdure.agent(dict, name="deployed", version=version, replays=["1"] if version == "2" else [])
    def deployed(run: perdure.Run[dict[str, Any]], rounds: int) -> list[str]:
        done = []
        for number in range(rounds):
            if version == "2" and run.patched(f"round {number}"):
                think(number)
            done.append(probed(run.agent, f"op-{number}"))
            with run.edit(f"round {number}") as draft:
                draft["n"] = draft.get("n", 0) + 1
        return done

    return deployed


VERSIONS = ("1", "2")


def is_of_version(version: str) -> None:
    """In a process: which of the programs it is."""
    agent_functions._versions.clear()  # the fork knows of both
    FUNCTIONS["deployed"] = deployed(version)


FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        busy,
        abreast,
        gathering,
        listening,
        listening_async,
        parent,
        child,
        turning,
        returning,
        undoing,
        resourceful,
    )
}
FUNCTIONS["deployed"] = deployed("2")
ASYNC = ("gathering", "listening_async")
