"""Turns: the function is called anew, its state stays, and what came before is never replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure.engine.journal.journal import Journal
from perdure.errors import Conflict, RunFailed, TimedOut
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import HOUR, Clock, at_every_boundary, commits, go, records, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@perdure.step
def think(text: str) -> str:
    return f"thought of {text}"


@perdure.agent(dict)
def chat(run: perdure.Run[dict], turn: int, last: int) -> Any:
    with run.edit("counts") as draft:
        draft["turns"] = draft.get("turns", 0) + 1
    think(f"turn {turn}")
    think("more")
    if turn < last:
        return run.again(turn + 1, last=last)
    return f"{run.state['turns']} turns"


def test_state_stays_and_arguments_are_others(store: Store) -> None:
    assert store.run(chat, "a", 1, 5) == "5 turns"
    info = store.handle("a/chat/main").info
    assert (info.turn, info.status) == (5, "done")
    assert info.started < info.turn_at < info.ended
    previews = [r["preview"] for r in records(store, kind="step") if "turn" in r["preview"]]
    assert len(previews) == 5 and "turn 5" in previews[-1]
    assert [r["input"] for r in records(store, kind="run-turn")] == [
        [[turn], {"last": 5}] for turn in (2, 3, 4, 5)
    ]


def test_asked_for_by_its_first_arguments_it_gives_the_final_result(place: Place) -> None:
    """The run is one command, given once: by what it was asked for it is known, not by what it
    calls itself with."""
    assert place.open().run(chat, "a", 1, 3) == "3 turns"
    store = place.open()
    assert store.run(chat, "a", 1, 3) == "3 turns"
    with pytest.raises(Conflict, match="other arguments"):
        store.run(chat, "a", 3, last=3)
    assert store.handle("a/chat/main").result(0) == "3 turns"


def counting_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each journal has that is read from now on."""
    read: list[int] = []
    reading = Journal.read.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, *args: Any) -> Any:
        journal = reading(cls, *args)
        read.append(len(journal.entries))
        return journal

    monkeypatch.setattr(Journal, "read", classmethod(counted))
    return read


def test_the_history_before_is_not_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that has lived for a thousand turns must not need longer for each next one."""
    read = counting_reads(monkeypatch)
    assert store.run(chat, "a", 1, 30) == "30 turns"
    assert len(read) == 30 and max(read) == 0


def test_after_a_crash_only_the_turn_at_hand_is_gone_over(
    place: Place, crash: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    @perdure.agent(dict)
    def living(run: perdure.Run[dict], turn: int) -> Any:
        crash.note(turn)
        think(f"turn {turn}")
        think("more")
        if turn == 20:
            crash("late")
        return run.again(turn + 1) if turn < 21 else "old"

    crash.arm("late")
    with pytest.raises(CrashError):
        place.open().run(living, "a", 1)
    store = place.open()
    crash.calls.clear()
    read = counting_reads(monkeypatch)
    assert store.run(living, "a", 1) == "old"
    assert crash.calls == [20, 21]
    assert max(read) == 2, "the two steps of turn 20"


def test_keys_of_tool_calls_differ_between_turns_and_the_ledger_has_them_all(
    store: Store, crash: Crashes
) -> None:
    """The places are the same in each turn: a receiver took the second turn's payment for the
    first one's, and ignored it; the ledger showed one of them."""

    @perdure.tool(on_crash="retry")
    def pay(cents: int) -> int:
        crash.note(perdure.idempotency_key())
        crash("paid")
        return cents

    @perdure.agent(dict)
    def paying(run: perdure.Run[dict], turn: int) -> Any:
        pay(turn)
        return run.again(turn + 1) if turn < 3 else "done"

    crash.arm("paid")
    with pytest.raises(CrashError):
        store.run(paying, "a", 1)
    assert store.run(paying, "a", 1) == "done"
    first, again, second, third = crash.calls
    assert first == again and len({first, second, third}) == 3
    effects = store.handle("a/paying/main").effects()
    assert [(one.place, one.result, one.attempts) for one in effects] == [
        ("pay#1", 1, 2),
        ("pay#1", 2, 1),
        ("pay#1", 3, 1),
    ]


def test_a_doubtful_call_of_a_later_turn_is_settled(store: Store, crash: Crashes) -> None:
    @perdure.tool
    def pay(turn: int) -> str:
        crash(f"turn {turn}")
        return f"paid {turn}"

    @perdure.agent(dict)
    def paying(run: perdure.Run[dict], turn: int) -> Any:
        paid = pay(turn)
        return run.again(turn + 1) if turn < 2 else paid

    crash.arm("turn 2")
    with pytest.raises(CrashError):
        store.run(paying, "a", 1)
    with pytest.raises(perdure.NeedsAttention):
        store.run(paying, "a", 1)
    handle = store.handle("a/paying/main")
    assert [effect.state for effect in handle.effects()] == ["done", "in doubt"]
    handle.settle("pay#1", done="paid by hand")
    assert store.run(paying, "a", 1) == "paid by hand"


def test_a_crash_around_the_turn_is_none_to_the_function(place: Place) -> None:
    done: dict[str, list[int]] = {}

    @perdure.agent(dict)
    def turning(run: perdure.Run[dict], agent: str, turn: int) -> Any:
        with run.edit(f"turn {turn}") as draft:
            draft["sum"] = draft.get("sum", 0) + turn
        done.setdefault(agent, []).append(turn)
        return run.again(agent, turn + 1) if turn < 3 else run.state["sum"]

    lost = 0
    for where, store, agent, end in at_every_boundary(
        place, lambda store, agent: store.run(turning, agent, agent, 1)
    ):
        assert end == 6 and store.agent(agent).state == {"sum": 6}, where
        assert done[agent] == sorted(done[agent]), where
        lost += 1
    assert lost >= 12


def test_what_waited_for_a_commit_is_in_the_turns_own(store: Store, crash: Crashes) -> None:
    """A signal was taken, and the turn ended before anything else was committed: after a crash the
    signal came once more."""

    @perdure.agent(dict)
    def reading(run: perdure.Run[dict], found: list[Any]) -> Any:
        crash(f"begin {len(found)}")
        if len(found) == 2:
            return found
        return run.again([*found, run.wait_for("s"), run.random() < 2])

    handle = store.start(reading, "a", [])
    for value in (1, 2):
        handle.signal("s", value)
    crash.arm("begin 2")
    with pytest.raises(CrashError):
        store.run(reading, "a", [])
    assert store.run(reading, "a", []) == [1, True]
    assert store.runner._context.backend.inbox() == [], "the run's end takes out what is left"


def test_again_is_what_the_function_returns_however_deep_it_was_made(store: Store) -> None:
    @perdure.agent(dict)
    def deep(run: perdure.Run[dict], n: int) -> Any:
        def next_turn() -> Any:
            return run.again(n + 1)

        run.again(99)  # not returned: nothing
        return next_turn() if n < 3 else n

    assert store.run(deep, "a", 1) == 3


def test_again_with_what_is_no_call_of_the_function_fails_the_run(store: Store) -> None:
    def of(*args: Any, **kwargs: Any) -> Any:
        @perdure.agent(dict)
        def wrong(run: perdure.Run[dict], n: int = 0) -> Any:
            return run.again(*args, **kwargs)

        return wrong

    with pytest.raises(TypeError):
        store.options(key="1").run(of(1, 2), "a")
    with pytest.raises(TypeError):
        store.options(key="2").run(of(m=1), "a")
    with pytest.raises(perdure.Unstorable):
        store.options(key="3").run(of(object()), "a")
    assert [run.status for run in store.runs()] == ["failed"] * 3
    with pytest.raises(TypeError):
        store.options(key="2").run(of(m=1), "a")


def test_a_step_cannot_end_the_turn(store: Store) -> None:
    @perdure.agent(dict)
    def stepping(run: perdure.Run[dict]) -> Any:
        return run.call(lambda: run.again())

    with pytest.raises(perdure.PerdureError):
        store.run(stepping, "a")


def test_a_deadline_holds_over_all_turns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked up in the commit that began the turn: from the second turn on, in another
    process, there was none."""
    clock = Clock(monkeypatch)

    @perdure.agent(dict)
    def chatting(run: perdure.Run[dict], n: int) -> Any:
        run.wait_for("s")
        return run.again(n + 1)

    handle = place.open().options(deadline=timedelta(hours=3)).start(chatting, "a", 1)
    for _ in range(2):
        go(place.open(), chatting, "a", 1)
        clock.forward(HOUR)
        handle.signal("s")
        place.opened[-1].runner.close()
    store = place.open()
    go(store, chatting, "a", 1)
    due = handle.info.wake_at_micros
    assert due and handle.info.turn == 3
    clock.forward(HOUR + 1)
    with pytest.raises(TimedOut, match="deadline"):
        go(store, chatting, "a", 1)
    assert handle.status == "failed"


def test_cancelled_between_turns_it_has_no_next_one(store: Store) -> None:
    """A chatty agent whose turns hold no durable call could not be stopped."""

    @perdure.agent(dict)
    def endless(run: perdure.Run[dict], n: int) -> Any:
        if n == 5:
            store.handle(run.id).cancel("enough")
        assert n < 1000
        return run.again(n + 1)

    with pytest.raises(RunFailed, match="enough"):
        store.run(endless, "a", 1)
    assert store.handle("a/endless/main").info.turn <= 6


def test_asynchronous_runs_have_turns_too(place: Place) -> None:
    @perdure.agent(dict)
    async def chatting(run: perdure.AsyncRun[dict], n: int) -> Any:
        async with run.edit("counts") as draft:
            draft["n"] = n
        await run.call(think, str(n))
        return run.again(n + 1) if n < 4 else run.state["n"]

    async def main() -> Any:
        async with perdure.open_async(place.url, durability="os") as store:
            return await store.run(chatting, "a", 1)

    assert asyncio.run(main()) == 4
    store = place.open()
    assert store.handle("a/chatting/main").info.turn == 4
    assert [c.cause.kind for c in commits(store)].count("run-turn") == 3
