"""Stores of before long keys were noted by their digests.

A key of 3,000 bytes stood in SQLite's index as it was, and PostgreSQL could not take it. Then keys
of more than 200 bytes were noted by their digests: in a store that was written before, such a key
was not found any more, its command would have been carried out again, and `verify` said `Corrupt`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.replication
from perdure.core.arguments import bounds
from perdure.store import Store

LONG = "k" * 3_000
_names = itertools.count()


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://long-keys-{next(_names)}"
    return f"sqlite:///{tmp_path}/old.db"


@perdure.agent(dict)
def act(run: perdure.Run[dict[str, Any]]) -> Any:
    return run.wait_for("go")


@pytest.fixture
def old(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Written as it was then, and open."""
    with perdure.open(url) as store, monkeypatch.context() as then:
        then.setattr(bounds, "KEY_BYTES_MAX", 10_000)
        then.setattr("perdure.core.format.rows.KEY_BYTES_MAX", 10_000)
        agent = store.agent("a", initial={"n": 0})
        agent.update(_count, "it", key=LONG)
        store.start(act, "a").signal("go", 5, key=LONG)
    with perdure.open(url) as store:
        backend = store._context.backend
        assert backend.key(backend.agents()[0].no, LONG) is not None
        yield store


def _count(draft: Any) -> None:
    draft["n"] += 1


def test_a_key_of_then_is_used_now(old: Store) -> None:
    agent = old.agent("a")
    agent.verify()
    found = agent.update(_count, "it", key=LONG)
    assert found is not None and found.seq == 2
    with agent.edit("it", key=LONG) as draft:
        _count(draft)
    assert agent.state == {"n": 1} and agent.seq == 2
    with pytest.raises(perdure.Conflict):
        agent.update(_count, "something else", key=LONG)
    agent.verify()


@pytest.mark.parametrize("way", ["replicate", "import"])
def test_a_copy_of_it_has_what_every_backend_can_keep(old: Store, url: str, way: str) -> None:
    target = f"memory://long-keys-{next(_names)}"
    with perdure.open(target) as copy:
        if way == "replicate":
            with perdure.replication.following(url, target) as follower:
                follower.drain()
            with perdure.replication.following(url, target) as follower:  # compared with its source
                follower.drain()
            [message] = [one for one in copy._context.backend.inbox() if one.kind == "signal"]
            assert message.key == bounds.index_key(LONG)
        else:
            copy.import_log(old.export_log(old.agents()[0]))
        backend = copy._context.backend
        no = backend.agents()[0].no
        assert backend.key(no, LONG) is None
        assert backend.key(no, bounds.index_key(LONG)) is not None
        copy.agent("a").verify()
