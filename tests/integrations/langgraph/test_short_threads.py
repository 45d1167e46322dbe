"""A thread of a few commits is read as a whole, and what it says is not looked up beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

import perdure
from perdure import Conflict, NotFound
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads.recent_commits import FOLDED_MAX
from perdure.storage.sqlite.backend import SqliteBackend
from tests.integrations.langgraph.checkpoints import config, get, line, put
from tests.integrations.langgraph.conftest import Place


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a backend is asked for."""
    found: list[str] = []
    for name in ("agent", "read", "key", "keys", "ref", "refs", "snapshot"):
        called = getattr(SqliteBackend, name)

        def counting(
            self: Any, *args: Any, _called: Any = called, _name: str = name, **more: Any
        ) -> Any:
            found.append(_name)
            return _called(self, *args, **more)

        monkeypatch.setattr(SqliteBackend, name, counting)
    return found


@pytest.mark.parametrize("count", [1, 7, 20])
def test_a_look_at_a_short_thread_is_one_read(tmp_path: Path, asked: list[str], count: int) -> None:
    """Behind a read that had all of the log, three names were looked up of which two are not there,
    and the writes of the last checkpoint: that something is missing is proved by a look at the
    pages of SQLite's trees, which took longer than all else."""
    with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
        at = line(saver, count)[-1]
        saver.put_writes(at, [("n", 7)], "a task")
    with PerdureSaver.from_url(tmp_path / "ours.db") as saver:
        asked.clear()
        found = get(saver)
        assert found.pending_writes == [("a task", "n", 7)]
        assert found.checkpoint["channel_values"]["n"] == count - 1
        assert asked == ["agent", "read"]


def _found(saver: PerdureSaver) -> perdure.types.AgentInfo:
    found = saver.store.find("t")
    assert found is not None
    return found


def _second_child(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    put(saver, {"n": -1}, made[2], 9)


def _subgraph(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    put(saver, {"n": -2}, config(ns="inner"), 9)


def _prune(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    saver.prune(["t"])


def _roll_back(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    saver.store.agent_of(_found(saver)).rollback(3)


def _name(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    saver.store.agent_of(_found(saver)).checkpoint("a name")


def _fork(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    saver.store.agent_of(_found(saver)).fork("main~2", at=3)


def _begin_anew(saver: PerdureSaver, made: list[RunnableConfig]) -> None:
    saver.delete_thread("t")
    put(saver, {"n": 100})


CHANGES = [_second_child, _subgraph, _prune, _roll_back, _name, _fork, _begin_anew]


def _told(saver: PerdureSaver, made: list[RunnableConfig]) -> list[CheckpointTuple | None]:
    return [
        saver.get_tuple(config()),
        saver.get_tuple(config(ns="inner")),
        *(saver.get_tuple(one) for one in made),
        *saver.list(config()),
    ]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("then", CHANGES)
def test_what_others_do_to_a_short_thread_is_seen(
    place: Place, change: Callable[..., None], then: Callable[..., None]
) -> None:
    """Whether somebody had read the thread before, between these, or not at all."""
    early, between = place.open(), place.open()
    made = line(early, 5)
    _told(early, made)
    change(place.open(), made)
    _told(between, made)
    with suppress(Conflict, NotFound):  # the name is taken, or the thread is another one
        then(place.open(), made)
    expected = _told(place.open(), made)
    assert _told(early, made) == _told(between, made) == expected


@pytest.mark.parametrize("count", [3, FOLDED_MAX - 1, FOLDED_MAX, FOLDED_MAX + 1])
def test_who_was_too_late_looks_again(place: Place, count: int) -> None:
    """The end of the log was taken from what had been read of it, also when a commit had just been
    refused because that was not the end any more: so was each next try."""
    mine, theirs = place.open(), place.open()
    made = line(mine, count)
    mine, theirs = place.open(), place.open()
    get(mine)
    theirs.put_writes(made[-1], [("n", 1)], "theirs")
    mine.put_writes(made[-1], [("n", 2)], "mine")
    theirs.put_writes(made[-1], [("n", 3)], "more of theirs")
    at = put(mine, {"n": count}, made[-1], count + 1)
    assert [one.parent_config for one in (get(mine, at), get(theirs, at))] == [
        get(theirs, at).parent_config,
        made[-1],
    ]
    pending = get(theirs, made[-1]).pending_writes
    assert pending is not None
    assert sorted(value for _, _, value in pending) == [1, 2, 3]
