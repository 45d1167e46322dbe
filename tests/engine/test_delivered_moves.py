"""Undo, redo and rollback from outside of an agent whose run executes: done by the run, at its next
boundary, while the caller waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import perdure
from perdure import Conflict, NotFound, SchemaError
from perdure.engine.control.delivery import Delivery
from perdure.engine.execution.run_inbox import RunInbox
from perdure.model import MICROS_MAX, Message
from perdure.state.runs.unused_signals import MOVE
from perdure.testing import replay, run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.working import wait_until


@perdure.step
def look(what: str, seen: Any = None) -> Any:
    return seen


@perdure.tool(on_crash="retry")
def touch(what: str) -> str:
    return what


class Running:
    """A run on a thread of its own."""

    def __init__(self, run: Any) -> None:
        self.result: list[Any] = []

        def act() -> None:
            try:
                self.result.append(run())
            except BaseException as error:
                self.result.append(error)

        self.thread = threading.Thread(target=act)
        self.thread.start()

    def end(self) -> Any:
        self.thread.join(60)
        assert self.result, "it does not end"
        return self.result[0]


@pytest.fixture
def begun() -> threading.Event:
    return threading.Event()


def going_on(begun: threading.Event, crash: Crashes) -> Any:
    """It makes steps until its first change is gone, and then changes something else."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one") as draft:
            draft["a"] = 1
        touch("the world")
        seen = []
        while run.state.get("a"):
            begun.set()
            seen.append(look("again", len(run.state)))
        with run.edit("two") as draft:
            draft["b"] = sorted(draft)
        crash("after")
        return dict(run.state), len(seen)

    return act


@pytest.mark.parametrize("way", ["undo", "rollback"])
def test_a_run_that_executes_is_undone_at_its_next_boundary(
    place: Place, crash: Crashes, begun: threading.Event, way: str
) -> None:
    """A person saw an agent go astray, and wanted back what it had noted: that was a Conflict until
    the run ended, hours later, and had built on it."""
    store = place.open()
    act = going_on(begun, crash)
    agent = place.open().agent("a")
    agent.checkpoint("empty")
    crash.arm("after")
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)
    move = agent.undo() if way == "undo" else agent.rollback("empty")
    assert move.commit.cause.kind == way
    assert move.commit.cause.run == "a/act/main"
    assert [call["place"] for call in move.tool_calls] == ([] if way == "undo" else ["touch#1"])
    assert "a" not in agent.state
    assert isinstance(run.end(), CrashError)
    state, steps = store.run(act, "a")
    assert state == {"b": []} == agent.refresh()
    assert steps >= 1
    replay(store, act).check()
    assert [c.cause.kind for c in agent.log()].count(way) == 1
    agent.verify()


def test_it_is_done_once_wherever_the_branch_is_then(
    place: Place, crash: Crashes, begun: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run did what was asked, and ended; somebody else rolled back before the first one looked.
    Its commit was not on the branch's line any more, so it was taken for not done, and done once
    more: one undo took back two changes."""
    store = place.open()
    agent, somebody = place.open().agent("a"), place.open().agent("a")
    with somebody.edit("kept") as draft:
        draft["kept"] = True
    somebody.checkpoint("point")
    act = going_on(begun, crash)
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)
    look, gone = Delivery.look, list[str]()

    def late(delivery: Delivery) -> Any:
        if not gone:
            run.end()
            gone.append(somebody.rollback("point").commit.cause.kind)
        return look(delivery)

    monkeypatch.setattr(Delivery, "look", late)
    assert agent.undo().commit.cause.run == "a/act/main"
    assert agent.refresh() == {"kept": True}


def test_an_async_run_is_undone_too(runs: Async, crash: Crashes, begun: threading.Event) -> None:
    seen: list[Any] = []

    @perdure.step
    async def pause(what: int) -> int:
        await asyncio.sleep(0.001)
        return what

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async with run.edit("one") as draft:
            draft["a"] = 1
        mine: list[int] = []

        async def watch(number: int) -> None:
            while run.state.get("a"):
                begun.set()
                mine.append(len(run.state) + await pause(number))

        await asyncio.gather(watch(1), watch(2))
        seen.append(mine)
        crash("after")
        return dict(run.state)

    crash.arm("after")
    run = Running(lambda: runs.crash(act))
    assert begun.wait(60)

    async def undo() -> Any:
        async with perdure.open_async(runs._place.url, durability="os") as store:
            agent = await store.agent("a")
            move = await agent.undo()
            return move.commit.cause.kind, dict(agent.state)

    assert asyncio.run(undo()) == ("undo", {})
    assert run.end() is None
    assert runs.run(act) == {}
    assert seen[0] == seen[1]
    runs.store.agent("a").verify()


def test_a_refusal_comes_back_to_who_asked(
    place: Place, crash: Crashes, begun: threading.Event
) -> None:
    store = place.open()
    over = threading.Event()

    @perdure.agent(perdure.Schema(dict, id="dict", invariants=[lambda after: after != {"b": 1}]))
    def act(run: perdure.Run[dict]) -> Any:
        while not over.is_set():
            begun.set()
            look("again")
        return dict(run.state)

    agent = store.agent("a")
    with agent.edit("one") as draft:
        draft["b"] = 1
        draft["a"] = 1
    with agent.edit("two") as draft:
        draft["c"] = 1
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)
    try:
        with pytest.raises(NotFound, match="nothing to redo"):
            agent.redo()
        with pytest.raises(NotFound):
            agent.rollback("no such name")
        assert agent.undo().commit.cause.refers == (3,)
        with pytest.raises((Conflict, SchemaError, NotFound)):
            for _ in range(5):
                agent.undo()
    finally:
        over.set()
    assert "c" not in run.end()
    agent.verify()


def test_what_is_too_late_is_not_done_later(place: Place, begun: threading.Event) -> None:
    """The caller gave up; and an hour later, behind his back, it was done."""
    store = place.open()
    may_end = threading.Event()

    @perdure.tool(on_crash="retry")
    def hold() -> None:
        begun.set()
        assert may_end.wait(60)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one") as draft:
            draft["a"] = 1
        hold()
        for number in range(3):
            look(f"{number}")
        return dict(run.state)

    agent = store.agent("a")
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)
    with pytest.raises(perdure.TimedOut, match=r"hold#1"):
        agent.undo(timeout=0.01)
    may_end.set()
    assert run.end() == {"a": 1}
    assert agent.refresh() == {"a": 1}
    replay(store, act).check()


def test_a_run_that_ends_without_it_leaves_it_to_who_asked(
    place: Place, begun: threading.Event
) -> None:
    store = place.open()
    backend = store.runner.context.backend

    @perdure.tool(on_crash="retry")
    def hold() -> None:
        begun.set()
        wait_until(lambda: backend.inbox("a/act/main", name="@move"))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one") as draft:
            draft["a"] = 1
        hold()
        return dict(run.state)

    agent = store.agent("a")
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)
    move = agent.undo()
    assert run.end() == {"a": 1}
    assert move.commit.cause.kind == "undo"
    assert agent.state == {}
    agent.verify()


def test_it_waits_for_the_block_of_an_edit(place: Place, begun: threading.Event) -> None:
    store, undone = place.open(), threading.Event()
    backend = store.runner.context.backend

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one") as draft:
            draft["a"] = 1

        def writes(_: int) -> None:
            with run.edit("two") as draft:
                draft["b"] = 1
                begun.set()
                wait_until(lambda: backend.inbox("a/act/main", name="@move"))

        def steps(_: int) -> None:
            while not undone.is_set():
                look("beside")

        with run.executor(2) as threads:
            futures = [threads.submit(writes, 0), threads.submit(steps, 0)]
        for future in futures:
            future.result()
        return dict(run.state)

    agent = store.agent("a")
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)
    move = agent.undo()
    undone.set()
    assert agent.commit(move.commit.cause.refers[0]).cause.what == "two"
    assert run.end() == {"a": 1}
    agent.verify()


def test_adoption_is_refused_while_it_executes(
    store: Any, crash: Crashes, begun: threading.Event
) -> None:
    agent = store.agent("a")
    with agent.edit("before") as draft:
        draft["x"] = 1
    agent.fork("side")
    run = Running(lambda: store.run(going_on(begun, crash), "a"))
    assert begun.wait(60)
    with pytest.raises(Conflict, match="cancel_run=True"):
        agent.adopt("side")
    agent.undo()
    run.end()


def test_a_run_does_not_ask_itself(store: Any) -> None:
    """A tool undid its own agent by a handle: it would have waited for its run, which waited for
    it; and each replay would have undone once more."""

    @perdure.tool(on_crash="retry")
    def undoes() -> str:
        agent = store.agent("a")
        for move in (
            agent.undo,
            lambda: agent.rollback(1),
            lambda: agent.rollback(1, cancel_run=True),
            lambda: agent.checkpoint("here"),
        ):
            with pytest.raises(Conflict):
                move()
        return "refused"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        with run.edit("one") as draft:
            draft["a"] = 1
        with pytest.raises(Conflict):
            store.agent("a").undo()
        return undoes()

    assert store.run(act, "a") == "refused"
    assert store.agent("a").state == {"a": 1}


@pytest.mark.parametrize("read", ["came", "look"])
@pytest.mark.parametrize("face", ["sync", "async"])
def test_what_is_asked_as_the_run_goes_to_wait_is_done_before(
    place: Place, monkeypatch: pytest.MonkeyPatch, read: str, face: str
) -> None:
    """A user pressed "undo" at the moment the answer was there. The request came in behind the
    run's last boundary, and before it was unloaded to wait for the next message: it had been read,
    so that nobody resumed the run for it, and was not done. Half a minute later the user was told
    that the run had come to no boundary."""

    @perdure.step(retry=perdure.Retry(first=3600, longest=3600))
    def fails() -> None:
        raise OSError("later")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("answer") as draft:
            draft["a"] = 1
        fails() if read == "look" else run.wait_for("message")

    @perdure.agent(dict, name="act")
    async def aact(run: perdure.AsyncRun[dict]) -> Any:
        async with run.edit("answer") as draft:
            draft["a"] = 1
        await (run.call(fails) if read == "look" else run.wait_for("message"))

    store = place.open()
    honest = getattr(RunInbox, read)
    asked: list[str] = []

    def asks(self: RunInbox, *args: Any) -> Any:
        if not asked:
            asked.append(self._run)
            value = {"kind": "undo", "to": 0, "what": "", "until": MICROS_MAX}
            message = Message(self._run, "a", "signal", MOVE, "asked", value)
            store._context.send(message)
        return honest(self, *args)

    monkeypatch.setattr(RunInbox, read, asks)
    handle = run_until_waiting(store, act if face == "sync" else aact, "a")
    assert asked == [handle.id]
    assert (handle.status, store.agent("a").state) == ("waiting", {})
    assert not store._context.backend.inbox(handle.id)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_an_older_program_hears_that_it_is_done(
    place: Place, begun: threading.Event, face: str
) -> None:
    """An operator's program had an older major version of the schema than the run. The run rolled
    back as it was asked to; then the call raised SchemaError, over the state that it read behind
    that, and was made again."""
    newer = perdure.Schema(dict, id="task", version=2, migrations={1: dict})
    older = perdure.Schema(dict, id="task", version=1)

    @perdure.agent(newer)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one") as draft:
            draft["a"] = 1
        while run.state.get("a"):
            begun.set()
            look("again")
        return dict(run.state)

    store, other = place.open(), place.open()
    agent = store.agent("a", newer, initial={"kept": True})
    agent.checkpoint("point")
    run = Running(lambda: store.run(act, "a"))
    assert begun.wait(60)

    def goes_back() -> str:
        old = other.agent("a", older)
        moved = old.rollback("point")
        with pytest.raises(SchemaError):
            _ = old.state
        return moved.commit.cause.kind

    async def goes_back_too() -> str:
        async with perdure.open_async(place.url, durability="os") as there:
            old = await there.agent("a", older)
            moved = await old.rollback("point")
            with pytest.raises(SchemaError):
                _ = old.state
            return moved.commit.cause.kind

    assert (goes_back() if face == "sync" else asyncio.run(goes_back_too())) == "rollback"
    assert run.end() == agent.refresh() == {"kept": True}
    assert [commit.cause.kind for commit in agent.log()].count("rollback") == 1


def test_in_an_open_edit_nobody_is_asked(
    place: Place, begun: threading.Event, crash: Crashes
) -> None:
    """An undo in the block of an edit was refused; and the run, which executed, was asked for it
    because of that, and did it."""
    store, other = place.open(), place.open()
    agent = store.agent("a", initial={"kept": True})
    agent.checkpoint("point")
    run = Running(lambda: store.run(going_on(begun, crash), "a"))
    assert begun.wait(60)
    asks = other.agent("a")
    with asks.edit("nothing"):
        for move in (asks.undo, asks.redo, lambda: asks.rollback("point")):
            with pytest.raises(Conflict, match="not inside an open edit"):
                move()
    agent.rollback("point")
    assert run.end()[0] == {"kept": True, "b": ["kept"]}
    made = [commit.cause.kind for commit in agent.log()]
    assert (made.count("rollback"), made.count("undo")) == (1, 0)
