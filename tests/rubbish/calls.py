"""One call with wrong arguments: how it is made, how its answer is used, and what it may raise."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Iterator
from contextlib import suppress
from inspect import Parameter
from typing import Any

import perdure
import perdure.replication
from perdure.errors import RunInterrupted
from perdure.testing.driving import run_until_waiting
from tests.rubbish.frameworks import ROOMS as FRAMEWORKS
from tests.rubbish.hostile import HostileError
from tests.rubbish.shipped import ROOMS as SHIPPED
from tests.rubbish.subjects import EXCUSED, found, parameters
from tests.rubbish.world import World, acting, double, finishing

_numbers = itertools.count()
_ENTRIES: list[Any] = []


def entries() -> list[Any]:
    """A log from elsewhere."""
    if not _ENTRIES:
        with perdure.open("memory://") as store:
            agent = store.agent("imported", initial={"n": 1})
            with agent.edit("it") as draft:
                draft["n"] = 2
            _ENTRIES.extend(store.export_log(store.agents()[0]))
    return _ENTRIES


def _update(draft: Any) -> None:
    draft["u"] = next(_numbers)


def _plain(n: int = 1) -> int:
    return n


def _rule(after: Any) -> bool:
    return True


def baseline(world: World, target: str) -> dict[str, Any]:
    """Right arguments, where a call does not do without."""
    n = next(_numbers)
    owner = target.rpartition(".")[0]
    async_run = owner.startswith("Async") and owner != "AsyncStore"
    store = world.store
    common: dict[str, Any] = {
        "Store.find": {"name": "a"},
        "Store.delete": {"name": "done"},
        "Store.agent_of": {"info": store.find("a")},
        "Store.export_log": {"info": store.find("a")},
        "Store.import_log": {"entries": entries()},
        "Store.handle": {"run_id": "asks/asking/main"},
        "Store.alive": {"executor": "x"},
        "Store.agent": {"name": f"x{n}"},
        "Store.run": {"function": finishing, "agent": f"r{n}"},
        "Store.start": {"function": finishing, "agent": f"r{n}"},
        "Options.run": {"function": finishing, "agent": f"r{n}"},
        "Options.start": {"function": finishing, "agent": f"r{n}"},
        "Agent.update": {"fn": _update},
        "Agent.save": {"state": {"n": n}},
        "Agent.commit": {"where": 1},
        "Agent.at": {"where": 1},
        "Agent.diff": {"a": 1, "b": 2},
        "Agent.trim": {"before": 2},
        "Agent.checkpoint": {"name": f"c{n}"},
        "Agent.branch": {"name": "side"},
        "Agent.fork": {"name": f"f{n}"},
        "Agent.delete_branch": {"name": "side"},
        "Agent.rollback": {"to": 1},
        "Agent.adopt": {"branch": "side"},
        "RunHandle.signal": {"name": "other"},
        "RunHandle.answer": {"value": True},
        "RunHandle.settle": {"call": "pay#1", "not_done": True},
        "RunHandle.retry": {"step": "double#1"},
        "RunHandle.fork": {"step": "pay#1", "branch": f"b{n}"},
        "RunHandle.typed": {"function": finishing},
        "Run.call": {"function": double, "args": 3},
        "Run.map": {"function": double, "items": [1, 2]},
        "Run.sleep": {"duration": 0},
        "Run.wait_for": {"signal": "never", "timeout": 0, "default": 1},
        "Run.ask": {"question": "q?", "timeout": 0, "default": 1},
        "Run.select": {"waits": perdure.Timer(0)},
        "Run.patched": {"name": "p"},
        "Run.start": {"function": finishing, "agent": f"k{n}"},
        "Run.progress": {"text": "t"},
        "ChildStarter.start": {"function": finishing, "agent": f"k{n}"},
        "Child.result": {"timeout": 0, "default": 1},
        "Child.signal": {"name": "other"},
        "RunThreads.submit": {"function": _plain},
        "Worker.__init__": {"store": store, "functions": [finishing]},
        "Ask.__init__": {"question": "q?"},
        "Signal.__init__": {"name": "go"},
        "Timer.__init__": {"after": 0},
        "agent": {"schema": dict},
        "unrecorded": {"function": _plain},
        "increment": {"field": "n"},
        "move": {"source": 0, "target": 0},
        "invariant": {},
        "transitions": {"field": "n"},
        "open": {"url": "memory://"},
        "open_async": {"url": "memory://"},
        "replication.following": {"source": world.url, "target": "memory://"},
        "replication.migrate": {"source": world.url, "target": world.elsewhere},
        "replication.restore": {
            "source": world.url,
            "target": "memory://",
            "at": perdure.model.from_micros(store._context.backend.now()),
        },
        "replication.promote": {"target": world.url},
    }
    if async_run and owner in ("AsyncOptions",):
        return {"function": acting, "agent": f"r{n}"}
    if target in ("AsyncStore.run", "AsyncStore.start"):
        return {"function": acting, "agent": f"r{n}"}
    return dict(common.get(target.removeprefix("Async"), common.get(target, {})))


def bind(params: list[Parameter], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by their parameters' names as a call has them."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    by_name = False
    for one in params:
        if one.kind is Parameter.VAR_POSITIONAL:
            if one.name in given:
                args.append(given[one.name])
        elif one.kind is Parameter.VAR_KEYWORD:
            if one.name in given:
                kwargs["extra"] = given[one.name]
        elif one.name not in given:
            by_name = True
        elif one.kind is Parameter.KEYWORD_ONLY or by_name:
            kwargs[one.name] = given[one.name]
        else:
            args.append(given[one.name])
    return args, kwargs


class Caller:
    """Calls targets on a world. `loop` is that of the async faces."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.every = found()
        self.rooms = {target: room for room in (*SHIPPED, *FRAMEWORKS) for target in room.found()}

    def targets(self) -> Iterator[tuple[str, list[Parameter]]]:
        """Each with the parameters that can be wrong."""
        for name, room in self.rooms.items():
            if name not in room.excused and (own := room.parameters(name)):
                yield name, own
        for name, function in self.every.items():
            if name in EXCUSED:
                continue
            params = parameters(function, method="." in name and not name.endswith("__init__"))
            params = [one for one in params if not one.name.startswith("_")]
            if params:
                yield name, params

    def prepare(self, world: World, target: str) -> None:
        """Make what the call needs to be there: before it is looked at what there is."""
        room = self.rooms.get(target)
        if room is not None and room.name not in world.prepared:
            world.prepared.add(room.name)
            room.prepare(world)

    def call(self, world: World, target: str, wrong: dict[str, Any]) -> None:
        """Make the call, and use what it gives. Raises what it raises."""
        if target in self.rooms:
            self.rooms[target].call(self.loop, world, target, wrong)
            return
        given = baseline(world, target) | wrong
        owner = target.rpartition(".")[0]
        asynchronous = owner.startswith("Async") or target == "open_async"
        if owner in ("Run", "ChildStarter", "Child", "RunThreads") or target in _IN_RUNS:
            self._in_run(world, target, given)
        elif owner in ("AsyncRun", "AsyncChildStarter", "AsyncChild"):
            self._in_async_run(world, target, given)
        elif asynchronous:
            self.loop.run_until_complete(self._async(world, target, given))
        else:
            self._plain(world, target, given)

    def _bound(self, target: str, holder: Any, given: dict[str, Any]) -> Any:
        function = self.every[target]
        method = "." in target and holder is not None
        args, kwargs = bind(parameters(function, method=method), given)
        return function(holder, *args, **kwargs) if method else function(*args, **kwargs)

    # -- on a store, an agent, a handle --------------------------------------------------------

    def _plain(self, world: World, target: str, given: dict[str, Any]) -> None:
        owner, _, method = target.rpartition(".")
        n = next(_numbers)
        if method == "__init__":
            made = self._bound(target, None, given)
            if isinstance(made, perdure.Schema):
                _edit(world.store.agent(f"s{n}", made))
            elif isinstance(made, perdure.SnapshotPolicy):
                with perdure.open("memory://", snapshots=made) as store:
                    _edit(store.agent("a"))
            return
        holder: Any = None
        if owner == "Store":
            holder = world.store
        elif owner == "Options":
            holder = world.store.options(key=f"k{n}")
        elif owner == "Agent":
            holder = world.store.agent("a")
        elif owner == "RunHandle":
            holder = world.handle(_RUNS.get(method, "asks/asking/main"))
        elif target == "Schema.of":
            perdure.Schema.of(*given.values())
            return
        elif target == "Schema.from_json_schema":
            _edit(world.store.agent(f"s{n}", self._bound(target, None, given)))
            return
        elif owner == "Schema":
            holder = perdure.Schema(dict)
        if target in ("Store.run", "Options.run"):
            args, kwargs = bind(parameters(self.every[target], method=True), given)
            run_until_waiting(holder, *args, **kwargs)
            return
        answer = self._bound(target, holder, given)
        if target == "Store.options":
            run_until_waiting(answer, finishing, f"r{n}")
        elif target in ("agent", "invariant", "transitions"):
            _use_made(world, target, answer)
        else:
            _use(answer)

    async def _async(self, world: World, target: str, given: dict[str, Any]) -> None:
        owner, _, method = target.rpartition(".")
        n = next(_numbers)
        if target == "open_async":
            async with self._bound(target, None, given) as store:
                await store.agents()
            return
        store = await world.async_store()
        holder: Any = store
        if owner == "AsyncOptions":
            holder = store.options(key=f"k{n}")
        elif owner == "AsyncAgent":
            holder = await store.agent("a")
        elif owner == "AsyncRunHandle":
            holder = await store.handle(_RUNS.get(method, "asks/asking/main"))
        async with asyncio.timeout(30):
            answer = self._bound(target, holder, given)
            answer = await answer if inspect.isawaitable(answer) else answer
            await _use_async(answer)
            if target == "AsyncStore.options":
                await answer.run(acting, f"r{n}")

    # -- in a run --------------------------------------------------------------------------------

    def _in_run(self, world: World, target: str, given: dict[str, Any]) -> None:
        errors: list[BaseException] = []

        def body(run: perdure.Run[dict[str, Any]]) -> Any:
            try:
                answer = self._call_in_run(run, target, given)
            except BaseException as error:
                errors.append(error)
                raise
            return answer if target in _ANSWERED else None

        self._run(world, perdure.agent(dict, name="body")(body), errors)

    def _call_in_run(self, run: Any, target: str, given: dict[str, Any]) -> Any:
        owner = target.rpartition(".")[0]
        if target == "Run.select":
            waits = given["waits"]
            return run.select(late=perdure.Timer(0), extra=waits)
        if target in ("Ask.__init__", "Signal.__init__", "Timer.__init__"):
            made = self._bound(target, None, given)
            return run.select(it=made, late=perdure.Timer(0))
        if target in ("increment", "move"):
            with run.edit("it") as draft:
                draft["n"], draft["list"] = 1, [1, 2]
                holder = draft if target == "increment" else draft["list"]
                return self._bound(target, None, {_HOLDERS[target]: holder} | given)
        if target in ("step", "tool"):
            decorated = self._bound(target, None, given)
            if "function" in given:
                return decorated()
            return decorated(_plain)(1)
        if target in ("heartbeat", "saved"):
            return run.call(perdure.step(name="beats")(lambda: self._beats(target, given)))
        if target == "unrecorded":
            return self._bound(target, None, given)()
        holder = run
        if owner == "ChildStarter":
            holder = run.options()
        elif owner == "Child":
            holder = run.start(finishing, f"k{next(_numbers)}")
        elif owner == "RunThreads":
            with run.executor() as threads:
                args, kwargs = bind(parameters(self.every[target], method=True), given)
                return threads.submit(*args, **kwargs).result(30)
        answer = self._bound(target, holder, given)
        if target == "Run.options":
            return answer.start(finishing, f"k{next(_numbers)}").id
        if target == "Run.executor":
            with answer as threads:
                return threads.submit(_plain, 1).result(30)
        if target == "Run.edit":
            with answer as draft:
                draft["n"] = 5
            return None
        return answer

    def _beats(self, target: str, given: dict[str, Any]) -> int:
        self._bound(target, None, given)
        return 1

    def _in_async_run(self, world: World, target: str, given: dict[str, Any]) -> None:
        errors: list[BaseException] = []

        async def body(run: perdure.AsyncRun[dict[str, Any]]) -> Any:
            try:
                answer = await self._call_in_async_run(run, target, given)
            except BaseException as error:
                errors.append(error)
                raise
            return answer if target.removeprefix("Async") in _ANSWERED else None

        self._run(world, perdure.agent(dict, name="body")(body), errors)

    async def _call_in_async_run(self, run: Any, target: str, given: dict[str, Any]) -> Any:
        owner = target.rpartition(".")[0]
        if target == "AsyncRun.select":
            return await run.select(late=perdure.Timer(0), extra=given["waits"])
        holder = run
        if owner == "AsyncChildStarter":
            holder = run.options()
        elif owner == "AsyncChild":
            holder = await run.start(finishing, f"k{next(_numbers)}")
        answer = self._bound(target, holder, given)
        if target == "AsyncRun.options":
            return (await answer.start(finishing, f"k{next(_numbers)}")).id
        if target == "AsyncRun.edit":
            async with answer as draft:
                draft["n"] = 5
            return None
        return await answer if inspect.isawaitable(answer) else answer

    def _run(self, world: World, body: Any, errors: list[BaseException]) -> None:
        n = next(_numbers)
        try:
            handle = run_until_waiting(world.store, body, f"r{n}")
            if handle.status == "waiting":  # what is recorded is gone through again
                backend = world.store._context.backend
                if handle.info.wake_at_micros and handle.info.wake_at_micros <= backend.now():
                    run_until_waiting(world.store, body, f"r{n}")
        except RunInterrupted as left:
            raise AssertionError(f"it came out: {left!r}") from left
        except Exception as error:
            if errors and isinstance(errors[-1], Exception):
                raise errors[-1] from error
            raise


_IN_RUNS = {
    "increment",
    "move",
    "step",
    "tool",
    "heartbeat",
    "saved",
    "unrecorded",
    "Ask.__init__",
    "Signal.__init__",
    "Timer.__init__",
}
_ANSWERED = {"Run.again", "Run.call", "Run.map", "Run.select", "Run.wait_for", "Run.ask"}
_RUNS = {
    "settle": "doubts/doubting/main",
    "retry": "done/finishing/main",
    "result": "done/finishing/main",
    "resume": "doubts/doubting/main",
}
_HOLDERS = {"increment": "holder", "move": "items"}


def _edit(agent: Any) -> None:
    with agent.edit("it") as draft:
        if isinstance(draft, dict):
            draft["n"] = next(_numbers)


def _use(answer: Any) -> None:
    """What a caller does with what it got."""
    if isinstance(answer, perdure.Agent):
        _ = answer.state
        _edit(answer)
    elif isinstance(answer, perdure.types.AgentAt):
        _ = answer.state, answer.commit
    elif isinstance(answer, perdure.Store):
        answer.agents()
        answer.close()
    elif isinstance(answer, Iterator):
        list(itertools.islice(answer, 50))
    elif hasattr(type(answer), "__enter__"):
        with answer as draft:
            if isinstance(draft, perdure.replication.Follower):
                draft.drain()
            elif draft is not None:
                draft["n"] = next(_numbers)
    elif isinstance(answer, perdure.RunHandle):
        _ = answer.info
    elif callable(answer):
        with suppress(HostileError):
            answer(_plain)


async def _use_async(answer: Any) -> None:
    if hasattr(type(answer), "__aenter__"):
        async with answer as draft:
            draft["n"] = next(_numbers)
    elif hasattr(type(answer), "__anext__"):
        async for _ in answer:
            pass


def _use_made(world: World, target: str, made: Any) -> None:
    """What a decorator gave, in use."""
    n = next(_numbers)
    if target == "agent":

        def body(run: Any, n: int = 1) -> int:
            return n

        run_until_waiting(world.store, made(body), f"r{n}")
        return
    rule = made(_rule) if target == "invariant" and made is not _rule else made
    if callable(rule):
        schema: Any = perdure.Schema(dict, id="ruled", invariants=[rule])
        _edit(world.store.agent(f"s{n}", schema))
