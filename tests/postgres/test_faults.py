"""What goes wrong between a store and its server: each with its typed error, or a proven answer."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from perdure.errors import Corrupt, NotFound, PerdureError, StoreUnavailable, UnsupportedFormat
from perdure.model import Message
from perdure.storage.appending import Appended
from perdure.storage.capabilities import Sent
from perdure.storage.locate import locate
from perdure.storage.postgres import connection
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.writer import Writer
from perdure.testing.pen import Pen, a_run
from tests.postgres.conftest import Open
from tests.postgres.proxy import Proxy
from tests.postgres.server import LOOKS_S, START_S, Server
from tests.source_tree import ROOT

SECRET = "s3cr3t-Wörd"


def through(proxy: Proxy, server: Server, url: str) -> str:
    return url.replace(f":{server.port}/", f":{proxy.port}/")


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


# -- who may come in ---------------------------------------------------------------------------


@pytest.fixture
def guarded(server: Server) -> Iterator[Server]:
    """With a user who needs a password, and may do nothing."""
    server.guard(SECRET)
    yield server
    print(server.last_words())  # why it refused somebody is said nowhere else


def all_words(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize("password", ["", "wr0ng-w0rd", SECRET[:-1]])
def test_a_wrong_password_is_said_and_never_shown(guarded: Server, password: str) -> None:
    with pytest.raises(StoreUnavailable, match="password") as caught:
        PostgresBackend(guarded.url("s", user="guarded", password=password))
    assert caught.value.outcome == "not_done"
    assert caught.value.hint
    if password:
        assert password not in all_words(caught.value)


def test_a_users_missing_rights_are_said(guarded: Server, open_store: Open) -> None:
    url = guarded.new_url()
    open_store(url).close()
    stranger = url.replace("perdure@", f"guarded:{SECRET}@")
    with pytest.raises(StoreUnavailable, match="permission denied") as caught:
        PostgresBackend(stranger)
    assert "docs/postgres.md" in caught.value.hint
    assert SECRET not in all_words(caught.value)
    with pytest.raises(StoreUnavailable, match="permission denied"):
        PostgresBackend(guarded.new_url().replace("perdure@", f"guarded:{SECRET}@"))


def test_the_url_is_shown_without_its_password(server: Server, open_store: Open) -> None:
    url = server.new_url(user="perdure", password=SECRET)
    backend = open_store(url + "&application_name=mine")
    assert SECRET not in backend.url
    assert backend.url == f"postgresql://perdure@127.0.0.1:{server.port}/postgres?schema=" + (
        schema_of(url)
    )
    backend.close()
    with pytest.raises(StoreUnavailable, match="closed") as caught:
        backend.agents()
    assert SECRET not in all_words(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@ss-w0rd@host/db",
        "postgresql://u:pass-w0rd/x@host/db",
        "postgresql://u:pass-w0rd#x@host/db",
        "postgresql://u:pass-w0rd@host/db?no_such_option=1",
        "postgresql://u:pass-w0rd@host:port/db",
        "postgresql://u:pass-w0rd@host/db?schema=A-b",
        "postgresql://u:pass-w0rd@host/db?deadline=soon",
        "postgresql://u:pass-w0rd@host/db?pool_size=0",
        "postgresql://u:pass-w0rd@host/db?partitions=2.5",
        "postgresql://u:pass-w0rd@host/db?awake=2",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"PostgreSQL|schema|option") as caught:
        locate(url)
    assert "w0rd" not in all_words(caught.value)


def test_no_such_database(server: Server) -> None:
    with pytest.raises(NotFound, match="no_such_db") as caught:
        PostgresBackend(server.url("s", database="no_such_db"))
    assert "CREATE DATABASE" in caught.value.hint


def test_no_server(server: Server) -> None:
    proxy = Proxy(server.port)
    proxy.close()
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        PostgresBackend(server.url("s").replace(str(server.port), str(proxy.port)))
    assert caught.value.outcome == "not_done"


def test_a_database_in_another_encoding_is_refused(server: Server) -> None:
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreUnavailable, match="encoding is LATIN1"):
        PostgresBackend(server.url("s", database="latin"))


def test_a_store_that_was_dropped_is_no_empty_store(
    server: Server, url: str, backend: PostgresBackend
) -> None:
    """I12: an absent table never looks like an absent agent."""
    Pen(backend).write()
    server.sql(f"DROP SCHEMA {schema_of(url)} CASCADE")
    with pytest.raises(PerdureError):
        backend.agent("a")
    backend._pool.forget()
    with pytest.raises((StoreUnavailable, UnsupportedFormat)):
        backend.agent("a")


# -- limits ------------------------------------------------------------------------------------


def test_an_exhausted_pool_says_so(url: str, open_store: Open) -> None:
    backend = open_store(url + "&pool_size=1&pool_timeout=0.05")
    with backend._pool.connection():
        with pytest.raises(StoreUnavailable, match="connections were in use") as caught:
            backend.agents()
        assert "pool_size" in caught.value.hint
        (outcome,) = backend.append([Pen(backend).make()[0]])
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.outcome == "not_done"
    assert backend.agents() == []


def held_log(server: Server, url: str, no: int) -> psycopg.Connection[object]:
    """Somebody's transaction that holds what all who append to an agent's log must have: its row,
    or that of its branch."""
    other = psycopg.connect(server.url())
    for table, column in (("agents", "no"), ("refs", "agent_no")):
        statement = f"SELECT 1 FROM {schema_of(url)}.{table} WHERE {column} = {no} FOR UPDATE"
        other.execute(statement.encode())
    return other


PLAIN: dict[str, Any] = {}
KEYED: dict[str, Any] = {"key": ("k", b"asked")}
WAYS = pytest.mark.parametrize("way", [PLAIN, KEYED], ids=["plain", "keyed"])
"""The two ways that a commit goes: by a plain statement, or by the function that can all."""


@WAYS
def test_a_statement_timeout_is_not_done(
    server: Server, url: str, open_store: Open, way: dict[str, Any]
) -> None:
    open_store(url)
    backend = open_store(url + "&options=-c%20statement_timeout%3D1000")
    pen = Pen(backend)
    pen.write()
    with held_log(server, url, pen.number()):
        (outcome,) = backend.append([pen.make(**way)[0]])
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.outcome == "not_done"
    assert "statement_timeout" in outcome.hint
    pen.write(**way)


@WAYS
def test_a_deadline_ends_what_waits(
    server: Server, url: str, open_store: Open, way: dict[str, Any]
) -> None:
    backend = open_store(url + "&deadline=2")
    pen = Pen(backend)
    pen.write()
    with held_log(server, url, pen.number()):
        (outcome,) = backend.append([pen.make(**way)[0]])
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.outcome == "not_done"  # it was cancelled, and the server said so
    assert "did not answer" in str(outcome)
    assert len(backend.read(pen.number(), 1, 9)) == 1
    pen.write(**way)


def test_a_read_only_server_can_be_read(server: Server, url: str, open_store: Open) -> None:
    pen = Pen(open_store(url))
    pen.write()
    reader = open_store(url + "&options=-c%20default_transaction_read_only%3Don&retry=0")
    assert [info.name for info in reader.agents()] == ["a"]
    assert reader.ready(0, 9) == []
    assert len(reader.feed().entries) == 1
    (outcome,) = reader.append([pen.make()[0]])
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.outcome == "not_done"
    assert "read-only" in str(outcome)
    with pytest.raises(StoreUnavailable, match="read-only"):
        reader.send(Message("r", "a", "start", "f"))


def test_batches_in_other_orders_do_not_deadlock(url: str, open_store: Open) -> None:
    """Two processes' batches held the same two agents, each the other way round."""
    one, other = open_store(url), open_store(url)
    pens = [Pen(one, name) for name in "abcd"]
    for pen in pens:
        pen.write()
    problems: list[object] = []

    def write(backend: PostgresBackend, order: list[int]) -> None:
        for _ in range(40):
            batch = [pens[at].make("main", expected=1)[0] for at in order]
            problems.extend(one for one in backend.append(batch) if isinstance(one, Exception))

    threads = [
        threading.Thread(target=write, args=args)
        for args in ((one, [0, 1, 2, 3]), (other, [3, 2, 1, 0]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_deadlock_is_tried_again(server: Server, url: str, open_store: Open) -> None:
    """Somebody else's transactions need not go by our order: the server ends one of the two."""
    backend = open_store(url)
    pens = [Pen(backend, "a"), Pen(backend, "b")]
    for pen in pens:
        pen.write()
    schema = schema_of(url)
    lock = f"SELECT 1 FROM {schema}.agents WHERE no = %s FOR UPDATE"
    outcomes: list[object] = []
    with psycopg.connect(server.url()) as other:
        other.execute(b"SET deadlock_timeout = '60s'")  # the store's side finds it first
        other.execute(lock.encode(), (pens[1].number(),))
        batch = [pen.make()[0] for pen in pens]
        writer = threading.Thread(target=lambda: outcomes.extend(backend.append(batch)))
        writer.start()
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        while not server.sql(waiting):
            time.sleep(LOOKS_S)
        other.execute(lock.encode(), (pens[0].number(),))  # until the store's transaction ends
    writer.join()
    assert [type(outcome) for outcome in outcomes] == [Appended, Appended]


@WAYS
def test_a_serialization_failure_is_tried_again(
    server: Server,
    url: str,
    open_store: Open,
    monkeypatch: pytest.MonkeyPatch,
    way: dict[str, Any],
) -> None:
    """In another isolation, a statement that waited for another's change is not looked at once
    more, but ends."""
    monkeypatch.delitem(connection._PINNED, "default_transaction_isolation")
    backend = open_store(url + "&options=-c%20default_transaction_isolation%3Dserializable")
    pen = Pen(backend)
    pen.write()
    schema, no, failures = schema_of(url), pen.number(), []
    write = Writer._write

    def counted(self: Writer, *args: Any) -> Any:
        try:
            return write(self, *args)
        except errors.SerializationFailure as failure:
            failures.append(failure)
            raise

    monkeypatch.setattr(Writer, "_write", counted)
    outcomes: list[object] = []
    with psycopg.connect(server.url()) as other:
        other.execute(f"UPDATE {schema}.agents SET name = name WHERE no = {no}".encode())
        other.execute(f"UPDATE {schema}.refs SET seq = seq WHERE agent_no = {no}".encode())
        item = pen.make(**way)[0]
        writing = threading.Thread(target=lambda: outcomes.extend(backend.append([item])))
        writing.start()
        while not server.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
            time.sleep(LOOKS_S)
    writing.join()
    assert [type(outcome) for outcome in outcomes] == [Appended]
    assert failures, "the server ended it, and it was made anew"
    assert len(backend.read(no, 1, 9)) == 2


# -- a connection that is cut ------------------------------------------------------------------


def test_i1_a_commit_whose_answer_was_lost_is_found(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url))
    pen = Pen(backend)
    pen.write()
    for value in range(3):
        proxy.cut = "answer"
        pen.write(value=value, key=(f"k{value}", b"asked"))
        pen.write(value=value)  # prepares its statement anew, so that the next cut hits a commit
        proxy.cut = "answer"
        pen.write(value=value)
    assert proxy.cuts == 6
    assert len(backend.read(pen.number(), 1, 99)) == 10


def test_i1_a_commit_that_still_waits_in_the_server_is_made_once(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    """Its connection is cut while the server has it wait for somebody's lock. The server goes on
    with it when the lock is free, however long that takes: who looks for it waits as well."""
    backend = open_store(through(proxy, server, url))
    pen = Pen(backend)
    pen.write()
    pen.write()
    made, _ = pen.make()
    outcomes: list[object] = []
    writer = threading.Thread(target=lambda: outcomes.extend(backend.append([made])))
    with held_log(server, url, pen.number()):
        writer.start()
        await_waiting(server, 1)
        proxy.refuses = True
        proxy.refuses = False
        await_waiting(server, 2)
    writer.join()
    assert [type(outcome) for outcome in outcomes] == [Appended]
    assert [row.header for row in backend.read(pen.number(), 3, 9)] == [made.header]


def await_waiting(server: Server, count: int) -> None:
    """Until so many sessions of the server wait for a lock."""
    waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
    while server.sql(waiting)[0][0] < count:
        time.sleep(LOOKS_S)


def test_a_statement_that_was_forgotten_is_prepared_anew(url: str, open_store: Open) -> None:
    """psycopg says DEALLOCATE ALL after a ROLLBACK, which takes our own prepared statement with it:
    the next commit on that connection was refused, as its statement "does not exist"."""
    backend = open_store(url + "&pool_size=1")
    pen = Pen(backend)
    for _ in range(3):
        pen.write()
    with backend._pool.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    pen.write()
    assert len(backend.read(pen.number(), 1, 9)) == 4


def test_i1_a_first_commit_whose_answer_was_lost_is_found(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url))
    backend.agents()
    proxy.cut = "answer"
    pen = Pen(backend)
    pen.write()
    assert len(backend.read(pen.number(), 1, 99)) == 1
    first, tail = Pen(backend, "whole").make()
    proxy.cut = "answer"
    whole = Pen(backend, "whole")
    whole.tail, whole.heads["main"] = tail, 1
    first.then = [whole.make()[0]]
    assert isinstance(backend.append([first])[0], Appended)
    info = backend.agent("whole")
    assert info is not None and info.seq == 2


def test_i1_a_commit_that_never_got_there_is_written_again(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url))
    pens = [Pen(backend, name) for name in "abc"]
    for pen in pens:
        pen.write()
    for cut in ("request", "answer"):
        made = [pen.make() for pen in pens]
        proxy.cut = "request" if cut == "request" else "answer"
        outcomes = backend.append([append for append, _ in made])
        for pen, (append, tail), outcome in zip(pens, made, outcomes, strict=True):
            assert isinstance(outcome, Appended), outcome
            pen.accept(append, tail, outcome)
    assert [len(backend.read(pen.number(), 1, 99)) for pen in pens] == [3, 3, 3]
    assert proxy.cuts == 2


def test_i1_what_cannot_be_found_out_is_unknown(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url) + "&deadline=2&retry=0.1")
    pen = Pen(backend)
    pen.write()
    pen.write()  # its statement is prepared
    made, _ = pen.make()
    proxy.for_good = True
    proxy.cut = "answer"
    (outcome,) = backend.append([made])
    assert isinstance(outcome, StoreUnavailable)
    assert outcome.outcome == "unknown"
    assert "may or may not" in str(outcome)
    proxy.refuses = False
    assert [row.header for row in backend.read(pen.number(), 3, 9)] == [made.header]


def test_a_message_whose_answer_was_lost_is_put_in_once(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url))
    Pen(backend).write(runs=[a_run("r")])
    for cut in ("request", "answer"):
        proxy.cut = "request" if cut == "request" else "answer"
        sent = backend.send(Message("r", "a", "signal", "go", cut, {"x": 1}))
        assert isinstance(sent, Sent) and sent.fresh
    assert [message.key for message in backend.inbox("r")] == ["request", "answer"]


def test_reading_goes_on_after_a_cut(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url))
    Pen(backend).write()
    proxy.cut = "answer"
    assert [info.name for info in backend.agents()] == ["a"]
    proxy.refuses = True
    proxy.refuses = False
    assert [info.name for info in backend.agents()] == ["a"]


def test_a_lease_whose_answer_was_lost_is_in_doubt(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    backend = open_store(through(proxy, server, url))
    pen = Pen(backend)
    pen.write()
    proxy.cut = "answer"
    with pytest.raises(StoreUnavailable, match="may or may not") as caught:
        backend.lease(pen.number(), "main", "one")
    assert caught.value.outcome == "unknown"
    ref = backend.ref(pen.number(), "main")
    assert ref is not None and ref.holder == "one"
    proxy.cut = "answer"
    backend.lease(pen.number(), "main", None, release=1)
    pen.write()


# -- a server that dies ------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT])
def test_i1_nothing_acknowledged_is_lost_with_the_server(how: signal.Signals) -> None:
    server = Server().start()  # the machine lives on: no fsync is needed for this
    try:
        backend = PostgresBackend(server.new_url(retry=30))
        pen = Pen(backend)
        for value in range(5):
            pen.write(value=value)
        server.stop(how)
        starter = threading.Thread(target=server.start)
        starter.start()
        pen.write(value="after")  # goes on by itself, as soon as the server is back
        starter.join()
        rows = backend.read(pen.number(), 1, 99)
        assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]
        backend.close()
    finally:
        server.remove()


def test_i11_a_server_that_is_damaged_is_not_said_to_be_away() -> None:
    """It answers the first word of a connection with FATAL: invalid page; that was taken for a
    server that cannot be reached, and one was told to check host and port."""
    server = Server().start()
    try:
        url = server.new_url()
        [(roles,)] = server.sql("SELECT pg_relation_filepath('pg_authid')")
        server.stop()
        with (server.data / roles).open("r+b") as file:
            file.write(b"\xff" * 24)
        server.launch()
        until = time.monotonic() + START_S
        with pytest.raises(Corrupt, match="invalid page") as damaged:
            while time.monotonic() < until:
                with contextlib.suppress(StoreUnavailable):  # it is starting
                    PostgresBackend(url)
        assert "restore" in str(damaged.value)
    finally:
        server.remove()


def test_an_option_that_nobody_knows_is_named(server: Server, open_store: Open) -> None:
    """A mistyped one was blamed on the password, and `client_encoding=UTF8`, which SQLAlchemy's
    users write, was a bare TypeError."""
    url = server.new_url()
    open_store(url + "&client_encoding=UTF8").close()
    for wrong, words in [
        ("sslmod=require", "no option 'sslmod'"),
        ("poolsize=4", "no option 'poolsize'"),
        ("client_encoding=LATIN1", "UTF8"),
    ]:
        with pytest.raises(ValueError, match=words):
            PostgresBackend(f"{url}&{wrong}")
    with pytest.raises(ValueError, match="libpq cannot read") as caught:
        PostgresBackend(f"postgresql://me:{SECRET}?{SECRET}@host/db")
    assert SECRET not in all_words(caught.value)


def test_an_error_behind_an_answer_whose_end_is_late_holds_up_nobody(server: Server) -> None:
    """The transaction could not commit: the error was there, the end of both was not yet. libpq
    waited for it, with all threads of the process, and no deadline counted."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.postgres.late_end", str(server.port), server.new_url()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "{'n': 3}"
