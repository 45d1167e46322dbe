"""What a place demands of the value in it is asked wherever that value changes inside."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import pytest
from annotated_types import Predicate
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
    with_config,
)
from pydantic_core import core_schema
from typing_extensions import TypedDict

import perdure
from perdure import SchemaError
from perdure.core.types.registry import Registry


def at_most_two(items: Any) -> Any:
    assert items is None or len(items) <= 2, "at most two"
    return items


def is_small(items: Any) -> bool:
    return len(items) <= 2


def paid(invoice: Invoice) -> Invoice:
    assert invoice.cents <= 100, "too much"
    return invoice


class Small:
    """An annotation of one's own."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(at_most_two, handler(source))


class Invoice(BaseModel):
    cents: int = 0


Few = Annotated[list[int] | None, AfterValidator(at_most_two)]
Modest = Annotated[Invoice, AfterValidator(paid)]


class Model(BaseModel):
    most: list[int] | None = Field(default=None, max_length=2)
    either: dict[str, int] | list[int] = Field(default=[], max_length=2)
    few: Few = None
    modest: Modest = Invoice()
    predicate: Annotated[list[int], Predicate(is_small)] = []
    own: Annotated[list[int], Small()] = []
    any: Annotated[Any, Field(max_length=2)] = []
    keys: Annotated[dict[str, int], Predicate(is_small)] = {}
    judged: Annotated[Invoice, Predicate(lambda one: one.cents <= 100)] = Invoice()
    lists: list[Few] = [[]]


@dataclass
class Data:
    few: Few = None
    modest: Modest = field(default_factory=Invoice)
    predicate: Annotated[list[int], Predicate(is_small)] = field(default_factory=list)
    any: Annotated[Any, Field(max_length=2)] = field(default_factory=list)
    most: Annotated[list[int] | None, Field(max_length=2)] = None


class Keys(TypedDict):
    few: Few
    modest: Modest
    predicate: Annotated[list[int], Predicate(is_small)]


FULL: Any = [1, 2]
CASES: dict[str, tuple[Any, Any, Callable[[Any], None]]] = {
    **{
        f"{name} of a model": (Model, Model.model_validate({name: first}), change)
        for name, first, change in [
            ("most", FULL, lambda d: d.most.append(3)),
            ("either", FULL, lambda d: d.either.extend([3])),
            ("either", {"a": 1, "b": 2}, lambda d: d.either.update(c=3)),
            ("few", FULL, lambda d: d.few.append(3)),
            ("modest", {}, lambda d: setattr(d.modest, "cents", 999)),
            ("predicate", FULL, lambda d: d.predicate.append(3)),
            ("own", FULL, lambda d: d.own.insert(0, 3)),
            ("any", FULL, lambda d: d.any.append(3)),
            ("keys", {"a": 1, "b": 2}, lambda d: d.keys.setdefault("c", 3)),
            ("judged", {}, lambda d: setattr(d.judged, "cents", 999)),
            ("lists", [FULL], lambda d: d.lists[0].append(3)),
        ]
    },
    "few of a dataclass": (Data, Data(few=FULL), lambda d: d.few.append(3)),
    "modest of a dataclass": (Data, Data(), lambda d: setattr(d.modest, "cents", 999)),
    "predicate of a dataclass": (Data, Data(predicate=FULL), lambda d: d.predicate.append(3)),
    "any of a dataclass": (Data, Data(any=FULL), lambda d: d.any.append(3)),
    "most of a dataclass": (Data, Data(most=FULL), lambda d: d.most.append(3)),
    "few of keys": (
        Keys,
        Keys(few=FULL, modest=Invoice(), predicate=[]),
        lambda d: d["few"].append(3),
    ),
    "modest of keys": (
        Keys,
        Keys(few=[], modest=Invoice(), predicate=[]),
        lambda d: setattr(d["modest"], "cents", 999),
    ),
    "the root, a list": (Few, FULL, lambda d: d.append(3)),
    "the root, an object": (
        Annotated[Invoice | None, AfterValidator(paid)],
        Invoice(),
        lambda d: setattr(d, "cents", 999),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_reader_would_refuse_is_refused(case: str) -> None:
    """`tags: list[str] | None = Field(max_length=3)`, and an edit that appended a fourth: the limit
    stood on the union, and was asked of the list alone. The commit was acknowledged, and nobody
    could read the agent any more. So it was with validators of places in dataclasses and
    TypedDicts, and with all conditions but validators and limits."""
    kind, first, change = CASES[case]
    schema: Any = perdure.Schema(kind, id="s")
    with perdure.open("memory://") as store:
        agent = store.agent("a", schema, initial=first)
        agent.checkpoint("healthy")
        with pytest.raises(SchemaError), agent.edit("too much") as draft:
            change(draft)
        assert agent.state == store.agent("a", schema).state == first
        assert not agent.drift()


def test_conditions_that_hold_let_an_edit_pass() -> None:
    with perdure.open("memory://") as store:
        first = Model(most=[1], few=[1], predicate=[1], any=[1], lists=[[1]])
        agent = store.agent("a", Model, initial=first)
        with agent.edit("some") as edited:
            draft: Any = edited
            for one in (draft.most, draft.few, draft.predicate, draft.own, draft.any):
                one.append(2)
            draft.lists[0].append(2)
            draft.lists.append(None)
            draft.modest.cents = draft.judged.cents = 7
            draft.keys["a"] = 1
        again = store.agent("a", Model).state
        assert again == agent.state
        assert again.any == [1, 2]
        assert again.modest.cents == 7
        assert again.lists == [[1, 2], None]


class Reduced(BaseModel):
    """Its marks are others' business: a framework's reducers, words, a class."""

    messages: Annotated[list[Invoice], operator.add, "appended", dict] = []
    described: Annotated[list[int], Field(description="numbers"), WithJsonSchema({})] = []


def test_marks_that_demand_nothing_cost_nothing() -> None:
    """A list with a reducer among its marks, as frameworks have, was read as a whole each time that
    something was appended to it."""
    root = Registry(Reduced).root
    for name in ("messages", "described"):
        node = root.child(name)
        assert node is not None
        assert not node.limits.judged


@with_config(ConfigDict(str_max_length=8, str_to_lower=True))
class Tags(TypedDict):
    name: str
    labels: list[str]


@with_config(ConfigDict(str_max_length=8))
@dataclass
class Author:
    name: str = ""


class Bare(TypedDict):
    name: str


class Ticket(BaseModel):
    tags: Tags
    author: Author


class Lower(BaseModel):
    model_config = ConfigDict(str_to_lower=True, str_max_length=8)
    bare: Bare
    bares: list[Bare] = []


def test_a_class_with_a_config_of_its_own_keeps_it() -> None:
    """Pydantic's config of a TypedDict, or of a dataclass, was not known where something in it was
    set: the log held what a reader refused, or showed otherwise."""
    with perdure.open("memory://") as store:
        first = Ticket(tags=Tags(name="a", labels=[]), author=Author())
        agent = store.agent("a", Ticket, initial=first)
        with agent.edit("lower") as draft:
            draft.tags["name"] = "URGENT"
            draft.tags["labels"].append("VIP")
        assert agent.state.tags == {"name": "urgent", "labels": ["vip"]}
        assert store.agent("a", Ticket).state == agent.state
        with pytest.raises(SchemaError), agent.edit("longer") as draft:
            draft.tags["labels"].append("longer than that")
        with pytest.raises(SchemaError), agent.edit("longer") as draft:
            draft.author.name = "longer than that"
        assert store.agent("a", Ticket).state == agent.state


def test_a_class_without_a_config_has_that_of_the_model_around_it() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a", Lower, initial=Lower(bare=Bare(name="A"), bares=[Bare(name="B")]))
        with agent.edit("upper") as draft:
            draft.bare["name"] = "C"
            draft.bares[0]["name"] = "D"
            draft.bares.append(Bare(name="E"))
        assert agent.state.bare == {"name": "c"}
        assert [one["name"] for one in agent.state.bares] == ["d", "e"]
        assert store.agent("a", Lower).state == agent.state
        with pytest.raises(SchemaError), agent.edit("longer") as draft:
            draft.bares[0]["name"] = "longer than that"


@dataclass
class Order:
    vip: bool = False
    notes: dict[str, str] = field(default_factory=dict)
    jobs: list[int] = field(default_factory=list)
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.vip:
            self.notes["vip"] = "call first"
        self.jobs.sort()
        self.total = sum(self.jobs)


class OrderStruct(msgspec.Struct):
    vip: bool = False
    notes: dict[str, str] = {}
    jobs: list[int] = []

    def __post_init__(self) -> None:
        if self.vip:
            self.notes["vip"] = "call first"
        self.jobs.sort()


class OrderModel(BaseModel):
    vip: bool = False
    notes: dict[str, str] = {}
    jobs: list[int] = []

    @model_validator(mode="after")
    def _tidy(self, info: ValidationInfo) -> OrderModel:
        if self.vip:
            self.notes["vip"] = "call first"
        self.jobs.sort()
        return self


@pytest.mark.parametrize("cls", [Order, OrderStruct, OrderModel])
def test_a_hook_that_changes_its_object_in_place_is_asked_on_another(cls: Any) -> None:
    """The hook of a class got a copy of the object, with the lists and dicts of the live one: what
    it changed in them stood in `agent.state` although the edit was refused; and where it was not,
    the handle that had edited showed another state than all others."""
    with perdure.open("memory://") as store:
        schema: Any = perdure.Schema(cls, id="o", invariants=[lambda after: not after.vip])
        agent = store.agent("a", schema, initial=cls(jobs=[3, 5]))
        agent.checkpoint("healthy")
        follower = store.agent("a", schema)
        with pytest.raises(SchemaError), agent.edit("vip") as draft:
            draft.vip = True
        assert agent.state == store.agent("a", schema).state == cls(jobs=[3, 5])
        assert not agent.drift()
        with agent.edit("more") as draft:
            draft.jobs.append(1)
        follower.refresh()
        assert agent.state.jobs == [1, 3, 5] == agent.at("main").plain["jobs"]
        assert follower.state == store.agent("a", schema).state == agent.state
        with agent.edit("the first") as draft:
            assert draft.jobs.pop(0) == 1
        assert store.agent("a", schema).state == agent.state == cls(jobs=[3, 5])


@dataclass
class Cash:
    till: int = 0


@dataclass
class Cheque:
    number: str = ""


@dataclass
class Payment:
    refund: Annotated[int, msgspec.Meta(ge=0)] | None = None
    code: Annotated[str, msgspec.Meta(max_length=3)] | int | None = None
    status: Literal["open", "paid"] | None = None
    pair: Annotated[tuple[int, ...], msgspec.Meta(max_length=2)] = ()
    rate: float | int | None = None


@dataclass
class PaidBy(Payment):
    paid: Cash | Cheque | None = None


@dataclass
class Late:
    length: int = field(init=False, default=0)


@dataclass
class Lists:
    few: Few = None
    order: Annotated[list[int], AfterValidator(sorted)] = field(default_factory=list)


@dataclass
class ListsAndLate(Lists):
    late: Late = field(default_factory=Late)


@pytest.mark.parametrize("cls", [Payment, PaidBy])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [("refund", -5), ("code", "ABCDE"), ("status", "rubbish"), ("pair", (1, 2, 3))],
)
def test_conditions_do_not_hang_on_what_else_is_in_a_state(cls: Any, name: str, wrong: Any) -> None:
    """A field of two classes was added to a state, which msgspec cannot validate as a whole: the
    limits of its optional numbers and texts, and its optional Literals, were not asked any more."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", cls, initial=cls())
        with pytest.raises(SchemaError), agent.edit("wrong") as draft:
            setattr(draft, name, wrong)
        with pytest.raises(SchemaError):
            agent.save(cls(**{name: wrong}))
        with agent.edit("right") as draft:
            draft.refund, draft.code, draft.status, draft.pair = 5, "ABC", "paid", (1, 2)
            draft.rate = 5
        again = store.agent("a", cls).state
        assert again == agent.state == cls(5, "ABC", "paid", (1, 2), 5)
        assert type(again.rate) is type(agent.state.rate)


@pytest.mark.parametrize("cls", [Lists, ListsAndLate])
def test_validators_do_not_hang_on_what_else_is_in_a_state(cls: Any) -> None:
    """Validators of lists were not run once a class whose constructor does not take each field was
    anywhere in the state: then it is built of its parts."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", cls, initial=cls())
        with pytest.raises(SchemaError), agent.edit("too many") as draft:
            draft.few = [1, 2, 3]
        with agent.edit("sorted") as draft:
            draft.few, draft.order = [2, 1], [2, 1]
        assert agent.state == store.agent("a", cls).state == cls(few=[2, 1], order=[1, 2])


@dataclass
class Diary:
    name: str
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = []


def test_what_an_edit_puts_into_a_derived_field_stays() -> None:
    """A field that the class begins empty still held what it had begun with, and so an edit that
    appended to it had it made anew: the line was gone again."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Diary, initial=Diary("a"))
        for line in ("one", "two"):
            with agent.edit("a line") as draft:
                draft.lines.append(line)
        with agent.edit("another name") as draft:
            draft.name = "b"
        assert agent.state.lines == store.agent("a", Diary).state.lines == ["one", "two"]
