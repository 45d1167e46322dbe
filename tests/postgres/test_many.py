"""What must cost the same however much there is, and what must not be passed over."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.statements import statements
from perdure.storage.standing import ClosedError, Why
from perdure.testing.contract.feed import drained
from perdure.testing.pen import Pen
from tests.postgres.conftest import Open
from tests.postgres.server import Server
from tests.postgres.test_faults import schema_of

WAITING = 20_000


@pytest.fixture
def crowded(server: Server, url: str, backend: PostgresBackend) -> PostgresBackend:
    """With many runs that wait, a few of which can go on."""
    name = schema_of(url)
    server.sql(
        f"INSERT INTO {name}.runs SELECT n % 1000, 'r' || n, n, 'a' || (n % 1000), 'main', 'f', "
        "'main', CASE WHEN n % 5000 = 1 THEN 'pending' ELSE 'waiting' END, 1, 0, '', '\\xc0', "
        "NULL, CASE WHEN n % 5000 = 2 THEN 5 ELSE 900 + n END, '', 1, 0, '', 'default', '', 0, 0, "
        f"0 FROM generate_series(1, {WAITING}) n"
    )
    return backend


def rows_read(plan: object) -> int:
    """The most rows that any part of a plan went through."""
    most = 0
    if isinstance(plan, dict):
        loops = int(plan.get("Actual Loops", 0))
        rows = int(plan.get("Actual Rows", 0)) + int(plan.get("Rows Removed by Filter", 0))
        most = max(loops * rows, *(rows_read(part) for part in plan.values()))
    elif isinstance(plan, list):
        most = max((rows_read(part) for part in plan), default=0)
    return most


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_claim_costs_what_it_returns(
    server: Server, url: str, crowded: PostgresBackend, analyzed: bool
) -> None:
    name = schema_of(url)
    if analyzed:
        server.sql(f"ANALYZE {name}.runs")
    ids = [row.id for row in crowded.ready(100, 5)]
    assert ids == ["r1", "r5001", "r10001", "r15001", "r2"]
    explain = "EXPLAIN (ANALYZE, FORMAT JSON) " + statements(name)["list_ready"]
    with psycopg.connect(server.url()) as connection:
        row = connection.execute(
            explain.encode(), {"at": 100, "limit": 10, "now": None, "ours": []}
        ).fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    assert rows_read(plan) < 100


def test_a_late_committer_is_not_passed_over(
    server: Server, url: str, backend: PostgresBackend, open_store: Open
) -> None:
    """One transaction began early, waited, and wrote to a log after a later one had ended: its
    number is the smaller one, and a feed by numbers gives its commit first, or never."""
    name = schema_of(url)
    pen, other = Pen(backend), Pen(backend, "b")
    pen.write()
    other.write()
    _, cursor = drained(backend)
    with psycopg.connect(server.url()) as early:
        early.execute(b"SELECT pg_current_xact_id()")
        pen.write()  # seq 2, by a later transaction
        item, tail = pen.make()
        early.execute(
            f"SELECT * FROM {name}.append_1(true, 'a', {pen.number()}, 1, 3, %b, %b, %b, 'main', 2,"
            " NULL, NULL, NULL, NULL, NULL)".encode(),
            (item.header, item.payload, item.behind.id),
        )
        other.write()
        assert backend.feed(cursor).entries == []  # they would go before what is still to come
    del tail
    entries, _ = drained(backend, cursor)
    assert [(entry.agent, entry.commit.seq) for entry in entries] == [("a", 2), ("a", 3), ("b", 2)]


def test_a_store_is_closed_beside_a_dump(server: Server, url: str, open_store: Open) -> None:
    """pg_dump reads all tables in one transaction, for hours. Whoever closed a store waited for its
    end, and all writers waited behind that, for half a minute at each try."""
    backend, name = open_store(url + "&deadline=5"), schema_of(url)
    pen = Pen(backend)
    pen.write()
    with psycopg.connect(server.url()) as dump:
        tables = [b"commits", b"refs", b"agents", b"inbox", b"runs", b"standings"]
        names = b", ".join(name.encode() + b"." + table for table in tables)
        dump.execute(b"LOCK TABLE " + names + b" IN ACCESS SHARE MODE")
        backend.stand(Why("follows", "elsewhere").standing())
        assert isinstance(backend.append([pen.make()[0]])[0], ClosedError)
        backend.stand(None)
        pen.write()


def test_writers_get_through_while_a_store_is_about_to_be_closed(
    server: Server, url: str, open_store: Open
) -> None:
    """Whoever closes it waits for the transactions of all writers, one of which may be long: of an
    import. The others waited behind it all the while."""
    backend, closing, name = open_store(url), open_store(url), schema_of(url)
    pen = Pen(backend)
    pen.write()
    standing = Why("follows", "elsewhere").standing()
    with psycopg.connect(server.url()) as long, ThreadPoolExecutor(1) as pool:
        asked = "true, 'r', 'a', 'start', 'f', '', NULL, '', 0, 0"
        long.execute(f"SELECT {name}.send_1({asked})".encode())
        closed = pool.submit(closing.stand, standing)
        while not server.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not closed.done()
        more: dict[str, Any] = {"key": ("k", b"")}
        pen.write()
        pen.write(**more)
        assert not closed.done()
        long.commit()
        closed.result()
    assert isinstance(backend.append([pen.make()[0]])[0], ClosedError)
