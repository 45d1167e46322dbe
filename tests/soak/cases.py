"""What the agents of the soak do: look, act in the world, sleep, listen, and remember."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import perdure
from tests.chaos.world import World

ROUNDS = 4
REMEMBERED = 6
PAUSE_S = 0.02
TEXT = "What the customer said, at some length, as customers do. " * 8
PLANTED_BYTES = 8 << 20
PLANTED_FILES = 4


class Books(World):
    """A world that also forgets: what was checked is not kept for ever."""

    def forget(self, agent: str) -> None:
        (self._folder / agent).unlink()


world: Books
planted: list[object] = []
plants: frozenset[str] = frozenset()


def come(folder: Path, leaks: frozenset[str] = frozenset()) -> None:
    """In each process: where the world is, and what is to leak there."""
    global world, plants
    world, plants = Books(folder), leaks


def _leak() -> None:
    """The positive controls: what a worker must not do."""
    if "memory" in plants:
        planted.append(os.urandom(PLANTED_BYTES))
    if "descriptors" in plants:
        planted.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(PLANTED_FILES))


def find(agent: str, op: str) -> Any:
    found = world.look(agent, perdure.idempotency_key(), perdure.fencing_token())
    return op if found else perdure.NOT_DONE


@perdure.step
def think(text: str) -> str:
    return text[::-1]


@perdure.tool(on_crash="probe", probe=find)
def charge(agent: str, op: str) -> str:
    """Must be done once, whatever is killed."""
    world.act(agent, op, perdure.idempotency_key(), perdure.fencing_token())
    return op


@perdure.tool(on_crash="probe", probe=find)
async def charge_soon(agent: str, op: str) -> str:
    key, token = perdure.idempotency_key(), perdure.fencing_token()
    await asyncio.to_thread(lambda: world.act(agent, op, key, token))
    return op


def remember(draft: dict[str, Any], text: str) -> None:
    """A window of messages: the state changes, and its size does not."""
    messages = draft.setdefault("messages", [])
    messages.append({"role": "user", "content": text})
    if len(messages) > REMEMBERED:
        del messages[0]
    draft["round"] = draft.get("round", 0) + 1


@perdure.agent(dict)
def case(run: perdure.Run[dict[str, Any]]) -> int:
    """One case, from its begin to its end."""
    for number in range(ROUNDS):
        said = think(f"{number} {TEXT}")
        charge(run.agent, f"op-{number}")
        with run.edit(f"round {number}") as draft:
            remember(draft, said)
        run.sleep(PAUSE_S)
        run.wait_for(f"tick-{number}")
    _leak()
    return int(run.state["round"])


@perdure.agent(dict)
async def case_soon(run: perdure.AsyncRun[dict[str, Any]]) -> int:
    """The same in an event loop, with a call beside the other."""
    for number in range(ROUNDS):
        said, _ = await asyncio.gather(
            run.call(think, f"{number} {TEXT}"), charge_soon(run.agent, f"op-{number}")
        )
        async with run.edit(f"round {number}") as draft:
            remember(draft, said)
        await run.sleep(PAUSE_S)
        await run.wait_for(f"tick-{number}")
    _leak()
    return int(run.state["round"])


FUNCTIONS = (case, case_soon)
