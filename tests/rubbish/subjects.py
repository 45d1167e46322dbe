"""What is called: every public function and method, found by looking, and how each is reached.

One that is added is missing in no list: `found` sees it, and a test fails until it is called here,
or is excused with a reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import perdure
import perdure.replication
from perdure.agents import Agent, AgentAt
from perdure.aio.agent import AsyncAgent
from perdure.aio.runs import AsyncOptions, AsyncRunHandle
from perdure.aio.store import AsyncStore
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.run_options import Options
from perdure.engine.dispatch.worker import Worker
from perdure.engine.functions.async_run import AsyncChild, AsyncChildStarter, AsyncRun
from perdure.engine.functions.child_handle import Child
from perdure.engine.functions.child_starter import ChildStarter
from perdure.engine.functions.run import Run, RunThreads
from perdure.store import Store

CLASSES: tuple[type, ...] = (
    Store,
    Options,
    Agent,
    AgentAt,
    RunHandle,
    Run,
    ChildStarter,
    Child,
    RunThreads,
    AsyncStore,
    AsyncOptions,
    AsyncAgent,
    AsyncRunHandle,
    AsyncRun,
    AsyncChildStarter,
    AsyncChild,
    Worker,
    perdure.Schema,
    perdure.SnapshotPolicy,
    perdure.CheckpointPolicy,
    perdure.GroupPolicy,
    perdure.Ticket,
    perdure.Guards,
    perdure.Retry,
    perdure.Signal,
    perdure.Ask,
    perdure.Timer,
)
"""Those that callers call methods of, or make by themselves."""

EXCUSED = {
    "Store.close": "ends it; no arguments",
    "Store.shrink": "no arguments",
    "Store.check_pages": "no arguments",
    "Store.flush": "no arguments",
    "AsyncStore.close": "ends it; no arguments",
    "AsyncStore.shrink": "no arguments",
    "AsyncStore.check_pages": "no arguments",
    "AsyncStore.flush": "no arguments",
    "AsyncStore.__init__": "made by open_async",
    "Store.__init__": "made by open",
    "Agent.__init__": "made by a store",
    "AsyncAgent.__init__": "made by a store",
    "AgentAt.__init__": "made by an agent",
    "AgentAt.read": "no arguments",
    "Options.__init__": "made by a store",
    "AsyncOptions.__init__": "made by a store",
    "RunHandle.__init__": "made by a store",
    "AsyncRunHandle.__init__": "made by a store",
    "Run.__init__": "made by a store",
    "AsyncRun.__init__": "made by a store",
    "ChildStarter.__init__": "made by a run",
    "AsyncChildStarter.__init__": "made by a run",
    "Child.__init__": "made by a run",
    "AsyncChild.__init__": "made by a run",
    "RunThreads.__init__": "made by a run",
    "Child.waiting": "of the library's own faces",
    "Child.ended": "of the library's own faces",
    "Child.cancelling": "of the library's own faces",
    "Child.signalling": "of the library's own faces",
    "AsyncChild.waiting": "of the library's own faces",
    "AsyncChild.ended": "of the library's own faces",
    "AsyncChild.cancelling": "of the library's own faces",
    "AsyncChild.signalling": "of the library's own faces",
    "Options.order": "of the library's own faces",
    "Worker.run": "takes no value: signals= is a flag; it runs until it is stopped",
    "Worker.stop": "no arguments",
    "Worker.can_run": "looks at any object",
    "Schema.take": "of the library's own faces",
    "Schema.build": "of the library's own faces",
    "Schema.node_at": "of the library's own faces",
    "Schema.migrate": "of the library's own faces",
    "Schema.plan": "of the library's own faces",
    "Schema.drift": "of the library's own faces",
    "Schema.merge_unknown": "of the library's own faces",
    "Schema.check_invariants": "of the library's own faces",
    "AsyncAgent.look": "of the library's own faces",
    "AsyncAgent.drive": "of the library's own faces",
    "Retry.worth_it": "of the library's own faces",
    "Retry.pause_s": "of the library's own faces",
    "fencing_token": "no arguments",
    "idempotency_key": "no arguments",
    "replication.follow": "takes a follower; see `following`",
    "repair": "rewrites a file in place; it has a flag, and the argument that `open` has",
}


def found() -> dict[str, Callable[..., Any]]:
    """All public callables, by the names under which they are called or excused."""
    every: dict[str, Callable[..., Any]] = {}
    for name in perdure.__all__:
        one = getattr(perdure, name)
        if isinstance(one, FunctionType):
            every[name] = one
    for cls in CLASSES:
        every[f"{cls.__name__}.__init__"] = cls
        for name, member in _methods(cls):
            every[f"{cls.__name__}.{name}"] = member
    for name, member in vars(perdure.replication).items():
        ours = inspect.isfunction(member) and member.__module__ == "perdure.replication"
        if ours and not name.startswith("_"):
            every[f"replication.{name}"] = member
    return every


def classes_left_out() -> set[str]:
    """Public classes that nothing here knows."""
    known = {cls.__name__ for cls in CLASSES} | {"Cause"}
    left = set()
    for name in perdure.__all__:
        one = getattr(perdure, name)
        if isinstance(one, type) and not issubclass(one, BaseException) and name not in known:
            left.add(name)
    return left


def _methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dir(cls):
        if name.startswith("_") and name != "__init__":
            continue
        member = inspect.getattr_static(cls, name)
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        if name != "__init__" and inspect.isfunction(member):
            yield name, member


def parameters(function: Callable[..., Any], *, method: bool) -> list[inspect.Parameter]:
    every = list(inspect.signature(function).parameters.values())
    return every[1:] if method and every and every[0].name == "self" else every
