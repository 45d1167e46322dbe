"""Questions that show something, and that expire; and the questions of a whole store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

import perdure
from perdure import Ask, Conflict, NeedsAttention, Store, TimedOut, Timer, Unstorable
from perdure.engine.control import open_questions
from perdure.model import Message
from perdure.testing import Clock, kill_at_every_boundary, play, run_until_waiting
from perdure.types import Question
from tests.engine.conftest import Place
from tests.engine.waits import records, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


@dataclass
class Refund:
    customer: str
    cents: Decimal


@perdure.agent(dict)
def refund(run: perdure.Run[dict], cents: int = 500, expires: float | None = None) -> str:
    shown = Refund("c-7", Decimal(cents))
    approved = run.ask("Refund?", data=shown, expires=expires, default=None)
    return {True: "refunded", False: "not refunded", None: "too late"}[approved]


def asked(handle: Any) -> Question:
    (question,) = handle.questions()
    return question  # type: ignore[no-any-return]


def test_what_is_shown_comes_with_the_question(store: Store) -> None:
    handle = run_until_waiting(store, refund, "a")
    question = asked(handle)
    assert question.data == {"customer": "c-7", "cents": Decimal(500)}
    assert (question.agent, question.expires, len(question.digest) > 10) == ("a", None, True)
    (began,) = records(store, "a", "wait-began")
    assert began["data"] == question.data
    handle.answer(True, to=question, by="ann")
    assert store.run(refund, "a") == "refunded"


def test_an_answer_says_what_it_is_for(store: Store) -> None:
    """A form was open for an hour. It approved whatever the run asked by then."""
    handle = run_until_waiting(store, refund, "a")
    with pytest.raises(Conflict, match="about data that the answer does not speak of") as refused:
        handle.answer(True)
    assert asked(handle).name in refused.value.hint
    handle.answer(False, to=asked(handle).name)
    assert store.run(refund, "a") == "not refunded"


@perdure.agent(dict)
def haggle(run: perdure.Run[dict]) -> list[int]:
    approved = []
    for cents in (500, 50_000):
        while (
            came := run.select(yes=Ask("Refund?", data=cents), more=perdure.Signal("more"))
        ).name == "more":
            cents *= 2
        approved.append(cents if came.value else 0)
    return approved


def test_the_data_has_changed_since(store: Store) -> None:
    """The run asked the same words about another sum by the time that somebody approved."""
    handle = run_until_waiting(store, haggle, "a")
    seen = asked(handle)
    handle.signal("more")
    run_until_waiting(store, haggle, "a")
    assert asked(handle).data == 1000
    for to in (seen, seen.name):
        with pytest.raises(Conflict, match="question is over"):
            handle.answer(True, to=to)
    handle.answer(True, to=asked(handle))
    run_until_waiting(store, haggle, "a")
    handle.answer(False, to=asked(handle))
    assert store.run(haggle, "a") == [1000, 0]


def test_the_data_at_the_same_place_has_changed(store: Store) -> None:
    """It was set back, and drew another sum: the name of the question says what it shows."""
    sums = [500, 700]

    @perdure.step
    def draw() -> int:
        return sums.pop(0)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> bool:
        return bool(run.ask("Refund?", data={"cents": draw()}, key="refund"))

    handle = run_until_waiting(store, act, "a")
    seen = asked(handle)
    handle.cancel()
    handle.retry("draw#1")
    run_until_waiting(store, act, "a")
    assert (asked(handle).place, asked(handle).data) == (seen.place, {"cents": 700})
    for to in (seen, seen.name):
        with pytest.raises(Conflict, match=r"500.*; what it shows has changed, to .*700"):
            handle.answer(True, to=to)
    forged = Question(**{**plain(asked(handle)), "data": {"cents": 1}, "digest": seen.digest})
    with pytest.raises(Conflict, match="shows something else by now"):
        handle.answer(True, to=forged)
    handle.answer(True, to=asked(handle))
    assert store.run(act, "a")


def plain(question: Question) -> dict[str, Any]:
    return {name: getattr(question, name) for name in question.__struct_fields__}


def test_changed_code_does_not_reuse_an_approval(store: Store) -> None:
    """Also under a key, which lets the words change: the answer was for what was shown."""

    def program(cents: int, words: str) -> Any:
        @perdure.agent(dict, name="act")
        def act(run: perdure.Run[dict]) -> bool:
            approved = bool(run.ask(words, data={"cents": cents}, key="refund"))
            run.wait_for("go")
            return approved

        return act

    handle = run_until_waiting(store, program(5, "Refund?"), "a")
    handle.answer(True, to=asked(handle))
    run_until_waiting(store, program(5, "Pay back?"), "a")
    handle.signal("go")
    with pytest.raises(NeedsAttention, match=r"asks something else now: .*500"):
        store.run(program(500, "Pay back?"), "a")
    handle.resume()
    assert store.run(program(5, "Refund?"), "a")


def test_it_expires(place: Place) -> None:
    """Nobody was there to go on with the run when the time was up, and an approval that came a day
    later still counted, as it would for a timeout."""
    clock = Clock()
    # PostgreSQL has the time of its server.
    store = clock.open(place.url if "postgresql" not in place.url else "memory://")
    place.opened.append(store)
    handle = run_until_waiting(store, refund, "a", 500, 3600.0)
    question = asked(handle)
    assert question.expires is not None
    assert timedelta(0) <= question.expires - question.since <= timedelta(hours=1)
    clock.advance(timedelta(hours=2))
    with pytest.raises(Conflict, match="expired at"):
        handle.answer(True, to=question)
    # Another sender looked before the time was up, and its answer came in behind that.
    late = Message(handle.id, "a", "answer", question.name, "", True, "late", 0)
    store._context.send(late)
    assert store.run(refund, "a", 500, 3600.0) == "too late"
    (refused,) = records(store, "a", "message-refused")
    assert (refused["who"], refused["kind"]) == ("late", "ask")
    with pytest.raises(Conflict, match="question is over"):
        handle.answer(True, to=question)


@pytest.mark.parametrize("wrong", [datetime(2040, 1, 1), "tomorrow", float("nan")])
def test_when_it_cannot_expire(store: Store, wrong: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        run.ask("Well?", expires=wrong)

    with pytest.raises((ValueError, TypeError)):
        store.run(act, "a")


def test_what_cannot_be_asked(store: Store) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict], kind: str) -> None:
        if kind == "both":
            run.ask("Well?", timeout=5, expires=6)
        elif kind == "endless":
            run.select(well=Ask("Well?", expires=5))
        else:
            run.ask("Well?", data={"client": object()})

    for kind, error in (("both", ValueError), ("endless", ValueError), ("data", Unstorable)):
        with pytest.raises(error, match=r"one of both|Timer, too|data\.client"):
            store.options(key=kind).run(act, "a", kind)


def test_a_moment_to_expire_at_and_a_timer_beside_it(store: Store) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        passed = datetime(2020, 1, 1, tzinfo=UTC)
        try:
            run.ask("Too late?", expires=passed)
        except TimedOut:
            return run.select(it=Ask("Well?", expires=5, data=[1]), late=Timer(0.01)).name
        return "answered"

    assert store.run(act, "a") == "late"


def test_the_last_moment_there_is(store: Store) -> None:
    last = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> bool:
        return bool(run.ask("Ever?", expires=last))

    handle = run_until_waiting(store, act, "a")
    assert asked(handle).expires is not None
    handle.answer(True)
    assert store.run(act, "a")


def test_killed_anywhere() -> None:
    @perdure.tool(on_crash="retry")
    def pay(cents: int) -> int:
        return cents

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        data = {"cents": pay(5)}
        return pay(7) if run.ask("More?", data=data, expires=60) else 0

    kill_at_every_boundary(act, answers=[True])
    assert play(act, answers=[True]).result == 7


def test_the_questions_of_all_agents(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inbox of a team: whoever listed what waits had to ask each run, by its id."""
    monkeypatch.setattr(open_questions, "PAGE", 2)

    @perdure.agent(dict)
    def quiet(run: perdure.Run[dict]) -> None:
        run.wait_for("nothing")

    handles = [run_until_waiting(store, refund, f"ticket-{n}", n) for n in range(5)]
    run_until_waiting(store, quiet, "quiet")
    run_until_waiting(store, haggle, "other")
    every = store.questions()
    assert [one.agent for one in every] == [*(f"ticket-{n}" for n in range(5)), "other"]
    assert store.questions("ticket-3") == [every[3]]
    pages, last = [], None
    while page := store.questions(limit=2, after=last):
        pages.append([one.agent for one in page])
        last = page[-1]
    assert pages == [["ticket-0", "ticket-1"], ["ticket-2", "ticket-3"], ["ticket-4", "other"]]
    assert store.questions(after=every[3].run) == every[4:]
    assert store.questions(limit=0) == []
    handles[0].answer(True, to=every[0])
    assert store.questions() == every[1:]
    store.run(refund, "ticket-0", 0)
    assert store.questions(after=every[0]) == every[1:], "that run has ended meanwhile"
    with pytest.raises(TypeError):
        store.questions(limit="2")  # type: ignore[arg-type]


def test_from_an_event_loop(place: Place) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> bool:
        return bool(await run.ask("Refund?", data={"cents": 5}, expires=timedelta(hours=1)))

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            going = asyncio.create_task(store.run(act, "a"))
            while not (found := await store.questions()):
                await asyncio.sleep(0.01)
            handle = await store.handle(found[0].run)
            with pytest.raises(Conflict, match="about data"):
                await handle.answer(True)
            await handle.answer(True, to=found[0])
            assert await going

    asyncio.run(main())
