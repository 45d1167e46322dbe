"""What came for a run, and what it started and asked, when it is set back or forked."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import perdure
from perdure import NeedsAttention, NotFound, Store, TimedOut
from perdure.engine.execution import run_inbox
from tests.engine.working import wait_until, working


class World:
    """What the functions are to do, and what they did."""

    def __init__(self) -> None:
        self.fails = True
        self.paid: list[int] = []


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def listening(world: World) -> Any:
    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def listening(run: perdure.Run[dict]) -> list[Any]:
        look()
        heard = [run.wait_for("paid")]
        look()
        if world.fails:
            raise ValueError("a bug")
        return [*heard, run.wait_for("paid"), run.wait_for("seen")]

    return listening


# -- signals --------------------------------------------------------------------------------


def failed(store: Store, listening: Any) -> perdure.RunHandle[Any]:
    """A run that took one signal, and failed; two are left."""
    handle = store.start(listening, "a")
    for number in (1, 2):
        assert handle.signal("paid", number, key=f"webhook-{number}", by="bank")
    handle.signal("seen", {"by": "Ann"})
    with pytest.raises(ValueError, match="a bug"):
        store.run(listening, "a")
    return handle


def test_a_senders_key_may_end_like_one_of_a_signal_that_came_again(
    store: Store, listening: Any, world: World
) -> None:
    """A signal that a run gets again has a key with `↺` and a number behind it. A sender's own key
    that ended so was taken for such a one: of `bill`, `bill↺3` and `bill↺4` one came again."""
    handle = store.start(listening, "a")
    for number, key in enumerate(("bill", "bill↺3", "bill↺4")):
        assert handle.signal("paid", number, key=key)
        assert not handle.signal("paid", number, key=key)
    with pytest.raises(ValueError, match="a bug"):
        store.run(listening, "a")
    world.fails = False
    handle.retry("look#1")
    handle.signal("seen", 7)
    assert store.run(listening, "a") == [0, 1, 7]
    assert [one.value for one in _left(store)] == [2]
    store.agent("a").verify()


def _left(store: Store) -> list[Any]:
    """The signals that the last run did not take."""
    commit = store.agent("a").commit(store.agent("a").seq)
    [end] = [record for record in commit.records if record["t"] == "run-finished"]
    return [
        perdure.model.Message("", "", "signal", one["name"], one["key"], one["value"])
        for one in end["left"]
    ]


@pytest.mark.parametrize("step", ["look#1", "look#2"])
def test_signals_are_not_lost_with_a_run_that_fails(
    store: Store, listening: Any, world: World, step: str
) -> None:
    """Signals that a run had not taken when it failed were thrown away with its inbox. Set back, it
    waited for them for ever: sent anew with the same key, they were known, and ignored. So was the
    one that it had taken since the step."""
    handle = failed(store, listening)
    world.fails = False
    handle.retry(step)
    assert not handle.signal("paid", 1, key="webhook-1"), "it has that one"
    assert store.run(listening, "a") == [1, 2, {"by": "Ann"}]
    store.agent("a").verify()


def test_signals_come_again_each_time_and_once(store: Store, listening: Any, world: World) -> None:
    """Set back twice, and failed again in between: each signal is there once."""
    handle = failed(store, listening)
    for _ in range(3):
        handle.retry("look#1")
        with pytest.raises(ValueError, match="a bug"):
            store.run(listening, "a")
    world.fails = False
    handle.retry("look#1")
    inbox = store._context.backend.inbox(handle.id)
    assert [(one.name, one.value) for one in inbox] == [
        ("paid", 1),
        ("paid", 2),
        ("seen", {"by": "Ann"}),
    ]
    assert inbox[0].who == "bank"
    assert store.run(listening, "a") == [1, 2, {"by": "Ann"}]


def test_a_signal_that_it_kept_is_not_brought_again(
    store: Store, listening: Any, world: World
) -> None:
    """Set back to behind a wait, it has what that wait took."""
    handle = failed(store, listening)
    world.fails = False
    handle.fork("look#1", branch="b")
    assert store.options(key="main@b").run(listening, "a") == [1, 2, {"by": "Ann"}]

    forked = store.handle("a/listening/main@b")
    waits = [event.place for event in forked.report().events if event.kind == "wait"]
    forked.retry(waits[-1])
    inbox = store._context.backend.inbox(forked.id)
    assert ("paid", 1) not in [(one.name, one.value) for one in inbox]
    assert store.options(key="main@b").run(listening, "a") == [1, 2, {"by": "Ann"}]


def test_signals_of_a_cancelled_run_come_again(store: Store, listening: Any, world: World) -> None:
    """Also where nobody executed it when it was ended."""
    world.fails = False

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> Any:
        look()
        run.wait_for("go")
        return run.wait_for("paid")

    handle = store.start(waiting, "a")
    with working(store, waiting):
        wait_until(lambda: handle.status == "waiting")
    handle.signal("paid", 7, key="k")
    handle.cancel("a mistake")
    handle.retry("look#1")
    assert not handle.signal("paid", 7, key="k")
    handle.signal("go")
    assert store.run(waiting, "a") == 7


# -- questions and deadlines --------------------------------------------------------------------


def test_a_fork_asks_what_its_origin_had_asked(store: Store) -> None:
    """A question that was open at the step was its origin's: nobody could answer it for the fork,
    nor again for the run that was set back, whose first answer had counted."""

    @perdure.step
    def look(number: int) -> int:
        return number

    @perdure.agent(dict)
    async def asking(run: perdure.AsyncRun[dict]) -> list[Any]:
        import asyncio

        async def looking() -> int:
            await run.wait_for("asked")
            return await run.call(look, 1)

        return list(await asyncio.gather(run.ask("Really?"), looking()))

    handle = store.start(asking, "a")
    with working(store, asking):
        wait_until(handle.questions)
        handle.signal("asked")
        wait_until(lambda: any("look" in one.place for one in handle.report().events))
        handle.answer(True)
        assert handle.result(timeout=30) == [True, 1]
        (step,) = [one.place for one in handle.report().events if "look#" in one.place]
        fork = handle.fork(step, branch="b")
        handle.retry(step)
        for one in (fork, handle):
            wait_until(one.questions)
            one.answer(False)
            assert one.result(timeout=30) == [False, 1]


def test_a_run_set_back_has_its_time_anew(store: Store) -> None:
    """A run that had failed on its deadline failed at once when it was set back, for that counted
    from its first begin; and then it could not be forked either, as it had come to no step."""
    late = True

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict], turn: int = 1) -> Any:
        look()
        if late:
            run.wait_for("never")
        return run.again(2) if turn == 1 else turn

    timed = store.options(deadline=timedelta(seconds=0.3))
    with pytest.raises(TimedOut):
        timed.run(slow, "a")
    late = False
    store.handle("a/slow/main").retry("look#1")
    assert store.run(slow, "a") == 2


def test_a_run_that_did_not_come_so_far_again_can_be_set_back(store: Store, world: World) -> None:
    """Set back to its first step, a run failed before it came there: its steps were gone, and with
    them the way to set it back, or to fork it."""

    @perdure.step
    def look() -> int:
        return 1

    @perdure.tool
    def pay(cents: int) -> int:
        world.paid.append(cents)
        return cents

    broken = False

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        if broken:
            raise ValueError("a bug")
        look()
        return pay(5)

    assert store.run(act, "a") == 5
    broken = True
    handle = store.handle("a/act/main")
    handle.retry("look#1")
    with pytest.raises(ValueError, match="a bug"):
        store.run(act, "a")
    broken = False
    with pytest.raises(NotFound, match=r"look#1, pay#1"):
        handle.retry("nothing#1")
    handle.retry("pay#1", effects="reuse")
    assert store.run(act, "a") == 5
    assert world.paid == [5]
    store.agent("a").verify()


# -- runs that it started -----------------------------------------------------------------------


@pytest.fixture
def family(world: World) -> tuple[Any, Any]:
    @perdure.tool
    def pay(cents: int) -> int:
        world.paid.append(cents)
        return len(world.paid)

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def paying(run: perdure.Run[dict], cents: int) -> int:
        if cents > 5:
            run.wait_for("go")
        return pay(cents)

    @perdure.agent(dict)
    def shop(run: perdure.Run[dict], cents: int = 5) -> int:
        look()
        return run.start(paying, "bank", cents).result()

    return shop, paying


@pytest.mark.parametrize("in_place", [True, False])
def test_a_run_started_before_is_not_started_again_unasked(
    store: Store, world: World, family: tuple[Any, Any], in_place: bool
) -> None:
    """A run that was set back started its children anew, and each of them paid again: nobody was
    asked, for only tool calls were looked at."""
    shop, paying = family
    origin = store.start(shop, "a")
    with working(store, shop, paying):
        assert origin.result(timeout=30) == 1
    (child,) = [run.id for run in store.runs("bank")]

    def back(branch: str, effects: Any) -> Any:
        if in_place:
            origin.retry("look#1", effects=effects)
            return origin
        return origin.fork("look#1", branch=branch, effects=effects)

    with working(store, shop, paying):
        assert back("reuse", "reuse").result(timeout=30) == 1
        asking = back("ask", "ask")
        with pytest.raises(NeedsAttention, match=f"run {child} was started before"):
            asking.result(timeout=30)
        assert world.paid == [5]
        (one,) = [effect for effect in asking.effects() if effect.open]
        assert (one.place, one.state) == ("start:paying#1", "made before")
        ways = [way.command[0] for way in asking.why().ways if way.command]
        assert ways == ["settle", "settle", "cancel"]
        asking.settle(one.place, done=child)
        assert asking.result(timeout=30) == 1
        other = back("other", "ask")
        with pytest.raises(NeedsAttention, match="was started before"):
            other.result(timeout=30)
        other.settle(one.place, not_done=True)
        assert other.result(timeout=30) == 2
        assert back("live", "live").result(timeout=30) == 3
    assert len(store.runs("bank")) == len(world.paid) == 3
    for agent in ("a", "bank"):
        store.agent(agent).verify()


def test_a_mistyped_run_is_asked_for_again(
    store: Store, world: World, family: tuple[Any, Any]
) -> None:
    shop, paying = family
    origin = store.start(shop, "a")
    with working(store, shop, paying):
        assert origin.result(timeout=30) == 1
        origin.retry("look#1")
        with pytest.raises(NeedsAttention):
            origin.result(timeout=30)
        origin.settle("start:paying#1", done="bank/paying/none")
        with pytest.raises(NeedsAttention, match="there is no such run"):
            origin.result(timeout=30)
        (child,) = store.runs("bank")
        origin.settle("start:paying#1", done=child.id)
        assert origin.result(timeout=30) == 1


def test_a_fork_waits_for_the_run_that_its_origin_started(
    store: Store, world: World, family: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run tells the one that started it of its end, and nobody else: a fork that waited for it
    would have waited for ever."""
    monkeypatch.setattr(run_inbox, "LOOK_AGAIN_S", 0.05)
    shop, paying = family
    origin = store.start(shop, "a", 9)
    with working(store, shop, paying):
        wait_until(lambda: origin.status == "waiting" and store.runs("bank"))
        fork = origin.fork("start:paying#1", branch="b", effects="reuse")
        wait_until(lambda: fork.status == "waiting")
        (child,) = store.runs("bank")
        store.handle(child.id).signal("go")
        assert origin.result(timeout=30) == 1
        assert fork.result(timeout=30) == 1
    assert world.paid == [9]
    assert len(store.runs("bank")) == 1


def test_a_fork_that_ends_does_not_end_what_its_origin_started(
    store: Store, world: World, family: tuple[Any, Any]
) -> None:
    """The run was taken over; it belongs to the one that started it."""
    shop, paying = family
    origin = store.start(shop, "a", 9)
    with working(store, shop, paying):
        wait_until(lambda: origin.status == "waiting" and store.runs("bank"))
        fork = origin.fork("start:paying#1", branch="b", effects="reuse")
        wait_until(lambda: fork.status == "waiting")
        fork.cancel()
        wait_until(lambda: fork.status == "cancelled")
        (child,) = store.runs("bank")
        store.handle(child.id).signal("go")
        assert origin.result(timeout=30) == 1


def test_a_run_started_under_a_key_of_its_own_is_the_same_run(
    store: Store, world: World, family: tuple[Any, Any]
) -> None:
    """There is nothing to ask: it cannot be started twice. In a fork it was a conflict, with the
    origin."""
    _, paying = family

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def keyed(run: perdure.Run[dict]) -> int:
        look()
        paid: int = run.options(key="monthly").start(paying, "bank", 5).result()
        return paid

    origin = store.start(keyed, "a")
    with working(store, keyed, paying):
        assert origin.result(timeout=30) == 1
        assert origin.fork("look#1", branch="b").result(timeout=30) == 1
        origin.retry("look#1")
        assert origin.result(timeout=30) == 1
    assert world.paid == [5]


@pytest.mark.parametrize("first", ["origin", "fork", "other fork"])
def test_of_a_run_and_its_forks_the_second_takes_what_the_first_started_under_a_key(
    store: Store, world: World, family: tuple[Any, Any], first: str
) -> None:
    """A run that waited was forked, to try something. The fork came first to a start under a key,
    and the run itself, in production, failed there: somebody else had started that."""
    _, paying = family

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def order(run: perdure.Run[dict]) -> list[Any]:
        look()
        word = run.wait_for("go")
        return [word, run.options(key="ship-17").start(paying, "bank", 5).result()]

    origin = store.start(order, "a")
    with working(store, order, paying):
        wait_until(lambda: origin.status == "waiting")
        runs = {"origin": origin}
        for name in ("fork", "other fork"):
            runs[name] = origin.fork("look#1", branch=name, effects="reuse")
        wait_until(lambda: all(run.status == "waiting" for run in runs.values()))
        for name in sorted(runs, key=lambda name: name != first):
            runs[name].signal("go", name)
            assert runs[name].result(timeout=30) == [name, 1]
    assert world.paid == [5]
    (child,) = store.runs("bank")
    assert child.parent == runs[first].id
    store.agent("a").verify()


def came_there(run: perdure.RunHandle[Any]) -> bool:
    return run.info.waits.startswith("run bank") or bool(run.info.ended)


def test_what_a_fork_started_is_not_ended_by_its_origin(
    store: Store, family: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the fork's. With other arguments it is another run, and refused as ever."""
    monkeypatch.setattr(run_inbox, "LOOK_AGAIN_S", 0.1)
    _, paying = family

    @perdure.step
    def look() -> int:
        return 1

    @perdure.agent(dict)
    def order(run: perdure.Run[dict]) -> Any:
        look()
        return run.options(key="ship-17").start(paying, "bank", run.wait_for("go")).result()

    origin = store.start(order, "a")
    with working(store, order, paying):
        wait_until(lambda: origin.status == "waiting")
        forks = [origin.fork("look#1", branch=f"b{n}", effects="reuse") for n in range(2)]
        wait_until(lambda: all(one.status == "waiting" for one in forks))
        for one, cents in ((forks[0], 9), (origin, 9), (forks[1], 8)):
            one.signal("go", cents)
            wait_until(partial(came_there, one))
        with pytest.raises(perdure.Conflict, match="was started by run a/order/main@b0 already"):
            forks[1].result(timeout=30)
        origin.cancel()
        (child,) = store.runs("bank")
        store.handle(child.id).signal("go")
        assert forks[0].result(timeout=30) == 1
