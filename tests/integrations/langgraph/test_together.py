"""A checkpoint and the writes for its parent in one commit, and checkpoints' small records."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

import perdure
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import queued_writes
from perdure.integrations.langgraph.threads.queued_writes import Queue, Request
from perdure.integrations.langgraph.threads.write_records import Write
from perdure.integrations.langgraph.values import thread_names
from perdure.state.snapshot_policy import SnapshotPolicy
from tests.integrations.langgraph.checkpoints import (
    checkpoint,
    config,
    get,
    id_of,
    lock_of,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place


def put_with_writes(
    saver: PerdureSaver,
    values: dict[str, Any],
    at: RunnableConfig,
    version: int,
    id: str | None = None,
) -> RunnableConfig:
    """As LangGraph does it: the writes are under way as their step's checkpoint comes."""
    thread = saver._thread("t")
    with lock_of(thread):
        writer = threading.Thread(target=saver.put_writes, args=(at, [("out", version)], "task"))
        writer.start()
        while not thread.queue.holds("", id_of(at)):
            pass
        made = put(saver, values, at, version, id)
    writer.join()
    return made


def agent_of(saver: PerdureSaver) -> Any:
    return saver.store.agent_of(saver.store.find("t"))  # type: ignore[arg-type]


def kinds_of(saver: PerdureSaver) -> list[str]:
    keys = [one.cause.key for one in agent_of(saver).log()]
    return [key[:1] for key in keys if key]


def batches_of(saver: PerdureSaver) -> list[int]:
    """How many commits each transaction from now on has."""
    backend = saver._logs.context.backend
    sizes: list[int] = []
    append = backend.append

    def counting(batch: Any) -> Any:
        sizes.append(len(batch))
        return append(batch)

    backend.append = counting  # type: ignore[method-assign]
    return sizes


def test_a_step_is_one_commit(place: Place) -> None:
    saver = place.open()
    at = root = put(saver, {"n": 0})
    sizes = batches_of(saver)
    for version in range(1, 6):
        at = put_with_writes(saver, {"n": version}, at, version + 1)
    assert sizes == [1] * 5
    assert kinds_of(saver) == ["c"] * 6
    for reader in (saver, place.open()):
        assert values_of(reader, at) == {"n": 5}
        assert get(reader, root).pending_writes == [("task", "out", 2)]
        assert [
            (one.checkpoint["channel_values"]["n"], one.pending_writes)
            for one in reader.list(config())
        ] == [(5, []), *((n, [("task", "out", n + 2)]) for n in (4, 3, 2, 1, 0))]


def test_writes_before_with_and_after_a_child_are_told_in_that_order(place: Place) -> None:
    saver = place.open()
    root = put(saver, {"n": 0})
    saver.put_writes(root, [("out", "before")], "a")
    put_with_writes(saver, {"n": 1}, root, 2)
    saver.put_writes(root, [("out", "after")], "b")
    view = place.open()._thread("t").views()[0]
    written, commits = view.writes("", id_of(root))
    assert [(one.task, one.writes[0][2]) for one in written] == [
        ("a", "before"),
        ("task", 2),
        ("b", "after"),
    ]
    assert commits == 2


def test_the_child_is_found_behind_commits_of_other_lines(place: Place) -> None:
    saver = place.open()
    root = put(saver, {"n": 0})
    inner = None
    for number in range(40):
        inner = put(saver, {"n": number}, inner or config(ns="sub"))
    put(saver, {"n": "sibling of nobody"}, config())
    first = put_with_writes(saver, {"n": 1}, root, 2)
    fork = put(saver, {"n": "fork"}, root, 3, source="fork")
    put_with_writes(saver, {"n": 2}, fork, 4)
    for reader in (saver, place.open()):
        assert get(reader, root).pending_writes == [("task", "out", 2)]
        assert get(reader, first).pending_writes == []
        assert get(reader, fork).pending_writes == [("task", "out", 4)]
    saver.copy_thread("t", "copy")
    put_with_writes(saver, {"n": "later"}, first, 5)
    at = config("copy", id_of(first))
    assert get(saver, at).pending_writes == []  # the copy is of a moment before
    assert get(saver, config("copy", id_of(root))).pending_writes == [("task", "out", 2)]


def test_after_a_rollback_the_writes_of_the_way_on_are_told(place: Place) -> None:
    """Who looks for writes that a child took along takes the first child on the line: behind a
    rollback there is another one, and it takes none. Those of the first one do not count any more:
    they came behind what somebody went back to."""
    saver = place.open()
    root = put(saver, {"n": 0})
    put_with_writes(saver, {"n": 1}, root, 2)
    agent_of(saver).rollback(1)
    again = place.open()
    assert get(again).config == root
    put_with_writes(again, {"n": 2}, root, 3)
    for reader in (saver, again, place.open()):
        assert values_of(reader) == {"n": 2}
        assert get(reader, root).pending_writes == [("task", "out", 3)]
    assert kinds_of(again) == ["c", "c", "w", "c"]


def test_another_process_put_in_between(place: Place) -> None:
    """What was in memory is old: all is decided anew, and nothing is lost or there twice."""
    saver, other = place.open(), place.open()
    root = put(saver, {"n": 0})
    other.put_writes(root, [("theirs", 1)], "other")
    theirs = put(other, {"n": 7}, root, 2)
    mine = put_with_writes(saver, {"n": 1}, root, 3)
    assert values_of(saver, theirs) == {"n": 7}
    assert values_of(saver, mine) == {"n": 1}
    assert get(saver, mine).parent_config == root
    assert get(saver, root).pending_writes == [("other", "theirs", 1), ("task", "out", 3)]


def test_the_checkpoint_is_refused(place: Place) -> None:
    """Its id is there already, with other values: the writes stand, and the later values count."""
    saver = place.open()
    first = put(saver, {"n": 0}, id="x")
    parent = put(saver, {"n": 1}, first, 2)
    made = put_with_writes(saver, {"n": 2}, parent, 3, id="x")
    assert kinds_of(saver) == ["c", "c", "w"]  # on its line; the checkpoint is beside it
    assert values_of(saver, made) == {"n": 2}
    assert get(saver, parent).pending_writes == [("task", "out", 3)]


def test_a_deleted_thread_takes_neither(place: Place) -> None:
    saver = place.open()
    root = put(saver, {"n": 0})
    place.open().delete_thread("t")
    thread = saver._thread("t")
    request = Request("", id_of(root), Write("task", "", [(0, "out", 1)]))
    thread.queue.ask(request)
    with pytest.raises(perdure.NotFound):
        put(saver, {"n": 1}, root, 2)
    assert isinstance(request.error, perdure.NotFound)
    assert saver.get_tuple(config()) is None


KILLED = """
import os, sys, threading
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import put, config
from tests.integrations.langgraph.test_together import put_with_writes
saver = PerdureSaver.from_url(sys.argv[1])
root = put(saver, {"n": 0}, id="root")
backend = saver._logs.context.backend
append = backend.append
def die(batch):
    if sys.argv[2] == "after":
        append(batch)
    os._exit(9)
backend.append = die
put_with_writes(saver, {"n": 1}, root, 2, id="next")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_leaves_both_or_neither(tmp_path: Path, when: str) -> None:
    path = str(tmp_path / "killed.db")
    done = subprocess.run([sys.executable, "-c", KILLED, path, when], check=False, timeout=60)
    assert done.returncode == 9
    with PerdureSaver.from_url(path) as saver:
        writes = get(saver, config(checkpoint_id="root")).pending_writes
        assert (values_of(saver), writes) == (
            ({"n": 0}, []) if when == "before" else ({"n": 1}, [("task", "out", 2)])
        )
        agent_of(saver).verify()


def test_snapshots_come_along_with_such_commits(place: Place) -> None:
    """When the two were two commits, a snapshot with the first did not know what the second did."""
    store = perdure.open(place.url, durability="os", snapshots=SnapshotPolicy(every_commits=3))
    with store:
        saver = PerdureSaver(store)
        log = [f"{number}" * 50 for number in range(3000)]
        at = put(saver, {"log": log})
        for version in range(2, 40):
            log = [*log[200:], "x" * 500, "y" * 500] if version % 3 else [*log, "z" * 900]
            at = put_with_writes(saver, {"log": log}, at, version)
            assert values_of(place.open(), at) == {"log": log}
    place.close()


def test_who_calls_one_after_the_other_never_waits(
    saver: PerdureSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Clockless(monkeypatch)
    at = put(saver, {"n": 0})
    for version in range(1, 5):
        saver.put_writes(at, [("out", version)], "task")
        at = put(saver, {"n": version}, at, version + 1)
    assert waits.rounds == 0


class Clockless:
    """Requests of a queue whose waits are counted, and last as long as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rounds = 0
        self.meanwhile: dict[int, Callable[[], None]] = {}
        rounds = Queue.rounds

        def waited(queue: Queue, request: Request, together: int | None = None) -> Iterator[float]:
            for _ in rounds(queue, request, together):
                self.wait()
            return iter(())

        monkeypatch.setattr(Queue, "rounds", waited)

    def wait(self) -> None:
        self.rounds += 1
        self.meanwhile.get(self.rounds, lambda: None)()


def asked(queue: Queue, checkpoint_id: str, *, patient: bool = True) -> Request:
    request = Request("", checkpoint_id, Write("task", "", []), patient=patient)
    queue.ask(request)
    return request


def elsewhere(fn: Callable[[], None]) -> None:
    """On another thread."""
    other = threading.Thread(target=fn)
    other.start()
    other.join()


def checkpoint_came(queue: Queue, parent: str, namespace: str = "") -> None:
    with queue.coming(namespace, parent):
        pass


def test_patience_begins_with_an_overlap_and_ends_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, queue = Clockless(monkeypatch), Queue()
    request = asked(queue, "x")
    queue.rounds(request)
    checkpoint_came(queue, "y")
    queue.rounds(request)
    assert waits.rounds == 0
    theirs = ExitStack()
    theirs.enter_context(queue.coming("", "x"))  # and it is being written for three rounds
    waits.meanwhile = {3: theirs.close}
    queue.rounds(request)
    assert waits.rounds == 3
    queue.close(request)
    checkpoint_came(queue, "x")  # on the same thread: it could not have been in time
    queue.rounds(asked(queue, "z"))
    assert waits.rounds == 3


def test_writes_wait_on_while_checkpoints_before_theirs_get_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine LangGraph's steps ran ahead of their checkpoints. Writes waited in vain for
    5 ms, and from then on each step of that graph was two commits instead of one."""
    waits, queue = Clockless(monkeypatch), Queue()
    mine = asked(queue, "x")
    checkpoint_came(queue, "x")
    for number in range(1, 5):
        waits.meanwhile[number] = lambda: checkpoint_came(queue, "earlier")
    waits.meanwhile[5] = lambda: mine.settle(None)
    queue.rounds(mine)
    assert waits.rounds == 5
    other = asked(queue, "y")
    for number in range(6, 30):  # those of subgraphs are none that theirs come behind
        waits.meanwhile[number] = lambda: checkpoint_came(queue, "earlier", "subgraph:1")
    queue.rounds(other)
    assert waits.rounds == 6


def counting(steps: int, saver: PerdureSaver) -> Any:
    """A graph that counts to `steps` in coroutines that await nothing."""

    async def count(state: Counted) -> Counted:
        return {"n": state["n"] + 1}

    built: Any = StateGraph(Counted)
    built.add_node("count", count)
    built.add_edge(START, "count")
    built.add_conditional_edges("count", lambda state: "count" if state["n"] < steps else END)
    return built.compile(checkpointer=saver)


class Counted(TypedDict):
    n: int


def test_writes_whose_checkpoint_is_far_behind_wait_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph whose nodes are coroutines that await nothing ran through all its steps before its
    first checkpoint was in. No writes met their checkpoint; each step was two commits."""
    monkeypatch.setattr(queued_writes, "PATIENCE_S", 30)

    async def main(saver: PerdureSaver) -> None:
        sizes = batches_of(saver)
        asking: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 100}
        graph = counting(50, saver)
        assert await graph.ainvoke({"n": 0}, asking, durability="async") == {"n": 50}
        assert len(sizes) <= 50 + 4, "its checkpoints, and what their first writes took"

    in_loop(place, main)


def test_signs_that_it_would_pay_count_less_after_waits_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, queue = Clockless(monkeypatch), Queue()

    def write(name: str) -> int:
        """How long writes wait that are asked for while others' checkpoint wants in."""
        before = waits.rounds
        with queue.coming("", "of others"):
            request = asked(queue, name)
        queue.rounds(request)
        queue.close(request)
        return waits.rounds - before

    assert [write(str(number)) for number in range(12)] == [1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_writes_whose_checkpoint_is_being_written_do_not_begin_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None that they could wait for comes behind it."""
    waits, queue = Clockless(monkeypatch), Queue()
    with queue.coming("", "x"):
        queue.rounds(asked(queue, "x"))
    assert waits.rounds == 0


def test_each_round_is_longer_and_all_of_them_take_a_second_or_so() -> None:
    queue = Queue()
    with queue.coming("", "earlier"):
        rounds = list(queue.rounds(asked(queue, "x")))
    assert rounds[:3] == [0.02, 0.04, 0.08]
    assert 1 < sum(rounds) < 1.5


def test_a_checkpoint_that_comes_just_too_late_is_waited_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queued_writes, "MISSED_S", 1e9)  # however slow the machine is
    waits, queue = Clockless(monkeypatch), Queue()

    def step(name: str) -> int:
        """Its writes, and then, on another thread, its checkpoint; how long they waited."""
        before = waits.rounds
        request = asked(queue, name)
        queue.rounds(request)
        queue.close(request)
        elsewhere(lambda: checkpoint_came(queue, name))
        return waits.rounds - before

    # Each time in vain it takes longer until it is tried again.
    assert [step(str(number)) for number in range(12)] == [0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]


def test_writes_that_say_why_a_task_stopped_do_not_wait(
    saver: PerdureSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint follows an interrupt: `invoke` would only return later."""
    waits = Clockless(monkeypatch)
    at = put(saver, {"n": 0})
    saver._thread("t").queue._pays = True
    saver.put_writes(at, [("__interrupt__", ["sure?"])], "task")
    assert waits.rounds == 0
    saver.put_writes(at, [("out", 1)], "another task")
    assert waits.rounds == 1


def test_of_many_parallel_tasks_the_writes_hold_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight tasks on LangGraph's six threads, the last two found two of these free: the writes
    of four others had the rest, and waited for the checkpoint behind those two. A graph of them
    took a tenth longer than with SqliteSaver."""
    waits, queue = Clockless(monkeypatch), Queue()
    queue._pays = True
    found = [asked(queue, "x") for _ in range(queued_writes.TOGETHER_MAX + 1)]
    queue.rounds(found[-1], queued_writes.TOGETHER_MAX)
    assert waits.rounds == 0
    queue.rounds(found[-1])  # as in a loop
    assert waits.rounds == 1
    assert len(queue.take("", "x")) == len(found)


def in_loop(place: Place, main: Callable[[PerdureSaver], Awaitable[None]]) -> None:
    async def opened() -> None:
        await main(place.open())

    asyncio.run(opened())


def writing(saver: PerdureSaver, at: RunnableConfig, value: Any) -> asyncio.Task[None]:
    return asyncio.create_task(saver.aput_writes(at, [("out", value)], "task"))


async def queued_up(saver: PerdureSaver, thread: str) -> None:
    while not saver._thread(thread).queue._spaces:
        await asyncio.sleep(0.001)


def test_coroutines_that_wait_leave_the_threads_to_the_checkpoints(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has eight threads. Were they held by writes that wait, the checkpoints that these
    wait for would find none."""
    monkeypatch.setattr(queued_writes, "PATIENCE_S", 60)
    ids = [f"t{number}" for number in range(20)]

    async def main(saver: PerdureSaver) -> None:
        roots = [put(saver, {"n": 0}, config(id)) for id in ids]
        for id in ids:
            saver._thread(id).queue._pays = True
        tasks = [writing(saver, at, id) for id, at in zip(ids, roots, strict=True)]
        await queued_up(saver, ids[-1])
        sizes = batches_of(saver)
        for at in reversed(roots):
            await asyncio.wait_for(saver.aput(at, checkpoint({"n": 1}, 2), {}, {}), 60)
        await asyncio.gather(*tasks)
        assert sum(sizes) == len(ids), "each checkpoint took its writes along"
        for id, at in zip(ids, roots, strict=True):
            found = await saver.aget_tuple(at)
            assert found is not None and found.pending_writes == [("task", "out", id)]

    in_loop(place, main)


def test_a_coroutine_whose_checkpoint_does_not_come_writes_by_itself(place: Place) -> None:
    async def main(saver: PerdureSaver) -> None:
        at = put(saver, {"n": 0})
        saver._thread("t").queue._pays = True
        await saver.aput_writes(at, [("out", 1)], "task")
        assert get(place.open(), at).pending_writes == [("task", "out", 1)]

    in_loop(place, main)


def test_writes_that_are_cancelled_while_they_wait_are_not_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued_writes, "PATIENCE_S", 60)

    async def main(saver: PerdureSaver) -> None:
        at = put(saver, {"n": 0})
        saver._thread("t").queue._pays = True
        task = writing(saver, at, 1)
        await queued_up(saver, "t")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await saver.aput(at, checkpoint({"n": 1}, 2), {}, {})
        assert get(saver, at).pending_writes == []
        assert saver._thread("t").queue._spaces == {}, "nothing is kept of it"

    in_loop(place, main)


@pytest.mark.parametrize("fails", [False, True])
def test_writes_that_are_cancelled_in_a_commit_are_done_before_the_cancellation_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Where that commit fails they are taken back: nobody else waits for them."""
    monkeypatch.setattr(queued_writes, "PATIENCE_S", 0.05)
    begun, gate = threading.Event(), threading.Event()

    async def main(saver: PerdureSaver) -> None:
        at = put(saver, {"n": 0})
        saver._thread("t").queue._pays = True
        backend = saver._logs.context.backend
        append = backend.append

        def slowly(batch: Any) -> Any:
            begun.set()
            assert gate.wait(60)
            if fails:
                raise MemoryError
            return append(batch)

        task = writing(saver, at, 1)
        await queued_up(saver, "t")
        backend.append = slowly  # type: ignore[method-assign]
        child = asyncio.create_task(saver.aput(at, checkpoint({"n": 1}, 2), {}, {}))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.1)
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        if fails:
            with pytest.raises(MemoryError):
                await child
            backend.append = append  # type: ignore[method-assign]
            assert saver._thread("t").queue._spaces == {}
            put(saver, {"n": 1}, at, 2)
        else:
            await child
        found = [("task", "out", 1)] if not fails else []
        assert get(saver, at).pending_writes == found

    in_loop(place, main)


# -- small records -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"v": 1},
        {"v": True},
        {"updated_channels": None},
        {"updated_channels": ["b", "a"]},
        {"updated_channels": []},
        {"pending_sends": [1]},
        {"ts": "yesterday"},
        {"r": 1, "u": 2},
    ],
)
def test_what_a_checkpoint_says_comes_back_as_it_was(place: Place, more: dict[str, Any]) -> None:
    saver = place.open()
    root = put(saver, {"a": 1, "b": 2})
    made: Any = {**checkpoint({"a": 2, "b": 2, "c": None}, 2), **more}
    at = saver.put(root, made, {"source": "loop", "step": 1, "parents": {}}, {})
    assert get(place.open(), at).checkpoint == made
    del made["updated_channels"]
    made["id"] = "other"
    at = saver.put(at, made, {"source": "loop", "step": 2, "parents": {}}, {})
    assert get(place.open(), at).checkpoint == made


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"source": "loop"},
        {"source": "loop", "step": 3},
        {"parents": {}},
        {"source": "loop", "step": 3, "parents": {"": "x"}},
        {"source": None, "step": None, "parents": {}},
        {"source": "loop", "step": 3, "parents": {}, "run_id": "r", "x": {"y": [1]}},
        {"source": "loop", "step": 3, "parents": {}, "@": 1},
    ],
)
def test_metadata_come_back_as_they_were(place: Place, metadata: Any) -> None:
    at = place.open().put(config(), checkpoint({"n": 1}), metadata, {})
    assert get(place.open(), at).metadata == metadata


@pytest.mark.parametrize(
    "id",
    [
        "1f1e5c6a-5b12-68ef-8000-106f33b819b6",
        "1F1E5C6A-5b12-68ef-8000-106f33b819b6",
        "a",
        "a:b",
        "1f1e5c6a-5b12-68ef-8000-106f33b819b6\n",
        "=",
        "é",
        "0" * 36,
    ],
)
def test_keys_give_back_namespace_and_id(id: str) -> None:
    for namespace in ("", "a:b|c/d", "é\n"):
        for number in (1, 2, 30):
            key = thread_names.checkpoint_key(namespace, id, number)
            assert thread_names.read_checkpoint_key(key) == (namespace, id)
            assert (
                thread_names.read_checkpoint_key(thread_names.writes_key(namespace, id, number))
                is None
            )


@pytest.mark.parametrize("key", [None, "", "charge", "c:x", "c::short", "c1:a:b:c"])
def test_keys_of_others_are_no_checkpoints(key: str | None) -> None:
    assert thread_names.read_checkpoint_key(key) is None


def test_versions_that_are_equal_but_of_another_type(place: Place) -> None:
    saver = place.open()
    at = put(saver, {"n": 0, "m": 0})
    for versions in ({"n": True, "m": 1}, {"n": 1.0, "m": 1, "none": None}, {"m": 1}):
        made = {**checkpoint({"n": 0, "m": 0}, 2), "channel_versions": versions}
        at = saver.put(at, made, {"source": "loop"}, {})  # type: ignore[arg-type]
        found = get(place.open(), at).checkpoint["channel_versions"]
        assert {name: (type(one), one) for name, one in found.items()} == {
            name: (type(one), one) for name, one in versions.items()
        }
