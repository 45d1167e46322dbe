"""Signals that a run took, sent again to the copy of it that an import made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, NotFound
from perdure.model import FINISHED
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place

LONG = "k" * 300
KEYS = ["event-1", LONG, "event-1↺7"]


@perdure.step
def look(what: str) -> str:
    return what


@perdure.agent(dict)
def two(run: perdure.Run[dict]) -> list[Any]:
    return [run.wait_for("paid"), look("x"), run.wait_for("paid")]


@perdure.agent(dict)
def choosing(run: perdure.Run[dict]) -> list[Any]:
    found = run.select(other=perdure.Signal("other"), mine=perdure.Signal("paid"))
    return [found.value, look("x"), run.wait_for("paid")]


@perdure.agent(dict)
def turning(run: perdure.Run[dict], turn: int = 0) -> Any:
    heard = run.wait_for("paid")
    look("x")
    return run.again(1) if turn == 0 else [1, heard]


@perdure.agent(dict)
def picky(run: perdure.Run[dict]) -> list[Any]:
    return [1, run.wait_for("paid", schema=int)]


def copied(source: Store, name: str = "a") -> Store:
    copy = perdure.open("memory://")
    info = source.find(name)
    assert info is not None
    copy.import_log(source.export_log(info))
    return copy


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("function", [two, choosing, turning])
def test_i5_a_signal_that_was_taken_is_known_in_a_copy(
    store: Store, function: Callable[..., Any], key: str
) -> None:
    """A payment was told of by a signal whose key was the event's id, and the run took it. Its
    agent was exported, and imported elsewhere. Told of once more, as such things are, the copy took
    the same event for a second payment."""
    run = run_until_waiting(store, function, "a")
    assert run.signal("paid", 1, key=key)
    run_until_waiting(store, function, "a")
    assert not run.signal("paid", 1, key=key)
    with copied(store) as copy:
        there = copy.handle(run.id)
        assert not there.signal("paid", 1, key=key)
        assert run_until_waiting(copy, function, "a").status == "waiting"
        assert there.signal("paid", 2, key="event-2")
        assert run_until_waiting(copy, function, "a").result()[-1] == 2
        with copied(copy) as again:
            assert not again.handle(run.id).signal("paid", 2, key="event-2")
        copy.agent("a").verify()


def test_one_that_was_refused_is_known_too(store: Store) -> None:
    run = run_until_waiting(store, picky, "a")
    run.signal("paid", "no number", key="event-1")
    assert run_until_waiting(store, picky, "a").status == "waiting"
    assert not run.signal("paid", 1, key="event-1")
    with copied(store) as copy:
        assert not copy.handle(run.id).signal("paid", 1, key="event-1")


def test_one_that_the_run_had_when_it_ended_is_known_too(store: Store) -> None:
    run = run_until_waiting(store, two, "a")
    run.signal("other", 1, key="event-1")
    run.cancel()
    with copied(store) as copy:
        there = copy.handle(run.id)
        assert not there.signal("other", 1, key="event-1")
        with pytest.raises(Conflict, match="cancelled already"):
            there.signal("other", 1, key="event-2")


@pytest.mark.parametrize("step", ["wait_for:paid#1", "wait_for:paid#2"])
def test_one_that_is_brought_to_a_run_again_may_be_sent_again(store: Store, step: str) -> None:
    """Where a run was set back it gets again what it took since. That is in no log: in a copy it
    waits for it, and must not refuse it as known."""
    run = run_until_waiting(store, two, "a")
    for number in (1, 2):
        run.signal("paid", number, key=f"event-{number}")
        run_until_waiting(store, two, "a")
    assert run.result() == [1, "x", 2]
    run.retry(step)
    first = step == "wait_for:paid#1"
    with copied(store) as copy:
        there = copy.handle(run.id)
        assert there.signal("paid", 1, key="event-1") == first
        run_until_waiting(copy, two, "a")
        assert there.signal("paid", 2, key="event-2")
        assert run_until_waiting(copy, two, "a").result() == [1, "x", 2]
    assert run_until_waiting(store, two, "a").result() == [1, "x", 2]
    with copied(store) as copy:
        there = copy.handle(run.id)
        assert not any(there.signal("paid", n, key=f"event-{n}") for n in (1, 2))


def log_of_who_took_a_signal() -> tuple[str, list[Any]]:
    """Returns the id of a run of agent "a" that has taken the first of its signals; and the log."""
    with perdure.open("memory://") as source:
        run = run_until_waiting(source, two, "a")
        run.signal("paid", 1, key="event-1")
        run_until_waiting(source, two, "a")
        info = source.find("a")
        assert info is not None
        return run.id, [*source.export_log(info)]


def test_what_others_sent_meanwhile_is_not_touched(place: Place) -> None:
    """Messages are put in with numbers, which are those of nobody else."""
    _, log = log_of_who_took_a_signal()
    store = place.open()
    other = run_until_waiting(store, two, "b")
    for number in range(3):
        other.signal("else", number)
        if number == 1:
            store.import_log(log)
    left = store.runner.context.backend.inbox(other.id)
    assert [one.value for one in left] == [0, 1, 2]
    assert len({one.no for one in store.runner.context.backend.mail().messages}) == 4


def test_a_log_that_is_refused_leaves_nothing_known(place: Place) -> None:
    """An agent was imported while somebody else made one of its name: the import was refused, but
    the signals that its run had taken were known. The new one's run, with the same key, waited for
    a signal whose sender was told that it was there already."""
    run, log = log_of_who_took_a_signal()
    store, other = place.open(), place.open()
    backend = store.runner.context.backend
    submit = store.runner.context.committer.submit

    def late(proposal: Any) -> None:
        other.agent("a").save({}, "by another one")
        submit(proposal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.runner.context.committer, "submit", late)
        with pytest.raises(Conflict):
            store.import_log(log)
    assert backend.mail().messages == []
    begun = run_until_waiting(other, two, "a")
    assert begun.id == run
    assert begun.signal("paid", 1, key="event-1")


@perdure.agent(dict)
def several(run: perdure.Run[dict], count: int) -> list[Any]:
    heard = []
    for number in range(count):
        heard.append(run.wait_for("paid"))
        if number % 2:
            look("x")
    return heard


def live(store: Store, random: Random, count: int) -> list[str]:
    """Signals, cancellations and retries, as chance makes them. Gives the keys, in their order."""
    run, keys = run_until_waiting(store, several, "a", count), list[str]()
    for _ in range(random.randint(2, 10)):
        chance = random.random()
        with suppress(Conflict, NotFound):
            if chance < 0.6:
                keys.append(f"event-{len(keys)}")
                run.signal("paid", keys[-1], key=keys[-1])
            elif chance < 0.8:
                run.cancel()
            elif places := [event.place for event in run.report().events if event.place]:
                run.retry(random.choice(places))
        if random.random() < 0.7 and run.status not in FINISHED:
            run_until_waiting(store, several, "a", count)
    return keys


@pytest.mark.parametrize("seed", range(24))
def test_a_copy_hears_what_its_run_would_have_heard(seed: int) -> None:
    """Whoever sent signals sends all of them again, to a run and to a copy of it: both come to the
    same."""
    random = Random(seed)
    with perdure.open("memory://") as store:
        count = random.randint(2, 6)
        keys = live(store, random, count)
        (info,) = store.runs("a")
        with copied(store) as copy:
            results = []
            for place in (store, copy):
                run = place.handle(info.id)
                for key in [*keys, *(f"more-{number}" for number in range(count))]:
                    if run.status not in FINISHED:
                        run.signal("paid", key, key=key)
                        run_until_waiting(place, several, "a", count)
                results.append((run.status, run.info.result))
            assert results[0] == results[1]
