"""What a store keeps in memory does not grow with what it has had to do with."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.storage import committer
from perdure.storage.sqlite import writer


def test_agents_that_come_and_go_leave_nothing_behind(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each agent that was ever made, the committer remembered the end of its log: 400 bytes
    for good, as only ends that it had to look up were counted. An hour's soak found it."""
    monkeypatch.setattr(committer, "TAILS_KEPT", 8)
    monkeypatch.setattr(writer, "HEADS_KEPT", 8)
    with perdure.open(tmp_path / "a.db") as store:
        for n in range(40):
            store.agent(f"agent {n}").save({"n": n})
            store.delete(f"agent {n}", purge=True)
        context = store._context
        assert len(context.committer._tails) <= 8
        backend: Any = context.backend
        assert len(backend._writer._heads) <= 9
        store.agent("agent 1").save({"n": 1})
