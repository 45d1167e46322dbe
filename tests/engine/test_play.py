"""`perdure.testing.play`: the real engine, in memory, with stand-ins."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import perdure
from perdure.testing import play


@dataclass
class Ticket:
    customer: str = "c"
    replies: list[str] = field(default_factory=list)


@dataclass
class Receipt:
    cents: int


@perdure.tool(on_crash="ask")
def refund(invoice: str, cents: int) -> Receipt:
    raise AssertionError("the real bank")


@perdure.step
def search(words: str) -> list[str]:
    raise AssertionError("the real index")


def complete(prompt: str) -> str:
    raise AssertionError("the real model")


@perdure.agent(Ticket)
def support(run: perdure.Run[Ticket], question: str) -> Receipt:
    found = search(question)
    reply = run.call(complete, found[0])
    with run.edit("replied") as draft:
        draft.replies.append(reply)
    return refund(f"i-{run.state.customer}", cents=len(reply))


def fake_refund(invoice: str, cents: int) -> Receipt:
    assert perdure.idempotency_key()
    return Receipt(cents)


FAKES = {
    refund: fake_refund,
    search: lambda words: [f"about {words}"],
    complete: lambda prompt: f"I know {prompt}",
}


def test_play_gives_result_state_and_calls() -> None:
    played = play(support, "money", state=Ticket("c-7"), tools=FAKES)
    assert played.result == Receipt(18)
    assert played.state == Ticket("c-7", ["I know about money"])
    assert [(c.kind, c.name, c.arguments, c.value) for c in played.calls] == [
        ("step", "search", "words='money'", ["about money"]),
        ("step", "complete", "prompt='about money'", "I know about money"),
        ("tool", "refund", "invoice='i-c-7', cents=18", {"cents": 18}),
    ]


def test_play_starts_from_the_schemas_default() -> None:
    assert play(support, "x", tools=FAKES).state.customer == "c"


def test_play_raises_what_the_function_raises() -> None:
    def declined(invoice: str, cents: int) -> Receipt:
        raise PermissionError("declined")

    with pytest.raises(PermissionError, match="declined"):
        play(support, "x", tools={**FAKES, refund: declined})
    with pytest.raises(AssertionError, match="the real index"):
        play(support, "x")


def test_play_shows_the_calls_that_failed() -> None:
    @perdure.agent(dict)
    def careful(run: perdure.Run[dict]) -> str:
        try:
            refund("i", 1)
        except PermissionError as error:
            return str(error)
        return "refunded"

    def declined(invoice: str, cents: int) -> Receipt:
        raise PermissionError("declined")

    played = play(careful, tools={refund: declined})
    assert played.result == "declined"
    assert [(c.kind, c.error, c.value) for c in played.calls] == [
        ("tool", "PermissionError: declined", perdure.MISSING)
    ]


def test_answers_left_over_are_an_error() -> None:
    with pytest.raises(ValueError, match="left over"):
        play(support, "x", tools=FAKES, answers=[True])
