"""Deleting agents: with what was requested of them, many at once, and with the runs that are
executed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import RunHandle
from perdure.engine.control import agent_deletion, deletions
from perdure.engine.dispatch.branch_lease import BranchLease
from perdure.errors import Conflict, NotFound, RunFailed, TimedOut
from perdure.store import Store
from tests.engine.conftest import Place
from tests.engine.waits import Background, go, until, verify_all
from tests.engine.working import BOUND_S, wait_until, working

CANARY = b"CANARY-4711"


@perdure.agent(dict)
def waiting(run: perdure.Run[dict], text: str = "") -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def parent(run: perdure.Run[dict]) -> str:
    try:
        return str(run.start(waiting, "customer/child").result())
    except RunFailed as failed:
        return str(failed.problem)


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


def is_waiting(handle: RunHandle[Any]) -> bool:
    return handle.status == "waiting"


class Held:
    """A function that is executed until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

        @perdure.agent(dict)
        def holding(run: perdure.Run[dict]) -> str:
            run.call(self.inside.set)
            assert self.go_on.wait(BOUND_S)
            run.call(str, "the next step")
            return "held"

        self.function = holding

    def run(self, place: Place, agent: str) -> Background:
        running = Background(lambda: place.open().run(self.function, agent))
        until(lambda: self.inside.is_set() or running.ended)
        return running


# -- what was requested ------------------------------------------------------------------------


def test_an_agent_of_which_a_run_is_only_requested_is_deleted(store: Store) -> None:
    """A customer had asked for something, and asked to be forgotten before a worker came. delete()
    said that there was no such agent, and the request, with its text, stayed."""
    handle = store.start(waiting, "customer", "a secret")
    handle.signal("go", "another")
    assert store.delete("customer", purge=True) == ["customer"]
    assert store.agents() == [] and store.runs() == []
    assert store.runner.context.backend.inbox() == []
    with pytest.raises(NotFound):
        store.delete("customer")
    with pytest.raises(NotFound):
        handle.signal("go", "late")
    again = store.start(waiting, "customer", "a secret")
    assert again.id == "customer/waiting/main~2", "no late message comes to the next one"
    assert [info.deleted for info in store.incarnations("customer")] == [True]
    assert store.purge().agents[0].name == "customer"
    assert store.incarnations("customer")[0].purged
    go(store, waiting, "customer", "a secret")
    assert store.find("customer").incarnation == 2  # type: ignore[union-attr]


def test_its_parent_hears_of_it(store: Store) -> None:
    go(store, parent, "p")
    store.delete("customer/child")
    assert store.run(parent, "p") == "was cancelled: its agent was deleted"


def test_what_is_requested_at_that_moment_is_not_passed_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.open(), place.open()
    first = store.start(waiting, "customer", "first")
    backend = store.runner.context.backend
    append, said = backend.append, list[str]()

    def late(batch: Any) -> Any:
        if not said:
            said.append("now")
            other.options(key="late").start(waiting, "customer", "late")
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    store.delete("customer")
    assert backend.inbox() == [] and store.runs() == []
    with pytest.raises(NotFound):
        assert first.status


def test_one_that_begins_at_that_moment_is_executed_or_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.open(), place.open()
    handle = store.start(waiting, "customer")
    backend = store.runner.context.backend
    append, said = backend.append, list[str]()

    def late(batch: Any) -> Any:
        if not said:
            said.append("now")
            go(other, waiting, "customer")
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    store.delete("customer")
    assert handle.status == "cancelled"
    assert [info.deleted for info in store.incarnations("customer")] == [True]


def test_one_that_a_worker_is_about_to_begin_brings_no_agent_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker had looked at a request when its agent was deleted. It created the agent first, with
    the state that the request brought along, and saw then that there was nothing to begin: the name
    stood in the list of the deleted, the agent was there, and nobody ever deleted it."""
    store, other = place.open(), place.open()
    take, said = BranchLease.take_with, list[str]()

    def late(lease: BranchLease, *with_: Any) -> Any:
        if not said:
            said.extend(other.delete("customer", purge=True))
        return take(lease, *with_)

    monkeypatch.setattr(BranchLease, "take_with", late)
    other.options(initial={"iban": "DE4711"}).start(waiting, "customer")
    with working(store, waiting) as events:
        wait_until(lambda: said)
        other.start(waiting, "another")
        events.wait_for("waiting", "another/waiting/main")
    assert said == ["customer"]
    assert [info.name for info in store.agents()] == ["another"]
    assert [info.deleted for info in store.incarnations("customer")] == [True]


def test_who_was_about_to_begin_one_does_not_begin_it_on_the_next_agent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.open(), place.open()
    take, said = BranchLease.take_with, list[str]()

    def late(lease: BranchLease, *with_: Any) -> Any:
        if not said:
            said.extend(other.delete("customer"))
            other.agent("customer").update(lambda draft: draft.update(n=1))
        return take(lease, *with_)

    store.start(waiting, "customer")
    monkeypatch.setattr(BranchLease, "take_with", late)
    with pytest.raises(RunFailed, match="its agent was deleted"):
        store.run(waiting, "customer")
    assert store.runs() == [] and store.agent("customer").state == {"n": 1}


# -- many --------------------------------------------------------------------------------------


def test_all_of_a_customer_are_deleted_by_how_their_names_begin(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_deletion, "BATCH", 3)
    names = [f"c-7/{number}" for number in range(8)]
    for name in names[::2]:
        store.agent(name).update(lambda draft: draft.update(there=True))
    for name in names[1::2]:
        store.start(waiting, name)
    go(store, waiting, names[0])
    store.options(key="next").start(waiting, names[0])
    for other in ("c-70", "c-8/0"):
        store.agent(other).update(lambda draft: draft.update(there=True))
    kept = store.start(waiting, "c-8/1")
    with pytest.raises(NotFound, match="begins so"):
        store.delete(prefix="c-9")
    assert store.delete(prefix="c-7/", purge=True) == names
    assert [info.name for info in store.agents()] == ["c-70", "c-8/0"]
    assert [run.id for run in store.runs(unfinished=True)] == [kept.id]
    assert {info.name for info in store.purge().agents} == {*names}


def test_those_that_their_runs_make_meanwhile_are_deleted_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a customer started another one, for another agent of that customer, while it was
    being ended. That agent stayed, and was in no list."""
    delete, made = agent_deletion.delete_agents, iter(["c-7/kid", "c-7/kid/kid"])

    def beside(context: Any, names: Any, **how: Any) -> Any:
        for name in made:
            store.start(waiting, name)
            break
        return delete(context, names, **how)

    monkeypatch.setattr(deletions, "delete_agents", beside)
    store.start(waiting, "c-7")
    assert store.delete(prefix="c-7") == ["c-7", "c-7/kid", "c-7/kid/kid"]
    assert store.agents() == [] and store.runs() == []


@pytest.mark.parametrize(
    ("name", "how", "error"),
    [
        (None, {}, TypeError),
        ("a", {"prefix": "b"}, TypeError),
        (None, {"prefix": ""}, ValueError),
        (None, {"prefix": 3}, TypeError),
        ("a", {"cancel_runs": 1}, TypeError),
        ("a", {"timeout": 3}, ValueError),
        ("a", {"timeout": "3", "cancel_runs": True}, TypeError),
    ],
)
def test_what_is_not_said_clearly_deletes_nothing(
    store: Store, name: Any, how: Any, error: type[Exception]
) -> None:
    store.agent("a").update(lambda draft: draft.update(there=True))
    with pytest.raises(error):
        store.delete(name, **how)
    assert [one.name for one in store.agents()] == ["a"]


def test_one_that_is_executed_keeps_none_of_the_others(place: Place) -> None:
    held = Held()
    running = held.run(place, "c/1")
    store = place.open()
    for name in ("c/0", "c/2"):
        store.start(waiting, name)
    with pytest.raises(Conflict, match=r"1 of 3 agents are not deleted.*c/1") as refused:
        store.delete(prefix="c/")
    assert "cancel_runs=True" in refused.value.hint
    assert [info.name for info in store.agents()] == ["c/1"]
    held.go_on.set()
    assert running.join() == "held"


def test_no_byte_of_them_is_left(tmp_path: Path) -> None:
    """Requests that nobody began, what was cancelled before it began, messages, states and keys:
    after a purge and a shrink nothing of it is in any file of the store. (The commit of a deletion,
    which stays, named the runs that it ended, with their keys.)"""
    text = CANARY.decode()
    store = perdure.open(tmp_path / "agents.db")
    for number in range(0, 40, 4):
        agent = store.agent(f"c-7/{number}")
        with agent.edit(text, key=f"{text} {number}") as draft:
            draft["text"] = text
        store.start(waiting, f"c-7/{number}", text)
        store.start(waiting, f"c-7/{number + 1}", text).signal("go", text, by=text)
        store.start(waiting, f"c-7/{number + 2}", text).cancel(text)
        go(store, waiting, f"c-7/{number + 3}", text, key=text)
        store.options(key="x", initial={"text": text}).start(waiting, f"c-7/{number + 4}x")
    store.agent("other").update(lambda draft: draft.update(n=1))
    assert len(store.delete(prefix="c-7/", purge=True)) == 50
    store.purge()
    store.shrink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files if CANARY in path.read_bytes()] == []
    store.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and [path.name for path in files if CANARY in path.read_bytes()] == []


# -- with their runs ---------------------------------------------------------------------------


def test_a_waiting_run_beside_a_worker_is_cancelled_and_then_deleted(store: Store) -> None:
    """A run waited, and was cancelled, and its agent deleted. Its worker had been woken by the
    cancellation, and had the branch when the deletion came: three of four tries raised."""
    with working(store, waiting):
        for number in range(10):
            handle = store.start(waiting, f"a{number}")
            until(partial(is_waiting, handle))
            handle.cancel("enough", wait=True)
            assert handle.status == "cancelled"
            store.delete(f"a{number}")
        for number in range(10, 20):
            handle = store.start(waiting, f"a{number}")
            until(partial(is_waiting, handle))
            handle.cancel("enough")
            store.delete(f"a{number}", cancel_runs=True)
            assert handle.status == "cancelled"
    assert store.agents() == []


def test_an_executed_run_is_ended_with_its_agent(place: Place) -> None:
    held = Held()
    running = held.run(place, "a")
    store = place.open()
    with pytest.raises(Conflict, match="running on it"):
        store.delete("a")
    with pytest.raises(TimedOut, match="is running still"):
        store.delete("a", cancel_runs=True, timeout=0)
    deleting = Background(lambda: store.delete("a", cancel_runs=True))
    held.go_on.set()
    assert deleting.join() == ["a"]
    with pytest.raises(RunFailed, match="its agent is being deleted"):
        running.join()
    assert [info.deleted for info in store.incarnations("a")] == [True]


def test_who_waited_for_a_run_does_not_begin_it_on_the_next_agent(place: Place) -> None:
    """A program waited for a run, and its agent was deleted. It began the run once more, on a new
    agent of that name: what somebody had asked to be forgotten was there again."""
    running = Background(lambda: place.open().run(waiting, "customer"))
    store = place.open()
    until(lambda: store.runs(status=["waiting"]))
    store.delete("customer", cancel_runs=True, purge=True)
    with pytest.raises(RunFailed, match="was cancelled"):
        running.join()
    assert [info.deleted for info in store.incarnations("customer")] == [True]


def test_a_cancellation_is_waited_for(place: Place) -> None:
    held = Held()
    running = held.run(place, "a")
    handle = place.open().handle("a/holding/main")
    with pytest.raises(TimedOut):
        handle.cancel("enough", wait=True, timeout=0)
    with pytest.raises(ValueError, match="wait=True"):
        handle.cancel(timeout=1)
    cancelling = Background(lambda: handle.cancel("enough", wait=True))
    asked = place.open()  # twice: the first one gave up
    wait_until(lambda: len(asked._context.backend.inbox(handle.id, kind="cancel")) == 2)
    held.go_on.set()
    cancelling.join()
    assert handle.status == "cancelled"
    with pytest.raises(RunFailed):
        running.join()


def test_one_whose_executor_dies_meanwhile_is_ended_by_who_waits(place: Place) -> None:
    """There is nobody left who could hear of it."""
    store = place.open()
    with store.agent("a").edit("there") as draft:
        draft["n"] = 1
    go(store, waiting, "a")
    owner = place.open()
    info = store.find("a")
    assert info is not None
    owner.runner.liveness.start()
    owner.runner.context.take_lease(info.no, "main")
    handle = store.handle("a/waiting/main")
    cancelling = Background(lambda: handle.cancel("enough", wait=True))
    until(lambda: store.runner.context.backend.inbox(kind="cancel"))
    owner.close()
    cancelling.join()
    assert handle.status == "cancelled"


def test_a_run_does_not_wait_for_its_own_end(store: Store) -> None:
    said: list[str] = []

    @perdure.agent(dict)
    def ending_itself(run: perdure.Run[dict]) -> None:
        for end in (
            lambda: store.handle("a/ending_itself/main").cancel(wait=True),
            lambda: store.delete("a", cancel_runs=True),
        ):
            try:
                end()
            except Conflict as refused:
                said.append(refused.problem)

    with pytest.raises(RunFailed):
        store.run(ending_itself, "a")
    assert len(said) == 2 and all("wait for itself" in words for words in said)


def test_from_an_event_loop(place: Place) -> None:
    """The function and who deletes its agent share one loop: neither may hold it up."""
    inside = asyncio.Event()

    @perdure.agent(dict)
    async def resting(run: perdure.AsyncRun[dict]) -> None:
        inside.set()
        await run.wait_for("go")

    async def main() -> None:
        async with perdure.open_async(place.url, durability="os") as store:
            running = asyncio.ensure_future(store.run(resting, "a/1"))
            await asyncio.wait_for(inside.wait(), BOUND_S)
            await store.start(waiting, "a/2")
            deleted = await store.delete(prefix="a/", cancel_runs=True, timeout=BOUND_S)
            assert deleted == ["a/1", "a/2"]
            with pytest.raises(RunFailed):
                await asyncio.wait_for(running, BOUND_S)
            assert await store.agents() == []

    asyncio.run(main())
