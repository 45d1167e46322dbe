"""Programs of two major versions at once: the newer one writes the older version while it lasts."""

from __future__ import annotations

import asyncio
import copy
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

import perdure
import perdure.testing
from perdure.errors import NotFound, SchemaError
from perdure.store import Store
from tests.engine.working import wait_until, working
from tests.state.conftest import Place


@dataclass
class Old:
    customer: str = "c"
    notes: str = ""
    count: int = 0


@dataclass
class New:
    customer: str = "c"
    notes: list[str] = field(default_factory=list)
    count: int = 0


def up(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "notes": old["notes"].split("\n") if old.get("notes") else []}


def down(new: dict[str, Any]) -> dict[str, Any]:
    return {**new, "notes": "\n".join(new.get("notes", []))}


OLD = perdure.Schema(Old, id="ticket", version=1)
BOTH = perdure.Schema(
    New, id="ticket", version=2, migrations={1: up}, downgrades={2: down}, writes=1
)
NEW = perdure.Schema(New, id="ticket", version=2, migrations={1: up}, downgrades={2: down})
PLAIN: perdure.Schema[Any] = perdure.Schema(dict, id="ticket")


def versions(store: Store, name: str) -> list[int]:
    agent = store.agent(name, PLAIN)
    return [commit.schema_version[0] for commit in agent.log()]


def test_both_read_and_write_until_the_last_deploy(store: Store) -> None:
    """A deploy to version 2 rolled over hours. The first write of a new program took each agent
    away from the old ones, which still had half of the requests."""
    old, both = store.agent("a", OLD), store.agent("a", BOTH)
    old.update(lambda draft: setattr(draft, "notes", "one"))
    assert both.refresh() == New(notes=["one"])
    both.update(lambda draft: draft.notes.append("two"))
    assert old.refresh() == Old(notes="one\ntwo")
    old.update(lambda draft: setattr(draft, "count", 5))
    both.update(lambda draft: draft.notes.insert(0, "zero"))
    both.save(New("c-2", ["zero", "two"], 6))
    assert old.refresh() == Old("c-2", "zero\ntwo", 6)
    assert set(versions(store, "a")) == {1}
    new = store.agent("a", NEW)
    new.update(lambda draft: draft.notes.append("three"))
    assert versions(store, "a")[-2:] == [2, 2]
    assert both.refresh() == New("c-2", ["zero", "two", "three"], 6)
    both.update(lambda draft: draft.notes.pop())
    assert versions(store, "a")[-1] == 2
    assert new.refresh() == both.state == New("c-2", ["zero", "two"], 6)
    with pytest.raises(SchemaError, match="written by a newer program"):
        old.refresh()
    assert not both.verify().damages


def test_a_new_agent_is_of_the_version_before(store: Store) -> None:
    for name, make in {
        "edit": lambda agent: agent.update(lambda draft: draft.notes.append("b")),
        "checkpoint": lambda agent: agent.checkpoint("made"),
        "save": lambda agent: agent.save(New(notes=["a", "b"])),
    }.items():
        agent = store.agent(name, BOTH, initial=New(notes=["a"]))
        make(agent)
        assert set(versions(store, name)) == {1}
        notes = "a" if name == "checkpoint" else "a\nb"
        assert store.agent(name, OLD).state == Old(notes=notes)
        assert store.agent(name, BOTH).state == agent.state
        assert agent.drift() == []


def test_undo_redo_rollback_forks_and_checkpoints(store: Store) -> None:
    old, both = store.agent("a", OLD), store.agent("a", BOTH)
    old.update(lambda draft: setattr(draft, "notes", "one"))
    both.update(lambda draft: draft.notes.append("two"))
    both.checkpoint("two")
    old.update(lambda draft: setattr(draft, "count", 1))
    both.undo()
    assert both.state == New(notes=["one", "two"])
    both.undo()
    assert both.state == New(notes=["one"])
    assert old.refresh() == Old(notes="one")
    both.redo()
    old.redo()
    assert both.refresh() == New(notes=["one", "two"], count=1)
    assert both.at("two", strict=True).state == New(notes=["one", "two"])
    fork = both.fork("other", at="two")
    fork.update(lambda draft: draft.notes.append("three"))
    assert old.branch("other").state == Old(notes="one\ntwo\nthree")
    assert [str(one.path) for one in both.diff("two", "other")] == ["state.notes"]
    both.adopt("other")
    assert old.refresh() == Old(notes="one\ntwo\nthree")
    both.rollback("two")
    assert both.state == New(notes=["one", "two"])
    assert old.refresh() == Old(notes="one\ntwo")
    assert set(versions(store, "a")) == {1}
    assert not old.verify().damages


def test_what_would_not_come_back_is_refused(store: Store) -> None:
    """A note with two lines would come back as two notes."""
    agent = store.agent("a", BOTH, initial=New(notes=["one"]))
    agent.checkpoint("made")
    before = agent.seq
    writes: list[Callable[[], Any]] = [
        lambda: agent.update(lambda draft: draft.notes.append("two\nthree")),
        lambda: agent.update(lambda draft: draft.notes.__setitem__(0, "")),
        lambda: agent.save(New(notes=["a\nb"])),
    ]
    for write in writes:
        with pytest.raises(SchemaError, match=r"state\.notes.*come back otherwise") as refused:
            write()
        assert "inverse" in str(refused.value.hint)
    assert agent.refresh() == New(notes=["one"])
    assert agent.seq == before
    with pytest.raises(SchemaError, match="come back otherwise"):
        store.agent("b", BOTH, initial=New(notes=["a\nb"])).checkpoint("made")
    assert [one.name for one in store.agents()] == ["a"]


def test_what_only_the_version_before_knows_is_not_lost(store: Store) -> None:
    def forgets(old: dict[str, Any]) -> dict[str, Any]:
        return {"customer": old["customer"], "notes": up(old)["notes"]}

    lossy = perdure.Schema(
        New, id="ticket", version=2, migrations={1: forgets}, downgrades={2: down}, writes=1
    )
    store.agent("a", OLD, initial=Old(count=7)).checkpoint("made")
    agent = store.agent("a", lossy)
    with pytest.raises(SchemaError, match=r"state\.count: version 1 has stored this"):
        agent.update(lambda draft: draft.notes.append("x"))
    assert store.agent("a", OLD).state == Old(count=7)


def test_the_declaration_says_what_is_missing() -> None:
    incomplete: list[tuple[Any, str]] = [
        ({"version": 1, "writes": 1}, "must be the major version before 1: writes=0"),
        ({"version": 3, "writes": 1}, "writes=2"),
        ({"version": 2, "writes": 1}, "migrations lacks 1"),
        ({"version": 2, "writes": 1, "migrations": {1: up}}, "downgrades lacks 2"),
    ]
    for given, problem in incomplete:
        with pytest.raises(ValueError, match=problem):
            perdure.Schema(New, id="x", **given)
    wrong: list[Any] = [{"writes": "1"}, {"downgrades": {2: 5}}, {"downgrades": []}]
    for more in wrong:
        with pytest.raises(TypeError):
            perdure.Schema(New, id="x", version=2, migrations={1: up}, **more)


def test_a_state_of_an_even_older_version_is_brought_to_the_one_before(store: Store) -> None:
    first: Any = perdure.Schema(dict, id="ticket", version=0)
    store.agent("a", first, initial={"notes": "one", "customer": "c"}).checkpoint("made")
    chain = {0: lambda old: {**old, "count": 3}, 1: up}
    both = perdure.Schema(
        New, id="ticket", version=2, migrations=chain, downgrades={2: down}, writes=1
    )
    agent = store.agent("a", both)
    agent.update(lambda draft: draft.notes.append("two"))
    assert [commit.cause.kind for commit in agent.log()] == [
        "create",
        "checkpoint",
        "migrate",
        "edit",
    ]
    assert versions(store, "a") == [0, 0, 1, 1]
    assert store.agent("a", OLD).state == Old(notes="one\ntwo", count=3)
    agent.undo()
    assert agent.state == New(notes=["one"], count=3)
    agent.redo()
    agent.undo()
    with pytest.raises(NotFound):
        agent.undo()


# -- runs ------------------------------------------------------------------------------------------


def program(schema: Any) -> Any:
    """The agent function as each program has it."""

    def add(draft: Any, note: str) -> None:
        if isinstance(draft.notes, str):
            draft.notes = f"{draft.notes}\n{note}" if draft.notes else note
        else:
            draft.notes.append(note)

    @perdure.agent(schema, name="support")
    def support(run: perdure.Run[Any]) -> list[str]:
        seen = []
        for turn in range(4):
            with run.edit(f"turn {turn}") as draft:
                add(draft, f"n{turn}")
            notes = run.state.notes
            seen.append(notes if isinstance(notes, str) else "\n".join(notes))
            run.checkpoint(f"turn {turn}")
            run.wait_for(f"go {turn}", schema=bool)
        run.undo()
        return seen

    return support


def test_runs_go_from_program_to_program(store: Store) -> None:
    """Each turn is executed by another program, which replays what the others did."""
    programs = [program(OLD), program(BOTH), program(OLD), program(BOTH), program(BOTH)]
    handle = store.options(initial=New(notes=["first"])).start(programs[1], "r")
    for turn, one in enumerate(programs[:4]):
        if turn:
            handle.signal(f"go {turn - 1}", True)
        with working(store, one):
            wait_until(partial(rests_behind, store, handle, f"n{turn}"))
    store.agent("r", BOTH).update(lambda draft: setattr(draft, "count", 9))
    handle.signal("go 3", True)
    seen = store.run(programs[4], "r")
    assert seen == ["first\nn0", "first\nn0\nn1", "first\nn0\nn1\nn2", "first\nn0\nn1\nn2\nn3"]
    assert store.agent("r", OLD).state == Old(notes="first\nn0\nn1\nn2\nn3")
    assert set(versions(store, "r")) == {1}
    assert not store.agent("r", OLD).verify().damages


def rests_behind(store: Store, handle: Any, note: str) -> bool:
    return handle.status == "waiting" and note in store.agent("r", OLD).state.notes


@perdure.agent(BOTH, name="together")
async def together(run: perdure.AsyncRun[New]) -> list[int]:
    async def count(by: int) -> int:
        async with run.edit(f"add {by}") as draft:
            draft.count += by
            draft.notes.append(str(by))
        return run.state.count

    found = await asyncio.gather(*(count(by) for by in (1, 2, 3)))
    await run.wait_for("go", schema=bool)
    return [*found, run.state.count, len(run.state.notes)]


def test_an_asynchronous_run_shows_its_tasks_its_own_form(store: Store) -> None:
    handle = store.start(together, "t")
    with working(store, together):
        wait_until(lambda: handle.status == "waiting")
    store.agent("t", OLD).update(lambda draft: setattr(draft, "customer", "other"))
    handle.signal("go", True)
    with working(store, together):
        *_, count, notes = handle.result(timeout=30)
    assert (count, notes) == (6, 3)
    assert store.agent("t", OLD).state.customer == "other"
    assert set(versions(store, "t")) == {1}


# -- by chance -------------------------------------------------------------------------------------


class Deploy:
    """One agent under programs by chance, and what it should be."""

    def __init__(self, place: Place, seed: int) -> None:
        self.rng, self.place, self.name = random.Random(seed), place, f"deploy-{seed}"
        self.store = place.open(snapshots=perdure.SnapshotPolicy(every_commits=4))
        self.value = New(notes=["first"])
        self.schemas: list[Any] = [OLD, BOTH]
        self.handles: dict[int, Any] = {}
        self.store.agent(self.name, BOTH, initial=copy.deepcopy(self.value)).checkpoint("begin")
        self.at = {1: copy.deepcopy(self.value)}
        self.back: list[New] = []
        self.forth: list[New] = []
        self.major = 1
        self.last_deploy = self.rng.choice([10, 20, 99])

    def run(self, steps: int) -> None:
        for step in range(steps):
            if step == self.last_deploy:  # the transitional program is everywhere
                self.schemas = [BOTH, NEW]
                self.handles.clear()
            self.step(self.rng.choice(["edit"] * 4 + ["save", "undo", "redo", "rollback", "kill"]))

    def step(self, what: str) -> None:
        if what == "kill":
            self.handles.clear()
            self.place.close()
            self.store = self.place.open(snapshots=perdure.SnapshotPolicy(every_commits=4))
            return
        which = self.rng.randrange(2)
        schema = self.schemas[which]
        agent = self.handles.get(which)
        if agent is None or self.rng.random() < 0.3:
            agent = self.handles[which] = self.store.agent(self.name, schema)
        getattr(self, what)(agent, schema)
        self.compare()
        self.at[self.store.agent(self.name, NEW).seq] = copy.deepcopy(self.value)

    def written(self, before: New, schema: Any) -> None:
        if self.major == 1 and schema is NEW:
            self.major = 2
            self.back.clear()
        self.back.append(before)
        self.forth.clear()

    def changed(self) -> New:
        value = copy.deepcopy(self.value)
        roll = self.rng.randrange(4)
        if roll == 0 and value.notes:
            value.notes.pop(self.rng.randrange(len(value.notes)))
        elif roll == 1:
            value.customer = f"c{self.rng.randrange(1000)}"
        else:
            value.notes.insert(self.rng.randrange(len(value.notes) + 1), self.word())
        value.count += 1
        return value

    def word(self) -> str:
        return f"n{self.rng.randrange(1000)}"

    def edit(self, agent: Any, schema: Any) -> None:
        before, new = copy.deepcopy(self.value), self.changed()
        if schema is not OLD and self.major == 1 and schema is BOTH and self.rng.random() < 0.2:
            with pytest.raises(SchemaError):
                agent.update(lambda draft: draft.notes.append("a\nb"))
            return
        form = as_old(new) if schema is OLD else new
        with agent.edit("changed") as draft:
            for name in ("customer", "notes", "count"):
                setattr(draft, name, copy.deepcopy(getattr(form, name)))
        self.value = new
        self.written(before, schema)

    def save(self, agent: Any, schema: Any) -> None:
        before, new = copy.deepcopy(self.value), self.changed()
        agent.save(as_old(new) if schema is OLD else copy.deepcopy(new))
        self.value = new
        self.written(before, schema)

    def undo(self, agent: Any, schema: Any) -> None:
        if self.back and not (self.major == 1 and schema is NEW):
            agent.undo()
            self.forth.append(self.value)
            self.value = self.back.pop()

    def redo(self, agent: Any, schema: Any) -> None:
        if self.forth and not (self.major == 1 and schema is NEW):
            agent.redo()
            self.back.append(self.value)
            self.value = self.forth.pop()

    def rollback(self, agent: Any, schema: Any) -> None:
        seq = self.rng.choice([*self.at])
        agent.rollback(seq)
        self.value = copy.deepcopy(self.at[seq])
        self.back, self.forth = [], []
        self.major = versions(self.store, self.name)[-1]

    def compare(self) -> None:
        for schema in (OLD, BOTH, NEW) if self.major == 1 else (BOTH, NEW):
            expected: Any = as_old(self.value) if schema is OLD else self.value
            fresh = self.store.agent(self.name, schema)
            assert fresh.state == expected
            assert fresh.drift() == []
        for which, agent in self.handles.items():
            if self.schemas[which] is OLD and self.major == 2:
                continue
            assert agent.refresh() == (
                as_old(self.value) if self.schemas[which] is OLD else self.value
            )
            assert agent.drift() == []
        assert versions(self.store, self.name)[-1] == self.major


def as_old(value: New) -> Old:
    return Old(value.customer, "\n".join(value.notes), value.count)


@pytest.mark.parametrize("seed", range(12))
def test_programs_by_chance_agree(place: Place, seed: int) -> None:
    deploy = Deploy(place, seed)
    deploy.run(40)
    assert not deploy.store.agent(deploy.name, PLAIN).verify().damages


# -- what else meets such a state ------------------------------------------------------------------


def test_retention_knows_nothing_of_it(store: Store) -> None:
    """To the log it is an agent of version 1, whoever writes it."""
    both = store.agent("a", BOTH)
    for _ in range(20):
        both.update(lambda draft: draft.notes.append("n"))
    both.trim(before=15)
    both.update(lambda draft: draft.notes.pop())
    both.undo()
    assert store.agent("a", OLD).state.notes.count("n") == 20
    assert not both.verify().damages


def test_a_migration_that_is_another_each_time_is_refused(store: Store) -> None:
    ids = iter(range(100))

    def numbered(old: dict[str, Any]) -> dict[str, Any]:
        return {**up(old), "count": next(ids)}

    both = perdure.Schema(
        New, id="ticket", version=2, migrations={1: numbered}, downgrades={2: down}, writes=1
    )
    with pytest.raises(SchemaError, match=r"state\.count"):
        store.agent("a", both).update(lambda draft: draft.notes.append("x"))
    assert store.agents() == []


def test_functions_that_fail_are_named(store: Store) -> None:
    def fails(new: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("nope")

    both = perdure.Schema(
        New, id="ticket", version=2, migrations={1: up}, downgrades={2: fails}, writes=1
    )
    store.agent("a", OLD).checkpoint("made")
    with pytest.raises(SchemaError, match="the downgrade from major version 2 failed: 'nope'"):
        store.agent("a", both).update(lambda draft: draft.notes.append("x"))
    assert store.agent("a", both).state == New()  # it may be read all the same
    assert store.agent("a", OLD).seq == 2


def test_a_key_and_an_edit_without_a_change(store: Store) -> None:
    both, old = store.agent("a", BOTH), store.agent("a", OLD)
    for _ in range(2):
        both.update(lambda draft: draft.notes.append("x"), key="k")
    seq = both.seq
    assert seq == 2
    both.save(New(notes=["x"]))
    both.update(lambda draft: None)
    assert both.seq == seq
    assert old.state.notes == "x"


@dataclass
class NewWithId:
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    customer: str = "c"
    notes: str = ""
    count: int = 0


def test_a_default_that_differs_each_time_must_have_a_place_in_the_older_form(store: Store) -> None:
    """The older version has no place for the id: each read of it would show another one."""
    store.agent("a", OLD).checkpoint("made")
    loses: perdure.Schema[NewWithId] = perdure.Schema(
        NewWithId,
        id="ticket",
        version=2,
        migrations={1: lambda old: old},
        downgrades={2: lambda new: {key: one for key, one in new.items() if key != "id"}},
        writes=1,
    )
    with pytest.raises(SchemaError, match=r"state\.id: written under version 1 it would"):
        store.agent("a", loses).update(lambda draft: setattr(draft, "count", 1))
    keeps: perdure.Schema[NewWithId] = perdure.Schema(
        NewWithId,
        id="ticket",
        version=2,
        migrations={1: lambda old: old},
        downgrades={2: lambda new: new},
        writes=1,
    )
    agent = store.agent("a", keeps)
    agent.update(lambda draft: setattr(draft, "count", 1))
    assert store.agent("a", keeps).state == agent.state
    assert store.agent("a", perdure.Schema(Old, id="ticket", version=1)).state.count == 1


def tries(schema: Any) -> Any:
    @perdure.agent(schema, name="tries")
    def tries(run: perdure.Run[Any]) -> list[Any]:
        seen: list[Any] = []
        for note in ("one", "two\nthree", "four"):
            try:
                with run.edit(note) as draft:
                    draft.notes.append(note)
            except SchemaError as error:
                seen.append(error.target)
        run.wait_for("go", schema=bool)
        with run.edit("after") as draft:
            draft.notes.append("five")
        return [*seen, *run.state.notes]

    return tries


def test_a_refused_edit_of_a_run_is_refused_again_in_its_replay(store: Store) -> None:
    handle = store.start(tries(BOTH), "r")
    with working(store, tries(BOTH)):
        wait_until(lambda: handle.status == "waiting")
    assert store.agent("r", OLD).state.notes == "one\nfour"
    handle.signal("go", True)
    target, *notes = store.run(tries(BOTH), "r")
    assert "state.notes" in target
    assert notes == ["one", "four", "five"]
    assert set(versions(store, "r")) == {1}


def test_the_last_deploy_comes_while_a_run_waits(store: Store) -> None:
    """The run is begun by the transitional program, and continued by the one without `writes`; the
    former takes it back."""
    handle = store.start(program(BOTH), "r")
    with working(store, program(BOTH)):
        wait_until(lambda: handle.status == "waiting")
    handle.signal("go 0", True)
    with working(store, program(NEW)):
        wait_until(lambda: handle.status == "waiting" and versions(store, "r")[-1] == 2)
    for turn in (1, 2, 3):
        handle.signal(f"go {turn}", True)
    seen = store.run(program(BOTH), "r")
    assert seen[-1] == "n0\nn1\nn2\nn3"
    assert store.agent("r", BOTH).state.notes == ["n0", "n1", "n2"]
    assert versions(store, "r")[-1] == 2


@perdure.step
def measure(text: str) -> int:
    return len(text)


@perdure.agent(BOTH, name="measuring")
def measuring(run: perdure.Run[New]) -> int:
    for note in ("one", "three"):
        with run.edit(note) as draft:
            draft.notes.append(note)
            draft.count += 1
            draft.customer += str(draft.count)
        measure(note)
    run.undo()
    return run.state.count


def test_a_run_may_die_at_each_boundary() -> None:
    endings = perdure.testing.kill_at_every_boundary(
        measuring, state=New(notes=["first"]), timeout_s=30
    )
    assert len(endings) > 10
    assert {ending.result for ending in endings} == {1}


def test_a_run_goes_on_anew_from_a_step(store: Store) -> None:
    assert store.run(measuring, "r") == 1
    handle = store.handle("r/measuring/main")
    store.agent("r", OLD).update(lambda draft: setattr(draft, "customer", "changed"))
    other = handle.fork("measure#2", branch="other")
    with working(store, measuring):
        assert other.result(timeout=30) == 1
    assert store.agent("r", OLD).branch("other").state == Old("c1", "one", 1)
    handle.retry("measure#1")
    with working(store, measuring):
        assert handle.result(timeout=30) == 1
    assert store.agent("r", OLD).refresh() == Old("c1", "one", 1)
    assert set(versions(store, "r")) == {1}
