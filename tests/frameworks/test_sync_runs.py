"""Runs of plain functions, whose tools a framework calls.

Frameworks call plain functions on threads of theirs. These tests hand them over as async functions
that do not wait, which are called where the loop runs: on the run's own thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import perdure
from perdure.store import Store
from tests.frameworks.conftest import Make
from tests.frameworks.conversation import Framework, ToolCall, in_place
from tests.frameworks.tools import CrashError, Desk

LOOK_UP = ToolCall("look_up", {"order": "7"})
REFUND = ToolCall("refund", {"order": "7", "cents": 500})


def answering(framework: Framework, desk: Desk) -> Callable[[perdure.Run[dict]], str]:
    """An agent function that leaves all to the framework."""

    @perdure.agent(dict, name="support")
    def support(run: perdure.Run[dict]) -> str:
        return framework.answer([in_place(desk.look_up), in_place(desk.refund)])

    return support


def recorded(store: Store) -> list[tuple[str, str]]:
    """Places and states of the run's tool calls."""
    effects = store.handle("a/support/main").effects()
    return [(effect.place, effect.state) for effect in effects]


def in_doubt(store: Store) -> str:
    (place,) = (place for place, state in recorded(store) if state == "in doubt")
    return place


def test_calls_are_recorded_and_not_made_again(make: Make, store: Store) -> None:
    framework, desk = make([[LOOK_UP], [REFUND]]), Desk()
    support = answering(framework, desk)
    assert store.run(support, "a") == "done: 500, receipt 1 for 7"
    assert [state for _, state in recorded(store)] == ["done"]
    assert store.run(support, "a") == "done: 500, receipt 1 for 7"
    assert (desk.looked, desk.refunded, framework.asked) == (["7"], [("7", 500)], 3)


def test_a_conversation_goes_on_where_the_process_died(make: Make, store: Store) -> None:
    """The first call is given from the record; the one that it died in has its policy."""
    framework, desk = make([[LOOK_UP], [REFUND], [LOOK_UP]]), Desk(on_crash="retry")
    support, desk.crashing = answering(framework, desk), True
    with pytest.raises(CrashError):
        store.run(support, "a")
    assert store.run(support, "a") == "done: 500, receipt 2 for 7, 500"
    assert desk.looked == ["7", "7"]  # one before the crash, one after: none of them twice
    assert desk.refunded == [("7", 500)] * 2


def test_a_tool_in_doubt_stops_the_run_and_the_model_does_not_hear_of_it(
    make: Make, store: Store
) -> None:
    """Told that "the tool failed, try again", a model does try again: the money is paid twice.
    `RunInterrupted` is no `Exception`, so what catches everything does not catch it."""
    framework, desk = make([[LOOK_UP], [REFUND]]), Desk(on_crash="ask")
    support, desk.crashing = answering(framework, desk), True
    with pytest.raises(CrashError):
        store.run(support, "a")
    framework.asked = 0
    with pytest.raises(perdure.NeedsAttention, match="nobody knows whether it took effect"):
        store.run(support, "a")
    assert (framework.asked, framework.told) == (2, ["500"])
    assert store.handle("a/support/main").status == "needs_attention"
    assert desk.refunded == [("7", 500)]

    store.handle("a/support/main").settle(in_doubt(store), done="receipt 1 for 7", by="somebody")
    assert store.run(support, "a") == "done: 500, receipt 1 for 7"
    assert desk.refunded == [("7", 500)]


def test_a_failure_is_told_to_the_model_as_ever(make: Make, store: Store) -> None:
    """A tool's own exception is an outcome: recorded, and told in the same words on replay."""
    too_much = ToolCall("refund", {"order": "7", "cents": 20_000})
    framework, desk = make([[too_much], [REFUND], [LOOK_UP]]), Desk(on_crash="retry")
    support, desk.crashing = answering(framework, desk), True
    with pytest.raises(CrashError):
        store.run(support, "a")
    told_then = framework.told
    assert len(told_then) == 1 and "receipt" not in told_then[0]
    store.run(support, "a")
    assert framework.told == [*told_then, "receipt 2 for 7", "500"]
    assert desk.refunded == [("7", 500)] * 2


def test_calls_of_one_turn_keep_their_places(make: Make, store: Store) -> None:
    """The model asks for several at once; each finds its own record again."""
    calls = [ToolCall("refund", {"order": str(n), "cents": 100 * n}) for n in (1, 2, 3)]
    framework, desk = make([calls, [LOOK_UP], [REFUND]]), Desk(on_crash="fail")
    support = answering(framework, desk)

    @functools.wraps(desk.look_up)
    def dies_once(order: str) -> int:
        if not desk.looked:
            desk.looked.append("died")
            raise CrashError
        return int(desk.look_up(order))

    @perdure.agent(dict, name="support")
    def dying(run: perdure.Run[dict]) -> str:
        return framework.answer([in_place(dies_once), in_place(desk.refund)])

    with pytest.raises(CrashError):
        store.run(dying, "a")
    wanted = "done: receipt 1 for 1, receipt 2 for 2, receipt 3 for 3, 500, receipt 4 for 7"
    assert store.run(support, "a") == wanted
    assert desk.refunded == [("1", 100), ("2", 200), ("3", 300), ("7", 500)]


def test_what_the_model_said_is_a_step_and_not_paid_twice(make: Make, store: Store) -> None:
    """With the model's turns recorded too, a run that resumes asks it for what is new only."""
    framework, desk = make([[LOOK_UP], [REFUND]]), Desk(on_crash="retry")
    says = framework.says

    @perdure.step
    def think(told: list[str]) -> Any:
        said = says(told)
        return said if isinstance(said, str) else [[call.tool, call.args] for call in said]

    def recorded_says(told: Sequence[str]) -> Sequence[ToolCall] | str:
        said = think(list(told))
        return said if isinstance(said, str) else [ToolCall(*call) for call in said]

    framework.says = recorded_says  # type: ignore[method-assign]
    support, desk.crashing = answering(framework, desk), True
    with pytest.raises(CrashError):
        store.run(support, "a")
    assert framework.asked == 2
    assert store.run(support, "a") == "done: 500, receipt 2 for 7"
    assert (framework.asked, desk.looked) == (3, ["7"])
