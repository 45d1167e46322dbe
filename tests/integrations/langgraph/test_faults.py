"""Bad input, other loops, closed stores, other processes, and kills: errors that say what to do."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

import perdure
from perdure.errors import SchemaError, StoreUnavailable
from perdure.integrations.langgraph import PerdureSaver
from perdure.system.locks import WithinItselfError
from tests.faults.injecting import Handled, Injector
from tests.integrations.langgraph.checkpoints import (
    checkpoint,
    config,
    get,
    line,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place


@pytest.mark.parametrize("bad", [{}, {"configurable": {}}, {"configurable": {"thread_id": None}}])
def test_a_config_without_a_thread(saver: PerdureSaver, bad: Any) -> None:
    for call in (
        lambda: saver.get_tuple(bad),
        lambda: list(saver.list(bad)),
        lambda: saver.put(bad, checkpoint({}), {}, {}),
        lambda: saver.put_writes(bad, [("a", 1)], "task"),
    ):
        with pytest.raises(ValueError, match=r"names no thread: pass config="):
            call()


@pytest.mark.parametrize("bad", ["", "x" * 201, "nul\0", "lone \ud800"])
def test_ids_that_can_name_no_thread(saver: PerdureSaver, bad: str) -> None:
    for call in (
        lambda: saver.get_tuple(config(bad)),
        lambda: list(saver.list(config(bad))),
        lambda: put(saver, {"n": 1}, config(bad)),
        lambda: saver.put_writes(config(bad, "1"), [("a", 1)], "task"),
        lambda: saver.delete_thread(bad),
        lambda: saver.prune([bad]),
    ):
        with pytest.raises(ValueError, match="1 to 200 characters"):
            call()


@pytest.mark.parametrize(
    "thread",
    ["a/b", "../x", "a b", "zażółć 🦊", "main", "@removed", "~2", "%2F", "a:b", "'; --", 7],
)
def test_any_other_id_names_a_thread(saver: PerdureSaver, thread: Any) -> None:
    at = put(saver, {"n": 1}, config(thread))
    child = put(saver, {"n": 2}, config(thread, ns=f"node:{thread}|x~2"))
    saver.put_writes(at, [("out", 1)], "task")
    assert get(saver, config(thread)).pending_writes == [("task", "out", 1)]
    assert values_of(saver, child) == {"n": 2}
    assert len(list(saver.list(config(thread)))) == 1
    saver.delete_thread(thread)
    assert saver.get_tuple(at) is None


def test_namespaces_are_told_apart(saver: PerdureSaver) -> None:
    namespaces = ("", "a~2", "a", "a%7E2", "x" * 300, "x" * 299 + "y", "a|b:c", "ünïcode")
    for ns in namespaces:
        put(saver, {"ns": ns}, config(ns=ns))
        put(saver, {"ns": ns, "second": True}, config(ns=ns))
    for ns in namespaces:
        assert values_of(saver, config(ns=ns)) == {"ns": ns, "second": True}
        assert len(list(saver.list(config(ns=ns)))) == 2


def test_ids_of_checkpoints_are_any_text(saver: PerdureSaver) -> None:
    for one in ("a/b", ":", "::", "1:2", "ü", "~", " "):
        at = put(saver, {"n": one}, id=one)
        saver.put_writes(at, [("out", one)], "task")
    for one in ("a/b", ":", "::", "1:2", "ü", "~", " "):
        found = get(saver, config("t", one))
        assert found.checkpoint["channel_values"] == {"n": one}
        assert found.pending_writes == [("task", "out", one)]
    with pytest.raises(ValueError, match="checkpoint_id is not a valid text"):
        put(saver, {"n": 1}, id="\ud800")
    with pytest.raises(ValueError, match="no checkpoint_id"):
        saver.put_writes(config(), [("a", 1)], "task")


def test_what_is_not_there(saver: PerdureSaver) -> None:
    assert saver.get_tuple(config("nobody")) is None
    assert list(saver.list(config("nobody"))) == []
    line(saver, 2)
    assert saver.get_tuple(config("t", "unknown")) is None
    assert saver.get_tuple(config("t", ns="unknown")) is None
    assert list(saver.list(config("t", "unknown"))) == []
    assert len(list(saver.list(config(), before=config("t", "zzz")))) == 2
    saver.delete_thread("nobody")
    saver.delete_for_runs([])
    saver.prune(["nobody"])


def test_an_agent_that_is_no_thread_is_left_alone(saver: PerdureSaver) -> None:
    saver.store.agent("ticket").save({"a": 1}, "first")
    for call in (
        lambda: saver.get_tuple(config("ticket")),
        lambda: put(saver, {"n": 1}, config("ticket")),
        lambda: saver.delete_thread("ticket"),
    ):
        with pytest.raises(SchemaError, match="give the thread another id"):
            call()
    assert saver.store.agent("ticket").state == {"a": 1}


def test_used_after_close(place: Place) -> None:
    saver = place.open()
    at = put(saver, {"n": 1})
    saver.close()
    saver.close()
    for call in (
        lambda: saver.get_tuple(at),
        lambda: put(saver, {"n": 2}, at),
        lambda: saver.put_writes(at, [("a", 1)], "task"),
        lambda: list(saver.list(config())),
        lambda: asyncio.run(saver.aget_tuple(at)),
        lambda: saver.delete_thread("t"),
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()


def test_a_store_of_the_callers_stays_open(place: Place) -> None:
    with perdure.open(place.url, durability="os") as store:
        with PerdureSaver(store) as saver:
            put(saver, {"n": 1})
        assert values_of(PerdureSaver(store)) == {"n": 1}


def test_a_handler_puts_nothing_into_a_thread_in_the_middle_of_a_put() -> None:
    """A signal's handler put a checkpoint into the thread that a put was just committed to. From
    then on the saver gave the handler's values out as those of the other checkpoint."""
    store, refused = perdure.open("memory://"), 0
    saver = PerdureSaver(store)

    def scene(name: str) -> RunnableConfig:
        return put(saver, {"n": [0, 1]}, put(saver, {"n": [0]}, config(name)), 2)

    def handler() -> None:
        nonlocal refused
        try:
            put(saver, {"n": list(range(9))}, root, 9)
        except (WithinItselfError, perdure.Conflict):
            refused += 1

    root = scene("counted")
    with Injector() as points:
        put(saver, {"n": [0, 1, 2]}, root, 3)
    for at in range(1, points.count, points.count // 60):
        root = scene(f"handled {at}")
        with Handled(at, handler, points.calls):
            made = put(saver, {"n": [0, 1, 2]}, root, 3)
        assert values_of(saver, made) == values_of(PerdureSaver(store), made) == {"n": [0, 1, 2]}
    assert refused


def test_the_event_loop_is_not_blocked(saver: PerdureSaver) -> None:
    """While a put waits (here: for the thread's lock), the loop goes on."""

    async def work() -> int:
        at = await saver.aput(config(), checkpoint({"n": 1}), {"source": "loop", "step": 1}, {})
        lock = saver._thread("t").lock
        release, held = threading.Event(), threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                release.wait(20)

        holder = threading.Thread(target=hold)
        holder.start()
        await asyncio.to_thread(held.wait, 20)
        writing = asyncio.ensure_future(saver.aput_writes(at, [("a", 1)], "task"))
        turns = 0
        while turns < 50:
            await asyncio.sleep(0)
            turns += 1
        assert not writing.done()
        release.set()
        await writing
        holder.join()
        return turns

    assert asyncio.run(work()) == 50


def test_a_cancelled_put_is_done_or_not(saver: PerdureSaver) -> None:
    async def work() -> None:
        at = await saver.aput(config(), checkpoint({"n": 0}), {}, {})
        for number in range(10):
            task = asyncio.ensure_future(saver.aput_writes(at, [("a", number)], f"t{number}"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        found = await saver.aget_tuple(at)
        assert found is not None
        assert all(value == int(task[1:]) for task, _, value in found.pending_writes or ())

    asyncio.run(work())


PUTTER = """
    import sys
    from perdure.integrations.langgraph import PerdureSaver
    from tests.integrations.langgraph.checkpoints import put

    with PerdureSaver.from_url(sys.argv[1]) as saver:
        at = None
        for number in range(1, 10_000):
            if at is not None:
                saver.put_writes(at, [("n", number)], f"task-{number}")
            at = put(saver, {"n": number, "log": list(range(number))}, at, number)
            print(number, flush=True)
"""


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    url = str(tmp_path / "threads.db")
    for least in (3, 25):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PUTTER), url],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
        )
        assert process.stdout is not None
        seen = 0
        for told in process.stdout:
            seen = int(told)
            if seen >= least:
                break
        process.send_signal(signal.SIGKILL)
        seen = max([seen, *(int(told) for told in process.stdout.read().split("\n") if told)])
        process.stdout.close()
        process.wait()
        with PerdureSaver.from_url(url) as saver:
            found = get(saver)
            values = found.checkpoint["channel_values"]
            assert values["n"] >= seen
            assert values["log"] == list(range(values["n"]))
            if found.parent_config is not None:
                number = values["n"]
                before = get(saver, found.parent_config)
                assert before.pending_writes == [(f"task-{number}", "n", number)]
            info = saver.store.find("t")
            assert info is not None
            saver.store.agent_of(info).verify()
            saver.delete_thread("t")


def _write_here(url: str, who: int, count: int) -> None:
    with PerdureSaver.from_url(url, durability="os") as saver:
        at = config()
        for number in range(count):
            at = put(saver, {"who": who, "n": number}, at, number + 1)
            saver.put_writes(at, [("who", who)], f"task-{who}")


def test_two_processes_on_one_thread_id(tmp_path: Path) -> None:
    url = str(tmp_path / "threads.db")
    PerdureSaver.from_url(url).close()
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_here, args=(url, who, 20)) for who in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    with PerdureSaver.from_url(url) as saver:
        found = list(saver.list(config()))
        told = {
            (one.checkpoint["channel_values"]["who"], one.checkpoint["channel_values"]["n"])
            for one in found
        }
        assert told == {(who, number) for who in range(2) for number in range(20)}
        for one in found:
            who = one.checkpoint["channel_values"]["who"]
            assert one.pending_writes == [(f"task-{who}", "who", who)]
        info = saver.store.find("t")
        assert info is not None
        saver.store.agent_of(info).verify()
