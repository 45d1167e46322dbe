"""Whose turn it is where a worker's places are all taken: who has been due for longest."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch import picking
from perdure.engine.dispatch.picking import Picker
from perdure.engine.functions.agent_functions import AgentFunctions
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.working import BOUND_S, doubling, wait_until, working


@perdure.agent(dict)
def sleeping(run: perdure.Run[dict], seconds: float) -> str:
    run.sleep(seconds)
    return "woke"


@perdure.agent(dict)
def told(run: perdure.Run[dict]) -> str:
    return str(run.wait_for("go"))


@perdure.agent(dict)
def polling(run: perdure.Run[dict], seconds: float) -> Any:
    run.sleep(seconds)
    return run.again(seconds)


@perdure.agent(dict)
def nightly(run: perdure.Run[dict]) -> str:
    return str(run.wait_for("go"))


class Gate:
    """A run that has a worker's only place until it is let go."""

    def __init__(self) -> None:
        self.opened = threading.Event()

        @perdure.agent(dict)
        def holding(run: perdure.Run[dict]) -> None:
            assert self.opened.wait(BOUND_S)

        self.run = holding


def test_the_one_place_goes_to_who_has_been_due_longest(store: Store) -> None:
    """What had waited, and could go on, came before all that was asked for: a worker with runs that
    woke in turn, one of them always, began nothing any more."""
    gate = Gate()
    store.runner.wakeups.in_place_s = 0.0
    with working(store, sleeping, told, doubling, gate.run, limit=1) as events:
        late = store.start(sleeping, "late", 1.2)
        events.wait_for("waiting", late.id)
        waits = store.start(told, "told")
        events.wait_for("waiting", waits.id)
        early = store.start(sleeping, "early", 0.1)
        events.wait_for("waiting", early.id)
        holds = store.start(gate.run, "holds")
        events.wait_for("started", holds.id)
        time.sleep(0.2)
        new = store.start(doubling, "new", 4)
        since = {
            waits.id: waits.info.changed_at_micros,
            early.id: early.info.wake_at_micros,
            new.id: new.info.changed_at_micros,
            late.id: late.info.wake_at_micros,
        }
        wait_until(lambda: time.time() * 1e6 > max(since.values()))
        waits.signal("go", "told")
        gate.opened.set()
        handles: list[perdure.RunHandle[Any]] = [waits, early, new, late]
        assert [handle.result(BOUND_S) for handle in handles] == ["told", "woke", 8, "woke"]
        for handle in handles:
            events.wait_for("done", handle.id)
    done = [event.run for event in events if event.kind == "done"]
    behind = done[done.index(holds.id) + 1 :]  # all, but on a machine that is very slow
    assert new.id in behind and behind == sorted(behind, key=lambda run: since[run])


def test_runs_that_wake_again_and_again_leave_a_place_to_others(store: Store) -> None:
    """Eight runs that looked each hundredth of a second had a worker's one place in turn: what was
    asked for behind them was never begun, what a dead process had left never taken over."""
    store.runner.wakeups.in_place_s = 0.0
    with working(store, polling, doubling, limit=1) as events:
        polls = [store.start(polling, f"poll-{number}", 0.01) for number in range(8)]
        for handle in polls:
            events.wait_for("waiting", handle.id)
        for number in range(5):
            new = store.start(doubling, f"new-{number}", number)
            assert new.result(BOUND_S) == number * 2
        for handle in polls:
            handle.cancel()


@pytest.mark.parametrize("others", ["queue", "function"])
def test_runs_that_are_due_for_others_hide_none_of_ones_own(
    store: Store, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    """The workers of another queue were down for a night: 33,000 runs were due there, and a worker
    saw no run behind these. It resumed nothing any more."""
    monkeypatch.setattr(picking, "PAGES", (2, 4))
    queue = "theirs" if others == "queue" else "default"
    for number in range(70):
        one = run_until_waiting(store.options(queue=queue), nightly, f"theirs{number}")
        one.signal("go")
    waits = run_until_waiting(store, told, "mine")
    waits.signal("go", "told")
    with working(store, told):
        assert waits.result(BOUND_S) == "told"


def test_a_look_that_did_not_go_deep_forgets_nothing_that_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind many runs that were due for others, a run's function was served by nobody. A worker
    reads that far only now and then, and each look in between forgot it: it stayed as it was, and
    no person was told, for as long as there was any traffic."""
    monkeypatch.setattr(picking, "PAGES", (2, 4))
    monkeypatch.setattr(picking, "UNKNOWN_AFTER_S", 0.0)
    monkeypatch.setattr(picking, "LOOKING_MAX", 1e-9)  # the next deep look is far away
    for number in range(30):
        one = run_until_waiting(store.options(queue="theirs"), nightly, f"theirs{number}")
        one.signal("go")
    lost = run_until_waiting(store, told, "lost")
    lost.signal("go")
    picker = Picker(store.runner, AgentFunctions([doubling]), ["default"], lambda run, left_s: None)
    for _ in range(3):
        assert list(picker.picks(lambda *which: False, lambda: 8, False)) == []
    assert [row.id for row in picker.note_unknown()] == [lost.id]
    assert lost.status == "needs_attention"


def test_a_run_that_sleeps_for_moments_gives_way_to_who_is_due(store: Store) -> None:
    """A run slept for a fiftieth of a second, looked, and slept again. Up to a second is waited for
    in place, and so it had a worker's one place for as long as it lived."""
    with working(store, polling, doubling, limit=1) as events:
        polls = store.start(polling, "polls", 0.02)
        events.wait_for("started", polls.id)
        for number in range(3):
            new = store.start(doubling, f"new-{number}", number)
            assert new.result(BOUND_S) == number * 2
        assert "waiting" in events.kinds(polls.id)
        polls.cancel()


def test_it_does_not_where_nobody_is_due(store: Store) -> None:
    with working(store, polling, limit=1) as events:
        polls = store.start(polling, "polls", 0.02)
        events.wait_for("started", polls.id)
        time.sleep(1.5)
        assert events.kinds(polls.id) == ["started"]
        polls.cancel()


@perdure.agent(dict)
async def apolling(run: perdure.AsyncRun[dict]) -> Any:
    await run.sleep(0.02)
    return run.again()


def test_so_do_asynchronous_ones(store: Store) -> None:
    with working(store, apolling, doubling, limit=2) as events:
        polls = [store.start(apolling, f"polls-{number}") for number in range(2)]
        for handle in polls:
            events.wait_for("started", handle.id)
        for number in range(3):
            new = store.start(doubling, f"new-{number}", number)
            assert new.result(BOUND_S) == number * 2
        for handle in polls:
            handle.cancel()
