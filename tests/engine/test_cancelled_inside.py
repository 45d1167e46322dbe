"""A step or tool raises `CancelledError` by itself, and nobody cancelled the task that it is in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import perdure


@perdure.step
async def fetch(number: int) -> int:
    if number == 1:
        connection = asyncio.get_running_loop().create_future()
        connection.cancel()  # a client does so whose connection is closed
        await connection
    return number


@perdure.tool
def pay(number: int) -> int:
    if number == 1:
        raise asyncio.CancelledError("closed")
    return number


async def _fetches(run: Any) -> Any:
    return await asyncio.gather(*[fetch(n) for n in range(3)], return_exceptions=True)


async def _pays(run: Any) -> Any:
    return await asyncio.gather(*[run.call(pay, n) for n in range(3)], return_exceptions=True)


async def _one(run: Any) -> Any:
    try:
        return [await run.call(fetch, 1)]
    except asyncio.CancelledError as error:
        return [error]


@pytest.mark.parametrize("calls", [_fetches, _pays, _one])
def test_what_a_call_raises_itself_is_its_outcome(calls: Any, tmp_path: Path) -> None:
    """A call awaited what was cancelled inside of it. It was recorded as one whose task was
    cancelled; each replay waited a minute for somebody to do that again, and the run stopped: its
    code had changed."""
    seen = []

    @perdure.agent(dict)
    async def main(run: Any) -> list[str]:
        seen.append([repr(one) for one in await calls(run)])
        await run.wait_for("go")
        return seen[-1]

    async def go() -> Any:
        async with perdure.open_async(tmp_path / "store.db") as store:
            first = asyncio.create_task(store.run(main, "x"))
            handle = await _waiting(store)
            await handle.signal("go", 1)
            return await first

    async def _waiting(store: Any) -> Any:
        while not seen:
            await asyncio.sleep(0.01)
        handle = await store.handle("x/main/main")
        while await handle.status() != "waiting":
            await asyncio.sleep(0.01)
        return handle

    got = asyncio.run(asyncio.wait_for(go(), 30))
    assert len(seen) == 2  # it was unloaded, and gone through again
    assert seen[0] == seen[1] == got
    assert sum("CancelledError" in one for one in got) == 1


class _Busy:
    """Whether code of a class, or what it awaits, is cancelled now."""

    now = False


@dataclass
class Receipt:
    number: int

    def __post_init__(self) -> None:
        if _Busy.now:
            raise asyncio.CancelledError("the connection is closed")


@perdure.step
def receipt(number: int) -> Receipt:
    found = Receipt(number)
    _Busy.now = True  # from now on its class refuses to make another one, also of what is stored
    return found


def _retries(error: Exception) -> bool:
    raise asyncio.CancelledError("nobody knows")


@perdure.step(retry=perdure.Retry(attempts=2, first=0.001, on=_retries))
def failing(number: int) -> int:
    raise ValueError("once")


@pytest.mark.parametrize("call", [receipt, failing])
def test_code_that_is_called_on_the_way_may_raise_it_as_any_error(
    call: Any, tmp_path: Path
) -> None:
    """A class's own code, or a function that says what is tried again, raised CancelledError: that
    was recorded as if the task had been cancelled, and each replay waited for it to be so again."""
    heard: list[list[str]] = []

    @perdure.agent(dict)
    async def main(run: Any) -> list[str]:
        heard.append([])
        for number in range(2):
            try:
                heard[-1].append(repr(await run.call(call, number)))
            except asyncio.CancelledError as error:
                heard[-1].append(repr(error))
            except Exception as error:
                heard[-1].append(type(error).__name__)
            _Busy.now = False
            await fetch(0)
        if len(heard) == 1:
            raise SystemExit
        return heard[-1]

    async def go() -> Any:
        async with perdure.open_async(tmp_path / "store.db", durability="os") as store:
            return await store.run(main, "x")

    with pytest.raises(SystemExit):
        asyncio.run(go())
    _Busy.now = False
    assert asyncio.run(asyncio.wait_for(go(), 30)) == heard[0]
    wanted = "ValueError" if call is failing else "SchemaError"  # as of any value, so of a result
    assert heard[0] == [wanted] * 2


async def _awaits(run: Any) -> Any:
    inner = asyncio.ensure_future(asyncio.sleep(10))
    asyncio.get_running_loop().call_soon(inner.cancel)
    return await inner


async def _own_task(run: Any) -> Any:
    task = asyncio.create_task(fetch(2))
    task.cancel()
    return await task


async def _of_a_call(run: Any) -> Any:
    return await fetch(1)


async def _in_a_group(run: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_of_a_call(run))
    return await task


@pytest.mark.parametrize("act", [_awaits, _own_task, _of_a_call, _in_a_group])
def test_a_run_that_it_leaves_has_failed(act: Any, tmp_path: Path) -> None:
    """Nobody had cancelled the run, or who awaited it; yet it was left as if somebody had. So it
    was each time that it was asked for, and it never ended."""

    @perdure.agent(dict)
    async def main(run: Any) -> Any:
        return await act(run)

    async def go() -> Any:
        async with perdure.open_async(tmp_path / "store.db", durability="os") as store:
            with pytest.raises(perdure.RunFailed, match="CancelledError left its function"):
                await store.run(main, "x")
            return await (await store.handle("x/main/main")).status()

    assert [asyncio.run(asyncio.wait_for(go(), 30)) for _ in range(2)] == ["failed"] * 2


def test_a_plain_run_that_it_leaves_has_failed(tmp_path: Path) -> None:
    """The same of a step that raises it, and is called again each time, and of a plain function."""
    calls: list[int] = []
    ends = [SystemExit()]

    @perdure.step
    def call(number: int) -> int:
        calls.append(number)
        return asyncio.run(_awaits(None))  # type: ignore[no-any-return]

    @perdure.agent(dict)
    def main(run: Any) -> Any:
        with pytest.raises(asyncio.CancelledError):
            call(1)
        if ends:
            raise ends.pop()
        return call(2)

    with perdure.open(tmp_path / "store.db", durability="os") as store:
        with pytest.raises(SystemExit):
            store.run(main, "x")
        for _ in range(2):
            with pytest.raises(perdure.RunFailed, match="was not cancelled"):
                store.run(main, "x")
        assert calls == [1, 2]
        assert store.handle("x/main/main").status == "failed"


def test_a_caller_that_is_cancelled_leaves_the_run_to_be_gone_on_with(tmp_path: Path) -> None:
    """Also where all of a loop's tasks are cancelled one by one, those of the run before it."""
    begun: list[asyncio.Event] = []

    @perdure.agent(dict)
    async def main(run: Any) -> Any:
        async def waits() -> None:
            begun[-1].set()
            if len(begun) == 1:
                await asyncio.Event().wait()

        await asyncio.gather(waits(), fetch(0))
        return "done"

    async def go() -> Any:
        begun.append(asyncio.Event())
        async with perdure.open_async(tmp_path / "store.db", durability="os") as store:
            caller = asyncio.create_task(store.run(main, "x"))
            if len(begun) == 1:
                await begun[0].wait()
                others = asyncio.all_tasks() - {asyncio.current_task(), caller}
                for task in [*others, caller]:
                    task.cancel()
            return await caller

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go())
    assert asyncio.run(asyncio.wait_for(go(), 30)) == "done"


def test_a_function_that_cancelled_itself_has_failed(tmp_path: Path) -> None:
    """Its own task was: by its own code, or by a timeout around a group in which a task had failed.
    The caller was told that he was cancelled, the run went on being begun, and so without end."""

    @perdure.agent(dict)
    async def itself(run: perdure.AsyncRun[Any]) -> None:
        await fetch(0)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await fetch(2)

    async def go() -> None:
        async with perdure.open_async(tmp_path / "store.db") as store:
            for _ in range(2):
                with pytest.raises(perdure.RunFailed, match="was not cancelled"):
                    await store.run(itself, "a")
            handle = await store.handle("a/itself/main")
            assert await handle.status() == "failed"

    asyncio.run(go())
