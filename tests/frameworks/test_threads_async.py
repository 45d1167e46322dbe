"""Runs of plain functions, whose plain tools a framework calls on threads of its own.

All three copy the context to them, so the run can be seen there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import perdure
from perdure.store import Store
from tests.frameworks.conftest import Make
from tests.frameworks.conversation import Framework, ToolCall
from tests.frameworks.tools import CrashError, Desk

pytestmark = pytest.mark.skipif(
    not hasattr(perdure, "AsyncRun"), reason="runs have one thread each as yet"
)

LOOK_UP = ToolCall("look_up", {"order": "7"})
REFUND = ToolCall("refund", {"order": "7", "cents": 500})


def answering(framework: Framework, desk: Desk) -> Callable[[perdure.Run[dict]], str]:
    @perdure.agent(dict, name="support")
    def support(run: perdure.Run[dict]) -> str:
        return framework.answer([desk.look_up, desk.refund])

    return support


def test_the_model_does_not_hear_that_a_run_cannot_be_used_here(make: Make, store: Store) -> None:
    """A run that refused its tool on a thread of the framework said so with an `Exception`: the
    model was told that the tool had failed, and the run ended as done, with nothing done."""
    framework, desk = make([[REFUND]]), Desk()
    try:
        answer = store.run(answering(framework, desk), "a")
    except perdure.PerdureError:
        assert (framework.asked, desk.refunded) == (1, [])
    else:
        assert answer == "done: receipt 1 for 7"
        (effect,) = store.handle("a/support/main").effects()
        assert effect.state == "done"


def test_calls_are_recorded_and_not_made_again(make: Make, store: Store) -> None:
    framework, desk = make([[LOOK_UP], [REFUND], [LOOK_UP]]), Desk(on_crash="retry")
    support, desk.crashing = answering(framework, desk), True
    with pytest.raises(CrashError):
        store.run(support, "a")
    assert store.run(support, "a") == "done: 500, receipt 2 for 7, 500"
    assert (desk.looked, desk.refunded) == (["7", "7"], [("7", 500)] * 2)


def test_a_tool_in_doubt_stops_the_run(make: Make, store: Store) -> None:
    framework, desk = make([[LOOK_UP], [REFUND]]), Desk(on_crash="ask")
    support, desk.crashing = answering(framework, desk), True
    with pytest.raises(CrashError):
        store.run(support, "a")
    framework.asked = 0
    with pytest.raises(perdure.NeedsAttention, match="nobody knows whether it took effect"):
        store.run(support, "a")
    assert (framework.asked, framework.told, desk.refunded) == (2, ["500"], [("7", 500)])


def test_calls_at_the_same_time_find_their_own_records(make: Make, store: Store) -> None:
    """Threads begin in any order. On replay each call must get what it got, whoever is first."""
    calls = [ToolCall("refund", {"order": str(n), "cents": n}) for n in range(8)]
    framework, desk = make([calls, [REFUND]]), Desk(on_crash="retry")
    crashes = iter([True])

    @perdure.agent(dict, name="support")
    def support(run: perdure.Run[dict]) -> str:
        answer = framework.answer([desk.look_up, desk.refund])
        if next(crashes, False):
            raise CrashError
        return answer

    with pytest.raises(CrashError):
        store.run(support, "a")
    told_then = framework.told
    assert {words.rpartition(" ")[2] for words in told_then} == {*map(str, range(8))}
    store.run(support, "a")
    assert framework.told == told_then
    assert len(desk.refunded) == 9
