"""The contract of the storage port on messages: put in once, taken out by one commit."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.errors import PerdureError
from perdure.missing import MISSING
from perdure.model import Message, MessageKind
from perdure.storage.appending import Appended, Refused
from perdure.storage.capabilities import INBOX, RUN_ROWS, Backend, RunQuery, Sent
from perdure.testing.pen import Contract, Pen, a_run, needs, refused

KINDS: tuple[MessageKind, ...] = ("signal", "answer", "cancel")


def signal(run: str = "r", name: str = "go", key: str = "1", value: Any = None) -> Message:
    return Message(run, "a", "signal", name, key, value, "a person")


def start(run: str = "r", agent: str = "a") -> Message:
    return Message(run, agent, "start", "f", value={"args": [1]})


def put(backend: Backend, message: Message) -> Message:
    sent = backend.send(message)
    assert isinstance(sent, Sent) and sent.fresh, sent
    return sent.message


def _send_at(gate: threading.Barrier, backend: Backend, message: Message) -> Sent | Refused:
    gate.wait()
    return backend.send(message)


@needs(RUN_ROWS, INBOX)
class InboxContract(Contract):
    """Tests of the inbox."""

    def test_messages_come_back_in_their_order(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r"), a_run("other")])
        value = {"when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "pair": (1, {2}), "none": None}
        before = backend.now()
        first = put(backend, signal(value=value))
        second = put(backend, signal("other", value=[1]))
        third = put(backend, Message("r", "a", "answer", "ask#1", "k", True, "anna"))
        fourth = put(backend, Message("r", "a", "cancel", ""))
        assert replace(first, at_micros=0, no=0) == signal(value=value)
        assert before <= first.at_micros <= backend.now()
        assert first.no < second.no < third.no < fourth.no
        assert backend.inbox() == [first, second, third, fourth]
        assert backend.inbox("r") == [first, third, fourth]
        assert backend.inbox("r", kind="answer") == [third]
        assert backend.inbox(kind="signal") == [first, second]
        assert backend.inbox(limit=1) == [first]
        assert backend.inbox("r", limit=2) == [first, third]
        assert backend.inbox(kind="signal", limit=1) == [first]
        assert backend.inbox("nobody's") == []

    def test_the_messages_of_one_agent(self, backend: Backend, pen: Pen) -> None:
        """A look at one agent's runs read what waits to begin of all agents."""
        pen.write(runs=[a_run("r")])
        first = put(backend, Message("new", "a", "start", "f"))
        other = put(backend, Message("others", "b", "start", "f"))
        second = put(backend, signal())
        third = put(backend, Message("newer", "a", "start", "f"))
        assert backend.inbox(agent="a") == [first, second, third]
        assert backend.inbox(agent="a", kind="start") == [first, third]
        assert backend.inbox(agent="a", kind="start", limit=1) == [first]
        assert backend.inbox(agent="b") == [other]
        assert backend.inbox("new", agent="a") == [first]
        assert backend.inbox("new", agent="b") == []
        assert backend.inbox(agent="nobody") == []
        assert backend.inbox(agent="a", newest_first=True) == [third, second, first]

    def test_the_newest_messages_and_those_of_a_name(self, backend: Backend, pen: Pen) -> None:
        """A page of the newest runs, or of those of one function, read all of the queue."""
        pen.write(runs=[a_run("r")])
        names = ("f", "g", "f", "h")
        starts = [put(backend, Message(f"n{i}", "a", "start", n)) for i, n in enumerate(names)]
        told = put(backend, signal(name="f"))
        assert backend.inbox(newest_first=True) == [told, *reversed(starts)]
        assert backend.inbox(newest_first=True, limit=2) == [told, starts[3]]
        assert backend.inbox(kind="start", newest_first=True, limit=2) == [starts[3], starts[2]]
        assert backend.inbox(kind="start", name="f") == [starts[0], starts[2]]
        assert backend.inbox(kind="start", name="f", limit=1) == [starts[0]]
        assert backend.inbox(name="f", newest_first=True, limit=2) == [told, starts[2]]
        assert backend.inbox("r", name="f") == [told]
        assert backend.inbox("r", name="g", newest_first=True) == []
        assert backend.inbox(agent="a", name="h") == [starts[3]]
        assert backend.inbox(after=starts[1].no) == [starts[2], starts[3], told]
        assert backend.inbox(kind="start", after=starts[0].no, limit=2) == [starts[1], starts[2]]
        assert backend.inbox(kind="start", after=starts[3].no) == []
        assert backend.inbox("r", after=starts[3].no) == [told]
        assert backend.inbox("r", after=told.no) == []
        assert backend.inbox(agent="a", after=starts[2].no, newest_first=True) == [told, starts[3]]

    def test_a_message_is_put_in_once(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r"), a_run("other")])
        first = put(backend, signal(value={"x": 1}))
        assert backend.send(signal(value="something else")) == Sent(first, fresh=False)
        assert backend.inbox() == [first]
        for different in (
            signal("other"),
            signal(name="stop"),
            signal(key="2"),
            Message("r", "a", "answer", "go", "1"),
        ):
            put(backend, different)

    def test_a_message_that_was_taken_out_is_not_put_in_again(
        self, backend: Backend, pen: Pen
    ) -> None:
        """A sender that did not hear that it was done says it again, when the run has gone on."""
        pen.write(runs=[a_run("r")])
        first = put(backend, signal(value={"x": 1}))
        pen.write(consumed=[first.no])
        assert backend.send(signal()) == Sent(replace(first, value=MISSING), fresh=False)
        pen.write(runs=[a_run("r", status="done")])
        assert backend.send(signal()) == Sent(replace(first, value=MISSING), fresh=False)
        assert backend.inbox() == []

    def test_a_message_to_nobody_is_refused(self, backend: Backend, pen: Pen) -> None:
        assert backend.send(signal()) == Refused("gone")
        pen.write(runs=[a_run("r")])
        put(backend, signal())
        for n, status in enumerate(("done", "failed", "cancelled")):
            pen.write(runs=[a_run("r", status=status)])
            for kind in KINDS:
                late = Message("r", "a", kind, "go", f"late {n}")
                assert backend.send(late) == Refused("gone")

    def test_a_run_that_is_to_start_has_an_inbox(self, backend: Backend) -> None:
        begin = put(backend, start())
        early = put(backend, signal())
        assert backend.inbox("r") == [begin, early]
        assert backend.send(start()) == Sent(begin, fresh=False)
        assert backend.inbox(kind="start") == [begin]

    def test_a_run_that_began_is_not_started_again(self, backend: Backend, pen: Pen) -> None:
        pen.write(
            runs=[
                a_run("r", started_at_micros=5),
                a_run("ended", status="done", started_at_micros=6),
            ]
        )
        for run, at in (("r", 5), ("ended", 6)):
            begun = replace(start(run), value=MISSING, at_micros=at)
            assert backend.send(start(run)) == Sent(begun, fresh=False)
        assert backend.inbox() == []

    def test_i12_what_cannot_be_stored_is_refused(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        with pytest.raises(TypeError):
            backend.send(signal(value={"x": object()}))
        assert backend.inbox() == []

    def test_a_value_is_the_readers_own(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        mine: Any = {"x": [1]}
        put(backend, signal(value=mine))
        mine["x"].append(2)
        read: Any = backend.inbox()[0].value
        assert read == {"x": [1]}
        read["x"].append(3)
        assert backend.inbox()[0].value == {"x": [1]}

    # -- taking out --------------------------------------------------------------------------

    def test_i2_a_message_goes_with_its_commit(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        first, second = put(backend, signal(key="1")), put(backend, signal(key="2"))
        refused_commit, _ = pen.make(expected=99, consumed=[first.no])
        assert refused(backend.append([refused_commit])[0]) == "moved"
        assert backend.inbox() == [first, second]
        pen.write(consumed=[first.no])
        assert backend.inbox() == [second]

    def test_i2_a_message_is_taken_out_by_one_commit(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        first, second = put(backend, signal(key="1")), put(backend, signal(key="2"))
        pen.write(consumed=[first.no])
        for numbers in ([first.no], [second.no, first.no], [second.no, second.no], [999]):
            late, _ = pen.make(consumed=numbers)
            assert refused(backend.append([late])[0]) == "consumed"
        assert backend.inbox() == [second]
        assert len(backend.read(pen.number(), 1, 99)) == 2

    def test_i2_two_commits_of_a_batch_want_the_same_message(self, backend: Backend) -> None:
        a, b = Pen(backend, "a"), Pen(backend, "b")
        a.write(runs=[a_run("r")])
        b.write()
        message = put(backend, signal())
        both = [a.make(consumed=[message.no])[0], b.make(consumed=[message.no])[0]]
        outcomes = backend.append(both)
        assert isinstance(outcomes[0], Appended)
        assert outcomes[1] == Refused("consumed")

    def test_i2_a_commit_that_creates_its_agent_takes_out_a_start(self, backend: Backend) -> None:
        message = put(backend, start())
        first, _ = Pen(backend).make(consumed=[message.no], runs=[a_run("r")])
        assert isinstance(backend.append([first])[0], Appended)
        assert backend.inbox() == []
        again, _ = Pen(backend, "b").make(consumed=[message.no])
        assert refused(backend.append([again])[0]) == "consumed"
        assert backend.agent("b") is None

    def test_i2_of_a_whole_log_that_is_refused_nothing_is_taken_out(
        self, backend: Backend, pen: Pen
    ) -> None:
        message = put(backend, start())
        first, tail = pen.make(consumed=[message.no], runs=[a_run("r")])
        pen.no, pen.tail, pen.heads["main"] = 0, tail, 1
        second, _ = pen.make(consumed=[message.no])
        whole = replace(first, then=[replace(second, no=None)])
        assert refused(backend.append([whole])[0]) == "consumed"
        assert backend.inbox() == [message]
        assert backend.runs() == []

    def test_i8_a_run_does_not_end_over_a_signal_that_was_not_read(
        self, backend: Backend, pen: Pen
    ) -> None:
        """It, or an answer, came after who ends the run had read the inbox, and was lost with the
        run's end, although its sender had been told that it is there."""
        pen.write(runs=[a_run("r"), a_run("other")])
        first, answer = put(backend, signal()), put(backend, Message("r", "a", "answer", "x", "1"))
        put(backend, signal("other"))
        for read_to in (0, first.no - 1):
            late, _ = pen.make(runs=[a_run("r", status="done")], read_to={"r": read_to})
            assert backend.append([late])[0] == Refused("unread")
        assert [row.status for row in backend.runs(RunQuery(run_id="r"))] == ["running"]
        second = put(backend, signal(key="2"))
        late, _ = pen.make(runs=[a_run("r", status="done")], read_to={"r": first.no})
        assert backend.append([late])[0] == Refused("unread")
        assert backend.inbox("r") == [first, answer, second]
        last = put(backend, Message("r", "a", "answer", "x", "2"))
        late, _ = pen.make(runs=[a_run("r", status="done")], read_to={"r": second.no})
        assert backend.append([late])[0] == Refused("unread")
        pen.write(runs=[a_run("r", status="done")], read_to={"r": last.no})
        assert backend.inbox("r") == []
        assert len(backend.inbox("other")) == 1

    def test_i8_signals_that_its_end_takes_out_are_read(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        taken = put(backend, signal())
        pen.write(consumed=[taken.no])
        last = put(backend, signal(key="2"))
        pen.write(runs=[a_run("r", status="done")], consumed=[last.no], read_to={"r": last.no})
        pen.write(runs=[a_run("q")])
        pen.write(runs=[a_run("q", status="done")], read_to={"q": 0})
        assert backend.inbox() == []

    def test_i8_a_run_does_not_end_over_what_asked_for_it_too_late(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Somebody else's commit was on its way that began it: who asks waits for its end."""
        asked = put(backend, start("r"))
        pen.write(runs=[a_run("r")])
        last = put(backend, signal())
        for consumed in ([], [last.no]):
            late, _ = pen.make(
                runs=[a_run("r", status="done")], read_to={"r": last.no}, consumed=consumed
            )
            assert backend.append([late])[0] == Refused("unread")
        assert backend.inbox("r") == [asked, last]
        pen.write(runs=[a_run("r", status="done")], read_to={"r": last.no}, consumed=[asked.no])
        assert backend.inbox("r") == []

    def test_i8_a_run_does_not_end_over_a_request_to_end_that_was_not_read(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Who had asked for that was told that it is there, and it was lost with the run's end."""
        pen.write(runs=[a_run("r"), a_run("other")])
        for run in ("r", "other"):
            asked = put(backend, Message(run, "a", "cancel", "", "", "enough"))
            rows, read_to = [a_run(run, status="done")], {run: asked.no}
            late, _ = pen.make(runs=rows, read_to=read_to)
            assert backend.append([late])[0] == Refused("unread")
            assert backend.inbox(run) == [asked]
            pen.write(runs=rows, read_to=read_to, consumed=[asked.no])
            assert backend.inbox(run) == []

    def test_i8_what_asks_for_a_run_races_its_begin_and_its_end(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Either the run does not end over the message, or the message is told that it began."""
        for run in map("r{}".format, range(20)):
            gate = threading.Barrier(2)
            with ThreadPoolExecutor() as sender:
                sending = sender.submit(_send_at, gate, backend, start(run))
                gate.wait()
                pen.write(runs=[a_run(run)])
                end, tail = pen.make(runs=[a_run(run, status="done")], read_to={run: 0})
                outcome = backend.append([end])[0]
            sent = sending.result()
            assert not isinstance(sent, Refused)
            if isinstance(outcome, Appended):
                pen.accept(end, tail, outcome)
                assert not sent.fresh
            else:
                assert (outcome, sent.fresh) == (Refused("unread"), True)

    def test_i8_a_signal_races_the_end_of_its_run(self, backend: Backend, pen: Pen) -> None:
        """Of a signal and a commit that ends its run over an empty inbox, one is refused."""
        for run in map("r{}".format, range(20)):
            pen.write(runs=[a_run(run)])
            end, tail = pen.make(runs=[a_run(run, status="done")], read_to={run: 0})
            gate = threading.Barrier(2)
            with ThreadPoolExecutor() as sender:
                sending = sender.submit(_send_at, gate, backend, signal(run))
                gate.wait()
                outcome = backend.append([end])[0]
            if isinstance(outcome, Appended):
                pen.accept(end, tail, outcome)
                assert sending.result() == Refused("gone")
            else:
                assert outcome == Refused("unread")
                assert [message.run for message in backend.inbox(run)] == [run]

    def test_what_is_left_goes_with_the_end_of_the_run(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r"), a_run("other")])
        put(backend, signal())
        kept = put(backend, signal("other"))
        asked = put(backend, Message("r", "a", "cancel", ""))
        pen.write(runs=[a_run("r", status="cancelled")], consumed=[asked.no])
        assert backend.inbox() == [kept]

    def test_a_deleted_agents_inbox_ends(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        put(backend, signal())
        put(backend, start("unborn"))
        last = put(backend, signal("unborn"))
        other = put(backend, start("b/f", agent="b"))
        pen.write(delete_agent=True, runs=[a_run("r", status="cancelled")])
        assert backend.inbox() == [other]
        late, _ = Pen(backend, "c").make(consumed=[last.no])
        assert refused(backend.append([late])[0]) == "consumed"
        assert backend.send(signal()) == Refused("gone")
        assert backend.send(signal("unborn", key="2")) == Refused("gone")
        again = put(backend, start("unborn~2"))
        assert again.no > other.no

    def test_i8_an_agent_is_not_deleted_beside_a_start_that_was_not_read(
        self, backend: Backend, pen: Pen
    ) -> None:
        """It came behind the look at the inbox, and whoever had asked was told of nothing."""
        pen.write()
        first = put(backend, start())
        more: dict[str, Any] = {"delete_agent": True, "starts_read": True}
        assert refused(backend.append([pen.make(**more)[0]])[0]) == "unread"
        late = put(backend, start("late"))
        end, _ = pen.make(consumed=[first.no], **more)
        assert refused(backend.append([end])[0]) == "unread"
        put(backend, start("b/f", agent="b"))
        pen.write(consumed=[first.no, late.no], **more)
        assert [one.agent for one in backend.inbox()] == ["b"]

    def test_numbers_are_not_used_again(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        last = put(backend, start())
        pen.write(delete_agent=True)
        assert put(backend, start("r~2")).no > last.no

    def test_i8_a_start_of_a_deleted_incarnation_is_refused(self, backend: Backend) -> None:
        """Its agent was there when it was made, and was deleted before it came in. No inbox ended
        with it any more, and no agent had its run: it waited to begin for good."""
        other = Pen(backend, "other")
        other.write()
        for number in (1, 2):
            end = f"~{number}" if number > 1 else ""
            put(backend, start(f"a/f/early{end}"))
            pen = Pen(backend, "a", number)
            pen.write()
            put(backend, start(f"a/f/beside{end}"))
            pen.write(delete_agent=True, purge=True)
            for _ in range(2):
                late = start(f"a/f/late{end}")
                assert backend.send(late) == Refused("gone")
                assert backend.send(signal(late.run)) == Refused("gone")
                other.write(sends=[late])
                assert backend.inbox() == []
                while backend.purge(pen.number()):
                    pass
        assert backend.send(start("a/f/late")) == Refused("gone")
        begin, told = put(backend, start("a/f/late~3")), put(backend, signal("a/f/late~3"))
        assert backend.inbox() == [begin, told]

    def test_i8_a_start_races_the_deletion_of_its_agent(self, backend: Backend) -> None:
        """Either the start is refused, or the deletion ends it."""
        for agent in map("a{}".format, range(20)):
            pen, gate = Pen(backend, agent), threading.Barrier(2)
            pen.write()
            end, _ = pen.make(delete_agent=True)
            with ThreadPoolExecutor() as sender:
                late = start(f"{agent}/f/main", agent)
                sending = sender.submit(_send_at, gate, backend, late)
                gate.wait()
                assert isinstance(backend.append([end])[0], Appended)
            assert backend.inbox() == [], sending.result()

    # -- known from elsewhere ----------------------------------------------------------------

    def test_i5_what_was_taken_out_elsewhere_is_known_with_its_commit(
        self, backend: Backend, pen: Pen
    ) -> None:
        """Noted before the commit that brought its run along, a signal was known also where that
        commit was refused: to a run that began there later it could not be sent."""
        elsewhere = replace(signal(), value=MISSING, at_micros=7)
        late, _ = pen.make(runs=[a_run("r")], known=[elsewhere])
        pen.write()
        assert isinstance(backend.append([late])[0], Refused)
        assert backend.mail().messages == []
        others = put(backend, start("other")), put(backend, signal("other"))
        pen.write(runs=[a_run("r"), a_run("done", status="done")])
        pen.write(known=[elsewhere, replace(elsewhere, run="done", key="2")])
        assert backend.inbox() == [*others]
        for message in (signal(value="again"), signal("done", key="2")):
            sent = backend.send(message)
            assert isinstance(sent, Sent) and not sent.fresh
            assert replace(sent.message, no=0) == replace(message, value=MISSING, at_micros=7)
            assert sent.message.no > others[1].no
        assert [one.value for one in backend.mail().messages] == [
            {"args": [1]}, None, MISSING, MISSING,
        ]  # fmt: skip
        later = put(backend, signal(key="3"))
        assert later.no > max(one.no for one in backend.mail().messages[:-1])

    def test_i5_what_waits_and_was_taken_out_elsewhere_is_taken_out(
        self, backend: Backend, pen: Pen
    ) -> None:
        """A run that takes it once in a log would take it once more from the inbox."""
        pen.write(runs=[a_run("r")])
        waits, other = put(backend, signal(value=1)), put(backend, signal(key="2"))
        for _ in range(2):
            pen.write(known=[replace(waits, value=MISSING, at_micros=7, no=0)])
            assert backend.inbox() == [other]
            assert backend.mail().messages == [replace(waits, value=MISSING), other]

    # -- beside everything else --------------------------------------------------------------

    def test_i4_a_message_needs_no_lease(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        backend.lease(pen.number(), "main", "one")
        message = put(backend, signal())
        pen.write(epoch=1, consumed=[message.no])

    def test_of_those_who_send_the_same_one_put_it_in(self, backend: Backend, pen: Pen) -> None:
        pen.write(runs=[a_run("r")])
        answers: list[Any] = []

        def send() -> None:
            try:
                for n in range(5):
                    answers.append(backend.send(signal(key=str(n))))
            except PerdureError as error:
                answers.append(error)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(answer, Sent) for answer in answers) == 20, answers
        assert sum(answer.fresh for answer in answers) == 5
        assert len(backend.inbox("r")) == 5

    def test_i1_messages_are_there_after_reopening(self, place: Path) -> None:
        if not self.durable:
            return
        backend = self.open(place)
        pen = Pen(backend)
        pen.write(runs=[a_run("r")])
        taken, kept = put(backend, signal(key="1", value=[1])), put(backend, signal(key="2"))
        pen.write(consumed=[taken.no])
        backend.close()
        backend = self.open(place)
        assert backend.inbox() == [kept]
        assert backend.send(signal(key="1")) == Sent(replace(taken, value=MISSING), fresh=False)
        backend.close()

    def test_i1_another_opener_sees_it(self, place: Path) -> None:
        if not self.durable:
            return
        one, other = self.open(place), self.open(place)
        pen = Pen(one)
        pen.write(runs=[a_run("r")])
        message = put(other, signal())
        assert one.inbox() == [message]
        pen.write(consumed=[message.no])
        assert other.inbox() == []
        one.close()
        other.close()
