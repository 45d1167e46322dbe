"""What of pydantic holds in a state: docs/pydantic.md lists it, and each line of that is tried."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    DirectoryPath,
    Discriminator,
    Field,
    FilePath,
    FutureDate,
    HttpUrl,
    Json,
    PrivateAttr,
    RootModel,
    SecretBytes,
    SecretStr,
    SerializeAsAny,
    StrictInt,
    Tag,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

import perdure
from perdure.errors import SchemaError, Unstorable
from perdure.store import Store

T = TypeVar("T")


class BeforeAll(BaseModel):
    n: int = 0
    total: str = ""

    @model_validator(mode="before")
    @classmethod
    def told(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {**value, "total": f"{value.get('n', 0)} in all"}
        return value


class BeforeSorted(BaseModel):
    n: int = 0
    names: list[str] = ["b", "a"]

    @model_validator(mode="before")
    @classmethod
    def in_order(cls, value: Any) -> Any:
        return {**value, "names": sorted(value.get("names", []))}


class AfterAll(BaseModel):
    n: int = 0
    total: int = 0

    @model_validator(mode="after")
    def counted(self) -> Any:
        self.total = self.n * 2
        return self


class WrapAll(BaseModel):
    n: int = 0
    total: int = 0

    @model_validator(mode="wrap")
    @classmethod
    def counted(cls, value: Any, handler: Any) -> Any:
        made = handler(value)
        made.total = made.n + 1
        return made


class PostInit(BaseModel):
    n: int = 0
    total: int = 0

    def model_post_init(self, _: Any) -> None:
        self.total = self.n + 1


class OwnInit(BaseModel):
    n: int = 0

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)


class FieldValidators(BaseModel):
    n: int = 0
    before: str = "a"
    after: str = "a"
    wrapped: str = "a"
    plain: str = "a"
    marked: Annotated[str, BeforeValidator(str), AfterValidator(str.strip)] = "a"

    @field_validator("before", mode="before")
    @classmethod
    def before_it(cls, value: Any) -> Any:
        return str(value).strip()

    @field_validator("after", mode="after")
    @classmethod
    def after_it(cls, value: Any) -> Any:
        return value.strip()

    @field_validator("wrapped", mode="wrap")
    @classmethod
    def around_it(cls, value: Any, handler: Any) -> Any:
        return handler(value).strip()

    @field_validator("plain", mode="plain")
    @classmethod
    def instead_of_it(cls, value: Any) -> Any:
        return value.lower()


class Computed(BaseModel):
    n: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.n * 2

    @cached_property
    def thrice(self) -> int:
        return self.n * 3


class Private(BaseModel):
    n: int = 0
    _made: list[int] = PrivateAttr(default_factory=list)
    _fixed: int = 5


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


def kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else value.kind


class Discriminated(BaseModel):
    n: int = 0
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    other: Annotated[
        Annotated[Cat, Tag("cat")] | Annotated[Dog, Tag("dog")], Discriminator(kind_of)
    ] = Dog()


class Page(BaseModel, Generic[T]):
    n: int = 0
    first: T | None = None
    items: list[T] = []


class Numbers(Page[int]):
    pass


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    n: int = 0
    pair: tuple[int, str] = (1, "a")
    exact: StrictInt = 1


class Settings(BaseModel):
    model_config = ConfigDict(
        str_strip_whitespace=True,
        str_to_lower=True,
        validate_default=True,
        validate_assignment=True,
        use_enum_values=True,
        from_attributes=True,
        revalidate_instances="always",
    )
    n: int = Field(default=0, ge=0)
    name: str = "a"
    pet: Cat = Cat()


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    n: int = 0


class FrozenField(BaseModel):
    n: int = Field(default=0, frozen=True)


class Allows(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Forbids(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int = 0


class Serialized(BaseModel):
    n: int = Field(default=0, serialization_alias="number")
    name: str = "a"
    pet: SerializeAsAny[Cat] = Cat()

    @field_serializer("name")
    def loud(self, value: str) -> str:
        return value + "!"


class Dumped(BaseModel):
    n: int = 0

    @model_serializer
    def other(self) -> dict[str, int]:
        return {"number": self.n}


class Factories(BaseModel):
    n: int = 0
    made: list[int] = Field(default_factory=list)
    of_n: int = Field(default_factory=lambda data: data["n"] + 1)
    link: HttpUrl = HttpUrl("http://a.example/")
    constant: ClassVar[int] = 3


class Deprecated(BaseModel):
    n: int = 0
    old: int = Field(default=0, deprecated="not any more")


class CamelCase(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    n: int = 0
    full_name: str = "a"


@pydantic_dataclass
class OfPydantic:
    n: int = 0
    name: str = "a"


HOLD = (
    BeforeAll,
    BeforeSorted,
    AfterAll,
    WrapAll,
    PostInit,
    OwnInit,
    FieldValidators,
    Computed,
    Private,
    Discriminated,
    Page[int],
    Numbers,
    Strict,
    Settings,
    Frozen,
    FrozenField,
    Allows,
    Forbids,
    Serialized,
    Dumped,
    Factories,
    Deprecated,
    CamelCase,
    OfPydantic,
)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A deprecated field that the library looked at warned the program at each look."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def name_of(cls: Any) -> str:
    return str(cls.__name__)


@pytest.mark.parametrize("cls", HOLD, ids=name_of)
def test_edits_of_it_follow_each_other_and_others_see_them(store: Store, cls: Any) -> None:
    """A class with a `model_validator(mode="before")` could be edited once: the next edit said that
    the state was changed outside of an edit, which it was not."""
    agent = store.agent("a", cls, initial=cls(n=0) if cls is BeforeSorted else perdure.MISSING)
    for number in range(1, 4):
        with agent.edit(f"{number}") as draft:
            draft.n = number
        assert agent.state.n == number
        assert agent.drift() == []
    other = store.agent("a", cls)
    assert other.state == agent.state and other.drift() == []
    agent.save(copy.deepcopy(agent.state), "saved as it is")
    agent.undo()
    assert agent.state.n == 2


@pytest.mark.parametrize("cls", HOLD, ids=name_of)
def test_so_it_is_with_those_in_lists_and_dicts(store: Store, cls: Any) -> None:
    agent = store.agent("a", dict[str, list[cls]], initial={"all": [cls()]})
    with agent.edit("the first") as draft:
        draft["all"][0].n = 3
    with agent.edit("another") as draft:
        draft["all"].append(cls())
    with agent.edit("that one") as draft:
        draft["all"][1].n = 4
    assert [one.n for one in agent.state["all"]] == [3, 4]
    other = store.agent("a", dict[str, list[cls]])
    assert other.state == agent.state and other.drift() == agent.drift() == []


class Aliased(BaseModel):
    one: str = Field(default="", alias="theOne")
    two: str = Field(default="", validation_alias="theTwo")
    more: str = Field(default="", validation_alias=AliasChoices("theMore", "another"))
    inside: str = Field(default="", validation_alias=AliasChoices("in", AliasPath("names", 0)))


def test_plain_data_comes_in_by_every_name_of_a_field(store: Store) -> None:
    """What `AliasChoices` named was ignored: the field had its default, and the data was lost."""
    agent: Any = store.agent("a", list[Aliased], initial=[])
    with agent.edit("by other names") as draft:
        draft.append({"theOne": "1", "theTwo": "2", "another": "3", "in": "4"})
        draft.append({"one": "1", "two": "2", "more": "3", "inside": "4"})
        draft.append(Aliased.model_validate({"theOne": "1", "theMore": "3", "names": ["4"]}))
    first, second, third = agent.state
    assert first == second and (first.one, first.two, first.more, first.inside) == (*"1234",)
    assert (third.more, third.inside) == ("3", "4")
    assert agent.at(2).plain[0] == {"one": "1", "two": "2", "more": "3", "inside": "4"}
    assert store.agent("a", list[Aliased]).state == agent.state
    within = pytest.raises(Unstorable, match=r"Aliased\.inside would be read from inside")
    with within as refused, agent.edit("from inside") as draft:
        draft.append({"names": ["4", "5"]})
    assert "Aliased.model_validate(…)" in refused.value.hint
    twice = pytest.raises(Unstorable, match="is given under another name, too")
    with twice, agent.edit("twice") as draft:
        draft.append({"one": "1", "theOne": "2"})


def test_what_validators_make_of_plain_data_is_shown_at_once(store: Store) -> None:
    agent = store.agent("a", FieldValidators)
    with agent.edit("spaces") as draft:
        draft.before = draft.after = draft.wrapped = draft.marked = " x "
        draft.plain = "LOUD"
    shown = agent.state
    assert (shown.before, shown.after, shown.wrapped, shown.marked) == ("x", "x", "x", "x")
    assert shown.plain == "loud"
    assert store.agent("a", FieldValidators).state == shown


def test_limits_and_tags_hold_in_edits(store: Store) -> None:
    agent = store.agent("a", Settings)
    below = pytest.raises(SchemaError, match="greater than or equal to 0")
    with below, agent.edit("below") as draft:
        draft.n = -1
    pets: Any = store.agent("b", Discriminated)
    with pets.edit("a dog") as draft:
        draft.pet = {"kind": "dog"}
        draft.other = {"kind": "cat"}
    assert store.agent("b", Discriminated).state.pet == Dog()
    with pytest.raises(SchemaError), pets.edit("no pet") as draft:
        draft.pet = {"kind": "fish"}
    strict: Any = store.agent("c", Strict)
    with pytest.raises(SchemaError), strict.edit("a text") as draft:
        draft.exact = "1"


def test_extra_values_are_kept_or_refused(store: Store) -> None:
    allows: Any = store.agent("a", Allows)
    with allows.edit("more") as draft:
        draft.more = 1
    with allows.edit("other") as draft:
        draft.more += 1
    assert store.agent("a", Allows).state.more == 2  # type: ignore[attr-defined]
    for name, cls in (("b", Forbids), ("c", Frozen)):
        lists = store.agent(name, list[cls], initial=[])  # type: ignore[valid-type]
        further = pytest.raises(Unstorable, match="declares no such field")
        with further, lists.edit("more") as draft:
            draft.append({"n": 1, "more": 1})


def test_a_private_attribute_that_differs_is_refused(store: Store) -> None:
    made = Private()
    made._fixed = 6
    with pytest.raises(Unstorable, match="_fixed"):
        store.agent("a", Private, initial=made).checkpoint("c")


def test_a_program_that_reads_a_deprecated_field_is_warned(store: Store) -> None:
    agent = store.agent("a", Deprecated)
    with agent.edit("it") as draft:
        draft.old = 7
    with pytest.warns(DeprecationWarning, match="not any more"):
        assert agent.state.old == 7


# -- what is refused where it is declared --------------------------------------------------------


class Root(RootModel[list[int]]):
    pass


class HasRoot(BaseModel):
    inner: dict[str, Root] = {}


class HasSecret(BaseModel):
    inner: list[SecretStr] = []


class HasBytes(BaseModel):
    token: SecretBytes | None = None


class HasJson(BaseModel):
    data: Json[dict[str, int]] | None = None


class HasAnyJson(BaseModel):
    data: Json | None = None


class HasFile(BaseModel):
    path: FilePath | None = None


class HasFolder(BaseModel):
    inner: list[DirectoryPath] = []


class HasFuture(BaseModel):
    due: FutureDate | None = None


class Deep(BaseModel):
    items: list[HasFile] = []


REFUSED = (
    (Root, "RootModel"),
    (HasRoot, "RootModel"),
    (HasSecret, "in the clear"),
    (HasBytes, "in the clear"),
    (HasJson, "reads a text"),
    (HasAnyJson, "reads a text"),
    (HasFile, "judged by the disk"),
    (HasFolder, "judged by the disk"),
    (HasFuture, "judged by the clock"),
    (Deep, "judged by the disk"),
)


@pytest.mark.parametrize(("cls", "words"), REFUSED, ids=lambda one: getattr(one, "__name__", ""))
def test_what_no_state_may_have_is_refused_at_once(store: Store, cls: Any, words: str) -> None:
    """`store.agent` took a class with a SecretStr, or a RootModel. The first edit refused it; and
    `store.start` said that the agent's schema cannot be made without values."""
    with pytest.raises(SchemaError, match=words) as refused:
        store.agent("a", cls)
    assert refused.value.hint

    @perdure.agent(cls)
    def acts(run: perdure.Run[Any]) -> None: ...

    for ask in (store.start, store.run):
        with pytest.raises(SchemaError, match=words):
            ask(acts, "a")
    assert store.find("a") is None and store.runs() == []


class InMemory(BaseModel):
    user: str = ""
    token: perdure.Ephemeral[SecretStr] = SecretStr("")


def test_what_lives_in_memory_only_may_be_anything(store: Store) -> None:
    agent = store.agent("a", InMemory)
    with agent.edit("signed in") as draft:
        draft.user, draft.token = "ann", SecretStr("t-1")
    assert agent.state.token.get_secret_value() == "t-1"
    assert agent.at(2).plain == {"user": "ann"}
