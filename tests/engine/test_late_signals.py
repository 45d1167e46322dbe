"""A signal that comes just before the commit that ends its run: whoever sent it was told that it is
there. It was taken out with the rest of the inbox, and was in no log: the run, set back, waited for
it for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.model import FINISHED
from tests.engine.working import wait_until, working

Late = Callable[[str], list[str]]


@pytest.fixture
def late(store: Store, monkeypatch: pytest.MonkeyPatch) -> Late:
    """Lets one signal come before each of the next two tries to commit the end of a run."""

    def coming(run: str) -> list[str]:
        context = store.runner._context
        submit = context.committer.submit
        keys: list[str] = []

        def sending(proposal: Any) -> Any:
            ends = [row for row in proposal.riders.runs if row.status in FINISHED]
            if ends and len(keys) < 2:
                keys.append(f"late-{len(keys)}")
                assert store.handle(run).signal("go", keys[-1], key=keys[-1])
            return submit(proposal)

        monkeypatch.setattr(context.committer, "submit", sending)
        return keys

    return coming


@perdure.agent(dict)
def ending(run: perdure.Run[dict], *, how: str) -> str:
    if how == "fails":
        raise ValueError("a bug")
    if how == "waits":
        run.wait_for("never")
    return how


def noted(store: Store, run: str) -> list[str]:
    """The signals that the run's last commit says it did not take."""
    records = (record for commit in store.agent("a").log() for record in commit.records)
    last = [record for record in records if "left" in record]
    assert len(last) == 1 and last[0]["run"] == run
    return [str(signal["value"]) for signal in last[0]["left"]]


@pytest.mark.parametrize("how", ["returns", "fails"])
def test_i8_it_is_noted_with_the_end(store: Store, late: Late, how: str) -> None:
    keys = late("a/ending/main")
    try:
        store.run(ending, "a", how=how)
    except ValueError:
        assert how == "fails"
    assert noted(store, "a/ending/main") == keys == ["late-0", "late-1"]
    assert store._context.backend.inbox() == []


def test_i8_it_is_noted_with_a_cancellation(store: Store, late: Late) -> None:
    handle = store.start(ending, "a", how="waits")
    with working(store, ending):
        wait_until(lambda: handle.status == "waiting")
    keys = late(handle.id)
    handle.cancel("enough")
    assert handle.status == "cancelled"
    assert noted(store, handle.id) == keys == ["late-0", "late-1"]


@pytest.mark.parametrize("move", ["rollback", "undo"])
def test_i8_it_is_noted_where_the_state_is_moved_away_under_the_run(
    store: Store, late: Late, move: str
) -> None:
    agent = store.agent("a")
    with agent.edit() as state:
        state["n"] = 1
    handle = store.start(ending, "a", how="waits")
    with working(store, ending):
        wait_until(lambda: handle.status == "waiting")
    handle.signal("go", "before")
    keys = late(handle.id)
    if move == "undo":
        store.agent("a").undo(cancel_run=True)
    else:
        store.agent("a").rollback(1, cancel_run=True)
    assert handle.status == "cancelled"
    assert noted(store, handle.id) == ["before", *keys] == ["before", "late-0", "late-1"]
