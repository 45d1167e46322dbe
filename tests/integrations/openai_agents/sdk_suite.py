"""The SDK's own tests, with `PerdureSession` in the place of its `SQLiteSession`.

A plugin of pytest for the tests in the SDK's released source distribution; `make compat-agents`
(sdk_run.py) downloads that and runs them. What reaches into SQLite's tables, locks and connections
is left out, by what its code asks for; what wants something else of that very class, by its name.
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
    "_locked_connection",
    "_connections",
    "_file_lock",
    "_lock is ",
    "sqlite3.",
    "_sqlite_write_lock",
    "SQLiteSession is closed",
)
"""What a test says that looks into the file, or asks for an error by SQLiteSession's own words."""

REASONS = {
    "test_cancelled_suffix_transaction_settles_before_newer_append": (
        "replaces `_insert_items`, which takes SQLiteSession's own connection"
    ),
    "test_encrypted_pop_wrong_key_preserves_recoverable_history": (
        "`EncryptedSession` hands its check to `SQLiteSession` alone, by `isinstance`"
    ),
    "test_encrypted_pop_rechecks_authentication_after_expired_tail": (
        "`EncryptedSession` hands its check to `SQLiteSession` alone, by `isinstance`"
    ),
    "test_encrypted_pop_cancellation_waits_for_authentication_rollback": (
        "`EncryptedSession` hands its check to `SQLiteSession` alone, by `isinstance`"
    ),
    "test_encrypted_session_scan_budget_rejects_negative_limit_before_read": (
        "begins with a negative limit, which SQLite takes for none; ours is a ValueError"
    ),
}
"""Tests that want what only SQLiteSession can be or do, each with why."""

_numbers = itertools.count()


class InItsPlace(PerdureSession):
    """With the arguments of a `SQLiteSession`, whose `close` is no coroutine."""

    def __init__(
        self,
        session_id: str,
        db_path: str | os.PathLike[str] = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
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
        name = getattr(item, "originalname", None) or item.name
        if name in REASONS:
            item.add_marker(pytest.mark.skip(reason=REASONS[name]))
            continue
        code = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
        if any(words in code for words in INSIDE):
            item.add_marker(inside)
