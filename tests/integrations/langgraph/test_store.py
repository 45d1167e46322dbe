"""`PerdureStore` as LangGraph's users know a store, and what it refuses."""

# mypy: disable-error-code="arg-type, union-attr"

import asyncio
import subprocess
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

import perdure
from perdure.integrations.langgraph.store.items import agent_name, space_of, space_text
from perdure.integrations.langgraph.store.memory_store import PerdureStore

USERS = ("users", "17")


@pytest.fixture(params=["sqlite", "memory"])
def base(request, tmp_path):
    url = tmp_path / "agents.db" if request.param == "sqlite" else "memory://"
    with perdure.open(url) as store:
        yield store


@pytest.fixture
def store(base):
    return PerdureStore(base)


def keys(found):
    return [item.key for item in found]


# What it keeps.


def test_what_was_put_is_there_in_the_next_process(tmp_path):
    value = {"theme": "dark", "n": 1 << 80, "f": 0.1, "on": True, "no": None, "l": [1, {"a": []}]}
    with PerdureStore.from_url(tmp_path / "agents.db") as store:
        store.put(USERS, "prefs", value)
        before = store.get(USERS, "prefs")
    with PerdureStore.from_url(tmp_path / "agents.db") as store:
        item = store.get(USERS, "prefs")
        assert item == before and item.value == value
        assert [type(one) for one in item.value.values()] == [type(v) for v in value.values()]
        assert store.get(USERS, "other") is None and store.get(("nobody",), "prefs") is None


def test_a_put_keeps_when_the_item_began(store):
    store.put(USERS, "a", {"n": 1})
    first = store.get(USERS, "a")
    store.put(USERS, "a", {"n": 2})
    second = store.get(USERS, "a")
    assert second.created_at == first.created_at == first.updated_at < second.updated_at
    assert second.updated_at.tzinfo is not None
    store.delete(USERS, "a")
    store.put(USERS, "a", {"n": 3})
    assert store.get(USERS, "a").created_at > second.updated_at


def test_items_are_copies(store):
    mine = {"tags": ["a"]}
    store.put(USERS, "a", mine)
    mine["tags"].append("b")
    store.get(USERS, "a").value["tags"].append("c")
    store.search(USERS)[0].value["tags"].append("d")
    assert store.get(USERS, "a").value == {"tags": ["a"]}


def test_one_object_may_stand_at_two_places_of_a_value(store):
    shared = [1]
    store.batch([PutOp(USERS, key, {"a": shared, "b": shared}) for key in "xy"])
    assert store.get(USERS, "y").value == {"a": [1], "b": [1]}


def test_deleting_takes_the_namespace_along_and_deleting_nothing_writes_nothing(store, base):
    store.delete(USERS, "a")
    assert base.find("store:users") is None
    store.put(USERS, "a", {})
    store.delete(USERS, "b")
    store.delete(("users", "18"), "a")
    assert base.find("store:users").seq == 2
    assert store.list_namespaces() == [USERS]
    store.delete(USERS, "a")
    assert store.list_namespaces() == [] and store.search(()) == []


@pytest.mark.parametrize(
    "label",
    [
        "a/b",
        "a%2Fb",
        "%",
        "~",
        "ключ",
        "日本語 😀",
        " ",
        "\n",
        "*",
        "'; DROP TABLE x;--",
        "\ud800",
        "x" * 5000,
        "$",
        "__proto__",
        "main",
    ],
)
def test_any_label_and_key(store, base, label):
    store.put((label, label), label, {label: label})
    store.put((label,), label, {"n": 1})
    again = PerdureStore(base)
    assert again.get((label, label), label).value == {label: label}
    assert again.get((label,), label).value == {"n": 1}
    assert sorted(again.list_namespaces()) == [(label,), (label, label)]
    assert keys(again.search((label,), filter={label: label})) == [label]
    assert len(again.search((label,))) == 2
    assert base.agent_of(base.agents()[0]).verify().commits == 3


def test_labels_are_not_mixed_up(store):
    spaces = [("a", "b"), ("a/b",), ("a%2Fb",), ("a", "b", "c"), ("a", "b/c"), ("ab",)]
    for space in spaces:
        store.put(space, "k", {"space": list(space)})
    assert store.list_namespaces() == sorted(spaces)
    assert {item.namespace for item in store.search(("a",))} == {
        ("a", "b"),
        ("a", "b", "c"),
        ("a", "b/c"),
    }
    for space in spaces:
        assert store.get(space, "k").value == {"space": list(space)}
        assert space_of(space_text(space)) == space


def test_names_of_agents_are_names():
    assert agent_name("store:", "users") == "store:users"
    for label in ("x" * 195, "x" * 5000, "\ud800", "y\ud801"):
        assert len(agent_name("store:", label)) <= 200
        agent_name("store:", label).encode()


def test_the_newest_first_and_pages(store):
    for number in range(25):
        store.put(("docs", str(number % 3)), f"k{number}", {"n": number})
    store.put(("docs", "0"), "k3", {"n": 100})
    newest = [100, *(n for n in range(24, -1, -1) if n != 3)]
    assert [item.value["n"] for item in store.search(("docs",))] == newest[:10]
    pages = [store.search(("docs",), limit=7, offset=at) for at in range(0, 28, 7)]
    assert [item.value["n"] for page in pages for item in page] == newest
    assert store.search(("docs",), limit=0) == []


def test_a_batch_reads_before_it_writes_and_of_two_puts_the_last_counts(store):
    store.put(USERS, "a", {"n": 1})
    got, _, _, found, spaces = store.batch(
        [
            GetOp(USERS, "a"),
            PutOp(USERS, "a", {"n": 2}),
            PutOp(USERS, "a", {"n": 3}),
            SearchOp(USERS),
            ListNamespacesOp(),
        ]
    )
    assert got.value == {"n": 1} and found[0].value == {"n": 1} and spaces == [USERS]
    assert store.get(USERS, "a").value == {"n": 3}
    store.batch([PutOp(USERS, "a", {"n": 4}), PutOp(USERS, "a", None)])
    assert store.get(USERS, "a") is None


def test_puts_of_a_batch_are_one_commit(store, base):
    store.batch([PutOp(("users", str(n)), "k", {"n": n}) for n in range(50)])
    assert [commit.cause.kind for commit in base.agent_of(base.find("store:users")).log()] == [
        "create",
        "edit",
    ]


# Filters and conditions.


def test_filters(store):
    rows = {
        "one": {"n": 1, "s": "b", "deep": {"x": 1, "y": 2}, "list": [1, {"z": 1}]},
        "two": {"n": 2.5, "s": "c", "none": None},
        "text": {"n": "7", "s": "a"},
    }
    for key, value in rows.items():
        store.put(USERS, key, value)

    def found(wanted):
        return sorted(keys(store.search(USERS, filter=wanted)))

    assert found({}) == ["one", "text", "two"]
    assert found({"n": 1}) == ["one"] == found({"n": {"$eq": 1.0}})
    assert found({"n": {"$ne": 1}}) == ["text", "two"]
    assert found({"n": {"$gt": 1}}) == ["two"] and found({"n": {"$gte": 1}}) == ["one", "two"]
    assert found({"n": {"$lt": 2.5}}) == ["one"] and found({"n": {"$lte": 2.5}}) == ["one", "two"]
    assert found({"n": {"$gte": 1, "$lt": 2}}) == ["one"]
    assert found({"s": {"$gt": "a"}, "n": {"$gt": 0}}) == ["one", "two"]
    assert found({"n": {"$gt": "5"}}) == ["text"]
    assert found({"n": {"$gt": None}}) == [] == found({"n": {"$lt": [1]}})
    assert found({"deep": {"x": 1}}) == ["one"] and found({"deep": {"x": {"$gt": 1}}}) == []
    assert found({"list": [1, {"z": 1}]}) == ["one"] and found({"list": [1]}) == []
    # A field that is missing counts as None, and none is an error.
    assert found({"none": None}) == ["one", "text", "two"]
    assert found({"missing": 1}) == [] and found({"missing": {"$gt": 1}}) == []
    assert found({"missing": {"$ne": 1}}) == ["one", "text", "two"]
    assert found({"n') OR 1=1 --": 1}) == []


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"n": {"$in": [1]}}, "Unsupported operator: '\\$in'; there are \\$eq, \\$ne, \\$gt"),
        ({"n": {"$gt": 1, "x": 2}}, "'x'"),
        ({"deep": {"n": {"$foo": 1}}}, "foo"),
        ([("n", 1)], "a filter is a dict"),
    ],
)
def test_filters_that_nothing_could_answer(store, wanted, problem):
    with pytest.raises((ValueError, TypeError), match=problem):
        store.search(("nothing is here",), filter=wanted)


def test_conditions_on_namespaces(store):
    for space in [
        ("a", "b", "c"),
        ("a", "b", "d", "e"),
        ("a", "b", "d", "i"),
        ("a", "x", "c"),
        ("z", "c"),
    ]:
        store.put(space, "k", {})
    assert store.list_namespaces(prefix=("a", "b"), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
    ]
    assert store.list_namespaces(suffix=("c",)) == [("a", "b", "c"), ("a", "x", "c"), ("z", "c")]
    assert store.list_namespaces(prefix=("*", "b"), suffix=("i",)) == [("a", "b", "d", "i")]
    assert store.list_namespaces(suffix=("*", "c"), limit=1, offset=1) == [("a", "x", "c")]
    assert store.list_namespaces(prefix=("a", "b", "c", "d")) == []
    both = (MatchCondition("prefix", ("a",)), MatchCondition("prefix", ("z",)))
    assert store.batch([ListNamespacesOp(match_conditions=both)]) == [[]]
    with pytest.raises(ValueError, match="middle"):
        store.batch([ListNamespacesOp(match_conditions=(MatchCondition("middle", ("a",)),))])


# What it refuses.


@pytest.mark.parametrize(
    "namespace", [("a.b",), ("",), ("a", ""), ("a\0",), (1,), ("a", None)], ids=repr
)
def test_namespaces_that_cannot_be(store, base, namespace):
    for call in (
        lambda: store.put(namespace, "k", {}),
        lambda: store.get(namespace, "k"),
        lambda: store.search(namespace),
        lambda: store.batch([PutOp(namespace, "k", {})]),
        lambda: store.batch([GetOp(namespace, "k")]),
    ):
        with pytest.raises(InvalidNamespaceError):
            call()
    assert base.agents() == []


def test_no_namespace(store):
    with pytest.raises(InvalidNamespaceError, match="empty"):
        store.put((), "k", {})
    with pytest.raises(InvalidNamespaceError, match="empty"):
        store.batch([PutOp((), "k", {})])
    assert store.batch([GetOp((), "k")]) == [None]
    with pytest.raises(InvalidNamespaceError, match="langgraph"):
        store.put(("langgraph", "x"), "k", {})


class Color(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [{"one": Color.RED}]}, ["value.a[0].one", "Color", "value.value"]),
        ({"a": Pair(1, 2)}, ["value.a", "Pair"]),
        ({"a": {"b": {object()}}}, ["value.a.b", "object"]),
        ({"o": object()}, ["value.o", "object", "model_dump"]),
        ({"o": bytearray(b"x")}, ["value.o", "bytearray"]),
        ({"m": {Color.RED: "x"}}, ["value.m", "key of type Color"]),
        ({"m": {1: "x"}}, ["value.m[1]", "key of type int"]),
        ({2: "x"}, ["value[2]", "key of type int"]),
        ({"c": CYCLE}, ["value.c", "inside itself"]),
        ([1], ["value", "list"]),
        ("text", ["value", "str"]),
    ],
)
def test_values_that_would_not_come_back_are_refused_by_path(store, base, value, words):
    with pytest.raises(perdure.Unstorable) as refused:
        store.batch([PutOp(USERS, "good", {}), PutOp(USERS, "k", value)])
    for word in words:
        assert word in str(refused.value)
    assert base.agents() == []


def test_other_operations_that_cannot_be(store):
    with pytest.raises(ValueError, match="Unknown operation"):
        store.batch(["get"])
    with pytest.raises(ValueError, match="limit -1"):
        store.search((), limit=-1)
    with pytest.raises(TypeError, match="key"):
        store.batch([PutOp(USERS, 7, {})])
    for ttl in (-1, float("nan"), float("inf"), 1e12):
        with pytest.raises(ValueError, match="minutes"):
            store.put(USERS, "k", {}, ttl=ttl)
    with pytest.raises(TypeError, match="minutes"):
        store.put(USERS, "k", {}, ttl="1")


def test_it_is_made_of_an_open_store():
    with pytest.raises(TypeError, match=r"PerdureStore\.from_url"):
        PerdureStore("agents.db")


def test_after_close(tmp_path):
    with PerdureStore.from_url(tmp_path / "agents.db") as store:
        store.put(USERS, "k", {})
    for call in (
        lambda: store.get(USERS, "k"),
        lambda: store.put(USERS, "k", {}),
        lambda: store.search(()),
        lambda: store.delete(USERS, "k"),
        lambda: asyncio.run(store.aget(USERS, "k")),
    ):
        with pytest.raises(perdure.StoreUnavailable, match="closed"):
            call()


def test_an_agent_of_somebody_else(store, base):
    base.agent("store:users", initial={"mine": 1}).checkpoint("there")
    for call in (lambda: store.put(USERS, "k", {}), lambda: store.search(USERS)):
        with pytest.raises(perdure.SchemaError, match="'dict', not 'langgraph-store'"):
            call()
    other = PerdureStore(base, prefix="memory:")
    other.put(USERS, "k", {})
    assert other.get(USERS, "k") is not None


def test_an_item_that_somebody_broke(store, base):
    store.put(USERS, "k", {})
    agent = base.agent_of(base.find("store:users"))
    with agent.edit("by hand") as draft:
        del draft["users/17"]["k"]["value"]
    with pytest.raises(perdure.SchemaError, match="undo that commit"):
        store.get(USERS, "k")
    agent.undo()
    assert store.get(USERS, "k").value == {}


# Its agents, as Perdure's users know agents.


def test_the_log_says_what_was_done(store, base):
    store.put(USERS, "prefs", {"theme": "dark"})
    store.put(USERS, "prefs", {"theme": "light"})
    store.batch([PutOp(("users", "a/b"), key, {}) for key in "xyz"])
    store.delete(USERS, "prefs")
    agent = base.agent_of(base.find("store:users"))
    assert [commit.cause.what for commit in agent.log()] == [
        "",
        "put users/17 prefs",
        "put users/17 prefs",
        "put users/a%2Fb x and 2 more",
        "delete users/17 prefs",
    ]
    assert "state['users/17'].prefs.value.theme" in {change.path for change in agent.diff(2, 3)}
    assert agent.verify().commits == 5


def test_the_command_line_shows_them(tmp_path):
    with PerdureStore.from_url(tmp_path / "agents.db") as store:
        store.put(USERS, "prefs", {"theme": "dark"})
    for command in (["log"], ["state"], ["diff", "1", "2"], ["verify"]):
        line = [
            sys.executable,
            "-m",
            "perdure",
            "--store",
            str(tmp_path / "agents.db"),
            command[0],
            "store:users",
            *command[1:],
        ]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert command == ["verify"] or "users/17" in done.stdout


def test_what_others_do_to_the_agent_is_seen(store, base):
    for number in range(4):
        store.put(USERS, "k", {"n": number})
    agent = base.agent_of(base.find("store:users"))
    agent.undo()
    assert store.get(USERS, "k").value == {"n": 2}
    agent.rollback(2)
    assert store.get(USERS, "k").value == {"n": 0}
    agent.fork("what-if", at=4)
    assert store.get(USERS, "k").value == {"n": 0}
    agent.adopt("what-if")
    assert store.get(USERS, "k").value == {"n": 2}
    store.put(USERS, "k", {"n": 5})
    assert store.get(USERS, "k").value == {"n": 5}


def test_a_deleted_agent_is_empty_and_may_begin_afresh(store, base):
    other = PerdureStore(base)
    store.put(USERS, "k", {"n": 1})
    assert other.get(USERS, "k").value == {"n": 1}
    base.delete("store:users")
    for one in (store, other):
        assert one.get(USERS, "k") is None
        assert one.search(()) == [] and one.list_namespaces() == []
    store.put(USERS, "new", {"n": 2})
    assert keys(other.search(USERS)) == ["new"] == keys(store.search(USERS))
    assert base.find("store:users").incarnation == 2
    base.delete("store:users")
    other.put(USERS, "newest", {})  # without having looked
    assert keys(store.search(USERS)) == ["newest"]


# Several at once.


def test_two_stores_see_each_other_at_once(base):
    one, two = PerdureStore(base), PerdureStore(base)
    for number in range(30):
        one.put(("n", str(number % 4)), "a", {"n": number})
        assert two.get(("n", str(number % 4)), "a").value == {"n": number}
        two.put(("n", str(number % 4)), "b", {"n": number})
        assert one.get(("n", str(number % 4)), "b").value == {"n": number}
        if number % 5 == 4:
            one.delete(("n", str(number % 4)), "b")
        assert one.search(()) == two.search(())
        assert one.list_namespaces() == two.list_namespaces()


def test_threads_lose_nothing(base):
    stores = [PerdureStore(base), PerdureStore(base)]
    problems = []

    def work(number):
        try:
            store = stores[number % 2]
            for turn in range(15):
                store.put(("t", str(number % 3)), f"{number}-{turn}", {"n": turn})
                assert store.get(("t", str(number % 3)), f"{number}-{turn}").value == {"n": turn}
                store.search(("t",))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    for store in (*stores, PerdureStore(base)):
        assert len(store.search(("t",), limit=1000)) == 8 * 15
    base.agent_of(base.find("store:t")).verify()


def test_one_that_fails_does_not_take_those_along_that_share_its_commit(base, monkeypatch):
    """Writes that wait are committed together; if that fails, each is tried alone."""
    from perdure.integrations.langgraph.store.shard import Shard

    store = PerdureStore(base)
    store.put(USERS, "a", {})
    edit = Shard._edit

    def fails(self, agent, writes):
        if any(change.key == "bad" for write in writes for change in write.changes):
            raise OSError("no")
        return edit(self, agent, writes)

    monkeypatch.setattr(Shard, "_edit", fails)
    shard = store._shard("store:users")
    outcomes = {}

    def put(key):
        try:
            store.put(USERS, key, {})
            outcomes[key] = "done"
        except OSError:
            outcomes[key] = "failed"

    with shard._lock:
        threads = [threading.Thread(target=put, args=(key,)) for key in ("b", "bad", "c")]
        for thread in threads:
            thread.start()
        while len(shard._queue) < 3:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert outcomes == {"b": "done", "bad": "failed", "c": "done"}
    assert sorted(keys(store.search(USERS))) == ["a", "b", "c"]


def test_writes_that_wait_share_a_commit(base):
    store = PerdureStore(base)
    store.put(USERS, "a", {})
    shard = store._shard("store:users")
    with shard._lock:
        threads = [
            threading.Thread(target=store.put, args=(USERS, key, {"k": key})) for key in "bcdef"
        ]
        for thread in threads:
            thread.start()
        while len(shard._queue) < 5:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert base.find("store:users").seq == 3
    assert sorted(keys(store.search(USERS))) == list("abcdef")


def test_an_interrupted_write_is_found_again(base, monkeypatch):
    """Interrupted right after its commit, a write left the index behind the log."""
    from perdure.integrations.langgraph.store.shard import Shard

    store = PerdureStore(base)
    store.put(USERS, "a", {})
    show = Shard._show

    def interrupted(self, places):
        monkeypatch.setattr(Shard, "_show", show)
        raise KeyboardInterrupt

    monkeypatch.setattr(Shard, "_show", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put(USERS, "b", {})
    assert sorted(keys(store.search(USERS))) == ["a", "b"]
    store.put(USERS, "c", {})
    assert sorted(keys(store.search(USERS))) == ["a", "b", "c"]


# Async.


def test_async_from_several_event_loops(store):
    async def use(name):
        await asyncio.gather(*(store.aput(USERS, f"{name}{n}", {"n": n}) for n in range(20)))
        assert (await store.aget(USERS, f"{name}7")).value == {"n": 7}
        found = await store.asearch(USERS, filter={"n": {"$lt": 3}}, limit=100)
        await store.adelete(USERS, f"{name}0")
        assert await store.alist_namespaces() == [USERS]
        return len(found)

    assert asyncio.run(use("a")) == 3
    assert asyncio.run(use("b")) == 5  # another loop; "a0" is gone
    assert len(store.search(USERS, limit=100)) == 38


def test_async_opening(tmp_path):
    async def use():
        async with PerdureStore.from_url(tmp_path / "agents.db") as store:
            await store.aput(USERS, "k", {"n": 1})
            return store

    store = asyncio.run(use())
    with pytest.raises(perdure.StoreUnavailable, match="closed"):
        store.get(USERS, "k")
    with PerdureStore.from_url(tmp_path / "agents.db") as store:
        assert store.get(USERS, "k").value == {"n": 1}


def test_a_cancelled_put_is_over_when_the_cancellation_goes_on(store, base):
    async def use():
        shard = store._shard("store:users")
        shard._lock.take(sys._getframe())
        task = asyncio.create_task(store.aput(USERS, "k", {}))
        while not shard._queue:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        shard._lock.give_back(sys._getframe())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert base.find("store:users") is not None

    asyncio.run(use())
    assert store.get(USERS, "k") is not None


# Around it.


def test_perdure_does_not_import_langgraph():
    code = "import sys, perdure; sys.exit(any(name.startswith('lang') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_many_labels_page_and_fall_out_of_memory(base, monkeypatch):
    from perdure.integrations.langgraph.store import memory_store as module

    monkeypatch.setattr(module, "PAGE", 3)
    monkeypatch.setattr(module, "SHARDS_MAX", 4)
    store = PerdureStore(base)
    for number in range(10):
        store.put((f"user-{number}",), "k", {"n": number})
    assert len(store._shards) == 4
    assert [item.value["n"] for item in store.search((), limit=20)] == list(range(9, -1, -1))
    assert store.list_namespaces() == [(f"user-{number}",) for number in range(10)]
    assert store.get(("user-0",), "k").value == {"n": 0}


def test_files_are_where_they_were_asked_for(tmp_path: Path):
    with PerdureStore.from_url(tmp_path / "agents.db", durability="os") as store:
        store.put(USERS, "k", {})
        assert str(tmp_path) in store.store.url and "PerdureStore" in repr(store)
