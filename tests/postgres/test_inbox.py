"""Messages whose transactions meet those of commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

from perdure.model import Message
from perdure.storage.appending import Appended
from perdure.storage.capabilities import Sent
from perdure.testing.pen import Pen, a_run, refused
from tests.postgres.conftest import Open
from tests.postgres.server import Server

WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def test_i8_a_run_does_not_begin_beside_what_asks_for_it(
    server: Server, url: str, open_store: Open
) -> None:
    """It had looked for the run, found none, and was on its way to the disk. Meanwhile the run
    began, and ended: the message lay in an inbox that nobody reads."""
    backend = open_store(url)
    pen = Pen(backend)
    pen.write()
    schema = url.partition("schema=")[2]
    with psycopg.connect(server.own_url) as asking, ThreadPoolExecutor(1) as pool:
        asking.execute(f"SELECT {schema}.send_1(true, 'r', 'a', 'start', 'f', '', NULL, '', 0, 0)")
        beginning = pool.submit(pen.write, runs=[a_run("r")])
        while not server.sql(WAITS):
            assert not beginning.done()
        asking.commit()
        beginning.result()
    late, _ = pen.make(runs=[a_run("r", status="done")], read_to={"r": 0})
    assert refused(backend.append([late])[0]) == "unread"
    (asked,) = backend.inbox()
    end, _ = pen.make(runs=[a_run("r", status="done")], read_to={"r": 0}, consumed=[asked.no])
    assert isinstance(backend.append([end])[0], Appended)


def test_i8_what_asks_for_a_run_that_begins_hears_that_it_did(
    server: Server, url: str, open_store: Open
) -> None:
    backend = open_store(url)
    pen = Pen(backend)
    pen.write()
    schema = url.partition("schema=")[2]
    with psycopg.connect(server.own_url) as beginning, ThreadPoolExecutor(1) as pool:
        beginning.execute(f"SELECT {schema}.lock_begin_1('r')")  # as the commit that begins it does
        sending = pool.submit(backend.send, Message("r", "a", "start", "f"))
        while not server.sql(WAITS):
            assert not sending.done()
        beginning.rollback()
        sent = sending.result()
    assert isinstance(sent, Sent) and sent.fresh
    pen.write(runs=[a_run("s")])
    told = backend.send(Message("s", "a", "start", "f"))
    assert isinstance(told, Sent) and not told.fresh


def test_pages_of_messages_go_on_where_numbers_of_transactions_gain_a_digit(
    server: Server, url: str, open_store: Open
) -> None:
    """They were put in order as text, 1000 before 999: a follower that was a page behind just then
    read the later ones first, went on behind them, and never had the earlier ones."""
    backend = open_store(url)
    for number in range(6):
        sent = backend.send(Message(f"a/f/{number}", "a", "start", "f"))
        assert isinstance(sent, Sent) and sent.fresh
    schema = url.partition("schema=")[2]
    first = f"(SELECT min(no) FROM {schema}.inbox)"
    server.sql(
        f"UPDATE {schema}.inbox SET tx = (CASE WHEN no < {first} + 3 THEN '9' ELSE '10' END)::xid8"
    )
    for limit in (1, 2, 3, 4, 1000):
        found, cursor = [], ""
        while (part := backend.mail(cursor, limit=limit)).messages:
            found += [message.run for message in part.messages]
            cursor = part.cursor
        assert found == [f"a/f/{number}" for number in range(6)], limit
