"""An answer reaches the question that it was given to, and no other: not another turn's, at the
same place, and not another one that the code asks there now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest

import perdure
from perdure.errors import Conflict, NeedsAttention
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.waits import HOUR, Clock, go, records

# -- which question an answer is for -------------------------------------------------------------


@perdure.agent(dict)
def refunds(run: perdure.Run[dict], cents: int) -> Any:
    if cents == 5:
        run.ask("Refund 5 cents?", timeout=HOUR, default=False)
        return run.again(50_000)
    return run.ask(f"Refund {cents} cents?")


def test_a_late_answer_does_not_approve_what_another_turn_asks(store: Store, clock: Clock) -> None:
    """A form showed what the first turn asked, and was sent when the second asked for another sum
    at the same place: with the place, which was all that `answer` took, it approved that."""
    go(store, refunds, "a", 5)
    handle = store.handle("a/refunds/main")
    (shown,) = handle.questions()
    clock.forward(HOUR)
    go(store, refunds, "a", 5)
    (now,) = handle.questions()
    assert (now.place, now.question) == (shown.place, "Refund 50000 cents?")
    for late in (shown, shown.name):
        with pytest.raises(Conflict, match="the question is over: 'Refund 5 cents\\?'"):
            handle.answer(True, to=late, by="ann")
    with pytest.raises(Conflict, match="may have asked something else at ask#1") as refused:
        handle.answer(True, to=shown.place)
    assert now.name in str(refused.value)
    assert handle.questions() == [now]
    handle.answer(False, to=now.name, by="ann")
    with pytest.raises(Conflict, match="was answered already: 'Refund 50000"):
        handle.answer(True, to=now)
    assert go(store, refunds, "a", 5) is False


@perdure.agent(dict)
def at_once(run: perdure.Run[dict]) -> Any:
    with run.executor() as threads:
        asked = [threads.submit(run.ask, words) for words in ("Refund?", "Ship it?")]
        return [future.result() for future in asked]


def test_an_answer_names_its_question_and_its_words_are_no_name(store: Store) -> None:
    """A program gave the words of the question that it meant, as `answer(True, question="Refund?")`
    reads: the error said that the run asks nothing there, that it may have been answered already,
    and not what to say instead. The run asked it, and so it was asked for ever."""
    go(store, at_once)
    handle = store.handle("a/at_once/main")
    by_words = {one.question: one for one in handle.questions()}
    with pytest.raises(Conflict, match="asks several things") as refused:
        handle.answer(True)
    for one in by_words.values():
        assert f"{one.question!r} ({one.name!r})" in str(refused.value)
    with pytest.raises(Conflict, match="not answered by a question's words") as refused:
        handle.answer(True, to="Refund?")
    assert by_words["Refund?"].name in str(refused.value)
    assert "to= one of the run's `questions()`" in str(refused.value)

    async def answer_one() -> None:
        async with perdure.open_async(store.url) as opened:
            asked = await opened.handle(handle.id)
            with pytest.raises(Conflict, match="not answered by a question's words"):
                await asked.answer(True, to="Refund?")
            await asked.answer(False, to=by_words["Ship it?"].name)

    asyncio.run(answer_one())
    handle.answer(True, to=by_words["Refund?"])
    assert go(store, at_once) == [True, False]


@perdure.agent(dict)
def twice(run: perdure.Run[dict]) -> Any:
    run.call(str, 1)
    return [run.ask("First?"), run.ask("Second?")]


def test_a_late_answer_does_not_reach_a_run_that_was_set_back_or_its_fork(store: Store) -> None:
    """Set back, a run asks the same again at the same place, and so does a fork: what was said
    before to the one that is over was taken for what is asked now."""
    go(store, twice)
    handle = store.handle("a/twice/main")
    (first,) = handle.questions()
    handle.answer(True, to=first.place)  # it can have asked one thing there
    go(store, twice)
    (second,) = handle.questions()
    handle.answer(True, to=second)
    assert go(store, twice) == [True, True]
    with pytest.raises(Conflict, match="the question is over"):
        handle.answer(True, to=first)
    fork = handle.fork("str#1", branch="other")
    handle.retry("str#1")
    go(store, twice)
    run_until_waiting(store.options(key="main@other"), twice, "a")
    for anew in (handle, fork):
        assert [asked.question for asked in anew.questions()] == ["First?"]
        with pytest.raises(Conflict, match="may have asked something else"):
            anew.answer(True, to="ask#1")
        with pytest.raises(Conflict, match=r"asks nothing at|the question is over: 'First"):
            anew.answer(True, to=first.name)
    with pytest.raises(Conflict, match="the question is over: 'First"):
        handle.answer(True, to=first)
    with pytest.raises(Conflict, match="was not asked that: a/twice/main was"):
        fork.answer(True, to=first)
    fork.answer(False, to=fork.questions()[0])
    assert [asked.question for asked in handle.questions()] == ["First?"]


# -- which question a recorded answer is for -----------------------------------------------------


def asking(**asked: Any) -> Any:
    """An agent that asks, waits, and gives the answer."""

    @perdure.agent(dict, name="asking")
    def function(run: perdure.Run[dict]) -> Any:
        given = {"question": "Refund 5 cents?", **asked}
        answer = run.ask(given.pop("question"), **given)
        run.wait_for("bank is open")
        return answer

    return function


def asking_async(**asked: Any) -> Any:
    @perdure.agent(dict, name="asking")
    async def function(run: perdure.AsyncRun[dict]) -> Any:
        given = {"question": "Refund 5 cents?", **asked}
        answer = await run.ask(given.pop("question"), **given)
        await run.wait_for("bank is open")
        return answer

    return function


def selecting(**asked: Any) -> Any:
    @perdure.agent(dict, name="asking")
    def function(run: perdure.Run[dict]) -> Any:
        given = {"question": "Refund 5 cents?", **asked}
        came = run.select(said=perdure.Ask(**given), late=perdure.Timer(HOUR))
        run.wait_for("bank is open")
        return came.value

    return function


def go_on(store: Store, function: Any) -> Any:
    """Its result, or None; also of asynchronous functions."""
    return run_until_waiting(store, function, "a").info.result


def answered(store: Store, function: Any, answer: Any = True) -> perdure.RunHandle[Any]:
    go_on(store, function)
    handle = store.handle("a/asking/main")
    handle.answer(answer, to=handle.questions()[0], by="ann")
    go_on(store, function)
    handle.signal("bank is open")
    return handle


@pytest.mark.parametrize("way", [asking, asking_async, selecting])
def test_a_recorded_answer_is_not_given_to_another_question(store: Store, way: Any) -> None:
    """The yes to "Refund 5 cents?" was handed to "Refund 500000 cents?", which another process
    asked at that place, and the tool behind it was called with that."""
    answered(store, way())
    with pytest.raises(NeedsAttention) as stopped:
        go_on(store, way(question="Refund 500000 cents?"))
    for words in ("'Refund 5 cents?'", "'Refund 500000 cents?'", "asks something else now"):
        assert words in str(stopped.value)
    assert store.handle("a/asking/main").status == "needs_attention"
    assert go_on(store, way()) is True  # the code was put back


def test_an_open_question_is_not_asked_in_other_words(store: Store) -> None:
    """Who answers reads what is recorded, and the function takes it for what it asks now."""
    go_on(store, asking())
    store.handle("a/asking/main").answer(True)
    with pytest.raises(NeedsAttention, match="asks something else now"):
        go_on(store, asking(question="Refund 500000 cents?"))


def test_an_answer_is_not_given_to_other_choices(store: Store) -> None:
    """What was chosen of two still was one of two others, and passed for a choice among those."""
    answered(store, asking(schema=Literal["a", "b"]), "a")
    with pytest.raises(NeedsAttention, match=r'\["a", "b"\].*\["a", "c"\]'):
        go_on(store, asking(schema=Literal["a", "c"]))
    assert go_on(store, asking(schema=Literal["a", "b"])) == "a"


@dataclass
class Decision:
    """Said by a person."""

    approved: bool
    cents: int = 0


@dataclass
class Verdict:
    """The same, in other words."""

    approved: bool
    cents: int = 1


def test_a_type_that_asks_for_the_same_may_be_called_otherwise(store: Store) -> None:
    """The names of classes, what is said of them and what they fill in change no answer."""

    def of(kind: Any) -> Any:
        @perdure.agent(dict, name="asking")
        def function(run: perdure.Run[dict]) -> str:
            answer = run.ask("Refund?", schema=kind)
            run.wait_for("bank is open")
            return str(answer)

        return function

    answered(store, of(Decision), {"approved": True})
    assert go_on(store, of(Verdict)) == "Verdict(approved=True, cents=0)"


def test_a_question_that_has_a_key_is_the_same_in_other_words(store: Store) -> None:
    answered(store, asking(key="refund"))
    with pytest.raises(NeedsAttention, match="asks something else now"):
        go_on(store, asking(key="delete"))
    with pytest.raises(NeedsAttention, match="asks something else now"):
        go_on(store, asking())  # nothing says that it is the one that has the key
    assert go_on(store, asking(question="Give back 5 cents?", key="refund")) is True


def test_a_question_is_given_a_key_under_runs_that_asked_it(store: Store) -> None:
    answered(store, asking())
    with pytest.raises(NeedsAttention, match="asks something else now"):
        go_on(store, asking(question="Refund 500000 cents?", key="refund"))
    assert go_on(store, asking(key="refund")) is True
    with pytest.raises(ValueError, match="a question's key is not empty"):
        perdure.open("memory://").run(asking(key=""), "a")


def test_a_run_that_asked_in_old_words_goes_on_with_patched(store: Store) -> None:
    @perdure.agent(dict, name="asking")
    def patched(run: perdure.Run[dict]) -> Any:
        new = run.patched("new words")
        answer = run.ask("Give back 5 cents?" if new else "Refund 5 cents?")
        run.wait_for("bank is open")
        return answer

    answered(store, asking())
    assert go_on(store, patched) is True


def test_questions_that_change_places_do_not_exchange_their_answers(store: Store) -> None:
    """Of two that were asked side by side, each was given the answer of the other."""

    def both(*asked: str) -> Any:
        @perdure.agent(dict, name="asking")
        async def function(run: perdure.AsyncRun[dict]) -> Any:
            answers = await asyncio.gather(*(run.ask(one) for one in asked))
            await run.wait_for("bank is open")
            return dict(zip(asked, answers, strict=True))

        return function

    delete, keep = "delete the customer?", "keep the customer?"
    go_on(store, both(delete, keep))
    handle = store.handle("a/asking/main")
    for one in handle.questions():
        handle.answer(one.question == keep, to=one)
    go_on(store, both(delete, keep))
    handle.signal("bank is open")
    with pytest.raises(NeedsAttention, match="asks something else now"):
        go_on(store, both(keep, delete))
    assert go_on(store, both(delete, keep)) == {delete: False, keep: True}


def test_what_was_asked_before_digests_were_recorded_is_compared_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions recorded the words alone, and those say which question it was."""
    with monkeypatch.context() as older:
        older.setattr("perdure.engine.journal.journal.with_digests", lambda record: record)
        older.setattr("perdure.engine.journal.waits.digests_of", lambda question, schema: {})
        older.setattr(
            "perdure.engine.journal.waits.in_full", lambda q, schema: f"an answer to {q!r}"
        )
        answered(store, asking(schema=Literal["a", "b"]), "a")
    (began,) = (r for r in records(store, kind="wait-began") if "question" in r)
    assert began["args"] == {"it": "ask"}
    with pytest.raises(NeedsAttention, match=r"recorded .*Refund 5 cents.*now .*Refund 9 c"):
        go_on(store, asking(question="Refund 9 cents?", schema=Literal["a", "b"]))
    with pytest.raises(NeedsAttention, match=r'\["a", "b"\].*\["a", "c"\]'):
        go_on(store, asking(schema=Literal["a", "c"]))
    assert go_on(store, asking(schema=Literal["a", "b"])) == "a"
