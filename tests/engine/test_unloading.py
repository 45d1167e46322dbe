"""When all of a run waits, and when it only seems to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.engine.execution import handover, run_tasks
from perdure.engine.execution.activity import Going
from perdure.engine.execution.driven_run import DrivenRun
from perdure.engine.execution.run_inbox import RunInbox
from perdure.engine.execution.wakeups import Watch
from perdure.engine.journal.effects import Await, Came
from perdure.engine.journal.scopes import Scope
from perdure.store import Store
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.waits import BOUND_S, go, until
from tests.engine.working import working

Run = perdure.AsyncRun[Any]
First = Callable[[], Coroutine[Any, Any, str]]
"""Something that fails, beside which a run waits for what nobody sends."""


async def _group(run: Run, first: First) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(first())
            group.create_task(run.wait_for("never"))
    except* ValueError:
        pass
    return "went on"


async def _gather(run: Run, first: First) -> str:
    with suppress(ValueError):
        await asyncio.gather(first(), run.wait_for("never"))
    return "went on"


async def _returns(run: Run, first: First) -> str:
    """The function itself has ended, when the wait begins."""
    try:
        await asyncio.gather(first(), run.wait_for("never"))
    except ValueError:
        return "went on"
    return "unreachable"


async def _chain(run: Run, first: First) -> str:
    """It takes many rounds of the loop until the function hears of it."""

    async def deep(number: int) -> str:
        return await (asyncio.create_task(deep(number - 1)) if number else first())

    chain = asyncio.create_task(deep(20))
    wait = asyncio.create_task(run.wait_for("never"))
    try:
        await chain
    except ValueError:
        wait.cancel()
    return "went on"


SHAPES = [_group, _gather, _returns, _chain]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_due_comes_before_a_run_is_unloaded(
    runs: Async,
    crash: Crashes,
    fetch: Any,
    shape: Any,
    shown: bool,
    recorded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task of a gather failed, and another began to wait for a signal, in the same round of
    the loop. All that had not ended waited, so the run was unloaded, before the function heard of
    the failure: it waited for a signal that nobody was to send. Whoever resumed it did the same.
    Live, a step takes time and hid that; after a crash it answers at once."""
    if not shown:  # as on loops that do not show what they are to call next
        monkeypatch.setattr(run_tasks, "_ready_in", lambda _: None)
        monkeypatch.setattr(handover, "ready_of", lambda _: None)

    async def first() -> str:
        if recorded:
            await fetch("first")
        crash("here")
        raise ValueError("no such order")

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        said = await shape(run, first)
        return f"{said} after {await fetch('more')}"

    if recorded:
        crash.arm("here")
        with pytest.raises((CrashError, BaseExceptionGroup)):
            runs.run(act)
    assert runs.run(act) == "went on after MORE"


async def _map(run: Run) -> Any:
    return await run.map(lambda name: run.wait_for(name), ["one", "two", "three"])


async def _narrow_map(run: Run) -> Any:
    async def one(name: str) -> Any:
        return await run.wait_for(name)

    return await run.map(one, ["one", "two", "three"], limit=2)


async def _wait(run: Run) -> Any:
    waits = [asyncio.create_task(run.wait_for(name)) for name in ("one", "two", "three")]
    await asyncio.wait(waits)
    return [wait.result() for wait in waits]


async def _nested(run: Run) -> Any:
    both = asyncio.gather(run.wait_for("one"), asyncio.gather(run.wait_for("two")))
    (one, (two,)), three = await asyncio.gather(both, asyncio.shield(run.wait_for("three")))
    return [one, two, three]


async def _edits(run: Run) -> Any:
    """One task has the edit open, and waits for a second; a third waits for the edit."""
    signal = asyncio.create_task(run.wait_for("one"))

    async def edit(what: str) -> Any:
        async with run.edit(what) as draft:
            draft[what] = await signal
        return what

    two, three, one = await asyncio.gather(edit("two"), edit("three"), signal)
    return [one, two, three]


@pytest.mark.parametrize("shape", [_map, _narrow_map, _wait, _nested, _edits])
def test_tasks_that_wait_for_waiting_tasks_let_the_run_be_unloaded(
    place: Place, shape: Any
) -> None:
    """`run.map` of questions stayed in memory for as long as nobody answered, and had a place in
    its worker's limit: as many of them as the limit, and the worker did nothing else any more. So
    did `asyncio.wait`, a gather of gathers, what was shielded, and who waited for an edit."""
    other = place.open()
    calls: list[int] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        calls.append(1)
        return await shape(run)

    async def main() -> Any:
        async with perdure.open_async(place.url, durability="os") as store:
            task = asyncio.create_task(store.run(act, "a"))
            for name in ("one",) if shape is _edits else ("three", "two", "one"):
                await asyncio.to_thread(until, lambda: _is_waiting(other), "the run's unloading")
                other.handle("a/act/main").signal(name, name)
            return await asyncio.wait_for(task, 60)

    assert asyncio.run(main()) == ["one", "two", "three"]
    assert len(calls) > 1  # it was not in memory while it waited


def _is_waiting(store: perdure.Store) -> bool:
    return any(info.status == "waiting" for info in store.runs(agent="a"))


def _awaits_each(run: perdure.Run[Any]) -> Any:
    with run.executor() as threads:
        futures = [threads.submit(run.wait_for, name) for name in ("one", "two", "three")]
        return [future.result() for future in futures]


def _leaves_the_block(run: perdure.Run[Any]) -> Any:
    with run.executor(2) as threads:
        futures = [threads.submit(run.wait_for, name) for name in ("one", "two", "three")]
    return [future.result() for future in futures]


@pytest.mark.parametrize("shape", [_awaits_each, _leaves_the_block])
def test_threads_that_wait_for_waiting_threads_let_the_run_be_unloaded(
    place: Place, shape: Any
) -> None:
    """A run whose calls on its own threads all waited for people stayed in memory for as long as
    nobody answered, as only `run.map` was known to wait for them."""
    store, calls = place.open(), []

    @perdure.agent(dict)
    def act(run: perdure.Run[Any]) -> Any:
        calls.append(1)
        return shape(run)

    with working(store, act):
        handle = store.start(act, "a")
        for name in ("three", "two", "one"):
            until(lambda: handle.status == "waiting", "the run's unloading")
            handle.signal(name, name)
        assert handle.result(timeout=30) == ["one", "two", "three"]
    assert len(calls) > 1


def test_a_call_that_a_free_thread_is_about_to_begin_keeps_the_run() -> None:
    """A thread begins some time after a call was given to it. Where the others waited by then, the
    run was unloaded before that call was made."""
    going = Going(lambda: None)
    with going.crew(2) as threads:
        going.submitted(threads)
        with going.joining(lambda: threads.submitted > 0):
            assert not going.threads_wait  # it is about to begin
            going.thread_began(threads, scope := Scope("one#1/", Scope()))
            assert not going.threads_wait
            with going.waiting("signal 'one'", 0, own=True):
                assert going.threads_wait
                going.submitted(threads)
                assert not going.threads_wait  # a second thread is free
                going.thread_began(threads, Scope("two#1/", Scope()))
                with going.waiting("signal 'two'", 0, own=True):
                    going.submitted(threads)
                    assert going.threads_wait  # and none is for the third
            going.thread_ended(threads, scope, begun=True)
            assert not going.threads_wait


def test_whoever_is_the_last_to_wait_for_others_lets_those_look() -> None:
    """A wait looked whether all of the run waits where it began, and then twice a second. Where the
    function came to join its threads after the last of them had looked, the run was kept in the
    process for half a second more, each time."""
    woken: list[int] = []
    going = Going(lambda: woken.append(1))
    with going.crew(2) as threads:
        for scope in (Scope("one#1/", Scope()), Scope("two#1/", Scope())):
            going.submitted(threads)
            going.thread_began(threads, scope)
        with going.waiting("signal 'one'", 0, own=True):
            with going.joining(lambda: threads.submitted > 0):
                assert not woken  # the second one goes on
                going.thread_ended(threads, scope, begun=True)
                assert len(woken) == 1
            with going.joining(lambda: True):
                assert len(woken) == 2


@perdure.agent(dict)
def listening(run: perdure.Run[dict[str, Any]]) -> list[Any]:
    """Waits for two signals on threads. `other` begins when the test lets it."""

    def heard(name: str) -> Any:
        if name == "other" and not meeting.is_over:
            meeting.begins.wait(BOUND_S)
            if meeting.comes_first:
                meeting.send()
        return run.wait_for(name)

    meeting.going = run._execution.going
    with run.executor() as threads:
        waits = [threads.submit(heard, name) for name in ("one", "other")]
        with run.edit("heard one") as draft:
            draft["one"] = waits[0].result()
        return [wait.result() for wait in waits]


class Meeting:
    """The wait for `one` is held until the other one has looked, and has decided that all of the
    run waits, or not.

    Args:
        held: where it is: before its first look, before it hears that the message is there, or
            before it takes that.
    """

    def __init__(self, store: Store, held: str, patch: pytest.MonkeyPatch) -> None:
        self._store, self._held = store, held
        self.begins, self._decided = threading.Event(), threading.Event()
        self._home = 0
        self.going: Going
        self.comes_first = held != "takes"
        self.is_over = False
        came, waits, interrupt = RunInbox.came, Watch.wait, DrivenRun.interrupt

        def looks(mail: RunInbox, effect: Await) -> Came | int:
            first = self._home == 0
            if "one" not in effect.words:
                return came(mail, effect)
            self._home = threading.get_ident()
            if held == ("begins" if first else "takes"):
                self._hold()
            return came(mail, effect)

        def rests(watch: Watch, timeout_s: float) -> None:
            if threading.get_ident() == self._home and held == "hears":
                self._hold()
            elif threading.get_ident() == self._home and held == "takes":
                timeout_s = 0.0  # and looks again
            elif self.comes_first and self.going.threads_wait:
                self._decided.set()
            waits(watch, timeout_s)

        def leaves(execution: Any, reason: Any) -> Any:
            error = interrupt(execution, reason)
            self._decided.set()
            return error

        patch.setattr(RunInbox, "came", looks)
        patch.setattr(Watch, "wait", rests)
        patch.setattr(DrivenRun, "interrupt", leaves)

    def send(self) -> None:
        self._store.handle("a/listening/main").signal("one", 1)

    def _hold(self) -> None:
        if self.is_over:
            return
        self.begins.set()
        assert self._decided.wait(BOUND_S)
        if not self.comes_first:
            self.send()
        self.is_over = True


meeting: Meeting


@pytest.mark.parametrize("held", ["begins", "hears", "takes"])
def test_no_message_is_slept_through_that_comes_as_all_of_a_run_seems_to_wait(
    store: Store, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of two waits found nothing for itself, and put the run to sleep. The other one had
    not heard yet of the message for it, and as that was read, it woke nobody; or it was just taking
    it, and the run slept with that taken. It waited for ever for a signal that was acknowledged."""
    global meeting
    handle = store.start(listening, "a")
    with monkeypatch.context() as patch:
        meeting = Meeting(store, held, patch)
        assert go(store, listening) is None
    assert meeting.is_over
    info, inbox = handle.info, store._context.backend.inbox(handle.id)
    assert info.status == "waiting"
    wakes = [one.name for one in inbox if one.no > info.seen]
    assert store.agent("a").state == {"one": 1} or wakes == ["one"]
    handle.signal("other", 2)
    assert go(store, listening) == [1, 2]
    assert store.agent("a").state == {"one": 1}
