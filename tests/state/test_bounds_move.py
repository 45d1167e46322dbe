"""What one backend takes, all take: a store filled to its bounds moves to each of them."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import replication
from perdure.core.arguments.bounds import (
    DURATION_MAX,
    KEY_BYTES_MAX,
    NAME_MAX,
    RUN_ID_BYTES_MAX,
    TAGS_MAX,
    WORDS_MAX,
)
from tests.engine.waits import go
from tests.state.conftest import Place

WIDE = "\U0001d11e"
"""Four bytes in UTF-8, as wide as any."""

NAME = WIDE * NAME_MAX
WORDS = WIDE * WORDS_MAX
KEY = "k" * KEY_BYTES_MAX
RUN_AGENT = "r" * NAME_MAX
RUN_KEY = WIDE * ((RUN_ID_BYTES_MAX - NAME_MAX - len("//filling")) // 4)


@perdure.agent(dict)
def filling(run: perdure.Run[dict[str, Any]]) -> str:
    run.progress(WORDS)
    run.ask(WORDS, timeout=DURATION_MAX)
    return "done"


def fill(store: perdure.Store) -> str:
    """Everything as long as it may be; the id of a run that waits."""
    agent = store.agent(NAME, initial={"n": 0})
    tags = [WIDE, WORDS, *map(str, range(TAGS_MAX - 2))]
    for key in (KEY, WORDS):
        with agent.edit(WORDS, key=key, tags=tags, group=WORDS, trace=WORDS) as draft:
            draft[NAME] = {NAME: 1}
            draft["n"] += 1
    agent.checkpoint(NAME)
    agent.fork(f"b{NAME[1:]}")
    store.agent(RUN_AGENT, initial={})
    options = store.options(key=RUN_KEY, queue=NAME)
    handle = options.start(filling, RUN_AGENT)
    handle.signal(NAME, 1, key=WORDS, by=WORDS)
    assert go(store, filling, RUN_AGENT, key=RUN_KEY) is None
    handle.signal(NAME, 2, key=KEY)
    return handle.id


def check(store: perdure.Store, run: str) -> None:
    agent = store.agent(NAME)
    assert agent.state == {"n": 2, NAME: {NAME: 1}}
    for key in (KEY, WORDS):  # it is known: nothing is done again
        with agent.edit(WORDS, key=key, tags=[], group=WORDS) as draft:
            draft["n"] += 100
    assert agent.state["n"] == 2
    assert {NAME, f"b{NAME[1:]}"} <= {one.name for one in agent.branches()} | {NAME}
    agent.verify()
    store.agent(RUN_AGENT).verify()
    handle = store.handle(run)
    handle.answer(True, by=WORDS)
    assert go(store, filling, RUN_AGENT, key=RUN_KEY) == "done"


@pytest.mark.parametrize("way", ["replicate", "migrate"])
def test_a_store_filled_to_its_bounds_moves(place: Place, other: Place, way: str) -> None:
    """SQLite took keys that PostgreSQL cannot index: the store could be copied nowhere."""
    run = fill(place.open())
    if way == "migrate":
        replication.migrate(place.url, other.url)
    else:
        with replication.following(place.url, other.url) as follower:
            follower.drain()
            assert follower.aside == ()
        replication.promote(other.url, place.url)
    check(other.open(), run)
