"""Databases of LangGraph's own `PostgresSaver`, in the test process's one server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from tests.cli import langgraph_graphs as graphs
from tests.postgres.server import Server, shared

SECRET = "s3cret word/@"
_numbers = itertools.count()


class Theirs:
    """A database with tables of a `PostgresSaver`."""

    def __init__(self, template: str = "template0") -> None:
        self.server: Server = shared()
        self.name = f"theirs{os.getpid()}_{next(_numbers)}"
        self.server.sql(f"CREATE DATABASE {self.name} TEMPLATE {template}")

    def url(self, schema: str = "", **more: Any) -> str:
        return self.server.url(schema, database=self.name, **more)

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def saver(self) -> Iterator[PostgresSaver]:
        with PostgresSaver.from_conn_string(self.url()) as made:
            yield made

    def drop(self) -> None:
        self.server.sql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


def filled() -> Theirs:
    """With all that `graphs.fill` makes; to copy others from."""
    made = Theirs()
    with made.saver() as saver:
        saver.setup()
        graphs.fill(saver)
    return made
