"""A fork of a run that has not ended: what that run does after the fork is made before, too."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

import perdure
from perdure import NeedsAttention, RunHandle, Store
from perdure.storage.log.reader import LogReader
from perdure.testing import run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import records, verify_all
from tests.engine.working import wait_until


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


class Till:
    """A run that pays as often as it is told to, and ends, or ends its turn, when it is told to."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.dies: list[str] = []

        @perdure.step
        def look(turn: int) -> int:
            return turn

        @perdure.tool(on_crash="ask")
        def pay(cents: int) -> str:
            if "before" in self.dies:
                self.dies.remove("before")
                raise CrashError
            self.paid.append(cents)
            return f"receipt {len(self.paid)}"

        @perdure.agent(dict)
        def act(run: perdure.Run[dict], turn: int = 1, said: str = "") -> Any:
            look(turn)
            while (cents := run.wait_for("pay", schema=int)) > 0:
                said += f" {pay(cents)}"
            if "at the end" in self.dies:
                self.dies.remove("at the end")
                raise CrashError
            return said.strip() if cents == 0 else run.again(turn + 1, said)

        self.look, self.act = look, act

    def begin(self, store: Store, effects: Any = "ask") -> tuple[RunHandle[Any], RunHandle[Any]]:
        """Returns a run that waits, and its fork."""
        handle = run_until_waiting(store, self.act, "a")
        return handle, handle.fork("look#1", branch="what-if", effects=effects)

    def go(self, store: Store, handle: RunHandle[Any], *cents: int) -> Any:
        """The run is told to pay so much, one after the other; returns what it came to."""
        for one in cents:
            handle.signal("pay", one)
        return run_until_waiting(store.options(key=handle.info.key), self.act, "a")


@pytest.fixture
def till() -> Till:
    return Till()


def made_before(store: Store, till: Till, handle: RunHandle[Any], *cents: int) -> str:
    for one in cents:
        handle.signal("pay", one)
    with pytest.raises(NeedsAttention, match="made before, at commit") as asked:
        store.options(key=handle.info.key).run(till.act, "a")
    return str(asked.value)


def test_what_the_run_paid_after_the_fork_is_not_paid_again(store: Store, till: Till) -> None:
    """A bill waited for its approval, and was forked as a what-if. It was approved and paid; then
    the what-if was, and paid the same again, unasked: it knew what had been done until it was
    made."""
    handle, fork = till.begin(store)
    till.go(store, handle, 7)
    asked = made_before(store, till, fork, 7)
    assert "or by the run that it was forked from: cents=7" in asked
    assert till.paid == [7]
    fork.settle("pay#1", done="receipt 1", by="ann")
    assert till.go(store, fork, 0).result() == "receipt 1"
    assert till.go(store, handle, 0).result() == "receipt 1"
    assert till.paid == [7]


def test_its_outcome_is_taken_over(store: Store, till: Till) -> None:
    handle, fork = till.begin(store, "reuse")
    till.go(store, handle, 7, 8)
    assert till.go(store, fork, 8, 7, 9, 0).result() == "receipt 2 receipt 1 receipt 3"
    assert till.paid == [7, 8, 9]


def test_a_live_fork_makes_it_again_under_another_key(store: Store, till: Till) -> None:
    handle, fork = till.begin(store, "live")
    till.go(store, handle, 7)
    assert till.go(store, fork, 7, 0).result() == "receipt 2"
    intents = [one for one in records(store, "a", "intent") if one.get("key")]
    assert len({one["key"] for one in intents}) == len(intents)


def test_what_the_run_is_doing_nobody_knows(place: Place, till: Till) -> None:
    """It died as it paid: nobody can say if it did, so that a fork asks, whatever was chosen."""
    store = place.open()
    handle, fork = till.begin(store, "reuse")
    till.dies.append("before")
    handle.signal("pay", 7)
    with pytest.raises(CrashError):
        store.run(till.act, "a")
    made_before(place.open(), till, fork, 7)
    assert till.paid == []


def test_a_fork_that_comes_first_pays_and_the_run_as_well(store: Store, till: Till) -> None:
    """The limit: a run does not look at its forks. What the fork was the first to pay is not
    asked about later, as if its origin's payment were another one."""
    handle, fork = till.begin(store)
    till.go(store, fork, 7)
    till.go(store, handle, 7)
    assert till.paid == [7, 7]
    assert till.go(store, fork, 7).status == "waiting"
    assert till.paid == [7, 7, 7], "the second of the fork; the run has paid once"
    till.go(store, handle, 7)
    till.go(store, handle, 7)
    assert till.paid == [7] * 5
    made_before(store, till, fork, 7)


def test_what_was_matched_is_known_after_a_crash(place: Place, till: Till) -> None:
    """Of two equal payments the fork had taken over one, and made none, when its process died: the
    next one must not take the same over again, nor pay what the run has paid."""
    store = place.open()
    handle, fork = till.begin(store, "reuse")
    till.go(store, handle, 7)
    till.go(store, fork, 7)
    till.go(store, handle, 7)
    till.dies.append("at the end")
    fork.signal("pay", 7)
    fork.signal("pay", 0)
    key = fork.info.key
    with pytest.raises(CrashError):
        store.options(key=key).run(till.act, "a")
    assert place.open().options(key=key).run(till.act, "a") == "receipt 1 receipt 2"
    assert till.paid == [7, 7]


def test_a_fork_that_is_set_back_has_left_its_own_payment_not_two(store: Store, till: Till) -> None:
    handle, fork = till.begin(store)
    till.go(store, fork, 7, 0)
    till.go(store, handle, 7, 8)
    fork.retry("look#1", effects="reuse")  # what it was told comes again
    assert till.go(store, fork).result() == "receipt 1"
    assert till.paid == [7, 7, 8]


def test_a_fork_of_a_fork_knows_both(store: Store, till: Till) -> None:
    handle, fork = till.begin(store, "reuse")
    other = fork.fork("look#1", branch="other", effects="reuse")
    till.go(store, handle, 7)
    till.go(store, fork, 7, 8)
    assert till.go(store, other, 8, 7, 9).status == "waiting"
    assert till.paid == [7, 8, 9]


def test_it_knows_what_came_to_be_known_by_the_end_of_its_turn(store: Store, till: Till) -> None:
    """The fork ended its turn, and came to the payment in the next one."""
    handle, fork = till.begin(store)
    till.go(store, handle, 7)
    assert till.go(store, fork, -1).info.turn == 2
    made_before(store, till, fork, 7)
    assert till.paid == [7]


def test_the_next_turns_of_the_run_are_its_own(store: Store, till: Till) -> None:
    """What each pays in each turn, a rent, is paid by each: the fork knows of the turn in which it
    was made, and no list grows with the life of its origin."""
    handle, fork = till.begin(store)
    till.go(store, handle, -1, 7, -1, 7)
    till.go(store, fork, 7, -1, 7)
    assert till.paid == [7, 7, 7, 7]


def test_runs_that_it_started_are_taken_over(store: Store, till: Till) -> None:
    @perdure.agent(dict)
    def ship(run: perdure.Run[dict], what: str) -> str:
        return f"sent {what}"

    @perdure.agent(dict)
    def order(run: perdure.Run[dict]) -> str:
        till.look(1)
        run.wait_for("go")
        return run.start(ship, "shop", "a book").id

    handle = run_until_waiting(store, order, "o")
    fork = handle.fork("look#1", branch="b", effects="reuse")
    asking = handle.fork("look#1", branch="c")
    for one in (handle, fork, asking):
        one.signal("go")
    started = store.run(order, "o")
    assert store.options(key=fork.info.key).run(order, "o") == started
    with pytest.raises(NeedsAttention, match="was started before"):
        store.options(key=asking.info.key).run(order, "o")
    assert len(store.runs("shop")) == 1


def test_in_an_event_loop(place: Place, runs: Async, crash: Crashes) -> None:
    @perdure.step
    async def look() -> None: ...

    @perdure.tool
    async def pay(cents: int) -> str:
        crash.note(cents)
        return f"receipt {len(crash.calls)}"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        await look()
        await run.wait_for("go")
        return await pay(7)

    handle = run_until_waiting(place.open(), act, "a")
    forks = [handle.fork("look#1", branch=one, effects=one) for one in ("reuse", "ask")]
    for one in (handle, *forks):
        one.signal("go")
    assert runs.run(act) == "receipt 1"
    assert runs.run(act, key=forks[0].info.key) == "receipt 1"
    with pytest.raises(NeedsAttention, match="made before, at commit"):
        runs.run(act, key=forks[1].info.key)
    assert crash.calls == [7]


def test_both_at_work_at_the_same_time(store: Store, till: Till) -> None:
    """Each of their payments is in the log before it is made: one that the fork comes to when the
    other's is there is found, whoever executes them."""
    handle, fork = till.begin(store, "reuse")
    origin = Thread(target=store.run, args=(till.act, "a"))
    origin.start()
    for _ in range(3):
        handle.signal("pay", 7)
    wait_until(lambda: len(till.paid) == 3)
    till.go(store, fork, 7, 7, 7)
    handle.signal("pay", 7)
    wait_until(lambda: len(till.paid) == 4)
    assert till.go(store, fork, 7, 0).result() == " ".join(f"receipt {n}" for n in (1, 2, 3, 4))
    handle.signal("pay", 0)
    origin.join()
    assert till.paid == [7] * 4


def test_each_commit_is_read_once_and_none_for_a_run_that_is_no_fork(
    place: Place, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    handle, fork = till.begin(store, "reuse")
    for n in range(20):
        handle.signal("pay", n + 1)
        fork.signal("pay", n + 1)
    till.go(store, handle)
    read: list[int] = []
    honest = LogReader.commits

    def counting(self: LogReader, first: int, last: int, **more: Any) -> Any:
        for commit in honest(self, first, last, **more):
            read.append(commit.seq)
            yield commit

    monkeypatch.setattr(LogReader, "commits", counting)
    till.go(store, fork)
    monkeypatch.undo()
    assert till.paid == [n + 1 for n in range(20)]
    assert len(read) <= len(set(read)) + 5, "beside the few that begin the run"
    monkeypatch.setattr(LogReader, "commits", counting)
    read.clear()
    for n in range(20):
        handle.signal("pay", 100 + n)
    till.go(store, handle)
    assert not read
