"""What a function calls behind what ends the program: in its `finally`, or as it handles that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, aclosing, closing, suppress
from typing import Any

import pytest

import perdure
from perdure.aio import AsyncStore
from perdure.store import Store
from perdure.testing import replay
from tests.engine.conftest import Async

Kind = type[KeyboardInterrupt] | type[SystemExit]
KINDS: list[Kind] = [KeyboardInterrupt, SystemExit]


class Script:
    """What the functions here do: the first time something ends them, and then nothing does."""

    def __init__(self) -> None:
        self.ends: list[BaseException] = []
        self.spared = 0
        self.inside_step = False
        self.called: list[str] = []

    def end(self) -> None:
        if self.spared:
            self.spared -= 1
        elif self.ends:
            raise self.ends.pop()


script = Script()


@pytest.fixture(autouse=True)
def _anew() -> None:
    script.__init__()  # type: ignore[misc]


@perdure.step
def work(name: str) -> str:
    script.called.append(name)
    if name == "long":
        script.end()
    return name


@perdure.tool(on_crash="retry")
def tidy(name: str) -> None:
    script.called.append(name)


@perdure.step
async def awork(name: str) -> str:
    return work(name)


def edit(run: perdure.Run[dict]) -> None:
    with run.edit("clean") as draft:
        draft["clean"] = True


def threads(run: perdure.Run[dict]) -> None:
    with run.executor() as executor:
        executor.submit(work, "a thread").result()


CLEANUPS: dict[str, Callable[[perdure.Run[dict]], object]] = {
    "tool": lambda run: tidy("tidy"),
    "step": lambda run: work("tidy"),
    "edit": edit,
    "map": lambda run: run.map(work, ["one", "two"]),
    "threads": threads,
    "ask": lambda run: run.ask("Clean?", timeout=0.001, default=True),
    "value": lambda run: run.random(),
}


def run_twice(store: Store, function: Any, kind: Kind, call: Callable[..., Any]) -> tuple[Any, int]:
    """Interrupted, and run again: what it gave then, and how many commits there were before."""
    script.ends = [kind("injected")]
    with pytest.raises(kind, match="injected"):
        call(store, function)
    commits = store.agent("a").seq
    return call(store, function), commits


def plainly(store: Store, function: Any) -> Any:
    return store.run(function, "a")


@pytest.mark.parametrize("where", ["function", "step"])
@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_cleans_up_behind_the_programs_end_is_not_recorded(
    store: Store, kind: Kind, cleanup: str, where: str
) -> None:
    """Ctrl-C came in the function's own code, and its `finally` called a tool, which was recorded.
    Run again, it came to other calls first: it needed attention, as if its code had changed. Where
    a call had been left, the caller got an error that said that it was caught."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        try:
            work("short")
            if where == "function":
                script.end()
            return work("long")
        finally:
            CLEANUPS[cleanup](run)

    given, commits = run_twice(store, act, kind, plainly)
    assert given == "long"
    assert commits == 3  # the agent, the run, a step
    assert script.called.count("tidy") <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_behind_which_the_end_goes_on_records_nothing_either(
    store: Store, kind: Kind
) -> None:
    heard: list[type] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        try:
            script.end()
        except BaseException:
            try:
                tidy("tidy")
            except BaseException as error:
                heard.append(type(error))
            raise
        return work("long")

    given, _ = run_twice(store, act, kind, plainly)
    assert given == "long" and heard == [perdure.RunInterrupted]
    assert script.called == ["long"]


def test_who_catches_it_and_goes_on_behind_the_handler_is_recorded(store: Store) -> None:
    """Of the function's own code nobody knows what it meets: it caught that itself."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        with suppress(SystemExit):
            script.end()
        return work("long")

    script.ends = [SystemExit("caught")]
    assert store.run(act, "a") == "long"


def test_what_the_caller_handles_is_none_of_the_functions_business(store: Store) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        edit(run)
        run.map(work, ["one", "two"])
        return work("long")

    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert store.run(act, "a") == "long"


async def gathered() -> None:
    await asyncio.gather(awork("one"), awork("two"))


async def grouped() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(awork("one"))


@pytest.mark.parametrize("cleanup", [lambda: awork("tidy"), gathered, grouped])
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_that_clean_up_behind_the_programs_end_record_nothing(
    store: Store, kind: Kind, cleanup: Callable[[], Any]
) -> None:
    """As in a plain function; a task that was made there does not know of what is handled."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            await awork("short")
            script.end()
            return await awork("long")
        finally:
            await cleanup()

    def in_a_loop(store: Store, function: Any) -> Any:
        async def main() -> Any:
            return await AsyncStore(store).run(function, "a")

        return asyncio.run(main())

    given, commits = run_twice(store, act, kind, in_a_loop)
    assert given == "long" and commits == 3


@pytest.mark.parametrize("tasks", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_cleans_up_is_refused_on_replay_too(store: Store, kind: Kind, tasks: int) -> None:
    """A task was ended before its first call, and its `finally` came to one that was recorded: that
    was given to it, and the run went on, until it needed attention, "the code changed"."""

    async def page(name: str) -> str:
        try:
            if name in ("0", "alone"):
                script.end()
            return await awork(name)
        finally:
            await awork(f"tidy {name}")

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        if tasks:
            await asyncio.gather(*(page(str(number)) for number in range(tasks)))
        else:
            await page("alone")
        return await awork("long")

    async def main() -> Any:
        return await asyncio.wait_for(AsyncStore(store).run(act, "a"), 60)

    script.ends = [kind("injected")]
    script.spared = 1
    for _ in range(2):
        with pytest.raises(kind, match="injected"):
            asyncio.run(main())
        script.ends = [kind("injected")]
    script.ends = []
    assert asyncio.run(main()) == "long"


class StopError(BaseException):
    """As test runners, and others that end what goes on, have of their own."""


def in_nested_handler(run: perdure.Run[dict]) -> str:
    try:
        script.end()
        return work("long")
    finally:
        try:
            raise OSError("what tidies up fails")
        except OSError:
            tidy("tidy")


def in_handler_of_a_handler(run: perdure.Run[dict]) -> str:
    try:
        script.end()
        return work("long")
    except BaseException:
        try:
            raise RuntimeError("what tidies up fails")
        except RuntimeError:
            tidy("tidy")
        raise


def in_closed_generator(run: perdure.Run[dict]) -> str:
    def pages() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            tidy("tidy")

    with closing(pages()) as numbers:
        for _ in numbers:
            script.end()
    return work("long")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopError])
@pytest.mark.parametrize("body", [in_nested_handler, in_handler_of_a_handler, in_closed_generator])
def test_what_is_on_its_way_out_is_seen_wherever_the_cleaning_up_is(
    store: Store, body: Any, kind: Any
) -> None:
    """In a handler within the `finally`, in a generator that is closed, and behind others of its
    kind: a tool was called and recorded, and the run, which came to nothing of that, needed
    attention for good."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return str(body(run))

    given, commits = run_twice(store, act, kind, plainly)
    assert given == "long" and commits == 2
    assert script.called.count("tidy") == (1 if body is not in_handler_of_a_handler else 0)


async def apages() -> AsyncGenerator[int, None]:
    try:
        yield 1
    finally:
        await awork("tidy")


async def in_aclosing() -> None:
    async with aclosing(apages()) as numbers:
        async for _ in numbers:
            script.end()


async def in_a_stack() -> None:
    async with AsyncExitStack() as stack:
        numbers = await stack.enter_async_context(aclosing(apages()))
        async for _ in numbers:
            script.end()


class Closing:
    async def __aenter__(self) -> AsyncGenerator[int, None]:
        self.numbers = apages()
        return self.numbers

    async def __aexit__(self, _: Any, error: Any, trace: Any) -> None:
        await self.numbers.aclose()


async def in_a_manager_of_ones_own() -> None:
    async with Closing() as numbers:
        async for _ in numbers:
            script.end()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopError])
@pytest.mark.parametrize("body", [in_aclosing, in_a_stack, in_a_manager_of_ones_own])
def test_what_is_on_its_way_out_is_seen_where_an_asynchronous_generator_is_closed(
    runs: Async, body: Any, kind: Any
) -> None:
    """The same with `async def`, where what closes a generator knows of no other exception."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        await body()
        return await awork("long")

    script.ends = [kind("injected")]
    with pytest.raises(kind, match="injected"):
        runs.run(act)
    assert script.called == []
    assert runs.run(act) == "long"
    assert script.called == ["tidy", "long"]


def test_what_is_made_an_error_of_on_purpose_is_dealt_with(store: Store) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        try:
            try:
                raise SystemExit("usage: …")  # of a parser of options, say
            except SystemExit as left:
                raise ValueError("no such option") from left
        except ValueError:
            return work("refused")

    assert store.run(act, "a") == "refused"


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_cleans_up_ends_the_program_all_the_same(store: Store, kind: Kind) -> None:
    """What it heard there was kept by who gathered it. The caller got an error that said that the
    function had caught the end, which his own `except Exception` could catch."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        async def page() -> None:
            try:
                await asyncio.sleep(0)
                script.end()
            finally:
                await awork("tidy")

        await asyncio.gather(page(), return_exceptions=True)
        return "end"

    async def main() -> Any:
        return await AsyncStore(store).run(act, "a")

    script.ends = [kind("injected")]
    with pytest.raises(kind, match="injected"):
        asyncio.run(main())
    assert asyncio.run(main()) == "end"


def test_stacks_of_an_interrupted_run_come_to_their_end(store: Store) -> None:
    """What interrupts a run was one exception, raised at each call. Raised while it was handled it
    became its own context, and an `ExitStack` in another one followed that without end."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        def close() -> None:
            with ExitStack() as inner:
                inner.callback(work, "files")
                inner.callback(work, "locks")
                inner.callback(work, "long")
                if not script.ends:
                    inner.pop_all()

        with ExitStack() as stack:
            stack.callback(close)
            if script.ends:
                raise ValueError("no")
        return work("end")

    script.ends = [SystemExit("injected")]
    with pytest.raises((SystemExit, perdure.PerdureError), match=r"SystemExit|injected"):
        store.run(act, "a")
    assert store.run(act, "a") == "end"
    assert script.called == ["long", "end"]


@pytest.mark.parametrize("rounds", range(16))
@pytest.mark.parametrize("call", [awork, tidy])
def test_a_task_that_is_cancelled_twice_cleans_up(store: Store, rounds: int, call: Any) -> None:
    """Once more while the first time was being recorded, as nested timeouts do: what the engine
    had of the first counted as something that ends the program, and the run was left with "the
    function went on", of a function that caught nothing."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        ended: list[str] = []

        async def clean() -> None:
            if call is awork:
                await awork("clean")
            else:
                await run.call(tidy, "clean")

        async def page() -> None:
            try:
                await run.call(_endless)
            finally:
                try:
                    await clean()
                finally:
                    ended.append(await awork("ended"))

        task = asyncio.create_task(page())
        await asyncio.sleep(0.001)
        task.cancel()
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return ended

    async def main() -> Any:
        return await asyncio.wait_for(AsyncStore(store).run(act, "a"), 60)

    assert asyncio.run(main()) in (["ended"], [])
    replay(store, act).check()


async def _endless() -> None:
    await asyncio.Event().wait()
