"""Families of runs in time: deadlines that pass on to the runs that a run started, and what becomes
of these when its time is up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.errors import RunFailed, TimedOut
from perdure.store import Store
from tests.engine.conftest import Place
from tests.engine.waits import HOUR, Clock, go, verify_all

LATE = "it has taken its time limit of 1:00:00"
BOTH = pytest.mark.parametrize("how", ["deadline", "time_limit"])


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def waiting(run: perdure.Run[dict]) -> Any:
    return run.wait_for("s")


@perdure.agent(dict)
def family(run: perdure.Run[dict]) -> Any:
    bound = run.options(key="bound").start(waiting, "bound")
    run.options(key="asked for").start(waiting, "asked for")
    run.options(key="detached", let_live=True).start(waiting, "detached")
    return bound.result()


def begin(store: Store, *agents: str) -> None:
    for run in store.runs(function="waiting", unfinished=True):
        if run.agent in agents:
            with suppress(TimedOut, RunFailed):
                go(store, waiting, run.agent, key=run.key)


def ends(store: Store) -> dict[str, str]:
    return {run.agent: run.status for run in store.runs(function="waiting")}


@BOTH
def test_no_child_outlives_its_parents_time_unless_it_is_detached(
    store: Store, clock: Clock, how: Any
) -> None:
    """The parent had failed with its deadline, and its children worked on for a result that nobody
    would ever read."""
    options: dict[str, Any] = {how: HOUR}
    store.options(**options).start(family, "a")
    go(store, family)
    begin(store, "bound", "detached")
    clock.forward(HOUR + 60)
    with pytest.raises(TimedOut):
        go(store, family)
    begin(store, "bound", "detached")
    left = ends(store)
    assert left.pop("asked for") == "cancelled"
    assert left.pop("detached") == "waiting"
    assert left.pop("bound") in ("failed", "cancelled")


def test_a_deadline_passes_on_over_generations(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def middle(run: perdure.Run[dict]) -> Any:
        return run.options(key="k", deadline=50 * HOUR).start(waiting, "child").result()

    @perdure.agent(dict)
    def top(run: perdure.Run[dict]) -> Any:
        return run.options(key="k").start(middle, "middle").result()

    store.options(deadline=HOUR).start(top, "a")
    go(store, top)
    clock.forward(0.5 * HOUR)
    go(store, middle, "middle", key="k")
    clock.forward(0.2 * HOUR)
    go(store, waiting, "child", key="k")
    due = [store.handle(one).info.wake_at_micros for one in ("a/top/main", "middle/middle/k")]
    assert store.handle("child/waiting/k").info.wake_at_micros == due[0] == due[1]
    clock.forward(0.4 * HOUR)
    with pytest.raises(TimedOut, match="deadline"):
        go(store, waiting, "child", key="k")


def test_a_child_may_have_less_time_than_its_parent(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> list[str]:
        said = []
        for name in ("deadline", "time_limit"):
            options: dict[str, Any] = {"key": name, name: HOUR}
            child = run.options(**options).start(waiting, name)
            try:
                child.result()
            except TimedOut as late:
                said.append(late.problem)
        return said

    store.options(deadline=50 * HOUR).start(parent, "a")
    for name in ("deadline", "time_limit"):
        go(store, parent)
        clock.forward(2 * HOUR)
        begin(store, name)
        clock.forward(HOUR + 1)
        begin(store, name)
    assert go(store, parent) == ["its deadline has passed", LATE]


def test_a_child_that_is_set_back_may_outlive_its_parent(store: Store, clock: Clock) -> None:
    """Who sets it back, after its parent failed, wants it to go on."""
    store.options(deadline=HOUR).start(family, "a")
    go(store, family)
    begin(store, "bound")
    clock.forward(2 * HOUR)
    begin(store, "bound")
    handle = store.handle("bound/waiting/bound")
    assert handle.status == "failed"
    handle.retry("wait_for:s#1")
    handle.signal("s", "still wanted")
    assert go(store, waiting, "bound", key="bound") == "still wanted"


def test_a_parent_that_fails_by_itself_leaves_its_children_at_work(store: Store) -> None:
    @perdure.agent(dict)
    def failing(run: perdure.Run[dict]) -> None:
        run.options(key="k").start(waiting, "child")
        raise TimedOut("its deadline has passed")

    with pytest.raises(TimedOut):
        go(store, failing)
    assert ends(store) == {"child": "pending"}


@perdure.agent(dict)
def turning(run: perdure.Run[dict], turn: int = 1) -> Any:
    run.wait_for("s")
    return run.again(turn + 1) if turn < 4 else "done"


def test_nor_does_its_parents_deadline_come_back_in_a_later_turn(
    store: Store, clock: Clock
) -> None:
    """The child was set back, and went on: at its next turn it failed, with its parent's deadline,
    which had not counted a moment before."""

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> Any:
        return run.options(key="main").start(turning, "child").result()

    store.options(deadline=HOUR).start(parent, "a")
    go(store, parent)
    go(store, turning, "child")
    handle = store.handle("child/turning/main")
    clock.forward(2 * HOUR)
    with pytest.raises(TimedOut):
        go(store, turning, "child")
    handle.retry("wait_for:s#1")
    for _ in range(3):
        handle.signal("s")
        assert go(store, turning, "child") is None
    assert handle.info.turn == 4
    handle.signal("s")
    assert go(store, turning, "child") == "done"


def test_a_turn_keeps_the_deadline_that_was_passed_on(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> Any:
        return run.options(key="main").start(turning, "child").result()

    store.options(deadline=HOUR).start(parent, "a")
    go(store, parent)
    go(store, turning, "child")
    handle = store.handle("child/turning/main")
    handle.signal("s")
    assert go(store, turning, "child") is None and handle.info.turn == 2
    assert handle.info.wake_at_micros == store.handle("a/parent/main").info.wake_at_micros
    clock.forward(2 * HOUR)
    with pytest.raises(TimedOut, match="deadline"):
        go(store, turning, "child")


def test_a_fork_of_a_child_is_free_of_its_parents_deadline(store: Store, clock: Clock) -> None:
    store.options(deadline=HOUR).start(family, "a")
    go(store, family)
    begin(store, "bound")
    fork = store.handle("bound/waiting/bound").fork("wait_for:s#1", branch="side")
    clock.forward(2 * HOUR)
    assert go(store, waiting, "bound", key=fork.info.key) is None
    fork.signal("s", "still wanted")
    assert go(store, waiting, "bound", key=fork.info.key) == "still wanted"


@BOTH
def test_what_a_fork_has_in_common_ends_with_the_last_of_both(
    store: Store, clock: Clock, how: str
) -> None:
    """The run failed with its time limit, its fork was cancelled later: the child that both had
    worked on for nobody."""
    options: dict[str, Any] = {how: HOUR}
    handle = store.options(**options).start(family, "a")
    go(store, family)
    fork = handle.fork("child:bound/waiting/bound#1", branch="side", key="fork")
    clock.forward(0.5 * HOUR)
    assert go(store, family, key="fork") is None
    clock.forward(0.6 * HOUR)
    with pytest.raises(TimedOut):
        go(store, family)
    assert handle.status == "failed" and fork.status == "waiting"
    asked = store.runner.context.backend.inbox("bound/waiting/bound", kind="cancel")
    assert not asked, "the fork has it still"
    fork.cancel("enough")
    assert ends(store)["bound"] == "cancelled"


@BOTH
def test_all_generations_end_with_the_first(store: Store, clock: Clock, how: str) -> None:
    @perdure.agent(dict)
    def middle(run: perdure.Run[dict]) -> Any:
        return run.options(key="main").start(waiting, "child").result()

    @perdure.agent(dict)
    def top(run: perdure.Run[dict]) -> Any:
        return run.options(key="main").start(middle, "middle").result()

    options: dict[str, Any] = {how: HOUR}
    store.options(**options).start(top, "a")
    go(store, top)
    go(store, middle, "middle")
    go(store, waiting, "child")
    clock.forward(HOUR + 1)
    with pytest.raises(TimedOut):
        go(store, top)
    for function, agent in ((middle, "middle"), (waiting, "child")):
        with pytest.raises((TimedOut, RunFailed)):
            go(store, function, agent)


@BOTH
def test_a_child_that_ends_as_the_time_is_up(store: Store, clock: Clock, how: str) -> None:
    """It ended in time, and nobody was there to go on with that: only the deadline had passed."""
    options: dict[str, Any] = {how: HOUR}
    handle = store.options(**options).start(family, "a")
    go(store, family)
    begin(store, "bound", "asked for")
    clock.forward(HOUR - 1)
    store.handle("bound/waiting/bound").signal("s", "in time")
    begin(store, "bound")
    clock.forward(HOUR)
    if how == "deadline":
        with pytest.raises(TimedOut, match="deadline"):
            go(store, family)
    else:
        assert go(store, family) == "in time"
    begin(store, "bound", "asked for")
    left = ends(store)
    assert left["bound"] == "done"
    # Of a run that is done, what it left at work goes on.
    goes_on = left["asked for"] == "waiting"
    assert goes_on if how == "time_limit" else left["asked for"] in ("failed", "cancelled")
    assert handle.status == ("done" if how == "time_limit" else "failed")
