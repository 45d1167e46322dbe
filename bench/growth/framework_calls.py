"""What frameworks call, on a thread or a store of items that grows.

Imported where it is measured: other rows are not to pay for LangGraph's modules.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6

from bench.growth.calls import Measure, call, often
from bench.growth.places import HISTORIES, Place
from perdure import Store
from perdure.integrations.langgraph import PerdureSaver, PerdureStore

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
NAMESPACE = ("memories", "a")
PAGE = 5

_numbers = count(1)


def _put(saver: PerdureSaver, at: RunnableConfig) -> RunnableConfig:
    """The next checkpoint, of a state that is as large as the one before."""
    number = next(_numbers)
    made = Checkpoint(
        v=4,
        id=str(uuid6(clock_seq=number % 16000)),
        ts=datetime.now(UTC).isoformat(),
        channel_values={"n": number},
        channel_versions={"n": number},
        versions_seen={},
        updated_channels=["n"],
    )
    metadata: Any = {"source": "loop", "step": number, "parents": {}}
    if "checkpoint_id" in at["configurable"]:
        saver.put_writes(at, [("n", number)], str(number))
    return saver.put(at, made, metadata, made["channel_versions"])


def _thread(store: Store, length: int) -> None:
    saver, at = PerdureSaver(store), CONFIG
    for _ in range(length):
        at = _put(saver, at)


def _forked(store: Store, length: int) -> None:
    """Somebody went back to each checkpoint, and on from there."""
    saver, at = PerdureSaver(store), CONFIG
    all_of_it = [at := _put(saver, at) for _ in range(length)]
    for one in all_of_it:
        _put(saver, one)


def _items(store: Store, length: int) -> None:
    items = PerdureStore(store)
    for number in range(length):
        items.put(NAMESPACE, f"k{number:06}", {"text": "x", "n": number})


HISTORIES |= {"thread": _thread, "forked": _forked, "items": _items}


@call("PerdureSaver.get_tuple", history="thread")
def get_tuple(place: Place, measure: Measure) -> None:
    often(measure, lambda _: PerdureSaver(place.store).get_tuple(CONFIG))


@call("PerdureSaver.put", "PerdureSaver.put_writes", history="thread")
def put(place: Place, measure: Measure) -> None:
    saver = PerdureSaver(place.store)
    found = saver.get_tuple(CONFIG)
    assert found is not None
    at = [found.config]

    def again(_: int) -> None:
        at[0] = _put(saver, at[0])

    often(measure, again)


@call("PerdureSaver.list", history="thread", what="PerdureSaver.list, a page")
def list_page(place: Place, measure: Measure) -> None:
    often(measure, lambda _: list(PerdureSaver(place.store).list(CONFIG, limit=PAGE)))


@call("PerdureSaver.list", history="thread", growth="linear", what="PerdureSaver.list, all")
def list_all(place: Place, measure: Measure) -> None:
    measure(lambda: list(PerdureSaver(place.store).list(CONFIG)))


@call("PerdureSaver.copy_thread", history="thread")
def copy_thread(place: Place, measure: Measure) -> None:
    saver = PerdureSaver(place.store)
    often(measure, lambda number: saver.copy_thread("t", f"t{number}"))


@call("PerdureSaver.delete_thread", history="thread", growth="linear")
def delete_thread(place: Place, measure: Measure) -> None:
    saver = PerdureSaver(place.store)
    measure(lambda: saver.delete_thread("t"))


@call("PerdureSaver.trim", history="thread", growth="linear")
@call(
    "PerdureSaver.trim",
    history="forked",
    growth="linear",
    what="PerdureSaver.trim of a thread with as many forks",
)
def trim(place: Place, measure: Measure) -> None:
    saver, [info] = PerdureSaver(place.store), place.store.agents()
    measure(lambda: saver.trim(info.seq - 5))


@call(
    "Agent.verify",
    history="forked",
    growth="linear",
    what="Agent.verify of a thread with as many forks",
)
def verify(place: Place, measure: Measure) -> None:
    [info] = place.store.agents()
    measure(place.store.agent_of(info).verify)


@call("PerdureStore.get", history="items")
def get_item(place: Place, measure: Measure) -> None:
    items = PerdureStore(place.store)
    often(measure, lambda number: items.get(NAMESPACE, f"k{number:06}"))


@call("PerdureStore.put", "PerdureStore.delete", history="items")
def put_item(place: Place, measure: Measure) -> None:
    items = PerdureStore(place.store)

    def again(number: int) -> None:
        items.put(NAMESPACE, f"new-{number}", {"n": number})
        items.delete(NAMESPACE, f"new-{number}")

    often(measure, again)


@call("PerdureStore.search", "PerdureStore.list_namespaces", history="items", growth="linear")
def search(place: Place, measure: Measure) -> None:
    items = PerdureStore(place.store)
    measure(lambda: (items.search(NAMESPACE, limit=PAGE), items.list_namespaces()))
