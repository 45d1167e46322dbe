"""Children that several runs have: one started it, others took it over, or are forks of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import replication
from perdure.errors import RunFailed
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place
from tests.engine.test_restored_mail import now
from tests.engine.waits import verify_all

Handle = perdure.RunHandle[Any]
KID = "kid/child/k"


@perdure.step
def look(what: str) -> str:
    return what


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> Any:
    look("first")
    run.wait_for("start")
    kid = run.options(key="k").start(child, "kid")
    look("started")
    return kid.result()


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    yield place.open()
    verify_all(place)


def go(store: Store, run: Handle) -> Handle:
    return run_until_waiting(store.options(key=run.info.key), parent, "p")


def kid(store: Store) -> Handle:
    return run_until_waiting(store.options(key="k"), child, "kid")


def start(store: Store, *runs: Handle) -> None:
    """Each comes to the start, one after the other; the child begins."""
    for run in runs:
        run.signal("start")
        assert "run kid" in go(store, run).info.waits
    kid(store)


def fork_first(store: Store) -> tuple[Handle, Handle]:
    original = run_until_waiting(store, parent, "p")
    fork = original.fork("look#1", branch="what-if")
    go(store, fork)
    start(store, fork, original)
    return fork, original


def original_first(store: Store) -> tuple[Handle, Handle]:
    original = run_until_waiting(store, parent, "p")
    fork = original.fork("look#1", branch="what-if")
    go(store, fork)
    start(store, original, fork)
    return original, fork


def forked_behind(store: Store) -> tuple[Handle, Handle]:
    original = run_until_waiting(store, parent, "p")
    start(store, original)
    fork = original.fork("look#2", branch="what-if")
    return original, go(store, fork)


def taken_from_before(store: Store) -> tuple[Handle, Handle]:
    original = run_until_waiting(store, parent, "p")
    start(store, original)
    fork = original.fork("start:child#1", branch="what-if", effects="reuse")
    return original, go(store, fork)


def by_request(store: Store, run: Handle) -> None:
    run.cancel("no use")
    assert run.status == "cancelled"


def by_its_drive(store: Store, run: Handle) -> None:
    """Somebody has it at that moment."""
    run.signal("look")
    run.cancel("no use")
    with pytest.raises(RunFailed):
        go(store, run)


def by_a_move(store: Store, run: Handle) -> None:
    store.agent("p", branch=run.info.branch).rollback(1, cancel_run=True)
    assert run.status == "cancelled"


HAD = pytest.mark.parametrize("had", [fork_first, original_first, forked_behind, taken_from_before])
HOW = pytest.mark.parametrize("how", [by_request, by_its_drive, by_a_move])
Had = Callable[[Store], tuple[Handle, Handle]]


@HAD
@HOW
def test_a_child_goes_on_with_another_run_that_has_it(
    store: Store, had: Had, how: Callable[[Store, Handle], None]
) -> None:
    """A what-if came to a start under a key, and then the run that it was made from, which took the
    child over. The what-if was of no use and was cancelled, the child with it: the run that nobody
    had meant failed of that its child was cancelled. So, too, the other way round."""
    starter, other = had(store)
    how(store, starter)
    kid(store).signal("go", 5)
    assert kid(store).result() == 5
    other.signal("look")  # else it looks after half a minute
    assert go(store, other).result() == 5


@HAD
@HOW
@pytest.mark.parametrize("first", ["starter", "other"])
def test_the_last_that_is_cancelled_ends_it(
    store: Store, had: Had, how: Callable[[Store, Handle], None], first: str
) -> None:
    """Kept for the one that went on, it would go on for nobody."""
    starter, other = had(store)
    both = (starter, other) if first == "starter" else (other, starter)
    how(store, both[0])
    assert kid(store).status == "waiting"
    how(store, both[1])
    with pytest.raises(RunFailed, match=f"with {both[1].id}"):
        kid(store)
    assert store.runs(unfinished=True) == []


def test_it_ends_with_all_that_have_it(store: Store) -> None:
    """Each of them was left out for the other one, as their ends were not known yet."""
    fork_first(store)
    store.delete("p")
    with pytest.raises(RunFailed, match="with p/parent/main@what-if"):
        kid(store)


def test_one_whose_starter_ended_well_stays_when_another_is_cancelled(store: Store) -> None:
    """What it does is wanted, as its starter left it."""

    @perdure.agent(dict)
    def leaves(run: perdure.Run[dict], waits: bool) -> None:
        look("first")
        run.options(key="k").start(child, "kid")
        run.wait_for("end")

    starter = run_until_waiting(store, leaves, "p", True)
    kid(store)
    fork = starter.fork("wait_for:end#1", branch="what-if")
    starter.signal("end")
    assert run_until_waiting(store, leaves, "p", True).status == "done"
    fork.cancel()
    assert kid(store).status == "waiting"


def test_a_copy_leaves_it_to_those_that_go_on(tmp_path: Path) -> None:
    """What runs tell each other is told anew in a store that was filled from logs: there a child
    was told to end with the what-if that had started it, also where its original went on with it.
    """
    urls = f"sqlite:///{tmp_path / 'a'}.db", f"sqlite:///{tmp_path / 'b'}.db"
    with perdure.open(urls[0]) as store:
        fork, original = fork_first(store)
        fork.cancel()
        one = now(store)
        original.cancel()
    replication.restore(*urls, one)
    with perdure.open(urls[1]) as store, perdure.open("memory://") as copy:
        assert kid(store).status == "waiting"
        for name in ("p", "kid"):
            info = store.find(name)
            assert info is not None
            copy.import_log(store.export_log(info))
        assert kid(copy).status == "waiting"
        for place in (store, copy):
            place.handle(original.id).cancel()
            with pytest.raises(RunFailed, match="with p/parent/main"):
                kid(place)


@perdure.agent(dict)
def shipping(run: perdure.Run[dict], turn: int = 0) -> Any:
    look("first")
    if not turn:
        run.wait_for("start")
        return run.again(turn + 1)
    return run.options(key="k").start(child, "kid").result()


@pytest.mark.parametrize("first", [True, False])
def test_a_run_and_its_fork_have_one_child_in_a_later_turn_too(store: Store, first: bool) -> None:
    """A fork had begun the child of its next turn. The turn of its origin began behind that, and
    did not see it: the child was not there, and the hints went round in a circle."""
    original = run_until_waiting(store, shipping, "p")
    fork = original.fork("look#1", branch="what-if")
    runs = [fork, original] if first else [original, fork]
    for run in (fork, original):
        run.signal("start")
    for run in runs:
        asked = store.options(key=run.info.key)
        assert "run kid" in run_until_waiting(asked, shipping, "p").info.waits
    kid(store).signal("go", "shipped")
    kid(store)
    for run in runs:
        assert store.options(key=run.info.key).run(shipping, "p") == "shipped"
