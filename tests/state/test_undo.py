"""Undo and redo: new commits that bring back what was, or say what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import perdure
from perdure.core.values import ops
from perdure.errors import Conflict, NotFound

LONG = "The quick brown fox jumps over the lazy dog, and then does it once more. " * 3


@pytest.fixture
def agent(store):
    return store.agent("a", initial={"a": 1, "b": 1, "items": [0, 1, 2], "text": LONG})


def put(agent, group=None, **values):
    with agent.edit("put", group=group) as draft:
        draft.update(values)


def test_undo_takes_back_one_commit_at_a_time(agent, store):
    start = dict(agent.state)
    put(agent, a=2)
    put(agent, b=2)
    put(agent, a=3)
    assert agent.undo().commit.cause.refers == (4,)
    assert (agent.state["a"], agent.state["b"]) == (2, 2)
    agent.undo()
    agent.undo()
    assert agent.state == start == store.agent("a").state
    with pytest.raises(NotFound, match="nothing to undo"):
        agent.undo()
    agent.verify()


def test_redo_takes_back_undos(agent, steady):
    put(agent, a=2)
    with steady.refuses(agent, NotFound, "nothing to redo"):
        agent.redo()
    put(agent, a=3)
    agent.undo()
    agent.undo()
    assert agent.redo().commit.cause.kind == "redo"
    assert agent.state["a"] == 2
    agent.redo()
    assert agent.state["a"] == 3
    with steady.refuses(agent, NotFound, "nothing to redo"):
        agent.redo()
    agent.undo()
    agent.undo()
    assert agent.state["a"] == 1
    agent.redo()
    assert agent.state["a"] == 2


def test_undo_after_a_rollback_goes_on_from_there(agent):
    put(agent, a=2)
    put(agent, a=3)
    put(agent, a=4)
    agent.rollback(3)
    assert agent.state["a"] == 3
    agent.undo()
    assert agent.state["a"] == 2
    agent.undo()
    assert agent.state["a"] == 1
    with pytest.raises(NotFound):
        agent.undo()
    agent.redo()
    assert agent.state["a"] == 2


def test_undo_on_a_fork_and_after_an_adoption(agent):
    put(agent, a=2)
    fork = agent.fork("side")
    fork.undo()
    assert (fork.state["a"], agent.refresh()["a"]) == (1, 2)
    put(fork, a=9)
    agent.adopt("side")
    agent.undo()
    assert agent.state["a"] == 1
    agent.verify()


def test_commits_without_a_delta_are_passed_over(agent):
    put(agent, a=2)
    agent.checkpoint("cp")
    agent.fork("side")
    agent.delete_branch("side")
    agent.undo()
    assert agent.state["a"] == 1


def test_creation_is_not_undone(agent):
    agent.checkpoint("cp")
    with pytest.raises(NotFound, match="nothing to undo"):
        agent.undo()


# -- what stands in the way --------------------------------------------------------------------


def test_a_group_is_undone_together(agent):
    put(agent, group="g", a=2)
    agent.checkpoint("in between")
    put(agent, group="g", b=2)
    put(agent, group="g", a=3)
    moved = agent.undo()
    assert moved.commit.cause.refers == (2, 4, 5)
    assert (agent.state["a"], agent.state["b"]) == (1, 1)
    agent.redo()
    assert (agent.state["a"], agent.state["b"]) == (3, 2)
    agent.undo()
    assert (agent.state["a"], agent.state["b"]) == (1, 1)


def test_a_group_goes_around_what_others_wrote_in_between(agent, store):
    """Two of a group's commits had somebody else's between them: only the later one was undone."""
    other = store.agent("a")
    put(agent, group="g", a=2)
    other.refresh()
    put(other, other=1)
    put(agent, group="g", b=2)
    agent.undo()
    assert agent.state == {"a": 1, "b": 1, "items": [0, 1, 2], "text": LONG, "other": 1}
    agent.undo()
    assert "other" not in agent.state


def test_a_group_is_refused_as_one(agent, store, steady):
    put(agent, group="g", a=2)
    put(agent, other=1, a=5)
    put(agent, group="g", b=2)
    with steady.refuses(agent, Conflict, r"state\.a \(commit 3\)"):
        agent.undo()
    assert agent.state["b"] == 2


def test_a_refusal_names_the_paths(agent, steady):
    """The redo put back what the next undo would restore over."""
    put(agent, group="one", a=2)
    agent.undo()
    put(agent, a=7)
    with steady.refuses(agent, Conflict, r"state\.a \(commit 4\)"):
        agent.redo()
    assert agent.state["a"] == 7


def test_a_redo_in_between_stands_in_the_way(store, steady):
    """Append A, undo, append B, redo (A is in front of B again). Undoing B then counted the redo
    and its undo as if they had cancelled out, and took A away instead of B."""
    agent = store.agent("a", initial={"items": []})
    with agent.edit() as draft:
        draft["items"].append("A")
    agent.undo()
    with agent.edit() as draft:
        draft["items"].append("B")
    try:
        agent.redo()
    except Conflict:
        return
    before = list(agent.state["items"])
    assert sorted(before) == ["A", "B"]
    try:
        agent.undo()
    except Conflict:
        assert agent.state["items"] == before
    else:
        assert agent.state["items"] == ["A"]


def test_an_item_that_its_own_commit_moved_is_found(store, steady):
    """One edit changed item 0 and then inserted in front of it. Somebody changed that item, at
    place 1 by now; undo looked at place 0, saw nothing, and wrote over it."""
    agent = store.agent("a", initial={"items": [{"k": 0}], "n": 0})
    put(agent, n=1)
    with agent.edit(group="g") as draft:
        draft["items"][0]["k"] = 1
        draft["items"].insert(0, {"k": "new"})
    with agent.edit() as draft:
        draft["items"][1]["k"] = 2
    put(agent, group="g", n=2)
    with steady.refuses(agent, Conflict, r"items\[1\]\.k"):
        agent.undo()
    assert agent.state["items"] == [{"k": "new"}, {"k": 2}]


@pytest.mark.parametrize(
    ("later", "allowed"),
    [
        (lambda items: items.append(9), True),
        (lambda items: items.insert(4, 9), True),
        (lambda items: items.insert(2, 9), False),
        (lambda items: items.insert(0, 9), False),
        (lambda items: items.pop(0), False),
        (lambda items: items.pop(3), True),
        (lambda items: items.__setitem__(0, 9), True),
        (lambda items: items.__setitem__(1, 9), False),
        (lambda items: items.__setitem__(3, 9), True),
        (lambda items: items.clear(), False),
        (lambda items: items.reverse(), False),
        (lambda items: perdure.move(items, 3, 4), True),
        (lambda items: perdure.move(items, 4, 0), False),
    ],
)
def test_structural_list_changes_conflict_but_for_a_strict_suffix(store, later, allowed, steady):
    agent = store.agent("a", initial={"items": [0, 1, 2, 3]})
    with agent.edit(group="g") as draft:
        draft["items"][1:2] = ["x", "y"]  # 0 x y 2 3
    with agent.edit() as draft:
        later(draft["items"])
    changed = list(agent.state["items"])
    with agent.edit(group="g") as draft:
        draft["n"] = 1
    if not allowed:
        with steady.refuses(agent, Conflict, "items"):
            agent.undo()
        return
    agent.undo()
    at = changed.index("x")
    assert agent.state["items"] == [*changed[:at], 1, *changed[at + 2 :]]
    assert store.agent("a").state == agent.state


def test_numbers_come_back_exactly(store):
    """0.1 + 0.2 - 0.2 is 0.10000000000000003: an increment of a float was undone by subtracting."""
    from decimal import Decimal

    agent = store.agent("a", initial={"x": 0.1, "d": Decimal("1.10"), "n": 1})
    with agent.edit() as draft:
        perdure.increment(draft, "x", 0.2)
        perdure.increment(draft, "n", 41)
        perdure.increment(draft, "d", Decimal("0.005"))
    agent.undo()
    state = agent.state
    assert (state["x"], str(state["d"]), state["n"]) == (0.1, "1.10", 1)
    agent.redo()
    assert agent.state["n"] == 42 and agent.state["x"] == 0.1 + 0.2


def test_texts_and_sets_and_deletions_come_back(store):
    start = {"t": LONG, "s": {1, 2}, "d": {"x": {"deep": [1]}, "y": 2}}
    agent = store.agent("a", initial=start)
    with agent.edit() as draft:
        draft["t"] = LONG[:40] + "inserted" + LONG[45:]
        draft["s"].add(3)
        draft["s"].remove(1)
        del draft["d"]["x"]
        perdure.increment(draft["d"], "y", 3)
    agent.undo()
    assert agent.state == start
    agent.redo()
    assert agent.state["d"] == {"y": 5} and agent.state["s"] == {2, 3}
    agent.undo()
    assert store.agent("a").state == start
    agent.verify()


def test_an_undo_is_refused_on_a_moved_head_never_misapplied(agent, store):
    other = store.agent("a")
    put(agent, a=2)
    put(other, b=5)
    agent.undo()  # undo looks again, and takes back what is the latest now
    assert agent.state["b"] == 1 and agent.state["a"] == 2


EDITS = {
    "a key in front is deleted": lambda d: d.pop("a"),
    "two are, and one comes back": lambda d: (d.pop("a"), d.pop("b"), d.__setitem__("a", 9)),
    "one is put last": lambda d: d.__setitem__("b", d.pop("b")),
    "deep down": lambda d: d["deep"].pop("x"),
    "all are": lambda d: [d.__setitem__(key, d.pop(key)) for key in ("c", "b", "a")],
    "what holds it is deleted, too": lambda d: (d["deep"].pop("x"), d.pop("deep")),
    "in a list whose items move": lambda d: (
        d["list"][1].pop("x"),
        d["list"].insert(0, 5),
        d["list"][2].pop("y"),
        d["list"].reverse(),
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_dicts_order_comes_back(store, what):
    """Undo put a key that had been deleted behind all others. An edit that did nothing but put one
    last was undone without a word and without an effect, and `diff` knew of no difference."""
    first = {
        "a": 1,
        "b": {"n": 2},
        "c": 3,
        "deep": {"x": 1, "y": 2, "z": 3},
        "list": [0, {"x": 1, "y": 2, "z": 3}],
    }
    agent = store.agent("keys", initial=first)
    agent.save(first)
    before, start = repr(agent.state), agent.seq
    with agent.edit() as draft:
        EDITS[what](draft)
    with agent.edit() as draft:
        draft["c"] = 4
    after = repr(agent.state)
    assert agent.diff(start, agent.seq)
    for _ in range(2):
        agent.undo()
        agent.undo()
        assert repr(agent.state) == repr(store.agent("keys").state) == before
        assert agent.diff(start, "main") == []
        agent.redo()
        agent.redo()
        assert repr(agent.state) == repr(store.agent("keys").state) == after
    agent.verify()


BETWEEN = {
    "a checkpoint": lambda agent: agent.checkpoint("before refund"),
    "a rollback to the head": lambda agent: agent.rollback(agent.seq),
    "a commit of records": lambda agent: agent.update(lambda d: None, key="looked"),
    "a checkpoint and what was undone": lambda agent: (
        agent.checkpoint("before"),
        agent.update(lambda d: d.__setitem__("z", 1)),
        agent.undo(),
    ),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_a_dicts_order_comes_back_over_what_changes_nothing(store, what):
    """An undo behind a checkpoint brought the keys back in another order: the checkpoint counted as
    a change of somebody else's that stood between."""
    agent = store.agent("keys", initial={"a": 0, "b": 0})
    agent.checkpoint("start")
    agent.update(lambda draft: draft.pop("a"))
    BETWEEN[what](agent)
    agent.undo()
    assert [*agent.state] == [*store.agent("keys").state] == ["a", "b"]
    assert agent.diff("start", "main") == []


DELETIONS = {
    "two keys": lambda draft: (draft["by"].pop("z"), draft["by"].pop("y")),
    "the first": lambda draft: draft["by"].pop("z"),
    "all": lambda draft: draft["by"].clear(),
    "one is put last": lambda draft: draft["by"].__setitem__("z", draft["by"].pop("z")),
    "in an item behind a new one": lambda draft: (
        draft["list"].insert(0, 0),
        draft["list"][1].pop("z"),
        draft["list"][1]["m"].pop("a"),
    ),
    "in an item that goes": lambda draft: (draft["list"][0].pop("z"), draft["list"].pop(0)),
    "what holds it is deleted, too": lambda draft: (
        draft["outer"]["in"].pop("b"),
        draft["outer"].pop("in"),
    ),
}
SHAPE = {
    "by": {"z": 1, "y": 2, "x": 3},
    "f": 0,
    "list": [{"z": 1, "m": {"a": 1, "b": 2}, "x": 3}],
    "outer": {"in": {"b": 1, "a": 2}, "w": 3},
}


@pytest.mark.parametrize("what", DELETIONS)
def test_a_dicts_order_comes_back_behind_a_redo_elsewhere(store, what):
    """An edit elsewhere had been undone before the deletion, and was redone behind it: as that
    stood between, what came back was the last, though nobody had touched its dict."""
    agent = store.agent("keys", initial=SHAPE)
    agent.update(lambda draft: draft.__setitem__("f", 1))
    with_f = repr(agent.state)
    agent.undo()
    agent.update(DELETIONS[what])
    agent.redo()
    gone = repr(agent.state)
    for _ in range(2):
        agent.undo()
        assert repr(agent.state) == repr(store.agent("keys").state) == with_f
        agent.redo()
        assert agent.state["f"] == 1 and repr(agent.state) == gone
    agent.undo()
    agent.undo()
    assert repr(agent.state) == repr(SHAPE)
    agent.verify()


def test_where_others_were_in_the_dict_since_what_comes_back_is_last(store):
    """To put the keys in their order, those of others would have to be set anew: then the undo of
    theirs would be refused, for it had been touched."""
    agent = store.agent("keys", initial=SHAPE)
    agent.update(lambda draft: draft["by"].__setitem__("x", 4))
    agent.undo()
    agent.update(DELETIONS["the first"])
    agent.redo()
    agent.undo()
    assert list(agent.state["by"].items()) == [("y", 2), ("x", 4), ("z", 1)]
    agent.undo()
    assert agent.state == SHAPE


@pytest.mark.parametrize("key", ["e", "b", "d"])
def test_a_redo_takes_no_order_back(store, key):
    """The undo had put the keys behind the one that came back in their order. The redo took that
    back as well: the keys came in reverse behind one that was new, and a commit that changed one of
    them was in its way, or it in that one's."""
    agent = store.agent("order", initial=dict.fromkeys("abcd", 0))
    agent.update(lambda draft: draft.pop("a"))
    agent.undo()
    agent.update(lambda draft: draft.__setitem__(key, 1))
    agent.redo()
    assert list(agent.state.items()) == list({**dict.fromkeys("bcd", 0), key: 1}.items())
    assert agent.commit("main").delta == (ops.Delete(("a",)),)
    agent.undo()
    agent.undo()
    assert list(agent.state.items()) == list(dict.fromkeys("abcd", 0).items())
    agent.verify()


def test_a_difference_in_nothing_but_the_order(store):
    agent = store.agent("keys", initial={"a": 1, "b": 2, "c": 3})
    agent.save({"a": 1, "b": 2, "c": 3})
    start = agent.seq
    agent.save({"x": 0, "c": 3, "a": 1})
    found = agent.diff(start, "main")
    assert [(one.path, one.kind) for one in found] == [
        ("state", "reordered"),
        ("state.b", "removed"),
        ("state.x", "added"),
    ]
    assert (found[0].before, found[0].after) == (["a", "c"], ["c", "a"])


class Ticket(TypedDict):
    note: NotRequired[str]
    status: str


def test_an_optional_key_comes_back_before_a_required_one(store):
    """``del draft["note"]`` could never be undone: to bring the key back in its order, the required
    one behind it goes and comes again in the same commit, and that going alone was refused."""
    agent = store.agent("t", Ticket, initial={"note": "hello", "status": "open"})
    with agent.edit("removed") as draft:
        del draft["note"]
    agent.undo()
    assert list(agent.state) == ["note", "status"]
    assert agent.state == store.agent("t", Ticket).state
    with pytest.raises(perdure.SchemaError, match="required key"), agent.edit("no") as draft:
        del draft["status"]


@dataclass
class Call:
    tool: str
    args: dict[str, int]


@dataclass
class Note:
    text: str
    args: dict[str, int]


def test_a_save_of_another_class_of_a_union_is_undone(store):
    """Both classes had a dict of one name. The undo changes an item of it, and then takes the whole
    dict out and puts it back, for the order of the fields: the item was forgotten in a comparison,
    and the healthy agent was called changed outside of edits, by every handle, for good."""
    agent = store.agent("t", dict[str, Call | Note], initial={"s": Call("a", {"x": 1})})
    agent.save({"s": Note("b", {"x": 2})})
    agent.undo()
    assert agent.state == {"s": Call("a", {"x": 1})}
    agent.redo()
    assert agent.state == {"s": Note("b", {"x": 2})}


class Free(BaseModel, extra="allow"):
    a: int = 0


def test_extra_fields_come_back_in_their_order(store):
    """The log and each new handle had them in order, and the handle that undid had not: equal, and
    dumped otherwise."""
    agent = store.agent("t", Free, initial=Free(a=1, z=1, y=2))  # type: ignore[call-arg]
    agent.checkpoint("begin")
    before = agent.state.model_dump_json()
    with agent.edit("removed") as draft:
        del draft.z
    agent.undo()
    assert agent.state.model_dump_json() == before == store.agent("t", Free).state.model_dump_json()
