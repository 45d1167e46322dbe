"""Signals that came while nobody was there to hear them, each taken in a turn of its own."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Run, Store
from perdure.core.format.records import WaitBranch
from perdure.engine.execution.run_inbox import RunInbox
from perdure.engine.journal.effects import Await, Came
from perdure.errors import PerdureError


@perdure.agent(dict)
def chat(run: Run[dict[str, Any]], heard: list[Any]) -> Any:
    try:
        said = run.wait_for("said")
    except KeyboardInterrupt:
        return run.again(heard)
    heard = [*heard, said]
    return heard if said == "end" else run.again(heard)


def _backlog(store: Store, many: int) -> None:
    handle = store.start(chat, "a", [])
    for number in range(many):
        handle.signal("said", number)
        handle.signal("other", number)
    handle.signal("said", "end")


def test_a_backlog_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands had come while the worker was down. Each turn read all that were left, and a turn
    with 3,200 waiting took seven times as long: 30,000 would have taken a quarter of an hour."""
    _backlog(store, 30)
    given: list[int] = []
    inbox = store._context.backend.inbox

    def counted(*args: Any, **more: Any) -> Any:
        found = inbox(*args, **more)
        given.append(len(found))
        return found

    monkeypatch.setattr(store._context.backend, "inbox", counted)
    assert store.run(chat, "a", []) == [*range(30), "end"]
    assert sum(given) <= 2 * 61 + 5


def test_what_came_in_between_is_heard_in_its_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _backlog(store, 3)
    next_turn, late = RunInbox.next_turn, iter(["late", "later"])

    def comes(mail: RunInbox) -> RunInbox:
        for more in late:
            store.handle("a/chat/main").signal("said", more)
            break
        return next_turn(mail)

    monkeypatch.setattr(RunInbox, "next_turn", comes)
    store.handle("a/chat/main").signal("said", "and")
    heard = store.run(chat, "a", [])
    assert heard == [0, 1, 2, "end"]
    assert [one.value for one in store._context.backend.inbox("a/chat/main")] == []


def test_what_an_interrupted_wait_had_taken_is_not_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it was recorded, and its sender was told that it is there. The function goes on to
    its next turn, and does not get there."""
    _backlog(store, 3)
    came = RunInbox.came
    left = [True]

    def interrupted(mail: RunInbox, effect: Await) -> Came | int:
        found = came(mail, effect)
        if isinstance(found, Came) and found.value == 1 and left:
            left.clear()
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(RunInbox, "came", interrupted)
    with pytest.raises(PerdureError, match="went on"):
        store.run(chat, "a", [])
    assert not left
    assert store.run(chat, "a", []) == [0, 1, 2, "end"]


def test_what_nothing_says_that_a_wait_took_is_there_for_the_next_turn(store: Store) -> None:
    _backlog(store, 1)
    backend, run = store._context.backend, "a/chat/main"
    wait = Await("wait", [WaitBranch("it", "signal", "said")], "said")
    for recorded in (False, True):
        mail = RunInbox(backend, run)
        came = mail.came(wait)
        assert isinstance(came, Came) and came.value == 0
        if recorded:
            mail.take([came.no])
        there = [one.value for one in mail.next_turn().unused(anew=True).signals]
        assert there == [0, 0, "end"][recorded:]
        left = mail.came(wait)
        assert not isinstance(left, Came), "who is left of the turn before takes nothing any more"
