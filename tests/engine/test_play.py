"""`perdure.testing.play`: the real engine, in memory, with stand-ins."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import pytest

import perdure
from perdure.testing import Clock, kill_at_every_boundary, play


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


@dataclass
class Bill:
    number: str


class Row(TypedDict):
    number: str


BILL = perdure.Schema(Bill, id="bill")


@perdure.agent(BILL)
def billing(run: perdure.Run[Bill]) -> str:
    return run.state.number


@perdure.agent(Row)
def row(run: perdure.Run[Row]) -> str:
    return run.state["number"]


@perdure.agent(perdure.Schema(int | str, id="several"))
def several(run: perdure.Run[Any]) -> Any:
    return run.state


WAYS = {billing: r"state=Bill\(…\)", row: r"state=Row\(…\)", several: "state=…"}


@pytest.mark.parametrize("tried", [play, kill_at_every_boundary])
@pytest.mark.parametrize("function", WAYS)
def test_a_state_that_needs_values_is_asked_for_in_the_words_of_the_call(
    tried: Any, function: Any
) -> None:
    """It was about an agent "played", which nobody had named, and named the way out of another
    call, `store.agent(…, initial=bill(…))`, with the schema's id for a class."""
    words = f"function {function.__name__}: its state cannot be made without values"
    with pytest.raises(perdure.SchemaError, match=f"^{words}\n  → give one: {WAYS[function]} "):
        tried(function)


def test_an_agent_that_needs_values_is_begun_with_them() -> None:
    """A run had no agent to go on with, and said to open a handle: that alone creates none."""
    with perdure.open("memory://") as store:
        with pytest.raises(perdure.SchemaError, match=r"initial=Bill\(…\)\), whose first commit"):
            store.run(billing, "a")
        with store.agent("a", BILL, initial=Bill("b-1")).edit("begun"):
            pass
        assert store.run(billing, "a") == "b-1"


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


@dataclass
class Choice:
    color: str
    count: int = 1


def test_questions_and_signals_get_what_was_given() -> None:
    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> list[Any]:
        answer = run.ask("Which?", schema=Choice)
        got = [run.wait_for("news"), run.wait_for("news", schema=Choice)]
        both = run.select(late=perdure.Timer(60), early=perdure.Signal("early"))
        return [answer.color, answer.count, got[0], got[1].color, both.name, both.value]

    played = play(
        asking,
        answers=[Choice("red", 2)],
        signals={"news": ["first", Choice("blue")], "early": [7]},
    )
    assert played.result == ["red", 2, "first", "blue", "early", 7]


def test_signals_left_over_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"signals left over: \{'news': \[1\]\}"):
        play(support, "x", tools=FAKES, signals={"news": [1], "none": []})


def test_what_was_not_given_is_named() -> None:
    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict]) -> Any:
        return run.wait_for("approval")

    with pytest.raises(perdure.NeedsAttention, match="waits for signal 'approval', and nothing"):
        play(waiting)


def test_an_answer_that_does_not_fit_is_an_error() -> None:
    """It was recorded as refused, along with taking out a message that was never there; so the
    commit failed, and with it the run, in words that spoke of a message."""

    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> Any:
        return run.ask("Refund?")

    with pytest.raises(perdure.SchemaError):
        play(asking, answers=["perhaps"])


def test_time_takes_no_time() -> None:
    tries: list[int] = []

    @perdure.step(retry=perdure.Retry(4, first=3600, jitter=0))
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionError("no")
        return "yes"

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict]) -> list[Any]:
        began = run.now()
        run.sleep(timedelta(days=30))
        got = [flaky(), run.ask("Still there?", timeout=timedelta(days=7), default="no")]
        got.append(run.wait_for("never", timeout=0.5, default="never"))
        return [*got, run.now() - began]

    start = datetime(2031, 1, 1, tzinfo=UTC)
    clock = Clock(start)
    result = play(slow, clock=clock).result
    assert result[:3] == ["yes", "no", "never"]
    assert result[3] == clock.now - start >= timedelta(days=37)


def test_an_async_function_is_played() -> None:
    async def look_up(words: str) -> str:
        raise AssertionError("the real one")

    look = perdure.step(name="look")(look_up)

    async def fake(words: str) -> str:
        return words.upper()

    @perdure.agent(dict)
    async def several(run: perdure.AsyncRun[dict]) -> list[Any]:
        found = await asyncio.gather(look("a"), look("b"), run.call(search, "c"))
        await asyncio.gather(run.sleep(3600), run.sleep(7200))
        async with run.edit("found") as draft:
            draft["found"] = found
        return [*found, await run.ask("Enough?")]

    played = play(several, tools={look: fake, **FAKES}, answers=[True])
    assert played.result == ["A", "B", ["about c"], True]
    assert sorted(call.name for call in played.calls) == ["look", "look", "search"]


def test_tasks_that_wait_side_by_side_get_their_own() -> None:
    @perdure.agent(dict)
    def side_by_side(run: perdure.Run[dict]) -> list[Any]:
        return run.map(run.wait_for, ["one", "two"])

    played = play(side_by_side, signals={"one": [1], "two": [2]})
    assert played.result == [1, 2]


def test_turns_are_played() -> None:
    @perdure.agent(dict)
    def turning(run: perdure.Run[dict], left: int) -> Any:
        with run.edit("turn") as draft:
            draft.setdefault("seen", []).append(left)
        return run.again(left - 1) if left else "done"

    played: Any = play(turning, 2)
    assert (played.result, played.state) == ("done", {"seen": [2, 1, 0]})


def test_children_are_refused_clearly() -> None:
    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> Any:
        return run.start(support, "other", "x").result()

    with pytest.raises(perdure.NeedsAttention, match=r"starts a run of support.*function alone"):
        play(parent)


def test_a_probe_has_a_stand_in_too() -> None:
    def real(cents: int) -> object:
        raise AssertionError("the real probe")

    late: list[int] = []

    @perdure.tool(on_crash="probe", probe=real, timeout=0.05)
    def pay(cents: int) -> int:
        raise AssertionError("the real bank")

    def slow(cents: int) -> int:
        late.append(cents)
        while len(late) < 2:
            pass
        return cents

    @perdure.agent(dict)
    def paying(run: perdure.Run[dict]) -> int:
        return pay(5)

    def probe(cents: int) -> int:
        late.append(cents)
        return cents + 1

    assert play(paying, tools={pay: slow, real: probe}).result == 6
