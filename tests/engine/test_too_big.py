"""What is too big for one commit: said at the call, once, and before anything is repeated.

A result of more than a gigabyte had been refused by SQLite as "string or blob too big", which left
the run where it was: whoever went on with it called the step or tool again, and again. One that
compresses well had been stored, and could never be read again: the agent was "corrupt".
"""

from __future__ import annotations

import os

import pytest

import perdure
from perdure.core.format import envelope

calls: list[str] = []


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "SEALED_MAX", 50_000)
    calls.clear()


@perdure.step
def search(size: int) -> bytes:
    calls.append("search")
    return bytes(size)


@perdure.tool(on_crash="retry")
def pay(size: int) -> bytes:
    calls.append("pay")
    return os.urandom(size)


@perdure.agent(dict)
def research(run: perdure.Run[dict], size: int) -> int:
    return len(search(size))


@perdure.agent(dict)
def payment(run: perdure.Run[dict], size: int) -> int:
    return len(pay(size))


@perdure.agent(dict)
def report(run: perdure.Run[dict], size: int) -> bytes:
    return bytes(size)


@perdure.agent(dict)
def several(run: perdure.Run[dict], sizes: list[int]) -> list[str]:
    def one(size: int) -> str:
        try:
            return str(len(search(size)))
        except perdure.Unstorable:
            return "too big"

    return run.map(one, sizes)


@pytest.fixture
def store() -> perdure.Store:
    return perdure.open("memory://")


def test_a_step_is_not_called_again(store: perdure.Store) -> None:
    for _ in range(2):
        with pytest.raises(perdure.Unstorable, match=r"search\(\): 60,\d+ bytes are too much"):
            store.run(research, "a", 60_000)
    assert calls == ["search"]
    assert store.handle("a/research/main").status == "failed"


def test_a_tool_took_effect_and_is_not_called_again(store: perdure.Store) -> None:
    for _ in range(2):
        with pytest.raises(perdure.CallFailed, match="took effect, but its result"):
            store.run(payment, "a", 60_000)
    assert calls == ["pay"]
    assert [effect.state for effect in store.handle("a/payment/main").effects()] == ["failed"]


def test_a_runs_own_result_fails_it(store: perdure.Store) -> None:
    for _ in range(2):
        with pytest.raises(perdure.Unstorable, match="bytes are too much for one commit"):
            store.run(report, "a", 60_000)
    assert store.handle("a/report/main").status == "failed"


@perdure.agent(dict)
def told(run: perdure.Run[dict], times: int, size: int) -> bytes:
    for _ in range(times):
        run.uuid()
    return bytes(size)


def test_what_the_function_heard_is_recorded_with_the_end_of_a_result_too_big(
    store: perdure.Store,
) -> None:
    """What waited for the last commit was lost with the result that did not fit: a value that the
    function had been told."""
    with pytest.raises(perdure.Unstorable):
        store.run(told, "a", 1, 60_000)
    records = [record.t for commit in store.agent("a").log() for record in commit.typed]
    assert records == ["run-started", "value", "run-finished"]


def test_a_run_ends_where_what_it_heard_is_too_big(store: perdure.Store) -> None:
    with pytest.raises(perdure.Unstorable):
        store.run(told, "a", 6_000, 1)
    assert store.handle("a/told/main").status == "failed"


def test_those_that_shared_a_commit_with_it_are_in(store: perdure.Store) -> None:
    sizes = [30_000, 10, 60_000, 30_000, 30_000, 20]
    wanted = ["30000", "10", "too big", "30000", "30000", "20"]
    assert store.run(several, "a", sizes) == wanted
    assert len(calls) == len(sizes)


def test_an_edit_is_refused_and_the_state_is_as_it_was(store: perdure.Store) -> None:
    agent = store.agent("b")
    with agent.edit() as draft:
        draft["kept"] = 1
    with pytest.raises(perdure.Unstorable), agent.edit() as draft:
        draft["file"] = bytes(60_000)
    with agent.edit() as draft:
        draft["more"] = 2
    agent.refresh()
    assert agent.state == {"kept": 1, "more": 2}


@perdure.agent(dict)
def listen(run: perdure.Run[dict], first: bytes = b"") -> int:
    return len(first) + len(run.wait_for("news"))


def test_a_message_must_fit_into_the_commit_that_takes_it_in(store: perdure.Store) -> None:
    """A signal that did not was accepted; and the run that it was for could never record it."""
    handle = store.start(listen, "a")
    with pytest.raises(perdure.Unstorable, match=r"value: 30,\d+ bytes are too much for a message"):
        handle.signal("news", bytes(30_000))
    with pytest.raises(perdure.Unstorable, match="arguments"):
        store.start(listen, "b", bytes(30_000))
    assert handle.signal("news", bytes(20_000))
    assert store.run(listen, "a") == 20_000


def test_arguments_that_are_too_big_to_store_need_their_caller(store: perdure.Store) -> None:
    assert store.run(research, "a", 10) == 10
    big = bytes(60_000)

    @perdure.agent(dict)
    def count(run: perdure.Run[dict], what: bytes) -> int:
        return run.call(len, what)

    assert store.run(count, "b", big) == len(big)
    assert store.run(count, "b", big) == len(big)
