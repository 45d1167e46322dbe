"""A move asks beforehand whether the target can take all of it, and refuses before anything moves.

Bounds are the same on every backend, so nothing that is made now can be too long for one. Stores
that were filled before there were bounds have longer names; backends of others may lack parts.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.core.arguments.bounds import NAME_MAX
from perdure.errors import Conflict
from perdure.model import Message, RunInfo
from perdure.replication import IncompleteError, following, migrate, promote, restore
from perdure.storage.capabilities import REMOVAL, SHIPPING, Sent
from perdure.storage.locate import locate
from perdure.storage.memory.backend import MemoryBackend
from perdure.testing.pen import Pen
from perdure.transfer.follower import Follower
from perdure.transfer.migration import Migration
from perdure.transfer.preconditions import check_able
from tests.postgres.server import shared
from tests.state.conftest import Place

LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=4000))
"""Longer than any name may be now; than PostgreSQL indexes, too, and cannot be packed."""


def _old(path: Path, what: str) -> str:
    """A store as an older version could fill it: two good agents, and one with a long name."""
    backend = locate(path)
    for name in ("a", "z"):
        Pen(backend, name).write(value={"n": 1})
    pen = Pen(backend, LONG if what == "agent" else "m")
    if what == "run":
        pen.write(runs=[RunInfo(LONG, "m", 1, "main", "f", "k", "waiting", started=1)])
    else:
        pen.write(value={"n": 2})
    if what == "branch":
        pen.write(LONG, value={"n": 3})
    if what == "message":
        assert isinstance(backend.send(Message("m/f/k", "m", "start", LONG, "k", {})), Sent)
    backend.close()
    return str(path)


@pytest.fixture(params=["agent", "branch", "message"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _old(tmp_path / "old.db", request.param)


def _agents(url: str) -> list[str]:
    with perdure.open(url) as store:
        return [info.name for info in store.agents()]


def _is_there(url: str) -> bool:
    backend = locate(url)
    try:
        return backend.standing() is not None or bool(backend.agents())
    finally:
        backend.close()


def test_a_migration_is_refused_before_any_agent_moves(source: str) -> None:
    """The others had moved by then, and the one that did not fit was left behind in a store that
    was half of what it was."""
    target = shared().new_url()
    moved: list[Any] = []
    with pytest.raises(
        IncompleteError, match=r"does not fit: a store takes 200 characters"
    ) as error:
        migrate(source, target, moved.append)
    assert "nothing was moved" in error.value.hint and len(str(error.value)) < 1000
    assert len(error.value.found) == 1 and error.value.found[0].agent in ("m", LONG)
    assert not moved and not _is_there(target)
    with perdure.open(source) as store:  # it goes on as if nothing had been asked
        store.agent("a", perdure.Schema(dict, id="dict", version=(1, 0))).update(
            lambda draft: draft.update(n=5)
        )


def test_a_restore_is_refused_before_anything_is_written(source: str) -> None:
    target = shared().new_url()
    with pytest.raises(IncompleteError, match="does not fit"):
        restore(source, target, datetime.now(UTC))
    assert not _is_there(target)


def test_a_migration_goes_on_with_what_fits_where_that_is_asked_for(tmp_path: Path) -> None:
    source, target = _old(tmp_path / "old.db", "branch"), str(tmp_path / "new.db")
    assert {one.agent for one in migrate(source, target, take_incomplete=True)} == {"a", "m", "z"}
    assert _agents(target) == ["a", "m", "z"]


def test_a_replica_names_it_at_once_and_follows_the_others(source: str) -> None:
    """A copy does not stop for one agent; but it says so before the first commit of it comes."""
    target = shared().new_url()
    with following(source, target) as follower:
        [aside] = follower.aside
        assert "does not fit" in aside.problem and aside.seq == 1
        follower.drain()
        assert [one.agent for one in follower.aside] == [aside.agent]
    assert _agents(target) == ["a", "z"]
    with pytest.raises(IncompleteError, match="nothing was promoted"):
        promote(target)


def test_a_run_whose_id_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="takes 700 bytes"):
        migrate(_old(tmp_path / "old.db", "run"), tmp_path / "new.db")


def test_names_at_the_bounds_fit(tmp_path: Path, place: Place) -> None:
    source = locate(tmp_path / "old.db")
    name = "\U0001d11e" * NAME_MAX
    Pen(source, name).write(name, value={"n": 1})
    source.close()
    migrate(tmp_path / "old.db", place.url)
    assert _agents(place.url) == [name]


def test_a_backend_without_what_a_move_needs_is_refused() -> None:
    """It failed at the first agent that was shipped, by an AttributeError."""

    class Partial(MemoryBackend):
        capabilities = MemoryBackend.capabilities - {SHIPPING, REMOVAL}

    source, target = MemoryBackend("source"), Partial()
    Pen(source, "a").write(value={"n": 1})
    for begin in (Follower(source, target).begin, Migration(source, target).run):
        with pytest.raises(Conflict, match="lacks shipping, removal"):
            begin()
    assert target.standing() is None
    check_able(MemoryBackend())
