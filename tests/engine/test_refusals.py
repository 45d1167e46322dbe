"""What a run refuses, because it would not come back as it was."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import OutsideRun, PerdureError
from perdure.store import Store
from perdure.testing import run_with_kills
from tests.engine.conftest import CrashError, Crashes, Place


@perdure.tool(on_crash="retry")
def act() -> str:
    return "acted"


@perdure.step
def think() -> str:
    return "thought"


def in_a_step(run: perdure.Run, do: Callable[[], Any]) -> Any:
    @perdure.step
    def outer() -> str:
        return str(do())

    return outer()


def in_a_tool(run: perdure.Run, do: Callable[[], Any]) -> Any:
    @perdure.tool
    def outer() -> str:
        return str(do())

    return outer()


def in_an_edit(run: perdure.Run, do: Callable[[], Any]) -> Any:
    with run.edit("outer"):
        return do()


def edit_of(run: perdure.Run) -> None:
    with run.edit("inner") as draft:
        draft["n"] = 1


REFUSED = [
    (in_a_step, "tool", "step"),
    (in_a_tool, "tool", "tool"),
    (in_an_edit, "tool", "edit"),
    (in_an_edit, "step", "edit"),
    (in_an_edit, "call", "edit"),
    (in_an_edit, "edit", "edit"),
    (in_a_step, "edit", "step"),
    (in_a_tool, "edit", "tool"),
]


@pytest.mark.parametrize(("around", "what", "where"), REFUSED)
def test_nesting_that_replay_would_not_find_is_refused(
    store: Store, crash: Crashes, around: Any, what: str, where: str
) -> None:
    """A step or an edit inside an open edit committed half of it; an edit in a step was recorded,
    and not come to on replay, which goes around the step's body."""

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        do = {
            "tool": act,
            "step": think,
            "call": lambda: run.call(len, "x"),
            "edit": lambda: edit_of(run),
        }[what]
        try:
            around(run, do)
        except PerdureError as refused:
            words = str(refused)
            run.call(len, "y")
            crash("after")
            return words
        return "went through"

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(f, "a")
    words = store.run(f, "a")
    assert "inside a" in words and where in words
    assert store.agent("a").state == {}


def test_time_and_chance_inside_an_edit_are_recorded(store: Store, crash: Crashes) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> float:
        with run.edit("roll") as draft:
            draft["n"] = rolled = run.random()
        crash("after")
        return rolled

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert store.run(f, "a") == store.agent("a").state["n"]


def test_outside_of_runs_decorated_functions_are_just_functions() -> None:
    assert act() == "acted" and think() == "thought"
    for function in (perdure.idempotency_key, perdure.fencing_token):
        with pytest.raises(OutsideRun):
            function()


def in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(function())
        except PerdureError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    return found[0]


def test_a_bare_thread_does_not_go_unrecorded(store: Store) -> None:
    """A tool that a bare thread calls sees no run, and must not pass for one that was recorded.
    What goes through the run itself, or brings its context along, is."""
    found: dict[str, Any] = {}

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        found["tool"] = in_thread(act)
        found["step"] = in_thread(think)
        found["unrecorded"] = in_thread(perdure.unrecorded(act))
        found["run"] = in_thread(lambda: run.call(len, "x"))
        found["state"] = in_thread(lambda: dict(run.state))
        found["edit"] = in_thread(lambda: edit_of(run))
        carried = contextvars.copy_context()
        found["carried"] = in_thread(lambda: carried.run(act))
        found["token"] = perdure.fencing_token()
        return perdure.unrecorded(act)()

    assert store.run(f, "a") == "acted"
    assert isinstance(found["tool"], OutsideRun) and "unrecorded" in found["tool"].hint
    assert found["step"] == "thought" and found["unrecorded"] == "acted"
    assert (found["run"], found["state"], found["edit"]) == (1, {}, None)
    assert found["carried"] == "acted"
    assert found["token"] == 1
    recorded = [effect.place for effect in store.handle("a/f/main").effects()]
    assert recorded == ["act#1"], "the carried one: unrecorded means unrecorded"
    assert store.agent("a").state == {"n": 1}
    assert in_thread(act) == "acted", "nothing is driven any more"


def test_a_forked_child_does_not_write_in_its_parents_name(tmp_path: Path) -> None:
    """A pool of forked processes inherited the run, with its lease: parent and child both appended
    under one epoch, and the run ended in a Conflict."""
    found: list[str] = []

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        def child(folder: Path) -> str:
            words = []
            for call in (act, lambda: run.call(len, "child"), lambda: edit_of(run), run.now):
                try:
                    call()
                except PerdureError as refused:
                    words.append(str(refused))
            return "\n".join(words)

        found.append(run_with_kills(child, tmp_path, []).result)
        return run.call(len, "parent")

    with perdure.open(tmp_path / "f.db") as store:
        assert store.run(f, "a") == 6
        assert found[0].count("another process than its function's") == 4
        assert store.agent("a").state == {}


def test_each_face_runs_agent_functions_of_its_kind(place: Place) -> None:
    """An `async def` function given to a store of the synchronous face was called, and what it
    returned, a coroutine that nobody awaited, was recorded as its result."""

    @perdure.agent(dict)
    async def later(run: perdure.AsyncRun[dict]) -> str:
        return await run.call(str, 1)

    @perdure.agent(dict)
    def now(run: perdure.Run[dict]) -> str:
        return run.call(str, 1)

    async def both() -> str:
        async with perdure.open_async(place.url, durability="os") as store:
            with pytest.raises(TypeError, match=r"now is synchronous.*open, .*store\.start"):
                await store.run(now, "a")  # type: ignore[arg-type]
            return await store.run(later, "a")

    store = place.open()
    with pytest.raises(TypeError, match=r"later is async.*perdure\.open_async"):
        store.run(later, "a")  # type: ignore[arg-type,unused-coroutine]
    assert store.runs() == []
    assert asyncio.run(both()) == "1"
    assert store.options(key="2").run(now, "a") == "1"


def test_async_functions_have_no_place_in_synchronous_code(store: Store) -> None:
    """`run.call` of one gave a coroutine: nothing had happened, and that could not be stored."""

    @perdure.step
    async def later() -> None: ...

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        _ = run.call(later)

    with pytest.raises(TypeError, match="later is async"):
        store.run(f, "a")


def test_policies_are_checked_where_they_are_declared() -> None:
    with pytest.raises(ValueError, match="must be one of"):
        perdure.tool(on_crash="again")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="needs probe="):
        perdure.tool(on_crash="probe")
    with pytest.raises(ValueError, match="needs probe="):
        perdure.tool(on_crash="ask", probe=len)


def test_decorated_functions_keep_their_kind() -> None:
    class Bank:
        @perdure.tool
        def pay(self, cents: int) -> str:
            """Pays."""
            return f"paid {cents}"

    assert Bank().pay(3) == "paid 3"
    assert Bank.pay.__doc__ == "Pays." and Bank.pay.__name__ == "pay"


def test_methods_are_recorded_with_what_their_object_is_known_by(
    store: Store, crash: Crashes
) -> None:
    class Bank:
        __perdure_key__ = "the bank"

        @perdure.tool
        def pay(self, cents: int) -> str:
            crash.note(cents)
            return f"paid {cents}"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        paid = Bank().pay(3)
        crash("after")
        return paid

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(f, "a")
    assert store.run(f, "a") == "paid 3" and crash.calls == [3]
    (effect,) = store.handle("a/f/main").effects()
    assert (effect.place, effect.preview) == ("Bank.pay#1", "self='the bank', cents=3")
