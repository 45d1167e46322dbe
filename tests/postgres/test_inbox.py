"""Messages whose transactions meet those of commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

from perdure.model import Message
from perdure.storage.port import Sent
from perdure.testing.pen import Pen, a_run
from tests.postgres.conftest import Open
from tests.postgres.server import Server


def test_i8_what_asks_for_a_run_looks_again_when_it_is_in(
    server: Server, url: str, open_store: Open
) -> None:
    """Its transaction had found no row of the run, and was held up; meanwhile the run began, and
    could have ended: the message would have lain in an inbox that nobody reads."""
    backend = open_store(url)
    pen = Pen(backend)
    pen.write()
    schema = url.partition("schema=")[2]
    with psycopg.connect(server.own_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute(
            f"INSERT INTO {schema}.inbox (run, agent, kind, name, key, who, at, token) "
            "VALUES ('r', 'a', 'start', 'f', '', '', 0, 0)"
        )
        sending = pool.submit(backend.send, Message("r", "a", "start", "f"))
        while not server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            assert not sending.done()
        pen.write(runs=[a_run("r")])
        other.rollback()
        sent = sending.result()
    assert isinstance(sent, Sent) and not sent.fresh
    assert backend.inbox() == []
    assert backend.runs()[0].status == "running"
