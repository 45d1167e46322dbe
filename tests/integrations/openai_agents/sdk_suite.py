"""The SDK's own session tests, with `PerdureSession` in the place of its `SQLiteSession`.

A plugin of pytest, for a checkout of the SDK's repository, whose tests are in no wheel. In an
environment with pytest-asyncio and inline-snapshot:

    cd openai-agents-python
    cp …/perdure/tests/integrations/openai_agents/sdk_suite.py perdure_sdk_suite.py
    python -m pytest -o asyncio_mode=auto -p perdure_sdk_suite tests/memory/test_session*.py

What reaches into SQLite's tables, locks and connections is left out, by what its code asks for.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import threading
from typing import Any

import agents
import agents.memory
import pytest

from perdure.integrations.openai_agents import PerdureSession

INSIDE = (
    "_locked_connection", "_connections", "_file_lock", "_lock is ", "sqlite3.",
    "_sqlite_write_lock", "SQLiteSession is closed",
)  # fmt: skip
"""What a test says that looks into the file, or asks for an error by SQLiteSession's own words."""

_numbers = itertools.count()


class InItsPlace(PerdureSession):
    """With the arguments of a `SQLiteSession`, whose `close` is no coroutine."""

    def __init__(
        self, session_id: str, db_path: str | os.PathLike[str] = ":memory:",
        sessions_table: str = "", messages_table: str = "", session_settings: Any = None,
    ) -> None:  # fmt: skip
        url = f"memory://suite-{next(_numbers)}" if str(db_path) == ":memory:" else db_path
        super().__init__(session_id, url, session_settings=session_settings)

    def close(self) -> None:  # type: ignore[override]
        closer = threading.Thread(target=lambda: asyncio.run(PerdureSession.close(self)))
        closer.start()
        closer.join()


def pytest_configure() -> None:
    """Before a test's module takes the name."""
    for module in (agents, agents.memory):
        setattr(module, "SQLiteSession", InItsPlace)  # noqa: B010


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    inside = pytest.mark.skip(reason="it reaches into SQLite's internals")
    for item in items:
        code = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
        if any(words in code for words in INSIDE):
            item.add_marker(inside)
