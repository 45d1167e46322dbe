"""Why a run is not moving: one answer for any run, which ends with what to do."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store, Worker
from perdure.engine.control import why
from perdure.engine.functions import agent_functions
from perdure.types import Explanation

BOUND_S = 30.0


class PowerLoss(BaseException):
    """Ends a tool between its intent and its outcome, as a crash does."""


@perdure.step
def draft(question: str) -> str:
    return f"about {question}"


@perdure.tool
def send(text: str) -> str:
    return "sent"


@perdure.tool
def wire(cents: int) -> str:
    raise PowerLoss


@perdure.tool
def die(cents: int) -> str:
    os._exit(9)


@perdure.agent(dict)
def asking(run: Any) -> str:
    run.progress("asking a person", 0.5)
    draft("x")
    if run.ask("Refund?"):
        return str(run.wait_for("paid", timeout=3600))
    return "no"


@perdure.agent(dict)
def sleeping(run: Any) -> None:
    run.sleep(1.5)


@perdure.agent(dict)
def wiring(run: Any) -> str:
    return draft("x") + wire(5)


@perdure.agent(dict)
def dying(run: Any) -> str:
    return draft("x") + die(5)


@perdure.agent(dict)
def child(run: Any, number: int) -> int:
    return number


@perdure.agent(dict)
def parent(run: Any) -> Any:
    return run.start(child, "kid", 7).result()


@perdure.agent(dict)
def failing(run: Any) -> None:
    raise ValueError("no such invoice")


@perdure.agent(dict)
def with_client(run: Any, client: object) -> str:
    return wire(5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def worker(store: Store, *functions: Any) -> Iterator[None]:
    works = Worker(store, functions)
    thread = threading.Thread(target=lambda: works.run(signals=False))
    thread.start()
    try:
        yield
    finally:
        works.stop()
        thread.join()


def started(store: Store, function: Any, agent: str, *, till: str = "waiting") -> Any:
    """A run that got as far as this, with nobody left who executes it."""
    handle = store.start(function, agent)
    with worker(store, function):
        until(lambda: handle.status == till)
    return handle


def commands(said: Explanation) -> list[str]:
    assert said.ways, "every answer ends with what to do"
    return [" ".join(way.command) for way in said.ways if way.command]


def test_a_run_that_waits_says_for_what_and_how_to_bring_it(store: Store) -> None:
    handle = started(store, asking, "t")
    said = handle.why()
    assert (said.situation, said.status) == ("waiting", "waiting")
    assert said.why == "waits for an answer to 'Refund?'"
    assert said.since is not None
    assert [call.place for call in said.calls] == ["ask#1"]
    (question,) = handle.questions()  # by its name: what is pasted later is for no other one
    assert commands(said)[0] == f"answer t/asking/main VALUE --to {question.name}"
    assert any("no living worker serves function 'asking'" in way.words for way in said.ways)


def test_what_it_does_not_wait_for_does_not_hide_what_it_waits_for(store: Store) -> None:
    """Story: after a signal whose name was mistyped, nothing was said but that nobody goes on with
    that; and a signal that was refused was told to nobody."""

    @perdure.agent(dict)
    def wanting(run: perdure.Run[dict[str, Any]]) -> str:
        return str(run.wait_for("note", schema=str))

    handle = started(store, wanting, "t")
    handle.signal("nota", "hi")
    said = handle.why()
    assert said.situation == "waiting"
    assert said.why == "waits for signal 'note'; in its inbox, and not waited for: signal 'nota'"
    with worker(store, wanting):
        handle.signal("note", 5)
        until(lambda: "was refused" in handle.why().why)
        assert "got `int`" in handle.why().why
        handle.signal("note", "text")
        assert handle.result(30) == "text"


def test_a_run_that_sleeps_says_until_when_once(store: Store) -> None:
    @perdure.agent(dict)
    def sleeping(run: perdure.Run[dict[str, Any]]) -> None:
        run.sleep(3600)

    words = started(store, sleeping, "t").why().why
    assert re.fullmatch(r"sleeps until [-0-9: ]+, for 59 min \d+ s more", words), words


def test_what_came_and_nobody_went_on_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = started(store, asking, "t")
    handle.answer(True, by="ann")
    said = handle.why()
    assert said.situation == "due"
    assert "an answer came at" in said.why
    assert "which had it last, is alive" in said.why, "its program may be just about to"
    monkeypatch.setattr(why, "LATE_S", 0.0)
    said = handle.why()
    assert "from ann, and nobody went on with it" in said.why
    assert commands(said)[0] == "worker MODULE:asking"
    with worker(store, asking):
        until(lambda: "paid" in handle.info.waits)
        assert "no living worker" not in " ".join(way.words for way in handle.why().ways)
    said = handle.why()
    assert "its timer is due" in said.why
    assert "signal t/asking/main paid VALUE" in commands(said)


def test_a_timer_that_is_due_and_no_worker(store: Store) -> None:
    handle = started(store, sleeping, "t")
    until(lambda: handle.why().situation == "due")
    assert "its timer was due" in handle.why().why
    assert commands(handle.why())[0] == "worker MODULE:sleeping"


def test_a_parent_that_waits_for_a_child_leads_to_the_child(store: Store) -> None:
    handle = started(store, parent, "t")
    (first, *_) = commands(handle.why())
    assert first.startswith("why kid/child/")
    said = store.handle(first.removeprefix("why ")).why()
    assert said.situation == "pending"
    assert said.why.startswith("has not begun: no living worker serves function 'child'")


def test_a_run_behind_another_names_it(store: Store) -> None:
    started(store, asking, "t")
    second = store.options(key="second").start(asking, "t")
    said = second.why()
    assert (said.situation, said.behind) == ("queued", "t/asking/main")
    assert "waiting for an answer to 'Refund?'" in said.why
    assert commands(said)[0] == "why t/asking/main"


def test_a_queue_is_named_where_nobody_picks_up(store: Store) -> None:
    handle = store.options(queue="mail").start(child, "t", 1)
    assert "queue 'mail'" in handle.why().why
    assert commands(handle.why())[0] == "worker MODULE:child --queue mail"
    store.start(asking, "other")
    with worker(store, asking):
        until(lambda: store.handle("other/asking/main").status == "waiting")
        assert "there is a worker for asking" in handle.why().why


def test_a_worker_of_another_queue_is_not_its_worker(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent waited, and `why` said of the child that a worker goes on with it by itself: one
    that serves its function, and never looks at its queue."""
    monkeypatch.setattr(agent_functions, "_versions", {})  # other tests' functions of these names
    handle = store.options(queue="mail").start(child, "t", 1)
    with worker(store, child):
        until(lambda: "(there is a worker for child in queue 'default')" in handle.why().why)
        said = handle.why()
        assert "no living worker serves function 'child', queue 'mail'" in said.why
        assert said.workers == ()
        assert commands(said)[0] == "worker MODULE:child --queue mail"
        mail = Worker(store, [child, asking], queues=["mail", "letters"])
        thread = threading.Thread(target=lambda: mail.run(signals=False))
        store.options(queue="other").start(child, "u", 1)
        thread.start()
        assert handle.result(BOUND_S) == 1
        serves = "for asking in queue 'letters', asking in queue 'mail', child in queue"
        until(lambda: serves in store.handle("u/child/main").why().why)
        mail.stop()
        thread.join()


def test_a_run_that_is_executed_says_at_which_call(store: Store) -> None:
    seen: list[Explanation] = []

    @perdure.tool
    def look(path: str) -> str:
        with perdure.open(store.url) as other:
            seen.append(other.handle("t/busy/main").why())
            other.handle("t/busy/main").cancel("enough")
            seen.append(other.handle("t/busy/main").why())
        return path

    @perdure.agent(dict, name="busy")
    def busy(run: Any) -> str:
        return draft("x") + look("y") + send("z")

    with pytest.raises(perdure.PerdureError):
        store.run(busy, "t")
    assert seen[0].situation == "executing"
    assert seen[0].executor is not None
    assert "is at tool look#1(path='y') since" in seen[0].why
    assert seen[0].last is not None
    assert seen[0].last.place == "draft#1"
    assert "it was asked to end" in seen[1].why
    said = store.handle("t/busy/main").why()
    assert (said.situation, said.why) == ("finished", "it was cancelled: enough")


def test_a_run_whose_process_was_killed_is_abandoned(tmp_path: Path) -> None:
    process = os.fork()
    if not process:
        try:
            with perdure.open(tmp_path / "agents.db") as store:
                store.run(dying, "t")
        finally:
            os._exit(1)
    os.waitpid(process, 0)
    with perdure.open(tmp_path / "agents.db") as store:
        said = store.handle("t/dying/main").why()
        assert said.situation == "abandoned"
        assert f"executor {said.executor} is gone, and nobody took it over" in said.why
        assert "whose outcome is in doubt" in said.why
        assert "settle t die#1 --run t/dying/main --not-done" in commands(said)


def test_a_run_that_was_left_and_then_needs_a_person(store: Store) -> None:
    with pytest.raises(PowerLoss):
        store.run(wiring, "t")
    said = store.handle("t/wiring/main").why()
    assert said.situation == "abandoned"
    assert "left it unfinished" in said.why
    with pytest.raises(perdure.NeedsAttention):
        store.run(wiring, "t")
    said = store.handle("t/wiring/main").why()
    assert said.situation == "stopped"
    assert "settle t wire#1 --run t/wiring/main --done JSON" in commands(said)
    store.handle("t/wiring/main").settle("wire#1", done="r-1")
    assert store.handle("t/wiring/main").why().situation == "pending"


def test_finished_runs_say_how_they_ended(store: Store) -> None:
    store.run(child, "t", 3)
    with pytest.raises(ValueError, match="no such"):
        store.run(failing, "t")
    assert store.handle("t/child/main").why().why == "it is done"
    said = store.handle("t/failing/main").why()
    assert (said.situation, said.why) == ("finished", "it failed: ValueError: no such invoice")
    assert commands(said) == ["run show t/failing/main"]


def test_a_report_has_the_timeline_and_what_stands_around(store: Store) -> None:
    handle = started(store, asking, "t")
    handle.signal("paid", 42, by="bank")
    known = handle.report()
    assert [(event.kind, event.place) for event in known.events] == [
        ("started", ""),
        ("step", "draft#1"),
        ("wait", "ask#1"),
        ("unloaded", ""),
    ]
    step = known.events[1]
    assert (step.value, step.exact, step.words) == ("about x", False, "question='x'")
    assert step.ended is not None
    assert step.ended >= step.at
    assert [(note.text, note.fraction) for note in known.notes] == [("asking a person", 0.5)]
    assert [question.question for question in known.questions] == ["Refund?"]
    assert [(message.name, message.who) for message in known.inbox] == [("paid", "bank")]
    assert known.places[""].place == "ask#1"
    handle.answer(True, by="ann")
    with worker(store, asking):
        until(lambda: handle.status == "done")
    known = handle.report()
    wait = next(event for event in known.events if event.place == "ask#1")
    assert (wait.state, wait.value, wait.who) == ("done", True, "ann")
    assert known.events[-1].value == "42"
    assert known.inbox == []


def test_a_report_names_parent_and_children(store: Store) -> None:
    handle = started(store, parent, "t")
    (kid,) = handle.report().children
    assert (kid.parent, kid.status) == ("t/parent/main", "pending")


def test_a_report_tells_attempts(store: Store) -> None:
    tries: list[int] = []

    @perdure.step(retry=perdure.Retry(3, first=0))
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not now")
        return "ok"

    @perdure.agent(dict, name="trying")
    def trying(run: Any) -> str:
        return flaky()

    store.run(trying, "t")
    (step,) = (e for e in store.handle("t/trying/main").report().events if e.kind == "step")
    assert (step.attempts, step.state, step.value) == (3, "done", "ok")


def test_a_report_has_all_turns_and_the_places_of_the_last(store: Store) -> None:
    @perdure.agent(dict, name="turning")
    def turning(run: Any, left: int) -> Any:
        draft(str(left))
        return run.again(left - 1) if left else "end"

    store.run(turning, "t", 2)
    known = store.handle("t/turning/main").report()
    assert [event.kind for event in known.events] == [
        "started",
        "step",
        "turn",
        "step",
        "turn",
        "step",
        "finished",
    ]
    assert known.info.turn == 3


def test_a_tool_call_whose_task_was_cancelled_is_listed_as_that(tmp_path: Path) -> None:
    import asyncio

    @perdure.tool
    async def linger(text: str) -> str:
        await asyncio.sleep(BOUND_S)
        return text

    @perdure.agent(dict, name="lingering")
    async def lingering(run: Any) -> str:
        try:
            async with asyncio.timeout(0.2):
                return str(await linger("x"))
        except TimeoutError:
            return "gave up"

    async def go() -> list[str]:
        async with await perdure.open_async(tmp_path / "agents.db") as opened:
            assert await opened.run(lingering, "t") == "gave up"
            effects = await (await opened.handle("t/lingering/main")).effects()
            return [effect.state for effect in effects]

    assert asyncio.run(go()) == ["cancelled"]


def test_a_run_whose_arguments_are_not_stored_is_its_callers(store: Store) -> None:
    """It was said to start a worker that serves it. No worker can: the run stayed as it was, with
    advice that could not help."""
    with pytest.raises(PowerLoss):
        store.run(with_client, "a", threading.Lock())
    backend = store.runner.context.backend
    with worker(store, with_client):
        until(lambda: any("with_client" in row.serves for row in backend.executors()))
        why = store.handle("a/with_client/main").why()
    assert why.situation == "abandoned" and why.workers == ()
    assert "only its caller can continue it, not a worker" in why.why
    assert "the same call of store.run" in why.ways[0].words and not why.ways[0].command
