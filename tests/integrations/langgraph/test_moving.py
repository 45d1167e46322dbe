"""The parts of moving in: the order of checkpoints, the calls of writes, and what is compared."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send
from pydantic import BaseModel, Field, PrivateAttr

from perdure.integrations.langgraph.moving.comparison import Comparison
from perdure.integrations.langgraph.moving.move_threads import in_call
from perdure.integrations.langgraph.moving.serializer import Reader, Unread, found_unread
from perdure.integrations.langgraph.moving.source import CheckpointAddress, WriteKey, in_order
from tests.integrations.langgraph.checkpoints import checkpoint, config


def order(*found: tuple[str, str | None]) -> str:
    return "".join(one.id for one in in_order([CheckpointAddress("", *one) for one in found]))


def test_parents_come_before_their_children() -> None:
    assert order(("c", "b"), ("b", "a"), ("a", None)) == "abc"
    assert order(("a", "c"), ("b", "a"), ("c", None)) == "cab", "ids need not grow"
    assert order(("b", "gone"), ("a", None)) == "ab", "a parent that was pruned"
    assert order(("a", "a")) == "a"
    assert order(("a", "b"), ("b", "c"), ("c", "a"), ("d", "c")) == "acbd", "a loop"
    one, other = CheckpointAddress("x", "a", "b"), CheckpointAddress("y", "b", None)
    assert in_order([other, one]) == [one, other], "a parent is in the same namespace"


@given(st.lists(st.integers(0, 30), max_size=30))
def test_every_checkpoint_has_its_place(parents: list[int]) -> None:
    found = [CheckpointAddress("", f"{i:02}", f"{parent:02}") for i, parent in enumerate(parents)]
    ordered = in_order(found)
    assert sorted(ordered, key=lambda one: one.id) == found
    if all(parent < i for i, parent in enumerate(parents)):
        assert ordered == found


@given(st.lists(st.sampled_from(["a", "b", "__interrupt__", "__resume__"]), max_size=9))
def test_writes_get_the_index_they_had(channels: list[str]) -> None:
    rows: dict[int, tuple[WriteKey, Any]] = {}
    for index, channel in enumerate(channels):
        number = WRITES_IDX_MAP.get(channel, index)
        rows[number] = WriteKey("task", "", number, channel), f"{index}"
    call = in_call(list(rows.values()))
    stored = {WRITES_IDX_MAP.get(name, at): (name, item) for at, (name, item) in enumerate(call)}
    assert stored == {number: (key.channel, value) for number, (key, value) in rows.items()}


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Point:
    x: Any


class Pair(NamedTuple):
    a: Any


class Model(BaseModel):
    field: Any = None
    live: Any = Field(default_factory=object, exclude=True)
    _live: Any = PrivateAttr(default_factory=object)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        (1, True, "state.v"),
        (1, 1.0, "state.v"),
        (0.0, -0.0, "state.v"),
        ([1, 2], (1, 2), "state.v"),
        ([1], [1, 2], "state.v"),
        ({1: "a"}, {True: "a"}, "state.v[1]"),
        ({"a": 1}, {}, "state.v.a"),
        ({}, {"a": None}, "state.v.a"),
        ({1}, {True}, "state.v"),
        (Color.RED, Color.BLUE, "state.v"),
        (Point([1]), Point([True]), "state.v.x[0]"),
        (Pair(1), Pair(True), "state.v.a"),
        (Model(field=[1]), Model(field=[2]), "state.v.field[0]"),
        (HumanMessage("a"), AIMessage("a"), "state.v"),
        (AIMessage("a", extra=1), AIMessage("a", extra=2), "state.v['@extra'].extra"),
        (Send("n", {"a": 1}), Send("n", {"a": True}), "state.v.arg.a"),
        (Interrupt(1, id="i"), Interrupt(True, id="i"), "state.v.value"),
        (
            dt.datetime(2026, 7, 1, tzinfo=BERLIN),
            dt.datetime(2026, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            "state.v",
        ),
        (b"a", bytearray(b"a"), "state.v"),
    ],
)
def test_a_difference_is_found_and_named(one: Any, other: Any, where: str) -> None:
    found = Comparison().of(tuple_of(one), tuple_of(other))
    assert found is not None and found.startswith(f"{where}: "), found


def tuple_of(value: Any) -> CheckpointTuple:
    made = checkpoint({"v": value}, id="1")
    made["ts"] = ""
    return CheckpointTuple(config("t", "1"), made, {"step": 1})


def test_what_is_alike_is_alike() -> None:
    """Excluded fields and private attributes are in no source: each read makes its own."""
    nan = float("nan")
    values: list[Any] = [
        nan,
        HumanMessage("a"),
        {"a": {1, 2}},
        Point(Model(field=[None])),
        UUID(int=1),
    ]
    again: list[Any] = [
        nan,
        HumanMessage("a"),
        {"a": {2, 1}},
        Point(Model(field=[None])),
        UUID(int=1),
    ]
    comparison = Comparison()
    assert comparison.of(tuple_of(values), tuple_of(again)) is None
    again[1].content = "b"  # what was found alike is not looked at again, and may not change
    assert Comparison().of(tuple_of(values), tuple_of(again)) is not None
    changed = tuple_of(values)._replace(metadata={"step": 2})
    assert (
        comparison.of(tuple_of(values), changed) == "metadata.step: 1 in the source, 2 in the store"
    )
    child = tuple_of(values)._replace(parent_config=config("t", "0"))
    assert "parent: None (NoneType) in the source" in (comparison.of(tuple_of(values), child) or "")


def test_the_reader_gives_one_object_for_the_same_bytes_and_imports_nothing() -> None:
    message = HumanMessage("a", id="1")
    data = JsonPlusSerializer().dumps_typed({"m": [message], "p": Point(Model(field=1))})
    reader = Reader({})
    with reader.listening():
        one, other = reader.loads_typed(data), reader.loads_typed(data)
    assert one["m"] == [message] and one["m"][0] is other["m"][0]
    [(path, lost)] = found_unread(one)
    assert reader.unread and path == ("p",) and lost.type == f"{__name__}.Point"
    known = Reader({f"{__name__}.Point": Point})
    with known.listening():
        [(path, lost)] = found_unread(known.loads_typed(data))
    assert path == ("p",) and lost.type == f"{__name__}.Model", "inside of one that is known"


@pytest.mark.parametrize("kind", ["pickle", "msgpack+aes", "msgpack", "json", "strange"])
def test_what_cannot_be_read_is_not_none(kind: str) -> None:
    assert isinstance(Reader({}).loads_typed((kind, b"\xc1")), Unread)
