"""The async face has what the sync one has, with the same parameters and results.

Two faces that are written by hand drift apart: a parameter is added here and forgotten there. So
each public name of one side is looked up on the other, and their signatures are compared.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import pytest

import perdure
from perdure.agents import Agent
from perdure.aio import (
    AsyncAgent,
    AsyncEdit,
    AsyncOptions,
    AsyncRunHandle,
    AsyncStore,
    Opening,
    open_async,
)
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.functions.async_run import AsyncChild, AsyncChildStarter, AsyncRun
from perdure.engine.functions.async_run_edit import AsyncRunEdit
from perdure.engine.functions.child_handle import Child
from perdure.engine.functions.child_starter import ChildStarter
from perdure.engine.functions.run import Run
from perdure.engine.functions.run_edit import RunEdit
from perdure.state.edit_block import Edit
from perdure.store import Options, Store

PAIRS: list[tuple[type, type]] = [
    (Store, AsyncStore),
    (Agent, AsyncAgent),
    (Edit, AsyncEdit),
    (Options, AsyncOptions),
    (RunHandle, AsyncRunHandle),
    (Run, AsyncRun),
    (RunEdit, AsyncRunEdit),
    (ChildStarter, AsyncChildStarter),
    (Child, AsyncChild),
]
ASYNC_NAMES = {sync.__name__: other.__name__ for sync, other in PAIRS} | {
    "Iterator": "AsyncIterator"
}

ONE_SIDED = {
    "Store.runner": "for testing and the command line, which are sync",
    "Options.order": "for the faces",
    "Options.runner": "for the faces",
    "RunHandle.typed": "for the faces",
    "Run.executor": "threads are for functions that are not async, which have tasks",
    "Child.waiting": "for the faces, which share it",
    "Child.ended": "for the faces, which share it",
    "Child.cancelling": "for the faces, which share it",
    "Child.signalling": "for the faces, which share it",
    "Child.end": "inherited",
    "Child.status": "inherited: like `Run.now`, it is not awaited",
    "AsyncAgent.look": "for the library: what was read is kept for the properties",
    "AsyncAgent.drive": "for the library: runs an operation",
}
DUNDERS = {"__aenter__": "__enter__", "__aexit__": "__exit__"}


def public(owner: type) -> dict[str, Any]:
    """What is public in a class, and in those of ours that it is made of, by its name on the sync
    side."""
    ours = [one for one in reversed(owner.__mro__) if one.__module__ not in ("builtins", "typing")]
    named = {DUNDERS.get(name, name): value for one in ours for name, value in vars(one).items()}
    return {
        name: value
        for name, value in named.items()
        if not name.startswith("_") or name in DUNDERS.values()
    }


def in_async(kind: str) -> str:
    """How the async face says what a sync method returns."""
    return re.sub(r"\b\w+\b", lambda word: ASYNC_NAMES.get(word[0], word[0]), kind)


def result_of(kind: str) -> str:
    """What awaiting gives, of what has to be awaited."""
    found = re.fullmatch(r"Pending\[(.*)\]", kind)
    return found[1] if found else kind


def taken(kind: Any) -> str:
    """How the async face says what a sync method takes: functions that it calls are async."""
    text = in_async(str(kind))
    text = re.sub(r"(Concatenate\[AsyncRun\[T\], P\]), R\]", r"\1, Coroutine[Any, Any, R]]", text)
    return text.replace("Callable[[I], R]", "Callable[[I], Awaits[R] | R]")


OTHERWISE = ("AsyncStore.start", "AsyncOptions.start", "AsyncRun.call")
"""Typed for functions of either kind, whose results one type variable cannot say."""

ASKED = ("AsyncRunHandle.info", "AsyncRunHandle.status")
"""What asks the store: a property cannot be awaited."""

AT_ONCE = ("now", "random", "uuid", "again", "patched", "progress", "options", "resource")
"""What takes no time, and is not awaited on either side."""


def waits(function: Any) -> bool:
    """Whether it is awaited, or what it returns is, so that the loop goes on meanwhile."""
    returned = str(inspect.signature(function).return_annotation)
    called = inspect.unwrap(function)  # the ends of blocks are handed out by a descriptor
    awaited = inspect.iscoroutinefunction(called) or function.__name__ in AT_ONCE
    return awaited or returned.startswith(("Async", "Pending"))


def differences(name: str, sync: Any, other: Any) -> list[str]:
    shown = isinstance(sync, property)
    if name in ASKED:
        sync, shown = sync.fget, False
    elif shown or isinstance(other, property):
        if not (isinstance(sync, property) and isinstance(other, property)):
            return [f"{name}: a property on one side only"]
        sync, other = sync.fget, other.fget
    problems = []
    mine, theirs = inspect.signature(sync), inspect.signature(other)
    for parameter in {**mine.parameters, **theirs.parameters}:
        one, two = mine.parameters.get(parameter), theirs.parameters.get(parameter)
        if one is None or two is None:
            problems.append(f"{name}: {parameter!r} on one side only")
        elif (one.kind, one.default, taken(one.annotation)) != (
            two.kind,
            two.default,
            in_async(str(two.annotation)),
        ):
            problems.append(f"{name}: {one} is not {two}")
    if list(mine.parameters) != list(theirs.parameters):
        problems.append(f"{name}: other order of parameters")
    expected, found = in_async(mine.return_annotation), result_of(theirs.return_annotation)
    if found != expected:
        problems.append(f"{name}: returns {found}, not {expected}")
    if not shown and not waits(other):
        problems.append(f"{name}: does not wait")
    return problems


def unlike(sync: type, other: type) -> list[str]:
    here, there = public(sync), public(other)
    problems = []
    for name in {**here, **there}:
        if f"{other.__name__}.{name}" in OTHERWISE:
            continue
        if f"{sync.__name__}.{name}" in ONE_SIDED or f"{other.__name__}.{name}" in ONE_SIDED:
            continue
        if name not in there:
            problems.append(f"{other.__name__} lacks {name}")
        elif name not in here:
            problems.append(f"{sync.__name__} lacks {name}")
        else:
            problems += differences(f"{other.__name__}.{name}", here[name], there[name])
    return problems


@pytest.mark.parametrize(("sync", "other"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_faces_are_alike(sync: type, other: type) -> None:
    assert unlike(sync, other) == []


def test_both_ways_to_open_are_alike() -> None:
    one, two = inspect.signature(perdure.open), inspect.signature(open_async)
    assert one.parameters == two.parameters
    assert typing.get_type_hints(open_async)["return"] is Opening


def test_what_is_named_one_sided_is() -> None:
    """Or the list of exceptions would hide what it was not made for."""
    for name in ONE_SIDED:
        owner, _, method = name.partition(".")
        pair = next(pair for pair in PAIRS if owner in (pair[0].__name__, pair[1].__name__))
        there = [method in vars(kind) for kind in pair]
        assert sum(there) <= 1, f"{name} is on both sides: compare it"


class _One:
    def same(self, a: int, *, b: str = "") -> int: ...  # type: ignore[empty-body]
    def kind(self, a: int) -> int: ...  # type: ignore[empty-body]
    def default(self, a: int = 1) -> int: ...  # type: ignore[empty-body]
    def result(self) -> int: ...  # type: ignore[empty-body]
    def blocks(self) -> int: ...  # type: ignore[empty-body]
    def pages(self) -> Iterator[int]: ...  # type: ignore[empty-body]
    def missing(self) -> None: ...
    @property
    def shown(self) -> int: ...  # type: ignore[empty-body]


class _Two:
    async def same(self, a: int, *, b: str = "") -> int: ...  # type: ignore[empty-body]
    async def kind(self, *, a: int) -> int: ...  # type: ignore[empty-body]
    async def default(self, a: int = 2) -> int: ...  # type: ignore[empty-body]
    async def result(self) -> str: ...  # type: ignore[empty-body]
    def blocks(self) -> int: ...  # type: ignore[empty-body]
    def pages(self) -> AsyncIterator[int]: ...  # type: ignore[empty-body]
    async def added(self) -> None: ...
    async def shown(self) -> int: ...  # type: ignore[empty-body]


def test_differences_are_found() -> None:
    assert [problem.partition(":")[0] for problem in unlike(_One, _Two)] == [
        "_Two.kind",
        "_Two.default",
        "_Two.result",
        "_Two.blocks",
        "_Two lacks missing",
        "_Two.shown",
        "_One lacks added",
    ]


# What mypy makes of both; never called.


class Ticket:
    status: str = ""


def check_sync(store: Store) -> None:
    agent = store.agent("a", Ticket)
    with agent.edit() as draft:
        typing.assert_type(draft, Ticket)
    typing.assert_type(agent.state, Ticket)
    typing.assert_type(agent.log(), Iterator[perdure.types.Commit])
    typing.assert_type(store.agent("b").state, dict[str, Any])


async def check_async(store: AsyncStore) -> None:
    agent = await store.agent("a", Ticket)
    typing.assert_type(agent, AsyncAgent[Ticket])
    async with agent.edit() as draft:
        typing.assert_type(draft, Ticket)
    typing.assert_type(agent.state, Ticket)
    typing.assert_type(agent.log(), AsyncIterator[perdure.types.Commit])
    typing.assert_type(await agent.fork("b"), AsyncAgent[Ticket])
    typing.assert_type((await agent.at(1)).state, Ticket)
    typing.assert_type((await store.agent("b")).state, dict[str, Any])
    opening: Awaitable[AsyncStore] = perdure.open_async("a.db")
    context: AbstractAsyncContextManager[AsyncStore] = perdure.open_async("a.db")
    block: AbstractAsyncContextManager[Ticket] = agent.edit()
    plain: AbstractContextManager[Store] = perdure.open("a.db")
    fn: Callable[[Ticket], object] = _change
    await agent.update(fn)
    del opening, context, block, plain


async def _change(ticket: Ticket) -> None: ...
