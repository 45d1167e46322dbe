"""The rows of runs that wait, resume and turn: what a commit writes beside the log is what the log
says, to the microsecond, or `verify` could not compare them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.format import chain
from perdure.errors import Corrupt
from perdure.model import Cause, Message, RunInfo
from perdure.state.runs.run_rows import RebuiltRows
from perdure.storage.appending import Riders
from perdure.storage.capabilities import Backend, RunQuery, Sent
from perdure.storage.log.committer import Committer
from perdure.storage.log.proposals import HERE, Committed, Proposal
from perdure.storage.log.reader import LogReader
from perdure.storage.log.refusals import ConsumedError
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.verification.verify import verify_log

RUN = "a/f/main"


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend = MemoryBackend()
    if request.param == "sqlite":
        backend = SqliteBackend(str(tmp_path / "store.db"))
    yield backend
    backend.close()


class Log:
    """Commits of one agent, with the records and the row that the engine would write."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._committer = Committer(backend)
        self._last: Committed | None = None
        started = RunInfo(
            RUN,
            "a",
            0,
            "main",
            "f",
            "main",
            "running",
            HERE,
            args="e3b0c44298fc1c14",
            turn_at=HERE,
            version="v1",
            queue="high",
            parent="b/g/main",
            started_at_micros=HERE,
        )
        self._started = started

    def commit(self, record: dict[str, Any], row: RunInfo | None, **more: Any) -> Committed:
        last = self._last
        draft = chain.Draft(
            "a",
            1,
            "main",
            (last.seq,) if last else (),
            "dict",
            (1, 0),
            "x",
            0,
            Cause(record["t"]),
            chain.pack_payload([], [{"run": RUN} | record]),
        )
        done = self._committer.submit(
            Proposal(
                draft,
                last.no if last else None,
                last.seq if last else None,
                Riders(runs=[row] if row else [], **more),
            )
        )
        self._last = done
        return done

    def start(self) -> Committed:
        record = {
            "t": "run-started",
            "function": "f",
            "key": "main",
            "args": {},
            "version": "v1",
            "queue": "high",
            "parent": "b/g/main",
        }
        return self.commit(record, self._started)

    @property
    def row(self) -> RunInfo:
        (row,) = self.backend.runs(RunQuery(run_id=RUN))
        return row

    def verify(self) -> None:
        info = self.backend.agent("a")
        assert info is not None
        verify_log(self.backend, LogReader(self.backend, info))


def test_a_run_that_waits_and_turns(backend: Backend) -> None:
    log = Log(backend)
    begun = log.start()
    row = log.row
    assert (row.started, row.turn, row.turn_at) == (1, 1, 1)
    assert row.started_at_micros == row.changed_at_micros == begun.at_micros
    log.verify()
    waits = replace(row, status="waiting", waits="signal 'go'", wake_at_micros=99)
    later = log.commit({"t": "run-waiting", "waits": "signal 'go'", "wake_at": 99}, waits)
    assert log.row == replace(waits, changed_at_micros=later.at_micros)
    assert backend.next_wake() == 99
    log.verify()
    log.commit({"t": "run-resumed"}, replace(log.row, status="running"))  # waits ends by itself
    assert (log.row.waits, log.row.wake_at_micros, backend.next_wake()) == ("", 0, 0)
    log.verify()
    turn = {"t": "run-turn", "args": {"x": "1"}, "input": [[1], {}]}
    log.commit(turn, replace(log.row, turn=2, turn_at=HERE))
    assert (log.row.turn, log.row.turn_at, log.row.status) == (2, 4, "running")
    log.verify()
    timer = {"label": "time", "kind": "timer", "until": 5}
    error = {"type": "ValueError", "text": "no"}
    for record in (
        {"t": "wait-began", "place": "sleep#1", "branches": [timer]},
        {"t": "wait-ended", "place": "sleep#1", "label": "time"},
        {"t": "progress", "place": "progress#1", "value": 0.5},
        {"t": "attempt-failed", "place": "f#1", "attempt": 1, "error": error, "again_at": 9},
        {"t": "patch", "place": "patch#1", "value": True},
    ):
        log.commit(record, None)
    log.verify()
    stop = {"t": "run-finished", "status": "done", "value": {"x": 1}}
    end = log.commit(stop, replace(log.row, status="done", ended=HERE, result={"x": 1}))
    assert (log.row.ended, log.row.changed_at_micros) == (10, end.at_micros)
    assert log.row.started_at_micros == begun.at_micros
    log.verify()


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        ({"t": "run-cancelled", "why": "late"}, {"status": "cancelled", "problem": "late"}),
        ({"t": "run-stopped", "problem": "?"}, {"status": "needs_attention", "problem": "?"}),
        ({"t": "outcome", "place": "t#1", "by": "person"}, {"status": "pending"}),
    ],
)
def test_whatever_ends_the_waiting_ends_its_timer(
    backend: Backend, record: dict[str, Any], changes: dict[str, Any]
) -> None:
    """A run was cancelled while it slept; its timer went off for as long as it was there."""
    log = Log(backend)
    log.start()
    log.commit(
        {"t": "run-waiting", "waits": "x", "wake_at": 9},
        replace(log.row, status="waiting", waits="x", wake_at_micros=9),
    )
    changes |= {"ended": HERE} if changes["status"] == "cancelled" else {}
    log.commit(record, replace(log.row, **changes))
    assert (log.row.waits, log.row.wake_at_micros, backend.next_wake()) == ("", 0, 0)
    log.verify()


@pytest.mark.parametrize(
    "wrong",
    [
        {"wake_at_micros": 8},
        {"waits": "y"},
        {"turn": 3},
        {"queue": "low"},
        {"started_at_micros": 5},
    ],
)
def test_a_row_that_the_log_does_not_say_is_found(backend: Backend, wrong: dict[str, Any]) -> None:
    log = Log(backend)
    log.start()
    waits = replace(log.row, status="waiting", waits="x", wake_at_micros=9)
    log.commit({"t": "run-waiting", "waits": "x", "wake_at": 9}, replace(waits, **wrong))
    with pytest.raises(Corrupt, match=RUN):
        log.verify()


def test_an_imported_log_has_the_same_rows(backend: Backend) -> None:
    """What an import writes beside the log is made by `RebuiltRows` alone."""
    log = Log(backend)
    log.start()
    log.commit(
        {"t": "run-waiting", "waits": "x", "wake_at": 9},
        replace(log.row, status="waiting", waits="x", wake_at_micros=9),
    )
    info = backend.agent("a")
    assert info is not None
    rows = RebuiltRows()
    for commit in LogReader(backend, info).commits():
        rows.after(commit)
    assert rows.rows == {RUN: replace(log.row, agent_no=0)}


def test_a_message_that_somebody_else_took_is_an_error_of_its_own(backend: Backend) -> None:
    log = Log(backend)
    log.start()
    sent = backend.send(Message(RUN, "a", "signal", "go", "1"))
    assert isinstance(sent, Sent)
    taken = {"t": "wait-ended", "place": "go#1", "label": "it"}
    log.commit(taken, None, consumed=[sent.message.no])
    with pytest.raises(ConsumedError):
        log.commit(taken, None, consumed=[sent.message.no])
    assert backend.inbox() == []


def test_a_finished_row_that_is_told_once_more_has_not_changed(backend: Backend) -> None:
    """A person settled a call of a cancelled run: only the ledger learns of that."""
    log = Log(backend)
    log.start()
    log.commit(
        {"t": "run-cancelled", "why": "x"},
        replace(log.row, status="cancelled", ended=HERE, problem="x"),
    )
    row = log.row
    log.commit({"t": "outcome", "place": "t#1", "by": "person"}, row)
    assert log.row == row
    log.verify()
