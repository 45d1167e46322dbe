"""Values keep their types, nothing is imported on load, and what is not registered is refused."""

import re
import subprocess
import sys
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from perdure.core.values import codec
from perdure.core.values.zones import MissingZone
from perdure.errors import SchemaError, Unstorable
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder
from tests.integrations.langgraph.checkpoints import config, put, values_of
from tests.integrations.langgraph.conftest import Place
from tests.machine import machine


class Invoice(BaseModel):
    number: str
    cents: int = 0
    lines: list[str] = Field(default_factory=list)
    note: str | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    renamed: int = Field(alias="as")
    _seen: int = PrivateAttr(default=7)


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    tags: list[str] = field(default_factory=list)


class Color(Enum):
    RED = "red"
    BLUE = ("b", 1)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Box:
    inner: Any


TYPES = (Invoice, Strict, Point, Color, Pair, Box)

RICH = [
    HumanMessage("Hi", id="1", name="Ann"),
    HumanMessage([{"type": "text", "text": "part"}], id="2", additional_kwargs={"k": [1]}),
    AIMessage(
        "",
        id="3",
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ),
    AIMessageChunk(content="par", id="3c"),
    ToolMessage("out", tool_call_id="c", artifact={"raw": b"x"}),
    SystemMessage("be kind"),
    RemoveMessage("1"),
    Document("page", metadata={"n": 1}, id="d"),
    Send("node", {"subject": "cats"}),
    Interrupt(value={"ask": "ok?"}, id="i"),
    Overwrite([1]),
    Command(update={"a": 1}, goto="b"),
    Invoice(number="R-1", cents=5),
    Strict.model_validate({"as": 1, "more": [Point(1.0)]}),
    Point(2.0, ["a"]),
    Color.BLUE,
    Pair(1, Invoice(number="R-2")),
    Box(Box([Color.RED])),
    (1, [2], {"a": (3,)}),
    {1, 2},
    frozenset({"a"}),
    {Color.RED},
    {1: "int", (1, 2): "tuple"},
    {None: 1, True: 2},
    {"@": "a key of ours"},
    OrderedDict(a=1),
    Counter("aab"),
    deque([1], 3),
    bytearray(b"ab"),
    b"ab",
    10**30,
    Decimal("1.10"),
    UUID(int=5),
    datetime(2026, 1, 2, tzinfo=UTC),
    timedelta(days=1),
    timezone(timedelta(hours=2)),
    ZoneInfo("Europe/Vienna"),
    Path("/a/b"),
    ip_address("::1"),
    ip_network("10.0.0.0/8"),
    re.compile("a+", re.I),
    "lone \ud800",
    "\0",
    -0.0,
]


@pytest.mark.parametrize("value", RICH, ids=lambda value: type(value).__name__)
def test_values_come_back_as_they_were(value: Any) -> None:
    coder = Coder(BUILT_IN.with_types(TYPES))
    given = {"one": value, "many": [value, {"deep": [value]}]}
    found = coder.decode(codec.decode(codec.encode(coder.encode(given))))
    assert type(found["one"]) is type(value)
    if isinstance(value, Send):
        assert (found["one"].node, found["one"].arg) == (value.node, value.arg)
    else:
        assert found == given
    if isinstance(value, BaseModel):
        assert found["one"].model_dump() == value.model_dump()


def test_all_of_them_at_once(place: Place) -> None:
    given = {f"channel {number}": value for number, value in enumerate(RICH)}
    put(place.open(types=TYPES), given)
    found = values_of(place.open(types=TYPES))
    assert [type(one) for one in found.values()] == list(map(type, RICH))
    assert {name: one for name, one in found.items() if not isinstance(one, Send)} == {
        name: one for name, one in given.items() if not isinstance(one, Send)
    }


def test_a_model_knows_which_fields_were_set(saver: PerdureSaver, place: Place) -> None:
    registered = place.open(types=TYPES)
    strict = Strict(**{"as": 3})
    strict._seen = 9
    put(registered, {"one": Invoice(number="R-1"), "two": strict})
    found = values_of(registered)
    assert found["one"].model_fields_set == {"number"}
    assert (found["two"].renamed, found["two"]._seen) == (3, 9)


def test_what_was_handed_out_is_not_what_is_stored(saver: PerdureSaver) -> None:
    at = put(saver, {"messages": [HumanMessage("Hi", id="1")], "plain": {"a": [1]}})
    found = values_of(saver)
    found["messages"][0].content = "changed"
    found["plain"]["a"].append(2)
    assert values_of(saver, at)["messages"][0].content == "Hi"
    assert values_of(saver)["plain"] == {"a": [1]}


@pytest.mark.parametrize(
    "value",
    [SecretStr("pw"), object(), lambda: 1, int, iter([1])],
    ids=lambda one: type(one).__name__,
)
def test_what_is_no_data_is_refused(saver: PerdureSaver, value: Any) -> None:
    with pytest.raises(Unstorable, match=r"state\.a\[0\]\.b"):
        put(saver, {"a": [{"b": value}]})


def test_the_hint_says_what_to_register(place: Place) -> None:
    with pytest.raises(Unstorable, match=r"types=\[Invoice\]"):
        put(place.open(strict=True), {"a": Invoice(number="R-1")})


def test_a_renamed_class_is_read_under_its_old_name(place: Place) -> None:
    """Elsewhere it loads as None."""
    put(place.open(types={"bill": Invoice}), {"a": Invoice(number="R-1")})

    class Bill(Invoice):
        paid: bool = False

    found = values_of(place.open(types={"bill": Bill}))["a"]
    assert type(found) is Bill
    assert (found.number, found.paid) == ("R-1", False)


def test_a_class_that_lost_a_field_is_said_to_have(place: Place) -> None:
    put(place.open(types={"bill": Invoice}), {"a": [Invoice(number="R-1")]})

    class Bill(BaseModel):
        number: str

    with pytest.raises(SchemaError, match=r"state\.a\[0\].*no field 'cents'"):
        values_of(place.open(types={"bill": Bill}))


def test_a_field_that_is_required_now_is_named(place: Place) -> None:
    put(place.open(types={"p": Point}), {"a": Point(1.0)})

    @dataclass
    class Later:
        x: float
        tags: list[str]
        z: float

    with pytest.raises(SchemaError, match=r"required field 'z'"):
        values_of(place.open(types={"p": Later}))


def test_names_are_unique_and_types_must_be_known_kinds(place: Place) -> None:
    with pytest.raises(ValueError, match=r"'HumanMessage'.*is taken"):
        place.open(types={"HumanMessage": Invoice})
    with pytest.raises(TypeError, match="not a pydantic model, dataclass, enum or named tuple"):
        place.open(types=[complex])


def test_langgraphs_serializer_takes_exotic_values(place: Place) -> None:
    allowed = [(Box.__module__, "Box")]
    serde = JsonPlusSerializer(allowed_msgpack_modules=allowed)
    saver = place.open(serde=serde, strict=True)
    put(saver, {"a": [Box("exotic")]})
    assert values_of(saver) == {"a": [Box("exotic")]}
    with pytest.raises(SchemaError, match=r"state\.a\[0\].*serializer"):
        values_of(place.open(strict=True))
    with pytest.raises(SchemaError, match=r"state\.a\[0\].*Box.*allowlist"):
        values_of(place.open(serde=JsonPlusSerializer(), strict=True))


def test_what_the_serializer_would_turn_into_something_else_is_refused(place: Place) -> None:
    with pytest.raises(Unstorable, match=r"state\.a"):
        put(place.open(serde=JsonPlusSerializer(), strict=True), {"a": Box(1)})


def test_a_serializer_that_unpickles_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="pickle_fallback"):
        place.open(serde=JsonPlusSerializer(pickle_fallback=True))


def test_an_allowlist_registers_what_is_loaded_and_imports_nothing(place: Place) -> None:
    saver = place.open(strict=True)
    names = {(Invoice.__module__, "Invoice"), ("no.such.module", "X"), ("os", "system")}
    more = saver.with_allowlist(names)
    assert more is not saver
    at = put(more, {"a": Invoice(number="R-1")})
    assert values_of(more) == {"a": Invoice(number="R-1")}
    with pytest.raises(SchemaError, match="not registered"):
        saver.get_tuple(at)
    assert "no.such.module" not in sys.modules


def test_an_error_is_stored_as_words(saver: PerdureSaver) -> None:
    at = put(saver, {"n": 1})
    saver.put_writes(at, [("__error__", ValueError("bad"))], "task")
    found = saver.get_tuple(config())
    assert found is not None
    assert found.pending_writes == [("task", "__error__", "ValueError('bad')")]


def test_perdure_does_not_import_langgraph() -> None:
    code = "import sys, perdure; print([m for m in sys.modules if m.startswith('lang')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_deep_and_cyclic_values_are_refused(saver: PerdureSaver) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(Unstorable, match="inside itself"):
        put(saver, {"a": cycle})


def test_a_zone_that_this_machine_does_not_have():
    """A thread with a `ZoneInfo` among its values could not be loaded where tzdata is missing."""
    coder = Coder(BUILT_IN)
    zone = ZoneInfo("Pacific/Chatham")
    value = {"zone": zone, "when": datetime(2026, 8, 12, tzinfo=zone)}
    stored = coder.encode(value)
    with machine("UTC"):
        read = coder.decode(codec.decode(codec.encode(stored)))
        assert read["zone"] is MissingZone("Pacific/Chatham") is read["when"].tzinfo
        again = codec.encode(coder.encode(read))
    assert again == codec.encode(stored)
    assert repr(coder.decode(codec.decode(again))) == repr(value)
