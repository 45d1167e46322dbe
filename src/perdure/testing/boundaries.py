"""Kills a whole program before and after everything that it does to the world or the log, and
checks that it ends right all the same. For one agent function, `kill_at_every_boundary` is less to
write.

    def migrate(folder: Path) -> str:
        with perdure.open(folder / "agents.db") as store:
            return store.run(migration, "m", str(folder))

    def test_migrate(tmp_path):
        def check(end: Ending) -> None:
            assert end.result == "done"
            assert (end.folder / "moved.txt").read_text() == "1\n2\n3\n", end.killed_at

        kill_program_at_every_boundary(migrate, check, tmp_path)

A boundary is the moment before or after an append to the log, a lease's change, the sending of a
message, or the call of a step or tool; `boundary` makes more of them. On POSIX only: programs run
in forked processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from perdure.engine.execution.async_performer import AsyncPerformer
from perdure.engine.execution.performer import Performer
from perdure.engine.journal.effects import Invoke
from perdure.private import new_folder
from perdure.public_data import PublicData
from perdure.storage.sqlite.backend import SqliteBackend

Scenario = Callable[[Path], Any]
"""A whole program: opens a store in the folder, does its work, returns. Run again after a kill."""

BOUNDARIES_MAX = 10_000

WRITES = ("append", "lease", "send")
"""The methods of a backend that change what others see, except for heartbeats."""


class Ending(PublicData, Struct, frozen=True):
    """The end of a scenario, in the process that was not killed.

    Attributes:
        folder: the folder where it ran, empty at first.
        killed_at: the boundaries at which it was killed, in order, e.g. ``before append 3``.
        reached: the boundaries that the last process passed.
        result: what it returned, if that can be pickled.
        error: the name and words of the exception that ended it; None if it returned.
    """

    folder: Path
    killed_at: list[str]
    reached: list[str]
    result: Any = None
    error: str | None = None


class Counter:
    """Counts the boundaries that a process passes, and ends it at one of them."""

    def __init__(self, kill_at: int | str | None, end: Callable[[str], None]) -> None:
        self._kill_at = kill_at
        self._end = end
        self._counts: dict[str, int] = {}
        self.reached: list[str] = []

    def passed(self, when: str, what: str) -> None:
        count = self._counts[what] = self._counts.get(what, 0) + (when != "after")
        self.reached.append(f"{when} {what} {count}")
        if self._kill_at in (len(self.reached) - 1, self.reached[-1]):
            self._end(self.reached[-1])


_counter: Counter | None = None


def boundary(what: str) -> None:
    """Marks one more moment to be killed at, e.g. in the middle of a tool; does nothing if nobody
    kills. `Ending.killed_at` names it by ``at``, these words and the number of passes: ``at sending
    1``."""
    if _counter is not None:
        _counter.passed("at", what)


@contextmanager
def counting(counter: Counter) -> Iterator[None]:
    """Makes `boundary` count with this counter."""
    global _counter
    before, _counter = _counter, counter
    try:
        yield
    finally:
        _counter = before


def kill_program_at_every_boundary(
    scenario: Scenario, check: Callable[[Ending], None], folder: Path, *, timeout_s: float = 60
) -> int:
    """Runs a scenario once for each of its boundaries: killed there, then run again to its end.

    The first run is not killed at all. Each run has a folder of its own.

    Args:
        check: checks each ending, and raises if it is not right.
        folder: the parent of these folders.
        timeout_s: for one process. One that takes longer is killed, and counts as stuck.

    Returns:
        The number of boundaries.

    Raises:
        TimeoutError: a process was stuck, before or after the kill that it names.
        anything that `check` raises.
    """
    check(run_with_kills(scenario, _new(folder / "whole"), (), timeout_s=timeout_s))
    for number in range(BOUNDARIES_MAX):
        place = _new(folder / str(number))
        end = run_with_kills(scenario, place, (number,), timeout_s=timeout_s)
        check(end)
        if not end.killed_at:
            return number
    raise AssertionError(f"more than {BOUNDARIES_MAX} boundaries: does the scenario end?")


def run_with_kills(
    scenario: Scenario, folder: Path, kill_at: Sequence[int | str], *, timeout_s: float = 60
) -> Ending:
    """Runs a scenario in one process after the other: the first is killed at boundary
    ``kill_at[0]``, the next at ``kill_at[1]`` of its own, and so on; one more is not killed. A
    process that ends before its boundary ends the whole.

    Args:
        kill_at: boundaries by number, from 0, or by name, e.g. ``"before tool 2"``.

    Raises:
        TimeoutError: a process was stuck.
    """
    killed: list[str] = []
    for at in [*kill_at, None]:
        answer = _run_process(scenario, folder, at, killed, timeout_s)
        if isinstance(answer, Ending):
            return answer
        killed.append(answer)
    raise AssertionError("unreachable")


def _run_process(
    scenario: Scenario, folder: Path, kill_at: int | str | None, killed: list[str], timeout_s: float
) -> Ending | str:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(scenario, folder, kill_at, killed, theirs))
    with warnings.catch_warnings():
        # A fork beside other threads is safe for the child's work: it takes none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    try:
        if not ours.poll(timeout_s):
            process.kill()
            raise TimeoutError(f"stuck for {timeout_s} s, killed at {killed}, now at {kill_at}")
        try:
            answer = ours.recv()
        except EOFError:
            answer = "its own end"
        process.join(timeout_s)
        if isinstance(answer, str):
            return answer
        return Ending(folder, killed, *answer)
    finally:
        process.kill()
        process.join()
        ours.close()


def _child(
    scenario: Scenario,
    folder: Path,
    kill_at: int | str | None,
    killed: list[str],
    report: Connection,
) -> None:
    def end(where: str) -> None:
        report.send(where)
        os.kill(os.getpid(), signal.SIGKILL)

    counter = Counter(kill_at, end)
    _watch(counter)
    result, error = None, None
    try:
        with counting(counter):
            result = scenario(folder)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    try:
        report.send((counter.reached, result, error))
    except Exception:  # the result cannot be pickled
        report.send((counter.reached, repr(result), error))


def _watch(counter: Counter) -> None:
    """Puts a boundary on each side of the counted calls; in this process, which nobody else
    uses."""
    invoke, invoke_async = Performer.invoke, AsyncPerformer._invoke

    def watched(name: str) -> Callable[..., Any]:
        method = getattr(SqliteBackend, name)

        def call(self: SqliteBackend, *args: Any, **more: Any) -> Any:
            counter.passed("before", name)
            answer = method(self, *args, **more)
            counter.passed("after", name)
            return answer

        return call

    def watched_invoke(self: Performer, effect: Invoke) -> Any:
        counter.passed("before", effect.inside)
        try:
            return invoke(self, effect)
        finally:
            counter.passed("after", effect.inside)

    async def watched_invoke_async(self: AsyncPerformer, effect: Invoke, *more: Any) -> Any:
        counter.passed("before", effect.inside)
        try:
            return await invoke_async(self, effect, *more)
        finally:
            counter.passed("after", effect.inside)

    for name in WRITES:
        setattr(SqliteBackend, name, watched(name))
    Performer.invoke = watched_invoke  # type: ignore[method-assign]
    AsyncPerformer._invoke = watched_invoke_async  # type: ignore[assignment,method-assign]


def _new(folder: Path) -> Path:
    new_folder(str(folder))
    return folder
