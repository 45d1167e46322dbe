"""Runs that wait for others whose begins did not come along with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import replication
from perdure.testing import run_until_waiting
from tests.damaging import break_first


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> Any:
    return run.start(child, "kid").result()


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store in which a run waits for another, whose log cannot be read from its begin on."""
    url = f"sqlite:///{tmp_path / 'source.db'}"
    with perdure.open(url) as store:
        run_until_waiting(store, parent, "boss")
        (requested,) = store.runs("kid")
        run_until_waiting(store.options(key=requested.id.split("/")[2]), child, "kid")
        break_first(store, "kid", "payload")
    return url


def is_noted(url: str) -> bool:
    with perdure.open(url) as store:
        (row,) = store.runs("boss")
        return row.status == "needs_attention" and "did not come" in (row.problem or "")


def test_a_promotion_that_was_killed_at_its_end_notes_them_when_it_is_repeated(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion notes, last, which runs wait for what was lost. It was killed before that;
    repeated, as the docs say, it said that all was done, and the run waited for ever."""
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    with replication.following(source, target) as follower:
        follower.drain()

    def die(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(replication, "stop_without_children", die)
        replication.promote(target, source_is_lost=True, take_incomplete=True)
    assert not is_noted(target)
    with pytest.raises(replication.DoneBeforeError):
        replication.promote(target, source_is_lost=True, take_incomplete=True)
    assert is_noted(target)


def test_a_move_that_leaves_one_behind_notes_who_waits_for_it(source: str, tmp_path: Path) -> None:
    """A promotion noted it; after a move of the same stores the run waited for ever."""
    target = f"sqlite:///{tmp_path / 'new.db'}"
    with pytest.raises(replication.IncompleteError):
        replication.migrate(source, target)
    replication.migrate(source, target, take_incomplete=True)
    assert is_noted(target)
