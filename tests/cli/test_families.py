"""`perdure tree`, and `runs --parent` and `--watch`: who started what, and how it is doing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import perdure
from perdure.cli import watching
from perdure.cli.family import Family
from perdure.testing import run_until_waiting
from tests.cli.operator import Operator
from tests.cli.test_process import terminal
from tests.engine.working import wait_until, working


@perdure.agent(dict)
def leaf(run: perdure.Run[dict[str, Any]], number: int) -> int:
    if number == 1:
        raise ValueError("no such batch")
    if number == 2:
        return int(run.wait_for("go", schema=int))
    return number


@perdure.agent(dict)
def middle(run: perdure.Run[dict[str, Any]], name: str) -> str:
    for number in range(3):
        run.start(leaf, f"{name}/batch-{number}", number)
    return name


@perdure.agent(dict)
def top(run: perdure.Run[dict[str, Any]]) -> list[str]:
    return [run.start(middle, name, name).result() for name in ("eu", "us")]


def state_of(store: perdure.Store) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in store.runs():
        found[run.status] = found.get(run.status, 0) + 1
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("family") / "family.db"
    with perdure.open(path, durability="os") as store:
        store.start(top, "all")
        store.agent("alone").save({}, "begun")
        with working(store, top, middle, leaf):
            wait_until(lambda: state_of(store) == {"done": 5, "failed": 2, "waiting": 2})
    return path


@pytest.fixture
def family(made: Path, tmp_path: Path) -> Operator:
    shutil.copy(made, tmp_path / "family.db")
    return Operator(tmp_path / "family.db")


def child(store: Operator, of: str, number: int) -> str:
    return str(store.json("runs", "--parent", of)[number]["id"])


def test_a_tree_shows_who_started_what(family: Operator) -> None:
    lines = family.see("tree", "all").splitlines()
    assert lines[0] == "all/top/main  done"
    assert lines[1].startswith("├─ eu/middle/middle-") and lines[1].endswith("  done")
    assert lines[2].startswith("│  ├─ eu%2Fbatch-0/leaf/leaf-") and lines[2].endswith("  done")
    assert lines[3].endswith("  failed  ValueError: no such batch")
    assert lines[4].startswith("│  └─ ") and lines[4].endswith("  waiting  for signal 'go'")
    assert lines[5].startswith("└─ us/middle/") and lines[8].startswith("   └─ us%2Fbatch-2/")
    assert len(lines) == 9
    leaf = family.json("runs", "eu/batch-2")[0]["id"]
    for name in ("all/top/main", leaf, "eu/batch-2", "us"):  # from wherever one looks
        assert family.see("tree", name).splitlines() == lines


def test_a_tree_as_json(family: Operator) -> None:
    (tree,) = family.json("tree", "eu")
    assert tree["id"] == "all/top/main" and tree["status"] == "done"
    assert [one["agent"] for one in tree["children"]] == ["eu", "us"]
    kids = tree["children"][0]["children"]
    assert [one["status"] for one in kids] == ["done", "failed", "waiting"]
    assert all(one["children"] == [] for one in kids)


def test_what_is_no_tree(family: Operator) -> None:
    assert family.refused("tree", "alone")[0] == 3
    code, said = family.refused("tree", "eu/bach-2")
    assert code == 3 and "did you mean" in said
    assert family.see("tree", "all", "-n", "2").endswith("… and more; -n 0 shows all\n")
    assert len(family.see("tree", "all", "-n", "0").splitlines()) == 9


def test_a_parent_that_is_gone_is_named(family: Operator) -> None:
    with perdure.open(family.path) as store:
        store.delete("all", purge=True)
        store.purge()
    lines = family.see("tree", "eu/batch-2").splitlines()
    assert lines[0] == "all/top/main  gone, with its agent"
    assert len(lines) == 9
    (tree,) = family.json("tree", "us")
    assert tree["gone"] is True and len(tree["children"]) == 2


def test_a_family_that_somebody_made_up_ends() -> None:
    """Each run of two is the other's parent: no log of ours says so."""
    with perdure.open("memory://") as store:
        for name in ("a", "b"):
            run_until_waiting(store, leaf, name, 0)
        a, b = store.runs()
    one, other = replace(a, parent=b.id), replace(b, parent=a.id)
    family = Family.of([one, other])
    assert [run for run, _ in family.below(family.top(one))] == [b.id, a.id]


def test_a_tree_fits_eighty_columns(family: Operator) -> None:
    lines = terminal("tree", "all", store=family.path).splitlines()
    assert max(map(len, lines)) <= 80
    whole = family.see("tree", "all")
    for run in family.json("runs"):
        assert any(run["id"] in line for line in lines), "an id in two pieces cannot be pasted"
        assert run["id"] in whole


# -- runs --parent, --watch ------------------------------------------------------------------


def test_the_runs_that_a_run_started(family: Operator) -> None:
    found = family.json("runs", "--parent", "all")
    assert [one["agent"] for one in found] == ["eu", "us"]
    assert family.json("runs", "-p", found[0]["id"], "--failed")[0]["agent"] == "eu/batch-1"
    assert family.see("runs", "--parent", "eu/batch-0") == "no such runs\n"
    assert family.refused("runs", "--parent", "nobody")[0] == 3


def test_watching_a_parent_ends_when_all_have_ended(
    family: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe: at first all, then those that changed; as lines, or as JSON."""
    eu = child(family, "all", 0)
    passed: list[int] = []

    def pause() -> None:
        passed.append(1)
        assert len(passed) < 10
        if len(passed) == 2:
            with perdure.open(family.path) as store:
                handle = store.handle(store.runs("eu/batch-2")[0].id)
                handle.signal("go", 7)
                run = store.runs("eu/batch-2")[0]
                store.options(key=run.key).run(leaf, "eu/batch-2", 2)

    monkeypatch.setattr(watching, "pause", pause)
    lines = family.see("runs", "--parent", eu, "--watch").splitlines()
    assert [line.split("  ", 2)[2].split("  ")[0] for line in lines][:3] == [
        "done",
        "failed",
        "waiting",
    ]
    assert len(lines) == 4 and "  done" in lines[3] and "eu%2Fbatch-2" in lines[3]
    assert len(passed) == 2
    said = family.see("runs", "--parent", eu, "--watch", "--json").splitlines()
    assert [json.loads(line)["status"] for line in said] == ["done", "failed", "done"]


def test_watching_all_ends_with_ctrl_c(family: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def pause() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "pause", pause)
    assert len(family.see("runs", "--watch").splitlines()) == 9
    assert len(family.see("runs", "--watch", "-n", "2").splitlines()) == 2


def test_a_watched_list_is_drawn_on_a_terminal(family: Operator) -> None:
    with perdure.open(family.path) as store:
        for run in store.runs(unfinished=True):
            store.handle(run.id).cancel("enough")
    us = child(family, "all", 1)
    (last,) = family.json("runs", "us/batch-2")
    for columns in (80, 50, 40):  # longer ids were cut at the edge
        shown = terminal("runs", "-p", us, "--watch", store=family.path, columns=columns)
        assert "cancelled" in shown
        assert last["id"] in shown.replace("\n", "")
