"""Logs are read in parts that fit into memory, however large their commits are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.storage.log import chunk_size
from perdure.storage.memory.backend import MemoryBackend
from perdure.transfer.follower import Follower


def test_no_more_is_read_at_once_than_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Story: a store with a thousand pictures of a megabyte could be read and written in a few
    megabytes of memory; but whoever listed, verified, exported, trimmed or copied its log read two
    thousand commits at a time, and ended with a MemoryError in a container of one gigabyte."""
    monkeypatch.setattr(chunk_size, "CHUNK_BYTES", 10_000)
    most = 0

    def counted(read: Any) -> Any:
        def reading(*args: Any, **given: Any) -> Any:
            nonlocal most
            found = read(*args, **given)
            rows = found if type(found) is list else found.entries
            most = max(most, len(rows))
            return found

        return reading

    with perdure.open("memory://") as store, perdure.open(tmp_path / "copy.db") as other:
        agent = store.agent("a", initial={"n": 0, "picture": b""})
        for number in range(300):
            with agent.edit() as draft:
                draft["n"], draft["picture"] = number, os.urandom(700)
        for name in ("read", "feed"):
            monkeypatch.setattr(MemoryBackend, name, counted(getattr(MemoryBackend, name)))
        assert sum(1 for _ in agent.log()) == agent.verify().commits == 301
        info: Any = store.find("a")
        assert len([*store.export_log(info)]) == 301
        follower = Follower(store._context.backend, other._context.backend)
        follower.begin()
        while follower.step().more:
            pass
        assert other._context.backend.agent("a").seq == 301  # type: ignore[union-attr]
        assert agent.trim(290).removed > 200
    assert most <= chunk_size.CHUNK_FIRST


def test_nothing_read_says_nothing_of_what_comes() -> None:
    """Story: a look that found nothing made the next part one commit: a copy that had caught up
    took no more."""
    chunk = chunk_size.ChunkSize()
    chunk.read([])
    assert chunk.now == chunk_size.CHUNK_FIRST
