"""What a function gets of its arguments, and of waits: what is stored, the first time, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.testing import run_until_waiting
from tests.engine.waits import until


class Item(BaseModel):
    name: str = "book"


class Color(Enum):
    RED = 1


GIVEN: dict[str, tuple[Any, Any]] = {
    "an int for a float": (float, 3),
    "a tuple for a list": (list[int], (1, 2)),
    "a dict for a model": (Item, {"name": "pen"}),
    "a value for a member": (Color, 1),
    "a list for a set": (set[int], [1, 2]),
    "what fits": (Item, Item(name="pen")),
}


@pytest.mark.parametrize("name", GIVEN)
def test_i8_who_takes_a_run_over_gives_its_function_the_same_arguments(name: str) -> None:
    """`store.run` gave its caller's own arguments to the function, and a worker that took the run
    over gave those that were stored: the function passed another value on, and the run stopped."""
    kind, given = GIVEN[name]
    seen: list[Any] = []

    @perdure.step
    def note(value: Any) -> str:
        return repr(value)

    def taking(run: perdure.Run[dict[str, Any]], value: Any) -> str:
        seen.append((type(value), value))
        said = note(value)
        run.wait_for("go")
        return said

    taking.__annotations__["value"] = kind
    function = perdure.agent(dict)(taking)
    with perdure.open("memory://") as store:
        run = run_until_waiting(store, function, "a", given)
        run.signal("go", None)
        worker = perdure.Worker(store, [function])
        seen_by_caller = list(seen)
        thread = _working(worker)
        try:
            assert run.result(timeout=20)
        finally:
            worker.stop()
            thread.join(20)
    assert seen_by_caller == seen[-1:]


@pytest.mark.parametrize("typed", [True, False])
def test_a_function_that_uses_its_argument_up_has_all_of_it_each_time(typed: bool) -> None:
    """Each time it was called from its beginning it got the very list that it had emptied before:
    what was left of it was skipped, and the run was done."""
    noted: list[str] = []

    @perdure.step
    def note(item: str) -> None:
        noted.append(item)

    def work(run: perdure.Run[dict[str, Any]], items: Any) -> int:
        done = 0
        while items:
            note(items.pop(0))
            run.wait_for("go")
            done += 1
        return done

    work.__annotations__["items"] = list[str] if typed else Any
    function, given = perdure.agent(dict)(work), ["x", "y", "z"]
    with perdure.open("memory://") as store:
        run = run_until_waiting(store, function, "a", given)
        for _ in range(3):
            run.signal("go")
            run = run_until_waiting(store, function, "a", given)
        assert run.result() == 3
    assert (noted, given) == (["x", "y", "z"], ["x", "y", "z"])


def test_what_cannot_be_stored_is_the_callers_own() -> None:
    client = object()

    @perdure.agent
    def taking(run: perdure.Run[dict[str, Any]], value: Any) -> bool:
        return value is client

    with perdure.open("memory://") as store:
        assert store.run(taking, "a", client)


@perdure.agent
def listing(run: perdure.Run[dict[str, Any]]) -> Any:
    return ["x", "y"]


USED_UP: dict[str, Callable[[perdure.Run[dict[str, Any]]], Any]] = {
    "signal": lambda run: run.wait_for("items"),
    "typed signal": lambda run: run.wait_for("items", schema=list[Any]),
    "select": lambda run: run.select(it=perdure.Signal("items")).value,
    "question": lambda run: run.ask("which ones?", schema=Any),
    "child": lambda run: run.start(listing, "child").result(),
}


@pytest.mark.parametrize("wait", USED_UP.values(), ids=USED_UP)
def test_a_function_that_uses_up_what_it_waited_for_has_all_of_it_each_time(wait: Any) -> None:
    """What a wait gave was recorded with the run's next commit, from the very list that the
    function had emptied by then: that was what had been sent, and the run stopped as another one
    than was recorded."""
    noted: list[str] = []

    def note(item: str) -> None:
        noted.append(item)

    @perdure.agent
    def work(run: perdure.Run[dict[str, Any]]) -> int:
        items = wait(run)
        while items:
            run.call(note, items.pop(0))
            run.wait_for("go")
        return len(noted)

    with perdure.open("memory://") as store:
        run = store.start(work, "a")
        run.signal("items", ["x", "y"])
        run = run_until_waiting(store, work, "a")
        for question in run.questions():
            run.answer(["x", "y"], to=question)
        if wait is USED_UP["child"]:
            worker = perdure.Worker(store, [listing])
            thread = _working(worker)
            try:
                until(lambda: [one.status for one in store.runs(agent="child")] == ["done"])
            finally:
                worker.stop()
                thread.join(20)
        while run.status == "waiting":
            run.signal("go")
            run_until_waiting(store, work, "a")
        assert run.result(timeout=0) == 2
    assert noted == ["x", "y"]


def test_what_an_attempt_changes_of_what_it_was_given_is_not_what_it_saved() -> None:
    """The next attempt got the object that the one before had been given, with its changes; after a
    crash it got what was saved."""
    given: list[Any] = []

    @perdure.step(retry=perdure.Retry(attempts=3, first=0))
    def work() -> None:
        pages = perdure.saved_progress([])
        given.append([*pages])
        if not pages:
            perdure.heartbeat(["one"])
        perdure.saved_progress([]).append("not saved")
        raise ValueError(len(given))

    @perdure.agent
    def working(run: perdure.Run[dict[str, Any]]) -> None:
        work()

    with perdure.open("memory://") as store, pytest.raises(ValueError, match="3"):
        store.run(working, "a")
    assert given == [[], ["one"], ["one"]]


def _working(worker: perdure.Worker) -> Any:
    thread = threading.Thread(target=lambda: worker.run(signals=False))
    thread.start()
    return thread


@pytest.mark.parametrize(
    "name", ["self", "fn", "function", "agent", "execution", "args", "kwargs", "key", "call"]
)
def test_parameters_may_have_any_name(name: str) -> None:
    """One called `fn` could not be started from asynchronous code: "Threads.call() got multiple
    values for argument 'fn'"."""

    @perdure.step
    def plainly(**given: int) -> int:
        return given[name]

    @perdure.agent(dict)
    async def child(run: perdure.AsyncRun[dict[str, Any]], /, **given: int) -> int:
        return given[name] + 1

    @perdure.agent(dict)
    async def work(run: perdure.AsyncRun[dict[str, Any]], /, **given: int) -> Any:
        if given[name] == 1:
            return run.again(**{name: 2})
        started = await run.start(child, "child", **given)
        return [await run.call(plainly, **given), await started.result()]

    async def main() -> Any:
        async with perdure.open_async(url) as store:
            handle = await store.start(work, "a", **{name: 1})
            return await handle.result(timeout=20)

    url = f"memory://parameters-{name}"
    with perdure.open(url) as store:
        worker = perdure.Worker(store, [child, work])
        thread = _working(worker)
        try:
            assert asyncio.run(main()) == [2, 3]
        finally:
            worker.stop()
            thread.join(20)
