"""Looking at runs while they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
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
