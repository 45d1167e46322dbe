"""An object that its class of a union does not accept is not read as one of another class.

Such a class, whose fields all have defaults, takes any object by ignoring what it does not know.
"""

from __future__ import annotations

import copy
import types
from dataclasses import dataclass, field
from typing import Any, Literal

import pydantic
import pytest
from typing_extensions import TypedDict

import perdure

TYPES = """
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Literal, Union
import pydantic

class Level(Enum):
    LOW = "low"
{member}

{decorator}
class Task({base}):
    title: str = ""
    level: {level} = {default}
    {more}

{decorator}
class Note({base}):
    text: str = ""

{decorator}
class Board({base}):
    items: list[Union[Task, Note]] = {empty_list}
    by: dict[str, Union[Task, Note]] = {empty_dict}
    one: Union[Task, Note, None] = None
    lists: Union[list[Task], list[Note]] = {empty_list}
    n: int = 0
"""

KINDS = {
    "dataclass": ("@dataclass", "object", "field(default_factory={})"),
    "model": ("", "pydantic.BaseModel", "pydantic.Field(default_factory={})"),
    "pydantic dataclass": (
        "@pydantic.dataclasses.dataclass",
        "object",
        "field(default_factory={})",
    ),
}

CHANGES: dict[str, tuple[dict[str, str], dict[str, str], Any]] = {
    "a member of an Enum": (
        {"level": "Level", "default": "Level.LOW", "member": ""},
        {"level": "Level", "default": "Level.LOW", "member": '    URGENT = "urgent"'},
        "urgent",
    ),
    "a Literal": (
        {"level": 'Literal["low"]', "default": '"low"', "member": ""},
        {
            "level": 'Literal["low", "urgent"]',
            "default": '"low"',
            "member": "",
            "more": "more: int = 0",
        },
        "urgent",
    ),
    "a wider type": (
        {"level": "int", "default": "0", "member": ""},
        {"level": "int | str", "default": "0", "member": "", "more": "more: int = 0"},
        "urgent",
    ),
    "a stricter class": (
        {"level": "Annotated[int, pydantic.Field(ge=1)]", "default": "1", "member": ""},
        {"level": "int", "default": "1", "member": ""},
        0,
    ),
}


def program(kind: str, filled: dict[str, str]) -> Any:
    decorator, base, empty = KINDS[kind]
    made = types.ModuleType(__name__)
    lists = {"empty_list": empty.format("list"), "empty_dict": empty.format("dict")}
    filled = {"more": "", **filled}
    source = TYPES.format(decorator=decorator, base=base, **lists, **filled)
    exec(compile(source, "program", "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.mark.parametrize("where", ["items", "by", "one", "lists"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_its_class_refuses_is_of_no_other_class(
    kind: str, change: str, where: str
) -> None:
    """Story: a newer program stored a task with a level that the older one did not know. To that it
    was an empty note, of another class of the same field. Its next edit, of something else, wrote
    that: the task was gone, without an error."""
    older, newer = (program(kind, one) for one in CHANGES[change][:2])
    level = CHANGES[change][2]
    task = newer.Task(title="call Ada", level=newer.Level("urgent") if "Enum" in change else level)
    value = {"items": [newer.Note(text="a"), task], "by": {"k": task}, "one": task, "lists": [task]}
    with perdure.open("memory://") as store:
        board = newer.Board(**{where: value[where]})
        newest = perdure.Schema(newer.Board, id="b", version=(1, 1))
        store.agent("a", newest, initial=board).checkpoint("made")
        raw = store.agent("a", perdure.Schema(dict, id="b", version=(1, 1)))
        before = copy.deepcopy(raw.state)
        agent = store.agent("a", perdure.Schema(older.Board, id="b", version=(1, 0)))
        for look in (
            lambda: agent.state,
            lambda: agent.update(lambda draft: setattr(draft, "n", 1)),
            lambda: agent.save(older.Board()),
        ):
            with pytest.raises(perdure.SchemaError, match=where):
                look()
        assert raw.refresh() == before


class Fixed(pydantic.BaseModel):
    title: str = ""
    level: int = pydantic.Field(1, ge=1)


class Text(pydantic.BaseModel):
    text: str = ""


class TaskKeys(TypedDict, total=False):
    title: str
    level: Literal["low"]


class TextKeys(TypedDict, total=False):
    text: str


class KeysModel(pydantic.BaseModel):
    items: list[TaskKeys | TextKeys] = []


@dataclass
class KeysClass:
    items: list[TaskKeys | TextKeys] = field(default_factory=list)


@pytest.mark.parametrize("kind", [KeysModel, KeysClass])
def test_a_typed_dict_loses_no_key_that_one_of_the_types_has(kind: Any) -> None:
    stored = {"items": [{"text": "a"}, {"title": "u", "level": "urgent"}]}
    with perdure.open("memory://") as store:
        store.agent("a", perdure.Schema(dict, id="b"), initial=stored).checkpoint("made")
        with pytest.raises(perdure.SchemaError, match=r"items\[1\]"):
            _ = store.agent("a", perdure.Schema(kind, id="b")).state


class Sorted(pydantic.BaseModel):
    items: list[Fixed | Text] = []
    n: int = 0

    @pydantic.field_validator("items", mode="after")
    @classmethod
    def notes_first(cls, items: list[Fixed | Text]) -> list[Fixed | Text]:
        return sorted(items, key=lambda one: isinstance(one, Fixed))


class Mended(Sorted):
    @pydantic.field_validator("items", mode="before")
    @classmethod
    def as_notes(cls, items: list[Any]) -> list[Any]:
        return [{"text": one["title"]} if one.get("level") == 0 else one for one in items]


def test_such_an_object_is_found_where_a_hook_moves_it_and_left_to_a_hook_that_mends_it() -> None:
    stored = {"items": [{"text": "a"}, {"title": "t", "level": 5}, {"title": "u", "level": 0}]}
    with perdure.open("memory://") as store:
        store.agent("a", perdure.Schema(dict, id="b"), initial=stored).checkpoint("made")
        with pytest.raises(perdure.SchemaError, match=r"items\[2\]\.level"):
            _ = store.agent("a", perdure.Schema(Sorted, id="b")).state
        mended = store.agent("a", perdure.Schema(Mended, id="b"))
        mended.update(lambda draft: setattr(draft, "n", 1))
        items: list[Fixed | Text] = [Text(text="a"), Text(text="u"), Fixed(title="t", level=5)]
        assert mended.state.items == items
        assert store.agent("a", perdure.Schema(Mended, id="b")).state == mended.state
