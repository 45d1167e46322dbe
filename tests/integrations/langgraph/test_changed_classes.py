"""Objects that one version of a program stored, read by the next one, whose classes changed."""

from __future__ import annotations

import ast
import copy
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import perdure
from perdure.core.schema.value_digest import digest
from perdure.core.values import codec
from perdure.errors import SchemaError
from perdure.integrations.langgraph.values import unnamed
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.testing import run_until_waiting

NAME = "perdure_test_changed"
IMPORTS = """
import threading
from dataclasses import dataclass, field
from enum import CONFORM, Enum, Flag
from pydantic import BaseModel, Field, PrivateAttr, RootModel

def fails(*args):
    raise RuntimeError("the network is away")
"""

Next = Callable[[str, str], Any]


@dataclass
class Held:
    status: Any


class Extra(BaseModel, extra="allow"): ...


Value = str | int | float | bytes | tuple[Any, ...]


class State(TypedDict, total=False):
    typed: Value
    free: Any
    ways: dict[Value, set[Any]]
    held: list[Held | Extra]


@pytest.fixture
def next_version() -> Iterator[Next]:
    """Returns what the next version of a module reads of the `stored` of the one before."""

    def version(code: str) -> types.ModuleType:
        unnamed._said.clear()
        unnamed.MET.forget()
        module = types.ModuleType(NAME)
        sys.modules[NAME] = module
        exec(IMPORTS + code, module.__dict__)
        return module

    def read(before: str, after: str) -> Any:
        stored = Coder(BUILT_IN, strict=False).encode(version(before).stored)
        version(after)
        return Coder(BUILT_IN, strict=False).decode(codec.decode(codec.encode(stored)))

    yield read
    sys.modules.pop(NAME, None)
    unnamed._said.clear()
    unnamed.MET.forget()


SETS_TOTAL = """
@dataclass
class Cart:
    qty: int
    price: int
    def __post_init__(self): self.total = self.qty * self.price
stored = Cart(2, 3)
"""
COMPUTES_TOTAL = """
@dataclass
class Cart:
    qty: int
    price: int
    @property
    def total(self): return self.qty * self.price
"""
COMPUTES_FIELD = """
@dataclass
class Cart:
    qty: int
    price: int
    total: int = field(init=False)  # in its repr
Cart.total = property(lambda self: self.qty * self.price)
stored = Cart(2, 3)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SETS_TOTAL, COMPUTES_TOTAL),
        (SETS_TOTAL, COMPUTES_FIELD),
        (COMPUTES_FIELD, COMPUTES_FIELD),
        (SETS_TOTAL.replace("self.total = self.qty * self.price", "pass"), COMPUTES_FIELD),
    ],
)
def test_an_attribute_that_is_computed_now_is_computed(
    next_version: Next, before: str, after: str
) -> None:
    """An attribute became a read-only property. Every thread that held such an object could not be
    read any more: "it was not written by PerdureSaver"."""
    cart = next_version(before, after)
    assert type(cart).__name__ == "Cart"
    assert (cart.qty, cart.price, cart.total) == (2, 3, 6)
    assert "total" not in vars(cart)


A = "@dataclass\nclass A:\n    a: int = 1\nstored = A(5)"
MODEL = "class A(BaseModel):\n    a: int = 1\nstored = A(a=5)"
STATUS = "class A(Enum):\n    NEW = 'new'\n    OLD = 'old'\nstored = A.OLD"


@pytest.mark.parametrize(
    ("before", "after", "data"),
    [
        (A, A.replace("stored = A(5)", "    b: int = field(default_factory=fails)"), {"a": 5}),
        (A, A.replace("stored = A(5)", "A.a = property(lambda self: 1, fails)"), {"a": 5}),
        (MODEL, MODEL.replace("stored", "    b: int = Field(default_factory=fails)#"), {"a": 5}),
        (
            MODEL.replace("stored", "    _p: int = PrivateAttr(default=1)\nstored"),
            MODEL.replace("stored", "    _q: int = PrivateAttr(default_factory=fails)#"),
            {"a": 5},
        ),
        (
            STATUS,
            "class A(Enum):\n    NEW = 'new'\n    _missing_ = classmethod(fails)\n",
            "old",
        ),
    ],
    ids=["default", "setter", "model", "private", "enum"],
)
def test_a_class_whose_code_fails_gives_data_not_its_error(
    next_version: Next, before: str, after: str, data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A bare error of a class's own code came out of the reader, or the data was called foreign: a
    new field's default needed the network, and an enum refused unknown values in its own way."""
    assert next_version(before, after) == data
    assert "does not fit the class" in caplog.text


@pytest.mark.parametrize(
    "value", ["'old'", "7", "0.5", "b'old'", "('old', 1)", "True", "None", "[1]"]
)
def test_a_member_that_the_enum_lacks_is_handed_on_as_that_member(
    next_version: Next, value: str
) -> None:
    """A deploy was taken back. The older program's enum lacked a member, which its nodes saw as the
    member's value, and handed on: for the newer program it was a mere text from then on."""
    newer = f"class A(Enum):\n    NEW = 'new'\n    OLD = {value}\nstored = A.OLD"
    coder = Coder(BUILT_IN, strict=False)

    def handed_on(found: Any) -> Any:
        copied = copy.deepcopy(found), pickle.loads(pickle.dumps(found))
        return coder.encode([found, {found: found}, {found}, copied])

    read = next_version(newer, "class A(Enum):\n    NEW = 'new'\n")
    if not isinstance(read, dict):
        assert read == ast.literal_eval(value)
    stored = handed_on(read)
    member = next_version(newer, newer)
    assert coder.decode(stored) == [member, {member: member}, {member}, (member, member)]


@pytest.mark.parametrize("value", ["'old'", "7", "0.5", "b'old'", "('old', 1)"])
def test_a_member_that_the_enum_lacks_is_its_value_in_a_run(next_version: Next, value: str) -> None:
    """A deploy was taken back. A node of the older program gave the status that its enum lacked to
    the durable run that charges: the bank was charged, and the run failed, since such a text was
    not to be stored. Starting a run, a signal and a state were refused, too."""
    newer = f"class A(Enum):\n    NEW = 'new'\n    OLD = {value}\nstored = A.OLD"
    found, plain = next_version(newer, "class A(Enum):\n    NEW = 'new'\n"), ast.literal_eval(value)

    @perdure.tool(on_crash="ask")
    def charge(status: Any, held: Held) -> Any:
        return {status: [status, {status}, held.status]}

    @perdure.agent(State)
    def pay(run: perdure.Run[State], status: Any) -> Any:
        with run.edit() as state:
            state["typed"] = state["free"] = status
            state["ways"] = {status: {status}}
            state["held"] = [Held(status), Extra.model_validate({"more": status})]
            state["ways"][status].add(status)
        return charge(status, Held(status)), run.wait_for("status")

    with perdure.open("memory://") as store:
        handle = run_until_waiting(store, pay, "a", found)
        handle.signal("status", found)
        charged = {plain: [plain, {plain}, plain]}
        exactly(store.run(pay, "a", plain), (charged, plain))
        held = [Held(plain), Extra.model_validate({"more": plain})]
        way = {plain: {plain}}
        state = {"typed": plain, "free": plain, "ways": way, "held": held}
        exactly(store.agent("a", State).state, state)
        store.agent("b").save({"status": found})
        exactly(store.agent("b").state, {"status": plain})
    assert digest(Held(found)) == digest(Held(plain))


def exactly(value: Any, expected: Any) -> None:
    assert value == expected
    assert b"Member" not in pickle.dumps(value)


def test_a_class_that_is_registered_says_why_it_does_not_fit() -> None:
    def fails() -> int:
        raise RuntimeError("the network is away")

    @dataclass
    class First:
        a: int = 1

    @dataclass
    class Second:
        a: int = 1
        b: int = field(default_factory=fails)

    stored = Coder(BUILT_IN.with_types({"A": First})).encode([First(2)])
    with pytest.raises(SchemaError, match=r"default of 'b' cannot be made: the network is away"):
        Coder(BUILT_IN.with_types({"A": Second})).decode(stored)


DOC = """
class Doc(BaseModel):
    text: str = "hello"
    _seen: int = PrivateAttr(default=0)
stored = Doc()
stored._seen = 5
"""
WITH_CACHE = (
    "    _cache: dict = PrivateAttr(default_factory=dict)\n    _n: list = [1]\nstored = Doc()"
)
LOCK = "    _lock: object = PrivateAttr(default_factory=threading.Lock)\n"
ROOT = DOC.replace("BaseModel", "RootModel[list[int]]").replace('    text: str = "hello"\n', "")


@pytest.mark.parametrize("lock", ["", LOCK])
@pytest.mark.parametrize("doc", [DOC, ROOT.replace("Doc()", "Doc([1])")], ids=["model", "root"])
def test_a_new_private_attribute_has_its_default(next_version: Next, doc: str, lock: str) -> None:
    """A model got one more private attribute, with a default. Objects of before came back without
    it, and each node that used it died of AttributeError."""
    doc = doc.replace("stored", f"{lock}stored", 1)
    first = doc[doc.index("stored") :].splitlines()[0]
    read = next_version(doc, doc.replace(first, WITH_CACHE.replace("Doc()", first[9:])))
    assert read._seen == 5
    assert (read._cache, read._n) == ({}, [1])
    assert read._n is not type(read).__private_attributes__["_n"].default
    if lock:
        assert read._lock.acquire(blocking=False)


def test_a_private_attribute_that_an_object_had_not_is_not_given_to_it(next_version: Next) -> None:
    gone = DOC + "del stored._seen\n"
    read = next_version(gone, DOC)
    assert not hasattr(read, "_seen")


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        (
            "class A(Enum):\n    OLD = 'old'\nstored = A.OLD",
            "class A(Enum):\n    NEW = 'new'\n    @classmethod\n"
            "    def _missing_(cls, value): return cls.NEW\n",
            "NEW",
        ),
        (
            "class A(Flag):\n    READ = 1\n    PAY = 2\nstored = A.READ | A.PAY",
            "class A(Flag, boundary=CONFORM):\n    READ = 1\n",
            "READ",
        ),
    ],
)
def test_another_member_that_the_class_answers_is_told(
    next_version: Next, before: str, after: str, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The older program's enum answered UNKNOWN for a member that it lacked, handed that on, and
    nobody was told that the member was lost."""
    assert next_version(before, after).name == answer
    assert f"the class answers {answer} for it" in caplog.text


def test_a_member_under_another_name_is_the_same(
    next_version: Next, caplog: pytest.LogCaptureFixture
) -> None:
    read = next_version(
        "class A(Enum):\n    OLD = 1\nstored = A.OLD", "class A(Enum):\n    NEW = 1\n"
    )
    assert read.name == "NEW" and not caplog.text
