"""Messages that came before the moment to which a store is restored, and were taken later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import replication
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.postgres.server import kinds, shared


@perdure.agent(dict)
def waits(run: perdure.Run[dict]) -> list[Any]:
    return [run.wait_for("paid"), run.ask("Send it?"), run.wait_for("paid")]


@perdure.agent(dict)
def other(run: perdure.Run[dict]) -> str:
    return "done"


@pytest.fixture(params=kinds(["sqlite"], listed=True))
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "postgres":
        yield shared().new_url(), shared().new_url()
    else:
        yield f"sqlite:///{tmp_path / 'a.db'}", f"sqlite:///{tmp_path / 'b.db'}"


def restored(urls: tuple[str, str], moment: datetime) -> Store:
    replication.restore(*urls, moment)
    return perdure.open(urls[1])


def now(store: Store) -> datetime:
    """By the store's clock, between what was done and what will be."""
    clock = store.runner.context.backend.now
    micros = clock()
    while clock() <= micros + 1:
        pass
    return datetime.fromtimestamp((micros + 1) / 1e6, UTC)


def test_what_was_taken_later_can_be_sent_again(urls: tuple[str, str]) -> None:
    """A payment's signal had come by the moment, and was taken out later: it was not in the
    restored store, and when it was sent again under its key, as the docs say, it was "known". The
    run waited for ever. Neither could a question be answered again, nor a run asked for."""
    with perdure.open(urls[0]) as store:
        run = run_until_waiting(store, waits, "a")
        assert run.signal("paid", 1, key="payment-1")
        run_until_waiting(store, waits, "a")
        run.answer(True)
        assert run.signal("paid", 2, key="payment-2")
        store.start(other, "b")
        moment = now(store)
        assert store.run(waits, "a") == [1, True, 2]
        assert store.run(other, "b") == "done"
    with restored(urls, moment) as store:
        run = store.handle("a/waits/main")
        assert not run.signal("paid", 1, key="payment-1")  # that one it had
        assert run.signal("paid", 2, key="payment-2")
        run.answer(True)
        assert run_until_waiting(store, waits, "a").info.result == [1, True, 2]
        store.start(other, "b")
        assert [one.id for one in store.runs("b", unfinished=True)] == ["b/other/main"]
        assert store.run(other, "b") == "done"
        for name in ("a", "b"):
            store.agent(name).verify()


def test_what_it_says_that_came_is_there(urls: tuple[str, str]) -> None:
    """A restore said that four messages had come, which was what the source had ever been sent; one
    of them was in the inboxes of the new store, as the others were taken by then, or came later."""
    with perdure.open(urls[0]) as store:
        run = run_until_waiting(store, waits, "a")
        run.signal("paid", 1)
        run_until_waiting(store, waits, "a")
        run.signal("paid", 2)
        seq = store.agent("a").seq
        moment = now(store)
        run.answer(True)
        run.signal("late", 3)
    done = replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert done == replication.Restored(seq, 1)
        assert [one.value for one in store.runner.context.backend.inbox()] == [2]


@pytest.mark.parametrize("again", [False, True])
def test_what_had_been_taken_stays_known_though_its_agent_is_deleted(
    urls: tuple[str, str], again: bool
) -> None:
    """What a run had taken was read from the source's inbox alone, which goes with the agent: to
    restore a deleted one is a main reason for a restore, and the invoice was booked twice."""
    with perdure.open(urls[0]) as store:
        run = run_until_waiting(store, waits, "a")
        assert run.signal("paid", 1, key="payment-1")
        run_until_waiting(store, waits, "a")
        moment = now(store)
        run.cancel()
        store.delete("a")
        if again:
            run_until_waiting(store, waits, "a")
    with restored(urls, moment) as store:
        run = store.handle("a/waits/main")
        assert not run.signal("paid", 9, key="payment-1")
        run.answer(True)
        assert run.signal("paid", 2, key="payment-2")
        assert run_until_waiting(store, waits, "a").info.result == [1, True, 2]


def test_what_had_been_taken_stays_known(urls: tuple[str, str]) -> None:
    """Also where the run had ended by then, and was set back."""
    with perdure.open(urls[0]) as store:
        run = run_until_waiting(store, waits, "a")
        for number in (1, 2, 3):
            assert run.signal("paid", number, key=f"payment-{number}")
        run_until_waiting(store, waits, "a").answer(True)
        assert run_until_waiting(store, waits, "a").result() == [1, True, 2]
        run.retry("ask#1")
        moment = now(store)
        run_until_waiting(store, waits, "a").answer(False)
        run_until_waiting(store, waits, "a")
    with restored(urls, moment) as store:
        run = store.handle("a/waits/main")
        for number in (1, 2, 3):
            assert not run.signal("paid", number, key=f"payment-{number}")


@perdure.agent(dict)
def hears(run: perdure.Run[dict]) -> list[Any]:
    return [run.wait_for("word"), run.wait_for("word")]


@perdure.agent(dict)
def tells(run: perdure.Run[dict], cancels: bool = False) -> Any:
    child = run.options(key="child").start(hears, "b")
    child.signal("word", "one")
    run.wait_for("more")
    if cancels:
        child.cancel("not needed")
    else:
        child.signal("word", ("two", 2))
    run.wait_for("the end")
    return child.result()


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_what_a_run_told_its_child_is_told_again(
    urls: tuple[str, str], begun: bool, cancels: bool
) -> None:
    """A run had sent its child a signal, or had cancelled it, and the child heard of that after the
    moment to which the store was restored: the message was gone from the inbox, and the parent,
    which had sent it, did not send it again. Both waited for ever."""
    with perdure.open(urls[0]) as store:
        run = run_until_waiting(store, tells, "a", cancels)
        child = store.options(key="child")
        if begun:
            run_until_waiting(store.options(key="child"), hears, "b")
        run.signal("more")
        run_until_waiting(store, tells, "a", cancels)
        moment = now(store)
        if cancels:
            with pytest.raises(perdure.RunFailed):
                child.run(hears, "b")
        else:
            assert child.run(hears, "b") == ["one", ("two", 2)]
    with restored(urls, moment) as store:
        child = store.options(key="child")
        for _ in range(2):  # each is there once
            if cancels:
                with pytest.raises(perdure.RunFailed):
                    child.run(hears, "b")
            else:
                assert child.run(hears, "b") == ["one", ("two", 2)]
        for name in ("a", "b"):
            store.agent(name).verify()


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_a_run_told_its_child_comes_with_their_logs(urls: tuple[str, str], first: str) -> None:
    """The same, where the logs of both were taken in by another store, one after the other."""
    with perdure.open(urls[0]) as store:
        run = run_until_waiting(store, tells, "a")
        run_until_waiting(store.options(key="child"), hears, "b")
        run.signal("more")
        run_until_waiting(store, tells, "a")
        logs = {}
        for name in ("a", "b"):
            info = store.find(name)
            assert info is not None
            logs[name] = list(store.export_log(info))
    with perdure.open(urls[1]) as store:
        store.import_log(logs.pop(first))
        store.import_log(*logs.values())
        inbox = store.runner.context.backend.inbox("b/hears/child", kind="signal")
        assert [one.value for one in inbox] == [("two", 2)]
        assert store.options(key="child").run(hears, "b") == ["one", ("two", 2)]
