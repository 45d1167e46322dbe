"""What the other savers get wrong, each as a test."""

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base.id import uuid6

from perdure.errors import Conflict, Corrupt, NotFound, SchemaError, Unstorable
from perdure.integrations.langgraph import PerdureSaver, metadata
from perdure.integrations.langgraph.store.items import space_of
from perdure.integrations.langgraph.values import thread_names
from tests.integrations.langgraph.checkpoints import (
    checkpoint,
    config,
    get,
    id_of,
    line,
    lock_of,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place


@pytest.mark.parametrize(
    "key", ["source') OR 1=1 --", "source' OR '1'='1", 'a"b', "$.source", "a.b", "", "источник"]
)
def test_a_filter_key_is_data_and_no_part_of_a_query(saver: PerdureSaver, key: str) -> None:
    """CVE-2025-67644: keys of metadata filters were spliced into the SQL."""
    put(saver, {"n": 1})
    assert list(saver.list(config(), filter={key: "loop"})) == []
    more: Any = {key: "loop"}
    put(saver, {"n": 2}, config("u"), **more)
    assert len(list(saver.list(None, filter={key: "loop"}))) == 1


def test_a_filter_on_a_missing_key_matches_nothing_but_none(saver: PerdureSaver) -> None:
    put(saver, {"n": 1})
    assert list(saver.list(config(), filter={"nobody": 1})) == []
    assert len(list(saver.list(config(), filter={"nobody": None}))) == 1


class Stranger:
    pass


def test_an_unknown_type_raises_with_its_path_and_writes_nothing(saver: PerdureSaver) -> None:
    """Elsewhere it is repr'd, pickled, or comes back as None or a dict."""
    first = put(saver, {"messages": [HumanMessage("Hi", id="1")]})
    deep = {"messages": [HumanMessage("Hi", id="1"), {"when": Stranger()}]}
    with pytest.raises(Unstorable, match=r"state\.messages\[1\]\.when.*Stranger"):
        put(saver, deep, first, 2)
    with pytest.raises(Unstorable, match=r"writes\.out\.x"):
        saver.put_writes(first, [("out", {"x": Stranger()})], "task")
    with pytest.raises(Unstorable, match=r"metadata\.by"):
        put(saver, {"n": 1}, first, 2, by=Stranger())
    assert len(list(saver.list(config()))) == 1
    assert get(saver).pending_writes == []


def test_a_type_that_is_not_registered_any_more_raises(place: Place) -> None:
    from tests.integrations.langgraph.test_types import Invoice

    put(place.open(types=[Invoice]), {"bills": [{"one": Invoice(number="R-1")}]})
    with pytest.raises(SchemaError, match=r"state\.bills\[0\]\.one.*Invoice.*not registered"):
        place.open(strict=True).get_tuple(config())


def test_a_second_child_is_a_sibling_that_shows(saver: PerdureSaver) -> None:
    """Two writers on one parent both succeed, and one of them is never seen again."""
    root, first = line(saver, 2)
    second = put(saver, {"n": "sibling"}, root, 2)
    listed = {one.config["configurable"]["checkpoint_id"] for one in saver.list(config())}
    assert listed == {id_of(root), id_of(first), id_of(second)}
    branches = saver.store.agent_of(saver.store.find("t")).branches()  # type: ignore[arg-type]
    assert [(one.name, one.head) for one in branches] == [("main", 2), ("main~2", 3)]
    assert get(saver, second).parent_config == root
    assert values_of(saver, first)["n"] == 1
    assert values_of(saver, second)["n"] == "sibling"
    third = put(saver, {"n": "nephew"}, second, 3)
    assert values_of(saver) == {"n": "nephew"} == values_of(saver, third)


def test_the_loser_of_a_race_gets_a_conflict_where_asked_for(place: Place) -> None:
    mine, theirs = place.open(on_race="conflict"), place.open(on_race="conflict")
    root = put(mine, {"n": 0})
    assert get(theirs).config == root
    put(mine, {"n": "winner"}, root, 2)
    with pytest.raises(Conflict, match="has a child already"):
        put(theirs, {"n": "loser"}, root, 2)
    assert values_of(theirs) == {"n": "winner"}
    assert len(list(theirs.list(config()))) == 2


def test_going_back_on_purpose_is_no_race(place: Place) -> None:
    saver = place.open(on_race="conflict")
    root, _ = line(saver, 2)
    put(saver, {"n": "edited"}, root, 3, source="update")
    assert get(saver, root).config == root  # asked for, by its id, when it had a child
    put(saver, {"n": "tried again"}, root, 4)
    assert len(list(saver.list(config()))) == 4


def test_a_race_of_python_threads_loses_nothing(saver: PerdureSaver) -> None:
    root = put(saver, {"n": 0})
    go = threading.Barrier(6)
    problems: list[BaseException] = []

    def race(number: int) -> None:
        go.wait()
        try:
            mine = put(saver, {"n": number}, root, 2)
            saver.put_writes(mine, [("out", number)], f"task-{number}")
            saver.put_writes(root, [("out", number)], f"task-{number}")
        except BaseException as problem:
            problems.append(problem)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert problems == []
    found = [one for one in saver.list(config()) if one.parent_config]
    assert {one.checkpoint["channel_values"]["n"] for one in found} == set(range(6))
    for one in found:
        number = one.checkpoint["channel_values"]["n"]
        assert one.pending_writes == [(f"task-{number}", "out", number)]
    assert len(get(saver, root).pending_writes or ()) == 6
    saver.store.agent_of(saver.store.find("t")).verify()  # type: ignore[arg-type]


def test_a_late_write_cannot_bring_a_deleted_thread_back(place: Place) -> None:
    saver, late = place.open(), place.open()
    old = line(saver, 2)[-1]
    assert values_of(late, old)["n"] == 1
    saver.delete_thread("t")
    for one in (saver, late):
        with pytest.raises(NotFound, match="was deleted"):
            put(one, {"n": 2}, old, 3)
        with pytest.raises(NotFound, match="was deleted"):
            one.put_writes(old, [("out", 1)], "task")
        assert one.get_tuple(config()) is None
        assert one.get_tuple(old) is None
        assert list(one.list(config())) == []


def test_a_thread_of_a_deleted_ones_id_starts_afresh(place: Place) -> None:
    saver, other = place.open(), place.open()
    old = line(saver, 3)[-1]
    saver.put_writes(old, [("out", "old")], "task")
    get(other)
    other.delete_thread("t")
    first = put(saver, {"n": "new"})
    assert [one.config for one in other.list(config())] == [first]
    assert values_of(other) == {"n": "new"}
    assert get(other).pending_writes == []
    assert other.get_tuple(old) is None
    with pytest.raises(NotFound):
        other.delete_thread("t")
        put(saver, {"n": "late"}, first)


def test_writes_may_come_before_their_checkpoint(saver: PerdureSaver) -> None:
    early = checkpoint({"n": 1})
    saver.put_writes(config("t", early["id"]), [("out", 1)], "a")
    assert saver.get_tuple(config()) is None
    assert list(saver.list(config())) == []
    saver.put(config(), early, {"source": "input", "step": -1}, {})
    assert get(saver).pending_writes == [("a", "out", 1)]
    child = checkpoint({"n": 2}, 2)
    saver.put_writes(config("t", child["id"]), [("out", 2)], "b")
    assert get(saver).pending_writes == [("a", "out", 1)]
    saver.put(config("t", early["id"]), child, {"source": "loop", "step": 0}, {})
    assert get(saver).pending_writes == [("b", "out", 2)]


def test_writes_may_come_early_to_a_thread_that_was_deleted_before(saver: PerdureSaver) -> None:
    line(saver, 1)
    saver.delete_thread("t")
    early = checkpoint({"n": 1}, id=str(uuid6()))
    saver.put_writes(config("t", early["id"]), [("out", 1)], "a")
    saver.put(config(), early, {"source": "input", "step": -1}, {})
    assert get(saver).pending_writes == [("a", "out", 1)]


def test_get_tuple_inside_list_does_not_deadlock(saver: PerdureSaver) -> None:
    line(saver, 12)
    for one in saver.list(config()):
        assert get(saver, one.config).checkpoint == one.checkpoint
        saver.put_writes(one.config, [("out", 1)], "task")


def test_writes_are_durable_before_the_checkpoint_that_depends_on_them(saver: PerdureSaver) -> None:
    """A kill between a task's write and the next checkpoint ran the task again."""
    root = put(saver, {"n": 0})
    thread = saver._thread("t")
    with lock_of(thread):  # the writes are on their way, and cannot get in yet
        writer = threading.Thread(target=saver.put_writes, args=(root, [("out", 1)], "task"))
        writer.start()
        while not thread.queue.holds("", id_of(root)):
            pass
        put(saver, {"n": 1}, root, 2)
    writer.join()
    keys = [one.cause.key for one in saver.store.agent_of(saver.store.find("t")).log()]  # type: ignore[arg-type]
    assert [key.partition(":")[0] for key in keys if key] == ["c", "c"]  # the second has both
    assert get(saver, root).pending_writes == [("task", "out", 1)]


def test_secrets_are_not_stored_and_the_rest_of_configurable_is(place: Place) -> None:
    saver = place.open(keep=["user_id"], secrets=["badge"])
    at = config()
    at["configurable"] |= {
        "openai_api_key": "sk-1",
        "user_id": "u-1",
        "model": "m",
        "temp": "x9",
        "openai": "sk-ant-1",
        "db": "postgresql://me:pw-1@host/db",
        "blob": "x" * 1000,
        "client": object(),
        "author": "ann",
        "oauth": "o-1",
        "__pregel_x": "internal",
    }
    at["metadata"] = {"tenant": "acme", "temp": "x9", "Auth-Token": "tk-1", "Badge": "b-1"}
    made = {"source": "loop", "step": 1, "parents": {}, "password": "pw-1", "total_tokens": 17}
    saver.put(at, checkpoint({"n": 1}), made, {})  # type: ignore[arg-type]
    assert get(saver).metadata == {
        "source": "loop",
        "step": 1,
        "parents": {},
        "tenant": "acme",
        "user_id": "u-1",
        "total_tokens": 17,
        "model": "m",
        "temp": "x9",
        "author": "ann",
    }
    assert [one.config for one in saver.list(None, filter={"user_id": "u-1"})]
    assert not list(saver.list(None, filter={"user_id": "u-2"}))
    if place.url.endswith(".db"):
        saver.close()
        stored = b"".join(path.read_bytes() for path in Path(place.url).parent.glob("threads.db*"))
        assert not [secret for secret in (b"sk-1", b"tk-1", b"pw-1", b"b-1") if secret in stored]


def test_a_filter_by_what_is_taken_for_a_secret_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It found nothing, without a word: of `configurable`, what looks like a secret is not
    stored."""
    at = config()
    at["configurable"] |= {"callback_url": "u", "access_token": "t"}
    saver = place.open()
    put(saver, {"n": 1}, at)
    for _ in range(2):
        assert not list(saver.list(None, filter={"callback_url": "u", "source": "loop"}))
        assert not list(saver.list(None, filter={"access_token": "t"}))
    first, second = (record.getMessage() for record in caplog.records)
    assert "keep=['callback_url']" in first
    assert "'access_token'" in second and "never stored" in second
    caplog.clear()
    metadata._warned.clear()
    saver = place.open(keep=["callback_url"])
    put(saver, {"n": 2}, at)
    assert len(list(saver.list(None, filter={"callback_url": "u"}))) == 1
    assert not caplog.records
    metadata._warned.clear()


def test_edited_bytes_are_found(tmp_path: Path) -> None:
    url = str(tmp_path / "threads.db")
    with PerdureSaver.from_url(url) as saver:
        line(saver, 3)
    db = apsw.Connection(url)
    (stored,) = db.execute("SELECT payload FROM commits WHERE id & 7 = 3")
    payload = bytearray(stored[0])
    payload[-1] ^= 1
    db.execute("UPDATE commits SET payload = ? WHERE id & 7 = 3", (bytes(payload),))
    db.close()
    with pytest.raises(Corrupt), PerdureSaver.from_url(url) as saver:
        saver.get_tuple(config())


class Words(str):
    """A text of which it can be seen whether anybody has it."""


def test_long_texts_of_others_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    """What is worked out of ids and names was kept by thousands, however long they were: ids of
    ten megabytes, as whoever calls a graph may send them, took gigabytes for good. A warning of
    one was as long."""

    def is_kept(size: int, take: Callable[[str], object]) -> bool:
        text = Words("x" * size)
        seen = weakref.ref(text)
        take(text)
        del text
        gc.collect()
        return seen() is not None

    for keeps, take in (
        (False, lambda text: thread_names.place_of("", text)),
        (False, lambda text: thread_names.place_of(text, "c")),
        (True, thread_names.read_place),
        (True, space_of),
        (False, metadata._opens),
        (False, lambda text: metadata._sounds_secret(text, ("token",))),
    ):
        assert is_kept(500, take) is keeps
        assert not is_kept(100_000, take)
    metadata.warn_of_secrets({"token" + "x" * 10_000: 1}, keep=(), secrets=("token",))
    assert len(caplog.records[-1].getMessage()) < 500
    assert max(map(len, metadata._warned)) < 100
    metadata._warned.clear()
