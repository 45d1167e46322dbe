"""The contract of the storage port on rows of runs, resumable runs, and living executors."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from perdure.model import Message, RunInfo
from perdure.storage.answers import Served
from perdure.storage.capabilities import INBOX, LIVENESS, RUN_ROWS, Backend, RunQuery, Sent
from perdure.storage.looks import Look
from perdure.testing.pen import Contract, Pen, a_run, needs


def ids(rows: list[RunInfo]) -> list[str]:
    return [row.id for row in rows]


def waiting(run_id: str, wake_at: int = 0, changed_at_micros: int = 0) -> RunInfo:
    return a_run(
        run_id,
        status="waiting",
        wake_at_micros=wake_at,
        waits="a test",
        changed_at_micros=changed_at_micros,
    )


@needs(RUN_ROWS, INBOX, LIVENESS)
class RunsContract(Contract):
    """Tests of rows of runs."""

    def test_a_row_comes_back_whole(self, backend: Backend, pen: Pen) -> None:
        row = RunInfo(
            "a/f/main",
            "a",
            1,
            "main",
            "f",
            "main",
            "waiting",
            1,
            0,
            "digest",
            (1, {"x": {2}}),
            "a problem",
            2**50,
            "signal 'approve'",
            3,
            7,
            "v2",
            "high",
            "parent/run",
            11,
            12,
        )
        pen.write(runs=[row])
        assert backend.runs(RunQuery(run_id="a/f/main")) == [replace(row, agent_no=pen.number())]
        pen.write(
            runs=[replace(row, status="running", waits="", wake_at_micros=0, turn=4, turn_at=9)]
        )
        (again,) = backend.runs()
        assert (again.status, again.waits, again.wake_at_micros) == ("running", "", 0)
        assert (again.turn, again.turn_at, again.started_at_micros) == (4, 9, 11)

    def test_a_result_is_its_owners_own(self, backend: Backend, pen: Pen) -> None:
        """In memory the result that a caller got was the one that the row had: a change of it was
        everybody's result from then on."""
        given = {"items": [1]}
        pen.write(runs=[a_run("a", status="done", result=given)])
        for _ in range(2):
            looked = Look(backend, "a", "a").again().run_row()
            found = [row.result for row in (*backend.runs(), looked) if row is not None]
            assert found == [{"items": [1]}] * 2
            for result in (given, *found):
                result["items"].append(2)

    def test_rows_of_runs_are_replaced_in_place(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("a", status="running")])
        pen.write(runs=[a_run("b", status="running"), a_run("a", status="done", result={"x": 1})])
        assert ids(backend.runs(RunQuery(agent="a"))) == ["a", "b"]
        (done,) = backend.runs(RunQuery(run_id="a"))
        assert (done.status, done.result, done.agent_no) == ("done", {"x": 1}, pen.number())
        assert ids(backend.runs(RunQuery(unfinished=True))) == ["b"]
        assert backend.runs(RunQuery(agent="nobody")) == []

    def test_rows_are_found_by_each_condition(self, backend: Backend, pen: Pen) -> None:
        statuses = [
            "pending",
            "running",
            "waiting",
            "needs_attention",
            "done",
            "failed",
            "cancelled",
        ]
        pen.write(runs=[a_run(status, status=status) for status in statuses])
        other = Pen(backend, "b")
        other.write(runs=[replace(a_run("b/g"), agent="b", function="g")])
        assert ids(backend.runs(RunQuery(unfinished=True))) == [*statuses[:4], "b/g"]
        assert ids(backend.runs(RunQuery(agent="a", unfinished=True))) == statuses[:4]
        assert ids(backend.runs(RunQuery(status=["waiting", "done"]))) == ["waiting", "done"]
        assert ids(backend.runs(RunQuery(status=["waiting", "done"], unfinished=True))) == [
            "waiting"
        ]
        assert ids(backend.runs(RunQuery(status=["done"], agent="a"))) == ["done"]
        assert backend.runs(RunQuery(status=[])) == []
        assert ids(backend.runs(RunQuery(function="g"))) == ["b/g"]
        assert ids(backend.runs(RunQuery(function="g", status=["running"]))) == ["b/g"]
        assert backend.runs(RunQuery(function="g", agent="a")) == []
        assert ids(backend.runs(RunQuery(run_id="done"))) == ["done"]
        assert backend.runs(RunQuery(run_id="done", unfinished=True)) == []
        assert backend.runs(RunQuery(run_id="done", agent="b")) == []
        assert backend.runs(RunQuery(run_id="nobody's")) == []

    def test_rows_are_found_by_their_parent(self, backend: Backend, pen: Pen) -> None:
        """Who looks at a tree of runs asks for the children of each, and for those without one."""
        pen.write(runs=[a_run("top", status="waiting")])
        for n in range(4):
            child = a_run(f"c{n}", status="done" if n % 2 else "running")
            pen.write(runs=[replace(child, parent="top" if n < 3 else "c0")])
        for agent in (None, "a"):
            some = partial(RunQuery, agent=agent)
            assert ids(backend.runs(some(parent="top"))) == ["c0", "c1", "c2"]
            assert ids(backend.runs(some(parent="top", limit=2))) == ["c0", "c1"]
            assert ids(backend.runs(some(parent="top", after="c0", limit=1))) == ["c1"]
            assert ids(backend.runs(some(parent="top", newest_first=True))) == ["c2", "c1", "c0"]
            assert ids(backend.runs(some(parent="top", unfinished=True))) == ["c0", "c2"]
            assert ids(backend.runs(some(parent="top", status=["done"]))) == ["c1"]
            assert ids(backend.runs(some(parent=""))) == ["top"]
            assert ids(backend.runs(some(parent="", unfinished=True))) == ["top"]
            assert backend.runs(some(parent="nobody's")) == []

    def test_rows_come_in_pages(self, backend: Backend, pen: Pen) -> None:
        for n in range(6):
            pen.write(runs=[a_run(f"r{n}", status="done" if n % 2 else "waiting")])
        pen.write(runs=[a_run("r1", status="done")])  # a row that changes keeps its place
        assert ids(backend.runs(RunQuery(limit=2))) == ["r0", "r1"]
        assert ids(backend.runs(RunQuery(limit=2, after="r1"))) == ["r2", "r3"]
        assert ids(backend.runs(RunQuery(newest_first=True, limit=2))) == ["r5", "r4"]
        assert ids(backend.runs(RunQuery(newest_first=True, limit=2, after="r4"))) == ["r3", "r2"]
        for agent in (None, "a"):
            some = partial(RunQuery, agent=agent, unfinished=True)
            assert ids(backend.runs(some(limit=2))) == ["r0", "r2"]
            assert ids(backend.runs(some(after="r1", limit=1))) == ["r2"]
            assert ids(backend.runs(some(newest_first=True, after="r4"))) == ["r2", "r0"]
            assert ids(backend.runs(RunQuery(agent=agent, newest_first=True, after="r2"))) == [
                "r1",
                "r0",
            ]
            assert ids(backend.runs(RunQuery(agent=agent, after="r4"))) == ["r5"]
        assert backend.runs(RunQuery(after="r5")) == []
        assert backend.runs(RunQuery(after="nobody's")) == []
        assert backend.runs(RunQuery(limit=0)) == []

    # -- what can go on ----------------------------------------------------------------------

    def test_ready_is_what_somebody_could_go_on_with(self, backend: Backend, pen: Pen) -> None:
        pen.write(
            runs=[
                waiting("without a timer"),
                waiting("later", 101),
                waiting("due", 100),
                a_run("pending", status="pending"),
                a_run("stopped", status="needs_attention"),
                a_run("done", status="done"),
                a_run("running"),
                waiting("signalled", 101),
                waiting("answered"),
            ]
        )
        backend.send(Message("signalled", "a", "signal", "go", "1", None))
        backend.send(Message("answered", "a", "answer", "ask#1", "1", True))
        backend.send(Message("stopped", "a", "signal", "go", "1", None))  # a person is needed still
        backend.send(Message("unborn", "a", "start", "f"))
        wanted = ["pending", "signalled", "answered", "due", "running"]
        assert ids(backend.ready(100, 99)) == wanted
        assert ids(backend.ready(99, 99)) == [*wanted[:3], "running"]
        assert ids(backend.ready(100, 2)) == [*wanted[:2], "running"]
        assert ids(backend.ready(100, 5)) == wanted
        assert backend.ready(100, 0) == []

    def test_who_has_been_due_for_longest_is_ready_first(self, backend: Backend, pen: Pen) -> None:
        """Those came first that had been begun first. Where many such were due again and again,
        nobody came to the others."""
        since = {"a": 40, "b": 30, "c": 10, "d": 20, "e": 50, "f": 30}
        pen.write(
            runs=[
                waiting("a", since["a"], changed_at_micros=5),
                waiting("b", 900, changed_at_micros=since["b"]),
                a_run("c", status="pending", changed_at_micros=since["c"]),
                waiting("d", since["d"], changed_at_micros=15),
                waiting("e", changed_at_micros=since["e"]),
                a_run("f", status="needs_attention", changed_at_micros=since["f"]),
                a_run("g", changed_at_micros=1),
                a_run("h", changed_at_micros=2),
            ]
        )
        for number in range(5):
            backend.send(Message("b", "a", "signal", "go", f"{number}", None))
        backend.send(Message("e", "a", "answer", "ask#1", "1", True))
        backend.send(Message("f", "a", "cancel", ""))
        order = ["c", "d", "b", "f", "a", "e"]
        for limit in range(1, 7):
            assert ids(backend.ready(100, limit)) == [*order[:limit], *["g", "h"][:limit]]

    def test_many_messages_to_one_run_hide_no_other(self, backend: Backend, pen: Pen) -> None:
        """As many messages were looked at as runs were asked for. One run that nobody served had
        got more than that: what came for others was not seen."""
        pen.write(runs=[waiting("unserved"), waiting("other")])
        for number in range(9):
            backend.send(Message("unserved", "a", "signal", "go", f"{number}", None))
        backend.send(Message("other", "a", "signal", "go", "1", None))
        assert ids(backend.ready(0, 2)) == ["unserved", "other"]

    def test_whatever_is_unfinished_can_be_cancelled(self, backend: Backend, pen: Pen) -> None:
        statuses = ["pending", "running", "waiting", "needs_attention"]
        pen.write(runs=[a_run(status, status=status) for status in statuses])
        for status in statuses:
            backend.send(Message(status, "a", "cancel", ""))
        assert ids(backend.ready(0, 99)) == statuses

    def test_what_was_taken_out_makes_nothing_ready(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[waiting("r")])
        sent = backend.send(Message("r", "a", "signal", "go", "1", None))
        assert ids(backend.ready(0, 9)) == ["r"]
        assert isinstance(sent, Sent)
        pen.write(consumed=[sent.message.no])
        assert backend.ready(0, 9) == []

    def test_the_next_timer_is_the_earliest_of_those_that_wait(
        self, backend: Backend, pen: Pen
    ) -> None:
        assert backend.next_wake() == 0
        pen.write(runs=[waiting("a", 30), waiting("b", 20), waiting("c")])
        assert backend.next_wake() == 20
        pen.write(runs=[a_run("b", status="running")])
        assert backend.next_wake() == 30
        pen.write(runs=[a_run("a", status="cancelled", wake_at_micros=30)])
        assert backend.next_wake() == 0

    # -- executors ---------------------------------------------------------------------------

    def test_an_executor_is_alive_until_it_says_otherwise(self, backend: Backend) -> None:
        assert not backend.alive("nobody")
        backend.heartbeat("one", 60_000)
        assert backend.alive("one")
        backend.heartbeat("one", None)
        assert not backend.alive("one")

    def test_an_executor_expires(self, backend: Backend) -> None:
        backend.heartbeat("one", 0)
        assert not backend.alive("one")

    def test_executors_say_what_they_serve(self, backend: Backend) -> None:
        assert backend.executors() == []
        before = backend.now()
        backend.heartbeat("two", 60_000)
        backend.heartbeat("one", 60_000, ["support", "migrate"])
        backend.heartbeat("gone", 0)
        one, gone, two = sorted(backend.executors(), key=lambda row: (row.id != "one", row.id))
        assert (one.id, one.serves, one.alive) == ("one", ("support", "migrate"), True)
        assert before + 60_000_000 <= one.expires <= backend.now() + 60_000_000
        assert (two.id, two.serves, two.alive) == ("two", (), True)
        assert (gone.id, gone.alive) == ("gone", False)
        backend.heartbeat("one", 60_000, {"support": ["default", "mail"], "migrate": ["mail"]})
        one = next(row for row in backend.executors() if row.id == "one")
        assert sorted(one.serves) == ["migrate", "support"]
        assert (one.runs("support", "mail"), one.runs("support", "default")) == (True, True)
        assert (one.runs("migrate", "mail"), one.runs("migrate", "default")) == (True, False)
        served = [Served("migrate", "mail", "2", ("", "1")), Served("migrate"), Served("support")]
        backend.heartbeat("one", 60_000, served)
        one = next(row for row in backend.executors() if row.id == "one")
        assert (one.serves, list(one.served)) == (("migrate", "support"), served)
        assert all(one.runs("migrate", "mail", version) for version in ("", "1", "2"))
        assert not one.runs("migrate", "mail", "3") and not one.runs("migrate", "default", "2")
        backend.heartbeat("one", 60_000)
        backend.heartbeat("two", None)
        backend.heartbeat("gone", None)
        assert [(row.id, row.serves) for row in backend.executors()] == [("one", ())]
