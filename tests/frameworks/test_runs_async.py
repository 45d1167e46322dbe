"""Runs of async functions, whose tools a framework calls: async ones in tasks, plain ones on
threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.frameworks.conftest import Make
from tests.frameworks.conversation import Framework, ToolCall
from tests.frameworks.tools import AsyncDesk, CrashError, Desk

pytestmark = pytest.mark.skipif(
    not hasattr(perdure, "AsyncRun"), reason="there are no runs of async functions yet"
)

LOOK_UP = ToolCall("look_up", {"order": "7"})
REFUND = ToolCall("refund", {"order": "7", "cents": 500})
api: Any = perdure


class Scene:
    """A store, and an agent function that leaves all to a framework."""

    def __init__(self, path: Path, framework: Framework, desk: Any, streamed: bool) -> None:
        self._path = path
        self.framework = framework
        self.desk = desk
        self.dies_at_the_end = 0
        answer = framework.answer_streamed if streamed else framework.answer_async

        @api.agent(dict, name="support")
        async def support(run: Any) -> str:
            said = await answer([desk.look_up, desk.refund])
            if self.dies_at_the_end > 0:
                self.dies_at_the_end -= 1
                raise CrashError
            return said

        self._support = support

    def run(self) -> str:
        async def go() -> Any:
            async with api.open_async(self._path, durability="os") as store:
                return await store.run(self._support, "a")

        return str(asyncio.run(go()))

    def effects(self) -> list[Any]:
        with perdure.open(self._path) as store:
            return store.handle("a/support/main").effects()

    def settle(self, done: str) -> None:
        with perdure.open(self._path) as store:
            handle = store.handle("a/support/main")
            (place,) = (e.place for e in handle.effects() if e.state == "in doubt")
            handle.settle(place, done=done, by="somebody")


Play = Callable[..., Scene]


@pytest.fixture(params=[AsyncDesk, Desk], ids=["async", "plain"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def play(request: pytest.FixtureRequest, make: Make, kind: Any, tmp_path: Path) -> Play:
    """Sets a scene: the turns of the model, and the tools' crash policy."""

    def play(turns: Any, on_crash: str) -> Scene:
        return Scene(tmp_path / "runs.db", make(turns), kind(on_crash), request.param)

    return play


def test_calls_are_recorded_and_not_made_again(play: Play) -> None:
    scene = play([[LOOK_UP], [REFUND]], "ask")
    assert scene.run() == "done: 500, receipt 1 for 7"
    assert [effect.state for effect in scene.effects()] == ["done"]
    assert scene.run() == "done: 500, receipt 1 for 7"
    assert (scene.desk.looked, scene.desk.refunded) == (["7"], [("7", 500)])


def test_a_conversation_goes_on_where_the_process_died(play: Play) -> None:
    scene = play([[LOOK_UP], [REFUND], [LOOK_UP]], "retry")
    scene.desk.crashing = True
    with pytest.raises(CrashError):
        scene.run()
    assert scene.run() == "done: 500, receipt 2 for 7, 500"
    assert scene.desk.looked == ["7", "7"]
    assert scene.desk.refunded == [("7", 500)] * 2


def test_a_tool_in_doubt_stops_the_run_and_the_model_does_not_hear_of_it(play: Play) -> None:
    scene = play([[LOOK_UP], [REFUND]], "ask")
    scene.desk.crashing = True
    with pytest.raises(CrashError):
        scene.run()
    scene.framework.asked = 0
    with pytest.raises(perdure.NeedsAttention, match="nobody knows whether it took effect"):
        scene.run()
    assert (scene.framework.asked, scene.framework.told) == (2, ["500"])
    scene.settle(done="receipt 1 for 7")
    assert scene.run() == "done: 500, receipt 1 for 7"
    assert scene.desk.refunded == [("7", 500)]


def test_calls_at_the_same_time_find_their_own_records(play: Play) -> None:
    """They end in another order than they began in, and on replay all at once. The helper tasks
    that a framework makes in between are then other ones; later calls keep their places still."""
    calls = [ToolCall("refund", {"order": str(n), "cents": n}) for n in range(5)]
    scene = play([calls, [LOOK_UP, *calls], [REFUND]], "fail")
    scene.desk.seconds = lambda order: 0.02 * max(0, 5 - int(order))
    scene.dies_at_the_end = 1
    with pytest.raises(CrashError):
        scene.run()
    told, refunded = scene.framework.told, list(scene.desk.refunded)
    assert len(refunded) == 11
    assert scene.run() == f"done: {', '.join(told)}"
    assert (scene.framework.told, scene.desk.refunded) == (told, refunded)


def test_one_in_doubt_among_several_stops_the_run(play: Play) -> None:
    """Its siblings may get through or be stopped; none is repeated unasked, and none is told."""
    calls = [ToolCall("refund", {"order": str(n), "cents": n}) for n in range(3)]
    scene = play([calls, [LOOK_UP]], "ask")
    scene.desk.crashing = True
    with pytest.raises(CrashError):
        scene.run()
    for _ in range(3):
        with pytest.raises(perdure.NeedsAttention):
            scene.run()
    assert (scene.framework.told, scene.desk.looked) == ([], [])
    orders = [order for order, _ in scene.desk.refunded]
    assert len(orders) == len(set(orders))
