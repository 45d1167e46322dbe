"""Objects that a thread takes can be read again: whatever `fields` takes, `build` makes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import HumanMessage
from pydantic import BaseModel, ConfigDict, PrivateAttr

from perdure.errors import Unstorable
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import get, put, values_of
from tests.integrations.langgraph.conftest import Place


@dataclass
class Order:
    id: int
    total: int = field(init=False)


class Draft(BaseModel):
    title: str
    body: str


class Pair(NamedTuple):
    x: int
    y: int = 7


class Point(Pair):
    def __new__(cls, text: str) -> Point:
        return super().__new__(cls, *map(int, text.split(",")))


@dataclass(eq=False)
class Info:
    price: int


class Size(Enum):
    BIG = Info(10)
    SMALL = Info(1)


@dataclass
class Refused(Exception):
    code: int


@dataclass
class Config(dict[str, Any]):
    name: str = ""


@dataclass
class Local(threading.local):
    name: str = ""


refused = Refused(402)
refused.hint = "pay"  # type: ignore[attr-defined]
OBJECTS: list[Any] = [
    Order(7),
    Draft.model_construct(title="Hi"),
    HumanMessage.model_construct(id="1"),
    Pair(1),
    Point("1,2"),
    Size.BIG,
    refused,
]


def parts(value: Any) -> Any:
    if isinstance(value, Enum | tuple):
        return value
    return type(value), vars(value), getattr(value, "args", None)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_what_is_taken_can_be_read(place: Place, value: Any, strict: bool) -> None:
    """Story: a dataclass with a field that a later node was to fill in, a model that was streamed
    so far, a named tuple with a constructor of its own: each was taken, and then the thread could
    not be read any more, nor go on, because a required field "is not stored"."""
    types = [Order, Draft, Pair, Point, Size, Info, Refused] if strict else ()
    put(place.open(types=types, strict=strict), {"v": value})
    found = values_of(place.open(types=types, strict=strict))["v"]
    assert parts(found) == parts(value)


def test_classes_of_which_no_instance_can_be_made_are_refused_as_types(place: Place) -> None:
    """Story: a dataclass that derives from dict was registered, stored, and could not be read."""
    for cls in (Config, Local):
        with pytest.raises(TypeError, match="no instance of"):
            place.open(types=[cls])


class More(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


def test_extra_fields_with_names_of_ours_are_refused(saver: PerdureSaver) -> None:
    """Story: an extra field "@unset" of a model was taken for what we store beside fields."""
    with pytest.raises(Unstorable, match="an extra field named '@unset'"):
        put(saver, {"v": More.model_validate({"@unset": ["n"]})})


@dataclass
class Search:
    user: str

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = 0


class Account(BaseModel):
    user: str
    _client: Any

    def model_post_init(self, context: Any) -> None:
        if self.user == "offline":
            raise RuntimeError("no network")


def test_a_lock_that_a_dataclass_makes_is_made_anew(place: Place) -> None:
    """Story: such a graph ran with LangGraph's own savers, which store the fields, and was refused
    here."""
    one = Search("ann")
    one._seen = 9
    put(place.open(), {"v": one})
    found = values_of(place.open())["v"]
    assert (found.user, found._seen, type(found._lock)) == ("ann", 9, type(one._lock))


def test_a_private_attribute_without_a_value_runs_nothing_when_it_is_read(place: Place) -> None:
    """Story: of a model with such an attribute the user's `model_post_init` ran at each look: while
    its network was away, the thread could not be read."""
    one = Account.model_validate({"user": "ann"})
    one.user = "offline"
    put(place.open(), {"v": one})
    assert values_of(place.open())["v"].user == "offline"


@dataclass
class Task:
    state: Any = "open"


@dataclass(slots=True)
class Slotted:
    state: Any = "open"


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")


class Hidden(BaseModel):
    _state: Any = PrivateAttr("open")


def image() -> HumanMessage:
    return HumanMessage([{"type": "text"}, {"type": "image_url", "image_url": {"url": "data:…"}}])


CHANGES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (Task, lambda one: setattr(one, "state", "done")),
    (Slotted, lambda one: setattr(one, "state", "done")),
    (lambda: Extra.model_validate({"state": "open"}), lambda one: setattr(one, "state", "done")),
    (Hidden, lambda one: setattr(one, "_state", "done")),
    (lambda: {1, 2}, lambda one: one.add(3)),
    (lambda: bytearray(b"1"), lambda one: one.extend(b"2")),
    (image, lambda one: one.content[1]["image_url"].update(url="done")),
    (image, lambda one: one.content.pop()),
    (image, lambda one: setattr(one, "content", "done")),
]


@pytest.mark.parametrize(("make", "change"), CHANGES)
def test_what_is_changed_in_place_among_the_last_is_found(
    saver: PerdureSaver, make: Callable[[], Any], change: Callable[[Any], Any]
) -> None:
    """Story: a node took the images out of older messages, or set tasks with slots to done, and
    returned the list: only the last eight were stored as changed."""
    items = [make() for _ in range(30)]
    at = put(saver, {"v": items})
    for one in items[5:]:
        change(one)
    put(saver, {"v": items}, at, 2)
    assert values_of(saver)["v"] == items
    if make is Hidden:
        assert [one._state for one in values_of(saver)["v"][5:]] == ["done"] * 25
    get(saver)
