"""A function whose code changed under its run resumes, or stops where everybody can see it (I8)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure.errors import NeedsAttention
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place


@perdure.step
def a(x: int = 0) -> str:
    return f"a{x}"


@perdure.step
def b(text: str, limit: int = 3) -> str:
    return f"b{text}"


@perdure.tool(on_crash="retry")
def c() -> str:
    return "c"


Body = Callable[[perdure.Run], Any]


def agent_of(body: Body, crash: Crashes) -> Any:
    @perdure.agent(dict, name="f")
    def f(run: perdure.Run[dict]) -> Any:
        result = body(run)
        crash("end")
        return result

    return f


def old(run: perdure.Run) -> Any:
    with run.edit("first") as draft:
        draft["n"] = 1
    return [a(), b("x"), c(), run.random() < 2]


def added(run: perdure.Run) -> Any:
    return [*old(run)[:3], run.call(len, "new")]


def added_in_front(run: perdure.Run) -> Any:
    run.call(len, "new")
    return old(run)


def removed(run: perdure.Run) -> Any:
    with run.edit("first") as draft:
        draft["n"] = 1
    return [a(), c()]


def renamed(run: perdure.Run) -> Any:
    with run.edit("primary") as draft:
        draft["n"] = 1
    return [a(), b("x"), c()]


def argument(run: perdure.Run) -> Any:
    with run.edit("first") as draft:
        draft["n"] = 1
    return [a(), b("y"), c()]


def shorter(run: perdure.Run) -> Any:
    with run.edit("first") as draft:
        draft["n"] = 1
    return [a()]


def other_kind(run: perdure.Run) -> Any:
    with run.edit("first") as draft:
        draft["n"] = 1

    @perdure.tool(name="a")
    def a(x: int = 0) -> str:
        return "tool"

    return [a(), b("x"), c()]


def raising_edit(run: perdure.Run) -> Any:
    with run.edit("first") as draft:
        draft["n"] = 1
        raise RuntimeError("new")


CHANGES: dict[Body, str] = {
    added_in_front: r"now calls len#1, where it had recorded edit edit:first#1",
    removed: r"ended, where it had recorded step b#1\(text='x'\)",
    renamed: r"now calls edit:primary#1, where it had recorded edit edit:first#1",
    argument: r"b#1 is called with other arguments \(text\): recorded .text='x'., now .text='y'.",
    shorter: r"ended, where it had recorded step b#1",
    other_kind: r"a#1 is a tool now and was recorded as a step",
    raising_edit: r"the block of edit:first#1 raises RuntimeError\('new'\), where it had committed",
}


@pytest.mark.parametrize("body", CHANGES, ids=lambda body: body.__name__)
def test_i8_a_changed_function_stops_and_the_old_code_resumes(
    store: Store, crash: Crashes, body: Body
) -> None:
    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(old, crash), "t")
    handle = store.handle("t/f/main")
    for _ in range(2):
        with pytest.raises(NeedsAttention, match=CHANGES[body]) as stopped:
            store.run(agent_of(body, crash), "t")
        assert "run.now()" in stopped.value.hint or "put the old code back" in stopped.value.hint
        assert handle.status == "needs_attention" and handle.info.problem == str(stopped.value)
    assert store.run(agent_of(old, crash), "t") == ["a0", "bx", "c", True]
    assert [effect.attempts for effect in handle.effects()] == [1]
    assert store.agent("t").state == {"n": 1}


def test_what_comes_behind_the_recorded_may_change(store: Store, crash: Crashes) -> None:
    def short(run: perdure.Run) -> Any:
        with run.edit("first") as draft:
            draft["n"] = 1
        return [a(), b("x")]

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(short, crash), "t")
    assert store.run(agent_of(added, crash), "t") == ["a0", "bx", "c", 3]


def test_independent_steps_may_change_places(store: Store, crash: Crashes) -> None:
    def swapped(run: perdure.Run) -> Any:
        with run.edit("first") as draft:
            draft["n"] = 1
        second, first = b("x"), a()
        return [first, second, c(), run.random() < 2]

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(old, crash), "t")
    assert store.run(agent_of(swapped, crash), "t") == ["a0", "bx", "c", True]


def test_a_new_default_is_no_other_argument(store: Store, crash: Crashes) -> None:
    def call_b(limit: int) -> Body:
        @perdure.step(name="b")
        def changed(text: str, limit: int = limit) -> str:
            return text

        return lambda run: changed("x")

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(call_b(3), crash), "t")
    assert store.run(agent_of(call_b(4), crash), "t") == "x"


def test_an_argument_from_the_clock_is_named_and_the_way_out_told(
    store: Store, crash: Crashes
) -> None:
    ticks = iter(range(100))

    def body(run: perdure.Run) -> Any:
        return a(x=next(ticks))

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(body, crash), "t")
    with pytest.raises(NeedsAttention, match=r"\(x\).*'x=0', now 'x=1'") as stopped:
        store.run(agent_of(body, crash), "t")
    assert "run.now()" in str(stopped.value)


def test_a_result_type_that_no_longer_fits_stops_until_it_does(
    store: Store, crash: Crashes
) -> None:
    def giving(kind: Any) -> Body:
        @perdure.step(name="s", returns=kind)
        def s() -> Any:
            return "text"

        return lambda run: s()

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(giving(str), crash), "t")
    with pytest.raises(NeedsAttention, match="no longer fits its declared type"):
        store.run(agent_of(giving(int), crash), "t")
    assert store.run(agent_of(giving(str), crash), "t") == "text"


def test_the_function_cannot_hide_that_it_changed(store: Store, crash: Crashes) -> None:
    def hiding(run: perdure.Run) -> Any:
        with contextlib.suppress(BaseException):  # even this
            run.call(len, "new")
        try:
            c()
        except BaseException as error:
            crash.note(error)
        return "all is well"

    crash.arm("end")
    with pytest.raises(CrashError):
        store.run(agent_of(old, crash), "t")
    with pytest.raises(NeedsAttention, match="now calls len#1"):
        store.run(agent_of(hiding, crash), "t")
    (interrupt,) = crash.calls
    assert isinstance(interrupt, perdure.RunInterrupted)
    assert isinstance(interrupt.__cause__, NeedsAttention), "the reason is its cause"


@dataclass
class Old:
    count: int = 0


@dataclass
class New:
    total: int = 0


def test_a_run_goes_on_over_a_migration_of_its_state(place: Place, crash: Crashes) -> None:
    schemas: list[Any] = [
        perdure.Schema(Old, id="task"),
        perdure.Schema(
            New, id="task", version=2, migrations={1: lambda old: {"total": old["count"]}}
        ),
    ]

    def program(schema: Any, name: str) -> Any:
        @perdure.agent(schema, name="f")
        def f(run: perdure.Run[Any]) -> list[int]:
            seen = []
            for point in ("one", "two", "three"):
                with run.edit(point) as draft:
                    setattr(draft, name, getattr(draft, name) + 1)
                seen.append(getattr(run.state, name))
                crash(point)
            return seen

        return f

    crash.arm("one", "two", "three")
    for schema, name in ((schemas[0], "count"), (schemas[1], "total"), (schemas[1], "total")):
        with pytest.raises(CrashError):
            place.open().run(program(schema, name), "a")
    store = place.open()
    assert store.run(program(schemas[1], "total"), "a") == [1, 2, 3]
    agent = store.agent("a", schemas[1])
    assert agent.state == New(3)
    agent.verify()


VALUES: dict[str, Callable[[perdure.Run], Any]] = {
    "now": lambda run: run.now(),
    "random": lambda run: run.random(),
    "uuid": lambda run: run.uuid(),
    "patch": lambda run: run.patched("new"),
}


@pytest.mark.parametrize("draw", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("waits", ["signal", "timer", "task"])
def test_a_stopped_run_keeps_the_values_that_it_went_on_with(
    store: Store, draw: Callable[[perdure.Run], Any], waits: str
) -> None:
    """A run took the time, then a signal that was there, then stopped as a key was missing: of the
    two that waited for a commit the signal was recorded, and the time not. So it stopped for ever,
    "the function now calls run.now#1", with nothing changed but the key."""
    broken = True

    def look() -> int:
        if broken:
            raise NeedsAttention("the key is missing")
        return 1

    def soon(run: perdure.Run[dict], name: str) -> str:
        """In another task, which was told of the value."""
        return run.select(go=perdure.Signal(name), soon=perdure.Timer(0)).name

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[Any]:
        value = str(draw(run))
        if waits == "signal":
            run.wait_for("go")
        elif waits == "timer":
            run.sleep(0)
        else:
            run.map(lambda name: soon(run, name), [value])
        return [value, run.call(look)]

    handle = store.start(f, "a")
    handle.signal("go")
    with pytest.raises(NeedsAttention, match="the key is missing"):
        store.run(f, "a")
    broken = False
    value, found = store.run(f, "a")
    assert found == 1
    records = [one for commit in store.agent("a").log() for one in commit.records]
    recorded = [str(one["value"]) for one in records if one["t"] in ("value", "patch")]
    assert recorded == [value]


@pytest.mark.parametrize("draw", VALUES.values(), ids=VALUES)
def test_values_that_a_stopped_run_did_nothing_with_may_go(
    store: Store, draw: Callable[[perdure.Run], Any]
) -> None:
    def drawing(run: perdure.Run[dict]) -> str:
        run.wait_for("go")
        draw(run)
        raise NeedsAttention("this is not the code")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return body(run)

    body: Callable[[perdure.Run[dict]], str] = drawing
    store.start(f, "a").signal("go", "went")
    with pytest.raises(NeedsAttention, match="this is not the code"):
        store.run(f, "a")
    body = lambda run: str(run.wait_for("go"))  # noqa: E731
    assert store.run(f, "a") == "went"
