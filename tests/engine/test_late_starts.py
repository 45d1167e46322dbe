"""A run is asked for while somebody else deletes its agent: before each call of the backend."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

import perdure
from perdure.errors import RunFailed
from perdure.model import FINISHED
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place
from tests.engine.waits import Clock


@perdure.agent(dict)
def kid(run: perdure.Run[dict]) -> str:
    return "fine"


@perdure.agent(dict)
def parent(run: perdure.Run[dict], agent: str) -> str:
    return run.start(kid, agent).result()


@contextmanager
def acting_before(number: int, store: Store, act: Callable[[], object]) -> Iterator[list[str]]:
    """Acts before a call of the store's backend by this thread, by its number; gives its name."""
    backend: Any = store._context.backend
    names = [name for name in dir(backend) if name[0] != "_" and callable(getattr(backend, name))]
    calls, acted, here = itertools.count(1), list[str](), threading.get_ident()
    inside = False

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*args: Any, **more: Any) -> Any:
            nonlocal inside
            if inside or threading.get_ident() != here:
                return call(*args, **more)
            inside = True
            try:
                if next(calls) == number:
                    acted.append(name)
                    act()
                return call(*args, **more)
            finally:
                inside = False

        return before

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(backend, name, counted(name, getattr(backend, name)))
        yield acted


def delete(store: Store, agent: str) -> None:
    info = store.find(agent)
    if info is None or info.deleted:
        create(store, agent)
    store.delete(agent)


def create(store: Store, agent: str) -> None:
    store.agent(agent, initial={}).checkpoint("there")


@pytest.mark.parametrize(
    "prepare", [lambda *_: None, create, delete], ids=["no agent", "an agent", "a deleted one"]
)
def test_i8_what_is_started_beside_a_deletion_can_begin(
    place: Place, prepare: Callable[[Store, str], object]
) -> None:
    """Its agent was deleted when the run's id was made and its order was not in yet: that was of an
    agent which there is no more. It waited for good; nobody was told, and no worker could begin it.
    Now the next agent of that name is asked for, as if the deletion had come first."""
    store, other = place.open(), place.open()
    names = []
    for number in itertools.count(1):
        agent = f"k{number}"
        prepare(other, agent)
        with acting_before(number, store, partial(delete, other, agent)) as acted:
            handle = store.start(kid, agent)
        names += acted
        if acted == ["notify"]:  # the order was in, and ended with the agent
            assert store.runs(agent) == []
            continue
        assert handle.status == "pending"
        assert run_until_waiting(store, kid, agent).id == handle.id
        assert [run.status for run in store.runs(agent)] == ["done"]
        if not acted:
            break
    assert names == ["agent", "send", "notify"]


def test_i8_a_child_whose_agent_is_deleted_beside_its_start_is_not_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, of a run that another starts: its order comes along with a commit."""
    store, other, clock = place.open(), place.open(), Clock(monkeypatch)
    results = set()
    for number in itertools.count(1):
        one, agent = f"p{number}", f"k{number}"
        create(other, agent)
        with (
            acting_before(number, store, partial(delete, other, agent)) as acted,
            suppress(RunFailed),
        ):
            run_until_waiting(store, parent, one, agent)
        for run in store.runs(agent, status=["pending"]):
            assert run_until_waiting(store.options(key=run.key), kid, agent).id == run.id
        clock.forward(60)  # who was not told looks again
        try:
            results.add(run_until_waiting(store, parent, one, agent).result())
        except RunFailed as error:
            results.add(error.problem)
        assert all(run.status in FINISHED for run in (*store.runs(one), *store.runs(agent)))
        if not acted:
            break
    assert results == {"fine", "was cancelled: its agent was deleted"}
