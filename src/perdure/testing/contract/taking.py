"""The contract of commits that take their branch's lease (I4), as the begins of runs do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from perdure.model import Lease, Message
from perdure.storage.answers import Standing
from perdure.storage.appending import Append, Appended, Ref, Refused
from perdure.storage.capabilities import INBOX, LEASES, RUN_ROWS, Backend
from perdure.storage.standing import ClosedError
from perdure.testing.pen import Contract, Pen, a_run, elsewhere, needs, refused

STARTERS = 6
ROUNDS = 12


def beginning(name: str, backend: Backend, executor: str = "one") -> tuple[Append, Append]:
    """Returns a commit that creates an agent and takes its lease with the next one; and that next
    one alone."""
    pen = Pen(backend, name)
    first, tail = pen.make()
    pen.tail, pen.heads["main"] = tail, first.seq
    row = replace(a_run(f"{name}/f/main"), agent=name)
    second, _ = pen.make(epoch=1, holder=executor, sync=True, runs=[row])
    durable = replace(first.riders, sync=True)
    return replace(first, riders=durable, then=[second]), second


@needs(RUN_ROWS, INBOX, LEASES)
class TakingContract(Contract):
    """Tests of commits that take a lease."""

    def test_i4_a_commit_takes_the_lease(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        taken = pen.write(epoch=1, holder="one", runs=[a_run("r")])
        no = pen.number()
        assert backend.ref(no, "main") == Ref("main", "branch", taken.seq, False, 1, 1, "one")
        assert [row.id for row in backend.runs()] == ["r"]
        assert refused(backend.append([pen.make()[0]])[0]) == "held"
        answer = backend.lease(no, "main", "two")
        assert isinstance(answer, Ref) and (answer.held, answer.holder) == (1, "one")
        pen.write(epoch=1, release=True)
        pen.write(epoch=2, holder="two")
        assert refused(backend.append([pen.make(epoch=1)[0]])[0]) == "fenced"
        taken_over = backend.lease(no, "main", "three", over=2)
        assert taken_over == Lease(no, "main", "three", 3)
        assert refused(backend.append([pen.make(epoch=2)[0]])[0]) == "fenced"
        backend.lease(no, "main", None, release=3)
        pen.write(epoch=4, holder="four", release=True)
        assert backend.ref(no, "main") == Ref("main", "branch", 5, False, 4)

    def test_i4_a_lease_that_is_held_is_not_taken_by_a_commit(
        self, backend: Backend, pen: Pen
    ) -> None:
        pen.write()
        no = pen.number()
        for held in (True, False):
            if held:
                backend.lease(no, "main", "one")
            before = backend.ref(no, "main")
            why = "held" if held else "fenced"
            for epoch in (1, 3) if not held else (1, 2, 3):
                append, _ = pen.make(epoch=epoch, holder="two", runs=[a_run("r")])
                (outcome,) = backend.append([append])
                assert outcome == Refused(why, before)  # type: ignore[arg-type]
            backend.lease(no, "main", None, release=1)
        assert backend.runs() == [] and len(backend.read(no, 1, 9)) == 1
        pen.write(epoch=2, holder="two")

    def test_i4_a_refused_commit_takes_no_lease(self, backend: Backend, pen: Pen) -> None:
        """Whatever refuses it: the branch is as it was, and its lease can be had."""
        pen.write()
        pen.write("side")
        pen.write(key=("k", b"x"))
        no = pen.number()
        before = backend.ref(no, "main")
        taking: Any = {"epoch": 1, "holder": "one"}
        linked_wrongly = replace(pen.make(**taking)[0], behind=elsewhere(bytes(33)))
        refusals = {
            "moved": pen.make(expected=1, **taking)[0],
            "key": pen.make(key=("k", b"y"), **taking)[0],
            "consumed": pen.make(consumed=[77], **taking)[0],
            "stale": linked_wrongly,
            "gone": replace(pen.make(**taking)[0], branch="nowhere"),
        }
        for why, append in refusals.items():
            assert refused(backend.append([append])[0]) == why
            assert backend.ref(no, "main") == before
        backend.stand(Standing(True, '{"follows": "sqlite:////elsewhere"}'))
        (outcome,) = backend.append([pen.make(**taking)[0]])
        assert isinstance(outcome, ClosedError)
        backend.stand(None)
        assert backend.ref(no, "main") == before
        assert backend.lease(no, "main", "two") == Lease(no, "main", "two", 1)

    def test_a_new_agent_has_its_lease_with_its_second_commit(self, backend: Backend) -> None:
        first, second = beginning("new", backend)
        (outcome,) = backend.append([first])
        assert isinstance(outcome, Appended)
        no = outcome.no
        assert backend.ref(no, "main") == Ref("main", "branch", 2, False, 1, 1, "one")
        assert [row.header for row in backend.read(no, 1, 9)] == [first.header, second.header]
        (row,) = backend.runs()
        assert (row.agent, row.agent_no) == ("new", no)

    def test_a_new_agent_is_not_there_where_its_second_commit_is_refused(
        self, backend: Backend
    ) -> None:
        first, second = beginning("new", backend)
        refusals = {
            "consumed": replace(second, riders=replace(second.riders, consumed=[77])),
            "fenced": replace(second, epoch=2),
            "stale": replace(second, behind=elsewhere(bytes(33))),
            "moved": replace(second, expected=7),
        }
        for why, broken in refusals.items():
            assert refused(backend.append([replace(first, then=[broken])])[0]) == why
            assert backend.agent("new") is None and backend.runs() == []
        sent = backend.send(Message("new/f/main", "new", "start", "f"))
        assert not isinstance(sent, Refused)
        taking = replace(second.riders, consumed=[sent.message.no])
        whole = replace(first, then=[replace(second, riders=taking)])
        assert isinstance(backend.append([whole])[0], Appended)
        assert backend.inbox() == []

    def test_a_run_whose_end_was_asked_for_does_not_begin(self, backend: Backend, pen: Pen) -> None:
        """Somebody cancelled it after its maker had looked: it began, and called a tool."""
        pen.write()
        backend.send(Message("r", "a", "start", "f"))
        late, _ = pen.make(epoch=1, holder="one", runs=[a_run("r")])
        backend.send(Message("r", "a", "cancel", ""))
        assert refused(backend.append([late])[0]) == "unread"
        ref = backend.ref(pen.number(), "main")
        assert ref is not None and (ref.held, ref.seq) == (None, 1)
        assert backend.runs() == []
        pen.write(epoch=1, holder="one", runs=[a_run("other")])
        first, _ = beginning("new", backend)
        backend.send(Message("new/f/main", "new", "start", "f"))
        backend.send(Message("new/f/main", "new", "cancel", ""))
        assert refused(backend.append([first])[0]) == "unread"
        assert backend.agent("new") is None

    def test_a_run_that_was_asked_for_meanwhile_does_not_begin(
        self, backend: Backend, pen: Pen
    ) -> None:
        """A parent asked for its child just before somebody else's commit began that: the child
        had no parent, told nobody of its end, and its parent waited for ever."""
        pen.write()
        sent = backend.send(Message("r", "a", "start", "f"))
        assert not isinstance(sent, Refused)
        late, _ = pen.make(epoch=1, holder="one", runs=[a_run("r")])
        assert refused(backend.append([late])[0]) == "unread"
        assert backend.runs() == [] and len(backend.inbox("r")) == 1
        pen.write(epoch=1, holder="one", runs=[a_run("r")], consumed=[sent.message.no])
        first, _ = beginning("new", backend)
        backend.send(Message("new/f/main", "new", "start", "f"))
        assert refused(backend.append([first])[0]) == "unread"
        assert backend.agent("new") is None

    def test_i2_beginnings_of_one_batch_succeed_or_fail_alone(self, backend: Backend) -> None:
        there = Pen(backend, "there")
        there.write()
        late, _ = beginning("there", backend)
        broken, second = beginning("broken", backend)
        broken = replace(broken, then=[replace(second, epoch=2)])
        batch = [
            beginning("b", backend)[0],
            late,
            there.make()[0],
            broken,
            beginning("a", backend)[0],
        ]
        outcomes = backend.append(batch)
        whys = [outcome.why if isinstance(outcome, Refused) else "" for outcome in outcomes]
        assert whys == ["", "exists", "", "fenced", ""]
        assert [info.name for info in backend.agents()] == ["a", "b", "there"]
        assert sorted(row.agent for row in backend.runs()) == ["a", "b"]

    def test_i4_of_many_who_take_the_lease_with_a_commit_one_does(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Of a branch that is there, and of an agent that is not."""
        pen.write()
        no, together = pen.number(), threading.Barrier(STARTERS)

        def start(executor: str, number: int) -> list[bool]:
            taking, _ = pen.make(value=executor, epoch=number + 1, holder=executor)
            creating, _ = beginning(f"new-{number}", backend, executor)
            together.wait()
            outcomes = [backend.append([one])[0] for one in (taking, creating)]
            together.wait()
            return [isinstance(outcome, Appended) for outcome in outcomes]

        with ThreadPoolExecutor(STARTERS) as pool:
            for number in range(ROUNDS):
                futures = [pool.submit(start, f"x{n}", number) for n in range(STARTERS)]
                took = [future.result() for future in futures]
                ref, info = backend.ref(no, "main"), backend.agent(f"new-{number}")
                assert ref is not None and info is not None
                for place, held in enumerate((ref, backend.ref(info.no, "main"))):
                    winners = [f"x{n}" for n, done in enumerate(took) if done[place]]
                    assert held is not None and [held.holder] == winners
                assert (ref.held, ref.seq) == (number + 1, number + 2)
                self._read_anew(backend, pen)
                backend.lease(no, "main", None, release=number + 1)

    def _read_anew(self, backend: Backend, pen: Pen) -> None:
        """Moves the pen to the log's end: others wrote."""
        from perdure.core.format import chain

        (last,) = backend.read(pen.number(), 0, 2**40, newest_first=True, limit=1)
        pen.tail = chain.tail_of(last.header, "agent 'a'")
        pen.heads["main"] = last.seq

    def test_i1_a_lease_taken_with_a_commit_outlives_the_store(self, backend: Backend) -> None:
        if not self.durable:
            return
        first, _ = beginning("new", backend)
        (outcome,) = backend.append([first])
        assert isinstance(outcome, Appended)
        backend.maintain("clean")
        assert backend.lease(outcome.no, "main", "two") == backend.ref(outcome.no, "main")
