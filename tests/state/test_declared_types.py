"""Types that say too little of a value, or that are judged by what the log does not have."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import (
    BaseModel,
    DirectoryPath,
    FilePath,
    FutureDate,
    FutureDatetime,
    NewPath,
    PastDatetime,
    PlainSerializer,
    PlainValidator,
)

import perdure


@pytest.mark.parametrize(
    "name", ["Collection", "Iterable", "Container", "Reversible", "Sized", "Hashable"]
)
def test_a_type_that_may_be_anything_with_items_is_refused_by_its_name(name: str) -> None:
    """A list under `Collection` was read as a copy of its own: what an edit appended to it was
    lost, and nobody was told. Others were refused in a library's words, at a value that was right.
    """
    kind: Any = getattr(collections.abc, name)
    held = kind if name in ("Sized", "Hashable") else kind[str]

    made: Any = dataclass(type("Held", (), {"__annotations__": {"items": held}, "items": None}))
    with (
        perdure.open("memory://") as store,
        pytest.raises(perdure.SchemaError, match=f"{name} says too little(?s:.*)declare Sequence"),
    ):
        store.agent("a", made, initial=made(["a"])).checkpoint("c")


class Vector:
    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)

    __hash__ = None  # type: ignore[assignment]


Point = Annotated[
    Vector,
    PlainValidator(lambda given: given if isinstance(given, Vector) else Vector(*given)),
    PlainSerializer(lambda vector: [vector.x, vector.y]),
]


class Walk(BaseModel):
    at: Point
    path: list[Point] = []


def test_values_with_a_plain_form_of_their_own_are_no_aliases_of_each_other() -> None:
    """The lists that they were dumped as were compared by their ids, which the next one got when
    one was gone: of two different vectors, one was said to stand where the other did."""
    walk = Walk(at=Vector(0, 0), path=[Vector(n, n) for n in range(50)])
    with perdure.open("memory://") as store:
        agent = store.agent("a", Walk, initial=walk)
        with agent.edit() as draft:
            draft.path = [Vector(n, -n) for n in range(50)]
        assert store.agent("a", Walk).state.path == [Vector(n, -n) for n in range(50)]


@pytest.mark.parametrize("kind", [FutureDatetime, FutureDate, FilePath, DirectoryPath, NewPath])
def test_i6_a_type_that_is_judged_by_clock_or_disk_is_refused(kind: Any) -> None:
    """A date in the future was right when it was committed. A second later nobody could read the
    agent any more, and the run that had waited for that date could never go on."""

    class Reminder(BaseModel):
        due: kind | None = None
        words: list[str] = field(default_factory=list)

    with perdure.open("memory://") as store:
        agent = store.agent("a", Reminder, initial={"words": []})
        with pytest.raises(perdure.SchemaError, match=r"judged by the \w+ at each reading"):
            agent.checkpoint("c")
    with perdure.open("memory://") as store:
        store.agent("a", list[PastDatetime], initial=[]).checkpoint("c")
