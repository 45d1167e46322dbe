"""What somebody else does to a thread between a look at it and the commit that follows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import config, get, line, put
from tests.integrations.langgraph.in_between import Act, Between, History, Shown, shown, tried
from tests.integrations.langgraph.test_going_back import agent_of


def saver_of(path: Path) -> Any:
    return closing(PerdureSaver.from_url(str(path), durability="os"))


class Base:
    """A store, of which a copy is made for each try."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = count()

    def after(self, *acts: Act) -> tuple[list[bool], Shown]:
        """Which of them are taken, one after the other, and what is there then."""
        copy = self._copy()
        taken = []
        for act in acts:
            with saver_of(copy) as saver:
                taken.append(tried(saver, act))
        return taken, look(copy)

    def in_between(self, first: Act, second: Act, every: int) -> Iterator[tuple[list[bool], Shown]]:
        """As `after`, for every so many-th call of the store before which the second acts; by
        savers that know the thread, and by new ones."""
        for knows in (False, True):
            for number in count(1 + knows, every):
                copy = self._copy()
                with saver_of(copy) as saver, saver_of(copy) as other:
                    if knows:
                        shown(saver)
                        shown(other)
                    taken = [False, False]
                    between = Between(number, lambda: taken.__setitem__(1, tried(other, second)))  # noqa: B023
                    with between.calls_of(saver):
                        taken[0] = tried(saver, first)
                if not between.acted:
                    break
                yield taken, look(copy)

    def _copy(self) -> Path:
        path = self._path.with_name(f"copy {next(self._names)}.db")
        shutil.copyfile(self._path, path)
        return path


def look(path: Path) -> Shown:
    with saver_of(path) as saver:
        return shown(saver)


def has(one: Shown, other: Shown) -> bool:
    return all(one.get(at) == value for at, value in other.items())


def check(base: Base, first: Act, second: Act, *, trims: str = "", every: int = 1) -> None:
    """What comes of the two is as if one came after the other.

    Args:
        every: see `Base.in_between`.
        trims: which of them: it may keep more than alone.
    """
    alone, besides, untouched = (base.after(*acts)[1] for acts in ([first], [second], []))
    orders = [base.after(first, second)[1], base.after(second, first)[1]]
    for taken, found in base.in_between(first, second, every):
        if all(taken):
            right = orders
        elif any(taken):
            right = [alone if taken[0] else besides]
        else:
            right = [untouched]
        if trims and found not in right:
            most = besides if trims == "first" else alone
            assert has(most, found) or has(untouched, found)
            assert any(has(found, one) for one in (*right, alone, besides))
        else:
            assert found in right


def of_two_runs(saver: PerdureSaver) -> None:
    """Four checkpoints of one, and three of another."""
    at: Any = None
    for number in range(7):
        at = put(saver, {"n": number}, at, number + 1, run_id="a" if number < 4 else "b")


def gone_back_from(saver: PerdureSaver) -> None:
    """And of what stands some was removed."""
    of_two_runs(saver)
    agent_of(saver).rollback(2)
    line(saver, 3, get(saver).config)
    put(saver, {"n": "inner"}, config(ns="sub:1"), 9, run_id="c")
    saver.delete_for_runs(["c"])


def back(saver: PerdureSaver) -> None:
    agent_of(saver).rollback(2)


def removing(run: str) -> Act:
    return lambda saver: saver.delete_for_runs([run])


def prune(saver: PerdureSaver) -> None:
    saver.prune(["t"])


def copy(saver: PerdureSaver) -> None:
    saver.copy_thread("t", "u")


def delete(saver: PerdureSaver) -> None:
    saver.delete_thread("t")


def write(saver: PerdureSaver) -> None:
    """As LangGraph does, before the checkpoint itself comes."""
    at = config(checkpoint_id="1fffffff-0000-6000-8000-000000000000")
    saver.put_writes(at, [("out", 1)], "task")


def trim(saver: PerdureSaver) -> None:
    saver.trim(timedelta(0), ["t"])


def go_on(saver: PerdureSaver) -> None:
    put(saver, {"n": "more"}, get(saver).config, 99, id="1fffffff-0000-6000-8000-000000000000")


@pytest.mark.parametrize(
    ("filled", "first", "second"),
    [
        pytest.param(of_two_runs, prune, back, id="a rollback: the whole thread was hidden"),
        pytest.param(of_two_runs, prune, go_on, id="a put: it was hidden with the others"),
        pytest.param(of_two_runs, removing("a"), removing("b"), id="a removal: it was forgotten"),
        pytest.param(gone_back_from, copy, back, id="a rollback: the copy showed what was removed"),
        pytest.param(gone_back_from, copy, delete, id="its end: the copy showed what was removed"),
        pytest.param(of_two_runs, write, delete, id="its end: a bare StopIteration"),
        pytest.param(of_two_runs, removing("b"), copy, id="a copy: it showed what was removed"),
    ],
)
def test_what_came_between_a_look_and_its_commit(
    tmp_path: Path, filled: Act, first: Act, second: Act
) -> None:
    """A removal, and a copy, are made of what was seen of the thread. What had come since was taken
    for what had been there."""
    with saver_of(tmp_path / "base.db") as saver:
        filled(saver)
    check(Base(tmp_path / "base.db"), first, second)


def test_a_trim_beside_a_graph_that_goes_on(tmp_path: Path) -> None:
    """What came while it looked was taken for one of those that it had seen: a bare KeyError, and
    no thread behind that one was trimmed."""
    with saver_of(tmp_path / "base.db") as saver:
        gone_back_from(saver)
        put(saver, {"n": "inner"}, config(ns="sub:1"), 10)
    check(Base(tmp_path / "base.db"), trim, go_on, trims="first", every=3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_calls_by_chance_come_one_after_the_other(tmp_path: Path, seed: int) -> None:
    history = History(seed)
    with saver_of(tmp_path / "base.db") as saver:
        history.fill(saver)
    (name, first), (other, second) = history.act(), history.act()
    trims = "first" if name == "trim" else "second" if other == "trim" else ""
    check(Base(tmp_path / "base.db"), first, second, trims=trims)
