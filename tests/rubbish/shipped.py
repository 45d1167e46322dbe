"""What is called beside agents and runs: what adapters stand on, what tests of others use, logs
from elsewhere, and the storage port of a backend."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import Parameter
from typing import Any, ClassVar

from msgspec.structs import replace

import perdure
import perdure.testing
from perdure.adapters import ForeignLog, ForeignLogs, foreign_logs
from perdure.core.values import ops
from perdure.core.values.plain_values import copy
from perdure.errors import PerdureError
from perdure.missing import MISSING
from perdure.model import MAIN, Cause, Checkpoint, Message, RunInfo
from perdure.storage.answers import Standing
from perdure.storage.appending import Riders
from perdure.storage.capabilities import Backend, RunQuery, Shipment
from perdure.testing.pen import Pen
from perdure.transfer.whole_log import LogEntry
from perdure.types import AgentInfo
from tests.rubbish.rooms import Parts, Reasons, Room, arguments, methods, part
from tests.rubbish.world import World, finishing

_numbers = itertools.count()
LOG, PENNED = "log", "penned"
APPEND = "Adapters.log.append"
STATE = {"n": 1, "list": [1, 2], "text": "t"}


class Adapters(Room):
    """`ForeignLogs` and `ForeignLog`: an adapter gives deltas, records and causes of its own."""

    name = "Adapters."
    parts: ClassVar[Parts] = {
        "Adapters.log.append": (
            "delta__0",
            "delta__0__path",
            "delta__0__value",
            "cause__what",
            "cause__kind",
            "cause__run",
            "cause__key",
            "cause__tags",
            "cause__refers",
            "cause__trace",
            "records__0",
            "records__0__t",
            "records__0__name",
            "records__1__run",
            "records__1__t",
        ),
        "Adapters.create": ("cause__what", "cause__tags", "state__n", "records__0"),
    }
    excused: ClassVar[Reasons] = {
        "Adapters.__init__": "made by `foreign_logs`",
        "Adapters.log.__init__": "made by its logs",
        "Adapters.in_thread": "calls a function of the adapter's own",
        **{
            f"Adapters.{name}": "takes what the log itself gave"
            for name in ("log", "log.spend", "log.begin")
        },
        **{
            f"Adapters.{name}": "no arguments"
            for name in ("all", "now", "check_open", "log.retained")
        },
        "Adapters.purge": "how long it may go on",
    }

    def parameters(self, target: str) -> list[Parameter]:
        every = super().parameters(target)
        # What an adapter says that the delta comes to is its own to know; so is that it knows.
        return [one for one in every if one.name not in ("folded", "state") or target != APPEND]

    def found(self) -> dict[str, Callable[..., Any]]:
        return (
            methods(ForeignLogs, self.name)
            | methods(ForeignLog, f"{self.name}log.")
            | {"Adapters.foreign_logs": foreign_logs}
        )

    def prepare(self, world: World) -> None:
        logs = foreign_logs(world.store, "theirs", (1, 0))
        log, held = logs.create(LOG, copy(STATE), Cause("create"))
        log.append(held, [ops.Set(("n",), 2)], STATE | {"n": 2}, Cause("save"), branch=MAIN)

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        logs = foreign_logs(world.store, "theirs", (1, 0))
        info = logs.look(LOG)
        assert info is not None
        log = logs.log(info)
        held = log.at(log.head(MAIN) or 1)
        records = [{"t": "theirs", "name": "x"}, {"t": "run-progress", "run": "r", "text": "x"}]
        every: dict[str, Any] = {
            "foreign_logs": {"store": world.store, "schema_id": "other", "version": (1, 0)},
            "look": {"name": LOG},
            "incarnation": {"name": LOG, "incarnation": 1},
            "create": {
                "name": f"{LOG}{next(_numbers)}",
                "state": copy(STATE),
                "cause": Cause("create"),
                "records": records,
            },
            "log.append": {
                "base": held,
                "delta": [ops.Set(("n",), 3)],
                "state": held.state,
                "cause": Cause("save", "words"),
                "branch": MAIN,
                "records": records,
            },
            "log.at": {"seq": 1},
            "log.commit": {"seq": 1},
            "log.commits": {"first": 1},
            "log.head": {"branch": MAIN},
            "log.key": {"key": "k"},
            "log.keys": {"keys": ["k"]},
            "log.trim": {"before": 2, "stays": _stays},
        }
        right: dict[str, Any] = every.get(name, {})
        given = arguments(right, wrong)
        holder = log if name.startswith("log.") else logs
        if name == "foreign_logs":
            made = foreign_logs(**given)
            made.create(f"{LOG}{next(_numbers)}", {"n": 1}, Cause("create"))
            return
        answer = getattr(holder, name.removeprefix("log."))(**given)
        if hasattr(type(answer), "__next__"):
            list(answer)


def _stays(seq: int) -> Any:
    return set(), set()


def _from_elsewhere() -> list[LogEntry]:
    with perdure.open("memory://") as store:
        agent = store.agent("imported", initial={"n": 1})
        with agent.edit("it") as draft:
            draft["n"] = 2
        agent.fork("side").save({"n": 3}, "more")
        return list(store.export_log(store.agents()[0]))


class Taken(Room):
    """Entries of logs, and what says which agent is meant, with one wrong field."""

    name = "Taken."
    parts: ClassVar[Parts] = {
        "Taken.import_log": tuple(
            f"entries__{n}{field}"
            for n in range(3)
            for field in ("", "__header", "__payload", "__asked")
        ),
        "Taken.export_log": tuple(f"info__{name}" for name in AgentInfo.__struct_fields__),
        "Taken.agent_of": tuple(f"info__{name}" for name in AgentInfo.__struct_fields__),
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        return {
            self.name + name: getattr(perdure.Store, name)
            for name in ("import_log", "export_log", "agent_of")
        }

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        right = {"entries": _ENTRIES()} if name == "import_log" else {"info": world.store.find("a")}
        answer = getattr(world.store, name)(**arguments(right, wrong))
        if name == "export_log":
            list(answer)
        elif name == "agent_of":
            with answer.edit("it") as draft:
                draft["n"] = next(_numbers)


_ENTRIES = functools.cache(_from_elsewhere)


@perdure.step
def pause() -> int:
    return 1


@perdure.agent(dict)
def played(run: perdure.Run[dict[str, Any]], n: Any = 1) -> Any:
    pause()
    run.wait_for("go", timeout=5, default=None)
    return run.ask("q?", schema=int, timeout=5, default=n)


class Testing(Room):
    """`perdure.testing`."""

    name = "Testing."
    parts: ClassVar[Parts] = {
        "Testing.play": ("answers__0", "signals__go", "signals__go__0", "tools__stand_in"),
    }
    excused: ClassVar[Reasons] = {
        f"Testing.{name}": "starts processes that it kills: tests/testing"
        for name in (
            "kill_at_every_boundary",
            "kill_program_at_every_boundary",
            "run_with_kills",
            "boundary",
        )
    } | {
        "Testing.BackendContract": "a suite",
        "Testing.Clock.open_async": "as Clock.open",
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        found: dict[str, Callable[..., Any]] = {}
        for name in perdure.testing.__all__:
            one = getattr(perdure.testing, name)
            if name == "Clock":
                found |= methods(one, f"{self.name}Clock.")
            elif not isinstance(one, type) or name == "BackendContract":
                found[self.name + name] = one
        return found

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        backend = world.store._context.backend
        every: dict[str, Any] = {
            "play": {
                "function": played,
                "answers": [1],
                "signals": {"go": [1]},
                "tools": {pause: lambda: 2},
            },
            "run_until_waiting": {
                "store": world.store,
                "function": finishing,
                "agent": f"t{next(_numbers)}",
            },
            "replay": {"source": world.store, "function": finishing, "run": "done/finishing/main"},
            "recorded_runs": {"source": world.store, "function": finishing},
            "Clock.advance": {"by": 1},
            "Clock.advance_to": {"micros": 1},
            "Clock.open": {"url": "memory://"},
            "Clock.store_on": {"backend": backend},
        }
        right: dict[str, Any] = every.get(name, {})
        if "tools__stand_in" in wrong:
            wrong = {**wrong, "tools": {pause: wrong["tools__stand_in"]}}
        given = arguments(right, {k: v for k, v in wrong.items() if k != "tools__stand_in"})
        args = [
            given.pop(one)
            for one in ("store", "function", "agent")
            if one in given and name in ("play", "run_until_waiting")
        ]
        args += [given.pop("args")] if "args" in given and args else []
        if args and "kwargs" in given:
            given["n"] = given.pop("kwargs")
        clock = perdure.testing.Clock()
        if name == "Clock.__init__":
            clock = perdure.testing.Clock(**given)
            clock.advance(1)
            with clock.open("memory://") as store:
                store.agent("a").save({"n": 1}, "it")
        elif name.startswith("Clock."):
            with clock.open("memory://") as store:
                answer = getattr(clock, name.removeprefix("Clock."))(**given)
                store.agent("a").save({"n": 1}, "it")
                if isinstance(answer, perdure.Store) and name == "Clock.open":
                    answer.agent("a").save({"n": 1}, "it")
                    answer.close()
        else:
            getattr(perdure.testing, name)(*args, **given)


_RUN = tuple(
    f"runs__0__{name}" for name in RunInfo.__struct_fields__ if name not in ("agent", "agent_no")
)
"""An agent's name is the log's, and is checked with it."""
_MESSAGE = tuple(name for name in Message.__struct_fields__ if name != "kind")  # one of a few
_APPEND = tuple(
    f"batch__0{name}"
    for name in (
        "",
        "__no",
        "__incarnation",
        "__expected",
        "__epoch",
        "__snapshot",
        "__epoch_min",
        "__then",
        "__riders",
        *(f"__riders__{one}" for one in Riders.__struct_fields__),
        "__riders__sends__0",
        "__riders__known__0",
        *(f"__riders__{one}" for one in _RUN),
        *(f"__riders__sends__0__{one}" for one in _MESSAGE),
        *(f"__riders__known__0__{one}" for one in _MESSAGE),
        *(f"__riders__checkpoint__{one}" for one in Checkpoint.__struct_fields__),
    )
)


class Port(Room):
    """A backend: what it takes it gives back, and what it gives others can read."""

    name = "Port."
    own_words = (PENNED,)
    parts: ClassVar[Parts] = {
        "Port.append": _APPEND,
        "Port.send": tuple(f"message__{one}" for one in _MESSAGE),
        "Port.ship": (
            *(f"shipment__{one}" for one in Shipment.__struct_fields__),
            "shipment__messages__0",
            *(f"shipment__messages__0__{one}" for one in _MESSAGE),
        ),
        "Port.runs": tuple(f"query__{one}" for one in RunQuery.__struct_fields__),
        "Port.stand": ("standing__closed", "standing__why"),
    }
    excused: ClassVar[Reasons] = {
        **{f"Port.{name}": "no arguments" for name in ("close", "executors", "next_wake", "now")},
        "Port.listen": "goes on behind the call",
    }

    def found(self) -> dict[str, Callable[..., Any]]:
        return {
            self.name + name: getattr(Backend, name)
            for name in dir(Backend)
            if not name.startswith("_") and callable(getattr(Backend, name))
        }

    def takes(self, right: Any, value: Any) -> bool:
        """Its callers are ours, and mypy sees to their types: what is wrong here is a value."""
        return type(value) is type(right) and type(value) in (str, int, bytes, bool)

    def prepare(self, world: World) -> None:
        backend = world.store._context.backend
        Pen(backend, PENNED).write()
        world.store.agent("gone").save({"n": 1}, "it")
        world.store.delete("gone")

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        name = target.removeprefix(self.name)
        backend: Any = world.store._context.backend
        pen = Pen(backend, f"{PENNED}{next(_numbers)}")
        n = next(_numbers)
        message = Message("asks/asking/main", "asks", "signal", "s", f"k{n}", 1, "who", no=0)
        known = replace(message, name="known", value=MISSING)
        row = RunInfo(f"{pen.agent}/f/main", pen.agent, 1, MAIN, "f", "main", "running", started=1)
        checkpoint = Checkpoint("cp", 1, "hash", "dict", (1, 0), None, {"d": "1"})
        append, _ = pen.make(runs=[row], checkpoint=checkpoint, sends=[message], known=[known])
        penned = backend.agent(PENNED).no
        every: dict[str, Any] = {
            "append": {"batch": [append]},
            "send": {"message": message},
            "ship": {"shipment": Shipment(messages=[replace(message, no=1000 + n)], number_min=n)},
            "stand": {"standing": Standing(False, "why"), "no": penned},
            "runs": {"query": RunQuery()},
            "standing": {},
            "agent": {"name": PENNED},
            "read": {"no": penned, "first": 1, "last": 9},
            "ref": {"no": penned, "name": MAIN},
            "refs": {"no": penned},
            "key": {"no": penned, "key": "k"},
            "snapshot": {"no": penned, "seq": 1},
            "ready": {"now": 1, "limit": 5},
            "lease": {"no": penned, "branch": MAIN, "executor": "x"},
            "heartbeat": {"executor": "x", "ttl_ms": 5},
            "alive": {"executor": "x"},
            "notify": {"run_id": "x"},
            "purge": {"no": backend.agent("gone").no},
            "trim": {"no": penned, "word": 0, "remains": {}},
            "maintain": {"what": "sizes"},
        }
        right: dict[str, Any] = every.get(name, {})
        if all(self.takes(part(right, place), value) for place, value in wrong.items()):
            try:
                getattr(backend, name)(**arguments(right, wrong))
            finally:
                backend.stand(None)  # or the store may be closed to all that comes

    def read(self, world: World, agents: set[str]) -> None:
        """All that a backend has can be listed, and it takes what is right."""
        backend: Any = world.store._context.backend
        backend.agents()
        backend.feed()
        backend.mail()
        backend.ready(backend.now(), 100)
        backend.next_wake()
        for info in backend.agents():
            backend.refs(info.no)
        with suppress(PerdureError):
            Pen(backend, f"after{next(_numbers)}").write()


ROOMS: tuple[Room, ...] = (Adapters(), Taken(), Testing(), Port())
