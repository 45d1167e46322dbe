"""Running anew from a step: forked onto a branch, or set back in place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Conflict, Corrupt, NeedsAttention, NotFound, Store
from perdure.engine.control import rerun
from perdure.testing import replay, run_until_waiting


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


def test_a_fork_does_not_take_the_place_of_a_run_that_is_requested(
    store: Store, support: Any, world: World
) -> None:
    """An order was stored durably, and no worker had begun it. A fork took its key, and its row:
    the order was never executed, and its handle gave the result of the fork."""
    store.run(support, "a", "bill")
    handle = store.handle("a/support/main")
    asked = store.options(key="order-7").start(support, "a", "order")
    with pytest.raises(Conflict, match="is requested, and has not begun"):
        handle.fork("refund#1", branch="b", key="order-7", effects="reuse")
    assert [one.name for one in store.agent("a").branches()] == ["main"]
    assert store.options(key="order-7").run(support, "a", "order") == "order 2: refund 2"
    assert asked.result() == "order 2: refund 2"


def test_a_new_run_is_refused_whose_key_seems_to_choose_a_branch(
    store: Store, support: Any, world: World
) -> None:
    """The run of a fork is named ``main@what-if``. So somebody took what is behind the @ for the
    branch that a run is to work on: `options(key="two@what-if")` ran on main, and changed that."""
    store.run(support, "a", "bill")
    forked = store.handle("a/support/main").fork("refund#1", branch="what-if", effects="live")
    before = [commit.seq for commit in store.agent("a").log(all_branches=True)]
    two = store.options(key="two@what-if")
    for ask in (two.run, two.start):
        with pytest.raises(Conflict, match="which the key 'two@what-if' does not choose"):
            ask(support, "a", "bill")

    @perdure.agent(dict)
    async def supporting(run: perdure.AsyncRun[dict], text: str) -> str:
        return text

    async def asking() -> None:
        async with perdure.open_async(store.url) as opened:
            options = opened.options(key="two@what-if")
            for ask in (options.run, options.start):
                with pytest.raises(Conflict, match="a new run begins on main"):
                    await ask(supporting, "a", "bill")

    asyncio.run(asking())
    assert [commit.seq for commit in store.agent("a").log(all_branches=True)] == before
    assert store.handle("a/support/main@what-if").status == "pending"
    again = store.options(key=forked.info.key)  # which is there
    assert again.start(support, "a", "bill").id == forked.id
    assert again.run(support, "a", "bill") == "bill 1: refund 2"
    for key in ("msg-17@mail.example", "two@main", "@", "@other"):  # names like any other
        assert store.options(key=key).run(support, "a", key).startswith(key)
    store.agent("a").delete_branch("what-if")
    assert two.run(support, "a", "later").startswith("later")


def test_what_was_requested_before_its_branch_was_made_begins(store: Store, support: Any) -> None:
    store.run(support, "a", "bill")
    early = store.options(key="two@what-if")
    handle = early.start(support, "a", "bill")
    store.agent("a").fork("what-if")
    assert early.start(support, "a", "bill").id == handle.id
    assert early.run(support, "a", "bill") == "bill 2: refund 2"
    assert handle.info.branch == "main"


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


def chat(world: World) -> Any:
    @perdure.step
    def draft(message: str) -> str:
        return message

    @perdure.tool(on_crash="retry")
    def refund(cents: int) -> int:
        world.refunds.append((cents, perdure.idempotency_key()))
        return len(world.refunds)

    @perdure.agent(dict, name="chat")
    def chat(run: perdure.Run[dict], message: str) -> str:
        number = refund(len(draft(message)))
        if world.fails:
            raise ValueError("no")
        return f"{message}: {number} {run.wait_for('go')}"

    return chat


def failed_and_waiting(store: Store, world: World) -> tuple[Any, Any, Any]:
    """An agent function, and two runs of it: a first that failed, and a second that waits."""
    function = chat(world)
    world.fails = True
    first, second = store.options(key="1"), store.options(key="2")
    with pytest.raises(ValueError, match="no"):
        first.run(function, "a", "first")
    world.fails = False
    return function, store.handle("a/chat/1"), run_until_waiting(second, function, "a", "second")


@pytest.mark.parametrize("there", [True, False])
def test_of_one_that_has_not_begun_that_is_said(store: Store, support: Any, there: bool) -> None:
    """It was asked for, and no worker had come: its agent was said to be deleted, also where that
    was there."""
    if there:
        store.agent("a").save({"n": 1})
    handle = store.start(support, "a", "bill")
    calls = (
        lambda: handle.fork("draft#1", branch="b"),
        lambda: handle.retry("draft#1"),
        handle.resume,
        lambda: handle.settle("refund#1", not_done=True),
    )
    for call in calls:
        with pytest.raises(Conflict, match="is pending: it has not begun"):
            call()
    with pytest.raises(NotFound, match="it has not begun"):
        replay(store, support, handle.id)
    assert (handle.status, handle.effects()) == ("pending", [])


def test_i5_a_run_is_not_set_back_beneath_another_that_goes_on(store: Store, world: World) -> None:
    """The first message of a chat had failed; the second had paid, and waited. Then the first was
    set back, and with it the branch on which the second had recorded that: when that was gone on
    with it paid again, and nobody was asked."""
    function, first, second = failed_and_waiting(store, world)
    with pytest.raises(Conflict, match="run a/chat/2 has the branch, and is not finished"):
        first.retry("draft#1")
    forked = first.fork("draft#1", branch="beside", effects="reuse")
    second.signal("go", "on")
    assert store.options(key="2").run(function, "a", "second") == "second: 2 on"
    assert len(world.refunds) == 2
    first.retry("draft#1", effects="reuse")
    with pytest.raises(Conflict, match="a/chat/1 has the branch"):
        second.retry("draft#1")
    first.signal("go", "too")
    assert store.options(key="1").run(function, "a", "first") == "first: 1 too"
    forked.signal("go", "three")
    assert store.options(key=forked.info.key).run(function, "a", "first") == "first: 1 three"
    assert len(world.refunds) == 2
    store.agent("a").verify()


def test_a_run_is_set_back_to_no_step_of_another(store: Store, world: World) -> None:
    """A branch was set back with an earlier run. The later one's steps are not on it any more: it
    was set back to where the earlier one had made a call of that name."""
    function, first, second = failed_and_waiting(store, world)
    second.cancel()
    first.retry("draft#1", effects="reuse")
    first.signal("go", "on")
    assert store.options(key="1").run(function, "a", "first") == "first: 1 on"
    for back in (second.retry, lambda step: second.fork(step, branch="b")):
        with pytest.raises(NotFound, match="was moved to before its turn began"):
            back("draft#1")
    store.agent("a").verify()


def test_i5_a_run_whose_history_is_not_on_its_branch_does_nothing_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a version that did not refuse that left it. It had no record to go by, and paid again."""
    function, first, second = failed_and_waiting(store, world)
    monkeypatch.setattr(rerun, "_refuse_others", lambda *given: None)
    first.retry("draft#1", effects="reuse")
    first.signal("go", "on")
    assert store.options(key="1").run(function, "a", "first") == "first: 1 on"
    second.signal("go", "on")
    with pytest.raises(Corrupt, match="is not on branch 'main' any more"):
        store.options(key="2").run(function, "a", "second")
    assert second.status == "needs_attention" and len(world.refunds) == 2
    second.cancel()
    store.agent("a").verify()
