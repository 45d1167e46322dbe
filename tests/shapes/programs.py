"""Programs of saves, edits, undo, redo and rollbacks by chance, on states of a shape by chance.

Each step is also made on plain Python values, which are what the agent must show then: through the
handle that made the step, and through one that reads the log anew. In `TwoVersions` each step is
made by one of two versions of the program; in `grown.py` these know the classes differently.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from typing import Any

import msgspec

import perdure
from perdure.errors import Unstorable
from perdure.store import Store
from tests.shapes.alike import attributes, difference
from tests.shapes.generate import A_DICT
from tests.shapes.leaves import Make
from tests.shapes.ways import same
from tests.shapes.wider import Wider

KEYS = ("a", "b", "c")
STEPS = ("save", "save", "edit", "edit", "edit", "undo", "undo", "redo", "rollback", "look")


class Straight(Wider):
    """Shapes whose values hold nothing but what their classes declare."""

    # With these, pydantic itself makes other values of those that are assigned.
    CONFIGURED = tuple(
        name for name in Wider.CONFIGURED if name not in ("use_enum_values", "validate_assignment")
    )

    def _bent(self, value: Any, names: list[str]) -> Any:
        return value

    def maker(self) -> tuple[Any, Make]:
        return self._composed(0)


class Program:
    """One agent, and what it should be: a dict of instances."""

    def __init__(self, store: Store, seed: int, kind: Any, make: Make) -> None:
        self.rng = random.Random(f"program {seed}")
        self.seed, self.kind, self.make, self.store = seed, kind, make, store
        self.name = f"{type(self).__name__}-{seed}"
        self.schema = self.newest = self._schema()
        value = self._fresh()
        self.agent = store.agent(self.name, self.schema, initial=self._whole(copy.deepcopy(value)))
        self.agent.checkpoint("begin")
        self.said: list[str] = []
        self.at = {self.agent.seq: self._in_full(value)}
        self.back: list[Any] = []  # what undo brings, the next one last
        self.forth: list[Any] = []

    # What `TwoVersions` does otherwise

    def _schema(self) -> Any:
        return perdure.Schema(A_DICT[str, self.kind], id="holder")

    def _whole(self, value: Any) -> Any:
        """Returns a model's value as the state."""
        return value

    def _parts(self, state: Any) -> dict[str, Any]:
        """Returns the dicts of a state, or of a draft, by name."""
        return {"": state}

    def _in_full(self, value: Any) -> Any:
        return value

    def _model(self, state: Any) -> Any:
        return copy.deepcopy(state)

    def _seen(self, value: Any) -> Any:
        """Returns as much of a model's value as the handle shows."""
        return value

    # Steps

    def _fresh(self) -> Any:
        keys = self.rng.sample(KEYS, self.rng.randrange(1, 4))
        return {key: self.make(self.rng) for key in keys}

    def run(self, steps: int) -> int:
        """Makes that many steps. Returns the number that were made and not refused.

        Raises:
            LossError, AssertionError, PerdureError: with the steps so far as its notes.
        """
        try:
            return sum(self._step(self.rng.choice(STEPS)) for _ in range(steps))
        except Exception as error:
            error.add_note(f"seed {self.seed}: {self.said}")
            raise

    def _step(self, step: str) -> bool:
        self.said.append(step)
        before = self.at[self.agent.seq]
        self._take_handle()
        seq = self.agent.seq
        expected = getattr(self, f"_{step}")(copy.deepcopy(before))
        if expected is None:  # refused
            self.said[-1] += " no"
            expected = before
        self._compare(expected, self.agent, step)
        self._compare(expected, self.store.agent(self.name, self.schema), f"{step}, read anew")
        self.at[self.agent.seq] = expected
        return self.agent.seq != seq

    def _take_handle(self) -> None:
        if self.rng.random() < 0.2:
            self.agent = self.store.agent(self.name, self.schema)

    def _compare(self, expected: Any, agent: Any, where: str) -> None:
        same(self._seen(expected), self._seen(self._model(agent.state)), where)
        assert agent.drift() == [], agent.drift()

    def _changed(self, before: Any, after: Any, seq: int) -> None:
        if self.agent.seq != seq:
            self.back.append(before)
            self.forth.clear()
        else:
            assert difference(before, after) is None, "nothing was committed"

    def _save(self, before: Any) -> Any:
        seq, value = self.agent.seq, copy.deepcopy(before)
        for name, part in self._parts(self._seen(value)).items():
            new = self._parts(self._fresh()).get(name, {})
            for key in part.keys() & new.keys():
                if self.rng.random() < 0.5:  # as who changes a copy of what is there
                    new[key] = graft(self.rng, copy.deepcopy(part[key]), new[key])
            part.clear()
            part.update(new)
        try:
            self.agent.save(self._whole(copy.deepcopy(self._seen(value))))
        except (Unstorable, perdure.SchemaError):
            return None
        self._changed(before, value, seq)
        return value

    def _edit(self, before: Any) -> Any:
        seq, value = self.agent.seq, copy.deepcopy(before)
        # Few values, so that a block may change things back.
        pool = [before, before, self._fresh(), self._fresh()]
        try:
            with self.agent.edit("edited") as draft:
                for name, part in self._parts(draft).items():
                    for _ in range(self.rng.randrange(1, 4)):
                        source = self._parts(self.rng.choice(pool)).get(name, {})
                        self._edit_key(part, self._parts(value)[name], source)
        except (Unstorable, perdure.SchemaError):
            return None
        self._changed(before, value, seq)
        return value

    def _edit_key(self, draft: Any, value: Any, source: Any) -> None:
        key, roll = self.rng.choice(KEYS), self.rng.random()
        if key not in source or roll < 0.2:
            if key in value:
                del draft[key], value[key]
        elif roll < 0.3 and value:
            other = self.rng.choice([*value])
            for one in (draft, value):
                one[key] = one.pop(other)
        elif key not in value or roll < 0.5:
            draft[key], value[key] = copy.deepcopy(source[key]), copy.deepcopy(source[key])
        else:
            number = self.rng.random()
            new, other = copy.deepcopy(source[key]), copy.deepcopy(source[key])
            draft[key] = graft(random.Random(number), draft[key], new)
            value[key] = graft(random.Random(number), value[key], other)

    def _undo(self, before: Any) -> Any:
        if not self.back:
            return None
        self.agent.undo()
        self.forth.append(before)
        return self.back.pop()

    def _redo(self, before: Any) -> Any:
        if not self.forth:
            return None
        self.agent.redo()
        self.back.append(before)
        return self.forth.pop()

    def _rollback(self, before: Any) -> Any:
        seq = self.rng.choice([*self.at])
        self.agent.rollback(seq)
        self.back, self.forth = [], []
        return self.at[seq]

    def _look(self, before: Any) -> Any:
        same(self._seen(before), self._seen(self._model(self.agent.at(self.agent.seq).state)), "at")
        return before


class TwoVersions(Program):
    """A program and an older one take turns: the newer has a further field, which the older one
    keeps without knowing it."""

    def _schema(self) -> Any:
        part: Any = A_DICT[str, self.kind]
        fields: list[Any] = [
            (name, part, dataclasses.field(default_factory=dict)) for name in ("items", "more")
        ]
        self.classes = [dataclasses.make_dataclass("Holder", fields[:count]) for count in (1, 2)]
        self.schemas: list[Any] = [
            perdure.Schema(cls, id="holder", version=(1, minor))
            for minor, cls in enumerate(self.classes)
        ]
        return self.schemas[1]

    def _take_handle(self) -> None:
        self.schema = self.rng.choice(self.schemas)
        self.said[-1] += " by the newer" if self.schema is self.newest else " by the older"
        self.agent = self.store.agent(self.name, self.schema)

    def _whole(self, value: Any) -> Any:
        return self.classes[len(value) - 1](**value)

    def _parts(self, state: Any) -> dict[str, Any]:
        if isinstance(state, dict):
            return state
        names = ("items", "more") if self.schema is self.newest else ("items",)
        return {name: getattr(state, name) for name in names}

    def _in_full(self, value: Any) -> Any:
        return {"items": {}, "more": {}} | value

    def _model(self, state: Any) -> Any:
        return copy.deepcopy(self._parts(state))

    def _seen(self, value: Any) -> Any:
        return value if self.schema is self.newest else {"items": value["items"]}

    def _fresh(self) -> Any:
        return {"items": super()._fresh(), "more": super()._fresh()}


def graft(rng: random.Random, old: Any, new: Any) -> Any:
    """Returns a value with parts of two: the old one, changed in place where that can be done. It
    does the same to a draft of the old one."""
    if type(new) is dict and isinstance(old, dict):
        for key in [*old]:
            if key not in new and rng.random() < 0.5:
                del old[key]
        for key, item in new.items():
            old[key] = graft(rng, old[key], item) if key in old else item
        return old
    if type(new) is list and isinstance(old, list):
        return _graft_list(rng, old, new)
    if type(new) is set and isinstance(old, set):
        old.update(new)
        return old
    if _is_open(new) and isinstance(old, type(new)):
        for name in _names(new):
            if rng.random() < 0.5 and hasattr(old, name) and hasattr(new, name):
                setattr(old, name, graft(rng, getattr(old, name), getattr(new, name)))
        return old
    return new


def _graft_list(rng: random.Random, old: Any, new: list[Any]) -> Any:
    at, other = rng.randrange(len(old) + 1), rng.randrange(len(old) + 1)
    roll = rng.randrange(9)
    if roll == 0:
        old.extend(new)
    elif roll == 1:
        del old[at:other]
    elif roll == 2:
        old[at:other] = new
    elif roll == 3:
        old.reverse()
    elif roll == 4 and new:
        old.insert(at, new[0])
    elif roll == 5 and old:
        moved = old.pop(rng.randrange(len(old)))
        old.insert(at, moved)
    elif roll == 6:
        old[at:other] = [*old[at:other]][::-1]
    elif roll == 7 and new:
        old += new
        old.pop(0)
    else:
        for index, item in enumerate(new):
            if index < len(old):
                old[index] = graft(rng, old[index], item)
    return old


def _is_open(value: Any) -> bool:
    """True if it is an object whose fields can be assigned."""
    cls = type(value)
    if isinstance(value, msgspec.Struct):
        return not cls.__struct_config__.frozen
    if hasattr(cls, "__pydantic_fields__") and not dataclasses.is_dataclass(value):
        return not cls.model_config.get("frozen")
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and not parameters.frozen


def _names(value: Any) -> list[str]:
    return sorted(name for name in attributes(value) if not name.startswith(("_", "+")))
