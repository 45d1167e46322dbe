"""The contract of looks: what is seen at once equals what is read piece by piece."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from perdure.model import Lease, Message, MessageKind, RunInfo
from perdure.state.event_loop.head_looks import Heads
from perdure.state.event_loop.loop_waits import Threads
from perdure.storage.appending import Ref
from perdure.storage.capabilities import INBOX, LEASES, RUN_ROWS, Backend, RunQuery
from perdure.storage.looks import Look
from perdure.storage.shortcuts import COMMITS
from perdure.testing.pen import Contract, Pen, a_run, needs

KINDS: tuple[MessageKind | None, ...] = (None, "start", "signal", "cancel")


def check(look: Look, backend: Backend, agent: str, *, no: int = 0, branch: str = "main") -> None:
    """Checks that it answers what the backend does."""
    assert look.agent(agent) == backend.agent(agent)
    assert look.agent(agent, 1) == backend.agent(agent, 1)
    rows = backend.runs(RunQuery(run_id=look.run))
    assert look.run_row() == (rows[0] if rows else None)
    assert look.unfinished() == backend.runs(RunQuery(agent=agent, unfinished=True))
    for kind in KINDS:
        assert look.inbox(kind) == backend.inbox(look.run, kind=kind)
    if no:
        assert look.ref(no, branch) == backend.ref(no, branch)
        assert look.refs(no) == backend.refs(no)
        for first, last in ((1, 1), (1, 9), (2, 3), (30, 33), (2, 40), (39, 40), (0, 2**40)):
            for newest_first in (False, True):
                for limit in (None, 1):
                    asked = {"newest_first": newest_first, "limit": limit}
                    found = look.read(no, first, last, **asked)  # type: ignore[arg-type]
                    assert found == backend.read(no, first, last, **asked)  # type: ignore[arg-type]


def a_message(run: str, kind: MessageKind = "signal", key: str = "") -> Message:
    return Message(run, "a", kind, "f", key, {"x": (1, b"\0")})


@needs(RUN_ROWS, INBOX, LEASES)
class LooksContract(Contract):
    """Tests of looks."""

    def test_a_look_sees_what_there_is(self, backend: Backend, pen: Pen) -> None:
        look = Look(backend, "a", "r")
        check(look.again(), backend, "a")
        pen.write()
        check(look.again(), backend, "a", no=pen.number())
        backend.send(a_message("r", "start"))
        backend.send(a_message("r", key="early"))
        check(look.again(), backend, "a", no=pen.number())
        assert [message.kind for message in look.inbox()] == ["start", "signal"]
        pen.write(runs=[a_run("r", status="running", result={"x": b"\xff"}), a_run("other")])
        backend.send(a_message("other"))
        check(look.again(), backend, "a", no=pen.number())
        pen.write(
            runs=[a_run("r", status="waiting", problem="ä\0\x1a", waits="w", wake_at_micros=7)]
        )
        check(look.again(), backend, "a", no=pen.number())
        pen.write(runs=[a_run("r", status="failed")])
        check(look.again(), backend, "a", no=pen.number())
        assert look.run_row() is not None
        assert [row.id for row in look.unfinished()] == ["other"]

    def test_a_look_is_at_the_branch_of_its_run(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        pen.write("side", expected=None)
        row: RunInfo = replace(a_run("r", status="running"), branch="side")
        pen.write("side", runs=[row])
        pen.write()
        look = Look(backend, "a", "r").again()
        check(look, backend, "a", no=pen.number(), branch="side")
        check(look, backend, "a", no=pen.number())

    def test_a_look_at_another_agent_or_run_is_as_good(self, backend: Backend, pen: Pen) -> None:
        """The id of a run is not known before it is known which incarnation is there."""
        pen.write(runs=[a_run("r", status="running")])
        pen.write(delete_agent=True)
        again = Pen(backend, "a", 2)
        again.write(runs=[a_run("r~2", status="running")])
        backend.send(a_message("r~2"))
        look = Look(backend, "a", "r").again()
        assert look.agent("a", 1) == backend.agent("a", 1)
        assert look.ref(pen.number(), "main") == backend.ref(pen.number(), "main")
        look.run = "r~2"
        check(look, backend, "a", no=again.number())
        check(look.again(), backend, "a", no=again.number())
        other = Pen(backend, "b\0")
        other.write()
        assert look.agent("b\0") == backend.agent("b\0")
        assert look.ref(other.number(), "main") == backend.ref(other.number(), "main")
        check(Look(backend, "b\0", "r").again(), backend, "b\0", no=other.number())

    def test_a_lease_is_taken_and_seen_at_once(self, backend: Backend, pen: Pen) -> None:
        backend.heartbeat("x", 60_000)
        for _ in range(COMMITS + 8):
            pen.write()
        look = Look(backend, "a", "r").again()
        pen.write(runs=[a_run("r", status="running")])
        lease = look.lease(pen.number(), "main", "x")
        assert lease == Lease(pen.number(), "main", "x", 1)
        check(look, backend, "a", no=pen.number())
        assert look.ref(pen.number(), "main") == Ref(
            "main", "branch", COMMITS + 9, False, 1, 1, "x"
        )
        assert look.lease(pen.number(), "main", "y") == backend.ref(pen.number(), "main")
        taken = look.lease(pen.number(), "main", "y", over=1)
        assert taken == Lease(pen.number(), "main", "y", 2)
        check(look, backend, "a", no=pen.number())

    def test_heads_asked_for_together_are_where_each_branch_ends(
        self, backend: Backend, pen: Pen
    ) -> None:
        pen.write()
        other = Pen(backend, "b\0")
        other.write()
        for name in ("side", "a\0\x1a", "gone"):
            pen.write(name, expected=None)
        pen.write("side")
        pen.write(drop_branch="gone")
        places = [
            (no, name)
            for name in ("side", "main", "nobody", "a\0\x1a", "gone")
            for no in (pen.number(), other.number())
        ]

        async def asked() -> list[int]:
            threads = Threads(2)
            heads = Heads(backend, threads)
            try:
                return await asyncio.gather(*(heads.head(*place) for place in places * 40))
            finally:
                threads.close()

        refs = [backend.ref(*place) for place in places]
        expected = [0 if ref is None or ref.deleted else ref.seq for ref in refs]
        assert asyncio.run(asked()) == expected * 40

    def test_what_was_written_since_is_noted(self, backend: Backend, pen: Pen) -> None:
        pen.write()
        look = Look(backend, "a", "r")
        lease = look.lease(pen.number(), "main", "x")
        assert isinstance(lease, Lease)
        no = pen.number()
        for _ in range(2):
            look.note(no, pen.write(epoch=lease.epoch))
        assert look.read(no, 1, 3) == backend.read(no, 1, 3)
        pen.write("side", expected=None)  # somebody else
        look.note(no, pen.write(epoch=lease.epoch))
        assert look.read(no, 1, 5) == backend.read(no, 1, 5)
        assert look.read(no, 5, 5) == backend.read(no, 5, 5)
        look.forget()
        pen.write(epoch=lease.epoch)
        check(look, backend, "a", no=no)
