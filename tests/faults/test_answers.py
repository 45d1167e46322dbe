"""What a value, a class or an error is found to be is no matter of what comes in between."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pytest

import perdure
from perdure.core.schema import value_digest
from perdure.core.schema.value_digest import digest
from perdure.core.types.hints import hints_of
from perdure.engine.journal.answer_schema import json_schema
from perdure.engine.journal.failures import error_record, rebuild_error
from perdure.engine.journal.previews import preview
from tests.faults.injecting import KINDS, Helper, count, inject


@dataclasses.dataclass
class Item:
    name: str
    sizes: set[int]
    client: perdure.Ephemeral[Any] = None


class Model(pydantic.BaseModel):
    price: Decimal
    items: list[Item] = []


class Odd:
    """Nothing is known of it."""


class Refused(ValueError):
    def __init__(self, reason: str, retry_after: int, path: Path) -> None:
        super().__init__(reason, path)
        self.retry_after = retry_after
        self.path = path


def refusing(value: Item, other: NotThere) -> None:  # type: ignore[name-defined] # noqa: F821
    """Only a type checker knows that class."""


def _anew() -> None:
    for cached in (value_digest._parts_of, value_digest._leaf_schema):
        cached.cache_clear()


ITEM = Item("a", {1, 2})
MODEL = Model(price=Decimal("1.5"), items=[ITEM])
RECORD = error_record(FileNotFoundError(2, "none", "here"))


def _invalid() -> Exception:
    try:
        Model(price="no")  # type: ignore[arg-type]
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


INVALID = _invalid()

CALLS: dict[str, Callable[[], object]] = {
    "plain": lambda: digest({"a": [1, "b", {"c": None}]}),
    "typed": lambda: digest(MODEL),
    "path": lambda: digest([Path("/a"), memoryview(b"abc"), {1: ITEM}]),
    "odd": lambda: digest(Odd()).partition("?")[0],
    "hints": lambda: repr(hints_of(Item)),
    "names": lambda: repr(hints_of(refusing)),
    "preview": lambda: preview({"item": ITEM, "model": MODEL}),
    "error": lambda: error_record(Refused("busy", 3, Path("/a"))),
    "invalid": lambda: error_record(INVALID),
    "rebuilt": lambda: repr(rebuild_error(RECORD, "")),
    "question": lambda: json_schema(Model),
}


@pytest.fixture(autouse=True)
def no_garbage() -> Iterator[None]:
    """Frees what other tests left now: a weak reference's callback in the middle of a call would
    get the exception, and CPython 3.11 then raises one of its own."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("what", CALLS)
def test_what_comes_in_between_is_no_answer(what: str) -> None:
    """A MemoryError came as a value's digest was made, and was taken for the value's own: that
    nothing tells it from another one. The run needed attention, or a replay took its call for
    another; a class was known as one without a plain form for as long as the process lived."""
    call = CALLS[what]
    call()  # what it imports
    _anew()
    whole = call()
    points = count(call)

    def interrupted(at: int) -> None:
        _anew()
        given: list[object] = []
        where = inject(lambda: given.append(call()), at, KINDS[at % len(KINDS)]).where
        assert given in ([], [whole]), where
        assert call() == whole, where

    # On a thread of its own: what is raised in a handler stays what CPython handles there.
    helper = Helper()
    for at in range(1, points + 1, max(1, points // 120)):
        helper.call(partial(interrupted, at))


def test_a_probe_that_something_came_into_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A MemoryError of ours, as a probe was about to be called, was said to be the probe's: the run
    needed attention, and its probe was not asked again."""
    from perdure.engine.execution.performer import Performer

    crashes, store = [KeyboardInterrupt], perdure.open("memory://")

    @perdure.tool(on_crash="probe", probe=lambda: "found")
    def pay() -> str:
        raise crashes.pop()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return pay()

    with pytest.raises(KeyboardInterrupt):
        store.run(act, "a")
    invoke = Performer.invoke

    def interrupted(performer: Performer, effect: Any) -> Any:
        monkeypatch.setattr(Performer, "invoke", invoke)
        raise MemoryError

    monkeypatch.setattr(Performer, "invoke", interrupted)
    with pytest.raises(perdure.PerdureError, match="could not be recorded: MemoryError"):
        store.run(act, "a")
    assert store.runs()[0].status == "running"
    assert store.run(act, "a") == "found"
