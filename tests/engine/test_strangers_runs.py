"""Runs under the ids of others' children, in stores into which logs were taken that were written
elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict, NeedsAttention, PerdureError, RunFailed
from perdure.state.runs.family_messages import to_parents
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Place
from tests.simulation.house import Once

ANN, BOB, KID = "ann/parent/main", "bob/parent/main", "kid/child/step-1"


@perdure.agent(dict)
def child(run: perdure.Run[dict], number: int) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def parent(run: perdure.Run[dict], late: bool = False) -> Any:
    if late:
        run.wait_for("late")
    try:
        return run.options(key="step-1").start(child, "kid", 1).result()
    except (Conflict, RunFailed) as error:
        return error.problem


def waits(store: Store, name: str, *args: Any) -> perdure.RunHandle[Any]:
    return run_until_waiting(store, parent, name, *args)


def kid(store: Store, number: int = 1) -> perdure.RunHandle[Any]:
    return run_until_waiting(store.options(key="step-1"), child, "kid", number)


def take(source: Store, store: Store, name: str) -> None:
    info = source.find(name)
    assert info is not None
    store.import_log(list(source.export_log(info)))


def messages(store: Store) -> list[tuple[str, str]]:
    backend = store.runner.context.backend
    return [(one.kind, one.run) for one in backend.inbox()]


@pytest.fixture
def stores(place: Place) -> Iterator[tuple[Store, Store]]:
    """Ann's, and the one that her log comes to."""
    with perdure.open("memory://") as source:
        yield source, place.open()


def of_bob(store: Store) -> None:
    waits(store, "bob")
    kid(store)


def asked_by_bob(store: Store) -> None:
    waits(store, "bob")


def of_nobody(store: Store) -> None:
    kid(store)


def with_other_arguments(store: Store) -> None:
    kid(store, 2)


STRANGERS = pytest.mark.parametrize(
    "stranger", [of_bob, asked_by_bob, of_nobody, with_other_arguments]
)
BEGUN = pytest.mark.parametrize("begun", [False, True], ids=["asked for", "begun"])


@STRANGERS
@BEGUN
@pytest.mark.parametrize("first", [False, True], ids=["there before", "came later"])
def test_a_strangers_run_is_not_taken_for_a_child(
    stores: tuple[Store, Store], stranger: Callable[[Store], None], begun: bool, first: bool
) -> None:
    """Ann's run waited for its child, "step-1" of agent "kid". Her agent was imported into a store
    where Bob had such a run, too, as it had the same program. Hers heard of the end of his, and was
    done with his data for a result, and its report showed it. Nobody had asked who had started that
    run."""
    source, store = stores
    waits(source, "ann")
    if begun or first:  # else it begins in the store, as Ann's
        kid(source)
    if not first:
        stranger(store)
    take(source, store, "ann")
    if first:
        stranger(store)
    if not store.handle(KID).info.started:
        kid(store)
    assert [way.words for way in store.handle(ANN).why().ways if "is not there" in way.words]
    store.handle(KID).signal("go", "Bob's secret")
    assert kid(store, 2 if stranger is with_other_arguments else 1).result() == "Bob's secret"
    run = store.handle(ANN)
    assert waits(store, "ann").status == "waiting" and ("signal", ANN) not in messages(store)
    assert run.report().children == []
    run.signal("look", 1)
    with pytest.raises(NeedsAttention, match=r"was started by (run bob/parent/main|somebody else)"):
        waits(store, "ann")
    run.retry("start:child#1", effects="reuse")
    with pytest.raises(NeedsAttention, match="is not there"):
        waits(store, "ann")
    run.settle("start:child#1", not_done=True)
    assert waits(store, "ann").result().startswith("was started by ")
    if stranger in (of_bob, asked_by_bob):
        assert waits(store, "bob").result() == "Bob's secret"
    for name in [info.name for info in store.agents()]:
        store.agent(name).verify()


@STRANGERS
@BEGUN
def test_a_strangers_run_does_not_end_with_another_ones_parent(
    stores: tuple[Store, Store], stranger: Callable[[Store], None], begun: bool
) -> None:
    """Ann's run was cancelled where it had been imported, and Bob's child was cancelled with it."""
    source, store = stores
    waits(source, "ann")
    if begun:
        kid(source)
    stranger(store)
    take(source, store, "ann")
    store.handle(ANN).cancel("no use")
    with pytest.raises(RunFailed):
        waits(store, "ann")
    assert [kind for kind, run in messages(store) if run == KID and kind == "cancel"] == []
    number = 2 if stranger is with_other_arguments else 1
    assert kid(store, number).status == "waiting"
    store.handle(KID).signal("go", 5)
    assert kid(store, number).result() == 5


def test_a_run_that_was_cancelled_elsewhere_ends_no_strangers(stores: tuple[Store, Store]) -> None:
    source, store = stores
    waits(source, "ann")
    source.handle(ANN).cancel("no use")
    of_bob(store)
    take(source, store, "ann")
    assert messages(store) == []


@pytest.mark.parametrize("stranger", [asked_by_bob, with_other_arguments])
def test_what_was_asked_for_is_not_begun_by_a_strangers_log(
    stores: tuple[Store, Store], stranger: Callable[[Store], None]
) -> None:
    """Bob had asked for a run which had not begun, when Ann's of that id was imported. His order
    was taken out, as the run had begun, and her child told him of its end."""
    source, store = stores
    waits(source, "ann")
    kid(source)
    if stranger is asked_by_bob:
        asked_by_bob(store)
    else:
        store.options(key="step-1").start(child, "kid", 2)
    before = messages(store)
    with pytest.raises(Conflict, match=r"requested here by (run bob/parent/main|somebody else)"):
        take(source, store, "kid")
    assert messages(store) == before and store.find("kid") is None
    if stranger is asked_by_bob:
        store.handle(KID).cancel("her own is to come")
        with pytest.raises(RunFailed):
            kid(store)


def test_the_same_that_nobody_asked_for_may_have_begun_elsewhere(
    stores: tuple[Store, Store],
) -> None:
    source, store = stores
    kid(source)
    store.options(key="step-1").start(child, "kid", 1)
    take(source, store, "kid")
    assert messages(store) == [] and store.handle(KID).status == "waiting"


@pytest.mark.parametrize("names", [("ann", "kid"), ("kid", "ann")])
def test_parents_of_one_id_in_two_stores_are_two(
    stores: tuple[Store, Store], names: tuple[str, str]
) -> None:
    """Each of two stores had a run "ann", which had started a child "step-1". One was imported, and
    the child of the other. It is told by the commit in whose turn it was asked for."""
    source, store = stores
    with perdure.open("memory://") as third:
        for one in (source, third):
            waits(one, "ann")
            kid(one)
        files = {"ann": source, "kid": third}
        take(files[names[0]], store, names[0])
        with pytest.raises(Conflict, match="another one of that id in another store"):
            take(files[names[1]], store, names[1])
        assert [info.name for info in store.agents()] == [names[0]]
        take(third if names[0] == "kid" else source, store, names[1])  # which belong together
        kid(store).signal("go", 5)
        assert kid(store).result() == 5
        assert waits(store, "ann").result() == 5


@pytest.mark.parametrize("names", [("ann", "kid"), ("kid", "ann")])
def test_a_child_of_a_parent_of_that_id_elsewhere_is_none_that_is_started_later(
    stores: tuple[Store, Store], names: tuple[str, str]
) -> None:
    source, store = stores
    with perdure.open("memory://") as third:
        waits(third, "ann")
        kid(third).signal("go", "Bob's secret")
        assert kid(third).result() == "Bob's secret"
        waits(source, "ann", True)
        for name in names:
            take(third if name == "kid" else source, store, name)
    assert messages(store) == []
    store.handle(ANN).signal("late", 1)
    found = waits(store, "ann", True).result()
    assert found == "was started by a run of this id in another store already"


def test_a_childs_own_parent_may_ask_again(stores: tuple[Store, Store]) -> None:
    """It was set back to before the start, and had heard of the child under its own key before."""
    source, store = stores
    waits(source, "ann", True)
    source.handle(ANN).signal("late", 1)
    waits(source, "ann", True)
    kid(source).signal("go", 5)
    assert kid(source).result() == 5
    for name in ("ann", "kid"):
        take(source, store, name)
    assert waits(store, "ann", True).result() == 5
    store.handle(ANN).retry("wait_for:late#1", effects="live")
    store.handle(ANN).signal("late", 2)
    assert waits(store, "ann", True).result() == 5
    assert len(store.runs("kid")) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_who_asks_too_late_with_other_arguments_is_not_told(place: Place, number: int) -> None:
    """Ann's run asked for a child just when somebody else began a run under that key, and its order
    came to that. Its end was told to hers, whatever its arguments were."""
    store = place.open()
    waits(store, "ann")
    (order,) = store.runner.context.backend.inbox(KID, kind="start")
    with perdure.open("memory://") as other:
        row = kid(other, number).info
    assert [one.run for one in to_parents(row, [order])] == ([ANN] if number == 1 else [])


# -- as chance makes them --------------------------------------------------------------------------


@perdure.agent(dict)
def asker(run: perdure.Run[dict], number: int) -> list[Any]:
    """Starts children one after the other, some under keys of their own. Gives their ids, and what
    each said of itself."""
    found: list[Any] = []
    for n in range(number):
        key = f"step-{n}" if n != 1 else None
        try:
            one = run.options(key=key).start(said, f"kid-{n % 2}", n)
            found.append([one.id, one.result()])
        except (Conflict, RunFailed) as error:
            found.append([str(error), None])
    return found


@perdure.agent(dict)
def said(run: perdure.Run[dict], number: int) -> str:
    name = str(run.uuid())
    run.wait_for("go")
    return name


class Tenant:
    def __init__(self, store: Store, random: Random) -> None:
        self.store, self.random = store, random

    def go_on(self) -> None:
        Once(self.store, [asker, said]).look_once()

    def begin(self) -> None:
        name, key = f"boss-{self.random.randrange(3)}", f"r{self.random.randrange(2)}"
        with suppress(PerdureError):
            self.store.options(key=key).start(asker, name, 1 + self.random.randrange(3))

    def signal(self) -> None:
        for run in self.store.runs(function="said", status=["waiting"]):
            if self.random.random() < 0.5:
                self.store.handle(run.id).signal("go", 1)

    def cancel(self) -> None:
        runs = self.store.runs(function="asker", unfinished=True)
        if runs and self.random.random() < 0.3:
            self.store.handle(self.random.choice(runs).id).cancel("by chance")

    def live(self, deeds: int) -> None:
        for _ in range(deeds):
            self.random.choice([self.begin, self.go_on, self.go_on, self.signal, self.cancel])()

    def begins(self) -> dict[str, tuple[str, bytes]]:
        """By what each child says of itself, and by its id with why it was cancelled: the run that
        started it, and the id of a commit of that one's log."""
        found: dict[str, tuple[str, bytes]] = {}
        for run in self.store.runs(function="said", status=["done", "cancelled"]):
            log = {commit.seq: commit for commit in self.store.agent(run.agent).log()}
            for record in log[run.started].records:
                if record["t"] == "run-started" and record["run"] == run.id:
                    name = str(run.result or f"{run.id} {run.problem}")
                    found[name] = record["parent"], bytes(record["origin"][1])
        return found

    def check(self, elsewhere: dict[str, tuple[str, bytes]]) -> None:
        """Each has heard of, and ended, what its own log asked for."""
        ids = {
            info.name: {commit.id for commit in self.store.agent(info.name).log()}
            for info in self.store.agents()
        }
        begins = self.begins()
        for run in self.store.runs(function="asker", status=["done"]):
            for _, name in run.result:
                if name is not None:
                    parent, origin = (begins | elsewhere)[name]
                    assert parent == run.id and origin in ids[run.agent]
        for name in begins.keys() - elsewhere.keys():
            by = name.partition(" with ")[2]
            if by:
                parent, origin = begins[name]
                assert parent == by and origin in ids[by.split("/")[0]]


@pytest.mark.parametrize("seed", range(30))
def test_what_chance_brings_together_is_told_apart(seed: int) -> None:
    random = Random(seed)
    with perdure.open("memory://") as one, perdure.open("memory://") as other:
        here, there = Tenant(one, random), Tenant(other, random)
        here.live(random.randrange(12))
        there.live(12)
        names = [info.name for info in other.agents()]
        random.shuffle(names)
        for name in names:
            with suppress(Conflict):
                take(other, one, name)
            here.live(random.randrange(3))
        for _ in range(6):
            here.signal()
            here.go_on()
        here.check(there.begins())
        for name in [info.name for info in one.agents()]:
            one.agent(name).verify()
