"""Waiting without a process: for times, signals, answers, and the first of several."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Ask, Signal, Timer
from perdure.errors import Conflict, NotFound, RunFailed, TimedOut
from perdure.model import MAIN
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import (
    HOUR,
    Background,
    Clock,
    at_every_boundary,
    commits,
    go,
    records,
    until,
    verify_all,
)


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def sleeper(run: perdure.Run[dict]) -> str:
    with run.edit("falls asleep") as draft:
        draft["n"] = 1
    run.sleep(timedelta(hours=1))
    return f"n is {run.state['n']}"


@perdure.agent(dict)
def waiter(run: perdure.Run[dict]) -> list[Any]:
    return [run.wait_for("approve"), run.wait_for("approve")]


def status(store: Store, run: str) -> str:
    return store.handle(run).status


# -- unloaded ----------------------------------------------------------------------------------


def test_a_waiting_run_holds_no_thread_and_no_lease(store: Store, clock: Clock) -> None:
    assert go(store, sleeper, "first") is None
    threads = threading.active_count()
    assert go(store, sleeper) is None
    info = store.handle("a/sleeper/main").info
    assert (info.status, info.problem, info.ended) == ("waiting", None, -1 if info.ended else 0)
    assert info.waits.startswith("until 20") and info.wake_at_micros > 0
    assert threading.active_count() <= threads, "the store has its own, however many wait"
    ref = store.runner._context.backend.ref(info.agent_no, MAIN)
    assert ref is not None and ref.holder is None
    with store.agent("a").edit("others may write") as draft:
        draft["n"] = 5
    clock.forward(HOUR)
    assert go(store, sleeper) == "n is 5"


def test_it_goes_on_in_another_process_with_the_same_due_time(place: Place, clock: Clock) -> None:
    """A timer that is set anew whenever its process is would never be due."""
    assert go(place.open(), sleeper) is None
    due = place.open().handle("a/sleeper/main").info.wake_at_micros
    place.close()
    clock.forward(HOUR - 60)
    assert go(place.open(), sleeper) is None
    assert place.open().handle("a/sleeper/main").info.wake_at_micros == due
    place.close()
    clock.forward(60)
    store = place.open()
    backend = store.runner._context.backend
    assert [run.id for run in backend.ready(backend.now(), 10)] == ["a/sleeper/main"]
    assert go(store, sleeper) == "n is 1"


def test_a_short_sleep_is_slept_in_place(store: Store) -> None:
    """Unloading for a few milliseconds would cost more than they are."""

    @perdure.agent(dict)
    def napper(run: perdure.Run[dict]) -> str:
        run.sleep(0.01)
        run.sleep(0)
        run.sleep(-1)
        return "awake"

    assert go(store, napper) == "awake"
    assert records(store, kind="run-waiting") == []


def test_store_run_waits_and_goes_on_with_it(place: Place) -> None:
    store = place.open()
    running = Background(lambda: store.run(waiter, "a"))
    until(lambda: store.runs(status=["waiting"]), "the wait")
    other = place.open().handle("a/waiter/main")
    assert other.signal("approve", 1) and other.signal("approve", 2)
    assert running.join() == [1, 2]


# -- signals -----------------------------------------------------------------------------------


def test_signals_may_come_early_keep_their_order_and_come_once_by_key(place: Place) -> None:
    store = place.open()
    handle = store.start(waiter, "a")
    assert handle.signal("approve", "first", key="k"), "the run has not begun"
    assert handle.signal("approve", {"second": [1]}, key="l")
    assert not handle.signal("approve", "again", key="k")
    assert go(place.open(), waiter) == ["first", {"second": [1]}]
    (one, two) = records(store, kind="wait-ended")
    assert (one["key"], one["value"], two["key"]) == ("k", "first", "l")
    assert store.runner._context.backend.inbox() == []


def test_a_key_stays_known_when_its_signal_was_taken(store: Store) -> None:
    go(store, waiter)
    handle = store.handle("a/waiter/main")
    handle.signal("approve", 1, key="k")
    go(store, waiter)
    assert not handle.signal("approve", 1, key="k")
    assert go(store, waiter) is None, "it waits for another"
    handle.signal("approve", 2)
    assert go(store, waiter) == [1, 2]


def test_a_signal_to_a_run_that_is_finished_or_unknown_is_refused(store: Store) -> None:
    go(store, waiter)
    handle = store.handle("a/waiter/main")
    for value in (1, 2):
        handle.signal("approve", value)
    assert go(store, waiter) == [1, 2]
    with pytest.raises(Conflict, match="is done already"):
        handle.signal("approve", 3)
    with pytest.raises(NotFound):
        store.handle("a/waiter/other")
    with pytest.raises(perdure.Unstorable):
        handle.signal("approve", object())
    with pytest.raises(ValueError, match="child:"):
        handle.signal("child:x")
    with pytest.raises(ValueError, match="key is not empty"):
        handle.signal("approve", 3, key="")


def test_a_signal_that_nobody_waits_for_does_not_make_the_run_spin(store: Store) -> None:
    """It lay in the inbox, the run was woken for it, found nothing, and waited again: for ever,
    two commits at a time."""
    go(store, waiter)
    handle = store.handle("a/waiter/main")
    handle.signal("something else", 1)
    backend = store.runner._context.backend
    assert len(backend.ready(backend.now(), 10)) == 1, "it may be of interest"
    go(store, waiter)
    made = len(commits(store))
    assert backend.ready(backend.now(), 10) == []
    running = Background(lambda: store.run(waiter, "a"))
    for value in (1, 2):
        handle.signal("approve", value)
    assert running.join() == [1, 2]
    assert len(commits(store)) <= made + 4


def test_a_pause_between_attempts_does_not_spin_on_what_lies_in_the_inbox(
    store: Store, clock: Clock
) -> None:
    """As above, where nothing is waited for but the next attempt."""
    failing = [True]

    @perdure.step(retry=perdure.Retry(2, first=HOUR, longest=HOUR, jitter=0))
    def flaky() -> str:
        if failing:
            raise ConnectionError
        return "done"

    @perdure.agent(dict)
    def trying(run: perdure.Run[dict]) -> str:
        return flaky()

    handle = store.start(trying, "a")
    handle.signal("hello")
    assert go(store, trying) is None
    backend = store.runner._context.backend
    assert backend.ready(backend.now(), 10) == []
    failing.clear()
    clock.forward(HOUR)
    assert go(store, trying) == "done"


def test_a_signal_between_the_last_look_and_the_commit_is_not_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run looked into its inbox, the signal came, the run went to sleep: nobody woke it."""
    context = store.runner._context
    submit = context.committer.submit

    def sending(proposal: Any) -> Any:
        if any(row.status == "waiting" for row in proposal.riders.runs):
            store.handle("a/waiter/main").signal("approve", 1)
        return submit(proposal)

    monkeypatch.setattr(context.committer, "submit", sending)
    assert go(store, waiter) is None
    assert status(store, "a/waiter/main") == "waiting"
    assert len(context.backend.ready(context.backend.now(), 10)) == 1
    go(store, waiter)
    assert go(store, waiter) == [1, 1]


def test_many_signals_are_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait read the whole inbox: a thousand signals were decoded a million times."""

    @perdure.agent(dict)
    def counter(run: perdure.Run[dict], count: int) -> int:
        return sum(run.wait_for("n") for _ in range(count))

    handle = store.start(counter, "a", 200)
    for number in range(200):
        handle.signal("n", number)
    backend = store.runner._context.backend
    looks: list[int] = []
    inbox = backend.inbox

    def counted(*args: Any, **more: Any) -> Any:
        looks.append(1)
        return inbox(*args, **more)

    monkeypatch.setattr(backend, "inbox", counted)
    assert go(store, counter, "a", 200) == sum(range(200))
    assert len(looks) < 20


def test_waits_are_the_same_after_a_crash_at_every_boundary(place: Place) -> None:
    @perdure.agent(dict)
    def both(run: perdure.Run[dict]) -> list[Any]:
        first = run.wait_for("s")
        with run.edit("between") as draft:
            draft["first"] = first
        return [first, run.wait_for("s"), run.wait_for("s", timeout=0, default="none")]

    def work(store: Store, agent: str) -> Any:
        handle = store.start(both, agent)
        end = go(store, both, agent)
        for value in ("x", "y"):
            try:
                handle.signal("s", value, key=value)
            except Conflict:
                assert handle.status == "done"
            end = go(store, both, agent)
        return end

    lost = 0
    for where, store, agent, end in at_every_boundary(place, work):
        assert end == ["x", "y", "none"], where
        assert store.agent(agent).state == {"first": "x"}, where
        assert store.runner._context.backend.inbox() == [], where
        lost += 1
    assert lost > 10


def test_names_that_look_like_tasks_are_just_names(store: Store, crash: Crashes) -> None:
    """A place is its task's path and its name: a part of "ticket#3/4" was taken for a task, of
    which the function need not come to the same calls in the same order."""

    def of(*whats: str) -> Any:
        @perdure.agent(dict)
        def naming(run: perdure.Run[dict]) -> Any:
            for what in whats:
                with run.edit(what) as draft:
                    draft[what] = 1
            got = run.wait_for("a#1/b#2/c")
            done = run.call(len, "x")
            crash("after")
            return [got, done]

        return naming

    store.start(of("ticket#3/4"), "a").signal("a#1/b#2/c", 7)
    crash.arm("after")
    with pytest.raises(CrashError):
        go(store, of("ticket#3/4"))
    with pytest.raises(perdure.NeedsAttention, match="where it had recorded edit edit:ticket"):
        go(store, of("another", "ticket#3/4"))
    assert go(store, of("ticket#3/4")) == [7, 1]


# -- time is up --------------------------------------------------------------------------------


def test_a_timeout_raises_or_gives_the_default_and_is_never_a_no(
    store: Store, clock: Clock
) -> None:
    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> list[Any]:
        found: list[Any] = []
        try:
            found.append(run.ask("Refund?", timeout=HOUR))
        except TimedOut as late:
            found.append(str(late.problem))
        found.append(run.ask("Refund?", timeout=HOUR, default=None))
        found.append(run.wait_for("s", timeout=timedelta(hours=1), default="none"))
        return found

    for _ in range(3):
        assert go(store, asking) is None
        clock.forward(HOUR + 1)
    assert go(store, asking) == ["waited for an answer to 'Refund?' in vain", None, "none"]
    assert store.handle("a/asking/main").questions() == []


def test_what_came_in_time_counts_even_where_nobody_looked_in_time(
    store: Store, clock: Clock
) -> None:
    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> Any:
        return run.ask("Refund?", timeout=HOUR)

    go(store, asking)
    store.handle("a/asking/main").answer(True)
    clock.forward(2 * HOUR)
    assert go(store, asking) is True


# -- the first of several ----------------------------------------------------------------------


def test_select_gives_the_first_and_leaves_the_others(store: Store, clock: Clock) -> None:
    @perdure.agent(dict)
    def choosing(run: perdure.Run[dict]) -> list[Any]:
        waits: dict[str, Any] = {
            "yes": Signal("approve"),
            "no": Signal("reject", str),
            "asked": Ask("Well?"),
            "late": Timer(HOUR),
        }
        chosen = [run.select(**waits) for _ in range(3)]
        return [[one.name, one.value] for one in chosen]

    go(store, choosing)
    handle = store.handle("a/choosing/main")
    assert handle.info.waits.startswith("signal 'approve' or signal 'reject' or an answer to")
    handle.signal("reject", "too much")
    handle.signal("approve", 1)
    assert go(store, choosing) is None
    clock.forward(HOUR + 1)
    assert go(store, choosing) == [["no", "too much"], ["yes", 1], ["late", None]]


def test_select_refuses_what_could_never_end_or_be_told_apart(store: Store) -> None:
    @perdure.agent(dict)
    def wrong(run: perdure.Run[dict]) -> list[str]:
        found = []
        for waits in ({}, {"a": Ask("1?"), "b": Ask("2?")}):
            with pytest.raises(ValueError, match=r"select\(\)") as refused:
                run.select(**waits)
            found.append(str(refused.value))
        return [*found, run.call(str, "goes on")]

    assert "one question at a time" in go(store, wrong)[1]


def test_what_is_no_duration_and_nothing_to_wait_for_is_refused(store: Store) -> None:
    """`run.sleep("5")` slept, and `run.select(a=5)` said that an int has no attribute."""

    @perdure.agent(dict)
    def f(run: Any) -> list[str]:
        found = []
        wrong: list[Any] = [
            lambda: run.sleep("5"),
            lambda: run.sleep(True),
            lambda: run.select(a=5),
            lambda: run.wait_for("s", timeout="soon"),
        ]
        for call in wrong:
            with pytest.raises(TypeError) as refused:
                call()
            found.append(str(refused.value))
        return found

    found = store.run(f, "a")
    assert [("not a duration" in words) for words in found] == [True, True, False, True]
    assert found[2].startswith("a=5 is nothing to wait for: give a Signal")


# -- many --------------------------------------------------------------------------------------


def test_two_runs_of_an_agent_wait_for_each_other_and_not_for_ever(place: Place) -> None:
    """A run that waits has the branch all the same: another one waits for its turn."""
    store = place.open()
    one = Background(lambda: store.options(key="1").run(waiter, "a"))
    until(lambda: store.runs(status=["waiting"]))
    two = Background(lambda: place.open().options(key="2").run(waiter, "a"))
    for value in (1, 2):
        store.handle("a/waiter/1").signal("approve", value)
    assert one.join() == [1, 2]
    until(lambda: store.runs(status=["waiting"]))
    for value in (3, 4):
        store.handle("a/waiter/2").signal("approve", value)
    assert two.join() == [3, 4]


def test_a_thousand_runs_wait_and_each_gets_its_own(place: Place) -> None:
    before = threading.active_count()  # other tests may have left some of theirs
    store = place.open()
    count = 1000 if place.url.startswith("memory") else 300
    for number in range(count):
        assert go(store, waiter, f"agent-{number}") is None
    assert len(store.runs(status=["waiting"], limit=count + 1)) == count
    backend = store.runner._context.backend
    assert backend.ready(backend.now(), 10) == []
    assert threading.active_count() < before + 20
    for value in (1, 2):
        store.handle("agent-7/waiter/main").signal("approve", value)
    assert [run.agent for run in backend.ready(backend.now(), 10)] == ["agent-7"]
    assert go(store, waiter, "agent-7") == [1, 2]


# -- asynchronous ------------------------------------------------------------------------------


def test_asynchronous_runs_wait_for_several_things_in_tasks_and_are_unloaded(
    place: Place,
) -> None:
    @perdure.agent(dict)
    async def gathering(run: perdure.AsyncRun[dict]) -> list[Any]:
        return list(await asyncio.gather(run.wait_for("a"), run.wait_for("b"), run.ask("c?")))

    async def main() -> list[Any]:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(gathering, "a"))
            for _ in range(3000):
                if await store.runs(status=["waiting"]):
                    break
                await asyncio.sleep(0.01)
            handle = await store.handle("a/gathering/main")
            info = await handle.info()
            assert info.waits == "signal 'a'; signal 'b'; an answer to 'c?'"
            await handle.signal("b", 2)
            await handle.answer(True)
            await handle.signal("a", 1)
            return await running

    assert asyncio.run(main()) == [1, 2, True]


def test_a_cancelled_run_waits_no_more(store: Store) -> None:
    running = Background(lambda: store.run(waiter, "a"))
    until(lambda: store.runs(status=["waiting"]))
    store.handle("a/waiter/main").cancel("enough")
    with pytest.raises(RunFailed, match="enough"):
        running.join()
    assert store.runs(status=["waiting"]) == []
