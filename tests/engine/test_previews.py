"""What people read of arguments, in logs and messages."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

import perdure
from perdure.engine.journal.previews import SHORT_MAX, short

SECRET = "s3cr3t"


@dataclasses.dataclass
class Mailbox:
    address: str
    password: perdure.Ephemeral[str] = ""


class Keys(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    user: str
    token: str = pydantic.Field(default="", exclude=True)
    _made: str = pydantic.PrivateAttr(default=SECRET)


class Token(msgspec.Struct):
    user: str
    secret: perdure.Ephemeral[str] = ""


@attrs.define
class Login:
    user: str
    secret: perdure.Ephemeral[str] = ""


@dataclasses.dataclass
class Inbox:
    box: Mailbox
    others: list[Any] = dataclasses.field(default_factory=list)


class Quiet(Mailbox):
    def __repr__(self) -> str:
        return f"Quiet({self.address!r})"


@attrs.define
class Masked:
    user: str
    password: str = attrs.field(repr=lambda value: "***")


class Named(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Named({self.user})"


class Hooked(pydantic.BaseModel):
    user: str
    password: str = ""
    token: str = pydantic.Field(default="", exclude=True)

    def __repr_args__(self) -> Any:
        return [("user", self.user), ("token", self.token)]


class Texted(Keys):
    def __repr_str__(self, join_str: str) -> str:
        return "hidden"


class Headers(dict):
    def __repr__(self) -> str:
        return "Headers(<hidden>)"


class Cookies(list):
    def __repr__(self) -> str:
        return "Cookies(<hidden>)"


def shouted(function: Any) -> Any:
    return functools.wraps(function)(lambda self: function(self).upper())


@dataclasses.dataclass
class Loud:
    user: str
    password: str

    @shouted
    def __repr__(self) -> str:
        return f"Loud({self.user})"


Pair = namedtuple("Pair", "left right")
BOX = Mailbox("ada", SECRET)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (BOX, "Mailbox(address='ada')"),
        (
            Keys.model_validate({"user": "ada", "token": SECRET, "more": BOX}),
            "Keys(user='ada', more=Mailbox(address='ada'))",
        ),
        (Token("ada", SECRET), "Token(user='ada')"),
        (Login("ada", SECRET), "Login(user='ada')"),
        (Inbox(BOX, [BOX]), "Inbox(box=Mailbox(address='ada'), others=[Mailbox(address='…"),
        ({"box": [BOX]}, "{'box': [Mailbox(address='ada')]}"),
        ((BOX,), "(Mailbox(address='ada'),)"),
        (OrderedDict(box=BOX), "OrderedDict({'box': Mailbox(address='ada')})"),
        (Pair(BOX, 1), "Pair(left=Mailbox(address='ada'), right=1)"),
        (deque([BOX]), "deque([Mailbox(address='ada')])"),
        (Quiet("ada", SECRET), "Quiet('ada')"),
    ],
)
def test_what_lives_in_memory_only_is_in_no_preview(value: Any, said: str) -> None:
    """The password of a mailbox, "never stored", was in the log for good, and in what `perdure why`
    says: in the preview of each call that had got the mailbox."""
    assert short(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Masked("ada", SECRET), "Masked(user='ada', password=***)"),
        (Named("ada", SECRET), "Named(ada)"),
        (Hooked(user="ada", password=SECRET, token=SECRET), "Hooked(user='ada')"),
        (Texted(user="ada", token=SECRET), "Texted(hidden)"),
        (Headers(authorization=SECRET), "Headers(<hidden>)"),
        (Cookies([SECRET]), "Cookies(<hidden>)"),
        (Loud("ada", SECRET), "LOUD(ADA)"),
        ([Headers(authorization=SECRET)], "[Headers(<hidden>)]"),
    ],
)
def test_a_preview_shows_nothing_that_the_class_hides(value: Any, said: str) -> None:
    """A class hid its password in its own `repr`, in one of the ways that there are. The preview
    was made of the fields, and had it: in the log, for good."""
    assert short(value) == said


@pytest.mark.parametrize(
    "value",
    [
        *(1, -0.0, "it's", b"\0", None, [], {}, (), set(), frozenset(), deque()),
        *([1, [2.5, "x"]], (1,), (1, 2), {1: {"a": None}}, {3}, frozenset({3}), Pair(1, "x")),
        *(Inbox(Mailbox("a"), [{}]).others, Mailbox, len, range(3), ValueError("x"), {1, 2, 3}),
        *(dataclasses.make_dataclass("Point", ["x", "y"])(1, "2"), defaultdict(list)),
    ],
)
def test_other_values_are_said_as_their_repr(value: Any) -> None:
    assert short(value) == repr(value)


def test_a_preview_is_bounded_however_much_there_is() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    for value in (circle, deep, list(range(1000)), {n: [n] * 1000 for n in range(100)}, "x" * 1000):
        assert len(short(value)) == SHORT_MAX


def test_no_log_of_a_run_has_it() -> None:
    @perdure.tool(on_crash="fail")
    def login(keys: Keys) -> int:
        return 1

    @perdure.step
    def fetch(box: Mailbox) -> int:
        return 1

    @perdure.agent
    def read(run: perdure.Run[dict[str, Any]], box: Mailbox) -> int:
        return login(Keys(user=box.address, token=SECRET)) + fetch(Mailbox(box.address, SECRET))

    with perdure.open("memory://") as store:
        assert store.run(read, "a", BOX) == 2
        said = repr([commit.records for commit in store.agent("a").log()])
        assert "Mailbox(address='ada')" in said and SECRET not in said
