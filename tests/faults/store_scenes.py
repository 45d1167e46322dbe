"""Stores that are opened, closed and copied, and agents that are deleted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import perdure
from perdure.agents import Agent
from perdure.errors import Conflict, NotFound
from perdure.replication import following
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.scenes import Call, begun, grow, scene


def _beside(store: Store, name: str) -> str:
    """The URL of a store that is not there yet, of the same kind."""
    if store.url.startswith("memory:"):
        return f"memory://{name}"
    if store.url.startswith("sqlite:"):
        return store.url.removesuffix(".db") + f"-{name}.db"
    from tests.postgres.server import shared

    return shared().new_url()


def _again(store: Store) -> str:
    """The URL by which it is opened once more."""
    if store.url.startswith("postgres"):
        from tests.postgres.server import shared

        return shared().url(store.url.rpartition("schema=")[2])
    return store.url


def _kept(name: str) -> Callable[[State], None]:
    def change(draft: State) -> None:
        draft.facts[name] = 1

    return change


@scene
def open_again(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent = begun(store, name)
    url = _again(store)

    def call() -> None:
        with perdure.open(url, durability="os") as other:
            assert other.agent(name, State).state.n == 2

    return agent, call


@scene
def open_a_new_one(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, url = begun(store, name), _beside(store, name)

    def call() -> None:
        with perdure.open(url, durability="os") as other:
            one = other.agent("a", State, initial=State())
            one.update(_kept("opened"), key="k")
            one.verify()

    return agent, call


@scene
def close(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, before = begun(store, name), threading.enumerate()
    other = perdure.open(_again(store), durability="os")
    other.agent(name, State).update(grow)
    other.runner.liveness.start()
    other.runner.wakeups.watch(None)
    other.runner.context._own_threads()._pool.submit(lambda: None, lambda job: None)
    closed = False

    def call() -> None:
        nonlocal closed
        again, closed = closed, True
        other.close()
        if not again:
            return
        for thread in threading.enumerate():  # what an interrupted one left, the next one ends
            if thread not in before:
                thread.join(10)
                assert not thread.is_alive(), thread.name

    return agent, call


@scene
def replicate(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, url, copy = begun(store, name), _beside(store, name), _beside(store, f"{name}-copy")
    with perdure.open(url, durability="os") as source:
        for one in "ab":
            begun(source, one)

    def call() -> None:
        for _ in range(2):  # whose commits it could not take is tried again at each beginning
            with following(url, copy) as follower:
                while follower.step().more:
                    pass
        with perdure.open(copy) as target:
            found = {info.name: info.seq for info in target.agents()}
            assert found == {"a": 3, "b": 3}, found
            for one in found:
                target.agent(one, State).verify()

    return agent, call


@scene
def export_and_import(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, url = begun(store, name), _beside(store, name)

    def call() -> None:
        info = store.find(name)
        assert info is not None
        with perdure.open(url, durability="os") as other:
            with suppress(Conflict):  # it is there: of the time before
                other.import_log(store.export_log(info))
            copy = other.agent(name, State)
            copy.verify()
            assert copy.state.n == 2

    return agent, call


@scene
def delete_and_purge(store: Store, name: str) -> tuple[Agent[State], Call]:
    agent, other = begun(store, name), f"{name}-gone"
    begun(store, other)

    def call() -> None:
        with suppress(NotFound):
            store.delete(other, purge=True)
        store.purge(other)
        made = store.agent(other, State, initial=State())
        made.update(_kept("anew"), key="k")
        assert made.state == State(facts={"anew": 1})

    return agent, call
