"""Schemas: taking typed values apart, putting them together, versions, invariants, drift."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import ipaddress
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypeVar,
)

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from typing_extensions import TypedDict

import perdure
from perdure.core.draft.draft import Recording
from perdure.core.live.drift import Drift
from perdure.core.schema.schema import Ephemeral, Schema, invariant, transitions
from perdure.core.values.plain_values import copy, same
from perdure.errors import SchemaError, SharedValue, Unstorable
from perdure.missing import MISSING

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int


class Inner(BaseModel):
    n: int = 0


class Derived(Inner):
    extra: int = 1


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Tree(BaseModel):
    label: str = ""
    children: list[Tree] = []


class Box(BaseModel, Generic[T]):
    item: T


@dataclass
class Address:
    street: str
    zip: str = ""


@dataclass
class Shelf(Generic[T]):
    items: list[T] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Job(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    job_name: str
    retries_left: int = 3


class CatStruct(msgspec.Struct, tag="cat"):
    lives: int = 9


class DogStruct(msgspec.Struct, tag="dog"):
    lives: int = 1


UserId = NewType("UserId", int)


class Everything(BaseModel):
    color: Color = Color.RED
    when: dt.datetime | None = None
    price: Decimal = Decimal("1.50")
    where: Path = Path("a/b")
    host: ipaddress.IPv4Address = ipaddress.IPv4Address("10.0.0.1")
    point: Point = Point(1, 2)
    pair: tuple[int, str] = (1, "a")
    many: tuple[Inner, ...] = ()
    names: set[str] = set()
    colors: frozenset[Color] = frozenset()
    by_color: dict[Color, Inner] = {}
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    maybe: Inner | str | None = None
    user: UserId = UserId(1)
    anything: Any = None
    raw: dict[str, Any] = {}
    address: Address | None = None
    movie: Movie | None = None
    box: Box[int] | None = None
    data: bytes = b""
    url: pydantic.HttpUrl | None = None


@dataclass
class Standard:
    color: Color = Color.RED
    where: PurePosixPath = field(default_factory=lambda: PurePosixPath("x"))
    share: Fraction = Fraction(1, 3)
    point: Point = field(default_factory=lambda: Point(1, 2))
    address: Address | None = None
    shelf: Shelf[int] = field(default_factory=Shelf)
    addresses: dict[str, Address] = field(default_factory=dict)
    pet: CatStruct | DogStruct = field(default_factory=CatStruct)
    job: Job | None = None
    movie: Movie | None = None
    user: UserId = UserId(1)


def take(schema: Schema[Any], value: Any) -> Any:
    return schema.take(value, aliases_refused=True)


def round_trip(type_: Any, value: Any) -> Any:
    schema: Schema[Any] = Schema(type_)
    plain = take(schema, value)
    built = schema.build(plain)
    assert built == value
    assert same(take(schema, built), plain)
    assert schema.drift(built, plain) == []
    return plain


# Taking and building


def test_everything_of_pydantic_round_trips() -> None:
    value = Everything(
        color=Color.BLUE,
        when=dt.datetime.fromisoformat("2024-01-01T00:00:00Z"),
        many=(Inner(n=1),),
        names={"a"},
        colors=frozenset({Color.RED}),
        by_color={Color.BLUE: Inner(n=2)},
        pet=Dog(tricks=["sit"]),
        maybe=Inner(n=3),
        anything={"a": [1, (2, 3)]},
        raw={"x": {"y": b"z"}},
        address=Address("s"),
        movie={"title": "m"},
        box=Box[int](item=1),
        data=b"\x00",
        url=pydantic.HttpUrl("https://a.example/b"),
    )
    plain = round_trip(Everything, value)
    assert plain["color"] == "blue"
    assert plain["where"] == "a/b"
    assert plain["point"] == (1, 2)
    assert plain["by_color"] == {"blue": {"n": 2}}
    assert plain["pet"] == {"kind": "dog", "tricks": ["sit"]}
    assert plain["url"] == "https://a.example/b"


def test_everything_of_the_standard_library_and_msgspec_round_trips() -> None:
    value = Standard(
        color=Color.BLUE,
        address=Address("s", "z"),
        shelf=Shelf([1, 2]),
        addresses={"a": Address("b")},
        pet=DogStruct(lives=2),
        job=Job(job_name="j"),
        movie={"title": "m", "year": 1},
    )
    plain = round_trip(Standard, value)
    assert plain["share"] == "1/3"
    assert plain["pet"] == {"type": "dog", "lives": 2}
    assert plain["job"] == {"job_name": "j", "retries_left": 3}, "by field name, not by alias"


def test_defaults_are_stored_at_creation() -> None:
    assert take(Schema(Cat), Cat()) == {"kind": "cat", "lives": 9}


def test_recursive_classes() -> None:
    round_trip(Tree, Tree(label="a", children=[Tree(label="b", children=[Tree()])]))


def test_generic_classes_and_containers_as_types() -> None:
    round_trip(Box[list[int]], Box[list[int]](item=[1]))
    round_trip(Shelf[Address], Shelf([Address("s")]))
    round_trip(list[Cat | Dog], [Cat(), Dog()])
    round_trip(dict[str, int], {"a": 1})
    round_trip(Cat | Dog, Dog())


def test_nothing_is_shared_between_typed_and_plain() -> None:
    for type_, value in (
        (Everything, Everything(anything={"a": [[1]]}, raw={"b": {"c": []}})),
        (dict, {"a": [[1]], "t": ([2],)}),
        (Movie, {"title": "t"}),
    ):
        schema: Schema[Any] = Schema(type_)
        plain = take(schema, value)
        built = schema.build(plain)
        inside = built if isinstance(built, dict) else built.anything
        if "a" in inside:
            inside["a"][0].append(5)
        if "t" in inside:
            inside["t"][0].append(5)
        assert same(plain, take(schema, value))


def test_scalars_are_stored_as_their_type_has_them() -> None:
    class Model(BaseModel):
        n: int
        when: dt.datetime

    plain = take(Schema(Model), {"n": "5", "when": "2024-01-01T02:00:00+02:00"})
    assert plain["n"] == 5
    zone = dt.timezone(dt.timedelta(hours=2))
    assert same(plain["when"], dt.datetime(2024, 1, 1, 2, tzinfo=zone))


def test_aliases_are_read_and_names_are_stored() -> None:
    class Model(BaseModel):
        user_name: str = Field(alias="userName")

    schema: Schema[Any] = Schema(Model)
    assert take(schema, Model(userName="a")) == {"user_name": "a"}
    assert take(schema, {"userName": "a"}) == {"user_name": "a"}
    assert schema.build({"user_name": "a"}).user_name == "a"


def test_computed_private_and_excluded_fields_are_not_stored() -> None:
    class Model(BaseModel):
        a: int = 1
        hidden: int = Field(5, exclude=True)
        _secret: int = 3

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def twice(self) -> int:
            return self.a * 2

    schema: Schema[Any] = Schema(Model)
    assert take(schema, Model(a=2, hidden=9)) == {"a": 2}
    assert schema.build({"a": 2}).hidden == 5


def test_extra_fields_of_an_open_model_are_stored() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int = 1

    plain = round_trip(Open, Open(a=2, b=[3]))  # type: ignore[call-arg]
    assert plain == {"a": 2, "b": [3]}


def test_strict_models() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        color: Color
        names: set[str] = set()

    round_trip(Strict, Strict(color=Color.RED, names={"a"}))


# Refusing


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (list[Inner], [Inner(), Derived()], "state[1]"),
        (dict[str, Inner | None], {"a": Derived()}, "state.a"),
        (list[Inner], [{"n": 1, "m": 2}], "state[0].m"),
        (Any, {"a": [Inner()]}, "state.a[0]"),
        (dict, {"a": object()}, "state.a"),
        (Everything, Everything(raw={"x": Inner()}), "state.raw.x"),
        (dict[str, list[Address]], {"a": [Address("s"), Inner()]}, "state.a[1]"),
    ],
)
def test_what_would_not_come_back_is_refused(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(Unstorable) as caught:
        take(Schema(type_), value)
    assert caught.value.target == path


def test_a_secret_is_refused_because_its_dump_hides_it() -> None:
    class Model(BaseModel):
        inner: dict[str, SecretStr] = {}

    with pytest.raises(Unstorable) as caught:
        take(Schema(Model), Model(inner={"k": SecretStr("x")}))
    assert caught.value.target == "state.inner.k"


def test_an_attribute_that_the_class_does_not_declare_is_refused() -> None:
    address = Address("s")
    address.more = 1  # type: ignore[attr-defined]
    with pytest.raises(Unstorable, match=r"state\.more"):
        take(Schema(Address), address)


def test_unions_whose_members_cannot_be_told_apart_are_refused() -> None:
    class One(BaseModel):
        a: int = 0

    class Two(BaseModel):
        a: int = 0

    with pytest.raises(Unstorable, match="would come back as a"):
        take(Schema(list[One | Two]), [Two()])


def test_a_validator_that_never_rests_is_refused() -> None:
    class Restless(BaseModel):
        text: Annotated[str, pydantic.AfterValidator(lambda text: text + "!")]

    with pytest.raises(Unstorable) as caught:
        take(Schema(Restless), Restless(text="a"))
    assert caught.value.target == "state.text"


def test_values_that_do_not_fit_name_each_path() -> None:
    with pytest.raises(SchemaError) as caught:
        Schema(Everything).build({"price": "x", "names": 3})
    assert "state.price" in str(caught.value) and "state.names" in str(caught.value)
    with pytest.raises(SchemaError) as caught:
        Schema(list[Address]).build([{"street": "a"}, {"street": 1}])
    assert caught.value.target == "state[1].street"


def test_cycles_and_aliases() -> None:
    inner: list[Any] = []
    with pytest.raises(SharedValue, match=r"state\[0\]"):
        Schema(dict[str, Any]).take([inner, inner], (), Any, aliases_refused=True)
    assert Schema(dict).take([inner, inner], (), Any, aliases_refused=False) == [[], []]
    inner.append(inner)
    with pytest.raises(SharedValue, match="cycle"):
        Schema(dict).take({"a": inner}, aliases_refused=False)
    cat = Cat()
    with pytest.raises(SharedValue):
        take(Schema(list[Cat]), [cat, cat])


def test_types_that_cannot_be_edited_are_refused_at_once() -> None:
    import collections

    class Root(pydantic.RootModel[list[int]]):
        pass

    for type_ in (collections.deque[int], Root, list[collections.defaultdict[str, int]]):
        with pytest.raises(SchemaError):
            Schema(type_).build([])


def test_a_state_without_a_type_is_a_dict() -> None:
    with pytest.raises(SchemaError):
        Schema.of(None).build([])
    assert Schema.of(None).id == "dict"


# Identity and versions


def test_ids_and_versions() -> None:
    assert Schema.of(Cat).id == "Cat"
    schema: Schema[Cat] = Schema(Cat, id="cat", version=3)
    assert Schema.of(schema) is schema
    assert (schema.id, schema.version, schema.type) == ("cat", (3, 0), Cat)


def test_migrations_run_one_major_version_at_a_time() -> None:
    def two(state: dict[str, Any]) -> dict[str, Any]:
        state["lives"] = state.pop("count")
        return state

    def three(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "lives": state["lives"] + 1}

    schema: Schema[Any] = Schema(Cat, version=(3, 1), migrations={1: two, 2: three})
    stored = {"count": 1}
    assert schema.migrate(stored, (1, 0)) == {"lives": 2}
    assert stored == {"count": 1}
    assert schema.migrate({"lives": 2}, (3, 7)) == {"lives": 2}, "a newer minor version is fine"


def test_migrations_that_are_missing_fail_or_are_of_a_newer_program() -> None:
    schema: Schema[Any] = Schema(Cat, version=3, migrations={2: lambda state: 1 / 0})  # type: ignore[dict-item,return-value]
    with pytest.raises(SchemaError, match="no migration from major version 1") as caught:
        schema.migrate({}, (1, 0))
    assert "migrations={1: fn}" in caught.value.hint
    with pytest.raises(SchemaError, match="division"):
        schema.migrate({}, (2, 0))
    with pytest.raises(SchemaError, match="written by a newer program"):
        schema.migrate({}, (4, 0))


def test_fields_of_newer_minor_versions_are_ignored_even_where_forbidden() -> None:
    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid")
        n: int = 0
        inner: Closed | None = None

    schema: Schema[Any] = Schema(dict[str, list[Closed]])
    plain = {"a": [{"n": 1, "new": 2, "inner": {"new": {"x": 1}}}]}
    assert schema.build(plain) == {"a": [Closed(n=1, inner=Closed())]}
    with pytest.raises(SchemaError, match=r"state\.a\[0\]\.new"):
        schema.build(plain, tolerate_unknown=False)
    assert Schema(Job).build({"job_name": "a", "new": 1}) == Job(job_name="a")


class Mixed(TypedDict, total=False):
    needed: Required[int]
    marked: Annotated[Required[int], "a mark"]
    free: NotRequired[list[str]]
    other: list[int]


@dataclass
class WithMixed:
    one: Mixed | None = None


class ModelWithMixed(BaseModel):
    one: Mixed | None = None
    many: list[Mixed] = []


def test_required_keys_of_a_typed_dict() -> None:
    """`Required` was handed to the libraries as if it were a type.

    At the root the agent opened, and the first edit failed; in a pydantic class it was "cannot
    validate typing.Required[int]". Written under `from __future__ import annotations`, it did not
    make the key required either.
    """
    value = {"needed": 1, "marked": 2}
    schemas: list[Schema[Any]] = [Schema(Mixed), Schema(WithMixed), Schema(ModelWithMixed)]
    for schema in schemas:
        at = ("one",) if schema.type is not Mixed else ()
        plain = schema.take(value if not at else {"one": value}, aliases_refused=True)
        recording = Recording(schema, copy(plain))
        draft = recording.draft if not at else recording.draft.one
        draft["needed"] = 5
        draft["free"] = ["x"]
        with pytest.raises(SchemaError, match="a required key cannot be deleted"):
            del draft["needed"]
        typed = schema.plan(
            schema.build(plain), recording.plain, recording.ops, recording.inverses
        ).apply()
        found = typed if not at else typed["one"] if type(typed) is dict else typed.one
        assert found == {"needed": 5, "marked": 2, "free": ["x"]}
        missing: Any = {"needed": 1}
        with pytest.raises(SchemaError, match="required"):
            schema.take(missing if not at else {"one": missing}, aliases_refused=True)
            schema.build(missing if not at else {"one": missing})


def test_unknown_fields_survive_a_whole_value() -> None:
    schema: Schema[Any] = Schema(dict[str, list[Inner]])
    old = {"a": [{"n": 1, "new": 1}, {"n": 2, "new": 2}], "b": [{"n": 3, "new": 3}]}
    new = {"a": [{"n": 1}, {"n": 5}], "b": [{"n": 3}, {"n": 4}]}
    assert schema.merge_unknown(old, new) == {
        "a": [{"n": 1, "new": 1}, {"n": 5, "new": 2}],
        "b": [{"n": 3, "new": 3}, {"n": 4}],
    }
    shorter = {"a": [{"n": 2}], "b": []}
    assert schema.merge_unknown(old, shorter) == {"a": [{"n": 2, "new": 2}], "b": []}


# Invariants


class Flow(BaseModel):
    status: str = "new"
    messages: list[Inner] = []


def test_invariants_see_before_and_after() -> None:
    calls = []

    def both(before: Any, after: Any) -> None:
        calls.append((before, after))

    def positive(after: Any) -> bool:
        return bool(after.status != "bad")

    schema: Schema[Any] = Schema(Flow, invariants=[both, positive])
    schema.check_invariants(None, Flow(), [()])
    assert calls == [(None, Flow())]
    with pytest.raises(SchemaError, match="positive"):
        schema.check_invariants(Flow(), Flow(status="bad"), [("status",)])


def test_an_invariant_that_raises_says_why() -> None:
    def never(after: Any) -> None:
        raise KeyError("because")

    with pytest.raises(SchemaError, match=r"invariant never .*because"):
        Schema(Flow, invariants=[never]).check_invariants(None, Flow(), [()])


@pytest.mark.parametrize(
    ("touched", "runs"),
    [
        (("status",), True),
        (("messages", 3, "role"), True),
        ((), True),
        (("other",), False),
        (("messages",), True),
    ],
)
def test_invariants_of_paths(touched: tuple[Any, ...], runs: bool) -> None:
    seen = []

    @invariant("status", "messages[3].role")
    def watch(after: Any) -> None:
        seen.append(after)

    Schema(Flow, invariants=[watch]).check_invariants(None, Flow(), [touched])
    assert bool(seen) is runs


async def later(after: Any) -> bool:
    return False


def in_steps(after: Any) -> Any:
    yield False


def test_an_invariant_whose_code_does_not_run_holds_nothing_and_is_refused() -> None:
    """Story: an `async def` invariant was taken. Each commit got a coroutine of it, which counts as
    true: a balance went below zero under a guard that looked as if it were there."""
    for refused in (later, in_steps, functools.partial(later)):
        with pytest.raises(TypeError, match="runs none of its code"):
            Schema(Flow, invariants=[refused])
    for hidden in (lambda after: later(after), lambda after: in_steps(after)):
        with pytest.raises(SchemaError, match="still to be computed"):
            Schema(Flow, invariants=[hidden]).check_invariants(None, Flow(), [()])


class OtherBool:
    """The answer of a library of arrays: not Python's own, and equal to that."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return other is self.value

    __hash__ = None  # type: ignore[assignment]


class Many:
    """Answers for each of many, as an array does."""

    def __eq__(self, other: object) -> Many:  # type: ignore[override]
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def test_an_invariant_may_answer_with_the_false_of_another_library() -> None:
    """An invariant compared numbers of numpy, whose False is not Python's: it held nothing back,
    and weights below zero were committed."""

    def check(answer: Any) -> None:
        Schema(Flow, invariants=[lambda after: answer]).check_invariants(None, Flow(), [()])

    for no in (OtherBool(False), Many()):
        with pytest.raises(SchemaError, match="does not hold"):
            check(no)
    held: list[Any] = [OtherBool(True), None, True, 0, 0.0, "", [], {}]
    for answer in held:
        check(answer)


def test_a_path_from_the_end_of_a_list_is_concerned_by_each_change_of_the_list() -> None:
    """Story: `transitions("invoices[-1].status", …)` was taken, and never asked: ops count from the
    beginning. A paid invoice was opened again."""
    schema: Schema[Any] = Schema(
        dict, id="d", invariants=[transitions("invoices[-1].status", {"open": ["paid"]})]
    )
    with perdure.open("memory://") as store:
        agent = store.agent("a", schema, initial={"invoices": [{"status": "paid"}]})
        agent.checkpoint("made")
        with pytest.raises(SchemaError, match="may not go from 'paid' to 'open'"):
            agent.update(lambda draft: draft["invoices"][-1].update(status="open"))
        agent.update(lambda draft: draft.update(other=1))


@pytest.mark.parametrize(
    ("allowed", "word"),
    [
        ({"draft": "sent"}, r"for one, write \['sent'\]"),
        ({"draft": None}, "allowed\\['draft'\\] must be a list of values"),
        ({None: 1}, "allowed\\[None\\] must be a list of values"),
        ({"draft": [["sent"]]}, "must be a list of values"),
        ([("draft", "sent")], "allowed must be {old: "),
    ],
)
def test_transitions_that_are_none_are_refused_at_once(allowed: Any, word: str) -> None:
    """`{"draft": "sent"}` was taken, as the four letters: nothing was ever sent, and the message
    said "only to 'e', 'n', 's', 't'". Others raised Python's words from deep within."""
    with pytest.raises(TypeError, match=word):
        transitions("status", allowed)


def test_transitions() -> None:
    machine = transitions("status", {"new": ["open"], "open": {"done", "new"}})
    schema: Schema[Any] = Schema(Flow, invariants=[machine])
    schema.check_invariants(None, Flow(status="anything"), [()])
    for old, new in (("new", "open"), ("open", "done"), ("done", "done")):
        schema.check_invariants(Flow(status=old), Flow(status=new), [("status",)])
    for old, new in (("new", "done"), ("done", "new")):
        with pytest.raises(SchemaError, match=f"from '{old}' to '{new}'") as caught:
            schema.check_invariants(Flow(status=old), Flow(status=new), [("status",)])
        assert caught.value.target == "state.status"


def test_an_invariant_with_other_arguments_is_refused() -> None:
    with pytest.raises(SchemaError, match="takes 3 arguments"):
        Schema(Flow, invariants=[lambda a, b, c: True])


# Ephemeral fields and drift


class Holder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    n: int = 1
    client: Ephemeral[object | None] = None
    inner: Inner = Inner()
    items: list[Inner] = []
    _cache: int = 0


@dataclass
class HolderDataclass:
    n: int = 1
    client: Ephemeral[Any] = None


def test_ephemeral_fields_are_not_stored() -> None:
    assert "client" not in take(Schema(Holder), Holder(client=object()))
    assert take(Schema(HolderDataclass), HolderDataclass(client=object())) == {"n": 1}
    assert Schema(HolderDataclass).build({"n": 2}) == HolderDataclass(2)


def test_an_ephemeral_field_needs_a_default() -> None:
    class Bad(BaseModel):
        client: Ephemeral[int]

    with pytest.raises(SchemaError, match="no default"):
        take(Schema(Bad), Bad(client=1))


def test_drift_finds_everything() -> None:
    schema: Schema[Any] = Schema(Holder)
    plain = take(schema, Holder(items=[Inner(n=1)]))
    live = schema.build(plain)
    live.n = 2
    live.client = "c"
    live.inner.n = 3
    live.items.append(Inner(n=4))
    live._cache = 5
    found = {one.path: one for one in schema.drift(live, plain)}
    assert set(found) == {
        "state.n",
        "state.inner.n",
        "state.items[1]",
        "state._cache",
    }
    assert found["state.n"] == Drift("state.n", 2, 1, "changed in memory only")
    assert found["state.items[1]"].in_log is MISSING


def test_drift_of_attributes_outside_the_schema() -> None:
    live = HolderDataclass()
    live.more = 1  # type: ignore[attr-defined]
    assert [one.path for one in Schema(HolderDataclass).drift(live, {"n": 1})] == ["state.more"]


def test_a_default_that_is_not_stored_is_no_drift() -> None:
    schema: Schema[Any] = Schema(Holder)
    assert schema.drift(schema.build({"n": 1}), {"n": 1}) == []
    assert schema.drift(Holder(inner=Inner(n=7)), {"n": 1})[0].path == "state.inner"


def test_an_unstorable_value_in_memory_is_drift() -> None:
    live = {"a": 1, "b": object()}
    (found,) = Schema(dict).drift(live, {"a": 1, "b": 2})
    assert found.path == "state.b" and "cannot be stored" in found.reason


def test_pydantic_is_not_imported_for_schemas_without_it() -> None:
    program = (
        "import sys; from dataclasses import dataclass\n"
        "from perdure.core.draft.draft import Recording\n"
        "from perdure.core.schema.schema import Schema\n"
        "@dataclass\nclass A:\n    a: int = 1\n"
        "s = Schema(A); p = s.take(A(), aliases_refused=True); t = s.build(p)\n"
        "r = Recording(s, p); r.draft.a = 2; s.plan(t, p, r.ops, r.inverses).apply()\n"
        "assert t.a == 2 and 'pydantic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
