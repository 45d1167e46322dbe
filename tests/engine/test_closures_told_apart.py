"""Functions that differ only in what they close over are not taken for each other."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.core.schema.value_digest import digest, is_known


def charge(*given: Any) -> Any:
    return given


def for_account(iban: str) -> Callable[..., Any]:
    """A decorator's function has the name of what it wraps."""

    @functools.wraps(charge)
    def inner(*given: Any) -> Any:
        return charge(iban, *given)

    return inner


@functools.wraps(charge)
def decorated(*given: Any) -> Any:
    return charge(*given)


decorated.__qualname__ = decorated.__name__ = "decorated"
cached = functools.lru_cache(lambda: 1)
cached.__qualname__ = "cached"


def a_class(number: int) -> type:
    class Made:
        kept = number

    return Made


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (for_account("FR02"), for_account("IT04")),
        (functools.lru_cache(for_account("FR02")), functools.lru_cache(for_account("IT04"))),
        (functools.partial(for_account("FR02"), 5), functools.partial(for_account("IT04"), 5)),
        ([for_account("FR02")], [for_account("IT04")]),
        (a_class(1), a_class(2)),
        (list[a_class(1)], list[a_class(2)]),  # type: ignore[misc]
    ],
)
def test_what_has_the_same_name_and_is_another_one_is_not_equal(one: Any, other: Any) -> None:
    """Two functions of one decorator, for two accounts, had the same digest, for they have the name
    of what they wrap: given to a tool in another order after a crash, one account's payment was
    taken for the other's. So had two classes that a function made."""
    assert not is_known(digest(one)) and not is_known(digest(other))


def test_a_function_that_its_name_leads_to_is_known_by_it() -> None:
    for function in (charge, decorated, cached, len, str.upper):
        assert is_known(digest(function))


def tool_for(iban: str, paid: list[str], name: str | None = None) -> Callable[[int], str]:
    @perdure.tool(on_crash="fail", name=name)
    def pay(cents: int) -> str:
        paid.append(iban)
        return iban

    return pay


@pytest.mark.parametrize("ibans", [["FR02", "IT04"], ["IT04", "FR02"]])
def test_tools_of_a_factory_are_not_taken_for_each_other(ibans: list[str]) -> None:
    """A tool for each account, made by one function, all called `pay`: called in another order
    after a crash, FR02's recorded payment was taken for IT04's, which was never paid."""
    paid: list[str] = []

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [tool_for(iban, paid)(5) for iban in ibans]

    with perdure.open("memory://") as store:
        for _ in range(2):
            with pytest.raises(perdure.NeedsAttention, match=r"has as defaults \(iban\)"):
                store.run(pay_all, "a")
        assert paid == ibans[:1]


def test_partials_of_closures_are_not_taken_for_each_other() -> None:
    """What a function closes over was not asked for where a partial calls it."""
    paid: list[str] = []

    def one_for(iban: str) -> Callable[[int], str]:
        def pay(note: str, cents: int) -> str:
            paid.append(iban)
            return iban

        return perdure.tool(on_crash="fail")(functools.partial(pay, "rent"))

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [one_for(iban)(5) for iban in ("FR02", "IT04")]

    with perdure.open("memory://") as store:
        with pytest.raises(perdure.NeedsAttention, match=r"has as defaults \(iban\)"):
            store.run(pay_all, "a")
        assert paid == ["FR02"]


class Bank:
    def __init__(self, iban: str, paid: list[str]) -> None:
        self._iban, self._paid = iban, paid

    def pay(self) -> str:
        self._paid.append(self._iban)
        return self._iban


def tool_of(bank: Bank) -> Callable[[int], str]:
    def through(cents: int) -> str:
        return bank.pay()

    @perdure.tool(on_crash="fail")
    def pay(cents: int) -> str:
        return through(cents)

    return pay


def tool_by(kind: str, sent: list[str]) -> Callable[[str], str]:
    if kind == "mail":

        @perdure.tool(on_crash="fail")
        def send(text: str) -> str:
            sent.append("mail")
            return "mailed"

    else:

        @perdure.tool(on_crash="fail")
        def send(text: str) -> str:
            sent.append("SMS")
            return "texted"

    return send


def test_tools_of_a_factory_over_clients_are_not_taken_for_each_other() -> None:
    """A tool for each bank, made by one function. The process died when FR02 was paid, and the
    banks came in another order: IT04's got FR02's receipt, FR02 was paid once more, and IT04
    never."""
    paid: list[str] = []
    crashes = True
    french, italian = (Bank(iban, paid) for iban in ("FR02", "IT04"))

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        receipts = []
        for bank in (french, italian) if crashes else (italian, french):
            receipts.append(tool_of(bank)(5))
            if crashes:
                raise SystemExit
        return receipts

    with perdure.open("memory://") as store:
        with pytest.raises(SystemExit):
            store.run(pay_all, "a")
        crashes = False
        with pytest.raises(perdure.NeedsAttention, match=r"has as defaults \(through\)"):
            store.run(pay_all, "a")
    assert paid == ["FR02"]


def test_two_functions_of_one_name_in_one_function_are_not_taken_for_each_other() -> None:
    sent: list[str] = []

    @perdure.agent(dict)
    def tell(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [tool_by("mail", sent)("hi"), tool_by("SMS", sent)("hi")]

    refused = pytest.raises(perdure.NeedsAttention, match="another tool of this name")
    with perdure.open("memory://") as store, refused:
        store.run(tell, "a")
    assert sent == ["mail"]


def test_a_second_function_of_one_name_may_be_made_after_the_first_was_called() -> None:
    """The first call was not noted then: its name was nobody else's yet."""

    def made(kind: str) -> Callable[[str], str]:
        if kind == "mail":

            @perdure.tool(on_crash="fail")
            def send(text: str) -> str:
                return "mailed"

        else:

            @perdure.tool(on_crash="fail")
            def send(text: str) -> str:
                return "texted"

        return send

    @perdure.agent(dict)
    def tell(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [made(kind)("hi") for kind in ("mail", "SMS")]

    refused = pytest.raises(perdure.NeedsAttention, match="another tool of this name")
    with perdure.open("memory://") as store, refused:
        store.run(tell, "a")


@pytest.mark.parametrize("client", [str, lambda iban: Bank(iban, [])], ids=["text", "object"])
@pytest.mark.parametrize("given", [False, True])
def test_tools_with_other_defaults_are_not_taken_for_each_other(
    client: Callable[[str], Any], given: bool
) -> None:
    """In a loop over the accounts, each one's tool has the account as a default: after a crash the
    one called first there got the other's receipt. Where the call passes it, nothing differs."""
    tools, passed = [], [client("LU28")] if given else []
    for iban in ("FR02", "IT04"):

        @perdure.tool(on_crash="fail")
        def pay(
            cents: int,
            account: perdure.Ephemeral[Any] = None,
            bank: Any = client(iban),  # noqa: B008
        ) -> str:
            return "paid"

        tools.append(pay)

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [tool(5, None, *passed) for tool in tools]

    with perdure.open("memory://") as store:
        if given and client is str:
            assert store.run(pay_all, "a") == ["paid", "paid"]
        else:
            with pytest.raises(perdure.NeedsAttention):
                store.run(pay_all, "a")


def test_an_ephemeral_default_makes_no_difference() -> None:
    def made() -> Callable[[int], str]:
        @perdure.tool(on_crash="fail")
        def pay(cents: int, bank: perdure.Ephemeral[Any] = Bank("FR02", [])) -> str:  # noqa: B008
            return "paid"

        return pay

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [made()(5), made()(5)]

    with perdure.open("memory://") as store:
        assert store.run(pay_all, "a") == ["paid", "paid"]


TOOLS = """
import functools, perdure

def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

@perdure.tool(on_crash="fail")
def plain(text, way="mail"):
    return way

@perdure.tool(on_crash="fail")
@logged
def wrapped(text):
    return text
"""


def test_tools_of_a_module_that_is_loaded_anew_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a cell of a notebook is executed again, while a run goes on: on other lines."""
    file = tmp_path / "tools_loaded_anew.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file.write_text(TOOLS)
    module = importlib.import_module(file.stem)

    @perdure.agent(dict)
    def tell(run: perdure.Run[dict[str, Any]]) -> list[str]:
        said = []
        for number in range(3):
            said += [module.plain("hi"), module.wrapped("hi")]
            file.write_text("# a comment\n" * number + TOOLS)
            importlib.reload(module)
        return said

    with perdure.open("memory://") as store:
        assert store.run(tell, "a") == ["mail", "hi"] * 3


def test_a_tool_that_is_made_again_over_the_same_is_the_same() -> None:
    paid: list[str] = []
    bank = Bank("FR02", paid)

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        return [tool_of(bank)(5), tool_of(bank)(5), tool_by("mail", paid)("x")]

    with perdure.open("memory://") as store:
        assert store.run(pay_all, "a") == ["FR02", "FR02", "mailed"]


def test_tools_of_a_factory_with_names_or_the_same_values_are_called() -> None:
    paid: list[str] = []

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict[str, Any]]) -> list[str]:
        again = [tool_for("FR02", paid)(5) for _ in range(2)]
        named = [tool_for(iban, paid, name=f"pay {iban}")(5) for iban in ("FR02", "IT04")]
        return again + named + [tool_for("IT04", paid)(6)]

    with perdure.open("memory://") as store:
        assert store.run(pay_all, "a") == ["FR02", "FR02", "FR02", "IT04", "IT04"] == paid


def sender(module: str, sent: list[str], name: str | None = None) -> Callable[[str], str]:
    """A tool `send` of a module."""

    def send(text: str) -> str:
        sent.append(module)
        return f"sent {module}"

    send.__module__, send.__qualname__ = module, "send"
    return perdure.tool(on_crash="fail", name=name)(send)


def test_tools_of_one_name_of_two_modules_are_not_taken_for_each_other() -> None:
    """`send` by mail and `send` by SMS, with the same text, were one call: with the code changed
    the results were swapped."""
    sent: list[str] = []
    mail, sms = sender("by mail", sent), sender("by SMS", sent)
    other = sender("by fax", sent, name="send a fax")

    @perdure.agent
    def tell(run: perdure.Run[dict[str, Any]], same: bool) -> list[str]:
        return [mail("hi"), mail("hi"), other("hi"), sms("hi" if same else "hello")]

    with perdure.open("memory://") as store:
        assert len(store.run(tell, "b", False)) == 4
        for _ in range(2):
            with pytest.raises(perdure.NeedsAttention, match=r"another tool of this name, by mail"):
                store.run(tell, "a", True)
    assert sent == ["by mail", "by mail", "by fax", "by SMS", "by mail", "by mail", "by fax"]


def test_the_outcome_of_another_modules_tool_is_not_taken_over() -> None:
    """The run was set back, with `effects="reuse"`, as it should have been an SMS: that was never
    sent, and gave what the mail had given."""
    sent: list[str] = []
    tool = sender("by mail", sent)

    @perdure.agent
    def tell(run: perdure.Run[dict[str, Any]]) -> str:
        run.call(len, "x")
        return tool("your code is 1234")

    with perdure.open("memory://") as store:
        assert store.run(tell, "a") == "sent by mail"
        handle = store.handle("a/tell/main")
        handle.retry("len#1", effects="reuse")
        assert store.run(tell, "a") == "sent by mail"
        tool = sender("by SMS", sent)
        handle.retry("len#1", effects="reuse")
        with pytest.raises(perdure.NeedsAttention, match="it was made before"):
            store.run(tell, "a")
        handle.settle("send#1", not_done=True)
        assert store.run(tell, "a") == "sent by SMS"
    assert sent == ["by mail", "by SMS"]


@dataclass
class Config:
    client: Any


class Timeout:
    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timeout) and other.of is self.of

    __hash__ = None  # type: ignore[assignment]


def made_anew(how: str, bank: Bank, other: Bank) -> Callable[[int], str]:
    """A tool as an agent's loop makes it for each round."""

    def halves(cents: int) -> int:
        return cents if cents < 2 else halves(cents // 2)

    held: Any = {
        "a method": bank.pay,
        "a partial of one": functools.partial(bank.pay),
        "a tuple": (bank, other),
        "a list of functions": [lambda: bank],
        "a dict": {"bank": bank, "other": other},
        "an object": Config(bank),
        "a namespace": SimpleNamespace(bank=bank),
        "one that compares": Timeout(bank),
        "one that calls itself": halves,
    }[how]

    def pay(cents: int) -> str:
        assert held is not None
        return "paid"

    return perdure.tool(on_crash="fail")(pay)


@pytest.mark.parametrize(
    "how",
    [
        "a method",
        "a partial of one",
        "a tuple",
        "a list of functions",
        "a dict",
        "an object",
        "a namespace",
        "one that compares",
        "one that calls itself",
    ],
)
def test_a_tool_that_is_made_anew_over_the_same_things_is_the_same(how: str) -> None:
    """A loop made its tools for each round, over the one client of the process: the second equal
    call stopped the run, since a bound method, or a tuple, is another object each time. Of two
    clients it is stopped still."""
    bank, other = Bank("FR02", []), Bank("IT04", [])

    @perdure.agent(dict)
    def rounds(run: perdure.Run[dict[str, Any]], banks: list[int]) -> list[str]:
        both = bank, other
        return [made_anew(how, both[one], both[1 - one])(5) for one in banks]

    with perdure.open("memory://") as store:
        assert store.run(rounds, "a", [0, 0]) == ["paid", "paid"]
        if how != "one that calls itself":
            with pytest.raises(perdure.NeedsAttention, match=r"has as defaults \(held\)"):
                store.run(rounds, "b", [0, 1])


def test_what_stands_under_other_names_is_not_the_same() -> None:
    """The same two clients, exchanged."""
    bank, other = Bank("FR02", []), Bank("IT04", [])

    def over(held: dict[str, Bank]) -> Callable[[int], str]:
        return perdure.tool(on_crash="fail", name="pay")(lambda cents: held["a"].pay())

    @perdure.agent(dict)
    def both(run: perdure.Run[dict[str, Any]]) -> None:
        over({"a": bank, "b": other})(5)
        over({"b": bank, "a": other})(5)

    refused = pytest.raises(perdure.NeedsAttention, match=r"has as defaults \(held\)")
    with perdure.open("memory://") as store, refused:
        store.run(both, "a")
