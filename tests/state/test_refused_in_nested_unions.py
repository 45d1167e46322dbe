"""What no class of a union takes is refused at a cost that does not multiply with its depth."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import pydantic
import pytest

import perdure
from perdure.errors import SchemaError
from tests.work import work_of


class Kind(enum.Enum):
    A = "a"
    B = "b"


class NoteModel(pydantic.BaseModel):
    text: str = ""
    replies: list[TaskModel | NoteModel] = []


class TaskModel(pydantic.BaseModel):
    text: str
    kind: Kind = Kind.A
    replies: list[TaskModel | NoteModel] = []


class Models(pydantic.BaseModel):
    root: TaskModel | NoteModel


@dataclasses.dataclass
class Task:
    text: str
    kind: Kind = Kind.A
    replies: list[Task | Pinned] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Pinned:
    text: str
    kind: Kind = Kind.A
    replies: list[Task | Pinned] = dataclasses.field(default_factory=list)
    pinned: bool = False


@dataclasses.dataclass
class Classes:
    root: Task | Pinned


@dataclasses.dataclass
class Leaf:
    text: str
    kind: Kind = Kind.A
    replies: list[Leaf | Branch] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.replies:
            raise ValueError("a leaf has nothing below")


@dataclasses.dataclass
class Branch:
    text: str
    kind: Kind = Kind.A
    replies: list[Leaf | Branch] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Tree:
    root: Leaf | Branch


def thread(depth: int, kind: str) -> Any:
    value: dict[str, Any] = {"text": "x", "kind": kind}
    for _ in range(depth):
        value = {"text": "t", "replies": [value]}
    return {"root": value}


@pytest.mark.parametrize("cls", [Models, Classes, Tree])
def test_a_wrong_value_deep_in_nested_unions_is_refused_in_proportion(cls: Any) -> None:
    """Story: one reply in a thread of comments was of a kind that the program did not know. Each
    level of the thread asked all below it once more for each class, and once more for whether it
    was read as another one: at a depth of ten it took 20 seconds to refuse, at fifteen half an
    hour, with the handle's lock held."""

    def saves(depth: int) -> Callable[[], object]:
        agent = store.agent(str(depth), cls, initial=thread(depth, "a"))
        agent.checkpoint("made")

        def save() -> None:
            with pytest.raises(SchemaError, match="kind"):
                agent.save(thread(depth, "wrong"))

        return save

    with perdure.open("memory://") as store:
        work_of(saves(3))  # makes the nodes
        little, much = work_of(saves(6)), work_of(saves(12))
    assert much < 16 * little  # doubled at each level: 64


def test_a_class_that_refuses_what_is_below_it_asks_that_once() -> None:
    """A hook of the first class of the union refused each object that had something below: that was
    built once for it, and once more for the second class, at each level."""

    def reads(depth: int) -> Callable[[], object]:
        store.agent(str(depth), Tree, initial=thread(depth, "b")).checkpoint("made")
        return lambda: store.agent(str(depth), Tree).state

    with perdure.open("memory://") as store:
        work_of(reads(3))
        little, much = work_of(reads(6)), work_of(reads(12))
    assert much < 16 * little
