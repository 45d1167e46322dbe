"""The last items of a long list, read without the rest, are those that the whole state has."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import SnapshotPolicy
from perdure.agents import Agent
from perdure.core.format import chain
from perdure.core.schema.schema import Schema
from perdure.model import MAIN
from perdure.state.list_ends import end_of
from perdure.state.working_copy import WorkingCopy
from perdure.storage.sqlite.backend import SqliteBackend
from tests.state.conftest import Place

LONG = 700
"""Bytes of an item: a snapshot seals lists into leaves from 8 KiB on."""


def end(agent: Agent[Any], count: int, key: str = "items") -> list[Any] | None:
    """Read by a handle that has nothing in memory."""
    schema: Schema[Any] = Schema.of(None)
    working = WorkingCopy(agent._context, agent.id, schema, agent.branch_name)
    working.settle()
    return end_of(working, key, count)


def item(number: int, random: random.Random) -> Any:
    text = f"{number} ".ljust(LONG, "x")
    if random.random() < 0.1:  # a list of its own that is sealed, too
        return {"n": number, "parts": [text + str(part) for part in range(20)]}
    return {"n": number, "text": text}


def change(draft: Any, number: int, random: random.Random) -> None:
    items = draft["items"]
    if random.random() < 0.7 or len(items) < 3:
        items.extend(item(number + one, random) for one in range(random.randint(1, 3)))
        return
    match random.randrange(9):
        case 0:
            items.pop()
        case 1:
            del items[: random.randint(1, 3)]
        case 2:
            items.insert(random.randrange(len(items)), item(number, random))
        case 3:
            at = random.randrange(len(items))
            if "text" in items[at]:
                items[at]["text"] += " and more"
        case 4:
            items[-2:] = [item(number, random)]
        case 5:
            draft["items"] = [*items[-3:], item(number, random)]
        case 6:
            draft["others"] = [*draft.get("others", []), *("y" * LONG for _ in range(20))]
        case 7:
            items.insert(0, items.pop())
        case _:
            items.clear()


@pytest.mark.parametrize("seed", range(6))
def test_an_end_is_that_of_the_whole_state(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    store = place.open(snapshots=SnapshotPolicy(every_commits=chance.choice([3, 7, 20])))
    agent = store.agent("a", initial={"items": []})
    told = asked = 0
    for number in range(60):
        with agent.edit("change") as draft:
            change(draft, number, chance)
        items: Sequence[Any] = agent.state["items"]
        for count in (0, 1, 2, 10, len(items), len(items) + 1):
            found = end(agent, count)
            asked += 1
            if found is not None:
                told += 1
                assert found == items[max(0, len(items) - count) :]
    assert told > asked / 2  # or it would be no use


def test_ten_of_thousands_are_read_by_themselves(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ten of 5,000 items took 5.6 times as long as with a table of items: the whole state
    was read, proved and decoded."""
    store = place.open(snapshots=SnapshotPolicy(by_weight=False))
    agent = store.agent("a", initial={"items": [f"{n} ".ljust(LONG, "x") for n in range(2000)]})
    agent.checkpoint("with a snapshot")
    leaves: list[int] = []
    if isinstance(store._context.backend, SqliteBackend):
        leaf = SqliteBackend.leaf

        def counted(self: SqliteBackend, leaf_id: int) -> bytes | None:
            leaves.append(leaf_id)
            return leaf(self, leaf_id)

        monkeypatch.setattr(SqliteBackend, "leaf", counted)
    assert end(agent, 10) == agent.state["items"][-10:]
    assert len(leaves) <= 1
    for number in range(30):
        with agent.edit("append") as draft:
            draft["items"].append(f"new {number}")
    decoded: list[int] = []
    read = chain.read_commit

    def counting(name: str, seq: int, *row: Any) -> Any:
        decoded.append(seq)
        return read(name, seq, *row)

    monkeypatch.setattr(chain, "read_commit", counting)
    assert end(agent, 10) == [f"new {number}" for number in range(20, 30)]
    assert len(decoded) == 10
    assert len(leaves) <= 1


def test_where_an_end_cannot_tell_the_whole_state_is_asked(place: Place) -> None:
    store = place.open()
    assert end(store.agent("nobody"), 1) is None
    agent = store.agent("a", initial={"items": [1, 2], "text": "abc", "n": 3})
    agent.checkpoint("c")
    assert end(agent, 1) == [2]
    assert end(agent, 1, "none") is None
    assert end(agent, 1, "text") is None
    assert end(agent, 1, "n") is None
    other: Schema[Any] = Schema(dict, id="another", version=(1, 0))
    working = WorkingCopy(agent._context, "a", other, MAIN)
    working.settle()
    assert end_of(working, "items", 1) is None
    with agent.fork("side").edit("append") as draft:
        draft["items"].append(3)
    assert end(agent.branch("side"), 2) == [2, 3]
    assert end(agent, 2) == [1, 2]
    store.delete("a")
    assert end_of(working, "items", 1) is None


def test_the_end_behind_a_damaged_commit_with_a_snapshot_is_asked_of_the_whole(
    place: Place,
) -> None:
    """Story: where a commit could not be read, and a snapshot stood at it, an AttributeError hid
    the error that names the way back."""
    store = place.open(snapshots=SnapshotPolicy(every_commits=5))
    agent = store.agent("a", initial={"items": [0]})
    for number in range(8):
        with agent.edit() as draft:
            draft["items"].append(number)
    backend, no = store._context.backend, agent._working.reader.no
    row = next(row for row in backend.read(no, 0, 100) if row.snapshotted)
    backend.trim(no, 0, {row.seq: row.payload[:-3] + bytes([row.payload[-3] ^ 1]) + b"xx"})
    assert end(agent, 50) is None
    assert end(agent, 1) == [7]
