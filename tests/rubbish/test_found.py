"""What wrong calls beside the core did: each poisoned an agent, or said what is not so."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.adapters import foreign_logs
from perdure.core.format import chain
from perdure.core.values import ops
from perdure.integrations.langgraph import PerdureSaver, PerdureStore
from perdure.integrations.openai_agents import PerdureSession
from perdure.model import Cause
from perdure.testing import Clock, play, recorded_runs, replay, run_until_waiting
from perdure.transfer.whole_log import LogEntry
from tests.rubbish.frameworks import METADATA, checkpoint, config
from tests.rubbish.world import finishing


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory://") as opened:
        yield opened


@pytest.fixture
def saver(store: perdure.Store) -> PerdureSaver:
    saver = PerdureSaver(store)
    saver.put(config(checkpoint=None), checkpoint("1"), METADATA, {"x": 1, "list": 1})
    return saver


def readable(saver: PerdureSaver) -> bool:
    found = saver.get_tuple(config())
    return found is not None and list(saver.list(config(checkpoint=None))) == [found]


@pytest.mark.parametrize("path", [5, 0.5, None, ("a",)])
def test_a_tasks_path_that_is_no_text(saver: PerdureSaver, path: Any) -> None:
    """It was stored as it came. Writes are put in order by their paths: beside those of another
    task, nobody could read the thread any more."""
    saver.put_writes(config(), [("x", 1)], "t1", "path")
    with pytest.raises(TypeError, match="task_path"):
        saver.put_writes(config(), [("x", 2)], "t2", path)
    assert readable(saver)


@pytest.mark.parametrize("channel", [None, 5, ("a",)])
def test_a_channel_that_is_called_by_no_text(store: perdure.Store, channel: Any) -> None:
    """It was found out in the commit that brings several tasks' writes in: the thread had been
    begun for it, and the writes of others failed along with it."""
    saver = PerdureSaver(store)
    with pytest.raises(TypeError, match="channel"):
        saver.put_writes(config(), [(channel, 1)], "t1")
    assert store.agents() == []


def test_writes_whose_path_is_no_text_are_read(saver: PerdureSaver) -> None:
    """Earlier versions wrote such ones: their threads are not lost."""
    saver.put_writes(config(), [("x", 1)], "t1", "path")
    log = saver._logs.log(saver.store.agents()[0])
    record = {"t": "lg-writes", "on": 1, "task": "t2", "path": 5, "writes": [[0, "x", 2]]}
    log.append(log.at(2), (), {}, Cause("writes", key="w2:1:=1"), branch="main", records=[record])
    assert readable(PerdureSaver(saver.store))


@pytest.mark.parametrize("ts", [5, 10**400, -1])
def test_a_checkpoints_time_that_is_a_number(saver: PerdureSaver, ts: int) -> None:
    """A number was stored, and read as microseconds: of another type at best, and one too large
    made the thread unreadable."""
    with pytest.raises(TypeError, match="ts"):
        saver.put(config(), checkpoint("2") | {"ts": ts}, METADATA, {"x": 1, "list": 1})
    assert readable(saver)


def test_metadata_that_is_in_itself_or_changes(saver: PerdureSaver) -> None:
    """RecursionError and RuntimeError came out, from deep within."""

    class Growing(dict[str, Any]):
        def items(self) -> Any:
            for item in dict.items(self):
                self["more"] = 1
                yield item

    inside: list[Any] = []
    inside.append(inside)
    for more in (inside, {"a": inside}):
        with pytest.raises(perdure.Unstorable, match="metadata"):
            saver.put(config(), checkpoint("2"), METADATA | {"more": more}, {})
    with pytest.raises(perdure.Unstorable, match="changed"):
        saver.put(config(), checkpoint("2"), Growing(a=1), {})  # type: ignore[arg-type]


def test_one_id_where_several_belong_is_not_taken_for_its_letters(saver: PerdureSaver) -> None:
    """`prune("thread", strategy="delete")` deleted the threads t, h, r, e, a and d."""
    saver.put(config("t", None), checkpoint("1"), METADATA, {"x": 1, "list": 1})
    calls: tuple[Callable[[], Any], ...] = (
        lambda: saver.prune("thread", strategy="delete"),
        lambda: saver.delete_for_runs("r"),
        lambda: saver.trim(1, "thread"),
        lambda: PerdureSaver(saver.store, keep="user_id"),
        lambda: PerdureSaver(saver.store, secrets="pin"),
    )
    for call in calls:
        with pytest.raises(TypeError, match="several"):
            call()
    assert {info.name for info in saver.store.agents()} == {"thread", "t"}


def test_an_adapters_names_are_texts(store: perdure.Store) -> None:
    """A date encodes as its text: the header said that text, and the store had the agent under a
    date, so that nobody could list the agents any more."""
    name: Any = dt.datetime(2024, 1, 1)
    with pytest.raises(TypeError, match="the name of an agent"):
        foreign_logs(store, "theirs", (1, 0)).create(name, {}, Cause("create"))
    payload = chain.pack_payload([ops.Set((), {})], ())
    for agent, branch in ((name, "main"), ("a", name)):
        draft = chain.Draft(agent, 1, branch, (), "dict", (1, 0), "x", 0, Cause("edit"), payload)
        with pytest.raises(perdure.Unstorable, match="names"):
            chain.link(draft, chain.START, 1)
    assert store.agents() == []


def test_records_are_checked_as_they_are_written(store: perdure.Store) -> None:
    """A list that says that it is empty was not looked at, and its items were written: the log was
    corrupt from there on."""

    class Shy(list[Any]):
        def __len__(self) -> int:
            return 0

    with pytest.raises(perdure.Unstorable, match="what is recorded"):
        chain.pack_payload((), Shy(["a"]))
    log, held = foreign_logs(store, "theirs", (1, 0)).create("a", {"n": 1}, Cause("create"))
    with pytest.raises(perdure.Unstorable, match="does not fit"):
        log.append(held, Shy([ops.Append(("n",), [1])]), {}, Cause("save"), branch="main")


def test_where_an_item_is_put_is_plain_text(store: perdure.Store) -> None:
    """An empty label that says it is none was stored, and its item could not be asked for; and a
    text in the place of a namespace put the item below its letters."""

    class Full(str):
        def __len__(self) -> int:
            return 3

        def __bool__(self) -> bool:
            return True

    memory = PerdureStore(store)
    for namespace in (Full(""), "users"):
        with pytest.raises(ValueError, match="amespace"):
            memory.put((namespace,) if namespace == "" else namespace, "k", {"a": 1})  # type: ignore[arg-type]
    memory.put((Full("users"),), Full("k"), {"a": 1})
    assert [type(one.key) for one in memory.search(())] == [str]
    assert memory.get(("users",), "k") is not None


def test_a_commit_that_there_is_not_is_not_found(store: perdure.Store) -> None:
    """An adapter that asked for a commit behind the end was told that the log is corrupt."""
    log, _ = foreign_logs(store, "theirs", (1, 0)).create("a", {}, Cause("create"))
    with pytest.raises(perdure.NotFound, match="no such commit"):
        log.at(3)


def test_what_another_store_said_of_an_agent(store: perdure.Store) -> None:
    """Numbers of agents are a store's own: by another store's, the log of another agent was read,
    and was called corrupt."""
    store.agent("other").save({"n": 1}, "it")
    with perdure.open("memory://") as elsewhere:
        elsewhere.agent("a").save({"n": 1}, "it")
        theirs = elsewhere.find("a")
    assert theirs is not None
    for call in (store.export_log, store.agent_of):
        with pytest.raises(perdure.NotFound, match="not what this store said"):
            call(theirs)


@pytest.mark.parametrize("part", [5, "text", None, bytearray(b"x")])
def test_entries_of_a_log_are_bytes(store: perdure.Store, part: Any) -> None:
    """AttributeError, from deep within."""
    for entry in (LogEntry(b"x", part), LogEntry(part, b"x")):
        with pytest.raises(TypeError, match="made of bytes"):
            store.import_log([entry])


def test_a_number_is_no_source_of_a_replay(tmp_path: Path) -> None:
    """`open` takes a number for a descriptor, and closes it: `replay(7, f)` closed whatever the
    process had open as 7, say another store."""
    file = os.open(tmp_path, os.O_RDONLY)
    number: Any = file
    for call in (lambda: replay(number, finishing), lambda: recorded_runs(number)):
        with pytest.raises(TypeError):
            call()
    os.close(file)
    with pytest.raises(perdure.NotFound):
        replay(tmp_path / "none", finishing)


def test_what_tests_are_given_is_checked_where_it_comes_in(store: perdure.Store) -> None:
    wrong: Any = 5
    calls: tuple[Callable[[], Any], ...] = (
        lambda: Clock(wrong),
        lambda: Clock().advance("x"),  # type: ignore[arg-type]
        lambda: Clock().advance_to("x"),  # type: ignore[arg-type]
        lambda: Clock().open("memory://", lease_ttl=wrong),
        lambda: Clock().open("memory://", snapshots=wrong),
        lambda: play(finishing, answers=wrong),
        lambda: play(finishing, signals=wrong),
        lambda: play(finishing, signals={"go": wrong}),
        lambda: play(finishing, tools=wrong),
        lambda: play(finishing, tools={finishing: wrong}),
        lambda: play(finishing, clock=wrong),
        lambda: run_until_waiting(wrong, finishing, "a"),
        lambda: replay(store, finishing, kwargs=wrong),
    )
    run_until_waiting(store, finishing, "a")
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="1970 and 9999"):
        Clock(dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=14))))
    with pytest.raises(ValueError, match="year 9999"):
        Clock(dt.datetime.max.replace(tzinfo=dt.UTC)).advance(1)


class LyingMoment(dt.datetime):
    """It has a zone when it is asked, and none when it is used."""

    def utcoffset(self) -> None:
        return None


def test_a_clock_starts_at_the_moment_that_was_checked() -> None:
    """A datetime whose methods lie ended in arithmetic deep within, which named no argument."""
    assert Clock(LyingMoment(2024, 1, 1, tzinfo=dt.UTC)).now == dt.datetime(
        2024, 1, 1, tzinfo=dt.UTC
    )


def test_a_lease_of_an_executor_whose_name_no_file_can_have(tmp_path: Path) -> None:
    """Whether its process lives is asked of a file; a name with a zero byte made every read of the
    agent raise a bare ValueError, for good."""
    with perdure.open(tmp_path / "s.db") as store:
        store.agent("a").save({"n": 1})
        info = store.find("a")
        assert info is not None
        store._context.backend.lease(info.no, "main", "\0")
        assert store.agent("a").state == {"n": 1}
        with store.agent("a").edit() as draft:
            draft["n"] = 2


def test_what_a_framework_is_set_up_with_is_checked_there(store: perdure.Store) -> None:
    """A session with `store=False` ended in an assertion, a `ttl` of the wrong type at a put."""
    wrong: Any = False
    with pytest.raises(TypeError, match="store="):
        PerdureSession("s", store=wrong)
    for ttl in ({"default_ttl": "5"}, {"refresh_on_read": 1}, 5):
        with pytest.raises(TypeError, match="ttl"):
            PerdureStore(store, ttl=ttl)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="index="):
        PerdureStore(store, index=wrong)
    with pytest.raises(TypeError, match="clock="):
        PerdureStore(store, clock=wrong)
