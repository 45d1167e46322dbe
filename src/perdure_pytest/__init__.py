"""Perdure's fixtures for pytest, there wherever Perdure is installed; ``-p no:perdure`` leaves them
out.

pytest imports this at every start, so it imports nothing of Perdure until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perdure import Store
    from perdure.testing import Clock


@pytest.fixture
def perdure_clock() -> Clock:
    """The `perdure.testing.Clock` that `perdure_store` and `perdure_memory` go by."""
    from perdure.testing import Clock

    return Clock()


@pytest.fixture
def perdure_store(perdure_clock: Clock, tmp_path: Path) -> Iterator[Store]:
    """A new SQLite store, ``tmp_path / "perdure.db"``."""
    with perdure_clock.open(tmp_path / "perdure.db") as store:
        yield store


@pytest.fixture
def perdure_memory(perdure_clock: Clock) -> Iterator[Store]:
    """A new store in memory: for tests that need no files."""
    with perdure_clock.open("memory://") as store:
        yield store
