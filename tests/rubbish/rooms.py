"""What is public beside the core, room by room: what there is to call, what it is called with where
nothing is wrong, and how it is used.

A wrong value may stand for a whole argument, or for a part of one: `config__thread_id` is what a
config has at that key, `items__0__role` what the first item says of its role.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, ClassVar

import msgspec

from tests.rubbish.world import World

PARTS = "__"


Parts = Mapping[str, tuple[str, ...]]
Reasons = Mapping[str, str]


class Room:
    """Targets of one kind. `name` begins all of them."""

    name = ""
    parts: ClassVar[Parts] = {}
    """By target, the parts of arguments that can be wrong, too."""
    excused: ClassVar[Reasons] = {}
    """Targets that are not called, and why not."""
    own_words: tuple[str, ...] = ()
    """How the names of agents begin of which the log is not all that there is: below it is written
    to what stands beside the log. Such a world is not used any further."""

    def found(self) -> dict[str, Callable[..., Any]]:
        """Every public callable, by its target's name."""
        raise NotImplementedError

    def parameters(self, target: str) -> list[Parameter]:
        every = list(inspect.signature(self.found()[target]).parameters.values())
        whole = [one for one in every if one.name != "self" and not one.name.startswith("_")]
        return whole + [
            Parameter(part, Parameter.KEYWORD_ONLY) for part in self.parts.get(target, ())
        ]

    def prepare(self, world: World) -> None:
        """Make what has to be there before a call."""

    def call(
        self, loop: asyncio.AbstractEventLoop, world: World, target: str, wrong: Mapping[str, Any]
    ) -> None:
        """Make the call, and use what it gives. Raises what it raises."""
        raise NotImplementedError

    def takes(self, right: Any, value: Any) -> bool:
        """Whether a value is tried where this one would be right."""
        return True

    def read(self, world: World, agents: set[str]) -> None:
        """Read what changed with its own means."""


def methods(cls: type, name: str) -> dict[str, Callable[..., Any]]:
    """Those of a class and its bases of ours, by the target's name."""
    found: dict[str, Callable[..., Any]] = {f"{name}__init__": cls}
    for one in cls.__mro__:
        if one.__module__.startswith("perdure"):
            for attribute, member in vars(one).items():
                if isinstance(member, staticmethod | classmethod):
                    member = getattr(cls, attribute)
                if not attribute.startswith("_") and inspect.isroutine(member):
                    found.setdefault(name + attribute, member)
    return found


def arguments(right: Mapping[str, Any], wrong: Mapping[str, Any]) -> dict[str, Any]:
    """Right arguments with what is wrong in their places; whole ones first, then parts."""
    given = {**right, **{name: one for name, one in wrong.items() if PARTS not in name}}
    for name, value in wrong.items():
        if PARTS in name:
            whole, *path = name.split(PARTS)
            if whole not in wrong:
                given[whole] = _with(given[whole], path, value)
    return given


def _with(whole: Any, path: list[str], value: Any) -> Any:
    """A copy in which a part is another one."""
    if not path:
        return value
    step, *rest = path
    if isinstance(whole, dict):
        return {**whole, step: _with(whole.get(step), rest, value)}
    if isinstance(whole, list | tuple):
        made = list(whole)
        made[int(step)] = _with(made[int(step)], rest, value)
        return type(whole)(made) if type(whole) in (list, tuple) else type(whole)(*made)
    return msgspec.structs.replace(whole, **{step: _with(getattr(whole, step), rest, value)})


def part(right: Mapping[str, Any], name: str) -> Any:
    """What is at a place of right arguments; None: nothing."""
    whole, *path = name.split(PARTS)
    found = right.get(whole)
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list | tuple):
            found = found[int(step)]
        else:
            found = getattr(found, step)
    return found


def used(loop: asyncio.AbstractEventLoop, answer: Any) -> Any:
    """What a coroutine gives, and all that an iterator does."""
    if inspect.isawaitable(answer):
        return loop.run_until_complete(_bounded(answer))
    if hasattr(type(answer), "__anext__"):
        return loop.run_until_complete(_bounded(_all(answer)))
    if hasattr(type(answer), "__next__"):
        return list(answer)
    return answer


async def _bounded(answer: Any) -> Any:
    async with asyncio.timeout(30):
        return await answer


async def _all(answer: Any) -> list[Any]:
    return [one async for one in answer]
