"""An exception between any two instructions leaves nothing behind: no connection, no transaction,
no statement that goes on, no answer for somebody else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import perdure
from perdure.agents import Agent
from perdure.storage.appending import Append, Appended, Outcome
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.writer import Writer
from perdure.testing.pen import Pen
from tests.postgres.conftest import Open
from tests.postgres.interrupting import KINDS, TimeLimit, instructions, interrupt
from tests.postgres.server import Server

SMALL = "&pool_size=2&pool_timeout=5&deadline=10"


@pytest.fixture
def watch(server: Server, url: str) -> Any:
    """Another program's connection, which looks at the store's sessions."""
    with psycopg.connect(server.url("public").partition("?")[0], autocommit=True) as db:
        yield db


def _count(agent: Agent[Any], by: int = 1) -> None:
    def change(draft: dict[str, int]) -> None:
        draft["n"] = draft.get("n", 0) + by

    agent.update(change)


# -- connections -----------------------------------------------------------------------------------


def _calls(backend: PostgresBackend, pen: Pen) -> dict[str, Callable[[], object]]:
    """Some that use connections in different ways."""
    no = pen.number()
    return {
        "read": lambda: backend.read(no, 1, 5),  # psycopg's cursor
        "ref": lambda: backend.ref(no, "main"),  # our own call
        "trim": lambda: backend.trim(no, 0, {}),  # a transaction of psycopg's
        "lease": lambda: backend.lease(no, "main", None),
        "forget": backend._pool.forget,
        "look": lambda: backend.look("a", "run"),
    }


@pytest.mark.parametrize("name", ["read", "ref", "trim", "lease", "forget", "look"])
def test_interrupts_leave_no_connection_in_use_and_none_out_of_step(
    url: str, open_store: Open, name: str
) -> None:
    """Ctrl-C came between the taking of a connection and the `try` behind it: the pool had one
    less, and after as many interrupts as it has connections every call waited for one in vain."""
    backend = open_store(url + SMALL)
    pen, other = Pen(backend), Pen(backend, "other")
    for value in range(3):
        pen.write(value=value)
    other.write()
    call = _calls(backend, pen)[name]
    call()
    points = instructions(call)
    for number, at in enumerate(range(1, points + 1, max(1, points // 25))):
        interrupt(call, at, KINDS[number % 3])
        # Whose answer was never read would be read here.
        assert [row.seq for row in backend.read(pen.number(), 1, 9)] == [1, 2, 3]
        assert [row.seq for row in backend.read(other.number(), 1, 9)] == [1]
        assert len(backend._pool.idle) <= 2
        assert all(
            one.pgconn.transaction_status == TransactionStatus.IDLE for one in backend._pool.idle
        )


def test_i2_a_transaction_that_was_left_open_is_over_for_the_next_call(
    url: str, open_store: Open
) -> None:
    """Ctrl-C came twice: in a transaction, and again where it was rolled back. It stayed open on
    the server, held its locks, and every later commit on that log waited for them in vain."""
    backend = open_store(url + SMALL)
    pen = Pen(backend)
    pen.write()
    no = pen.number()

    def leave() -> None:
        with backend._pool.connection() as connection:
            connection.execute("BEGIN")
            connection.execute(backend._sql["lock_log"], (no,))
            connection.execute(backend._sql["wait_for_branch"], (no, "main"))
            raise KeyboardInterrupt

    def left_again(*_: object) -> None:
        raise KeyboardInterrupt

    kept = []  # as a notebook keeps the last exception, and its frames with all that they have
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
            patch.setattr(type(backend._pool), "give_back", left_again)
            leave()
        kept.append(caught)
        pen.write()


def test_what_a_signal_interrupts_is_not_called_a_lost_connection(
    url: str, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit came while a long import wrote. It was rolled back on a connection that was
    busy yet; that failed, so the connection counted as lost, all was written once more, and the
    program was never told of its time limit."""
    backend = open_store(url + SMALL)
    pen = Pen(backend)
    whole, tail = pen.make()
    pen.tail = tail
    whole.then = []
    for value in range(10):
        item, pen.tail = pen.make(value=value, expected=value + 1)
        whole.then = (*whole.then, item)
    monkeypatch.setattr(Connection, "wait", _interrupting(Connection.wait, after=4))
    with pytest.raises(TimeLimit):
        backend.append([whole])
    assert backend.agent("a") is None
    (outcome,) = backend.append([whole])
    assert isinstance(outcome, Appended)


def _interrupting(real: Any, after: int) -> Any:
    """As `Connection.wait`, but one of its calls is interrupted before the answer is read."""
    calls = itertools.count(1)

    def wait(
        self: Connection, gen: Any, interval: float = 0.0, timeout: float | None = None
    ) -> Any:
        if next(calls) == after:
            next(gen)  # it is sent
            raise TimeLimit
        return real(self, gen, interval, timeout)

    return wait


def test_a_store_that_was_interrupted_anywhere_closes(
    url: str, open_store: Open, watch: psycopg.Connection[Any]
) -> None:
    """What the interrupts left open would be open until the program ends."""
    schema = url.partition("schema=")[2].partition("&")[0]
    backend = open_store(url + SMALL + f"&application_name={schema}")
    heard: list[str] = []
    backend.listen("one", heard.append)
    points = instructions(backend.close)
    for at in range(1, points + 1, max(1, points // 25)):
        backend = open_store(url + SMALL + f"&application_name={schema}")
        backend.listen("one", heard.append)
        backend.agents()
        interrupt(backend.close, at, KINDS[at % 3])
        backend.close()
    for thread in threading.enumerate():
        if thread.name == "perdure-line":
            thread.join(10)
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    row: Any = None
    for _ in range(1000):
        row = watch.execute(mine, (schema,)).fetchone()
        if row == (0,):
            return
        watch.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(f"{row} sessions are left")


# -- the line --------------------------------------------------------------------------------------


def test_interrupts_leave_a_line_that_hears_and_executors_that_live(
    url: str, open_store: Open
) -> None:
    """The line is used by whoever beats or listens, and by a thread of its own. An exception in
    the middle of that must leave no answer behind that the other takes for its own."""
    backend, other = open_store(url + SMALL), open_store(url + SMALL)
    points = 0
    for number in itertools.count():
        heard = threading.Event()
        executor = f"executor-{number}"

        def beat() -> None:
            backend.listen(executor, lambda _: heard.set())  # noqa: B023
            backend.heartbeat(executor, 60_000)  # noqa: B023

        if not number:
            points = instructions(beat)
        at = 1 + number * (points // 20)
        if at > points:
            break
        interrupt(beat, at, KINDS[number % 3])
        beat()
        assert other.alive(executor)
        for _ in range(100):  # a notice may be lost while the line is made anew
            other.notify("run")
            if heard.wait(0.1):
                break
        assert heard.is_set(), f"at {at} of {points}"
        backend.heartbeat(executor, None)


# -- commits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before", "sent", "answered"])
def test_i1_what_an_interrupted_leader_sent_is_written_once(
    url: str, open_store: Open, moment: str, kind: type[BaseException]
) -> None:
    """A time limit, an exception as any other, came while a leader waited for the answer to a
    batch. It was taken for a commit's own, which cannot be written: each was sent once more alone,
    and the program whose time was up was never told."""
    backend = open_store(url + SMALL)
    store = perdure.Store(backend)
    agents = [store.agent(f"a{number}") for number in range(3)]
    for agent in agents:
        _count(agent)
    for batch in (agents[:1], agents):
        before = [agent.refresh()["n"] for agent in agents]
        raised = _update_together(backend, batch, moment, kind)
        assert [type(error) for error in raised] == [kind]
        done = [agent.refresh()["n"] - n for agent, n in zip(agents, before, strict=True)]
        # Of the interrupted one's own commit nothing is said; the followers' are in.
        assert sum(done) >= len(batch) - 1
        assert set(done) <= {0, 1}
        for agent in agents:
            _count(agent)
            agent.verify()
    store.close()


def _update_together(
    backend: PostgresBackend, agents: list[Agent[Any]], moment: str, kind: type[BaseException]
) -> list[BaseException]:
    """All in one batch, whose leader is interrupted; what was raised to anybody."""
    raised: list[BaseException] = []

    def work(agent: Agent[Any]) -> None:
        try:
            _count(agent)
        except BaseException as error:
            raised.append(error)

    committer = agents[0]._context.committer
    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    real, real_append = Connection._answer, Writer.append
    first, leads, interrupted = threading.Event(), threading.Event(), threading.Event()

    def append(writer: Writer, batch: Sequence[Append]) -> list[Outcome]:
        """The first to come waits until the others are in the queue: they are the next batch."""
        if not first.is_set():
            first.set()
            while len(committer._queue) < len(agents) - 1:
                threading.Event().wait(0.001)
        if len(batch) == max(1, len(agents) - 1):
            leads.set()
        return real_append(writer, batch)

    def answer(self: Connection, awake_s: float = 0.0) -> Any:
        if interrupted.is_set() or not leads.is_set():
            return real(self, awake_s)
        interrupted.set()
        if moment == "answered":
            real(self, awake_s)
        raise kind("injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "append", append)
        patch.setattr(Connection, "_answer", answer)
        threads[0].start()
        assert first.wait(30)
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_i1_what_a_server_is_at_yet_is_not_linked_anew(
    url: str, open_store: Open, watch: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader was interrupted, and what he had sent could not be stopped: the server was at it
    still. The next one did not find it in the log, and linked it once more, which was refused when
    the first was in. So a follower's update, which was in, was told of a conflict, and made again:
    one sum was counted twice."""
    backend = open_store(url + SMALL)
    store = perdure.Store(backend)
    agents = [store.agent(f"a{number}") for number in range(3)]
    for agent in agents:
        _count(agent)
    blocker = open_store(url)
    numbers = [info.no for info in blocker.agents()]
    # As where the network is gone at this moment: the statement is on its way, and goes on.
    monkeypatch.setattr(Connection, "_stop", lambda self, gen: self.pgconn.finish())
    thread = threading.Thread(
        target=_update_together, args=(backend, agents, "sent", KeyboardInterrupt)
    )
    with blocker._pool.connection() as connection:
        connection.execute("BEGIN")
        for no in numbers[1:]:
            connection.execute(blocker._sql["wait_for_branch"], (no, "main"))
        thread.start()
        _await_waiting(watch, 2)
        connection.execute("COMMIT")
    thread.join(30)
    for agent in agents:
        assert agent.refresh() == {"n": 2}
        agent.verify()
    store.close()


def _await_waiting(watch: psycopg.Connection[Any], sessions: int) -> None:
    """Until so many wait for others' locks."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    row: Any = (0,)
    for _ in range(1000):
        row = watch.execute(waiting).fetchone()
        if row[0] >= sessions:
            return
        watch.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(f"{row} wait, not {sessions}")
