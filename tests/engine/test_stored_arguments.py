"""What a run's function gets of its arguments: what is stored of them, the first time, too."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.testing import run_until_waiting


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


def _working(worker: perdure.Worker) -> Any:
    thread = threading.Thread(target=lambda: worker.run(signals=False))
    thread.start()
    return thread
