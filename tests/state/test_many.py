"""Lists in stores of very many agents: right, and at the cost of what they give."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.model import UNFINISHED, RunInfo, RunStatus
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.statements import statements
from perdure.testing.contract.backend import Pen

NAMES = (
    "a",
    "aa",
    "a\U0010ffff",
    "a\U0010ffffb",
    "a\ud7ff",
    "a\ud7ffz",
    "a\ue000",
    "aé",
    "b",
    "ba",
    "é",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
    "\ud7ff",
    "\ue000",
    "0",
)
STATUSES: tuple[list[RunStatus] | None, ...] = (
    None,
    ["waiting"],
    ["running", "pending"],
    [*UNFINISHED],
    [],
)
PREFIXES = ("", "a", "a\U0010ffff", "a\ud7ff", "\U0010ffff", "b", "c", "\ud7ff", "é")


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend = MemoryBackend()
    if request.param == "sqlite":
        backend = SqliteBackend(str(tmp_path / "store.db"), durability="os")
    yield backend
    backend.close()


def test_pages_of_agents_with_any_prefix(tmp_path: Path) -> None:
    """A page of names began where its prefix begins, and went over all names before it: a million
    agents made the last page cost what all cost. Its bounds are in the index now, and any text must
    be on the right side of them."""
    with perdure.open(tmp_path / "s.db", durability="os") as store:
        for name in NAMES:
            with store.agent(name).edit("begun") as draft:
                draft["name"] = name
        for prefix in PREFIXES:
            for after in ("", *NAMES):
                wanted = sorted(one for one in NAMES if one.startswith(prefix) and one > after)
                found = [info.name for info in store.agents(prefix, after=after)]
                assert found == wanted, (prefix, after)
                assert [info.name for info in store.agents(prefix, after=after, limit=2)] == wanted[
                    :2
                ]


def test_a_listed_agent_says_its_last_commit(tmp_path: Path) -> None:
    """The seq of a listed agent is read from the heads of its branches, not from its log."""
    with perdure.open(tmp_path / "s.db", durability="os") as store:
        agent = store.agent("a")

        def check() -> None:
            last = max(commit.seq for commit in agent.log(all_branches=True))
            assert [info.seq for info in store.agents()] == [last]
            found = store.find("a")
            assert found is not None
            assert found.seq == last

        for number in range(3):
            with agent.edit("more") as draft:
                draft["number"] = number
            check()
        other = agent.fork("other")
        check()
        with other.edit("there") as draft:
            draft["other"] = True
        check()
        other.checkpoint("here")
        check()
        agent.delete_branch("other")
        check()
        agent.rollback(2)
        check()
        agent.undo()
        check()


def test_unfinished_runs_in_pages(backend: Backend) -> None:
    """The first twenty unfinished runs cost what all unfinished ones cost: they were sorted. Each
    status comes out of the index in order now, and they are put together."""
    dice = random.Random(3)
    rows = []
    for number in range(40):
        pen = Pen(backend, f"a{number}")
        drawn: RunStatus = dice.choice([*UNFINISHED, "done"])
        row = RunInfo(f"r{number}", f"a{number}", 0, "main", dice.choice("fg"), "main", drawn, 1)
        pen.write(runs=[row])
        rows.append(row)
    for function in (None, "f"):
        for status in STATUSES:
            for newest_first in (False, True):
                wanted = [
                    row.id
                    for row in rows
                    if row.status in UNFINISHED
                    and (status is None or row.status in status)
                    and function in (None, row.function)
                ]
                if newest_first:
                    wanted.reverse()
                pages: list[str] = []
                while page := backend.runs(
                    RunQuery(
                        unfinished=True,
                        status=status,
                        function=function,
                        limit=3,
                        newest_first=newest_first,
                        after=pages[-1] if pages else None,
                    )
                ):
                    pages += [row.id for row in page]
                assert pages == wanted
                whole = backend.runs(
                    RunQuery(
                        unfinished=True, status=status, function=function, newest_first=newest_first
                    )
                )
                assert [row.id for row in whole] == wanted


@pytest.mark.parametrize(
    "name", ["list_agents", "list_unfinished_up", "list_unfinished_down", "list_runs_down"]
)
def test_no_list_sorts_or_goes_over_all(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SqliteBackend(str(path)).close()
    db = apsw.Connection(
        f"file:{path}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    with_plan = "EXPLAIN QUERY PLAN " + statements()[name]
    values = ("", "", 1, b"") if name == "list_agents" else _Anything()
    parts = [row[3] for row in db.execute(with_plan, values)]
    db.close()
    assert parts
    assert not [part for part in parts if "TEMP B-TREE FOR ORDER BY" in part], parts
    assert not [part for part in parts if part.startswith("SCAN agents")], parts


class _Anything(dict[str, int]):
    def __missing__(self, name: str) -> int:
        return 1
