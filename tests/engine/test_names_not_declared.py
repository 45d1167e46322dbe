"""What people and programs say in plain data comes in by its declared type, as values of states do:
a name that the type does not have is refused, and never dropped."""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

import perdure
from perdure import NeedsAttention, RunHandle, SchemaError, Signal, Store
from perdure.engine.journal.answer_schema import answer_schema, check_answer, json_schema
from tests.engine.conftest import CrashError, Crashes
from tests.engine.waits import go, records


@dataclass
class Plain:
    approve: bool = True
    limit: int = 0


class Model(pydantic.BaseModel):
    approve: bool = True
    limit: int = 0


class Struct(msgspec.Struct):
    approve: bool = True
    limit: int = 0


class Typed(TypedDict, total=False):
    approve: bool
    limit: int


@dataclass
class Other:
    why: str = ""


@dataclass
class Tree:
    name: str = ""
    below: list[Tree] = field(default_factory=list)
    by: dict[str, Tree] = field(default_factory=dict)


class Renamed(pydantic.BaseModel):
    approve: bool = pydantic.Field(default=True, alias="isApproved")


class RenamedStruct(msgspec.Struct, rename="camel"):
    is_approved: bool = True


class Camel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        extra="forbid", alias_generator=to_camel, populate_by_name=True
    )
    is_approved: bool = True


class ForbiddingStruct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    is_approved: bool = True


class Choices(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    approve: bool = pydantic.Field(
        default=True, validation_alias=pydantic.AliasChoices("isApproved", "ok")
    )


class Swapped(pydantic.BaseModel):
    approve: bool = pydantic.Field(default=True, alias="insure")
    insure: bool = pydantic.Field(default=True, alias="approve")


class SwappedStruct(msgspec.Struct, rename={"approve": "insure", "insure": "approve"}):
    approve: bool = True
    insure: bool = True


class Shared(pydantic.BaseModel):
    approve: bool = pydantic.Field(default=True, validation_alias=pydantic.AliasChoices("ok", "a"))
    insure: bool = pydantic.Field(default=True, validation_alias=pydantic.AliasChoices("ok", "i"))


class Partly(pydantic.BaseModel):
    approve: bool = True
    note: str = pydantic.Field(default="", exclude=True)


@dataclass
class Annotations:
    approve: Annotated[bool, pydantic.Field(alias="isApproved")] = True
    seed: InitVar[int] = 0


class Shortened(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        json_schema_extra=lambda schema: schema["properties"].pop("limit")
    )
    approve: bool = True
    limit: int = 0


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    approve: bool = True


class Ignoring(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="ignore")
    approve: bool = True


class Forbidding(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    approve: bool = True


class Hooked(pydantic.BaseModel):
    approve: bool = True

    @pydantic.model_validator(mode="before")
    @classmethod
    def _old_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and "ok" in given:
            return {"approve": given["ok"]}
        return given


class Yes(msgspec.Struct, tag="yes"):
    cents: int = 0


class No(msgspec.Struct, tag="no"):
    cents: int = 0


MISSPELT: dict[str, tuple[Any, Any, str]] = {
    "a dataclass": (Plain, {"aprove": False}, "aprove"),
    "a model": (Model, {"aprove": False}, "aprove"),
    "a Struct": (Struct, {"aprove": False}, "aprove"),
    "a TypedDict": (Typed, {"aprove": False}, "aprove"),
    "beside another": (Plain, {"approve": False, "limits": 5}, "limits"),
    "of a union": (Plain | Other, {"limit": 5, "why": "x"}, "why"),
    "or None": (Plain | None, {"aprove": False}, "aprove"),
    "in a list": (list[Plain], [{"limit": 5}, {"aprove": False}], "aprove"),
    "in a tuple": (tuple[int, Plain], (5, {"aprove": False}), "aprove"),
    "in a dict": (dict[str, Model], {"a": {"aprove": False}}, "aprove"),
    "in itself": (Tree, {"below": [{"by": {"x": {"naem": "y"}}}]}, "naem"),
    "that ignores": (Ignoring, {"aprove": False}, "aprove"),
    "that forbids": (Forbidding, {"aprove": False}, "aprove"),
    "that forbids and renames": (Camel, {"isAproved": False}, "isAproved"),
    "a Struct that forbids": (ForbiddingStruct, {"isAproved": False}, "isAproved"),
    "beside several aliases": (Choices, {"aprove": False}, "aprove"),
    "an alias of two fields": (Shared, {"ok": False}, "ok"),
    "what is not stored": (Partly, {"note": "x"}, "note"),
    "what only the constructor takes": (Annotations, {"seed": 5}, "seed"),
}

TAKEN: dict[str, tuple[Any, Any, Any]] = {
    "a dataclass": (Plain, {"approve": False}, Plain(False)),
    "an instance": (Plain, Plain(False), Plain(False)),
    "of a union": (Plain | Other, {"why": "x"}, Other("x")),
    "or any names": (Plain | dict[str, bool], {"aprove": False}, {"aprove": False}),
    "by its alias": (Renamed, {"isApproved": False}, Renamed(isApproved=False)),
    "by its name": (Renamed, {"approve": False}, Renamed(isApproved=False)),
    "an instance with aliases": (Renamed, Renamed(isApproved=False), Renamed(isApproved=False)),
    "an instance that forbids": (Camel, Camel(is_approved=False), Camel(is_approved=False)),
    "by the name of one": (Camel, {"is_approved": False}, Camel(is_approved=False)),
    "by the alias of one": (Camel, {"isApproved": False}, Camel(is_approved=False)),
    "a Struct that forbids": (ForbiddingStruct, ForbiddingStruct(False), ForbiddingStruct(False)),
    "by its own name": (ForbiddingStruct, {"is_approved": False}, ForbiddingStruct(False)),
    "one with choices": (Choices, Choices(ok=False), Choices(ok=False)),  # type: ignore[call-arg]
    "by no choice": (Choices, {"approve": False}, Choices(ok=False)),  # type: ignore[call-arg]
    "by the first choice": (Choices, {"isApproved": False}, Choices(ok=False)),  # type: ignore[call-arg]
    "by the second choice": (Choices, {"ok": False}, Choices(ok=False)),  # type: ignore[call-arg]
    "an own name before an alias": (Swapped, {"approve": False}, Swapped(insure=False)),
    "what its schema hides": (Shortened, {"limit": 5}, Shortened(limit=5)),
    "renamed": (RenamedStruct, {"isApproved": False}, RenamedStruct(False)),
    "that takes more": (Open, {"approve": False, "why": "x"}, Open(approve=False, why="x")),  # type: ignore[call-arg]
    "by its hook": (Hooked, {"ok": False}, Hooked(approve=False)),
    "a tagged one": (Yes | No, {"type": "no", "cents": 5}, No(5)),
    "a tagged instance": (Yes | No, No(5), No(5)),
}

of_misspelt = pytest.mark.parametrize(
    ("kind", "said", "name"), list(MISSPELT.values()), ids=list(MISSPELT)
)
of_taken = pytest.mark.parametrize(("kind", "said", "is_"), list(TAKEN.values()), ids=list(TAKEN))


def asking(kind: Any, seen: list[Any]) -> Callable[..., Any]:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        seen.append(run.ask("Refund?", schema=kind))
        return "answered"

    return act


def hearing(kind: Any, seen: list[Any]) -> Callable[..., Any]:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        came = run.select(decided=Signal("decision", schema=kind), stop=Signal("stop"))
        seen.append(came.value)
        return came.name

    return act


def waiting(store: Store, act: Callable[..., Any]) -> RunHandle[Any]:
    assert go(store, act) is None
    return store.handle("a/act/main")


@of_misspelt
def test_an_answer_with_a_name_that_is_not_declared_is_refused_at_once(
    store: Store, kind: Any, said: Any, name: str
) -> None:
    """`{"aprove": false}` was a person's answer: the name was dropped, the default counted in its
    place, and the refund was made that they had refused."""
    seen: list[Any] = []
    act = asking(kind, seen)
    handle = waiting(store, act)
    with pytest.raises(SchemaError, match=rf"declares no such field: answer.*{name}"):
        handle.answer(said)
    (question,) = handle.questions()
    assert question.refused == 0 and go(store, act) is None
    assert seen == []


@of_misspelt
def test_an_answer_that_comes_all_the_same_is_refused_by_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: Any, said: Any, name: str
) -> None:
    """An older program had put the answer in, or its JSON schema does not tell."""
    seen: list[Any] = []
    act = asking(kind, seen)
    handle = waiting(store, act)
    monkeypatch.setattr("perdure.engine.control.run_handle.check_answer", lambda *_: None)
    handle.answer(said, by="ann")
    assert go(store, act) is None
    (refused,) = records(store, kind="message-refused")
    assert refused["who"] == "ann" and name in refused["problem"]
    (question,) = handle.questions()
    assert question.refused == 1 and seen == []


@of_misspelt
def test_a_signal_with_a_name_that_is_not_declared_is_refused_and_recorded(
    store: Store, kind: Any, said: Any, name: str
) -> None:
    """A program sent a "no" under a misspelt name: the run went on with the default, a "yes"."""
    seen: list[Any] = []
    act = hearing(kind, seen)
    handle = waiting(store, act)
    handle.signal("decision", said, by="shop")
    assert go(store, act) is None
    (refused,) = records(store, kind="message-refused")
    assert refused["who"] == "shop" and name in refused["problem"]
    handle.signal("stop")
    assert go(store, act) == "stop"


@of_taken
def test_an_answer_is_taken_by_all_names_that_its_class_takes(
    store: Store, kind: Any, said: Any, is_: Any
) -> None:
    """A class was asked for whose JSON schema shows an alias: an answer under that was dropped."""
    seen: list[Any] = []
    act = asking(kind, seen)
    waiting(store, act).answer(said)
    assert go(store, act) == "answered"
    assert seen == [is_]


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@pytest.mark.parametrize("to_run", [asking, hearing])
def test_what_the_type_itself_stores_is_taken(store: Store, to_run: Callable[..., Any]) -> None:
    """A program sent a set of tuples of members as its schema stores them. It was refused, as if it
    were a person's set of numbers, which is none of members."""
    seen: list[Any] = []
    kind, sent = frozenset[tuple[Rights, ...]], frozenset({(Rights.READ, Rights.WRITE)})
    act = to_run(kind, seen)
    handle = waiting(store, act)
    stored = perdure.Schema(kind).take(sent, aliases_refused=True)
    if to_run is asking:
        handle.answer(stored)
    else:
        handle.signal("decision", stored)
    assert go(store, act) is not None
    assert seen == [sent]


@of_taken
def test_a_signal_is_taken_by_all_names_that_its_class_takes(
    store: Store, kind: Any, said: Any, is_: Any
) -> None:
    seen: list[Any] = []
    act = hearing(kind, seen)
    waiting(store, act).signal("decision", said)
    assert go(store, act) == "decided"
    assert seen == [is_]


@pytest.mark.parametrize("kind", [Yes | No, list[Yes | No], Annotated[Yes | No, "a mark"]])
def test_what_says_of_no_class_is_not_taken_for_the_first(store: Store, kind: Any) -> None:
    """Without its tag, a dict came into a state as an object of the first class of a union."""
    bare: Any = [{"cents": 5}] if kind == list[Yes | No] else {"cents": 5}
    with pytest.raises(SchemaError, match="'type' is missing"):
        store.agent("b", list[kind]).save([bare])
    seen: list[Any] = []
    act = hearing(kind, seen)
    handle = waiting(store, act)
    handle.signal("decision", bare)
    assert go(store, act) is None
    (refused,) = records(store, kind="message-refused")
    assert "'type' is missing" in refused["problem"]


def test_names_that_are_no_texts_are_no_error_of_the_run(store: Store) -> None:
    """A signal's value had a number as a key, and a class that sees names before pydantic does: the
    run failed with a TypeError of the library's."""
    seen: list[Any] = []
    act = hearing(Hooked, seen)
    handle = waiting(store, act)
    handle.signal("decision", {1: "x"})
    go(store, act)
    assert handle.status in ("waiting", "done")


@pytest.mark.parametrize(
    ("kind", "names", "further"),
    [
        (Plain, ["approve", "limit"], []),
        (Camel, ["is_approved"], ["isApproved"]),
        (Choices, ["approve"], ["isApproved", "ok"]),
        (Swapped, ["approve", "insure"], []),
        (Partly, ["approve"], []),
        (Annotations, ["approve"], []),
    ],
)
def test_a_form_shows_the_names_that_the_run_takes(
    store: Store, kind: Any, names: list[str], further: list[str]
) -> None:
    """A form was made of a question's JSON schema. It showed an alias that the run refused, so the
    run asked for ever."""
    (question,) = waiting(store, asking(kind, [])).questions()
    assert list(question.schema["properties"]) == names
    assert question.schema["propertyNames"] == {"enum": names + further}


@pytest.mark.parametrize("kind", [RenamedStruct, ForbiddingStruct, SwappedStruct])
def test_a_form_shows_the_own_names_of_a_struct(store: Store, kind: Any) -> None:
    """msgspec's JSON schema shows what a Struct renames its fields to."""
    (question,) = waiting(store, asking(kind, [])).questions()
    (shown,) = question.schema["$defs"].values()
    assert list(shown["properties"]) == list(kind.__struct_fields__)


@pytest.mark.parametrize("kind", [Renamed, Choices])
def test_one_field_by_two_names_is_refused(store: Store, kind: Any) -> None:
    """Of `{"isApproved": false, "approve": true}` the last counted: pydantic takes the first."""
    seen: list[Any] = []
    act = hearing(kind, seen)
    handle = waiting(store, act)
    handle.signal("decision", {"isApproved": False, "approve": True})
    assert go(store, act) is None
    (refused,) = records(store, kind="message-refused")
    assert "approve is given under another name, too" in refused["problem"]


def test_a_question_is_the_same_whatever_names_it_shows(store: Store) -> None:
    """The names that a question shows are no part of its identity: a run that asked it before they
    were others goes on."""
    assert list(json_schema(Camel)["properties"]) == ["isApproved"]
    assert list(answer_schema(Camel)["properties"]) == ["is_approved"]


@dataclass
class Text:
    of: Text | Number | Flag | None = None
    text: str = ""


@dataclass
class Number:
    of: Text | Number | Flag | None = None
    number: int = 0


@dataclass
class Flag:
    of: Text | Number | Flag | None = None
    flag: bool = False


def nested(depth: int, inner: dict[str, Any]) -> dict[str, Any]:
    for _ in range(depth):
        inner = {"of": inner, "flag": True}
    return inner


def test_a_deep_answer_is_looked_at_once(store: Store) -> None:
    """Each level of a recursive type was looked at for each alternative of the level above: 20
    levels took hours."""
    handle = waiting(store, asking(Text | Number | Flag, []))
    with pytest.raises(SchemaError, match=r"declares no such field.*flog"):
        handle.answer(nested(40, {"flog": True}))
    handle.answer(nested(40, {"flag": True}))


def test_a_deep_answer_is_looked_at_whoever_calls(store: Store) -> None:
    handle = waiting(store, asking(Text | Number | Flag, []))
    (question,) = handle.questions()

    def below(calls: int) -> None:
        if calls:
            below(calls - 1)
        else:
            check_answer(question, nested(99, {"flag": True}))

    below(sys.getrecursionlimit() - len(inspect.stack(0)) - 200)


# -- settled by a person -------------------------------------------------------------------------


def paying(crash: Crashes, kind: Any, seen: list[Any]) -> Callable[..., Any]:
    def pay() -> Any:
        crash("pay")
        return {}

    pay.__annotations__["return"] = kind
    tool = perdure.tool(on_crash="ask")(pay)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        seen.append(tool())
        return "paid"

    return act


def in_doubt(store: Store, crash: Crashes, act: Callable[..., Any]) -> RunHandle[Any]:
    crash.arm("pay")
    with pytest.raises(CrashError):
        store.run(act, "a")
    crash.armed.clear()
    return store.handle("a/act/main")


@of_misspelt
def test_a_settled_result_with_a_name_that_is_not_declared_needs_attention(
    store: Store, crash: Crashes, kind: Any, said: Any, name: str
) -> None:
    """`perdure settle --done '{"aprove": false}'` was a result with the default in its place."""
    seen: list[Any] = []
    act = paying(crash, kind, seen)
    handle = in_doubt(store, crash, act)
    handle.settle("pay#1", done=said)
    with pytest.raises(NeedsAttention, match=rf"settled with does not fit .*{name}"):
        store.run(act, "a")
    assert seen == []


@pytest.mark.parametrize(
    ("kind", "said", "is_"), [one for one in TAKEN.values() if type(one[1]) is dict]
)
def test_a_settled_result_is_taken_by_all_names_that_its_class_takes(
    store: Store, crash: Crashes, kind: Any, said: Any, is_: Any
) -> None:
    seen: list[Any] = []
    act = paying(crash, kind, seen)
    handle = in_doubt(store, crash, act)
    handle.settle("pay#1", done=said)
    assert store.run(act, "a") == "paid"
    assert seen == [is_]


@pytest.mark.parametrize("settled", ["before", "after"])
def test_what_does_not_fit_is_not_reused(
    store: Store, crash: Crashes, settled: Literal["before", "after"]
) -> None:
    """The run was set back, and took the result over that a person had misspelt."""
    seen: list[Any] = []
    act = paying(crash, Plain, seen)
    handle = in_doubt(store, crash, act)
    if settled == "before":
        handle.settle("pay#1", done={"aprove": False})
    handle.cancel()
    handle.retry("pay#1", effects="reuse")
    if settled == "after":
        handle.settle("pay#1", done={"aprove": False})
    with pytest.raises(NeedsAttention, match="was made before"):
        store.run(act, "a")
    handle.settle("pay#1", done={"approve": False})
    assert store.run(act, "a") == "paid"
    assert seen == [Plain(False)]
