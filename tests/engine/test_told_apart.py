"""Calls are told apart by all of their arguments, and by the object that they are bound to."""

from __future__ import annotations

import copy
import functools
import operator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes


class Line(BaseModel):
    text: str
    cents: int


@dataclass
class Item:
    text: str
    cents: int


LONG = "a line whose text is so long that the preview is cut before anything else is said of it"


@pytest.mark.parametrize("kind", [Line, Item])
def test_an_outcome_is_not_taken_over_for_a_call_that_asks_for_more(
    store: Store, kind: Any
) -> None:
    """`list[Model]` had an empty digest, so that only the preview was compared, which was cut
    before the cents: `retry(…, effects="reuse")` gave "paid 100" where the call asked for 999."""
    cents = 100

    @perdure.tool
    def pay(lines: list[Any]) -> str:
        return f"paid {lines[0].cents}"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return pay([kind(text=LONG, cents=cents)])

    assert store.run(f, "a") == "paid 100"
    handle = store.handle("a/f/main")
    cents = 999
    handle.retry("pay#1", effects="reuse")
    assert store.run(f, "a") == "paid 999"
    cents = 100
    handle.retry("pay#1", effects="reuse")
    assert store.run(f, "a") == "paid 100"
    assert [effect.state for effect in handle.effects()].count("done") >= 1


@pytest.mark.parametrize("kind", [Line, Item])
def test_replay_notices_another_value_inside_a_list(
    store: Store, crash: Crashes, kind: Any
) -> None:
    """A changed model inside a list was no other argument for the replay."""
    cents = 100

    @perdure.step
    def add(lines: list[Any]) -> int:
        return sum(line.cents for line in lines)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        total = add([kind(text=LONG, cents=cents)])
        crash("end")
        return total

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    cents = 999
    with pytest.raises(perdure.NeedsAttention, match="other arguments"):
        store.run(f, "a")
    cents = 100
    assert store.run(f, "a") == 100


# -- the object whose method it is ---------------------------------------------------------------


class Bank:
    def __init__(self) -> None:
        self.paid: list[str] = []
        self.order = ["FR02", "IT04"]


bank = Bank()


class Account:
    def __init__(self, iban: str) -> None:
        self.iban = iban

    @perdure.tool(on_crash="retry")
    def pay(self, cents: int) -> str:
        bank.paid.append(self.iban)
        return f"{self.iban} got {cents}"

    @perdure.step
    def look(self, cents: int) -> str:
        return f"{self.iban} has {cents}"


class Known(Account):
    @property
    def __perdure_key__(self) -> str:
        return self.iban


class KnownByMethod(Account):
    def __perdure_key__(self) -> str:
        return self.iban


class Row(BaseModel):
    iban: str

    @perdure.tool(on_crash="retry")
    def pay(self, cents: int) -> str:
        bank.paid.append(self.iban)
        return f"{self.iban} got {cents}"


@pytest.fixture(autouse=True)
def anew() -> None:
    bank.__init__()  # type: ignore[misc]


def pay_all(kind: Any, crash: Crashes) -> Any:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        found = []
        for iban in bank.order:
            found.append(kind(iban=iban).pay(5))
            crash(f"after {len(found)}")
        return sorted(found)

    return f


@pytest.mark.parametrize("kind", [Known, KnownByMethod, Row])
def test_a_tool_is_called_on_each_object_in_whatever_order_they_come(
    store: Store, crash: Crashes, kind: Any
) -> None:
    """`self` was no part of a call. Accounts came in another order after a crash, as those of a set
    or a listing do: one's recorded payment was taken for the other's, so that FR02 was paid twice,
    IT04 never, and nobody was told."""
    f = pay_all(kind, crash)
    crash.arm("after 1")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert bank.paid == ["FR02"]
    bank.order.reverse()
    with pytest.raises(perdure.NeedsAttention, match="self"):
        store.run(f, "a")
    assert bank.paid == ["FR02"], "nothing is paid on a guess"
    bank.order.reverse()
    assert store.run(f, "a") == ["FR02 got 5", "IT04 got 5"]
    assert bank.paid == ["FR02", "IT04"]


def test_all_recorded_calls_are_paired_in_another_order(store: Store, crash: Crashes) -> None:
    f = pay_all(Known, crash)
    crash.arm("after 2")
    with pytest.raises(CrashError):
        store.run(f, "a")
    bank.order.reverse()
    assert store.run(f, "a") == ["FR02 got 5", "IT04 got 5"]
    assert bank.paid == ["FR02", "IT04"]


def test_a_tool_of_an_object_that_check_own_of_itself_is_refused(
    store: Store, crash: Crashes
) -> None:
    """Nothing could tell one account's payment from another's."""
    f = pay_all(Account, crash)
    with pytest.raises(perdure.NeedsAttention, match="__perdure_key__") as refused:
        store.run(f, "a")
    assert "this Account" in str(refused.value) and "Ephemeral[Account]" in str(refused.value)
    assert bank.paid == [] and store.handle("a/f/main").effects() == []
    f = pay_all(Known, crash)
    assert store.run(f, "a") == ["FR02 got 5", "IT04 got 5"], "the line that it says helps"


class Saved:
    def __init__(self, number: Any = None) -> None:
        self.id = number

    @property
    def __perdure_key__(self) -> Any:
        return self.id


@pytest.mark.parametrize("key", [None, float("nan"), Decimal("nan"), (None, None)])
@pytest.mark.parametrize("said", ["key", "identity"])
def test_a_key_that_an_object_has_not_got_yet_is_none(store: Store, key: Any, said: str) -> None:
    """The id of a row is None until it is saved: two unsaved ones were taken for one object, and
    their equal calls for each other."""
    identity = None if said == "key" else (lambda row: row.id)

    @perdure.tool(on_crash="retry", identity=identity)
    def save(row: Saved) -> str:
        return "saved"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict], number: Any) -> list[str]:
        return [save(Saved(number)), save(Saved((number, 2)))]

    saves = "give it one before the call" if said == "key" else "let identity= give"
    with pytest.raises(perdure.NeedsAttention, match="nothing tells") as refused:
        store.run(f, "a", key)
    assert saves in str(refused.value) and not store.handle("a/f/main").effects()
    assert store.run(f, "b", 1) == ["saved", "saved"]


def test_a_step_is_refused_where_nothing_but_the_object_differs(store: Store) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict], prices: list[int]) -> list[str]:
        first, second = Account("FR02"), Account("IT04")
        return [first.look(prices[0]), first.look(prices[0]), second.look(prices[1])]

    assert store.run(f, "a", [1, 2]) == ["FR02 has 1", "FR02 has 1", "IT04 has 2"]
    with pytest.raises(perdure.NeedsAttention, match="called before with the same arguments"):
        store.run(f, "b", [1, 1])


def test_a_parameter_that_makes_no_difference_says_so(store: Store, crash: Crashes) -> None:
    class Client:
        def __init__(self) -> None:
            self.sent = 0

        @perdure.tool(on_crash="retry")
        def send(self: perdure.Ephemeral[Any], text: str) -> int:
            return len(text)

    @perdure.tool(on_crash="retry")
    def send(client: perdure.Ephemeral[Client], text: str) -> int:
        return len(text)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        found = Client().send("ab") + send(Client(), "abc")
        crash("end")
        return found

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert store.run(f, "a") == 5


def test_the_decorator_can_say_what_tells_calls_apart(store: Store, crash: Crashes) -> None:
    class Context:
        pass

    def which(context: Context, iban: str, note: str = "") -> str:
        return iban

    @perdure.tool(on_crash="retry", identity=which)
    def pay(context: Context, iban: str, note: str = "") -> str:
        bank.paid.append(iban)
        return iban

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        found = [pay(Context(), iban, note=str(len(bank.paid))) for iban in bank.order]
        crash("end")
        return sorted(found)

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    bank.order.reverse()
    assert store.run(f, "a") == ["FR02", "IT04"] and bank.paid == ["FR02", "IT04"]


# -- what a callable is bound to -----------------------------------------------------------------


def fetch(where: str, what: int) -> str:
    return f"{where} {what}"


class Fetcher:
    def __init__(self, where: str) -> None:
        self.where = where

    def __call__(self, what: int) -> str:
        return f"{self.where} {what}"

    @property
    def __perdure_key__(self) -> str:
        return self.where

    def get(self, what: int) -> str:
        return self(what)

    @classmethod
    def kind(cls, what: int) -> str:
        return f"{cls.__name__} {what}"


class Other(Fetcher):
    pass


def look(where: str, what: int) -> str:
    return f"{what} in {where}"


def nested(where: str) -> Any:
    inner: Any = functools.partial(fetch, where)
    inner.named = where  # with attributes it does not become a part of the one around it
    return functools.partial(inner)


BOUND: dict[str, Any] = {
    "partial of another function": lambda where: functools.partial(
        fetch if where == "a" else look, "it"
    ),
    "partial in a partial": nested,
    "partial": lambda where: functools.partial(fetch, where),
    "partial by name": lambda where: functools.partial(fetch, where=where),
    "method": lambda where: Fetcher(where).get,
    "object": Fetcher,
    "partial of a method": lambda where: functools.partial(Fetcher(where).get),
    "classmethod": lambda where: Fetcher.kind if where == "a" else Other.kind,
}


@pytest.mark.parametrize("make", BOUND.values(), ids=BOUND)
def test_what_a_callable_is_bound_to_is_a_part_of_the_call(
    store: Store, crash: Crashes, make: Any
) -> None:
    """The arguments of a partial, and the object of a method, were no part of the call."""
    order = ["a", "b"]

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> dict[str, Any]:
        found = {where: run.call(make(where), what=7) for where in order}
        crash("end")
        return dict(sorted(found.items()))

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    order.reverse()
    assert store.run(f, "a") == {where: make(where)(what=7) for where in ("a", "b")}


@pytest.mark.parametrize(
    ("made", "other"),
    [
        (operator.methodcaller("upper"), operator.methodcaller("lower")),
        (operator.methodcaller("split", sep="a"), operator.methodcaller("split", sep="b")),
        (operator.itemgetter(0), operator.itemgetter(1)),
        (operator.attrgetter("__class__.__name__"), operator.attrgetter("__doc__")),
        (functools.partial(fetch, "a"), functools.partial(look, "a")),
    ],
)
def test_code_that_calls_another_one_of_these_is_noticed(
    store: Store, crash: Crashes, made: Any, other: Any
) -> None:
    """A partial was known by its arguments alone, and a function that `operator` makes not by what
    it holds: a run whose code calls another one got the result of the first, and the payment in
    place of the refund."""
    called = made

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        found = run.call(called, "ab")
        crash("end")
        return str([found])

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    called = other
    with pytest.raises(perdure.NeedsAttention):
        store.run(f, "a")
    called = copy.copy(made)
    assert "[" in store.run(f, "a")


def test_an_outcome_is_not_taken_over_for_a_partial_of_another_function(store: Store) -> None:
    """`partial(pay, "ada")` and `partial(refund, "ada")` were one call: with `effects="reuse"` the
    refund was never made, and gave the receipt of the payment."""
    pay = perdure.tool(on_crash="fail")(functools.partial(fetch, "a"))
    refund = perdure.tool(on_crash="fail")(functools.partial(look, "a"))
    called = pay

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        run.call(len, "x")
        return called(5)

    assert store.run(f, "a") == "a 5"
    handle = store.handle("a/f/main")
    assert [effect.place for effect in handle.effects()] == ["fetch#1"]
    assert refund.__qualname__ == "look", "by which its tasks are named"
    called = refund
    handle.retry("len#1", effects="reuse")
    assert store.run(f, "a") == "5 in a"


def test_a_tool_bound_to_an_object_is_refused_when_it_is_decorated() -> None:
    """Of two such tools each would be taken for the other one."""
    decorate: Any = perdure.tool(on_crash="retry")
    for bound in (Account("FR02").look, functools.partial(print, object())):
        with pytest.raises(TypeError, match="name="):
            decorate(bound)
        perdure.tool(name="one of its own")(bound)
        perdure.step(bound)
    perdure.tool(Fetcher("a").get)


def test_a_tool_of_its_own_name_is_known_by_it(store: Store, crash: Crashes) -> None:
    tools = [perdure.tool(name=iban, on_crash="retry")(_Payer(iban).pay) for iban in bank.order]

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        found = [pay(5) for pay in tools]
        crash("end")
        return sorted(found)

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(f, "a")
    tools.reverse()
    assert store.run(f, "a") == ["FR02", "IT04"] and bank.paid == ["FR02", "IT04"]


class _Payer:
    def __init__(self, iban: str) -> None:
        self.iban = iban

    def pay(self, cents: int) -> str:
        bank.paid.append(self.iban)
        return self.iban
