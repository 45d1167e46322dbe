"""A call in doubt can be settled, however its run ended, and whatever became of the run since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Conflict, NeedsAttention, NotFound, RunHandle, Store
from tests.engine.conftest import CrashError, Crashes
from tests.work import work_of

POLICIES = ("retry", "probe", "ask", "fail")


def paying(crash: Crashes, policy: Any) -> Callable[..., Any]:
    """Its tool dies in the middle when "pay" is armed; then the function raises on "function"."""
    probe = (lambda cents: perdure.NOT_DONE) if policy == "probe" else None

    @perdure.tool(on_crash=policy, probe=probe)
    def pay(cents: int) -> str:
        crash("pay")
        crash.note(perdure.idempotency_key())
        return "by call"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        with run.edit("begun") as draft:
            draft["begun"] = True
        receipt = pay(7)
        if "function" in crash.armed:
            raise ValueError(receipt)
        return receipt

    return act


def killed(store: Store, crash: Crashes, policy: Any) -> tuple[Callable[..., Any], RunHandle[Any]]:
    act = paying(crash, policy)
    crash.arm("pay")
    with pytest.raises(CrashError):
        store.run(act, "a")
    return act, store.handle("a/act/main")


def cancelled(store: Store, handle: RunHandle[Any]) -> None:
    handle.cancel()


def rolled_back(store: Store, handle: RunHandle[Any]) -> None:
    store.agent("a").rollback(1, cancel_run=True)


def set_back(store: Store, handle: RunHandle[Any]) -> None:
    handle.cancel()
    handle.retry("pay#1")


def set_back_and_cancelled(store: Store, handle: RunHandle[Any]) -> None:
    set_back(store, handle)
    handle.cancel()


def set_back_twice(store: Store, handle: RunHandle[Any]) -> None:
    set_back_and_cancelled(store, handle)
    handle.retry("pay#1", effects="live")


ENDS = (cancelled, rolled_back, set_back, set_back_and_cancelled, set_back_twice)


def states(handle: RunHandle[Any]) -> list[tuple[str, str]]:
    return [(one.state, one.by) for one in handle.effects()]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_in_doubt_can_be_settled(
    store: Store, crash: Crashes, policy: str, end: Callable[[Store, RunHandle[Any]], None]
) -> None:
    """A run was killed in the middle of a call, and set back before the call was made again: the
    ledger said "in doubt" for ever, and `settle` that the run has no such call."""
    _, handle = killed(store, crash, policy)
    end(store, handle)
    assert [one.place for one in handle.effects() if one.open] == ["pay#1"]
    status = handle.status
    handle.settle("pay#1", done="by hand", by="ann")
    assert states(handle) == [("done", "person")]
    assert handle.effects()[0].result == "by hand"
    assert handle.status == status
    with pytest.raises((Conflict, NotFound)):
        handle.settle("pay#1", not_done=True)
    assert store.agent("a").verify().damages == ()


@pytest.mark.parametrize("effects", ["ask", "reuse", "live"])
@pytest.mark.parametrize("policy", POLICIES)
def test_settled_before_the_run_comes_to_it_again(
    store: Store, crash: Crashes, policy: str, effects: Any
) -> None:
    """What was said of a call that was left counts when the run comes to such a call."""
    act, handle = killed(store, crash, policy)
    handle.cancel()
    handle.retry("pay#1", effects=effects)
    handle.settle("pay#1", not_done=True)
    assert store.run(act, "a") == "by call"  # it was not made: nobody is asked
    assert states(handle) == [("not done", "person"), ("done", "call")]
    assert len(set(crash.calls)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_settled_as_done_it_is_not_made_again_unasked(
    store: Store, crash: Crashes, policy: str
) -> None:
    act, handle = killed(store, crash, policy)
    handle.cancel()
    handle.retry("pay#1", effects="reuse")
    handle.settle("pay#1", done="by hand")
    assert store.run(act, "a") == "by hand"
    handle.retry("pay#1", effects="ask")
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(act, "a")
    handle.settle("pay#1", done="by hand")
    assert store.run(act, "a") == "by hand"
    assert crash.calls == []


@pytest.mark.parametrize("policy", POLICIES)
def test_made_again_the_one_that_was_left_can_be_settled(
    store: Store, crash: Crashes, policy: str
) -> None:
    """Two calls had that place: what is said is said of the one in doubt."""
    act, handle = killed(store, crash, policy)
    handle.cancel()
    handle.retry("pay#1", effects="live")
    assert store.run(act, "a") == "by call"
    assert states(handle) == [("in doubt", ""), ("done", "call")]
    handle.settle("pay#1", done="by hand")
    assert states(handle) == [("done", "person"), ("done", "call")]
    assert handle.result(0) == "by call"
    assert store.run(act, "a") == "by call"
    handle.retry("pay#1", effects="reuse")  # made last, that one stands for both
    assert store.run(act, "a") == "by call"
    assert len(crash.calls) == 1


def test_what_is_asked_now_goes_before_what_was_left(store: Store, crash: Crashes) -> None:
    act, handle = killed(store, crash, "ask")
    handle.cancel()
    handle.retry("pay#1")
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(act, "a")
    assert states(handle) == [("in doubt", ""), ("made before", "")]
    handle.settle("pay#1", done="said of this one")
    handle.settle("pay#1", done="and put right")
    assert states(handle) == [("in doubt", ""), ("done", "person")]
    assert store.run(act, "a") == "and put right"
    handle.settle("pay#1", not_done=True)
    assert states(handle) == [("not done", "person"), ("done", "person")]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_call_of_a_run_that_failed_stays_in_doubt(
    store: Store, crash: Crashes, policy: str
) -> None:
    """Its policy decides before the function can fail behind it."""
    act, handle = killed(store, crash, policy)
    crash.arm("function")
    if policy == "ask":
        with pytest.raises(NeedsAttention):
            store.run(act, "a")
        handle.settle("pay#1", done="by hand")
    with pytest.raises((ValueError, perdure.InDoubt)):
        store.run(act, "a")
    assert handle.status == "failed"
    assert not any(one.open for one in handle.effects())
    with pytest.raises(Conflict, match="it is settled"):
        handle.settle("pay#1", not_done=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_of_a_deleted_agent_nothing_can_be_said(store: Store, crash: Crashes, policy: str) -> None:
    _, handle = killed(store, crash, policy)
    store.delete("a")
    with pytest.raises(NotFound, match="was deleted"):
        handle.settle("pay#1", not_done=True)
    assert handle.status == "cancelled"


def test_a_fork_does_not_hear_what_was_said_of_its_origin_later(
    store: Store, crash: Crashes
) -> None:
    act, handle = killed(store, crash, "retry")
    handle.cancel()
    fork = handle.fork("pay#1", branch="b")
    handle.settle("pay#1", not_done=True)
    again = store.options(key="main@b")
    with pytest.raises(NeedsAttention, match="made before"):
        again.run(act, "a")
    fork.settle("pay#1", not_done=True)
    assert again.run(act, "a") == "by call"
    assert states(handle) == [("not done", "person")]


def test_retention_keeps_what_is_in_doubt_in_a_history_that_was_left(
    store: Store, crash: Crashes
) -> None:
    """The intent of a call in doubt stays, also when another call has its place since."""
    act, handle = killed(store, crash, "retry")
    handle.cancel()
    handle.retry("pay#1", effects="live")
    assert store.run(act, "a") == "by call"
    agent = store.agent("a", dict)
    for number in range(5):
        with agent.edit("later") as draft:
            draft["number"] = number
    agent.trim(before=list(agent.log())[-1].seq)
    assert ("in doubt", "") in states(handle)
    handle.settle("pay#1", done="by hand")
    assert ("in doubt", "") not in states(handle)


def test_what_ended_runs_did_is_read_up_to_their_ends(store: Store, crash: Crashes) -> None:
    """Story: an agent answered each message by a run. The calls of each were looked for to the
    log's end, so with five thousand of them `perdure effects` took a quarter of an hour, and
    `settle` twice that."""
    act = paying(crash, "ask")
    for number in range(60):
        store.options(key=str(number)).run(act, "a")
    works = [work_of(store.handle(f"a/act/{key}").effects) for key in (0, 59)]
    assert works[0] < 2 * works[1]
