"""What frameworks call: LangGraph's saver and store, the sessions of OpenAI Agents."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp

import perdure
from perdure.engine.control.agent_deletion import any_branch
from perdure.integrations.langgraph import PerdureSaver, PerdureStore
from perdure.integrations.langgraph.values.thread_names import SCHEMA_ID
from perdure.integrations.openai_agents import (
    Conversation,
    PerdureRunStates,
    PerdureSession,
    RecordedModel,
    RunSession,
)
from perdure.testing.driving import run_until_waiting
from tests.rubbish.rooms import Parts, Reasons, Room, arguments, methods, used
from tests.rubbish.world import World

_numbers = itertools.count()
THREAD, TALK, LABEL = "thread", "talk", "label"


def config(thread: str = THREAD, checkpoint: str | None = "1") -> Any:
    more = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def checkpoint(id_: str) -> Any:
    return {
        "v": 4,
        "id": id_,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"x": 1, "list": ["a"]},
        "channel_versions": {"x": 1, "list": 1},
        "versions_seen": {"node": {"x": 1}},
        "updated_channels": ["x"],
    }


METADATA: Any = {"source": "loop", "step": 1, "parents": {}, "run_id": "r"}

_CONFIG = (
    "config__configurable",
    "config__metadata",
    *(
        f"config__configurable__{name}"
        for name in ("thread_id", "checkpoint_ns", "checkpoint_id", "user_id", "run_id")
    ),
)
_PUT = (
    *_CONFIG,
    "checkpoint__v",
    "checkpoint__id",
    "checkpoint__ts",
    "checkpoint__channel_values",
    "checkpoint__channel_values__x",
    "checkpoint__channel_values__list",
    "checkpoint__channel_values__list__0",
    "checkpoint__channel_versions",
    "checkpoint__channel_versions__x",
    "checkpoint__versions_seen",
    "checkpoint__versions_seen__node",
    "checkpoint__versions_seen__node__x",
    "checkpoint__updated_channels",
    "checkpoint__more",
    "metadata__source",
    "metadata__step",
    "metadata__parents",
    "metadata__run_id",
    "metadata__more",
    "new_versions__x",
)
_WRITES = (*_CONFIG, "writes__0", "writes__0__0", "writes__0__1")


class Saver(Room):
    """`PerdureSaver`, of a thread with two checkpoints."""

    name = "Saver."
    parts: ClassVar[Parts] = {
        "Saver.put": _PUT,
        "Saver.aput": _PUT,
        "Saver.put_writes": _WRITES,
        "Saver.aput_writes": _WRITES,
        "Saver.get_tuple": _CONFIG,
        "Saver.aget_tuple": _CONFIG,
        "Saver.list": (*_CONFIG, "filter__source", "before__configurable__checkpoint_id"),
        "Saver.alist": (*_CONFIG, "filter__source", "before__configurable__checkpoint_id"),
    }
    excused: ClassVar[Reasons] = {
        "Saver.close": "no arguments",
        "Saver.aclose": "no arguments",
        "Saver.setup": "no arguments",
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        return methods(PerdureSaver, self.name)

    def prepare(self, world: World) -> None:
        saver = PerdureSaver(world.store)
        saver.put(config(checkpoint=None), checkpoint("0"), METADATA, {"x": 1, "list": 1})
        saver.put(config(checkpoint="0"), checkpoint("1"), METADATA, {"x": 1, "list": 1})

    def right(self, world: World, target: str) -> dict[str, Any]:
        n = next(_numbers)
        filtered = {"filter": {"source": "loop"}, "before": config(checkpoint="9"), "limit": 5}
        every: dict[str, Any] = {
            "__init__": {"store": world.store},
            "from_url": {"url": world.elsewhere},
            "put": {
                "config": config(),
                "checkpoint": checkpoint(f"2{n}"),
                "metadata": METADATA,
                "new_versions": {"x": 1, "list": 1},
            },
            "put_writes": {"config": config(), "writes": [("x", 1)], "task_id": f"t{n}"},
            "get_tuple": {"config": config()},
            "list": {"config": config(), **filtered},
            "get_delta_channel_history": {"config": config(), "channels": ["x"]},
            "delete_thread": {"thread_id": f"none{n}"},
            "delete_for_runs": {"run_ids": ["none"]},
            "copy_thread": {"source_thread_id": THREAD, "target_thread_id": f"copy{n}"},
            "prune": {"thread_ids": [f"none{n}"]},
            "trim": {"before": 2, "thread_ids": [THREAD]},
            "get_next_version": {"current": 1},
            "with_allowlist": {"extra_allowlist": ()},
        }
        found: dict[str, Any] = every.get(target.removeprefix(self.name), {})
        return found

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        function = self.found()[target]
        given = arguments(
            self.right(world, target) or self.right(world, f"{self.name}{name[1:]}"), wrong
        )
        given = {**given.pop("more", {}), **given} if name == "from_url" else given
        if name == "__init__":
            saver = PerdureSaver(**given)
            saver.put(config("made", None), checkpoint("0"), METADATA, {"x": 1})
        elif name == "from_url":
            with function(**given) as saver:
                saver.get_tuple(config())
        else:
            used(loop, function(PerdureSaver(world.store), **given))

    def read(self, world: World, agents: set[str]) -> None:
        with perdure.open(world.url, durability="os") as store:
            saver = PerdureSaver(store)
            for info in store.agents():
                if info.name in agents and _schema(store, info) == SCHEMA_ID:
                    found = list(saver.list(config(info.name, None)))
                    assert (saver.get_tuple(config(info.name, None)) is None) == (found == [])


def _schema(store: perdure.Store, info: perdure.types.AgentInfo) -> str:
    agent = store.agent_of(info, branch=any_branch(store._context.backend.refs(info.no)))
    return next(iter(agent.log(all_branches=True))).schema_id


_OWN = ("batch", "abatch", "sweep_ttl", "asweep_ttl", "start_ttl_sweeper", "stop_ttl_sweeper")
_THEIRS = ("get", "search", "put", "delete", "list_namespaces")


class Memory(Room):
    """`PerdureStore`, with one item; the methods that LangGraph gives it, too."""

    name = "Memory."
    parts: ClassVar[Parts] = {
        "Memory.put": ("value__a", "namespace__0"),
        "Memory.aput": ("value__a", "namespace__0"),
        "Memory.search": ("filter__a",),
        "Memory.asearch": ("filter__a",),
        "Memory.batch": tuple(f"ops__{n}__{field}" for n in range(3) for field in range(5)),
        "Memory.__init__": (
            "index__dims",
            "index__embed",
            "index__fields",
            "ttl__default_ttl",
            "ttl__sweep_interval_minutes",
            "ttl__refresh_on_read",
        ),
    }
    excused: ClassVar[Reasons] = {
        **{f"Memory.{name}": "no arguments" for name in ("setup", "sweep_ttl", "asweep_ttl")},
        "Memory.start_ttl_sweeper": "a thread that goes on behind the call; its own tests",
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        theirs = [name for one in _THEIRS for name in (one, f"a{one}")]
        return methods(PerdureStore, self.name) | {
            self.name + name: getattr(BaseStore, name) for name in theirs
        }

    def prepare(self, world: World) -> None:
        PerdureStore(world.store).put((LABEL, "x"), "key", {"a": 1})

    def right(self, world: World, name: str) -> dict[str, Any]:
        place = {"namespace": (LABEL, "x"), "key": "key"}
        ops = [
            GetOp((LABEL, "x"), "key"),
            SearchOp((LABEL,)),
            PutOp((LABEL, "x"), "other", {"b": 1}),
        ]
        every: dict[str, Any] = {
            "__init__": {
                "store": world.store,
                "ttl": {"default_ttl": 5},
                "index": {"dims": 1, "embed": _embed, "fields": ["a"]},
            },
            "from_url": {"url": world.elsewhere},
            "batch": {"ops": ops},
            "get": place,
            "delete": place,
            "put": {**place, "value": {"a": next(_numbers)}},
            "search": {"namespace_prefix": (LABEL,), "filter": {"a": 1}},
        }
        found: dict[str, Any] = every.get(name, {})
        return found

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        given = arguments(self.right(world, name) or self.right(world, name[1:]), wrong)
        if name == "__init__":
            memory = PerdureStore(**given)
            memory.put((LABEL, "made"), "k", {"a": "words"})
            memory.search((LABEL,), query="words")
        elif name == "from_url":
            with PerdureStore.from_url(**given) as memory:
                memory.search(())
        else:
            memory = PerdureStore(world.store, ttl={"default_ttl": 5})
            args = [given.pop("namespace_prefix")] if "namespace_prefix" in given else []
            args = args or [given.pop(one) for one in ("namespace", "key") if one in given]
            used(loop, getattr(memory, name)(*args, **given))

    def read(self, world: World, agents: set[str]) -> None:
        with perdure.open(world.url, durability="os") as store:
            memory = PerdureStore(store)
            for item in memory.search((), limit=1000):
                assert memory.get(item.namespace, item.key) is not None


def _embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text))] for text in texts]


ITEM = {"role": "user", "content": "hello", "type": "message"}
_ITEMS = ("items__0", "items__0__role", "items__0__content", "items__0__type", "items__0__more")


class Session(Room):
    """`PerdureSession` and `PerdureRunStates`, of a conversation of two items."""

    name = "Session."
    parts: ClassVar[Parts] = {"Session.add_items": _ITEMS, "Session._atomic_replace_items": _ITEMS}
    excused: ClassVar[Reasons] = {
        f"Session.{name}": "no arguments"
        for name in ("agent", "branches", "pop_item", "close", "clear_session")
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        return methods(PerdureSession, self.name) | {
            "Session._atomic_replace_items": PerdureSession._atomic_replace_items,
            "Session._get_compaction_snapshot": PerdureSession._get_compaction_snapshot,
            "Session.states": PerdureRunStates,
            **{
                f"Session.states.{name}": getattr(PerdureRunStates, name)
                for name in ("save", "load", "take", "clear")
            },
        }

    def prepare(self, world: World) -> None:
        agent = world.store.agent(
            TALK, Conversation, initial=Conversation([dict(ITEM), dict(ITEM)])
        )
        with agent.edit("begun"):
            pass

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        every: dict[str, Any] = {
            "__init__": {"session_id": TALK, "store": world.store},
            "states": {"store": world.store},
            "add_items": {"items": [ITEM]},
            "_atomic_replace_items": {"items": [ITEM]},
            "_get_compaction_snapshot": {"limit": 1},
            "fork": {"name": f"f{next(_numbers)}"},
            "states.save": {"conversation_id": TALK, "state": None},
            "states.load": {"conversation_id": TALK, "agent": None},
            "states.take": {"conversation_id": TALK, "agent": None},
            "states.clear": {"conversation_id": TALK},
        }
        right: dict[str, Any] = every.get(name, {})
        if "url" in wrong:
            right.pop("store", None)
        given = arguments(right, wrong)
        if name == "__init__":
            used(loop, _talk(PerdureSession(**given)))
        elif name == "states":
            used(loop, _kept(PerdureRunStates(**given)))
        elif name.startswith("states."):
            states = PerdureRunStates(store=world.store)
            used(loop, getattr(states, name.removeprefix("states."))(**given))
        else:
            session = PerdureSession(TALK, store=world.store)
            args = [given.pop("_")] if "_" in given else []
            found = used(loop, getattr(session, name)(*args, **given))
            if name == "_get_compaction_snapshot" and found is not None:
                used(loop, found.replace_suffix(0, [ITEM]))

    def read(self, world: World, agents: set[str]) -> None:
        if TALK in agents:
            with perdure.open(world.url, durability="os") as store:
                for branch in store.agent(TALK, Conversation).branches():
                    assert type(store.agent(TALK, Conversation, branch=branch.name).state.items)


async def _talk(session: PerdureSession) -> None:
    async with session:  # else its store stays open, of each URL one
        await session.add_items([ITEM])  # type: ignore[list-item]
        await session.get_items()


async def _kept(states: PerdureRunStates) -> None:
    async with states:
        await states.clear(TALK)


class InRun(Room):
    """`RunSession` and `RecordedModel`, inside a run of their own."""

    name = "InRun."
    parts: ClassVar[Parts] = {"InRun.add_items": _ITEMS}
    excused: ClassVar[Reasons] = {
        "InRun.pop_item": "no arguments",
        "InRun.clear_session": "no arguments",
        "InRun.model.close": "no arguments",
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        found = methods(RunSession, self.name) | methods(RecordedModel, f"{self.name}model.")
        return {name: one for name, one in found.items() if not name.endswith("stream_response")}

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        errors: list[BaseException] = []

        async def body(run: perdure.AsyncRun[Conversation]) -> None:
            try:
                await _in_run(run, name, wrong)
            except BaseException as error:
                errors.append(error)
                raise

        try:
            run_until_waiting(
                world.store, perdure.agent(Conversation, name="body")(body), f"i{next(_numbers)}"
            )
        except Exception as error:
            if errors and isinstance(errors[-1], Exception):
                raise errors[-1] from error
            raise


async def _in_run(run: perdure.AsyncRun[Conversation], name: str, wrong: Mapping[str, Any]) -> None:
    every: dict[str, Any] = {
        "__init__": {"run": run},
        "add_items": {"items": [ITEM]},
        "model.__init__": {"run": run, "model": _Model()},
        "model.get_response": {"system_instructions": None, "input": "hello"},
    }
    given = arguments(every.get(name, {}), wrong)
    if name.startswith("model."):
        model: Any = RecordedModel(run, _Model())  # type: ignore[arg-type]
        if name == "model.__init__":
            model, given = RecordedModel(**given), {"system_instructions": None, "input": "hello"}
        rest = given.pop("args", None)
        first = [given.pop("system_instructions"), given.pop("input")]
        more = {"extra": given.pop("kwargs")} if "kwargs" in given else {}
        await model.get_response(*first, *([] if rest is None else [rest]), **more)
        return
    session = RunSession(**given) if name == "__init__" else RunSession(run)
    if name == "__init__":
        await session.add_items([ITEM])  # type: ignore[list-item]
        await session.get_items()
    else:
        await getattr(session, name)(**given)


class _Model:
    async def get_response(self, *_: Any, **__: Any) -> Any:
        from agents import ModelResponse, Usage

        return ModelResponse(output=[], usage=Usage(), response_id=None)


ROOMS: tuple[Room, ...] = (Saver(), Memory(), Session(), InRun())
