"""The contract of sending to runs that go on (`Riders.going`): each gets it before its end, or its
sender is told that it has ended."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model import Message
from perdure.storage.appending import Append, Appended, Outcome, Refused
from perdure.storage.capabilities import INBOX, RUN_ROWS, Backend, RunQuery
from perdure.testing.pen import Contract, Pen, a_run, needs, refused

ROUNDS = 12


def _telling(run: str, kind: Any = "cancel", key: str = "") -> dict[str, Any]:
    return {"sends": [Message(run, "a", kind, "", key)], "going": [run]}


def _append_at(gate: threading.Barrier, backend: Backend, commit: Append) -> Outcome:
    gate.wait()
    return backend.append([commit])[0]


def _parent(backend: Backend, name: str = "b") -> Pen:
    pen = Pen(backend, name)
    pen.write()
    return pen


@needs(RUN_ROWS, INBOX)
class GoingContract(Contract):
    """Tests of commits that send to a run which may have ended in the meantime."""

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_i8_a_run_that_has_ended_is_told_nothing(
        self, backend: Backend, pen: Pen, status: Any
    ) -> None:
        """A run cancelled its child, which had ended since it was looked at. The message was left
        out, and the commit said that the child was asked to end."""
        parent = _parent(backend)
        pen.write(runs=[a_run("r")])
        for number, before in enumerate(["pending", "running", "waiting", "needs_attention"]):
            pen.write(runs=[a_run("r", status=before)])
            parent.write(**_telling("r", "signal", f"{number}"))
        (*_, last) = backend.inbox("r")
        pen.write(runs=[a_run("r", status=status)], read_to={"r": last.no})
        for key in ("3", "new"):  # also one that it had got before
            late, _ = parent.make(**_telling("r", "signal", key))
            assert refused(backend.append([late])[0]) == "ended"
        assert backend.inbox("r") == []
        parent.write(sends=[Message("r", "a", "signal", "s")])  # by who does not ask: left out
        pen.write(runs=[a_run("r")])  # set back, it goes on
        parent.write(**_telling("r"))
        assert [one.kind for one in backend.inbox("r")] == ["cancel"]

    def test_i8_a_run_that_is_asked_for_is_told(self, backend: Backend, pen: Pen) -> None:
        parent = _parent(backend)
        pen.write()
        late, _ = parent.make(**_telling("r"))
        assert refused(backend.append([late])[0]) == "ended"
        sent = backend.send(Message("r", "a", "start", "f"))
        assert not isinstance(sent, Refused)
        parent.write(**_telling("r"))
        asked = [one.no for one in backend.inbox("r")]
        assert len(asked) == 2
        pen.write(runs=[a_run("r", status="cancelled")], fresh=["r"], consumed=asked)
        late, _ = parent.make(**_telling("r"))
        assert refused(backend.append([late])[0]) == "ended"

    def test_i8_a_run_whose_agent_is_deleted_is_told_nothing(
        self, backend: Backend, pen: Pen
    ) -> None:
        parent = _parent(backend)
        pen.write()
        backend.send(Message("r", "a", "start", "f"))
        pen.write(delete_agent=True)
        late, _ = parent.make(**_telling("r"))
        assert refused(backend.append([late])[0]) == "ended"

    def test_i8_of_one_batch_the_second_sees_the_first(self, backend: Backend, pen: Pen) -> None:
        """The child's end, and that its parent cancels it, were in one transaction."""
        early = _parent(backend, "0")
        pen.write(runs=[a_run("r")])
        late = _parent(backend, "b")
        end, tail = pen.make(runs=[a_run("r", status="done")], read_to={"r": 0})
        first, second = backend.append([end, late.make(**_telling("r"))[0]])
        assert isinstance(first, Appended) and refused(second) == "ended"
        pen.accept(end, tail, first)
        pen.write(runs=[a_run("r")])
        end, tail = pen.make(runs=[a_run("r", status="done")], read_to={"r": 0})
        asking, _ = early.make(**_telling("r"))
        first, second = backend.append([asking, end])
        assert isinstance(first, Appended) and refused(second) == "unread"
        assert [one.kind for one in backend.inbox("r")] == ["cancel"]

    def test_i8_the_end_of_a_run_and_its_cancellation_take_turns(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Whoever is second is told: the parent that it has ended, or the child that it is to end.
        The parent is told of the end, as ends are, by the same commit."""
        parent = _parent(backend)
        for number in range(ROUNDS):
            run = f"r{number}"
            asked = number % 3 == 2  # it ends as it begins
            begins: dict[str, Any] = {}
            if asked:
                sent = backend.send(Message(run, "a", "start", "f"))
                assert not isinstance(sent, Refused)
                begins = {"fresh": [run], "consumed": [sent.message.no]}
            else:
                pen.write(runs=[a_run(run)])
            end, tail = pen.make(
                runs=[a_run(run, status="done")],
                read_to={run: 0},
                sends=[Message("p", "b", "signal", run)],
                **begins,
            )
            asking, parents = parent.make(runs=[replace(a_run("p"), agent="b")], **_telling(run))
            gate = threading.Barrier(2)
            with ThreadPoolExecutor() as beside:
                waiting = beside.submit(_append_at, gate, backend, asking)
                ended = _append_at(gate, backend, end)
            told = waiting.result()
            rows = [row.status for row in backend.runs(RunQuery(run_id=run))]
            if isinstance(ended, Appended):
                pen.accept(end, tail, ended)
                assert refused(told) == "ended"
                assert rows == ["done"] and backend.inbox(run) == []
            else:
                assert refused(ended) == "unread" and isinstance(told, Appended)
                parent.accept(asking, parents, told)
                assert rows == ([] if asked else ["running"])
                assert [one.kind for one in backend.inbox(run)][asked:] == ["cancel"]
