"""Classes that pydantic asks for more than one field only as an instance is made: every reader of
the log makes one, so an edit does."""

from __future__ import annotations

import random
import threading
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Self

import pydantic
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

import perdure
import perdure.testing

REFUSED = "ends before it starts"


class ByField(BaseModel):
    start: int = 1
    end: int = 9

    @field_validator("end")
    @classmethod
    def check(cls, end: int, info: ValidationInfo) -> int:
        if end < info.data.get("start", 0):
            raise ValueError(REFUSED)
        return end


def _after(end: int, info: ValidationInfo) -> int:
    if end < info.data.get("start", 0):
        raise ValueError(REFUSED)
    return end


class ByMark(BaseModel):
    start: int = 1
    end: Annotated[int, AfterValidator(_after)] = 9


class ByHook(BaseModel):
    start: int = 1
    end: int = 9

    def model_post_init(self, context: Any) -> None:
        if self.end < self.start:
            raise ValueError(REFUSED)


class ByInit(BaseModel):
    start: int = 1
    end: int = 9

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if self.end < self.start:
            raise ValueError(REFUSED)


@pydantic_dataclass
class ByPostInit:
    start: int = 1
    end: int = 9

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(REFUSED)


class Holder(BaseModel):
    """Looks at what is inside, as it is made."""

    trip: ByField = ByField()
    most: int = 9

    def model_post_init(self, context: Any) -> None:
        if self.trip.end > self.most:
            raise ValueError(REFUSED)


KINDS: list[Any] = [ByField, ByMark, ByHook, ByInit, ByPostInit]


@pytest.mark.parametrize("kind", KINDS)
def test_i12_what_making_an_instance_refuses_is_refused_at_the_edit(kind: Any) -> None:
    """A field was set beyond another one, by which its class judges it. Assigning asks pydantic for
    that field alone: the edit was acknowledged, and nobody else could read the agent any more."""
    with perdure.open("memory://") as store:
        for name, schema, initial, inside in (
            ("root", kind, kind(), lambda draft: draft),
            ("list", list[kind], [kind()], lambda draft: draft[0]),
            ("dict", dict[str, kind], {"k": kind()}, lambda draft: draft["k"]),
        ):
            agent = store.agent(name, schema, initial=initial)
            agent.checkpoint("begun")
            with pytest.raises(perdure.SchemaError, match=REFUSED), agent.edit() as draft:
                inside(draft).start = 10
            with agent.edit() as draft:
                inside(draft).start, inside(draft).end = 10, 11
            assert inside(agent.state).end == 11
            other = store.agent(name, schema)
            assert other.state == agent.state
            with other.edit() as draft:
                inside(draft).end = 12
            agent.verify()


def test_an_outer_class_is_asked_where_something_inside_changed() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Holder, initial=Holder())
        with pytest.raises(perdure.SchemaError, match=REFUSED), agent.edit() as draft:
            draft.trip.end = 10
        with agent.edit() as draft:
            draft.trip.end, draft.most = 10, 10
        assert store.agent("a", Holder).state == agent.state


class Line(BaseModel):
    number: int = 1
    cents: int = 100
    total: int = 0

    def model_post_init(self, context: Any) -> None:
        self.total = self.number * self.cents


class LineByInit(BaseModel):
    number: int = 1
    cents: int = 100
    total: int = 0

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.total = self.number * self.cents


class LineBefore(BaseModel):
    number: int = 1
    cents: int = 100
    total: int = 0

    @model_validator(mode="before")
    @classmethod
    def fill(cls, given: Any) -> Any:
        if isinstance(given, dict):
            given = {**given, "total": given.get("number", 1) * given.get("cents", 100)}
        return given


@pytest.mark.parametrize("kind", [Line, LineByInit, LineBefore])
def test_what_making_an_instance_fills_in_is_committed_with_the_edit(kind: Any) -> None:
    """A total that its class works out was committed as it had been, and every reader worked it out
    anew: two handles of one commit showed two sums, and a total that was set was lost for all but
    the one who had set it."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", list[kind], initial=[kind()])
        for change in ({"number": 5}, {"total": 450}, {"number": 2, "total": 3}, {"cents": 7}):
            with agent.edit() as draft:
                for name, value in change.items():
                    setattr(draft[0], name, value)
            (mine,), (other,) = agent.state, store.agent("a", list[kind]).state
            assert mine == other
            stored = agent.at(agent.seq).plain[0]
            assert stored["total"] == mine.total == mine.number * mine.cents


def _few(values: Any) -> Any:
    if len(values) > 2:
        raise ValueError("too many")
    return values


def _small(item: Any) -> Any:
    if item.n > 9:
        raise ValueError("too many")
    return item


class Item(BaseModel):
    n: int = 1


Few = Annotated[list[int], AfterValidator(_few)]
Small = Annotated[Item, AfterValidator(_small)]


class Room(BaseModel):
    by_name: dict[str, Few] = {}
    in_rows: list[Few] = []
    deep: dict[str, list[Few]] = {}
    items: list[Small] = []
    named: dict[str, Small] = {}
    either: Small | int | None = None


def _begun() -> Room:
    return Room(
        by_name={"a": [1, 2]},
        in_rows=[[1, 2]],
        deep={"k": [[1, 2]]},
        items=[Item()],
        named={"a": Item()},
        either=Item(),
    )


JUDGED: dict[str, Any] = {
    "a list in a dict": lambda draft: draft.by_name["a"].append(3),
    "a list in a list": lambda draft: draft.in_rows[0].append(3),
    "a list in a list in a dict": lambda draft: draft.deep["k"][0].extend([3, 4]),
    "an item": lambda draft: setattr(draft.items[0], "n", 99),
    "a new item": lambda draft: draft.items.append(Item(n=99)),
    "an item of a dict": lambda draft: setattr(draft.named["a"], "n", 99),
    "a new item of a dict": lambda draft: draft.named.update(z=Item(n=99)),
    "a member of a union": lambda draft: setattr(draft.either, "n", 99),
}


@pytest.mark.parametrize("name", JUDGED)
def test_i12_what_a_validator_of_an_inner_container_refuses_is_refused(name: str) -> None:
    """A validator of a list that is a value of a dict was not asked where the list was changed in
    place: the commit was acknowledged, and nobody could read the agent any more."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Room, initial=_begun())
        agent.checkpoint("begun")
        with pytest.raises(perdure.SchemaError, match="too many"), agent.edit() as draft:
            JUDGED[name](draft)
        assert store.agent("a", Room).state == agent.state == _begun()
        with agent.edit() as draft:
            draft.by_name["a"].pop()
            draft.in_rows[0][0] = 7
            draft.items[0].n = draft.named["a"].n = 9
            assert isinstance(draft.either, Item)
            draft.either.n = 9
        assert store.agent("a", Room).state == agent.state


def test_what_a_validator_of_an_inner_container_changes_is_assigned_whole() -> None:
    class Sorted(BaseModel):
        rows: dict[str, Annotated[list[int], AfterValidator(sorted)]] = {}

    with perdure.open("memory://") as store:
        agent = store.agent("a", Sorted, initial=Sorted(rows={"a": [1, 5]}))
        with agent.edit() as draft:
            draft.rows["a"].append(7)
        with pytest.raises(perdure.SchemaError, match="assign a whole new"), agent.edit() as draft:
            draft.rows["a"].append(3)
        with agent.edit() as draft:
            draft.rows["a"] = [*draft.rows["a"], 3]
        assert store.agent("a", Sorted).state == agent.state == Sorted(rows={"a": [1, 3, 5, 7]})


class Counting(BaseModel):
    n: int = 0
    made: list[int] = []

    def model_post_init(self, context: Any) -> None:
        if self.n:
            self.made.append(self.n)


def test_what_changes_with_each_making_is_refused() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Counting, initial=Counting())
        agent.checkpoint("begun")
        with pytest.raises(perdure.Unstorable, match="a second time"), agent.edit() as draft:
            draft.n = 1
        assert store.agent("a", Counting).state == Counting()


def test_a_run_that_edits_so_goes_on() -> None:
    """It had committed what it could not read again: it waited for ever."""

    @perdure.agent(ByField)
    def moves(run: perdure.Run[ByField]) -> int:
        try:
            with run.edit() as draft:
                draft.start = 10
        except perdure.SchemaError:
            run.wait_for("go")
        return run.state.start

    with perdure.open("memory://") as store:
        run = perdure.testing.run_until_waiting(store, moves, "a")
        run.signal("go", None)
        assert store.run(moves, "a") == 1


def test_a_model_with_private_attributes_alone_is_assigned_as_before() -> None:
    from perdure.core.types.classes import PydanticFace

    class Plain(BaseModel):
        n: int = 0
        _seen: int = pydantic.PrivateAttr(default=0)

        @field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            return n

    assert not PydanticFace(Plain).checks_whole


def seen(state: Any) -> Any:
    """All that a model shows: with the order of its dicts, private attributes, and extra fields."""
    if isinstance(state, BaseModel):
        kept = {**vars(state), **(state.__pydantic_extra__ or {})}
        private = {**(state.__pydantic_private__ or {}), "_lock": None}
        return {name: seen(one) for name, one in kept.items()}, private
    if isinstance(state, dict):
        return [(key, seen(one)) for key, one in state.items()]
    return [seen(one) for one in state] if isinstance(state, list) else state


class Fills(BaseModel, extra="allow"):
    """What the hooks below make of the fields, each in all places that a model has."""

    by_day: dict[str, int] = {}
    log: list[int] = []
    total: int = 0
    _total: int = PrivateAttr(default=0)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def fill(self) -> None:
        self.by_day = dict(sorted(self.by_day.items()))
        self.log = sorted(self.log)
        self.total = self._total = sum(self.by_day.values()) + sum(self.log)
        self.doubled = self.total * 2


class FillsAsMade(Fills):
    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self.fill()


class FillsInInit(Fills):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.fill()


class FillsBehind(Fills):
    @model_validator(mode="after")
    def filled(self) -> Self:
        self.fill()
        return self


class FillsByField(Fills):
    @field_validator("by_day")
    @classmethod
    def in_order(cls, by_day: dict[str, int]) -> dict[str, int]:
        return dict(sorted(by_day.items()))


class Shelf(BaseModel):
    first: FillsAsMade = Field(default_factory=FillsAsMade)
    by_name: dict[str, FillsInInit] = Field(default_factory=lambda: {"a": FillsInInit()})
    rows: list[FillsByField] = Field(default_factory=lambda: [FillsByField()])


@pytest.mark.parametrize("kind", [FillsAsMade, FillsInInit, FillsBehind, FillsByField, Shelf])
def test_the_handle_that_edits_shows_what_a_fresh_one_does(kind: Any) -> None:
    """`model_post_init` made a private attribute, an extra field and the order of a dict. The
    handle that edited kept what was made before its edit, or committed the dict as it was: each
    fresh handle showed another state of the same commit, and `drift()` of an untouched one named
    it for ever."""
    luck = random.Random(kind.__name__)
    with perdure.open("memory://") as store:
        agent = store.agent("a", kind)
        for turn in range(40):
            lock = getattr(agent.state, "_lock", None)
            with agent.edit("some") as draft:
                for _ in range(luck.randint(1, 3)):
                    part = draft
                    if kind is Shelf:
                        part = luck.choice([draft.first, draft.by_name["a"], draft.rows[0]])
                    match luck.randrange(4):
                        case 0:
                            part.by_day[luck.choice("edcba")] = luck.randint(0, 9)
                        case 1:
                            part.log.append(luck.randint(0, 9))
                        case 2:
                            part.by_day = {key: luck.randint(0, 9) for key in luck.sample("xyz", 3)}
                        case 3 if part.by_day:
                            part.by_day.pop(luck.choice(list(part.by_day)))
            fresh = store.agent("a", kind)
            assert seen(agent.state) == seen(fresh.state)
            assert agent.drift() == [] == fresh.drift()
            assert turn == 0 or getattr(agent.state, "_lock", None) is lock, "it may be held"
            if luck.random() < 0.2:
                agent.undo()


def test_an_extra_field_that_a_hook_takes_away_is_refused() -> None:
    class Tidy(BaseModel, extra="allow"):
        most: int = 3

        def model_post_init(self, context: Any) -> None:
            for name in [k for k in (self.__pydantic_extra__ or {}) if len(k) > self.most]:
                del self.__pydantic_extra__[name]  # type: ignore[union-attr]

    with perdure.open("memory://") as store:
        agent: Any = store.agent("a", Tidy)
        with agent.edit("one") as draft:
            draft.abc = 1
        with pytest.raises(perdure.Unstorable), agent.edit("less") as draft:
            draft.most = 2
        assert seen(agent.state) == seen(store.agent("a", Tidy).state)
        with pytest.raises(perdure.Unstorable), agent.edit("another") as draft:
            draft.abcd = 1
        assert seen(agent.state) == seen(store.agent("a", Tidy).state)


def test_a_field_that_a_newer_class_makes_of_others_is_no_drift() -> None:
    """Version 1.1 of a class had one field more, which its hook made of the others. Every `save` of
    every older agent was refused: the field "was changed outside edit", and `refresh` did not help,
    as each handle makes it anew."""

    @dataclass
    class Order:
        lines: list[int] = field(default_factory=list)

    @dataclass
    class Counted:
        lines: list[int] = field(default_factory=list)
        count: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            self.count = len(self.lines)

    class CountedModel(BaseModel):
        lines: list[int] = []
        count: int = 0

        @model_validator(mode="after")
        def counted(self) -> Self:
            self.count = len(self.lines)
            return self

    old = perdure.Schema(Order, id="order", version=1)
    kinds: tuple[Any, Any] = (Counted, CountedModel)
    for newer in kinds:
        with perdure.open("memory://") as store:
            with store.agent("a", old).edit("first") as draft:
                draft.lines.append(1)
            agent = store.agent("a", perdure.Schema(newer, id="order", version=(1, 1)))
            assert (agent.state.count, agent.drift()) == (1, [])
            agent.save(newer(lines=[1, 2]))
            fresh = store.agent("a", perdure.Schema(newer, id="order", version=(1, 1)))
            assert agent.state.count == fresh.state.count == 2
            assert agent.at(agent.seq).plain == {"lines": [1, 2], "count": 2}


@dataclass
class Scaled:
    width: int = 1
    height: int = 1
    area: int = field(init=False, default=0)
    scale: InitVar[int] = 1

    def __post_init__(self, scale: int) -> None:
        if scale < 1 or self.width < 0:
            raise ValueError("too small")
        self.area = self.width * self.height * scale


def test_a_hook_that_takes_an_initvar_is_asked_by_edits_too() -> None:
    """In a class with an InitVar the hook was not called by an edit: the area stayed that of the
    width before, and what the hook refuses was committed."""
    with perdure.open("memory://") as store:
        agent = store.agent(
            "a", dict[str, Scaled], initial={"s": Scaled(2, 3), "t": Scaled(2, 3, 5)}
        )
        with agent.edit("wider") as draft:
            draft["s"].width = 5
            draft["t"].width = 5
        assert agent.state["s"].area == 15
        assert agent.state["t"].area == 30, "nobody knows the scale any more: it stays as it was"
        assert store.agent("a", dict[str, Scaled]).state == agent.state
        with pytest.raises(perdure.SchemaError, match="too small"), agent.edit("none") as draft:
            draft["s"].width = -1
