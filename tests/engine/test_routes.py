"""Runs go to programs that have their version of a function, or declare that they replay it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch import backoff, picking, runner
from perdure.engine.dispatch.drive_end import FinishedMeanwhileError
from perdure.engine.dispatch.picking import Picker
from perdure.engine.functions import agent_functions
from perdure.engine.functions.agent_functions import AgentFunctions
from perdure.storage.answers import routed
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import go, records, verify_all
from tests.engine.working import BOUND_S, doubling, wait_until, working


class Programs(dict[Any, Any]):
    """What a program defines is not known to the others, though they share this process."""

    def __setitem__(self, key: Any, value: Any) -> None: ...


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(agent_functions, "_versions", Programs())
    monkeypatch.setattr(picking, "UNKNOWN_AFTER_S", 3600.0)  # a slow machine notes nothing
    yield
    verify_all(place)


@perdure.step
def price(item: str) -> int:
    return len(item)


@perdure.step
def fee(item: str) -> int:
    return 1


def selling(version: str, *calls: Any, **options: Any) -> Any:
    """A version of the function, which makes these calls, and says which one it was."""

    @perdure.agent(dict, name="sell", version=version, **options)
    def sell(run: perdure.Run[dict], item: str = "book") -> str:
        for call in calls:
            call(item)
        run.wait_for("paid")
        return version

    return sell


def aselling(version: str, *calls: Any, **options: Any) -> Any:
    @perdure.agent(dict, name="sell", version=version, **options)
    async def sell(run: perdure.AsyncRun[dict], item: str = "book") -> str:
        for call in calls:
            await run.call(call, item)
        await run.wait_for("paid")
        return version

    return sell


Selling = Callable[..., Any]
both = pytest.mark.parametrize("selling", [selling, aselling], ids=["sync", "async"])


def is_done(handle: perdure.RunHandle[Any]) -> bool:
    return handle.status == "done"


def waits(store: Store, function: Any, agent: str) -> perdure.RunHandle[Any]:
    """A run of the function that waits, and that nobody has any more."""
    handle = store.start(function, agent)
    with working(store, function) as events:
        events.wait_for("waiting", handle.id)
    return handle


def pay(*handles: perdure.RunHandle[Any]) -> None:
    for handle in handles:
        handle.signal("paid")


@both
def test_each_run_goes_to_the_version_that_it_was_begun_with(
    place: Place, selling: Selling
) -> None:
    """Two workers shared a store, with versions 1 and 2 of a function. Seven of ten runs of version
    2 were executed by version 1; what one had recorded the other could not continue, so runs of
    both needed attention, and stayed like that."""
    old, new = selling("1", price), selling("2", fee, price)
    store = place.open()
    with working(place.open(), old) as olds, working(place.open(), new) as news:
        handles = {
            (version, number): store.start(function, f"a{version}-{number}")
            for number in range(5)
            for version, function in (("1", old), ("2", new))
        }
        wait_until(lambda: all(one.status == "waiting" for one in handles.values()))
        pay(*handles.values())
        for (version, _), handle in handles.items():
            assert handle.result(BOUND_S) == version
    for version, events in (("1", olds), ("2", news)):
        mine = {handle.id for (one, _), handle in handles.items() if one == version}
        assert {event.run for event in events if event.run} == mine
        assert not {"needs_attention", "trouble", "lost"} & {event.kind for event in events}


@both
def test_a_deploy_that_is_taken_back_strands_no_run(
    place: Place, selling: Selling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of the newer version were due while the deploy was taken back: they say that nobody can
    take them, and go on as soon as it is deployed again."""
    monkeypatch.setattr(picking, "UNKNOWN_AFTER_S", 0.0)
    old, new, store = selling("1", price), selling("2", fee, price), place.open()
    handle = waits(store, new, "a")
    asked = store.start(new, "b")
    with working(place.open(), old):
        pay(handle)
        words = "no worker knows version '2' of function 'sell'"
        with pytest.raises(perdure.NeedsAttention, match=words):
            handle.result(BOUND_S)
        assert asked.status == "pending"
        assert store.start(old, "c").id and handle.why().workers == ()
        for one in (handle, asked):
            assert "version '2' of function 'sell'" in one.why().why
        assert "sell '1'" in asked.why().why, "what is served instead"
        with working(place.open(), new):
            pay(asked)
            wait_until(lambda: is_done(handle) and is_done(asked))
    assert [handle.result(), asked.result()] == ["2", "2"]


@both
def test_a_version_that_replays_another_continues_its_runs(place: Place, selling: Selling) -> None:
    store = place.open()
    handle, asked = waits(store, selling("1", price), "a"), store.start(selling("1", price), "b")
    new = selling("2", price, replays=["1"])
    with working(place.open(), new) as events:
        events.wait_for("waiting", asked.id)
        pay(handle, asked)
        assert [handle.result(BOUND_S), asked.result(BOUND_S)] == ["2", "2"]
    assert [run.version for run in store.runs()] == ["2", "2"]
    (said,) = records(store, "a", "run-version")
    assert said["version"] == "2" and not records(store, "b", "run-version")
    assert [one.words for one in handle.report().events if one.kind == "version"] == ["2"]


def test_what_a_version_records_in_a_run_of_another_only_that_one_continues(place: Place) -> None:
    """Version 2 replayed a run of version 1, and recorded a call that version 1 does not make.
    Where a worker of that took the run back, it needed attention."""
    store, old = place.open(), selling("1", price)
    handle = waits(store, old, "a")

    @perdure.agent(dict, name="sell", version="2", replays=["1"])
    def new(run: perdure.Run[dict], item: str = "book") -> str:
        price(item)
        run.wait_for("paid")
        fee(item)
        run.wait_for("sent")
        return "2"

    with working(place.open(), new) as events:
        pay(handle)
        events.wait_for("waiting", handle.id)
    handle.signal("sent")
    with working(place.open(), old) as events:
        assert store.start(old, "b").id
        events.wait_for("waiting", "b/sell/main")
        assert handle.id not in {event.run for event in events}
        with working(place.open(), new):
            assert handle.result(BOUND_S) == "2"


def test_runs_are_left_to_living_workers_of_their_own_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker of twenty was of the new version, which replays the old one's runs. It took its
    part of them; then the deploy was taken back, and the old ones could not continue these."""
    monkeypatch.setattr(picking, "LEFT_S", 3600.0)
    store, old, new = place.open(), selling("1", price), selling("2", price, replays=["1"])
    handles = [waits(store, old, f"a{number}") for number in range(3)]
    with working(place.open(), new) as news:
        with working(place.open(), old) as olds:
            olds.wait_for("ready")
            pay(*handles)
            asked = store.start(old, "b")
            assert [handle.result(BOUND_S) for handle in handles] == ["1"] * 3
            olds.wait_for("waiting", asked.id)
            assert {event.run for event in news} == {""}
        pay(asked)
        assert asked.result(BOUND_S) == "2", "there is none any more"


def test_not_if_these_are_busy_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picking, "LEFT_S", 0.0)
    store, old, new = place.open(), selling("1", price), selling("2", price, replays=["1"])
    handle, let_go = waits(store, old, "a"), threading.Event()

    @perdure.agent(dict)
    def blocking(run: perdure.Run[dict]) -> bool:
        return let_go.wait(BOUND_S)

    with working(place.open(), old, blocking, limit=1) as events:
        blocked = store.start(blocking, "b")
        events.wait_for("started", blocked.id)
        pay(handle)
        with working(place.open(), new):
            assert handle.result(BOUND_S) == "2"
        let_go.set()
        assert blocked.result(BOUND_S)


@both
def test_a_version_that_replays_less_than_it_declares_keeps_no_run(
    place: Place, selling: Selling
) -> None:
    """The new version declared that it replays the old one, and did not. The runs that it tried
    needed attention, also when the deploy had been taken back."""
    store, old, new = place.open(), selling("1", price), selling("2", fee, replays=["1"])
    handle = waits(store, old, "a")
    with working(place.open(), new) as events:
        pay(handle)
        events.wait_for("needs_attention", handle.id)
    problem = str(handle.info.problem)
    assert "the function now calls fee#1" in problem and "version '2' declares" in problem
    assert handle.info.version == "1"
    with working(place.open(), old):
        wait_until(lambda: is_done(handle))
    assert handle.result() == "1" and not records(store, "a", "run-version")


def test_nor_where_the_arguments_do_not_fit(place: Place) -> None:
    store, old = place.open(), selling("1", price)
    handle = waits(store, old, "a")

    @perdure.agent(dict, name="sell", version="2", replays=["1"])
    def new(run: perdure.Run[dict], number: int) -> str:
        return "2"

    with working(place.open(), new) as events:
        pay(handle)
        events.wait_for("needs_attention", handle.id)
    assert "version '2' declares" in str(handle.info.problem)
    with working(place.open(), old):
        wait_until(lambda: is_done(handle))
    assert handle.result() == "1"


def test_nor_one_that_ends_before_it_recorded_anything(place: Place, crash: Crashes) -> None:
    """Each process of the new version died at its first import. What they had in hand could not be
    continued by the old one, which would have known how."""
    store, old = place.open(), selling("1", price)
    handle = waits(store, old, "a")
    pay(handle)

    @perdure.agent(dict, name="sell", version="2", replays=["1"])
    def new(run: perdure.Run[dict], item: str = "book") -> str:
        raise CrashError

    with pytest.raises(CrashError):
        go(place.open(), new, "a")
    place.opened[-1].close()
    assert (handle.status, handle.info.version) == ("running", "1")
    with working(place.open(), old):
        assert handle.result(BOUND_S) == "1"


def test_nor_one_that_ends_again_and_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new version ended its thread on the first line, five times; then a person was asked,
    though the old version was there again."""
    caplog.set_level("CRITICAL", "perdure")
    monkeypatch.setattr(backoff, "AGAIN_S", 0.01)
    store, old = place.open(), selling("1", price)
    handle = waits(store, old, "a")

    @perdure.agent(dict, name="sell", version="2", replays=["1"])
    def new(run: perdure.Run[dict], item: str = "book") -> str:
        raise SystemExit("a bad deploy")

    with working(place.open(), new) as events:
        pay(handle)
        events.wait_for("needs_attention", handle.id)
        assert events[0].words == "sell 2"
    assert "it was tried 5 times" in str(handle.info.problem)
    with working(place.open(), old):
        wait_until(lambda: is_done(handle))
    assert handle.result() == "1"


def test_no_version_is_a_version_too(place: Place) -> None:
    """A program that declares its first version does not say that the code is the same."""
    store = place.open()

    @perdure.agent(dict)
    def sell(run: perdure.Run[dict], item: str = "book") -> str:
        price(item)
        return f"none, {run.wait_for('paid')}"

    handle = waits(store, sell, "a")
    pay(handle)
    with working(place.open(), selling("1", fee)) as events:
        events.wait_for("ready")
        assert "function 'sell' without a version" in handle.why().why
        with working(place.open(), selling("2", price, replays=[""])):
            assert handle.result(BOUND_S) == "2"
    newer = store.start(selling("3", price), "b")
    with working(place.open(), sell, doubling) as events:
        assert store.start(doubling, "c", 1).result(BOUND_S) == 2
        assert newer.status == "pending" and newer.id not in {event.run for event in events}


def test_a_call_stands_by_for_a_program_of_the_runs_version(place: Place) -> None:
    """A web handler of the new version asked for a run that the old one had begun: it continued
    the run with its own code, and stopped it."""
    store, old, new = place.open(), selling("1", price), selling("2", fee)
    handle = waits(store, old, "a")
    with working(place.open(), old) as events:
        events.wait_for("ready")
        pay(handle)
        assert store.run(new, "a") == "1"
    assert store.run(new, "a") == "1", "recorded"


@pytest.mark.parametrize("begun", [True, False])
def test_a_call_says_if_there_is_none(place: Place, begun: bool) -> None:
    store, old, new = place.open(), selling("1", price), selling("2", fee)
    handle = waits(store, old, "a") if begun else store.start(old, "a")
    with pytest.raises(perdure.Conflict, match=r"version '1' of function 'sell'.*'2'") as caught:
        store.run(new, "a")
    assert "replays=['1']" in caught.value.hint
    assert handle.status == ("waiting" if begun else "pending")
    pay(handle)
    with working(place.open(), old):
        assert handle.result(BOUND_S) == "1"


def test_a_call_stands_by_while_that_program_is_restarted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "BETWEEN_S", 3600.0)
    store, old, new = place.open(), selling("1", price), selling("2", fee)
    handle = waits(store, old, "a")
    found: list[Any] = []
    looked, original = threading.Event(), runner.Runner._others_can

    def others_can(*args: Any) -> bool:
        can = original(*args)
        if can:
            looked.set()
        return can

    monkeypatch.setattr(runner.Runner, "_others_can", others_can)
    caller = threading.Thread(target=lambda: found.append(store.run(new, "a")))
    with working(place.open(), old) as events:
        events.wait_for("ready")
        caller.start()
        assert looked.wait(BOUND_S)
    pay(handle)
    with working(place.open(), old):
        caller.join(BOUND_S)
    assert found == ["1"]


def test_children_go_to_the_version_that_their_parent_names(place: Place) -> None:
    def programs(version: str, call: Any) -> list[Any]:
        child = selling(version, call)

        @perdure.agent(dict, name="order", version=version)
        def order(run: perdure.Run[dict]) -> str:
            return str(run.start(child, f"child-of-{run.agent}").result())

        return [order, child]

    store, old, new = place.open(), programs("1", price), programs("2", fee)
    with working(place.open(), *old), working(place.open(), *new):
        handles = [store.start(one[0], f"a{one is new}") for one in (old, new)]
        children = [f"child-of-{handle.info.agent}/" for handle in handles]

        def begun() -> list[str]:
            waiting = store.runs(status=["waiting"], function="sell")
            return [run.id for start in children for run in waiting if run.id.startswith(start)]

        wait_until(lambda: len(begun()) == 2)
        pay(*(store.handle(run) for run in begun()))
        assert [handle.result(BOUND_S) for handle in handles] == ["1", "2"]


def test_a_run_that_is_set_back_or_forked_keeps_its_version(place: Place) -> None:
    store, old, new = place.open(), selling("1", price), selling("2", price, replays=["1"])
    handle = waits(store, old, "a")
    forked = handle.fork("price#1", branch="what-if")
    with working(place.open(), new) as events:
        pay(handle)
        assert handle.result(BOUND_S) == "2"
        events.wait_for("waiting", forked.id)
    assert [run.version for run in store.runs()] == ["2", "2"]
    handle.retry("price#1")
    again = handle.fork("price#1", branch="again")
    assert [again.info.version, handle.info.version] == ["2", "2"]
    with working(place.open(), old, doubling) as events:
        assert store.start(doubling, "b", 1).result(BOUND_S) == 2
        assert not {handle.id, forked.id, again.id} & {event.run for event in events}
        with working(place.open(), new):
            pay(forked)  # the others have it still: what they had heard is delivered again
            assert [one.result(BOUND_S) for one in (handle, forked, again)] == ["2"] * 3


def test_a_question_is_answered_whoever_asked_it(place: Place) -> None:
    def asking(version: str, *calls: Any) -> Any:
        @perdure.agent(dict, name="pay", version=version)
        def pay(run: perdure.Run[dict]) -> list[Any]:
            return [version, *(call("x") for call in calls), run.ask("Pay?")]

        return pay

    store, old, new = place.open(), asking("1"), asking("2", price)
    handle = store.start(old, "a")
    with working(place.open(), old) as events:
        events.wait_for("waiting", handle.id)
    with working(place.open(), new) as events:
        events.wait_for("ready")
        handle.answer(True)
        with working(place.open(), old):
            assert handle.result(BOUND_S) == ["1", True]
        assert handle.id not in {event.run for event in events}


def test_what_became_anothers_since_it_was_picked_is_left_to_that(place: Place) -> None:
    """A worker of version 1 picked a run, and version 2 continued that before the lease was
    taken: what was picked no longer held."""
    store, old = place.open(), selling("1", price)
    handle = waits(store, old, "a")

    @perdure.agent(dict, name="sell", version="2", replays=["1"])
    def new(run: perdure.Run[dict], item: str = "book") -> str:
        price(item)
        run.wait_for("paid")
        fee(item)
        raise CrashError

    pay(handle)
    picker = Picker(store.runner, AgentFunctions([old]), ["default"], lambda run, left_s: None)
    (pick,) = picker.picks(lambda *which: False, lambda: 8, False)
    command = picker.command(pick)
    assert command is not None
    with pytest.raises(CrashError):
        go(place.open(), new, "a")
    place.opened[-1].close()
    with pytest.raises(FinishedMeanwhileError):
        store.runner.execute(store.runner.drive(command, pick.look))
    assert (handle.status, handle.info.version) == ("running", "2")


def test_what_others_are_to_continue_is_neither_read_nor_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of another version are passed over as they are listed: where a worker took each one to
    find that it could not continue it, a thousand of them kept it busy for ever."""
    store, old, new = place.open(), selling("1", price), selling("2", fee)
    for number in range(40):
        handle = run_until_waiting(store.options(queue="default"), new, f"a{number}")
        pay(handle)
        store.start(new, f"b{number}")
    backend: Any = store.runner.context.backend
    asked: list[str] = []
    for name in ("lease", "append", "read", "look", "ref"):
        if (real := getattr(backend, name, None)) is not None:

            def counted(*args: Any, _name: str = name, _real: Any = real, **more: Any) -> Any:
                asked.append(_name)
                return _real(*args, **more)

            monkeypatch.setattr(backend, name, counted)
    picker = Picker(store.runner, AgentFunctions([old]), ["default"], lambda run, left_s: None)
    assert [*picker.picks(lambda *which: False, lambda: 8, False)] == []
    assert asked == []


def test_one_worker_has_several_versions(place: Place) -> None:
    store = place.open()
    versions = {version: selling(version, call) for version, call in (("1", price), ("2", fee))}
    third = selling("3", price, replays=["0", "1"])
    handles = {version: waits(store, one, version) for version, one in versions.items()}
    handles["3"] = waits(store, selling("0", price), "3")
    with working(place.open(), third, *versions.values()) as events:
        events.wait_for("ready")
        (row,) = [one for one in store.runner.context.backend.executors() if one.serves]
        for version in "0123":
            assert row.runs("sell", "default", version)
        assert not row.runs("sell", "default", "4")
        assert not row.runs("sell", "mail", "1")
        assert ("sell", "default", "0") not in routed([row], exactly=True)
        pay(*handles.values())
        assert {one: handle.result(BOUND_S) for one, handle in handles.items()} == {
            "1": "1",
            "2": "2",
            "3": "3",
        }


def test_a_worker_says_that_nobody_knows_the_version_of_what_was_asked_for(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    store = place.open()
    caplog.set_level("INFO", "perdure.worker")
    for number in range(3):
        store.start(selling("2"), f"a{number}")
    with working(place.open(), selling("1"), doubling):
        assert store.start(doubling, "b", 1).result(BOUND_S) == 2
    said = [one.getMessage() for one in caplog.records if "does not know" in one.getMessage()]
    assert said == ["run a0/sell/main: this worker does not know version '2' of function 'sell'"]


def test_declarations(place: Place) -> None:
    with pytest.raises(TypeError, match=r"replays= must be several texts, e.g. \['1'\], not '1'"):
        selling("2", replays="1")
    with pytest.raises(TypeError, match="each of replays="):
        selling("2", replays=[1])
    with pytest.raises(ValueError, match="each of replays= has"):
        selling("2", replays=["1" * 5000])
    with pytest.raises(ValueError, match="the name 'sell', version '2'"):
        perdure.Worker(place.open(), [selling("2"), selling("2")])
