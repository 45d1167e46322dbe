"""Logs that go back again and again cost `verify` what others of their length cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure.errors import Corrupt
from perdure.model import Commit
from perdure.storage.log.reader import LogReader
from perdure.verification.verify import AHEAD_MAX, looking_ahead

CYCLES = 40


def put(agent: perdure.Agent[Any], **values: int) -> None:
    agent.update(lambda draft: draft.update(values))


def back_by_one(agent: perdure.Agent[Any]) -> None:
    for n in range(CYCLES):
        put(agent, n=n + 1)
        put(agent, m=n)
        agent.rollback(agent.seq - 1)


def all_the_way_back(agent: perdure.Agent[Any]) -> None:
    for n in range(CYCLES):
        put(agent, n=n + 1)
    for seq in range(agent.seq - 1, 1, -1):
        agent.rollback(seq)


def from_one_place(agent: perdure.Agent[Any]) -> None:
    seq = agent.seq
    for n in range(CYCLES):
        put(agent, n=n + 1)
        agent.rollback(seq)


@pytest.mark.parametrize("live", [back_by_one, all_the_way_back, from_one_place])
def test_a_log_that_goes_back_is_folded_once(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit that stepped back to the one before its branch's last was folded from the log's
    beginning: the time of `verify` and `repair` grew with the square of a log of edits that were
    rolled back one by one, to hours for a few megabytes."""
    with perdure.open("memory://") as store:
        agent = store.agent("a")
        put(agent, n=0)
        live(agent)
        commits = len(list(agent.log()))
        folded = []
        fold = LogReader.fold

        def counted(self: LogReader, seq: int, **more: Any) -> Any:
            folded.append(seq)
            return fold(self, seq, **more)

        monkeypatch.setattr(LogReader, "fold", counted)
        assert agent.verify().commits == commits
        assert folded == []


def test_what_cannot_be_read_ends_a_look_ahead_behind_what_can() -> None:
    with perdure.open("memory://") as store:
        agent = store.agent("a")
        back_by_one(agent)
        log = sorted(agent.log(), key=lambda commit: commit.seq)

    def broken() -> Iterator[Commit]:
        yield from log
        raise Corrupt("it ends here")

    seen: list[int] = []
    with pytest.raises(Corrupt, match="it ends here"):
        for commit, _ in looking_ahead(broken()):
            seen.append(commit.seq)
    assert seen == [commit.seq for commit in log]
    assert len(log) < AHEAD_MAX
