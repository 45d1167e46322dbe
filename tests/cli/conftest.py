"""A store, and an operator at a terminal."""

import shutil
from pathlib import Path

import pytest

from tests.cli.operator import Operator, fill


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "agents.db"
    fill(path)
    return path


@pytest.fixture
def operator(filled: Path, tmp_path: Path) -> Operator:
    """On a copy of its own of the filled store (which is closed: its file is whole)."""
    path = tmp_path / "agents.db"
    shutil.copy(filled, path)
    return Operator(path)
