"""Names, orders and types that a thread once lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from perdure.errors import SchemaError, Unstorable
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import config, get, line, put, values_of
from tests.integrations.langgraph.conftest import Place

NAMES = ("@", "", "a/b", "~1", "main~2", "источник", "🦜", "a.b", "$", "@unset", "dict", ":", "\0")


@pytest.mark.parametrize("name", NAMES)
def test_a_channel_and_a_node_may_have_any_name(place: Place, name: str) -> None:
    """A channel called "@" was stored, and then its thread could not be read any more: "@" is the
    key that says of what kind a stored map is, also where the map was one of ours."""
    saver = place.open()
    at = put(saver, {name: {"@": "its own"}, "other": 1}, **{name: "metadata"})  # type: ignore[arg-type]
    made = get(saver).checkpoint
    made["versions_seen"] = {name: {name: 1, "other": 1}, "other": {name: 1}}
    made["id"], made["channel_values"] = (
        "2" + made["id"][1:],
        {name: [1], "other": HumanMessage("x")},
    )
    made["channel_versions"] = {name: 2, "other": 2}
    after = saver.put(at, made, {"source": "update", "step": 2, "parents": {}}, {})
    for reader in (saver, place.open()):
        first = get(reader, at)
        assert first.checkpoint["channel_values"] == {name: {"@": "its own"}, "other": 1}
        assert first.checkpoint["versions_seen"] == {"node": {name: 1, "other": 1}}
        assert first.metadata[name] == "metadata"  # type: ignore[literal-required]
        assert get(reader, after).checkpoint == made
        assert [one.config for one in reader.list(config(), filter={name: "metadata"})] == [at]


def test_a_namespace_may_have_any_name(saver: PerdureSaver) -> None:
    for name in NAMES:
        put(saver, {"n": name}, config(ns=name))
    for name in NAMES:
        assert values_of(saver, config(ns=name)) == {"n": name}


def test_what_cannot_be_read_is_named_by_its_channel(place: Place) -> None:
    @dataclass
    class Mine:
        x: int

    put(place.open(types={"mine": Mine}), {"@": [Mine(1)]})
    with pytest.raises(SchemaError, match=r"state\['@'\]\[0\]"):
        values_of(place.open(strict=True))


@pytest.mark.parametrize(
    "after",
    [
        {"b": 1, "a": 2},
        {"b": 1, "c": 3, "a": 2},
        {"c": {"y": 1, "x": 2}, "b": 1},
        {"a": 2, "c": 1, "b": [{"y": 1, "x": 2}]},
        {"b": [{"x": 2, "y": 1}], "a": 2},
    ],
)
def test_a_dict_keeps_the_order_of_its_keys(place: Place, after: dict[str, Any]) -> None:
    """{"a": 2, "b": 1} that was put again as {"b": 1, "a": 2} stayed as it was: differences were
    looked for key by key, and a program that goes over the dict after a crash took another way."""
    saver = place.open()
    at = put(saver, {"d": {"a": 2, "b": [{"y": 1, "x": 2}]}})
    put(saver, {"d": after}, at, 2)
    assert json.dumps(values_of(place.open())["d"]) == json.dumps(after)


def test_an_item_of_a_list_keeps_the_order_of_its_keys(place: Place) -> None:
    saver = place.open()
    items = [{"a": number, "b": 2} for number in range(20)]
    at = put(saver, {"list": items})
    items[3] = dict(reversed(items[3].items()))
    put(saver, {"list": list(items)}, at, 2)
    assert json.dumps(values_of(place.open())["list"]) == json.dumps(items)


def message(number: int, mark: Any) -> HumanMessage:
    return HumanMessage(f"{number}", id=str(number), additional_kwargs={"n": mark})


@pytest.mark.parametrize("mark", [True, 1.0])
@pytest.mark.parametrize("count", [3, 40, 600])
@pytest.mark.parametrize("place_of", [0, -1, -12])
def test_a_message_that_is_replaced_by_an_equal_one_of_other_types_is_stored(
    saver: PerdureSaver, mark: Any, count: int, place_of: int
) -> None:
    """Messages were compared by ==, to which 1 is True and 1.0: outside the last eight a message
    that was replaced by one that differs by that alone stayed what it was."""
    messages: list[BaseMessage] = [message(number, 1) for number in range(count)]
    at = put(saver, {"messages": messages})
    index = place_of if abs(place_of) <= count else 0
    messages = list(messages)
    messages[index] = message(count + index if index < 0 else index, mark)
    put(saver, {"messages": messages}, at, 2)
    found = values_of(saver)["messages"]
    assert [repr(one.additional_kwargs["n"]) for one in found] == [
        repr(one.additional_kwargs["n"]) for one in messages
    ]


def test_one_replaced_message_of_many_is_one_small_change(saver: PerdureSaver) -> None:
    messages = [message(number, 1) for number in range(300)]
    at = put(saver, {"messages": messages})
    put(saver, {"messages": [*messages[:9], message(9, "other"), *messages[10:]]}, at, 2)
    agent = saver.store.agent_of(saver.store.find("t"))  # type: ignore[arg-type]
    *_, last = agent.log()
    assert [op.path[:3] for op in last.delta if op.path[0] == "values"] == [
        ("values", "messages", 9)
    ]
    assert values_of(saver)["messages"][9].additional_kwargs == {"n": "other"}


def test_an_item_that_is_changed_to_an_equal_value_in_place_is_stored(saver: PerdureSaver) -> None:
    """It was glanced at by ==, to which True is 1."""
    items: list[Any] = [{"n": 1} for _ in range(60)]
    at = put(saver, {"items": items})
    items[5]["n"] = True
    put(saver, {"items": list(items)}, at, 2)
    assert values_of(saver)["items"][5]["n"] is True


@dataclass
class Order:
    number: int
    tags: list[str] = field(default_factory=list)

    @cached_property
    def worth(self) -> int:
        return self.number * 100


class Slotted:
    __slots__ = ("__hidden", "note")
    note: str

    def hide(self, value: Any) -> None:
        self.__hidden = value

    def seen(self) -> Any:
        return self.__hidden


@dataclass(slots=True)
class Slim(Slotted):
    x: int


def test_attributes_of_a_dataclass_that_are_no_fields_are_kept(place: Place) -> None:
    """They were dropped in silence."""
    order, slim = Order(5), Slim(1)
    order.note = {"by": "Ann"}  # type: ignore[attr-defined]
    assert order.worth == 500
    slim.note = "mine"  # type: ignore[misc]
    slim.hide([1])
    types = [Order, Slim]
    put(place.open(types=types), {"order": order, "slim": slim, "plain": Order(6)})
    found = values_of(place.open(types=types))
    assert found["order"].__dict__ == {"number": 5, "tags": [], "note": {"by": "Ann"}}
    assert found["order"].worth == 500
    assert (found["slim"].x, found["slim"].note, found["slim"].seen()) == (1, "mine", [1])
    assert found["plain"].__dict__ == {"number": 6, "tags": []}


def test_an_attribute_that_cannot_be_stored_is_named(place: Place) -> None:
    order = Order(5)
    order.client = object()  # type: ignore[attr-defined]
    with pytest.raises(Unstorable, match=r"state\.order.*client"):
        put(place.open(types=[Order]), {"order": order})


def test_an_attribute_that_has_no_place_any_more_is_named(place: Place) -> None:
    order = Order(5)
    order.note = 1  # type: ignore[attr-defined]
    put(place.open(types={"order": Order}), {"order": order})

    @dataclass(slots=True)
    class Later:
        number: int
        tags: list[str]

    with pytest.raises(SchemaError, match=r"state\.order.*no place for the attribute 'note'"):
        values_of(place.open(types={"order": Later}))


class OwnZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "own"


STRANGE = datetime(2026, 1, 2, tzinfo=OwnZone())


@pytest.mark.parametrize(
    "value",
    [
        {STRANGE},
        frozenset({STRANGE}),
        {STRANGE: 1},
        {(STRANGE,)},
        {None: 1, STRANGE: 2},
        {STRANGE.timetz()},
        {frozenset({STRANGE}): 1},
    ],
)
def test_a_time_zone_that_cannot_be_rebuilt_is_refused_in_sets_and_keys(
    saver: PerdureSaver, value: Any
) -> None:
    """There it was stored as its offset alone, and came back in another zone."""
    with pytest.raises(Unstorable, match=r"state\.v.*time zone of type OwnZone"):
        put(saver, {"v": value})
    put(saver, {"v": {datetime(2026, 1, 2, tzinfo=UTC)}})
    assert values_of(saver) == {"v": {datetime(2026, 1, 2, tzinfo=UTC)}}


def test_what_a_thread_keeps_in_memory_of_namespaces_is_bounded(saver: PerdureSaver) -> None:
    """Each call of a subgraph has a namespace of its own; the ends of their lines stayed in memory
    for as long as the thread was."""
    root = line(saver, 1)[0]
    for number in range(300):
        put(saver, {"n": number}, config(ns=f"sub:{number}"))
    assert len(saver._thread("t").views()[0]._tips) <= 256
    put(saver, {"n": "on"}, root, 2)
    assert values_of(saver) == {"n": "on"}
    assert values_of(saver, config(ns="sub:0")) == {"n": 0}
