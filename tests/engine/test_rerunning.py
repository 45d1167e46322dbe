"""Running anew from a step: forked onto a branch, or set back in place."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Conflict, NeedsAttention, NotFound, Store


class World:
    """What the tools did outside, and what the function is to do."""

    def __init__(self) -> None:
        self.refunds: list[tuple[int, str]] = []
        self.drafts = 0
        self.fails = False


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def support(world: World) -> Any:
    @perdure.step
    def draft(topic: str) -> str:
        world.drafts += 1
        return f"{topic} {world.drafts}"

    @perdure.tool(on_crash="retry")
    def refund(cents: int) -> int:
        world.refunds.append((cents, perdure.idempotency_key()))
        return len(world.refunds)

    @perdure.agent(dict)
    def support(run: perdure.Run[dict], topic: str) -> str:
        text = draft(topic)
        with run.edit("drafted") as state:
            state["text"] = text
        number = refund(500)
        with run.edit("refunded") as state:
            state["refund"] = number
        if world.fails:
            raise ValueError("no")
        return f"{text}: refund {number}"

    return support


def test_a_run_forked_from_a_step_shares_what_came_before_it(
    store: Store, support: Any, world: World
) -> None:
    assert store.run(support, "a", "bill") == "bill 1: refund 1"
    forked = store.handle("a/support/main").fork("refund#1", branch="what-if", effects="live")
    assert forked.status == "pending"
    assert store.options(key="main@what-if").run(support, "a", "bill") == "bill 1: refund 2"
    assert world.drafts == 1, "the draft is shared history"
    assert len({key for _, key in world.refunds}) == 2, "made again, it is another call"
    assert store.agent("a", branch="what-if").state == {"text": "bill 1", "refund": 2}
    assert store.agent("a").state == {"text": "bill 1", "refund": 1}
    store.agent("a").verify()


def test_before_a_tool_call_is_made_again_somebody_is_asked(
    store: Store, support: Any, world: World
) -> None:
    store.run(support, "a", "bill")
    forked = store.handle("a/support/main").fork("draft#1", branch="b")
    again = store.options(key="main@b")
    for _ in range(2):  # asked for again, it asks again
        with pytest.raises(NeedsAttention, match="made before, at commit"):
            again.run(support, "a", "bill")
    assert len(world.refunds) == 1
    forked.settle("refund#1", done=1, by="somebody")
    assert again.run(support, "a", "bill") == "bill 2: refund 1"
    assert len(world.refunds) == 1


def test_a_person_may_say_that_it_is_to_be_made_again(
    store: Store, support: Any, world: World
) -> None:
    store.run(support, "a", "bill")
    forked = store.handle("a/support/main").fork("draft#1", branch="b")
    with pytest.raises(NeedsAttention):
        store.options(key="main@b").run(support, "a", "bill")
    forked.settle("refund#1", not_done=True)
    assert store.options(key="main@b").run(support, "a", "bill") == "bill 2: refund 2"


def test_outcomes_can_be_taken_over(store: Store, support: Any, world: World) -> None:
    store.run(support, "a", "bill")
    store.handle("a/support/main").fork("draft#1", branch="b", effects="reuse")
    assert store.options(key="main@b").run(support, "a", "bill") == "bill 2: refund 1"
    assert len(world.refunds) == 1
    effect = store.handle("a/support/main@b").effects()[0]
    assert (effect.state, effect.by) == ("done", "reuse")


def test_a_run_that_failed_is_set_back_and_goes_on(
    store: Store, support: Any, world: World
) -> None:
    world.fails = True
    with pytest.raises(ValueError, match="no"):
        store.run(support, "a", "bill")
    world.fails = False
    handle = store.handle("a/support/main")
    handle.retry("edit:refunded#1")
    assert store.agent("a").state == {"text": "bill 1"}
    assert store.run(support, "a", "bill") == "bill 1: refund 1"
    assert len(world.refunds) == 1
    assert store.agent("a").state == {"text": "bill 1", "refund": 1}
    store.agent("a").verify()


def test_set_back_before_a_tool_call_it_asks_and_uses_another_key(
    store: Store, support: Any, world: World
) -> None:
    store.run(support, "a", "bill")
    handle = store.handle("a/support/main")
    handle.retry("refund#1")
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(support, "a", "bill")
    handle.settle("refund#1", not_done=True)
    assert store.run(support, "a", "bill") == "bill 1: refund 2"
    assert len({key for _, key in world.refunds}) == 2
    handle.retry("draft#1", effects="live")
    assert store.run(support, "a", "bill") == "bill 2: refund 3"
    store.agent("a").verify()


def test_a_fork_can_be_forked(store: Store, support: Any, world: World) -> None:
    store.run(support, "a", "bill")
    store.handle("a/support/main").fork("refund#1", branch="b", effects="live")
    store.options(key="main@b").run(support, "a", "bill")
    store.handle("a/support/main@b").fork("refund#1", branch="c", effects="reuse", key="third")
    assert store.options(key="third").run(support, "a", "bill") == "bill 1: refund 2"
    assert len(world.refunds) == 2
    store.agent("a").verify()


def test_what_cannot_be_is_refused_with_what_there_is(
    store: Store, support: Any, world: World
) -> None:
    store.run(support, "a", "bill")
    handle = store.handle("a/support/main")
    with pytest.raises(NotFound, match=r"draft#1, edit:drafted#1, refund#1"):
        handle.fork("refund#2", branch="b")
    with pytest.raises(Conflict, match="taken"):
        handle.fork("refund#1", branch="main")
    with pytest.raises(ValueError, match="must be one of"):
        handle.fork("refund#1", branch="b", effects="maybe")  # type: ignore[arg-type]
    handle.retry("refund#1")
    with pytest.raises(Conflict, match="is pending"):
        handle.retry("refund#1")
