"""Tool calls of a run that was set back, or forked: none is repeated or skipped unasked."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import NeedsAttention, Store
from perdure.testing import Ending, replay
from tests.engine.conftest import Async, CrashError, Crashes
from tests.engine.kills import kill_program_at_every_other_boundary


class Bank:
    """What was paid, under which keys; and what the functions are to do."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, str]] = []
        self.times = 2
        self.crash = ""

    @property
    def cents(self) -> list[int]:
        return [cents for cents, _ in self.paid]

    def die(self, where: str) -> None:
        if self.crash == where:
            self.crash = ""
            raise CrashError(where)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def pay(bank: Bank) -> Any:
    @perdure.tool(on_crash="retry")
    def pay(cents: int) -> str:
        bank.die("pay")
        bank.paid.append((cents, perdure.idempotency_key()))
        return f"receipt {len(bank.paid)}"

    return pay


@pytest.fixture
def paying(bank: Bank, pay: Any) -> Any:
    @perdure.step
    def note(number: int) -> int:
        bank.die(f"note {number}")
        return number

    @perdure.agent(dict)
    def paying(run: perdure.Run[dict]) -> list[str]:
        receipts = []
        for number in range(bank.times):
            receipts.append(pay(7))
            note(number)
        return receipts

    return paying


def test_a_call_settled_as_not_done_is_no_outcome_to_reuse(
    store: Store, bank: Bank, pay: Any
) -> None:
    """`reuse` took over the outcome "not done" as if it were a result: the run said that it had
    paid, and nobody had."""

    @perdure.agent(dict)
    def once(run: perdure.Run[dict]) -> str:
        return f"paid: {ask_pay(5)}"

    @perdure.tool
    def ask_pay(cents: int) -> str:
        bank.die("pay")
        bank.paid.append((cents, perdure.idempotency_key()))
        return "receipt"

    bank.crash = "pay"
    with pytest.raises(CrashError):
        store.run(once, "a")
    with pytest.raises(NeedsAttention):
        store.run(once, "a")
    handle = store.handle("a/once/main")
    handle.settle("ask_pay#1", not_done=True)
    handle.cancel()
    handle.retry("ask_pay#1", effects="reuse")
    assert store.run(once, "a") == "paid: receipt"
    assert bank.cents == [5]
    assert [effect.state for effect in handle.effects()] == ["not done", "done"]


def test_what_is_in_doubt_has_no_outcome_to_reuse(store: Store, bank: Bank, paying: Any) -> None:
    """Nobody knows what it gave: that is for a person to say, also under `reuse`."""
    bank.crash = "pay"
    with pytest.raises(CrashError):
        store.run(paying, "a")
    store.handle("a/paying/main").fork("pay#1", branch="b", effects="reuse")
    with pytest.raises(NeedsAttention, match="made before"):
        store.options(key="main@b").run(paying, "a")
    assert bank.cents == []


@pytest.mark.parametrize("effects", ["reuse", "ask"])
@pytest.mark.parametrize("where", ["note 0", "note 1", "note 2"])
def test_after_a_crash_no_call_is_found_twice(
    store: Store, bank: Bank, paying: Any, where: str, effects: Any
) -> None:
    """What a run had found made before was forgotten when it was killed: the first payment's
    outcome was taken for the second and for the third, which was new, and was never made."""
    first = store.run(paying, "a")
    bank.times, bank.crash = 3, where
    handle = store.handle("a/paying/main").fork("pay#1", branch="b", effects=effects)
    again = store.options(key="main@b")
    asked = []
    while handle.status != "done":
        try:
            again.run(paying, "a")
        except CrashError:
            pass
        except NeedsAttention:
            made = [effect for effect in handle.effects() if effect.state == "made before"]
            asked += [(effect.place, effect.made_at) for effect in made]
            handle.settle(made[0].place, done=first[len(asked) - 1])
    assert handle.result() == ["receipt 1", "receipt 2", "receipt 3"]
    assert bank.cents == [7, 7, 7], "the third is new, and is made once"
    origin = [effect.seq - 1 for effect in store.handle("a/paying/main").effects()]
    assert asked == (
        [] if effects == "reuse" else list(zip(["pay#1", "pay#2"], origin, strict=True))
    )


def test_a_call_taken_over_is_no_second_call_to_take_over(
    store: Store, bank: Bank, paying: Any
) -> None:
    """A fork of a fork found each payment twice, as it was made and as the first fork had taken it
    over: two new payments were never made."""
    store.run(paying, "a")
    first = store.handle("a/paying/main").fork("pay#1", branch="b", effects="reuse")
    store.options(key="main@b").run(paying, "a")
    bank.times = 4
    first.fork("pay#1", branch="c", effects="reuse", key="third")
    given = store.options(key="third").run(paying, "a")
    assert given == [f"receipt {number}" for number in (1, 2, 3, 4)]
    assert bank.cents == [7] * 4


def test_a_fork_of_a_fork_knows_what_the_first_one_made(store: Store, bank: Bank, pay: Any) -> None:
    """A fork of a fork, from a later step, read only what was made after that step: the payment
    that the origin had made was made again, and nobody was asked."""

    @perdure.step
    def look(number: int) -> int:
        bank.die(f"look {number}")
        return number

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        look(1)
        for number in range(bank.times, 4):
            look(number)
        return str(pay(9))

    store.run(act, "a")
    bank.times, bank.crash = 2, "look 3"
    first = store.handle("a/act/main").fork("look#1", branch="b")
    with pytest.raises(CrashError):
        store.options(key="main@b").run(act, "a")
    first.fork("look#2", branch="c", key="third")
    with pytest.raises(NeedsAttention, match="made before"):
        store.options(key="third").run(act, "a")
    assert bank.cents == [9]


def test_what_was_chosen_last_counts(store: Store, bank: Bank, paying: Any) -> None:
    """Of a run that was set back twice, the choice of the first time counted: it had been `live`,
    and now it was to ask."""
    store.run(paying, "a")
    handle = store.handle("a/paying/main")
    handle.retry("pay#1", effects="live")
    assert store.run(paying, "a") == ["receipt 3", "receipt 4"]
    handle.retry("pay#2", effects="ask")
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(paying, "a")
    assert len(bank.paid) == 4


def test_calls_of_several_lives_are_not_mixed_up(store: Store, bank: Bank, pay: Any) -> None:
    """What was called at a place before and after a run was set back was read as one call, with
    the arguments of the first and the outcome of the second."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return str(pay(bank.times))

    assert store.run(act, "a") == "receipt 1"
    handle = store.handle("a/act/main")
    bank.times = 3
    handle.retry("pay#1", effects="reuse")
    assert store.run(act, "a") == "receipt 2"
    assert [(one.preview, one.result) for one in handle.effects()] == [
        ("cents=2", "receipt 1"),
        ("cents=3", "receipt 2"),
    ]
    bank.times = 2
    handle.retry("pay#1", effects="reuse")
    assert store.run(act, "a") == "receipt 1"
    assert bank.cents == [2, 3]


def test_made_again_it_stands_for_the_first(store: Store, bank: Bank, paying: Any) -> None:
    """A payment made again on purpose is the one that a later fork takes over: not both of them,
    which would leave a new payment unmade."""
    bank.times = 1
    store.run(paying, "a")
    handle = store.handle("a/paying/main")
    handle.retry("pay#1", effects="live")
    assert store.run(paying, "a") == ["receipt 2"]
    bank.times = 2
    handle.retry("pay#1", effects="reuse")
    assert store.run(paying, "a") == ["receipt 2", "receipt 3"]


def test_decided_to_be_made_again_its_crash_policy_counts(
    store: Store, bank: Bank, paying: Any
) -> None:
    """A call that somebody wanted made again, and that a crash then left in doubt, asked once more,
    and said that it was made before the run was set back: it was in doubt, and to be retried."""
    bank.times = 1
    store.run(paying, "a")
    handle = store.handle("a/paying/main").fork("pay#1", branch="b")
    again = store.options(key="main@b")
    with pytest.raises(NeedsAttention):
        again.run(paying, "a")
    handle.settle("pay#1", not_done=True)
    bank.crash = "pay"
    with pytest.raises(CrashError):
        again.run(paying, "a")
    assert [(one.state, one.attempts) for one in handle.effects()] == [("in doubt", 1)]
    assert again.run(paying, "a") == ["receipt 2"]


def test_a_call_made_before_says_so_outside(store: Store, bank: Bank, paying: Any) -> None:
    """The ledger called it "in doubt", in its second attempt, and to be repeated with the same key:
    nothing of that was so."""
    store.run(paying, "a")
    handle = store.handle("a/paying/main").fork("pay#1", branch="b")
    with pytest.raises(NeedsAttention):
        store.options(key="main@b").run(paying, "a")
    (one,) = handle.effects()
    made = store.handle("a/paying/main").effects()[0]
    assert (one.state, one.attempts, one.made_at) == ("made before", 0, made.seq - 1)
    assert one.key != made.key
    assert one.open and not made.open


# -- in tasks and on threads ------------------------------------------------------------------


def test_a_call_moved_to_a_thread_is_the_same_call(store: Store, bank: Bank, pay: Any) -> None:
    """Calls were compared with the path of their task: moved into `run.map`, the payment was new,
    and was made a second time, unasked."""

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        look()
        return pay(70) if bank.times == 2 else run.map(pay, [70, 80])

    store.run(act, "a")
    bank.times = 3
    origin = store.handle("a/act/main")
    origin.fork("look#1", branch="b")
    with pytest.raises(NeedsAttention, match="made before"):
        store.options(key="main@b").run(act, "a")
    assert bank.cents.count(70) == 1
    origin.fork("look#1", branch="c", effects="reuse")
    assert store.options(key="main@c").run(act, "a")[0] == "receipt 1"
    assert bank.cents.count(70) == 1


def under_way(bank: Bank, entered: threading.Event, go_on: threading.Event) -> Any:
    """An agent function whose payment is under way when its step is recorded."""

    @perdure.tool(on_crash="retry")
    def pay(cents: int) -> str:
        entered.set()
        assert go_on.wait(30)
        bank.paid.append((cents, perdure.idempotency_key()))
        return f"receipt {len(bank.paid)}"

    @perdure.step
    def look() -> str:
        assert entered.wait(30)
        return "looked"

    @perdure.step
    def last() -> str:
        go_on.set()
        return "last"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        with run.executor() as threads:
            paid = threads.submit(pay, 1)
            looked = threads.submit(lambda: [look(), last()])
            return [paid.result(), *looked.result()]

    return act


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("effects", ["reuse", "ask", "live"])
def test_a_call_under_way_at_the_step_was_made(
    store: Store, bank: Bank, in_place: bool, effects: Any
) -> None:
    """Set back to a step beside which a payment was under way, the run took that to be in doubt: it
    was repeated, unasked and under the same key, so that its receiver would have ignored it. What
    became of it was in the log."""
    act = under_way(bank, threading.Event(), threading.Event())
    assert store.run(act, "a") == ["receipt 1", "looked", "last"]
    handle = store.handle("a/act/main")
    (step,) = [one.place for one in handle.report().events if one.place.endswith("last#1")]
    if in_place:
        handle.retry(step, effects=effects)
    else:
        handle = handle.fork(step, branch="b", effects=effects)
    again = store.options(key=handle.info.key)
    if effects == "ask":
        with pytest.raises(NeedsAttention, match="made before"):
            again.run(act, "a")
        assert len(bank.paid) == 1
        (asked,) = [one for one in handle.effects() if one.state == "made before"]
        handle.settle(asked.place, not_done=True)
    number = 1 if effects == "reuse" else 2
    assert again.run(act, "a") == [f"receipt {number}", "looked", "last"]
    assert len({key for _, key in bank.paid}) == number, "made again, it is another call"
    store.agent("a").verify()


@pytest.mark.parametrize("effects", ["reuse", "ask", "live"])
def test_a_coroutine_under_way_at_the_step_was_made(
    runs: Async, crash: Crashes, effects: Any
) -> None:
    """The same in an event loop."""
    looked = asyncio.Event()

    @perdure.tool(on_crash="retry")
    async def pay(cents: int) -> int:
        if not crash.calls:
            await looked.wait()
        crash.note((cents, perdure.idempotency_key()))
        return len(crash.calls)

    @perdure.step
    async def look() -> str:
        return "looked"

    @perdure.step
    async def last() -> str:
        looked.set()
        return "last"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[Any]:
        nonlocal looked
        looked = asyncio.Event()

        async def seeing() -> list[str]:
            return [await look(), await last()]

        paid, seen = await asyncio.gather(pay(1), seeing())
        return [paid, *seen]

    assert runs.run(act) == [1, "looked", "last"]
    origin = runs.store.handle("a/act/main")
    (step,) = [one.place for one in origin.report().events if one.place.endswith("last#1")]
    origin.retry(step, effects=effects)
    if effects == "ask":
        with pytest.raises(NeedsAttention, match="made before"):
            runs.run(act)
        assert len(crash.calls) == 1
        (asked,) = [one for one in origin.effects() if one.open]
        origin.settle(asked.place, not_done=True)
    number = 1 if effects == "reuse" else 2
    assert runs.run(act) == [number, "looked", "last"]
    assert len({key for _, key in crash.calls}) == number


# -- killed anywhere --------------------------------------------------------------------------


where = Path()
"""Of the process that is killed: where its store and its bank are."""


def transfers() -> list[str]:
    path = where / "paid"
    return path.read_text().splitlines() if path.exists() else []


def found(cents: int) -> Any:
    key = perdure.idempotency_key()
    return cents if f"{cents} {key}" in transfers() else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=found)
def transfer(cents: int) -> int:
    with open(where / "paid", "a") as file:
        file.write(f"{cents} {perdure.idempotency_key()}\n")
    return cents


@perdure.agent(dict)
def transferring(run: perdure.Run[dict]) -> list[int]:
    done = [transfer(7), transfer(7)]
    done += run.map(transfer, [7, 9], limit=2)
    if (where / "more").exists():
        done += [transfer(7), transfer(8)]
    return done


def come(folder: Path) -> None:
    global where
    where = folder


def prepare(folder: Path) -> None:
    """A run that is done, before the code changes."""
    folder.mkdir()
    come(folder)
    with perdure.open(folder / "m.db", durability="os") as store:
        assert store.run(transferring, "m") == [7, 7, 7, 9]
    (folder / "more").touch()


def go_back(store: Store, way: str, effects: Any) -> perdure.RunHandle[Any]:
    """Once, however often it is killed meanwhile."""
    origin = store.handle("m/transferring/main")
    if way == "retry":
        if not any(event.kind == "set back" for event in origin.report().events):
            origin.retry("transfer#2", effects=effects)
        return origin
    if len(store.runs("m")) == 1:
        origin.fork("transfer#2", branch="b", effects=effects)
    return store.handle("m/transferring/main@b")


@pytest.mark.parametrize(
    ("way", "effects", "first"),
    [("fork", "reuse", 0), ("retry", "ask", 1), ("retry", "reuse", 0), ("fork", "live", 1)],
)
def test_killed_anywhere_each_transfer_is_made_as_often_as_decided(
    tmp_path: Path, way: str, effects: Any, first: int
) -> None:
    prepare(tmp_path / "origin")

    def program(folder: Path) -> Any:
        come(folder)
        if not (folder / "more").exists():
            for name in ("m.db", "paid", "more"):
                shutil.copy(tmp_path / "origin" / name, folder / name)
        with perdure.open(folder / "m.db", durability="os") as store:
            handle = go_back(store, way, effects)
            while True:
                try:
                    result = store.options(key=handle.info.key).run(transferring, "m")
                    return result, store.agent("m").verify().commits
                except NeedsAttention:
                    one = next(effect for effect in handle.effects() if effect.open)
                    assert one.state == "made before"
                    handle.settle(one.place, done=int(one.preview.removeprefix("cents=")))

    def check(end: Ending) -> None:
        assert end.error is None, (end.killed_at, end.error)
        assert end.result[0] == [7, 7, 7, 9, 7, 8], end.killed_at
        come(end.folder)
        paid = [line.split() for line in transfers()]
        assert len({key for _, key in paid}) == len(paid), end.killed_at
        again = ["7", "7", "9"] if effects == "live" else []
        made = sorted(cents for cents, _ in paid)
        assert made == sorted(["7", "7", "7", "9", "7", "8", *again]), end.killed_at

    assert kill_program_at_every_other_boundary(program, check, tmp_path, first) > 5


def test_what_is_taken_over_comes_in_its_turn() -> None:
    """It came to its task at once, ahead of the calls beside it that were recorded before it. What
    the function made of that order was another when the run was gone over again, and it stopped."""

    @perdure.step
    async def look(number: int) -> int:
        return number

    @perdure.tool(on_crash="retry")
    def send(number: int) -> int:
        return number

    @perdure.step
    async def report(order: list[int]) -> list[int]:
        return order

    @perdure.agent(dict)
    async def ask(run: perdure.AsyncRun[Any]) -> list[int]:
        order: list[int] = []

        async def one(function: Any, number: int) -> None:
            await run.call(function, number)
            order.append(number)

        await asyncio.gather(one(look, 1), one(look, 2), one(send, 3), one(look, 4))
        return await report(order)

    async def again() -> None:
        async with perdure.open_async("memory://") as store:
            await store.run(ask, "a")
            await (await store.handle("a/ask/main")).retry("one#1/look#1", effects="reuse")
            order = await store.run(ask, "a")
            assert sorted(order) == [1, 2, 3, 4]
            found = await asyncio.to_thread(lambda: replay(store._store, ask))
            assert found.check() == order

    asyncio.run(again())
