"""Replays a recorded run with today's code: recorded calls are not made, and nothing is written."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.checks import iterable, mapping
from perdure.core.format import records
from perdure.engine.dispatch.async_drive import LATE_S, AsyncDrive
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.conclusion import Means
from perdure.engine.dispatch.drive import Drive
from perdure.engine.dispatch.drive_end import End, RunResult
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.driven_run import NO_END, Ends
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.performer import check_given_up
from perdure.engine.execution.run_writer import RunWriter
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.orders import Order
from perdure.engine.functions.turn_end import Again
from perdure.engine.journal.call import Call
from perdure.engine.journal.effects import Arrive, Arrived
from perdure.engine.journal.entry import CHANGES, Entry
from perdure.engine.journal.failures import words
from perdure.engine.journal.journal import Journal, describe
from perdure.engine.journal.leaving import DeadlinePassed
from perdure.engine.journal.release_order import PROVEN_S
from perdure.engine.journal.scopes import Scope
from perdure.engine.journal.values import binding_of, label, parameters_of
from perdure.errors import NeedsAttention, NotFound, PerdureError, RunInterrupted
from perdure.missing import MISSING
from perdure.model import Commit, RunInfo
from perdure.public_data import PublicData
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.log.reader import Folded, LogReader
from perdure.storage.memory.backend import MemoryBackend
from perdure.store import Store
from perdure.testing.driving import in_a_loop, refuse_in_a_loop
from perdure.testing.turn_ends import end_now, is_late, recorded_end
from perdure.transfer.portable_file import Portable, read_file


class Difference(PublicData, Struct, frozen=True):
    """A place where today's code does something else than recorded.

    Attributes:
        recorded: the record there; `now`: what the code does.
    """

    problem: str
    recorded: str
    now: str


class Replayed(PublicData, Struct, frozen=True):
    """The result of replaying a recorded run.

    Attributes:
        result: what the function returned; MISSING if it raised, or did not end.
        error: the exception that it ended with, as before.
        drift: the first difference from the record; None if there is none.
        goes_on: where the record ends and the run would continue live, or its deadline ended it;
            empty if its function ended.
        calls: the number of recorded calls, waits and edits that the function reached.
    """

    run: str
    result: Any = MISSING
    error: Exception | None = None
    drift: Difference | None = None
    goes_on: str = ""
    calls: int = 0

    def check(self) -> Any:
        """Returns the result, if the code does what was recorded.

        Raises:
            AssertionError: it does not; the message shows both.
        """
        __tracebackhide__ = True  # pytest shows the test's line
        if self.drift is not None:
            raise AssertionError(
                f"run {self.run} does not replay: {self.drift.problem}\n"
                f"  recorded: {self.drift.recorded}\n  now:      {self.drift.now}\n"
                f"  (after {self.calls} recorded calls that matched)"
            )
        return self.result


def replay(
    source: str | os.PathLike[str] | Store, function: Callable[..., Any], run: str | None = None, *,
    args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None,
) -> Replayed:  # two lines, for the limit of the file  # fmt: skip
    """Replays a recorded run with today's code, to see whether the run could resume with it.

    The function is called from its beginning, turn by turn; steps, tools and waits return what is
    recorded, and none of them is called. Where the record of an unfinished run ends, the replay
    stops. The source is only read.

    Args:
        source: a file that `perdure export` wrote, or an open store.
        function: the agent function as it is now.
        run: the run's id; default: the only one of that function.
        args, kwargs: the arguments, if the run's own could not be stored.

    Raises:
        ValueError: the source has no run of this function, or several; the run's arguments are
            not recorded.
        PerdureError: the function is ``async def``, and an event loop is running on this thread.
        NotFound: the source does not have this run.
        Corrupt: the file is damaged.
    """
    check_function(function, "function")
    refuse_in_a_loop(function, "replay")
    with _source(source, run, function) as store:
        info = _choose(store, function, run)
        given = None
        if args is not None or kwargs is not None:
            by_name = mapping({} if kwargs is None else kwargs, "kwargs= must have values by name")
            given = tuple(iterable(() if args is None else args, "args=")), by_name
        return _Replay(store, info, function, given).whole()


def recorded_runs(
    source: str | os.PathLike[str] | Store, function: Callable[..., Any] | None = None
) -> list[str]:
    """Returns the ids of the runs in a file or store, of one function or of all: for
    ``@pytest.mark.parametrize("run", recorded_runs("export.jsonl", support))``."""
    name = None if function is None else spec_of(function).name
    opened = nullcontext(source) if isinstance(source, Store) else _source(source, None, None)
    with opened as store:
        return [info.id for info in store.runs(function=name) if info.started]


@contextmanager
def _source(
    source: str | os.PathLike[str] | Store, run: str | None, function: Callable[..., Any] | None
) -> Iterator[Store]:
    """Gives a store in memory, with the run's log."""
    keys = source._context.digest_keys if isinstance(source, Store) else None
    copy = Store(MemoryBackend(), SnapshotPolicy(), keys=keys)
    try:
        if isinstance(source, Store):
            info = _choose(source, function, run)
            agent = source.find(info.agent)
            if agent is None or agent.no != info.agent_no:
                words = "its agent was deleted" if info.started else "it has not begun"
                raise NotFound(words, target=f"run {info.id}")
            copy.import_log(source.export_log(agent))
        else:
            read = _read(source)
            copy.import_log(read.entries, root=read.root)
        yield copy
    finally:
        copy.close()


def _read(source: str | os.PathLike[str]) -> Portable:
    path = os.fspath(source)  # refuses a number: `open` takes the descriptor, and closes it
    try:
        with open(path, "rb") as stream:
            return read_file(stream, path)
    except (OSError, ValueError) as error:  # no such file, nor any that could be called so
        raise NotFound(f"it cannot be read: {error}", target=f"file {path!r}") from error


def _choose(store: Store, function: Callable[..., Any] | None, run: str | None) -> RunInfo:
    if run is not None:
        return store.handle(run).info
    name = None if function is None else spec_of(function).name
    found = [info for info in store.runs(function=name) if info.started]
    if len(found) != 1:
        ids = ", ".join(info.id for info in found[:10])
        several = f"there are {len(found)} runs of {name}; name one: {ids}"
        raise ValueError(several if found else f"there is no run of {name}")
    return found[0]


class WouldGoOn(PerdureError):
    """The record ends here, and the run would continue live."""


class _NoWriter(RunWriter):
    """Writes nothing; a caller that needs a write has reached the end of the record."""

    execution: Execution[Any]

    def later(self, records: Any, consumed: Any = ()) -> None:
        """Not available here."""

    def post(self, item: Item, instead: Item | None = None) -> None:
        """Not available here."""

    def write(self, item: Item) -> None:
        raise self.execution.interrupt(WouldGoOn(item.cause.step or item.cause.kind))

    async def write_async(self, item: Item, new_wait: Any) -> None:
        self.write(item)


GIVEN_UP_S = 0.005


def _wait_to_be_given_up(scope: Scope) -> None:
    """Waits for the recorded cancellation of its task, and raises it: a map may be early."""
    until = time.monotonic() + PROVEN_S
    while scope.is_cancelled is not None and time.monotonic() < until:
        check_given_up(scope)
        time.sleep(GIVEN_UP_S)


class _ReplayExecution(Execution[Any]):
    """An execution that ends with the journal, and notes where it leaves it."""

    tells_time = False  # what its function was told, it is told again

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.writer = _NoWriter(self.working, self.seeing, self.leaving.failed, self._lock)
        self.writer.execution = self
        self.drift: Difference | None = None
        self.matched = 0

    def find(self, effect: Arrive, scope: Scope, *, patient: bool = False) -> Entry | None:
        same = self.journal.find(scope.named(effect.name), effect.args)
        with self.noting(same or self._left(scope), lambda: _said(effect)):
            return super().find(effect, scope, patient=patient)

    def next_recorded(self, call: Call) -> Entry | None:
        entry = super().next_recorded(call)
        self.matched += entry is not None
        return entry

    def recorded_in(self, scope: Scope, call: Call) -> Entry | None:
        entry = super().recorded_in(scope, call)
        self.matched += entry is not None
        return entry

    def find_edit(self, name: str, scope: Scope) -> Entry | None:
        entry = super().find_edit(name, scope)
        self.matched += entry is not None
        return entry

    def begins_edit(self, name: str) -> None:
        raise self.interrupt(WouldGoOn(name))

    def arrived(self, effect: Arrive, scope: Scope, entry: Entry | None) -> Arrived:
        here = _said(effect)
        if entry is None:
            _wait_to_be_given_up(scope)
            raise self.interrupt(WouldGoOn(here))
        outcome = entry.outcome
        if outcome is None or outcome.not_done:
            what = "waits" if entry.kind == "wait" else "has no outcome"
            raise self.interrupt(WouldGoOn(f"{here}, which {what}"))
        self.matched += 1
        return super().arrived(effect, scope, entry)

    def value(self, kind: str, make: Callable[[], Any]) -> Any:
        def beyond() -> Any:
            raise self.interrupt(WouldGoOn(f"run.{kind}()"))

        with self.noting(self._left(self.scope()), lambda: f"run.{kind}()"):
            return super().value(kind, beyond)

    def look_for_cancel(self) -> None:
        """Does nothing: nobody asks here."""

    def _left(self, scope: Scope) -> Entry | None:
        return self.journal.left.first_in(scope.path) or self.journal.left.first()

    @contextmanager
    def noting(self, left: Entry | None, now: Callable[[], str]) -> Iterator[None]:
        """Notes, where the function leaves the record, which entry it `left`."""
        try:
            yield
        except RunInterrupted as interrupt:
            reason = interrupt.reason
            if self.drift is None and isinstance(reason, NeedsAttention):
                recorded = _described(left) if left is not None else "nothing more"
                self.drift = Difference(reason.problem, recorded, now())
            raise


def _said(effect: Arrive) -> str:
    if effect.kind in CHANGES:
        return effect.name
    return f"{effect.kind} {effect.name}({effect.preview()})"


def _described(entry: Entry) -> str:
    return describe(entry) if entry.kind not in CHANGES else entry.place


class _States:
    """The states of a run, folded from the begin of its turn on: each turn from the state of the
    one before it, so that a run of many turns takes no longer than one of as many steps."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._begin: Folded | None = None

    def begin(self, seq: int) -> None:
        """Begins a turn there, behind the previous one."""
        self._begin = self._reader.fold(seq, known=self._begin)

    def at(self, seq: int) -> Folded:
        """Returns a state of that turn; the caller owns it."""
        return self._reader.fold(seq, known=self._begin)


class _ReplayDrive(Drive):
    """One turn of a recorded run: without a lease, and without a record of its end."""

    execution_type = _ReplayExecution

    def set_out(self, row: RunInfo, end: int, states: _States) -> None:
        """Sets the turn: from the begin of the row's turn to the commit that ended it."""
        self.id = row.id
        self._row = row
        self._end = end
        self._states = states
        self.result: Any = MISSING
        self.error: BaseException | None = None

    def begin(self) -> Execution[Any]:
        self._rewind(self._end)
        self.execution = self._next_execution()
        self._late = any(map(is_late, self.working.reader.commit(self._end).typed))
        return self.execution

    def _compare(self, journal: Journal) -> Riders:
        return NOTHING  # it is the code that is tried, not where it runs

    def _find_end(self, info: RunInfo, commits: Sequence[Commit]) -> Ends:
        return NO_END  # it was up, or not, when the run was executed

    def _rewind(self, seq: int) -> None:
        self.working.rewind(self._states.at(seq))

    def conclude(self, execution: Execution[Any], result: Any, error: BaseException | None) -> End:
        self.error = error
        if error is None:
            self.result = result
        return RunResult(None)

    def release(self) -> None:
        """Does nothing: there is no lease."""

    def ended(self, now: Execution[Any], last: bool) -> Replayed:
        """Returns the comparison of the function's outcome with the recorded one."""
        assert isinstance(now, _ReplayExecution)
        seen = Replayed(self.id, calls=now.matched)
        if isinstance(self.error, RunInterrupted):
            now.interrupt(self.error.reason)
        error = self.error if isinstance(self.error, Exception) else None
        if now.interrupted is None and error is self.error:
            with suppress(RunInterrupted):
                left = now.journal.left.first()
                ends = "ends" if error is None else f"raises {type(error).__name__}"
                with now.noting(left, lambda: f"the function {ends}"):
                    now.check_finished(error)
        if now.interrupted is not None:
            reason = now.interrupted.reason
            if isinstance(reason, WouldGoOn | DeadlinePassed):
                return replace(seen, goes_on=reason.problem)
            drift = now.drift or Difference(str(reason), "a run that goes on", "one that stops")
            return replace(seen, drift=drift)
        recorded = None
        if not last or self._row.status in ("done", "failed"):
            recorded = recorded_end(self.working.reader.commit(self._end), last=last)
        found = end_now(self._function, self._results, self.result, self.error)
        if recorded is not None and not recorded.is_as(found):
            problem = "it ends differently than before"
            return replace(seen, drift=Difference(problem, recorded.words, found.words))
        if found.error is not None:
            seen = replace(seen, error=found.error)
        elif not isinstance(self.result, Again):
            seen = replace(seen, result=self.result)
        return seen if recorded is not None else replace(seen, goes_on=f"its end: {found.words}")


class _AsyncReplayDrive(_ReplayDrive, AsyncDrive):
    """One turn of an ``async def`` function's recorded run."""

    def _left_s(self, execution: Execution[Any]) -> float:
        """Returns 0 at the place where the run's deadline passed: what its function awaits there
        may never come."""
        if self.execution is None or not self._late:
            return math.inf
        return LATE_S if self.execution.journal.left.first() is not None else 0.0

    def _came_short(self, execution: Execution[Any], error: Exception | None) -> bool:
        return False  # nothing is recorded here, and `ended` says what it did not come to


class _Replay:
    """One recorded run, turn by turn."""

    def __init__(
        self,
        store: Store,
        info: RunInfo,
        function: Callable[..., Any],
        given: tuple[tuple[Any, ...], dict[str, Any]] | None,
    ) -> None:
        self._store = store
        self._info = info
        self._function = function
        self._given = given
        agent = store.find(info.agent)
        assert agent is not None
        self._reader = LogReader(store.runner.context.backend, agent)
        self._states = _States(self._reader)

    def whole(self) -> Replayed:
        """Replays up to the first difference, or to the end of the record."""
        commits = self._commits()
        begins = [one for one in commits if (begun := _turn_begun(one)) and begun.again is None]
        seen = Replayed(self._info.id)
        for number, begin in enumerate(begins):
            last = number + 1 == len(begins)
            end = commits[-1].seq if last else begins[number + 1].seq
            turn = self._turn(begin, end, last)
            seen = replace(turn, calls=seen.calls + turn.calls)
            if seen.drift is not None or seen.goes_on:
                break
        return seen

    def _commits(self) -> list[Commit]:
        """Returns the commits of the run, oldest first, from its begin to its end. A fork begins
        with the turn that it was forked in: what that recorded before is its own."""
        info, reader = self._info, self._reader
        since = getattr(_turn_begun(reader.commit(info.started)), "turn_at", 0) or info.started
        path: list[Commit] = []
        for commit in reader.ancestors(info.ended or reader.ref(info.branch).seq):
            if commit.seq < since:
                break
            path.append(commit)
        return path[::-1]

    def _turn(self, begin: Commit, end: int, last: bool) -> Replayed:
        info = self._info
        try:
            args, kwargs = self._arguments(begin)
            order = Order.of(self._function, info.agent, info.key, args, kwargs, storable=False)
        except (TypeError, PerdureError) as error:
            problem = f"its arguments no longer fit: {words(error)}"
            was = getattr(_turn_begun(begin), "preview", "")
            return Replayed(info.id, drift=Difference(problem, was, label(self._function)))
        runner = self._store.runner
        means = Means(runner.context, runner.liveness, runner.wakeups)
        command = Command(self._function, order, args, kwargs)
        drive: _ReplayDrive
        if spec_of(self._function).is_async:
            drive = _AsyncReplayDrive(means, command)
        else:
            drive = _ReplayDrive(means, command)
        self._states.begin(begin.seq)
        drive.set_out(replace(info, turn_at=begin.seq), end, self._states)
        if isinstance(drive, _AsyncReplayDrive):
            in_a_loop(drive.run_async())
        else:
            drive.run()
        assert drive.execution is not None
        return drive.ended(drive.execution, last)

    def _arguments(self, begin: Commit) -> tuple[tuple[Any, ...], dict[str, Any]]:
        record = _turn_begun(begin)
        given = None if record is None else record.input
        if given is None:
            if self._given is None:
                raise ValueError(
                    f"the arguments of run {self._info.id} could not be recorded: pass args= or "
                    f"kwargs=, as they were: {getattr(record, 'preview', '')}"
                )
            return self._given
        args, kwargs = parameters_of(self._function).build(*given)
        binding_of(self._function).bind(args, kwargs)
        return args, kwargs


def _turn_begun(commit: Commit) -> records.Started | records.Turn | None:
    """Returns the record with which a run, or a turn of it, begins here."""
    return next((r for r in commit.typed if isinstance(r, records.Started | records.Turn)), None)
