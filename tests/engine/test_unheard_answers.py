"""Answers that came when nobody waited for them any more: who gave them is told, and the log says
so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Ask, Conflict, Signal
from perdure.engine.execution.run_inbox import RunInbox
from perdure.model import FINISHED, Message
from perdure.store import Store
from perdure.testing import Ending, run_until_waiting
from perdure.testing.driving import has_news
from tests.engine.conftest import Place
from tests.engine.kills import kill_program_at_every_other_boundary
from tests.engine.waits import HOUR, Background, Clock, go, records, until

heard: dict[str, str] = {}


@perdure.step
async def look(what: str) -> str:
    return what


async def asks(run: perdure.AsyncRun[dict], question: str) -> None:
    heard[question] = await run.ask(question, schema=str)


async def first_of(run: perdure.AsyncRun[dict]) -> None:
    tasks = [asyncio.create_task(asks(run, question)) for question in ("a?", "b?")]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def group_that_fails(run: perdure.AsyncRun[dict]) -> None:
    async def fails(question: str) -> None:
        await asks(run, question)
        raise LookupError(question)

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            for question in ("a?", "b?"):
                tasks.create_task(fails(question))


@perdure.agent(dict)
async def anew(run: perdure.AsyncRun[dict], way: str) -> list[str]:
    heard.clear()
    await {"first": first_of, "group": group_that_fails}[way](run)
    await look("between")
    return [heard["a?"], heard.get("b?") or await run.ask("b?", schema=str)]


WAYS = pytest.mark.parametrize("way", ["first", "group"])


@WAYS
def test_an_answer_that_a_cancelled_task_took_is_seen_to_be_unheard(store: Store, way: str) -> None:
    """Two people answered at once, and the task that had heard of one answer cancelled the other:
    that answer was nowhere to be seen, as if nobody had given it."""
    handle = run_until_waiting(store, anew, "a", way)
    first, second = handle.questions()
    handle.answer("yes", to=first, by="ann")
    handle.answer("early", to=second, by="bob")
    assert run_until_waiting(store, anew, "a", way).status == "waiting"
    (unheard,) = [event for event in handle.report().events if event.state == "cancelled"]
    assert (unheard.question, unheard.value, unheard.who) == ("b?", "early", "bob")
    (asked,) = handle.questions()  # it is another question, and that answer is none to it
    assert asked.question == "b?" and asked.name != second.name
    with pytest.raises(Conflict, match="the question is over"):
        handle.answer("once more", to=second)
    handle.answer("late")
    assert go_async(store, way) == ["yes", "late"]
    store.agent("a").verify()


def go_async(store: Store, way: str) -> Any:
    return run_until_waiting(store, anew, "a", way).result(timeout=0)


@WAYS
def test_a_question_whose_task_was_cancelled_is_asked_no_more(store: Store, way: str) -> None:
    """The form stayed open: an answer was taken in, and reached nobody. And `answer` without a
    name was refused, as two things were asked."""
    handle = run_until_waiting(store, anew, "a", way)
    first, second = handle.questions()
    handle.answer("yes", to=first)
    run_until_waiting(store, anew, "a", way)
    with pytest.raises(Conflict, match="the question is over"):
        handle.answer("too late", to=second)
    assert [question.place for question in handle.questions()] == ["ask#1"]
    handle.answer("in time")
    assert go_async(store, way) == ["yes", "in time"]


@WAYS
def test_it_is_so_wherever_the_process_dies(way: str, tmp_path: Path) -> None:
    def program(folder: Path) -> Any:
        with perdure.open(folder / "agents.db", durability="os") as store:
            while True:
                handle = run_until_waiting(store, anew, "a", way)
                if handle.status in FINISHED:
                    return handle.result(timeout=0)
                for question in handle.questions():
                    said = {"a?": "yes", "b?": "late"}[question.question]
                    is_early = question.question == "b?" and question.place != "ask#1"
                    handle.answer("early" if is_early else said, to=question)
                assert has_news(store.runner.context.backend, handle.info)

    def check(ending: Ending) -> None:
        assert ending.result == ["yes", "late"], ending

    first = int(way == "first")
    assert kill_program_at_every_other_boundary(program, check, tmp_path, first) > 5


@perdure.agent(dict)
async def kept(run: perdure.AsyncRun[dict]) -> list[str]:
    """What is to be asked once, whatever happens to who waits for it."""
    answer = asyncio.create_task(run.ask("b?", schema=str))
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(waits(answer))
            tasks.create_task(fails(run))
    except* LookupError:
        await look("once more")
    return [await answer]


async def waits(answer: asyncio.Task[str]) -> None:
    await asyncio.shield(answer)


async def fails(run: perdure.AsyncRun[dict]) -> None:
    await run.ask("a?", schema=str)
    raise LookupError


@pytest.mark.parametrize("both", [True, False])
def test_a_question_that_is_shielded_outlives_who_waits_for_it(both: bool, tmp_path: Path) -> None:
    def program(folder: Path) -> Any:
        with perdure.open(folder / "agents.db", durability="os") as store:
            while True:
                handle = run_until_waiting(store, kept, "a")
                if handle.status in FINISHED:
                    return handle.result(timeout=0)
                asked = sorted(handle.questions(), key=lambda one: one.question)
                for question in asked if both else asked[:1]:
                    handle.answer(f"{question.question} yes", to=question)

    def check(ending: Ending) -> None:
        assert ending.result == ["b? yes"], ending

    assert kill_program_at_every_other_boundary(program, check, tmp_path) > 5


def test_what_came_as_the_task_was_cancelled_is_refused_and_recorded(store: Store) -> None:
    """The answer lay in the inbox, and the task that asked was cancelled before it looked: it was
    in no log, and in no inbox when the run had ended."""

    @perdure.step
    async def answered(run_id: str, question: str) -> None:
        message = Message(run_id, "a", "answer", question, "", "yes", "ann")
        store.runner.context.backend.send(message)  # nobody is told

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        task = asyncio.create_task(asks(run, "a?"))
        (question,) = await asyncio.to_thread(until, store.handle(run.id).questions)
        await answered(run.id, question.name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await run.sleep(HOUR)

    handle = run_until_waiting(store, act, "a")
    assert [message.kind for message in handle.report().inbox] == []
    (refused,) = records(store, kind="message-refused")
    assert (refused["value"], refused["who"], refused["kind"]) == ("yes", "ann", "ask")
    assert "continued without it" in refused["problem"]
    assert [e.kind for e in handle.report().events if e.place == refused["place"]] == [
        "wait",
        "refused",
    ]


class Slow:
    """A step that a test lets come to its end."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def make(self, is_async: bool) -> Callable[[], Any]:
        @perdure.step(name="slow")
        def slow() -> None:
            self.begun.set()
            assert self.go.wait(30)

        @perdure.step(name="slow")
        async def aslow() -> None:
            await asyncio.to_thread(slow)

        return aslow if is_async else slow


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("what", ["timeout", "select"])
def test_a_question_that_ended_without_an_answer_is_over_at_once(
    place: Place, is_async: bool, what: str
) -> None:
    """Nobody had answered within the time, and the run went on, for ten minutes, with one step.
    Who answered meanwhile was told that the answer was there, and nobody ever saw it."""
    slow = Slow()
    step = slow.make(is_async)

    @perdure.agent(dict, name="act")
    def act(run: perdure.Run[dict]) -> Any:
        if what == "timeout":
            given = run.ask("a?", timeout=0.05, default=False)
        else:
            given = run.select(signal=Signal("go on"), answer=Ask("a?")).name
        step()
        return given

    @perdure.agent(dict, name="act")
    async def aact(run: perdure.AsyncRun[dict]) -> Any:
        if what == "timeout":
            given = await run.ask("a?", timeout=0.05, default=False)
        else:
            given = (await run.select(signal=Signal("go on"), answer=Ask("a?"))).name
        await step()
        return given

    store = place.open()
    made = aact if is_async else act
    handle = store.start(made, "a")
    worker = perdure.Worker(store, [made])
    running = Background(worker.run)
    try:
        asked = until(handle.questions) if what == "select" else []
        if asked:
            handle.signal("go on")
        assert slow.begun.wait(30)
        assert handle.questions() == []
        for question in asked:
            with pytest.raises(Conflict, match="the question is over"):
                handle.answer(True, to=question)
        slow.go.set()
        assert handle.result(timeout=30) == (False if what == "timeout" else "signal")
    finally:
        slow.go.set()
        worker.stop()
        running.join()


def test_an_answer_that_came_behind_the_signal_is_refused_and_recorded(store: Store) -> None:
    """Both had come, and the signal first. Signals that a `select` leaves are for the next wait;
    the answer was for nobody, and its giver was never told."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[Any]:
        came = run.select(signal=Signal("go on"), answer=Ask("a?"))
        return [came.name, run.ask("a?")]

    handle = run_until_waiting(store, act, "a")
    handle.signal("go on")
    handle.answer(True, by="ann")
    assert run_until_waiting(store, act, "a").status == "waiting"
    assert handle.report().inbox == []
    (refused,) = records(store, kind="message-refused")
    assert (refused["value"], refused["who"]) == (True, "ann")
    handle.answer(False)
    assert go(store, act) == ["signal", False]


def test_who_answers_as_the_time_is_up_is_told(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question was open when it was looked at, and over when the answer came: that was taken
    for given, and the run had gone on without it."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        given = run.ask("a?", timeout=HOUR, default="nobody said")
        run.sleep(HOUR)
        return given

    handle = run_until_waiting(store, act, "a")
    send = handle._send

    def later(*args: Any) -> Any:
        clock.forward(HOUR)
        run_until_waiting(store, act, "a")
        return send(*args)

    monkeypatch.setattr(handle, "_send", later)
    with pytest.raises(Conflict, match="went on without this answer"):
        handle.answer(True)
    clock.forward(HOUR)
    assert go(store, act) == "nobody said"


@pytest.mark.parametrize("then", ["waits", "ends", "turns", "fails"])
def test_an_answer_beside_the_commit_of_its_questions_end_is_recorded(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It came behind the last look for it, and before that commit was in: its giver was told that
    it counts, the run had gone on without it, and nothing of it was in the log, ever."""
    answers_to = RunInbox.answers_to

    def comes(mail: RunInbox, question: str) -> list[Message]:
        found = answers_to(mail, question)
        monkeypatch.undo()  # the clock stands still, and has come there
        handle.answer(True, by="ann")
        return found

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], turn: int = 1) -> Any:
        given = run.ask("a?", timeout=HOUR, default="nobody said") if turn == 1 else None
        if then == "turns" and turn == 1:
            return run.again(2)
        if then == "fails":
            raise ValueError("it fails")
        return run.wait_for("more") if then != "ends" else given

    handle = run_until_waiting(store, act, "a")
    clock.forward(2 * HOUR)
    monkeypatch.setattr(RunInbox, "answers_to", comes)
    with pytest.raises(ValueError, match="it fails") if then == "fails" else nullcontext():
        go(store, act)
    (refused,) = records(store, kind="message-refused")
    assert (refused["value"], refused["who"], refused["place"]) == (True, "ann", "ask#1")
    assert store._context.backend.inbox(handle.id) == []
    store.agent("a").verify()


@pytest.mark.parametrize("way", ["cancel", "rollback"])
def test_an_answer_to_a_run_that_is_cancelled_is_recorded(store: Store, way: str) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        return run.ask("a?")

    agent = store.agent("a")
    before = agent.checkpoint("before")
    handle = run_until_waiting(store, act, "a")
    handle.answer(True, by="ann")
    if way == "cancel":
        handle.cancel()
    else:
        agent.rollback(before.name, cancel_run=True)
    (refused,) = records(store, kind="message-refused")
    assert (refused["value"], refused["who"], refused["place"]) == (True, "ann", "ask#1")
    assert store._context.backend.inbox(handle.id) == []
    agent.verify()
