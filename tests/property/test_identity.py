"""Values that differ in anything differ in their digests; equal ones have equal digests in every
process; and calls that come in another order on replay are paired rightly, or the run stops."""

from __future__ import annotations

import ctypes
import datetime as dt
import enum
import functools
import itertools
import os
import re
import subprocess
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import perdure
from perdure.core.schema.value_digest import digest, is_known, is_none_yet


class Color(enum.Enum):
    RED = "red"
    BLUE = 1


class Level(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    RED = "red"


BERLIN = ZoneInfo("Europe/Berlin")


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Model(BaseModel):
    item: Any


class OtherModel(BaseModel):
    item: Any


@dataclass(frozen=True)
class Data:
    item: Any
    late: Any = field(init=False, default=0)


class Record(msgspec.Struct, frozen=True):
    item: Any


class Pair(NamedTuple):
    item: Any
    more: int = 0


class Text(str):
    pass


class Keyed:
    def __init__(self, item: Any) -> None:
        self.item = item

    def __perdure_key__(self) -> Any:
        return key_of(self.item)


def key_of(value: Any) -> Any:
    """A key alone that is none yet says nothing."""
    return [value, 0] if is_none_yet(value) else value


def function(value: Any) -> Any:
    return value


LEAVES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    0.0,
    -0.0,
    2**70,
    "",
    "a",
    "1",
    "red",
    b"",
    b"a",
    bytearray(b"a"),
    Text("a"),
    Color.RED,
    Color.BLUE,
    Rights.READ,
    Rights.READ | Rights.WRITE,
    Decimal("1"),
    Decimal("1.0"),
    UUID(int=1),
    dt.date(2026, 1, 1),
    dt.datetime(2026, 1, 1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.time(1),
    dt.timedelta(1),
    PurePosixPath("a"),
    complex(1, 2),
    range(3),
    Color,
    Model,
    function,
    len,
    Ellipsis,
    (),
    [],
    {},
    set(),
    frozenset(),
    memoryview(b"a"),
    array("i", [97]),
    array("I", [97]),
    Level.ONE,
    Word.RED,
    complex(0.0, -0.0),
    complex(0.0, 0.0),
    Decimal("-0"),
    Decimal("0"),
    Decimal("NaN"),
    Decimal("-NaN"),
    dt.datetime(2026, 1, 1, 1, tzinfo=BERLIN),
    dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
    dt.datetime(2026, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    dt.datetime(2026, 10, 25, 2, tzinfo=BERLIN),
    dt.datetime(2026, 10, 25, 2, tzinfo=BERLIN, fold=1),
    dt.time(1, fold=1),
    Color.RED.name,
    "e\u0301",
    "\u00e9",
    "\ud800",
    2.0**70,
    type,
    int | None,
    list[int],
    list[str],
    deque(),
    deque(maxlen=1),
    functools.partial(function),
    re.compile("a"),
    re.compile(b"a"),
    re.compile("a", re.I),
    slice(1),
    slice(None, 1, 1),
]
WRAPS: list[Callable[[Any], Any]] = [
    lambda v: [v],
    lambda v: (v,),
    lambda v: {"item": v},
    lambda v: [v, v],
    lambda v: {"other": v},
    lambda v: Model(item=v),
    lambda v: OtherModel(item=v),
    Data,
    Record,
    Pair,
    Keyed,
    lambda v: Pair(v, 1),
    lambda v: deque([v]),
    lambda v: OrderedDict(item=v),
    lambda v: functools.partial(function, v),
    lambda v: ValueError(v),
]


def all_values() -> list[Any]:
    """Every leaf in two levels of every kind of container, and sets of those that can be in one."""
    once = [wrap(leaf) for wrap in WRAPS for leaf in LEAVES]
    twice = [wrap(one) for wrap, one in itertools.product(WRAPS, once[::7])]
    texts = [str(number) for number in range(20)]
    sets: list[Any] = [set(texts), frozenset(texts), [{Color.RED, "x"}], {Data("a"): {"k", "l"}}]
    return [*LEAVES, *once, *twice, *sets]


def digests_of_all() -> list[str]:
    return [digest(value) for value in all_values()]


def test_no_two_values_have_the_same_digest() -> None:
    by_digest: dict[str, Any] = {}
    for value in all_values():
        found = digest(value)
        assert is_known(found), value
        assert found not in by_digest, (value, by_digest[found])
        by_digest[found] = value


@dataclass
class Batch(list[int]):
    customer: str = "c-7"


@dataclass
class Mail(dict[str, str]):
    template: str = "bill"


@dataclass
class OddError(Exception):
    code: int = 7


class Amount(float):
    __slots__ = ("currency",)

    currency: str


def batch(*cents: int) -> Batch:
    made = Batch()
    made.extend(cents)
    return made


def mail(to: str) -> Mail:
    made = Mail()
    made["to"] = to
    return made


def odd(text: str) -> OddError:
    made = OddError()
    made.args = (text,)
    return made


def amount(currency: str) -> Amount:
    made = Amount(5)
    made.currency = currency
    return made


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [(batch, 500, 99900), (mail, "ann", "bob"), (odd, "a", "b"), (amount, "EUR", "BTC")],
)
def test_what_no_field_names_is_a_part_of_the_value(
    make: Callable[[Any], Any], one: Any, other: Any
) -> None:
    """A list that was a dataclass as well was known by its fields alone, and a float by its value
    without its slots: a payment of 999 was answered by that of 5."""
    assert is_known(digest(make(one)))
    assert digest(make(one)) == digest(make(one))
    assert digest(make(one)) != digest(make(other))


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_digests_are_the_same_in_every_process(seed: str) -> None:
    code = "from tests.property.test_identity import digests_of_all as f; print(*f(), sep='\\n')"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert told == digests_of_all()


def test_what_check_own_of_itself_is_unknown_wherever_it_is() -> None:
    for wrap in WRAPS[:5] + WRAPS[7:8]:
        unknown: list[Any] = []
        thing = object()
        assert not is_known(digest(wrap(thing), unknown)) and unknown[0] is thing
    cycle: list[Any] = []
    cycle.append(cycle)
    assert not is_known(digest(cycle))
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert not is_known(digest(deep))


class Objects:
    """As an array of objects of NumPy: what it exports are the addresses of its items."""

    __slots__ = ("_exported",)

    def __init__(self, *items: Any) -> None:
        self._exported = (ctypes.py_object * len(items))(*items)

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self._exported)

    def tolist(self) -> list[Any]:
        return list(self._exported)


class Masked(array):
    """As a masked array: an attribute says which items count."""

    mask: Any = None


def masked(*mask: int) -> Masked:
    made = Masked("d", [1.0, 2.0])
    made.mask = list(mask)
    return made


def test_a_masked_array_is_known_by_its_mask_too() -> None:
    assert is_known(digest(masked(0, 1))) and digest(masked(0, 1)) == digest(masked(0, 1))
    assert digest(masked(0, 1)) != digest(masked(1, 1))
    assert digest(Masked("d", [1.0])) != digest(Masked("d", [2.0]))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="only C exports buffers there")
def test_an_array_of_objects_is_known_by_what_they_are() -> None:
    """It was known by their addresses: no other process could go on with a run that had passed on a
    column of texts."""
    items = ["".join(["A", "da"]) for _ in range(2)]
    assert items[0] is not items[1]
    first, again = (Objects(item, 1) for item in items)
    assert is_known(digest(first)) and digest(first) == digest(again)
    assert digest(first) != digest(Objects("Bob", 1))


def test_an_array_of_pointers_says_nothing_of_itself() -> None:
    for pointers in ((ctypes.c_char_p * 1)(b"a"), (ctypes.c_wchar_p * 1)("a")):
        assert not is_known(digest(pointers))


def test_an_array_in_any_order_is_known_and_hides_nothing_beside_it() -> None:
    """One in Fortran's order, as most of pandas', made all of the argument that it was in unknown:
    with 500 cents beside it a step got what it had given for 5."""
    buffers = pytest.importorskip("_testbuffer")

    def matrix(flags: int, items: list[float]) -> Any:
        return buffers.ndarray(items, shape=[2, 2], format="d", flags=flags)

    by_rows, by_columns = matrix(0, [1, 2, 3, 4]), matrix(buffers.ND_FORTRAN, [1, 3, 2, 4])
    assert is_known(digest([by_columns])) and digest([by_columns]) == digest([by_rows])
    assert digest([by_columns]) != digest([matrix(buffers.ND_FORTRAN, [1, 2, 3, 4])])


def test_what_fails_to_say_itself_hides_nothing_beside_it() -> None:
    class Failing:
        @property
        def __perdure_key__(self) -> str:
            raise LookupError("it has none yet")

    found = [digest({"cents": cents, "what": Failing()}) for cents in (5, 500)]
    assert found[0] != found[1] and not any(map(is_known, found))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_replay_in_another_order_pairs_rightly_or_stops(data: st.DataObject) -> None:
    """Each value is paid once or never, and never in another's name."""
    values = data.draw(
        st.lists(st.sampled_from(range(len(POOL))), min_size=1, max_size=5, unique=True)
    )
    again = data.draw(st.permutations(values))
    end = data.draw(st.integers(1, len(values)))
    paid: list[str] = []
    order, crashing = list(values), True

    class Payer:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __perdure_key__(self) -> Any:
            return key_of(self.value)

        @perdure.tool(on_crash="fail")
        def pay(self, cents: int) -> str:
            paid.append(digest(self.value))
            return digest(self.value)

    @perdure.tool(on_crash="fail")
    def pay(value: Any) -> str:
        paid.append(digest(value))
        return digest(value)

    bound = data.draw(st.booleans())

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        for number, place in enumerate(order):
            if crashing and number == end:
                raise SystemExit("the process ends here")
            value = POOL[place]
            gave = Payer(value).pay(5) if bound else pay(value)
            assert gave == digest(value), "another call's outcome"
        if crashing:
            raise SystemExit("the process ends here")

    with perdure.open(f"memory://identity-{next(_names)}") as store:
        with pytest.raises(SystemExit):
            store.run(f, "a")
        order, crashing = list(again), False
        try:
            store.run(f, "a")
        except perdure.NeedsAttention:
            assert paid == [digest(POOL[place]) for place in values[:end]]
        else:
            assert sorted(paid) == sorted(digest(POOL[place]) for place in values)


_names = itertools.count()

POOL: list[Any] = [
    [Data(1)],
    [Data(2)],
    [Model(item=1)],
    [OtherModel(item=1)],
    {Color.RED},
    {"red"},
    Color.RED,
    "red",
    {"item": 1},
    Data(1),
    Record(1),
    Pair(1),
    (1, 0),
    Text("red"),
    1,
    1.0,
    True,
    0.0,
    -0.0,
    Decimal("1"),
    Decimal("1.0"),
    b"red",
    bytearray(b"red"),
    Level.ONE,
    Word.RED,
    [1],
    (1,),
    {1},
    None,
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 1, 1, tzinfo=BERLIN),
    function,
]
