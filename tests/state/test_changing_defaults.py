"""Fields of a newer minor version whose defaults are others each time, ids say."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, Field

import perdure
from perdure.errors import SchemaError
from tests.engine.working import BOUND_S, working

_ids = count(1)


def new_id() -> str:
    return f"id-{next(_ids)}"


@dataclass
class PartBefore:
    name: str = ""


@dataclass
class PartAfter:
    name: str = ""
    id: str = field(default_factory=new_id)


@dataclass
class TicketBefore:
    n: int = 0
    parts: list[PartBefore] = field(default_factory=list)


@dataclass
class TicketAfter:
    n: int = 0
    parts: list[PartAfter] = field(default_factory=list)
    id: str = field(default_factory=new_id)
    words: list[str] = field(default_factory=list)
    late: str = field(init=False, default_factory=new_id)


class PartModelBefore(BaseModel):
    name: str = ""


class PartModelAfter(BaseModel):
    name: str = ""
    id: str = Field(default_factory=new_id)


class ModelBefore(BaseModel):
    n: int = 0
    parts: list[PartModelBefore] = []


class ModelAfter(BaseModel):
    n: int = 0
    parts: list[PartModelAfter] = []
    id: str = Field(default_factory=new_id)
    words: list[str] = Field(default_factory=list)
    late: str = Field(default_factory=lambda data: f"{data['id']}, later")


class PartStructBefore(msgspec.Struct):
    name: str = ""


class PartStructAfter(msgspec.Struct):
    name: str = ""
    id: str = msgspec.field(default_factory=new_id)


class StructBefore(msgspec.Struct):
    n: int = 0
    parts: list[PartStructBefore] = []


class StructAfter(msgspec.Struct):
    n: int = 0
    parts: list[PartStructAfter] = []
    id: str = msgspec.field(default_factory=new_id)
    words: list[str] = []
    late: str = msgspec.field(default_factory=new_id)


PAIRS: list[Any] = [
    (TicketBefore, PartBefore, TicketAfter),
    (ModelBefore, PartModelBefore, ModelAfter),
    (StructBefore, PartStructBefore, StructAfter),
]


def versions(pair: Any) -> tuple[Any, Any, Any]:
    before, part, after = pair
    old = perdure.Schema(before, id="ticket", version=(1, 0))
    new = perdure.Schema(after, id="ticket", version=(1, 1))
    return old, new, before(parts=[part(name="a"), part(name="b")])


def given(state: Any) -> list[str]:
    return [state.id, state.late, *(part.id for part in state.parts)]


@pytest.mark.parametrize("pair", PAIRS)
def test_i6_a_default_that_changes_is_stored_by_the_first_write_that_knows_it(store, pair):
    """Each handle read another id of the same commit, for ever: that of the handle that had made
    the next commits was seen by nobody else."""
    old, new, initial = versions(pair)
    store.agent("a", old, initial=initial).checkpoint("made")
    agent = store.agent("a", new)
    first = given(agent.state)
    assert agent.seq == 2, "nothing is written by reading"
    with agent.edit("one") as draft:
        draft.n += 1
    assert [commit.cause.kind for commit in agent.log()][2:] == ["migrate", "edit"]
    assert given(agent.state) == given(store.agent("a", new).state) == first
    plain = agent.at(agent.seq).plain
    assert "words" not in plain, "a default that is the same each time is not stored"
    assert agent.drift() == [] and "id" not in agent.at(2).plain
    agent.undo()
    assert given(store.agent("a", new).state) == given(agent.state) == first
    theirs = store.agent("a", old)
    theirs.update(lambda draft: draft.parts.append(type(initial.parts[0])(name="c")))
    another = store.agent("a", new)
    *known, _ = added = given(another.state)
    assert known == first
    another.checkpoint("stored")
    agent.refresh()
    assert given(store.agent("a", new).state) == given(agent.state) == added
    store.agent("a", new).verify()


@pytest.mark.parametrize("moves_on", ["edit", "refresh", "follow", "save", "undo", "checkpoint"])
@pytest.mark.parametrize("pair", PAIRS)
def test_i6_one_that_an_older_program_added_has_one_id(store, pair, moves_on):
    """Story: an older program appended an item while a newer one had the agent open. Its next edit
    showed one id of that item, stored another one, and its next change of it was called drift."""
    old, new, initial = versions(pair)
    agent = store.agent("a", new, initial=pair[2]())
    agent.checkpoint("made")
    part = type(initial.parts[0])
    store.agent("a", old).update(lambda draft: draft.parts.append(part(name="c")))
    match moves_on:
        case "refresh":
            agent.refresh()
        case "follow":
            assert agent._working.follow() is not None
        case "save":
            agent.save(agent.refresh())
        case "undo":
            agent.update(lambda draft: setattr(draft, "n", 5))
            agent.undo()
        case "checkpoint":
            agent.refresh()
            agent.checkpoint("more")
    with agent.edit("next") as draft:
        draft.n += 1
        seen = draft.parts[0].id
    assert given(agent.state) == given(store.agent("a", new).state)
    assert agent.state.parts[0].id == seen
    assert agent.drift() == []
    agent.update(lambda draft: setattr(draft.parts[0], "id", draft.parts[0].id + "!"))
    assert store.agent("a", new).state.parts[0].id == f"{seen}!"


@pytest.mark.parametrize("moves_on", ["refresh", "follow"])
@pytest.mark.parametrize("pair", PAIRS)
def test_i6_one_id_is_shown_where_only_a_seq_was_asked_for(store, pair, moves_on):
    """A program that knew ids had logged its handle's seq, and not looked at its state, when an
    older one appended an item. It showed one id of the item, stored another one, went on showing
    the first, and was told later that somebody had changed it outside of `edit`."""
    old, new, initial = versions(pair)
    store.agent("a", new, initial=pair[2]()).checkpoint("made")
    agent = store.agent("a", new)
    assert agent.seq == 2
    part = type(initial.parts[0])
    for name in "cd":
        store.agent("a", old).update(lambda draft, name=name: draft.parts.append(part(name=name)))
        getattr(agent, moves_on)()
    seen = given(agent.state)
    agent.update(lambda draft: setattr(draft, "n", 5))
    assert given(agent.state) == given(store.agent("a", new).state) == seen
    assert agent.drift() == []
    agent.update(lambda draft: setattr(draft.parts[0], "id", "another"))
    assert store.agent("a", new).state.parts[0].id == "another"


@pytest.mark.parametrize("pair", PAIRS)
def test_i6_a_run_reads_the_same_each_time(store, pair):
    """A run that handed the id on needed attention at its first replay, with the advice that such
    a value must come from its state."""
    old, new, initial = versions(pair)
    store.agent("a", old, initial=initial).checkpoint("made")

    @perdure.step
    def note(ids: list[str]) -> list[str]:
        return ids

    @perdure.agent(new)
    def work(run: perdure.Run[Any]) -> bool:
        noted = note(given(run.state))
        run.wait_for("go")
        return note(given(run.state)) == noted

    handle = store.start(work, "a")
    with working(store, work) as events:
        events.wait_for("waiting", handle.id)
    handle.signal("go")
    with working(store, work):
        assert handle.result(BOUND_S)


def test_an_unfit_state_is_left_as_it_is(store):
    """What is asked as a state is read must not keep anybody from reading it."""
    store.agent("a", perdure.Schema(dict, id="ticket"), initial={"n": "x"}).checkpoint("made")
    agent = store.agent("a", perdure.Schema(TicketAfter, id="ticket", version=(1, 1)))
    assert agent.at(1).plain == {"n": "x"}
    with pytest.raises(SchemaError, match=r"state\.n"):
        _ = agent.state
    agent.save(TicketAfter(3))
    assert store.agent("a", perdure.Schema(TicketAfter, id="ticket")).state == agent.state


def test_a_run_that_an_older_program_began_sees_one_at_a_time(store):
    """Where each commit on its way were a new reading, the id would be another at each look."""
    old, new, initial = versions(PAIRS[0])
    seen: list[list[str]] = []

    def of(schema: Any) -> Any:
        def work(run: perdure.Run[Any]) -> int:
            for n in range(3):
                with run.edit(f"edit {n}") as draft:
                    draft.n += 1
                if schema is new:
                    seen.append(given(run.state))
            run.wait_for("go")
            seen.append(given(run.state))
            with run.edit("last") as draft:
                draft.n += 1
            return run.state.n  # type: ignore[no-any-return]

        return perdure.agent(schema)(work)

    handle = store.start(of(old), "a")
    store.agent("a", old, initial=initial).checkpoint("made")
    with working(store, of(old)) as events:
        events.wait_for("waiting", handle.id)
    handle.signal("go")
    with working(store, of(new)):
        assert handle.result(BOUND_S) == 4
    assert seen[0] == seen[1] == seen[2] and len(seen) == 4
    agent = store.agent("a", new)
    assert given(agent.state) == seen[3]
    assert [commit.cause.kind for commit in agent.log()].count("migrate") == 1


@dataclass
class CallBefore:
    tool: str = ""


@dataclass
class NoteBefore:
    text: str = ""


@dataclass
class CallAfter:
    tool: str = ""
    mark: int = field(default_factory=lambda: 7)


@dataclass
class NoteAfter:
    text: str = ""
    mark: int = field(default_factory=lambda: 8)


def test_a_default_of_one_class_is_none_of_another(store):
    """An older program put a note where a call stood, field by field, and the newer one's handle
    kept the default that it had made for the call: what it then read was a call, and its next edit
    made one of the note for everybody."""
    schemas = [
        perdure.Schema(dict[str, CallBefore | NoteBefore], id="s"),
        perdure.Schema(dict[str, CallAfter | NoteAfter], id="s", version=(1, 1)),
    ]
    older, newer = store.agent("t", schemas[0]), store.agent("t", schemas[1])
    newer.save({"k": NoteAfter("begin")})
    older.update(lambda draft: draft.__setitem__("k", CallBefore("search")))
    newer.rollback(older.seq)
    newer.follow()
    older.refresh()
    older.save({"k": NoteBefore("end")})
    newer.follow()
    assert newer.state == store.agent("t", schemas[1]).state == {"k": NoteAfter("end", 8)}
    older.save({"k": CallBefore("again")})
    assert newer.refresh() == {"k": CallAfter("again", 7)}
    newer.update(lambda draft: draft.__setitem__("other", NoteAfter("x")))
    assert newer.state == store.agent("t", schemas[1]).state


@dataclass
class Invoice:
    status: str = "new"
    id: str = field(default_factory=new_id)


@pytest.mark.parametrize("initial", [{}, {"initial": {"status": "new"}}, {"initial": Invoice()}])
def test_a_new_agent_is_created_with_what_it_showed(initial: dict[str, Any]) -> None:
    """A new agent showed an id that its class had filled in, and its first edit stored another one:
    what a program had read, printed or paid under was nowhere in the log."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", Invoice, **initial)
        shown = agent.state.id
        agent.refresh()
        assert agent.state.id == shown
        with agent.edit("charged") as draft:
            assert draft.id == shown
            draft.status = "charged"
        assert agent.state.id == store.agent("a", Invoice).state.id == shown
        assert store.agent("b", Invoice).state.id != shown
