"""Children that end more than once: they were set back, and gone on with."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.errors import RunFailed
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place
from tests.engine.waits import verify_all

bugs: list[Exception] = []


@perdure.step
def look(what: str) -> str:
    return what


@perdure.agent(dict)
def kid(run: perdure.Run[dict]) -> str:
    look("kid")
    if bugs:
        raise bugs[-1]
    return str(run.wait_for("go"))


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> str:
    look("parent")
    return run.start(kid, "k").result()


@perdure.agent(dict)
def patient(run: perdure.Run[dict]) -> str:
    child = run.start(kid, "k")
    while True:
        try:
            return child.result()
        except (ValueError, RunFailed):
            run.wait_for("mended")


@pytest.fixture
def store(place: Place) -> Any:
    bugs.clear()
    yield place.open()
    bugs.clear()
    verify_all(place)


def child_of(store: Store) -> Any:
    return store.handle(store.runs("k")[0].id)


def go_on(store: Store) -> Any:
    """With the child, as a worker does."""
    run = child_of(store)
    return run_until_waiting(store.options(key=run.info.key), kid, "k")


def ended(store: Store, function: Any, how: str) -> Any:
    """A run of that on agent p, whose child has ended badly."""
    bugs[:] = [ValueError("a bug")] if how == "failed" else []
    run = run_until_waiting(store, function, "p")
    if how == "failed":
        with pytest.raises(ValueError, match="a bug"):
            go_on(store)
    else:
        go_on(store)
        child_of(store).cancel("by mistake")
    bugs.clear()
    return run


@pytest.mark.parametrize("how", ["failed", "cancelled"])
@pytest.mark.parametrize("step", ["look#1", "start:kid#1"])
def test_i8_a_parent_is_told_of_its_childs_second_end_too(
    store: Store, how: str, step: str
) -> None:
    """A child failed for a bug, and its parent with it. Both were retried, and the parent waited
    when the child came to its end: it was not told, as it had been told of the first one, and
    waited for ever."""
    run = ended(store, parent, how)
    with pytest.raises((ValueError, RunFailed)):
        run_until_waiting(store, parent, "p")
    child_of(store).retry("look#1")
    assert go_on(store).status == "waiting"
    run.retry(step, effects="reuse")
    assert run_until_waiting(store, parent, "p").status == "waiting"
    child_of(store).signal("go", "fine")
    assert go_on(store).status == "done"
    assert run_until_waiting(store, parent, "p").status == "done"
    assert run.result() == "fine"


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_parent_that_waits_anew_is_told(store: Store, how: str) -> None:
    """The same without a retry of the parent: it caught the error, and asked again."""
    run = ended(store, patient, how)
    assert run_until_waiting(store, patient, "p").info.waits == "signal 'mended'"
    child_of(store).retry("look#1")
    assert go_on(store).status == "waiting"
    run.signal("mended")
    assert "run k" in run_until_waiting(store, patient, "p").info.waits
    child_of(store).signal("go", "fine")
    assert go_on(store).status == "done"
    assert run_until_waiting(store, patient, "p").result() == "fine"


@pytest.mark.parametrize("function", [parent, patient])
@pytest.mark.parametrize("how", ["failed", "cancelled"])
@pytest.mark.parametrize("done", [True, False])
def test_an_end_that_was_taken_back_before_the_parent_heard_of_it_is_none(
    store: Store, function: Any, how: str, done: bool
) -> None:
    """No worker had the parent while its child failed, was retried, and ended well: it was told
    the first end, and failed of it."""
    run = ended(store, function, how)
    child_of(store).retry("look#1")
    assert go_on(store).status == "waiting"
    if not done:
        assert run_until_waiting(store, function, "p").status == "waiting"
    child_of(store).signal("go", "fine")
    assert go_on(store).status == "done"
    assert run_until_waiting(store, function, "p").status == "done"
    assert run.result() == "fine"


@pytest.mark.parametrize("waits", [True, False])
def test_a_child_that_was_set_back_ends_with_its_parent_all_the_same(
    store: Store, waits: bool
) -> None:
    """It had been cancelled once. That its parent was to end it was taken for the same message: it
    went on, and nobody could end it together with the parent any more."""
    run = ended(store, parent, "cancelled")
    child_of(store).retry("look#1")
    if waits:
        assert go_on(store).status == "waiting"
    run.cancel("all of it")
    with pytest.raises(RunFailed, match=f"with {run.id}"):
        go_on(store)
    assert store.runs(unfinished=True) == []
    assert store.runner.context.backend.inbox() == []


@pytest.mark.parametrize("step", ["look#1", "wait_for:go#1"])
def test_a_fork_of_a_child_is_nobodys_child(store: Store, step: str) -> None:
    """A run that another one had started was forked. Its row said that nobody had started the fork,
    and the record of that said who: `verify` called the agent corrupt, which nothing was wrong
    with. In copies, whose rows follow from the log, the fork ended with a parent of another."""
    run = run_until_waiting(store, parent, "p")
    go_on(store)
    fork = child_of(store).fork(step, branch="what-if", effects="reuse")
    store.agent("k").verify()
    run.cancel("no use")
    with perdure.open("memory://") as copy:
        for name in ("p", "k"):
            info = store.find(name)
            assert info is not None
            copy.import_log(store.export_log(info))
        for place in (store, copy):
            handle = place.handle(fork.id)
            assert handle.info.parent == ""
            handle.signal("go", "fine")
            options = place.options(key=fork.info.key)
            assert run_until_waiting(options, kid, "k").result() == "fine"
            place.agent("k").verify()
