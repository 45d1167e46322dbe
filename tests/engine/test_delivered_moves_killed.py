"""A move that was asked of an executing run, and its process killed at each boundary in turn: it is
done once, and the run ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.engine.execution.current_run import current
from perdure.model import MICROS_MAX, Message
from perdure.state.runs.unused_signals import MOVE
from perdure.storage.capabilities import RunQuery
from perdure.testing import kill_at_every_boundary
from perdure.testing.kills import RunEnding

WORDS = {"undo": "", "redo": "", "rollback": "empty"}
OF_RUN = "undo of the run"


def asked(kind: str) -> None:
    """Asks the run for a move as another process does that waits for it: by a message with a key.
    The first commit, which made the agent, is where a rollback leads."""
    frame = current()
    assert frame is not None and frame.run is not None
    run, context = frame.run, frame.run.context
    kind, _, of = kind.partition(" ")
    value: dict[str, Any] = {"kind": kind, "to": 1 if kind == "rollback" else 0}
    value |= {"what": WORDS[kind], "until": MICROS_MAX}
    if of:
        (row,) = context.backend.runs(RunQuery(run_id=run.id))
        value["of"] = {"run": run.id, "started": row.started, "turns": 0}
    context.send(Message(run.id, run.agent, "signal", MOVE, f"asked-{kind}", value))
    context.backend.notify(run.id)


@perdure.step
def ask_for(kind: str) -> None:
    asked(kind)


@perdure.step
async def ask_too(kind: str) -> None:
    await asyncio.sleep(0)
    asked(kind)


@perdure.step
def look() -> None:
    pass


@perdure.tool(on_crash="retry")
def touch(what: str) -> str:
    return what


@perdure.agent(dict)
def moved(run: perdure.Run[dict], kinds: list[str]) -> Any:
    with run.edit("one") as draft:
        draft["a"] = 1
    for kind in kinds:
        touch(kind)
        ask_for(kind)
        while ("a" in run.state) != (kind == "redo"):
            look()
    with run.edit("more") as draft:
        draft["b"] = sorted(draft)
    return dict(run.state)


@perdure.agent(dict)
async def moved_too(run: perdure.AsyncRun[dict], kinds: list[str]) -> Any:
    async with run.edit("one") as draft:
        draft["a"] = 1
    for kind in kinds:
        await run.call(touch, kind)
        await ask_too(kind)
        while ("a" in run.state) != (kind == "redo"):
            await run.call(look)
    async with run.edit("more") as draft:
        draft["b"] = sorted(draft)
    return dict(run.state)


def ended(ending: RunEnding) -> Any:
    """How often it looks before the move is done is up to the notice."""
    return ending.result, ending.state, [one.place for one in ending.effects]


def done_once(kinds: list[str]) -> Any:
    def check(ending: RunEnding) -> None:
        with perdure.open(ending.folder / "agents.db") as store:
            (info,) = store.agents()
            agent = store.agent(info.name)
            made = [commit.cause.kind for commit in agent.log()]
            for kind in WORDS:
                wanted = [one for one in kinds if one.partition(" ")[0] == kind]
                assert made.count(kind) == len(wanted), made
            agent.verify()
            assert not store._context.backend.inbox()

    return check


@pytest.mark.parametrize(
    ("function", "kinds"), [(moved, ["undo", "redo"]), (moved_too, ["rollback"]), (moved, [OF_RUN])]
)
def test_a_delivered_move_is_done_once(function: Any, kinds: list[str]) -> None:
    endings = kill_at_every_boundary(function, kinds, check=done_once(kinds), same=ended)
    assert len(endings) > 10
    assert ("a" in endings[0].state) == (kinds[-1] == "redo")
