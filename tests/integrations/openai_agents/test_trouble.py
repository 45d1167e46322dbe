"""Wrong use, other loops and threads, other processes, kills."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from multiprocessing.reduction import DupFd
from typing import Any

import pytest
from openai.types.responses import ResponseOutputMessage

import perdure
from perdure.integrations.openai_agents import PerdureRunStates, PerdureSession
from perdure.integrations.openai_agents import stores as stores_module
from tests.integrations.openai_agents import processes
from tests.integrations.openai_agents.speaking import says, texts, user


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800"])
def test_an_id_that_names_no_agent_is_refused_at_once(name):
    with pytest.raises(ValueError, match="the name of a session"):
        PerdureSession(name, url="memory://")


@pytest.mark.parametrize("name", ["a/b//c", "..", "é🙂 \n'\";--", "x" * 200, "*", "%_"])
def test_any_other_id_will_do(url, name):
    async def main():
        async with PerdureSession(name, url=url) as session, PerdureSession("x", url=url) as other:
            await other.add_items([user("not mine")])
            await session.add_items([user("hi")])
            assert texts(await session.get_items()) == ["hi"]
        with perdure.open(url) as store:
            assert sorted(info.name for info in store.agents()) == sorted([name, "x"])

    asyncio.run(main())


def test_where_it_is_kept_must_be_said_once(url):
    for make in (PerdureSession, lambda name, *a, **k: PerdureRunStates(*a, **k)):
        with pytest.raises(TypeError, match=r"url='agents\.db'"):
            make("c-1")
        with perdure.open("memory://") as store, pytest.raises(TypeError, match="either"):
            make("c-1", url, store=store)


@pytest.mark.parametrize(
    ("items", "where"),
    [
        ([user("fine"), user(object())], r"items\[1\]\.content"),  # type: ignore[arg-type]
        ([{"role": "user", "content": [{"x": {"y": {1, object()}}}]}], r"items\[0\]\.content"),
        ([user("fine"), "text"], r"items\[1\]"),
        ([says("a model of pydantic")], r"items\[0\].*ResponseOutputMessage"),
        ([{1: "no field"}], r"items"),
    ],
)
def test_what_is_no_plain_data_is_refused_by_its_place(url, items, where):
    assert isinstance(says("x"), ResponseOutputMessage)

    async def main():
        async with PerdureSession("c-1", url=url) as session:
            await session.add_items([user("before")])
            with pytest.raises(perdure.SchemaError, match=where):
                await session.add_items(items)
            assert texts(await session.get_items()) == ["before"]

    asyncio.run(main())


def test_an_item_inside_itself_is_refused(url):
    item: Any = {"role": "user", "content": []}
    item["content"].append(item)

    async def main():
        async with PerdureSession("c-1", url=url) as session:
            with pytest.raises(perdure.SharedValue, match="cycle"):
                await session.add_items([item])

    asyncio.run(main())


def test_a_name_with_a_lone_surrogate_is_kept_as_it_is(url):
    item = {"type": "function_call", "name": "\ud800", "arguments": "{}", "call_id": "1"}

    async def main():
        async with PerdureSession("c-1", url=url) as session:
            await session.add_items([item])  # type: ignore[list-item]
            assert await session.get_items() == [item]

    asyncio.run(main())


def test_after_close_it_says_so(url):
    async def main():
        session = PerdureSession("c-1", url=url)
        await session.add_items([user("hi")])
        await session.close()
        await session.close()
        for use in (
            session.get_items,
            session.pop_item,
            session.clear_session,
            session.agent,
            lambda: session.add_items([]),
            lambda: session.add_items([user("more")]),
        ):
            with pytest.raises(perdure.StoreUnavailable, match="make a new one"):
                await use()
        states = PerdureRunStates(url)
        await states.close()
        with pytest.raises(perdure.StoreUnavailable, match="make a new one"):
            await states.clear("c-1")

    asyncio.run(main())


def test_a_given_store_stays_open_and_a_closed_one_is_said(url):
    async def main():
        with perdure.open(url) as store:
            async with PerdureSession("c-1", store=store) as session:
                await session.add_items([user("hi")])
            late = PerdureSession("c-1", store=store)
            assert texts(await late.get_items()) == ["hi"]
        with pytest.raises(perdure.StoreUnavailable):
            await late.add_items([user("too late")])

    asyncio.run(main())


def test_sessions_of_one_url_share_a_store_until_the_last_is_closed(url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    async def main():
        one, two = PerdureSession("a", url=url), PerdureSession("b", url="agents.db")
        monkeypatch.chdir("/")  # a relative path is of the folder where it was said
        await asyncio.gather(one.add_items([user("1")]), two.add_items([user("2")]))
        assert len([key for key in stores_module._shared if str(tmp_path) in key]) == 1
        await one.close()
        assert texts(await two.get_items()) == ["2"]
        await two.close()
        assert not [key for key in stores_module._shared if str(tmp_path) in key]
        assert not os.path.exists(f"{url}-wal")

    asyncio.run(main())


def test_a_store_that_does_not_answer_holds_up_no_other(monkeypatch, tmp_path):
    """All stores of sessions were opened one by one: the server of one tenant did not answer, and
    the sessions of all others waited for it."""
    asked, answers = threading.Event(), threading.Event()
    open_really = perdure.open

    def open_slowly(url, **more):
        if "away" in url:
            asked.set()
            assert answers.wait(60)
            raise perdure.StoreUnavailable("it does not answer", target=url)
        return open_really(url, **more)

    monkeypatch.setattr(perdure, "open", open_slowly)

    async def main():
        away = PerdureSession("c", url=str(tmp_path / "away.db"))
        waits = asyncio.create_task(away.add_items([user("hi")]))
        await asyncio.to_thread(asked.wait, 60)
        async with PerdureSession("c", url=str(tmp_path / "here.db")) as session:
            await session.add_items([user("hi")])
        assert not waits.done()
        answers.set()
        with pytest.raises(perdure.StoreUnavailable, match="does not answer"):
            await waits
        assert not [key for key in stores_module._shared if str(tmp_path) in key]

    asyncio.run(main())


def test_a_session_is_closed_behind_the_end_of_its_process(tmp_path):
    """An application closed its session as the process ended, behind us: a bare KeyError."""

    async def main():
        session = PerdureSession("c", url=str(tmp_path / "s.db"))
        await session.add_items([user("hi")])
        stores_module._close_all()
        await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("given", ["agents.db", "sqlite:///agents.db"])
def test_each_folder_has_its_own_file(given, monkeypatch, tmp_path):
    """Story: of two sessions of one relative URL, made in different folders, the second read and
    wrote the first one's file."""
    folders = [tmp_path / name for name in ("one", "two")]

    async def main():
        sessions = []
        for folder in folders:
            folder.mkdir()
            monkeypatch.chdir(folder)
            sessions.append(PerdureSession("chat", given))
        await sessions[0].add_items([user("from one")])
        assert await sessions[1].get_items() == []
        for session in sessions:
            await session.close()
        assert (folders[0] / "agents.db").exists()

    asyncio.run(main())


def test_a_memory_without_a_name_is_its_sessions_own():
    async def main():
        async with PerdureSession("a", "memory://") as one, PerdureSession("a", "memory://") as two:
            await one.add_items([user("1")])
            assert await two.get_items() == []

    asyncio.run(main())


@pytest.mark.parametrize("given", ["url", "store"])
def test_one_loop_after_the_other(url, given):
    with perdure.open(url) as store:
        session = PerdureSession("c-1", **({"store": store} if given == "store" else {"url": url}))
        for number in range(3):
            asyncio.run(session.add_items([user(str(number))]))
        assert texts(asyncio.run(session.get_items())) == ["0", "1", "2"]
        assert len(session._on_loops) == 1  # what belonged to closed loops is let go
        asyncio.run(session.close())


def test_several_loops_at_once(url):
    session = PerdureSession("c-1", url=url)

    async def add(name):
        for number in range(5):
            await session.add_items([user(f"{name}-{number}")])

    threads = [threading.Thread(target=asyncio.run, args=(add(n),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(asyncio.run(session.get_items()))
    for name in range(3):
        assert [text for text in found if text.startswith(f"{name}-")] == [
            f"{name}-{number}" for number in range(5)
        ]
    asyncio.run(session.close())


def test_an_async_store_belongs_to_its_loop(url):
    async def opened():
        store = await perdure.open_async(url)
        session = PerdureSession("c-1", store=store)
        await session.add_items([user("hi")])
        return store, session

    loop = asyncio.new_event_loop()
    try:
        store, session = loop.run_until_complete(opened())
        with pytest.raises(perdure.Conflict, match="another event loop"):
            asyncio.run(session.get_items())
        assert texts(loop.run_until_complete(session.get_items())) == ["hi"]
        loop.run_until_complete(store.close())
    finally:
        loop.close()


def test_an_agent_of_another_kind_is_not_taken_for_a_session(url):
    with perdure.open(url) as store, store.agent("c-1").edit("mine") as draft:
        draft["n"] = 1

    async def main():
        async with PerdureSession("c-1", url=url) as session:
            for use in (session.get_items, lambda: session.add_items([user("hi")])):
                with pytest.raises(perdure.SchemaError, match="written under schema"):
                    await use()

    asyncio.run(main())


def test_a_place_that_cannot_be_opened_is_said_and_not_taken_for_empty(tmp_path):
    (tmp_path / "no.db").write_text("this is no database, whatever it is called\n" * 99)

    async def main():
        for url in (tmp_path / "no.db", tmp_path, tmp_path / "no" / "folder.db"):
            session = PerdureSession("c-1", url=url)
            with pytest.raises(perdure.PerdureError):
                await session.get_items()
            await session.close()

    asyncio.run(main())


def test_a_cancelled_add_is_whole_or_not_at_all(url):
    async def main():
        async with PerdureSession("c-1", url=url) as session:
            await session.add_items([user("first")])
            for yields in range(12):
                task = asyncio.create_task(session.add_items([user("a"), user("b")]))
                for _ in range(yields):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                found = texts(await session.get_items())
                assert found[1:] == ["a", "b"] * ((len(found) - 1) // 2)
            await session.add_items([user("last")])
            assert texts(await session.get_items())[-1] == "last"

    asyncio.run(main())


def test_processes_that_write_to_one_session_lose_nothing(url, tmp_path):
    writers = [processes.start(processes.add_many, url, name, 12) for name in ("x", "y", "z")]
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0

    async def look():
        async with PerdureSession("shared", url=url) as session:
            return texts(await session.get_items())

    found = asyncio.run(look())
    for name in ("x", "y", "z"):
        expected = [f"{name}-{number}-{half}" for number in range(12) for half in "ab"]
        assert [text for text in found if text.startswith(name)] == expected
    assert [text[:-1] for text in found[::2]] == [text[:-1] for text in found[1::2]]

    takers = [
        processes.start(processes.pop_some, url, 12, str(tmp_path / name)) for name in ("p", "q")
    ]
    for taker in takers:
        taker.join()
        assert taker.exitcode == 0
    popped = [line for name in ("p", "q") for line in (tmp_path / name).read_text().split("\n")]
    assert sorted(popped) == sorted(found[-24:])
    assert asyncio.run(look()) == found[:-24]


def test_what_was_acknowledged_before_a_kill_is_there(url):
    reading, writing = os.pipe()
    with os.fdopen(reading) as acknowledged:
        writer = processes.start(processes.add_until_killed, url, DupFd(writing))
        os.close(writing)
        done = [int(acknowledged.readline()) for _ in range(5)]
        writer.kill()
        done += [int(line) for line in acknowledged if line.strip()]
        writer.join()

    async def main():
        async with PerdureSession("shared", url=url) as session:
            found = texts(await session.get_items())
            whole = [f"{number}-{half}" for number in range(len(found) // 2) for half in "ab"]
            assert found == whole
            assert len(found) // 2 >= len(done)
            await session.add_items([user("and on")])
            assert (await (await session.agent()).verify()).commits >= len(done)

    asyncio.run(main())


def test_perdure_itself_does_not_import_the_sdk():
    code = "import sys, perdure, perdure.aio; sys.exit('agents' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
