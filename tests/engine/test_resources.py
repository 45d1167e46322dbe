"""Resources: opened at first use, closed behind the function, opened again by their ticket."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

import pytest

import perdure
from perdure.errors import NeedsAttention, OutsideRun, PerdureError, RunFailed, Unstorable
from perdure.testing import kill_at_every_boundary, run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place

told: list[str] = []


class Session:
    def __init__(self, name: str) -> None:
        self.name, self.broken = name, False
        told.append(f"open {name}")

    def ask(self, what: str) -> str:
        return f"{what} by {self.name}"

    def close(self) -> None:
        told.append(f"close {self.name}")


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    told.clear()


@perdure.resource
def session(ticket: perdure.Ticket) -> Iterator[Session]:
    if ticket.value is None:
        ticket.keep({"session": 1})
        told.append("log in")
    made = Session(f"s{ticket.value['session']}")
    yield made
    made.close()


@perdure.step
def ask(what: str) -> str:
    return session.get().ask(what)


@perdure.agent(dict)
def work(run: perdure.Run[dict]) -> list[str]:
    said = [ask("a"), ask("b")]
    run.wait_for("go")
    return [*said, ask("c")]


@perdure.resource
async def session_async(ticket: perdure.Ticket) -> AsyncIterator[Session]:
    if ticket.value is None:
        ticket.keep({"session": 1})
        told.append("log in")
    async with asyncio.TaskGroup():  # which only the task that entered it may leave
        made = Session(f"s{ticket.value['session']}")
        yield made
        made.close()


@perdure.step
async def ask_async(what: str) -> str:
    return (await session_async.get()).ask(what)


@perdure.agent(dict)
async def work_async(run: perdure.AsyncRun[dict]) -> list[str]:
    said = await asyncio.gather(ask_async("a"), ask_async("b"))
    await run.wait_for("go")
    return [*said, await ask_async("c")]


BOTH = pytest.mark.parametrize("function", [work, work_async])
ANSWER = ["a by s1", "b by s1", "c by s1"]


@BOTH
def test_a_run_that_waits_holds_nothing_open(place: Place, function: Any) -> None:
    """A thousand runs waited for people, and each held a browser."""
    store = place.open()
    handle = run_until_waiting(store, function, "a")
    assert told == ["log in", "open s1", "close s1"]
    handle.signal("go")
    run_until_waiting(store, function, "a")
    assert handle.result() == ANSWER
    assert told == ["log in", *["open s1", "close s1"] * 2]


@BOTH
def test_it_is_opened_by_its_ticket_wherever_the_process_dies(function: Any) -> None:
    def check(end: perdure.testing.RunEnding) -> None:
        assert end.result == ANSWER
        assert told.count("log in") <= 2  # it dies between logging in and keeping the ticket
        if not end.killed_at:
            assert told == ["log in", *["open s1", "close s1"] * 2]

    kill_at_every_boundary(
        function, signals={"go": [None]}, before=lambda folder: told.clear(), check=check
    )


def test_what_is_only_replayed_opens_nothing(place: Place) -> None:
    store = place.open()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        said = [ask(str(number)) for number in range(20)]
        run.wait_for("go")
        run.wait_for("once more")
        return said

    handle = run_until_waiting(store, act, "a")
    told.clear()
    handle.signal("go")
    run_until_waiting(store, act, "a")
    handle.signal("once more")
    run_until_waiting(store, act, "a")
    assert len(handle.result()) == 20 and told == []


@pytest.mark.parametrize("way", ["returns", "raises", "cancelled", "drained", "attention"])
def test_it_is_closed_however_the_function_is_left(place: Place, way: str) -> None:
    store = place.open()
    begun, go = threading.Event(), threading.Event()

    @perdure.step
    def hold() -> None:
        session.get()
        begun.set()
        assert go.wait(60)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        hold()
        if way == "raises":
            raise ValueError("no")
        if way == "attention":
            raise NeedsAttention("look")
        ask("a")
        return "done"

    worker = perdure.Worker(store, [act])
    thread = threading.Thread(target=worker.run)
    thread.start()
    handle = store.start(act, "a")
    assert begun.wait(60)
    if way == "cancelled":
        handle.cancel()
    if way == "drained":
        worker.stop()
    go.set()
    if way in ("returns", "raises", "cancelled"):
        with (
            pytest.raises((RunFailed, ValueError))
            if way != "returns"
            else contextmanager(lambda: iter([None]))()
        ):
            handle.result(timeout=60)
    worker.stop()
    thread.join(60)
    assert told == ["log in", "open s1", "close s1"]


def test_a_crash_closes_nothing_and_the_next_process_opens_it_again(
    place: Place, crash: Crashes
) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        said = ask("a")
        run.call(crash, "here")
        return said + ask("b")

    crash.arm("here")
    with pytest.raises(CrashError):
        place.open().run(act, "a")
    assert place.open().run(act, "a") == "a by s1b by s1"
    assert told.count("log in") == 1


class Flaky(Session):
    checks = 0


@pytest.mark.parametrize("trouble", ["raises", "false", "none"])
def test_it_is_checked_after_the_run_has_waited(place: Place, trouble: str) -> None:
    """The server closed the connection while the run slept in its place, and the next step
    failed."""
    store = place.open()

    def check(one: Session) -> Any:
        told.append("check")
        if one.broken and trouble == "raises":
            raise ConnectionError("gone")
        return None if not one.broken else trouble == "none"

    @perdure.resource(check=check)
    def line() -> Session:
        return Session("line")

    @perdure.step
    def use(breaks: bool) -> str:
        line.get().broken = breaks
        return "used"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        use(False)
        use(True)
        run.sleep(0.001)
        use(False)
        use(False)

    store.run(act, "a")
    again = ["close line", "open line"] if trouble != "none" else []
    assert told == ["open line", "check", *again, "close line"]


def test_an_async_check(runs: Async) -> None:
    async def check(one: Session) -> bool:
        told.append("check")
        return not one.broken

    @perdure.resource(check=check)
    async def line() -> Session:
        return Session("line")

    @perdure.step
    async def use(breaks: bool) -> None:
        (await line.get()).broken = breaks

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        await use(True)
        await run.sleep(0.001)
        await use(False)

    runs.run(act)
    assert told == ["open line", "check", "close line", "open line", "close line"]


def test_an_opener_that_fails_fails_the_step_that_asked(place: Place) -> None:
    store = place.open()
    tries: list[int] = []

    @perdure.resource
    def line() -> Session:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no line")
        return Session("line")

    @perdure.step(retry=perdure.Retry(attempts=3, first=0.001))
    def use() -> str:
        return line.get().ask("it")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return use()

    assert store.run(act, "a") == "it by line"
    assert len(tries) == 3 and told == ["open line", "close line"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_cannot_be_closed_is_logged(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    @perdure.resource
    def line() -> Iterator[str]:
        yield "line"
        raise ConnectionError("it hangs")

    @perdure.resource(name="line")
    async def line_async() -> AsyncIterator[str]:
        yield "line"
        raise ConnectionError("it hangs")

    @perdure.step
    def use() -> str:
        return line.get()

    @perdure.step
    async def use_async() -> str:
        return await line_async.get()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return use()

    @perdure.agent(dict, name="act")
    async def act_async(run: perdure.AsyncRun[dict]) -> str:
        return await use_async()

    store = place.open()
    handle = run_until_waiting(store, act if kind == "sync" else act_async, "a")
    assert handle.result() == "line"
    assert (
        "resource " in caplog.text and "closing it failed: ConnectionError: it hangs" in caplog.text
    )


def iter_of(name: str = "it") -> Iterator[Session]:
    made = Session(name)
    yield made
    made.close()


FORMS: dict[str, Any] = {
    "close": lambda: Session("it"),
    "context manager": contextmanager(iter_of),
    "closing": lambda: closing(Session("it")),
    "nothing": lambda: "it",
}


@pytest.mark.parametrize("form", FORMS)
def test_openers_of_each_form(place: Place, form: str) -> None:
    made = perdure.resource(name="it")(FORMS[form])

    @perdure.step
    def use() -> str:
        return getattr(made.get(), "name", made.get())  # type: ignore[no-any-return]

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return use()

    assert place.open().run(act, "a") == "it"
    assert told == ([] if form == "nothing" else ["open it", "close it"])


class AsyncSession(Session):
    async def aclose(self) -> None:
        self.close()


async def made_async() -> AsyncSession:
    return AsyncSession("it")


@asynccontextmanager
async def managed_async() -> AsyncIterator[Session]:
    yield Session("it")
    told.append("close it")


@pytest.mark.parametrize("opener", [made_async, managed_async])
def test_async_openers_of_each_form(runs: Async, opener: Any) -> None:
    made = perdure.resource(opener)

    @perdure.step
    async def use() -> str:
        return (await made.get()).name  # type: ignore[no-any-return]

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[str]:
        return list(await asyncio.gather(use(), use()))

    assert runs.run(act) == ["it", "it"]
    assert told == ["open it", "close it"]


def test_an_async_one_in_the_loop_of_a_plain_function(place: Place) -> None:
    @perdure.step
    async def use() -> str:
        return (await session_async.get()).name

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        return [asyncio.run(use()), asyncio.run(use())]

    assert place.open().run(act, "a") == ["s1", "s1"]
    assert told[:2] == ["log in", "open s1"]


def test_an_async_one_is_refused_where_it_would_not_be_closed(place: Place) -> None:
    made: Any = perdure.resource(name="it")(lambda: managed_async())

    @perdure.step
    def use() -> None:
        made.get()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        use()

    with pytest.raises(TypeError, match="make its opener `async def`"):
        place.open().run(act, "a")


def test_threads_share_one(place: Place) -> None:
    barrier = threading.Barrier(4)

    @perdure.step
    def use(number: int) -> str:
        barrier.wait(60)
        return session.get().name

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[str]:
        return run.map(use, range(4))

    assert place.open().run(act, "a") == ["s1"] * 4
    assert told == ["log in", "open s1", "close s1"]


def test_the_ticket_goes_on_over_turns_and_what_is_kept_as_it_closes(place: Place) -> None:
    @perdure.resource
    def counter(ticket: perdure.Ticket) -> Iterator[int]:
        number = ticket.value or 0
        yield number
        ticket.keep(number + 1)

    @perdure.step
    def use() -> int:
        return counter.get()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], turn: int = 0, seen: list[int] | None = None) -> Any:
        found = [*(seen or []), use()]
        if turn == 1:
            run.wait_for("go")
        return run.again(turn + 1, found) if turn < 4 else found

    store = place.open()
    handle = run_until_waiting(store, act, "a")
    handle.signal("go")
    run_until_waiting(place.open(), act, "a")
    # The step of turn 1 was not made again; its resource was opened once, and closed.
    assert handle.result() == [0, 1, 2, 3, 4]


def test_the_function_itself_is_refused_with_the_right_line(place: Place) -> None:
    """What it did there was not recorded, and each replay opened a browser."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        with pytest.raises(PerdureError, match="the agent function itself") as refused:
            session.get()
        assert "`session.get()` in the body of a step or tool" in refused.value.hint
        with pytest.raises(PerdureError, match="an open edit"), run.edit("it") as draft:
            draft["page"] = session.get()
        return "refused"

    assert place.open().run(act, "a") == "refused"
    assert told == []


@pytest.mark.parametrize("what", ["value", "resource"])
def test_it_is_not_stored(place: Place, what: str) -> None:
    found: list[Any] = []

    @perdure.step
    def use() -> None:
        found.append(session.get())

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        use()
        with run.edit("page") as draft:
            draft["page"] = found[-1] if what == "value" else session

    with pytest.raises(Unstorable, match="page") as refused:
        place.open().run(act, "a")
    assert "`session.get()` in a step or tool" in refused.value.hint
    assert "ticket.keep" in refused.value.hint


def test_behind_the_functions_end_it_is_refused(place: Place) -> None:
    kept: list[Any] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        kept.append(run.resource(session))

    place.open().run(act, "a")
    with pytest.raises(PerdureError, match="behind the end of its run's function"):
        kept[0].get()


def test_a_resource_of_the_run_is_passed_to_tools_by_its_name(place: Place) -> None:
    @perdure.tool(on_crash="fail")
    def use(page: perdure.types.Resource[Session], what: str) -> str:
        return page.get().ask(what)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], user: str) -> list[str]:
        page = run.resource(lambda: Session(user), name="page")
        said = [use(page, "a")]
        run.wait_for("go")
        return [*said, use(page, "b")]

    store = place.open()
    handle = run_until_waiting(store, act, "a", "ada")
    handle.signal("go")
    run_until_waiting(store, act, "a", "ada")
    assert handle.result() == ["a by ada", "b by ada"]
    assert told == ["open ada", "close ada"] * 2


def test_two_of_one_name_are_told_apart(place: Place) -> None:
    one = perdure.resource(name="it")(lambda: Session("one"))
    other = perdure.resource(name="it")(lambda: Session("other"))

    @perdure.step
    def use() -> None:
        one.get()
        other.get()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        use()

    with pytest.raises(PerdureError, match="two resources of this run have the name 'it'"):
        place.open().run(act, "a")
    assert told == ["open one", "close one"]


def test_outside_of_runs_a_block_opens_it() -> None:
    with pytest.raises(OutsideRun, match=r"with session\.open"):
        ask("a")
    with session.open() as page:
        assert ask("a") == page.ask("a") == "a by s1"
    with pytest.raises(OutsideRun):
        ask("a")
    assert told == ["log in", "open s1", "close s1"]

    async def main() -> str:
        async with session_async.open():
            return await ask_async("a")

    assert asyncio.run(main()) == "a by s1"


def test_an_attempt_that_was_left_alone_opens_nothing(place: Place) -> None:
    """A step took too long, and its run ended. Then it opened a browser that nobody closed."""
    go, over = threading.Event(), threading.Event()
    found: list[BaseException] = []

    @perdure.step(timeout=0.01)
    def late() -> None:
        go.wait(60)
        try:
            session.get()
        except PerdureError as error:
            found.append(error)
        over.set()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        late()

    with pytest.raises(perdure.TimedOut):
        place.open().run(act, "a")
    go.set()
    assert over.wait(60)
    assert "behind the end" in str(found[0]) and told == []


def test_a_connection_of_one_thread_serves_plain_runs(place: Place, tmp_path: Any) -> None:
    @perdure.resource(check=lambda db: db.execute("SELECT 1"))
    def ledger() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "ledger.sqlite")

    @perdure.step
    def count() -> int:
        return int(ledger.get().execute("SELECT 40 + 2").fetchone()[0])

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        return count()

    assert place.open().run(act, "a") == 42


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: perdure.resource(7), "an opener"),  # type: ignore[call-overload]
        (lambda: perdure.resource(check=7)(Session), "check="),  # type: ignore[call-overload]
        (lambda: perdure.resource(name="")(Session), "name"),
        (lambda: perdure.resource(lambda a, b: None), "needs a, b"),
        (lambda: perdure.resource(name=7), "name"),  # type: ignore[call-overload]
    ],
)
def test_wrong_words_are_refused_at_once(wrong: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        wrong()


def test_an_opening_whose_asker_was_cancelled_is_the_next_ones() -> None:
    """The step that asked for it had a limit of time. The opening went on, and the next call began
    another one beside it, with the same ticket: of two sessions at the service, one was lost."""
    events: list[str] = []
    ready = asyncio.Event()

    @perdure.resource
    async def browser(ticket: perdure.Ticket) -> Any:
        if ticket.value is None:
            await ready.wait()
            events.append("new session")
            ticket.keep("session")
        events.append(f"open {ticket.value}")
        yield ticket.value
        events.append("closed")

    @perdure.step
    async def read() -> str:
        return str(await browser.get())

    @perdure.agent(dict)
    async def research(run: perdure.AsyncRun[dict]) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await read()
        ready.set()
        return await read()

    @perdure.agent(dict)
    async def gives_up(run: perdure.AsyncRun[dict]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await read()
        ready.set()

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            assert await store.run(research, "a") == "session"
            assert events == ["new session", "open session", "closed"]
            ready.clear()
            await store.run(gives_up, "b")
            assert events[3:] == ["new session", "open session", "closed"]

    asyncio.run(main())
