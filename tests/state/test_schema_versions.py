"""Schema versions: migrations on read, the first write that records them, programs side by side."""

from __future__ import annotations

import copy as copying
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

import perdure
from perdure import Ephemeral, Schema
from perdure.errors import SchemaError


class Old(BaseModel):
    name: str
    tags: list[str] = []


class Part(BaseModel):
    x: int = 0


class Plain(BaseModel):
    name: str = ""
    part: Part = Part()
    parts: list[Part] = []


class NewPart(BaseModel):
    x: int = 0
    y: int = 0


class Newer(BaseModel):
    name: str = ""
    part: NewPart = NewPart()
    parts: list[NewPart] = []
    extra: str = "default"


class New(BaseModel):
    first: str
    last: str
    tags: list[str] = []


def split(state: dict[str, Any]) -> dict[str, Any]:
    state["first"], _, state["last"] = state.pop("name").partition(" ")
    return state


ONE = Schema(Old, id="person", version=1)
TWO = Schema(New, id="person", version=2, migrations={1: split})
MINOR_0 = Schema(Plain, id="thing", version=(1, 0))
MINOR_1 = Schema(Newer, id="thing", version=(1, 1))


def test_reading_migrates_in_memory_only(store):
    old = store.agent("a", ONE, initial=Old(name="Ada Lovelace"))
    old.save(Old(name="Ada King", tags=["x"]))
    new = store.agent("a", TWO)
    assert new.state == New(first="Ada", last="King", tags=["x"])
    assert new.at(1).state == New(first="Ada", last="Lovelace")
    assert new.at(1).plain["name"] == "Ada Lovelace"
    assert new.seq == 2 and old.refresh() == Old(name="Ada King", tags=["x"])


def test_i6_the_first_write_records_the_migration(place):
    store = place.open()
    store.agent("a", ONE, initial=Old(name="Ada Lovelace")).save(Old(name="Ada King"))
    new = store.agent("a", TWO)
    with new.edit("tagged") as draft:
        draft.tags.append("x")
    kinds = [(c.cause.kind, c.schema_version) for c in new.log()]
    assert kinds == [("create", (1, 0)), ("save", (1, 0)), ("migrate", (2, 0)), ("edit", (2, 0))]
    assert new.commit(3).delta != ()
    new.edit("again").__enter__()  # left open: only the log counts
    # No migration is needed any more to fold it.
    bare = place.open().agent("a", Schema(New, id="person", version=2))
    assert bare.state == New(first="Ada", last="King", tags=["x"])
    assert bare.verify().commits == 4
    assert bare.at(4).plain == {"first": "Ada", "last": "King", "tags": ["x"]}


def test_a_migration_and_a_refused_write(store, steady):
    store.agent("a", ONE, initial=Old(name="Ada L")).save(Old(name="Ada K"))
    new = store.agent("a", TWO)
    with steady.refuses(new, SchemaError), new.edit() as draft:
        draft.first = 7
    with steady.refuses(new, ZeroDivisionError), new.edit() as draft:
        draft.first = "Eve"
        1 / 0
    with new.edit() as draft:
        draft.first = "Eve"
    assert new.state.first == "Eve" and new.seq == 4


def test_saves_checkpoints_and_deletions_record_the_migration_too(store):
    for name, act in {
        "save": lambda agent: agent.save(New(first="X", last="Y")),
        "checkpoint": lambda agent: agent.checkpoint("cp"),
        "update": lambda agent: agent.update(lambda draft: draft.tags.append("t")),
    }.items():
        store.agent(name, ONE, initial=Old(name="Ada L")).save(Old(name="Ada K"))
        agent = store.agent(name, TWO)
        act(agent)
        assert agent.commit(3).cause.kind == "migrate"
        assert store.agent(name, Schema(New, id="person", version=2)).state == agent.state
        agent.verify()
    assert store.agent("checkpoint", TWO).at("cp", strict=True).state == New(first="Ada", last="K")


def test_a_rollback_past_the_migration_migrates_again(store):
    store.agent("a", ONE, initial=Old(name="Ada L")).save(Old(name="Ada K"))
    new = store.agent("a", TWO)
    new.update(lambda draft: draft.tags.append("t"))
    new.rollback(1)
    assert new.state == New(first="Ada", last="L")
    new.update(lambda draft: draft.tags.append("u"))
    assert [c.cause.kind for c in new.log()][-3:] == ["rollback", "migrate", "edit"]
    side = new.fork("side", at=2)
    assert side.state == New(first="Ada", last="K")
    side.update(lambda draft: draft.tags.append("v"))
    assert side.state == New(first="Ada", last="K", tags=["v"])
    new.verify()


def test_a_newer_major_version_is_refused(store, steady):
    new = store.agent("a", TWO, initial=New(first="A", last="B"))
    new.save(New(first="A", last="C"))
    old = store.agent("a", ONE)
    for call in (
        lambda: old.state,
        old.refresh,
        lambda: old.save(Old(name="x")),
        lambda: old.update(lambda draft: None),
        lambda: old.at(1).state,
    ):
        with pytest.raises(SchemaError, match="newer program"):
            call()
    assert new.verify().commits == 2


def test_an_older_handle_hears_of_a_migration(store):
    old = store.agent("a", ONE, initial=Old(name="Ada L"))
    old.save(Old(name="Ada K"))
    store.agent("a", TWO).update(lambda draft: draft.tags.append("t"))
    with pytest.raises(perdure.PerdureError), old.edit() as draft:
        draft.name = "Eve"
    with pytest.raises(perdure.PerdureError):
        old.save(Old(name="Eve"))
    assert store.agent("a", TWO).verify().commits == 4


def test_a_missing_or_failing_migration_says_so(store):
    store.agent("a", ONE, initial=Old(name="Ada L")).save(Old(name="Ada K"))
    with pytest.raises(SchemaError, match="no migration from major version 1 to 2"):
        store.agent("a", Schema(New, id="person", version=2)).state
    failing = Schema(New, id="person", version=2, migrations={1: lambda state: {"x": 1 / 0}})
    with pytest.raises(SchemaError, match="migration from major version 1 failed"):
        store.agent("a", failing).state
    three = Schema(
        New, id="person", version=3, migrations={1: split, 2: lambda s: {**s, "tags": ["3"]}}
    )
    assert store.agent("a", three).state == New(first="Ada", last="K", tags=["3"])


def test_programs_of_two_minor_versions_side_by_side(store):
    newer = store.agent("a", MINOR_1, initial=Newer(name="n"))
    with newer.edit() as draft:
        draft.extra = "kept"
        draft.part.y = 7
        draft.parts.extend([NewPart(x=1, y=1), NewPart(x=2, y=2)])
    older = store.agent("a", MINOR_0)
    assert older.state == Plain(name="n", parts=[Part(x=1), Part(x=2)])
    with older.edit() as draft:
        draft.name = "edited"
        draft.part.x = 5
        draft.parts[0].x = 10
    assert newer.refresh() == Newer(
        name="edited",
        part=NewPart(x=5, y=7),
        parts=[NewPart(x=10, y=1), NewPart(x=2, y=2)],
        extra="kept",
    )
    state = older.state.model_copy(deep=True)
    state.name = "saved"
    state.parts[1].x = 20
    older.save(state)
    assert newer.refresh() == Newer(
        name="saved",
        part=NewPart(x=5, y=7),
        parts=[NewPart(x=10, y=1), NewPart(x=20, y=2)],
        extra="kept",
    )
    assert {c.schema_version for c in newer.log()} == {(1, 1)}
    state = older.refresh().model_copy(deep=True)
    state.parts.append(Part(x=30))
    older.save(state)
    assert [p.y for p in newer.refresh().parts] == [1, 2, 0]
    newer.verify()


def versions() -> tuple[Any, Any]:
    @dataclass
    class Job:
        size: tuple[int, ...] = (1, 2)
        done: int = 0

    older = Job

    @dataclass
    class Job:  # type: ignore[no-redef]
        size: tuple[int, ...] = (1, 2)
        done: int = 0
        stats: dict[str, Any] = field(default_factory=dict)

    return older, Job


def test_what_a_newer_program_stores_may_have_keys_like_known_fields(store):
    """The older program took a key in what it does not know for the field of that name: a mapping
    was compared as a tuple, and each of its edits was a bare TypeError."""
    older_class, newer_class = versions()
    stats = {"size": {"total": {"bytes": 5}}, "done": {"b": 1, "a": 2}}
    newer = store.agent(
        "j", Schema(newer_class, id="job", version=(1, 1)), initial=newer_class(stats=stats)
    )
    newer.checkpoint("begin")
    older = store.agent("j", Schema(older_class, id="job"))
    older.update(lambda draft: setattr(draft, "done", 1))
    older.save(older_class(done=2))
    assert newer.refresh() == newer_class(done=2, stats=stats)
    assert list(newer.state.stats["done"]) == ["b", "a"]


def test_an_older_program_saves_a_dict_in_its_order(store):
    """Keys that were new came last, behind those that had been there, as soon as a newer program
    had stored something in one of these."""
    newer = store.agent("a", Schema(dict[str, NewPart], id="parts", version=(1, 1)))
    newer.save({"b": NewPart(x=1, y=1)})
    older = store.agent("a", Schema(dict[str, Part], id="parts"))
    older.save({"new": Part(x=0), "b": Part(x=2)})
    assert list(older.state) == list(newer.refresh()) == ["new", "b"]
    assert newer.state["b"] == NewPart(x=2, y=1)


@pytest.fixture
def sides(store):
    """A newer program that noted y = 1, 2, 3 in three parts, and an older one beside it."""
    parts = [NewPart(x=n, y=n) for n in (1, 2, 3)]
    newer = store.agent("a", MINOR_1, initial=Newer(parts=parts))
    newer.update(lambda draft: setattr(draft, "extra", "kept"))
    return newer, store.agent("a", MINOR_0)


def seen(newer: Any) -> list[tuple[int, int]]:
    return [(part.x, part.y) for part in newer.refresh().parts]


def test_saving_a_list_in_another_order_keeps_what_each_item_has(sides):
    """An older program's `save` paired items by index: fields of a newer one changed hands.

    Saved in reverse, each item had another's; saved without the first, all were lost. There was no
    error, and `drift` was empty.
    """
    newer, older = sides
    older.save(Plain(parts=[Part(x=3), Part(x=2), Part(x=1)]))
    assert seen(newer) == [(3, 3), (2, 2), (1, 1)]
    older.save(Plain(parts=older.refresh().parts[1:]))
    assert seen(newer) == [(2, 2), (1, 1)]
    older.save(Plain(parts=[Part(x=2), Part(x=7)]))
    older.save(Plain(parts=[Part(x=2), Part(x=7), Part(x=9)]))
    assert seen(newer) == [(2, 2), (7, 1), (9, 0)]
    assert older.save(older.refresh()) is None
    newer.verify()


def test_a_save_that_would_have_to_guess_is_refused(sides, steady):
    newer, older = sides
    with steady.refuses(older, SchemaError, r"state\.parts: its items cannot be told apart.*y"):
        older.save(Plain(parts=[Part(x=7), Part(x=8)]))
    assert seen(newer) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda draft, _: draft.parts.append(draft.parts.pop(0)), [(2, 2), (3, 3), (1, 1)]),
        (lambda draft, _: draft.parts.insert(0, draft.parts.pop()), [(3, 3), (1, 1), (2, 2)]),
        (lambda draft, _: draft.parts.extend(draft.parts.copy()[:1]), [1, 2, 3, 1]),
        (lambda draft, live: setattr(draft, "parts", live.parts[1:]), [2, 3]),
        (lambda draft, _: draft.parts.__setitem__(slice(0, 2), [Part(x=2)]), [2, 3]),
        (lambda draft, _: draft.parts.__setitem__(1, Part(x=8)), [(1, 1), (8, 2), (3, 3)]),
        (lambda draft, _: setattr(draft, "parts", draft.parts[::-1]), [3, 2, 1]),
        (lambda draft, _: setattr(draft, "part", draft.parts.pop(1)), [1, 3]),
    ],
)
def test_editing_lists_of_what_a_newer_program_wrote(sides, act, expected):
    """A part that was popped and put elsewhere in an edit lost what a newer program had noted."""
    newer, older = sides
    older.update(lambda draft: act(draft, older.state))
    assert seen(newer) == [one if isinstance(one, tuple) else (one, one) for one in expected]
    assert older.drift() == [] and older.state == Plain.model_validate(older.at("main").plain)
    newer.verify()


def test_a_part_that_is_moved_to_another_field_takes_its_own_along(sides):
    newer, older = sides
    older.update(lambda draft: setattr(draft, "part", draft.parts.pop(1)))
    assert newer.refresh().part == NewPart(x=2, y=2)
    older.update(lambda draft: setattr(draft, "part", Part(x=6)))
    assert newer.refresh().part == NewPart(x=6, y=2), "the same place, so the same part"


def two_in_a_row(draft: Any) -> None:
    draft.part = draft.parts.pop()
    draft.part = draft.parts.pop()


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda draft: setattr(draft, "part", draft.parts.pop()), ((8, 0), [(1, 1), (2, 2)])),
        (lambda draft: draft.parts.__setitem__(0, draft.parts.pop()), ((0, 9), [(8, 0), (2, 2)])),
        (
            lambda draft: draft.parts.__setitem__(0, copying.deepcopy(draft.parts[2])),
            ((0, 9), [(8, 0), (2, 2), (8, 0)]),
        ),
        (
            lambda draft: draft.parts.__setitem__(slice(0, 1), [draft.parts.pop()]),
            ((0, 9), [(8, 0), (2, 2)]),
        ),
        (two_in_a_row, ((2, 2), [(1, 1)])),
    ],
    ids=["a field", "an item", "a copy", "a slice", "both"],
)
def test_a_part_without_anything_newer_gets_nothing_where_it_is_put(store, act, expected):
    """It got what a newer program had noted in the part that had stood there before."""
    newer = store.agent("a", MINOR_1)
    parts = [NewPart(x=1, y=1), NewPart(x=2, y=2)]
    newer.save(Newer(part=NewPart(x=0, y=9), parts=parts))
    older = store.agent("a", MINOR_0)
    older.update(lambda draft: draft.parts.append(Part(x=8)))
    older.update(act)
    part, rest = expected
    found = newer.refresh()
    assert (found.part.x, found.part.y) == part and seen(newer) == rest
    assert older.drift() == [] and older.state == Plain.model_validate(older.at("main").plain)


def test_an_assignment_that_would_have_to_guess_is_refused(sides, steady):
    newer, older = sides
    with steady.refuses(older, SchemaError, "cannot be told apart"), older.edit() as draft:
        draft.parts = [Part(x=7)]
    with steady.refuses(older, SchemaError, "cannot be told apart"), older.edit() as draft:
        draft.parts[:] = [draft.parts[2], Part(x=9), draft.parts[0]]
    assert seen(newer) == [(1, 1), (2, 2), (3, 3)]


def test_a_field_that_came_with_a_version_has_its_default(store):
    """What was written before knows nothing of it, and reading stores nothing."""
    older = store.agent("a", MINOR_0, initial=Plain(name="n"))
    older.update(lambda draft: setattr(draft, "name", "m"))
    newer = store.agent("a", MINOR_1)
    assert newer.state.extra == "default" and newer.drift() == []
    newer.update(lambda draft: setattr(draft.part, "x", 3))
    plain = newer.at("main").plain
    assert "extra" not in plain and plain["part"] == {"x": 3}
    newer.update(lambda draft: setattr(draft, "extra", "set"))
    assert store.agent("a", MINOR_1).state.extra == "set"


# -- invariants ------------------------------------------------------------------------------


@dataclass
class Order:
    status: str = "pending"
    cents: int = 0
    items: list[int] = field(default_factory=list)
    seen: Ephemeral[list[str]] = field(default_factory=list)


@perdure.invariant("items", "cents")
def adds_up(after: Order) -> bool:
    return sum(after.items) == after.cents


def never_shrinks(before: Order | None, after: Order) -> None:
    if before is not None and after.cents < before.cents:
        raise ValueError("money was lost")


ORDER = Schema(
    Order,
    invariants=[
        adds_up,
        never_shrinks,
        perdure.transitions("status", {"pending": ["running"], "running": ["done", "pending"]}),
    ],
)


@pytest.fixture
def order(store):
    made = store.agent("order", ORDER)
    with made.edit() as draft:
        draft.items.append(5)
        draft.cents = 5
    return made


def test_invariants_hold_at_every_commit(order, steady):
    with steady.refuses(order, SchemaError, "adds_up"), order.edit() as draft:
        draft.cents = 6
    with steady.refuses(order, SchemaError, "money was lost"), order.edit() as draft:
        draft.cents = 0
        draft.items.clear()
    with steady.refuses(order, SchemaError, "adds_up"):
        order.save(Order(items=[1], cents=2))
    with steady.refuses(order, SchemaError, "money was lost"):
        order.undo()
    with order.edit() as draft:
        draft.items.append(1)
        draft.cents = 6
    assert order.state.cents == 6


def test_transitions_make_a_status_machine(order, steady):
    with (
        steady.refuses(order, SchemaError, "may not go from 'pending' to 'done'"),
        order.edit() as draft,
    ):
        draft.status = "done"
    for status in ("running", "pending", "running", "done"):
        with order.edit() as draft:
            draft.status = status
    with steady.refuses(order, SchemaError, "'done' is final"), order.edit() as draft:
        draft.status = "running"


def test_a_status_cannot_be_taken_away(store, steady):
    """In a plain dict a status could be popped, and then set to anything, as if it were new."""
    machine = perdure.transitions("job.status", {"a": ["b"], "b": ["c"]})
    schema = Schema(dict, id="job", invariants=[machine])
    agent = store.agent("job", schema, initial={"job": {"status": "a"}})
    agent.update(lambda draft: draft.update(note=1))
    with steady.refuses(agent, SchemaError, "may not be removed"), agent.edit() as draft:
        draft["job"].pop("status")
    with steady.refuses(agent, SchemaError, "may not be removed"):
        agent.save({"job": {}})
    with steady.refuses(agent, SchemaError, "only to 'b'"), agent.edit() as draft:
        draft["job"] = {"status": "c"}
    agent.update(lambda draft: draft.pop("job"))  # the job as a whole may go
    agent.update(lambda draft: draft.update(job={"status": "c"}))


def test_an_initial_state_must_be_legal(store):
    agent = store.agent("bad", ORDER, initial=Order(cents=5))
    with pytest.raises(SchemaError, match="adds_up"):
        agent.checkpoint("cp")
    with pytest.raises(SchemaError, match="adds_up"), agent.edit() as draft:
        draft.status = "running"
    assert store.find("bad") is None


def test_ephemeral_fields_live_in_memory_only(store):
    agent = store.agent("order", ORDER)
    with agent.edit() as draft:
        draft.seen.append("a")
        draft.status = "running"
    assert agent.state.seen == ["a"] and agent.state.status == "running"
    assert "seen" not in agent.at("main").plain
    with agent.edit() as draft:
        draft.seen.append("b")
    assert agent.state.seen == ["a", "b"]
    assert agent.seq == 2
    assert agent.refresh().seen == ["a", "b"]
    assert store.agent("order", ORDER).state.seen == []
