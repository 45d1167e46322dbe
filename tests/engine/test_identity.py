"""A run is named by agent, function and key, and by nothing else."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure.errors import CallFailed, Conflict, NotFound, PerdureError, RunFailed
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place


@dataclass
class Receipt:
    cents: int
    tags: frozenset[str] = frozenset()


class Declined(Exception):
    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


@pytest.fixture
def refund(crash: Crashes) -> Any:
    @perdure.agent(dict)
    def refund(run: perdure.Run[dict], invoice: str, cents: int = 5) -> Receipt:
        crash.note(invoice)
        crash("called")
        if cents < 0:
            raise Declined(402, f"no {cents}")
        return Receipt(cents, frozenset({invoice}))

    return refund


def test_a_finished_run_gives_its_recorded_result_typed(place: Place, refund: Any, crash: Crashes):
    first = place.open().run(refund, "a", "i-1", cents=3)
    assert first == Receipt(3, frozenset({"i-1"}))
    assert place.open().run(refund, "a", "i-1", 3) == first, "passed another way, but the same"
    assert crash.calls == ["i-1"]


def test_other_arguments_need_another_key(store: Store, refund: Any, crash: Crashes) -> None:
    store.run(refund, "a", "i-1")
    with pytest.raises(Conflict, match=r"another key: store\.options\(key=") as conflict:
        store.run(refund, "a", "i-2")
    assert "a/refund/main" in str(conflict.value)
    assert store.options(key="msg-2").run(refund, "a", "i-2").tags == {"i-2"}
    assert crash.calls == ["i-1", "i-2"]
    assert [run.id for run in store.runs("a")] == ["a/refund/main", "a/refund/msg-2"]


def test_other_arguments_are_not_taken_for_what_was_started(store: Store, refund: Any) -> None:
    """Who started a run for another invoice got a handle on the one that was asked for first, and
    its receipt, and heard nothing of that."""
    handle = store.start(refund, "a", "i-1", cents=3)
    for ended in (False, True):
        assert store.start(refund, "a", "i-1", 3).id == handle.id
        with pytest.raises(Conflict, match=r"another key: store\.options\(key="):
            store.start(refund, "a", "i-2", cents=3)
        if not ended:
            assert store.run(refund, "a", "i-1", 3) == handle.result(0.0)
    store.options(key="begun").run(refund, "a", "i-1")
    with pytest.raises(Conflict, match="other arguments"):
        store.options(key="begun").start(refund, "a", "i-2")
    assert [run.key for run in store.runs("a")] == ["main", "begun"]


def test_a_crashed_run_is_not_resumed_with_other_arguments(
    store: Store, refund: Any, crash: Crashes
) -> None:
    crash.arm("called")
    with pytest.raises(CrashError):
        store.run(refund, "a", "i-1")
    with pytest.raises(Conflict, match="other arguments"):
        store.run(refund, "a", "i-2")
    assert store.run(refund, "a", "i-1").tags == {"i-1"}


def test_a_failed_run_raises_the_same_again(place: Place, refund: Any, crash: Crashes) -> None:
    """What the error carried was gone the second time: `error.code` was an AttributeError."""
    for _ in range(2):
        with pytest.raises(Declined, match=r"^no -1$") as failed:
            place.open().run(refund, "a", "i-1", -1)
        assert failed.value.code == 402
    assert crash.calls == ["i-1"]
    store = place.open()
    assert store.handle("a/refund/main").status == "failed"
    with pytest.raises(Declined):
        store.handle("a/refund/main").result(timeout=1)


def test_an_error_whose_type_is_gone_has_a_stand_in(place: Place) -> None:
    class Local(Exception):
        pass

    @perdure.agent(dict)
    def failing(run: perdure.Run[dict]) -> None:
        raise Local("too bad")

    with pytest.raises(Local):
        place.open().run(failing, "a")
    with pytest.raises(CallFailed, match="Local: too bad"):
        place.open().run(failing, "a")


def test_errors_of_the_library_come_back_as_they_were(place: Place) -> None:
    """The second time, the words held the target and the hint once more."""

    @perdure.agent(dict)
    def failing(run: perdure.Run[dict]) -> None:
        raise PerdureError("it broke", target="agent 'x'", hint="mend it")

    said = []
    for _ in range(2):
        with pytest.raises(PerdureError) as failed:
            place.open().run(failing, "a")
        said.append((str(failed.value), failed.value.problem, failed.value.hint))
    assert said[0] == said[1]


def test_a_result_that_cannot_be_stored_fails_the_run(store: Store) -> None:
    @perdure.agent(dict)
    def giving(run: perdure.Run[dict]) -> Any:
        return {"it": [1, object()]}

    for _ in range(2):
        with pytest.raises(perdure.Unstorable, match=r"it.*\[1\]"):
            store.run(giving, "a")


def test_runs_of_two_keys_on_one_branch_follow_each_other(place: Place) -> None:
    store, started, go_on, order = place.open(), threading.Event(), threading.Event(), []

    @perdure.agent(dict)
    def chat(run: perdure.Run[dict], message: str) -> str:
        order.append(f"{message} begins")
        if message == "one":
            started.set()
            assert go_on.wait(30)
        with run.edit("said") as draft:
            draft[message] = True
        order.append(f"{message} ends")
        return message

    results: list[str] = []

    def say(message: str) -> None:
        results.append(store.options(key=message).run(chat, "a", message))

    threads = [threading.Thread(target=say, args=(message,)) for message in ("one", "two")]
    threads[0].start()
    assert started.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    assert order == ["one begins"]
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert order == ["one begins", "one ends", "two begins", "two ends"]
    assert results == ["one", "two"]
    assert store.agent("a").state == {"one": True, "two": True}


def test_two_threads_with_the_same_command_execute_it_once(place: Place, crash: Crashes) -> None:
    store, barrier = place.open(), threading.Barrier(6)

    @perdure.agent(dict)
    def once(run: perdure.Run[dict]) -> int:
        crash.note("called")
        return 7

    results: list[int] = []

    def ask() -> None:
        barrier.wait()
        results.append(store.run(once, "a"))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [7] * 6 and crash.calls == ["called"]


def test_an_unfinished_run_without_owner_must_be_finished_first(
    store: Store, refund: Any, crash: Crashes
) -> None:
    crash.arm("called")
    with pytest.raises(CrashError):
        store.run(refund, "a", "i-1")
    other = store.options(key="other")
    with pytest.raises(Conflict, match="run it again to finish it, or cancel it") as conflict:
        other.run(refund, "a", "i-2")
    assert "a/refund/main" in str(conflict.value)
    store.run(refund, "a", "i-1")
    assert other.run(refund, "a", "i-2").tags == {"i-2"}


def test_a_cancelled_run_stays_cancelled(store: Store, refund: Any, crash: Crashes) -> None:
    crash.arm("called")
    with pytest.raises(CrashError):
        store.run(refund, "a", "i-1")
    handle = store.handle("a/refund/main")
    assert handle.status == "running"
    handle.cancel("changed our mind")
    for _ in range(2):
        with pytest.raises(RunFailed, match="changed our mind"):
            store.run(refund, "a", "i-1")
    with pytest.raises(RunFailed, match="changed our mind"):
        handle.result(timeout=1)
    assert store.options(key="2").run(refund, "a", "i-1").cents == 5


def test_a_run_of_another_agent_is_never_taken_for_ones_own(store: Store) -> None:
    """Agent "x/f" with function g and agent "x" with function f and key "g/k" had one run id: the
    second one got the first one's result."""

    @perdure.agent(dict, name="g")
    def g(run: perdure.Run[dict]) -> str:
        return f"g on {run.agent}"

    @perdure.agent(dict, name="f")
    def f(run: perdure.Run[dict]) -> str:
        return f"f on {run.agent}"

    assert store.options(key="k").run(g, "x/f") == "g on x/f"
    assert store.options(key="g/k").run(f, "x") == "f on x"
    assert len({run.id for run in store.runs()}) == 2


@pytest.mark.parametrize("key", ["a~b", "main~2", "x/y~3", "50%", "ü \n"])
def test_any_key_will_do(store: Store, refund: Any, crash: Crashes, key: str) -> None:
    """A key with a tilde was read as an incarnation: "its agent is gone"."""
    crash.arm("called")
    with pytest.raises(CrashError):
        store.options(key=key).run(refund, "a", "i")
    (run,) = store.runs("a")
    handle = store.handle(run.id)
    assert run.key == key and handle.effects() == []
    assert store.options(key=key).run(refund, "a", "i").cents == 5
    assert handle.result(timeout=1)


def test_a_new_incarnation_has_runs_of_its_own(store: Store, refund: Any, crash: Crashes) -> None:
    """The agent was deleted; asked for again, it gave the result of the old one's run."""
    assert store.run(refund, "a", "i-1").cents == 5
    store.delete("a")
    assert store.run(refund, "a", "i-2").tags == {"i-2"}
    assert crash.calls == ["i-1", "i-2"]
    assert [run.id for run in store.runs("a")] == ["a/refund/main", "a/refund/main~2"]
    assert store.handle("a/refund/main~2").effects() == []


def test_i8_deleting_an_agent_ends_its_runs(store: Store, refund: Any, crash: Crashes) -> None:
    """The run of a deleted agent was "running" for ever, and stood in the way of rollbacks of the
    next agent of that name."""
    crash.arm("called")
    with pytest.raises(CrashError):
        store.run(refund, "a", "i-1")
    store.delete("a")
    assert [run.status for run in store.runs("a")] == ["cancelled"]
    agent = store.agent("a")
    for number in range(2):
        with agent.edit("n") as draft:
            draft["n"] = number
    agent.rollback(1)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_run_needs_a_name_as_an_agent_does(store: Store, refund: Any, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 characters"):
        store.run(refund, name, "i")


@pytest.mark.parametrize("key", ["", "x" * 201, "a\0b", "\ud800"])
def test_a_key_is_a_name_too(store: Store, key: str) -> None:
    """A lone surrogate in a key was a UnicodeEncodeError, from deep within."""
    with pytest.raises(ValueError, match="1 to 200 characters"):
        store.options(key=key)


def test_a_handle_needs_a_run(store: Store) -> None:
    with pytest.raises(NotFound, match="no such run"):
        store.handle("a/f/main")


def test_only_agent_functions_run(store: Store) -> None:
    with pytest.raises(TypeError, match="decorate it"):
        store.run(lambda run: None, "a")


def test_a_run_that_would_wait_for_itself_is_refused(store: Store) -> None:
    """A run that ran a second one on its own agent stood by for itself, for ever."""

    @perdure.agent(dict)
    def inner(run: perdure.Run[dict]) -> str:
        return run.agent

    @perdure.agent(dict)
    def outer(run: perdure.Run[dict], agent: str) -> str:
        return store.run(inner, agent)

    with pytest.raises(PerdureError, match="wait for itself"):
        store.run(outer, "a", "a")
    assert store.options(key="2").run(outer, "a", "b") == "b"
