"""Programs of two versions, where the classes within a shape have a further field in the newer one.

The older program keeps that field in whatever it does not change, wherever it stands: in a list, a
tuple, a NamedTuple, a dict, or as one of several classes.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import types
from collections.abc import Callable
from typing import Any, NotRequired

import msgspec
import pydantic

import perdure
from perdure.delta import Append, Splice
from perdure.errors import PerdureError
from perdure.store import Store
from tests.shapes.alike import attributes, difference
from tests.shapes.generate import A_DICT, META
from tests.shapes.leaves import Make
from tests.shapes.programs import Program, Straight, TwoVersions
from tests.shapes.ways import same

NOTES = ("", "one", "two", "three")


def _note(cls: Any) -> str:
    """Returns the name of a class's further field, by which the newer version tells it apart."""
    return f"note_{cls.__name__.lower()}"


class Ungrown(Straight):
    """Shapes with classes that only a newer version can tell apart."""

    def _union(self, depth: int) -> tuple[Any, Make]:
        if self._chance(0.5):
            return super()._union(depth)
        kind, make = self.kind(depth)
        fields: list[Any] = [("f0", kind), ("f1", int, 0), ("f2", int, 0)]
        how = self.rng.choice((_made_dataclass, _made_model, _made_struct))
        (one, make_one), (other, make_other) = (
            self._finished(how(self._name(), fields[:count]), make)
            for count in self.rng.sample((1, 2, 3), 2)
        )
        return one | other, lambda rng: rng.choice((make_one, make_other))(rng)

    def _finished(self, cls: Any, make: Make) -> tuple[Any, Make]:
        return cls, lambda rng: _construct(cls, make(rng))


def _construct(cls: Any, value: Any) -> Any:
    make = getattr(cls, "model_construct", cls)  # which leaves the value as it is
    return make(f0=value)


def _made_dataclass(name: str, fields: list[Any]) -> Any:
    return dataclasses.make_dataclass(name, fields)


def _made_struct(name: str, fields: list[Any]) -> Any:
    return msgspec.defstruct(name, fields)


def _made_model(name: str, fields: list[Any]) -> Any:
    hints = {one: kind for one, kind, *_ in fields}
    defaults = {one: default[0] for one, _, *default in fields if default}
    config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    body = {"__module__": __name__, "__annotations__": hints, "model_config": config}
    return META(name, (pydantic.BaseModel,), {**body, **defaults})


class Grown(Ungrown):
    """The same shapes for a seed, with a note in each class that is made there."""

    def _finished(self, cls: Any, make: Make) -> tuple[Any, Make]:
        return _grown(*super()._finished(cls, make))

    def _dataclass(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._dataclass(depth))

    def _pydantic_dataclass(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._pydantic_dataclass(depth))

    def _positional(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._positional(depth))

    def _model(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._model(depth))

    def _derived(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._derived(depth))

    def _configured(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._configured(depth))

    def _choices(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._choices(depth))

    def _inherited(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._inherited(depth))

    def _struct(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._struct(depth))

    def _typed_dict(self, depth: int) -> tuple[Any, Make]:
        return _grown(*super()._typed_dict(depth))


def _grown(cls: Any, make: Make) -> tuple[Any, Make]:
    """Returns a class with a note, and what makes values of it: those of the class, noted."""
    grow = _grow_dict
    if issubclass(cls, pydantic.BaseModel):
        grow = _grow_model
    elif issubclass(cls, msgspec.Struct):
        grow = _grow_struct
    elif dataclasses.is_dataclass(cls):
        grow = _grow_dataclass
    grown, noted = grow(cls)

    def make_noted(rng: random.Random) -> Any:
        value = make(rng)
        return noted(value, rng.choice(NOTES))

    return grown, make_noted


Growth = tuple[Any, Callable[[Any, str], Any]]


def _grow_dataclass(cls: Any) -> Growth:
    parameters = cls.__dataclass_params__
    grown: Any = dataclasses.make_dataclass(
        cls.__name__,
        [(_note(cls), str, dataclasses.field(default="", kw_only=True))],
        bases=(cls,),
        frozen=parameters.frozen,
        eq=parameters.eq,
        slots="__slots__" in vars(cls),
    )
    if hasattr(cls, "__pydantic_config__"):
        grown = pydantic.dataclasses.dataclass(grown, config=cls.__pydantic_config__)

    def noted(value: Any, note: str) -> Any:
        made = grown.__new__(grown)
        for name, item in attributes(value).items():
            object.__setattr__(made, name, item)
        object.__setattr__(made, _note(cls), note)
        return made

    return grown, noted


def _grow_model(cls: Any) -> Growth:
    body = {"__module__": __name__, "__annotations__": {_note(cls): str}, _note(cls): ""}
    grown: Any = META(cls.__name__, (cls,), body)

    def noted(value: Any, note: str) -> Any:
        made = grown.model_construct()
        for name in ("__dict__", "__pydantic_extra__", "__pydantic_private__"):
            object.__setattr__(made, name, copy.copy(getattr(value, name)))
        made.__dict__[_note(cls)] = note
        return made

    return grown, noted


def _grow_struct(cls: Any) -> Growth:
    config = cls.__struct_config__
    tagged = {} if config.tag is None else {"tag": config.tag, "tag_field": config.tag_field}
    fields = [(_note(cls), str, "")]
    grown: Any = msgspec.defstruct(cls.__name__, fields, bases=(cls,), kw_only=True, **tagged)

    def noted(value: Any, note: str) -> Any:
        kept = {name: getattr(value, name) for name in cls.__struct_fields__}
        return grown(**kept, **{_note(cls): note})

    return grown, noted


def _grow_dict(cls: Any) -> Growth:
    hints = {_note(cls): NotRequired[str]}
    body = {"__module__": __name__, "__annotations__": hints}
    grown = types.new_class(cls.__name__, (cls,), {}, lambda given: given.update(body))
    return grown, lambda value, note: {**value, _note(cls): note} if note else value


class GrownClasses(Program):
    """Two versions of a program take turns. What one of them leaves as it is, is what it was to the
    other, too; `at`, `back` and `forth` have what both show: the older one's first."""

    def __init__(self, store: Store, seed: int, kinds: Any, makes: Any) -> None:
        self.kinds, self.makes = kinds, makes
        self.which = 1
        self.both: Any = None  # what both show before a step
        self.target: Any = None  # what undo, redo or rollback goes to
        self.replaced: set[str] = set()  # keys that did not stand there all through an edit
        super().__init__(store, seed, kinds[1], self._make)
        self.at = {self.agent.seq: self._shown()}

    def _make(self, rng: random.Random) -> Any:
        return self.makes[self.which](rng)

    def _schema(self) -> Any:
        self.schemas: list[Any] = [
            perdure.Schema(A_DICT[str, kind], id="holder", version=(1, minor))
            for minor, kind in enumerate(self.kinds)
        ]
        return self.schemas[1]

    def _shown(self) -> tuple[Any, Any]:
        """Returns the state as each of them reads it anew."""
        agents = [self.store.agent(self.name, schema) for schema in self.schemas]
        assert not any(agent.drift() for agent in agents)
        older, newer = (copy.deepcopy(agent.state) for agent in agents)
        return older, newer

    def _step(self, step: str) -> bool:
        self.which = self.rng.randrange(2)
        self.schema = self.schemas[self.which]
        self.agent = self.store.agent(self.name, self.schema)
        self.said.append(f"{step} by the {('older', 'newer')[self.which]}")
        before, seq = self.at[self.agent.seq], self.agent.seq
        self.both, self.target, self.replaced = before, None, set()
        expected = getattr(self, f"_{step}")(copy.deepcopy(before[self.which]))
        if expected is None:
            self.said[-1] += " no"
            expected = before[self.which]
        shown = self._shown()
        same(expected, self.agent.state, step)
        same(expected, shown[self.which], f"{step}, read anew")
        assert self.agent.drift() == [], self.agent.drift()
        assert list(shown[0]) == list(shown[1])
        if self.target is not None:
            for one, there in zip(self.target, shown, strict=True):
                same(one, there, step)
        elif self.which == 0:
            self._compare_newer(before[0], expected, before[1], shown[1])
        self.at[self.agent.seq] = shown
        return self.agent.seq != seq

    def _compare_newer(self, before: Any, after: Any, theirs: Any, now: Any) -> None:
        """Compares what the newer version shows of the keys that the older one has not changed."""
        for key, value in after.items():
            if key in before.keys() - self.replaced and difference(before[key], value) is None:
                same(theirs[key], now[key], f"what the newer version shows of {key}")

    def _edit(self, before: Any) -> Any:
        value = super()._edit(before)
        if value is not None:  # an item may have gone, and an equal one come
            delta = next(self.agent.log(newest_first=True)).delta
            self.replaced |= {op.path[0] for op in delta if isinstance(op, Append | Splice)}
        return value

    def _edit_key(self, draft: Any, value: Any, source: Any) -> None:
        held, there = copy.deepcopy(value), dict(value)
        super()._edit_key(draft, value, source)
        gone = held.keys() - value.keys()
        come = {key for key, one in value.items() if gone and one is not there.get(key)}
        kept = {key: one for key, one in value.items() if key in held}
        new = {key for key, one in kept.items() if difference(held[key], one) is not None}
        self.replaced |= gone | come | new | (value.keys() - held.keys())

    def _changed(self, before: Any, after: Any, seq: int) -> None:
        if self.agent.seq != seq:
            self.back.append(self.both)
            self.forth.clear()
        else:
            assert difference(before, after) is None, "nothing was committed"

    def _undo(self, before: Any) -> Any:
        return self._go_to(self.agent.undo, self.back, self.forth)

    def _redo(self, before: Any) -> Any:
        return self._go_to(self.agent.redo, self.forth, self.back)

    def _go_to(self, go: Callable[[], Any], there: list[Any], here: list[Any]) -> Any:
        if not there:
            return None
        go()
        here.append(self.both)
        self.target = there.pop()
        return self.target[self.which]

    def _rollback(self, before: Any) -> Any:
        seq = self.rng.choice([*self.at])
        self.agent.rollback(seq)
        self.back, self.forth = [], []
        self.target = self.at[seq]
        return self.target[self.which]


def run_seed(store: Store, seed: int, steps: int = 12) -> int:
    """Runs the program of a seed. Returns the number of its steps that changed something; 0 where
    its library refuses such a class, or Perdure its type or first value."""
    generators = [Ungrown(seed), Grown(seed)] if seed % 3 == 1 else [Straight(seed)]
    try:
        kinds, makes = zip(*[one.maker() for one in generators], strict=True)
    except (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError):
        return 0
    program: Program
    try:
        if seed % 3 == 1:
            program = GrownClasses(store, seed, kinds, makes)
        else:
            cls = TwoVersions if seed % 3 == 0 else Program
            program = cls(store, seed, kinds[0], makes[0])
    except PerdureError:  # e.g. of a union whose classes nobody could tell apart
        return 0
    return program.run(steps)
