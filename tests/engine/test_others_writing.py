"""Other writers, and moves of the branch, while a run is under way or left unfinished."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, PerdureError, RunFailed, TimedOut
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import CrashError, Crashes, Place


@pytest.fixture
def f(crash: Crashes) -> Any:
    @perdure.tool(on_crash="retry")
    def act(number: int) -> int:
        crash.note(number)
        return number

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        with run.edit("one") as draft:
            draft["n"] = 1
        act(1)
        crash("one")
        with run.edit("two") as draft:
            draft["n"] = 2
        act(2)
        crash("two")
        return f"n is {run.state['n']}"

    return f


def test_while_a_run_executes_other_writers_are_told_who_has_it(place: Place) -> None:
    store, told = place.open(), []

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        for write in (
            lambda: store.agent("a").save({"n": 1}),
            lambda: store.agent("a").checkpoint("here"),
            lambda: store.agent("a").rollback(1, cancel_run=True),
            lambda: store.delete("a"),
        ):
            with pytest.raises(Conflict) as held:
                write()
            told.append(str(held.value))
        (branch,) = store.agent("a").branches()
        assert store._context.executor == branch.holder and str(branch.holder) in told[0]
        with store.agent("b").edit("elsewhere") as draft:
            draft["n"] = 1

    store.run(f, "a")
    assert all("is running on it" in words for words in told)
    assert all("signal" in words for words in told[:-1]) and "cancel_runs=True" in told[-1]


def test_after_a_crash_a_plain_edit_succeeds_and_the_run_sees_it(
    place: Place, f: Any, crash: Crashes
) -> None:
    crash.arm("two")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    agent = place.open().agent("a")
    with agent.edit("by hand") as draft:
        draft["by hand"] = True
    assert place.open().run(f, "a") == "n is 2"
    assert agent.refresh() == {"n": 2, "by hand": True} and crash.calls == [1, 2]


@pytest.mark.parametrize("way", ["rollback", "undo", "adopt"])
def test_a_branch_with_an_unfinished_run_is_not_moved(
    store: Store, f: Any, crash: Crashes, way: str
) -> None:
    crash.arm("two")
    with pytest.raises(CrashError):
        store.run(f, "a")
    agent = store.agent("a")
    agent.fork("other", at=1)
    move: Any = {
        "rollback": lambda **more: agent.rollback(1, **more),
        "undo": lambda **more: agent.undo(**more),
        "adopt": lambda **more: agent.adopt("other", **more),
    }[way]
    with pytest.raises(Conflict, match=r"a/f/main is not finished.*\n?.*cancel_run=True"):
        move()
    moved = move(cancel_run=True)
    told = [record["place"] for record in moved.tool_calls]
    assert set(told) == (set() if way == "undo" else {"act#1", "act#2"})
    assert agent.refresh() == ({"n": 1} if way == "undo" else {})
    assert store.handle("a/f/main").status == "cancelled"
    assert [effect.state for effect in store.handle("a/f/main").effects()] == ["done", "done"]
    with pytest.raises(RunFailed, match="moved under it"):
        store.run(f, "a")
    assert store.options(key="2").run(f, "a") == "n is 2"
    assert crash.calls == [1, 2, 1, 2]
    agent.verify()


def test_i8_a_branch_that_a_run_is_on_is_not_deleted(store: Store, f: Any, crash: Crashes) -> None:
    """A what-if was cleaned up, and its run waited still. Whoever went on with that was told that
    there was no such branch, and so was whoever cancelled it: it was unfinished for good."""
    store.run(f, "a")
    agent = store.agent("a")
    fork = store.handle("a/f/main").fork("act#1", branch="what-if", effects="live")
    crash.arm("one")
    with pytest.raises(CrashError):
        store.options(key=fork.info.key).run(f, "a")
    words = r"run a/f/main@what-if uses it, .* not finished .*\n.*`perdure cancel a/f/main@what-if`"
    with pytest.raises(Conflict, match=words):
        agent.delete_branch("what-if")
    fork.cancel()
    agent.delete_branch("what-if")
    assert [run.status for run in store.runs("a")] == ["done", "cancelled"]
    agent.verify()


def just_behind(patch: pytest.MonkeyPatch, store: Store, method: str, then: Any) -> None:
    """Has something happen once, right behind a look that the store takes next."""
    backend = store._context.backend
    look, happened = getattr(backend, method), list[bool]()

    def looked(*args: Any, **more: Any) -> Any:
        found = look(*args, **more)
        if not happened:
            happened.append(True)
            then()
        return found

    patch.setattr(backend, method, looked)


def test_i8_a_branch_is_not_deleted_beside_a_retry_of_its_run(
    store: Store, f: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run had ended, and was set back right behind the look at it: it was on a deleted branch,
    where workers tried it for good, and nobody could cancel it."""
    store.run(f, "a")
    fork = store.handle("a/f/main").fork("act#1", branch="what-if", effects="live")
    assert store.options(key=fork.info.key).run(f, "a") == "n is 2"
    agent = store.agent("a")
    with monkeypatch.context() as patch:
        just_behind(patch, store, "runs", lambda: fork.retry("act#1", effects="live"))
        with pytest.raises(Conflict, match="'what-if': expected the head at"):
            agent.delete_branch("what-if")
    fork.cancel()
    agent.delete_branch("what-if")
    agent.verify()


def test_i4_an_agent_is_not_deleted_while_a_run_executes_on_another_branch(place: Place) -> None:
    """Only main was asked who has it. The tool went on to pay, and nothing could note that."""
    store, told = place.open(), []

    @perdure.tool(on_crash="fail")
    def pay() -> None:
        try:
            store.delete("a")
        except Conflict as held:
            told.append(str(held))

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        pay()

    store.run(f, "a")
    fork = store.handle("a/f/main").fork("pay#1", branch="what-if", effects="live")
    store.options(key=fork.info.key).run(f, "a")
    assert len(told) == 2 and "branch 'main': executor" in told[0]
    assert "branch 'what-if': executor" in told[1]
    store.delete("a")


def test_i8_an_agent_is_deleted_with_what_began_beside_that(
    store: Store, f: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was forked right behind the look at the agent's runs. It was unfinished for good."""
    store.run(f, "a")
    handle, forks = store.handle("a/f/main"), list[Any]()

    def fork() -> None:
        forks.append(handle.fork("act#1", branch="what-if", effects="live"))

    with monkeypatch.context() as patch:
        just_behind(patch, store, "runs", fork)
        store.delete("a")
    assert [one.status for one in forks] == ["cancelled"]
    assert [run.status for run in store.runs("a")] == ["done", "cancelled"]


def test_i8_a_request_beside_the_deletion_of_its_agent_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run requested a child right behind the look at the inbox of the child's agent. The request
    was deleted with that, and the run waited for its child for good."""

    @perdure.agent(dict)
    def child(run: perdure.Run[dict]) -> None: ...

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> str:
        with pytest.raises(RunFailed, match="its agent was deleted"):
            run.start(child, "c").result()
        return "told"

    store.agent("c").save({"n": 1})
    with monkeypatch.context() as patch:
        just_behind(patch, store, "inbox", lambda: run_until_waiting(store, parent, "p"))
        store.delete("c")
    assert run_until_waiting(store, parent, "p").status == "done"


def test_a_finished_run_does_not_stand_in_the_way(store: Store, f: Any) -> None:
    store.run(f, "a")
    agent = store.agent("a")
    moved = agent.rollback(1)
    assert len(moved.tool_calls) == 2 and agent.refresh() == {}
    assert store.run(f, "a") == "n is 2", "its result is in the journal, whatever the state is"


def test_a_plain_edit_after_a_resume_does_not_disturb_the_next_replay(
    place: Place, f: Any, crash: Crashes
) -> None:
    crash.arm("one", "two")
    for _ in range(2):
        with pytest.raises(CrashError):
            place.open().run(f, "a")
        with place.open().agent("a").edit("by hand") as draft:
            draft["hands"] = draft.get("hands", 0) + 1
    assert place.open().run(f, "a") == "n is 2"
    store = place.open()
    assert store.agent("a").state == {"n": 2, "hands": 2} and crash.calls == [1, 2]
    store.agent("a").verify()


def test_a_handle_waits_for_a_result(place: Place) -> None:
    store, go_on = place.open(), threading.Event()

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict]) -> str:
        assert go_on.wait(30)
        return "done"

    thread = threading.Thread(target=lambda: store.run(slow, "a"))
    thread.start()
    for _ in range(3000):
        if store.runs("a"):
            break
        threading.Event().wait(0.01)
    handle = store.handle("a/slow/main")
    with pytest.raises(TimedOut, match="is running still"):
        handle.result(timeout=0.05)
    go_on.set()
    assert handle.result(timeout=30) == "done"
    thread.join(30)


def test_the_schema_of_the_state_is_the_functions(store: Store) -> None:
    @perdure.agent(perdure.Schema(dict, id="other"))
    def f(run: perdure.Run[Any]) -> None: ...

    with store.agent("a").edit("made") as draft:
        draft["n"] = 1
    with pytest.raises(PerdureError, match="was written under schema"):
        store.run(f, "a")
    assert store.runs() == []
    (branch,) = store.agent("a").branches()
    assert branch.holder is None


def test_an_update_is_told_at_once_who_has_the_branch(place: Place) -> None:
    """It was tried a hundred times, as if a race had been lost, for up to ten seconds; the same
    inside an open edit."""
    store, other = place.open(), place.open()
    calls: list[int] = []

    def change(draft: Any) -> None:
        calls.append(1)
        draft["n"] = 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        with pytest.raises(Conflict, match="is running on it"):
            other.agent("a").update(change)

    store.run(f, "a")
    assert calls == [1]
    agent = other.agent("b", initial={"n": 0})
    with agent.edit() as draft, pytest.raises(Conflict, match="not inside an open edit"):
        draft["n"] = 1
        agent.update(change)
    assert calls == [1]
