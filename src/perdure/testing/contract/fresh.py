"""The contract of runs that must be new (`Riders.fresh`): each begins once, by one request."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from perdure.model import Message
from perdure.storage.appending import Append, Appended, Outcome, Refused
from perdure.storage.capabilities import INBOX, RUN_ROWS, Backend, RunQuery
from perdure.testing.pen import Contract, Pen, a_run, needs, refused

ROUNDS = 12


def start(run: str) -> Message:
    return Message(run, "a", "start", "f")


def _append_at(gate: threading.Barrier, backend: Backend, commit: Append) -> Outcome:
    gate.wait()
    return backend.append([commit])[0]


@needs(RUN_ROWS, INBOX)
class FreshContract(Contract):
    """Tests of commits that begin a run, or ask for one, which nobody may have done before."""

    def test_i2_a_run_that_is_there_does_not_begin_again(self, backend: Backend, pen: Pen) -> None:
        """A call began it on one branch, and somebody made a fork of that id on another one at the
        same moment. Both got in, and the row was that of who came last: the other one had a run
        that nobody could find."""
        pen.write(runs=[a_run("r")], fresh=["r"])
        for status in ("running", "done", "cancelled"):
            pen.write(runs=[a_run("r", status=status)])
            late, _ = pen.make("what-if", runs=[a_run("r")], fresh=["r"])
            assert refused(backend.append([late])[0]) == "begun"
            assert [row.status for row in backend.runs(RunQuery(run_id="r"))] == [status]
        assert backend.ref(pen.number(), "what-if") is None
        pen.write("what-if", runs=[a_run("q")], fresh=["q"])

    def test_i2_a_run_that_is_asked_for_begins_by_that(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        sent = backend.send(start("r"))
        assert not isinstance(sent, Refused)
        late, _ = pen.make(runs=[a_run("r")], fresh=["r"])
        assert refused(backend.append([late])[0]) == "begun"
        assert backend.runs() == [] and len(backend.inbox("r")) == 1
        pen.write(runs=[a_run("r")], fresh=["r"], consumed=[sent.message.no])
        assert len(backend.runs()) == 1 and backend.inbox("r") == []

    def test_i8_a_run_is_asked_for_once(self, backend: Backend, pen: Pen) -> None:
        """Two runs started one child under a key at the same moment. One of the requests was left
        out, and whoever had made that waited for ever."""
        pen.write(sends=[start("r")], fresh=["r"])
        late, _ = pen.make(sends=[start("r")], fresh=["r"])
        assert refused(backend.append([late])[0]) == "begun"
        (asked,) = backend.inbox("r")
        pen.write(runs=[a_run("r")], fresh=["r"], consumed=[asked.no])
        late, _ = pen.make(sends=[start("r")], fresh=["r"])
        assert refused(backend.append([late])[0]) == "begun"
        pen.write(sends=[start("r")])  # by who knows that it is there: left out
        assert backend.inbox("r") == []

    def test_i2_of_one_batch_the_first_begins_it(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        other = Pen(backend, "b")
        other.write()
        commits = [one.make(sends=[start("r")], fresh=["r"])[0] for one in (pen, other)]
        first, second = backend.append(commits)
        assert isinstance(first, Appended) and refused(second) == "begun"
        assert len(backend.inbox("r")) == 1

    def test_i2_a_run_that_two_begin_at_once_begins_once(self, backend: Backend, pen: Pen) -> None:
        """Two logs ask for it, or one of them begins it: whoever is second is told."""
        pen.write()
        other = Pen(backend, "b")
        other.write()
        for number in range(ROUNDS):
            run = f"r{number}"
            begins = {"runs": [a_run(run)]} if number % 2 else {"sends": [start(run)]}
            one, tail = pen.make(fresh=[run], **begins)
            two, other_tail = other.make(sends=[start(run)], fresh=[run])
            gate = threading.Barrier(2)
            with ThreadPoolExecutor() as beside:
                waiting = beside.submit(_append_at, gate, backend, two)
                outcome = _append_at(gate, backend, one)
            outcomes = [outcome, waiting.result()]
            if isinstance(outcomes[0], Appended):
                pen.accept(one, tail, outcomes[0])
                assert refused(outcomes[1]) == "begun"
            else:
                assert refused(outcomes[0]) == "begun" and isinstance(outcomes[1], Appended)
                other.accept(two, other_tail, outcomes[1])
            assert len(backend.runs(RunQuery(run_id=run))) + len(backend.inbox(run)) == 1
