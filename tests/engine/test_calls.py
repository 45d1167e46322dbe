"""Calls of steps and tools as people write them: any callable, any arguments, any error."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.engine.journal.failures import error_record, rebuild_error
from perdure.errors import CallFailed, Unstorable
from perdure.store import Store
from tests.engine.conftest import Async, CrashError, Crashes, Place


class Service:
    """Whose methods are steps and tools."""

    __perdure_key__ = "service"

    def __init__(self) -> None:
        self.calls: list[int] = []

    @perdure.step
    def look(self, number: int) -> int:
        self.calls.append(number)
        return number + 1

    @perdure.tool(on_crash="retry")
    def pay(self, number: int) -> int:
        self.calls.append(number)
        return number + 2

    @perdure.step
    async def fetch(self, number: int) -> int:
        self.calls.append(number)
        return number + 3

    @classmethod
    @perdure.step
    def kind(cls, number: int) -> str:
        return f"{cls.__name__} {number}"

    def plain(self, number: int) -> int:
        self.calls.append(number)
        return number + 4


def test_a_method_is_called_by_run_call_as_it_is_by_itself(store: Store, crash: Crashes) -> None:
    """`run.call(service.look, 1)` raised a TypeError: the object got lost."""
    service = Service()

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[Any]:
        found: list[Any] = [run.call(service.look, 1), service.look(1)]
        found += [run.call(service.pay, 1)]
        found += [run.call(service.kind, 5), run.call(service.plain, 1)]
        found += run.map(service.look, [1, 2])
        crash("end")
        return found

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert store.run(f, "a") == [2, 2, 3, "Service 5", 5, 2, 3]
    assert sorted(service.calls) == [1, 1, 1, 1, 1, 2], "once each"
    assert [effect.preview for effect in store.handle("a/f/main").effects()] == [
        "self='service', number=1"
    ]


def test_a_method_is_called_from_async_code_too(runs: Async, crash: Crashes) -> None:
    service = Service()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[Any]:
        found: list[Any] = [await run.call(service.look, 1), await run.call(service.fetch, 1)]
        found += [await run.call(service.pay, 1)]
        found.append(await run.call(service.kind, 5))
        found += [await service.fetch(1), await run.call(service.plain, 1)]
        crash("end")
        return found

    crash.arm("end")
    runs.crash(act)
    assert runs.run(act) == [2, 4, 3, "Service 5", 4, 5] and len(service.calls) == 5


# -- errors that fail themselves -------------------------------------------------------------------


class Hides(Exception):
    """Says nothing of itself."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Leaves(Exception):
    def __str__(self) -> str:
        raise SystemExit("in the middle of its words")


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__"):
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Meta):
    pass


BROKEN = [Hides, Leaves, Nameless]


@pytest.mark.parametrize("kind", BROKEN, ids=["hides", "leaves", "nameless"])
def test_any_error_has_a_record(kind: Any) -> None:
    record = error_record(kind("x"))
    assert type(rebuild_error(record, "t")) is (Leaves if kind is Leaves else CallFailed)


@pytest.mark.parametrize("kind", BROKEN, ids=["hides", "leaves", "nameless"])
@pytest.mark.parametrize("retry", [1, 2])
def test_a_tool_that_raises_anything_is_not_left_in_doubt(
    store: Store, crash: Crashes, kind: Any, retry: int
) -> None:
    """What the error's own code raised left the call without an outcome, and was caught: the run
    went on, and ended, with the tool in doubt."""

    found: list[Any] = []

    @perdure.tool(retry=perdure.Retry(attempts=retry, first=0.0, on=(OSError, kind)))
    def send() -> None:
        raise kind("x")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            send()
        except Exception as error:
            found.append(type(error))
            crash("caught")
            return "caught"
        return "no error"

    crash.arm("caught")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert store.run(f, "a") == "caught"
    assert found == [Leaves if kind is Leaves else CallFailed] * 2, "the same on replay"
    effects = store.handle("a/f/main").effects()
    assert [(effect.state, effect.attempts) for effect in effects] == [("failed", retry)]


def test_an_async_tool_that_raises_anything_is_not_left_in_doubt(runs: Async) -> None:
    @perdure.tool
    async def send() -> None:
        raise Hides("x")

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            await send()
        except CallFailed:
            return "failed"
        return "no error"

    assert runs.run(act) == "failed"
    assert [effect.state for effect in runs.store.handle("a/act/main").effects()] == ["failed"]


@pytest.mark.parametrize("kind", [perdure.step, perdure.tool])
def test_an_empty_iterator_is_an_error_like_any_other(
    store: Store, crash: Crashes, kind: Any
) -> None:
    """A StopIteration left the call as a RuntimeError: it cannot leave a generator, and Perdure's
    own logic is one."""

    @kind(name="first")
    def first(crashes: bool) -> Any:
        return next(iter([]))

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        found = []
        for _ in range(2):
            try:
                first(crashes=False)
            except Exception as error:
                found.append(type(error).__name__)
        found += run.map(lambda _: caught(), [1])
        crash("end")
        return found

    def caught() -> str:
        try:
            first(crashes=True)
        except StopIteration:
            return "in a task"
        return "none"

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert store.run(f, "a") == ["StopIteration", "StopIteration", "in a task"]


# -- arguments and results -------------------------------------------------------------------------


def test_another_request_has_another_key(place: Place, crash: Crashes) -> None:
    """A tool's idempotency key was made from its place alone. Where what it had recorded of the
    call was lost, or left, the receiver took a request with other arguments for the same one."""
    keys: list[str] = []

    @perdure.tool(on_crash="retry")
    def send(what: str) -> None:
        keys.append(perdure.idempotency_key())
        crash("sending")

    def f_of(what: str) -> Any:
        @perdure.agent(dict, name="f")
        def f(run: perdure.Run[dict]) -> None:
            for word in [what, "c"]:
                send(word)

        return f

    store = place.open()
    crash.arm("sending")
    with pytest.raises(CrashError):
        store.run(f_of("a"), "t")
    store.run(f_of("a"), "t")
    assert keys[0] == keys[1], "the same request, made again"
    assert len(set(keys)) == 2
    handle = store.handle("t/f/main")
    assert [effect.key for effect in handle.effects()] == keys[1:]
    handle.fork("send#1", branch="other", effects="live")
    store.options(key="main@other").run(f_of("b"), "t")
    assert len(set(keys)) == 4


class Found(BaseModel):
    hits: list[Any]


def test_a_result_that_cannot_be_stored_is_named_by_the_call(store: Store) -> None:
    """Of a function with a declared result it was said to be in the state."""

    def typed() -> Found:
        return Found(hits=[1, object()])

    def untyped() -> Any:
        return {"hits": [1, object()]}

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        found = []
        for function in (typed, untyped):
            try:
                run.call(function)
            except Unstorable as error:
                found.append(error.target)
        return found

    assert store.run(f, "a") == ["typed().hits[1]", "untyped().hits[1]"]


def test_a_limit_that_lets_nothing_through_is_refused(store: Store, runs: Async) -> None:
    """`await run.map(…, limit=0)` waited for ever."""

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        run.map(abs, [1], limit=0)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        await run.map(abs, [1], limit=0)

    with pytest.raises(ValueError, match="limit=0: must be 1 at least"):
        store.run(f, "b")
    with pytest.raises(ValueError, match="limit=0: must be 1 at least"):
        runs.run(act)
