"""What tests of waiting share: a clock to put forward, and runs that are executed bit by bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.drive import Drive
from perdure.engine.dispatch.drive_end import FinishedMeanwhileError, RunResult
from perdure.model import FINISHED, Commit
from perdure.storage.log.proposals import Proposal
from perdure.store import Store

if TYPE_CHECKING:
    from tests.engine.conftest import Place

BOUND_S = 60.0
HOUR = 3600.0


class Clock:
    """The time of this machine, which `forward` changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + self._ahead)

    def forward(self, seconds: float) -> None:
        self._ahead += round(seconds * 1e9)


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for something that takes no time but the machine's."""
    end = time.monotonic() + BOUND_S
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.01)
    return found


def go(store: Store, function: Any, agent: str = "a", *args: Any, key: str = "main") -> Any:
    """Execute a run until it ends or waits, as a worker does; its result, or None."""
    order = store.options(key=key).order(function, agent, args, {}, storable=False)
    drive = Drive(store.runner._means, Command(function, order, args, {}))
    info = drive.find()
    if info is not None and info.status in FINISHED:
        return drive.recorded(info)
    store.runner.liveness.start()
    try:
        end = store.runner.execute(drive)
    except FinishedMeanwhileError:
        return drive.recorded(store.handle(drive.id).info)
    return end.result if isinstance(end, RunResult) else None


class Background:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None

        def run() -> None:
            try:
                self.result = call()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> Any:
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive(), "it is stuck"
        if self.error is not None:
            raise self.error
        return self.result


def records(store: Store, agent: str = "a", kind: str | None = None) -> list[dict[str, Any]]:
    """What the log of an agent records, oldest first."""
    return [
        dict(record)
        for commit in commits(store, agent)
        for record in commit.records
        if kind is None or record["t"] == kind
    ]


def commits(store: Store, agent: str = "a") -> list[Commit]:
    return list(store.agent(agent).log())


def verify_all(place: Place) -> None:
    """The rows of runs are those that the logs give, whatever the test did."""
    store = place.open()
    for info in store.agents():
        store.agent_of(info).verify()


class LostPowerError(BaseException):
    """Stands for the end of the process at a commit."""


class Boundaries:
    """Ends "the process" around its nth commit: ``before``, nothing of it is in the log; ``after``,
    all of it is, and nobody here knows."""

    def __init__(self, store: Store, number: int, when: str) -> None:
        self._left = number
        context = store.runner._context
        submit = context.committer.submit

        def submitting(proposal: Proposal) -> Any:
            self._left -= 1
            if self._left == 0 and when == "before":
                raise LostPowerError
            done = submit(proposal)
            if self._left == 0:
                raise LostPowerError
            return done

        context.committer.submit = submitting  # type: ignore[method-assign]

    @property
    def passed(self) -> bool:
        """Whether the process ended there."""
        return self._left <= 0


def just_before(
    store: Store, run: str, act: Callable[[], Any], condition: str = "fresh"
) -> list[str]:
    """Lets others act right before this store's first commit on the condition that a run is new
    (`Riders.fresh`), or goes on (``going``), once all that it looks at is looked at. Returns a list
    that has an entry once it is done."""
    done: list[str] = []
    committer = store.runner.context.committer
    submit, soon = committer.submit, committer.submit_soon

    def acting(proposal: Proposal) -> None:
        if run in getattr(proposal.riders, condition) and not done:
            done.append(run)
            act()

    def submitting(proposal: Proposal) -> Any:
        acting(proposal)
        return submit(proposal)

    def submitting_soon(proposal: Proposal, done: Callable[[], None]) -> None:
        acting(proposal)
        soon(proposal, done)

    committer.submit = submitting  # type: ignore[method-assign]
    committer.submit_soon = submitting_soon  # type: ignore[method-assign]
    return done


def at_every_boundary(
    place: Place, work: Callable[[Store, str], Any]
) -> Iterator[tuple[str, Store, str, Any]]:
    """For each commit that the work makes, on an agent of its own: lose the store before it, or
    after it, and do the work again in a store opened anew. Yields where that was, the second
    store, the agent's name, and what came of it."""
    for number in range(1, 100):
        for when in ("before", "after"):
            agent = f"{when}-{number}"
            store = place.open()
            boundaries = Boundaries(store, number, when)
            with suppress(LostPowerError):
                work(store, agent)
            store.close()
            if not boundaries.passed:
                return
            store = place.open()
            yield f"{when} commit {number}", store, agent, work(store, agent)
    raise AssertionError("the work does not end")
