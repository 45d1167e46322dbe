"""Undo and redo of edits and groups, whole and in part, against a model: of each place the layers
that edits put there, one on the other.

An undo takes its edits' layers off, where they lie on top; a redo puts them back on what they had
been taken off. An edit stands as long as its layers lie there, however often they were taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Agent
from perdure.errors import Conflict, NotFound

ACTS = (
    "edit",
    "edit",
    "edit",
    "edit",
    "undo",
    "undo",
    "undo",
    "redo",
    "redo",
    "redo",
    "rollback",
    "checkpoint",
)
GROUPS = (None, None, "g", "g", "h")
TEXT = "".join(map(chr, range(0x100, 0x150)))

programs = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, 999), st.sampled_from(GROUPS)),
    min_size=8,
    max_size=30,
)

Place = tuple[str, Any]
"""A key of the state; or what there is of an item of its list, or of a character of its text,
wherever that is by now."""

Values = dict[Place, Any]
"""None: not there."""


class Edit(NamedTuple):
    seq: int
    group: str | None


Layers = dict[Place, tuple[tuple[Edit, Any], ...]]


class Undone(NamedTuple):
    """What an undo took off, and what it left of the same places."""

    edits: tuple[Edit, ...]
    taken: Layers
    left: Layers


class Model(NamedTuple):
    """What is behind a commit."""

    layers: Layers
    standing: tuple[Edit, ...] = ()
    undone: tuple[Undone, ...] = ()

    @property
    def values(self) -> Values:
        tops = {place: layers[-1][1] for place, layers in self.layers.items() if layers}
        return {place: value for place, value in tops.items() if value is not None}

    def edited(self, edit: Edit, values: Values) -> Model:
        new = {at: (*self.layers.get(at, ()), (edit, value)) for at, value in values.items()}
        return Model(self.layers | new, (*self.standing, edit), self.undone)

    def undo(self) -> Model | None:
        """None: others lie on top."""
        last = max(self.standing, key=lambda edit: edit.seq)
        edits = [one for one in self.standing if one == last or None is not one.group == last.group]
        left: Layers = {}
        taken: Layers = {}
        for place, layers in self.layers.items():
            count = sum(edit in edits for edit, _ in layers)
            if count:
                left[place], taken[place] = layers[:-count], layers[-count:]
        if not all(edit in edits for layers in taken.values() for edit, _ in layers):
            return None
        standing = tuple(edit for edit in self.standing if edit not in edits)
        undone = Undone(tuple(edits), taken, left)
        return Model(self.layers | left, standing, (*self.undone, undone))

    def redo(self) -> Model | None:
        """None: it lies on something else than what is there now."""
        *undone, last = self.undone
        if any(self.layers[place] != left for place, left in last.left.items()):
            return None
        back = {place: (*left, *last.taken[place]) for place, left in last.left.items()}
        return Model(self.layers | back, (*self.standing, *last.edits), tuple(undone))


class Keys:
    """Edits of a dict's keys: the model says exactly what can be taken back."""

    initial: ClassVar[dict[str, Any]] = {"a": 1, "b": 2}
    exact = True

    def look(self, state: Any) -> Iterator[tuple[Place, Any]]:
        for key, value in state.items():
            yield ("key", key), value

    def edit(self, draft: Any, number: int, new: int) -> Values:
        changed: Values = {}
        for one in (number % 25, number // 25)[: 1 + number % 2]:
            key = "abcd"[one % 4]
            if ("key", key) not in changed:
                taken = key in draft and one > 15
                if taken:
                    del draft[key]
                else:
                    draft[key] = 100 * new + one
                changed["key", key] = None if taken else draft[key]
        return changed


class Items:
    """Edits of a list's items, and of a text, which give others another place: what can be taken
    back has to be as the model says; more than it says is refused."""

    initial: ClassVar[dict[str, Any]] = {
        "items": [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}],
        "text": TEXT,
        "x": 0,
    }
    exact = False

    def look(self, state: Any) -> Iterator[tuple[Place, Any]]:
        for item in state["items"]:
            yield ("item", item["id"]), True
            yield ("n", item["id"]), item["n"]
        for one in state["text"]:
            yield ("char", one), True
        yield ("x", 0), state["x"]

    def edit(self, draft: Any, number: int, new: int) -> Values:
        items, what = draft["items"], number % 8
        at = number // 8 % (len(items) + (what < 2))
        match what:
            case 0 | 1:
                items.insert(at, {"id": new, "n": new})
                return {("item", new): True, ("n", new): new}
            case 2 if len(items) > 1:
                gone = items[at]["id"]
                del items[at]
                return {("item", gone): None, ("n", gone): None}
            case 3 | 4:
                items[at]["n"] = new
                return {("n", items[at]["id"]): new}
            case 5:
                if at:
                    perdure.move(items, at, 0)
                    return {("order", items[0]["id"]): new}
            case 6:
                text, at = draft["text"], number // 8 % len(TEXT)
                draft["text"] = text[:at] + chr(0x200 + new) + text[at:]
                return {("char", chr(0x200 + new)): True}
            case 7:
                text, at = draft["text"], number // 8 % len(draft["text"])
                draft["text"] = text[:at] + text[at + 1 :]
                return {("char", text[at]): None}
        draft["x"] = new
        return {("x", 0): new}


class Program:
    def __init__(self, agent: Agent[Any], kind: Keys | Items) -> None:
        self.agent = agent
        self.kind = kind
        begun = Edit(agent.checkpoint("begun").seq, None)
        found: Layers = {place: ((begun, value),) for place, value in kind.look(agent.state)}
        self.models = {begun.seq: Model(found)}

    def act(self, what: str, number: int, group: str | None) -> None:
        model = self.models[self.agent.seq]
        match what:
            case "edit":
                with self.agent.edit(group=group) as draft:
                    changed = self.kind.edit(draft, number, self.agent.seq + 10)
                model = model.edited(Edit(self.agent.seq, group), changed)
            case "undo" | "redo":
                model = self.go_back(model, what)
            case "rollback":
                at = sorted(self.models)[-1 - number % len(self.models)]
                self.agent.rollback(at)
                model = self.models[at]
            case "checkpoint":
                self.agent.checkpoint(f"c{self.agent.seq}-{number}")
        self.models[self.agent.seq] = model
        seen = dict(self.kind.look(self.agent.state))
        assert seen == {at: value for at, value in model.values.items() if at[0] != "order"}

    def go_back(self, model: Model, what: str) -> Model:
        do = getattr(self.agent, what)
        if not (model.standing if what == "undo" else model.undone):
            with pytest.raises(NotFound):
                do()
            return model
        after: Model | None = getattr(model, what)()
        if after is None:
            with pytest.raises(Conflict, match="later commits touched"):
                do()
            return model
        before = [place for place, _ in self.kind.look(self.agent.state)]
        with suppress(*[] if self.kind.exact else [Conflict]):
            do()
            moved = {
                name
                for one in (model, after)
                for undone in one.undone[-1:]
                for _, name in undone.taken
            }
            found = [place for place, _ in self.kind.look(self.agent.state)]
            both = {place for place in before if place in found and place[1] not in moved}
            if not self.kind.exact:  # of a dict's keys, which others come back decides
                assert [at for at in before if at in both] == [at for at in found if at in both]
            return after
        return model


@pytest.mark.parametrize("kind", [Keys(), Items()], ids=["keys", "items"])
@settings(max_examples=150, deadline=None)
@given(todo=programs)
def test_what_stands_can_be_undone_and_what_was_undone_redone(kind: Any, todo: Any) -> None:
    """Of a group a part had been undone, and redone behind another part: its own undo and redo were
    in its way ever after. And the undo of a group went over a change of an item's that was made
    while another group's item stood in front of it: it had looked at the wrong place."""
    with perdure.open("memory://", durability="os") as store:
        program = Program(store.agent("a", initial=kind.initial), kind)
        for what, number, group in todo:
            program.act(what, number, group)
        program.agent.verify()
