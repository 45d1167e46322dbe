"""Which commit is meant by a moment, of logs of which not all is there any more; and what names
none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure import NotFound, Store
from perdure.agents import Agent
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.connection import checksum_vfs
from tests.state.copies import backend_of

COMMITS = 9


def grown(store: Store) -> Agent[dict[str, Any]]:
    agent = store.agent("a")
    for number in range(COMMITS):
        agent.save({"n": number})
    return agent


def moments(agent: Agent[Any]) -> list[datetime]:
    """Before the first commit, at each, and after the last one."""
    at = [commit.at for commit in agent.log()]
    return [at[0] - timedelta(days=1), *at, at[-1] + timedelta(days=1)]


def asked(agent: Agent[Any], moment: datetime) -> dict[str, Callable[[], Any]]:
    """All that can be asked by a moment."""
    return {
        "at": lambda: agent.at(moment).state,
        "commit": lambda: agent.commit(moment),
        "diff": lambda: agent.diff(moment, moment),
        "fork": lambda: agent.fork(f"at {moment:%H-%M-%S-%f}", at=moment),
        "rollback": lambda: agent.rollback(moment),
        "trim": lambda: agent.trim(moment),
        "an age": lambda: agent.trim(timedelta(0)),
    }


@pytest.mark.parametrize("purged", [1, COMMITS // 2, None])
def test_a_moment_of_a_log_that_was_purged(store: Store, purged: int | None) -> None:
    """A nightly job that trims what it has handles on ended with a bare IndexError, where an agent
    had been deleted and purged meanwhile: the commit of a moment is found by halving the log, whose
    headers were gone. By its seq it was told what had happened."""
    agent = grown(store)
    times = moments(agent)
    store.delete("a", purge=True)
    info = store.find("a")
    assert info is not None
    if purged is None:
        store.purge()
    else:
        backend_of(store).purge(info.no, purged)  # and then it was killed
    for handle in (agent, store.agent_of(info)):
        for moment in times:
            for what, ask in asked(handle, moment).items():
                if what == "commit" and purged:  # one that is left is told of
                    with contextlib.suppress(NotFound):
                        assert ask().at <= moment
                    continue
                with pytest.raises(NotFound, match=r"delete|purge|did not exist"):
                    ask()


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 4), (3, 3), (4, 7), (COMMITS - 1,) * 2])
def test_a_moment_of_a_log_in_which_commits_are_missing(
    tmp_path: Path, first: int, last: int
) -> None:
    """The same, where rows were lost: those that are there are found by their moments."""
    path = tmp_path / "a.db"
    with perdure.open(path, durability="os") as store:
        times = moments(grown(store))
    with contextlib.closing(apsw.Connection(str(path), vfs=checksum_vfs())) as db:
        db.execute("DELETE FROM commits WHERE id & 0xffff BETWEEN ? AND ?", (first, last))
    with perdure.open(path) as store:
        agent = store.agent("a")
        for seq, moment in enumerate(times):
            if 1 <= seq <= COMMITS and not first <= seq <= last:
                assert agent.commit(moment).at == moment
                continue
            with contextlib.suppress(perdure.PerdureError):
                assert agent.commit(moment).at <= moment


@pytest.mark.parametrize("slip", [True, False])
def test_true_and_false_name_no_commit(store: Store, slip: bool) -> None:
    """A comparison, or a flag of a form, that was given as the commit: PostgreSQL said that the
    store's tables were not those of this perdure, the others that there was no commit True, of a
    log that began at 1."""
    agent = grown(store)
    before = [commit.id for commit in agent.log(all_branches=True)]
    calls: dict[str, Callable[[], Any]] = {
        "at": lambda: agent.at(slip),
        "commit": lambda: agent.commit(slip),
        "commit, damaged": lambda: agent.commit(slip, damaged_too=True),
        "diff from": lambda: agent.diff(slip, 2),
        "diff to": lambda: agent.diff(1, slip),
        "fork": lambda: agent.fork("side", at=slip),
        "rollback": lambda: agent.rollback(slip),
        "trim": lambda: agent.trim(slip),
    }
    for call in calls.values():
        with pytest.raises(TypeError, match=rf"agent 'a': {slip} names no commit; say its seq"):
            call()
    assert [commit.id for commit in agent.log(all_branches=True)] == before
    assert [branch.name for branch in agent.branches()] == ["main"]
    info = store.find("a")
    assert info is not None
    with pytest.raises(TypeError):
        list(store.export_log(info, until=slip))


def test_a_moment_before_each_of_a_chain_of_forks() -> None:
    """A search forked each try off the one before. Asked what the last one had been at a moment, it
    went through the log once for each fork on the way there."""
    read = []
    for forks in (50, 200):
        backend = Counting()
        with Store(backend) as store:
            tries = [store.agent("a")]
            tries[0].save({"n": 0})
            for number in range(1, forks + 1):
                tries.append(tries[-1].fork(f"try {number}"))
                tries[-1].save({"n": number})
            for number in (0, forks // 2, forks):
                then = tries[number].commit(tries[number].seq).at
                backend.rows = 0
                assert tries[-1].at(then).state == {"n": number}
                read.append(backend.rows)
    few, many = read[: len(read) // 2], read[len(read) // 2 :]
    assert all(after <= 5 * before for before, after in zip(few, many, strict=True)), read


class Counting(MemoryBackend):
    """Counts what it reads of logs, and tells of each commit another time."""

    def __init__(self) -> None:
        times = count(1_700_000_000_000_000, 1000)
        super().__init__(clock=lambda: next(times))
        self.rows = 0

    def read(self, *args: Any, **more: Any) -> Any:
        found = super().read(*args, **more)
        self.rows += len(found)
        return found
