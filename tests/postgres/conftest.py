"""A store in a schema of its own, in the test process's one server; and wires to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure.storage.postgres.backend import PostgresBackend
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server, shared

Open = Callable[..., PostgresBackend]


@pytest.fixture
def server() -> Server:
    return shared()


@pytest.fixture
def url(server: Server) -> str:
    return server.new_url()


@pytest.fixture
def open_store() -> Iterator[Open]:
    """Opens backends, and closes them at the end."""
    opened: list[PostgresBackend] = []

    def open_one(url: str, **more: Any) -> PostgresBackend:
        opened.append(PostgresBackend(url, **more))
        return opened[-1]

    yield open_one
    while opened:
        opened.pop().close()


@pytest.fixture
def backend(url: str, open_store: Open) -> PostgresBackend:
    return open_store(url)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()
