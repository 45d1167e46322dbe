"""A page that the disk put where one of another tree, or of another part of the same, belongs.

`perdure ls` said "no agents" with exit code 0, an edit began an agent anew in a second log beside
its own, a key was taken twice, and a run that was done was executed once more.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, NotAStore, UnsupportedFormat
from perdure.storage.sqlite import btree, trees
from perdure.storage.sqlite.connection import checksum_vfs
from perdure.storage.sqlite.forest import TREES

PAGE = 4096
NAMES = [f"agent {number:03}" for number in range(120)]
ASKED = [NAMES[0], NAMES[-1]]
DAMAGE = (Corrupt, NotAStore, UnsupportedFormat)
PLACES = [*TREES, "marks", "executors", "sqlite_sequence", "snapshots", "leaves"]

called: list[int] = []


@perdure.tool(on_crash="ask")
def pay(cents: int) -> int:
    called.append(cents)
    return cents


@perdure.agent(dict)
def paying(run: perdure.Run[dict[str, Any]], cents: int) -> int:
    return pay(cents)


@perdure.agent(dict)
def waiting(run: perdure.Run[dict[str, Any]]) -> None:
    run.wait_for("go")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.db"
    with perdure.open(path, durability="os") as store:
        for name in NAMES:
            agent = store.agent(name)
            for number in range(2):
                _edit(store, name, f"key {number}")
            agent.checkpoint("point")
        for name in ASKED:
            store.options(key="paid").run(paying, name, 5)
            store.start(waiting, name).signal("go", 1)
    return path.read_bytes()


OF_AGENT: dict[str, Callable[[perdure.Store, str], Any]] = {
    "exists": lambda store, name: store.agent(name).exists,
    "state": lambda store, name: store.agent(name).state,
    "log": lambda store, name: [commit.id for commit in store.agent(name).log()],
    "branches": lambda store, name: [one.head for one in store.agent(name).branches()],
    "point": lambda store, name: store.agent(name).at("point").commit.seq,
    "runs": lambda store, name: [
        (run.id, run.status, run.result) for run in store.runs(agent=name)
    ],
    "verify": lambda store, name: store.agent(name).verify().root,
}


def questions(store: perdure.Store) -> dict[str, Callable[[], Any]]:
    asked: dict[str, Callable[[], Any]] = {
        "agents": lambda: [info.name for info in store.agents()],
        "runs": lambda: [(run.id, run.status) for run in store.runs()],
    }
    for name in ASKED:
        asked |= {f"{what} {name}": partial(ask, store, name) for what, ask in OF_AGENT.items()}
    return asked


@pytest.fixture(scope="module")
def truth(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("truth") / "a.db"
    path.write_bytes(whole)
    with perdure.open(path) as store:
        return {name: ask() for name, ask in questions(store).items()}


@pytest.fixture(scope="module")
def pages(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Of each tree, its pages, the root first."""
    path = tmp_path_factory.mktemp("pages") / "a.db"
    path.write_bytes(whole)
    db = apsw.Connection(os.fspath(path), vfs=checksum_vfs())
    found: dict[str, list[int]] = {}
    for name, page in db.execute("SELECT name, pageno FROM dbstat ORDER BY name, path"):
        found.setdefault(str(name), []).append(int(str(page)))
    db.close()
    return found


def check(path: Path, truth: dict[str, Any], seed: object) -> int:
    """What is said is right, or it is damage; how often it was that."""
    damaged = 0
    try:
        with perdure.open(path) as store:
            asked = list(questions(store).items())
            random.Random(f"{seed}").shuffle(asked)
            for name, ask in asked:
                try:
                    assert ask() == truth[name], name
                except DAMAGE:
                    damaged += 1
            for name in ASKED:
                damaged += _write(store, name, len(truth[f"log {name}"]))
    except DAMAGE:
        damaged += 1
    return damaged


def _edit(store: perdure.Store, name: str, key: str | None = None) -> int:
    commit = store.agent(name).update(_count, key=key)
    assert commit is not None
    return commit.seq


def _count(draft: Any) -> None:
    draft["n"] = draft.get("n", 0) + 1


def _write(store: perdure.Store, name: str, last: int) -> int:
    """Nothing is begun anew, and nothing done twice."""
    damaged = 0
    called.clear()
    try:
        assert _edit(store, name, "key 1") == 3
    except (*DAMAGE, perdure.Conflict):
        damaged += 1
    try:
        assert store.options(key="paid").run(paying, name, 5) == 5
    except (*DAMAGE, perdure.Conflict):
        damaged += 1
    try:
        assert _edit(store, name) > last
    except (*DAMAGE, perdure.Conflict):
        damaged += 1
    assert not called
    return damaged


@pytest.mark.parametrize("place", [*TREES])
def test_what_stands_at_a_root_is_not_believed(
    whole: bytes, truth: dict[str, Any], pages: dict[str, list[int]], tmp_path: Path, place: str
) -> None:
    others = ["runs_by_timer", "sqlite_autoindex_agents_1", "keys", "inbox", place]
    for other in sorted({pages[name][-1] for name in others} - {pages[place][0]}):
        path = tmp_path / f"{other}.db"
        path.write_bytes(_with(whole, pages[place][0], other))
        check(path, truth, (place, other))


@pytest.mark.parametrize("seed", range(30))
def test_pages_that_are_swapped_or_there_twice(
    whole: bytes, truth: dict[str, Any], pages: dict[str, list[int]], tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    place = choose.choice([name for name in TREES if name != "commits"])
    one = choose.choice(pages[place])
    other = choose.choice([*pages[place], *(page for name in PLACES for page in pages[name])])
    path = tmp_path / "a.db"
    damaged = _with(whole, one, other)
    if seed % 2:
        damaged = _with(damaged, other, one, whole)
    path.write_bytes(damaged)
    check(path, truth, seed)


def test_no_agents_is_not_said_where_their_index_stands_elsewhere(
    whole: bytes, pages: dict[str, list[int]], tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    root = pages["sqlite_autoindex_agents_1"][0]
    path.write_bytes(_with(whole, root, pages["runs_by_timer"][0]))
    with perdure.open(path) as store:
        for call in (
            store.agents,
            lambda: store.agent(NAMES[0]).state,
            lambda: _edit(store, NAMES[0]),
        ):
            with pytest.raises(Corrupt, match="is in the place of another one"):
                call()


OVERWRITE = """
import os, sys
path, place, page = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(path, os.O_RDWR)
os.pwrite(file, os.pread(file, 4096, (page - 1) * 4096), (place - 1) * 4096)
"""


def test_a_log_is_not_empty_where_all_commits_are_gone(
    whole: bytes, pages: dict[str, list[int]], tmp_path: Path
) -> None:
    """An empty page of another table stood at their root."""
    path = tmp_path / "a.db"
    path.write_bytes(_with(whole, pages["commits"][0], pages["leaves"][0]))
    with perdure.open(path) as store:
        for call in (
            lambda: list(store.agent(NAMES[0]).log()),
            lambda: store.agent(NAMES[0]).at(2).state,
            lambda: _edit(store, NAMES[0]),
        ):
            with pytest.raises(Corrupt):
                call()


def test_a_page_that_is_exchanged_later_is_not_believed_for_what_was_there(
    whole: bytes, pages: dict[str, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process had looked once, and took the next page from the disk for that one."""
    monkeypatch.setattr(trees, "FRESH_S", -1.0)
    path = tmp_path / "a.db"
    path.write_bytes(whole)
    with perdure.open(path) as store:
        assert len(store.agents()) == len(NAMES)
        root, other = pages["sqlite_autoindex_agents_1"][0], pages["runs_by_timer"][0]
        told = [sys.executable, "-c", OVERWRITE, str(path), str(root), str(other)]
        subprocess.run(told, check=True)  # by another process: our locks stay
        _edit(store, NAMES[0])  # and who reads has to read anew
        with pytest.raises(Corrupt, match="is in the place of another one"):
            store.agents()


def _with(data: bytes, place: int, page: int, source: bytes = b"") -> bytes:
    """With the page of this number at the place of another."""
    source = source or data
    found = bytearray(data)
    found[(place - 1) * PAGE : place * PAGE] = source[(page - 1) * PAGE : page * PAGE]
    return bytes(found)


def test_every_key_of_a_whole_store_is_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that go on on other pages, and all that is between them; nobody has to ask
    SQLite about a table."""
    asked: list[str] = []
    look = trees.Trees._descend

    def descend(self: trees.Trees, db: Any, name: str, tree: Any, key: Any) -> Any:
        try:
            return look(self, db, name, tree, key)
        except btree.NoPageError:
            asked.append(name)
            raise

    monkeypatch.setattr(trees.Trees, "_descend", descend)
    path = tmp_path / "a.db"
    choose = random.Random(7)
    names = ["".join(choose.choices("aé漢😀", k=choose.randint(1, 190))) for _ in range(150)]
    names = list(dict.fromkeys(names))
    with perdure.open(path, durability="os") as store:
        for name in names:
            _edit(store, name, name)
        for name in names[:20]:
            store.start(waiting, name).signal("go", 1)
    with perdure.open(path) as store:
        for name in names:
            assert not store.agent(name + "x").exists
            assert _edit(store, name, name) == 2
            assert _edit(store, name, name + "x") > 2
            assert len(store.runs(agent=name)) == (name in names[:20])
        assert {info.name for info in store.agents()} == set(names)
        assert not store.runs(status=["done"])
        backend: Any = store.runner.context.backend
        with backend._reading() as db:
            for tree in TREES:
                for key in (trees.FIRST, trees.LAST):
                    db.trees.prove(db, tree, key)
    assert not asked


def test_the_first_page_that_is_no_page_is_no_reason_to_stop(tmp_path: Path) -> None:
    """All of a new store is in its WAL: the main file says nothing yet."""
    path = tmp_path / "a.db"
    with perdure.open(path) as store, perdure.open(path) as other:
        assert not other.agent("a").exists
        store.agent("a").save({"n": 1})
        assert other.agent("a").state == {"n": 1}
        assert not other.agent("b").exists


def test_a_thread_that_looks_is_not_disturbed_by_one_that_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ended with an IndexError: its reader had found the place of a range in the list, and
    before it read that, another thread emptied the list, as each does once a second."""
    proved = trees.Trees(str(tmp_path / "a.db"))
    name, key = next(iter(TREES)), trees.FIRST
    looks: list[Any] = []

    def look(self: trees.Trees, *args: Any) -> Any:
        looks.append(args)
        return trees.LEAST, trees.MOST

    monkeypatch.setattr(trees.Trees, "_look", look)
    db: Any = None
    proved.prove(db, name, key)
    search: Callable[..., int] = vars(trees)["bisect_left"]

    def interrupted(*args: Any) -> int:
        found = search(*args)
        proved._until = 0.0
        monkeypatch.setattr(trees, "bisect_left", search)
        proved.prove(db, next(other for other in TREES if other != name), key)
        return found

    monkeypatch.setattr(trees, "bisect_left", interrupted)
    proved.prove(db, name, key)
    assert len(looks) == 2, "what it had proved, it did not have to look for"
