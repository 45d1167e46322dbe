"""What a run did in a history that it left is known in all of its later turns: nothing is done
twice unasked."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import perdure
from perdure import NeedsAttention, Store
from perdure.engine.execution import run_inbox
from perdure.engine.journal import left_history
from perdure.storage.log.reader import LogReader
from perdure.testing import replay, run_until_waiting
from tests.engine import left_programs
from tests.engine.conftest import Async, CrashError, Place
from tests.engine.waits import records, verify_all
from tests.engine.working import wait_until, working


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


class Desk:
    """A program whose model says what it does next; and what was paid, under which keys.

    Attributes:
        says: what the model says next, once each: ``pay N``, ``again``, ``fail`` or ``end``. It
            says ``end`` for ever.
        dies: paying ends the process behind the payment.
    """

    def __init__(self) -> None:
        self.says: list[str] = []
        self.paid: list[tuple[int, str]] = []
        self.dies = False
        desk = self

        @perdure.step
        def plan() -> str:
            return desk.says.pop(0) if desk.says else "end"

        @perdure.tool(on_crash="ask")
        def pay(cents: int) -> str:
            desk.paid.append((cents, perdure.idempotency_key()))
            if desk.dies:
                desk.dies = False
                raise CrashError
            return f"receipt {len(desk.paid)}"

        @perdure.agent(dict)
        def act(run: perdure.Run[dict], turn: int = 1, last: str = "") -> Any:
            while (said := plan()) != "end":
                if said == "again":
                    return run.again(turn + 1, last)
                if said == "fail":
                    raise RuntimeError("the mail server is down")
                last += f" {pay(int(said.removeprefix('pay ')))}"
            return last.strip()

        self.plan, self.pay, self.act = plan, pay, act

    def lives(self, store: Store, *says: str) -> None:
        """The run goes on, with a model that says this, until it fails."""
        self.says[:] = [*says, "fail"]
        with pytest.raises(RuntimeError, match="mail server"):
            store.run(self.act, "a")
        assert not self.says

    def ends(self, store: Store, *says: str, key: str = "main") -> Any:
        self.says[:] = says
        return store.options(key=key).run(self.act, "a")

    def asks(self, store: Store, *says: str, match: str = "made before, at commit") -> None:
        self.says[:] = says
        for _ in range(2):  # asked for again, it asks again
            with pytest.raises(NeedsAttention, match=match):
                store.run(self.act, "a")

    @property
    def cents(self) -> list[int]:
        return [cents for cents, _ in self.paid]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def handle(store: Store, desk: Desk) -> perdure.RunHandle[Any]:
    """A run that has paid in its first turn, and failed."""
    desk.lives(store, "pay 500")
    return store.handle("a/act/main")


@pytest.mark.parametrize("turns", [1, 3])
def test_a_payment_is_not_made_again_in_the_next_turn(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any], turns: int
) -> None:
    """A run had paid, and its mail could not be sent. It was set back to where its model had been
    asked, and this time the model ended the turn first. In the next one the run came to the same
    payment, and made it again, under another key: nobody was asked, as what it had left was
    forgotten with the turn."""
    handle.retry("plan#1")
    desk.asks(store, *["again"] * turns, "pay 500")
    assert desk.cents == [500]
    (effect,) = [one for one in handle.effects() if one.open]
    assert (effect.place, effect.state, effect.made_at > 0) == ("pay#1", "made before", True)
    handle.settle("pay#1", done="receipt 1")
    assert desk.ends(store, "pay 500") == "receipt 1 receipt 2", "a second one is a new one"
    assert desk.cents == [500, 500]
    assert len(set(desk.paid)) == 2
    assert replay(store, desk.act, handle.id).check() == "receipt 1 receipt 2"


@pytest.mark.parametrize("fork", [True, False])
@pytest.mark.parametrize("turns", [1, 3])
def test_its_outcome_is_reused_in_the_next_turn(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any], fork: bool, turns: int
) -> None:
    key = "main"
    if fork:
        key = handle.fork("plan#1", branch="b", effects="reuse").info.key
    else:
        handle.retry("plan#1", effects="reuse")
    assert desk.ends(store, *["again"] * turns, "pay 500", key=key) == "receipt 1"
    assert desk.cents == [500]


def test_made_again_on_purpose_it_replaces_the_first(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any]
) -> None:
    handle.retry("plan#1", effects="live")
    desk.lives(store, "again", "pay 500")
    assert desk.cents == [500, 500]
    handle.retry("plan#1", effects="reuse")
    assert desk.ends(store, "again", "pay 500", "pay 500") == "receipt 2 receipt 3"


def test_what_several_retries_left_in_several_turns_is_known(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any]
) -> None:
    """Of equal calls, the one that was made first answers first, and each for one."""
    handle.retry("plan#1")
    desk.lives(store, "again", "pay 7")
    handle.retry("plan#1")
    desk.lives(store, "again", "pay 8")
    handle.retry("plan#1", effects="reuse")
    said = "again", "pay 8", "pay 500", "again", "pay 7", "again", "pay 500", "end"
    assert desk.ends(store, *said) == "receipt 3 receipt 1 receipt 2 receipt 4"
    assert desk.cents == [500, 7, 8, 500]


def test_of_equal_payments_each_answers_for_one_the_first_made_first(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any]
) -> None:
    handle.retry("plan#1", effects="live")
    desk.lives(store, "again", "pay 500", "pay 500", "pay 500")  # the first replaces the one before
    handle.retry("plan#1", effects="reuse")
    said = "pay 500", "again", "pay 500", "again", "pay 500", "pay 500"
    assert desk.ends(store, *said) == "receipt 2 receipt 3 receipt 4 receipt 5"


def test_a_call_that_repeats_in_one_history_is_another_call(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any]
) -> None:
    """A rent that is paid in each turn is paid in each turn."""
    handle.retry("plan#1", effects="reuse")
    desk.lives(store, "pay 500", "again", "pay 500", "again", "pay 500")
    assert desk.cents == [500, 500, 500]
    handle.retry("plan#1")  # leaves the payment of the third turn, and that alone
    desk.asks(store, "again", "pay 500")
    handle.settle("pay#1", done="the third")
    assert desk.ends(store, "pay 500").endswith("the third receipt 4")


def test_what_is_in_doubt_is_asked_in_the_next_turn_too(store: Store, desk: Desk) -> None:
    desk.says, desk.dies = ["pay 500"], True
    with pytest.raises(CrashError):
        store.run(desk.act, "a")
    handle = store.handle("a/act/main")
    with pytest.raises(NeedsAttention, match="nobody knows"):
        store.run(desk.act, "a")
    handle.retry("plan#1", effects="reuse")
    desk.asks(store, "again", "pay 500")
    handle.settle("pay#1", done="receipt 1")
    assert desk.ends(store) == "receipt 1"
    assert desk.cents == [500]


@pytest.mark.parametrize("done", [True, False])
def test_what_a_person_says_of_it_turns_later_counts(store: Store, desk: Desk, done: bool) -> None:
    desk.says, desk.dies = ["pay 500"], True
    with pytest.raises(CrashError):
        store.run(desk.act, "a")
    handle = store.handle("a/act/main")
    with pytest.raises(NeedsAttention, match="nobody knows"):
        store.run(desk.act, "a")
    handle.retry("plan#1", effects="reuse")
    desk.lives(store, "again", "pay 7", "again")
    if done:
        handle.settle("pay#1", done="receipt 1")
    else:
        handle.settle("pay#1", not_done=True)
    handle.retry("plan#1", effects="reuse")
    assert desk.ends(store, "again", "pay 500").endswith("receipt 1" if done else "receipt 3")


def test_a_call_whose_second_making_was_not_done_was_made_once(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any]
) -> None:
    """The second payment, made in place of the first one, is in doubt, and left. A person finds
    that it was not done, turns later. The first one was."""
    handle.retry("plan#1", effects="live")
    desk.says, desk.dies = ["again", "pay 500"], True
    with pytest.raises(CrashError):
        store.run(desk.act, "a")
    with pytest.raises(NeedsAttention, match="nobody knows"):
        store.run(desk.act, "a")
    handle.retry("plan#1")
    desk.lives(store, "again")
    handle.settle("pay#1", not_done=True)
    handle.retry("plan#1", effects="reuse")
    assert desk.ends(store, "again", "pay 500") == "receipt 1"


def test_a_signal_with_the_key_of_a_payment_does_not_stand_for_it(store: Store, desk: Desk) -> None:
    """A bank gives a payment's idempotency key as that of its signal. A run that had left the
    payment took the signal, and paid again: it took the key for that of a call of its own."""

    @perdure.agent(dict)
    def heeding(run: perdure.Run[dict]) -> Any:
        if desk.plan() == "wait":
            run.wait_for("booked")
            desk.plan()
        got = desk.pay(5)
        if desk.plan() == "fail":
            raise RuntimeError
        return got

    desk.says = ["", "fail"]
    with pytest.raises(RuntimeError):
        store.run(heeding, "a")
    handle = store.handle("a/heeding/main")
    handle.retry("plan#1")
    handle.signal("booked", key=desk.paid[0][1])
    desk.says = ["wait"]
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(heeding, "a")
    assert desk.cents == [5]


# -- tasks, threads, coroutines -----------------------------------------------------------------


def test_made_in_a_thread_it_is_known_in_the_next_turn_in_any(store: Store, desk: Desk) -> None:
    """Those of the task that calls come first, then those made first."""

    @perdure.agent(dict)
    def acting(run: perdure.Run[dict], turn: int = 1) -> Any:
        if desk.plan() == "again":
            return run.again(turn + 1)
        first = [desk.pay(500)] if turn == 1 else []
        [*second] = run.map(desk.pay, [500, 7], limit=1)
        if desk.plan() == "fail":
            raise RuntimeError
        return [*first, *second, *([desk.pay(500)] if turn > 1 else [])]

    desk.says = ["", "fail"]
    with pytest.raises(RuntimeError):
        store.run(acting, "a")
    store.handle("a/acting/main").retry("plan#1", effects="reuse")
    desk.says = ["again"]
    assert store.run(acting, "a") == ["receipt 2", "receipt 3", "receipt 1"]
    assert desk.cents == [500, 500, 7]


def test_coroutines_know_it_too(runs: Async) -> None:
    paid: list[str] = []
    says = ["pay"]

    @perdure.step
    async def plan() -> str:
        return says.pop(0) if says else "end"

    @perdure.tool(on_crash="ask")
    async def pay(cents: int) -> str:
        paid.append(perdure.idempotency_key())
        return f"{cents}: {len(paid)}"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict], turn: int = 1) -> Any:
        if await plan() == "again":
            return run.again(turn + 1)
        got = await asyncio.gather(pay(1), pay(2))
        if await plan() == "fail":
            raise RuntimeError
        return got

    says[:] = ["pay", "fail"]
    with pytest.raises(RuntimeError):
        runs.run(act)
    handle = runs.store.handle("a/act/main")
    handle.retry("plan#1")
    says[:] = ["again"]
    for _ in range(2):
        with pytest.raises(NeedsAttention, match="made before"):
            runs.run(act)
        one = next(one for one in handle.effects() if one.open)
        handle.settle(one.place, done=f"{one.preview.removeprefix('cents=')}: said")
    assert runs.run(act) == ["1: said", "2: said"]
    assert len(paid) == 2


# -- runs that it started -----------------------------------------------------------------------


@pytest.fixture
def family(desk: Desk) -> tuple[Any, Any]:
    @perdure.agent(dict)
    def paying(run: perdure.Run[dict], cents: int) -> str:
        run.wait_for("go")
        return desk.pay(cents)

    @perdure.agent(dict)
    def shop(run: perdure.Run[dict], turn: int = 1) -> Any:
        if desk.plan() == "again":
            return run.again(turn + 1)
        return run.start(paying, "bank", 5).result()

    return shop, paying


def test_a_run_that_it_started_is_not_started_again_in_the_next_turn(
    store: Store, desk: Desk, family: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a fork waits for the one that its origin started, although it comes to that in a turn in
    which nothing of it is recorded."""
    monkeypatch.setattr(run_inbox, "LOOK_AGAIN_S", 0.05)
    shop, paying = family
    origin = store.start(shop, "a")
    with working(store, shop, paying):
        wait_until(lambda: origin.status == "waiting" and store.runs("bank"))
        (child,) = store.runs("bank")
        desk.says = ["again", "again"]
        fork = origin.fork("plan#1", branch="b", effects="reuse")
        wait_until(lambda: fork.status == "waiting")
        desk.says = ["again"]
        asking = origin.fork("plan#1", branch="c")
        with pytest.raises(NeedsAttention, match=f"run {child.id} was started before"):
            asking.result(timeout=30)
        asking.settle("start:paying#1", done=child.id)
        store.handle(child.id).signal("go")
        for one in (origin, fork, asking):
            assert one.result(timeout=30) == "receipt 1"
    assert len(store.runs("bank")) == 1


@dataclass
class OldReceipt:
    cents: int


@dataclass
class Receipt:
    cents: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@pytest.mark.parametrize("effects", ["ask", "reuse"])
def test_a_child_ends_in_the_next_turn_with_what_was_filled_in(store: Store, effects: Any) -> None:
    """With another id, the payment would be another one."""
    says: list[str] = []
    paid: list[str] = []

    @perdure.step
    def plan() -> str:
        return says.pop(0) if says else "go on"

    @perdure.tool(on_crash="ask")
    def pay(order: str) -> int:
        paid.append(order)
        return len(paid)

    def family(cls: Any) -> tuple[Any, Any]:
        def kid(run: perdure.Run[dict]) -> Any:
            return cls(5)

        kid.__annotations__["return"] = cls
        recorded = perdure.agent(dict)(kid)

        @perdure.agent(dict, name="parent")
        def parent(run: perdure.Run[dict], turn: int = 1) -> Any:
            if plan() == "again":
                return run.again(turn + 1)
            receipt = run.options(key="receipt").start(recorded, "kid").result()
            pay(receipt.id)
            return receipt.id

        return parent, recorded

    (_, old), (parent, _) = family(OldReceipt), family(Receipt)
    handle = run_until_waiting(store, parent, "a")
    store.options(key="receipt").run(old, "kid")
    order = store.run(parent, "a")
    says[:] = ["again", "again"]
    handle.retry("plan#1", effects=effects)
    if effects == "ask":
        with pytest.raises(NeedsAttention, match="made before"):
            store.run(parent, "a")
        handle.settle("pay#1", done=1)
    assert store.run(parent, "a") == order
    assert paid == [order]


# -- what it costs ------------------------------------------------------------------------------


def test_a_turn_reads_and_writes_no_more_after_many(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them says what was left; the others say where that is."""
    handle.retry("plan#1", effects="reuse")
    read: Counter[int] = Counter()
    commit = LogReader.commit
    ancestors = LogReader.ancestors
    turn = 0

    def counting_commit(self: LogReader, seq: int) -> Any:
        read[turn] += 1
        return commit(self, seq)

    def counting_ancestors(self: LogReader, head: int) -> Any:
        for one in ancestors(self, head):
            read[turn] += 1
            yield one

    monkeypatch.setattr(LogReader, "commit", counting_commit)
    monkeypatch.setattr(LogReader, "ancestors", counting_ancestors)
    plan = iter(range(1, 60))

    class Says(list[str]):
        def pop(self, _: Any = 0) -> str:
            nonlocal turn
            turn = next(plan, 0)
            return "again" if turn else super().pop(0)

    desk.says = Says(["pay 500", "end"])
    assert store.run(desk.act, "a") == "receipt 1"
    assert desk.cents == [500]
    assert read[58] <= read[3], read
    turns = records(store, kind="run-turn")
    assert ["left" in one for one in turns] == [True] + [False] * 58
    assert len({one["left_at"] for one in turns[1:]}) == 1
    sizes = [len(repr(one)) for one in turns]
    assert sizes[-1] < sizes[0] / 2


def test_a_run_that_left_nothing_says_nothing(store: Store, desk: Desk) -> None:
    desk.lives(store, "pay 500")
    handle = store.handle("a/act/main")
    handle.retry("plan#2")  # behind the payment
    desk.ends(store, "again", "pay 500", "again")
    assert desk.cents == [500, 500]
    assert not [one for one in records(store, kind="run-turn") if "left" in one or "left_at" in one]


def test_retention_keeps_the_outcome_that_may_be_reused(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any]
) -> None:
    handle.retry("plan#1", effects="reuse")
    desk.says = ["again", "pay 7"]
    desk.dies = True
    with pytest.raises(CrashError):
        store.run(desk.act, "a")
    agent = store.agent("a")
    before = handle.info.turn_at
    assert agent.trim(before=before).removed
    agent.verify()
    with pytest.raises(NeedsAttention, match="nobody knows"):
        store.run(desk.act, "a")
    handle.settle("pay#1", done="receipt 2")
    assert desk.ends(store, "pay 500", "again", "pay 7") == "receipt 2 receipt 1 receipt 3"


def test_a_log_that_does_not_say_what_it_refers_to_is_refused(
    store: Store, desk: Desk, handle: perdure.RunHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all that was left would be done again, unasked."""
    honest = left_history.Before.carried_on
    monkeypatch.setattr(
        left_history.Before,
        "carried_on",
        lambda self, turn, info: replace(honest(self, turn, info), left=None, left_at=2),
    )
    handle.retry("plan#1")
    for _ in range(2):
        with pytest.raises(perdure.Corrupt, match="commit 2 does not say what the run left"):
            desk.ends(store, "again", "pay 500")
    assert handle.status == "needs_attention"
    assert desk.cents == [500]


# -- any program --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 8])
def test_whatever_runs_do_nothing_is_done_twice_unasked(
    place: Place, tmp_path: Path, first: int
) -> None:
    """See `left_programs`, which runs as many as one likes."""
    memory = place.url.startswith("memory")
    url = "memory://" if memory else f"sqlite:///{tmp_path}/{{seed}}.db"
    worlds = [*left_programs.worlds(first if memory else 100 + first, 8, url)]
    assert sum(world.asked for world in worlds) > 10 and any(world.paid for world in worlds)
