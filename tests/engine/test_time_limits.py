"""Time limits: of a run's own time, from its start to its end, without queues and downtime; and
deadlines that pass on to the runs that a run started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import testing
from perdure.engine.control.stopping import stop
from perdure.engine.functions.time_taken import TimeTaken
from perdure.errors import NeedsAttention, TimedOut
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import (
    HOUR,
    Clock,
    at_every_boundary,
    commits,
    go,
    records,
    until,
    verify_all,
)

LATE = "it has taken its time limit of 1:00:00"


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def waiting(run: perdure.Run[dict]) -> Any:
    return run.wait_for("s")


def start(store: Store, function: Any, **more: Any) -> Any:
    return store.options(time_limit=HOUR, **more).start(function, "a")


# -- what is counted -------------------------------------------------------------------------------


def test_a_queue_is_not_counted(store: Store, clock: Clock) -> None:
    """A deadline counts from the begin, too; but it is passed on, and a time limit is not."""
    handle = start(store, waiting)
    clock.forward(5 * HOUR)
    assert go(store, waiting) is None
    clock.forward(0.9 * HOUR)
    assert go(store, waiting) is None and handle.status == "waiting"
    clock.forward(0.2 * HOUR)
    backend = store.runner.context.backend
    assert [run.id for run in backend.ready(backend.now(), 10)] == ["a/waiting/main"]
    for _ in range(2):
        with pytest.raises(TimedOut, match=LATE):
            go(store, waiting)
    assert handle.status == "failed" and LATE in str(handle.info.problem)


def test_it_passes_while_a_run_waits_whether_or_not_somebody_is_there(
    store: Store, clock: Clock
) -> None:
    start(store, waiting)
    go(store, waiting)
    clock.forward(50 * HOUR)
    with pytest.raises(TimedOut, match=LATE):
        go(store, waiting)


@perdure.agent(dict)
def sleeping(run: perdure.Run[dict]) -> str:
    run.sleep(0.5 * HOUR)
    run.wait_for("s", timeout=0.4 * HOUR, default=None)
    return run.call(str, "awake")


def test_the_time_after_what_it_waited_for_is_not_counted(store: Store, clock: Clock) -> None:
    """Every worker was away for the weekend: a run that slept for half an hour woke on Monday, and
    had used up the hour that it was given."""
    start(store, sleeping)
    assert go(store, sleeping) is None
    clock.forward(50 * HOUR)
    assert go(store, sleeping) is None
    clock.forward(50 * HOUR)
    assert go(store, sleeping) == "awake"


def test_nor_is_the_time_after_a_signal_that_nobody_was_there_to_hear(
    store: Store, clock: Clock
) -> None:
    handle = start(store, waiting)
    go(store, waiting)
    clock.forward(0.9 * HOUR)
    handle.signal("s", "in time")
    clock.forward(50 * HOUR)
    assert go(store, waiting) == "in time"


def test_nor_is_the_time_after_a_crash(store: Store, clock: Clock, crash: Crashes) -> None:
    """What the run had done before counts up to its last commit: no log tells when it died."""

    @perdure.agent(dict)
    def working(run: perdure.Run[dict]) -> str:
        for number in range(5):
            run.call(clock.forward, 0.3 * HOUR)
            crash(f"after {number}")
        return "done"

    crash.arm("after 0", "after 1", "after 2")
    start(store, working)
    for _ in range(3):
        with pytest.raises(CrashError):
            go(store, working)
        clock.forward(50 * HOUR)
    with pytest.raises(TimedOut, match=LATE):
        go(store, working)
    spent = [one["spent"] / 1e6 / HOUR for one in records(store, "a", "run-resumed")]
    assert spent == pytest.approx([0.3, 0.6, 0.9], abs=0.01)


def test_nor_is_the_time_in_which_it_needs_a_person(store: Store, clock: Clock) -> None:
    @perdure.tool
    def paying() -> str:
        raise SystemExit

    @perdure.agent(dict)
    def doubting(run: perdure.Run[dict]) -> Any:
        run.call(clock.forward, 0.5 * HOUR)
        paid = paying()
        run.wait_for("s", timeout=0.4 * HOUR, default=None)
        return paid

    handle = start(store, doubting)
    with pytest.raises(SystemExit):
        go(store, doubting)
    clock.forward(50 * HOUR)
    with pytest.raises(NeedsAttention):
        go(store, doubting)
    clock.forward(50 * HOUR)
    handle.settle("paying#1", done="paid")
    clock.forward(50 * HOUR)
    assert go(store, doubting) is None
    clock.forward(50 * HOUR)
    assert go(store, doubting) == "paid"


def test_all_turns_of_a_run_are_counted(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def turning(run: perdure.Run[dict], turn: int = 1) -> Any:
        run.call(clock.forward, 0.3 * HOUR)
        run.sleep(0.1 * HOUR)
        return run.again(turn + 1)

    start(store, turning)
    assert go(store, turning) is None
    clock.forward(50 * HOUR)
    assert go(store, turning) is None
    clock.forward(50 * HOUR)
    with pytest.raises(TimedOut, match=LATE):
        go(store, turning)
    assert store.handle("a/turning/main").info.turn == 3


def test_a_run_that_is_set_back_or_forked_has_its_time_anew(store: Store, clock: Clock) -> None:
    handle = start(store, waiting)
    go(store, waiting)
    clock.forward(2 * HOUR)
    with pytest.raises(TimedOut):
        go(store, waiting)
    handle.retry("wait_for:s#1")
    clock.forward(50 * HOUR)
    assert go(store, waiting) is None
    forked = handle.fork("wait_for:s#1", branch="side")
    clock.forward(50 * HOUR)
    assert go(store, waiting, key=forked.info.key) is None
    clock.forward(0.9 * HOUR)
    assert go(store, waiting, key=forked.info.key) is None
    clock.forward(0.2 * HOUR)
    with pytest.raises(TimedOut, match=LATE):
        go(store, waiting, key=forked.info.key)


def test_the_earlier_of_deadline_and_limit_counts(store: Store, clock: Clock) -> None:
    start(store, waiting, deadline=0.5 * HOUR)
    go(store, waiting)
    clock.forward(0.6 * HOUR)
    with pytest.raises(TimedOut, match="its deadline has passed"):
        go(store, waiting)


def test_an_executing_run_leaves_at_its_next_step(store: Store, clock: Clock) -> None:
    reached = []

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict]) -> None:
        with suppress(Exception):
            run.call(clock.forward, 2 * HOUR)
            reached.append(1)
            run.call(str, 1)
            reached.append(2)

    with pytest.raises(TimedOut, match=LATE):
        store.options(time_limit=timedelta(hours=1)).run(slow, "a")
    assert reached == [1]


def test_a_crash_at_every_boundary_gives_no_time_and_takes_none(place: Place, clock: Clock) -> None:
    @perdure.agent(dict)
    def stepping(run: perdure.Run[dict]) -> str:
        run.call(clock.forward, 0.3 * HOUR)
        run.wait_for("s", timeout=0.3 * HOUR, default=None)
        run.call(clock.forward, 0.3 * HOUR)
        return "done"

    def work(store: Store, agent: str) -> Any:
        store.options(time_limit=HOUR).start(stepping, agent)
        go(store, stepping, agent)
        clock.forward(10 * HOUR)
        return go(store, stepping, agent)

    for where, store, agent, end in at_every_boundary(place, work):
        clock.forward(10 * HOUR)
        assert (end or go(store, stepping, agent)) == "done", where
        taken = TimeTaken(f"{agent}/stepping/main")
        for commit in commits(store, agent):
            taken.note(commit)
        # A step that was made again took its time again; nothing else is more than 0.9 hours.
        assert 0.3 * HOUR < taken.spent / 1e6 < HOUR, where


@pytest.mark.parametrize("jump", [-30 * HOUR, -0.5 * HOUR, 0.5 * HOUR])
def test_a_clock_that_is_put_right_takes_no_time_twice(
    store: Store, clock: Clock, jump: float
) -> None:
    """Put back, a moment that was counted is not counted again, nor taken back; put forward, it
    counts, as it does for all timers."""
    handle = start(store, waiting)
    go(store, waiting)
    clock.forward(0.3 * HOUR)
    handle.signal("other")
    assert go(store, waiting) is None
    clock.forward(jump)
    assert go(store, waiting) is None
    left = handle.why().time_left
    assert left is not None
    assert left.total_seconds() == pytest.approx(0.7 * HOUR - max(jump, 0), abs=60)
    clock.forward(max(-jump, 0) + 0.9 * HOUR)
    with pytest.raises(TimedOut, match=LATE):
        go(store, waiting)


def test_nor_is_the_time_before_somebody_saw_that_it_needs_a_person(
    store: Store, clock: Clock
) -> None:
    """A signal came on Friday evening. On Monday a worker saw that it could not read the run, and
    on Tuesday one that could went on with it: the weekend counted."""
    handle = start(store, waiting)
    go(store, waiting)
    clock.forward(0.5 * HOUR)
    handle.signal("s", "on Friday")
    clock.forward(50 * HOUR)
    stop(store.runner.context, store.runner.wakeups, handle.id, "it cannot be read here")
    assert handle.status == "needs_attention"
    clock.forward(20 * HOUR)
    assert go(store, waiting) == "on Friday"


def test_why_says_what_is_left_and_that_it_is_up(store: Store, clock: Clock) -> None:
    """It said that a timer was due."""
    handle = start(store, waiting, deadline=3 * HOUR)
    before = handle.why()
    assert before.time_limit == before.time_left == timedelta(hours=1)
    assert before.deadline is None and "it has 1 h left of its time limit of 1 h" in before.why
    go(store, waiting)
    clock.forward(0.5 * HOUR)
    said = handle.why()
    assert "waits for signal 's'; its deadline is " in said.why and "timer" not in said.why
    assert "it has 29 min 59 s left of its time limit of 1 h" in said.why
    due = (handle.info.changed_at + timedelta(hours=3)).timestamp()
    assert said.deadline is not None and said.deadline.timestamp() == pytest.approx(due, abs=60)
    clock.forward(HOUR)
    late = handle.why()
    assert late.situation == "due" and "its time was up at" in late.why
    assert "it has nothing left of its time limit" in late.why
    with pytest.raises(TimedOut):
        go(store, waiting)
    ended = handle.why()
    assert LATE in ended.why and ended.time_limit is None and ended.deadline is None


def test_why_a_run_that_sleeps_beyond_its_time_ends(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def sleepy(run: perdure.Run[dict]) -> None:
        run.sleep(50 * HOUR)

    handle = start(store, sleepy)
    go(store, sleepy)
    assert handle.why().why.startswith("sleeps until ") and "timer" not in handle.why().why
    assert "it has 59 min 59 s left" in handle.why().why


def test_on_a_clock_that_stands_it_is_up_to_the_moment() -> None:
    """The times of the log ran ahead of the clock by a few microseconds, one for each commit."""
    standing = testing.Clock()
    with standing.open("memory://") as store:
        start(store, waiting)
        for _ in range(3):
            store.handle("a/waiting/main").signal("other")
            assert testing.run_until_waiting(store, waiting, "a").status == "waiting"
        standing.advance(HOUR)
        with pytest.raises(TimedOut, match=LATE):
            testing.run_until_waiting(store, waiting, "a")
        assert testing.replay(store, waiting, "a/waiting/main").drift is None


def test_runs_without_a_limit_record_nothing_of_it(store: Store, crash: Crashes) -> None:
    @perdure.agent(dict)
    def plain(run: perdure.Run[dict]) -> Any:
        run.call(str, 1)
        crash("here")
        return run.wait_for("s")

    crash.arm("here")
    with pytest.raises(CrashError):
        go(store, plain)
    go(store, plain)
    store.handle("a/plain/main").signal("s", "x")
    assert go(store, plain) == "x"
    assert records(store, "a", "run-resumed") == [{"t": "run-resumed", "run": "a/plain/main"}]


@pytest.mark.parametrize("wrong", ["soon", [], True, b"1"])
def test_a_limit_is_a_duration(store: Store, wrong: Any) -> None:
    with pytest.raises(TypeError, match="time_limit="):
        store.options(time_limit=wrong)

    @perdure.agent(dict)
    def starting(run: perdure.Run[dict]) -> None:
        for name in ("deadline", "time_limit"):
            with pytest.raises(TypeError, match=f"{name}="):
                run.options(**{name: wrong})
            for nothing in (0, -1, timedelta(0), float("nan"), 1e300):
                given: dict[str, Any] = {name: nothing}
                with pytest.raises(ValueError, match=f"{name}="):
                    run.options(**given)

    store.run(starting, "a")


# -- asynchronous runs -----------------------------------------------------------------------------


@perdure.agent(dict)
async def astuck(run: perdure.AsyncRun[dict]) -> None:
    await run.options(key="k", time_limit=50).start(astuck, "child")
    await asyncio.Event().wait()


def test_the_same_from_asynchronous_code(place: Place) -> None:
    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            with pytest.raises(TimedOut, match=r"time limit of 0:00:00\.2"):
                await store.options(time_limit=0.2).run(astuck, "a")

    kept = place.open()
    asyncio.run(main())
    child = kept.handle("child/astuck/k")
    until(lambda: child.status == "cancelled", "its end")
    assert child.info.problem == "with a/astuck/main"
