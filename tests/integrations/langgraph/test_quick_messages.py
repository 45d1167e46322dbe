"""Messages that are put together without pydantic's validators are what these would have made."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core import messages
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    ToolMessage,
)
from pydantic import BaseModel, ConfigDict

from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.kinds import TAG, ModelKind
from perdure.integrations.langgraph.values.rich_values import Coder

CODER = Coder(BUILT_IN)
NEEDED: dict[str, Any] = {
    "ToolMessage": {"tool_call_id": "call-1"},
    "ChatMessage": {"role": "critic"},
    "FunctionMessage": {"name": "look up"},
    "RemoveMessage": {"id": "gone"},
}
MORE: tuple[dict[str, Any], ...] = (
    {},
    {"id": "1"},
    {"name": "ann", "id": "2"},
    {"status": "error"},
    {"artifact": 5},
    {"chunk_position": "last"},
)


def every_class() -> list[type[BaseMessage]]:
    """All message classes of langchain_core that somebody may make instances of."""
    for module in pkgutil.iter_modules(messages.__path__, messages.__name__ + "."):
        importlib.import_module(module.name)
    found: dict[str, type[BaseMessage]] = {}
    left: list[Any] = [BaseMessage]
    while left:
        cls = left.pop()
        left += cls.__subclasses__()
        if cls.__module__.startswith("langchain_core.") and not inspect.isabstract(cls):
            found[cls.__name__] = cls
    return [cls for cls in found.values() if cls not in (BaseMessage, BaseMessageChunk)]


CLASSES = sorted(every_class(), key=lambda cls: cls.__name__)


def fields_of(cls: type[BaseMessage]) -> Iterator[dict[str, Any]]:
    needed = NEEDED.get(cls.__name__.removesuffix("Chunk"), {})
    content = {} if cls.__name__ == "RemoveMessage" else {"content": "Hi"}
    for more in MORE:
        if more.keys() <= cls.model_fields.keys():
            yield {**content, **needed, **more}


CASES = [(cls, fields) for cls in CLASSES for fields in fields_of(cls)]


def quick(cls: type[BaseMessage], fields: dict[str, Any]) -> Any:
    """What is stored of a message, put together the quick way."""
    made = BUILT_IN.quick[cls.__name__](stored(cls, fields))
    assert made is not None
    return made


def stored(cls: type[BaseMessage], fields: dict[str, Any]) -> dict[str, Any]:
    found: Any = CODER.encode(cls(**fields), ("v",), "state")
    assert found[TAG] == cls.__name__
    return dict(found)


def validated(cls: type[BaseMessage], fields: dict[str, Any]) -> Any:
    """As the class itself makes it of the same fields."""
    return cls(**{name: item for name, item in stored(cls, fields).items() if name != TAG})


def inside(message: Any) -> tuple[Any, ...]:
    """All that an instance holds, in its order."""
    return (
        type(message),
        list(message.__dict__.items()),
        message.__pydantic_fields_set__,
        message.__pydantic_extra__,
        message.__pydantic_private__,
    )


def test_all_classes_are_known() -> None:
    assert {cls for cls in CLASSES if cls not in BUILT_IN.by_type} == set()
    assert {cls.__name__ for cls, _ in CASES} == {cls.__name__ for cls in CLASSES}
    assert len(CLASSES) >= 13


@pytest.mark.parametrize(("cls", "fields"), CASES)
def test_it_is_what_the_class_makes(cls: type[BaseMessage], fields: dict[str, Any]) -> None:
    one, other = quick(cls, fields), validated(cls, fields)
    assert one == other == cls(**fields) and inside(one) == inside(other)
    assert repr(one) == repr(other) and str(one) == str(other)
    for more in ({}, {"exclude_unset": True}, {"exclude_defaults": True}, {"mode": "json"}):
        assert list(one.model_dump(**more).items()) == list(other.model_dump(**more).items())
    assert one.model_dump_json() == other.model_dump_json()
    assert one.text == other.text and one.pretty_repr() == other.pretty_repr()
    assert one.model_fields_set == other.model_fields_set


@pytest.mark.parametrize(("cls", "fields"), CASES)
def test_its_copies_are_alike(cls: type[BaseMessage], fields: dict[str, Any]) -> None:
    one, other = quick(cls, fields), validated(cls, fields)
    for make in (
        lambda m: pickle.loads(pickle.dumps(m)),
        copy.copy,
        copy.deepcopy,
        lambda m: m.model_copy(),
        lambda m: m.model_copy(deep=True, update={"id": "new"}),
        lambda m: cls.model_validate(m),
        lambda m: cls.model_validate(m.model_dump()),
        lambda m: pickle.loads(pickle.dumps(m.model_copy(update={"strange": 1}))),
    ):
        assert inside(make(one)) == inside(make(other))


@pytest.mark.parametrize(("cls", "fields"), CASES)
def test_it_changes_alike_and_alone(cls: type[BaseMessage], fields: dict[str, Any]) -> None:
    one, other, untouched = quick(cls, fields), validated(cls, fields), quick(cls, fields)
    for message in (one, other):
        message.additional_kwargs["seen"] = True
        message.response_metadata["model"] = "m"
        message.name = "somebody"
        message.strange = {"a": [1]}
        if isinstance(message, AIMessage):
            message.tool_calls.append({"name": "f", "args": {}, "id": "1", "type": "tool_call"})
            message.invalid_tool_calls.clear()
    assert inside(one) == inside(other) and one.strange == {"a": [1]}
    assert inside(untouched) == inside(validated(cls, fields)), "nothing is shared"
    del one.strange, other.strange
    assert inside(one) == inside(other)
    for message in (one, other):
        with pytest.raises(AttributeError):
            message.strange


def test_chunks_add_up_alike() -> None:
    for cls, fields in CASES:
        if issubclass(cls, BaseMessageChunk):
            one = quick(cls, fields) + quick(cls, fields)
            assert inside(one) == inside(validated(cls, fields) + validated(cls, fields))


def test_what_is_no_scalar_goes_the_long_way() -> None:
    build = BUILT_IN.quick["AIMessage"]
    assert build({TAG: "AIMessage", "content": ["a"]}) is None
    assert build({TAG: "AIMessage"}) is None, "a required field is absent"
    assert build({TAG: "AIMessage", "content": "a", "strange": 1}) is None
    assert BUILT_IN.quick["ToolMessage"]({TAG: "ToolMessage", "content": "a"}) is None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int = 0


def test_extra_fields_count_as_set() -> None:
    """Those that were given came back as if nobody had given them: pydantic's own set of the
    fields that were set has the extra ones, too, but those that are assigned later."""
    kind = ModelKind("Open", Open)
    coder = Coder(BUILT_IN.with_types({"Open": Open}))
    given: Any = Open(strange=1)  # type: ignore[call-arg]
    later: Any = Open()
    later.strange = 1
    for one in (given, later, Open(number=1), Open()):
        assert inside(kind.build(kind.fields(one))) == inside(one)
        assert inside(coder.decode(coder.encode(one, ("v",), "state"), "state.v")) == inside(one)
    message = ToolMessage("a", tool_call_id="1", status="error", strange=1)
    there: Any = coder.decode(coder.encode(message, ("v",), "state"), "state.v")
    assert inside(there) == inside(message)


def test_maps_that_are_no_message_leave_nothing_in_memory() -> None:
    """A quick way is kept for each set of fields that a message has: of those that somebody's data
    may have there is no end."""
    kind = BUILT_IN.by_tag["HumanMessage"]
    assert isinstance(kind, ModelKind)
    assert kind.quick({TAG: "HumanMessage", "content": "Hi"}) == HumanMessage("Hi")
    before = len(kind._shapes)
    for number in range(100):
        assert kind.quick({TAG: "HumanMessage", "content": "Hi", f"more-{number}": 1}) is None
    assert len(kind._shapes) == before
