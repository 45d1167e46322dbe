"""Where sessions are kept: in a file, or in memory, opened by them or by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.integrations.openai_agents import PerdureSession

Make = Callable[..., PerdureSession]


@pytest.fixture(params=["url", "memory", "store"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a session of a name; all of one test are kept in one place."""
    if request.param == "store":
        with perdure.open(tmp_path / "agents.db", durability="os") as store:
            yield lambda name="c-1", **more: PerdureSession(name, store=store, **more)
        return
    url: Any = tmp_path / "agents.db" if request.param == "url" else f"memory://{tmp_path.name}"
    yield lambda name="c-1", **more: PerdureSession(name, url, **more)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "agents.db")
