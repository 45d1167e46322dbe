"""Drafts: they look like the object, record what is done, and refuse what would not last."""

from __future__ import annotations

import copy
import dataclasses
import enum
import pickle
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, model_validator

from perdure.core.draft.draft import Recording, increment, move, view
from perdure.core.schema.schema import Ephemeral, Schema
from perdure.core.values.ops import (
    Append,
    Delete,
    Increment,
    Move,
    Set,
    SetAdd,
    SetRemove,
    Splice,
    TextSplice,
)
from perdure.core.values.plain_values import same
from perdure.errors import SchemaError, SharedValue, Unstorable

LONG = "word " * 40


class Role(enum.Enum):
    USER = "user"
    BOT = "bot"


class Message(BaseModel):
    role: Role = Role.USER
    content: str = ""
    tags: list[str] = []

    def shout(self) -> str:
        return self.content.upper()

    @property
    def first_tag(self) -> str:
        return self.tags[0]

    @first_tag.setter
    def first_tag(self, tag: str) -> None:
        self.tags[0] = tag

    def __len__(self) -> int:
        return len(self.content)


class Ticket(BaseModel):
    customer: str = "c"
    messages: list[Message] = []
    by_role: dict[Role, list[Message]] = {}
    roles: set[Role] = set()
    pair: tuple[int, Message] | None = None
    cents: int = 0
    reply: Message | None = None
    client: Ephemeral[Any] = None

    def say(self, text: str) -> Message:
        self.messages.append(Message(role=Role.BOT, content=text))
        return self.messages[-1]

    @classmethod
    def make(cls) -> str:
        return cls.__name__


class Movie(TypedDict, total=False):
    title: str
    cast: list[str]


def record(value: Any, type_: Any = None) -> Recording:
    schema: Schema[Any] = Schema(type_ if type_ is not None else type(value))
    return Recording(schema, schema.take(value, aliases_refused=True))


def draft_ticket(*texts: str) -> tuple[Any, Recording]:
    recording = record(Ticket(messages=[Message(content=text, tags=["t"]) for text in texts]))
    return recording.draft, recording


# Looking like the object


def test_a_draft_looks_like_the_object() -> None:
    draft, recording = draft_ticket("a", "b")
    assert isinstance(draft, Ticket) and isinstance(draft.messages, list)
    assert draft.messages is draft.messages
    assert draft.messages[0] is draft.messages[-2]
    assert draft.messages[0].role is Role.USER
    assert draft.messages[0] == Message(content="a", tags=["t"])
    assert draft.messages == [Message(content="a", tags=["t"]), draft.messages[1]]
    assert [message.content for message in reversed(draft.messages)] == ["b", "a"]
    assert draft.messages[1:] == [draft.messages[1]]
    assert draft.messages[0].shout() == "A" and len(draft.messages[0]) == 1
    assert draft.make() == "Ticket"
    assert draft.messages[0].model_dump()["content"] == "a"
    assert repr(draft.messages[0]) == repr(Message(content="a", tags=["t"]))
    assert draft.messages[0].first_tag == "t"
    with pytest.raises(AttributeError, match="nothing"):
        draft.nothing  # type: ignore[attr-defined]
    assert not hasattr(draft, "nothing")
    assert recording.ops == []


def test_methods_and_property_setters_of_the_class_record() -> None:
    draft, recording = draft_ticket("a")
    said = draft.say("hello")
    said.content = "hi"
    draft.messages[0].first_tag = "new"
    assert recording.ops == [
        Append(("messages",), [{"role": "bot", "content": "hi", "tags": []}]),
        Set(("messages", 0, "tags", 0), "new"),
    ]


def test_a_copy_is_detached_and_typed() -> None:
    draft, recording = draft_ticket("a")
    for copied in (copy.copy(draft.messages[0]), copy.deepcopy(draft.messages[0])):
        assert type(copied) is Message
        copied.content = "x"
    assert type(copy.deepcopy(draft.messages)) is list
    assert type(draft.messages.copy()[0]) is Message
    assert recording.ops == []
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(draft)


def test_dataclass_functions_work_on_drafts() -> None:
    @dataclasses.dataclass
    class Point:
        x: int = 1
        on: list[int] = dataclasses.field(default_factory=list)

    recording = record(Point())
    assert [one.name for one in dataclasses.fields(recording.draft)] == ["x", "on"]
    assert dataclasses.asdict(recording.draft) == {"x": 1, "on": []}


def test_reading_records_nothing_and_reads_typed_values() -> None:
    recording = record(
        Ticket(by_role={Role.BOT: [Message()]}, roles={Role.USER}, pair=(1, Message(content="p")))
    )
    draft = recording.draft
    assert list(draft.by_role) == [Role.BOT] and draft.by_role[Role.BOT][0] == Message()
    assert Role.BOT in draft.by_role and Role.USER not in draft.by_role
    assert Role.USER in draft.roles and list(draft.roles) == [Role.USER]
    assert draft.pair[1].content == "p"
    assert draft == Ticket(
        by_role={Role.BOT: [Message()]}, roles={Role.USER}, pair=(1, Message(content="p"))
    )
    assert recording.ops == []


def test_typed_keys_and_members_are_recorded_as_plain_ones() -> None:
    recording = record(Ticket())
    draft = recording.draft
    draft.by_role[Role.USER] = []
    draft.by_role[Role.USER].append(Message())
    draft.roles.add(Role.BOT)
    draft.roles.add("user")
    draft.roles.discard(Role.BOT)
    assert recording.plain["by_role"] == {"user": [{"role": "user", "content": "", "tags": []}]}
    assert recording.ops[1:] == [
        SetAdd(("roles",), ["bot"]),
        SetAdd(("roles",), ["user"]),
        SetRemove(("roles",), ["bot"]),
    ]
    with pytest.raises(SchemaError):
        draft.by_role["nobody"] = []


def test_what_is_inside_a_tuple_cannot_change() -> None:
    recording = record(Ticket(pair=(1, Message(tags=["a"]))))
    with pytest.raises(SchemaError, match="tuple") as caught:
        recording.draft.pair[1].content = "x"
    assert caught.value.target == "state.pair[1]"
    with pytest.raises(SchemaError, match="tuple"):
        recording.draft.pair[1].tags.append("b")
    recording.draft.pair = (2, Message())
    assert len(recording.ops) == 1


def test_typed_dicts_show_declared_keys() -> None:
    schema: Schema[Any] = Schema(Movie)
    recording = Recording(schema, {"title": "t", "new": 1})
    assert dict(recording.draft) == {"title": "t"} and len(recording.draft) == 1
    with pytest.raises(SchemaError, match="no such field"):
        recording.draft["other"] = 1
    recording.draft.clear()
    assert recording.plain == {"new": 1}


# What is recorded


def test_appends_to_a_list_become_one_op() -> None:
    draft, recording = draft_ticket("a")
    draft.messages.append(Message(content="b"))
    draft.customer = "x"
    draft.messages.extend([Message(content="c"), {"content": "d"}])
    draft.messages += [Message(content="e")]
    append, _ = recording.ops
    assert isinstance(append, Append) and len(append.values) == 4
    assert recording.inverses[0] == Splice(("messages",), 1, 4, [])
    assert [op.path for op in recording.ops] == [("messages",), ("customer",)]


def test_setting_a_field_twice_is_one_op_with_the_first_inverse() -> None:
    draft, recording = draft_ticket()
    draft.cents = 1
    draft.customer = "x"
    draft.cents = 2
    assert recording.ops == [Set(("cents",), 2), Set(("customer",), "x")]
    assert recording.inverses == [Set(("cents",), 0), Set(("customer",), "c")]


def test_setting_an_equal_value_records_nothing_but_1_and_true_differ() -> None:
    recording = record({"a": 1, "b": [1]})
    recording.draft["a"] = 1
    recording.draft["b"] = [1]
    recording.draft["b"] = recording.draft["b"]
    assert recording.ops == []
    recording.draft["a"] = True
    assert same(recording.ops[0].value, True)  # type: ignore[union-attr]


def test_a_container_brought_in_carries_its_final_content() -> None:
    draft, recording = draft_ticket()
    draft.reply = Message(content="a")
    draft.reply.content = "b"
    draft.reply.tags.append("t")
    draft.reply = Message(content="c")
    draft.reply.tags += ["u"]
    assert recording.ops == [Set(("reply",), {"role": "user", "content": "c", "tags": ["u"]})]
    assert recording.inverses == [Set(("reply",), None)]


def test_long_texts_are_spliced() -> None:
    recording = record({"text": LONG})
    recording.draft["text"] += "more "
    recording.draft["text"] += "and more"
    assert recording.ops == [TextSplice(("text",), len(LONG), 0, "more and more")]
    assert recording.inverses == [TextSplice(("text",), len(LONG), 13, "")]


def test_items_are_found_where_they_are_now() -> None:
    draft, recording = draft_ticket("a", "b", "c")
    last = draft.messages[2]
    del draft.messages[0]
    last.content = "x"
    move(draft.messages, 1, 0)
    last.content = "y"
    draft.messages.insert(0, Message())
    last.tags.append("z")
    assert [type(op) for op in recording.ops] == [Splice, Set, Move, Splice, Append]
    assert recording.ops[1] == Set(("messages", 1, "content"), "y"), "one op, at its first place"
    assert recording.ops[4].path == ("messages", 1, "tags")


def test_increment_and_move() -> None:
    draft, recording = draft_ticket("a", "b", "c")
    increment(draft, "cents", 5)
    increment(draft, "cents", -2)
    move(draft.messages, 0, -1)
    assert recording.ops == [
        Increment(("cents",), 5),
        Increment(("cents",), -2),
        Move(("messages",), 0, 2),
    ]
    assert draft.cents == 3
    with pytest.raises(SchemaError, match="cannot be added") as caught:
        increment(draft, "customer")
    assert caught.value.target == "state.customer"
    with pytest.raises(IndexError):
        move(draft.messages, 0, 3)
    plain = Ticket()
    increment(plain, "cents")
    items = [1, 2, 3]
    move(items, 2, 0)
    assert plain.cents == 1 and items == [3, 1, 2]


def test_only_items_of_lists_move() -> None:
    """Somebody moved an item of a draft's dict. An AttributeError came from inside, and the draft
    counted as interrupted: its block could not commit even the other changes."""
    recording = record({"prices": {0: "x", 1: "y"}, "ids": {1, 2}})
    draft = recording.draft
    for items in (draft["prices"], draft["ids"], {0: "x"}, draft_ticket("four")[0].messages[0]):
        for target in (0, 1):
            with pytest.raises(TypeError, match="takes a list"):
                move(items, 0, target)
    draft["other"] = 1
    assert recording.ops == [Set(("other",), 1)]


def test_an_increment_of_a_float_is_taken_back_exactly() -> None:
    recording = record({"x": 0.1})
    increment(recording.draft, "x", 0.2)
    assert recording.inverses == [Set(("x",), 0.1)]


def test_sorting_and_filtering_move_items_and_copy_none() -> None:
    draft, recording = draft_ticket("c", "a", "b", "z")
    kept = draft.messages[0]
    draft.messages.sort(key=lambda message: message.content)
    assert isinstance(recording.ops[0], Splice) and recording.ops[0].removed == 3
    draft.messages[:] = [message for message in draft.messages if message.content != "a"]
    assert recording.ops[1] == Splice(("messages",), 0, 1, [])
    draft.messages = [message for message in draft.messages if message.content != "z"]
    assert draft.messages[1] is kept
    draft.messages = [*reversed(draft.messages), Message(content="new")]
    assert [message.content for message in draft.messages] == ["c", "b", "new"]
    with pytest.raises(SharedValue, match="twice"):
        draft.messages[:] = [kept, kept]


def test_whole_lists_that_were_not_stored_join_when_changed() -> None:
    schema: Schema[Any] = Schema(Ticket)
    recording = Recording(schema, {"customer": "c"})
    draft = recording.draft
    assert draft.messages == [] and draft.messages is draft.messages
    assert draft.cents == 0 and recording.ops == [] and "messages" not in recording.plain
    draft.messages += [Message()]
    draft.messages.append(Message())
    increment(draft, "cents")
    assert [op.path for op in recording.ops] == [("messages",), ("cents",)]
    assert recording.inverses == [Delete(("messages",)), Delete(("cents",))]
    assert recording.rollback() == {"customer": "c"}


def test_deleting_an_attribute_brings_back_its_default() -> None:
    draft, recording = draft_ticket("a")
    del draft.messages
    assert recording.ops == [Delete(("messages",))] and draft.messages == []


# Refusing


def test_a_proxy_cannot_stand_at_a_second_place() -> None:
    draft, recording = draft_ticket("a", "b")
    first = draft.messages[0]
    for act in (
        lambda: setattr(draft, "reply", first),
        lambda: draft.messages.append(first),
        lambda: draft.by_role.update({Role.USER: [first]}),
        lambda: setattr(draft, "pair", (1, first)),
        lambda: draft.messages.__setitem__(1, first),
    ):
        with pytest.raises(SharedValue, match=r"state\.messages\[0\]") as caught:
            act()
        assert "deepcopy" in caught.value.hint and caught.value.target != "state.messages[0]"
    assert recording.ops == []
    draft.messages[0] = first
    draft.messages = draft.messages
    draft.reply = copy.deepcopy(first)
    assert len(recording.ops) == 1


def test_proxies_of_another_draft_are_refused_too() -> None:
    draft, _ = draft_ticket("a")
    other, _ = draft_ticket("b")
    with pytest.raises(SharedValue):
        draft.messages.append(other.messages[0])
    with pytest.raises(SharedValue):
        draft.messages[0] = other.messages[0]
    untyped = record({"a": 1})
    with pytest.raises(SharedValue):
        untyped.draft["b"] = {"x": other.messages}


def test_cycles_aliases_and_what_cannot_be_stored_are_refused_by_path() -> None:
    recording = record({"a": {"b": []}})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(SharedValue, match="cycle"):
        recording.draft["a"]["b"].append(loop)
    twice: list[Any] = []
    with pytest.raises(SharedValue, match="stands at"):
        recording.draft["a"]["b"].append([twice, twice])
    with pytest.raises(Unstorable) as caught:
        recording.draft["a"]["b"].append({"x": object()})
    assert caught.value.target == "state.a.b[0].x"
    assert recording.ops == [] and recording.plain == {"a": {"b": []}}


def test_fields_that_the_class_does_not_have_are_refused_at_once() -> None:
    draft, _ = draft_ticket("a")
    with pytest.raises(SchemaError, match="no such field") as caught:
        draft.messages[0].contnt = "x"
    assert caught.value.target == "state.messages[0].contnt"
    with pytest.raises(SchemaError):
        draft._private = 1

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    recording = record(Open())
    recording.draft.anything = [1]
    recording.draft.anything.append(2)
    assert recording.ops == [Set(("anything",), [1, 2])] and recording.draft.anything == [1, 2]


def test_what_was_removed_is_no_longer_part_of_the_state() -> None:
    draft, recording = draft_ticket("a", "b")
    gone, tags = draft.messages[1], draft.messages[1].tags
    popped = draft.messages.pop()
    assert type(popped) is Message and popped.content == "b"
    for act in (lambda: setattr(gone, "content", "x"), lambda: tags.append("x")):
        with pytest.raises(SchemaError, match="no longer part of the state"):
            act()
    popped.content = "c"
    draft.messages.append(popped)
    assert [op for op in recording.ops if isinstance(op, Set)] == []
    reply = record({"a": {"x": 1}})
    old = reply.draft["a"]
    reply.draft["a"] = {"x": 2}
    with pytest.raises(SchemaError, match="no longer part"):
        old["x"] = 3


def test_a_closed_draft_refuses_every_use() -> None:
    draft, recording = draft_ticket("a")
    message, messages, roles = draft.messages[0], draft.messages, draft.roles
    recording.close()
    for act in (
        lambda: draft.customer,
        lambda: setattr(draft, "customer", "x"),
        lambda: message.content,
        lambda: message.shout(),
        lambda: len(messages),
        lambda: messages.append(Message()),
        lambda: list(messages),
        lambda: repr(message),
        lambda: copy.copy(message),
        lambda: "x" in roles,
        lambda: roles.clear(),
        lambda: setattr(draft, "client", 1),
        lambda: messages == [],
    ):
        with pytest.raises(SchemaError, match="this draft is closed"):
            act()


def test_a_view_can_only_be_read() -> None:
    schema: Schema[Any] = Schema(Ticket)
    plain = schema.take(Ticket(messages=[Message(content="a")]), aliases_refused=True)
    after = view(schema, plain)
    assert after.messages[0].shout() == "A" and after.client is None
    for act in (
        lambda: setattr(after, "customer", "x"),
        lambda: after.messages.append(Message()),
        lambda: after.messages.sort(key=len),
        lambda: after.messages.pop(),
        lambda: after.by_role.clear(),
        lambda: after.roles.add(Role.USER),
        lambda: increment(after, "cents"),
        lambda: setattr(after, "client", 1),
        lambda: after.messages.clear(),
        lambda: after.roles.clear(),
        lambda: move(after.messages, 0, 0),
    ):
        with pytest.raises(SchemaError, match="only be read"):
            act()


# The rest


def test_rollback_restores_the_order_of_keys() -> None:
    recording = record({"a": 1, "b": {"x": 1, "y": 2}, "c": 3})
    draft = recording.draft
    del draft["a"]
    draft["d"] = 4
    draft["a"] = 9
    draft["b"].pop("x")
    del draft["b"]
    recording.close()
    restored = recording.rollback()
    assert list(restored.items()) == [("a", 1), ("b", {"x": 1, "y": 2}), ("c", 3)]
    assert list(restored["b"]) == ["x", "y"]
    assert recording.ops == []


def test_rollback_takes_back_what_planning_added() -> None:
    class Totals(BaseModel):
        n: int = 1
        twice: int = 2

    class Checked(Totals):
        @model_validator(mode="after")
        def compute(self) -> Checked:
            self.twice = self.n * 2
            return self

    schema: Schema[Any] = Schema(Checked)
    plain = schema.take(Checked(), aliases_refused=True)
    typed = schema.build(plain)
    recording = Recording(schema, plain)
    recording.draft.n = 4
    schema.plan(typed, plain, recording.ops, recording.inverses)
    assert recording.ops == [Set(("n",), 4), Set(("twice",), 8)] and plain["twice"] == 8
    assert recording.rollback() == {"n": 1, "twice": 2}


def test_ephemeral_fields_in_a_draft() -> None:
    schema: Schema[Any] = Schema(Ticket)
    typed = Ticket(client="live")
    recording = Recording(schema, schema.take(typed, aliases_refused=True), typed=typed)
    draft = recording.draft
    assert draft.client == "live"
    draft.client = "new"
    assert draft.client == "new" and typed.client == "live"
    assert recording.ops == [] and recording.ephemeral == [(("client",), "new")]
    recording.close()
    recording.apply_ephemeral(typed)
    assert typed.client == "new"


def test_lists_compare_and_join_like_lists() -> None:
    recording = record({"a": [3, 1, 2], "b": [[1]]})
    items = recording.draft["a"]
    assert items == [3, 1, 2] and items != [3] and items == [3, 1, 2]
    assert items < [4] and items >= [3]
    tail, head = [5], [0]
    assert items + tail == [3, 1, 2, 5] and head + items == [0, 3, 1, 2]
    assert items * 2 == [3, 1, 2] * 2
    assert 1 in items and items.index(2) == 2 and items.count(3) == 1
    assert isinstance(items[0:2], list) and items[::-1] == [2, 1, 3]
    items *= 2
    recording.draft["b"] *= 2
    recording.draft["b"][1].append(2)
    assert recording.plain == {"a": [3, 1, 2] * 2, "b": [[1], [1, 2]]}


def test_dicts_join_like_dicts() -> None:
    recording = record({"a": {"x": 1}})
    inner = recording.draft["a"]
    assert inner | {"y": 2} == {"x": 1, "y": 2} and {"x": 0} | inner == {"x": 1}
    recording.draft["a"] |= {"y": 2}
    inner.update([("z", 3)], w=4)
    assert inner.setdefault("x", 9) == 1 and inner.get("q") is None
    assert inner.popitem() == ("w", 4) and inner == {"x": 1, "y": 2, "z": 3}
    match inner:
        case {"x": 1, **rest}:
            assert rest == {"y": 2, "z": 3}
    with pytest.raises(KeyError):
        inner["q"]


def test_a_long_list_is_not_walked() -> None:
    """`draft.messages[-1].content = …` must not depend on how many messages there are."""

    schema: Schema[Any] = Schema(Ticket)
    plain = schema.take(Ticket(), aliases_refused=True)
    item = {"role": "user", "content": "", "tags": []}
    plain["messages"] = [dict(item, tags=[]) for _ in range(10_000)]
    recording = Recording(schema, plain)
    recording.draft.messages[-1].content = "x"
    recording.draft.messages.append(Message())
    assert recording.ops[0] == Set(("messages", 9_999, "content"), "x")
    assert len(recording._known) < 10


def test_what_was_iterated_over_is_not_kept() -> None:
    """A loop over a long list kept something of each of its items until the edit ended."""
    recording = record({"items": [{"n": n} for n in range(10_000)]})
    held = recording.draft["items"][0]
    assert sum(one["n"] for one in recording.draft["items"]) == 49_995_000
    assert len(recording._known) < 200
    assert recording.draft["items"][0] is held


@dataclasses.dataclass(eq=False)
class Lock:
    holders: list[str] = dataclasses.field(default_factory=list)
    kind: str = "lock"
    LIMIT = 2

    def full(self) -> bool:
        return len(self.holders) >= type(self).LIMIT

    def __del__(self) -> None:
        self.holders.clear()


def test_a_draft_asks_the_class_and_is_itself_as_its_object_is() -> None:
    """`type(self).LIMIT` in a method of one's own raised AttributeError, a class that compares by
    identity was equal to what had equal fields, and what `vars` gave raised TypeError."""
    recording = record([Lock(["a"]), Lock(["a"])], list[Lock])
    first, second = recording.draft
    assert first.kind == "lock" and not first.full() and type(first)().holders == []
    assert first != second and first == recording.draft[0] and {first: 1}[recording.draft[0]] == 1
    assert vars(first) == {"holders": ["a"], "kind": "lock"}
    with pytest.raises(TypeError, match="set the attributes of the draft"):
        vars(first)["kind"] = "door"  # a copy, where it would be lost
    own = vars(type(first))
    assert not {name for name in own if not name.startswith("__")}, "names that a field may have"
    assert "__del__" not in own, "a draft is no instance: when it goes, nothing is to be let go"
