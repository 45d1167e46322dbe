"""Copies of copies of copies: each log of such a chain is read when it has something to say, and is
removed when nobody reads it any more; counted by lines, not by time."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random

import pytest
from langgraph.checkpoint.base import CheckpointTuple

import perdure
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import thread_deletion
from perdure.model import AgentInfo
from perdure.retention.purging import Purged
from tests.integrations.langgraph.checkpoints import config, get, id_of, put, values_of
from tests.integrations.langgraph.conftest import Place
from tests.work import work_of

FEW, MANY, LONG = 30, 120, 1001
GROWTH_MAX = 1.25 * MANY / FEW

ORDERS: dict[str, Callable[[int], Sequence[int]]] = {
    "the first one first": range,
    "the last one first": lambda count: range(count - 1, -1, -1),
    "by chance": lambda count: Random(count).sample(range(count), count),
}


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with much to do must not look like one that leaves something."""
    monkeypatch.setattr(thread_deletion, "PURGE_S", 600.0)


def chain(saver: PerdureSaver, length: int) -> None:
    """Threads t0, t1, …: each a copy of the one before, from whose last checkpoint it went on, with
    a write for that of its own."""
    at = put(saver, {"n": 0}, config("t0"))
    for number in range(1, length):
        saver.copy_thread(f"t{number - 1}", f"t{number}")
        at = config(f"t{number}", id_of(at))
        saver.put_writes(at, [("out", number)], "task")
        at = put(saver, {"n": number}, at, number + 1)


def stored(saver: PerdureSaver) -> dict[str, int]:
    """Commits that are there of each thread."""
    backend = saver.store.runner.context.backend
    found = {}
    for number in range(MANY):
        if (info := backend.agent(f"t{number}")) is not None:
            found[info.name] = backend.maintain("sizes", no=info.no).commits
    return found


def listed(saver: PerdureSaver, length: int) -> list[CheckpointTuple]:
    return list(saver.list(config(f"t{length - 1}")))


def delete(saver: PerdureSaver, numbers: Iterable[int]) -> None:
    for number in numbers:
        saver.delete_thread(f"t{number}")


def test_the_history_of_a_chain_takes_as_long_as_it_is(place: Place) -> None:
    """For each checkpoint all logs of the chain were asked for writes, by two look-ups each: of 200
    copies the list took 70 times as long as of 20."""
    works = []
    for length in (FEW, MANY):
        with perdure.open("memory://") as store:
            saver = PerdureSaver(store)
            chain(saver, length)
            works.append(work_of(partial(listed, saver, length)))
    assert works[1] < GROWTH_MAX * works[0]

    saver = place.open()
    chain(saver, 70)
    for one in (saver, place.open()):
        told = listed(one, 70)
        assert [at.checkpoint["channel_values"]["n"] for at in told] == [*range(69, -1, -1)]
        assert [at.pending_writes for at in told[1:]] == [
            [("task", "out", number)] for number in range(69, 0, -1)
        ]


def test_a_chain_of_more_than_a_thousand_copies_has_its_beginning() -> None:
    """Each edit of a message was a copy of what one saw, and a step. Behind a thousand of them the
    next one was empty, without a word: the graph began anew. Each copy read all that were before
    it, too."""
    works, last = list[int](), f"t{LONG}"
    with perdure.open("memory://") as store:
        saver = PerdureSaver(store)
        put(saver, {"n": 1}, config("t0"))
        for number in range(1, LONG + 1):
            copying = partial(saver.copy_thread, f"t{number - 1}", f"t{number}")
            if number in (FEW, LONG):
                works.append(work_of(copying))
            else:
                copying()
        assert values_of(saver, config(last)) == {"n": 1}
        assert len(list(saver.list(config(last)))) == 1
    assert works[1] < 1.25 * works[0]


@pytest.mark.parametrize("order", ORDERS)
def test_deleting_a_chain_takes_as_long_as_it_is(order: str) -> None:
    """Each deletion looked at all that was deleted before, and of each at the whole chain up to a
    living copy, for as long as a deletion may take."""
    works = []
    for length in (FEW, MANY):
        with perdure.open("memory://") as store:
            saver = PerdureSaver(store)
            chain(saver, length)
            works.append(work_of(partial(delete, saver, ORDERS[order](length))))
            assert stored(saver) == {f"t{number}": 1 for number in range(length)}
    # By chance some stretches of what is deleted are longer.
    assert works[1] < (1.5 if order == "by chance" else 1) * GROWTH_MAX * works[0]


def test_a_chain_may_be_longer_than_the_stack_is_deep() -> None:
    """Of a thousand copies, deleted one after the other, the last deletions ended with a
    RecursionError, each time anew, and nothing of them was removed."""
    with perdure.open("memory://") as store:
        saver = PerdureSaver(store)
        chain(saver, MANY)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack()) + 120)
        try:
            delete(saver, range(MANY))
        finally:
            sys.setrecursionlimit(limit)
        assert set(stored(saver).values()) == {1}


@pytest.mark.parametrize("seed", range(4))
def test_what_nobody_reads_any_more_goes_at_once(place: Place, seed: int) -> None:
    """Whichever way threads were copied of each other, and in whatever order they are deleted."""
    random, saver = Random(seed), place.open()
    origins: dict[int, int] = {}
    put(saver, {"n": 0}, config("t0"))
    for number in range(1, 14):
        origins[number] = random.randrange(number)
        saver.copy_thread(f"t{origins[number]}", f"t{number}")
        put(saver, {"n": number}, config(f"t{number}"), number + 1)
    living = set(range(14))
    for number in random.sample(range(14), 14):
        (place.open() if random.random() < 0.3 else saver).delete_thread(f"t{number}")
        living.remove(number)
        needed = set(living)
        for one in range(13, 0, -1):
            if one in needed:
                needed.add(origins[one])
        assert {name for name, count in stored(saver).items() if count > 1} == {
            f"t{one}" for one in needed
        }
        for one in living:
            assert values_of(saver, config(f"t{one}")) == {"n": one}


def test_many_that_copies_read_hold_up_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all that is left is read by copies, and to look at it took longer than a deletion may
    take, each deletion and each new thread took so long."""
    saver = place.open()
    chain(saver, 20)
    delete(saver, range(19))
    other, looks = place.open(), list[AgentInfo | None]()
    purge = other._logs.purge

    def noted(seconds: float, of: AgentInfo | None) -> Purged:
        looks.append(of)
        return purge(seconds, of)

    monkeypatch.setattr(thread_deletion, "PURGE_S", 0.0)
    monkeypatch.setattr(other._logs, "purge", noted)
    for number in range(5):
        put(other, {"n": 1}, config(f"other-{number}"))
    assert looks == [None]
    other.delete_thread("other-0")
    assert len(looks) == 2
    assert get(other, config("t19")).checkpoint["channel_values"] == {"n": 19}
