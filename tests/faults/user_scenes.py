"""Calls in which code of the user's own is called, any call of which may raise: validators, methods
of values, invariants, migrations, probes, callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pydantic

import perdure
from perdure.agents import Agent
from perdure.aio import AsyncStore
from perdure.core.schema.schema import Schema
from perdure.engine.dispatch.worker import Worker
from perdure.store import Store
from tests.faults.checking import State
from tests.faults.injecting import KINDS, is_from, is_told
from tests.faults.run_scenes import worked_off
from tests.faults.scenes import SCENES, Call

USER_KINDS: tuple[Callable[[], BaseException], ...] = (
    *KINDS,
    lambda: StopIteration("injected"),
    lambda: GeneratorExit("injected"),
    lambda: asyncio.CancelledError("injected"),
    lambda: perdure.Conflict("injected"),
    lambda: perdure.NotFound("injected"),
    lambda: ValueError("injected"),
)


class Trap:
    """Counts the calls of the user's code, and raises in one of them; see `Injector`."""

    def __init__(self) -> None:
        self.count = self.at = 0
        self.make = USER_KINDS[0]
        self.raised: BaseException | None = None
        self.where = ""
        self.armed = False

    def step_on(self, name: str) -> None:
        if not self.armed:
            return
        self.count += 1
        if self.count == self.at:
            self.where, raised = name, self.make()
            if isinstance(raised, ValueError) and name == "__post_init__":
                return  # a class that refuses what it once took: its plain form is handed over
            self.raised = raised
            raise raised

    def spring(self, call: Call, at: int, make: Callable[[], BaseException]) -> Trap:
        """Make a call, in which the `at`-th call of the user's code raises; 0: none does."""
        self.__init__()  # type: ignore[misc]
        self.at, self.make, self.armed = at, make, True
        try:
            call()
        except BaseException as error:
            # What a validator says of a value is told in words of ours, which have it in them.
            cancelled = isinstance(error, asyncio.CancelledError)  # the loop makes a new one
            if not (cancelled or is_told(error) or is_from(error, self.raised)):
                raise
        finally:
            self.armed = False
        return self


trap = Trap()
here = trap.step_on


def made(kind: Callable[[], Any]) -> Any:
    here("default_factory")
    return kind()


USERS: set[str] = set()
"""The scenes of this file."""


def user_scene(fn: Any) -> Any:
    SCENES[fn.__name__] = fn
    USERS.add(fn.__name__)
    return fn


@dataclass
class Thing:
    """A value whose every method may raise."""

    name: str = ""
    parts: list[str] = field(default_factory=lambda: made(list))

    def __post_init__(self) -> None:
        here("__post_init__")

    def __eq__(self, other: object) -> bool:
        here("__eq__")
        return isinstance(other, Thing) and (self.name, self.parts) == (other.name, other.parts)

    def __hash__(self) -> int:
        here("__hash__")
        return hash(self.name)

    def __repr__(self) -> str:
        here("__repr__")
        return f"Thing({self.name!r})"

    def __bool__(self) -> bool:
        here("__bool__")
        return True

    def __copy__(self) -> Thing:
        here("__copy__")
        return Thing(self.name, self.parts)

    def __deepcopy__(self, memo: Any) -> Thing:
        here("__deepcopy__")
        return Thing(self.name, [*self.parts])

    @property
    def size(self) -> int:
        here("property")
        return len(self.parts)


class Note(pydantic.BaseModel):
    text: str = pydantic.Field(default_factory=lambda: made(str))

    def __eq__(self, other: object) -> bool:
        here("__eq__")
        return isinstance(other, Note) and self.text == other.text

    def __hash__(self) -> int:
        here("__hash__")
        return hash(self.text)

    @pydantic.field_validator("text")
    @classmethod
    def _check(cls, value: str) -> str:
        here("validator")
        return value

    @pydantic.field_serializer("text")
    def _write(self, value: str) -> str:
        here("serializer")
        return value


class Touchy(State):
    things: list[Thing] = pydantic.Field(default_factory=lambda: made(list))
    notes: dict[str, Note] = pydantic.Field(default_factory=lambda: made(dict))

    @pydantic.model_validator(mode="after")
    def _whole(self) -> Touchy:
        here("model_validator")
        return self

    @pydantic.field_validator("n")
    @classmethod
    def _check(cls, value: int) -> int:
        here("validator")
        return value


def keeps(after: Touchy) -> bool:
    here("invariant")
    return after.n >= 0


def grows(before: Touchy | None, after: Touchy) -> bool:
    here("invariant")
    return before is None or after.n >= 0


def migrated(plain: dict[str, Any]) -> dict[str, Any]:
    here("migration")
    plain["n"] += 1
    return plain


OLD = Schema(Touchy, id="Touchy", version=1, invariants=[keeps])
NEW = Schema(Touchy, id="Touchy", version=2, migrations={1: migrated}, invariants=[keeps, grows])


def change(draft: Touchy) -> None:
    here("fn")
    draft.n += 1
    draft.items.append("x")
    draft.things.append(Thing(f"thing {draft.n}"))
    draft.things[0].parts.append("part")
    draft.notes[f"note {draft.n}"] = Note(text="new")


def begun(store: Store, name: str, schema: Schema[Touchy] = NEW) -> Agent[Touchy]:
    agent = store.agent(name, schema, initial=Touchy(things=[Thing("first")]))
    agent.update(change)
    agent.update(change)
    return agent


def _two(store: Store, name: str) -> tuple[Agent[Touchy], Agent[Touchy]]:
    return begun(store, name), store.agent(name, NEW)


@user_scene
def user_edit(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)

    def call() -> None:
        with agent.edit("change") as draft:
            change(draft)
            assert draft.things[0] != Thing("other") and draft.things[0].size

    return agent, call


@user_scene
def user_update(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent, other = _two(store, name)
    other.update(change)  # it is a conflict first
    return agent, lambda: agent.update(change, "change", key="k")


@user_scene
def user_first(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = store.agent(name, NEW)
    return agent, lambda: agent.update(lambda draft: setattr(draft, "n", 1), "first", key="k")


@user_scene
def user_save(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)
    things, notes = [Thing("first", ["q"]), Thing("n")], {"a": Note(text="b")}
    state = Touchy(n=7, items=["x", "y"], things=things, notes=notes)
    return agent, lambda: agent.save(state, "whole")


@user_scene
def user_refresh(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent, other = _two(store, name)
    other.update(change)
    return agent, agent.refresh


@user_scene
def user_follow(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent, other = _two(store, name)
    other.update(change)
    return agent, agent.follow


@user_scene
def user_undo(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)

    def call() -> None:
        agent.undo()
        agent.redo()

    return agent, call


@user_scene
def user_look(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)

    def call() -> None:
        assert not agent.drift() and agent.at(2).state.n == 1
        agent.verify(progress=lambda *_: here("progress"))
        agent.checkpoint(f"point {agent.seq}", config={"size": 1})

    return agent, call


@user_scene
def user_migrate(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    """What was written under an older version is read, and written again."""
    begun(store, name, OLD)

    def call() -> None:
        store.agent(name, NEW).update(change, key="k")

    return store.agent(name, NEW), call


@user_scene
def user_async(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)

    async def main() -> None:
        other = await AsyncStore(store).agent(name, NEW)
        async with other.edit("change") as draft:
            change(draft)
        await asyncio.gather(other.update(change), other.refresh())

    return agent, lambda: asyncio.run(main())


# -- runs --------------------------------------------------------------------------------------


def identified(thing: Thing, **_: Any) -> str:
    here("identity")
    return thing.name


@perdure.step(identity=lambda thing: identified(thing))
def weigh(thing: Thing) -> Thing:
    here("step")
    return Thing(thing.name, ["weighed"])


def looked(thing: Thing) -> object:
    here("probe")
    return perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=looked)
def sell(thing: Thing) -> Note:
    here("tool")
    return Note(text=thing.name)


@perdure.step
async def aweigh(thing: Thing) -> Thing:
    here("step")
    return Thing(thing.name, ["weighed"])


def some() -> Iterator[Thing]:
    for name in "ab":
        here("generator")
        yield Thing(name)


@perdure.agent(NEW)
def trading(run: perdure.Run[Touchy], thing: Thing) -> Thing:
    here("function")
    weighed = weigh(thing)
    note = sell(weighed)
    with run.edit("sold") as draft:
        change(draft)
        draft.notes["sold"] = note
    run.map(weigh, some(), limit=2)
    run.ask("Go on?", timeout=timedelta(milliseconds=1), default=True)
    return weighed


@perdure.agent(NEW)
async def atrading(run: perdure.AsyncRun[Touchy], thing: Thing) -> Thing:
    here("function")
    await asyncio.gather(*(aweigh(one) for one in some()))
    async with run.edit("sold") as draft:
        change(draft)
    return await aweigh(thing)


@user_scene
def run_user(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)

    def call() -> None:
        assert store.run(trading, name, Thing("coat")) == Thing("coat", ["weighed"])

    return agent, call


@user_scene
def run_user_async(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)

    async def main() -> None:
        found = await AsyncStore(store).run(atrading, name, Thing("coat"))
        assert found == Thing("coat", ["weighed"])

    return agent, lambda: asyncio.run(main())


@user_scene
def run_user_worker(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    agent = begun(store, name)
    handle = store.options(queue=name).start(trading, name, Thing("coat"))

    def call() -> None:
        worker = Worker(store, [trading], queues=[name], on_event=lambda event: here("on_event"))
        worked_off(store, worker, name)
        assert handle.result(0.0) == Thing("coat", ["weighed"])

    return agent, call


# -- frameworks --------------------------------------------------------------------------------


def embedded(texts: Any) -> list[list[float]]:
    here("embed")
    return [[float(len(text)), 1.0] for text in texts]


def clock() -> datetime:
    here("clock")
    return datetime(2026, 1, 1, tzinfo=UTC)


@user_scene
def user_memory_store(store: Store, name: str) -> tuple[Agent[Touchy], Call]:
    from perdure.integrations.langgraph import PerdureStore

    agent = begun(store, name)
    index: Any = {"dims": 2, "embed": embedded}
    kept = PerdureStore(store, prefix=f"{name}-", index=index, clock=clock)
    kept.put(("people",), "one", {"text": "word"})

    def call() -> None:
        kept.put(("people",), "two", {"text": "words"}, ttl=5)
        found = kept.search(("people",), query="word")
        assert {one.key for one in found} == {"one", "two"}
        kept.delete(("people",), "two")

    return agent, call
