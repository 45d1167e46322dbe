"""Runs that are cancelled, or whose time is up, while they undo what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch import drive
from perdure.errors import NeedsAttention, RunFailed, TimedOut
from perdure.testing import run_until_waiting
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.saga_world import begin_world, happened, note
from tests.engine.waits import HOUR, Clock, go, verify_all

LATE: dict[str, str] = {
    "deadline": "its deadline has passed",
    "time_limit": "it has taken its time limit of 1:00:00",
}
ENDS = pytest.mark.parametrize("how", ["deadline", "time_limit", "cancel"])

meanwhile: list[Callable[[], None]] = []
"""What happens in the middle of an undoing."""


@pytest.fixture(autouse=True)
def new_world(tmp_path: Path) -> None:
    begin_world(tmp_path)
    meanwhile.clear()


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


LATER = perdure.Retry(attempts=9, first=2 * HOUR, longest=2 * HOUR, factor=1, jitter=0)


@perdure.tool(on_crash="retry", retry=LATER)
def give_back(payment: str, cents: int) -> str:
    done = note(f"give back {cents}")
    while meanwhile:
        meanwhile.pop()()
    return done


@perdure.tool(on_crash="fail", compensate=give_back)
def take(cents: int) -> str:
    return note(f"take {cents}")


@perdure.agent(dict, compensate=True)
def failing(run: perdure.Run[dict]) -> None:
    take(1)
    take(2)
    raise ConnectionError("no flight")


@perdure.agent(dict, compensate=True)
async def failing_async(run: perdure.AsyncRun[dict]) -> None:
    await run.call(take, 1)
    await run.call(take, 2)
    raise ConnectionError("no flight")


BOTH = pytest.mark.parametrize("function", [failing, failing_async])
ALL = ["take 1", "take 2", "give back 2", "give back 1"]


def start(store: Any, function: Any, how: str) -> Any:
    options: dict[str, Any] = {} if how == "cancel" else {how: HOUR}
    return store.options(**options).start(function, "a")


def ended(store: Any, function: Any) -> Exception:
    with pytest.raises((RunFailed, TimedOut, ConnectionError)) as caught:
        run_until_waiting(store, function, "a")
    return caught.value


@BOTH
@ENDS
def test_all_is_undone_if_that_comes_in_the_middle(
    place: Place, clock: Clock, function: Any, how: str
) -> None:
    """A flight was not to be had, and the run gave back what it had paid. It was cancelled between
    two refunds, and the second one was never made: it had been planned, and counted as made."""
    store = place.open()
    handle = start(store, function, how)
    meanwhile.append(lambda: handle.cancel("off") if how == "cancel" else clock.forward(2 * HOUR))
    error = ended(store, function)
    assert happened() == ALL
    if how == "cancel":
        assert handle.status == "cancelled" and "off" in str(error)
    else:  # its own error was there first
        assert handle.status == "failed" and "no flight" in str(error)


@BOTH
@ENDS
def test_i5_one_in_doubt_is_decided_by_its_policy_then_too(
    place: Place, clock: Clock, crash: Crashes, function: Any, how: str
) -> None:
    store = place.open()
    handle = start(store, function, how)
    crash.arm("in it")
    meanwhile.append(lambda: crash("in it"))
    with pytest.raises(CrashError):
        run_until_waiting(store, function, "a")
    if how == "cancel":
        handle.cancel("off")
    clock.forward(2 * HOUR)
    ended(place.open(), function)
    assert handle.info.status == ("cancelled" if how == "cancel" else "failed")
    assert happened() == ["take 1", "take 2", "give back 2", "give back 2", "give back 1"]
    states = [one.state for one in handle.effects()]
    assert states == ["done"] * 4, "the one in doubt was made again, under its key"


@ENDS
def test_one_that_is_to_be_tried_again_later_is(place: Place, clock: Clock, how: str) -> None:
    """The bank was closed, and the run waited for it beyond its own time."""
    store = place.open()
    handle = start(store, failing, how)

    def closed() -> None:
        raise OSError("closed")

    meanwhile.append(closed)
    assert go(store, failing) is None and handle.status == "waiting"
    due = handle.info.wake_at_micros
    if how == "cancel":
        handle.cancel("off")
    clock.forward(1.5 * HOUR)
    if how != "cancel":
        assert go(store, failing) is None and handle.info.wake_at_micros == due
    clock.forward(HOUR)
    ended(place.open(), failing)
    assert happened()[2:] == ["give back 2", "give back 2", "give back 1"]
    assert handle.info.status == ("cancelled" if how == "cancel" else "failed")


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "not come to"])
def test_i5_what_was_being_undone_where_nobody_comes_again_is_asked_about(
    place: Place, crash: Crashes, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its function does not come to it again: it changed, or had not come to it yet when it was
    left. A person says what came of it."""
    undoing = [True]

    @perdure.agent(dict, compensate=True)
    def plain(run: perdure.Run[dict]) -> None:
        take(1)
        if undoing:
            run.compensate()
        run.wait_for("never")

    store = place.open()
    crash.arm("in it")
    meanwhile.append(lambda: crash("in it"))
    with pytest.raises(CrashError):
        run_until_waiting(store, plain, "a")
    undoing.clear()
    handle = store.handle("a/plain/main")
    handle.cancel("off")
    reason = "run.compensate#1"
    if not changed:  # a task of it, say, that another one does not wait for
        monkeypatch.setattr(drive, "undoes_one", lambda _: False)
        reason = "give_back#1, which was under way, has undone take#1"
    with pytest.raises(NeedsAttention, match=reason):
        run_until_waiting(place.open(), plain, "a")
    handle.settle("give_back#1", not_done=True)
    with pytest.raises(RunFailed, match="off"):
        run_until_waiting(place.open(), plain, "a")
    assert happened() == ["take 1", "give back 1", "give back 1"]


def test_a_time_limit_does_not_bound_the_undoing(place: Place, clock: Clock) -> None:
    @perdure.agent(dict, compensate=True)
    def slow(run: perdure.Run[dict]) -> None:
        take(1)
        take(2)
        run.wait_for("never")

    store = place.open()
    start(store, slow, "time_limit")
    assert go(store, slow) is None
    clock.forward(2 * HOUR)
    meanwhile.append(lambda: clock.forward(20 * HOUR))
    with pytest.raises(TimedOut, match=LATE["time_limit"]):
        go(store, slow)
    assert happened()[2:] == ["give back 2", "give back 1"]
