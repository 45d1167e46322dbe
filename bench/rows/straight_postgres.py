"""The least that a step of the format can cost in Python on PostgreSQL: see `straight`.

The statement is the one that our own commits go out as, prepared, its values in binary form,
through libpq as psycopg wraps it, and waits for its answer as they do: no cursor, no pool.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import ExecStatus, Format

import perdure
from bench.rows.straight import Line, step_by
from bench.workplace import Ticket, open_ticket
from perdure.storage.postgres.address import AWAKE_S
from perdure.storage.postgres.awake import came_soon
from perdure.storage.postgres.plain_commit import TYPES
from perdure.storage.postgres.statements import statements

_NAME = b"straight"
_LAST = "SELECT header FROM {schema}.commits ORDER BY seq DESC LIMIT 1"
_FORMATS = [Format.BINARY] * len(TYPES)
_number = struct.Struct("!q").pack


@contextmanager
def steps_in_a_straight_line(url: str, schema: str) -> Iterator[Callable[[int], str]]:
    """Call steps and record what they give, each durably, and prove the log at the end."""
    with perdure.open(url) as store:
        agent = open_ticket(store, "a")
        last = agent.commit(agent.seq)
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        server = connection.pgconn
        server.prepare(_NAME, statements(schema)["append_plain"].encode(), TYPES)
        no = _number(1)
        (before,) = connection.execute(_LAST.format(schema=schema).encode()).fetchone() or (b"",)
        incoming = select.poll()
        incoming.register(server.socket, select.POLLIN)

        def write(seq: int, _: bytes, header: bytes, payload: bytes) -> None:
            nonlocal before
            values: list[Any] = [
                b"\1",
                no,
                _number(seq),
                _number(seq - 1),
                None,
                b"main",
                before,
                header,
                payload,
            ]
            server.send_query_prepared(_NAME, values, _FORMATS, Format.BINARY)
            server.flush()
            if not came_soon(incoming, AWAKE_S):
                incoming.poll()
            server.consume_input()
            done = server.get_result()
            if done is None or done.status != ExecStatus.TUPLES_OK or done.ntuples != 1:
                raise AssertionError(f"somebody else moved the head: {server.error_message!r}")
            if server.get_result() is not None:
                raise AssertionError("it could not commit")
            before = header

        line = Line(last, write)
        yield step_by(line.append)
    with perdure.open(url) as store:
        line.prove(store.agent("a", Ticket))
