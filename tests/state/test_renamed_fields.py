"""A field that was renamed without a new version is found: its default is not read in place of what
is stored."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

import perdure
from perdure.errors import SchemaError
from perdure.store import Store
from tests.engine.working import wait_until, working


@dataclass
class Message:
    text: str = ""


@dataclass
class NewMessage:
    body: str = ""


@dataclass
class Ticket:
    notes: str = ""
    messages: list[Message] = field(default_factory=list)


@dataclass
class NewTicket:
    remarks: str = ""
    messages: list[Message] = field(default_factory=list)


@dataclass
class TicketOfNewMessages:
    notes: str = ""
    messages: list[NewMessage] = field(default_factory=list)


OLD = perdure.Schema(Ticket, id="ticket")
NEW = perdure.Schema(NewTicket, id="ticket")
NESTED = perdure.Schema(TicketOfNewMessages, id="ticket")
PLAIN: perdure.Schema[Any] = perdure.Schema(dict, id="ticket")
RENAMED = r"'notes', unknown to NewTicket, and without 'remarks'"


def written(store: Store) -> None:
    """The agent as the program of before left it."""
    with store.agent("a", OLD).edit() as draft:
        draft.notes = "call back"
        draft.messages.append(Message("hello"))


def test_a_renamed_field_is_not_read_as_its_default(store: Store) -> None:
    """A developer renamed `notes` to `remarks` and deployed: all notes were gone from view, the
    default stood in their place, and the next edit wrote it down."""
    written(store)
    agent = store.agent("a", NEW)
    before: list[Callable[[], Any]] = [
        lambda: agent.state,
        lambda: agent.update(lambda draft: draft.messages.clear()),
        lambda: agent.save(NewTicket("new")),
        lambda: agent.undo(),
        lambda: agent.checkpoint("here"),
        lambda: agent.at(2).state,
    ]
    for call in before:
        with pytest.raises(SchemaError, match=RENAMED) as refused:
            call()
        assert "agent 'a', commit 2, state" in (refused.value.target or "")
    kinds = [commit.cause.kind for commit in agent.log()]
    assert kinds == ["create", "edit"], "nothing was written"
    assert store.agent("a", OLD).state == Ticket("call back", [Message("hello")])
    with pytest.raises(SchemaError, match=RENAMED):
        _ = agent.fork("b").state


def test_the_error_has_the_line_that_renames(store: Store) -> None:
    written(store)
    with pytest.raises(SchemaError) as refused:
        _ = store.agent("a", NEW).state
    line = "perdure.Schema(…, version=2, migrations={1: lambda old: "
    hint = str(refused.value.hint)
    assert "call the field 'notes' again" in hint
    function = hint[hint.index(line) + len(line) :].partition("})")[0]
    migration = eval(f"lambda old: {function}")
    schema = perdure.Schema(NewTicket, id="ticket", version=2, migrations={1: migration})
    agent = store.agent("a", schema)
    assert agent.state == NewTicket("call back", [Message("hello")])
    agent.update(lambda draft: draft.messages.clear())
    assert [commit.cause.kind for commit in agent.log()][2:] == ["migrate", "edit"]


def test_the_object_is_named_wherever_it_stands(store: Store) -> None:
    written(store)
    with pytest.raises(
        SchemaError, match=r"state\.messages\[0\]: .*'text'.* NewMessage"
    ) as refused:
        _ = store.agent("a", NESTED).state
    assert "one['body'] = one.pop('text')" in str(refused.value.hint)


def test_a_migration_that_leaves_the_old_name_says_so(store: Store) -> None:
    written(store)
    schema = perdure.Schema(NewTicket, id="ticket", version=2, migrations={1: lambda old: old})
    with pytest.raises(SchemaError, match=RENAMED) as refused:
        store.agent("a", schema).update(lambda draft: draft.messages.clear())
    assert "let the migration rename it" in str(refused.value.hint)
    assert store.agent("a", PLAIN).seq == 2


def test_the_ways_back_stay_open(store: Store) -> None:
    written(store)
    agent = store.agent("a", NEW)
    assert agent.at(2).plain["notes"] == "call back"
    assert store.agent("a", PLAIN).state["notes"] == "call back"
    assert not agent.verify().damages
    assert len([*agent.log()]) == 2
    agent.rollback(1)
    with pytest.raises(SchemaError, match=RENAMED):
        _ = agent.state
    assert store.agent("a", OLD).state == Ticket()


def test_another_program_of_the_same_version_is_found_while_both_run(store: Store) -> None:
    """Both programs are of version 1.0. What the other one appends has the other name."""
    theirs = store.agent("a", OLD, initial=Ticket("both know"))
    theirs.checkpoint("made")
    mine = store.agent("a", NESTED)
    shown = mine.state
    theirs.update(lambda draft: draft.messages.append(Message("hello")))
    with pytest.raises(SchemaError, match="'text', unknown to NewMessage"):
        mine.refresh()
        _ = mine.state
    assert shown == TicketOfNewMessages("both know")
    with pytest.raises(SchemaError, match="'text', unknown to NewMessage"):
        mine.update(lambda draft: draft.messages.clear())


def test_a_default_that_is_another_each_time_hides_nothing(store: Store) -> None:
    @dataclass
    class Before:
        key: str = ""

    @dataclass
    class After:
        id: str = field(default_factory=lambda: str(uuid.uuid4()))

    store.agent("b", perdure.Schema(Before, id="x")).checkpoint("made")
    agent = store.agent("b", perdure.Schema(After, id="x"))
    with pytest.raises(SchemaError, match=r"'key', unknown to .*After, and without 'id'"):
        agent.update(lambda draft: setattr(draft, "id", "mine"))
    assert agent.at(1).plain == {"key": ""}


class Model(pydantic.BaseModel):
    notes: str = ""


class AliasedModel(pydantic.BaseModel):
    remarks: str = pydantic.Field("", alias="notes")


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    remarks: str = ""


class ReadingModel(pydantic.BaseModel):
    remarks: str = ""

    @pydantic.model_validator(mode="before")
    @classmethod
    def read_notes(cls, given: Any) -> Any:
        return {"remarks": given["notes"]} if "notes" in given else given


class LookingModel(pydantic.BaseModel):
    remarks: str = ""
    id: str = pydantic.Field(default_factory=lambda: str(uuid.uuid4()))

    @pydantic.model_validator(mode="before")
    @classmethod
    def look(cls, given: Any) -> Any:
        return given


class NewStruct(msgspec.Struct):
    remarks: str = ""


class AliasedStruct(msgspec.Struct):
    remarks: str = msgspec.field(default="", name="notes")


class Keys(TypedDict):
    other: NotRequired[str]


@dataclass
class Late:
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = 0


@dataclass
class Removed:
    """`notes` was removed: nothing of this class lacks."""


@dataclass
class Added:
    notes: str = ""
    further: str = "default"


@dataclass
class InMemory:
    further: str = "default"
    notes: perdure.Ephemeral[str] = ""


@pytest.mark.parametrize(
    ("cls", "found"),
    [
        (NewTicket, True),
        (AliasedModel, True),  # an alias is for what comes in: stored names are the fields'
        (LookingModel, True),
        (NewStruct, True),
        (AliasedStruct, True),
        (Late, True),
        (OpenModel, False),
        (ReadingModel, False),
        (Removed, False),
        (Added, False),
        (Keys, False),
        (InMemory, False),
    ],
)
def test_what_counts_as_renamed(cls: Any, found: bool) -> None:
    with perdure.open("memory://") as store:
        store.agent("a", perdure.Schema(Model, id="x"), initial=Model(notes="n")).checkpoint("c")
        agent = store.agent("a", perdure.Schema(cls, id="x"))
        if found:
            with pytest.raises(SchemaError, match="'notes', unknown to"):
                _ = agent.state
        else:
            _ = agent.state
            agent.update(lambda draft: draft.update(other="o") if cls is Keys else None)


def test_a_newer_programs_field_is_its_own(store: Store) -> None:
    newer = perdure.Schema(NewTicket, id="ticket", version=(1, 1))
    store.agent("a", newer, initial=NewTicket("theirs")).checkpoint("made")
    mine = store.agent("a", OLD)
    assert mine.state == Ticket("")
    mine.update(lambda draft: draft.messages.append(Message("mine")))
    assert store.agent("a", newer).state == NewTicket("theirs", [Message("mine")])


@dataclass
class Short:
    a: int = 0


@dataclass
class Long:
    a: int = 0
    b: int = 0


class Cat(msgspec.Struct, tag="cat"):
    name: str = ""


class Dog(msgspec.Struct, tag="dog"):
    bones: int = 0


def test_of_a_union_only_where_the_class_is_certain() -> None:
    known: perdure.Schema[Any] = perdure.Schema(dict[str, Short | Long], id="x")
    known.build_stored({"one": {"a": 1, "c": 2}}, "a", 1, (1, 0))  # it may be either of them
    told: perdure.Schema[Any] = perdure.Schema(dict[str, Annotated[Cat | Dog, "tagged"]], id="x")
    with pytest.raises(SchemaError, match="'bone', unknown to Dog, and without 'bones'"):
        told.build_stored({"one": {"type": "dog", "bone": 2}}, "a", 1, (1, 0))
    maybe: perdure.Schema[Any] = perdure.Schema(dict[str, Long | Literal["x"] | None], id="x")
    with pytest.raises(SchemaError, match="'c', unknown to Long"):
        maybe.build_stored({"one": {"a": 1, "c": 2}}, "a", 1, (1, 0))


@perdure.agent(OLD, name="look")
def look(run: perdure.Run[Ticket]) -> str:
    with run.edit("noted") as draft:
        draft.notes = "noted"
    return str(run.wait_for("go", schema=str))


@perdure.agent(NEW, name="look")
def look_anew(run: perdure.Run[NewTicket]) -> str:
    with run.edit("noted") as draft:
        draft.remarks = "noted"
    return str(run.wait_for("go", schema=str))


def test_a_run_waits_for_the_program_that_knows_its_state(store: Store) -> None:
    handle = store.start(look, "r")
    with working(store, look):
        wait_until(lambda: handle.status == "waiting")
    handle.signal("go", "on")
    with pytest.raises(SchemaError, match=r"agent 'r', commit 4, state: .*'notes', unknown to"):
        store.run(look_anew, "r")
    assert handle.status == "waiting"
    assert store.run(look, "r") == "on"
    assert store.agent("r", OLD).state.notes == "noted"


def test_the_first_state_that_a_run_brings_along_is_looked_at_too(store: Store) -> None:
    store.options(initial=Ticket("brought")).start(look, "r")
    with pytest.raises(SchemaError, match=r"agent 'r', state: .*'notes', unknown to NewTicket"):
        store.run(look_anew, "r")
    assert store.handle("r/look/main").status == "pending"
