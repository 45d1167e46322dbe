"""Objects that a thread takes can be read again: whatever `fields` takes, `build` makes of it."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import types
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import HumanMessage
from pydantic import BaseModel, ConfigDict, PrivateAttr

from perdure.errors import SchemaError, Unstorable
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.values import unnamed
from perdure.integrations.langgraph.values.unnamed import MET
from tests.integrations.langgraph.checkpoints import config, get, put, values_of
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


@dataclass
class Unreachable(OSError):
    url: str


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
    Unreachable("there"),
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
    known = [Order, Draft, Pair, Point, Size, Info, Refused, Unreachable] if strict else ()
    put(place.open(types=known, strict=strict), {"v": value})
    found = values_of(place.open(types=known, strict=strict))["v"]
    assert parts(found) == parts(value)


def test_classes_of_which_no_instance_can_be_made_are_refused_as_types(place: Place) -> None:
    """Story: a dataclass that derives from dict was registered, stored, and could not be read."""
    for cls in (Config, Local):
        with pytest.raises(TypeError, match="no instance of"):
            place.open(types=[cls])


@dataclass
class Shape(ABC):
    @abstractmethod
    def area(self) -> int: ...


@dataclass
class Square(Shape):
    side: int

    def area(self) -> int:
        return self.side**2


def test_an_abstract_class_among_the_types_is_in_nobodys_way(place: Place) -> None:
    """Story: the saver of a graph with `types=[Shape, Square]` could not be made any more."""
    put(place.open(types=[Shape, Square]), {"v": Square(2)})
    assert values_of(place.open(types=[Shape, Square]))["v"] == Square(2)


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


MODULE = "perdure_test_odd"


@pytest.fixture
def shop() -> Iterator[Any]:
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(
        "import dataclasses, enum, typing\n"
        "@dataclasses.dataclass(frozen=True)\nclass Sku:\n    code: str\n"
        "@dataclasses.dataclass(frozen=True)\nclass Part:\n    code: str\n"
        "class Pair(typing.NamedTuple):\n    x: int\n    y: list\n"
        "class Kind(enum.Enum):\n    A = [1]\n",
        module.__dict__,
    )
    yield module
    sys.modules.pop(MODULE, None)
    MET.forget()


def test_what_is_hashable_may_be_in_a_set_without_its_class(place: Place, shop: Any) -> None:
    """Story: orders had sets of frozen dataclasses, and dicts with these as keys. An operator's
    program did not have the class: each such thread was "not written by PerdureSaver"."""
    value = {
        "set": {shop.Sku("a"), shop.Sku("b"), shop.Part("a")},
        "deep": [frozenset({shop.Sku("a")})],
        "key": {shop.Sku("a"): 3, shop.Part("a"): 4},
        "counter": Counter([shop.Sku("a"), shop.Sku("a")]),
        "kind": {shop.Kind.A: 1},
    }
    put(place.open(), {"v": value})
    del sys.modules[MODULE]
    MET.forget()
    saver = place.open()
    found = values_of(saver)["v"]
    assert sorted(one["code"] for one in found["set"]) == ["a", "a", "b"]
    assert sorted(found["key"].values()) == [3, 4]
    assert copy.deepcopy(found) == found == pickle.loads(pickle.dumps(found))
    put(saver, {"v": found}, get(saver).config, 2)  # who writes it again leaves what it was
    sys.modules[MODULE] = shop
    assert values_of(place.open())["v"] == value


def test_what_no_set_can_hold_says_which_class_is_missing(place: Place, shop: Any) -> None:
    put(place.open(), {"v": [{shop.Sku("a"): 1}]})
    shop.Sku.__hash__ = None
    with pytest.raises(SchemaError, match=r"cannot hold what it held: .*unhashable") as caught:
        values_of(place.open())
    assert "state.v[0]" in str(caught.value)
    assert "make that class hashable" in str(caught.value)


def test_many_classes_drive_out_the_oldest_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Story: a service made a class for each answer. With the 4,097th all of them were forgotten:
    answers came back as dicts, in the very process that had their classes."""
    monkeypatch.setattr(unnamed, "MET_MAX", 8)
    MET.forget()
    saver = place.open()
    made = [make_dataclass(f"Answer{number}", ["text"]) for number in range(9)]
    for number, cls in enumerate(made):
        put(saver, {"v": cls("hi")}, config(f"t{number}"))
    kept = [
        type(values_of(saver, config(f"t{number}"))["v"]) is made[number] for number in range(9)
    ]
    assert kept == [False] * 2 + [True] * 7
