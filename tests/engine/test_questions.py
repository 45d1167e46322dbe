"""What comes for a run is of a declared type or refused; questions and their answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, SchemaError
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.waits import HOUR, Background, Clock, go, records, until, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


# -- types -------------------------------------------------------------------------------------


@dataclass
class Decision:
    approved: bool
    cents: int = 0


def test_a_value_of_another_type_is_refused_and_recorded_and_the_run_waits_on(
    store: Store,
) -> None:
    @perdure.agent(dict)
    def typed(run: perdure.Run[dict]) -> str:
        decision = run.wait_for("decide", schema=Decision)
        return f"{decision.approved} {decision.cents}"

    go(store, typed)
    handle = store.handle("a/typed/main")
    handle.signal("decide", {"approved": "perhaps"}, by="ann")
    assert go(store, typed) is None
    (refused,) = records(store, kind="message-refused")
    assert refused["who"] == "ann" and "approved" in refused["problem"]
    handle.signal("decide", Decision(True, 5))
    assert go(store, typed) == "True 5"


def test_a_refused_answer_may_be_given_anew(store: Store) -> None:
    """The question was taken for answered: nobody could answer it any more, and the run waited for
    ever."""

    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> str:
        decision = run.ask("Refund?", schema=Decision)
        return f"{decision.approved} {decision.cents}"

    go(store, asking)
    handle = store.handle("a/asking/main")
    for wrong in ({"approved": "no idea"}, {"cents": 3}):
        handle.answer(wrong, by="bob")
        with pytest.raises(Conflict, match="asks nothing"):
            handle.answer({"approved": True})
        assert go(store, asking) is None
        assert handle.status == "waiting"
    (question,) = handle.questions()
    assert (question.refused, question.question) == (2, "Refund?")
    handle.answer({"approved": True, "cents": 1}, by="ann")
    assert go(store, asking) == "True 1"
    assert [r["who"] for r in records(store, kind="message-refused")] == ["bob", "bob"]


def test_a_type_that_no_longer_reads_what_came_stops_the_run(store: Store, crash: Crashes) -> None:
    """It failed for good with a SchemaError, where the type need only read the old form too."""

    def of(kind: Any) -> Any:
        @perdure.agent(dict, name="typed")
        def typed(run: perdure.Run[dict]) -> str:
            got = run.wait_for("s", schema=kind)
            run.call(str, 1)
            crash("after")
            return str(got)

        return typed

    store.start(of(str), "a").signal("s", "text")
    crash.arm("after")
    with pytest.raises(CrashError):
        go(store, of(str))
    with pytest.raises(perdure.NeedsAttention, match="no longer fits its declared type"):
        go(store, of(int))
    assert go(store, of(str)) == "text"


# -- questions ---------------------------------------------------------------------------------


@perdure.agent(dict)
def refunding(run: perdure.Run[dict], cents: int) -> str:
    return "refunded" if run.ask(f"Refund {cents}?") else "refused"


def test_a_question_is_answered_once_and_who_did_is_recorded(place: Place) -> None:
    store = place.open()
    go(store, refunding, "a", 5)
    handle = store.handle("a/refunding/main")
    assert handle.info.waits == "an answer to 'Refund 5?'"
    (question,) = handle.questions()
    assert (question.question, question.schema["type"]) == ("Refund 5?", "boolean")
    for wrong in ("yes", 1, None):
        with pytest.raises(SchemaError, match="wants a boolean"):
            handle.answer(wrong)
    handle.answer(True, by="ann")
    assert handle.questions() == []
    with pytest.raises(Conflict, match="asks nothing"):
        handle.answer(False, by="bob")
    assert go(place.open(), refunding, "a", 5) == "refunded"
    (ended,) = records(store, kind="wait-ended")
    assert (ended["value"], ended["who"]) == (True, "ann")
    with pytest.raises(Conflict, match="is done, and asks nothing"):
        handle.answer(True)


def test_two_who_answer_at_once_are_not_both_heard(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    go(store, refunding, "a", 5)
    one, two = (place.open().handle("a/refunding/main") for _ in range(2))
    asked = two.questions()
    monkeypatch.setattr(two, "questions", lambda: asked)  # it has looked already
    one.answer(False)
    with pytest.raises(Conflict, match="answered already"):
        two.answer(True)
    assert go(store, refunding, "a", 5) == "refused"


def test_a_late_answer_is_none_to_the_next_turns_question(store: Store, clock: Clock) -> None:
    """Both questions were the first of their turn, at the same place: what was said to one, too
    late, approved the other."""

    @perdure.agent(dict)
    def again(run: perdure.Run[dict], turn: int) -> Any:
        answer = run.ask(f"Delete {turn}?", timeout=HOUR, default="nobody said")
        return run.again(2) if turn == 1 else answer

    go(store, again, "a", 1)
    handle = store.handle("a/again/main")
    clock.forward(HOUR)
    handle.answer(True)
    backend = store.runner._context.backend
    (late,) = backend.inbox(kind="answer")
    inbox, looks = backend.inbox, []

    def not_yet(*args: Any, **more: Any) -> Any:  # the answer is slower than the clock
        looks.append(1)
        return [message for message in inbox(*args, **more) if message.no != late.no]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "inbox", not_yet)
        assert go(store, again, "a", 1) is None
    assert looks
    assert go(store, again, "a", 1) is None
    assert [question.question for question in handle.questions()] == ["Delete 2?"]
    handle.answer(False)
    assert go(store, again, "a", 1) is False


def test_what_is_asked_beside_other_work_can_be_answered(store: Store) -> None:
    """A question in a thread of the run was in no log while the run did something else: nobody
    could see it, and the run waited for ever."""
    asked = threading.Event()

    @perdure.agent(dict)
    def beside(run: perdure.Run[dict]) -> Any:
        with run.executor() as threads:
            answer = threads.submit(lambda: run.ask("Really?"))
            asked.wait(60)
            return answer.result()

    running = Background(lambda: store.run(beside, "a"))
    until(store.runs)
    handle = store.handle("a/beside/main")
    (question,) = until(handle.questions, "the question")
    assert question.question == "Really?" and handle.status == "running"
    handle.answer(True)
    asked.set()
    assert running.join() is True


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(tuple[int, str], (1, "a")), (set[str], {"a"}), (bytes, b"a"), (Decimal, Decimal(1))],
)
def test_an_answer_may_be_of_a_kind_that_json_does_not_have(
    store: Store, kind: Any, answer: Any
) -> None:
    """A tuple was refused where the question asks for one: it "wants a array"."""

    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> bool:
        return bool(run.ask("Which?", schema=kind) == answer)

    go(store, asking)
    store.handle("a/asking/main").answer(answer)
    assert go(store, asking) is True
