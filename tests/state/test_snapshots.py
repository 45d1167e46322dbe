"""Snapshots are a cache: whatever the policy, whatever happened to the lists, states are equal."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from perdure import SnapshotPolicy
from perdure.core.values.plain_values import copy, same
from perdure.errors import Corrupt
from perdure.storage.log import snapshots
from perdure.storage.log.reader import LogReader

POLICIES = {
    "default": SnapshotPolicy(),
    "never": SnapshotPolicy(by_weight=False, on=()),
    "always": SnapshotPolicy(every_commits=1),
    "every third": SnapshotPolicy(by_weight=False, every_commits=3, on=()),
    "by time": SnapshotPolicy(by_weight=False, every_seconds=0.0),
    "by words": SnapshotPolicy(by_weight=False, on={"risky"}),
    "by little weight": SnapshotPolicy(weight_min=500, on=()),
}


@pytest.fixture
def small_leaves(monkeypatch):
    """So that short lists have many."""
    monkeypatch.setattr(snapshots, "LEAF_BYTES", 40)
    monkeypatch.setattr(snapshots, "LEAF_ITEMS_MAX", 4)


def play(agent: Any, seed: int, steps: int) -> dict[int, Any]:
    """Random edits of lists; returns the state after each commit."""
    rng = random.Random(seed)
    states = {}
    for step in range(steps):
        with agent.edit(rng.choice(["", "risky"])) as draft:
            for items in [item["parts"] for item in draft["top"] if item["parts"]][:3]:
                change(rng, items, False, step)
            change(rng, draft["top"], True, step)
            if rng.random() < 0.1:
                draft["rows"] = [[step] * 5 for _ in range(9)]
            if rng.random() < 0.3:
                draft["rows"].insert(0, [step])
            if draft["rows"] and rng.random() < 0.5:
                rng.choice(list(draft["rows"])).append(step)
        states[agent.seq] = copy(agent.state)
        if rng.random() < 0.05:
            agent.undo()
            states[agent.seq] = copy(agent.state)
    return states


def change(rng: random.Random, items: Any, top: bool, step: int) -> None:
    def new() -> Any:
        value = f"{step}-{rng.randrange(99)}"
        return {"id": value, "parts": [value] * rng.choice([0, 0, 9])} if top else value

    match rng.choice("aaaaaaaittmsrdc"):
        case "a":
            items.extend(new() for _ in range(rng.randrange(1, 9)))
        case "i":
            items.insert(rng.randrange(len(items) + 1), new())
        case "t":
            del items[: rng.randrange(4)]
        case "m" if len(items) > 1:
            item = items.pop(rng.randrange(len(items)))
            items.insert(rng.randrange(len(items) + 1), item)
        case "s" if items:
            items[rng.randrange(len(items))] = new()
        case "r":
            items.reverse()
        case "d" if items:
            del items[rng.randrange(len(items))]
        case "c" if rng.random() < 0.2:
            items.clear()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_policy_gives_the_same_states(place, small_leaves, name, seed):
    agent = place.open(snapshots=POLICIES[name]).agent("a", initial={"top": [], "rows": []})
    states = play(agent, seed, 60)
    reader = place.open().agent("a")
    assert same(reader.state, states[agent.seq])
    for seq, state in states.items():
        assert same(reader.at(seq).plain, state), seq
    agent.verify()


def test_handles_take_turns_with_snapshots_in_between(place, small_leaves):
    """Leaves are shared with the snapshot before: also by a handle that followed, one that was
    refused, one that came back from a rollback."""
    store = place.open(snapshots=SnapshotPolicy(every_commits=2))
    rng = random.Random(5)
    store.agent("a", initial={"items": []}).checkpoint("start")
    handles = [store.agent("a") for _ in range(3)]
    states = {}
    for step in range(150):
        agent = rng.choice(handles)
        act = rng.random()
        if act < 0.1:
            agent.rollback(rng.randrange(1, agent.refresh() is not None and agent.seq))
        elif act < 0.2:
            with pytest.raises(ZeroDivisionError), agent.edit() as draft:
                draft["items"].insert(0, step)
                1 / 0
        elif act < 0.3:
            agent.refresh()
            with agent.edit() as draft:
                draft["items"][:2] = []
        else:
            with agent.edit() as draft:
                draft["items"].extend(range(step, step + rng.randrange(5)))
        states[agent.seq] = copy(agent.state)
    reader = place.open().agent("a")
    assert all(same(reader.at(seq).plain, state) for seq, state in states.items())
    reader.verify()


def test_ten_thousand_messages_rehydrate(place):
    agent = place.open().agent("a", initial={"messages": []})
    for batch in range(100):
        with agent.edit() as draft:
            draft["messages"].extend(
                {"role": "user", "content": f"message {batch * 100 + n} " * 5} for n in range(100)
            )
    with agent.edit() as draft:
        del draft["messages"][:1000]
    fresh = place.open().agent("a")
    assert len(fresh.state["messages"]) == 9000
    assert fresh.state == agent.state
    assert fresh.state["messages"][0]["content"].startswith("message 1000 ")
    assert len(fresh.at(51).state["messages"]) == 5000
    agent.verify()


def test_ten_thousand_commits_rehydrate(place):
    agent = place.open().agent("a", initial={"messages": []})
    for n in range(10_000):
        with agent.edit() as draft:
            draft["messages"].append(f"message {n}")
    fresh = place.open().agent("a")
    assert fresh.state == {"messages": [f"message {n}" for n in range(10_000)]}
    assert fresh.seq == 10_001
    sizes = place.opened[0].sizes("a")
    assert 0 < sizes.snapshots < 100
    assert fresh.at(5001).state["messages"][-1] == "message 4999"


def test_i9_a_snapshot_of_a_long_list_writes_its_end(store, place):
    agent, rng = store.agent("a", initial={"items": []}), random.Random(1)
    with agent.edit() as draft:
        draft["items"].extend(rng.randbytes(100) for _ in range(10_000))
    agent.checkpoint("one")
    before = store.sizes("a")
    for n in range(5):
        with agent.edit() as draft:
            draft["items"].append(f"{n}")
            del draft["items"][0]
        agent.checkpoint(f"more-{n}")
    after = store.sizes("a")
    assert before.leaf_bytes + before.snapshot_bytes > 900_000
    assert (
        after.leaf_bytes + after.snapshot_bytes - before.leaf_bytes - before.snapshot_bytes < 20_000
    )
    assert after.snapshots == before.snapshots + 5
    assert len(place.open().agent("a").state["items"]) == 10_000


def test_long_states_have_longer_leaves_and_short_ones_short_tails(place):
    """Each snapshot seals what came since as one leaf, and short leaves compress badly: a LangGraph
    thread of 5,000 messages took 2.05 times its text, and takes 1.99 with leaves half as long
    again. A state of a few messages is not to pay for that with a longer tail to replay. Who opens
    the store anew goes on by the same rule."""
    rng = random.Random(8)
    with place.open() as store:
        append_texts(store.agent("a", initial={"items": []}), rng, 300)
    store = place.open()
    append_texts(store.agent("a"), rng, 300)
    info = store._context.backend.agent("a")
    assert info is not None
    seqs = LogReader(store._context.backend, info).snapshot_seqs()
    gaps = [after - before for before, after in pairwise([1, *seqs])]
    assert 50 < gaps[0] == gaps[1] < 70  # 64 KiB, of 1 KiB each and what replaying them costs
    assert 1.4 * gaps[0] < gaps[-1] < 1.6 * gaps[0]
    assert gaps == sorted(gaps)
    store.agent("a").verify()


def append_texts(agent: Any, rng: random.Random, count: int) -> None:
    for _ in range(count):
        with agent.edit() as draft:
            draft["items"].append(rng.randbytes(700).hex())


def test_time_passes_for_a_log_without_a_snapshot(place, monkeypatch):
    """The age of the last snapshot was 0 where there was none: by time alone none was taken."""
    store = place.open(snapshots=SnapshotPolicy(by_weight=False, every_seconds=60, on=()))
    backend = store._context.backend
    clock = [backend.now()]
    monkeypatch.setattr(backend, "now", lambda: clock[0])
    agent = store.agent("a", initial={"n": 0})
    for n in range(1, 11):
        clock[0] += 20_000_000
        agent.save({"n": n})
    assert store.sizes("a").snapshots == 3
    again = place.open(snapshots=SnapshotPolicy(by_weight=False, every_seconds=60, on=()))
    monkeypatch.setattr(again._context.backend, "now", lambda: clock[0])
    clock[0] += 60_000_000
    again.agent("a").save({"n": 11})
    assert store.sizes("a").snapshots == 4


def test_i11_a_damaged_snapshot_is_found_and_stands_in_nobodys_way(place):
    """An agent was Corrupt for a byte of a leaf, though the log has all that it was made of.

    Memory only: the file's own checksums find it earlier."""
    if place.durable:
        return
    store = place.open(snapshots=SnapshotPolicy(every_commits=1))
    agent = store.agent("a", initial={"items": ["x" * 1000] * 100})
    agent.save({"items": ["x" * 1000] * 101})
    backend: Any = store._context.backend
    key = next(iter(backend._leaves))
    good = backend._leaves[key]
    for damage in (good[:-1], good[:20] + b"!" + good[21:], b"", None):
        backend._leaves[key] = damage
        if damage is None:
            del backend._leaves[key]
        assert store.agent("a").state == {"items": ["x" * 1000] * 101}
        with pytest.raises(Corrupt, match="agent 'a', snapshot"):
            agent.verify()
    backend._leaves[key] = good
    agent.verify()
