"""What a review of the engine found: leases that leak, errors that change, calls left sideways."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import perdure
from perdure.engine.journal.failures import error_record, rebuild_error
from perdure.errors import CallFailed, PerdureError
from perdure.storage.shortcuts import LOOKS
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place

BOUND_S = 20


def within_bounds(call: Any) -> Any:
    """The call's result, or its exception as a value; it must not wait for ever."""
    found: list[Any] = []

    def keep() -> None:
        try:
            found.append(call())
        except PerdureError as error:
            found.append(error)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert found, "it waits for ever"
    return found[0]


@perdure.agent(dict)
def nothing(run: perdure.Run[dict]) -> str:
    return "ok"


@pytest.mark.parametrize("outage", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_lease_that_was_taken_unnoticed_is_given_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, outage: bool, at_once: bool
) -> None:
    """Ctrl-C while the lease was being taken: it was in the store, and nobody here knew of it, so
    the next run stood by for its own process for ever."""
    store = place.open()
    backend = store._context.backend
    left = [KeyboardInterrupt()]

    def unnoticed(lease: Any) -> Any:
        def taken(*args: Any, **more: Any) -> Any:
            if outage and more.get("release") is not None and len(left) < 2:
                raise perdure.StoreUnavailable("down")
            answer = lease(*args, **more)
            if left:
                raise left.pop()
            return answer

        return taken

    if not at_once:  # of an agent that is there, the lease is taken by itself then
        store.agent("a").checkpoint("created")
        monkeypatch.setattr(backend, "capabilities", backend.capabilities - {LOOKS})
    names = ["lease", "append"] if at_once else ["lease"]
    if hasattr(backend, "take"):
        names.append("take")
    for name in names:
        monkeypatch.setattr(backend, name, unnoticed(getattr(backend, name)))
    with pytest.raises(KeyboardInterrupt):
        store.run(nothing, "a")
    ref = backend.ref(1, "main")
    assert ref is not None and (ref.held is None) is not outage
    if not outage:
        assert within_bounds(lambda: place.open().run(nothing, "a")) == "ok"  # elsewhere, too
    assert within_bounds(lambda: store.run(nothing, "a")) == "ok"


def test_two_threads_do_not_take_the_lease_from_each_other(store: Store) -> None:
    """A lease of one's own process is taken over only where no thread of it is executing."""
    entered, go, calls = threading.Event(), threading.Event(), []

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict]) -> int:
        calls.append(1)
        entered.set()
        go.wait(BOUND_S)
        return len(calls)

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(store.run(slow, "a"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(BOUND_S)
    time.sleep(0.2)
    go.set()
    for thread in threads:
        thread.join(BOUND_S)
    assert found == [1, 1, 1] and len(calls) == 1


class Parsed(BaseModel):
    x: int


def test_a_validation_error_is_one_on_replay(place: Place, crash: Crashes) -> None:
    """Live it was a ValidationError, which the function handled; on replay it was a CallFailed,
    which nobody handled: the run had failed for good."""

    @perdure.step
    def parse(text: str) -> int:
        return Parsed.model_validate_json(text).x

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            parse('{"x": "many"}')
        except ValidationError as error:
            crash("handled")
            return f"{error.error_count()}: {error}"
        return "unreachable"

    crash.arm("handled")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    with pytest.raises(ValidationError) as live:
        Parsed.model_validate_json('{"x": "many"}')
    assert place.open().run(f, "a") == f"1: {live.value}"


class Unnewable(Exception):
    def __new__(cls, *, what: str) -> Unnewable:
        return super().__new__(cls)

    def __init__(self, *, what: str) -> None:
        super().__init__(f"no {what}")
        self.what = what


class Wrapping(OSError):
    def __init__(self, reason: Exception) -> None:
        self.args = (reason,)
        self.reason = reason

    def __str__(self) -> str:
        return f"because of {self.reason}"


def _not_utf8() -> Any:
    return b"\xff".decode()


@pytest.mark.parametrize(
    "fail",
    [
        lambda: os.stat("/not/there"),
        lambda: Path("/not/there").stat(),
        lambda: os.rename("/not/there", "/nor/there"),
        _not_utf8,
        lambda: {"y": 1}["x"],
        lambda: Unnewable(what="way"),
        lambda: Wrapping(ConnectionError(111, "refused")),
        lambda: perdure.Conflict("no", target="it", hint="h" * 2000),
    ],
)
def test_errors_come_back_with_their_type_and_words(fail: Any) -> None:
    """The words of an OSError lost its file's name, and whoever passed them on was told that the
    code had changed."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any
        raise fail()
    again = rebuild_error(error_record(caught.value), "elsewhere")
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_an_error_that_cannot_come_back_is_its_stand_in_the_first_time_too(
    place: Place, crash: Crashes
) -> None:
    """Live it was one type, on replay another: the function must see one and the same."""

    class Local(Exception):
        pass

    @perdure.tool
    def act() -> None:
        raise Local("gone")

    seen: list[str] = []

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        try:
            act()
        except CallFailed as error:
            seen.append(str(error))
            crash("handled")

    crash.arm("handled")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    place.open().run(f, "a")
    assert len(seen) == 2 and seen[0] == seen[1] and "Local: gone" in seen[0]


@pytest.mark.parametrize("kind", ["step", "tool", "edit"])
def test_a_call_that_is_left_sideways_is_not_gone_on_from(
    place: Place, crash: Crashes, kind: str
) -> None:
    """A command line tool ended with SystemExit, the function caught it and went on; on replay it
    was called a second time."""
    leaving = [True]

    def end() -> int:
        if leaving:
            leaving.pop()
            raise SystemExit(0)
        return 1

    calls = {"step": perdure.step(end), "tool": perdure.tool(on_crash="retry")(end)}

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            if kind == "edit":
                with run.edit("x"):
                    end()
            else:
                calls[kind]()
        except SystemExit:
            pass
        with run.edit("y") as draft:
            crash.note("went on")
            draft["n"] = 1
        return "done"

    store = place.open()
    with pytest.raises(PerdureError, match="SystemExit left") as stopped:
        store.run(f, "a")
    assert isinstance(stopped.value.__cause__, SystemExit) and crash.calls == []
    assert store.handle("a/f/main").status == "running"
    assert store.run(f, "a") == "done" and crash.calls == ["went on"]


class Wordless(Exception):
    def __str__(self) -> str:
        return self.detail  # type: ignore[attr-defined,no-any-return]


def test_an_error_without_words_is_an_outcome(place: Place, crash: Crashes) -> None:
    """Its `__str__` raised, so no outcome was recorded, and the payment was made a second time."""

    @perdure.tool(on_crash="retry")
    def pay() -> None:
        crash.note("pay")
        raise Wordless

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            pay()
        except Wordless:
            crash("after")
        return "done"

    crash.arm("after")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    assert place.open().run(f, "a") == "done" and crash.calls == ["pay"]


@pytest.mark.parametrize("failure", [MemoryError("no room"), KeyboardInterrupt()])
def test_what_fails_while_recording_is_not_the_functions_to_catch(
    store: Store, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    """It came out of the tool like an error of the tool's; the function caught it and went on
    without the outcome."""
    calls: list[str] = []
    submit, failing = store._context.committer.submit, [failure]

    def refuse(proposal: Any) -> Any:
        if proposal.draft.cause.kind == "outcome" and failing:
            raise failing.pop()
        return submit(proposal)

    @perdure.tool(on_crash="retry")
    def act() -> int:
        calls.append("act")
        return 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        try:
            act()
        except (Exception, KeyboardInterrupt):
            calls.append("caught")
        with run.edit("y") as draft:
            calls.append("went on")
            draft["n"] = 1
        return 1

    monkeypatch.setattr(store._context.committer, "submit", refuse)
    with pytest.raises(PerdureError):
        store.run(f, "a")
    assert "went on" not in calls and store.handle("a/f/main").status == "running"
    assert store.run(f, "a") == 1 and calls.count("act") == 2


def test_a_run_ends_whatever_its_error_says(place: Place) -> None:
    """A name of a file that is not UTF-8: the row of the run did not take the words of the error,
    and the run could never end."""

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        raise ValueError("no such file: caf\udce9")

    store = place.open()
    for _ in range(2):
        with pytest.raises(ValueError, match="caf\udce9"):
            store.run(f, "a")
    assert store.handle("a/f/main").info.problem == "ValueError: no such file: caf\\udce9"
    store.agent("a").verify()


def test_settling_a_call_of_a_cancelled_run_does_not_bring_it_back(place: Place) -> None:
    """Only the ledger learns of it; but verification called the store corrupt, and an import
    made the run pending again."""

    @perdure.tool
    def wire() -> None:
        raise CrashError("wire")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        wire()

    store = place.open()
    with pytest.raises(CrashError):
        store.run(f, "a")
    handle = store.handle("a/f/main")
    handle.cancel("gave up")
    handle.settle("wire#1", done=1)
    store.agent("a").verify()
    with perdure.open("memory://") as other:
        info = store.find("a")
        assert info is not None
        other.import_log(store.export_log(info))
        assert other.handle("a/f/main").status == "cancelled"


def test_a_run_inside_of_a_run_does_not_wait_for_an_outer_one(store: Store) -> None:
    """a on A ran b on B, which ran c on A: it waited for A for ever."""

    @perdure.agent(dict)
    def b(run: perdure.Run[dict]) -> str:
        return store.options(key="inner").run(nothing, "A")

    @perdure.agent(dict)
    def a(run: perdure.Run[dict]) -> str:
        return store.run(b, "B")

    assert "would wait for itself" in str(within_bounds(lambda: store.run(a, "A")))
