"""What a function asks of the runs that it started, and tells them: recorded, and so the same on
replay, and done once, whatever crashes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, PerdureError, RunFailed, TimedOut, Unstorable
from perdure.model import Message, RunInfo
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import HOUR, Clock, at_every_boundary, go, records, until, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.agent(dict)
def searching(run: perdure.Run[dict]) -> str:
    words = [run.wait_for("word", schema=str), run.wait_for("word", schema=str)]
    with run.edit("heard") as draft:
        draft["words"] = draft.get("words", []) + words
    return " ".join(words)


def go_on(store: Store) -> None:
    """What a worker does for the runs of `searching`."""
    for run in store.runs(function="searching", unfinished=True):
        with suppress(PerdureError):
            go(store, searching, run.agent, key=run.key)


def child_of(store: Store, agent: str, function: str) -> RunInfo:
    (child,) = store.runs(parent=f"{agent}/{function}/main")
    return child


def inbox(store: Store, run: str | None = None) -> list[Message]:
    return store.runner.context.backend.inbox(run)


@perdure.agent(dict)
def asking(run: perdure.Run[dict]) -> str:
    child = run.start(searching, f"search of {run.agent}")
    child.signal("word", "billing")
    child.signal("word", "refunds")
    return child.result()


def test_a_childs_id_says_what_it_is_and_can_be_read_out(store: Store) -> None:
    """It ended with 32 characters of a hash: nobody could read it to a colleague."""
    go(store, asking, "a")
    child = child_of(store, "a", "asking")
    assert re.fullmatch(r"search of a/searching/searching-[0-9a-f]{16}", child.id)


def test_a_childs_name_may_be_given(store: Store) -> None:
    @perdure.agent(dict)
    def naming(run: perdure.Run[dict]) -> list[str]:
        words = ["billing", "é/~%"]
        return [run.options(key=one).start(searching, "search").id for one in words]

    assert go(store, naming) == ["search/searching/billing", "search/searching/é%2F%7E%25"]


def test_signals_reach_a_child_once_after_a_crash_at_every_boundary(place: Place) -> None:
    def work(store: Store, agent: str) -> Any:
        go(store, asking, agent)
        go_on(store)
        return go(store, asking, agent)

    lost = 0
    for where, store, agent, end in at_every_boundary(place, work):
        assert end == "billing refunds", where
        assert store.agent(f"search of {agent}").state == {"words": ["billing", "refunds"]}, where
        assert inbox(store) == [], where
        lost += 1
    assert lost >= 14


def test_a_signal_names_its_sender_in_the_childs_log(store: Store) -> None:
    go(store, asking, "a")
    go_on(store)
    ended = records(store, "search of a", "wait-ended")
    assert [one["who"] for one in ended] == ["a/asking/main"] * 2


@perdure.agent(dict)
def giving_up(run: perdure.Run[dict], begin: bool) -> list[Any]:
    child = run.start(searching, f"search of {run.agent}")
    if begin:
        run.wait_for("it has begun")
    asked = [child.cancel("nobody needs it"), child.cancel()]
    try:
        child.result()
    except RunFailed as error:
        return [*asked, error.problem]
    return asked


@pytest.mark.parametrize("begin", [False, True])
def test_a_child_is_cancelled_once_at_every_boundary(place: Place, begin: bool) -> None:
    def work(store: Store, agent: str) -> Any:
        go(store, giving_up, agent, begin)
        if begin:
            go_on(store)
            handle = store.handle(f"{agent}/giving_up/main")
            with suppress(Conflict):
                handle.signal("it has begun", key="once")
            go(store, giving_up, agent, begin)
        go_on(store)
        return go(store, giving_up, agent, begin)

    for where, store, agent, end in at_every_boundary(place, work):
        # The second one may come when it has ended already, and says so.
        assert end[0] is True and end[2] == "was cancelled: nobody needs it", where
        assert child_of(store, agent, "giving_up").status == "cancelled", where
        assert inbox(store) == [], where


def test_a_child_that_has_not_begun_is_cancelled_at_once_though_nobody_serves_it(
    store: Store,
) -> None:
    assert go(store, giving_up, "a", False)[0] is True
    child = child_of(store, "a", "giving_up")
    assert (child.status, child.problem) == ("cancelled", "nobody needs it")


def test_what_was_said_of_a_child_that_had_ended_is_said_again(
    store: Store, crash: Crashes
) -> None:
    """Replay asked the store again: a child that was at work then has ended since, and the function
    went another way than before."""

    @perdure.agent(dict)
    def looking(run: perdure.Run[dict]) -> list[Any]:
        child = run.start(searching, "search")
        said: list[Any] = [child.status]
        run.wait_for("more")
        said.append(child.status)
        child.signal("word", "one")
        child.signal("word", "two")
        said.append(child.result())
        said += [child.status, child.cancel()]
        try:
            child.signal("word", "three")
        except Conflict as error:
            said.append(error.problem)
        run.call(str, 1)
        crash("at the end")
        return said

    go(store, looking)
    go_on(store)
    store.handle("a/looking/main").signal("more")
    go(store, looking)
    go_on(store)
    crash.arm("at the end")
    with pytest.raises(CrashError):
        go(store, looking)
    child = child_of(store, "a", "looking")
    store.delete("search", purge=True)
    store.purge()
    assert go(store, looking) == [
        "pending",
        "waiting",
        "one two",
        "done",
        False,
        "has ended: nobody would receive it",
    ]
    assert inbox(store, child.id) == []


def test_another_message_at_its_place_stops_the_run(store: Store) -> None:
    words = ["one", "two"]

    @perdure.agent(dict)
    def telling(run: perdure.Run[dict]) -> None:
        child = run.start(searching, "search")
        child.signal("word", words[0])
        run.wait_for("more")

    go(store, telling)
    words.reverse()
    store.handle("a/telling/main").signal("more")
    with pytest.raises(perdure.NeedsAttention, match="signal:word#1"):
        go(store, telling)


def test_a_signal_is_sent_once_where_its_sender_is_set_back_or_forked(store: Store) -> None:
    @perdure.agent(dict)
    def telling(run: perdure.Run[dict]) -> str:
        child = run.options(key="one").start(searching, "search")
        child.signal("word", "one")
        run.call(str, "after")
        child.signal("word", "two", key="the second")
        return run.call(str, run.id)

    go(store, telling)
    handle = store.handle("a/telling/main")
    handle.retry("signal:word#1", effects="reuse")
    go(store, telling)
    forked = handle.fork("signal:word#1", branch="what-if", effects="reuse")
    go(store, telling, key=forked.info.key)
    assert [one.value for one in inbox(store, "search/searching/one") if one.kind == "signal"] == [
        "one",
        "two",
    ]


def test_each_turn_sends_its_own(store: Store) -> None:
    @perdure.agent(dict)
    def telling(run: perdure.Run[dict], turn: int) -> Any:
        child = run.options(key="one").start(searching, "search")
        child.signal("word", "the same")
        return run.again(turn + 1) if turn < 2 else None

    go(store, telling, "a", 1)
    sent = [one for one in inbox(store, "search/searching/one") if one.kind == "signal"]
    assert [one.value for one in sent] == ["the same"] * 2


# -- when the time is up ---------------------------------------------------------------------------


@perdure.agent(dict)
def impatient(run: perdure.Run[dict], let_live: bool = False, cancel: bool = True) -> str:
    child = run.options(let_live=let_live).start(searching, f"search of {run.agent}")
    run.wait_for("go")
    try:
        return child.result(timeout=HOUR, cancel=cancel)
    except TimedOut:
        return "late"


@pytest.mark.parametrize(
    ("let_live", "cancel", "ends"),
    [
        (False, True, True),
        (False, False, False),
        (True, True, False),
        (True, False, False),
    ],
)
def test_a_child_that_takes_too_long_is_cancelled_unless_told_otherwise(
    store: Store, monkeypatch: pytest.MonkeyPatch, let_live: bool, cancel: bool, ends: bool
) -> None:
    """Its parent had gone on without it, and it worked for nobody, with tools that cost money."""
    clock = Clock(monkeypatch)
    args = (let_live, cancel)
    go(store, impatient, "a", *args)
    go_on(store)
    store.handle("a/impatient/main").signal("go")
    assert go(store, impatient, "a", *args) is None
    clock.forward(HOUR + 1)
    assert go(store, impatient, "a", *args) == "late"
    go_on(store)
    child = child_of(store, "a", "impatient")
    assert child.status == ("cancelled" if ends else "waiting")
    if ends:
        assert child.problem == "run a/impatient/main waited for it until its time was up"


def test_a_late_child_is_cancelled_once_after_a_crash_at_every_boundary(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def work(store: Store, agent: str) -> Any:
        go(store, impatient, agent)
        go_on(store)
        with suppress(Conflict):
            store.handle(f"{agent}/impatient/main").signal("go", key="once")
        go(store, impatient, agent)
        clock.forward(HOUR + 1)
        end = go(store, impatient, agent)
        go_on(store)
        return end

    for where, store, agent, end in at_every_boundary(place, work):
        if end is None:  # the hour began only in the second store
            clock.forward(HOUR + 1)
            end = go(store, impatient, agent)
            go_on(store)
        assert end == "late", where
        assert child_of(store, agent, "impatient").status == "cancelled", where
        assert inbox(store) == [], where


def test_a_result_in_time_cancels_nothing(store: Store) -> None:
    go(store, impatient, "a")
    handle = store.handle("a/impatient/main")
    handle.signal("go")
    child = store.handle(child_of(store, "a", "impatient").id)
    for word in ("in", "time"):
        child.signal("word", word)
    go_on(store)
    assert go(store, impatient, "a") == "in time"
    assert child.status == "done"


# -- wrong words -----------------------------------------------------------------------------------


def test_wrong_words_are_refused_where_they_are_said_and_nothing_is_recorded(store: Store) -> None:
    @perdure.agent(dict)
    def wrong(run: perdure.Run[dict]) -> list[str]:
        child: Any = run.start(searching, "search")
        calls: list[tuple[Any, Any]] = [
            (TypeError, lambda: child.signal(7)),
            (ValueError, lambda: child.signal("")),
            (ValueError, lambda: child.signal("\ud800")),
            (ValueError, lambda: child.signal("child:a/b/c")),
            (ValueError, lambda: child.signal("@move")),
            (Unstorable, lambda: child.signal("word", object())),
            (Unstorable, lambda: child.signal("word", [lambda: None])),
            (ValueError, lambda: child.signal("word", key="")),
            (TypeError, lambda: child.signal("word", key=7)),
            (TypeError, lambda: child.cancel(7)),
            (ValueError, lambda: child.cancel("\ud800")),
            (TypeError, lambda: child.result(timeout="soon")),
            (TypeError, lambda: child.result(timeout=1, cancel="no")),
        ]
        for kind, call in calls:
            with pytest.raises(kind):
                call()
        return [child.id]

    go(store, wrong)
    assert [one["place"] for one in records(store, "a", "step")] == ["start:searching#1"]


def test_a_signal_that_a_child_refuses_is_recorded_there(store: Store) -> None:
    @perdure.agent(dict)
    def telling(run: perdure.Run[dict]) -> None:
        child = run.start(searching, "search")
        child.signal("word", {"no": "text"})
        child.signal("word", "one")
        child.signal("word", ("two",))

    go(store, telling)
    go_on(store)
    refused = records(store, "search", "message-refused")
    assert len(refused) == 2 and {one["who"] for one in refused} == {"a/telling/main"}


def test_messages_are_not_sent_from_steps_and_open_edits(store: Store) -> None:
    @perdure.agent(dict)
    def within(run: perdure.Run[dict]) -> str:
        child = run.start(searching, "search")
        said = []
        with run.edit("one"):
            for call in (child.cancel, lambda: child.signal("word", "one")):
                try:
                    call()
                except PerdureError as error:
                    said.append(error.problem)
        try:
            run.call(child.cancel)
        except PerdureError as error:
            said.append(error.problem)
        return "; ".join(said)

    said = go(store, within)
    assert said.count("cannot be recorded inside an open edit") == 2
    assert "cancel cannot be recorded inside a step" in said


# -- asynchronous runs -----------------------------------------------------------------------------


@perdure.agent(dict, name="searching")
async def asearching(run: perdure.AsyncRun[dict]) -> str:
    return f"{await run.wait_for('word')} {await run.wait_for('word')}"


@perdure.agent(dict)
async def aasking(run: perdure.AsyncRun[dict]) -> list[Any]:
    first = await run.options(key="first").start(asearching, "search 1")
    second = await run.options(key="second").start(asearching, "search 2")
    said: list[Any] = [first.status]
    await first.signal("word", "one")
    await asyncio.gather(first.signal("word", "two"), second.cancel("not needed"))
    try:
        said.append(await second.result())
    except RunFailed as error:
        said.append(error.problem)
    said.append(await first.result())
    with pytest.raises(TypeError, match="must be awaited"):
        bool(first.cancel())
    return [*said, first.status, await first.cancel()]


def test_the_same_from_asynchronous_code(place: Place) -> None:
    async def main() -> Any:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(aasking, "a"))
            while not await store.runs("search 1") and not running.done():
                await asyncio.sleep(0.01)
            first = store.options(key="first").run(asearching, "search 1")
            assert await asyncio.wait_for(first, 60) == "one two"
            return await asyncio.wait_for(running, 60)

    expected = ["was cancelled: not needed", "one two", "done", False]
    kept = place.open()
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        said = asyncio.run(main())
    assert said[0] in ("pending", "running")  # who is to execute it may have begun it by then
    assert said[1:] == expected
    until(lambda: inbox(kept) == [], "the end of all messages")
