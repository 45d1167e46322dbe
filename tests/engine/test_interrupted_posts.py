"""Ctrl-C while a run's commit is brought on its way, or home, where nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.engine.execution import run_writer
from perdure.engine.execution.run_writer import RunWriter
from perdure.state.working_copy import WorkingCopy, next_proposal
from perdure.store import Store

went_on: list[str] = []


@perdure.step
def long_work() -> int:
    perdure.heartbeat("half of it")
    went_on.append("heartbeat")
    return 1


@perdure.agent(dict)
def telling(run: perdure.Run[dict]) -> str:
    run.progress("begun")
    went_on.append("progress")
    return "told"


@perdure.agent(dict)
def working(run: perdure.Run[dict]) -> int:
    return long_work()


def interrupting(function: Callable[..., Any], at: Callable[..., bool]) -> Callable[..., Any]:
    """The function; its first call that `at` picks out is interrupted at its end."""
    left = [KeyboardInterrupt]

    def interrupted(*args: Any, **more: Any) -> Any:
        found = function(*args, **more)
        if left and at(*args, **more):
            raise left.pop()
        return found

    return interrupted


@pytest.mark.parametrize(
    ("function", "kind", "given"), [(telling, "run-progress", "told"), (working, "progress", 1)]
)
def test_an_interrupt_while_a_commit_is_posted_is_raised_there(
    store: Store, monkeypatch: pytest.MonkeyPatch, function: Any, kind: str, given: Any
) -> None:
    """It was noted, and not raised. The function went on, however long it took to its end; then its
    caller got a `PerdureError` which said that somebody had caught a KeyboardInterrupt."""
    went_on.clear()
    prepare = interrupting(
        WorkingCopy.committing_delta, lambda working, delta, cause, extras: cause.kind == kind
    )
    monkeypatch.setattr(WorkingCopy, "committing_delta", prepare)
    with pytest.raises(KeyboardInterrupt):
        store.run(function, "a")
    assert went_on == []
    assert store.run(function, "a") == given


def test_an_interrupt_while_a_posted_commit_is_taken_in_is_raised(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came at the function's end, which takes in what the store has answered meanwhile. There,
    too, it was noted alone, and its caller got another error."""
    here, take_in, proposal_of = (
        threading.current_thread(),
        RunWriter._take_in,
        next_proposal,
    )
    finishing: list[Any] = []

    def only_here(writer: RunWriter, flight: Any, call: Any) -> bool:
        if threading.current_thread() is here:  # else the committer's may be faster
            finishing.append(flight)
            return take_in(writer, flight, call)
        for wake in flight.waiters:
            wake()
        return True

    def interrupted(flow: Any, outcome: Any) -> Any:
        if [flight.flow for flight in finishing] == [flow]:
            raise KeyboardInterrupt
        return proposal_of(flow, outcome)

    monkeypatch.setattr(RunWriter, "_take_in", only_here)
    monkeypatch.setattr(run_writer, "next_proposal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.run(telling, "a")
    assert len(finishing) == 1
    assert store.run(telling, "a") == "told"


def test_what_left_a_call_is_not_said_to_have_been_caught(store: Store) -> None:
    """The error said that SystemExit "was caught". The function had no `try`: it did not ask its
    thread for the result."""

    @perdure.step
    def leave() -> None:
        raise SystemExit(3)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        with run.executor() as threads:
            threads.submit(leave).exception()
        return "went on"

    words = "SystemExit left a step without an outcome, and the function went on"
    with pytest.raises(perdure.PerdureError, match=words):
        store.run(f, "a")
