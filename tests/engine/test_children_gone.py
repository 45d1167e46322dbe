"""Children that are there no more when they are waited for: their agents were purged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure.errors import NeedsAttention, RunFailed
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Async, Place
from tests.engine.waits import verify_all

bugs: list[str] = []
began: list[str] = []


@perdure.step
def look(what: str) -> str:
    return what


@perdure.agent(dict)
def kid(run: perdure.Run[dict]) -> str:
    began.append(run.id)
    if "kid" in bugs:
        raise ValueError("a bug")
    return "fine"


@perdure.agent(dict)
def parent(run: perdure.Run[dict], key: str | None) -> str:
    look("before")
    child = run.options(key=key).start(kid, "k")
    look("behind")
    if "early" in bugs:
        raise ValueError("before it waits")
    try:
        return child.result()
    except ValueError as error:
        return str(error)


@perdure.agent(dict)
def asks_twice(run: perdure.Run[dict]) -> list[str]:
    child = run.start(kid, "k")
    first = child.result()
    run.wait_for("more")
    return [first, child.result()]


@perdure.agent(dict)
def selects(run: perdure.Run[dict]) -> Any:
    child = run.start(kid, "k")
    look("behind")
    if "early" in bugs:
        raise ValueError("before it waits")
    return run.select(child=child, instead=perdure.Signal("instead")).value


KEYS = pytest.mark.parametrize("key", [None, "its-own"])


@pytest.fixture(autouse=True)
def no_bugs() -> Iterator[None]:
    bugs.clear()
    began.clear()
    yield
    bugs.clear()


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    yield place.open()
    verify_all(place)


def child_ends(store: Store) -> str:
    """As a worker does; gives its id."""
    (run,) = store.runs("k")
    try:
        return run_until_waiting(store.options(key=run.key), kid, "k").id
    except ValueError:
        return run.id


def purge(store: Store) -> None:
    store.delete("k")
    store.purge("k")
    assert store.runs("k") == []


def in_place(store: Store, handle: Any, step: str, effects: Any) -> Any:
    handle.retry(step, effects=effects)
    return handle, store.options()


def beside(store: Store, handle: Any, step: str, effects: Any) -> Any:
    fork = handle.fork(step, branch="beside", effects=effects)
    return fork, store.options(key=fork.info.key)


BACK = pytest.mark.parametrize("back", [in_place, beside])


@KEYS
@BACK
@pytest.mark.parametrize("step", ["look#1", "look#2", "child:"])
@pytest.mark.parametrize("how", ["done", "failed"])
def test_i8_the_end_that_was_recorded_of_a_purged_child_is_taken_over(
    store: Store, how: str, step: str, back: Callable[..., Any], key: str | None
) -> None:
    """A run was done, and the agent of its child purged since, when it was set back with
    `effects="reuse"`. It waited for a run that there was none of, and looked every 30 seconds, for
    good: though its own log said how that had ended."""
    bugs[:] = ["kid"] if how == "failed" else []
    handle = run_until_waiting(store, parent, "p", key)
    child = child_ends(store)
    result = run_until_waiting(store, parent, "p", key).result()
    assert result == ("a bug" if how == "failed" else "fine")
    purge(store)
    step = f"child:{child}#1" if step == "child:" else step
    _, options = back(store, handle, step, "reuse")
    assert run_until_waiting(options, parent, "p", key).result() == result
    assert began == [child]


def test_a_child_that_was_purged_is_asked_twice(store: Store) -> None:
    """The same without going back: it was purged between two waits for its end."""
    handle = run_until_waiting(store, asks_twice, "p")
    child_ends(store)
    assert run_until_waiting(store, asks_twice, "p").info.waits == "signal 'more'"
    purge(store)
    handle.signal("more")
    assert run_until_waiting(store, asks_twice, "p").result() == ["fine", "fine"]


@BACK
def test_who_says_that_the_purged_child_is_to_be_taken_gets_its_end(
    store: Store, back: Callable[..., Any]
) -> None:
    """`settle --done` with its id, which the message itself proposed, was refused: there was no
    such run."""
    handle = run_until_waiting(store, parent, "p", None)
    child = child_ends(store)
    run_until_waiting(store, parent, "p", None)
    purge(store)
    run, options = back(store, handle, "look#1", "ask")
    with pytest.raises(NeedsAttention, match="was started before") as stopped:
        run_until_waiting(options, parent, "p", None)
    assert child in stopped.value.hint
    run.settle("start:kid#1", done=child)
    assert run_until_waiting(options, parent, "p", None).result() == "fine"
    assert began == [child]


def failed_early(store: Store, function: Any = parent, *args: Any) -> Any:
    """A run that failed before it waited for its child, which is purged."""
    bugs.append("early")
    with pytest.raises(ValueError, match="before"):
        run_until_waiting(store, function, "p", *args)
    bugs.remove("early")
    child_ends(store)
    purge(store)
    return store.handle(store.runs("p")[0].id)


@KEYS
@BACK
@pytest.mark.parametrize("effects", ["reuse", "ask"])
def test_where_nobody_knows_the_end_of_a_purged_child_it_asks(
    store: Store, effects: str, back: Callable[..., Any], key: str | None
) -> None:
    """It failed before it waited, so nothing says what its child came to. Another one is not
    started before somebody says so: it may do what that one did once more."""
    handle = failed_early(store, parent, key)
    run, options = back(store, handle, "look#1", effects)
    with pytest.raises(NeedsAttention, match="nor is it recorded how it ended"):
        run_until_waiting(options, parent, "p", key)
    assert len(began) == 1
    assert any("--not-done" in way.words for way in run.why().ways)
    run.settle("start:kid#1", done=began[0])
    with pytest.raises(NeedsAttention, match="there is no such run"):
        run_until_waiting(options, parent, "p", key)
    run.settle("start:kid#1", not_done=True)
    assert run_until_waiting(options, parent, "p", key).status == "waiting"
    child_ends(store)
    assert run_until_waiting(options, parent, "p", key).result() == "fine"
    assert len(set(began)) == 2


@KEYS
def test_another_one_is_started_where_that_is_said_before(store: Store, key: str | None) -> None:
    handle = failed_early(store, parent, key)
    handle.retry("look#1", effects="live")
    assert run_until_waiting(store, parent, "p", key).status == "waiting"
    child_ends(store)
    assert run_until_waiting(store, parent, "p", key).result() == "fine"
    assert len(set(began)) == 2


@BACK
def test_i8_a_wait_for_what_nobody_knows_needs_a_person(
    store: Store, back: Callable[..., Any]
) -> None:
    """Set back to behind the start, it waited for the end of the purged child, for good. The way
    out that it names now leads out."""
    handle = failed_early(store, parent, None)
    run, options = back(store, handle, "look#2", "reuse")
    with pytest.raises(NeedsAttention, match="its end is not recorded"):
        run_until_waiting(options, parent, "p", None)
    assert run.status == "needs_attention"
    assert f"perdure retry {run.id} --from 'start:kid#1'" in run.why().ways[0].words
    run.resume()
    with pytest.raises(NeedsAttention, match="its end is not recorded"):
        run_until_waiting(options, parent, "p", None)
    run.retry("start:kid#1")
    with pytest.raises(NeedsAttention, match="nor is it recorded"):
        run_until_waiting(options, parent, "p", None)
    run.settle("start:kid#1", not_done=True)
    run_until_waiting(options, parent, "p", None)
    child_ends(store)
    assert run_until_waiting(options, parent, "p", None).result() == "fine"


@KEYS
@BACK
@pytest.mark.parametrize("step", ["look#1", "look#2"])
def test_i8_a_child_whose_agent_was_deleted_before_it_began_is_not_waited_for(
    store: Store, step: str, back: Callable[..., Any], key: str | None
) -> None:
    """A parent was told that, and failed for a bug before it heard it. Set back, it waited for a
    run that could not begin, for good."""
    bugs.append("early")
    with pytest.raises(ValueError, match="before"):
        run_until_waiting(store, parent, "p", key)
    bugs.clear()
    if store.find("k") is None:
        store.agent("k", initial={}).checkpoint("there")
    store.delete("k")
    run, options = back(store, store.handle(store.runs("p")[0].id), step, "reuse")
    with pytest.raises(RunFailed, match="its agent was deleted"):
        run_until_waiting(options, parent, "p", key)
    assert run.status == "failed" and began == []


def test_something_else_may_come_instead_of_a_purged_child(store: Store) -> None:
    handle = failed_early(store, selects)
    handle.retry("look#1")
    assert run_until_waiting(store, selects, "p").status == "waiting"
    (way, *_) = handle.why().ways
    assert "was purged with its agent" in way.words
    handle.signal("instead", 5)
    assert run_until_waiting(store, selects, "p").result() == 5


def test_an_asynchronous_run_needs_a_person_too(runs: Async) -> None:
    @perdure.agent(dict, name="act")
    async def act(run: perdure.AsyncRun[dict]) -> str:
        child = await run.start(kid, "k")
        await run.call(look, "behind")
        if "early" in bugs:
            raise ValueError("before it waits")
        return await child.result()

    bugs.append("early")
    with pytest.raises(ValueError, match="before"):
        runs.run(act)
    bugs.clear()
    child_ends(runs.store)
    purge(runs.store)
    runs.store.handle(runs.info().id).retry("look#1")
    with pytest.raises(NeedsAttention, match="its end is not recorded"):
        runs.run(act)
    assert runs.info().status == "needs_attention"
