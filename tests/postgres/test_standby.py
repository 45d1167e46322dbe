"""A synchronous standby that is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from perdure.errors import StoreUnavailable
from perdure.model import Message
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing.pen import Pen
from tests.postgres.server import LOOKS_S, Server


@pytest.fixture
def lonely() -> Iterator[Server]:
    """A primary whose standby can be said to be missing."""
    server = Server({"wal_level": "replica", "synchronous_commit": "on"}).start()
    yield server
    server.remove()


def lose_standby(server: Server) -> None:
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.sql("SELECT pg_reload_conf()")
    while server.sql("SHOW synchronous_standby_names") != [("nobody",)]:
        time.sleep(LOOKS_S)


def test_i1_a_commit_on_the_primary_alone_is_not_acknowledged(lonely: Server) -> None:
    """With the synchronous standby gone a COMMIT waits without end; statement_timeout does not end
    it; cancelled, it returns success, with a warning, done on this server alone. Acknowledged, it
    would be lost with the primary."""
    url = lonely.new_url(deadline=2, retry=0.1)
    PostgresBackend(url).close()
    backend = PostgresBackend(url + "&options=-c%20statement_timeout%3D1000")
    pen = Pen(backend)
    pen.write()
    lose_standby(lonely)
    made, tail = pen.make()
    (outcome,) = backend.append([made])
    assert isinstance(outcome, StoreUnavailable), outcome
    assert outcome.outcome == "unknown"
    assert "synchronous" in str(outcome) and "standby" in outcome.hint
    with pytest.raises(StoreUnavailable) as caught:
        backend.send(Message("r", "a", "start", "f"))
    assert caught.value.outcome == "unknown"
    # Nobody is stuck behind it, what is here can be read, and what need not be replicated goes on.
    assert len(backend.read(pen.number(), 1, 9)) == 2
    backend.heartbeat("one", 60_000)
    assert backend.alive("one")

    lonely.sql("ALTER SYSTEM RESET synchronous_standby_names")
    lonely.sql("SELECT pg_reload_conf()")
    pen.tail, pen.heads["main"] = tail, made.seq
    while isinstance(backend.append([pen.make()[0]])[0], StoreUnavailable):
        pen.tail, pen.heads["main"] = pen.make()[1], pen.tail.seq + 1  # the setting comes soon
    backend.close()
