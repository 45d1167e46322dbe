"""Looking at runs while they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place


@perdure.agent(dict)
def noted(run: perdure.Run[dict[str, Any]]) -> int:
    return 1


def test_a_run_that_begins_between_two_looks_is_listed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was asked for is a message until it begins, and a row from then on. The rows were
    looked at first and the messages then: a run that a worker began in between was in neither,
    and who looked at an agent of a name that was used before took its old run for the new one."""
    store = place.open()
    store.start(noted, "a")
    backend = store.runner.context.backend
    looks: list[str] = []

    def between(name: str, look: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*args: Any, **kwargs: Any) -> Any:
            found = look(*args, **kwargs)
            looks.append(name)
            if len(looks) == 1:
                monkeypatch.undo()
                place.open().run(noted, "a")
                watch()
            return found

        return seen

    def watch() -> None:
        for name in ("runs", "inbox"):
            monkeypatch.setattr(backend, name, between(name, getattr(backend, name)))

    watch()
    listed = [run.agent for run in store.runs()]
    assert sorted(looks) == ["inbox", "runs"]
    assert listed == ["a"]


@perdure.agent(dict)
def waits(run: perdure.Run[dict[str, Any]]) -> Any:
    run.progress("on its way", 0.5)
    return run.wait_for("go")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("gone", ["agent", "branch"])
def test_a_run_can_be_looked_at_when_its_agent_is_gone(
    place: Place, gone: str, again: bool
) -> None:
    """An agent's log stays for an audit when it is deleted. What its runs did could not be shown:
    "was deleted". And `why` sent people there."""
    store = place.open()
    run = run_until_waiting(store, waits, "a")
    if gone == "agent":
        store.delete("a")
    else:
        run = run.fork("wait_for:go#1", branch="side", key="other")
        run_until_waiting(store.options(key="other"), waits, "a")
        run.cancel("over")
        store.agent("a").delete_branch("side")
    if again:
        store.agent("a").update(lambda draft: draft.update(n=2))
    report = run.report()
    assert [note.text for note in report.notes] == ["on its way"]
    assert report.info.status == "cancelled"
    assert list(report.places) == [""]
    assert "wait_for:go#1" in [event.place for event in report.events]
