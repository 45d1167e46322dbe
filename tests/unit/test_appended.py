"""The short plan of an append: the same as the general one, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field, field_validator

from perdure.core.draft.draft import Recording
from perdure.core.live.append_plan import appended
from perdure.core.schema import schema as schemas
from perdure.core.schema.schema import Schema
from perdure.core.values.ops import Append
from perdure.core.values.plain_values import copy
from perdure.errors import Drifted, SchemaError


class Message(BaseModel):
    role: str = "user"
    content: str = ""


class Note(BaseModel):
    text: str = ""

    @field_validator("text")
    @classmethod
    def strip(cls, text: str) -> str:
        return text.strip()


class Thread(BaseModel):
    messages: list[Message] = []


class Ticket(BaseModel):
    thread: Thread = Thread()
    messages: list[Message] = []
    notes: list[Note] = []
    names: list[str] = []
    either: list[Message | Note] = []
    few: Annotated[list[str], Field(max_length=2)] = []
    pair: tuple[list[str], str] = ([], "")

    @cached_property
    def count(self) -> int:
        return len(self.messages)


class Strict(BaseModel):
    names: list[str] = []

    @field_validator("names")
    @classmethod
    def known(cls, names: list[str]) -> list[str]:
        return names


@dataclass
class Data:
    names: list[str] = field(default_factory=list)


class Record(msgspec.Struct):
    names: list[str] = []


class Color(Enum):
    RED = "red"


class Keyed(TypedDict):
    names: list[str]


NAMES = ["a", "b"]
FULL = Ticket(
    thread=Thread(messages=[Message()]),
    messages=[Message(content="hi")],
    notes=[Note()],
    names=["a"],
    either=[Message()],
    few=["a"],
)

SIMPLE: dict[str, tuple[Any, Any, Callable[[Any], Any]]] = {
    "an object": (Ticket, FULL, lambda draft: draft.messages.append(Message(content="new"))),
    "further down": (Ticket, FULL, lambda draft: draft.thread.messages.append(Message())),
    "scalars": (Ticket, FULL, lambda draft: draft.names.extend(["b", "c"])),
    "to an empty list": (Data, Data(), lambda draft: draft.names.append("a")),
    "a dataclass": (Data, Data(list(NAMES)), lambda draft: draft.names.append("c")),
    "a Struct": (Record, Record(list(NAMES)), lambda draft: draft.names.append("c")),
    "a TypedDict": (Keyed, Keyed(names=["a"]), lambda draft: draft["names"].append("c")),
    "plain data": (dict, {"a": [{"b": 1}]}, lambda draft: draft["a"].append({"b": [2]})),
    "plain data further down": (dict, {"a": {"b": [1]}}, lambda draft: draft["a"]["b"].append(2)),
    "in a dict": (dict[int, list[str]], {1: ["a"]}, lambda draft: draft[1].append("b")),
    "up to the limit": (Ticket, FULL, lambda draft: draft.few.append("b")),
}

OTHERS: dict[str, tuple[Any, Any, Callable[[Any], Any]]] = {
    "an item with a validator": (Ticket, FULL, lambda draft: draft.notes.append(Note(text=" n"))),
    "a union": (Ticket, FULL, lambda draft: draft.either.append(Message())),
    "a class that looks at the list": (
        Strict,
        Strict(names=["a"]),
        lambda draft: draft.names.append("b"),
    ),
    "keys that are no plain ones": (
        dict[Color, list[str]],
        {Color.RED: ["a"]},
        lambda draft: draft[Color.RED].append("b"),
    ),
    "in a list": (list[list[str]], [["a"]], lambda draft: draft[0].append("b")),
}


class Change:
    """One change of a state, recorded, with the live object as before it."""

    def __init__(self, type_: Any, value: Any, act: Callable[[Any], Any]) -> None:
        self.schema: Schema[Any] = Schema(type_)
        self.plain = self.schema.take(value, aliases_refused=True)
        self.typed = self.schema.build(self.plain)
        self.recording = Recording(self.schema, self.plain, typed=self.typed)
        act(self.recording.draft)

    def short(self) -> Any:
        [op] = self.recording.ops
        assert isinstance(op, Append)
        return appended(self.schema.root, self.typed, self.plain, op, "state")

    def apply(self) -> tuple[Any, Any, Any]:
        recording = self.recording
        plan = self.schema.plan(self.typed, self.plain, recording.ops, recording.inverses)
        return plan.apply(), copy(self.plain), copy(recording.ops)


@pytest.mark.parametrize("name", SIMPLE)
def test_does_what_the_general_plan_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Change(*SIMPLE[name]).short() is not None
    short = Change(*SIMPLE[name]).apply()
    monkeypatch.setattr(schemas, "appended", lambda *_: None)
    assert short == Change(*SIMPLE[name]).apply()


@pytest.mark.parametrize("name", OTHERS)
def test_leaves_the_rest_to_the_general_plan(name: str) -> None:
    assert Change(*OTHERS[name]).short() is None


def test_leaves_the_live_list_alone_until_it_is_applied() -> None:
    change = Change(*SIMPLE["an object"])
    change.short()
    assert len(change.typed.messages) == 1


def test_the_list_stays_the_same_object_and_caches_are_forgotten() -> None:
    change = Change(*SIMPLE["an object"])
    held = change.typed.messages
    assert change.typed.count == 1
    change.apply()
    assert change.typed.messages is held
    assert change.typed.count == 2


@pytest.mark.parametrize(
    "drift",
    [
        lambda typed: typed.names.append("more"),
        lambda typed: typed.names.clear(),
        lambda typed: typed.names.__setitem__(-1, "other"),
        lambda typed: setattr(typed, "names", ("a",)),
        lambda typed: delattr(typed, "names"),
    ],
)
def test_what_was_changed_outside_is_found(drift: Callable[[Any], Any]) -> None:
    change = Change(*SIMPLE["scalars"])
    drift(change.typed)
    assert change.short() is None
    with pytest.raises(Drifted, match=r"state\.names"):
        change.apply()


def test_an_item_that_was_changed_outside_is_found() -> None:
    change = Change(*SIMPLE["an object"])
    change.typed.messages[-1].content = "other"
    with pytest.raises(Drifted, match=r"state\.messages\[0\]"):
        change.apply()


def test_plain_data_that_was_changed_outside_is_found() -> None:
    change = Change(*SIMPLE["plain data"])
    change.typed["a"][-1]["b"] = 2
    assert change.short() is None
    with pytest.raises(Drifted, match=r"state\.a\[0\]"):
        change.apply()


def test_new_plain_data_is_a_copy_in_the_live_object() -> None:
    change = Change(*SIMPLE["plain data"])
    live, plain, _ = change.apply()
    assert live == plain
    live["a"][-1]["b"].append(3)
    assert change.plain == plain


def test_too_many_items_are_refused() -> None:
    change = Change(Ticket, FULL, lambda draft: draft.few.extend(["b", "c"]))
    assert change.short() is None
    with pytest.raises(SchemaError, match="at most 2"):
        change.apply()


def test_an_item_that_does_not_fit_is_refused_by_its_path() -> None:
    class Small(BaseModel):
        model_config = {"str_max_length": 3}
        text: str = ""

    class Holder(BaseModel):
        items: list[Small] = []

    live = Holder(items=[Small()])
    with pytest.raises(SchemaError) as refused:
        Change(Holder, live, lambda draft: draft.items.append({"text": "long"}))
    assert refused.value.target == "state.items[1].text"
    assert len(live.items) == 1
